"""Merging in object storage: one object in the place of a run, with everything that was in it."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from reconciler.embedded.keys import index_key
from reconciler.embedded.maintenance.survey import MaintenanceResult
from reconciler.embedded.segments.parts import read_part
from reconciler.embedded.tiered.manifest import ManifestSwap
from reconciler.records.log import Digest
from tests.embedded.samples import rows_of
from tests.embedded.tiered import tiered
from tests.embedded.upkeeping import ALL, TOPIC, TWO_PARTS, append, append_parts
from tests.embedded.watched import WatchedStore

if TYPE_CHECKING:
    from typing import Any

    from tests.embedded.tiered import Tiered

LARGE = 1 << 20


def small(*, segments: int = 8, target: int = LARGE, least: int = 1) -> Tiered:
    """Return a topic of which so many small segments are uploaded, and a target into which all of them fit."""
    found = tiered()
    found.switch_on(segment_size_target=str(target), segment_size_min=str(least))
    found.fill(2 * segments + 1)
    found.upload()
    return found


def remote_rows(found: Tiered) -> list[dict[str, Any]]:
    """Return every record the manifest names, as object storage has it."""
    return [row for entry in found.segments() for row in rows_of(read_part(found.storage, entry, 0, ALL))]


def digest_of(found: Tiered) -> Digest:
    return sum((entry.digest.shifted(entry.base) for entry in found.segments()), Digest())


def is_tidy(found: Tiered) -> bool:
    """Tell whether exactly the objects that are named are there, each with its index."""
    named = {key for entry in found.segments() for key in (entry.key, index_key(entry.key))}
    return found.objects() == named and not found.manifest().garbage


@pytest.mark.fact("F-R-060")
def test_a_run_becomes_one_object_and_its_records_stay() -> None:
    found = small()
    before, rows, digest = found.segments(), remote_rows(found), digest_of(found)
    assert len(before) == 8
    done = found.cluster.upkeep().merge()
    assert (done.partitions, done.failed) == (1, 0)
    assert (done.records, done.bytes) == (32, sum(entry.bytes for entry in before))
    after = found.segments()
    assert len(after) == 1
    assert (after[0].base, after[0].last, after[0].is_segment) == (0, 31, True)
    assert after[0].key.rpartition("/")[2].startswith(f"0-31-{after[0].bytes}-0-v1-")
    assert (remote_rows(found), digest_of(found)) == (rows, digest)
    assert is_tidy(found)
    assert found.cluster.upkeep().merge() == MaintenanceResult()


def test_the_index_is_the_footer_of_the_object() -> None:
    found = small()
    found.cluster.upkeep().merge()
    (entry,) = found.segments()
    body, index = found.storage.get(entry.key), found.storage.get(index_key(entry.key))
    assert body is not None
    assert index is not None
    assert body.body.endswith(index.body)
    assert int.from_bytes(index.body[-8:-4], "little") == len(index.body) - 8


@pytest.mark.fact("F-R-064")
def test_by_default_a_run_grows_to_the_topics_own_segments() -> None:
    found = tiered(segment_bytes=TWO_PARTS)
    found.fill(25)
    found.upload()
    before = found.segments()
    while found.cluster.upkeep().merge().partitions:
        pass  # One file is smaller than the two it is made of: there may be room for another.
    sizes = [entry.bytes for entry in found.segments()]
    assert len(sizes) < len(before)
    assert all(size <= int(TWO_PARTS) for size in sizes)
    assert all(sum(pair) > int(TWO_PARTS) for pair in itertools.pairwise(sizes[:-1]))


@pytest.mark.fact("F-R-064")
def test_merging_can_be_switched_off() -> None:
    found = small()
    found.switch_on(enable_segment_merging="false")
    assert found.cluster.upkeep().merge() == MaintenanceResult()
    found.switch_on(enable_segment_merging="true")
    assert found.cluster.upkeep().merge().partitions == 1


@pytest.mark.fact("F-R-065")
@pytest.mark.parametrize("configs", [{"cleanup.policy": "compact"}, {"remote.write": "false"}])
def test_neither_compacted_topics_nor_those_that_do_not_write_are_merged(configs: dict[str, str]) -> None:
    found = small()
    found.cluster.alter_topic(TOPIC, configs)
    assert found.cluster.upkeep().merge() == MaintenanceResult()
    assert len(found.segments()) == 8


@pytest.mark.fact("F-R-063")
def test_a_gap_that_was_never_uploaded_parts_runs() -> None:
    found = small()
    taken = found.segments()[3]

    def cut(manifest: Any) -> Any:
        return replace(manifest, entries=tuple(entry for entry in manifest.entries if entry.key != taken.key))

    ManifestSwap(found.storage, found.cluster.cluster_id, found.tiering())(found.remote(), cut)
    found.cluster.upkeep().merge()
    assert [(entry.base, entry.last) for entry in found.segments()] == [(0, 11), (16, 31)]


@pytest.mark.fact("F-R-060")
def test_an_aborted_transaction_within_a_segment_stays_a_gap() -> None:
    found = tiered()
    found.switch_on(segment_size_target=str(LARGE), segment_size_min="1")
    for number in range(3):
        append(found.cluster, ("k", str(number)))
        with found.cluster.producer("t") as producer:
            producer.init_transactions()
            producer.begin()
            producer.send(TOPIC, "never", key="k")
            producer.flush()
            producer.abort()
        append(found.cluster, ("k", f"after {number}"))
    append_parts(found.cluster, 1)
    found.upload()
    rows = remote_rows(found)
    assert [row["offset"] for row in rows] == [0, 2, 3, 5, 6, 8]
    found.cluster.upkeep().merge()
    assert [(entry.base, entry.last) for entry in found.segments()] == [(0, 8)]
    assert remote_rows(found) == rows
    assert is_tidy(found)


def test_a_changed_target_is_looked_at_although_nothing_was_written() -> None:
    found = small(target=1, least=1)
    assert found.cluster.upkeep().merge() == MaintenanceResult()
    found.switch_on(segment_size_target=str(LARGE))
    assert found.cluster.upkeep().merge().partitions == 1


def test_runs_in_spilled_pages_are_replaced_where_they_lie() -> None:
    found = tiered()
    found.switch_on(segment_size_target="5000", segment_size_min="1", spillover_manifest_size="1024")
    found.fill(121)
    found.upload()
    manifest, rows, digest = found.manifest(), remote_rows(found), digest_of(found)
    assert manifest.pages
    found.cluster.upkeep().merge()
    after = found.manifest()
    assert after.segments < manifest.segments
    assert (remote_rows(found), digest_of(found), after.end) == (rows, digest, manifest.end)
    assert is_tidy(found)
    pages = {listed.key for listed in found.storage.list("topics/") if "/pages/" in listed.key}
    assert pages == {page.key for page in after.pages}
    assert [page.level for page in after.pages] == [0] * len(after.pages)
    found.switch_on(segment_size_target=str(LARGE))
    found.cluster.upkeep().merge()
    assert len(found.segments()) == 1
    assert remote_rows(found) == rows


def test_what_a_merge_left_as_garbage_is_deleted_by_the_next() -> None:
    found = small()
    taken = found.segments()[0]

    def forget(manifest: Any) -> Any:
        garbage = replace(manifest.garbage, entries=(taken,))
        return replace(manifest, start=taken.last + 1, entries=manifest.entries[1:], garbage=garbage)

    ManifestSwap(found.storage, found.cluster.cluster_id, found.tiering())(found.remote(), forget)
    found.cluster.upkeep().merge()
    assert is_tidy(found)


def test_a_segment_whose_records_are_others_is_never_merged_away() -> None:
    found = small()
    first, second = found.segments()[:2]
    body = found.storage.get(second.key)
    assert body is not None
    found.storage.delete([first.key])
    found.storage.put(first.key, body.body)
    before = found.objects()
    done = found.cluster.upkeep().merge()
    assert done.failed == 1
    assert (
        "are not those whose digest the manifest keeps" in done.errors[0].message or "damaged" in done.errors[0].message
    )
    assert found.objects() == before
    assert len(found.segments()) == 8


def test_of_a_long_history_only_the_end_is_looked_at_again() -> None:
    it = tiered()
    it.switch_on(segment_size_target="3000", segment_size_min="1", spillover_manifest_size="1024")
    it.fill(121)
    it.upload()
    assert it.cluster.upkeep().merge() == MaintenanceResult()
    it.fill(4)
    it.upload()
    assert len(it.manifest().pages) > 1
    watched = WatchedStore(it.storage)
    assert it.opened(storage=watched).upkeep().merge() == MaintenanceResult()
    assert ("get", it.remote().key) in watched.calls
    assert not [key for _, key in watched.calls if "/pages/" in key]


def test_what_comes_after_what_was_merged_is_merged_with_its_end() -> None:
    it = small(target=6000)
    for _ in range(6):
        it.fill(8)
        it.upload()
        assert not it.cluster.upkeep().merge().failed
    assert len(it.segments()) < 6
    assert [row["offset"] for row in remote_rows(it)] == list(range(it.manifest().end))
    assert is_tidy(it)
