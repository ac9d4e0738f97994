"""A commit of a run that lost its lease on the way is not made: every attempt asks first."""

from __future__ import annotations

from pathlib import Path

import pytest

from reconciler.errors import LeaseError
from reconciler.objectstore.memory import MemoryStore
from reconciler.planning.actions import Create
from reconciler.providers.embedded.provider import EmbeddedProvider
from reconciler.providers.protocol import CompletedAction, Edge, Scope
from reconciler.resources.cluster import Cluster
from reconciler.resources.topic import Topic
from tests.embedded.samples import NOW, ids


class Lost:
    """A lease that is lost once it was asked about so often. Each time it was not, somebody else commits."""

    def __init__(self, after: int, meanwhile: EmbeddedProvider | None = None) -> None:
        self.left = after
        self.meanwhile = meanwhile

    def __call__(self) -> None:
        if self.left == 0:
            message = "the lease was taken over"
            raise LeaseError(message, hint="Look at their run.")
        self.left -= 1
        if self.meanwhile is not None:
            list(self.meanwhile.apply(topics(f"theirs-{self.left}")))


def topics(*names: str) -> list[Create]:
    made = [
        Topic.model_validate({"metadata": {"name": name, "cluster": "west"}, "spec": {"partitions": 1}})
        for name in names
    ]
    return [Create(address=topic.address, after=topic) for topic in made]


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def west() -> Cluster:
    return Cluster.model_validate({"metadata": {"name": "west"}, "spec": {"embedded": {"root": "memory://west"}}})


def provider_of(west: Cluster, store: MemoryStore, folder: Path) -> EmbeddedProvider:
    return EmbeddedProvider(west, store, Edge(folder=folder, environ={}, new_id=ids(), now_ms=lambda: NOW))


def test_a_cluster_is_not_made_without_a_lease(west: Cluster, store: MemoryStore, tmp_path: Path) -> None:
    provider = provider_of(west, store, tmp_path)
    with pytest.raises(LeaseError):
        list(provider.apply([Create(address=west.address, after=west)], may_go_on=Lost(after=0)))
    assert list(store.list("")) == []


@pytest.mark.parametrize("count", [1, 500])
def test_a_lease_lost_while_others_were_faster_ends_the_commit(
    count: int, west: Cluster, store: MemoryStore, tmp_path: Path
) -> None:
    ours, theirs = provider_of(west, store, tmp_path), provider_of(west, store, tmp_path)
    assert isinstance(next(ours.apply([Create(address=west.address, after=west)])), CompletedAction)
    wanted = topics(*(f"ours-{number}" for number in range(count)))
    with pytest.raises(LeaseError):
        list(ours.apply(wanted, may_go_on=Lost(after=2, meanwhile=theirs)))
    assert set(theirs.observe(Scope())) == {
        west.address,
        *(action.address for action in topics("theirs-0", "theirs-1")),
    }


def test_a_lease_that_lasts_is_asked_once_an_attempt(west: Cluster, store: MemoryStore, tmp_path: Path) -> None:
    ours, theirs = provider_of(west, store, tmp_path), provider_of(west, store, tmp_path)
    assert isinstance(next(ours.apply([Create(address=west.address, after=west)])), CompletedAction)
    asked = []

    def may_go_on() -> None:
        asked.append(1)
        if len(asked) < 3:
            list(theirs.apply(topics(f"theirs-{len(asked)}")))

    assert all(isinstance(outcome, CompletedAction) for outcome in ours.apply(topics("ours"), may_go_on=may_go_on))
    assert len(asked) == 3
    assert len(theirs.observe(Scope())) == 4
