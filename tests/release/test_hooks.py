"""The hooks for pre-commit, run by pre-commit itself in a repository that has a workspace."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from reconciler.cli.main import main
from tests.docs.markdown import ROOT

PRE_COMMIT = (sys.executable, "-m", "pre_commit")


def test_the_list_of_hooks_is_one_that_pre_commit_reads() -> None:
    command = [*PRE_COMMIT, "validate-manifest", str(ROOT / ".pre-commit-hooks.yaml")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.thorough
def test_hooks_pass_lay_out_and_refuse_in_each_workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repository = tmp_path / "repository"
    workspace = repository / "teams" / "the shop"
    for folder in (repository / "audit", workspace):
        assert main(["init", str(folder)]) == 0
    monkeypatch.chdir(repository)
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PRE_COMMIT_HOME", str(tmp_path / "pre-commit"))
    subprocess.run(["git", "init", "--quiet", "."], check=True)

    def tried(hook: str) -> tuple[int, str]:
        subprocess.run(["git", "add", "--all"], check=True)
        command = [*PRE_COMMIT, "try-repo", str(ROOT), hook, "--all-files", "--verbose"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr

    manifest = workspace / "manifests" / "example.yaml"
    code, said = tried("reconciler-validate")
    assert code == 0, said
    assert "Valid: workspace audit" in said
    assert "Valid: workspace the-shop" in said

    format_document = manifest.read_text()
    manifest.write_text(format_document.replace("  partitions: 3", "      partitions:   3"))
    code, said = tried("reconciler-fmt")
    assert code == 1, said
    assert "files were modified by this hook" in said
    assert manifest.read_text() == format_document

    manifest.write_text(format_document.replace("partitions: 3", "partitions: none"))
    code, said = tried("reconciler-validate")
    assert code == 1, said
    assert "manifests/example.yaml:" in said
    assert "Traceback" not in said
