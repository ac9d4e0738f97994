"""Consumer groups of clusters without declared brokers, by the REST API."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from reconciler.errors import NotAuthorizedError, UserError
from reconciler.operations.clusters.groups import GroupChange, delete_group, describe_group, list_groups
from reconciler.operations.clusters.topic_orders import TrimOptions, trim_topic
from reconciler.operations.steps.invocation import Select
from reconciler.operations.steps.runner import SiteOptions
from tests.operations.confluent.test_confluent import Desk, topic

if TYPE_CHECKING:
    from conftest import Bench

    from tests.servers.confluentfixtures import Pair

pytestmark = [pytest.mark.thorough, pytest.mark.xdist_group("confluent")]
ORDERS = "orders-of-groups"


def read_one(desk: Desk, group: str) -> SiteOptions:
    """Produce two records, commit the offset after the first one, and return how commands reach the cluster."""
    desk.apply(topic(ORDERS))
    servers = {"bootstrap.servers": desk.servers["west"].kafka}
    producer = Producer(servers)
    for value in (b"1", b"2"):
        producer.produce(ORDERS, value)
    assert producer.flush(30) == 0
    consumer = Consumer({**servers, "group.id": group})
    consumer.commit(offsets=[TopicPartition(ORDERS, 0, 1)], asynchronous=False)
    consumer.close()
    return SiteOptions(invocation=desk.bench.invocation, select=Select())


def test_without_brokers_groups_are_listed_and_described_with_their_lags(bench: Bench, confluent: Pair) -> None:
    desk = Desk(bench, confluent, ORDERS, bootstrapServers=None, security=None)
    reach = read_one(desk, "billing")
    assert "billing" in list_groups(reach, "west").groups
    described = describe_group(reach, "west", "billing").group
    (row,) = described.offsets
    assert (described.is_reading, row.topic, row.committed, row.end, row.lag) == (False, ORDERS, 1, 2, 1)


def test_a_kind_without_lags_says_what_is_missing(bench: Bench, start_confluent: Callable[..., Pair]) -> None:
    desk = Desk(bench, start_confluent(kind="enterprise"), ORDERS, bootstrapServers=None, security=None)
    reach = read_one(desk, "billing")
    with pytest.raises(NotAuthorizedError, match="lags by REST of Dedicated clusters only") as error:
        describe_group(reach, "west", "billing")
    assert "Declare bootstrapServers" in (error.value.hint or "")


def test_what_needs_brokers_says_so(bench: Bench, confluent: Pair) -> None:
    desk = Desk(bench, confluent, ORDERS, bootstrapServers=None, security=None)
    reach = read_one(desk, "billing")
    with pytest.raises(UserError, match="consumer groups and offsets need its brokers"):
        delete_group(reach, GroupChange(cluster="west", group="billing"), confirm=lambda _: True)
    with pytest.raises(UserError, match="bootstrapServers is missing: no brokers are known"):
        trim_topic(desk.bench.acting(), TrimOptions(f"topic/west/{ORDERS}", "1"), confirm=lambda _: True)
