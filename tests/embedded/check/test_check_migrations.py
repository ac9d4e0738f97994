"""Migrations checked: what is on its way is told as such, what nobody will finish is found, and mended where safe."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import orjson
import pytest

from reconciler.archives.archive import release_archive
from reconciler.archives.keys import build_mountable_key
from reconciler.archives.location import TopicLocation
from reconciler.archives.ownership import Ownership, OwnershipState, claim_topic, read_ownership, unclaim_topic
from reconciler.embedded.catalog.model import HoldEntry
from reconciler.embedded.catalog.tables import build_seal_writer
from reconciler.embedded.check.check import check_cluster
from reconciler.embedded.check.damage import CheckFinding, CheckResult, Kind, Severity
from reconciler.embedded.check.mend import repair_findings
from reconciler.embedded.keys import head_key
from reconciler.embedded.segments.head import read_head
from reconciler.errors import OwnershipLostError, UserError
from tests.embedded.mounts.shared_bucket import CLICKS, Bucket, Mount, owners
from tests.embedded.stores import WatchedStore

UNDER_WAY = [Kind.MIGRATION_UNDER_WAY]
ORDERS = "shop:eu:orders"


@pytest.fixture
def bucket() -> Bucket:
    return Bucket()


def checked(bucket: Bucket, cluster: str = "west", *, deep: bool = False) -> CheckResult:
    return check_cluster(bucket.stores[cluster], deep=deep, storage=bucket.storage)


def found(bucket: Bucket, cluster: str = "west") -> list[Kind]:
    return [finding.kind for finding in checked(bucket, cluster).findings]


def one(bucket: Bucket, kind: Kind, cluster: str = "west") -> CheckFinding:
    (finding,) = [each for each in checked(bucket, cluster).findings if each.kind is kind]
    return finding


def mended(bucket: Bucket, cluster: str = "west") -> list[str]:
    return [each.what for each in repair_findings(bucket.cluster(cluster), checked(bucket, cluster))]


def change_register(bucket: Bucket, location: str, change: Callable[[dict[str, Any]], object]) -> str:
    place = TopicLocation.parse(location)
    key = build_mountable_key(place.topic, place.cluster_id, place.revision)
    stored = bucket.storage.get(key)
    assert stored is not None
    value = orjson.loads(stored.body)
    change(value)
    bucket.storage.swap(key, orjson.dumps(value), expected=stored.version)
    return key


def hold(bucket: Bucket, held: HoldEntry | None, cluster: str = "west", topic: str = CLICKS) -> None:
    opened = bucket.cluster(cluster)
    opened.catalog.commit(lambda draft: draft.put_topic(topic, replace(draft.topics[topic], hold=held)))


class _StoppedError(UserError):
    pass


def stop_after(bucket: Bucket, migration: int, writes: int, cluster: str) -> bool:
    """Drive a migration until it has asked so often whether it may go on; say whether it is done."""
    left = [writes]

    def may_go_on() -> None:
        left[0] -= 1
        if left[0] < 0:
            message = "stopped"
            raise _StoppedError(message, hint="")

    try:
        replace(bucket.cluster(cluster).mounts, may_go_on=may_go_on).drive(migration)
    except _StoppedError:
        return False
    return True


# -- what is on its way


@pytest.mark.fact("F-R-119")
def test_wherever_a_migration_is_stopped_a_check_says_that_it_is_under_way_and_finds_no_damage(bucket: Bucket) -> None:
    location = bucket.filled(partitions=2)
    number = bucket.west.mounts.unmount(CLICKS)
    for cluster in ("west", "east"):
        seen = 0
        while not stop_after(bucket, number, seen, cluster):
            look = checked(bucket, cluster)
            assert [finding.kind for finding in look.findings] == UNDER_WAY, look.findings
            assert look.errors == 0
            seen += 1
        assert seen > 4
        bucket.cluster(cluster).finish_deletions()
        assert found(bucket, cluster) == []
        if cluster == "west":
            number = bucket.east.mounts.mount(Mount(location, CLICKS))
    assert owners(bucket) == ["east"]


def test_a_migration_is_told_with_its_state_and_whether_it_waits(bucket: Bucket) -> None:
    bucket.filled()
    bucket.filled(ORDERS)
    number = bucket.west.mounts.unmount(CLICKS, ORDERS, is_automatic=False)
    finding = one(bucket, Kind.MIGRATION_WAITS)
    assert finding.what == (
        f"migration {number}, outbound, is planned, and continues only by command: {CLICKS} and 1 more"
    )
    assert finding.severity is Severity.NOTE
    assert "cluster.mounts.ask" in finding.rule.advice
    assert "run" not in finding.rule.advice
    bucket.west.mounts.ask(number, "prepare")
    assert "`reconciler run` continues it" in one(bucket, Kind.MIGRATION_UNDER_WAY).rule.advice


def test_seals_that_a_cancelled_migration_has_left_are_a_note_until_somebody_appends(bucket: Bucket) -> None:
    bucket.filled()
    mounts = bucket.west.mounts
    number = mounts.unmount(CLICKS, is_automatic=False)
    mounts.ask(number, "prepare")
    mounts.drive(number)
    mounts.ask(number, "execute")
    mounts.drive(number)
    mounts.cancel(number)
    head = read_head(bucket.west.store, bucket.west.topic(CLICKS).id, 0)
    assert head is not None
    assert head.writer == build_seal_writer(number)
    assert found(bucket) == [Kind.SEAL_LEFT]
    assert checked(bucket).errors == 0
    with bucket.west.producer() as producer:
        producer.send(CLICKS, b"after")
    assert found(bucket) == []


# -- what nobody will finish


@pytest.mark.parametrize("is_closed", [False, True])
def test_a_hold_of_no_migration_is_taken_off_by_a_repair(bucket: Bucket, is_closed: bool) -> None:  # noqa: FBT001 - a parameter
    bucket.filled()
    hold(bucket, HoldEntry(77, is_closed=is_closed))
    assert found(bucket) == [Kind.HOLD_STALE]
    assert mended(bucket) == [f"released topics {CLICKS}, whose migration no longer exists"]
    assert found(bucket) == []
    with bucket.west.producer() as producer:
        producer.send(CLICKS, b"after")


def test_a_hold_stays_where_object_storage_says_that_the_topic_was_let_go_of(bucket: Bucket) -> None:
    location = bucket.filled()
    bucket.west.upkeep().upload()
    bucket.east  # noqa: B018 - it is made
    release_archive(bucket.storage, TopicLocation.parse(location), bucket.west.cluster_id, now_ms=bucket.clock())
    hold(bucket, HoldEntry(77, is_closed=True))
    assert sorted(found(bucket)) == [Kind.HOLD_STALE, Kind.OWNERSHIP_LOST]
    assert mended(bucket) == []
    bucket.mounted(location)
    assert sorted(found(bucket)) == [Kind.HOLD_STALE, Kind.OWNERSHIP_LOST]
    assert mended(bucket) == []
    assert owners(bucket) == ["west", "east"]
    with pytest.raises(UserError, match="cannot be written or read"):
        list(bucket.west.consume(CLICKS))


@pytest.mark.parametrize("damage", ["gone", "unheld", "closed"])
def test_a_migration_whose_topic_is_not_as_it_says_is_an_error_and_not_mended(bucket: Bucket, damage: str) -> None:
    bucket.filled()
    number = bucket.west.mounts.unmount(CLICKS)
    bucket.west.mounts.ask(number, "prepare")
    if damage == "gone":
        topic = bucket.west.topic(CLICKS)
        bucket.west.catalog.commit(lambda draft: draft.put_topic(CLICKS, None))
        bucket.west.store.delete([head_key(topic.id, 0)])
    else:
        hold(bucket, None if damage == "unheld" else HoldEntry(number, is_closed=True))
    finding = one(bucket, Kind.MIGRATION_CONTRADICTION)
    words = {"gone": "is not there", "unheld": "is not held by it", "closed": "takes no records"}
    assert finding.what == f"migration {number} is preparing, and its topic {CLICKS} {words[damage]}"
    assert mended(bucket) == []


def test_a_state_that_is_none_is_said(bucket: Bucket) -> None:
    bucket.filled()
    number = str(bucket.west.mounts.unmount(CLICKS))
    bucket.west.catalog.commit(
        lambda draft: draft.put_migration(int(number), replace(draft.migrations[number], state="asleep"))
    )
    assert "'asleep' is not a state of a migration" in one(bucket, Kind.MIGRATION_CONTRADICTION).what


# -- who owns what


def test_a_topic_that_was_released_is_told_once_with_what_to_do_and_can_be_deleted(bucket: Bucket) -> None:
    location = bucket.filled(partitions=4)
    bucket.west.upkeep().upload()
    with bucket.west.producer() as producer:
        for number in range(4):
            producer.send(CLICKS, b"late", partition=number)
    release_archive(bucket.storage, TopicLocation.parse(location), bucket.west.cluster_id, now_ms=bucket.clock())
    finding = one(bucket, Kind.OWNERSHIP_LOST)
    assert finding.what == f"{location} was released: it is detached, and no cluster owns it"
    assert "delete the topic here" in finding.rule.advice
    assert found(bucket) == [Kind.OWNERSHIP_LOST]
    bucket.mounted(location)
    before = bucket.values(cluster="east")
    east = bucket.east.cluster_id
    assert one(bucket, Kind.OWNERSHIP_LOST).what == f"{location} is mounted on cluster {east} as {CLICKS}"
    assert mended(bucket) == []
    assert found(bucket, "east") == []
    bucket.west.delete_topic(CLICKS)
    bucket.west.finish_deletions()
    assert found(bucket) == []
    assert bucket.values(cluster="east") == before
    assert found(bucket, "east") == []


def test_a_topic_that_came_back_home_is_no_fault_anywhere(bucket: Bucket) -> None:
    location = bucket.filled()
    bucket.unmounted()
    bucket.mounted(location)
    bucket.unmounted(cluster="east")
    bucket.mounted(location, "shop:back", cluster="west")
    for name in ("west", "east"):
        bucket.cluster(name).finish_deletions()
        assert found(bucket, name) == []
        assert checked(bucket, name, deep=True).findings == []


def test_a_claim_that_was_taken_away_from_a_mount_under_way_is_told(bucket: Bucket) -> None:
    location = bucket.filled()
    bucket.unmounted()
    mounts = bucket.east.mounts
    number = mounts.mount(Mount(location, CLICKS), is_automatic=False)
    for verb in ("prepare", "execute"):
        mounts.ask(number, verb)
        mounts.drive(number)
    assert found(bucket, "east") == [Kind.MIGRATION_WAITS]
    release_archive(bucket.storage, TopicLocation.parse(location), bucket.east.cluster_id, now_ms=bucket.clock())
    assert found(bucket, "east") == [Kind.OWNERSHIP_LOST, Kind.MIGRATION_WAITS]
    mounts.cancel(number)
    bucket.east.finish_deletions()
    assert found(bucket, "east") == []


def test_a_claim_without_a_migration_is_given_back_by_a_repair_and_the_topic_can_be_mounted(bucket: Bucket) -> None:
    location = bucket.filled()
    bucket.unmounted()
    place = TopicLocation.parse(location)
    wanted = Ownership(place, OwnershipState.CLAIMED, bucket.east.cluster_id, "long-gone", CLICKS, at_ms=1)
    claim_topic(bucket.storage, place, wanted)
    bucket.west.finish_deletions()
    assert found(bucket, "west") == []
    finding = one(bucket, Kind.CLAIM_LEFT, "east")
    assert finding.severity is Severity.WARNING
    with pytest.raises(OwnershipLostError):
        bucket.cluster("north").mounts.mount(Mount(location, CLICKS))
    assert mended(bucket, "east") == [f"gave back the claims on {location}"]
    assert found(bucket, "east") == []
    bucket.mounted(location, cluster="north")
    assert owners(bucket) == ["north"]


def test_a_claim_whose_migration_goes_on_is_never_given_back(bucket: Bucket) -> None:
    location = bucket.filled()
    bucket.unmounted()
    mounts = bucket.east.mounts
    number = mounts.mount(Mount(location, CLICKS), is_automatic=False)
    for verb in ("prepare", "execute"):
        mounts.ask(number, verb)
        mounts.drive(number)
    claimed = read_ownership(bucket.storage, TopicLocation.parse(location))
    assert claimed is not None
    assert claimed.state is OwnershipState.CLAIMED
    assert mended(bucket, "east") == []
    assert read_ownership(bucket.storage, TopicLocation.parse(location)) == claimed


def test_a_repair_that_finds_the_claim_gone_does_nothing(bucket: Bucket) -> None:
    location = bucket.filled()
    bucket.unmounted()
    place = TopicLocation.parse(location)
    claim_topic(
        bucket.storage, place, Ownership(place, OwnershipState.CLAIMED, bucket.east.cluster_id, "gone", CLICKS, at_ms=1)
    )
    before = checked(bucket, "east")
    unclaim_topic(bucket.storage, place, bucket.east.cluster_id, "gone", 2)
    bucket.mounted(location, cluster="north")
    assert repair_findings(bucket.east, before) == []
    assert owners(bucket) == ["north"]


@pytest.mark.parametrize("state", ["format", "field", "elsewhere"])
def test_a_register_that_cannot_be_read_is_an_error_whoever_it_belongs_to(bucket: Bucket, state: str) -> None:
    location = bucket.filled()
    bucket.unmounted()
    bucket.east  # noqa: B018 - it is made
    changes: dict[str, dict[str, Any]] = {
        "format": {"format": "reconciler.mountable/9"},
        "field": {"state": "dreaming"},
        "elsewhere": {"revision": 12345},
    }
    key = change_register(bucket, location, lambda value: value.update(changes[state]))
    for name in ("west", "east"):
        bucket.cluster(name).finish_deletions()
        finding = one(bucket, Kind.OWNERSHIP_DAMAGED, name)
        assert finding.place.key == key
        assert mended(bucket, name) == []


def test_what_is_no_register_of_an_owner_is_a_note(bucket: Bucket) -> None:
    bucket.filled()
    bucket.storage.put("mountable/notes.txt", b"x")
    assert found(bucket) == [Kind.FOREIGN]


def test_a_mounted_topic_that_was_deleted_and_kept_in_object_storage_is_a_note(bucket: Bucket) -> None:
    for deletes in ("true", "false"):
        name = f"shop:eu:deletes-{deletes}"
        location = bucket.filled(name, configs={"remote.delete": deletes})
        bucket.unmounted(name)
        bucket.mounted(location, name)
        bucket.east.delete_topic(name)
        bucket.east.finish_deletions()
        assert found(bucket, "east") == ([] if deletes == "true" else [Kind.OWNED_WITHOUT_TOPIC])
    release_archive(bucket.storage, TopicLocation.parse(location), bucket.east.cluster_id, now_ms=bucket.clock())
    assert found(bucket, "east") == []
    bucket.mounted(location, "shop:back", cluster="west")
    assert len(bucket.values("shop:back")) == 3


def test_a_topic_that_is_unmounted_while_registers_are_read_is_no_fault(bucket: Bucket) -> None:
    location = bucket.filled()
    bucket.unmounted()
    bucket.mounted(location)
    done: list[str] = []

    class Overtaken(WatchedStore):
        def list(self, prefix: str) -> Any:
            listed = list(self.inner.list(prefix))
            if prefix.startswith("mountable/") and not done:
                done.append(bucket.unmounted(cluster="east"))
            return iter(listed)

    look = check_cluster(bucket.stores["east"], storage=Overtaken(bucket.storage))
    assert look.errors == 0
    assert {finding.kind for finding in look.findings} <= {Kind.DELETION_UNFINISHED, Kind.UNNAMED}
