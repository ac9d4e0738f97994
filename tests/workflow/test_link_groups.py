"""Groups that follow their topics over a link."""

from __future__ import annotations

from typing import Any

import pytest

from reconciler.embedded.segments.groups import read_group
from reconciler.resources.mirrors import CONSUMER_OFFSET_SYNC
from tests.embedded.linking.linked import ORDERS, Linked, mirrored
from tests.workflow.linksyncs import ALL, MINUTE, Counting, Runner

GROUP = "shop:checkout"
SYNCING = {"enabled": True, "filters": ALL}
DAY = 24 * 60 * MINUTE


def mirroring(**spec: Any) -> Runner:
    """Return a mirror of ten records, and a link that brings all groups unless told otherwise."""
    return Runner(mirrored(**{"mode": "destination", "consumerOffsetSync": SYNCING, **spec}))


def commit(linked: Linked, cluster: str, offset: int, group: str = GROUP, topic: str = ORDERS) -> None:
    linked.cluster(cluster).groups.commit(group, {(topic, 0): offset})


def at(linked: Linked, cluster: str = "east", group: str = GROUP, topic: str = ORDERS) -> int | None:
    """Return where a group would go on reading."""
    return linked.cluster(cluster).groups.committed(group, [topic]).get((topic, 0))


def kept(linked: Linked, cluster: str = "east", group: str = GROUP) -> tuple[list[int], list[int]]:
    """Return what a group has committed itself, and what was brought."""
    found = read_group(linked.stores[cluster], group)
    assert found is not None
    return sorted(each.offset for each in found.own.values()), sorted(each.offset for each in found.synced.values())


def told(run: Runner) -> tuple[str, str] | None:
    found = run.link().tasks.get(CONSUMER_OFFSET_SYNC)
    return None if found is None else (found.code, found.message)


@pytest.mark.fact("F-C-040")
@pytest.mark.parametrize("spec", [None, {"enabled": False}, {"enabled": True, "filters": [{"name": "shop:other"}]}])
def test_offsets_are_brought_only_where_that_is_enabled_and_of_groups_that_are_taken(spec: Any) -> None:
    run = mirroring(**({} if spec is None else {"consumerOffsetSync": spec}))
    if spec is None:
        run = Runner(mirrored(mode="destination"))
    commit(run.linked, "west", 4)
    run()
    assert at(run.linked) is None


@pytest.mark.fact("F-C-040", "F-C-033")
def test_groups_that_are_taken_are_brought_for_all_mirrors_of_the_link_under_their_names() -> None:
    run = mirroring(consumerOffsetSync={"enabled": True, "filters": [{"name": "shop:", "patternType": "prefixed"}]})
    run.linked.west.create_topic("shop:clicks")
    run.linked.produce("west", "a", "b", full_name="shop:clicks")
    run.linked.mirror("east", "west", "shop:clicks")
    run.linked.catch_up("east", "shop:clicks")
    run.linked.west.create_topic("shop:unmirrored")
    run.linked.west.groups.commit(GROUP, {(ORDERS, 0): 4, ("shop:clicks", 0): 1, ("shop:unmirrored", 0): 0})
    commit(run.linked, "west", 7, group="other")
    assert run().done[CONSUMER_OFFSET_SYNC] == 1
    assert (at(run.linked), at(run.linked, topic="shop:clicks"), at(run.linked, group="other")) == (4, 1, None)
    assert kept(run.linked) == ([], [1, 4])
    assert run.linked.east.groups.names() == [GROUP]


@pytest.mark.fact("F-C-033")
def test_groups_get_the_prefix_of_the_link_only_where_that_is_asked() -> None:
    linked = Linked()
    linked.west.create_topic(ORDERS)
    linked.produce("west", "a", "b", "c")
    for name, prefixes in (("plain", False), ("both", True)):
        groups = {"enabled": True, "filters": ALL, "prefixGroups": prefixes}
        linked.cluster(name)
        linked.link(name, "west", mode="destination", prefix="w.", consumerOffsetSync=groups)
        linked.mirror(name, "west", name="shop:w.orders")
        linked.catch_up(name, "shop:w.orders")
    commit(linked, "west", 2)
    run = Runner(linked)
    run("plain")
    run("both")
    assert linked.cluster("plain").groups.names() == [GROUP]
    assert linked.cluster("both").groups.names() == ["shop:w.checkout"]
    assert at(linked, "both", "shop:w.checkout", "shop:w.orders") == 2


@pytest.mark.fact("F-C-041")
def test_an_offset_that_is_not_mirrored_yet_is_brought_as_the_end_and_again_once_it_is() -> None:
    run = mirroring()
    run.linked.produce("west", *map(str, range(90)))
    commit(run.linked, "west", 8)
    commit(run.linked, "west", 95, group="shop:fast")
    run()
    assert (at(run.linked), at(run.linked, group="shop:fast")) == (8, 10)
    run.linked.catch_up("east")
    run.later(MINUTE)
    run()
    assert (at(run.linked), at(run.linked, group="shop:fast")) == (8, 95)


@pytest.mark.fact("F-C-041", "F-C-065")
def test_failing_over_leaves_no_group_beyond_the_end() -> None:
    linked = Linked()
    linked.west.create_topic(ORDERS)
    linked.produce("west", *map(str, range(90)))
    linked.link("east", "west", mode="destination", consumerOffsetSync=SYNCING)
    linked.mirror("east", "west")
    linked.catch_up("east")
    linked.produce("west", *map(str, range(90, 100)))
    commit(linked, "west", 80)
    commit(linked, "west", 95, group="shop:fast")
    Runner(linked)()
    linked.provider("east").links.ask(ORDERS, "failover")
    linked.produce("east", "after")
    assert (at(linked), at(linked, group="shop:fast")) == (80, 90)


@pytest.mark.fact("F-C-042", "F-C-063")
def test_promoting_brings_every_group_whatever_is_due() -> None:
    run = mirroring(consumerOffsetSync={**SYNCING, "interval": "1h"})
    run()
    run.linked.produce("west", "more")
    commit(run.linked, "west", 11)
    run.linked.west.alter_topic(ORDERS, {"retention.ms": "1h"})
    run.linked.provider("east").links.ask(ORDERS, "promote", operation="p-1")
    assert run().drove == (ORDERS,)
    assert (run.linked.status("east"), at(run.linked)) == ("STOPPED", 11)
    assert run.linked.east.topic(ORDERS).configs == {"retention.ms": "3600000"}


@pytest.mark.fact("F-C-042")
def test_a_group_that_moves_goes_on_where_it_was_and_has_the_last_word_from_then_on() -> None:
    run = mirroring()
    commit(run.linked, "west", 6)
    run()
    (fetched,) = run.linked.east.consumer(GROUP, topics=[ORDERS]).poll()
    assert [record.offset for record in fetched] == [6, 7, 8, 9]
    commit(run.linked, "east", 9)
    commit(run.linked, "west", 7)
    run.later(MINUTE)
    run()
    assert kept(run.linked) == ([9], [6])
    code, message = told(run) or ("", "")
    assert code == "CONSUMER_GROUP_IN_USE_ERROR"
    assert "group shop:checkout: it reads shop:orders on the destination itself" in message


def test_a_group_that_reads_no_more_is_brought_again_and_its_own_offsets_still_win() -> None:
    run = mirroring()
    commit(run.linked, "east", 3)
    commit(run.linked, "west", 5)
    run()
    assert told(run) is not None
    run.later(DAY)
    run()
    assert (told(run), kept(run.linked), at(run.linked)) == (None, ([3], [5]), 3)


def test_a_group_that_reads_another_topic_there_is_not_in_the_way() -> None:
    run = mirroring()
    run.linked.east.create_topic("shop:own")
    commit(run.linked, "east", 0, topic="shop:own")
    commit(run.linked, "west", 5)
    run()
    assert (told(run), at(run.linked)) == (None, 5)


def test_a_reset_at_the_source_is_brought_too() -> None:
    run = mirroring()
    for offset in (9, 2):
        commit(run.linked, "west", offset)
        run.later(MINUTE)
        run()
        assert at(run.linked) == offset


def test_a_namespace_that_a_group_lacks_is_told_and_stops_no_other_group() -> None:
    run = mirroring()
    run.linked.west.create_namespace("lab")
    commit(run.linked, "west", 5, group="lab:checkout")
    commit(run.linked, "west", 6)
    run()
    assert at(run.linked) == 6
    assert told(run) == ("InvalidNamespaceError", "group lab:checkout: namespace lab does not exist")
    run.linked.east.create_namespace("lab")
    run.later(MINUTE)
    run()
    assert (told(run), at(run.linked, group="lab:checkout")) == (None, 5)


def test_groups_are_brought_at_their_interval() -> None:
    run = mirroring(consumerOffsetSync={**SYNCING, "interval": "30s"})
    run()
    commit(run.linked, "west", 5)
    run.later(29_999)
    run()
    assert at(run.linked) is None
    run.later(1)
    run()
    assert at(run.linked) == 5


def test_only_groups_that_committed_are_read_again() -> None:
    run = mirroring()
    for number in range(20):
        commit(run.linked, "west", 5, group=f"shop:g{number}")
    run()
    run.later(MINUTE)
    run()
    west, east = Counting(run.linked.stores["west"]), Counting(run.linked.stores["east"])
    run.over = {"west": west, "east": east}
    for expected in (0, 1):
        west.calls.clear()
        east.calls.clear()
        run.later(MINUTE)
        assert run().done == {CONSUMER_OFFSET_SYNC: expected}
        assert west.calls["list"] == 1
        assert (west.calls["get"], east.calls["swap"]) == (3 + 2 * expected, expected)
        commit(run.linked, "west", 6, group="shop:g7")


def test_a_mirror_that_is_new_gets_what_groups_committed_long_before() -> None:
    run = mirroring()
    run.linked.west.create_topic("shop:clicks")
    run.linked.produce("west", "a", "b", full_name="shop:clicks")
    commit(run.linked, "west", 1, topic="shop:clicks")
    run()
    run.linked.mirror("east", "west", "shop:clicks")
    run.linked.catch_up("east", "shop:clicks")
    run.later(MINUTE)
    run()
    assert at(run.linked, topic="shop:clicks") == 1


@pytest.mark.fact("F-C-095")
def test_chains_pass_on_what_was_brought() -> None:
    run = mirroring()
    run.linked.cluster("far")
    run.linked.link("far", "east", "onwards", mode="destination", consumerOffsetSync=SYNCING)
    run.linked.mirror("far", "east", link="onwards")
    run.linked.catch_up("far")
    commit(run.linked, "west", 4)
    run()
    run("far")
    assert at(run.linked, "far") == 4


@pytest.mark.fact("F-C-074", "F-C-080")
def test_a_group_goes_along_when_roles_are_swapped_and_swapped_back() -> None:
    run = mirroring(mode="bidirectional")
    commit(run.linked, "west", 8)
    driver = run.driver()
    driver.reverse("east", ORDERS)
    assert at(run.linked, "east") == 8
    run.linked.produce("east", "a", "b", "c")
    commit(run.linked, "east", 12)
    run("west")
    run.linked.catch_up("west")
    run.later(MINUTE)
    assert run("west").errors == {}
    assert at(run.linked, "west") == 12  # Not the eight that it had committed there itself.
    run.driver().reverse("west", ORDERS)
    commit(run.linked, "west", 13)
    run.later(MINUTE)
    run()
    assert (run.link().tasks, at(run.linked, "east")) == ({}, 13)
