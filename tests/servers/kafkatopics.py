"""Topics on test brokers, and readers of them, for tests that are about records."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from tests.waiting import until

if TYPE_CHECKING:
    from reconciler.providers.brokers.records.record_log import KafkaLog
    from reconciler.records.log import Isolation
    from tests.servers.kafka import Kafka
    from tests.servers.redpanda.server import Redpanda

# Only who uses a broker pays for its client.
# ruff: noqa: PLC0415

_SECONDS: Final = 30.0


def build_record_settings(kafka: Kafka | Redpanda) -> dict[str, Any]:
    return {"bootstrap.servers": kafka.bootstrap()}


def make_topic(kafka: Kafka, name: str, *, partitions: int = 3, **configs: str) -> None:
    """Make a topic that keeps old records; underscores in names of configs are dots. Waits until it is known."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import NewTopic

    admin = _admin(kafka)
    settings = {"retention.ms": "-1", **{key.replace("_", "."): value for key, value in configs.items()}}
    deadline = time.monotonic() + _SECONDS
    while True:
        try:
            admin.create_topics([NewTopic(name, partitions, 1, config=settings)])[name].result(_SECONDS)
        except KafkaException:
            if time.monotonic() > deadline:
                raise
        else:
            break
    until_known(kafka, name, partitions)


def until_known(kafka: Kafka, name: str, partitions: int) -> None:
    """Wait until brokers know of a topic that was just made."""
    admin = _admin(kafka)
    until(
        lambda: len(admin.list_topics(name, _SECONDS).topics[name].partitions) == partitions,
        f"{name} does not become known",
        seconds=_SECONDS,
    )


def delete_topic(kafka: Kafka, name: str) -> None:
    admin = _admin(kafka)
    admin.delete_topics([name])[name].result(_SECONDS)


def forget_links(kafka: Kafka | Redpanda) -> None:
    """Forget every link and mirror of a broker that tests share: `run` and plans look after all there are."""
    from reconciler.providers.brokers.ledger import Ledger

    ledger = Ledger(build_record_settings(kafka), "shared")
    ledger.change("tests", dict.fromkeys)
    ledger.close()


def kafka_log(kafka: Kafka, name: str, isolation: Isolation = "read_committed") -> KafkaLog:
    from reconciler.providers.brokers.records.record_log import KafkaLog

    return KafkaLog(name, build_record_settings(kafka), {"bootstrap_servers": [kafka.bootstrap()]}, "west", isolation)


def _admin(kafka: Kafka) -> Any:
    from confluent_kafka.admin import AdminClient

    return AdminClient({**build_record_settings(kafka), "log_level": 0, "error_cb": lambda _: None})
