"""Nothing of a topic changes by mounting it: records, offsets, configs, compaction, transactions, groups."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reconciler.embedded.catalog.pinning import pinned, told
from reconciler.resources.clusterproperties import CONFIG_DEFAULTS, CREATION_DEFAULTS
from reconciler.resources.tierrules import disable_policy_in, lay_over, switches_in, targets_in
from tests.embedded.bucket import CLICKS, Bucket
from tests.embedded.tiered import BOTH
from tests.embedded.travelling import seen
from tests.embedded.upkeeping import DAY, TWO_PARTS

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


def travelled(bucket: Bucket, full_name: str = CLICKS) -> None:
    bucket.mounted(bucket.unmounted(full_name), full_name)


@pytest.mark.parametrize("timestamps", ["CreateTime", "LogAppendTime"])
def test_every_field_of_every_record_comes_back(bucket: Bucket, timestamps: str) -> None:
    bucket.west.create_topic(
        CLICKS,
        partitions=2,
        configs={**BOTH, "message.timestamp.type": timestamps},
    )
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
        lay_over(found, initial, "cluster")
        lay_over(found, outer, "shop")
        lay_over(found, inner, "shop:eu")
        lay_over(found, own, "topic")
        return found

    initial = {CREATION_DEFAULTS[key]: value for key, value in here[0].items() if key in CREATION_DEFAULTS}
    before = laid(here, initial, own)
    kept = pinned(laid(there, initial, {}), own, told(before))
    after = laid(there, initial, kept)
    assert switches_in(after) == switches_in(before)
    assert disable_policy_in(after) == disable_policy_in(before)
    assert targets_in(after) == targets_in(before)
    assert {key: kept[key] for key in own} == own
    if told(before) == {key: value for key, (value, _) in before.items()}:
        assert pinned(laid(here, initial, {}), own, told(before)) == own
