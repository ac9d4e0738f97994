"""Files that are broken, of another tool, hostile, or just odd: one clear word each, and nothing is written."""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from reconciler.errors import ReconcilerError, UserError
from reconciler.importers.resources import compose_resources
from reconciler.manifests.yaml_documents import parse_yaml
from reconciler.operations.imports import (
    ImportOptions,
    ImportResult,
    TargetWorkspace,
    choose_targets,
    factor_imported,
    import_files,
    read_files,
)
from reconciler.operations.steps.invocation import Select
from tests.importers.samples_of_tools import SAMPLES, TOOLS, invocation_in

STATE = {"version": 4, "terraform_version": "1.11.4", "resources": []}


def files_in(folder: Path, files: Mapping[str, str | bytes]) -> None:
    for name, text in files.items():
        path = folder / "files" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())


def run(folder: Path, tool: str, path: str = "files", **more: Any) -> ImportResult:
    options = ImportOptions(tool=tool, path=Path(path), out=Path("out"), **more)
    return import_files(invocation_in(folder), Select(), options)


def refusal(folder: Path, tool: str, path: str = "files") -> str:
    with pytest.raises(UserError) as raised:
        run(folder, tool, path)
    assert not (folder / "out").exists()
    return str(raised.value)


def state_of(lineage: str, provider: str = "", **more: Any) -> str:
    """Return a state of Terraform with a topic on a provider as it names one: `.west` is an alias."""
    attributes = {"name": "orders", "partitions": 3, "replication_factor": 1, "config": {}}
    provider = f'provider["registry.terraform.io/mongey/kafka"]{provider}'
    topic = {"type": "kafka_topic", "name": "b", "provider": provider, "instances": [{"attributes": attributes}]}
    return json.dumps({**STATE, "lineage": lineage, "resources": [{**topic, **more}]})


TOPICCTL = "meta: {name: a, cluster: c}\nspec: {partitions: 1, replicationFactor: 1}\n"
REFUSED: dict[str, tuple[str, Mapping[str, str | bytes], str]] = {
    "another tool's files": (
        "topicctl",
        {"a.yaml": "apiVersion: kafka.strimzi.io/v1\nkind: KafkaTopic\nmetadata: {name: a}\nspec: {partitions: 1}\n"},
        "there is no file of topicctl's in files, but of strimzi (1 file). Read those with --from strimzi",
    ),
    "files of Terraform": (
        "julie",
        {"main.tf": 'resource "kafka_topic" "a" {}\n', "terraform.tfstate": json.dumps(STATE)},
        "but of terraform (1 file). Read those with --from terraform",
    ),
    "nothing that anybody knows": (
        "strimzi",
        {"a.yaml": "on: push\n", "b.txt": "hello"},
        "Name the folder that holds them. Read are those of terraform, jikkou, julie, kafka-gitops, strimzi, topicctl",
    ),
    "an empty folder": ("jikkou", {"a/.keep": ""}, "there is no file of jikkou's in files"),
    "Terraform without its state": (
        "terraform",
        {"main.tf": 'resource "kafka_topic" "a" {}\n'},
        "Run there: terraform state pull > terraform.tfstate",
    ),
    "a plan of Terraform": (
        "terraform",
        {"plan.json": json.dumps({"format_version": "1.2", "planned_values": {}, "resource_changes": []})},
        "files/plan.json: is a plan of Terraform, no state",
    ),
    "states of two workspaces of Terraform": (
        "terraform",
        {f"terraform.tfstate.d/{name}/terraform.tfstate": state_of(name) for name in ("dev", "prod")},
        "Import one at a time: --from terraform files/terraform.tfstate.d/dev/terraform.tfstate",
    ),
    "a number without end": (
        "terraform",
        {"a.tfstate": f'{{"version": 4, "serial": {"7" * 5_000}}}'},
        "a number in it has too many digits",
    ),
    "broken YAML": ("topicctl", {"a.yaml": TOPICCTL, "b.yaml": "meta: [\n"}, "files/b.yaml:2:1: the structure breaks"),
    "a tab": (
        "topicctl",
        {"a.yaml": "meta:\n\tname: a\n"},
        "files/a.yaml:2:1: this line is indented with a tab, and YAML needs spaces",
    ),
    "UTF-16": ("topicctl", {"a.yaml": TOPICCTL.encode("utf-16")}, "files/a.yaml: is written in UTF-16"),
    "a key twice": (
        "kafka-gitops",
        {"state.yaml": "topics:\n  a: {partitions: 1}\n  a: {partitions: 2}\n"},
        "files/state.yaml:3:3: topics.a: is written twice in one mapping, first on line 2",
    ),
    "a billion laughs": (
        "kafka-gitops",
        {"state.yaml": "\n".join(f"x{n}: &x{n} [{', '.join([f'*x{n - 1}' if n else 'lol'] * 10)}]" for n in range(9))},
        "aliases expand to more than 100,000 values",
    ),
    "a template": (
        "jikkou",
        {"a.yaml": "apiVersion: kafka.jikkou.io/v1\nitems:\n{% for a in b %}\n- {{ a }}\n{% endfor %}\n"},
        "It looks like a template: render it first, and import the result",
    ),
    "broken JSON": ("terraform", {"a.tfstate": '{"version": 4,\n "x" 1}'}, "files/a.tfstate:2:6: is not JSON"),
    "a state of an old version": (
        "terraform",
        {"terraform.tfstate": json.dumps({**STATE, "version": 3})},
        "files/terraform.tfstate: is a state of version 3, and version 4 is read",
    ),
    "two ways to make names": (
        "julie",
        {
            "a.yaml": "context: a\nprojects: []\n",
            "one.properties": "topology.topic.prefix.separator=_\n",
            "two.properties": "topology.topic.prefix.separator=.\n",
        },
        "topology.topic.prefix.separator is '_' in files/one.properties and '.' in files/two.properties",
    ),
    "names made by a program": (
        "julie",
        {"a.yaml": "context: a\nprojects: []\n", "x.properties": "topology.topic.prefix.format={{ a | upper }}\n"},
        "the naming rule of topics cannot be read",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_read_is_refused_with_its_place_and_what_to_do(case: str, tmp_path: Path) -> None:
    tool, files, said = REFUSED[case]
    files_in(tmp_path, files)
    assert said in refusal(tmp_path, tool)


NOTHING: dict[str, dict[str, str]] = {
    "strimzi": {
        "a.yaml": "apiVersion: kafka.strimzi.io/v1beta2\nkind: KafkaConnect\nmetadata: {name: a}\nspec: {x: 1}\n"
    },
    "jikkou": {"a.yaml": "apiVersion: kafka.jikkou.io/v1\nkind: KafkaClientQuota\nspec: {type: USER}\n"},
    "julie": {"a.yaml": "context: a\nprojects: []\n"},
    "kafka-gitops": {"a.yaml": "topics: {}\n"},
    "terraform-state": {"terraform.tfstate": json.dumps(STATE)},
    "topicctl": {"a.yaml": "meta: {name: u}\nspec: {authentication: {type: x}}\n"},
}


@pytest.mark.parametrize("servers", [("k:9092",), ("west=k:9092", "k:9093"), ()], ids=str)
@pytest.mark.parametrize("tool", TOOLS)
def test_files_with_nothing_to_import_are_told_as_such_wherever_the_brokers_are(
    tool: str, servers: tuple[str, ...], tmp_path: Path
) -> None:
    files_in(tmp_path, NOTHING[tool])
    verdict = run(tmp_path, tool, bootstrap_servers=servers, is_workspace=True).verdict
    assert isinstance(verdict, UserError)
    assert str(verdict).startswith(f"{tool}'s files in files have nothing to import")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("tool", TOOLS)
def test_a_path_that_is_not_there_is_named(tool: str, tmp_path: Path) -> None:
    assert "there is no" in refusal(tmp_path, tool, "absent")


def test_a_state_that_nests_without_end_is_refused(tmp_path: Path) -> None:
    files_in(tmp_path, {"x.tfstate": '{"version": 4, "x": ' + "[" * 200_000})
    assert "is not JSON" in refusal(tmp_path, "terraform-state", "files/x.tfstate")


def test_a_file_that_nests_without_end_is_refused_at_once(tmp_path: Path) -> None:
    files_in(tmp_path, {"x.json": "[" * 40_000})
    began = time.monotonic()
    assert "files/x.json" in refusal(tmp_path, "julie")
    assert time.monotonic() - began < 10


def test_every_broken_file_is_told_at_once(tmp_path: Path) -> None:
    files_in(tmp_path, {"a.yaml": "a: [\n", "b.yaml": "b: {\n"})
    said = refusal(tmp_path, "topicctl")
    assert "files/a.yaml" in said
    assert "files/b.yaml" in said


def test_what_terraform_prints_of_a_state_is_read_too(tmp_path: Path) -> None:
    topic = {"address": "module.a.kafka_topic.b", "mode": "managed", "type": "kafka_topic", "name": "b"}
    values = {"name": "orders", "partitions": 3, "replication_factor": 1, "config": {"retention.ms": "86400000"}}
    child = {"address": "module.a", "resources": [{**topic, "values": values}]}
    shown = {
        "format_version": "1.0",
        "terraform_version": "1.11.4",
        "values": {"root_module": {"child_modules": [child]}},
    }
    files_in(tmp_path, {"shown.json": json.dumps(shown)})
    found = run(tmp_path, "terraform", "files/shown.json")
    assert found.addresses == ("topic/kafka/orders",)
    assert found.verdict is None
    assert [(each.subject, each.is_expressible) for each in found.lost] == [("provider alias", False)]


def test_a_thousand_topics_take_no_time_worth_naming(tmp_path: Path) -> None:
    topics = "".join(f"  shop.topic-{n}:\n    partitions: 3\n    replication: 3\n" for n in range(1_000))
    files_in(tmp_path, {"state.yaml": f"topics:\n{topics}"})
    began = time.monotonic()
    assert len(run(tmp_path, "kafka-gitops").addresses) == 1_000
    assert time.monotonic() - began < 10


ODD: tuple[Any, ...] = (
    None,
    True,
    7,
    -1.5,
    "",
    "odd",
    "*",
    "a\nb",
    [],
    [None],
    ["x", 1],
    {},
    {"a": None},
    {"a": {"b": []}},
)


def paths_in(content: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    yield path
    entries = content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ()
    for key, value in entries:
        yield from paths_in(value, (*path, key))


def replaced(content: Any, path: tuple[str | int, ...], value: Any) -> Any:
    if not path:
        return value
    changed = copy.copy(content)
    changed[path[0]] = replaced(content[path[0]], path[1:], value)
    return changed


def documents_of(tool: str) -> Iterator[tuple[Path, int, list[Any]]]:
    """Yield each file of a sample with its documents, once for each of them."""
    for path in sorted((SAMPLES / tool / "files").rglob("*")):
        if path.suffix in {".yaml", ".tfstate"}:
            contents = [
                document.content for document in parse_yaml(path.read_bytes(), path.name, may_merge=True).documents
            ]
            for number in range(len(contents)):
                yield path, number, contents


@pytest.mark.thorough
@pytest.mark.parametrize("tool", TOOLS)
def test_whatever_stands_where_nobody_expects_it_nothing_breaks(tool: str, tmp_path: Path) -> None:
    sample = SAMPLES / tool / "files"
    for path in sample.rglob("*"):
        if path.is_file():
            files_in(tmp_path, {str(path.relative_to(sample)): path.read_bytes()})
    tried = 0
    for path, number, contents in documents_of(tool):
        file = tmp_path / "files" / path.relative_to(sample)
        before = file.read_bytes()
        for place, odd in ((place, odd) for place in paths_in(contents[number]) for odd in ODD):
            tried += 1
            if (tried + len(place)) % 11:  # one in eleven: all of them take minutes
                continue
            changed = [*contents[:number], replaced(contents[number], place, odd), *contents[number + 1 :]]
            file.write_text("\n---\n".join(map(json.dumps, changed)))
            try:
                composed_of(tmp_path, tool)
            except ReconcilerError:
                continue  # a word for people
        file.write_bytes(before)
    assert tried > 500


def composed_of(folder: Path, tool: str) -> None:
    reading = read_files(tool, folder / "files", folder)
    targets = choose_targets(reading, TargetWorkspace(), (), None)
    composed = compose_resources(reading, targets)
    factor_imported(composed.flat, targets.values(), {}, 2)
