"""The components for GitLab: their scripts run in order as a runner runs them, against a forge that speaks its API."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.pipelines.runner import ROOT
from tests.pipelines.test_life import CLUSTER, ORDERS, WORKSPACE
from tests.servers.forge import TOKEN, ForgeServer, Review

COMPONENTS = sorted((ROOT / "templates").glob("*.yml"))
_INPUT = re.compile(r"\$\[\[ inputs\.([\w-]+) \]\]")
MERGE = "5eed"


def component(name: str, **given: Any) -> dict[str, Any]:
    """Return the one job of a component, its inputs filled in."""
    spec, body = (ROOT / "templates" / f"{name}.yml").read_text(encoding="utf-8").split("\n---\n")
    inputs = {key: each.get("default", "") for key, each in yaml.safe_load(spec)["spec"]["inputs"].items()}
    inputs |= {key.replace("_", "-"): value for key, value in given.items()}
    ((_, job),) = yaml.safe_load(body).items()
    found: dict[str, Any] = _filled(job, inputs)
    return found


def _filled(node: Any, inputs: dict[str, Any]) -> Any:
    match node:
        case dict():
            return {key: _filled(value, inputs) for key, value in node.items()}
        case list():
            return [_filled(value, inputs) for value in node]
        case str():
            whole = _INPUT.fullmatch(node)
            return inputs[whole[1]] if whole else _INPUT.sub(lambda found: str(inputs[found[1]]), node)
        case _:
            return node


class Checkout:
    """A checkout on a runner."""

    def __init__(self, folder: Path, forge: ForgeServer) -> None:
        self.folder = folder
        self.forge = forge
        self.environ = {"CI_JOB_URL": f"{forge.url}/jobs/1"}

    def run(self, name: str, source: str, **given: str) -> subprocess.CompletedProcess[str]:
        job = component(name, package="", **given)
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("CI", "GIT", "RECONCILER"))}
        tools = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        environ = {**kept, "CI": "true", **self.forge.environ(), "CI_COMMIT_SHA": MERGE, "PATH": tools}
        if source != "merge_request_event":
            del environ["CI_MERGE_REQUEST_IID"]
        environ |= {
            "CI_PIPELINE_SOURCE": source,
            "CI_PROJECT_DIR": str(self.folder),
            **job["variables"],
            **self.environ,
        }
        script = "\n".join(job["script"])
        command = ["sh", "-e", "-c", script]  # a runner joins the lines, and ends at the first that fails
        done = subprocess.run(command, cwd=self.folder, env=environ, capture_output=True, text=True, check=False)
        assert TOKEN not in done.stdout + done.stderr
        return done


@pytest.fixture
def checkout(tmp_path: Path) -> Iterator[Checkout]:
    (tmp_path / "manifests").mkdir()
    (tmp_path / "reconciler.yaml").write_text(WORKSPACE)
    (tmp_path / "manifests" / "west.yaml").write_text(CLUSTER)
    (tmp_path / "manifests" / "orders.yaml").write_text(ORDERS % 3)
    with ForgeServer("gitlab").started() as forge:
        yield Checkout(tmp_path, forge)


@pytest.mark.thorough
def test_a_merge_request_is_planned_approved_applied_and_watched(checkout: Checkout) -> None:
    forge, folder = checkout.forge, checkout.folder
    planned = checkout.run("plan", "merge_request_event")
    assert planned.returncode == 0, planned.stderr
    assert json.loads((folder / "reconciler-plan" / "widget.json").read_text()) == {
        "create": 2,
        "update": 0,
        "delete": 0,
    }
    assert "digest=" in (folder / "reconciler-plan" / "outputs.env").read_text()
    (comment,) = forge.comments
    assert "Plan for `shop`" in comment.body
    assert f"({forge.url}/jobs/1/artifacts/file/reconciler-plan/1/plan.html)" in comment.body
    assert checkout.run("plan", "merge_request_event", labels="true").returncode == 0
    assert forge.request_labels == ["plan: changes"]

    forge.merged_as = MERGE
    assert checkout.run("apply", "push").returncode == 7
    forge.reviews = [Review("bob")]
    applied = checkout.run("apply", "push")
    assert applied.returncode == 0, applied.stderr

    assert checkout.run("drift", "schedule").returncode == 0
    alter = ["topic", "alter", "topic/west/orders", "--set", "retention.ms=1d", "--no-state"]
    subprocess.run([Path(sys.executable).with_name("reconciler"), *alter], cwd=folder, check=True, capture_output=True)
    assert checkout.run("drift", "schedule").returncode == component("drift")["allow_failure"]["exit_codes"]
    (issue,) = forge.issues
    assert "retention.ms" in issue.body
    assert (folder / "reconciler-drift" / "1" / "drift.html").stat().st_size > 1000


@pytest.mark.thorough
def test_a_plan_that_fails_fails_the_job_after_it_was_commented(checkout: Checkout) -> None:
    (checkout.folder / "manifests" / "orders.yaml").write_text(ORDERS % "many")
    assert checkout.run("plan", "merge_request_event").returncode == 1
    assert "was not planned" in checkout.forge.comments[0].body
    assert (checkout.folder / "reconciler-plan" / "1" / "plan.xml").read_text().count("<failure") == 1


@pytest.mark.thorough
def test_all_workspaces_of_a_repository_are_planned_applied_and_watched(checkout: Checkout) -> None:
    forge, folder = checkout.forge, checkout.folder
    other = folder / "other teams"
    (other / "manifests").mkdir(parents=True)
    (other / "reconciler.yaml").write_text(WORKSPACE.replace("name: shop", "name: other"))
    (other / "manifests" / "all.yaml").write_text(f"{CLUSTER}---\n{ORDERS % 3}")
    planned = checkout.run("plan", "merge_request_event", arguments="  --target\ntopic/west/*\n\n")
    assert planned.returncode == 0, planned.stderr
    assert json.loads((folder / "reconciler-plan" / "widget.json").read_text())["create"] == 4
    assert sorted("`shop`" in each.body for each in forge.comments) == [False, True]
    (folder / "manifests" / "orders.yaml").write_text(ORDERS % "many")
    assert checkout.run("plan", "merge_request_event", workspace=".\nother teams").returncode == 1
    assert json.loads((folder / "reconciler-plan" / "widget.json").read_text())["create"] == 2
    (folder / "manifests" / "orders.yaml").write_text(ORDERS % 3)
    assert checkout.run("plan", "merge_request_event").returncode == 0

    forge.merged_as, forge.reviews = MERGE, [Review("bob")]
    applied = checkout.run("apply", "push")
    assert applied.returncode == 0, applied.stderr
    assert (other / ".clusters" / "west").is_dir()
    assert checkout.run("drift", "schedule").returncode == 0
    alter = ["topic", "alter", "topic/west/orders", "--set", "retention.ms=1d"]
    subprocess.run([Path(sys.executable).with_name("reconciler"), *alter], cwd=other, check=True, capture_output=True)
    assert checkout.run("drift", "schedule").returncode == 3
    assert ["`other`" in each.body for each in forge.issues if each.is_open] == [True]
    (folder / "manifests" / "orders.yaml").write_text(ORDERS % "many")
    assert checkout.run("drift", "schedule").returncode == 1  # what cannot be compared is graver than what drifted


@pytest.mark.thorough
def test_what_is_typed_wrong_takes_the_place_of_the_old_comment(checkout: Checkout) -> None:
    assert checkout.run("plan", "merge_request_event").returncode == 0
    assert checkout.run("plan", "merge_request_event", arguments="--no-such-option").returncode == 64
    (comment,) = checkout.forge.comments
    assert "No such option: --no-such-option" in comment.body


def test_a_repository_without_a_workspace_is_told(checkout: Checkout) -> None:
    (checkout.folder / "reconciler.yaml").unlink()
    done = checkout.run("plan", "merge_request_event")
    assert (done.returncode, "No folder of this repository has a reconciler.yaml" in done.stdout) == (1, True)


@pytest.mark.thorough
def test_a_checkout_of_another_user_has_a_base(checkout: Checkout) -> None:
    commands = (
        ("init", "--quiet"),
        ("add", "--all"),
        ("-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "x"),
    )
    for arguments in commands:
        subprocess.run(["git", *arguments], cwd=checkout.folder, check=True)
    checkout.environ |= {"CI_MERGE_REQUEST_DIFF_BASE_SHA": "HEAD", "GIT_TEST_ASSUME_DIFFERENT_OWNER": "1"}
    planned = checkout.run("plan", "merge_request_event")
    assert planned.returncode == 0, planned.stderr
    checkout.environ["GIT_CONFIG_COUNT"] = "0"
    assert "git cannot read HEAD" in checkout.run("plan", "merge_request_event").stderr


@pytest.mark.parametrize(
    ("name", "source"), [("plan", "merge_request_event"), ("apply", "push"), ("drift", "schedule")]
)
def test_a_job_logs_in_by_oidc_on_the_runner_that_has_the_tags(checkout: Checkout, name: str, source: str) -> None:
    tool = checkout.folder / "bin" / "reconciler"
    tool.parent.mkdir()
    tool.write_text(
        '#!/bin/sh\necho "$AWS_ROLE_ARN $AWS_DEFAULT_REGION $AZURE_CLIENT_ID $AZURE_TENANT_ID"\n'
        'cat "$AWS_WEB_IDENTITY_TOKEN_FILE" "$AZURE_FEDERATED_TOKEN_FILE"\n'
    )
    tool.chmod(0o755)
    given = {"aws_role": "arn:1", "aws_region": "eu-west-1", "azure_client": "c", "azure_tenant": "t"}
    checkout.environ |= {"PATH": f"{tool.parent}:{os.environ['PATH']}", "RECONCILER_ID_TOKEN": "jwt"}
    done = checkout.run(name, source, **given)
    assert "arn:1 eu-west-1 c t\njwtjwt" in done.stdout
    job = component(name, tags=["kafka"])
    assert (job["tags"], job["image"]["entrypoint"]) == (["kafka"], [""])
    assert job["id_tokens"] == {"RECONCILER_ID_TOKEN": {"aud": "$CI_SERVER_URL"}}


@pytest.mark.thorough
@pytest.mark.parametrize("hostile", ["$(touch {place})", "`touch {place}`", '"; touch {place}; "'])
def test_what_inputs_hold_is_never_run(checkout: Checkout, hostile: str) -> None:
    place = checkout.folder / "was-run"
    text = hostile.format(place=place)
    checkout.run("plan", "merge_request_event", workspace=text, environment=text, fail_on=text)
    checkout.run("plan", "merge_request_event", arguments=text)
    checkout.run("apply", "push", workspace=text, environment=text, lock_timeout=text, arguments=text)
    checkout.run("drift", "schedule", environment=text, label=text, arguments=text)
    assert not place.exists()


@pytest.mark.parametrize("path", COMPONENTS, ids=lambda path: path.name)
def test_every_input_is_used_and_every_artifact_is_written(path: Path) -> None:
    spec, body = path.read_text(encoding="utf-8").split("\n---\n")
    assert {found[1] for found in _INPUT.finditer(body)} == set(yaml.safe_load(spec)["spec"]["inputs"])
    job = component(path.stem)
    script = "\n".join(job["script"])
    for artifact in job.get("artifacts", {}).get("reports", {}).values():
        folder, _, name = artifact.partition("/")
        assert folder in script
        assert f"$folder/{name.removeprefix('*/')}" in script
