"""Links into kinds of Cloud clusters that cannot be the destination of cluster links: jobs copy, as on Kafka."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

from reconciler.planning.actions import RunJob
from tests.operations.confluent.test_confluent import Desk, describe_cluster, topic

if TYPE_CHECKING:
    from conftest import Bench

    from tests.servers.confluentfixtures import Pair

pytestmark = [pytest.mark.thorough, pytest.mark.xdist_group("confluent")]


@pytest.mark.parametrize("kind", ["basic", "standard", "freight"])
def test_jobs_copy_into_a_kind_that_may_not_be_a_destination_and_the_plan_says_why(
    bench: Bench, start_confluent: Callable[..., Pair], kind: str
) -> None:
    pair = start_confluent(kind=kind)
    desk = Desk(bench, pair, "orders")
    desk.apply(topic("orders"))
    producer = Producer({"bootstrap.servers": pair.source.kafka})
    producer.produce("orders", b"1")
    assert producer.flush(30) == 0
    desk.declare(topic("orders"), desk.mirror({"orders": "mirroring"}))
    planned = desk.bench.plan().plan
    assert not planned.errors
    assert [action.job for action in planned.actions if isinstance(action, RunJob)] == ["mirror"]
    why = f"Confluent Cloud {kind.capitalize()} cannot be the destination"
    assert why in " ".join(warning.message for warning in planned.warnings)
    desk.apply(topic("orders"), desk.mirror({"orders": "mirroring"}))
    assert desk.row().partitions[0].end == 1


def test_a_plan_says_where_jobs_cannot_copy(bench: Bench, start_confluent: Callable[..., Pair]) -> None:
    pair = start_confluent(kind="basic")
    desk = Desk(bench, pair, "orders")
    pair.destination.limits["partitions"] = 0
    (error,) = desk.errors(topic("orders"), desk.mirror({"orders": "mirroring"}))
    assert "the cluster refuses their topic __reconciler" in error
    without = {"bootstrapServers": None, "security": None}
    desk.write("east", describe_cluster("east", pair.destination, **without))
    (error,) = desk.errors(topic("orders"), desk.mirror({"orders": "mirroring"}))
    assert "need bootstrapServers of the Cluster" in error
