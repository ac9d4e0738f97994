"""Workflows and actions are valid, pinned, have few rights, and their shell is sound."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.docs.markdown import ROOT

FOLDER = ROOT / ".github"
TOOLS = Path(sys.executable).parent
WORKFLOWS = sorted((FOLDER / "workflows").glob("*.yml"))
ACTIONS = sorted((FOLDER / "actions").glob("*/action.yml"))
SIGNERS = {("release.yml", job) for job in ("attest", "pypi", "images")}
"""Jobs that may say to others who they are."""
CALLED = ("plan", "apply", "drift")
"""Workflows that repositories with workspaces call."""
OURS = ("./.github/", "./.reconciler-actions/.github/")
"""In the second folder a workflow that is called checks itself out, at the commit that was called."""


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def loaded(path: Path) -> Any:
    return yaml.load(path.read_text(encoding="utf-8"), Loader=yaml.BaseLoader)  # noqa: S506 - keeps `on` a key


def uses(node: Any) -> Iterator[str]:
    match node:
        case dict():
            yield from (value for key, value in node.items() if key == "uses" and isinstance(value, str))
            yield from (found for value in node.values() for found in uses(value))
        case list():
            yield from (found for value in node for found in uses(value))
        case _:
            return


def steps(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the steps of a workflow or action."""
    document = loaded(path)
    for job in document.get("jobs", {"": document.get("runs", {})}).values():
        yield from job.get("steps", [])


def test_zizmor_finds_nothing() -> None:
    done = subprocess.run(
        [TOOLS / "zizmor", "--offline", "--no-progress", "--format", "json", str(FOLDER)],
        capture_output=True,
        text=True,
        check=False,
    )
    found = [(each["ident"], each["desc"], each["locations"][0]["symbolic"]["key"]) for each in json.loads(done.stdout)]
    assert found == [], done.stderr
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("injected", ["${{ github.event.issue.title }}", "${{ github.head_ref }}"])
def test_zizmor_would_find_text_of_strangers_in_a_shell(injected: str, tmp_path: Path) -> None:
    body = f"on: issues\npermissions: {{}}\njobs:\n  a:\n    runs-on: x\n    steps:\n      - run: echo '{injected}'\n"
    folder = tmp_path / ".github" / "workflows"
    folder.mkdir(parents=True)
    (folder / "a.yml").write_text(body)
    done = subprocess.run([TOOLS / "zizmor", "--offline", str(tmp_path)], capture_output=True, text=True, check=False)
    assert "template-injection" in done.stdout


@pytest.mark.thorough
@pytest.mark.parametrize("path", [*WORKFLOWS, *ACTIONS], ids=name_of)
def test_a_file_follows_the_schema_that_github_publishes(path: Path) -> None:
    schema = "vendor.github-workflows" if path in WORKFLOWS else "vendor.github-actions"
    command = [TOOLS / "check-jsonschema", "--builtin-schema", schema, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("path", [*WORKFLOWS, *ACTIONS], ids=name_of)
def test_what_is_used_is_ours_or_pinned_to_a_commit_with_its_version_beside_it(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    for used in uses(loaded(path)):
        assert used.startswith(OURS) or re.search(rf"uses: {re.escape(used)} # v\d+\.\d+\.\d+", text), used
        assert used.startswith(OURS) or re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", used), used


def test_one_action_has_one_version_everywhere() -> None:
    versions = {used for path in [*WORKFLOWS, *ACTIONS] for used in uses(loaded(path)) if "@" in used}
    assert len(versions) == len({used.partition("@")[0] for used in versions}), sorted(versions)


@pytest.mark.parametrize("path", WORKFLOWS, ids=name_of)
def test_a_workflow_has_no_rights_and_each_job_names_its_own_or_has_those_of_its_caller(path: Path) -> None:
    workflow = loaded(path)
    if path.stem in CALLED:
        # Only the caller knows whether it logs in by OIDC, and GitHub lets no called job have more.
        assert "permissions" not in workflow
        assert {name: job.get("permissions") for name, job in workflow["jobs"].items()} == {
            "find": {"contents": "read"},
            path.stem: None,
        }
        return
    assert workflow["permissions"] == {}
    for name, job in workflow["jobs"].items():
        assert job["permissions"], name
        may_sign = job["permissions"].get("id-token") == "write"
        assert may_sign == ((path.name, name) in SIGNERS), name


def test_called_workflows_share_their_inputs_and_use_each() -> None:
    shared: list[dict[str, Any]] = []
    for name in CALLED:
        path = FOLDER / "workflows" / f"{name}.yml"
        call = loaded(path)["on"]["workflow_call"]
        body = path.read_text(encoding="utf-8").partition("\njobs:")[2]
        assert {*re.findall(r"inputs\.([\w-]+)", body)} == call["inputs"].keys(), name
        assert {*re.findall(r"secrets\.([\w-]+)", body)} == call["secrets"].keys(), name
        shared.append({key: {**spec, "default": "", "description": ""} for key, spec in call["inputs"].items()})
    everywhere = shared[0].keys() & shared[1].keys() & shared[2].keys()
    assert {"runs-on", "timeout-minutes", "python-version", "arguments", "protected-by", "source"} <= everywhere
    assert all(inputs[key] == shared[0][key] for inputs in shared for key in everywhere)


def test_all_actions_install_in_the_same_steps() -> None:
    texts = (path.read_text().replace("/../setup/", "/") for path in ACTIONS if path.parent.name != "login")
    installs = {re.search(r"python-version != ''.*?install\.sh", text, re.DOTALL) for text in texts}
    assert len({match and match[0].replace("- id: install\n      ", "- ") for match in installs}) == 1


@pytest.mark.parametrize("path", [*WORKFLOWS, *ACTIONS], ids=name_of)
def test_the_shell_of_each_step_passes_shellcheck(path: Path) -> None:
    for number, step in enumerate(steps(path)):
        if "run" not in step:
            continue
        done = subprocess.run(
            [TOOLS / "shellcheck", "--shell", "bash", "--severity", "style", "-"],
            input="set -eo pipefail\n" + re.sub(r"\$\{\{[^}]*\}\}", "given", step["run"]),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"step {number}: {done.stdout}"


def test_the_package_is_published_from_the_job_that_was_tested_and_attested() -> None:
    jobs = loaded(FOLDER / "workflows" / "release.yml")["jobs"]
    assert jobs["tests"]["uses"] == "./.github/workflows/tests.yml"
    assert set(jobs["attest"]["needs"]) == {"tests", "build"}
    assert jobs["pypi"]["needs"] == "attest"
    assert jobs["pypi"]["environment"]["name"] == "pypi"
    downloads = [step for step in jobs["pypi"]["steps"] if "download-artifact" in step.get("uses", "")]
    built = [step["with"]["name"] for step in jobs["build"]["steps"] if "upload-artifact" in step.get("uses", "")]
    assert [step["with"]["name"] for step in downloads] == ["dist"]
    assert "dist" in built
