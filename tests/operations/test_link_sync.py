"""Access rules that follow their topics over a link, and those that are nobody's business but the destination's."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import ValidationError

from reconciler.embedded.catalog.mirror_tables import alter_link
from reconciler.embedded.catalog.model import AclEntry, QuotaEntry
from reconciler.embedded.segments.groups import read_group
from reconciler.errors import IncompleteError, LeaseError, ReconcilerError, UserError
from reconciler.operations.mirrors.mirror_rounds import MirrorRounds, sort_sources_first
from reconciler.operations.steps.link_pass import LinkPass, sync_links
from reconciler.operations.steps.mirror_copy import Copier
from reconciler.operations.steps.transitions import CatchUp
from reconciler.resources.inventory import Inventory, Observed
from reconciler.resources.mirror_link import ALWAYS_SYNCED, MirrorLink, MirrorLinkSpec
from reconciler.resources.mirrors import ACL_SYNC, CONSUMER_OFFSET_SYNC, TOPIC_CONFIGS_SYNC, LinkEntry
from reconciler.resources.owners import ResourceOwner
from tests.embedded.links.linked import LINK, ORDERS, Linked, mirrored
from tests.engines import here
from tests.operations.stage import (
    ALL,
    CLUSTER,
    MINUTE,
    TOPIC,
    Counting,
    Refusing,
    Runner,
    denied,
    opened,
    produce,
    runner,
    upkeep,
    values,
)

if TYPE_CHECKING:
    from conftest import Bench

    from reconciler.resources.mirrors import ObservedMirror


ALICE, BOB, CAROL = (AclEntry(f"User:{name}", "allow", ("read",)) for name in ("alice", "bob", "carol"))


def allow(name: str, *operations: str, **more: Any) -> AclEntry:
    return AclEntry(f"User:{name}", "allow", operations, **more)


def syncing(*filters: dict[str, str]) -> Runner:
    """Return a mirror over a link that brings the rules which filters take: all of topics, unless told otherwise."""
    run = runner(aclSync={"enabled": True, "filters": list(filters) or [{"resourceType": "topic"}]})
    run.linked.mirror("east", "west")
    return run


def rules(run: Runner, cluster: str = "east") -> dict[str, tuple[str, ...]]:
    """Return who may do what with the topic, by its own rules."""
    return {rule.principal: rule.operations for rule in run.linked.cluster(cluster).topic(ORDERS).acls}


def of_shop(run: Runner) -> list[AclEntry]:
    return list(run.linked.east.catalog.read().namespaces["shop"].acls)


@pytest.mark.fact("F-C-043")
def test_only_rules_that_match_are_copied_and_others_are_never_touched() -> None:
    run = syncing({"resourceType": "topic", "principal": "User:alice", "operation": "read"})
    run.linked.west.set_topic_acls(ORDERS, [allow("alice", "read", "write"), BOB])
    run.linked.east.set_topic_acls(ORDERS, [CAROL])
    assert run().done[ACL_SYNC] == 1
    assert rules(run) == {"User:alice": ("read",), "User:carol": ("read",)}


@pytest.mark.fact("F-C-043")
def test_a_rule_that_went_at_the_source_goes_and_comes_with_it() -> None:
    run = syncing()
    run.linked.west.set_topic_acls(ORDERS, [ALICE, BOB])
    run.linked.east.set_topic_acls(ORDERS, [CAROL])
    run()
    assert sorted(rules(run)) == ["User:alice", "User:bob", "User:carol"]
    run.linked.west.set_topic_acls(ORDERS, [BOB])
    Runner(run.linked)()  # What was brought is remembered by the cluster, whoever does the next pass.
    assert sorted(rules(run)) == ["User:bob", "User:carol"]
    run.linked.west.set_topic_acls(ORDERS, [])
    run()
    assert sorted(rules(run)) == ["User:carol"]


@pytest.mark.fact("F-C-043")
def test_a_rule_that_both_have_stays_when_it_goes_at_the_source() -> None:
    run = syncing()
    run.linked.east.set_topic_acls(ORDERS, [ALICE])
    run.linked.west.set_topic_acls(ORDERS, [allow("alice", "read", "write")])
    run()
    assert rules(run) == {"User:alice": ("read", "write")}
    run.linked.west.set_topic_acls(ORDERS, [])
    run()
    assert rules(run) == {"User:alice": ("read",)}


def test_a_rule_that_was_taken_away_here_is_brought_again() -> None:
    run = syncing()
    run.linked.west.set_topic_acls(ORDERS, [ALICE])
    run()
    run.linked.east.set_topic_acls(ORDERS, [CAROL])
    run()
    assert sorted(rules(run)) == ["User:alice", "User:carol"]


@pytest.mark.fact("F-C-043")
def test_rules_of_namespaces_are_copied_where_the_namespace_is_here() -> None:
    run = syncing({"resourceType": "group"})
    run.linked.west.create_namespace("lab")
    both = allow("alice", "read", resources=("groups", "topics"), names=("pay-*",))
    for namespace in ("shop", "lab"):
        run.linked.west.set_namespace_acls(namespace, [both, BOB])
    run.linked.east.set_namespace_acls("shop", [CAROL])
    run()
    assert of_shop(run) == [allow("alice", "read", resources=("groups",), names=("pay-*",)), CAROL]
    run.linked.west.set_namespace_acls("shop", [])
    run()
    assert of_shop(run) == [CAROL]


def test_rules_of_topics_that_are_not_mirrored_are_left() -> None:
    run = syncing()
    for cluster in (run.linked.west, run.linked.east):
        cluster.create_topic("shop:own")
    run.linked.west.set_topic_acls("shop:own", [ALICE])
    run()
    assert run.linked.east.topic("shop:own").acls == ()


@pytest.mark.fact("F-C-043")
def test_without_filters_the_task_says_that_it_is_misconfigured() -> None:
    linked = Linked()
    linked.west.create_topic(ORDERS)
    linked.east.create_link(LINK, LinkEntry("l-1", "west", {"source": "west", "aclSync": {"enabled": True}}))
    linked.mirror("east", "west")
    linked.west.set_topic_acls(ORDERS, [ALICE])
    run = Runner(linked)
    run()
    found = run.link().tasks[ACL_SYNC]
    assert (found.code, "acl.filters is not set" in found.message, rules(run)) == ("MISCONFIGURATION_ERROR", True, {})
    declared = {"source": "west", "aclSync": {"enabled": True, "filters": [{"principal": "User:alice"}]}}
    linked.east.catalog.commit(lambda draft: alter_link(draft, LINK, declared))
    run()
    assert (run.link().tasks, rules(run)) == ({}, {"User:alice": ("read",)})


@pytest.mark.fact("F-C-031")
def test_with_a_prefix_rules_are_never_brought() -> None:
    with pytest.raises(ValidationError, match="a link with a prefix cannot sync ACLs"):
        MirrorLinkSpec.model_validate({"source": "w", "prefix": "a.", "aclSync": {"enabled": True, "filters": [{}]}})


def test_what_was_brought_stays_when_the_mirror_becomes_a_topic_and_is_its_own_then() -> None:
    run = syncing()
    run.linked.west.set_topic_acls(ORDERS, [ALICE])
    run()
    run.linked.provider("east").links.request_verb(ORDERS, "failover")
    run.linked.west.set_topic_acls(ORDERS, [])
    run.later(MINUTE)
    run()
    assert rules(run) == {"User:alice": ("read",)}


# Configs and partitions of mirrors, which follow their sources without anybody's doing.


def mirroring(**spec: Any) -> Runner:
    run = runner(**spec)
    run.linked.mirror("east", "west")
    return run


def effective(run: Runner, key: str) -> tuple[str | None, str | None]:
    """Return what holds for the source, and for the mirror."""
    west, east = (cluster.effective_configs(ORDERS)[key].value for cluster in (run.linked.west, run.linked.east))
    return west, east


@pytest.mark.fact("F-C-050", "F-C-051", "F-C-056")
@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("cleanup.policy", "compact"),
        ("max.message.bytes", "2097152"),
        ("message.timestamp.type", "LogAppendTime"),
        ("message.timestamp.difference.max.ms", "9000"),
        ("retention.ms", "3600000"),
        ("retention.bytes", "1000000"),
        ("delete.retention.ms", "1000"),
        ("min.compaction.lag.ms", "1000"),
        ("max.compaction.lag.ms", "100000"),
    ],
)
def test_what_is_synced_follows_and_goes_back_with_its_source(key: str, value: str) -> None:
    run = mirroring()
    run.linked.west.alter_topic(ORDERS, {key: value})
    run()
    assert effective(run, key) == (value, value)
    with pytest.raises(UserError, match="follows its source"):
        run.linked.east.alter_topic(ORDERS, {key: value})
    run.linked.west.alter_topic(ORDERS, {key: None})
    run()
    assert effective(run, key)[0] == effective(run, key)[1] != value


@pytest.mark.fact("F-C-050")
@pytest.mark.parametrize("by_hand", [True, False])
def test_what_namespaces_say_at_the_destination_never_comes_between(*, by_hand: bool) -> None:
    run = runner() if by_hand else runner(autoCreate={"enabled": True, "filters": [{"name": "*"}]})
    run.linked.east.alter_namespace("shop", {"max.message.bytes": "2MiB", "min.insync.replicas": "2"})
    if by_hand:
        run.linked.mirror("east", "west")
    run()
    assert effective(run, "max.message.bytes") == ("1048588", "1048588")
    assert effective(run, "min.insync.replicas") == ("1", "2")
    run.linked.east.alter_namespace("shop", {"max.message.bytes": None})
    run()
    assert "max.message.bytes" not in run.linked.east.topic(ORDERS).configs


@pytest.mark.fact("F-C-050")
def test_what_a_source_inherits_from_its_namespace_is_its_config_too() -> None:
    run = mirroring()
    run.linked.west.alter_namespace("shop", {"retention.ms": "2h"})
    run()
    assert effective(run, "retention.ms") == ("7200000", "7200000")


@pytest.mark.fact("F-C-051", "F-C-052", "F-C-055")
def test_what_a_complete_list_leaves_out_is_the_mirrors_own() -> None:
    run = mirroring(topicConfigSync={"include": list(ALWAYS_SYNCED)})
    run.linked.west.alter_topic(ORDERS, {"retention.ms": "1h", "cleanup.policy": "compact"})
    run()
    assert effective(run, "retention.ms") == ("3600000", "604800000")
    assert effective(run, "cleanup.policy") == ("compact", "compact")
    run.linked.east.alter_topic(ORDERS, {"retention.ms": "2h"})
    run()
    assert effective(run, "retention.ms") == ("3600000", "7200000")


@pytest.mark.fact("F-C-052")
@pytest.mark.parametrize("key", ["min.insync.replicas", "compression.type", "segment.ms"])
def test_what_is_optional_follows_only_where_it_is_listed(key: str) -> None:
    value = "gzip" if key == "compression.type" else "2" if key == "min.insync.replicas" else "7200000"
    plain, listing = mirroring(), mirroring(topicConfigSync={"include": [*ALWAYS_SYNCED, key]})
    for run in (plain, listing):
        run.linked.west.alter_topic(ORDERS, {key: value})
        run()
    assert (effective(plain, key)[1] == value, effective(listing, key)[1] == value) == (False, True)


@pytest.mark.fact("F-C-053")
@pytest.mark.parametrize("key", ["remote.write", "remote.log.delete.on.disable", "local.retention.ms"])
def test_where_records_lie_is_the_destinations_own_and_cannot_be_listed(key: str) -> None:
    with pytest.raises(ValidationError, match=f"names what is never synced: {key}"):
        MirrorLinkSpec.model_validate({"source": "west", "topicConfigSync": {"include": [*ALWAYS_SYNCED, key]}})
    run = mirroring()
    run.linked.west.alter_topic(ORDERS, {key: "1000" if key.endswith("ms") else "false"})
    run()
    assert run.linked.east.topic(ORDERS).configs == {}


@pytest.mark.fact("F-C-008")
def test_partitions_grow_with_their_source_and_are_told_where_a_quota_forbids_that() -> None:
    run = mirroring()
    run.linked.west.alter_topic(ORDERS, partitions=3)
    run()
    assert run.linked.east.topic(ORDERS).partitions == 3
    run.linked.east.limit_namespace("shop", QuotaEntry(partitions=4))
    run.linked.west.alter_topic(ORDERS, partitions=6)
    run()
    told = run.link().tasks[TOPIC_CONFIGS_SYNC]
    assert (told.code, run.linked.east.topic(ORDERS).partitions) == ("POLICY_VIOLATION_ERROR", 3)
    assert "shop:orders: namespace shop may hold 4 partitions" in told.message
    run.linked.east.limit_namespace("shop", None)
    run()
    assert (run.link().tasks, run.linked.east.topic(ORDERS).partitions) == ({}, 6)


@pytest.mark.fact("F-C-061")
def test_a_paused_mirror_follows_nothing_until_it_is_resumed() -> None:
    run = mirroring()
    links = run.linked.provider("east").links
    links.request_verb(ORDERS, "pause")
    run.linked.west.alter_topic(ORDERS, partitions=2)
    run()
    assert run.linked.east.topic(ORDERS).partitions == 1
    links.request_verb(ORDERS, "resume")
    run()
    assert run.linked.east.topic(ORDERS).partitions == 2


# Groups that follow their topics over a link.


GROUP = "shop:checkout"
SYNCING = {"enabled": True, "filters": ALL}
DAY = 24 * 60 * MINUTE


def groups_run(**spec: Any) -> Runner:
    """Return a mirror of ten records, and a link that brings all groups unless told otherwise."""
    return Runner(mirrored(**{"mode": "destination", "consumerOffsetSync": SYNCING, **spec}))


def commit(linked: Linked, cluster: str, offset: int, group: str = GROUP, topic: str = ORDERS) -> None:
    linked.cluster(cluster).groups.commit(group, {(topic, 0): offset})


def at(linked: Linked, cluster: str = "east", group: str = GROUP, topic: str = ORDERS) -> int | None:
    """Return where a group would go on reading."""
    return linked.cluster(cluster).groups.read_committed_offsets(group, [topic]).get((topic, 0))


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
    run = groups_run(**({} if spec is None else {"consumerOffsetSync": spec}))
    if spec is None:
        run = Runner(mirrored(mode="destination"))
    commit(run.linked, "west", 4)
    run()
    assert at(run.linked) is None


@pytest.mark.fact("F-C-040", "F-C-033")
def test_groups_that_are_taken_are_brought_for_all_mirrors_of_the_link_under_their_names() -> None:
    run = groups_run(consumerOffsetSync={"enabled": True, "filters": [{"name": "shop:", "patternType": "prefixed"}]})
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
    assert run.linked.east.groups.list_names() == [GROUP]


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
    assert linked.cluster("plain").groups.list_names() == [GROUP]
    assert linked.cluster("both").groups.list_names() == ["shop:w.checkout"]
    assert at(linked, "both", "shop:w.checkout", "shop:w.orders") == 2


@pytest.mark.fact("F-C-041")
def test_an_offset_that_is_not_mirrored_yet_is_brought_as_the_end_and_again_once_it_is() -> None:
    run = groups_run()
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
    linked.provider("east").links.request_verb(ORDERS, "failover")
    linked.produce("east", "after")
    assert (at(linked), at(linked, group="shop:fast")) == (80, 90)


@pytest.mark.fact("F-C-042", "F-C-063")
def test_promoting_brings_every_group_whatever_is_due() -> None:
    run = groups_run(consumerOffsetSync={**SYNCING, "interval": "1h"})
    run()
    run.linked.produce("west", "more")
    commit(run.linked, "west", 11)
    run.linked.west.alter_topic(ORDERS, {"retention.ms": "1h"})
    run.linked.provider("east").links.request_verb(ORDERS, "promote", operation="p-1")
    assert run().drove == (ORDERS,)
    assert (run.linked.status("east"), at(run.linked)) == ("STOPPED", 11)
    assert run.linked.east.topic(ORDERS).configs == {"retention.ms": "3600000"}


@pytest.mark.parametrize(
    "error", [IncompleteError("stopped", hint="Go on."), LeaseError("it is lost", hint="Wait.")], ids=["stop", "lease"]
)
def test_who_is_stopped_or_loses_the_lease_in_a_transition_notes_no_trouble_of_the_mirror(
    error: ReconcilerError,
) -> None:
    run = Runner(mirrored(mode="destination"))
    over: list[ReconcilerError] = []

    def copy(*_given: object) -> None:
        over.append(error)
        raise error

    def may_go_on() -> None:
        for each in over:
            raise each

    with pytest.raises(type(error)):
        replace(run.driver(), copy=copy, may_go_on=may_go_on).promote("east", ORDERS)
    assert (run.linked.status("east"), run.linked.provider("east").links.read_mirror(ORDERS).trouble) == (
        "PENDING_STOPPED",
        None,
    )


def test_a_mirror_whose_link_waits_for_ever_is_caught_up_with_however_long_its_lag_stays() -> None:
    run = Runner(mirrored(mode="destination", retryTimeout="infinite"))
    producer = run.linked.west.producer("checkout")
    producer.init_transactions()
    producer.begin()
    producer.send(ORDERS, "open", partition=0)
    producer.flush()
    copies, hours = itertools.count(1), itertools.count()

    def copy(mirror: ObservedMirror) -> None:
        if next(copies) == 3:
            producer.commit()
        run.linked.copy(mirror, None)

    def clock() -> float:
        return next(hours) * 3600.0

    CatchUp(run.driver().providers, copy, lambda: False, clock).run("east", ORDERS)
    assert next(copies) == 4


@pytest.mark.fact("F-C-042")
def test_a_group_that_moves_goes_on_where_it_was_and_has_the_last_word_from_then_on() -> None:
    run = groups_run()
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
    run = groups_run()
    commit(run.linked, "east", 3)
    commit(run.linked, "west", 5)
    run()
    assert told(run) is not None
    run.later(DAY)
    run()
    assert (told(run), kept(run.linked), at(run.linked)) == (None, ([3], [5]), 3)


def test_a_group_that_reads_another_topic_there_is_not_in_the_way() -> None:
    run = groups_run()
    run.linked.east.create_topic("shop:own")
    commit(run.linked, "east", 0, topic="shop:own")
    commit(run.linked, "west", 5)
    run()
    assert (told(run), at(run.linked)) == (None, 5)


def test_a_reset_at_the_source_is_brought_too() -> None:
    run = groups_run()
    for offset in (9, 2):
        commit(run.linked, "west", offset)
        run.later(MINUTE)
        run()
        assert at(run.linked) == offset


def test_a_namespace_that_a_group_lacks_is_told_and_stops_no_other_group() -> None:
    run = groups_run()
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
    run = groups_run(consumerOffsetSync={**SYNCING, "interval": "30s"})
    run.interval_ms = 0
    run()
    commit(run.linked, "west", 5)
    run.later(29_999)
    run()
    assert at(run.linked) is None
    run.later(1)
    run()
    assert at(run.linked) == 5


@pytest.mark.parametrize(("interval", "ms"), [(None, 5_000), ("1s", 1_000), ("1h", 3_600_000)])
def test_configs_are_synced_at_their_interval(interval: str | None, ms: int) -> None:
    run = runner(**({} if interval is None else {"topicConfigSync": {"interval": interval}}))
    run.interval_ms = 0
    run.linked.mirror("east", "west")
    run()
    run.linked.west.alter_topic(ORDERS, {"retention.ms": "86400000"})
    run.later(ms - 1)
    run()
    assert "retention.ms" not in run.linked.east.topic(ORDERS).configs
    run.later(1)
    run()
    assert run.linked.east.topic(ORDERS).configs["retention.ms"] == "86400000"


def test_a_mirror_that_is_resumed_while_another_link_is_gone_over_gets_the_configs_of_its_source() -> None:
    run = runner()
    run.linked.mirror("east", "west")
    run.linked.cluster("north")
    run.linked.link("east", "north", "aside", mode="destination")
    run.all()
    run.linked.provider("east").links.request_verb(ORDERS, "pause")
    run.linked.west.alter_topic(ORDERS, {"retention.ms": "86400000"})
    run.later(run.interval_ms)
    driver = run.driver()
    links = sync_links(LinkPass("east", driver.providers, run.pace, run.linked.clock), driver)
    assert next(links).link == "aside"
    run.linked.provider("east").links.request_verb(ORDERS, "resume")
    assert [each.link for each in links] == [LINK]
    run.all()
    assert run.linked.east.topic(ORDERS).configs["retention.ms"] == "86400000"


def test_a_destination_none_of_whose_links_is_wanted_is_asked_for_its_links_alone() -> None:
    run = runner()
    run.linked.mirror("east", "west")
    run.over["east"] = counting = Counting(run.linked.stores["east"])
    run.provider("east").links.list_links()
    alone = counting.calls.copy()
    counting.calls.clear()
    over = LinkPass("east", run.driver().providers, run.pace, run.linked.clock)
    assert list(sync_links(over, None, lambda _name: False)) == []
    assert counting.calls == alone


def test_access_rules_are_synced_at_their_interval() -> None:
    run = runner(aclSync={"enabled": True, "interval": "1m", "filters": [{"resourceType": "topic"}]})
    run.interval_ms = 0
    run.linked.mirror("east", "west")
    run()
    run.linked.west.set_topic_acls(ORDERS, [ALICE])
    run.later(MINUTE - 1)
    run()
    assert rules(run) == {}
    run.later(1)
    run()
    assert sorted(rules(run)) == ["User:alice"]


def test_only_groups_that_committed_are_read_again() -> None:
    run = groups_run()
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


def test_a_source_is_asked_as_often_for_a_link_of_another_workspace_as_for_an_own_one() -> None:
    run = runner()
    run.linked.mirror("east", "west")
    for _ in range(2):  # The second one looks once more at what the first one did.
        run()
    west = run.over["west"] = Counting(run.linked.stores["west"])
    asked = []
    for owners in ({}, {LINK: ResourceOwner("shop", None, "id", "file://shop")}):
        run.owners = owners
        run()
        asked.append(dict(west.calls))
        west.calls.clear()
    assert asked[0] == asked[1]


def test_a_mirror_that_is_new_gets_what_groups_committed_long_before() -> None:
    run = groups_run()
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
    run = groups_run()
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
    run = groups_run(mode="bidirectional")
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


# The pass over a link and the round that copies, one after the other as `run` does them: neither undoes the other.


def passes(run: Runner) -> Iterator[str]:
    """Do both, again and again, and yield what is shown of the mirror."""
    while True:
        run()
        providers = {name: run.provider(name) for name in run.linked.stores}
        MirrorRounds(Copier(providers, here()), run.linked.clock).run_round(["east"])
        yield run.linked.status("east")


@pytest.mark.fact("F-C-070", "F-C-009")
def test_nothing_is_copied_of_what_a_link_may_not_read_and_it_fails_in_the_end() -> None:
    run = Runner(mirrored(mode="destination"))
    shown = passes(run)
    run.linked.west.set_topic_acls(ORDERS, [denied()])
    run.linked.produce("west", "secret")
    before = run.serial()
    assert [next(shown), next(shown), next(shown)] == ["SOURCE_UNAVAILABLE"] * 3
    assert run.serial() == before + 2  # Which cluster it met, and the trouble, once.
    assert len(run.linked.read("east")) == 10
    run.linked.west.set_topic_acls(ORDERS, [])
    assert (next(shown), len(run.linked.read("east"))) == ("ACTIVE", 11)
    run.linked.west.set_topic_acls(ORDERS, [denied()])
    assert next(shown) == "SOURCE_UNAVAILABLE"
    run.later(5 * MINUTE + 1)
    assert next(shown) == "FAILED"
    run.linked.west.set_topic_acls(ORDERS, [])
    run.linked.produce("west", "later")
    assert (next(shown), len(run.linked.read("east"))) == ("FAILED", 11)


@pytest.mark.fact("F-C-070")
def test_a_source_that_is_gone_is_noted_once_by_whoever_finds_it() -> None:
    run = Runner(mirrored(mode="destination"))
    shown = passes(run)
    next(shown)
    run.linked.west.delete_topic(ORDERS)
    before = run.serial()
    assert [next(shown), next(shown), next(shown)] == ["SOURCE_UNAVAILABLE"] * 3
    assert run.serial() == before + 1
    run.later(5 * MINUTE + 1)
    assert next(shown) == "FAILED"


@pytest.mark.fact("F-C-069")
def test_a_source_that_does_not_answer_is_noted_once_however_it_is_put() -> None:
    run = Runner(mirrored(mode="destination"))
    shown = passes(run)
    next(shown)
    run.over["west"] = Refusing()
    before = run.serial()
    assert [next(shown), next(shown), next(shown)] == ["SOURCE_UNAVAILABLE"] * 3
    assert run.serial() == before + 1
    run.over.clear()
    assert next(shown) == "ACTIVE"


@pytest.mark.fact("F-C-070")
def test_a_link_that_is_told_to_wait_for_ever_gives_no_mirror_up() -> None:
    run = Runner(mirrored(mode="destination", retryTimeout="infinite"))
    shown = passes(run)
    next(shown)
    run.linked.west.delete_topic(ORDERS)
    assert [next(shown), next(shown)] == ["SOURCE_UNAVAILABLE"] * 2
    run.later(1_000_000 * MINUTE)
    assert next(shown) == "SOURCE_UNAVAILABLE"


# A pass of `run` over a chain of clusters: what is made, copied and committed on the first reaches the last.

FOLLOWING = """\
apiVersion: reconciler/v1
kind: MirrorLink
metadata: {name: NAME, cluster: DESTINATION}
spec:
  source: SOURCE
  mode: destination
  autoCreate: {enabled: true, filters: [{name: "*"}]}
  consumerOffsetSync: {enabled: true, interval: 1s, filters: [{name: "*"}]}
"""


def follow(bench: Bench, destination: str, source: str) -> None:
    link = FOLLOWING.replace("NAME", f"of-{source}").replace("DESTINATION", destination).replace("SOURCE", source)
    bench.write(f"manifests/{destination}-link.yaml", link)


@pytest.mark.fact("F-C-095")
@pytest.mark.parametrize("last", ["north", "asia"])
def test_one_pass_brings_topics_records_and_groups_through_a_chain(bench: Bench, last: str) -> None:
    for name in ("west", "mid", last):
        bench.write(f"manifests/{name}.yaml", CLUSTER.replace("NAME", name))
    bench.write("manifests/orders.yaml", TOPIC)
    follow(bench, "mid", "west")
    follow(bench, last, "mid")
    bench = bench.with_(environ=dict(os.environ))
    assert bench.apply().verdict is None
    produce(bench, "west", *(str(number) for number in range(50)))
    opened(bench, "west").create_topic("shop:clicks")
    with opened(bench, "west").producer() as producer:
        producer.send("shop:clicks", "c", partition=0)
    opened(bench, "west").groups.commit(GROUP, {(ORDERS, 0): 40})
    assert upkeep(bench, "mirror").verdict is None
    assert values(bench, last) == values(bench, "mid") == values(bench, "west")
    assert len(values(bench, last)) == 50
    assert [one.value for one in opened(bench, last).consume("shop:clicks")] == [b"c"]
    assert opened(bench, last).groups.read_committed_offsets(GROUP, [ORDERS]).get((ORDERS, 0)) == 40


CIRCLES = [
    ({"a": "b", "b": "c", "c": ""}, ["c", "b", "a"]),
    ({"east": "west", "west": "east", "north": "east"}, ["west", "east", "north"]),
    ({"a": "c", "b": "a", "c": "b"}, ["b", "c", "a"]),
    ({"a": "away", "b": "a"}, ["a", "b"]),
]


@pytest.mark.parametrize(("follows", "order"), CIRCLES)
def test_sources_come_first_and_circles_of_clusters_are_cut(follows: dict[str, str], order: list[str]) -> None:
    def links(name: str, source: str) -> Inventory:
        spec = {"metadata": {"name": "dr", "cluster": name}, "spec": {"source": source, "mode": "destination"}}
        link = MirrorLink.model_validate(spec)
        return {link.address: Observed(link)}

    assert (
        sort_sources_first({name: links(name, source) if source else {} for name, source in follows.items()}) == order
    )
