"""Access rules that follow their topics over a link, and those that are nobody's business but the destination's."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from reconciler.embedded.catalog.mirror_tables import alter_link
from reconciler.embedded.catalog.model import AclEntry
from reconciler.resources.mirror_link import MirrorLinkSpec
from reconciler.resources.mirrors import ACL_SYNC, LinkEntry
from tests.embedded.linking.linked import LINK, ORDERS, Linked
from tests.workflow.linksyncs import MINUTE, Runner, runner

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
    run.linked.provider("east").links.ask(ORDERS, "failover")
    run.linked.west.set_topic_acls(ORDERS, [])
    run.later(MINUTE)
    run()
    assert rules(run) == {"User:alice": ("read",)}
