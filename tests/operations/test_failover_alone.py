"""A source that is gone, and what a plan does without it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from reconciler.errors import RetryableError
from reconciler.operations.steps.invocation import Select
from tests.operations.stage import MIRROR, ORDERS, TOPIC, mirroring, opened, planned, produce, status, want

if TYPE_CHECKING:
    from conftest import Bench

ALLOWED = Select(allow=(f"failover:{MIRROR}",))


@pytest.fixture
def shop(bench: Bench) -> Bench:
    return mirroring(bench)


def lose(shop: Bench) -> None:
    (shop.folder / ".clusters/west").rename(shop.folder / "lost")


@pytest.mark.fact("F-C-065")
def test_a_failover_is_planned_and_done_while_its_source_is_gone_with_one_warning(shop: Bench) -> None:
    lose(shop)
    want(shop, "failed-over")
    plan = shop.plan().plan
    assert [(action.id, bool(action.blocked)) for action in plan.actions] == [(f"failover:{MIRROR}", True)]
    assert [(each.address, each.source) for each in plan.warnings] == [("cluster/west", "manifests/west.yaml:1")]
    assert "cannot be read, and nothing on it is planned: it is recorded, but nothing is there now" in (
        plan.warnings[0].message
    )
    assert shop.apply(ALLOWED).verdict is None
    assert status(shop) == "STOPPED"
    produce(shop, "east", "written where it failed over to")
    assert planned(shop) == []


@pytest.mark.fact("F-C-065")
def test_its_topic_is_owned_by_the_run_that_fails_over(shop: Bench) -> None:
    lose(shop)
    want(shop, "failed-over")
    shop.write("manifests/copy.yaml", TOPIC.replace("west", "east").replace("{partitions: 2}", "{partitions: 3}"))
    done = shop.apply(ALLOWED)
    assert done.verdict is None
    address = "topic/east/shop:orders"
    ids = [action.id for action in done.planned.plan.actions]
    assert ids == [f"failover:{MIRROR}", f"adopt:{address}", f"update:{address}"]
    assert opened(shop, "east").catalog.read().topics[ORDERS].partitions == 3
    assert planned(shop) == []


def test_another_cluster_that_is_gone_stops_the_plan_though_one_is_given_up(shop: Bench) -> None:
    want(shop, "failed-over")
    (shop.folder / ".clusters/east").rename(shop.folder / "lost")
    with pytest.raises(RetryableError, match="cannot read cluster east"):
        shop.plan()
