"""What ten thousand topics cost: counted in requests, not in seconds."""

from __future__ import annotations

from pathlib import Path

import pytest

from reconciler.embedded.catalog.commits import CatalogRegister
from reconciler.embedded.tiered.topic_deletion import finish_deletions
from reconciler.objectstore.memory import MemoryStore
from reconciler.planning.actions import Change, Create, Delete, Update
from reconciler.providers.embedded.provider import EmbeddedProvider
from reconciler.providers.protocol import CompletedAction, Edge, Scope
from reconciler.resources.cluster import Cluster
from reconciler.resources.topic import Topic
from tests.embedded.samples import NOW, ids
from tests.embedded.stores import WatchedStore

COUNT = 10_000


@pytest.fixture
def store() -> WatchedStore:
    return WatchedStore(MemoryStore())


def provider_of(store: WatchedStore, folder: Path) -> EmbeddedProvider:
    west = Cluster.model_validate({"metadata": {"name": "west"}, "spec": {"embedded": {"root": "memory://west"}}})
    provider = EmbeddedProvider(west, store, Edge(folder=folder, environ={}, new_id=ids(), now_ms=lambda: NOW))
    assert isinstance(next(provider.apply([Create(address=west.address, after=west)])), CompletedAction)
    return provider


@pytest.mark.thorough
def test_many_topics_are_made_changed_observed_and_deleted_in_a_few_requests(
    store: WatchedStore, tmp_path: Path
) -> None:
    provider = provider_of(store, tmp_path)
    topics = [
        Topic.model_validate(
            {
                "metadata": {"name": f"orders-{number}", "cluster": "west"},
                "spec": {"partitions": 12, "configs": {"retention.ms": "7d"}},
            }
        )
        for number in range(COUNT)
    ]
    assert provider.capabilities.batch >= COUNT

    store.calls.clear()
    made = list(provider.apply([Create(address=topic.address, after=topic) for topic in topics]))
    assert all(isinstance(outcome, CompletedAction) for outcome in made)
    assert (store.count("swap"), store.count("put")) == (1, 1)
    assert len(list(store.list(""))) == 3

    store.calls.clear()
    seen = provider_of(store, tmp_path).observe(Scope())
    assert len(seen) == COUNT + 1
    assert store.count("get") <= 6
    assert store.count("list") == 0

    store.calls.clear()
    change = Change("configs.retention.ms", "604800000", "86400000")
    list(
        provider.apply(
            [Update(address=topic.address, before=topic, after=topic, changes=(change,)) for topic in topics]
        )
    )
    assert (store.count("swap"), store.count("put")) == (1, 1)

    store.calls.clear()
    list(provider.apply([Delete(address=topic.address, before=topic) for topic in topics]))
    assert (store.count("swap"), store.count("put"), store.count("list")) == (1, 1, 0)
    store.calls.clear()
    assert finish_deletions(store, CatalogRegister(store)) == COUNT
    assert (store.count("swap"), store.count("put"), store.count("list")) == (1, 1, 1)
    assert len(provider.observe(Scope())) == 1
