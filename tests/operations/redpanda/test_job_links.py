"""Links that jobs copy into an emulated Redpanda and out of it, from the first plan to a failover."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from reconciler.operations.steps.invocation import Select
from reconciler.providers.brokers.client import KafkaClient
from reconciler.providers.redpanda.capabilities import DIALECT
from reconciler.resources.redpanda_configs import LONGEST_MS
from tests.operations.redpanda.test_redpanda import ORDERS, TIERED_BY_DEFAULT, Desk, desk_on, document, ids
from tests.operations.stage import opened, upkeep

if TYPE_CHECKING:
    from collections.abc import Callable

    from conftest import Bench

    from tests.servers.redpanda.server import Redpanda

pytestmark = [pytest.mark.thorough, pytest.mark.xdist_group("redpanda")]

NORTH = {
    "apiVersion": "reconciler/v1",
    "kind": "Cluster",
    "metadata": {"name": "north"},
    "spec": {"embedded": {"root": "file://.clusters/north"}},
}


@pytest.fixture
def desk(bench: Bench, redpanda: Redpanda) -> Desk:
    return desk_on(bench, redpanda)


def source(**configs: str) -> dict[str, object]:
    made = document("Topic", "orders", {"partitions": 2, "configs": configs})
    return {**made, "metadata": {"name": ORDERS, "cluster": "north"}}


def link(**mirror: object) -> dict[str, object]:
    return document("MirrorLink", "from-north", {"source": "north", "mirrorTopics": [{"source": ORDERS, **mirror}]})


def produce(bench: Bench, *values: str) -> None:
    with opened(bench, "north").producer() as producer:
        for value in values:
            producer.send(ORDERS, value, key=value, partition=0)


def read_values(desk: Desk) -> dict[str, str | None]:
    ((_, configs),) = KafkaClient.for_cluster(desk.cluster, desk.edge, DIALECT).read_configs([ORDERS])
    assert not isinstance(configs, int)
    return {key: state.value for key, state in configs.items()}


def test_a_mirror_has_the_records_of_its_source_until_it_is_failed_over(desk: Desk) -> None:
    orders = source(**{"retention.ms": "-1"})  # the records are of a fixed time
    desk.apply(NORTH, orders)
    produce(desk.bench, "a", "b", "c")
    desk.apply(NORTH, orders, link())
    assert desk.consume(ORDERS, 3) == [(0, b"a"), (1, b"b"), (2, b"c")]
    produce(desk.bench, "d")
    assert upkeep(desk.bench, "mirror").verdict is None
    assert [value for _, value in desk.consume(ORDERS, 4)] == [b"a", b"b", b"c", b"d"]
    ended = link(state="failed-over")
    desk.declare(NORTH, orders, ended)
    assert desk.bench.apply(Select(allow=(f"failover:mirror/west/{ORDERS}",))).verdict is None
    assert ids(desk.bench.plan()) == []
    produce(desk.bench, "e")
    assert upkeep(desk.bench, "mirror").verdict is None
    desk.produce(ORDERS, 1)
    assert [value for _, value in desk.consume(ORDERS, 5)] == [b"a", b"b", b"c", b"d", b"0"]


@pytest.mark.fact("F-R-208")
def test_a_config_of_a_mirror_that_equals_the_default_is_no_difference(desk: Desk) -> None:
    two_weeks = str(14 * 24 * 3600 * 1000)
    desk.apply(NORTH, source(), link(configs={"segment.ms": two_weeks}))
    desk.apply(NORTH, source(), link(configs={"segment.ms": "86400000"}))
    desk.apply(NORTH, source(), link())


def test_a_cluster_of_two_brokers_that_tiers_by_default_refuses_no_mirror(
    bench: Bench, start_redpanda: Callable[..., Redpanda]
) -> None:
    """It takes no even number of replicas, and no `delete.retention.ms` of the mirror or of what the link keeps."""
    desk = desk_on(bench, start_redpanda(versions=["26.1.2"] * 2, properties=TIERED_BY_DEFAULT))
    desk.apply(NORTH, source(**{"cleanup.policy": "compact", "delete.retention.ms": "172800000"}), link())
    configs = read_values(desk)
    assert (configs["cleanup.policy"], configs["remote.write"]) == ("compact", "true")
    assert configs["delete.retention.ms"] == "-1"
    assert configs["message.timestamp.before.max.ms"] == str(LONGEST_MS - 1)


@pytest.mark.emulated("expects the default retention of a new cluster")
def test_a_mirror_elsewhere_gets_the_values_that_a_topic_inherits_from_redpanda(desk: Desk) -> None:
    plain = document("Topic", "orders", {"partitions": 1, "replicationFactor": 1})
    back = document("MirrorLink", "from-west", {"source": "west", "mirrorTopics": [{"source": ORDERS}]})
    back["metadata"] = {"name": "from-west", "cluster": "north"}
    desk.apply(NORTH, plain)
    desk.produce(ORDERS, 2)
    desk.apply(NORTH, plain, back)
    north = opened(desk.bench, "north")
    assert [record.value for record in north.consume(ORDERS)] == [b"0", b"1"]
    configs = north.topic(ORDERS).configs
    assert (configs["retention.ms"], configs["max.message.bytes"]) == (str(7 * 24 * 3600 * 1000), "1048576")
    assert "delete.retention.ms" not in configs


@pytest.mark.parametrize(
    ("fields", "refusal"),
    [
        ({"mode": "bidirectional"}, "cannot have a link of mode bidirectional"),
        ({"keepDiverged": True}, "cannot have keepDiverged on a link"),
    ],
)
def test_what_needs_a_topic_that_refuses_producers_is_refused(
    desk: Desk, fields: dict[str, object], refusal: str
) -> None:
    desk.declare(NORTH, source(), document("MirrorLink", "from-north", {"source": "north", **fields}))
    messages = [error.message for error in desk.bench.plan().plan.errors]
    assert any(refusal in message for message in messages), messages
