"""A tiered cluster checked: what is remote is no fault, and manifests are held against heads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from reconciler.archives.keys import build_index_key
from reconciler.archives.manifest import Garbage, Manifest, ManifestSwap, manifest_register
from reconciler.embedded.check.check import check_cluster
from reconciler.embedded.check.damage import CheckFinding, Kind
from reconciler.embedded.check.mend import repair_findings, restore_truncated_registers
from reconciler.embedded.segments.head import Partition, swap_head
from reconciler.errors import UserError
from reconciler.objectstore.memory import MemoryStore
from reconciler.objectstore.open import open_store
from reconciler.records.log import OffsetRange
from tests.embedded.maintenance.tiny_segments import TOPIC, append, held
from tests.embedded.tiered.tiered_cluster import Tiered, tiered

if TYPE_CHECKING:
    from reconciler.objectstore.base import ListedObject, StoredObject
    from tests.servers.weed import S3Server


def evicted() -> Tiered:
    """Return a topic of which 19 of 20 offsets are remote, most of them in pages, and the first 15 there alone."""
    it = tiered(segment_bytes="14", retention_ms="-1", retention_local_target_ms="-1", retention_local_strict="true")
    it.switch_on(spillover_manifest_size="1024")
    for number in range(20):
        append(it.cluster, (None, str(number)))
    it.upload()
    size = sum(entry.bytes for entry in it.segments()) // 19
    it.cluster.alter_topic(TOPIC, {"retention.local.target.bytes": str(5 * size + size // 2)})
    it.cluster.upkeep().retain()
    head = it.cluster.log(TOPIC).read_head(0)
    assert head is not None
    assert (head.start, head.local_start, head.uploaded_to, head.end) == (0, 15, 19, 20)
    return it


def found(it: Tiered, *, with_storage: bool = True) -> list[CheckFinding]:
    return check_cluster(it.store, deep=True, storage=it.storage if with_storage else None).findings


def change_manifest(it: Tiered, change: Callable[[Manifest], Manifest]) -> None:
    ManifestSwap(it.storage, it.cluster.cluster_id, it.tiering())(it.remote(), change)


def change_head(it: Tiered, **fields: int) -> None:
    where = Partition(TOPIC, it.cluster.topic(TOPIC).id, 0)
    changes: dict[str, Any] = dict(fields)
    assert swap_head(it.store, where, lambda head: replace(head, **changes))


@pytest.mark.parametrize("with_storage", [True, False])
def test_what_lies_in_object_storage_alone_is_no_fault(with_storage: bool) -> None:  # noqa: FBT001 - a parameter
    it = evicted()
    assert found(it, with_storage=with_storage) == []
    it.cluster.alter_topic(TOPIC, {"retention.ms": "1", "retention.local.target.ms": "1"})
    it.clock.now_ms += 10
    it.cluster.upkeep().retain()
    assert found(it, with_storage=with_storage) == []


def test_what_lies_in_object_storage_is_counted() -> None:
    it = evicted()
    checked = check_cluster(it.store, storage=it.storage)
    assert (checked.parts, checked.records) == (5, 5)
    assert (checked.segments, checked.remote_records) == (len(it.segments()), 19)


def test_a_topic_that_was_switched_off_either_way_is_no_fault() -> None:
    for policy in ("retain", "delete"):
        it = evicted()
        off = {"remote.write": "false", "remote.read": "false", "remote.log.disable.policy": policy}
        it.cluster.alter_topic(TOPIC, off)
        it.cluster.finish_disablings()
        assert [finding.kind for finding in found(it)] == ([] if policy == "retain" else [Kind.GARBAGE_LEFT])
        it.cluster.upkeep().retain()
        assert found(it) == []


def test_a_manifest_that_is_gone_or_damaged_is_told_with_the_offsets_nobody_can_read() -> None:
    it = evicted()
    body = it.storage.get(it.remote().key)
    assert body is not None
    for kind, damage in ((Kind.MANIFEST_MISSING, None), (Kind.MANIFEST_DAMAGED, b"{")):
        it.storage.delete([it.remote().key])
        if damage is not None:
            it.storage.put(it.remote().key, damage)
        (finding,) = found(it)
        assert finding.kind is kind
        assert finding.gone == (OffsetRange(0, 15),)
        assert (finding.place.key, finding.place.topic, finding.place.partition) == (it.remote().key, TOPIC, 0)
        assert repair_findings(it.cluster, check_cluster(it.store, storage=it.storage)) == []


def test_a_manifest_that_was_cut_off_is_put_back_where_object_storage_keeps_versions(s3_server: S3Server) -> None:
    storage = open_store(s3_server.settings(url=s3_server.versioned()))
    it = tiered(segment_bytes="14", storage=storage)
    it.switch_on()
    for number in range(3):
        append(it.cluster, (None, str(number)))
    it.upload()
    before = it.manifest()
    storage.put(it.remote().key, b"{")
    checked = check_cluster(it.store, storage=storage)
    assert [finding.kind for finding in checked.findings] == [Kind.MANIFEST_DAMAGED]
    assert restore_truncated_registers(it.store, None, checked) == []
    (mended,) = restore_truncated_registers(it.store, storage, checked)
    assert mended.what == f"put back the last whole version of {it.remote().key}, where a write was cut off"
    assert it.manifest() == before
    assert check_cluster(it.store, storage=storage).findings == []


def test_a_page_of_a_manifest_that_is_gone_or_damaged_is_told() -> None:
    it = evicted()
    page = it.manifest().pages[1]
    for kind, damage in ((Kind.PAGE_DAMAGED, b"{"), (Kind.PAGE_MISSING, None)):
        it.storage.delete([page.key])
        if damage is not None:
            it.storage.put(page.key, damage)
        (finding,) = found(it)
        assert (finding.kind, finding.gone) == (kind, (OffsetRange(page.base, page.last + 1),))


def test_a_page_that_differs_from_what_is_said_of_it_is_told() -> None:
    it = evicted()
    one, other = it.manifest().pages[:2]
    body = it.storage.get(other.key)
    assert body is not None
    it.storage.put(one.key, body.body)
    assert {finding.kind for finding in found(it)} == {Kind.PAGE_DAMAGED}


@pytest.mark.parametrize(
    ("change", "gone"),
    [
        (lambda manifest: replace(manifest, start=4), (OffsetRange(0, 4),)),
        (lambda manifest: replace(manifest, end=12, entries=(), pages=manifest.pages[:2]), (OffsetRange(12, 15),)),
        (lambda manifest: replace(manifest, end=17, entries=(), pages=manifest.pages[:2]), ()),
    ],
)
def test_a_manifest_that_lacks_what_the_head_says_is_told(
    change: Callable[[Manifest], Manifest], gone: tuple[OffsetRange, ...]
) -> None:
    it = evicted()
    change_manifest(it, change)
    (finding,) = found(it)
    assert (finding.kind, finding.gone) == (Kind.MANIFEST_SHORT, gone)


def test_a_manifest_of_another_cluster_is_told() -> None:
    it = evicted()
    register = manifest_register(it.storage, it.remote())
    kept = register.read()
    assert kept is not None
    register.swap(kept, {**kept.value, "owner": "somebody"})
    (finding,) = found(it)
    assert finding.kind is Kind.MANIFEST_FOREIGN
    assert "somebody" in finding.what


def test_garbage_is_a_note_and_run_deletes_it() -> None:
    it = evicted()
    before = held(it.opened())
    (newest,) = it.manifest().entries[-1:]
    left = Garbage((), (replace(newest, key=f"{it.remote().key_prefix}/left.parquet"),))
    change_manifest(it, lambda manifest: replace(manifest, garbage=left))
    (finding,) = found(it)
    assert (finding.kind, finding.objects) == (Kind.GARBAGE_LEFT, 1)
    it.cluster.sweep()
    assert found(it) == []
    assert held(it.opened()) == before


def test_a_head_that_names_nothing_for_some_offsets_is_told_also_without_object_storage() -> None:
    it = evicted()
    change_head(it, uploaded_to=9)
    assert {finding.kind for finding in found(it, with_storage=False)} == {Kind.HEAD_CONTRADICTION}
    change_head(it, uploaded_to=21)
    assert {finding.kind for finding in found(it, with_storage=False)} == {Kind.HEAD_CONTRADICTION}
    change_head(it, uploaded_to=19)
    it.cluster.catalog.commit(
        lambda draft: draft.put_topic(TOPIC, replace(draft.topics[TOPIC], tiering=None, configs={}))
    )
    (finding,) = found(it, with_storage=False)
    assert "the topic is not tiered" in finding.what
    assert finding.gone == (OffsetRange(0, 15),)


def test_another_object_storage_than_the_clusters_is_refused() -> None:
    it = evicted()
    with pytest.raises(UserError, match="holds nothing of it"):
        check_cluster(it.store, storage=MemoryStore())


def swapped(it: Tiered, key: str, body: bytes) -> None:
    it.storage.delete([key])
    it.storage.put(key, body)


def body_of(it: Tiered, key: str) -> bytes:
    stored = it.storage.get(key)
    assert stored is not None
    return stored.body


def test_segments_that_are_gone_are_told_with_their_offsets_and_what_the_local_tier_has_too_is_put_again() -> None:
    it = evicted()
    keys = {entry.base: entry.key for entry in it.segments()}
    it.storage.delete([keys[base] for base in (3, 4, 5, 9, 17)])
    for deep in (False, True):
        one, two, three = check_cluster(it.store, deep=deep, storage=it.storage).findings
        assert {each.kind for each in (one, two, three)} == {Kind.SEGMENT_MISSING}
        here, run, single = sorted((one, two, three), key=lambda each: each.gone)
        assert (run.place.key, run.gone, run.objects) == (keys[3], (OffsetRange(3, 6),), 3)
        assert (single.place.key, single.gone, single.objects) == (keys[9], (OffsetRange(9, 10),), 1)
        assert (here.place.key, here.gone) == (keys[17], ())
        assert "`reconciler run --once --only scrub` puts it again" in here.what
        assert "scrub" not in run.what + single.what
    assert check_cluster(it.store, storage=it.storage).errors == 3


def test_a_segment_of_another_size_is_told_and_one_that_retention_has_deleted_is_not() -> None:
    it = evicted()
    entry = it.segments()[2]
    swapped(it, entry.key, body_of(it, entry.key)[:40])
    (finding,) = check_cluster(it.store, storage=it.storage).findings
    assert (finding.kind, finding.gone) == (Kind.SEGMENT_DIFFERS, (OffsetRange(2, 3),))
    assert finding.what == f"it has 40 bytes, not {entry.bytes:,} as its manifest says"
    change_head(it, start=4)
    change_manifest(it, lambda manifest: replace(manifest, start=4))
    assert found(it) == []


def test_bytes_that_are_not_those_that_were_uploaded_are_told_by_a_deep_check_alone() -> None:
    it = evicted()
    one, other = it.segments()[6:8]
    assert one.bytes == other.bytes
    swapped(it, one.key, body_of(it, other.key))
    newest = it.segments()[-1]
    swapped(it, newest.key, bytes(newest.bytes))
    assert check_cluster(it.store, storage=it.storage).findings == []
    here, lost = sorted(found(it), key=lambda finding: finding.gone)
    assert (lost.kind, lost.place.key, lost.gone) == (Kind.SEGMENT_DIFFERS, one.key, (OffsetRange(6, 7),))
    assert "its digest is not the one kept when it was written" in lost.what
    assert (here.kind, here.place.key, here.gone) == (Kind.SEGMENT_DIFFERS, newest.key, ())
    assert "delete this object, and `reconciler run --once --only scrub` puts it again" in here.what


def test_an_index_that_is_gone_or_none_is_a_warning_for_nothing_is_lost_with_it() -> None:
    it = evicted()
    keys = [build_index_key(entry.key) for entry in it.segments()]
    it.storage.delete(keys[1:3])
    swapped(it, keys[5], b"")
    swapped(it, keys[8], b"is no index at all")
    shallow = check_cluster(it.store, storage=it.storage)
    assert [(each.kind, each.place.key, each.objects) for each in shallow.findings] == [
        (Kind.INDEX_DIFFERS, keys[5], 1),
        (Kind.INDEX_MISSING, keys[1], 2),
    ]
    assert shallow.errors == 0
    told = {each.place.key: each.kind for each in found(it)}
    assert told[keys[8]] is Kind.INDEX_DIFFERS


def test_a_segment_that_others_replace_while_it_is_looked_at_is_no_fault() -> None:
    it = evicted()
    gone = it.segments()[-1]

    def replaced(_call: object) -> None:
        key = f"{it.remote().key_prefix}/again.parquet"
        if it.storage.get(key) is None:
            it.storage.put(key, body_of(it, gone.key))
            it.storage.put(build_index_key(key), body_of(it, build_index_key(gone.key)))
            anew = replace(gone, key=key)
            change_manifest(it, lambda held: replace(held, entries=(*held.entries[:-1], anew)))
            it.storage.delete([gone.key, build_index_key(gone.key)])

    class Overtaken(MemoryStore):
        def list(self, prefix: str) -> Iterator[ListedObject]:
            replaced(prefix)
            return it.storage.list(prefix)

        def get(self, key: str) -> StoredObject | None:
            return it.storage.get(key)

        def get_range(self, key: str, start: int, length: int) -> bytes:
            return it.storage.get_range(key, start, length)

    assert check_cluster(it.store, deep=True, storage=Overtaken()).findings == []
    assert it.storage.get(gone.key) is None
