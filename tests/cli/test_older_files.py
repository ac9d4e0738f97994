"""Files that are older than what was applied last: plans say so, and an apply does not take newer files back."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from reconciler.objectstore.directory import DirectoryStore
from reconciler.providers.embedded.provider import EmbeddedProvider
from reconciler.state.lockfile import read_lockfile

if TYPE_CHECKING:
    from tests.cli.conftest import Call, Said

WORKSPACE = """\
apiVersion: reconciler/v1
kind: Workspace
metadata: {name: shop}
spec: {state: "file://../state"}
"""
FILES = """\
apiVersion: reconciler/v1
kind: Cluster
metadata: {name: west}
spec: {embedded: {root: "file://../west"}}
---
apiVersion: reconciler/v1
kind: Topic
metadata: {name: orders, cluster: west}
spec: {partitions: 1, configs: {retention.ms: RETENTION}}
"""
OLDER = "is newer, was applied last"
UNKNOWN = "which was applied last, is not known"


@dataclass
class Repository:
    """A workspace in a git repository, next to its state and its cluster, and the commands typed there."""

    typed: Call
    folder: Path

    def git(self, *arguments: str) -> str:
        return subprocess.run(
            ["git", "-C", str(self.folder), *arguments], check=True, capture_output=True, text=True
        ).stdout.strip()

    def commit(self, retention: str) -> str:
        """Commit files that say how long records are kept; return the commit."""
        (self.folder / "reconciler.yaml").write_text(WORKSPACE)
        (self.folder / "manifests").mkdir(exist_ok=True)
        (self.folder / "manifests/all.yaml").write_text(FILES.replace("RETENTION", retention))
        self.git("add", ".")
        self.git("commit", "-q", "-m", retention, "--allow-empty")
        return self.git("rev-parse", "HEAD")

    def at(self, commit: str) -> Repository:
        self.git("checkout", "-q", commit)
        return self

    def run(self, *arguments: str, code: int = 0) -> Said:
        said = self.typed(*arguments, "--workspace", str(self.folder))
        assert said.code == code, said.out + said.err
        return said

    def apply(self, *arguments: str, code: int = 0) -> Said:
        return self.run("apply", "--yes", *arguments, code=code)

    def plan(self, *arguments: str, code: int = 0) -> Said:
        return self.run("plan", *arguments, code=code)

    def applied(self) -> dict[str, Any] | None:
        found: dict[str, Any] | None = json.loads(self.plan("--format", "json").out)["git"]["applied"]
        return found

    @property
    def recorded(self) -> str | None:
        found = read_lockfile(DirectoryStore(self.folder.parent / "state"))
        return found and found.lockfile.commit

    def clone(self, name: str, *arguments: str) -> Repository:
        """Clone it beside itself: the clone has the same state."""
        other = self.folder.parent / name
        self.git("clone", "-q", *arguments, f"file://{self.folder}", str(other))
        return Repository(self.typed, other)


@pytest.fixture
def repository(typed: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repository:
    for who in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{who}_NAME", "a")
        monkeypatch.setenv(f"GIT_{who}_EMAIL", "a@example.org")
    for place in ("GLOBAL", "SYSTEM"):
        monkeypatch.setenv(f"GIT_CONFIG_{place}", os.devnull)
    made = Repository(typed, tmp_path / "files")
    made.folder.mkdir()
    made.git("init", "-q", "-b", "main")
    return made


@pytest.fixture
def two(repository: Repository) -> tuple[Repository, str, str]:
    """A repository of two commits of which the newer one is applied, and the commits."""
    older, newer = repository.commit("1d"), repository.commit("2d")
    repository.apply()
    return repository, older, newer


def test_an_apply_of_older_files_is_blocked_and_the_plan_says_so_without_failing(
    two: tuple[Repository, str, str],
) -> None:
    repository, older, newer = two
    assert repository.recorded == newer
    repository.at(older)
    planned = repository.plan()
    message = f"the files are of commit {older[:7]}, and {newer[:7]}, which {OLDER}"
    assert message in planned.err
    assert f"Apply is blocked; allow once with: --allow older:{older[:7]}" in planned.out
    assert repository.applied() == {"commit": newer, "is_newer": True, "allow": f"older:{older[:7]}"}
    assert message in repository.plan("--format", "markdown").out
    refused = repository.apply(code=7)
    assert f"nothing was done: {message}" in refused.err
    assert f"Apply {newer[:7]} or a later commit." in refused.err
    assert repository.recorded == newer
    repository.run("drift")
    assert "nothing to do" in repository.at(newer).plan().out


def test_going_back_is_allowed_by_the_commit_and_makes_it_the_one_that_was_applied(
    two: tuple[Repository, str, str],
) -> None:
    repository, older, newer = two
    repository.at(older).apply("--allow", f"older:{newer[:7]}", code=7)
    done = repository.apply("--allow", f"older:{older[:7]}")
    assert "matches nothing" not in done.err
    assert repository.recorded == older
    assert repository.at(newer).applied() == {"commit": older, "is_newer": False, "allow": None}
    repository.apply()
    assert repository.recorded == newer


def test_what_the_files_say_may_be_applied_newer_the_same_or_from_another_branch(
    two: tuple[Repository, str, str],
) -> None:
    repository, older, newer = two
    (repository.folder / "manifests/all.yaml").write_text(FILES.replace("RETENTION", "3d"))
    repository.apply()  # files that are not committed count as their commit
    repository.git("checkout", "-q", "-f", "-b", "work", older)
    branched = repository.commit("4d")
    assert repository.applied() == {"commit": newer, "is_newer": False, "allow": None}
    repository.apply()
    assert repository.recorded == branched
    repository.at("main")
    repository.git("merge", "-q", "-X", "theirs", "work")
    assert "nothing to do" in repository.apply().out
    assert repository.recorded == repository.git("rev-parse", "HEAD")


def test_uncommitted_changes_to_older_files_are_as_old_as_their_commit(two: tuple[Repository, str, str]) -> None:
    repository, older, _ = two
    repository.at(older)
    (repository.folder / "manifests/all.yaml").write_text(FILES.replace("RETENTION", "3d"))
    assert OLDER in repository.apply(code=7).err


def test_a_commit_that_had_nothing_to_do_is_newer_all_the_same(repository: Repository) -> None:
    first = repository.commit("1d")
    repository.apply()
    change = repository.commit("2d")
    revert = repository.commit("1d")
    assert "nothing to do" in repository.apply().out
    assert repository.recorded == revert
    assert OLDER in repository.at(change).apply(code=7).err
    # The oldest files say what is applied: nothing is taken back, and the newest commit stays the one to compare with.
    said = repository.at(first).apply()
    assert OLDER not in said.err
    assert repository.recorded == revert


def test_the_state_of_a_commit_that_was_killed_half_way_is_newer_too(
    two: tuple[Repository, str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    repository, older, newer = two
    newest = repository.commit("5d")
    with monkeypatch.context() as patch:
        patch.setattr(EmbeddedProvider, "apply", _dies)
        assert repository.typed("apply", "--yes", "--workspace", str(repository.folder)).code != 0
    assert repository.recorded == newest
    assert newer != newest
    assert OLDER in repository.at(older).apply(code=7).err


def _dies(*_given: object, **_named: object) -> object:
    raise KeyboardInterrupt


@pytest.mark.parametrize("way", ["shallow", "unknown", "no repository", "no git"])
def test_what_git_cannot_compare_is_a_warning(
    two: tuple[Repository, str, str], way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository, _, newer = two
    match way:
        case "shallow":
            repository.commit("3d")
            repository = repository.clone("shallow", "--depth", "1")
        case "unknown":
            shutil.rmtree(repository.folder / ".git")
            repository.git("init", "-q")
            repository.commit("3d")
        case "no repository":
            shutil.rmtree(repository.folder / ".git")
            (repository.folder / "manifests/all.yaml").write_text(FILES.replace("RETENTION", "3d"))
        case _:
            repository.commit("3d")
            monkeypatch.setenv("PATH", str(repository.folder))
    said = repository.plan()
    assert f"whether the files are older than commit {newer[:7]}, {UNKNOWN}" in said.err
    assert UNKNOWN in repository.apply().err
    assert UNKNOWN not in repository.apply().err  # nothing is to be done


def test_a_shallow_clone_knows_what_it_can(two: tuple[Repository, str, str]) -> None:
    repository, older, newer = two
    repository.commit("3d")
    shallow = repository.clone("shallow", "--depth", "2")
    assert shallow.applied() == {"commit": newer, "is_newer": False, "allow": None}
    assert older != newer


def test_a_state_to_go_back_to_and_a_destroy_are_not_compared(two: tuple[Repository, str, str]) -> None:
    repository, older, newer = two
    repository.commit("3d")
    repository.apply()
    newest = repository.recorded
    repository.at(older)
    repository.run("state", "rollback-plan", "1", "--out", "back.json")
    assert OLDER not in repository.run("apply", "back.json", "--yes").err
    assert repository.recorded == newest
    assert OLDER in repository.apply(code=7).err
    assert repository.run("destroy", "--yes", "--allow", "delete:*").code == 0
    assert repository.recorded == newest
    assert newer


def test_a_state_of_before_has_no_commit_and_compares_nothing(two: tuple[Repository, str, str]) -> None:
    repository, older, _ = two
    path = repository.folder.parent / "state/lockfile.json"
    lockfile = json.loads(path.read_bytes())
    del lockfile["commit"]
    path.write_text(json.dumps(lockfile))
    repository.at(older)
    assert repository.applied() is None
    repository.apply()
    assert repository.recorded == older


def test_a_repaired_state_has_the_commit_of_its_last_run(two: tuple[Repository, str, str]) -> None:
    repository, older, newer = two
    (repository.folder.parent / "state/lockfile.json").unlink()
    repository.run("state", "repair", "--yes")
    assert repository.recorded == newer
    assert OLDER in repository.at(older).apply(code=7).err
