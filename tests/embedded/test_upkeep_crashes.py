"""Dying before and after every write of every job: readers see the state before or after, and the next one finishes."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest

from reconciler.embedded.cluster import EmbeddedCluster
from reconciler.objectstore.memory import MemoryStore
from tests.embedded.samples import ids
from tests.embedded.upkeeping import (
    DAY,
    TWO_PARTS,
    Clock,
    append,
    clocked,
    copied,
    head_of,
    held,
    named_in,
    pairs_of,
    parts_in,
    swept_later,
    with_topic,
)
from tests.embedded.watched import DiedError, dying

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from reconciler.objectstore.base import ObjectStore

    Job = Callable[[EmbeddedCluster], object]

JOBS: dict[str, Job] = {
    "retention": lambda cluster: cluster.upkeep().retain(),
    "roll": lambda cluster: cluster.upkeep().roll(),
    "compact": lambda cluster: cluster.upkeep().compact(),
}


def opened(store: ObjectStore, clock: Clock) -> EmbeddedCluster:
    return EmbeddedCluster.open(store, now_ms=clock, new_id=ids())


def filled(parts: int) -> tuple[MemoryStore, Clock]:
    """Return a topic that every job finds something in, in pages too; only some of it is old."""
    store = MemoryStore()
    cluster, clock = clocked(store)
    with_topic(
        cluster, cleanup_policy="compact,delete", retention_ms="1d", segment_bytes=TWO_PARTS,
        min_cleanable_dirty_ratio="0",
    )  # fmt: skip
    for number in range(parts):
        if number == parts // 2 + 1:
            clock.now_ms += DAY
        append(cluster, (f"k{number % 7}", str(number)), ("same", str(number)))
    clock.now_ms += 1
    return store, clock


def crashes(store: ObjectStore, clock: Clock, job: Job, step: int) -> Iterator[MemoryStore]:
    """Yield the store for every point at which the job can die, or every so many, as it is left behind."""
    for done in (False, True):
        for at in itertools.count(step=step):
            inner = copied(store)
            try:
                job(opened(dying(inner, at, done=done), clock))
            except DiedError:
                yield inner
            else:
                assert at > 1
                break


@pytest.mark.parametrize(("parts", "step"), [(9, 1), pytest.param(80, 11, marks=pytest.mark.soak)])
@pytest.mark.parametrize("name", sorted(JOBS))
def test_a_job_that_died_is_finished_by_the_next_and_nothing_else_is_lost(name: str, parts: int, step: int) -> None:
    store, clock = filled(parts)
    before = held(opened(store, clock))
    whole = copied(store)
    JOBS[name](opened(whole, clock))
    after = held(opened(whole, clock))
    points = 0
    for left in crashes(store, clock, JOBS[name], step):
        points += 1
        assert held(opened(left, clock)) in (before, after)
        JOBS[name](opened(left, clock))
        finished = opened(left, clock)
        assert pairs_of(held(finished)) == pairs_of(after)
        append(finished, ("next", "one"))
        assert held(finished)[-1]["offset"] == head_of(finished).end - 1
        if points % 5 == 0:
            swept = swept_later(left, clock)
            assert parts_in(left) == named_in(swept)
            assert pairs_of(held(swept))[:-1] == pairs_of(after)
    assert points >= 8


def test_a_sweep_that_died_deletes_nothing_that_is_named_and_the_next_goes_on() -> None:
    store, clock = filled(40)
    before = held(opened(store, clock))
    for number in range(5):
        store.put(f"topics/orders_0/{number:016}.parquet", b"left over")
    for done in (False, True):
        for at in itertools.count():
            inner = copied(store)
            try:
                swept_later(dying(inner, at, done=done), clock)
            except DiedError:
                assert held(opened(inner, clock)) == before
                cluster = swept_later(inner, clock)
                assert parts_in(inner) == named_in(cluster)
                assert held(cluster) == before
            else:
                assert at >= 5
                break
