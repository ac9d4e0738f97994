"""Transitions of mirrors over two clusters: promote, fail over, reverse, restore, and failing back."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from reconciler.errors import IncompleteError, UserError
from tests.embedded.linking.linked import ORDERS, Linked, mirrored

if TYPE_CHECKING:
    from collections.abc import Mapping

    from reconciler.resources.mirrors import MirrorSeen


@pytest.fixture
def linked() -> Linked:
    return mirrored()


def refused_writes(linked: Linked, cluster: str) -> bool:
    with pytest.raises(UserError, match="Cannot append records to read-only mirror topic"):
        linked.produce(cluster, "no")
    return True


@pytest.mark.fact("F-C-001", "F-C-002", "F-C-003")
def test_a_mirror_has_what_its_source_has_and_takes_no_records(linked: Linked) -> None:
    assert linked.read("east") == linked.read("west")
    assert len(linked.read("east")) == 10
    assert refused_writes(linked, "east")


@pytest.mark.fact("F-C-063")
def test_promoting_takes_over_everything_and_then_takes_records(linked: Linked) -> None:
    linked.produce("west", "late")
    seen = linked.driver().promote("east", ORDERS)
    assert (seen.status, seen.stopped_by, seen.operation) == ("STOPPED", "promote", None)
    assert linked.read("east") == linked.read("west")
    linked.produce("east", "own")
    assert linked.read("east")[-1] == (11, "own")


@pytest.mark.fact("F-C-065", "F-C-068")
def test_failing_over_needs_no_source_and_loses_what_was_not_fetched(linked: Linked) -> None:
    linked.produce("west", "lost")
    del linked.stores["west"]
    seen = linked.provider("east").links.ask(ORDERS, "failover")
    assert (seen.status, seen.stopped_by) == ("STOPPED", "failover")
    linked.produce("east", "own")
    assert linked.read("east")[-1] == (10, "own")
    assert linked.positions("east")[0].fetched == 10


@pytest.mark.fact("F-C-074", "F-C-075")
@pytest.mark.parametrize(("is_paused", "ends"), [(False, "ACTIVE"), (True, "PAUSED")])
def test_reversing_swaps_the_roles_and_loses_nothing(linked: Linked, *, is_paused: bool, ends: str) -> None:
    linked.produce("west", "late")
    seen = linked.driver().reverse("east", ORDERS, is_paused=is_paused)
    assert (seen.cluster, seen.status, seen.source_cluster) == ("west", ends, "east")
    assert linked.status("east") == "STOPPED"
    linked.produce("east", "own")
    assert refused_writes(linked, "west")
    linked.catch_up("west")
    assert linked.read("west") == linked.read("east")
    assert linked.read("west")[-2:] == [(10, "late"), (11, "own")]


def test_a_reversal_copies_what_it_can_before_it_shuts_anybody_out(linked: Linked) -> None:
    linked.produce("west", "late")

    def cannot(_mirror: MirrorSeen, _ends: Mapping[int, int] | None) -> None:
        raise UserError("Data jobs run on Spark, which needs Java 17 or newer", hint="Install it.")

    with pytest.raises(UserError, match="Java"):
        replace(linked.driver(), copy=cannot).reverse("east", ORDERS)
    assert linked.status("east") == "ACTIVE"
    linked.produce("west", "later")
    assert linked.driver().reverse("east", ORDERS).status == "ACTIVE"
    assert [value for _, value in linked.read("east")][-2:] == ["late", "later"]


@pytest.mark.fact("F-C-078", "F-C-079", "F-C-080")
def test_failing_back_cuts_what_diverged_and_ends_with_the_roles_there_were(linked: Linked) -> None:
    linked.produce("west", "never fetched", "nor this")
    linked.provider("east").links.ask(ORDERS, "failover")
    linked.produce("east", "own")

    seen, cut = linked.driver().restore("west", ORDERS)
    assert (seen.status, seen.source_cluster) == ("ACTIVE", "east")
    assert {partition: (one.offset, one.records) for partition, one in cut.items()} == {0: (10, 2)}
    linked.catch_up("west")
    assert linked.read("west") == linked.read("east")

    back = linked.driver().reverse("west", ORDERS)
    assert (back.cluster, back.status) == ("east", "ACTIVE")
    linked.produce("west", "home")
    linked.catch_up("east")
    assert linked.read("east") == linked.read("west")
    assert [value for _, value in linked.read("west")][-2:] == ["own", "home"]


@pytest.mark.fact("F-C-064")
def test_a_promotion_waits_for_what_it_cannot_fetch_yet_and_then_goes_on(linked: Linked) -> None:
    open_one = linked.west.producer("checkout")
    open_one.init_transactions()
    open_one.begin()
    open_one.send(ORDERS, "undecided", partition=0)
    open_one.flush()
    with pytest.raises(IncompleteError, match="partition 0 of mirror shop:orders lacks 1 records"):
        linked.driver().promote("east", ORDERS)
    assert linked.status("east") == "PENDING_STOPPED"
    assert linked.seen("east").trouble is not None
    assert refused_writes(linked, "east")
    open_one.commit()
    assert linked.driver().promote("east", ORDERS).status == "STOPPED"
    assert linked.read("east") == linked.read("west")


@pytest.mark.fact("F-C-073")
def test_reversing_needs_a_bidirectional_link() -> None:
    linked = mirrored(mode="destination")
    with pytest.raises(UserError, match="link dr has no half on cluster west"):
        linked.driver().reverse("east", ORDERS)
    assert linked.status("east") == "ACTIVE"


@pytest.mark.fact("F-C-041", "F-C-042")
def test_groups_are_held_to_the_end_of_what_was_fetched(linked: Linked) -> None:
    linked.east.groups.commit("near", {(ORDERS, 0): 8})
    linked.east.groups.commit("far", {(ORDERS, 0): 95})
    linked.provider("east").links.ask(ORDERS, "failover")
    linked.produce("east", *"abcdefgh")
    groups = linked.east.groups
    found = [groups.committed(name, [ORDERS])[(ORDERS, 0)] for name in ("near", "far")]
    assert found == [8, 10]
