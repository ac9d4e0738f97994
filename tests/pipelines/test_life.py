"""The life of a change on a forge, played through our actions: planned, approved, applied, drifted, mended."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.pipelines.runner import Runner, RunOutcome
from tests.servers.forge import NUMBER, REPOSITORY, TOKEN, ForgeServer, Review

pytestmark = pytest.mark.thorough

RECONCILER = str(Path(sys.executable).with_name("reconciler"))
WORKSPACE = """\
apiVersion: reconciler/v1
kind: Workspace
metadata: {name: shop}
spec: {guards: {approvals: {data-loss: 2}}}
"""
CLUSTER = """\
apiVersion: reconciler/v1
kind: Cluster
metadata: {name: west}
spec: {embedded: {root: "file://.clusters/west"}}
"""
ORDERS = """\
apiVersion: reconciler/v1
kind: Topic
metadata: {name: orders, cluster: west}
spec: {partitions: %s, configs: {retention.ms: 7d}}
"""


@dataclass
class Repository:
    """A repository on a forge, and the machines that its pipelines run on."""

    folder: Path
    home: Path
    forge: ForgeServer
    logs: list[str] = field(default_factory=list)
    tool: str = ""
    """A script in place of the tool."""

    def git(self, *arguments: str) -> str:
        command = ["git", "-c", "user.name=anna", "-c", "user.email=anna@example.com", *arguments]
        return subprocess.run(command, cwd=self.folder, capture_output=True, text=True, check=True).stdout.strip()

    def write(self, **files: str) -> str:
        for name, text in files.items():
            (self.folder / "manifests" / f"{name}.yaml").write_text(text)
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message", "Change topics")
        return self.git("rev-parse", "HEAD")

    def run(self, action: str, event: str, payload: dict[str, Any] | None = None, **given: str) -> RunOutcome:
        environ = {**self.forge.environ(), "GITHUB_SHA": self.git("rev-parse", "HEAD")}
        runner = Runner(self.home, self.folder, event, payload or {}, environ, TOKEN)
        if self.tool:
            (self.home / "temp" / "reconciler" / "bin" / "reconciler").write_text(self.tool)
        ended = runner.run(action, **given)
        assert TOKEN not in ended.log + ended.summary
        self.logs.append(ended.log)
        return ended

    def plan(self, *, head: str = REPOSITORY, **given: str) -> RunOutcome:
        base = {"ref": "main", "sha": self.git("rev-list", "--max-parents=0", "HEAD")}
        request = {"number": NUMBER, "head": {"repo": {"full_name": head}}, "base": base}
        return self.run("plan", "pull_request", {"pull_request": request}, **given)

    def merge(self) -> None:
        self.forge.merged_as = self.git("rev-parse", "HEAD")


@pytest.fixture
def repository(tmp_path: Path) -> Iterator[Repository]:
    folder = tmp_path / "checkout"
    (folder / "manifests").mkdir(parents=True)
    (folder / "reconciler.yaml").write_text(WORKSPACE)
    (folder / ".gitignore").write_text(".clusters/\n.reconciler/\n")
    with ForgeServer("github").started() as forge:
        found = Repository(folder, tmp_path / "machine", forge)
        found.git("init", "--quiet", "--initial-branch", "main")
        forge.head = found.write(west=CLUSTER)
        yield found


def test_a_change_is_planned_approved_applied_and_watched(repository: Repository) -> None:
    it, forge = repository, repository.forge

    # The pull request is opened, and planned.
    forge.head = it.write(orders=ORDERS % 3)
    first = it.plan()
    assert (first.code, first.outputs["create"], first.outputs["failure"]) == (0, "2", "")
    (comment,) = forge.comments
    assert f"digest={first.outputs['digest']}" in comment.body
    assert comment.body.replace("\r\n", "\n").strip() in first.summary
    (artifact,) = [options for used, options in first.used if used.startswith("actions/upload-artifact@")]
    assert {path.name for path in Path(artifact["path"]).iterdir()} >= {"plan.json", "plan.html", "comment.md"}

    # It is changed: broken first, then mended. The same comment follows.
    it.write(orders=ORDERS % "many")
    broken = it.plan()
    assert (broken.code, broken.outputs["digest"], broken.outputs["exit-code"]) == (1, "", "1")
    assert "::error file=manifests/orders.yaml,line=4," in broken.log
    assert "was not planned" in forge.comments[0].body
    forge.head = it.write(orders=ORDERS % 4)
    again = it.plan()
    assert again.outputs["digest"] not in {first.outputs["digest"], ""}
    assert [each.id for each in forge.comments] == [comment.id]

    # Nobody has approved it: nothing is applied. Then somebody does, and it is merged.
    it.merge()
    early = it.run("apply", "push")
    assert (early.code, early.outputs["exit-code"]) == (7, "7")
    assert not (it.folder / ".clusters").exists()
    forge.reviews = [Review("bob", commit=forge.head)]
    applied = it.run("apply", "push")
    assert applied.code == 0, applied.log
    assert "it is done" in applied.summary
    assert "Approved: by bob in http" in applied.summary
    assert (it.folder / ".clusters" / "west").is_dir()

    # Nothing has drifted: there is no issue. Then somebody changes a topic by hand.
    assert it.run("drift", "schedule", labels="drift").outputs["findings"] == "0"
    assert forge.issues == []
    alter = [RECONCILER, "topic", "alter", "topic/west/orders", "--set", "retention.ms=1d", "--no-state"]
    subprocess.run(alter, cwd=it.folder, check=True, capture_output=True)
    drifted = it.run("drift", "schedule", labels="drift")
    assert (drifted.code, drifted.outputs["findings"], drifted.outputs["exit-code"]) == (0, "1", "3")
    (issue,) = forge.issues
    assert ("retention.ms" in issue.body, issue.labels, issue.is_open) == (True, ["drift"], True)
    assert it.run("drift", "schedule", fail="true").code == 3

    # It is set back, and the issue is closed.
    back = it.run("apply", "push", approved_in="none", arguments="--only-drift")
    assert back.code == 0, back.log
    assert it.run("drift", "schedule").code == 0
    assert not issue.is_open

    # The history says who approved what.
    said = subprocess.run(
        [RECONCILER, "state", "history", "--format", "json"], cwd=it.folder, capture_output=True, check=True
    )
    approved = [each["approved_by"] for each in json.loads(said.stdout)["snapshots"]]
    assert ["bob"] in approved


def test_a_plan_that_changed_after_its_approval_is_not_applied(repository: Repository) -> None:
    it, forge = repository, repository.forge
    forge.head = it.write(orders=ORDERS % 3)
    assert it.plan().code == 0
    forge.reviews = [Review("bob", commit=forge.head)]
    it.write(orders=ORDERS % 30)  # somebody else's merge, say
    it.merge()
    refused = it.run("apply", "push")
    assert refused.code == 6
    assert "is not the one that was approved" in refused.log
    assert not (it.folder / ".clusters").exists()


def test_a_pull_request_from_a_fork_is_planned_without_a_comment(repository: Repository) -> None:
    repository.write(orders=ORDERS % 3)
    planned = repository.plan(head="mallory/topics")
    assert planned.code == 0
    assert "the plan is in the summary of this job" in planned.log
    assert "Plan for `shop`" in planned.summary
    assert repository.forge.comments == []
    assert not [each for each in repository.forge.requests if each.method != "GET"]


def test_a_blocked_plan_fails_after_it_was_commented(repository: Repository) -> None:
    repository.write(orders=ORDERS % 3)
    repository.plan()
    repository.run("apply", "push", approved_in="none")
    repository.write(orders=(ORDERS % 3).replace("{partitions", "{protect: true, partitions"))
    repository.run("apply", "push", approved_in="none")
    (repository.folder / "manifests" / "orders.yaml").unlink()
    planned = repository.plan()
    assert (planned.code, planned.outputs["blocked"]) == (7, "1")
    assert "1 blocked" in planned.outputs["failure"]
    assert "protected" in repository.forge.comments[-1].body


def test_what_is_typed_wrong_fails_and_takes_the_place_of_the_old_comment(repository: Repository) -> None:
    repository.write(orders=ORDERS % 3)
    repository.plan()
    wrong = repository.plan(arguments="--no-such-option")
    assert (wrong.code, wrong.outputs["exit-code"], wrong.outputs["digest"]) == (64, "64", "")
    assert "--no-such-option" in wrong.log
    assert "--no-such-option" in wrong.outputs["failure"]
    assert "was not planned" in wrong.summary
    (comment,) = repository.forge.comments
    assert "was not planned" in comment.body
    assert "No such option: --no-such-option" in comment.body
    assert "digest=" not in comment.body


def test_a_plan_that_was_killed_takes_the_place_of_the_old_comment(repository: Repository) -> None:
    repository.write(orders=ORDERS % 3)
    repository.plan()
    tool = repository.home / "temp" / "reconciler" / "bin" / "reconciler"
    kept = tool.read_text()
    runner_makes = 'case "$1" in plan) kill -9 $$;; esac\n'
    repository.tool = kept.replace("exec", f"{runner_makes}exec")
    killed = repository.plan()
    assert (killed.code, killed.outputs["failure"]) == (137, "the plan was not made, see the log")
    (comment,) = repository.forge.comments
    assert "the plan was not made, see the log" in comment.body
    assert "digest=" not in comment.body


@pytest.mark.parametrize("hostile", ["$(touch {place})", "`touch {place}`", "; touch {place}", "' && touch {place} '"])
def test_what_inputs_and_branches_hold_is_never_run(repository: Repository, tmp_path: Path, hostile: str) -> None:
    place = tmp_path / "was-run"
    text = hostile.format(place=place)
    repository.plan(workspace=text, environment=text, arguments=text, fail_on=text, head=text)
    repository.run("apply", "push", workspace=text, environment=text, approved_in=text, lock_timeout=text)
    repository.run("drift", "schedule", environment=text, labels=text, webhook=text)
    assert not place.exists()


@pytest.mark.parametrize(
    ("env", "said"),
    [
        ("RECONCILER_VAR_PLACE=.clusters/west\n  OTHER=hush hush\r\n", "::add-mask::hush hush"),
        ("RECONCILER_VAR_PLACE=.clusters/west\nOTHER=a%0Ab", "::add-mask::a%250Ab"),
        ("RECONCILER_VAR_PLACE=.clusters/west\nKEY<<END\n-----BEGIN\nMIIE=\nEND", "::add-mask::MIIE="),
    ],
)
def test_variables_reach_the_manifests_and_are_masked(repository: Repository, env: str, said: str) -> None:
    repository.write(west=CLUSTER.replace(".clusters/west", "${var.PLACE}"))
    planned = repository.plan(env=env, arguments="  --target=*  \r\n")
    assert said in planned.log.splitlines()
    assert (planned.code, planned.outputs["failure"]) == (0, ""), planned.log


@pytest.mark.parametrize("env", ["no name=psst", "psst", "KEY<<END\npsst"])
def test_variables_that_cannot_be_read_are_refused_and_not_shown(repository: Repository, env: str) -> None:
    wrong = repository.plan(env=env)
    assert (wrong.code, "psst" in wrong.log) == (64, False)
    assert "env" in wrong.outputs["failure"]
    (comment,) = repository.forge.comments
    assert wrong.outputs["failure"] in comment.body
    assert "psst" not in comment.body
