"""Transitions whose process was killed at a step: what a plan says then, and who goes on with them. Real processes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from reconciler.applying.events import Recovered
from reconciler.operations.apply import ApplyOptions
from reconciler.operations.drift import drift
from reconciler.operations.steps.invocation import Select
from tests.workflow.dying import die
from tests.workflow.linkedshop import (
    BACK,
    COPY,
    MIRROR,
    TOPIC,
    mirroring,
    planned,
    produce,
    status,
    upkeep,
    values,
    waiting,
    want,
)

if TYPE_CHECKING:
    from conftest import Bench

OLD = [f"a{number}" for number in range(5)]
RESUME = ApplyOptions(yes=True, resumes=True)


@pytest.fixture
def shop(bench: Bench) -> Bench:
    """Ten records on `west`, mirrored to `east` over a link that goes both ways; one more waits on `west`."""
    shop = mirroring(bench)
    produce(shop, "west", "late")
    return shop


PROMOTIONS = [
    ("ask", "before", "ACTIVE"),
    ("ask", "after", "PENDING_STOPPED"),
    ("open_heads", "before", "STOPPED"),
]


@pytest.mark.parametrize(("step", "when", "left"), PROMOTIONS)
def test_a_promotion_that_died_is_resumed_with_the_topic_it_frees(shop: Bench, step: str, when: str, left: str) -> None:
    want(shop, "promoted")
    shop.write("manifests/copy.yaml", TOPIC.replace("west", "east"))
    die(shop, step, when)
    assert status(shop) == left
    assert shop.apply(options=RESUME).verdict is None
    assert (status(shop), values(shop, "east")) == ("STOPPED", [*OLD, "late"])
    assert planned(shop) == []
    produce(shop, "east", "its own")


def test_a_promotion_that_died_is_waited_for_and_ended_by_run(shop: Bench) -> None:
    want(shop, "promoted")
    shop.write("manifests/copy.yaml", TOPIC.replace("west", "east"))
    die(shop, "aim", "after")
    assert waiting(shop) == [(MIRROR, "PENDING_STOPPED")]
    assert f"promote:{MIRROR}" not in planned(shop)
    assert upkeep(shop, "mirror").verdict is None
    assert (status(shop), values(shop, "east")) == ("STOPPED", [*OLD, "late"])
    assert shop.apply().verdict is None
    assert planned(shop) == []
    assert waiting(shop) == []


def test_a_promotion_that_died_is_ended_by_the_next_apply_before_it_plans(shop: Bench) -> None:
    want(shop, "promoted")
    shop.write("manifests/copy.yaml", TOPIC.replace("west", "east"))
    die(shop, "aim", "after")
    done = shop.apply()
    assert done.verdict is None
    (recovered,) = [event for event in shop.events if isinstance(event, Recovered)]
    assert recovered.settled == {f"promote:{MIRROR}": "partial"}
    assert [action.id for action in done.planned.plan.actions] == [f"adopt:{COPY}"]
    assert planned(shop) == []


def test_what_is_to_be_failed_over_by_now_is_not_finished_first(shop: Bench) -> None:
    want(shop, "reversed")
    die(shop, "join", "after")
    told = drift(shop.invocation, Select())
    assert [(each.address, "takes no records" in each.message) for each in told.warnings] == [(MIRROR, True)]
    want(shop, "failed-over")
    done = shop.apply(Select(allow=(f"failover:{MIRROR}",)))
    assert done.verdict is None
    assert f"failover:{MIRROR}" in [action.id for action in done.planned.plan.actions]
    assert (status(shop), values(shop, "east")) == ("STOPPED", [*OLD, "late"])
    produce(shop, "east", "its own")


REVERSALS = [
    ("join", "after", "PENDING_SYNCHRONIZE", "PENDING_MIRROR"),
    ("open_heads", "before", "STOPPED", "PENDING_MIRROR"),
    ("stand", "after", "STOPPED", "PENDING_MIRROR"),
]


@pytest.mark.fact("F-C-074")
@pytest.mark.parametrize(("step", "when", "east", "west"), REVERSALS)
def test_a_reversal_that_died_is_resumed_and_loses_nothing(
    shop: Bench, step: str, when: str, east: str, west: str
) -> None:
    want(shop, "reversed")
    die(shop, step, when)
    assert (status(shop), status(shop, "west")) == (east, west)
    assert shop.apply(options=RESUME).verdict is None
    upkeep(shop, "mirror")
    assert (status(shop), status(shop, "west")) == ("STOPPED", "ACTIVE")
    assert planned(shop) == []
    produce(shop, "east", "over there")
    upkeep(shop, "mirror")
    assert values(shop, "west") == values(shop, "east") == [*OLD, "late", "over there"]


RESTORES = [("join", "after"), ("truncate", "after")]


@pytest.mark.fact("F-C-079")
@pytest.mark.parametrize(("step", "when"), RESTORES)
def test_a_restore_that_died_cuts_once_and_is_ended_by_run(shop: Bench, step: str, when: str) -> None:
    want(shop, "failed-over")
    assert shop.apply(Select(allow=(f"failover:{MIRROR}",))).verdict is None
    produce(shop, "east", "since then")
    want(shop, "reversed")
    die(shop, step, when, f"truncate-and-restore:{BACK}")
    assert [address for address, _ in waiting(shop)] == [BACK]
    assert planned(shop) == []
    for _ in range(2):
        assert upkeep(shop, "mirror").verdict is None
    assert (status(shop), status(shop, "west")) == ("STOPPED", "ACTIVE")
    assert values(shop, "west") == values(shop, "east") == [*OLD, "since then"]
    assert shop.apply().verdict is None
    assert planned(shop) == []


@pytest.mark.fact("F-C-041")
def test_a_failover_that_died_before_its_heads_were_opened_is_whole_after_the_next_apply(shop: Bench) -> None:
    want(shop, "failed-over")
    die(shop, "open_heads", "before", f"failover:{MIRROR}")
    assert status(shop) == "STOPPED"
    assert shop.apply().verdict is None
    (recovered,) = [event for event in shop.events if isinstance(event, Recovered)]
    assert recovered.settled == {f"failover:{MIRROR}": "partial"}
    assert planned(shop) == []
    produce(shop, "east", "its own")
    assert values(shop, "east") == [*OLD, "its own"]
