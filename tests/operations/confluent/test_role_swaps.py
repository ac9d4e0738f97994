"""Mirrors of Confluent clusters that swap roles with their sources, and links that their sources open."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar
from uuid import uuid4

import pytest
from confluent_kafka import Producer

from reconciler.applying.events import ActionStarted, Event
from reconciler.operations.steps.invocation import Select
from reconciler.resources.address import address_of
from tests.operations.confluent.test_confluent import Desk, document, ids, topic
from tests.operations.stage import give_roles
from tests.servers.confluent.mirrors import MIRROR
from tests.servers.emulation.faults import ALWAYS
from tests.servers.test_confluent_server import done

if TYPE_CHECKING:
    from collections.abc import Callable

    from conftest import Bench

    from tests.servers.confluentfixtures import Pair

pytestmark = [pytest.mark.thorough, pytest.mark.xdist_group("confluent")]
SWAPS = Select(
    allow=("failover:*", "promote:*", "pause:*", "delete:*", "reverse-and-start:*", "truncate-and-restore:*")
)


class BothWays(Desk):
    """A workspace whose link is bidirectional."""

    allowed = SWAPS
    fields: ClassVar = {"mode": "bidirectional"}

    @property
    def topic(self) -> str:
        return self.link.removesuffix("-link")

    def become(self, state: str) -> None:
        """Give the mirror of `self.topic` a state, and see that nothing is left to do."""
        self.apply(topic(self.topic, 2), self.mirror({self.topic: state}, **self.fields))

    def produce(self, cluster: str, *values: bytes) -> None:
        producer = Producer({"bootstrap.servers": self.servers[cluster].kafka})
        for value in values:
            producer.produce(self.topic, value, partition=0)
        assert producer.flush(30) == 0

    def status(self, cluster: str) -> str | None:
        link = self.servers[cluster].links.rows[self.link]
        return link.mirrors[self.topic].read_status(link) if self.topic in link.mirrors else None


@pytest.fixture
def both(bench: Bench, confluent: Pair) -> BothWays:
    return BothWays(bench, confluent, f"orders-{uuid4().hex[:8]}")


@pytest.mark.fact("F-C-207")
def test_roles_are_swapped_and_swapped_back(both: BothWays) -> None:
    both.become("mirroring")
    both.produce("west", b"1")
    both.become("reversed")
    assert (both.status("east"), both.status("west")) == ("STOPPED", "ACTIVE")
    assert "autoCreate" not in str(both.bench.plan().plan.warnings)
    both.produce("east", b"2")
    both.become("mirroring")
    assert (both.status("east"), both.status("west")) == ("ACTIVE", "STOPPED")


def test_after_a_failover_the_old_source_is_restored_and_what_it_loses_is_shown_before(both: BothWays) -> None:
    both.become("mirroring")
    both.produce("west", b"1")
    both.become("failed-over")
    both.produce("west", b"lost", b"lost, too")
    both.produce("east", b"2")
    both.declare(topic(both.topic, 2), both.mirror({both.topic: "reversed"}, **both.fields))
    (restore,) = both.bench.plan().plan.actions
    cost = restore.estimate.role
    assert cost is not None
    assert [(lost.partition, lost.length) for lost in cost.lost] == [(0, 2)]
    both.become("reversed")
    assert (both.status("east"), both.status("west")) == ("STOPPED", "ACTIVE")


def test_a_restore_that_would_lose_more_than_was_shown_changes_nothing_and_what_is_lost_is_printed(
    both: BothWays,
) -> None:
    both.become("mirroring")
    both.become("failed-over")
    both.produce("west", b"shown")

    def produce_meanwhile(event: Event) -> None:
        if isinstance(event, ActionStarted):
            both.produce("west", b"not shown")

    both.declare(topic(both.topic, 2), both.mirror({both.topic: "reversed"}, **both.fields))
    result = both.bench.apply(SWAPS, report=produce_meanwhile).result
    assert result is not None
    (failed,) = result.failed
    assert "has more to cut off than was approved" in failed.error.message
    assert both.status("west") is None
    printed: list[str] = []
    both.bench = both.bench.with_(warn=printed.append)
    both.become("reversed")
    assert f"topic/west/{both.topic}: the restore deletes 2 records of partition 0 from offset 0 on" in printed


@pytest.mark.fact("F-C-207")
@pytest.mark.parametrize("verb", ["reverse-and-start-mirror", "truncate-and-restore"])
def test_a_swap_whose_answer_was_lost_is_not_sent_again(both: BothWays, verb: str) -> None:
    is_restore = verb == "truncate-and-restore"
    both.become("mirroring")
    if is_restore:
        both.become("failed-over")
    server = both.servers["west" if is_restore else "east"]
    server.faults.add("lost", "POST", f"mirrors:{verb}", times=1)
    del server.requests[:]
    both.become("reversed")
    sent = [path for _, _, path in server.requests if verb in path and "validate_only" not in path]
    assert len(sent) == 1


def test_a_failover_ends_a_reversal_on_either_side(both: BothWays) -> None:
    both.become("mirroring")
    both.servers["east"].faults.add("hangs", MIRROR, f"{both.topic}/PENDING_SYNCHRONIZE/", times=ALWAYS)
    names = {"mirror_topic_names": [both.topic]}
    done(both.servers["east"], "POST", f"/links/{both.link}/mirrors:reverse-and-start-mirror", names)
    for cluster, state in (("east", "PENDING_SYNCHRONIZE"), ("west", "PENDING_MIRROR")):
        assert both.status(cluster) == state
        give_roles(both.bench.acting(), "failover", address_of("mirror", cluster, both.topic))
        assert both.status(cluster) == "STOPPED"
    assert ids(both.bench.plan()) == []


@pytest.mark.parametrize(
    ("options", "state", "message"),
    [
        ({"kind": "enterprise"}, "reversed", "Confluent Cloud Enterprise cannot swap the roles of mirrors"),
        ({"version": "7.6.0"}, "reversed", "The version of this API is not supported"),
        ({"version": "8.0.0"}, "restored", "The version of this API is not supported"),
    ],
)
def test_a_kind_or_version_that_cannot_swap_roles_is_told_at_plan(
    bench: Bench, start_confluent: Callable[..., Pair], options: dict[str, str], state: str, message: str
) -> None:
    fields = {"kind": None, "type": "platform"} if "version" in options else {}
    both = BothWays(bench, start_confluent(**options), "orders", **fields)
    both.become("mirroring")
    if state == "restored":
        both.become("failed-over")
    errors = both.errors(topic(both.topic, 2), both.mirror({both.topic: "reversed"}, **both.fields))
    assert any(message in error for error in errors), errors


def test_a_source_opens_the_link_and_has_its_half_of_it(both: BothWays) -> None:
    both.fields = {"mode": "source"}
    both.become("mirroring")
    halves = {name: server.links.rows[both.link].get("link.mode") for name, server in both.servers.items()}
    assert halves == {"west": "SOURCE", "east": "DESTINATION"}
    both.become("promoted")
    both.apply()
    assert [both.link in server.links.rows for server in both.servers.values()] == [False, False]


def test_the_half_of_a_source_is_not_declared_too(both: BothWays) -> None:
    other = document("MirrorLink", both.link, {"source": "east", "mode": "source"}, "west")
    errors = both.errors(topic(both.topic), both.mirror({both.topic: "mirroring"}, mode="source"), other)
    assert any("it is derived" in error for error in errors), errors
