"""States of Confluent's Terraform provider become clusters, topics, rules, links and mirrors; no secret is written."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from reconciler.errors import ReconcilerError, UserError
from reconciler.operations.imports import ImportResult, read_files
from reconciler.operations.manifest_files import validate
from reconciler.operations.steps.invocation import Select
from tests.importers.samples_of_tools import invocation_in, losses
from tests.importers.test_bad_input import ODD, composed_of, files_in, paths_in, replaced, run

SAMPLE = yaml.safe_load(Path(__file__).with_name("confluent.yaml").read_text())
MARK = "correct-horse-battery"
"""Stands for each key and secret; the provider stores them with every resource."""
Resources = Iterable[Mapping[str, Mapping[str, Any]]]


def state(resources: Resources, form: str = "pulled") -> str:
    """Return what `terraform state pull` or `terraform show -json` writes."""
    entries = []
    for number, resource in enumerate(resources):
        [(word, changes)] = resource.items()
        kind, attributes = SAMPLE["kinds"][word], {**SAMPLE["attributes"][word], **changes}
        mode = "data" if kind.startswith("data.") else "managed"
        entry = {"mode": mode, "type": kind.removeprefix("data."), "name": f"r{number}"}
        if form == "pulled":
            provider = 'provider["registry.terraform.io/confluentinc/confluent"]'
            entries.append({**entry, "provider": provider, "instances": [{"attributes": attributes}]})
        else:
            sensitive = {"credentials": True}
            entries.append(
                {**entry, "address": f"{kind}.r{number}", "values": attributes, "sensitive_values": sensitive}
            )
    if form == "pulled":
        return json.dumps({"version": 4, "terraform_version": "1.11.4", "lineage": "a", "resources": entries})
    return json.dumps({"format_version": "1.0", "values": {"root_module": {"resources": entries}}})


def imported(folder: Path, resources: Resources, form: str = "pulled", **more: Any) -> ImportResult:
    files_in(folder, {"terraform.tfstate": state(resources, form)})
    return run(folder, "terraform", **more)


def specs(folder: Path, name: str) -> dict[str, Any]:
    """Return the specs of a written file by cluster and name."""
    written = [item for path in (folder / "out").rglob(name) for item in yaml.safe_load_all(path.read_text())]
    return {"/".join(item["metadata"][key] for key in ("cluster", "name") if key in item["metadata"]): item["spec"]
            for item in written}  # fmt: skip


def all_text(folder: Path, found: ImportResult) -> str:
    texts = [path.read_text() for path in (folder / "out").rglob("*") if path.is_file()]
    return "".join([*texts, losses(found), *(item.hint for item in found.lost)])


@pytest.mark.parametrize("form", ["pulled", "shown"])
def test_a_state_becomes_a_valid_workspace_with_references_for_secrets(form: str, tmp_path: Path) -> None:
    found = imported(tmp_path, SAMPLE["whole"]["resources"], form, is_workspace=True)
    assert (found.lost, found.verdict) == ((), None)
    for name in ("clusters", "links", "topics"):
        assert specs(tmp_path, f"{name}.yaml") == SAMPLE["whole"][name]
    assert MARK not in all_text(tmp_path, found)
    validated = validate(invocation_in(tmp_path / "out"), Select())
    assert (validated.verdict, validated.warnings) == (None, ())


@pytest.mark.parametrize("status", SAMPLE["roles"])
def test_the_status_of_a_mirror_becomes_its_role(status: str | None, tmp_path: Path) -> None:
    role, told = SAMPLE["roles"][status]
    found = imported(tmp_path, [{"link": {}}, {"mirror": {"status": status}}])
    [entry] = specs(tmp_path, "links.yaml")["lkc-east1/from-west"]["mirrorTopics"]
    assert (entry.get("state", "mirroring"), found.verdict) == (role, None)
    assert [(item.field, item.why.startswith(told)) for item in found.lost] == ([("status", True)] if told else [])


@pytest.mark.parametrize("form", ["pulled", "shown"])
@pytest.mark.parametrize("case", SAMPLE["cases"])
def test_links_are_written_and_what_manifests_cannot_have_is_told(case: str, form: str, tmp_path: Path) -> None:
    expected = SAMPLE["cases"][case]
    found = imported(tmp_path, expected["resources"], form)
    assert specs(tmp_path, "links.yaml") == expected.get("links", {})
    told = [(item.subject, "left out" if item.is_expressible else "unsaid", item.why) for item in found.lost]
    reasons = expected.get("lost", [])
    assert [(subject, how) for subject, how, _ in told] == [(subject, how) for subject, how, _ in reasons], told
    assert [why for (*_, why), (*_, start) in zip(told, reasons, strict=True) if not why.startswith(start)] == []
    assert MARK not in all_text(tmp_path, found)


def test_without_an_endpoint_no_cluster_is_declared_and_its_id_names_it(tmp_path: Path) -> None:
    bare = [{"topic": {"kafka_cluster": [], "rest_endpoint": None, "credentials": []}}]
    assert imported(tmp_path, bare).addresses == ("topic/lkc-west1/orders",)
    with pytest.raises(UserError, match="cluster lkc-west1 runs on confluent, and the files do not say how to connect"):
        imported(tmp_path, bare, bootstrap_servers=("b:9092",))


DECLARED = """\
apiVersion: reconciler/v1
kind: Cluster
metadata: {name: %s}
spec:
  provider: confluent
  confluent: {restEndpoint: "https://x:443", clusterId: %s, apiKey: "${env:K}", apiSecret: "${env:S}"}
---
"""
WORKSPACE = """\
apiVersion: reconciler/v1
kind: Workspace
metadata: {name: x}
spec:
  state: file://.reconciler
  manifests: [manifests]
  references: {allow: ["env:*"]}
"""


def test_declared_clusters_are_found_by_their_ids(tmp_path: Path) -> None:
    (tmp_path / "manifests").mkdir()
    (tmp_path / "reconciler.yaml").write_text(WORKSPACE)
    clusters = DECLARED % ("berlin", "lkc-east1") + DECLARED % ("paris", "lkc-west1")
    (tmp_path / "manifests" / "clusters.yaml").write_text(clusters)
    found = imported(tmp_path, [{"link": {}}])
    assert found.addresses == ("link/berlin/from-west",)
    assert found.lost == ()
    (tmp_path / "out").rename(tmp_path / "manifests" / "imported")
    again = imported(tmp_path, [{"link": {}}])
    assert (again.addresses, [item.hint for item in again.lost]) == ((), ["Keep one of the two."])


@pytest.mark.parametrize("text", ['"x"', "7", "[]", '{"topicFilters": 7}', '{"topicFilters": [7]}', "[" * 9_999])
def test_filters_of_any_form_give_no_traceback(text: str, tmp_path: Path) -> None:
    files_in(tmp_path, {"a.tfstate": state([{"link": {"config": {"auto.create.mirror.topics.filters": text}}}])})
    assert len(read_files("terraform", tmp_path / "files", tmp_path).lost) == 1


@pytest.mark.thorough
def test_whatever_stands_where_nobody_expects_it_nothing_breaks(tmp_path: Path) -> None:
    resources = [
        *SAMPLE["whole"]["resources"],
        *(each for case in SAMPLE["cases"].values() for each in case["resources"]),
    ]
    content = json.loads(state(resources))
    (tmp_path / "files").mkdir()
    tried = [(place, odd) for place in paths_in(content) for odd in ODD]
    assert len(tried) > 5_000
    for place, odd in tried[::17]:
        (tmp_path / "files" / "a.tfstate").write_text(json.dumps(replaced(content, place, odd)))
        try:
            composed_of(tmp_path, "terraform")
        except ReconcilerError:
            continue  # a message for the user
