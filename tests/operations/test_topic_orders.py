"""`topic create` and `topic delete`: what the record and the next plan say of them, and what changes meanwhile."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from reconciler.applying.events import ActionDone, ActionStarted
from reconciler.errors import BlockedError, PartialError, StalePlanError, UsageError
from reconciler.operations.clusters.topic_orders import TrimOptions, change_topic, delete_topics, trim_topic
from reconciler.operations.steps.orders import OrderResult
from reconciler.planning.orders import CreateTopicOrder
from reconciler.resources.address import Address
from tests.operations.stage import delete_namespace
from tests.operations.test_namespaces import cluster

if TYPE_CHECKING:
    from conftest import Bench

    from reconciler.planning.plan import Plan

ORDERS = "topic/west/shop:orders"
NEW = "topic/west/shop:new"


def create(bench: Bench, address: str = NEW, *, no_state: bool = False) -> OrderResult:
    acting = bench.acting("topic create", no_state=no_state)
    order = CreateTopicOrder(topic=Address(address), partitions=2, configs={"retention.ms": "7d"})
    return change_topic(acting, order)


def delete(bench: Bench, *addresses: str, shown: list[Plan] | None = None, no_state: bool = False) -> OrderResult:
    def confirm(plan: Plan) -> bool:
        if shown is not None:
            shown.append(plan)
        return True

    allow = [f"delete:{address}" for address in addresses]
    return delete_topics(bench.acting("topic delete", no_state=no_state), addresses, confirm=confirm, allow=allow)


def test_a_command_without_the_state_reports_its_actions_alone_and_leaves_nothing_of_its_run(applied: Bench) -> None:
    (applied.folder / ".reconciler").rename(applied.folder / "away")
    applied.events.clear()
    owners = cluster(applied).catalog.read().owners
    assert create(applied, no_state=True).verdict is None
    assert [type(event) for event in applied.events] == [ActionStarted, ActionDone]
    assert cluster(applied).catalog.read().owners == owners
    assert not (applied.folder / ".reconciler").exists()


def test_a_topic_that_was_recreated_after_it_was_shown_is_not_deleted(applied: Bench) -> None:
    create(applied)

    def confirm(_plan: Plan) -> bool:
        cluster(applied).delete_topic("shop:new")
        cluster(applied).create_topic("shop:new")
        return True

    ordered = delete_topics(applied.acting("topic delete"), [NEW], confirm=confirm, allow=[f"delete:{NEW}"])
    assert isinstance(ordered.verdict, StalePlanError)
    assert "shop:new" in cluster(applied).topics()


def test_a_trim_deletes_no_more_than_was_shown_and_no_records_of_a_recreated_topic(applied: Bench) -> None:
    create(applied)

    def produce() -> None:
        with cluster(applied).producer() as producer:
            for value in ("a", "b"):
                producer.send("shop:new", value, partition=0)

    produce()

    def confirm_late(_plan: Plan) -> bool:
        produce()
        return True

    def confirm_recreated(_plan: Plan) -> bool:
        cluster(applied).delete_topic("shop:new")
        cluster(applied).create_topic("shop:new", partitions=2)
        produce()
        return True

    allow, options = [f"trim:{NEW}"], TrimOptions(NEW, "99")
    late = trim_topic(applied.acting("topic trim"), options, confirm=confirm_late, allow=allow)
    assert late.verdict is None
    assert cluster(applied).log("shop:new").read_bounds()[0].start == 2
    stale = trim_topic(applied.acting("topic trim"), options, confirm=confirm_recreated, allow=allow)
    assert isinstance(stale.verdict, StalePlanError)
    assert cluster(applied).log("shop:new").read_bounds()[0].start == 0


PROTECTED = """\
apiVersion: reconciler/v1
kind: Topic
metadata: {name: keys, namespace: shop, cluster: west}
spec: {partitions: 1, protect: true}
"""
KEYS = "topic/west/shop:keys"


@pytest.fixture
def protecting(applied: Bench) -> Bench:
    """A topic that its file and the record protect."""
    applied.write("manifests/keys.yaml", PROTECTED)
    assert applied.apply().verdict is None
    return applied


@pytest.mark.parametrize("no_state", [False, True], ids=["with its state", "without"])
def test_a_protected_topic_is_not_deleted_with_or_without_the_state_and_stops_no_other(
    protecting: Bench,
    no_state: bool,  # noqa: FBT001 - a case
) -> None:
    create(protecting)
    ordered = delete(protecting, NEW, KEYS, no_state=no_state)
    assert list(ordered.failed) == [KEYS]
    assert isinstance(ordered.failed[KEYS], BlockedError)
    assert "protect" in ordered.failed[KEYS].message
    assert {"shop:keys", "shop:orders"} <= cluster(protecting).topics().keys()
    assert "shop:new" not in cluster(protecting).topics()


def test_a_namespace_with_a_protected_topic_is_not_deleted_without_the_state_either(protecting: Bench) -> None:
    acting = protecting.acting(no_state=True)
    with pytest.raises(BlockedError, match=f"{KEYS}: its file protects it"):
        delete_namespace(acting, "west", "shop", allow=["delete:*"])
    assert {"shop:keys", "shop:orders"} <= cluster(protecting).topics().keys()


def test_a_cluster_that_is_gone_does_not_keep_topics_of_others_from_being_deleted(protecting: Bench) -> None:
    east = (protecting.folder / "manifests/west.yaml").read_text().replace("west", "east")
    protecting.write("manifests/east.yaml", east)
    create(protecting)
    assert protecting.apply().verdict is None
    (protecting.folder / ".clusters/east").rename(protecting.folder / "lost")
    ordered = delete(protecting, "topic/east/shop:lost", NEW)
    assert [*ordered.failed] == ["topic/east/shop:lost"]
    assert isinstance(ordered.verdict, PartialError)
    assert "shop:new" not in cluster(protecting).topics()


def test_a_pattern_names_no_topic_to_delete(applied: Bench) -> None:
    with pytest.raises(UsageError, match="a delete takes no patterns"):
        delete(applied, "topic/west/shop:*")
