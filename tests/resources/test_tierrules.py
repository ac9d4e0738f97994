"""What configs make of tiering: the tables of switches, and how the local and total limits come about."""

from __future__ import annotations

import pytest

from reconciler.resources.tiering_policy import (
    CLUSTER,
    Configs,
    Switches,
    Targets,
    apply_layer,
    read_disable_policy,
    read_switches,
    read_targets,
)

HOUR = 60 * 60 * 1000
DAY = 24 * HOUR
MIB = 2**20


def said(**tiers: dict[str, str]) -> Configs:
    """Lay tiers over each other, the farthest first."""
    found: dict[str, tuple[str, str]] = {}
    for origin, configs in tiers.items():
        apply_layer(found, configs, origin)
    return found


@pytest.mark.parametrize(
    ("configs", "expected"),
    [
        ({}, Switches(write=False, read=False)),
        ({"remote.write": "true"}, Switches(write=True, read=False)),
        ({"remote.read": "true"}, Switches(write=False, read=True)),
        ({"remote.storage.enable": "true"}, Switches(write=True, read=True)),
        ({"remote.storage.enable": "true", "remote.log.copy.disable": "true"}, Switches(write=False, read=True)),
        ({"remote.log.copy.disable": "true"}, Switches(write=False, read=False)),
        ({"remote.storage.enable": "true", "remote.read": "false"}, Switches(write=True, read=False)),
    ],
)
def test_both_platforms_words_switch_tiering(configs: dict[str, str], expected: Switches) -> None:
    assert read_switches(said(topic=configs)) == expected


@pytest.mark.parametrize(
    ("farther", "nearer", "expected"),
    [
        ({"remote.write": "true", "remote.read": "true"}, {"remote.storage.enable": "false"}, (False, False)),
        ({"remote.storage.enable": "true"}, {"remote.write": "false"}, (False, True)),
        ({"remote.write": "true", "remote.read": "true"}, {"remote.log.copy.disable": "true"}, (False, True)),
        ({"remote.write": "true", "remote.read": "true"}, {"remote.log.copy.disable": "false"}, (True, True)),
        ({"remote.write": "false"}, {"remote.storage.enable": "true"}, (True, True)),
    ],
)
def test_the_nearest_tier_wins_in_whichever_words_it_says_it(
    farther: dict[str, str], nearer: dict[str, str], expected: tuple[bool, bool]
) -> None:
    found = read_switches(said(namespace=farther, topic=nearer))
    assert (found.write, found.read) == expected


@pytest.mark.fact("F-K-052")
@pytest.mark.parametrize(
    ("tiers", "expected"),
    [
        ({}, "retain"),
        ({"topic": {"remote.log.disable.policy": "delete"}}, "delete"),
        ({"topic": {"remote.log.delete.on.disable": "true"}}, "delete"),
        (
            {"shop": {"remote.log.disable.policy": "retain"}, "topic": {"remote.log.delete.on.disable": "true"}},
            "delete",
        ),
        (
            {"shop": {"remote.log.delete.on.disable": "true"}, "topic": {"remote.log.disable.policy": "retain"}},
            "retain",
        ),
    ],
)
def test_switching_off_retains_unless_delete_is_asked_for(tiers: dict[str, dict[str, str]], expected: str) -> None:
    assert read_disable_policy(said(**tiers)) == expected


def limits(targets: Targets) -> tuple[int | None, int | None, int | None, int | None]:
    return targets.total_ms, targets.total_bytes, targets.local_ms, targets.local_bytes


@pytest.mark.parametrize(
    ("tiers", "expected"),
    [
        pytest.param({}, (7 * DAY, None, DAY, None), marks=pytest.mark.fact("F-R-028")),
        pytest.param(
            {"topic": {"retention.ms": str(30 * DAY)}}, (30 * DAY, None, DAY, None), marks=pytest.mark.fact("F-R-026")
        ),
        pytest.param(
            {"topic": {"retention.ms": str(HOUR)}}, (HOUR, None, HOUR, None), marks=pytest.mark.fact("F-R-026")
        ),
        pytest.param(
            {CLUSTER: {"retention.local.target.ms": str(6 * HOUR)}, "topic": {"retention.ms": str(30 * DAY)}},
            (30 * DAY, None, 6 * HOUR, None),
            marks=pytest.mark.fact("F-R-026"),
        ),
        pytest.param(
            {CLUSTER: {"retention.local.target.bytes": str(64 * MIB)}, "topic": {"retention.bytes": str(8 * MIB)}},
            (7 * DAY, 8 * MIB, DAY, 8 * MIB),
            marks=pytest.mark.fact("F-R-026"),
        ),
        pytest.param(
            {"topic": {"retention.local.target.ms": str(10 * DAY)}},
            (10 * DAY, None, 10 * DAY, None),
            marks=pytest.mark.fact("F-R-027"),
        ),
        pytest.param(
            {"topic": {"retention.local.target.bytes": str(64 * MIB), "retention.bytes": str(8 * MIB)}},
            (7 * DAY, 8 * MIB, DAY, 8 * MIB),
            marks=pytest.mark.fact("F-R-027"),
        ),
        pytest.param(
            {CLUSTER: {"retention.ms": str(HOUR)}, "topic": {"local.retention.ms": str(6 * HOUR)}},
            (6 * HOUR, None, 6 * HOUR, None),
            marks=pytest.mark.fact("F-R-027"),
        ),
        pytest.param({"topic": {"retention.ms": "-1", "retention.bytes": "-1"}}, (None, None, DAY, None)),
        pytest.param({"topic": {"local.retention.ms": "-2"}}, (7 * DAY, None, 7 * DAY, None)),
        pytest.param(
            {"shop": {"retention.local.target.ms": str(HOUR)}, "topic": {"local.retention.ms": str(2 * HOUR)}},
            (7 * DAY, None, 2 * HOUR, None),
        ),
    ],
)
def test_limits_follow_the_rules_of_creation(
    tiers: dict[str, dict[str, str]], expected: tuple[int | None, int | None, int | None, int | None]
) -> None:
    assert limits(read_targets(said(**tiers))) == expected


@pytest.mark.parametrize(
    ("tiers", "key", "rule"),
    [
        ({}, "retention.ms", "not set: the default"),
        ({"topic": {"retention.ms": str(HOUR)}}, "retention.ms", "set by topic"),
        (
            {"topic": {"retention.ms": str(HOUR)}},
            "retention.local.target.ms",
            "capped at the total: nothing local is kept longer than in total",
        ),
        ({"shop": {"local.retention.ms": str(HOUR)}}, "retention.local.target.ms", "local.retention.ms, set by shop"),
        ({"topic": {"local.retention.bytes": "-2"}}, "retention.local.target.bytes", "as much as in total"),
        (
            {CLUSTER: {"retention.ms": str(HOUR)}, "topic": {"retention.local.target.ms": str(DAY)}},
            "retention.ms",
            "raised to the local target",
        ),
        ({"topic": {"retention.local.strict": "true"}}, "retention.local.strict", "set by topic"),
    ],
)
def test_each_number_says_by_which_rule_it_came_about(tiers: dict[str, dict[str, str]], key: str, rule: str) -> None:
    assert rule in read_targets(said(**tiers)).rules[key]
