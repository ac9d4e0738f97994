"""Topics that a broker does not know yet, because it lags behind the controller."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from reconciler.providers.brokers import client as module
from reconciler.providers.brokers.client import ABSENT, KafkaClient
from reconciler.runtime.retry import Backoff
from tests.servers.kafka import Kafka
from tests.servers.kafkatopics import make_topic


class _LaggingClient(KafkaClient):
    """Creates a topic after the first request for configs, as if a broker had missed its creation until then."""

    kafka: Kafka
    requests = 0

    def _describe_configs(self, wanted: Sequence[tuple[int, str, list[str] | None]], *args: Any, **named: Any) -> Any:
        answer = super()._describe_configs(wanted, *args, **named)
        if not self.requests:
            for _, name, _ in wanted:
                make_topic(self.kafka, name, partitions=1)
        self.requests += 1
        return answer


@pytest.mark.thorough
def test_configs_of_a_topic_that_a_broker_does_not_know_yet_are_requested_again(
    kafka_broker: Kafka, kafka_prefix: str
) -> None:
    client = _LaggingClient("west", lambda: {"bootstrap_servers": [kafka_broker.bootstrap()]})
    client.kafka = kafka_broker
    ((name, configs),) = client.read_configs([kafka_prefix], ["retention.ms"])
    assert (name, not isinstance(configs, int) and configs["retention.ms"].value) == (kafka_prefix, "-1")
    client.close()


@pytest.mark.thorough
def test_configs_of_a_topic_that_stays_unknown_are_given_up(
    kafka_broker: Kafka, kafka_prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_LAG_SECONDS", 0.3)
    monkeypatch.setattr(module, "_BACKOFF", Backoff(first_s=0.05, longest_s=0.1))
    client = KafkaClient("west", lambda: {"bootstrap_servers": [kafka_broker.bootstrap()]})
    make_topic(kafka_broker, f"{kafka_prefix}-seen", partitions=1)
    found = dict(client.read_configs([kafka_prefix, f"{kafka_prefix}-seen"]))
    assert found[kafka_prefix] in ABSENT
    assert not isinstance(found[f"{kafka_prefix}-seen"], int)
    client.close()
