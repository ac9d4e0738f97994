"""What is wrong with files whatever the clusters say."""

from __future__ import annotations

from datetime import date
from typing import Any

from reconciler.planning.checks.offline import check_offline
from reconciler.resources.inventory import Desired
from reconciler.resources.workspace import Guards
from tests.planning.short import declared

TODAY = date(2026, 6, 1)


def desired(*items: dict[str, Any]) -> Desired:
    return dict(declared(item) for item in ({"cluster": "west"}, *items))


def messages(found: Desired, guards: dict[str, Any] | None = None) -> list[str]:
    return [item.message for item in check_offline(found, Guards.model_validate(guards or {}), today=TODAY)]


def test_sound_files_have_nothing_to_say() -> None:
    assert messages(desired({"namespace": "shop"}, {"topic": "shop:orders"})) == []


def test_rules_and_what_lies_outside_are_errors() -> None:
    guards = {
        "only": ["topic/west/shop:*"],
        "rules": [{"match": "topic/*", "require": {"partitions": {"min": 3}}, "message": "ask"}],
    }
    assert messages(desired({"topic": "orders"}), guards) == [
        "ask (partitions is 1, allowed: 3 to any)",
        "it is outside the addresses that this workspace may manage (topic/west/shop:*)",
    ]


def test_a_reviewed_allowance_exempts_from_rules_and_one_of_a_deletion_does_not() -> None:
    rules = [{"match": "topic/*", "require": {"partitions": {"min": 3}}, "message": "ask"}]
    for action, count in [
        ("update:topic/west/orders", 0),
        ("create:topic/west/o*", 0),
        ("delete:topic/west/orders", 1),
    ]:
        allow = [{"action": action, "until": "2026-07-01", "reason": "OPS-1"}]
        assert len(messages(desired({"topic": "orders"}), {"rules": rules, "allow": allow})) == count


def test_what_has_expired_is_an_error_on_the_day_after() -> None:
    guards: dict[str, Any] = {"allow": [{"action": "delete:topic/west/a", "until": "2026-05-31", "reason": "OPS-1"}]}
    assert len(messages(desired(), guards)) == 1
    assert check_offline(desired(), Guards.model_validate(guards)) == ()


def test_references_that_lead_nowhere_are_errors() -> None:
    found = desired({"topic": "a", "tieringPolicy": "none"}, {"topic": "b", "where": "north"})
    assert messages(found) == ["cluster north is not declared", "tieringPolicy none is not declared"]


def test_a_topic_that_is_a_mirror_too_is_an_error() -> None:
    found = desired(
        {"cluster": "east"},
        {"topic": "orders"},
        {"topic": "orders", "where": "east"},
        {"link": "l", "where": "east", "source": "west", "mirrors": ["orders"]},
    )
    assert messages(found) == ["topic/east/orders is also declared as a topic, at manifests/all.yaml:1"]


def test_each_requirement_of_a_rule_says_what_is_wrong() -> None:
    require = {
        "name": "[a-z]+",
        "replicationFactor": {"max": 3},
        "labels": ["team"],
        "configs": {"min.insync.replicas": [2]},
    }
    guards = {"rules": [{"match": "topic/*", "require": require, "message": "ask"}]}
    assert messages(
        desired({"topic": "T-1"}, {"topic": "b", "replicationFactor": 4, "labels": {"team": "x"}}), guards
    ) == [
        "ask (name T-1 does not match [a-z]+)",
        "ask (replicationFactor is not set)",
        "ask (label team is missing)",
        "ask (min.insync.replicas is not set, allowed: 2)",
        "ask (replicationFactor is 4, allowed: 1 to 3)",
        "ask (min.insync.replicas is not set, allowed: 2)",
    ]
