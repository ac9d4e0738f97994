"""A workspace with one Kafka cluster, the commands typed there, and what a stranger does to the brokers meanwhile."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaAdminClient
from kafka.protocol.admin import DescribeConfigsRequest, IncrementalAlterConfigsRequest

from tests.cli.conftest import Call, Said
from tests.servers.kafka import Kafka
from tests.waiting import until

WORKSPACE = """\
apiVersion: reconciler/v1
kind: Workspace
metadata: {name: desk}
spec: {state: "file://state", manifests: [manifests], references: {allow: ["env:PASSWORD"]}}
"""
CLUSTER = """\
apiVersion: reconciler/v1
kind: Cluster
metadata: {{name: live}}
spec: {{provider: kafka, kafka: {{bootstrapServers: [{broker}]}}}}
"""
AS_SOMEBODY = """\
apiVersion: reconciler/v1
kind: Cluster
metadata: {{name: live}}
spec:
  provider: kafka
  kafka:
    bootstrapServers: ["{broker}"]
    security:
      {{protocol: SASL_PLAINTEXT, allowPlaintextPasswords: true, mechanism: SCRAM-SHA-256, username: {user},
        password: "${{env:PASSWORD}}"}}
"""
TOPIC = """\
---
apiVersion: reconciler/v1
kind: Topic
metadata: {{name: {name}, namespace: "{namespace}", cluster: live}}
spec: {spec}
"""
NAMESPACE = """\
---
apiVersion: reconciler/v1
kind: Namespace
metadata: {{name: "{name}", cluster: live}}
spec: {spec}
"""
TOPIC_CONFIGS, BROKER_CONFIGS = 2, 4


class Desk:
    """What a person has: files, commands, and a cluster that others use as well."""

    def __init__(self, typed: Call, kafka: Kafka, prefix: str) -> None:
        self.typed, self.kafka, self.prefix = typed, kafka, prefix
        self.lets: tuple[str, ...] = ()
        Path("reconciler.yaml").write_text(WORKSPACE)
        Path("manifests").mkdir()
        self.write("cluster", CLUSTER.format(broker=kafka.bootstrap()))
        self.namespace()
        self._admin: KafkaAdminClient | None = None

    def write(self, name: str, text: str) -> Path:
        path = Path(f"manifests/{name}.yaml")
        if "password:" in text:
            self.lets = ("--allow", "connect:cluster/live")  # It had another listener before.
        path.write_text(text)
        return path

    def namespace(self, **spec: Any) -> None:
        """Declare the namespace that names of this test lie in."""
        self.write("namespace", NAMESPACE.format(name=self.prefix, spec=json.dumps(spec)))

    def topic(self, name: str, **spec: Any) -> str:
        """Declare a topic and return its flat name."""
        shape = {"partitions": 1, "replicationFactor": 1, **spec}
        self.write(name, TOPIC.format(name=name, namespace=self.prefix, spec=json.dumps(shape)))
        return f"{self.prefix}.{name}"

    def drop(self, name: str) -> None:
        Path(f"manifests/{name}.yaml").unlink()

    def address(self, name: str) -> str:
        return f"topic/live/{self.prefix}:{name}"

    def plan(self, *options: str) -> Said:
        return self.typed("plan", *self.lets, *options)

    def apply(self, *options: str, code: int = 0) -> Said:
        said = self.typed("apply", "--yes", *self.lets, *options)
        assert said.code == code, said.out + said.err
        return said

    def settled(self) -> None:
        """See that nothing is left to do, and that nothing has drifted."""
        again = self.plan("--detailed-exitcode")
        assert again.code == 0, again.out + again.err
        assert "nothing to do" in again.out
        drift = self.typed("drift")
        assert drift.code == 0, drift.out

    @property
    def admin(self) -> KafkaAdminClient:
        if self._admin is None:
            self._admin = KafkaAdminClient(bootstrap_servers=self.kafka.bootstrap().split(","))
        return self._admin

    def own(self, topic: str) -> dict[str, str]:
        """Return the configs that a topic sets itself, as a stranger reads them."""
        said = self.kafka.tool(
            "kafka.admin.ConfigCommand",
            *("--bootstrap-server", self.kafka.bootstrap(), "--entity-type", "topics", "--entity-name", topic),
            "--describe",
        )
        lines = [line.split(" sensitive=")[0].strip() for line in said.splitlines() if " sensitive=" in line]
        return dict(line.split("=", 1) for line in lines)

    def by_hand(self, topic: str | None, configs: Mapping[str, str | None]) -> None:
        """Let somebody else set and reset configs of a topic, or of all brokers, and wait until they show."""
        self._alter(*((TOPIC_CONFIGS, topic) if topic else (BROKER_CONFIGS, "")), configs)
        until(
            lambda: all(self.own_now(topic).get(key) == value for key, value in configs.items()),
            f"{configs} does not show",
        )

    def by_hand_on_one(self, broker: int, configs: Mapping[str, str | None]) -> None:
        """Let somebody else set and reset configs of one broker alone."""
        self._alter(BROKER_CONFIGS, str(broker), configs)

    def _alter(self, kind: int, name: str, configs: Mapping[str, str | None]) -> None:
        operations = [(key, 1 if value is None else 0, value) for key, value in configs.items()]
        request = IncrementalAlterConfigsRequest(resources=[(kind, name, operations)], validate_only=False)
        (answer,) = self.send(request).responses
        assert not answer.error_code, answer.error_message

    def own_now(self, topic: str | None) -> dict[str, str | None]:
        """Return what a topic sets itself, or what was set for all brokers while they ran."""
        kind, name, source = (TOPIC_CONFIGS, topic, 1) if topic else (BROKER_CONFIGS, "", 3)
        (answer,) = self.send(DescribeConfigsRequest(resources=[(kind, name, None)], min_version=1)).results
        return {each.name: each.value for each in answer.configs if each.config_source == source}

    def sources(self, topic: str) -> dict[str, int]:
        """Return where each config that a topic shows comes from, as the broker's codes have it."""
        (answer,) = self.send(DescribeConfigsRequest(resources=[(TOPIC_CONFIGS, topic, None)], min_version=1)).results
        return {each.name: each.config_source for each in answer.configs}

    def send(self, request: Any) -> Any:
        connections = self.admin._manager
        return connections.run(connections.send, request, None)

    def close(self) -> None:
        if self._admin is not None:
            self._admin.close()


@pytest.fixture
def at_desk(typed: Call, kafka_prefix: str) -> Iterator[Callable[[Kafka], Desk]]:
    """Sit down in front of some brokers."""
    desks: list[Desk] = []

    def sit(kafka: Kafka) -> Desk:
        desks.append(Desk(typed, kafka, kafka_prefix))
        return desks[-1]

    yield sit
    for desk in desks:
        desk.close()


@pytest.fixture
def desk(at_desk: Callable[[Kafka], Desk], kafka_broker: Kafka) -> Desk:
    return at_desk(kafka_broker)


@pytest.fixture(params=["kafka_broker", pytest.param("kafka_39", marks=pytest.mark.soak)])
def either(at_desk: Callable[[Kafka], Desk], request: pytest.FixtureRequest) -> Desk:
    """Before the newest version, and before the oldest that has KIP-950."""
    return at_desk(request.getfixturevalue(request.param))
