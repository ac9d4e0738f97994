"""Each tool's sample becomes the manifests that stand beside it, and a word on everything that none of them says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from reconciler.errors import UsageError
from reconciler.manifests.format import format_text
from reconciler.manifests.load import load
from reconciler.manifests.overlays import Variables
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
        loaded = load(folder, environment=None, variables=Variables())
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
        "files/a.yaml:1 topic a  0 is no number of partitions, so it is left out: the broker's default would decide",
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
    "a throttle that passes": (
        "jikkou",
        JIKKOU.replace("replicas: 1", 'replicas: 1, configs: {leader.replication.throttled.replicas: "0:1"}') % "a",
        (
            "files/a.yaml:4 topic a leader.replication.throttled.replicas "
            "throttles a reassignment while it lasts, and is nothing to declare"
        ),
    ),
}


@pytest.mark.parametrize("case", TOLD)
def test_what_cannot_be_meant_is_left_out_and_told_once(case: str, tmp_path: Path) -> None:
    tool, text, said = TOLD[case]
    files_in(tmp_path, {"a.yaml": text})
    found = run(tmp_path, tool)
    assert [f"{each.place} {each.subject} {each.field} {each.why}" for each in found.lost] == [said]
    for path in (tmp_path / "out").rglob("*.yaml"):
        assert "retention.ms" not in path.read_text()
        assert "throttled" not in path.read_text()


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
        ({"type": "confluent_kafka_topic"}, "confluent_kafka_topic.b", "unsaid"),
        ({"type": "redpanda_topic"}, "redpanda_topic.b", "unsaid"),
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
    told = [(each.subject, "left out" if each.is_left_out else "unsaid") for each in found.lost]
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


@pytest.mark.parametrize(
    ("given", "instead"), [({}, "Write --init in its place"), ({"is_workspace": True}, "Leave it out")]
)
def test_brokers_of_a_cluster_that_the_files_know_are_not_asked_for(
    given: dict[str, bool], instead: str, tmp_path: Path
) -> None:
    cluster = 'meta: {name: c}\nspec: {bootstrapAddrs: ["b:9092"]}\n---\n'
    files_in(tmp_path, {"a.yaml": cluster + TOPICCTL})
    with pytest.raises(UsageError) as raised:
        run(tmp_path, "topicctl", bootstrap_servers=("h:9092",), **given)
    assert raised.value.hint.startswith(instead)
