"""Every write of move, delete and other small operations: killed before and after it, then somebody else goes on."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from reconciler.archives.pages import iter_all_entries, iter_all_pages
from reconciler.embedded.catalog.model import AclEntry, QuotaEntry
from reconciler.embedded.segments import head as head_module
from reconciler.embedded.segments.head import read_heads
from reconciler.objectstore.memory import MemoryStore
from tests.embedded.deaths import DAY_MS, MortalStore, crashes, opened
from tests.embedded.model import observe
from tests.embedded.samples import cluster_in

if TYPE_CHECKING:
    from reconciler.embedded.cluster import EmbeddedCluster
    from reconciler.objectstore.base import ObjectStore

pytestmark = pytest.mark.thorough


@pytest.fixture(autouse=True)
def _small_heads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(head_module, "TAIL", 2)
    monkeypatch.setattr(head_module, "BRANCHES", 2)


def filled(cluster: EmbeddedCluster) -> None:
    """Two topics with pages of pages, and a group that reads one of them."""
    cluster.create_namespace("shop:eu")
    cluster.create_namespace("lab")
    for name in ("shop:eu:orders", "clicks"):
        cluster.create_topic(name, partitions=2)
        producer = cluster.producer()
        for value in range(7):
            producer.send(name, b"%d" % value, partition=value % 2)
            producer.flush()
    cluster.groups.commit("readers", {("shop:eu:orders", 0): 2, ("clicks", 1): 1})


def move(cluster: EmbeddedCluster) -> None:
    cluster.move_topic("shop:eu:orders", "lab:bought")


def delete(cluster: EmbeddedCluster) -> None:
    cluster.delete_topic("clicks")


def delete_namespace(cluster: EmbeddedCluster) -> None:
    cluster.delete_namespace("shop", recursive=True)


def grow(cluster: EmbeddedCluster) -> None:
    cluster.alter_topic("clicks", partitions=3)


def protect(cluster: EmbeddedCluster) -> None:
    cluster.set_topic_acls("clicks", [AclEntry("User:alice", "allow", ("read",))])


def limit(cluster: EmbeddedCluster) -> None:
    cluster.limit_namespace("shop", QuotaEntry(topics=5))


def commit(cluster: EmbeddedCluster) -> None:
    cluster.groups.commit("readers", {("clicks", 0): 3, ("clicks", 1): 2})


def forget(cluster: EmbeddedCluster) -> None:
    cluster.groups.delete("readers", "clicks", force=True)


def append(cluster: EmbeddedCluster) -> None:
    """One append to one partition, which writes pages of every level."""
    with cluster.producer() as producer:
        producer.send("clicks", b"last", partition=0)


def state(store: ObjectStore) -> object:
    """Everything about a cluster that somebody could tell."""
    cluster = opened(store)
    topics = {name: (entry.partitions, entry.acls) for name, entry in cluster.topics().items()}
    quotas = {name: entry.quotas for name, entry in cluster.catalog.read().namespaces.items()}
    return observe(cluster), topics, quotas


def left_behind(store: ObjectStore) -> list[str]:
    """Return the parts, pages and heads that nobody names."""
    named: set[str] = set()
    for entry in opened(store).topics().values():
        for number, head in read_heads(store, entry.id).items():
            named |= {part.key for part in iter_all_entries(store, head)} | {
                page.key for page in iter_all_pages(store, head)
            }
            named.add(f"heads/{entry.id}/{number:05}.json")
    there = [listed.key for prefix in ("topics/", "pages/", "heads/") for listed in store.list(prefix)]
    return [key for key in there if key not in named]


@pytest.mark.parametrize(
    "operation", [move, delete, delete_namespace, grow, protect, limit, commit, forget], ids=lambda it: it.__name__
)
def test_whoever_dies_leaves_all_of_it_or_nothing_and_the_next_finishes(
    operation: Callable[[EmbeddedCluster], object],
) -> None:
    before, after = ends(operation)
    outcomes = []
    for store in crashes(filled, operation):
        outcomes.append(state(store))
        assert outcomes[-1] in (before, after)
        if outcomes[-1] == before:
            operation(opened(store))
        opened(store).finish_deletions()
        assert state(store) == after
        assert left_behind(store) == []
    assert before in outcomes
    assert after in outcomes


def test_whoever_dies_while_a_head_gives_up_pages_leaves_all_of_it_or_nothing() -> None:
    before, after = ends(append)
    pages = 0
    for store in crashes(filled, append):
        found = state(store)
        assert found in (before, after)
        pages += any(key.startswith("pages/") for key in left_behind(store))
        if found == before:
            append(opened(store))
        assert state(store) == after
        later = MortalStore(store)
        later.ahead_ms = 2 * DAY_MS
        opened(later).sweep()
        assert (state(store), left_behind(store)) == (after, [])
    assert pages > 0


def ends(operation: Callable[[EmbeddedCluster], object]) -> tuple[object, object]:
    """Return what is there before and after, where nobody dies."""
    store = MemoryStore()
    filled(cluster_in(store))
    before = state(store)
    operation(opened(store))
    return before, state(store)
