"""What is closed and stable is copied to object storage, each segment once."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
import pyarrow.parquet as pq
import pytest
from pyarrow import BufferReader

from reconciler.archives.keys import build_index_key
from reconciler.archives.manifest import Manifest, ManifestSwap, read_manifest
from reconciler.archives.pages import iter_all_entries
from reconciler.archives.topic_manifest import read_topic_manifest, write_topic_manifest
from reconciler.embedded.catalog.tiering_state import build_topic_manifest
from reconciler.embedded.check.check import check_cluster
from reconciler.embedded.check.sweep import sweep_store
from reconciler.embedded.maintenance import chores, uploads
from reconciler.embedded.maintenance.survey import MaintenanceResult
from reconciler.embedded.segments import head as head_module
from reconciler.embedded.segments.head import Partition, swap_head
from reconciler.embedded.segments.parts import read_part
from reconciler.embedded.tiered.object_rewrites import read_footer
from reconciler.errors import OwnershipLostError, UserError
from reconciler.objectstore.memory import MemoryStore
from tests.contracts.lossy import LossyStore
from tests.embedded.maintenance.tiny_segments import (
    ALL,
    DAY,
    TOPIC,
    TWO_PARTS,
    LateStore,
    append,
    append_parts,
    copied,
    head_of,
    held,
    pairs_of,
    with_topic,
)
from tests.embedded.samples import rows_of
from tests.embedded.stores import DiedError, KeyedStore, Ticking, WatchedStore
from tests.embedded.tiered.tiered_cluster import BOTH, Tiered, begin_at, tiered
from tests.servers.stores import fresh_store

if TYPE_CHECKING:
    from reconciler.embedded.cluster import EmbeddedCluster
    from reconciler.objectstore.base import ObjectStore


@pytest.fixture(params=["memory", "directory", pytest.param("s3", marks=pytest.mark.soak)])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    return fresh_store(request, tmp_path / "remote")


def ends_of(tier: Tiered) -> list[tuple[int, int]]:
    return [(entry.base, entry.last) for entry in tier.segments()]


@pytest.mark.fact("F-R-067")
def test_a_manifest_spills_its_oldest_entries_once_they_take_more_than_its_target() -> None:
    tier, target = tiered(), 2048
    tier.switch_on(spillover_manifest_size=str(target))
    sizes: list[int] = []
    while sum(sizes) <= 2 * target:
        before = [] if not sizes else tier.segments()
        assert not (sizes and tier.manifest().pages)
        tier.fill(2)
        tier.upload()
        sizes = [len(orjson.dumps(entry.to_json())) for entry in tier.segments()]
    manifest = tier.manifest()
    assert sum(sizes[-len(manifest.entries) :]) <= 2 * target
    assert [(page.base, page.last) for page in manifest.pages] == [(0, manifest.entries[0].base - 1)]
    assert tier.segments()[: len(before)] == before


@pytest.mark.fact("F-R-030")
@pytest.mark.fact("F-K-040")
def test_closed_segments_are_uploaded_and_the_open_one_is_not(storage: ObjectStore) -> None:
    tier = tiered(storage=storage)
    tier.fill(5)
    done = tier.upload()
    assert (done.partitions, done.records, done.failed) == (1, 8, 0)
    manifest = tier.manifest()
    assert ends_of(tier) == [(0, 3), (4, 7)]
    assert (manifest.start, manifest.end, head_of(tier.cluster).uploaded_to) == (0, 8, 8)
    for entry in manifest.entries:
        stored, index = tier.storage.get(entry.key), tier.storage.get(build_index_key(entry.key))
        assert stored is not None
        assert index is not None
        assert len(stored.body) == entry.bytes
        assert stored.body.endswith(index.body)
        assert pq.read_metadata(BufferReader(index.body)).num_rows == 4
    rows = [row for entry in manifest.entries for row in rows_of(read_part(tier.storage, entry, 0, ALL))]
    assert rows == held(tier.cluster)[:8]
    assert tier.upload() == MaintenanceResult()


@pytest.mark.fact("F-R-033")
def test_segments_are_the_same_whether_they_were_made_one_file_before_or_not() -> None:
    rolled, raw = tiered(), tiered()
    for tier in (rolled, raw):
        tier.fill(9)
        tier.upload(rolls=tier is rolled)
    assert [replace(entry, key="", bytes=0) for entry in raw.segments()] == [
        replace(entry, key="", bytes=0) for entry in rolled.segments()
    ]


@pytest.mark.fact("F-R-029")
@pytest.mark.fact("F-K-040")
def test_nothing_at_or_above_the_last_stable_offset_is_uploaded() -> None:
    tier = tiered()
    tier.switch_on(segment_max_upload_interval_sec="1")
    tier.fill(2)
    with tier.cluster.producer("t") as producer:
        producer.init_transactions()
        producer.begin()
        producer.send(TOPIC, "open", partition=0)
        producer.flush()
        tier.fill(5)
        tier.upload()
        assert ends_of(tier) == [(0, 3)]
        producer.abort()
    tier.clock.now_ms += 2000
    tier.upload()
    assert ends_of(tier) == [(0, 3), (5, 8), (9, 12), (13, 14)]


@pytest.mark.fact("F-R-031")
def test_with_an_interval_the_open_segment_is_uploaded_when_it_has_passed_and_there_is_something_new() -> None:
    tier = tiered()
    tier.switch_on(segment_max_upload_interval_sec="600")
    tier.fill(1)
    tier.upload()
    assert ends_of(tier) == [(0, 1)]
    tier.clock.now_ms += DAY
    assert tier.upload() == MaintenanceResult()
    tier.fill(1)
    tier.upload()
    assert ends_of(tier) == [(0, 1), (2, 3)]
    tier.fill(1)
    assert tier.upload() == MaintenanceResult()
    tier.clock.now_ms += 599_999
    assert tier.upload() == MaintenanceResult()
    tier.clock.now_ms += 1
    tier.upload()
    assert ends_of(tier) == [(0, 1), (2, 3), (4, 5)]


@pytest.mark.fact("F-R-031")
@pytest.mark.fact("F-R-033")
def test_of_a_segment_that_was_uploaded_in_part_the_rest_follows_once() -> None:
    tier = tiered(segment_bytes="9000")
    tier.switch_on(segment_max_upload_interval_sec="600")
    tier.fill(2)
    tier.upload()
    tier.fill(5)
    tier.upload()
    local = head_of(tier.cluster).entries[0]
    assert local.is_segment
    assert local.last > 3
    assert ends_of(tier) == [(0, 3), (4, local.last)]
    rows = [row for entry in tier.segments() for row in rows_of(read_part(tier.storage, entry, 0, ALL))]
    assert rows == held(tier.cluster)[: local.last + 1]


@pytest.mark.fact("F-R-011")
def test_much_is_uploaded_in_rounds_each_named_before_the_next_and_a_stop_ends_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(uploads, "_CHORE_SEGMENTS", 2)
    monkeypatch.setattr(chores, "_ROUND_BYTES", 1)
    tier = tiered(partitions=2)
    tier.fill(17)
    tier.fill(5, partition=1)
    tier.cluster.upkeep().roll()
    ends: list[int] = []

    def noted(what: str, key: str) -> None:
        if what == "swap" and "00000/manifest.json" in key:
            ends.append(tier.manifest().end)

    cluster = tier.opened(storage=WatchedStore(tier.storage, after=noted))
    cluster.upkeep(is_stopped=lambda: ends[-1:] == [8]).upload()
    assert ends == [0, 8]
    done = cluster.upkeep().upload()
    assert ends == [0, 8, 16, 24, 32]
    assert done.partitions == 2
    assert len(ends_of(tier)) == 8
    assert tier.upload() == MaintenanceResult()


@pytest.mark.fact("F-R-036")
def test_smaller_segments_appear_sooner() -> None:
    small, large = tiered(segment_bytes="2000"), tiered(segment_bytes="1MiB")
    for tier in (small, large):
        tier.fill(4)
        tier.upload()
    assert len(ends_of(small)) == 3
    assert ends_of(large) == []


@pytest.mark.fact("F-R-011")
def test_switched_on_for_a_topic_with_records_uploads_begin_at_its_earliest_local_offset() -> None:
    tier = Tiered()
    tier.switch_on()
    with_topic(tier.cluster, segment_bytes=TWO_PARTS, retention_ms="1d")
    append_parts(tier.cluster, 4, at_ms=tier.clock.now_ms - 2 * DAY)
    tier.fill(5)
    tier.cluster.upkeep().retain()
    assert head_of(tier.cluster).start == 8
    assert tier.upload() == MaintenanceResult()
    tier.cluster.alter_topic(TOPIC, BOTH)
    tier.upload()
    assert tier.manifest().start == 8
    assert ends_of(tier) == [(8, 11), (12, 15)]


def test_records_that_expired_while_uploads_were_off_are_a_gap() -> None:
    tier = tiered(retention_ms="1d")
    append_parts(tier.cluster, 3, at_ms=tier.clock.now_ms - 2 * DAY)
    tier.upload()
    tier.cluster.alter_topic(TOPIC, {"remote.write": "false"})
    append_parts(tier.cluster, 3, at_ms=tier.clock.now_ms - 2 * DAY)
    tier.fill(3)
    tier.cluster.upkeep().retain()
    local_start = head_of(tier.cluster).local_start
    assert local_start > 4
    tier.cluster.alter_topic(TOPIC, {"remote.write": "true"})
    tier.upload()
    assert tier.segments()[-1].base >= local_start
    assert held(tier.cluster)[-1]["offset"] == head_of(tier.cluster).end - 1


@pytest.mark.fact("F-R-032")
def test_topic_and_manifests_are_described_before_any_segment_is_closed() -> None:
    tier = tiered(retention_ms="10d")
    tier.fill(1)
    assert tier.upload() == MaintenanceResult()
    manifest, location = tier.manifest(), tier.tiering().location
    assert (manifest.start, manifest.end, manifest.entries) == (0, 0, ())
    found = read_topic_manifest(tier.storage, location.cluster_id, location.revision)
    assert found is not None
    assert (found.location, found.owner, found.name, found.partitions) == (location, location.cluster_id, TOPIC, 1)
    assert found.effective["retention.ms"] == str(10 * DAY)


@pytest.mark.fact("F-R-032")
def test_a_topic_that_was_never_written_is_described_and_follows_the_catalog() -> None:
    tier = tiered(partitions=2)
    assert tier.upload() == MaintenanceResult()
    tier.cluster.alter_topic(TOPIC, {"retention.ms": "5d"}, partitions=3)
    tier.cluster.create_namespace("shop", {"max.message.bytes": "2000"})
    tier.cluster.move_topic(TOPIC, "shop:sold")
    tier.upload()
    (key,) = (listed.key for listed in tier.storage.list("topics/"))
    _, cluster_id, revision, name = key.split("/")
    found = read_topic_manifest(tier.storage, cluster_id, int(revision))
    assert name == "topic.json"
    assert found is not None
    assert (found.name, found.location.topic, found.partitions) == ("shop:sold", TOPIC, 3)
    assert (found.effective["max.message.bytes"], found.configs["retention.ms"]) == ("2000", str(5 * DAY))


def test_an_older_look_at_the_catalog_never_replaces_what_a_newer_one_wrote() -> None:
    tier = tiered()
    old = build_topic_manifest(tier.cluster.catalog.read(), TOPIC, tier.cluster.cluster_id)
    tier.cluster.alter_topic(TOPIC, {"retention.ms": "5d"})
    new = build_topic_manifest(tier.cluster.catalog.read(), TOPIC, tier.cluster.cluster_id)
    assert not write_topic_manifest(tier.storage, new, creates=False)
    assert write_topic_manifest(tier.storage, new)
    assert not write_topic_manifest(tier.storage, old)
    assert read_topic_manifest(tier.storage, old.location.cluster_id, old.location.revision) == new
    with pytest.raises(OwnershipLostError):
        write_topic_manifest(tier.storage, replace(new, owner="another", serial=99))


@pytest.mark.fact("F-R-020")
def test_a_compacted_topic_is_uploaded_raw_first_and_compacted_after() -> None:
    tier = tiered(cleanup_policy="compact", min_cleanable_dirty_ratio="0")
    for number in range(9):
        append(tier.cluster, ("same", str(number)), (f"k{number % 2}", "y"))
    tier.upload()
    raw = tier.segments()
    assert sum(entry.digest.records for entry in raw) == 16
    assert tier.cluster.upkeep().compact().partitions == 1
    assert tier.segments() == raw
    done = tier.cluster.upkeep().upload()
    assert (done.partitions, done.failed) == (1, 0)
    compacted_to = head_of(tier.cluster).compacted_to
    rows = [row for entry in tier.segments() for row in rows_of(read_part(tier.storage, entry, 0, ALL))]
    assert rows == [row for row in held(tier.cluster) if row["offset"] < compacted_to]
    assert len(rows) == 3
    assert tier.objects() == {key for entry in tier.segments() for key in (entry.key, build_index_key(entry.key))}
    assert tier.upload() == MaintenanceResult()


@pytest.mark.fact("F-R-020")
def test_what_was_compacted_is_not_uploaded_once_more_where_that_is_switched_off() -> None:
    tier = tiered(cleanup_policy="compact", min_cleanable_dirty_ratio="0")
    tier.switch_on(enable_compacted_topic_reupload="false")
    tier.fill(9)
    tier.upload()
    raw = tier.segments()
    assert tier.cluster.upkeep().compact().partitions == 1
    assert tier.upload() == MaintenanceResult()
    assert tier.segments() == raw
    tier.switch_on(enable_compacted_topic_reupload="true")
    assert tier.upload().partitions == 1


def test_what_was_compacted_is_uploaded_once_more_where_the_start_of_the_log_cuts_its_copy() -> None:
    tier = tiered(cleanup_policy="compact", min_cleanable_dirty_ratio="0", retention_local_target_bytes="1")
    tier.fill(5)
    tier.upload()
    begin_at(tier, 1)
    assert tier.cluster.upkeep().compact().partitions == 1
    rows = held(tier.cluster)
    assert tier.upload().partitions == 1
    assert [(entry.base, entry.last) for entry in tier.segments()] == [(1, 7)]
    tier.cluster.alter_topic(TOPIC, {"retention.local.strict": "true"})
    tier.cluster.upkeep().retain()
    assert head_of(tier.cluster).local_start == 8
    assert held(tier.opened()) == rows
    assert tier.upload() == MaintenanceResult()


def test_a_partition_that_belongs_to_another_cluster_is_told_and_left_alone() -> None:
    tier = tiered(partitions=2)
    tier.fill(5, partition=0)
    tier.fill(5, partition=1)
    tier.upload()
    theirs = tier.manifest(0)

    def taken(manifest: Manifest) -> Manifest:
        return replace(manifest, owner="another", owner_epoch=1)

    ManifestSwap(tier.storage, tier.cluster.cluster_id, tier.tiering())(tier.remote(0), taken)
    tier.fill(4, partition=0)
    tier.fill(4, partition=1)
    before = tier.objects()
    done = tier.upload()
    assert (done.partitions, done.failed) == (1, 1)
    assert isinstance(done.errors[0], OwnershipLostError)
    assert tier.manifest(0).entries == theirs.entries
    assert len(tier.objects() - before) == 4


def test_under_a_newer_tiered_epoch_nothing_is_named_and_nothing_is_left() -> None:
    tier = tiered()
    tier.fill(5)
    tier.upload()
    tier.fill(4)
    before, old = tier.objects(), tier.tiering()
    disabled: list[int] = []

    def meanwhile(what: str, key: str) -> None:
        if what == "swap" and "manifest.json" in key and not disabled:
            disabled.append(1)
            newer = replace(old, epoch=old.epoch + 1)
            ManifestSwap(tier.storage, tier.cluster.cluster_id, newer)(tier.remote(), lambda manifest: manifest)

    done = tier.opened(storage=WatchedStore(tier.storage, before=meanwhile)).upkeep().upload()
    assert disabled
    assert (done.partitions, done.failed) == (0, 0)
    assert tier.objects() == before


def sealed(storage: ObjectStore) -> MaintenanceResult:
    """Upload a topic of a namespace that has a key."""
    tier = Tiered(KeyedStore(), storage)
    tier.switch_on()
    tier.cluster.create_namespace("shop", kms_key_id="ours")
    tier.cluster.create_topic("shop:orders", configs={**BOTH, "segment.bytes": TWO_PARTS})
    with tier.cluster.producer() as producer:
        for number in range(7):
            producer.send("shop:orders", str(number), partition=0)
            producer.flush()
    return tier.upload()


def test_objects_lie_under_the_key_of_their_namespace_in_object_storage_too() -> None:
    storage = KeyedStore()
    assert sealed(storage).partitions == 1
    segments = {key: kms for key, kms in storage.key_of.items() if key.endswith((".parquet", ".index"))}
    assert len(segments) >= 4
    assert set(segments.values()) == {"ours"}


def test_a_storage_that_cannot_encrypt_is_refused_and_nothing_is_left_there() -> None:
    storage = MemoryStore()
    done = sealed(storage)
    assert (done.partitions, done.failed) == (0, 1)
    assert "cannot encrypt" in done.errors[0].message
    assert not any(listed.key.endswith((".parquet", ".index")) for listed in storage.list("topics/"))


def test_the_footer_of_a_large_file_takes_a_second_request() -> None:
    store = WatchedStore(MemoryStore())
    footer = bytes(100_000)
    body = b"PAR1" + b"x" * 1000 + footer + len(footer).to_bytes(4, "little") + b"PAR1"
    store.put("file", body)
    assert read_footer(store, "file", len(body)) == body[-100_008:]
    assert store.count("get_range") == 2
    with pytest.raises(UserError, match="does not end as a Parquet file"):
        read_footer(store, "file", len(body) - 1)


def test_what_expired_while_nothing_was_uploaded_keeps_nobody_from_going_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(head_module, "TAIL", 4)
    it = tiered(retention_ms="-1")
    it.fill(1)
    it.upload(rolls=False)
    assert it.manifest().end == 0
    it.fill(8)
    most = head_of(it.cluster).stored_bytes * 3 // 4
    it.cluster.alter_topic(TOPIC, {"remote.write": "false", "retention.bytes": str(most)})
    it.cluster.upkeep().retain()
    head = head_of(it.cluster)
    assert head.pages[0].base < head.start
    it.cluster.alter_topic(TOPIC, {"remote.write": "true", "retention.bytes": "-1"})
    assert it.upload(rolls=False).errors == []
    assert it.segments()[0].base == head.start
    assert check_cluster(it.store, deep=True, storage=it.storage).findings == []


@pytest.mark.fact("F-R-011")
def test_a_manifest_that_ends_before_the_log_begins_lacks_nothing() -> None:
    it = tiered(retention_ms="-1")
    it.fill(9)
    it.upload()
    off = {"remote.write": "false", "remote.read": "false"}
    it.cluster.alter_topic(TOPIC, {**off, "retention.bytes": "0"})
    it.cluster.upkeep().retain()
    it.cluster.alter_topic(TOPIC, {**BOTH, "retention.bytes": "-1"})
    it.cluster.alter_topic(TOPIC, {**off, "remote.log.disable.policy": "delete"})
    it.cluster.alter_topic(TOPIC, BOTH)
    head = head_of(it.cluster)
    assert 0 < head.start == head.uploaded_to
    swap = ManifestSwap(it.storage, it.cluster.cluster_id, it.tiering())
    swap(it.remote(), lambda manifest: replace(manifest, start=0, end=0))
    it.fill(4)
    assert it.upload(rolls=False).errors == []
    assert it.segments()[0].base >= head.start
    assert check_cluster(it.store, deep=True, storage=it.storage).findings == []


# Dying before and after every write of an upload, losing answers, racing: nothing is lost, doubled or left over.


def filled(*, cleanup_policy: str = "delete") -> Tiered:
    """Return a topic of which some is uploaded by interval, in the middle of a segment, and more has come since."""
    tier = tiered(partitions=2, cleanup_policy=cleanup_policy, min_cleanable_dirty_ratio="0")
    tier.switch_on(segment_max_upload_interval_sec="60")
    for partition in range(2):
        append_parts(tier.cluster, 3, partition=partition)
    tier.upload()
    for partition in range(2):
        append_parts(tier.cluster, 4, partition=partition)
    return tier


def both_copied(tier: Tiered) -> Tiered:
    return Tiered(copied(tier.store), copied(tier.storage), tier.clock)


def uploading(cluster: EmbeddedCluster) -> None:
    upkeep = cluster.upkeep()
    upkeep.roll()
    upkeep.upload()


def crashes(tier: Tiered) -> Iterator[Tiered]:
    """Yield both tiers as they are left behind, for every write at which the upload can die, before and after it."""
    for done in (False, True):
        for at in itertools.count():
            left, tick = both_copied(tier), Ticking(at)
            try:
                uploading(left.opened(tick.watch(left.store, done=done), tick.watch(left.storage, done=done)))
            except DiedError:
                yield left
            else:
                assert at > 1
                break


def check(tier: Tiered, rows: dict[int, list[dict[str, Any]]]) -> None:
    """Check that all that is named is there, each record once and as it is in the log, and heads never run ahead."""
    for partition in range(2):
        manifest = tier.manifest(partition)
        assert head_of(tier.cluster, partition).uploaded_to <= manifest.end
        found = remote_rows(tier, manifest, partition)
        assert found == [row for row in rows[partition] if row["offset"] < manifest.end]


def remote_rows(tier: Tiered, manifest: Manifest, partition: int) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for entry in iter_all_entries(tier.storage, manifest):
        assert tier.storage.get(build_index_key(entry.key)) is not None
        rows += rows_of(read_part(tier.storage, entry, partition, ALL))
    return rows


def named(tier: Tiered) -> set[str]:
    entries = [entry for partition in range(2) for entry in tier.segments(partition)]
    return {key for entry in entries for key in (entry.key, build_index_key(entry.key))}


def swept(tier: Tiered) -> None:
    late: Any = LateStore(tier.store, DAY + 60_000)
    later: Any = LateStore(tier.storage, DAY + 60_000)
    cluster = tier.opened(late, later)
    sweep_store(late, cluster.catalog, storage=later)


@pytest.mark.thorough
@pytest.mark.fact("F-R-033")
@pytest.mark.fact("F-K-043")
def test_an_upload_that_died_is_finished_by_the_next_each_record_once() -> None:
    tier = filled()
    rows = {partition: held(tier.cluster, partition) for partition in range(2)}
    points = 0
    for left in crashes(tier):
        points += 1
        check(left, rows)
        assert {partition: pairs_of(held(left.cluster, partition)) for partition in range(2)} == {
            partition: pairs_of(rows[partition]) for partition in range(2)
        }
        uploading(left.opened())
        check(left, rows)
        assert [head_of(left.cluster, partition).uploaded_to for partition in range(2)] == [12, 12]
        assert named(left) <= left.objects()
        if points % 4 == 0:
            swept(left)
            assert left.objects() == named(left)
    assert points > 20


@pytest.mark.thorough
@pytest.mark.fact("F-R-020")
def test_a_compacted_topic_that_died_uploading_once_more_is_finished_by_the_next() -> None:
    tier = filled(cleanup_policy="compact")
    tier.upload()
    assert tier.cluster.upkeep().compact().failed == 0
    whole = both_copied(tier)
    uploading(whole.opened())
    after = {partition: held(whole.cluster, partition) for partition in range(2)}
    points = 0
    for left in crashes(tier):
        points += 1
        for partition in range(2):
            for entry in left.segments(partition):
                assert left.storage.get(entry.key) is not None
        uploading(left.opened())
        check(left, after)
        if points % 4 == 0:
            swept(left)
            assert left.objects() == named(left)
    assert points > 8


@pytest.mark.fact("F-R-033")
@pytest.mark.parametrize("retries", [True, False])
def test_lost_answers_neither_double_nor_lose_anything(*, retries: bool) -> None:
    tier = filled()
    rows = {partition: held(tier.cluster, partition) for partition in range(2)}
    lossy: Any = LossyStore(tier.storage, retries=retries)
    uploading(tier.opened(storage=lossy))
    assert lossy.swaps > 1
    check(tier, rows)
    uploading(tier.opened())
    check(tier, rows)
    assert head_of(tier.cluster).uploaded_to == 12
    swept(tier)
    assert tier.objects() == named(tier)


@pytest.mark.fact("F-R-033")
def test_of_two_uploaders_one_is_named_and_the_other_cleans_up() -> None:
    tier = filled()
    rows = {partition: held(tier.cluster, partition) for partition in range(2)}
    others: list[int] = []

    def meanwhile(what: str, key: str) -> None:
        if what == "swap" and "manifest.json" in key and not others:
            others.append(1)
            uploading(tier.opened())

    uploading(tier.opened(storage=WatchedStore(tier.storage, before=meanwhile)))
    assert others
    check(tier, rows)
    assert tier.objects() == named(tier)


@pytest.mark.fact("F-K-043")
def test_what_was_put_for_a_topic_that_is_deleted_meanwhile_goes() -> None:
    tier = filled()
    others: list[int] = []

    def meanwhile(what: str, key: str) -> None:
        if what == "swap" and "manifest.json" in key and not others:
            others.append(1)
            tier.opened().delete_topic("orders")

    remote = tier.remote()
    done = tier.opened(storage=WatchedStore(tier.storage, before=meanwhile)).upkeep().upload()
    assert others
    assert done.failed == 0
    assert read_manifest(tier.storage, remote) is None
    assert not tier.objects()


def test_what_lay_unnamed_for_an_hour_is_put_again() -> None:
    tier = filled()
    rows = {partition: held(tier.cluster, partition) for partition in range(2)}

    def sleeps(what: str, key: str) -> None:
        if what == "put" and key.endswith(".index"):
            tier.clock.now_ms += 2 * 60 * 60 * 1000

    before = named(tier)
    done = tier.opened(storage=WatchedStore(tier.storage, after=sleeps)).upkeep().upload()
    assert (done.partitions, done.failed) == (0, 0)
    assert tier.objects() == named(tier) == before
    uploading(tier.opened())
    check(tier, rows)
    assert head_of(tier.cluster).uploaded_to == 14  # The interval has passed, too.


def test_retention_in_the_middle_of_an_upload_leaves_what_is_left_readable() -> None:
    tier = filled()
    tier.cluster.alter_topic("orders", {"retention.ms": "1d", "local.retention.ms": "1d"})
    tier.clock.now_ms += 2 * DAY
    append(tier.cluster, ("new", "one"))
    others: list[int] = []

    def meanwhile(what: str, key: str) -> None:
        if what == "swap" and "manifest.json" in key and not others:
            others.append(1)
            tier.opened().upkeep().retain()

    uploading(tier.opened(storage=WatchedStore(tier.storage, before=meanwhile)))
    assert others
    for _ in range(3):
        upkeep = tier.opened().upkeep()
        assert upkeep.retain().failed == 0
        upkeep.upload()
    rows = held(tier.cluster)
    assert rows[-1]["key"] == b"new"
    swept(tier)
    assert named(tier) == tier.objects()


def test_a_segment_whose_records_are_not_those_of_its_digest_is_not_uploaded() -> None:
    it = tiered(segment_bytes=TWO_PARTS)
    it.fill(4)
    head = head_of(it.cluster)
    first = head.entries[0]
    other = replace(first, digest=replace(first.digest, total=first.digest.total + 1))
    swap_head(
        it.store,
        Partition(TOPIC, it.cluster.topic(TOPIC).id, 0),
        lambda found: replace(found, entries=(other, *found.entries[1:])),
    )
    done = it.upload(rolls=False)
    assert (done.partitions, done.failed) == (0, 1)
    assert "its records do not match the digest in the head" in done.errors[0].message
    assert not [key for key in it.objects() if key.endswith(".parquet")]
