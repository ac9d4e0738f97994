"""Mirrors that a link makes by itself."""

from __future__ import annotations

from typing import Any

import pytest

from reconciler.embedded.catalog.mirror_tables import MirrorShape, alter_link
from reconciler.embedded.catalog.model import QuotaEntry
from reconciler.errors import BlockedError, InvalidNamespaceError, UserError
from reconciler.resources.mirror_link import MirrorLinkSpec
from reconciler.resources.mirrors import AUTO_CREATE_MIRROR, LinkEntry
from tests.embedded.links.linked import LINK, ORDERS
from tests.operations.stage import ALL, MINUTE, Counting, Refusing, Runner, denied, runner

ENABLED = {"enabled": True, "filters": ALL}


def made(run: Runner, cluster: str = "east") -> list[str]:
    run(cluster)
    return [mirror.name for mirror in run.linked.provider(cluster).links.list_mirrors()]


def told(run: Runner) -> tuple[str, str] | None:
    found = run.link().tasks.get(AUTO_CREATE_MIRROR)
    return None if found is None else (found.code, found.message)


def alter(run: Runner, **spec: Any) -> None:
    declared = {**run.link().declared.spec.to_json(), **spec}
    run.linked.east.catalog.commit(lambda draft: alter_link(draft, LINK, declared))


@pytest.mark.fact("F-C-020")
def test_a_mirror_is_made_where_all_five_conditions_hold_and_says_that_it_was_made_so() -> None:
    run = runner(autoCreate=ENABLED)
    run.linked.west.alter_topic(ORDERS, {"retention.ms": "1h"}, partitions=3)
    assert made(run) == [ORDERS]
    seen, entry = run.linked.seen("east"), run.linked.east.topic(ORDERS)
    assert (seen.is_automatic, seen.source, seen.source_topic_id) == (True, ORDERS, run.linked.west.topic(ORDERS).id)
    assert (entry.partitions, entry.configs) == (3, {"retention.ms": "3600000"})


@pytest.mark.fact("F-C-020")
@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"autoCreate": {"enabled": False}},
        {"autoCreate": {"enabled": True, "filters": [{"name": "shop:order"}]}},
        {"autoCreate": {"enabled": True, "filters": [*ALL, {"name": ORDERS, "filterType": "exclude"}]}},
    ],
)
def test_none_is_made_that_is_not_enabled_or_that_no_filter_takes(spec: dict[str, Any]) -> None:
    assert made(runner(**spec)) == []


FOO = {"name": "foo", "patternType": "prefixed"}
NOT_BAR = {"name": "foo.bar", "patternType": "prefixed", "filterType": "exclude"}
NAMES = ["foo", "foo.bar", "foo.bar.fighters", "foo.fighters", "football"]


@pytest.mark.fact("F-C-022")
@pytest.mark.parametrize(
    ("filters", "taken"),
    [
        ([{"name": "foo"}], ["foo"]),
        ([FOO], NAMES),
        ([FOO, NOT_BAR], ["foo", "foo.fighters", "football"]),
        ([FOO, NOT_BAR, {"name": "foo.bar"}], ["foo", "foo.fighters", "football"]),
        ([*ALL, {"name": "foo", "filterType": "exclude"}], [*NAMES[1:], ORDERS]),
        ([{"name": "foo.bar"}, {"name": "*", "filterType": "exclude"}], []),
    ],
    ids=["literal", "prefixed", "without a prefix", "exclude wins", "all but one", "all excluded"],
)
@pytest.mark.parametrize("order", [1, -1], ids=["as written", "the other way round"])
def test_mirrors_are_made_of_what_the_filters_take_in_either_order_and_of_nothing_else(
    filters: list[dict[str, str]], taken: list[str], order: int
) -> None:
    run = runner(autoCreate={"enabled": True, "filters": filters[::order]})
    for name in NAMES:
        run.linked.west.create_topic(name)
    assert made(run) == taken


@pytest.mark.fact("F-C-020")
def test_none_is_made_of_what_the_link_may_not_read() -> None:
    run = runner(autoCreate=ENABLED)
    run.linked.west.set_topic_acls(ORDERS, [denied()])
    assert made(run) == []
    run.linked.west.set_topic_acls(ORDERS, [])
    run.later(5 * MINUTE)
    assert made(run) == [ORDERS]


IN_THE_WAY = "topic shop:orders of cluster east is in use already, so autoCreate cannot make a mirror of shop:orders"
INSTEAD = "Exclude shop:orders by autoCreate.filters, move the existing topic, or make the link with another prefix."


def said(run: Runner, cluster: str = "east") -> list[tuple[str, str]]:
    run.later(5 * MINUTE)
    return [(each.message, each.hint) for each in run(cluster).errors.values()]


@pytest.mark.fact("F-C-020")
def test_none_is_made_where_the_name_is_taken_and_that_is_told_and_said_once() -> None:
    run = runner(autoCreate=ENABLED)
    run.linked.east.create_topic(ORDERS)
    assert said(run) == [(IN_THE_WAY, INSTEAD)]
    assert told(run) == ("TOPIC_EXISTS_ERROR", f"{IN_THE_WAY}. {INSTEAD}")
    assert (said(run), said(run), run.linked.east.topic(ORDERS).mirror) == ([], [], None)
    assert said(Runner(run.linked)) == [(IN_THE_WAY, INSTEAD)]  # Whoever starts anew says it.
    for cluster in (run.linked.east, run.linked.west):
        cluster.create_topic("shop:clicks")
    named = "topics shop:clicks, shop:orders of cluster east are in use already"
    so = "so autoCreate cannot make mirrors of shop:clicks, shop:orders"
    assert [message for message, _ in said(run)] == [f"{named}, {so}"]
    run.linked.east.delete_topic("shop:clicks")
    run.linked.east.delete_topic(ORDERS)
    assert (said(run), told(run)) == ([], None)
    assert made(run) == ["shop:clicks", ORDERS]


def test_a_name_that_is_taken_is_no_trouble_while_its_source_is_excluded() -> None:
    run = runner(autoCreate=ENABLED, prefix="west.")
    run.linked.east.create_topic("shop:west.orders")
    ((message, _),) = said(run)
    assert (
        message
        == "topic shop:west.orders of cluster east is in use already, so autoCreate cannot make a mirror of shop:orders"
    )
    alter(run, autoCreate={"enabled": True, "filters": [*ALL, {"name": ORDERS, "filterType": "exclude"}]})
    assert (said(run), told(run)) == ([], None)
    alter(run, autoCreate=ENABLED)
    assert [each for each, _ in said(run)] == [message]


def test_no_topic_is_in_the_way_of_its_own_mirror() -> None:
    run = runner(autoCreate=ENABLED)
    run.linked.link("west", "east", "back", mode="destination", autoCreate=ENABLED)
    assert (said(run), said(run, "west")) == ([], [])
    run.linked.provider("east").links.request_verb(ORDERS, "failover", operation="o-1")
    assert (said(run), said(run, "west"), told(run)) == ([], [], None)


def test_a_mirror_over_another_link_is_in_the_way_only_where_it_has_another_source() -> None:
    run = runner(autoCreate=ENABLED)
    run.linked.link("east", "west", "other", mode="destination")
    run.linked.mirror("east", "west", ORDERS, "other")
    run.later(5 * MINUTE)
    assert [each.errors for each in run.all()] == [{}, {}]
    run.linked.cluster("north").create_topic("shop:clicks")
    run.linked.west.create_topic("shop:clicks")
    run.linked.link("east", "north", "from-north", mode="destination")
    run.linked.mirror("east", "north", "shop:clicks", "from-north")
    run.later(5 * MINUTE)
    errors = [error.message for each in run.all() for error in each.errors.values()]
    assert errors == [
        "topic shop:clicks of cluster east is in use already, so autoCreate cannot make a mirror of shop:clicks"
    ]


@pytest.mark.fact("F-C-020", "F-C-025")
def test_with_a_prefix_none_is_made_of_a_mirror_and_by_hand_it_is() -> None:
    run = runner(autoCreate=ENABLED, prefix="west.")
    run.linked.cluster("north").create_topic("shop:clicks")
    run.linked.link("west", "north", "from-north", mode="destination")
    run.linked.mirror("west", "north", "shop:clicks", "from-north")
    assert made(run) == ["shop:west.orders"]
    run.linked.mirror("east", "west", "shop:clicks", LINK, name="shop:west.clicks")
    run.later(5 * MINUTE)
    assert made(run) == ["shop:west.clicks", "shop:west.orders"]


@pytest.mark.fact("F-C-095")
def test_without_a_prefix_chains_are_made_of_mirrors() -> None:
    run = runner(autoCreate=ENABLED)
    run.linked.cluster("far")
    run.linked.link("far", "east", "onwards", mode="destination", autoCreate=ENABLED)
    run()
    assert made(run, "far") == [ORDERS]


@pytest.mark.fact("F-C-025")
def test_links_in_both_directions_make_no_mirrors_for_ever() -> None:
    run = runner(autoCreate=ENABLED, prefix="a.")
    run.linked.link("west", "east", "back", mode="destination", autoCreate=ENABLED, prefix="b.")
    for _ in range(3):
        run.later(5 * MINUTE)
        assert (made(run), made(run, "west")) == (["shop:a.orders"], [])


@pytest.mark.fact("F-C-024")
def test_none_is_made_of_internal_topics_or_schemas_which_only_a_hand_may_mirror() -> None:
    run = runner(autoCreate=ENABLED)
    for name in ("__consumer_timestamps", "_confluent-metrics", "confluent-audit-log-events", "_schemas"):
        run.linked.west.create_topic(name)
    assert made(run) == [ORDERS]
    run.linked.mirror("east", "west", "_schemas")
    with pytest.raises(UserError, match="never mirrored"):
        run.linked.mirror("east", "west", "confluent-audit-log-events")


@pytest.mark.fact("F-C-021")
def test_it_looks_once_in_a_metadata_interval_and_finds_later_topics() -> None:
    run = runner(autoCreate=ENABLED)
    run.interval_ms = 0
    assert made(run) == [ORDERS]
    run.linked.west.create_topic("shop:clicks")
    run.later(5 * MINUTE - 1)
    assert made(run) == [ORDERS]
    run.later(1)
    assert made(run) == ["shop:clicks", ORDERS]
    run.linked.west.create_topic("shop:views")
    assert made(Runner(run.linked)) == ["shop:clicks", ORDERS, "shop:views"]  # Whoever starts anew looks.


@pytest.mark.fact("F-C-021")
def test_a_metadata_interval_may_be_another() -> None:
    run = runner(autoCreate=ENABLED, metadataInterval="1m")
    run()
    run.linked.west.create_topic("shop:clicks")
    run.later(MINUTE)
    assert made(run) == ["shop:clicks", ORDERS]


@pytest.mark.parametrize("interval", ["5m", "infinite"])
def test_what_was_due_while_the_source_did_not_answer_is_done_as_soon_as_it_does(interval: str) -> None:
    run = runner(autoCreate=ENABLED, metadataInterval=interval)
    run.interval_ms = 0
    run.over["west"] = Refusing()
    assert made(run) == []
    run.over.clear()
    assert made(run) == [ORDERS]


@pytest.mark.fact("F-C-026")
def test_what_was_made_by_hand_before_is_left_as_it_is() -> None:
    run = runner(autoCreate=ENABLED)
    of = run.linked.west.source_topic(ORDERS)
    shape = MirrorShape(link=LINK, source=ORDERS, configs={"min.insync.replicas": "2"})
    run.linked.east.create_mirror(ORDERS, shape, of)
    run()
    entry = run.linked.east.topic(ORDERS)
    assert (entry.configs, run.linked.seen("east").is_automatic) == ({"min.insync.replicas": "2"}, False)


@pytest.mark.fact("F-K-003")
def test_a_namespace_that_is_missing_is_told_and_stops_no_other_mirror() -> None:
    run = runner(autoCreate=ENABLED)
    run.linked.west.create_namespace("lab")
    run.linked.west.create_topic("lab:a")
    run.linked.west.create_topic("lab:b")
    assert made(run) == [ORDERS]
    code, message = told(run) or ("", "")
    assert (code, message) == ("InvalidNamespaceError", "lab:a: namespace lab does not exist (and 1 more)")
    assert run.linked.east.namespaces() == ["shop"]
    with pytest.raises(InvalidNamespaceError, match="namespace lab does not exist"):
        run.linked.mirror("east", "west", "lab:a")
    assert run.linked.east.namespaces() == ["shop"]
    run.linked.east.create_namespace("lab")
    run.later(5 * MINUTE)
    assert (made(run), told(run)) == (["lab:a", "lab:b", ORDERS], None)


def test_quotas_hold_for_what_a_link_makes_and_are_told() -> None:
    run = runner(autoCreate=ENABLED)
    for name in ("shop:a", "shop:b"):
        run.linked.west.create_topic(name)
    run.linked.east.limit_namespace("shop", QuotaEntry(topics=2))
    assert made(run) == ["shop:a", "shop:b"]
    code, message = told(run) or ("", "")
    assert code == "POLICY_VIOLATION_ERROR"
    assert "namespace shop may hold 2 topics: with shop:orders it would be 3" in message


def test_what_was_wrong_is_over_once_nothing_is_made_any_more() -> None:
    run = runner(autoCreate=ENABLED)
    run.linked.west.create_topic("x" * 200)
    run.linked.east.limit_namespace("shop", QuotaEntry(topics=0))
    run()
    assert told(run) is not None
    alter(run, autoCreate={"enabled": False})
    run()
    assert told(run) is None


@pytest.mark.fact("F-C-023")
@pytest.mark.parametrize("task", ["autoCreate", "consumerOffsetSync"])
def test_enabling_without_filters_is_refused_and_disabling_clears_them(task: str) -> None:
    run = runner(**{task: {"enabled": True, "filters": ALL}})
    with pytest.raises(UserError, match="is enabled and has no filters"):
        alter(run, **{task: {"enabled": True}})
    with pytest.raises(UserError, match="is enabled and has no filters"):
        run.linked.east.create_link("other", LinkEntry("l-2", "west", {"source": "west", task: {"enabled": True}}))
    alter(run, **{task: {"enabled": False, "filters": ALL}})
    kept = run.linked.east.catalog.read().links[LINK].declared[task]
    assert (kept["enabled"], kept["filters"]) == (False, [])
    written = MirrorLinkSpec.model_validate({"source": "west", task: {"enabled": False, "filters": ALL}})
    assert written.to_json()[task]["filters"] == []


@pytest.mark.fact("F-C-027")
def test_a_mirror_that_would_be_made_again_is_deleted_only_once_it_is_excluded_or_over() -> None:
    run = runner(autoCreate=ENABLED)
    run()
    with pytest.raises(BlockedError, match="autoCreate filters"):
        run.linked.east.delete_topic(ORDERS)
    alter(run, autoCreate={"enabled": True, "filters": [*ALL, {"name": ORDERS, "filterType": "exclude"}]})
    assert run.linked.east.delete_topic(ORDERS)
    run.later(5 * MINUTE)
    assert made(run) == []


@pytest.mark.fact("F-C-027")
@pytest.mark.parametrize("verb", ["failover", "promote"])
def test_one_on_its_way_cannot_be_deleted_and_one_that_stopped_can(verb: str) -> None:
    run = runner(autoCreate=ENABLED)
    run()
    links = run.linked.provider("east").links
    links.request_verb(ORDERS, verb, operation="o-1")
    if verb == "promote":
        with pytest.raises(UserError, match="PENDING_STOPPED"):
            run.linked.east.delete_topic(ORDERS)
        run()
    assert run.linked.status("east") == "STOPPED"
    assert run.linked.east.delete_topic(ORDERS)


@pytest.mark.fact("F-C-027")
def test_one_that_failed_can_be_deleted_and_is_made_afresh() -> None:
    run = runner(autoCreate=ENABLED)
    run()
    run.linked.west.delete_topic(ORDERS)
    run.linked.west.create_topic(ORDERS)
    run()
    assert run.linked.status("east") == "FAILED"
    assert run.linked.east.delete_topic(ORDERS)
    run.later(5 * MINUTE)
    assert (made(run), run.linked.status("east")) == ([ORDERS], "ACTIVE")


def test_many_topics_cost_one_look_at_each_catalog_and_one_commit() -> None:
    run = runner(autoCreate=ENABLED)
    for name in ("shop", "lab"):
        for number in range(50):
            run.linked.west.create_topic(f"{name}.{number}")
    west, east = Counting(run.linked.stores["west"]), Counting(run.linked.stores["east"])
    run.over = {"west": west, "east": east}
    before = run.serial()
    run()
    assert len(run.linked.provider("east").links.list_mirrors()) == 101
    assert run.serial() == before + 2  # Which cluster it met, and the mirrors.
    for most in (6, 4):  # Once more after what the pass itself did, then no topic is looked at.
        west.calls.clear()
        east.calls.clear()
        run.later(5 * MINUTE)
        run()
        assert sum(west.calls.values()) <= most
        assert east.calls["get"] <= most + 2
        assert set(east.calls) <= {"get", "delete"}  # A commit of nothing deletes nothing.
