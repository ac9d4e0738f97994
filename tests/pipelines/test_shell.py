"""The shell of our pipelines is sound, and what they name of ours is of this version."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from reconciler import __version__
from tests.pipelines.runner import ACTIONS, ROOT, Runner

SCRIPTS = sorted(ACTIONS.glob("*/*.sh"))
SHELLCHECK = Path(sys.executable).with_name("shellcheck")


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_shellcheck_finds_nothing_in_a_script(path: Path) -> None:
    command = [SHELLCHECK, "--external-sources", "--severity", "style", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_workflows_and_components_name_this_version() -> None:
    files = [*ROOT.glob(".github/workflows/*.yml"), *ROOT.glob("templates/*.yml")]
    files += [ROOT / "docs" / "guides" / f"{name}.md" for name in ("pull-requests", "pipelines")]
    text = "".join(path.read_text(encoding="utf-8") for path in files)
    found = re.findall(r"reconciler/\S+@v([\d.]+\d)|stream-reconciler\S*==([\d.]+\d)", text)
    assert {one or other for one, other in found} == {__version__}
    assert len(found) > 5


@pytest.mark.parametrize(
    ("files", "found"),
    [
        ([], []),
        (["reconciler.yaml"], ["."]),
        (["a/reconciler.yaml", "b c/reconciler.yaml", "b c/manifests/reconciler.yaml.txt"], ["a", "b c"]),
        (["q\"'$(x)/reconciler.yaml"], ["q\"'$(x)"]),
    ],
)
def test_the_workspaces_of_a_repository_are_found(tmp_path: Path, files: list[str], found: list[str]) -> None:
    workflow = (ROOT / ".github" / "workflows" / "plan.yml").read_text(encoding="utf-8")
    script = re.search(r"        run: \|\n((?: {10}.*\n)+)", workflow)
    assert script is not None
    for name in files:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    for command in ("init", "--quiet"), ("add", "--all"):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    output = tmp_path / "output"
    environ = {**os.environ, "WORKSPACES": "", "GITHUB_OUTPUT": str(output)}
    subprocess.run(["bash", "-e", "-o", "pipefail", "-c", script[1]], cwd=tmp_path, env=environ, check=True)
    assert json.loads(output.read_text().removeprefix("workspaces=")) == found


@pytest.mark.thorough
def test_the_commit_of_an_action_is_installed_with_the_versions_of_the_lock_and_then_comes_from_a_cache(
    tmp_path: Path,
) -> None:
    runner = Runner(tmp_path / "machine", tmp_path, "push", {}, finds_installed=False)
    ended = runner.run("setup", extras="")
    assert ended.code == 0, ended.log
    assert ended.outputs["version"] == __version__
    home = tmp_path / "machine" / "temp" / "reconciler"
    locked = set(
        re.findall(r"^([\w.-]+)(?:\[[^]]*\])?==([^ ;\\]+)", (ROOT / "requirements.lock").read_text(), re.MULTILINE)
    )
    listed = subprocess.run(
        [Path(sys.executable).with_name("uv"), "pip", "list", "--format", "json", "--python", home / "bin" / "python"],
        capture_output=True,
        check=True,
    )
    installed = {(row["name"], row["version"]) for row in json.loads(listed.stdout)}
    assert installed - locked == {("stream-reconciler", __version__)}
    (cache,) = [options for name, options in ended.used if name.startswith("actions/cache@")]
    assert cache["path"] == str(home)

    # The next job finds the same key, and what the cache has restored; it reaches no index.
    kept = home.rename(tmp_path / "kept")
    offline = {"PIP_INDEX_URL": "http://127.0.0.1:9", "UV_OFFLINE": "1"}
    again = Runner(tmp_path / "machine", tmp_path, "push", {}, offline, finds_installed=False)
    assert again.run("setup", extras="").code == 1
    shutil.rmtree(home, ignore_errors=True)
    kept.rename(home)
    warm = again.run("setup", extras="")
    assert (warm.code, warm.outputs["version"]) == (0, __version__), warm.log


@pytest.mark.parametrize(
    ("package", "extras", "keys"), [("", "kafka", 3), ("x==1.2", "", 3), ("x", "", 0), ("x>=1", "", 0)]
)
def test_only_what_has_a_version_comes_from_a_cache(tmp_path: Path, package: str, extras: str, keys: int) -> None:
    listed: list[str] = []
    for number, wanted in enumerate((extras, extras, "other")):
        output = tmp_path / f"output-{number}"
        environ = {**os.environ, "RUNNER_TEMP": str(tmp_path / "temp"), "GITHUB_OUTPUT": str(output)}
        environ |= {"PACKAGE": package, "EXTRAS": wanted}
        subprocess.run(["bash", ACTIONS / "setup" / "place.sh"], env=environ, check=True)
        listed += re.findall(r"^key=(.+)$", output.read_text(), re.MULTILINE)
    assert (len(listed), len(set(listed))) == (keys, min(keys, 2))


SLOW = """\
#!/usr/bin/env python3
import pathlib, signal, sys, time
def stop(number, frame):
    time.sleep(0.3)
    print("freed the lease", flush=True)
    sys.exit(8)
signal.signal(signal.SIGTERM, stop)
pathlib.Path("began").touch()
while True:
    time.sleep(0.05)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_job_that_is_cancelled_lets_the_run_end_in_order(tmp_path: Path, number: signal.Signals) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "reconciler").write_text(SLOW)
    (tools / "reconciler").chmod(0o755)
    named = {"WORKSPACE": str(tmp_path), "ENVIRONMENT": "", "APPROVED_IN": "none", "ARGUMENTS": "", "VARIABLES": ""}
    files = {"GITHUB_OUTPUT": str(tmp_path / "output"), "GITHUB_STEP_SUMMARY": str(tmp_path / "summary")}
    environ = {"PATH": f"{tools}:/usr/bin:/bin", "RUNNER_TEMP": str(tmp_path), "LOCK_TIMEOUT": "1m", **named, **files}
    # As a runner starts it: with Ctrl-C as it is by default.
    with subprocess.Popen(
        ["bash", "-c", f'exec "{ACTIONS}/apply/apply.sh"'], env=environ, stdout=subprocess.PIPE, text=True
    ) as step:
        while not (tmp_path / "began").exists():
            time.sleep(0.01)
        step.send_signal(number)
        said, _ = step.communicate()
    assert (step.returncode, said) == (8, "freed the lease\n")
    assert (tmp_path / "output").read_text() == "status=8\n"
    assert "freed the lease" in (tmp_path / "summary").read_text()
