"""The sweep deletes what nobody names and is old, and nothing else."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any
from unittest.mock import ANY

import pytest

from reconciler.embedded.catalog.commits import CatalogRegister
from reconciler.embedded.check.sweep import RECENT_MS, SweepResult, SweptPartition, sweep_store
from reconciler.embedded.cluster import EmbeddedCluster
from reconciler.embedded.segments.gate import remove_partition
from reconciler.embedded.segments.head import PRODUCERS, Head, head_register
from reconciler.errors import MissingObjectError, UserError
from reconciler.objectstore.directory import DirectoryStore
from reconciler.objectstore.memory import MemoryStore
from reconciler.objectstore.wrappers import WrappedStore
from tests.embedded.maintenance.tiny_segments import (
    DAY,
    TOPIC,
    TWO_PARTS,
    LateStore,
    append,
    append_parts,
    clocked,
    head_of,
    held,
    named_in,
    parts_in,
    with_topic,
)
from tests.embedded.samples import ids
from tests.embedded.stores import WatchedStore

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from reconciler.objectstore.base import ListedObject, ObjectStore

ORPHANS = (
    "topics/orders_0/0123456789abcdef.parquet",
    "topics/shop/eu/gone_7/0123456789abcdef.parquet",
    "pages/00000000-0000-4000-8000-000000000002/00000/0123.json",
    "catalog/000000000001-01234567.json.gz",
)
OTHERS = ("cluster.json", "catalog/head.json", "runner/roll.json.gz", "notes/mine.txt", "heads.txt")


def late(store: ObjectStore, later_ms: int = DAY + 60_000) -> Any:
    return LateStore(store, later_ms)


def sweep_in(store: Any) -> SweepResult:
    return sweep_store(store, CatalogRegister(store))


@pytest.fixture
def full(store: ObjectStore) -> EmbeddedCluster:
    """A cluster with parts in pages, and a catalog with a snapshot."""
    cluster, _ = clocked(store)
    with_topic(cluster, segment_bytes=TWO_PARTS)
    for number in range(70):
        append(cluster, (None, str(number)))
        cluster.create_namespace(f"n{number}")
    return cluster


def test_only_what_nobody_names_goes(full: EmbeddedCluster) -> None:
    store, before = full.store, held(full)
    known = {listed.key for listed in store.list("")}
    for key in (*ORPHANS, "notes/mine.txt"):
        store.put(key, b"x" * 100)
    assert sweep_in(late(store)) == SweepResult(objects=4, bytes=400)
    assert {listed.key for listed in store.list("")} - {"runner/sweep.json.gz"} == known | {"notes/mine.txt"}
    again = EmbeddedCluster.open(store, now_ms=full.now_ms, new_id=ids())
    assert held(again) == before
    assert len(again.namespaces()) == 70
    assert sweep_in(late(store)) == SweepResult()


def test_what_is_younger_than_a_day_stays(full: EmbeddedCluster) -> None:
    for key in ORPHANS:
        full.store.put(key, b"x")
    assert sweep_in(full.store) == SweepResult()
    assert sweep_in(late(full.store, DAY - 60_000)) == SweepResult()
    assert all(full.store.get(key) for key in ORPHANS)


def test_the_age_is_told_by_the_store_and_not_by_our_clock() -> None:
    store = MemoryStore()
    cluster, clock = clocked(store)
    store.put(ORPHANS[0], b"x")
    clock.now_ms += 1_000 * DAY
    assert cluster.sweep() == SweepResult()


def test_a_name_that_cannot_be_read_stops_it_and_nothing_is_deleted(full: EmbeddedCluster) -> None:
    store = full.store
    store.put(ORPHANS[0], b"x")
    page = head_of(full).pages[0].key
    body = store.get(page)
    assert body is not None
    store.delete([page])
    with pytest.raises(MissingObjectError, match="the records at offsets 0 to"):
        sweep_in(late(store))
    store.put(page, b"{")
    with pytest.raises(UserError):
        sweep_in(late(store))
    assert store.get(ORPHANS[0]) is not None
    store.put(page, body.body)
    assert sweep_in(late(store)).objects == 1


def test_what_is_named_while_it_runs_stays() -> None:
    inner = MemoryStore()
    cluster, clock = clocked(inner)
    with_topic(cluster, partitions=2, segment_bytes=TWO_PARTS)
    append_parts(cluster, 9)
    events = []

    def meanwhile(what: str, key: str) -> None:
        events.append((what, key))

    class Busy(MemoryStore):
        """A store in which, after each listing, somebody appends, rolls and makes a head."""

        def list(self, prefix: str) -> Any:
            found = list(super().list(prefix))
            if len(events) < 3:
                meanwhile("list", prefix)
                append_parts(cluster, 3)
                append_parts(cluster, 1, partition=1)
                cluster.upkeep().roll()
            return iter(found)

    busy = Busy(inner.url.removeprefix("memory://"))
    inner.put(ORPHANS[0], b"x")
    assert sweep_in(late(busy)).objects == 1
    assert len(events) == 3
    assert parts_in(inner) == named_in(cluster, 2)
    assert len(held(cluster)) == 18 + 18
    assert clock.now_ms


def test_the_head_of_a_topic_that_is_gone_goes_with_all_it_names() -> None:
    store = MemoryStore()
    cluster, _ = clocked(store)
    with_topic(cluster, segment_bytes=TWO_PARTS)
    append_parts(cluster, 3)
    topic_id = cluster.topic(TOPIC).id
    entries = head_of(cluster).entries
    left = head_register(store, "gone", 4)
    left.swap(None, Head(PRODUCERS, end=6, entries=entries).to_json())
    cluster.delete_topic(TOPIC)
    assert sweep_in(store) == SweepResult()
    assert sweep_in(late(store)) == SweepResult(4, ANY, (SweptPartition("gone", 4, 6),))
    assert [listed.key for listed in store.list("heads/")] == []
    remove_partition(store, topic_id, 0)


def test_below_the_start_a_page_names_nothing_any_more() -> None:
    store = MemoryStore()
    cluster, clock = clocked(store)
    with_topic(cluster, retention_ms="1d", segment_bytes=TWO_PARTS)
    for number in range(70):
        append(cluster, (None, str(number)))
        clock.now_ms += 1
    clock.now_ms += DAY - 60
    dead = head_of(cluster)
    bodies = {listed.key: store.get(listed.key) for listed in store.list("topics/")}
    cluster.upkeep().retain()
    assert head_of(cluster).pages[0] == dead.pages[0]
    assert head_of(cluster).start > 0
    for key, body in bodies.items():
        assert body is not None
        store.put(key, body.body)
    live = named_in(cluster)
    assert sweep_in(late(store)).objects == 70 - len(live)
    assert parts_in(store) == live


class CaseKeeping(WrappedStore):
    """A file system that does not tell names by their case, and lists them as they were written first."""

    def list(self, prefix: str) -> Iterator[ListedObject]:
        for listed in self.inner.list(prefix):
            yield replace(listed, key=listed.key.replace("topics/orders_", "topics/Orders_"))

    def delete(self, keys: Iterable[str]) -> None:
        self.inner.delete(key.replace("topics/Orders_", "topics/orders_") for key in keys)


def test_what_is_listed_in_another_case_than_it_is_named_stays() -> None:
    store = CaseKeeping(MemoryStore())
    cluster, _ = clocked(store)
    with_topic(cluster)
    append_parts(cluster, 3)
    before = held(cluster)
    store.put(ORPHANS[0], b"x")
    assert sweep_in(late(store)).objects == 1
    assert held(cluster) == before


def test_at_an_interval_it_looks_now_and_then_only() -> None:
    store = WatchedStore(MemoryStore())
    cluster, _ = clocked(store)
    cluster.sweep(unless_recent=True)
    store.calls.clear()
    assert cluster.sweep(unless_recent=True) == SweepResult()
    assert store.calls == [("get", "runner/sweep.json.gz")]
    store.put(ORPHANS[0], b"x")
    later = late(store, max(RECENT_MS, DAY) + 60_000)
    assert sweep_store(later, CatalogRegister(later), unless_recent=True).objects == 1
    kept = store.get("runner/sweep.json.gz")
    assert kept is not None
    for damage in (b"nonsense", kept.body[:10] + b"\xff" + kept.body[11:]):
        store.put("runner/sweep.json.gz", damage)
        assert cluster.sweep(unless_recent=True) == SweepResult()


def test_a_directory_keeps_its_own_time(tmp_path: Any) -> None:
    store = DirectoryStore(tmp_path / "west")
    cluster, _ = clocked(store)
    store.put(ORPHANS[0], b"x")
    assert cluster.sweep() == SweepResult()
    assert sweep_in(late(store)).objects == 1
