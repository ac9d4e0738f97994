from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from reconciler.manifests.json_schema import build_schemas
from reconciler.manifests.models import validate_draft
from reconciler.manifests.yaml_documents import parse_yaml
from tests.manifests.test_sentences import draft_with

ROOT = Path(__file__).parent.parent.parent
NOT_ON_CONFLUENT = {
    f"spec.confluent.security.account.{name}" for name in ("profile", "roleArn", "externalId", "sessionName")
}
"""Accounts of AWS log in to Amazon MSK only."""
KINDS = sorted((ROOT / "tests" / "cases" / "kinds").glob("*.yaml"))
MANIFESTS = [
    *KINDS,
    *sorted((ROOT / "examples").glob("*/reconciler.yaml")),
    *sorted((ROOT / "examples").glob("*/manifests/*.yaml")),
]
SCHEMAS = build_schemas()


def contents_of(file: Path) -> list[Any]:
    parsed = parse_yaml(file.read_bytes(), file.name)
    assert not parsed.problems
    return [document.content for document in parsed.documents]


@pytest.mark.parametrize("name", SCHEMAS)
def test_the_schemas_in_the_repository_are_those_of_the_models(name: str) -> None:
    written = json.loads((ROOT / "schemas" / f"{name}.json").read_text())
    assert written == SCHEMAS[name], "run `make schemas`"


@pytest.mark.parametrize("file", MANIFESTS, ids=lambda file: str(file.relative_to(ROOT)))
def test_every_manifest_follows_the_schema_of_its_kind_and_that_of_any_manifest(file: Path) -> None:
    for content in contents_of(file):
        jsonschema.Draft202012Validator(SCHEMAS["manifest"]).validate(content)
        jsonschema.Draft202012Validator(SCHEMAS[content["kind"].lower()]).validate(content)


@pytest.mark.parametrize("file", KINDS, ids=lambda file: file.stem)
def test_every_field_of_a_kind_is_read(file: Path) -> None:
    written: set[str] = set()
    for content in contents_of(file):
        written |= set(_paths(content))
        if "${var" not in json.dumps(content):
            resource, complaints = validate_draft(draft_with(content))
            assert resource is not None, complaints
    known = {path for path in _fields(SCHEMAS[file.stem], SCHEMAS[file.stem]["$defs"]) if "configs." not in path}
    assert sorted(known - written - NOT_ON_CONFLUENT) == []


def test_what_a_manifest_cannot_be_is_refused_by_its_schema() -> None:
    validator = jsonschema.Draft202012Validator(SCHEMAS["manifest"])
    whole = {
        "apiVersion": "reconciler/v1",
        "kind": "Topic",
        "metadata": {"name": "a", "cluster": "west"},
        "spec": {"partitions": 1},
    }
    validator.validate(whole)
    wrong: list[dict[str, Any]] = [
        {**whole, "kind": "MirrorTopic"},
        {**whole, "apiVersion": "v1"},
        {**whole, "extra": 1},
        {**whole, "spec": {}},
        {**whole, "spec": {"partitions": None}},
        {**whole, "spec": {"partitions": 0}},
        {**whole, "spec": {"partitions": "12"}},
        {**whole, "spec": {"partitions": 1, "replication_factor": 3}},
        {**whole, "metadata": {"name": "a"}},
        {**whole, "metadata": {"name": "a b", "cluster": "west"}},
        {key: value for key, value in whole.items() if key != "kind"},
        {key: value for key, value in whole.items() if key != "spec"},
    ]
    assert [each for each in wrong if validator.is_valid(each)] == []


@pytest.mark.parametrize("name", SCHEMAS)
def test_every_field_says_what_it_is_for_and_its_examples_are_right(name: str) -> None:
    schema = SCHEMAS[name]
    jsonschema.Draft202012Validator.check_schema(schema)
    for path, field in _properties(schema):
        meant = schema["$defs"].get(field.get("$ref", "").removeprefix("#/$defs/"), {})
        assert field.get("description") or meant.get("description"), f"{path} has no description"
        for example in field.get("examples", ()):
            jsonschema.Draft202012Validator({**field, "$defs": schema["$defs"]}).validate(example)


def test_null_is_nowhere_a_value() -> None:
    assert '"null"' not in json.dumps(dict(SCHEMAS))


def _paths(content: Any, path: str = "") -> Iterator[str]:
    if isinstance(content, Mapping):
        for key, value in content.items():
            yield f"{path}.{key}" if path else key
            yield from _paths(value, f"{path}.{key}" if path else key)
    elif isinstance(content, list):
        for item in content:
            yield from _paths(item, path)


def _fields(schema: Any, definitions: Mapping[str, Any], path: str = "") -> Iterator[str]:
    if "$ref" in schema:
        yield from _fields(definitions[schema["$ref"].removeprefix("#/$defs/")], definitions, path)
    for part in ("anyOf", "items"):
        inner = schema.get(part, ())
        for each in inner if isinstance(inner, list) else [inner] if inner else []:
            yield from _fields(each, definitions, path)
    for name, field in schema.get("properties", {}).items():
        below = f"{path}.{name}" if path else name
        yield below
        yield from _fields(field, definitions, below)


def _properties(schema: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every property of a schema and of its definitions."""
    for where, part in [("", schema), *schema["$defs"].items()]:
        for name, field in part.get("properties", {}).items():
            yield f"{where}.{name}", field
