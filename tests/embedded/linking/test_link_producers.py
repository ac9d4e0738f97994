"""Producers at every point of a transition: what was acknowledged is never lost, what was refused never shows."""

from __future__ import annotations

import itertools
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from reconciler.errors import RetryableError
from tests.embedded.linking.linked import ORDERS, Linked
from tests.embedded.linking.linkedpoints import equal, finish, one_after_the_other, process, rivals, values
from tests.embedded.linking.test_link_crashes import PARTITIONS, diverged, lagging
from tests.embedded.linking.test_link_races import promote, restore, reverse
from tests.embedded.mortal import Fault
from tests.embedded.mounting.migrating import refusal
from tests.embedded.samples import values as batch
from tests.embedded.watched import DiedError

if TYPE_CHECKING:
    from collections.abc import Callable

    Do = Callable[[Linked], object]
    Send = Callable[[str], object]

NEVER = PARTITIONS
"""A partition that nobody ever wrote to."""


@pytest.fixture(autouse=True)
def _one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """The n-th write is the same one every time."""
    one_after_the_other(monkeypatch)


def grown(begin: Callable[[], Linked]) -> Linked:
    """Return clusters with a partition more, that nobody wrote to."""
    linked = begin()
    for name in ("east", "west"):
        topic = linked.cluster(name).topic(ORDERS)
        if topic.follows is None:
            linked.cluster(name).alter_topic(ORDERS, {}, partitions=PARTITIONS + 1)
        else:
            linked.west.alter_topic(ORDERS, {}, partitions=PARTITIONS + 1)
            linked.sync(linked.seen(name))
            return linked
    return linked


def plain(it: Linked, name: str, partition: int) -> Send:
    producer = it.cluster(name).producer()

    def send(value: str) -> None:
        producer.send(ORDERS, value, partition=partition)
        producer.flush()

    return send


def anew(it: Linked, name: str, partition: int) -> Send:
    return lambda value: it.produce(name, value, partition=partition)


def transactional(it: Linked, name: str, partition: int) -> Send:
    producer = it.cluster(name).producer("teller", transaction_timeout_ms=900_000)
    producer.init_transactions()

    def send(value: str) -> None:
        producer.begin()
        producer.send(ORDERS, value, partition=partition)
        producer.commit()

    return send


def sequenced(it: Linked, name: str, partition: int) -> Send:
    producer = it.cluster(name).sequenced_producer("counter")
    numbers = itertools.count()

    def send(value: str) -> None:
        producer.append(ORDERS, partition, batch(value), sequence=next(numbers))

    return send


KINDS = {"plain": plain, "anew": anew, "transactional": transactional, "sequenced": sequenced}
OFTEN = ["plain", "transactional", *(pytest.param(kind, marks=pytest.mark.soak) for kind in ("anew", "sequenced"))]
TRANSITIONS: dict[str, tuple[Callable[[], Linked], Do]] = {
    "reverse": (lagging, reverse),
    "restore": (diverged, restore),
    "promote": (lagging, promote),
}


class Told:
    """What a producer was told of each value."""

    def __init__(self) -> None:
        self.acked: list[str] = []
        self.refused: list[str] = []
        self.unsure: list[str] = []

    def send(self, send: Send, value: str) -> None:
        """Send it, and keep what came of it."""
        said = refusal(lambda: send(value))
        told = self.acked if said is None else self.unsure if isinstance(said, RetryableError) else self.refused
        told.append(value)


@pytest.mark.fact("F-C-002", "F-C-074")
@pytest.mark.parametrize("partition", [0, NEVER])
@pytest.mark.parametrize("kind", OFTEN)
@pytest.mark.parametrize("verb", TRANSITIONS)
def test_what_a_producer_was_told_before_any_write_of_a_transition_is_so(verb: str, kind: str, partition: int) -> None:
    begin, do = TRANSITIONS[verb]
    sends: list[Send] = []
    tolds: list[Told] = []
    acked = refused = 0

    def prepare(left: Linked) -> None:
        tolds.append(Told())
        sends[:] = [KINDS[kind](left, "west", partition)]
        if partition != NEVER:
            sends[0]("known")

    def rival(_left: Linked) -> None:
        tolds[-1].send(sends[0], "now")
        tolds[-1].send(sends[0], "and now")

    for left, said in rivals(grown(begin), do, rival, prepare=prepare):
        assert said is None, said
        finish(left)
        told = tolds[-1]
        found = values(left, "west")
        assert not told.unsure
        assert not set(told.refused) & set(found), (told.refused, left.status("west"))
        if verb != "restore":
            assert set(told.acked) <= set(found)
        if verb == "promote":
            assert len(told.acked) == 2
            continue
        assert equal(left, "west", "east")
        acked, refused = acked + len(told.acked), refused + len(told.refused)
    assert verb == "promote" or (acked and refused)


@pytest.mark.fact("F-C-002", "F-C-074")
@pytest.mark.parametrize("partition", [0, NEVER])
@pytest.mark.parametrize("kind", OFTEN)
@pytest.mark.parametrize("verb", ["reverse", "restore"])
@pytest.mark.parametrize(
    "writes", [2, pytest.param(3, marks=pytest.mark.soak), None], ids=["begun", "half sealed", "whole"]
)
def test_what_a_producer_is_told_whom_a_transition_overtakes_before_any_write_is_so(
    verb: str, kind: str, partition: int, writes: int | None
) -> None:
    begin, do = TRANSITIONS[verb]
    tolds: list[Told] = []

    def produces(it: Linked) -> None:
        tolds.append(Told())
        send = KINDS[kind](it, "west", partition)
        if partition != NEVER:
            send("known")
        tolds[-1].send(send, "now")
        tolds[-1].send(send, "then")

    def rival(now: Linked) -> None:
        if verb == "reverse":
            now.catch_up("east")  # What a reversal copies before it begins would be its first writes.
        with suppress(DiedError):
            do(process(now, fault=None if writes is None else Fault(writes, "dies before")))

    for left, said in rivals(grown(begin), produces, rival):
        told = tolds[-1]
        finish(left)
        left.west.finish_transactions()
        found = values(left, "west")
        assert not told.unsure
        assert not set(told.refused) & set(found), (told.refused, said)
        if verb == "reverse":
            assert set(told.acked) <= set(found)
        left.catch_up("west")
        assert equal(left, "west", "east")
