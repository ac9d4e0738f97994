"""A tiered cluster checked: what is remote is no fault, and manifests are held against heads."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from reconciler.embedded.checking.check import check_cluster
from reconciler.embedded.checking.findings import Finding, Kind
from reconciler.embedded.checking.mending import mend
from reconciler.embedded.partition.headswaps import Partition, swap_head
from reconciler.embedded.remote.manifests.manifest import Garbage, manifest_register
from reconciler.embedded.remote.manifests.swaps import ManifestSwap
from reconciler.errors import UserError
from reconciler.objectstore.memory import MemoryStore
from reconciler.records.log import OffsetRange
from tests.embedded.tiered import Tiered, tiered
from tests.embedded.upkeeping import TOPIC, append, held

if TYPE_CHECKING:
    from collections.abc import Callable

    from reconciler.embedded.remote.manifests.manifest import Manifest


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
    head = it.cluster.log(TOPIC).head(0)
    assert head is not None
    assert (head.start, head.local_start, head.uploaded_to, head.end) == (0, 15, 19, 20)
    return it


def found(it: Tiered, *, with_storage: bool = True) -> list[Finding]:
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
        assert mend(it.cluster, check_cluster(it.store, storage=it.storage)) == []


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
    left = Garbage((), (replace(newest, key=f"{it.remote().place}/left.parquet"),))
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
