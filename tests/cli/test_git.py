"""What git says of a folder."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from reconciler.errors import UserError
from reconciler.process import is_ancestor, list_changed_files, read_commit
from tests.cli.conftest import Call

ENVIRON = {
    **os.environ,
    "GIT_AUTHOR_NAME": "a",
    "GIT_AUTHOR_EMAIL": "a@example.org",
    "GIT_COMMITTER_NAME": "a",
    "GIT_COMMITTER_EMAIL": "a@example.org",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_SYSTEM": os.devnull,
}


def _git(folder: Path, *arguments: str) -> str:
    return subprocess.run(
        ["git", "-C", str(folder), *arguments], env=ENVIRON, check=True, capture_output=True, text=True
    ).stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository whose branch `work` left `main`, after which both went on."""
    _git(tmp_path, "init", "-q", "-b", "main")
    (tmp_path / "shop").mkdir()
    for name in ("kept", "changed", "deleted", "theirs"):
        (tmp_path / "shop" / f"{name}.yaml").write_text("a: 1\n")
    _commit(tmp_path)
    _git(tmp_path, "switch", "-q", "-c", "work")
    (tmp_path / "shop" / "changed.yaml").write_text("a: 2\n")
    (tmp_path / "shop" / "deleted.yaml").unlink()
    (tmp_path / "outside.yaml").write_text("a: 1\n")
    _commit(tmp_path)
    _git(tmp_path, "switch", "-q", "main")
    (tmp_path / "shop" / "theirs.yaml").write_text("a: 2\n")
    _commit(tmp_path)
    _git(tmp_path, "switch", "-q", "work")
    return tmp_path


def _commit(folder: Path) -> None:
    _git(folder, "add", ".")
    _git(folder, "commit", "-q", "-m", "x")


def test_changed_is_what_this_branch_changed_and_what_is_not_committed_yet(repository: Path) -> None:
    folder = repository / "shop"
    assert list_changed_files(folder, ENVIRON, "main") == ("changed.yaml", "deleted.yaml")
    (folder / "né w.yaml").write_text("a: 1\n")
    (folder / "kept.yaml").write_text("a: 3\n")
    assert list_changed_files(folder, ENVIRON, "main") == ("changed.yaml", "deleted.yaml", "kept.yaml", "né w.yaml")


def test_what_a_workspace_reads_beside_its_folder_counts_as_changed_and_nothing_else_there(repository: Path) -> None:
    folder, common = repository / "shop", repository / "common"
    common.mkdir()
    (common / "new[1].yaml").write_text("a: 1\n")
    beside = (common, repository / "outside.yaml", repository.parent / "elsewhere")
    found = (str(common / "new[1].yaml"), str(repository / "outside.yaml"), "changed.yaml", "deleted.yaml")
    assert list_changed_files(folder, ENVIRON, "main", beside) == found
    assert list_changed_files(folder, ENVIRON, "main", beside[1:]) == found[1:]


def test_a_changed_file_that_a_workspace_reads_beside_its_folder_is_part_of_the_plan(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, common, values = (tmp_path / name for name in ("shop", "common.yaml", "values.yaml"))
    folder.mkdir()
    for name in ("reconciler.yaml", "manifests"):
        (tmp_path / name).rename(folder / name)
    settings = folder / "reconciler.yaml"
    listed = "manifests: [manifests, ../common.yaml]\n  values: [../values.yaml]"
    settings.write_text(settings.read_text().replace("manifests: [manifests]", listed))
    topic = "apiVersion: reconciler/v1\nkind: Topic\nmetadata: {name: common, namespace: shop, cluster: west}\nspec: "
    common.write_text(f'{topic}{{partitions: "${{var.n}}"}}\n')
    values.write_text("n: 1\n")
    monkeypatch.chdir(folder)
    _git(tmp_path, "init", "-q", "-b", "main")
    _commit(tmp_path)
    assert call("apply", "--yes").code == 0
    for changed, text in (
        (common, f'{topic}{{partitions: "${{var.n}}", configs: {{retention.ms: 1d}}}}\n'),
        (values, "n: 2\n"),
    ):
        before = changed.read_text()
        changed.write_text(text)
        assert "topic/west/shop:common" in call("plan", "--changed-since", "main").out
        changed.write_text(before)
    assert "nothing to do" in call("plan", "--changed-since", "main").out


def test_changed_values_select_only_the_files_in_which_a_resource_got_another_value(call: Call, tmp_path: Path) -> None:
    settings = tmp_path / "reconciler.yaml"
    settings.write_text(
        settings.read_text().replace("manifests: [manifests]", "manifests: [manifests]\n  values: [v.yaml]")
    )
    topic = "apiVersion: reconciler/v1\nkind: Topic\nmetadata: {name: NAME, namespace: shop, cluster: west}\n"
    for name, partitions in (("few", "${var.few}"), ("many", "${var.many}")):
        text = topic.replace("NAME", name) + f'spec: {{partitions: "{partitions}"}}\n'
        (tmp_path / "manifests" / f"{name}.yaml").write_text(text)
    (tmp_path / "v.yaml").write_text("few: 1\nmany: 6\n")
    _git(tmp_path, "init", "-q", "-b", "main")
    _commit(tmp_path)
    (tmp_path / "v.yaml").write_text("few: 2\nmany: 6\n")
    said = call("plan", "--changed-since", "main", "--out", "p.json")
    assert "topic/west/shop:few" in said.out
    assert "topic/west/shop:many" not in said.out
    assert "not planned" in said.err
    assert call("apply", "p.json", "--yes").code == 0
    assert "topic/west/shop:many" in call("plan").out
    (tmp_path / "manifests/few.yaml").unlink()
    settings.write_text(settings.read_text() + "\n")
    assert "delete" in call("plan", "--changed-since", "main").out


def test_a_plan_of_a_branch_is_applied_as_it_was_saved_once_the_branch_is_merged(call: Call, tmp_path: Path) -> None:
    _git(tmp_path, "init", "-q", "-b", "main")
    _commit(tmp_path)
    assert call("apply", "--yes").code == 0
    _git(tmp_path, "switch", "-q", "-c", "work")
    manifest = tmp_path / "manifests" / "example.yaml"
    manifest.write_text(manifest.read_text().replace("partitions: 3", "partitions: 4"))
    _commit(tmp_path)
    assert call("plan", "--changed-since", "main", "--out", "plan.json").code == 0
    _git(tmp_path, "switch", "-q", "main")
    _git(tmp_path, "merge", "-q", "work")
    said = call("apply", "plan.json", "--yes")
    assert (said.code, "1 changed" in said.out) == (0, True), said.out
    assert "nothing to do" in call("plan").out


@pytest.mark.parametrize("revision", ["nope", "--output=x", "-h", "", "HEAD:shop"])
def test_a_revision_that_is_none_is_refused(repository: Path, revision: str) -> None:
    with pytest.raises(UserError, match="git cannot tell what changed") as caught:
        list_changed_files(repository / "shop", ENVIRON, revision)
    assert "fetch-depth: 0" in caught.value.hint
    assert not list(repository.rglob("x"))


def test_without_a_repository_there_is_no_commit_and_nothing_to_compare_with(tmp_path: Path) -> None:
    around = {**ENVIRON, "GIT_CEILING_DIRECTORIES": str(tmp_path.parent)}
    assert read_commit(tmp_path, around) is None
    with pytest.raises(UserError):
        list_changed_files(tmp_path, around, "HEAD")


def test_a_repository_without_commits_is_at_no_commit(tmp_path: Path) -> None:
    _git(tmp_path, "init", "-q")
    assert read_commit(tmp_path, ENVIRON) is None


def test_the_commit_is_the_one_checked_out(repository: Path) -> None:
    assert read_commit(repository / "shop", ENVIRON) == _git(repository, "rev-parse", "HEAD")


def test_without_git_there_is_no_commit(tmp_path: Path) -> None:
    nowhere = {"PATH": str(tmp_path)}
    assert read_commit(tmp_path, nowhere) is None
    with pytest.raises(UserError, match="needs git"):
        list_changed_files(tmp_path, nowhere, "HEAD")


def test_an_ancestor_is_told_from_what_comes_later_and_from_another_branch(repository: Path) -> None:
    old, work, main = (_git(repository, "rev-parse", name) for name in ("main~1", "work", "main"))
    asked = [(old, work), (work, old), (main, work), (work, main), (old, old), (old, "0" * 40)]
    assert [is_ancestor(repository, ENVIRON, *each) for each in asked] == [True, False, False, False, True, None]
    assert is_ancestor(repository.parent, ENVIRON, old, work) is None
