"""Each tool's sample becomes the manifests that stand beside it, and a word on everything that none of them says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from reconciler.errors import UsageError, UserError
from reconciler.importers.resources import compose_resources
from reconciler.manifests.format import format_text
from reconciler.manifests.load import load_manifests
from reconciler.manifests.overlays import Variables
from reconciler.operations.imports import TargetWorkspace, choose_targets, read_files
from reconciler.operations.manifest_files import validate
from reconciler.operations.steps.invocation import Select
from tests.importers.samples_of_tools import SAMPLES, TOOLS, imported, invocation_in, losses, manifests_in
from tests.importers.test_bad_input import STATE, TOPICCTL, files_in, run, state_of

MARK = "correct-horse-battery"
"""Stands for a password wherever a sample has one."""


@pytest.mark.parametrize("tool", TOOLS)
def test_a_sample_becomes_the_manifests_beside_it(tool: str, tmp_path: Path) -> None:
    imported(tool, tmp_path / "shop")
    expected = SAMPLES / tool / "expected"
    wanted = {path.relative_to(expected).as_posix(): path.read_text() for path in sorted(expected.rglob("*.yaml"))}
    assert manifests_in(tmp_path / "shop") == wanted


@pytest.mark.parametrize("tool", TOOLS)
def test_what_has_no_place_is_told_with_file_line_field_and_reason(tool: str, tmp_path: Path) -> None:
    found = imported(tool, tmp_path / "shop")
    assert losses(found) == (SAMPLES / tool / "expected" / "losses.txt").read_text()
    assert found.verdict is not None
    assert found.verdict.exit_code == 8


@pytest.mark.parametrize("tool", TOOLS)
def test_the_workspace_that_is_written_is_valid_without_a_warning(tool: str, tmp_path: Path) -> None:
    imported(tool, tmp_path / "shop")
    validated = validate(invocation_in(tmp_path / "shop"), Select())
    assert validated.verdict is None
    assert validated.warnings == ()


@pytest.mark.parametrize("tool", TOOLS)
def test_no_secret_is_copied_anywhere(tool: str, tmp_path: Path) -> None:
    found = imported(tool, tmp_path / "shop")
    written = "".join(path.read_text() for path in (tmp_path / "shop").rglob("*") if path.is_file())
    assert MARK not in written
    assert MARK not in losses(found)


@pytest.mark.parametrize("tool", TOOLS)
def test_what_is_written_is_in_canonical_form(tool: str, tmp_path: Path) -> None:
    imported(tool, tmp_path / "shop")
    for text in manifests_in(tmp_path / "shop").values():
        assert format_text(text) == text


@pytest.mark.parametrize("tool", TOOLS)
def test_prefixes_become_namespaces_and_every_topic_keeps_its_flat_name(tool: str, tmp_path: Path) -> None:
    def flat(folder: Path) -> set[str]:
        loaded = load_manifests(folder, environment=None, variables=Variables())
        return {address.replace(":", ".") for address in loaded.desired if address.startswith("topic/")}

    imported(tool, tmp_path / "flat")
    imported(tool, tmp_path / "factored", at_least=1)
    assert flat(tmp_path / "flat") == flat(tmp_path / "factored")
    assert validate(invocation_in(tmp_path / "factored"), Select()).verdict is None


@pytest.mark.parametrize("tool", TOOLS)
def test_twice_the_same_files_give_the_same_bytes(tool: str, tmp_path: Path) -> None:
    imported(tool, tmp_path / "one" / "shop")
    imported(tool, tmp_path / "two" / "shop")
    assert manifests_in(tmp_path / "one" / "shop") == manifests_in(tmp_path / "two" / "shop")


# What files say that cannot be meant, or passes: left out, and told once, with its place and why.


JIKKOU = "apiVersion: kafka.jikkou.io/v1\nkind: KafkaTopic\nmetadata: {name: %s}\nspec: {partitions: 1, replicas: 1}\n"
TOLD: dict[str, tuple[str, str, str]] = {
    "retention said twice, each its own": (
        "topicctl",
        (
            "meta: {name: a, cluster: c}\n"
            "spec: {partitions: 1, retentionMinutes: 10080, settings: {retention.ms: 1000, segment.ms: 1000}}\n"
        ),
        (
            "files/a.yaml:2 topic a spec.retentionMinutes is 604,800,000 ms, "
            "and settings.retention.ms says 1000: both are left out"
        ),
    ),
    "no partitions at all": (
        "topicctl",
        TOPICCTL.replace("partitions: 1", "partitions: 0"),
        "files/a.yaml:1 topic a  0 is not a number of partitions, so it is left out: the broker's default would apply",
    ),
    "a number for a name": (
        "jikkou",
        JIKKOU % "007",
        "files/a.yaml:3 KafkaTopic metadata.name is the number 7, and a name was expected; what it names is left out",
    ),
    "a number for a name of topicctl's": (
        "topicctl",
        TOPICCTL.replace("name: a", "name: 12"),
        "files/a.yaml:1 topic meta.name is the number 12, and a name was expected; what it names is left out",
    ),
    "labels of a list": (
        "jikkou",
        (
            "apiVersion: kafka.jikkou.io/v1\nkind: KafkaTopicList\nmetadata: {labels: {team: a}}\n"
            "items: [{metadata: {name: a}, spec: {partitions: 1}}]\n"
        ),
        ("files/a.yaml:3 KafkaTopicList metadata.labels it is set on the list; only settings of items are read"),
    ),
    "a name of Kafka's": (
        "jikkou",
        JIKKOU % "__share_group_state",
        "files/a.yaml:1 topic __share_group_state  topics of this name are Kafka's own and never managed",
    ),
    "a throttle that passes": (
        "jikkou",
        JIKKOU.replace("replicas: 1", 'replicas: 1, configs: {leader.replication.throttled.replicas: "0:1"}') % "a",
        (
            "files/a.yaml:4 topic a leader.replication.throttled.replicas "
            "throttles a reassignment while it lasts, and is nothing to declare"
        ),
    ),
}


RULE = """---
meta: {name: a, cluster: c}
spec:
  acls:
    - resource: {type: topic, name: a, patternType: literal, principal: "User:x", host: %s}
      operations: [read]
"""


def test_a_rule_for_a_host_that_plans_refuse_is_told_and_not_written(tmp_path: Path) -> None:
    for name, host in {"a": "10.0.0.0/8", "b": "app-1.internal", "c": "10.0.0.1"}.items():
        files_in(tmp_path, {f"{name}.yaml": RULE % host})
    files_in(tmp_path, {"t.yaml": TOPICCTL})
    found = run(tmp_path, "topicctl")
    assert [(each.subject, each.field, each.why.partition(",")[0]) for each in found.unsaid] == [
        ("topic a", "acls", "the rule for User:x is for host 10.0.0.0/8"),
        ("topic a", "acls", "the rule for User:x is for host app-1.internal"),
    ]
    assert (tmp_path / "out" / "topics.yaml").read_text().count("host:") == 1


@pytest.mark.parametrize("case", TOLD)
def test_what_cannot_be_meant_is_left_out_and_told_once(case: str, tmp_path: Path) -> None:
    tool, text, said = TOLD[case]
    files_in(tmp_path, {"a.yaml": text})
    found = run(tmp_path, tool)
    assert [f"{each.place} {each.subject} {each.field} {each.why}" for each in found.lost] == [said]
    for path in (tmp_path / "out").rglob("*.yaml"):
        assert "retention.ms" not in path.read_text()
        assert "throttled" not in path.read_text()


JULIE = """context: acme
env: 01
stage: TRUE
projects:
  - name: 1.10
    consumers: [{principal: 0042, group: 1e3}]
    streams: [{principal: "User:s", applicationId: 0x1F, topics: {read: [0017, 12], write: [5.]}}]
    topics:
      - {name: &commit 48e1230, config: {num.partitions: 0o10, replication.factor: "3", retention.ms: 6.048e+08}}
      - {name: 48e1231, dataType: *commit, config: {num.partitions: 1}}
"""


def test_a_number_where_a_text_belongs_is_the_text_as_it_is_written(tmp_path: Path) -> None:
    files_in(tmp_path, {"a.yaml": JULIE})
    reading = read_files("julie", tmp_path / "files", tmp_path)
    assert [(topic.name, topic.partitions) for topic in reading.topics] == [
        ("acme.01.TRUE.1.10.48e1230", 8),
        ("acme.01.TRUE.1.10.48e1231.48e1230", 1),
    ]
    assert reading.topics[0].configs["retention.ms"].value == 604_800_000
    assert {rule.name for rule in reading.rules} >= {"1e3", "0x1F", "0017", "12", "5."}
    assert {rule.principal for rule in reading.rules} == {"0042", "User:s"}
    assert not reading.lost


def test_retention_said_twice_and_alike_is_taken(tmp_path: Path) -> None:
    both = "partitions: 1, retentionMinutes: 1, settings: {retention.ms: 60000}"
    files_in(tmp_path, {"a.yaml": TOPICCTL.replace("partitions: 1", both)})
    found = run(tmp_path, "topicctl")
    assert found.lost == ()
    assert "retention.ms: 1m" in "".join(path.read_text() for path in (tmp_path / "out").rglob("*.yaml"))


def test_what_terraform_is_about_to_delete_is_told_where_it_shows_it(tmp_path: Path) -> None:
    values = {"name": "orders", "partitions": 3, "replication_factor": 1, "config": {}}
    topic = {"mode": "managed", "type": "kafka_topic", "address": "kafka_topic.b"}
    before = {**topic, "deposed_key": "abcd1234", "values": {**values, "name": "before"}}
    shown = {"format_version": "1.0", "values": {"root_module": {"resources": [{**topic, "values": values}, before]}}}
    files_in(tmp_path, {"terraform.tfstate": json.dumps(shown)})
    found = run(tmp_path, "terraform-state")
    assert found.addresses == ("topic/kafka/orders",)
    assert [each.subject for each in found.lost] == ["kafka_topic.b", "provider alias"]


@pytest.mark.parametrize(
    ("more", "subject", "becomes"),
    [
        ({"type": "confluent_schema"}, "confluent_schema.b", "unsaid"),
        ({"type": "redpanda_user"}, "redpanda_user.b", "unsaid"),
        ({"instances": "x"}, "kafka_topic.b", "left out"),
        ({"instances": [{"attributes": None}]}, "kafka_topic.b", "left out"),
        ({"instances": [7]}, "kafka_topic.b", "left out"),
    ],
)
def test_a_resource_of_terraform_that_cannot_be_read_is_told(
    more: dict[str, Any], subject: str, becomes: str, tmp_path: Path
) -> None:
    files_in(tmp_path, {"terraform.tfstate": state_of("a", **more)})
    found = run(tmp_path, "terraform")
    told = [(each.subject, "left out" if each.is_expressible else "unsaid") for each in found.lost]
    assert told == [(subject, becomes)]


def test_the_provider_without_an_alias_is_a_cluster_beside_those_with_one(tmp_path: Path) -> None:
    resources = [json.loads(state_of("a", provider))["resources"][0] for provider in ("", ".west")]
    resources.append({**resources[0], "provider": 'module.eu.provider["registry.terraform.io/mongey/kafka"]'})
    files_in(tmp_path, {"terraform.tfstate": json.dumps({**STATE, "resources": resources})})
    found = run(tmp_path, "terraform", clusters=("kafka=main",))
    assert found.addresses == ("topic/eu/orders", "topic/main/orders", "topic/west/orders")


def test_what_terraform_is_about_to_delete_is_told(tmp_path: Path) -> None:
    attributes = {"name": "orders", "partitions": 3, "replication_factor": 1, "config": {}}
    instances = [
        {"attributes": attributes},
        {"attributes": {**attributes, "name": "before"}, "deposed": "abcd1234"},
    ]
    topic = {"mode": "managed", "type": "kafka_topic", "name": "b", "instances": instances}
    files_in(tmp_path, {"terraform.tfstate": json.dumps({**STATE, "resources": [topic]})})
    found = run(tmp_path, "terraform-state")
    assert found.addresses == ("topic/kafka/orders",)
    assert [(each.subject, each.why) for each in found.lost] == [
        ("kafka_topic.b", "it is deposed: another one is in its place, and the next apply there deletes it")
    ]


REDPANDA_TOPIC = {"name": "shop.orders", "partition_count": 6, "replication_factor": 3, "allow_deletion": True}
REDPANDA_CONFIGS = {
    "flush.bytes": "4096",
    "redpanda.remote.read": "true",
    "redpanda.remote.write": "true",
    "retention.local.target.ms": "86400000",
    "retention.ms": "604800000",
}
REDPANDA_RULE = {
    "resource_type": "TOPIC",
    "resource_name": "shop.orders",
    "resource_pattern_type": "LITERAL",
    "principal": "RedpandaRole:checkout",
    "host": "*",
    "operation": "DESCRIBE_CONFIGS",
    "permission_type": "ALLOW",
    "allow_deletion": False,
}
API = "api-5e3e8a.ck09mi9c4vs17hng9gig.fmc.prd.cloud.redpanda.com"


def redpanda_state(*resources: tuple[str, dict[str, Any]]) -> str:
    """Return a state of Redpanda's provider: kinds and attributes."""
    provider = 'provider["registry.terraform.io/redpanda-data/redpanda"]'
    instances = [
        {
            "type": kind,
            "name": "b",
            "provider": provider,
            "instances": [{"attributes": {"id": "x", "cluster_api_url": f"https://{API}", **attributes}}],
        }
        for kind, attributes in resources
    ]
    return json.dumps({**STATE, "resources": instances})


def test_topics_and_rules_of_redpandas_provider_get_the_names_of_files(tmp_path: Path) -> None:
    state = redpanda_state(
        ("redpanda_topic", {**REDPANDA_TOPIC, "configuration": REDPANDA_CONFIGS}),
        ("redpanda_acl", {**REDPANDA_RULE, "cluster_api_url": f"{API}:443"}),
        ("redpanda_user", {"name": "checkout", "password": MARK}),
    )
    files_in(tmp_path, {"terraform.tfstate": state})
    found = run(tmp_path, "terraform", clusters=("east",))
    assert [(each.subject, each.is_expressible) for each in found.lost] == [("redpanda_user.b", False)]
    written = "".join(path.read_text() for path in (tmp_path / "out").iterdir())
    assert MARK not in written
    assert "redpanda.remote" not in written
    reading = read_files("terraform", tmp_path / "files", tmp_path)
    composed = compose_resources(reading, choose_targets(reading, TargetWorkspace(), ("east",), None))
    spec = composed.flat["east"].topics["shop.orders"].spec
    assert spec.configs == {
        "flush.bytes": "4096",
        "remote.read": "true",
        "remote.write": "true",
        "retention.local.target.ms": "86400000",
        "retention.ms": "604800000",
    }
    assert [(rule.principal, rule.operations) for rule in spec.acls] == [
        ("RedpandaRole:checkout", ("describe-configs",))
    ]
    assert (spec.partitions, spec.replication_factor) == (6, 3)


@pytest.mark.parametrize(
    ("more", "lost"),
    [
        ({"replica_assignments": []}, []),
        ({"replica_assignments": [{"partition_id": 0, "replica_ids": [1]}]}, ["replica_assignments"]),
        ({"configuration": {"redpanda.remote.write": "maybe"}}, ["redpanda.remote.write"]),
        ({"retries": 3}, ["retries"]),
    ],
)
def test_a_field_of_redpandas_provider_that_no_manifest_has_is_told(
    more: dict[str, Any], lost: list[str], tmp_path: Path
) -> None:
    files_in(tmp_path, {"terraform.tfstate": redpanda_state(("redpanda_topic", {**REDPANDA_TOPIC, **more}))})
    found = run(tmp_path, "terraform")
    assert [each.field for each in found.lost] == lost
    assert found.addresses == (f"topic/{API}/shop.orders",)


@pytest.mark.parametrize(("allowed", "protect"), [(True, None), (False, True), (None, True)])
def test_a_topic_that_redpandas_provider_must_not_delete_is_protected(
    allowed: object, protect: object, tmp_path: Path
) -> None:
    topic = {**REDPANDA_TOPIC, "allow_deletion": allowed}
    files_in(tmp_path, {"terraform.tfstate": redpanda_state(("redpanda_topic", topic))})
    run(tmp_path, "terraform")
    assert yaml.safe_load((tmp_path / "out" / "topics.yaml").read_text())["spec"].get("protect") is protect


def test_each_address_of_redpandas_provider_is_a_cluster_that_import_does_not_declare(tmp_path: Path) -> None:
    other = {**REDPANDA_TOPIC, "cluster_api_url": "https://api.west.example.com:443/"}
    state = redpanda_state(("redpanda_topic", REDPANDA_TOPIC), ("redpanda_topic", other))
    files_in(tmp_path, {"terraform.tfstate": state})
    with pytest.raises(
        UserError, match=f"cluster {API} runs on redpanda, and the files do not say how to connect to it"
    ):
        run(tmp_path, "terraform", bootstrap_servers=(f"{API}=a:1", "api.west.example.com=b:1"))
    assert not (tmp_path / "out").exists()
    found = run(tmp_path, "terraform", clusters=(f"{API}=east",))
    assert found.addresses == ("topic/api.west.example.com/shop.orders", "topic/east/shop.orders")


def test_what_terraform_prints_of_redpandas_clusters_names_each(tmp_path: Path) -> None:
    values = {**REDPANDA_TOPIC, "cluster_api_url": f"https://{API}"}
    topic = {"mode": "managed", "type": "redpanda_topic", "address": "redpanda_topic.b", "values": values}
    shown = {"format_version": "1.0", "values": {"root_module": {"resources": [topic]}}}
    files_in(tmp_path, {"shown.json": json.dumps(shown)})
    found = run(tmp_path, "terraform")
    assert (found.addresses, found.lost) == ((f"topic/{API}/shop.orders",), ())


def test_brokers_are_where_the_command_line_says_whatever_the_files_say(tmp_path: Path) -> None:
    files_in(
        tmp_path, {"a.yaml": 'meta: {name: c}\nspec: {bootstrapAddrs: ["b:9092"], clusterID: x}\n---\n' + TOPICCTL}
    )
    run(tmp_path, "topicctl", bootstrap_servers=("h:9092", "i:9092"))
    written = manifests_in(tmp_path / "out")["clusters.yaml"]
    assert "clusterId: x" in written
    assert 'bootstrapServers: ["h:9092", "i:9092"]' in written


def test_a_login_by_tokens_of_amazon_msk_is_taken(tmp_path: Path) -> None:
    server, sasl = "b-1.c.ab12cd.c2.kafka.eu-west-1.amazonaws.com:9098", "{enabled: true, mechanism: AWS-MSK-IAM}"
    spec = f'{{bootstrapAddrs: ["{server}"], tls: {{enabled: true}}, sasl: {sasl}}}'
    files_in(tmp_path, {"a.yaml": f"meta: {{name: c}}\nspec: {spec}\n---\n{TOPICCTL}"})
    assert run(tmp_path, "topicctl", is_workspace=True).lost == ()
    assert "{protocol: SASL_SSL, mechanism: AWS_MSK_IAM}" in manifests_in(tmp_path / "out")["clusters.yaml"]


# Several clusters: each thing goes to its own, and what is asked of one names it.


def test_brokers_of_several_clusters_are_named_with_the_cluster(tmp_path: Path) -> None:
    topics = [json.loads(state_of("a", provider))["resources"][0] for provider in ("", ".west")]
    files_in(tmp_path, {"terraform.tfstate": json.dumps({**STATE, "resources": topics})})
    with pytest.raises(UserError) as raised:
        run(tmp_path, "terraform", is_workspace=True)
    assert "--bootstrap-server kafka=HOST:PORT --bootstrap-server west=HOST:PORT" in raised.value.hint
    with pytest.raises(UsageError) as unclear:
        run(tmp_path, "terraform", bootstrap_servers=("a:1",))
    assert unclear.value.hint.startswith("For each of them: --bootstrap-server kafka=a:1")
    run(tmp_path, "terraform", bootstrap_servers=("kafka=a:1", "west=b:1"), clusters=("kafka=main",))
    assert manifests_in(tmp_path / "out")["clusters.yaml"].count("bootstrapServers") == 2


def test_clusters_that_would_get_one_name_are_not_made_one(tmp_path: Path) -> None:
    files_in(tmp_path, {"a.yaml": f"{TOPICCTL}---\n{TOPICCTL}".replace("cluster: c", "cluster: a b", 1)})
    with pytest.raises(UsageError) as raised:
        run(tmp_path, "topicctl", clusters=("c=a-b",))
    assert raised.value.hint.startswith("Name them: --cluster 'a b='NAME --cluster c=OTHER")
    assert run(tmp_path, "topicctl", clusters=("c=a-b", "a b=a-b")).addresses == ("topic/a-b/a",)


def strimzi(kind: str, name: str, home: str, spec: str, status: str = "{}") -> str:
    """Return a resource of Strimzi, about the cluster `main` of its namespace."""
    labels = "labels: {strimzi.io/cluster: main}"
    metadata = f"{{name: {name}, namespace: {home}, {labels}}}"
    return f"apiVersion: kafka.strimzi.io/v1\nkind: {kind}\nmetadata: {metadata}\nspec: {spec}\nstatus: {status}\n---\n"


LISTENER = "{kafka: {listeners: [{name: a, port: 9094, type: %s, tls: false}]}}"


def test_clusters_of_one_name_in_two_namespaces_of_kubernetes_are_two(tmp_path: Path) -> None:
    acl = "{authorization: {acls: [{resource: {type: topic, name: orders}, operations: [Read]}]}}"
    files = {
        f"{home}.yaml": strimzi("Kafka", "main", home, LISTENER % "internal")
        + strimzi("KafkaTopic", "orders", home, "{partitions: 1}")
        + strimzi("KafkaTopic", f"{home}-only", home, "{partitions: 1}")
        + strimzi("KafkaUser", home, home, acl)
        for home in ("dev", "prod")
    }
    files_in(tmp_path, {**files, "c.yaml": strimzi("KafkaTopic", "lost", "test", "{partitions: 1}")})
    found = run(tmp_path, "strimzi", is_workspace=True, clusters=("prod/main=live",))
    assert found.addresses == (
        "topic/dev-main/dev-only",
        "topic/dev-main/orders",
        "topic/live/orders",
        "topic/live/prod-only",
    )
    assert [each.why for each in found.lost] == ["clusters named main are in dev, prod, and none is here"]
    texts = manifests_in(tmp_path / "out")
    assert "main-kafka-bootstrap.prod.svc:9094" in texts["clusters.yaml"]
    assert [texts["topics.yaml"].count(f"User:{home}") for home in ("dev", "prod")] == [1, 1]


@pytest.mark.parametrize(
    ("kind", "status", "expected"),
    [
        ("internal", "{}", "main-kafka-bootstrap.dev.svc:9094"),
        ("loadbalancer", "{clusterId: k1, listeners: [{name: a, bootstrapServers: '34.1.2.3:9094'}]}", "34.1.2.3:9094"),
        ("loadbalancer", "{}", None),
    ],
)
def test_a_cluster_of_strimzi_is_reached_where_its_status_says(
    kind: str, status: str, expected: str | None, tmp_path: Path
) -> None:
    kafka = strimzi("Kafka", "main", "dev", LISTENER % kind, status)
    files_in(tmp_path, {"a.yaml": kafka + strimzi("KafkaTopic", "orders", "dev", "{partitions: 1}")})
    manifest = run(tmp_path, "strimzi").clusters[0].manifest
    assert (manifest and expected in manifest) if expected else manifest is None
    assert ("clusterId: k1" in (manifest or "")) == ("k1" in status)
