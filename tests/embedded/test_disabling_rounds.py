"""Round after round of tiering switched off and on, with real uploads, evictions and reads in between."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from reconciler.lifecycles.tiered import TieringState
from tests.embedded.tiered import Tiered, tiered
from tests.embedded.upkeeping import DAY, TOPIC, head_of, held

if TYPE_CHECKING:
    from collections.abc import Callable

OFF = {"remote.write": "false", "remote.read": "false", "remote.log.disable.policy": "retain"}
OFF_AND_DELETE = {**OFF, "remote.log.disable.policy": "delete"}
ON = {"remote.write": "true", "remote.read": "true"}


def strict() -> Tiered:
    """Return a tiered topic that keeps nothing local that it need not keep."""
    return tiered(retention_local_strict="true", retention_local_target_ms="1000", retention_ms="-1")


def offsets(it: Tiered) -> list[int]:
    return [row["offset"] for row in held(it.cluster)]


def evict(it: Tiered) -> None:
    it.clock.now_ms += DAY
    it.cluster.upkeep().retain()


def switch(it: Tiered, changes: dict[str, str]) -> None:
    it.cluster.alter_topic(TOPIC, changes)


@pytest.mark.fact("F-K-057")
@pytest.mark.fact("F-K-059")
@pytest.mark.fact("F-K-064")
def test_retained_data_is_read_all_along_and_uploads_go_on_where_they_ended() -> None:
    it = strict()
    it.fill(6)
    it.upload()
    evict(it)
    ended, objects = it.manifest().end, it.objects()
    assert head_of(it.cluster).local_start > 0
    switch(it, OFF)
    assert offsets(it) == list(range(12))
    it.fill(6)
    it.upload()
    evict(it)
    assert (it.manifest().end, it.objects()) == (ended, objects)
    assert head_of(it.cluster).local_start <= ended
    assert offsets(it) == list(range(24))
    switch(it, ON)
    it.fill(2)
    it.upload()
    assert it.manifest().end > 20
    bases = [(entry.base, entry.last) for entry in it.segments()]
    assert all(last + 1 == base for (_, last), (base, _) in pairwise(bases))
    evict(it)
    assert offsets(it) == list(range(28))


@pytest.mark.fact("F-K-062")
@pytest.mark.fact("F-K-064")
@pytest.mark.fact("F-R-011")
def test_deleted_objects_are_gone_after_a_run_and_what_is_local_is_uploaded_anew() -> None:
    it = strict()
    it.fill(6)
    it.upload()
    evict(it)
    it.fill(4)
    it.upload()
    local, old = head_of(it.cluster).local_start, it.objects()
    assert 0 < local < it.manifest().end
    switch(it, OFF_AND_DELETE)
    assert offsets(it) == list(range(local, 20))
    assert it.objects() == old
    it.cluster.upkeep().retain()
    assert it.objects() == set()
    assert not it.manifest().garbage
    switch(it, ON)
    it.upload()
    assert it.segments()[0].base == local
    assert it.objects().isdisjoint(old)
    evict(it)
    assert head_of(it.cluster).local_start > local
    assert offsets(it) == list(range(local, 20))


@pytest.mark.parametrize("seed", range(4))
def test_whatever_the_order_nothing_is_lost_but_what_delete_takes(seed: int) -> None:
    it, dice = strict(), random.Random(seed)  # noqa: S311 - the same order each time
    end = 0

    def produce() -> None:
        nonlocal end
        it.fill(2)
        end += 4

    moves: list[Callable[[], object]] = [produce, produce, it.upload, lambda: evict(it), it.cluster.finish_disablings]
    start = 0
    for _ in range(40):
        if dice.random() < 0.2:
            if it.tiering().state is TieringState.ENABLED:
                policy = dice.choice([OFF, OFF_AND_DELETE])
                start = head_of(it.cluster).local_start if policy is OFF_AND_DELETE and end else start
                switch(it, policy)
            else:
                switch(it, ON)
        else:
            dice.choice(moves)()
        assert offsets(it) == list(range(start, end))
    assert {entry.key for entry in it.segments()} <= it.objects()
