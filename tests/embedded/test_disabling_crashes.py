"""Dying before and after every write of turning tiering off: whoever comes next finishes it, asked or not."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from reconciler.embedded.catalog.topics import alter_topic
from reconciler.embedded.cluster import EmbeddedCluster
from reconciler.embedded.tiered.manifest import read_manifest
from reconciler.lifecycles.tiered import TieringState
from tests.embedded.evicted import upload_by_hand
from tests.embedded.samples import ids
from tests.embedded.tiered import Tiered, tiered
from tests.embedded.upkeeping import TOPIC, copied, head_of
from tests.embedded.watched import DiedError, WatchedStore

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reconciler.objectstore.base import ObjectStore

OFF = {"remote.write": "false", "remote.read": "false"}
POLICIES = {"retain": OFF, "delete": {**OFF, "remote.log.disable.policy": "delete"}}
PARTITIONS = 2


@dataclass
class Ticking:
    """Counts writes over both stores, and dies at one of them."""

    at: int
    writes: int = 0

    def __call__(self, _what: str, _key: str) -> None:
        if self.writes == self.at:
            raise DiedError
        self.writes += 1

    def watch(self, inner: ObjectStore, *, done: bool) -> WatchedStore:
        return WatchedStore(inner, after=self) if done else WatchedStore(inner, before=self)


def filled() -> Tiered:
    it = tiered(partitions=PARTITIONS)
    for partition in range(PARTITIONS):
        it.fill(4, partition=partition)
        upload_by_hand(it, 6, evicts=4, partition=partition)
    return it


def again(it: Tiered) -> Tiered:
    """Return the same cluster over copies of its stores."""
    other = Tiered(copied(it.store), copied(it.storage), it.clock)
    assert other.cluster.cluster_id == it.cluster.cluster_id
    return other


def deaths(it: Tiered, changes: dict[str, str]) -> Iterator[Tiered]:
    """Yield the cluster as it is left behind for every point at which switching off can die."""
    for done in (False, True):
        for at in itertools.count():
            left, tick = again(it), Ticking(at)
            cluster = left.opened(tick.watch(left.store, done=done), tick.watch(left.storage, done=done))
            try:
                cluster.alter_topic(TOPIC, changes)
            except DiedError:
                yield left
            else:
                assert at > PARTITIONS
                break


def shown(it: Tiered) -> list[object]:
    """Return what a reader goes by, and the manifests."""
    heads = [head_of(it.cluster, partition) for partition in range(PARTITIONS)]
    return [it.tiering(), heads, [read_manifest(it.storage, it.remote(each)) for each in range(PARTITIONS)]]


def fresh(it: Tiered) -> EmbeddedCluster:
    return EmbeddedCluster.open(it.store, now_ms=it.clock, new_id=ids(), storage=it.storage)


@pytest.mark.fact("F-K-063")
@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_a_disabling_that_died_is_finished_by_the_next_who_comes(policy: str) -> None:
    it = filled()
    whole = again(it)
    whole.cluster.alter_topic(TOPIC, POLICIES[policy])
    points, states = 0, set()
    for left in deaths(it, POLICIES[policy]):
        points += 1
        state = left.tiering().state
        states.add(state)
        # Whatever is named is there, and nothing local counts as uploaded that no manifest names.
        for partition in range(PARTITIONS):
            head, manifest = head_of(left.cluster, partition), left.manifest(partition)
            assert {entry.key for entry in left.segments(partition)} <= left.objects()
            assert head.uploaded_to <= manifest.end
        assert fresh(left).finish_disablings() == (1 if state is TieringState.DISABLING else 0)
        if state is TieringState.ENABLED:
            fresh(left).alter_topic(TOPIC, POLICIES[policy])
        assert shown(left) == shown(whole)
        assert fresh(left).finish_disablings() == 0
    assert states == set(TieringState)
    assert points > 2 * PARTITIONS


@pytest.mark.fact("F-K-063")
@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_it_may_die_again_and_again(policy: str) -> None:
    it = filled()
    whole = again(it)
    whole.cluster.alter_topic(TOPIC, POLICIES[policy])
    it.cluster.catalog.commit(lambda draft: alter_topic(draft, TOPIC, POLICIES[policy]))
    for at in itertools.count():
        tick = Ticking(at)
        cluster = it.opened(tick.watch(it.store, done=True), tick.watch(it.storage, done=True))
        try:
            cluster.finish_disablings()
        except DiedError:
            continue
        break
    assert shown(it) == shown(whole)
