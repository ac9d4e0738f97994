"""Who comes very late: copiers and drivers of an earlier life of a mirror; and reversals that were broken off."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from reconciler.errors import IncompleteError, RetryableError, UserError
from reconciler.jobs.flows import missing
from reconciler.providers.embedded.links import EmbeddedLinks
from reconciler.records.log import SourceSeen
from reconciler.resources.mirrors import Operation, Position
from tests.embedded.deaths import Fault
from tests.embedded.links.link_machine import equal, process, values
from tests.embedded.links.linked import ORDERS, Linked, mirrored
from tests.embedded.stores import DiedError


def fail_over(linked: Linked, name: str) -> None:
    linked.provider(name).links.ask(ORDERS, "failover")


@pytest.mark.fact("F-C-001", "F-C-080")
def test_a_copy_of_what_was_cut_since_is_not_published_into_the_next_life_of_the_mirror() -> None:
    linked = mirrored()
    linked.produce("west", "never fetched", "nor this")
    source = linked.west.log(ORDERS)
    bounds = source.bounds()
    sink = linked.east.sink(ORDERS).following(SourceSeen(source.topic_id, bounds))
    staged = [sink.stage_copy(number, source, offsets) for number, offsets in missing(bounds, sink.ends()).items()]

    fail_over(linked, "east")
    linked.driver().restore("west", ORDERS)
    linked.driver().reverse("west", ORDERS)
    assert linked.status("east") == "ACTIVE"

    with pytest.raises(RetryableError, match="source metadata is stale"):
        sink.publish(staged)
    assert equal(linked, "west", "east")
    linked.produce("west", "home", "again", "and again")
    linked.catch_up("east")
    assert equal(linked, "west", "east")


def test_a_partition_of_the_mirror_that_its_cluster_does_not_show_yet_counts_as_empty(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    linked, real = mirrored(partitions=2), EmbeddedLinks.positions

    def unshown(links: EmbeddedLinks, full_name: str) -> Mapping[int, Position]:
        return {number: at for number, at in real(links, full_name).items() if number == 0}

    monkeypatch.setattr(EmbeddedLinks, "positions", unshown)
    with pytest.raises(IncompleteError, match=r"partition 1 .* lacks 10 records"):
        linked.driver().promote("east", ORDERS)
    monkeypatch.setattr(EmbeddedLinks, "positions", real)
    linked.driver().drive("east", ORDERS)
    assert linked.status("east") == "STOPPED"


def suspended_at(linked: Linked, at: int) -> None:
    """Reverse until the driver dies."""
    with pytest.raises(DiedError):
        process(linked, fault=Fault(at, "dies before")).driver().reverse("east", ORDERS)


@pytest.mark.fact("F-C-076")
def test_a_suspended_reversal_stays_read_only_on_both_sides_and_goes_on_when_resumed() -> None:
    linked = mirrored()
    suspended_at(linked, 3)
    east = linked.provider("east").links
    east.ask(ORDERS, "pause")
    assert (linked.status("east"), linked.status("west")) == ("PAUSED", "PENDING_MIRROR")
    for name in ("east", "west"):
        with pytest.raises(UserError, match="Cannot append records"):
            linked.produce(name, "no")
    for verb in ("promote", "reverse-and-start", "pause"):
        with pytest.raises(UserError, match=r"PAUSED|suspended"):
            east.ask(ORDERS, verb, operation="another")
    with pytest.raises(UserError, match="PAUSED"):
        linked.driver().reverse("east", ORDERS)
    linked.driver().drive("west", ORDERS)
    assert (linked.status("east"), linked.status("west")) == ("PAUSED", "PENDING_MIRROR")
    east.ask(ORDERS, "resume")
    assert linked.status("east") == "PENDING_SYNCHRONIZE"
    linked.driver().drive("east", ORDERS)
    assert (linked.status("east"), linked.status("west")) == ("STOPPED", "ACTIVE")


@pytest.mark.fact("F-C-077", "F-C-079")
def test_after_a_reversal_that_was_broken_off_each_side_can_be_restored_from_the_other_that_stopped_last() -> None:
    linked = mirrored()
    linked.produce("west", "late")
    suspended_at(linked, 4)
    fail_over(linked, "east")
    linked.clock.now_ms += 1
    fail_over(linked, "west")
    linked.produce("west", "rescued west")
    linked.produce("east", "rescued east", "and more")
    with pytest.raises(UserError, match="which is the original source"):
        linked.driver().restore("west", ORDERS)
    fetched = linked.positions("east")[0].fetched
    seen, cut = linked.driver().restore("east", ORDERS)
    assert (seen.status, seen.source_cluster) == ("ACTIVE", "west")
    assert (cut[0].offset, cut[0].records) == (fetched, 2)
    linked.catch_up("east")
    assert equal(linked, "west", "east")
    assert "rescued west" in values(linked, "east")
    assert "rescued east" not in values(linked, "east")


@pytest.mark.fact("F-C-077")
@pytest.mark.parametrize("verb", ["truncate-and-restore", "reverse-and-start"])
def test_what_was_failed_over_is_not_begun_again_by_a_driver_that_knew_it_before(verb: str) -> None:
    linked = mirrored()
    peer, west = linked.seen("east"), linked.provider("west").links
    west.join(ORDERS, peer, Operation("operation-1", verb))
    fail_over(linked, "west")
    linked.produce("west", "rescued")
    with pytest.raises(UserError, match="that operation is over"):
        west.join(ORDERS, peer, Operation("operation-1", verb))
    assert linked.status("west") == "STOPPED"
    linked.produce("west", "again")


@pytest.mark.fact("F-C-079")
def test_roles_that_were_just_swapped_are_known_to_be_equal() -> None:
    linked = mirrored()
    linked.driver().reverse("east", ORDERS)
    assert linked.positions("west")[0].fetched == 10
    fail_over(linked, "west")
    linked.produce("west", "own")
    _, cut = linked.driver().restore("east", ORDERS)
    assert (cut[0].offset, cut[0].records) == (10, 0)
    linked.catch_up("east")
    assert equal(linked, "west", "east")


@pytest.mark.fact("F-C-077")
def test_of_two_that_are_restored_from_each_other_at_once_neither_is_cut() -> None:
    linked = mirrored()
    suspended_at(linked, 4)
    for name in ("east", "west"):
        fail_over(linked, name)
        linked.produce(name, f"rescued {name}")
    before = {name: values(linked, name) for name in ("east", "west")}
    peers = {"east": linked.seen("west"), "west": linked.seen("east")}
    for name, peer in peers.items():
        linked.provider(name).links.join(ORDERS, peer, Operation(f"restore {name}", "truncate-and-restore"))
    assert {linked.status(name) for name in ("east", "west")} == {"PENDING_SETUP_FOR_RESTORE"}
    for name in ("east", "west"):
        with pytest.raises(UserError, match="takes no records itself"):
            linked.driver().drive(name, ORDERS)
    for name in ("east", "west"):
        fail_over(linked, name)
    assert {name: values(linked, name) for name in ("east", "west")} == before


@pytest.mark.fact("F-C-094")
@pytest.mark.parametrize("verb", ["promote", "reverse"])
def test_a_source_that_was_made_anew_is_noticed_before_anything_is_begun(verb: str) -> None:
    linked = mirrored()
    linked.west.delete_topic(ORDERS)
    linked.west.create_topic(ORDERS, partitions=1)
    with pytest.raises(UserError, match="created again"):
        getattr(linked.driver(), verb)("east", ORDERS)
    assert linked.status("east") == "ACTIVE"


@pytest.mark.fact("F-C-067")
def test_what_is_stopped_is_stopped_whatever_became_of_its_source() -> None:
    linked = mirrored()
    fail_over(linked, "east")
    del linked.stores["west"]
    with pytest.raises(UserError, match="already stopped"):
        linked.driver().promote("east", ORDERS)
