"""What mounting and unmounting refuse, with what is damaged, lost, locked or in the way: never a loss on the way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson
import pytest

from reconciler.archives.archive import release_archive
from reconciler.archives.location import TopicLocation
from reconciler.archives.recoverable import check_recoverable
from reconciler.embedded.catalog.model import QuotaEntry
from reconciler.embedded.mounts.mounts import Mount, Mounts, drive_or_undo
from reconciler.errors import (
    InvalidNamespaceError,
    NewerFormatError,
    OwnershipLostError,
    ReconcilerError,
    RetryableError,
    UserError,
)
from reconciler.lifecycles import MigrationState
from reconciler.objectstore.directory import error_from_os_error
from reconciler.objectstore.memory import MemoryStore
from tests.contracts.lossy import LossyStore
from tests.embedded.maintenance.tiny_segments import DAY, copied
from tests.embedded.mounts.migrants import drive, manifest_owners, process, tail
from tests.embedded.mounts.readable_topics import seen
from tests.embedded.mounts.shared_bucket import CLICKS, Bucket
from tests.embedded.tiered.tiered_cluster import BOTH


@pytest.fixture
def bucket() -> Bucket:
    return Bucket()


def moved(mounts: Mounts, number: int, *verbs: str) -> int:
    """Do verbs, each with the work of the state it leads to."""
    for verb in verbs:
        mounts.ask(number, verb)
        mounts.drive(number)
    return number


def state_of(mounts: Mounts, number: int) -> str:
    return mounts.list_unfinished()[number].state


def send(bucket: Bucket, value: str, cluster: str = "west") -> None:
    with bucket.cluster(cluster).producer() as producer:
        producer.send(CLICKS, value, partition=0)


# -- before anything begins


@pytest.mark.fact("F-R-101")
@pytest.mark.parametrize(
    ("configs", "properties"),
    [
        ({}, {}),
        ({"remote.read": "true"}, {}),
        ({"remote.write": "true"}, {}),
        (BOTH, {"cloud_storage_enabled": "false"}),
        (BOTH, {"cloud_storage_enable_segment_uploads": "false"}),
    ],
)
def test_what_is_not_tiered_is_not_unmounted_and_nothing_is_changed(
    bucket: Bucket, configs: dict[str, str], properties: dict[str, str]
) -> None:
    bucket.west.create_topic(CLICKS, configs=configs)
    bucket.west.alter_cluster(properties)
    before, there = bucket.west.catalog.read(), copied(bucket.storage).list("")
    with pytest.raises(UserError, match="resources that are not eligible"):
        bucket.west.mounts.unmount(CLICKS)
    assert bucket.west.catalog.read() == before
    assert [each.key for each in bucket.storage.list("")] == [each.key for each in there]


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ((), "Data migration definition contains errors"),
        (("shop:none",), "Topic does not exists"),
        ((CLICKS, "shop:none"), "Topic does not exists"),
        (("",), "Topic does not exists"),
    ],
)
def test_topics_that_are_not_there_are_not_unmounted(bucket: Bucket, names: tuple[str, ...], message: str) -> None:
    bucket.filled()
    with pytest.raises(UserError, match=message):
        bucket.west.mounts.unmount(*names)
    assert bucket.west.mounts.list_unfinished() == {}


def test_one_topic_is_in_one_migration_at_a_time(bucket: Bucket) -> None:
    bucket.filled()
    bucket.filled("shop:other")
    mounts = bucket.west.mounts
    number = mounts.unmount(CLICKS)
    with pytest.raises(UserError, match=f"undergoing data migration {number}"):
        mounts.unmount("shop:other", CLICKS)
    assert list(mounts.list_unfinished()) == [number]


@pytest.mark.fact("F-R-117")
def test_a_name_that_exists_makes_the_mount_fail_and_a_warning_is_logged(
    bucket: Bucket, caplog: pytest.LogCaptureFixture
) -> None:
    bucket.filled()
    location = bucket.unmounted()
    bucket.east.create_topic(CLICKS)
    with pytest.raises(UserError, match=f"topic {CLICKS} exists"):
        bucket.east.mounts.mount(Mount(location, CLICKS))
    assert "The topic has already been created" in caplog.text
    assert bucket.east.mounts.list_unfinished() == {}


def test_where_remote_data_cannot_be_read_nothing_is_mounted(bucket: Bucket) -> None:
    bucket.filled()
    location = bucket.unmounted()
    bucket.east.alter_cluster({"cloud_storage_enabled": "false"})
    with pytest.raises(UserError, match="Requested feature is disabled"):
        bucket.east.mounts.mount(Mount(location, CLICKS))


@pytest.mark.parametrize(
    "location",
    [
        "",
        "clicks",
        "a/b/c",
        "shop:eu:clicks/none/1",
        "../x/y/1",
        "shop:eu:clicks/../2",
        "\x00/\n/3",
        "é/ü/99999999999999999999",
    ],
)
def test_a_location_where_nothing_lies_is_refused(bucket: Bucket, location: str) -> None:
    bucket.filled()
    bucket.unmounted()
    with pytest.raises(UserError):
        bucket.east.mounts.mount(Mount(location, CLICKS))
    assert bucket.east.mounts.list_unfinished() == {}


@pytest.mark.parametrize(
    "name", ["", "shop:", ":x", "shop:eu:" + "x" * 243, "shop:a b", "shop:é", "none:x", "shop:eu:.."]
)
def test_a_name_that_cannot_be_is_refused(bucket: Bucket, name: str) -> None:
    bucket.filled()
    location = bucket.unmounted()
    with pytest.raises(UserError):
        bucket.east.mounts.mount(Mount(location, name))


def test_names_of_249_characters_travel(bucket: Bucket) -> None:
    name = "shop:eu:" + "x" * 241
    bucket.filled(name)
    bucket.mounted(bucket.unmounted(name), "y" * 249)
    assert len(bucket.values("y" * 249, "east")) == 3


def test_a_topic_that_is_being_unmounted_is_not_mounted_yet(bucket: Bucket) -> None:
    location = bucket.filled()
    bucket.west.upkeep().upload()
    mounts = bucket.west.mounts
    number = mounts.unmount(CLICKS, is_automatic=False)
    for verb in ("prepare", "execute"):
        moved(mounts, number, verb)
        with pytest.raises(OwnershipLostError, match="was never detached: it belongs to cluster"):
            bucket.east.mounts.mount(Mount(location, CLICKS))
    moved(mounts, number, "finish")
    bucket.mounted(location)
    assert len(bucket.values(cluster="east")) == 3


def leaving(bucket: Bucket, _location: str) -> None:
    """Let an unmount die once its topic is unmounted, and is still here."""
    begun: list[str] = []

    def stop(_what: str, key: str) -> None:
        if begun and not key.startswith("mountable/"):
            raise InterruptedError
        begun.extend([key] * key.startswith("mountable/"))

    bucket.west.mounts.unmount(CLICKS)
    with pytest.raises(InterruptedError):
        drive(process(bucket, "west", before=stop))


def released(bucket: Bucket, location: str) -> None:
    release_archive(bucket.storage, TopicLocation.parse(location), bucket.west.cluster_id, now_ms=bucket.clock())


def going(bucket: Bucket, location: str) -> None:
    """Let a deletion that removes the objects die half-way, then release the topic."""

    def stop(_what: str, key: str) -> None:
        if not key.startswith("catalog/"):
            raise InterruptedError

    with pytest.raises(InterruptedError):
        process(bucket, "west", before=stop).delete_topic(CLICKS)
    released(bucket, location)


@pytest.mark.parametrize(
    ("there", "message"),
    [
        (leaving, "undergoing data migration"),
        (released, f"was released, and is topic {CLICKS} here still"),
        (going, f"is being deleted here: it was topic {CLICKS}"),
    ],
)
def test_what_a_topic_of_the_same_cluster_still_has_is_not_mounted_there_under_another_name(
    bucket: Bucket, there: Callable[[Bucket, str], None], message: str
) -> None:
    location = bucket.filled(configs={"segment.bytes": "14"})
    send(bucket, "v3")
    bucket.west.upkeep().roll()
    bucket.west.upkeep().upload()
    there(bucket, location)
    with pytest.raises(UserError, match=message):
        bucket.west.mounts.mount(Mount(location, "shop:again"))
    bucket.mounted(location)
    tail(bucket.west)
    assert manifest_owners(bucket, location, 1) == {"east"}
    records = bucket.values(cluster="east")
    bucket.unmounted(cluster="east")
    if CLICKS in bucket.west.topics():
        bucket.west.delete_topic(CLICKS)
        tail(bucket.west)
    bucket.mounted(location, "shop:again", "west")
    assert records
    assert bucket.values("shop:again") == records


# -- in the middle


@pytest.mark.fact("F-R-121")
@pytest.mark.parametrize("direction", ["outbound", "inbound"])
def test_a_cancel_that_comes_too_early_or_too_late_is_refused_with_what_is_legal(
    bucket: Bucket, direction: str
) -> None:
    location = bucket.filled()
    if direction == "inbound":
        bucket.unmounted()
        mounts = bucket.east.mounts
        number = mounts.mount(Mount(location, CLICKS), is_automatic=False)
    else:
        mounts = bucket.west.mounts
        number = mounts.unmount(CLICKS, is_automatic=False)
    with pytest.raises(UserError, match="it is only planned; delete it"):
        mounts.cancel(number)
    moved(mounts, number, "prepare", "execute")
    mounts.ask(number, "finish")
    for _ in range(2):
        with pytest.raises(UserError, match="cannot cancel"):
            mounts.ask(number, "cancel")
        mounts.drive(number)
    assert state_of(mounts, number) == MigrationState.FINISHED
    mounts.ask(number, "delete")
    with pytest.raises(UserError, match="Data migration does not exist"):
        mounts.ask(number, "cancel")


@pytest.mark.fact("F-R-122")
def test_what_is_only_planned_is_deleted_and_all_is_as_it_was(bucket: Bucket) -> None:
    location = bucket.filled()
    west = bucket.west.mounts
    west.ask(west.unmount(CLICKS), "delete")
    send(bucket, "still")
    bucket.west.alter_topic(CLICKS, {"retention.ms": "1d"})
    bucket.unmounted()
    east = bucket.east.mounts
    east.ask(east.mount(Mount(location, CLICKS)), "delete")
    bucket.east.create_topic(CLICKS)
    bucket.mounted(location, "shop:late")
    assert len(bucket.values("shop:late", "east")) == 4


@pytest.mark.fact("F-R-110", "F-R-113")
def test_a_mounted_topic_serves_nobody_before_it_is_finished(bucket: Bucket) -> None:
    location = bucket.filled()
    bucket.unmounted()
    mounts = bucket.east.mounts
    number = mounts.mount(Mount(location, CLICKS), is_automatic=False)
    assert CLICKS not in bucket.east.topics()
    with pytest.raises(UserError, match="is being mounted by migration"):
        bucket.east.create_topic(CLICKS)
    for verb in ("prepare", "execute"):
        moved(mounts, number, verb)
        assert CLICKS in bucket.east.topics()
        for act in (lambda: send(bucket, "x", "east"), lambda: bucket.values(cluster="east")):
            with pytest.raises(UserError, match="RESOURCE_IS_BEING_MIGRATED"):
                act()
        for change in (
            lambda: bucket.east.alter_topic(CLICKS, {"retention.ms": "1d"}),
            lambda: bucket.east.alter_topic(CLICKS, {}, partitions=9),
            lambda: bucket.east.move_topic(CLICKS, "shop:moved"),
            lambda: bucket.east.delete_topic(CLICKS),
            lambda: bucket.east.delete_namespace("shop", recursive=True),
        ):
            with pytest.raises(UserError, match="POLICY_VIOLATION"):
                change()
    moved(mounts, number, "finish")
    assert len(bucket.values(cluster="east")) == 3


def test_a_namespace_that_holds_a_topic_on_its_way_is_not_deleted_nor_anything_in_it(bucket: Bucket) -> None:
    bucket.filled()
    bucket.filled("shop:another")
    bucket.west.mounts.unmount(CLICKS)
    before = bucket.west.catalog.read()
    with pytest.raises(UserError, match="POLICY_VIOLATION"):
        bucket.west.delete_namespace("shop", recursive=True)
    assert bucket.west.catalog.read() == before


@pytest.mark.fact("F-K-003")
@pytest.mark.parametrize("name", ["lab:clicks", "shop:eu:west:clicks"])
def test_no_namespace_is_made_for_a_mount(bucket: Bucket, name: str) -> None:
    location = bucket.filled()
    bucket.unmounted()
    mounts, before = bucket.east.mounts, bucket.east.namespaces()
    with pytest.raises(InvalidNamespaceError, match="does not exist"):
        mounts.drive(mounts.mount(Mount(location, name)))
    assert (bucket.east.namespaces(), dict(bucket.east.topics())) == (before, {})


def test_a_namespace_deleted_under_a_planned_mount_is_told_and_the_mount_goes_on_once_it_is_back(
    bucket: Bucket,
) -> None:
    location = bucket.filled()
    bucket.unmounted()
    mounts = bucket.east.mounts
    number = mounts.mount(Mount(location, CLICKS))
    bucket.east.delete_namespace("shop", recursive=True)
    with pytest.raises(InvalidNamespaceError):
        mounts.drive(number)
    assert state_of(mounts, number) == MigrationState.PREPARING
    bucket.east.create_namespace("shop:eu")
    mounts.drive(number)
    assert len(bucket.values(cluster="east")) == 3


def test_a_namespace_that_may_not_hold_it_refuses_it_and_it_stays_mountable(bucket: Bucket) -> None:
    location = bucket.filled(partitions=3)
    bucket.unmounted()
    bucket.east.limit_namespace("shop", QuotaEntry(partitions=2))
    mounts = bucket.east.mounts
    number = mounts.mount(Mount(location, CLICKS))
    with pytest.raises(UserError, match="partitions"):
        mounts.drive(number)
    mounts.cancel(number)
    bucket.mounted(location, cluster="south")
    assert len(bucket.values(cluster="south")) == 9


@pytest.mark.fact("F-R-104", "F-R-107")
def test_a_producer_at_full_speed_loses_nothing_that_was_acknowledged(bucket: Bucket) -> None:
    bucket.filled(records=0)
    mounts = bucket.west.mounts
    number = mounts.unmount(CLICKS, is_automatic=False)
    acknowledged, refused = [], []

    def write(many: int) -> None:
        for _ in range(many):
            value = f"{len(acknowledged)}".encode()
            try:
                with bucket.west.producer() as producer:
                    producer.send(CLICKS, value, partition=0)
            except UserError as error:
                refused.append(error)
            else:
                acknowledged.append(value)

    for verb in ("prepare", "execute", "finish"):
        write(3)
        mounts.ask(number, verb)
        write(3)
        mounts.drive(number)
    assert (len(acknowledged), len(refused)) == (9, 9)
    bucket.mounted(bucket.location_of_only())
    assert [value for _, _, value in bucket.values(cluster="east")] == acknowledged


@pytest.mark.parametrize("property_name", ["cloud_storage_enable_segment_uploads", "cloud_storage_enabled"])
@pytest.mark.parametrize("after", ["prepare", "execute"])
def test_uploads_switched_off_half_way_stop_it_until_they_are_on_again(
    bucket: Bucket, property_name: str, after: str
) -> None:
    bucket.filled()
    mounts = bucket.west.mounts
    number = mounts.unmount(CLICKS, is_automatic=False)
    if after == "execute":
        moved(mounts, number, "prepare")
    send(bucket, "late")
    bucket.west.alter_cluster({property_name: "false"})
    mounts = bucket.west.mounts
    mounts.ask(number, after)
    with pytest.raises(ReconcilerError, match="uploads are switched off"):
        mounts.drive(number)
    bucket.west.alter_cluster({property_name: "true"})
    mounts = bucket.west.mounts
    mounts.drive(number)
    moved(mounts, number, *(["execute"] if after == "prepare" else []), "finish")
    bucket.mounted(bucket.location_of_only())
    assert len(bucket.values(cluster="east")) == 4


def test_a_clock_that_goes_backwards_changes_nothing(bucket: Bucket) -> None:
    bucket.filled()
    before = seen(bucket)
    mounts = bucket.west.mounts
    number = mounts.unmount(CLICKS, is_automatic=False)
    for verb in ("prepare", "execute", "finish"):
        bucket.clock.now_ms -= 3 * DAY
        moved(mounts, number, verb)
    bucket.clock.now_ms -= 3 * DAY
    bucket.mounted(bucket.location_of_only())
    assert seen(bucket, cluster="east") == before


# -- stores that refuse


class Refusing(LossyStore):
    """Writes nothing of keys that hold `of`, as a full disk or a store that may only be read."""

    def __init__(self, inner: Any, error: OSError, of: str = "") -> None:
        super().__init__(inner)
        self.error, self.of, self.is_on = error, of, True

    def _refuse(self, key: str) -> None:
        if self.is_on and self.of in key:
            raise error_from_os_error(self.error, "write", key)

    def put(self, key: str, *args: Any, **named: Any) -> Any:
        self._refuse(key)
        return self.inner.put(key, *args, **named)

    def swap(self, key: str, body: bytes, *, expected: Any) -> Any:
        self._refuse(key)
        return self.inner.swap(key, body, expected=expected)

    def copy_from(self, key: str, *args: Any, **named: Any) -> Any:
        self._refuse(key)
        return self.inner.copy_from(key, *args, **named)

    def delete(self, keys: Any) -> None:
        for key in keys:
            self._refuse(key)
            self.inner.delete([key])


@pytest.mark.parametrize(
    ("error", "of"),
    [
        (OSError(28, "No space left on device"), ".parquet"),
        (OSError(28, "No space left on device"), "manifest.json"),
        (OSError(28, "No space left on device"), "topic.json"),
        (OSError(28, "No space left on device"), "mountable/"),
        (OSError(30, "Read-only file system"), ""),
        (PermissionError(13, "Permission denied"), ""),
    ],
)
def test_object_storage_that_takes_nothing_stops_an_unmount_which_goes_on_once_it_does(
    bucket: Bucket, error: OSError, of: str
) -> None:
    bucket.filled()
    before = seen(bucket)
    refusing = Refusing(bucket.storage, error, of)
    mounts = bucket.cluster("west", storage=refusing).mounts
    number = mounts.unmount(CLICKS)
    with pytest.raises(ReconcilerError, match=r"the disk is full|read-only|permission denied"):
        mounts.drive(number)
    refusing.is_on = False
    mounts.drive(number)
    bucket.mounted(bucket.location_of_only())
    assert seen(bucket, cluster="east") == before


@pytest.mark.parametrize("of", ["", "manifest.json", "topic.json", "mountable/"])
def test_object_storage_that_takes_nothing_stops_a_mount_which_goes_on_once_it_does(bucket: Bucket, of: str) -> None:
    bucket.filled()
    before = seen(bucket)
    location = bucket.unmounted()
    assert bucket.east.topics() == {}
    refusing = Refusing(bucket.storage, OSError(30, "Read-only file system"), of)
    mounts = bucket.cluster("east", storage=refusing).mounts
    number = mounts.mount(Mount(location, CLICKS))
    with pytest.raises(ReconcilerError, match="read-only"):
        mounts.drive(number)
    refusing.is_on = False
    mounts.drive(number)
    assert seen(bucket, cluster="east") == before


def test_another_object_storage_than_its_own_is_refused(bucket: Bucket) -> None:
    location = bucket.filled()
    bucket.unmounted()
    assert bucket.east.topics() == {}
    other = Bucket(new_id=bucket.new_id)
    assert other.west.topics() == {}
    for storage in (MemoryStore(), other.storage):
        with pytest.raises(UserError):
            bucket.cluster("east", storage=storage).mounts.mount(Mount(location, CLICKS))
    bucket.filled("shop:mine")
    bucket.west.upkeep().upload()
    mounts = bucket.cluster("west", storage=other.storage).mounts
    number = mounts.unmount("shop:mine")
    with pytest.raises(UserError, match="this cluster's topics are stored in object storage"):
        mounts.drive(number)
    assert list(other.storage.list("mountable/")) == []
    bucket.west.mounts.drive(number)
    assert len(bucket.west.mounts.list_detached()) == 2


# -- what lies there is damaged


def broken(bucket: Bucket, part: str, body: bytes | None) -> str:
    """Detach a topic, and break one of its objects, or (`None`) take it away; return its location."""
    bucket.filled(records=20, partitions=2, configs={"segment.bytes": "1024"})
    location = bucket.unmounted()
    keys = sorted(each.key for each in bucket.storage.list("") if part in each.key)
    assert keys, [each.key for each in bucket.storage.list("")]
    if body is None:
        bucket.storage.delete(keys[:1])
    else:
        bucket.storage.put(keys[0], body)
    return location


NEWER: dict[str, bytes] = {
    "topic.json": b'{"format": "reconciler.topic/9"}',
    "00000/manifest.json": b'{"format": "reconciler.manifest/9"}',
    "mountable/": b'{"format": "reconciler.mountable/9"}',
}


def mount_and_cancel(bucket: Bucket, location: str) -> ReconcilerError:
    """Mount what is broken, as far as that goes; return why it does not, having undone it."""
    mounts = bucket.east.mounts
    with pytest.raises(ReconcilerError) as refused:
        mounts.drive(mounts.mount(Mount(location, CLICKS)))
    for number in mounts.list_unfinished():
        mounts.cancel(number)
        mounts.ask(number, "delete")
    assert CLICKS not in bucket.east.topics()
    return refused.value


@pytest.mark.parametrize("part", NEWER)
def test_a_newer_format_is_left_to_the_newer_version(bucket: Bucket, part: str) -> None:
    location = broken(bucket, part, NEWER[part])
    refused = mount_and_cancel(bucket, location)
    assert isinstance(refused, NewerFormatError)
    assert "was written by a newer version of reconciler" in refused.message
    assert part in refused.message


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b'{"format": 7}', b"\xff\xfe", b"{}" * 9])
@pytest.mark.parametrize("part", NEWER)
def test_a_damaged_register_is_named_with_what_to_do(bucket: Bucket, part: str, body: bytes) -> None:
    location = broken(bucket, part, body)
    refused = mount_and_cancel(bucket, location)
    assert part in refused.message
    assert refused.hint


@pytest.mark.parametrize("part", ["topic.json", "00000/manifest.json", ".parquet", "mountable/"])
def test_what_is_half_deleted_is_refused_and_named_and_mounted_once_it_is_back(bucket: Bucket, part: str) -> None:
    bucket.filled(records=20, partitions=2, configs={"segment.bytes": "1024"})
    before = seen(bucket)
    location = bucket.unmounted()
    backup = copied(bucket.storage)
    key = min(each.key for each in bucket.storage.list("") if part in each.key)
    bucket.storage.delete([key])
    refused = mount_and_cancel(bucket, location)
    assert refused.hint
    assert key in refused.message or part in {"topic.json", "mountable/"}
    stored = backup.get(key)
    assert stored is not None
    bucket.storage.put(key, stored.body)
    bucket.mounted(location)
    assert seen(bucket, cluster="east") == before


SEGMENTS = {"segment.bytes": "1024"}
EVICTED = {**SEGMENTS, "retention.local.target.bytes": "1", "retention.local.strict": "true"}


def segment_lost(bucket: Bucket) -> str:
    """Delete the second segment from object storage; return its key."""
    key = sorted(each.key for each in bucket.storage.list("topics/") if "-v1-" in each.key and ".parquet" in each.key)[
        1
    ]
    bucket.storage.delete([key])
    return key


@pytest.mark.parametrize("lost_after", ["upload", "prepare"])
def test_what_object_storage_lost_is_put_again_before_a_topic_leaves(bucket: Bucket, lost_after: str) -> None:
    bucket.filled(records=200, partitions=2, configs=SEGMENTS)
    bucket.west.upkeep().upload()
    before, mounts = seen(bucket), bucket.west.mounts
    number = mounts.unmount(CLICKS, is_automatic=False)
    if lost_after == "upload":
        segment_lost(bucket)
        moved(mounts, number, "prepare")
    else:
        moved(mounts, number, "prepare")
        segment_lost(bucket)
    moved(mounts, number, "execute", "finish")
    bucket.mounted(bucket.location_of_only())
    assert seen(bucket, cluster="east") == before


@pytest.mark.parametrize("lost_after", ["upload", "prepare"])
def test_a_topic_of_which_records_are_lost_in_both_tiers_stays_here(bucket: Bucket, lost_after: str) -> None:
    bucket.filled(records=200, configs=EVICTED)
    bucket.west.upkeep().upload()
    bucket.west.upkeep().retain()
    mounts = bucket.west.mounts
    number = mounts.unmount(CLICKS, is_automatic=lost_after == "upload")
    if lost_after == "prepare":
        moved(mounts, number, "prepare")
    key = segment_lost(bucket)
    before = {each.key for each in bucket.storage.list("topics/")}
    with pytest.raises(UserError) as refused:
        drive_or_undo(mounts, number) if lost_after == "upload" else moved(mounts, number, "execute")
    assert f"topic {CLICKS} cannot be unmounted" in refused.value.message
    assert "partition 0, offsets " in refused.value.message
    assert key in refused.value.message
    assert refused.value.hint.endswith(f"topic/CLUSTER/{CLICKS} --skip-missing")
    if lost_after == "prepare":
        mounts.cancel(number)
    assert CLICKS in bucket.west.topics()
    assert before <= {each.key for each in bucket.storage.list("topics/")}
    send(bucket, "taken again")


def test_a_partition_that_is_gone_with_all_it_had_is_missed(bucket: Bucket) -> None:
    bucket.filled(records=20, partitions=3)
    location = bucket.unmounted()
    gone = [each.key for each in bucket.storage.list("topics/") if "/00001/" in each.key]
    bucket.storage.delete(gone)
    refused = mount_and_cancel(bucket, location)
    assert "partition 1, offsets 0 to 19" in refused.message
    assert "manifest.json is not there" in refused.message


def test_an_older_copy_of_a_manifest_is_noticed(bucket: Bucket) -> None:
    bucket.filled(records=2)
    bucket.west.upkeep().upload()
    mounts = bucket.west.mounts
    moved(mounts, mounts.unmount(CLICKS, is_automatic=False), "prepare")
    older = copied(bucket.storage)
    send(bucket, "late")
    moved(mounts, next(iter(mounts.list_unfinished())), "execute", "finish")
    key = next(each.key for each in bucket.storage.list("topics/") if each.key.endswith("manifest.json"))
    stored = older.get(key)
    assert stored is not None
    bucket.storage.put(key, stored.body)
    refused = mount_and_cancel(bucket, bucket.location_of_only())
    assert "partition 0, offsets 2 to 2" in refused.message
    assert "is an older copy" in refused.message


@pytest.mark.parametrize(
    "configs",
    [{"retention.ms": "abc"}, {"cleanup.policy": "burn"}, {"no.such.config": "1"}, {"retention.ms": "9" * 400}],
)
def test_a_topic_manifest_with_configs_that_cannot_be_is_refused(bucket: Bucket, configs: dict[str, str]) -> None:
    bucket.filled()
    location = bucket.unmounted()
    changed(bucket, lambda kept: kept["effective"].update(configs))
    refused = mount_and_cancel(bucket, location)
    assert str(location) in refused.message


@pytest.mark.parametrize("partitions", [0, -1, 100_001, 10**9])
def test_a_topic_manifest_with_impossible_partitions_is_refused(bucket: Bucket, partitions: int) -> None:
    bucket.filled()
    location = bucket.unmounted()
    changed(bucket, lambda kept: kept.update(partitions=partitions))
    assert mount_and_cancel(bucket, location).hint
    with pytest.raises(UserError, match="cannot be read: it says that the topic has"):
        check_recoverable(bucket.storage, TopicLocation.parse(location), None)  # It would look for each of them.


def changed(bucket: Bucket, change: Callable[[dict[str, Any]], object]) -> None:
    import orjson  # noqa: PLC0415

    key = next(each.key for each in bucket.storage.list("topics/") if each.key.endswith("topic.json"))
    stored = bucket.storage.get(key)
    assert stored is not None
    kept = orjson.loads(stored.body)
    change(kept)
    bucket.storage.put(key, orjson.dumps(kept))


def test_a_manifest_that_has_lost_its_epochs_is_refused_before_it_changes_hands(bucket: Bucket) -> None:
    bucket.filled()
    location = bucket.unmounted()
    key = next(each.key for each in bucket.storage.list("topics/") if each.key.endswith("manifest.json"))
    stored = bucket.storage.get(key)
    assert stored is not None
    bucket.storage.put(key, orjson.dumps({**orjson.loads(stored.body), "epochs": []}))
    assert f"{key} cannot be read: the manifest contradicts itself: it has no epoch" in (
        mount_and_cancel(bucket, location).message
    )
    bucket.storage.put(key, stored.body)
    bucket.mounted(location)


HOSTILE = [
    "mountable/x.json",
    "mountable/_/x/y.json",
    "mountable/_/clicks/uuid/1.txt",
    "mountable/_/clicks/uuid/é.json",
    "mountable/_/clicks/uuid/-1.json",
    "mountable/_/clicks/uuid/\u0661.json",
    "mountable/_/😀/uuid/1",
]


def test_strange_keys_beside_the_registers_are_passed_over(bucket: Bucket) -> None:
    location = bucket.filled()
    bucket.unmounted()
    for key in HOSTILE:
        bucket.storage.put(key, b"\xff")
    assert [str(each.location) for each in bucket.east.mounts.list_detached()] == [location]


@pytest.mark.parametrize("key", ["mountable/_/<b>/uuid/1.json", "mountable/_/a/b/c/d/5.json"])
def test_a_register_at_a_strange_key_is_named(bucket: Bucket, key: str) -> None:
    bucket.filled()
    bucket.unmounted()
    bucket.storage.put(key, b"{}")
    with pytest.raises(UserError) as refused:
        bucket.east.mounts.list_detached()
    assert key in refused.value.message
    assert refused.value.hint


def test_a_manifest_under_a_tiered_epoch_that_the_catalog_does_not_know_stops_an_unmount(bucket: Bucket) -> None:
    bucket.filled(records=2)
    bucket.west.upkeep().upload()
    send(bucket, "late")
    key = next(each.key for each in bucket.storage.list("topics/") if each.key.endswith("manifest.json"))
    stored = bucket.storage.get(key)
    assert stored is not None
    kept = orjson.loads(stored.body)
    bucket.storage.put(key, orjson.dumps({**kept, "tiered_epoch": kept["tiered_epoch"] + 9}))
    mounts = bucket.west.mounts
    with pytest.raises(RetryableError, match="under a tiered epoch we do not know"):
        mounts.drive(mounts.unmount(CLICKS))
    assert CLICKS in bucket.west.topics()
