"""What is asked of Kafka clusters: by a plan as little as is needed, by a failover nothing about other topics."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.cli.kafka.conftest import WORKSPACE
from tests.cli.kafka.mirrored import FILES
from tests.servers.kafka import Kafka
from tests.servers.kafkaproxy import (
    CREATE_TOPICS,
    DESCRIBE_ACLS,
    DESCRIBE_CLUSTER,
    DESCRIBE_CONFIGS,
    METADATA,
    KafkaProxy,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cli.conftest import Call, Said

pytestmark = pytest.mark.thorough

OTHERS: Final = 10_000
CREATED_AT_ONCE: Final = 2_500
"""Brokers refuse ten thousand in one request."""
BYTES_OF_A_TOPIC: Final = 40
"""Less than metadata or configs of a topic take in any answer."""
ASKED_BY_A_PLAN: Final = {
    DESCRIBE_CLUSTER: 1,
    DESCRIBE_CONFIGS: 3,  # Of a broker, of what topics have by default, and of all topics.
    DESCRIBE_ACLS: 1,
}
MOST_METADATA: Final = 5
"""One has all topics; those of the libraries, when they connect, have none or the ledger alone."""
MOST_CONNECTIONS: Final = 2
"""One for each time a source commands: what it has, and how much."""
FIRST, SECOND, THIRD = (("orders-1", "clicks-1"), ("orders-2", "clicks-2"), ("orders-3", "clicks-3"))
TOPIC: Final = """---
apiVersion: reconciler/v1
kind: Topic
metadata: {{name: {name}, namespace: {prefix}, cluster: west}}
spec: {{partitions: 1, replicationFactor: 1}}
"""


@dataclass(frozen=True)
class Counted:
    """Two clusters behind proxies that count; mirrors of `west` on `east`."""

    typed: Call
    east: Kafka
    proxies: dict[str, KafkaProxy]
    prefix: str

    def fail_over(self, names: tuple[str, ...]) -> Said:
        for proxy in self.proxies.values():
            proxy.forget()
        done = self.typed("mirror", "failover", *(f"mirror/east/{self.prefix}:{name}" for name in names), "--yes")
        assert done.code == 0, done.err
        return done


@pytest.fixture
def counted(typed: Call, kafka_prefix: str) -> Iterator[Counted]:
    names = (*FIRST, *SECOND, *THIRD)
    with ExitStack() as stack:
        proxies = {name: stack.enter_context(KafkaProxy()) for name in ("west", "east")}
        brokers = {
            name: stack.enter_context(
                Kafka.start(
                    extra={"advertised.listeners": f"PLAINTEXT://{proxy.address}", "log.index.size.max.bytes": "4096"},
                    before=proxy.lead_to,
                )
            )
            for name, proxy in proxies.items()
        }
        Path("reconciler.yaml").write_text(WORKSPACE)
        Path("manifests").mkdir()
        reached = {
            name: f'{{provider: kafka, kafka: {{bootstrapServers: ["{proxy.address}"]}}}}'
            for name, proxy in proxies.items()
        }
        mirrors = ", ".join(f'{{source: "{kafka_prefix}:{name}"}}' for name in names)
        text = FILES.format(prefix=kafka_prefix, mirrors=mirrors, **reached)
        topics = "".join(TOPIC.format(name=name, prefix=kafka_prefix) for name in names)
        Path("manifests/all.yaml").write_text(text + topics)
        applied = typed("apply", "--yes")
        assert applied.code == 0, applied.err
        yield Counted(typed, brokers["east"], proxies, kafka_prefix)


def create_others(kafka: Kafka) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap()})
    for begin in range(0, OTHERS, CREATED_AT_ONCE):
        topics = [NewTopic(f"other-{number}", 1, 1) for number in range(begin, begin + CREATED_AT_ONCE)]
        for created in admin.create_topics(topics, request_timeout=120, operation_timeout=120).values():
            created.result(120)


def test_a_plan_with_nothing_to_do_asks_each_cluster_once_for_all_that_it_compares(counted: Counted) -> None:
    for proxy in counted.proxies.values():
        proxy.forget()
    planned = counted.typed("plan", "--detailed-exitcode")
    assert planned.code == 0, planned.out + planned.err
    counts = {name: Counter(proxy.asked) for name, proxy in counted.proxies.items()}
    for asked in counts.values():
        assert {kind: asked[kind] for kind in ASKED_BY_A_PLAN} == ASKED_BY_A_PLAN
        assert asked[METADATA] <= MOST_METADATA
    # Topics of the files show all defaults; the controller is asked where only mirrors are declared.
    assert [counts[name][CREATE_TOPICS] for name in ("west", "east")] == [0, 1]


def test_a_failover_asks_about_no_other_topic_and_once_for_a_source_that_hangs(counted: Counted) -> None:
    east, west = counted.proxies["east"], counted.proxies["west"]
    counted.fail_over(FIRST)
    requests, answered = len(east.asked), east.answered_bytes
    create_others(counted.east)
    counted.fail_over(SECOND)
    assert len(east.asked) < 2 * requests
    assert east.answered_bytes < answered + OTHERS * BYTES_OF_A_TOPIC // 4
    west.is_hung = True
    shown = counted.fail_over(THIRD)
    assert shown.out.count("failed over") == len(THIRD)
    assert shown.out.count("cannot tell how much is lost: west does not answer within 2.5 s") == len(THIRD)
    assert 1 <= west.connections <= MOST_CONNECTIONS
