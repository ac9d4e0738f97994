"""A round that dies at any write, loses an answer, or meets another round: the next one completes the copy."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Literal

import pytest

from reconciler.embedded.clients import topic_log
from reconciler.embedded.segments import head
from reconciler.jobs import stage
from reconciler.jobs.verify import compare_logs
from reconciler.objectstore.memory import MemoryStore
from reconciler.runtime import threads
from tests.embedded.deaths import Fault, MortalStore
from tests.embedded.links.linked import ORDERS, Linked, mirrored
from tests.embedded.maintenance.tiny_segments import Clock, copied
from tests.embedded.mounts.migrants import Inline
from tests.embedded.samples import read
from tests.embedded.stores import DiedError
from tests.engines import here
from tests.operations.stage import once

_HOWS: tuple[Literal["dies before", "dies after", "refused", "no answer"], ...] = (
    "dies before",
    "dies after",
    "refused",
    "no answer",
)


@pytest.fixture(autouse=True)
def _one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (threads, head, topic_log, stage):
        monkeypatch.setattr(module, "ThreadPoolExecutor", Inline)


@pytest.fixture
def behind() -> Linked:
    """Return a mirror that lacks whole parts, a ragged end, a gap and a new partition, and a new one."""
    linked = mirrored(partitions=2)
    for value in "abc":
        linked.produce("west", value, value * 2)
    producer = linked.west.producer("checkout")
    producer.init_transactions()
    producer.begin()
    producer.send(ORDERS, "never", partition=1)
    producer.flush()
    producer.abort()
    linked.produce("west", "last", partition=1)
    linked.west.alter_topic(ORDERS, {"retention.ms": "1d"}, partitions=3)
    linked.produce("west", "new", partition=2)
    linked.west.create_topic("shop:clicks", partitions=1)
    linked.produce("west", "click", full_name="shop:clicks")
    linked.mirror("east", "west", "shop:clicks")
    return linked


def again(linked: Linked) -> Linked:
    """Return the same clusters over copies of their stores."""
    stores = {name: copied(store) for name, store in linked.stores.items() if isinstance(store, MemoryStore)}
    return Linked(Clock(linked.clock.now_ms), dict(stores), linked.new_id)


def process(linked: Linked, fault: Fault | None, before: Callable[[], None] = lambda: None) -> int:
    """Do a round as a process whose writes to the destination are counted and may be its last; return how many."""
    inner, writes = linked.stores["east"], itertools.count()
    mortal = MortalStore(inner)
    counted = mortal.before

    def write(what: str, key: str) -> None:
        next(writes)
        before()
        counted(what, key)

    mortal.before = write
    linked.stores["east"] = mortal
    mortal.fuse.arm(fault)
    try:
        once(linked)
    except DiedError:
        pass
    finally:
        linked.stores["east"] = inner
    return next(writes)


def deaths(linked: Linked) -> Iterator[Linked]:
    """Yield what is left behind for every write that goes wrong, in every way."""
    for how in _HOWS:
        for at in itertools.count():
            left = again(linked)
            if process(left, Fault(at, how)) <= at:
                break
            yield left


def check(linked: Linked) -> None:
    """See that both mirrors are their sources: every record once, at its offset."""
    for full_name in (ORDERS, "shop:clicks"):
        ours, theirs = linked.west.log(full_name), linked.east.log(full_name)
        assert [read(theirs, number) for number in theirs.read_bounds()] == [
            read(ours, number) for number in ours.read_bounds()
        ]
        assert compare_logs(here(), ours, theirs, deep=True).is_equal


def check_prefix(linked: Linked) -> None:
    """See that a reader finds nothing but a beginning of the source, whatever was left half-done."""
    for full_name in (ORDERS, "shop:clicks"):
        ours, theirs = linked.west.log(full_name), linked.east.log(full_name)
        for number, bounds in theirs.read_bounds().items():
            got = read(theirs, number)
            assert got == [row for row in read(ours, number) if row["offset"] < bounds.end]


@pytest.mark.thorough
@pytest.mark.fact("F-C-001")
def test_a_round_that_died_at_any_write_is_completed_by_the_next(behind: Linked) -> None:
    points = 0
    for left in deaths(behind):
        points += 1
        check_prefix(left)
        found = once(left)
        assert [one.error for one in found.values()] == [None, None]
        check(left)
        assert sum(one.records for one in once(left).values()) == 0
    assert points > 40


@pytest.mark.thorough
def test_a_round_that_another_comes_before_at_any_write_copies_nothing_twice(behind: Linked) -> None:
    points = 0
    for at in itertools.count():
        left, writes, met = again(behind), itertools.count(), []

        def meet(at: int = at, left: Linked = left, writes: Iterator[int] = writes, met: list[int] = met) -> None:
            if not met and next(writes) == at:
                met.append(at)
                rival = again(left)
                rival.stores = {name: getattr(store, "inner", store) for name, store in left.stores.items()}
                once(rival)

        process(left, None, meet)
        if not met:
            break
        points += 1
        check(left)
        assert all(one.error is None for one in once(left).values())
        check(left)
    assert points > 10
