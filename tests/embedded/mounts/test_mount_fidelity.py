"""Nothing of a topic changes by mounting it: records, offsets, configs, compaction, transactions, groups."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reconciler.archives.location import TopicLocation
from reconciler.archives.recoverable import find_topic_at
from reconciler.archives.topic_manifest import CommittedOffset, change_topic_manifest
from reconciler.embedded.catalog.model import AclEntry
from reconciler.embedded.check.check import check_cluster
from reconciler.embedded.clients.transactions import TransactionState, decide_transaction
from reconciler.embedded.mounts.mounts import Mount, Mounts
from reconciler.embedded.segments.groups import Group, group_register
from reconciler.errors import ProducerFencedError, UserError
from reconciler.records.log import NumberedBatch
from reconciler.resources.cluster_properties import CONFIG_DEFAULTS, CREATION_DEFAULTS
from reconciler.resources.mount import drop_origins, pin_configs
from reconciler.resources.tiering_policy import apply_layer, read_disable_policy, read_switches, read_targets
from tests.embedded.maintenance.tiny_segments import DAY, TWO_PARTS
from tests.embedded.mounts.readable_topics import seen
from tests.embedded.mounts.shared_bucket import CLICKS, Bucket
from tests.embedded.samples import values
from tests.embedded.stores import KeyedStore
from tests.embedded.tiered.tiered_cluster import BOTH

if TYPE_CHECKING:
    from reconciler.embedded.clients.transactional_producer import TransactionalProducer
    from reconciler.embedded.cluster import EmbeddedCluster

QUERY = "5b0c1ae4-6c1f-4b0e-8c3c-0b7f4d0d2f11"
Surroundings = tuple[dict[str, str], dict[str, str], dict[str, str]]

pytestmark = pytest.mark.fact("F-R-103")


@pytest.fixture
def bucket() -> Bucket:
    return Bucket()


def send(bucket: Bucket, value: str | None, *, key: str | None = None, at_ms: int | None = None) -> None:
    with bucket.west.producer() as producer:
        producer.send(CLICKS, value, key=key, partition=0, timestamp_ms=at_ms)


def compacting(bucket: Bucket) -> None:
    """Make a compacted topic of small segments, whose keys come twice."""
    configs = {**BOTH, "cleanup.policy": "compact", "segment.bytes": TWO_PARTS, "min.cleanable.dirty.ratio": "0"}
    bucket.west.create_topic(CLICKS, configs={**configs, "delete.retention.ms": "1000"})
    for number in range(8):
        send(bucket, f"v{number}", key=f"k{number % 3}")


def begun(bucket: Bucket, transactional_id: str) -> TransactionalProducer:
    producer = bucket.west.producer(transactional_id)
    producer.init_transactions()
    producer.begin()
    return producer


@contextmanager
def transaction(bucket: Bucket, transactional_id: str) -> Iterator[TransactionalProducer]:
    producer = begun(bucket, transactional_id)
    yield producer
    producer.commit()


def at_state(mounts: Mounts, number: int, verb: str) -> int:
    """Do a verb, and the work of the state it leads to."""
    mounts.ask(number, verb)
    mounts.drive(number)
    return number


def travelled(bucket: Bucket, full_name: str = CLICKS) -> None:
    bucket.mounted(bucket.unmounted(full_name), full_name)


@pytest.mark.parametrize("timestamps", ["CreateTime", "LogAppendTime"])
def test_every_field_of_every_record_comes_back(bucket: Bucket, timestamps: str) -> None:
    bucket.west.create_topic(CLICKS, partitions=2, configs={**BOTH, "message.timestamp.type": timestamps})
    with bucket.west.producer() as producer:
        producer.send(CLICKS, None, key="gone", partition=0)
        producer.send(CLICKS, b"", key=b"", partition=0)
        producer.send(CLICKS, b"\x00\xff", key=None, partition=0, headers={"a": b"1", "b": None, "": b""})
        producer.send(CLICKS, "x" * 70_000, key="long", partition=1, timestamp_ms=bucket.clock() - 5)
    before = seen(bucket)
    bucket.clock.now_ms += DAY
    travelled(bucket)
    assert seen(bucket, cluster="east") == before


def test_a_log_that_begins_later_begins_there(bucket: Bucket) -> None:
    bucket.west.create_topic(CLICKS, configs={**BOTH, "segment.bytes": TWO_PARTS, "retention.ms": "2d"})
    for number in range(6):
        send(bucket, f"v{number}", at_ms=bucket.clock())
        bucket.clock.now_ms += DAY // 2
    for job in ("roll", "upload", "retain"):
        getattr(bucket.west.upkeep(), job)()
    before = seen(bucket)
    assert before["bounds"][0][0] > 0
    travelled(bucket)
    assert seen(bucket, cluster="east") == before


def test_what_is_compacted_stays_so_and_the_rest_is_compacted_later(bucket: Bucket) -> None:
    compacting(bucket)
    west = bucket.west
    west.upkeep().roll()
    west.upkeep().upload()
    west.upkeep().compact()
    before = seen(bucket)
    assert before["bounds"][0][2] > 0
    travelled(bucket)
    assert seen(bucket, cluster="east") == before


def test_a_tombstone_that_is_gone_does_not_bring_back_what_it_deleted(bucket: Bucket) -> None:
    compacting(bucket)
    for job in ("roll", "upload", "compact"):
        getattr(bucket.west.upkeep(), job)()
    send(bucket, None, key="k0")
    for number in range(3):
        send(bucket, f"later{number}", key=f"l{number}")
    for job in ("roll", "upload", "compact"):
        getattr(bucket.west.upkeep(), job)()
    bucket.clock.now_ms += DAY
    bucket.west.upkeep().compact()
    before = seen(bucket)
    assert b"k0" not in {row["key"] for row in before["rows"][0]}
    travelled(bucket)
    assert seen(bucket, cluster="east") == before


def test_what_object_storage_has_not_compacted_yet_is_compacted_where_it_is_mounted(bucket: Bucket) -> None:
    configs = {**BOTH, "cleanup.policy": "compact", "segment.bytes": TWO_PARTS, "min.cleanable.dirty.ratio": "0"}
    bucket.west.create_topic(CLICKS, configs={**configs, "delete.retention.ms": "1000"})
    bucket.west.alter_cluster({"cloud_storage_segment_max_upload_interval_sec": "1"})
    send(bucket, "first", key="first")
    bucket.clock.now_ms += 5_000
    bucket.west.upkeep().upload()
    bucket.west.alter_cluster({"cloud_storage_segment_max_upload_interval_sec": None})
    # Uploaded before it is rolled: segments begin at other offsets in object storage, and one lies across what was
    # compacted here.
    send(bucket, "old", key="gone")
    send(bucket, None, key="gone")
    for number in range(5):
        send(bucket, f"v{number}", key=f"k{number}")
    for job in ("upload", "roll", "compact"):
        getattr(bucket.west.upkeep(), job)()
    assert b"old" not in {row["value"] for row in seen(bucket)["rows"][0]}
    assert bucket.west.log(CLICKS).read_bounds()[0].compacted_to == 6
    travelled(bucket)
    for number in range(4):
        with bucket.east.producer() as producer:
            producer.send(CLICKS, "later", key=f"l{number}", partition=0)
    for job in ("roll", "upload", "compact"):
        getattr(bucket.east.upkeep(), job)()
    assert b"old" not in {row["value"] for row in seen(bucket, cluster="east")["rows"][0]}


def test_configs_that_were_inherited_become_its_own_where_the_new_place_says_otherwise(bucket: Bucket) -> None:
    bucket.west.alter_cluster({"log_retention_ms": "5d", "retention_local_target_bytes_default": "12345"})
    bucket.west.alter_namespace("shop", {"max.message.bytes": "70000", "compression.type": "zstd"})
    bucket.east.alter_namespace("shop", {"compression.type": "zstd", "segment.ms": "1h", "remote.delete": "false"})
    bucket.east.alter_cluster({"retention_local_strict": "true", "log_segment_size": "2MiB"})
    bucket.filled(configs={"retention.ms": "6d"})
    before = seen(bucket)
    travelled(bucket)
    assert seen(bucket, cluster="east") == before
    assert bucket.east.topic(CLICKS).configs == {
        **BOTH,
        "max.message.bytes": "70000",
        "remote.delete": "true",
        "retention.local.strict": "false",
        "retention.local.target.bytes": "12345",
        "retention.ms": "518400000",
        "segment.bytes": "1073741824",
        "segment.ms": "604800000",
    }


def test_mounted_where_all_is_as_it_was_it_has_no_config_more_than_before(bucket: Bucket) -> None:
    bucket.west.alter_namespace("shop", {"max.message.bytes": "70000"})
    bucket.filled()
    bucket.mounted(bucket.unmounted(), cluster="west")
    assert bucket.west.topic(CLICKS).configs == BOTH


TIERS = st.fixed_dictionaries(
    {},
    optional={
        "remote.storage.enable": st.sampled_from(["true", "false"]),
        "remote.log.copy.disable": st.sampled_from(["true", "false"]),
        "remote.write": st.sampled_from(["true", "false"]),
        "remote.read": st.sampled_from(["true", "false"]),
        "remote.log.disable.policy": st.sampled_from(["retain", "delete"]),
        "remote.log.delete.on.disable": st.sampled_from(["true", "false"]),
        "retention.ms": st.sampled_from(["-1", "1000", "90000000"]),
        "retention.bytes": st.sampled_from(["-1", "500"]),
        "retention.local.target.ms": st.sampled_from(["-1", "2000", "86400000"]),
        "retention.local.target.bytes": st.sampled_from(["-1", "400", "600"]),
        "local.retention.ms": st.sampled_from(["-2", "3000"]),
        "local.retention.bytes": st.sampled_from(["-2", "300"]),
        "initial.retention.local.target.bytes": st.sampled_from(["-1", "200"]),
    },
)
DEFAULTS = st.fixed_dictionaries(
    {},
    optional={
        "cloud_storage_enable_remote_write": st.just("true"),
        "cloud_storage_enable_remote_read": st.just("true"),
        "log_retention_ms": st.sampled_from(["-1", "5000"]),
        "retention_local_target_ms_default": st.sampled_from(["4000", "99000000"]),
        "retention_local_target_bytes_default": st.just("700"),
        "retention_local_strict": st.just("true"),
    },
)
SURROUNDINGS = st.tuples(DEFAULTS, TIERS, TIERS)


@settings(deadline=None)
@given(here=SURROUNDINGS, own=TIERS, there=SURROUNDINGS)
def test_whatever_is_said_around_it_here_and_there_its_tiering_and_its_limits_stay(
    here: Surroundings, own: dict[str, str], there: Surroundings
) -> None:
    def laid(around: Surroundings, initial: dict[str, str], own: dict[str, str]) -> dict[str, tuple[str, str]]:
        cluster, outer, inner = around
        found = {CONFIG_DEFAULTS[key]: (value, "cluster") for key, value in cluster.items() if key in CONFIG_DEFAULTS}
        apply_layer(found, initial, "cluster")
        apply_layer(found, outer, "shop")
        apply_layer(found, inner, "shop:eu")
        apply_layer(found, own, "topic")
        return found

    initial = {CREATION_DEFAULTS[key]: value for key, value in here[0].items() if key in CREATION_DEFAULTS}
    before = laid(here, initial, own)
    kept = pin_configs(laid(there, initial, {}), own, drop_origins(before))
    after = laid(there, initial, kept)
    assert read_switches(after) == read_switches(before)
    assert read_disable_policy(after) == read_disable_policy(before)
    assert read_targets(after) == read_targets(before)
    assert {key: kept[key] for key in own} == own
    if drop_origins(before) == {key: value for key, (value, _) in before.items()}:
        assert pin_configs(laid(here, initial, {}), own, drop_origins(before)) == own


# -- streams


@pytest.mark.parametrize("there", ["west", "east"])
def test_a_stream_whose_last_batch_is_repeated_after_a_mount_writes_nothing_twice(bucket: Bucket, there: str) -> None:
    bucket.filled()

    def publish(cluster: EmbeddedCluster, number: int, value: str) -> bool:
        sink = cluster.appends(CLICKS)
        return sink.publish([sink.stage([values(value)], task=0)], NumberedBatch(QUERY, number))

    assert publish(bucket.west, 7, "seven")
    bucket.mounted(bucket.unmounted(), cluster=there)
    cluster = bucket.cluster(there)
    before = seen(bucket, CLICKS, there)
    assert not publish(cluster, 7, "seven")
    for number, value in ((7, "others"), (6, "six")):
        with pytest.raises(UserError, match="The checkpoint was set back"):
            publish(cluster, number, value)
    assert seen(bucket, CLICKS, there) == before
    assert publish(cluster, 8, "eight")
    assert seen(bucket, CLICKS, there) != before


# -- groups


def test_groups_go_on_where_they_were_own_offsets_before_synced_and_nobody_is_reading(bucket: Bucket) -> None:
    bucket.filled(partitions=2)
    west, topic_id = bucket.west, bucket.west.topic(CLICKS).id
    west.groups.commit("billing", {(CLICKS, 0): CommittedOffset(2, "a note")})
    synced = Group({}, {(topic_id, 0): CommittedOffset(1), (topic_id, 1): CommittedOffset(3)})
    group_register(west.store, "audit").update(lambda _held: synced.to_json(), mark="sync")
    bucket.east.create_topic("shop:other")
    bucket.east.groups.commit("billing", {("shop:other", 0): 0})
    bucket.clock.now_ms += DAY
    travelled(bucket)
    east = bucket.east
    assert east.groups.fetch("billing", [CLICKS]) == {(CLICKS, 0): CommittedOffset(2, "a note")}
    assert east.groups.read_committed_offsets("audit", [CLICKS]) == {(CLICKS, 0): 1, (CLICKS, 1): 3}
    assert east.groups.find_topic_readers() == {}
    assert east.groups.read_committed_offsets("billing", ["shop:other"]) == {("shop:other", 0): 0}


def test_a_group_without_a_namespace_stays_out_which_is_said_and_comes_back_with_the_topic(
    bucket: Bucket, caplog: pytest.LogCaptureFixture
) -> None:
    bucket.filled()
    bucket.west.create_namespace("ops")
    bucket.west.groups.commit("ops:audit", {(CLICKS, 0): 2})
    travelled(bucket)
    assert bucket.east.groups.list_names() == []
    assert "its groups ops:audit have no namespace here" in caplog.text
    bucket.east.groups.commit("billing", {(CLICKS, 0): 1})
    bucket.east.alter_topic(CLICKS, {"retention.ms": "9d"})
    bucket.east.upkeep().upload()
    bucket.mounted(bucket.unmounted(cluster="east"), cluster="west")
    assert bucket.west.groups.read_committed_offsets("ops:audit", [CLICKS]) == {(CLICKS, 0): 2}
    assert bucket.west.groups.read_committed_offsets("billing", [CLICKS]) == {(CLICKS, 0): 1}


def test_a_group_of_another_platform_whose_name_none_can_have_here_stays_with_the_topic(
    bucket: Bucket, caplog: pytest.LogCaptureFixture
) -> None:
    bucket.filled()
    location = bucket.unmounted()
    strange = {"": {0: CommittedOffset(1)}, "読" * 28: {0: CommittedOffset(2)}, "billing": {0: CommittedOffset(3)}}
    place = TopicLocation.parse(location)
    change_topic_manifest(bucket.storage, place, lambda found: found and replace(found, groups=strange), "archived")
    bucket.mounted(location)
    assert bucket.east.groups.list_names() == ["billing"]
    assert "a name that none can have here" in caplog.text
    bucket.unmounted(cluster="east")
    kept = find_topic_at(bucket.storage, place).groups
    assert {group: offsets[0].offset for group, offsets in kept.items()} == {"": 1, "読" * 28: 2, "billing": 3}


@pytest.mark.fact("F-R-105")
def test_an_offset_is_committed_before_the_cut_or_refused(bucket: Bucket) -> None:
    bucket.filled()
    mounts = bucket.west.mounts
    number = at_state(mounts, mounts.unmount(CLICKS, is_automatic=False), "prepare")
    bucket.west.groups.commit("billing", {(CLICKS, 0): 2})
    at_state(mounts, number, "execute")
    with pytest.raises(UserError, match="INVALID_TOPIC_EXCEPTION"):
        bucket.west.groups.commit("billing", {(CLICKS, 0): 3})
    at_state(mounts, number, "finish")
    bucket.mounted(str(bucket.east.mounts.list_detached()[0].location))
    assert bucket.east.groups.read_committed_offsets("billing", [CLICKS]) == {(CLICKS, 0): 2}


# -- transactions


@pytest.mark.parametrize("closed_by", ["execute", "finish"])
def test_offsets_travel_that_a_transaction_had_committed_and_later_ones_are_refused_with_its_records(
    bucket: Bucket, closed_by: str
) -> None:
    bucket.filled()
    bucket.west.create_topic("shop:out", configs=BOTH)
    decided, late = begun(bucket, "decided"), begun(bucket, "late")
    for producer, group in ((decided, "billing"), (late, "audit")):
        bucket.west.groups.commit(group, {(CLICKS, 0): 1})
        producer.send("shop:out", group, partition=0)
        producer.send_offsets(group, {(CLICKS, 0): 3})
        producer.flush()
    decide_transaction(
        bucket.west.store, decided._identity, TransactionState.COMMITTING, decided._offsets, mark="decided"
    )
    mounts = bucket.west.mounts
    number = at_state(mounts, mounts.unmount(CLICKS, is_automatic=False), "prepare")
    at_state(mounts, number, "execute")
    if closed_by == "finish":
        at_state(mounts, number, "finish")
    with pytest.raises(UserError, match="INVALID_TOPIC_EXCEPTION" if closed_by == "execute" else "unmounted"):
        late.commit()
    late.abort()
    mounts.drive_to_end(number)
    bucket.west.finish_transactions()
    bucket.mounted(str(bucket.east.mounts.list_detached()[0].location))
    assert [value for _, _, value in bucket.values("shop:out")] == [b"billing"]
    assert bucket.east.groups.read_committed_offsets("billing", [CLICKS]) == {(CLICKS, 0): 3}
    assert bucket.east.groups.read_committed_offsets("audit", [CLICKS]) == {(CLICKS, 0): 1}


@pytest.mark.fact("F-R-108")
def test_an_open_transaction_is_aborted_and_its_offsets_stay_a_gap_at_the_end(bucket: Bucket) -> None:
    bucket.filled(records=2)
    with transaction(bucket, "committed") as done:
        done.send(CLICKS, "seen", partition=0)
    opened = begun(bucket, "open")
    opened.send(CLICKS, "never seen", partition=0)
    opened.flush()
    before = seen(bucket)
    assert before["bounds"][0] == (0, 4, 0)
    travelled(bucket)
    assert seen(bucket, cluster="east") == before
    with pytest.raises((UserError, ProducerFencedError)):
        opened.commit()
    with bucket.east.producer() as producer:
        producer.send(CLICKS, "next", partition=0)
    assert bucket.values(cluster="east")[-1] == (0, 4, b"next")


@pytest.mark.fact("F-R-107", "F-R-108")
def test_a_partition_of_aborted_records_alone_ends_where_it_ended(bucket: Bucket) -> None:
    bucket.west.create_topic(CLICKS, partitions=2, configs=BOTH)
    opened = begun(bucket, "open")
    for _ in range(3):
        opened.send(CLICKS, "never seen", partition=1)
    opened.flush()
    travelled(bucket)
    assert seen(bucket, cluster="east")["bounds"] == {0: (0, 0, 0), 1: (0, 3, 0)}


def test_an_idempotent_producer_goes_on_with_its_next_number(bucket: Bucket) -> None:
    bucket.filled(records=0)
    bucket.west.sequenced_producer("loader").append(CLICKS, 0, values("a", "b"), sequence=0)
    travelled(bucket)
    bucket.east.sequenced_producer("loader").append(CLICKS, 0, values("c"), sequence=2)
    bucket.east.sequenced_producer("loader").append(CLICKS, 0, values("c"), sequence=2)
    assert [value for _, _, value in bucket.values(cluster="east")] == [b"a", b"b", b"c"]


# -- epochs, places, names


def test_every_mount_has_an_epoch_of_its_own_and_the_place_stays(bucket: Bucket) -> None:
    location, cluster = bucket.filled(records=1), "west"
    for number, to in enumerate(["east", "south", "west", "east"]):
        bucket.mounted(bucket.unmounted(cluster=cluster), cluster=to)
        assert bucket.location(cluster=to) == location
        with bucket.cluster(to).producer() as producer:
            producer.send(CLICKS, f"on {to}", partition=0)
        cluster = to
        bounds = bucket.cluster(to).log(CLICKS).read_bounds()[0]
        assert bounds.epochs == tuple((epoch, epoch) for epoch in range(number + 2))
    assert [offset for _, offset, _ in bucket.values(cluster="east")] == list(range(5))
    bucket.east.finish_deletions()
    assert check_cluster(bucket.stores["east"], deep=True, storage=bucket.storage).findings == []


@pytest.mark.fact("F-R-116")
def test_an_alias_is_forgotten_at_the_next_unmount_also_in_another_namespace(bucket: Bucket) -> None:
    location = bucket.filled()
    bucket.east.create_namespace("archive")
    bucket.mounted(bucket.unmounted(), "archive:clicks-2025")
    assert bucket.unmounted("archive:clicks-2025", "east") == location
    (found,) = bucket.west.mounts.list_detached()
    assert str(found.location) == location
    assert find_topic_at(bucket.storage, found.location).name == CLICKS
    bucket.mounted(location, cluster="west")
    assert len(bucket.values()) == 3


@pytest.mark.fact("F-R-126", "F-R-115")
def test_one_name_unmounted_three_times_lies_at_three_locations_each_with_its_own_data(bucket: Bucket) -> None:
    locations = []
    for records in (1, 2, 3):
        bucket.filled(records=records)
        locations.append(bucket.unmounted())
    assert sorted(str(each.location) for each in bucket.east.mounts.list_detached()) == sorted(locations)
    for records, location in enumerate(locations, start=1):
        bucket.mounted(location, f"shop:clicks-{records}")
        assert len(bucket.values(f"shop:clicks-{records}", "east")) == records


@pytest.mark.fact("F-R-118", "F-R-119")
def test_several_topics_travel_in_one_migration_which_is_listed_with_its_state(bucket: Bucket) -> None:
    names = ["shop:a", "shop:b", "orders"]
    locations = [bucket.filled(name, records) for records, name in enumerate(names)]
    mounts = bucket.west.mounts
    number = mounts.unmount(*names)
    (migration,) = mounts.list_unfinished().values()
    assert (migration.direction, migration.state, [each.name for each in migration.topics]) == (
        "outbound",
        "planned",
        names,
    )
    mounts.drive(number)
    assert mounts.list_unfinished() == {}
    east = bucket.east.mounts
    east.drive(east.mount(*(Mount(location, name) for location, name in zip(locations, names, strict=True))))
    assert [len(bucket.values(name, "east")) for name in names] == [0, 1, 2]


def test_access_rules_stay_where_they_are(bucket: Bucket) -> None:
    bucket.filled()
    bucket.west.set_topic_acls(CLICKS, [AclEntry("User:alice", "allow", ("read",))])
    travelled(bucket)
    assert bucket.east.topic(CLICKS).acls == ()


@pytest.mark.parametrize("keys", [("key-west", None), (None, "key-east"), ("key-west", "key-east"), ("k", "k")])
def test_under_whatever_key_it_lay_it_is_read_and_what_comes_lies_under_that_of_its_new_namespace(
    keys: tuple[str | None, str | None],
) -> None:
    storage = KeyedStore()
    bucket = Bucket(storage)
    for name, key in zip(("west", "east"), keys, strict=True):
        bucket.cluster(name, store=KeyedStore()).encrypt_namespace("shop", key)
    bucket.filled()
    before = seen(bucket)
    travelled(bucket)
    assert seen(bucket, cluster="east") == before
    assert bucket.east.finish_rewrites() == 0
    with bucket.east.producer() as producer:
        producer.send(CLICKS, "next", partition=0)
    bucket.unmounted(cluster="east")
    assert {kms for key, kms in storage.parts().items() if key.endswith(".parquet")} == set(keys)
