"""A Kafka cluster that people made by hand: exported, adopted without a change, and then there is nothing to do."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from kafka import KafkaAdminClient
from kafka.admin import (
    ACL,
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ConfigResource,
    ConfigResourceType,
    ResourcePattern,
    ResourcePatternFilter,
    ResourceType,
)
from kafka.admin import ACLResourcePatternType as Pattern

from examples.kafkajars import OLDER
from reconciler.errors import UserError
from reconciler.manifests.format import format_text
from reconciler.operations.export import ExportOptions, ExportResult, export, parse_cluster
from reconciler.operations.manifest_files import validate
from reconciler.operations.steps.invocation import Select
from tests.operations.test_state_edit import rm
from tests.servers.kafka import Kafka
from tests.servers.kafkatopics import until_known

if TYPE_CHECKING:
    from conftest import Bench

pytestmark = pytest.mark.thorough

SEVEN_DAYS, ONE_DAY = "604800000", "86400000"
TIERED = {"remote.storage.enable": "true", "local.retention.ms": "21600000"}
TOPICS: dict[str, dict[str, str]] = {
    "shop.eu.orders": {"retention.ms": SEVEN_DAYS, "max.message.bytes": "2097152"},
    "shop.eu.payments": {"retention.ms": SEVEN_DAYS, "max.message.bytes": "2097152"},
    "shop.eu.refunds": {"retention.ms": SEVEN_DAYS, "max.message.bytes": "2097152", "cleanup.policy": "compact"},
    "shop.us.orders": {"retention.ms": ONE_DAY, "max.message.bytes": "2097152"},
    "shop": {},
    "web.clicks": TIERED,
    "web.views": TIERED,
    "web.logs": {**TIERED, "retention.ms": "2592000000"},
    "my_app.a": {"min.insync.replicas": "1"},
    "my_app.b": {},
    "my_app.c": {},
    "..odd": {},
    "device.heartbeats": {},
    "a..x": {},
    "y" * 249: {"cleanup.policy": "compact,delete"},
    f"deep.{'n.' * 20}end": {},
}
ALLOW, DENY = ACLPermissionType.ALLOW, ACLPermissionType.DENY


@contextmanager
def admin(kafka: Kafka) -> Iterator[KafkaAdminClient]:
    client = KafkaAdminClient(bootstrap_servers=[kafka.bootstrap()])
    try:
        yield client
    finally:
        client.close()


def rule(
    kind: ResourceType,
    name: str,
    pattern: Pattern,
    operation: ACLOperation,
    *,
    permission: Any = ALLOW,
    host: str = "*",
) -> ACL:
    return ACL("User:checkout", host, operation, permission, ResourcePattern(kind, name, pattern))


RULES = [
    rule(ResourceType.TOPIC, "shop.", Pattern.PREFIXED, ACLOperation.READ),
    rule(ResourceType.GROUP, "shop.", Pattern.PREFIXED, ACLOperation.READ),
    rule(ResourceType.GROUP, "shop.billing", Pattern.LITERAL, ACLOperation.DESCRIBE),
    rule(ResourceType.TOPIC, "shop.eu.pay", Pattern.PREFIXED, ACLOperation.WRITE, permission=DENY),
    rule(ResourceType.TRANSACTIONAL_ID, "pay.", Pattern.PREFIXED, ACLOperation.WRITE),
    rule(ResourceType.TOPIC, "shop.us.orders", Pattern.LITERAL, ACLOperation.ALTER_CONFIGS),
]
WORDLESS = [
    rule(ResourceType.CLUSTER, "kafka-cluster", Pattern.LITERAL, ACLOperation.DESCRIBE),
    rule(ResourceType.TOPIC, "*", Pattern.LITERAL, ACLOperation.DESCRIBE),
    rule(ResourceType.TOPIC, "not.there.yet", Pattern.LITERAL, ACLOperation.READ),
    rule(ResourceType.TOPIC, "my_app.", Pattern.PREFIXED, ACLOperation.READ),
    rule(ResourceType.TOPIC, "shop.eu.orders", Pattern.LITERAL, ACLOperation.READ, host="app-1.internal"),
    rule(ResourceType.TOPIC, "shop.", Pattern.PREFIXED, ACLOperation.READ, host="10.0.0.0/8"),
]


@pytest.fixture(scope="module")
def kafka_by_hand() -> Iterator[Kafka]:
    """A broker with topics and rules that nobody declared; tests of this file leave them as they are."""
    with Kafka.start() as kafka, admin(kafka) as client:
        wanted = {
            name: {"num_partitions": 1 + len(name) % 3, "replication_factor": 1, "configs": configs}
            for name, configs in TOPICS.items()
        }
        made = client.create_topics(wanted, raise_errors=False)
        assert {each["error_code"] for each in made["topics"]} == {0}, made
        assert not client.create_acls([*RULES, *WORDLESS])["failed"]
        deadline = time.monotonic() + 30
        while len(rules(client)) < len(RULES) + len(WORDLESS) and time.monotonic() < deadline:
            pass  # What the controller took reaches the broker a little later.
        yield kafka


def typed(kafka: Kafka, bench: Bench, out: Path, **options: Any) -> ExportResult:
    """Export the broker into a folder that is a workspace then."""
    bare = parse_cluster("west", [kafka.bootstrap()], (), options.pop("separator", None), cwd=bench.folder, out=out)
    return export(bench.invocation, Select(), "west", ExportOptions(out=out, bare=bare, **options))


def rules(client: KafkaAdminClient) -> list[str]:
    everything = ResourcePatternFilter(ResourceType.ANY, None, Pattern.ANY)
    found = client.describe_acls(ACLFilter(None, None, ACLOperation.ANY, ACLPermissionType.ANY, everything))
    return sorted(map(str, found[0]))


def described(kafka: Kafka) -> tuple[Any, ...]:
    """Return all that the broker says of topics, their configs and its access rules; its own and ours are left out."""
    with admin(kafka) as client:
        found = [each for each in client.describe_topics() if not each["name"].startswith("__")]
        topics = sorted((each["name"], each["topic_id"], len(each["partitions"])) for each in found)
        asked = [ConfigResource(ConfigResourceType.TOPIC, name) for name, *_ in topics]
        return topics, client.describe_configs(asked), rules(client)


@pytest.mark.fact("F-K-030", "F-K-032", "F-K-033", "F-K-080", "F-K-081")
@pytest.mark.parametrize("at_least", [0, 1, 3])
@pytest.mark.parametrize("separator", [".", "_", "-"])
def test_what_was_exported_is_adopted_without_a_change(
    kafka_by_hand: Kafka, bench: Bench, at_least: int, separator: str
) -> None:
    before = described(kafka_by_hand)
    out = bench.folder / "exported"
    found = typed(kafka_by_hand, bench, out, at_least=at_least, separator=separator)
    assert found.verdict is None
    there = bench.with_(workspace=out)
    assert validate(there.invocation, Select()).warnings == ()
    planned = there.plan().plan
    assert {action.verb for action in planned.actions} == {"adopt"}
    assert (planned.errors, planned.warnings, planned.unmanaged) == ((), (), ())
    assert there.apply().verdict is None
    assert there.plan().plan.is_empty
    rm(there, "cluster/west", recursive=True)  # the broker is as it was for the next test: owned by nobody
    assert described(kafka_by_hand) == before


def test_it_is_laid_out_as_a_person_would_and_as_fmt_would(kafka_by_hand: Kafka, bench: Bench) -> None:
    out = bench.folder / "exported"
    typed(kafka_by_hand, bench, out)
    files = {path.relative_to(out).as_posix(): path.read_text() for path in out.rglob("*.yaml")}
    assert sorted(files) == [
        "manifests/clusters.yaml",
        "manifests/namespaces/pay.yaml",
        "manifests/namespaces/shop.yaml",
        "manifests/namespaces/shop/eu.yaml",
        "manifests/namespaces/web.yaml",
        "manifests/policies.yaml",
        "manifests/topics.yaml",
        "reconciler.yaml",
    ]
    assert all(format_text(text) == text for text in files.values())
    assert "configs: {max.message.bytes: 2MiB, retention.ms: 7d}" in files["manifests/namespaces/shop.yaml"]
    assert "configs: {cleanup.policy: compact}" in files["manifests/namespaces/shop/eu.yaml"]
    assert "tieringPolicy: tiered-local-6h" in files["manifests/namespaces/web.yaml"]
    assert "clusterId: " in files["manifests/clusters.yaml"]
    assert (out / ".gitignore").read_text().startswith(".reconciler/\n")


def test_rules_without_words_are_told(kafka_by_hand: Kafka, bench: Bench) -> None:
    told = {each.place for each in typed(kafka_by_hand, bench, bench.folder / "exported").unsaid}
    assert told == {
        "allow User:checkout describe on cluster kafka-cluster",
        "allow User:checkout describe on topics *",
        "allow User:checkout read on topics not.there.yet",
        "allow User:checkout read on topics my_app.*",
        "allow User:checkout from 10.0.0.0/8 read on topics shop.*",
        "topic/west/shop:eu:orders",
    }


def test_a_declared_cluster_is_exported_into_its_own_workspace(kafka_by_hand: Kafka, bench: Bench) -> None:
    shutil.rmtree(bench.folder / "manifests")
    bench.write(
        "manifests/clusters.yaml",
        "apiVersion: reconciler/v1\nkind: Cluster\nmetadata: {name: west}\n"
        f'spec: {{provider: kafka, kafka: {{bootstrapServers: ["{kafka_by_hand.bootstrap()}"]}}}}\n',
    )
    found = export(bench.invocation, Select(), "west", ExportOptions(out=bench.folder / "manifests" / "west"))
    assert found.verdict is None
    assert "cluster/west" not in found.addresses, "it is declared already"
    assert {action.verb for action in bench.plan().plan.actions} == {"adopt"}
    assert bench.apply().verdict is None
    assert bench.plan().plan.is_empty
    rm(bench, "cluster/west", recursive=True)


def test_a_policy_that_says_the_same_is_named_and_not_declared_again(kafka_by_hand: Kafka, bench: Bench) -> None:
    shutil.rmtree(bench.folder / "manifests")
    bench.write(
        "manifests/clusters.yaml",
        "apiVersion: reconciler/v1\nkind: Cluster\nmetadata: {name: west}\n"
        f'spec: {{provider: kafka, kafka: {{bootstrapServers: ["{kafka_by_hand.bootstrap()}"]}}}}\n---\n'
        "apiVersion: reconciler/v1\nkind: TieringPolicy\nmetadata: {name: standard}\n"
        "spec: {remoteWrite: true, remoteRead: true, localRetention: {time: 6h}}\n",
    )
    out = bench.folder / "manifests" / "west"
    export(bench.invocation, Select(), "west", ExportOptions(out=out))
    assert not (out / "policies.yaml").exists()
    assert "tieringPolicy: standard" in (out / "namespaces" / "web.yaml").read_text()
    assert {action.verb for action in bench.plan().plan.actions} == {"adopt"}


def test_a_workspace_that_is_there_keeps_its_file(kafka_by_hand: Kafka, bench: Bench) -> None:
    out = bench.folder / "repository"
    (out / ".git").mkdir(parents=True)
    typed(kafka_by_hand, bench, out)
    before = (out / "reconciler.yaml").read_text()
    shutil.rmtree(out / "manifests")
    with pytest.raises(UserError, match="repository is not empty"):
        typed(kafka_by_hand, bench, out)
    typed(kafka_by_hand, bench, out, is_forced=True)
    assert (out / "reconciler.yaml").read_text() == before


def test_configs_that_no_manifest_can_declare_are_told_and_what_brokers_list_is_adopted(
    start_kafka: Callable[..., Kafka], bench: Bench
) -> None:
    kafka, out = start_kafka(version=OLDER, extra={"log.retention.bytes": "-2"}), bench.folder / "exported"
    configs = {"message.downconversion.enable": "false", "retention.bytes": "-2", "retention.ms": ONE_DAY}
    with admin(kafka) as client:
        client.create_topics({"old": {"num_partitions": 1, "replication_factor": 1, "configs": configs}})
    until_known(kafka, "old", partitions=1)
    found = typed(kafka, bench, out)
    assert [(each.place, each.error.message) for each in found.unsaid] == [
        ("topic/west/old", "configs.retention.bytes: -2 is out of range: at least -1")
    ]
    there = bench.with_(workspace=out)
    assert len(validate(there.invocation, Select()).warnings) == 1
    assert there.plan().warnings == ()
    assert {action.verb for action in there.plan().plan.actions} == {"adopt"}
    assert there.apply().verdict is None
    assert there.plan().plan.is_empty


def test_a_broker_with_nothing_still_becomes_a_workspace(start_kafka: Callable[..., Kafka], bench: Bench) -> None:
    out = bench.folder / "exported"
    found = typed(start_kafka(), bench, out)
    assert found.addresses == ("cluster/west",)
    assert {action.verb for action in bench.with_(workspace=out).plan().plan.actions} == {"adopt"}
