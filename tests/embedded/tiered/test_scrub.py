"""A scrub finds what object storage has lost, mends what lies here too, and says which offsets are gone."""

from __future__ import annotations

from dataclasses import replace

import orjson
import pytest

from reconciler.archives.keys import build_index_key, build_topic_manifest_key
from reconciler.archives.topic_manifest import TopicManifest, read_topic_manifest
from reconciler.embedded.catalog.tiering_state import build_topic_manifest
from reconciler.embedded.maintenance.passes import SCRUB_INTERVAL_MS, scrub_cluster
from reconciler.embedded.maintenance.survey import MaintenanceResult
from reconciler.errors import UserError
from tests.embedded.maintenance.tiny_segments import TOPIC, append, copied, held
from tests.embedded.samples import read
from tests.embedded.stores import WatchedStore
from tests.embedded.tiered.tiered_cluster import Tiered, tiered


def uploaded(*, evicts: bool = False) -> Tiered:
    """Return a topic of eight remote segments, four records each; `evicts`: that lie nowhere else."""
    it = tiered(partitions=1, storage=None, retention_local_target_bytes="1", retention_local_strict="true")
    it.fill(17)
    it.upload()
    if evicts:
        it.cluster.upkeep().retain()
    return it


def scrubbed(it: Tiered, *, ignores_interval: bool = True) -> MaintenanceResult:
    return scrub_cluster(it.cluster.upkeep(), ignores_interval=ignores_interval)


def test_where_all_is_there_nothing_is_found() -> None:
    it = uploaded()
    assert scrubbed(it) == MaintenanceResult(partitions=1)


def test_a_lost_segment_that_lies_here_too_is_put_again() -> None:
    it = uploaded()
    rows, lost = held(it.cluster), it.segments()[2]
    it.storage.delete([lost.key])
    done = scrubbed(it)
    assert (done.records, done.bytes, done.failed) == (4, lost.bytes, 0)
    again = it.segments()[2]
    assert again.key != lost.key
    assert (again.base, again.last, again.digest) == (lost.base, lost.last, lost.digest)
    assert scrubbed(it) == MaintenanceResult(partitions=1)
    it.cluster.upkeep().retain()
    assert held(it.cluster) == rows
    assert it.objects() == {key for entry in it.segments() for key in (entry.key, build_index_key(entry.key))}


def test_of_a_lost_segment_that_lay_nowhere_else_its_offsets_are_told_and_it_stays_named() -> None:
    it = uploaded(evicts=True)
    lost = it.segments()[2]
    it.storage.delete([lost.key])
    done = scrubbed(it)
    assert done.failed == 1
    (error,) = done.errors
    assert error.message == (
        f"{TOPIC}, partition 0: offsets 8 to 11 cannot be read: {lost.key}: the segment is not there"
    )
    assert (
        error.hint
        == f"Restore {lost.key} from a version or copy of the bucket, then: reconciler run --once --only scrub"
    )
    assert it.segments()[2] == lost


@pytest.mark.parametrize("written", [0, 9])
def test_an_older_copy_of_the_cluster_puts_nothing_in_the_place_of_what_it_never_had(written: int) -> None:
    it = tiered(retention_local_target_ms="-1")
    it.fill(9)
    it.upload()
    older = copied(it.store)
    it.fill(8)
    it.upload()
    lost = it.segments()[-1]
    back = Tiered(older, it.storage, it.clock)
    for number in range(written):
        append(back.cluster, ("other", str(number)), ("other", str(number)))
    it.storage.delete([lost.key])
    done = scrubbed(back)
    assert done.failed == 1
    assert lost.key in done.errors[0].message
    assert it.segments()[-1] == lost


@pytest.mark.parametrize("evicts", [False, True])
def test_a_segment_of_another_size_is_told_and_put_again_where_it_lies_here(*, evicts: bool) -> None:
    it = uploaded(evicts=evicts)
    torn = it.segments()[1]
    body = it.storage.get(torn.key)
    assert body is not None
    it.storage.delete([torn.key])
    it.storage.put(torn.key, body.body[:-20])
    done = scrubbed(it)
    assert done.failed == evicts
    assert all("the segment differs from its manifest: it has " in error.message for error in done.errors)
    if not evicts:
        assert torn.key not in it.objects()
        assert scrubbed(it) == MaintenanceResult(partitions=1)


@pytest.mark.parametrize("garbled", [None, b"", b"no footer", b"PAR1"])
def test_a_missing_or_garbled_index_is_made_from_its_segment(garbled: bytes | None) -> None:
    it = uploaded(evicts=True)
    key = build_index_key(it.segments()[3].key)
    before = it.storage.get(key)
    it.storage.delete([key])
    if garbled is not None:
        it.storage.put(key, garbled)
    assert scrubbed(it) == MaintenanceResult(partitions=1)
    after = it.storage.get(key)
    assert before is not None
    assert after is not None
    assert after.body == before.body


def test_the_index_of_another_segment_is_none() -> None:
    it = tiered()
    append(it.cluster, ("a", "1"))
    append(it.cluster, ("a", "2"))
    it.fill(3)
    it.upload()
    first, *_, last = it.segments()
    assert first.digest.records != last.digest.records
    other = it.storage.get(build_index_key(last.key))
    assert other is not None
    it.storage.delete([build_index_key(first.key)])
    it.storage.put(build_index_key(first.key), other.body)
    scrubbed(it)
    mended = it.storage.get(build_index_key(first.key))
    assert mended is not None
    assert mended.body != other.body


@pytest.mark.parametrize("content", [None, b"{", b'{"format": "reconciler.manifest/9"}'])
def test_a_manifest_that_is_gone_torn_or_newer_is_told_with_what_it_alone_had(content: bytes | None) -> None:
    it = uploaded(evicts=True)
    start = it.cluster.log(TOPIC).read_head(0)
    assert start is not None
    key = it.remote().key
    it.storage.delete([key])
    if content is not None:
        it.storage.put(key, content)
    done = scrubbed(it)
    (error,) = done.errors
    assert f"offsets 0 to {start.local_start - 1} cannot be read: {key}: the manifest cannot be read" in error.message


def test_a_lost_page_is_told_with_its_offsets_and_the_rest_is_looked_at() -> None:
    it = tiered()
    it.switch_on(spillover_manifest_size="1024")
    it.fill(81)
    it.upload()
    page, entry = it.manifest().pages[0], it.manifest().entries[-1]
    it.storage.delete([page.key, build_index_key(entry.key)])
    done = scrubbed(it)
    (error,) = done.errors
    assert f"offsets {page.base} to {page.last} cannot be read: {page.key}: a page" in error.message
    assert it.storage.get(build_index_key(entry.key)) is not None


def test_objects_that_nobody_names_are_left_to_the_sweep() -> None:
    it = uploaded()
    key = f"{it.remote().key_prefix}/900-999-10-0-v1-abcdefgh.parquet"
    it.storage.put(key, b"left over")
    assert scrubbed(it) == MaintenanceResult(partitions=1)
    assert it.storage.get(key) is not None


def test_what_others_replaced_while_it_looked_is_not_missing() -> None:
    it = uploaded(evicts=True)
    it.switch_on(segment_size_target=str(1 << 20), segment_size_min="1")
    merged: list[MaintenanceResult] = []

    class Overtaken(WatchedStore):
        def list(self, prefix: str):  # type: ignore[no-untyped-def]  # noqa: ANN202 - as the store's
            if prefix.endswith("/") and not merged:
                merged.append(it.cluster.upkeep().merge())
            return super().list(prefix)

    cluster = it.opened(storage=Overtaken(it.storage))
    assert scrub_cluster(cluster.upkeep(), ignores_interval=True) == MaintenanceResult(partitions=1)
    assert merged[0].partitions == 1


@pytest.mark.thorough
def test_each_partition_is_scrubbed_once_a_day_and_at_once_where_that_is_asked_for() -> None:
    it = tiered(partitions=5)
    for partition in range(5):
        it.fill(5, partition=partition)
    it.upload()
    assert scrubbed(it, ignores_interval=False).partitions == 0
    for _ in range(2):
        by_hour = []
        for _ in range(24):
            it.clock.now_ms += SCRUB_INTERVAL_MS // 24
            by_hour.append(scrubbed(it, ignores_interval=False).partitions)
            it.fill(2)
            it.upload()
        assert sum(by_hour) == 5
        assert max(by_hour) < 5
    assert scrubbed(it).partitions == 5
    assert scrubbed(it, ignores_interval=False).partitions == 0


def test_nothing_is_put_again_where_nothing_is_uploaded() -> None:
    it = uploaded()
    lost = it.segments()[0]
    it.storage.delete([lost.key])
    it.cluster.alter_topic(TOPIC, {"remote.write": "false"})
    done = scrubbed(it)
    assert "offsets 0 to 3 are in the local tier alone" in done.errors[0].message
    it.cluster.alter_topic(TOPIC, {"remote.write": "true"})
    assert scrubbed(it).records == 4
    assert len(read(it.cluster.log(TOPIC))) == 34


def described(it: Tiered) -> TopicManifest | None:
    location = it.tiering().location
    return read_topic_manifest(it.storage, location.cluster_id, location.revision)


def describe_as(it: Tiered, body: bytes | None) -> str:
    """Put other bytes in place of a topic's description, or nothing."""
    location = it.tiering().location
    key = build_topic_manifest_key(location.cluster_id, location.revision)
    it.storage.delete([key])
    if body is not None:
        it.storage.put(key, body)
    return key


@pytest.mark.parametrize("writes", ["true", "false"])
@pytest.mark.parametrize("body", [None, b"", b'{"format": "reconciler.topic/1", "epo', b'{"format": "other/1"}', b"[]"])
def test_the_description_of_a_topic_is_written_anew_where_it_is_lost_or_damaged(
    body: bytes | None, writes: str
) -> None:
    it = uploaded(evicts=True)
    it.cluster.alter_topic(TOPIC, {"remote.write": writes})
    describe_as(it, body)
    assert scrubbed(it) == MaintenanceResult(partitions=1)
    location = it.tiering().location
    assert described(it) == build_topic_manifest(it.cluster.catalog.read(), TOPIC, location.cluster_id)


def test_that_of_another_topic_is_no_description_of_this_one() -> None:
    it = uploaded()
    before = described(it)
    assert before is not None
    stranger = replace(before, location=replace(before.location, revision=77))
    kept = {"format": "reconciler.topic/1", "epoch": 0, "nonce": "n", "marks": [], **stranger.to_json()}
    describe_as(it, orjson.dumps(kept))
    with pytest.raises(UserError, match="cannot be read: it is that of"):
        described(it)
    assert scrubbed(it) == MaintenanceResult(partitions=1)
    assert described(it) == before


def test_a_description_of_a_newer_version_is_told_and_stays() -> None:
    it = uploaded()
    newer = b'{"format": "reconciler.topic/7"}'
    key = describe_as(it, newer)
    done = scrubbed(it)
    assert done.failed == 1
    assert f"{key} was written by a newer version of reconciler" in done.errors[0].message
    kept = it.storage.get(key)
    assert kept is not None
    assert kept.body == newer


def test_descriptions_are_looked_at_within_a_day_and_at_once_also_of_topics_without_records() -> None:
    it = uploaded()
    scrubbed(it, ignores_interval=False)
    describe_as(it, None)
    it.clock.now_ms += SCRUB_INTERVAL_MS
    scrubbed(it, ignores_interval=False)
    assert described(it) is not None
    empty = tiered()
    empty.upload()
    describe_as(empty, None)
    assert scrubbed(empty) == MaintenanceResult()
    assert described(empty) is not None
