"""In a pipeline the log folds what is long, errors stand at their lines, and nothing of others becomes a command."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from reconciler.cli.console import Screen
from reconciler.cli.text.job_log import LogFold, Pipeline, list_annotation_commands
from reconciler.cli.text.remarks import Remark, Remarks
from tests.cli.conftest import Call, Run

GITHUB = {"GITHUB_ACTIONS": "true", "CI": "true"}
GITLAB = {"GITLAB_CI": "true", "CI": "true"}
ODD = "::error::x ##[error] \x1b[2J\r\n\u202e50%,a:b"


def remarks(*rows: Remark) -> Remarks:
    return Remarks("plan", "shop", None, "1", rows)


def remark(source: str | None, message: str = "no", level: str = "error", about: str = "topic/west/x") -> Remark:
    return Remark("rule", level, "name", about, message, "Mend it.", source)  # type: ignore[arg-type]


def test_an_error_stands_at_its_file_and_line_from_the_root_of_the_repository() -> None:
    rows = (remark("manifests/a.yaml:88"), remark("manifests/a.yaml:9:3", level="warning"))
    assert list(list_annotation_commands(remarks(*rows), "topics/")) == [
        "::error file=topics/manifests/a.yaml,line=88,title=topic/west/x::no. Mend it.\n",
        "::warning file=topics/manifests/a.yaml,line=9,title=topic/west/x::no. Mend it.\n",
    ]


def test_what_has_no_line_is_a_note_or_is_one_too_many_is_left_to_the_log() -> None:
    many = [remark(f"a.yaml:{number}") for number in range(1, 30)]
    found = list(list_annotation_commands(remarks(remark(None), remark("a.yaml:1", level="note"), *many), ""))
    assert [re.findall(r"line=(\d+)", each) for each in found] == [[str(number)] for number in range(1, 11)]


def test_what_others_wrote_ends_no_property_and_no_command() -> None:
    (said,) = list_annotation_commands(remarks(remark(f"{ODD}.yaml:7", message=ODD, about=ODD)), "")
    assert said.count("\n") == 1
    assert "\x1b" not in said
    properties, _, data = said.removeprefix("::error ").partition("::")
    assert re.fullmatch(r"file=[^:,\r\n]*,line=7,title=[^:,\r\n]*", properties)
    assert data == r"::error::x ##[error] \x1b[2J\r\n\u202e50%25,a:b. Mend it." + "\n"


def test_a_fold_has_its_form_on_each_kind_of_pipeline() -> None:
    def fold(pipeline: Pipeline) -> tuple[str, str]:
        made = LogFold(pipeline, "The plan", 17.25)
        return made.opening_text, made.build_closing_text(21.0)

    assert fold("github") == ("::group::The plan\n", "::endgroup::\n")
    assert fold("gitlab") == (
        "\x1b[0Ksection_start:17:the_plan_17250[collapsed=true]\r\x1b[0KThe plan\n",
        "\x1b[0Ksection_end:21:the_plan_17250\r\x1b[0K\n",
    )
    assert fold("other") == ("", "")


@pytest.fixture
def workspace(typed: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A workspace of a repository, in a folder of it."""
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    folder = tmp_path / "topics"
    folder.mkdir()
    monkeypatch.chdir(folder)
    assert typed("init").code == 0
    manifest = folder / "manifests" / "example.yaml"
    manifest.write_text(manifest.read_text() + "---\nkind: Topic\nmetadata: {name: '::error::x', cluster: west}\n")
    assert typed("validate").code == 1
    return folder


def test_a_broken_manifest_is_shown_at_its_line_and_not_in_the_result(workspace: Path, run: Run) -> None:
    for command in ("validate", "plan"):
        done = run(command, environ=GITHUB, cwd=workspace)
        commands = [line for line in done.stderr.splitlines() if line.startswith("::")]
        assert len(commands) >= 1, done.stderr
        assert all(
            re.match(rf"::error file={workspace.name}/manifests/example.yaml,line=\d+", each) for each in commands
        )
        assert "::error" not in re.sub(r"\\x3a:error", "", done.stdout)
        assert not any(
            line.startswith("::") for line in run(command, environ=GITLAB, cwd=workspace).stderr.splitlines()
        )


def test_an_apply_folds_its_plan_and_leaves_the_rest_in_sight(call: Call, run: Run, tmp_path: Path) -> None:
    assert call("validate").code == 0
    done = run("apply", "--yes", environ=GITHUB)
    before, _, after = done.stdout.partition("::endgroup::\n")
    assert before.startswith("::group::Plan\n")
    assert "Plan: 3 to add" in before
    assert after.startswith("Done: 3 added")
    assert "group::" not in run("apply", "--yes", environ=GITHUB).stdout  # of an empty plan nothing is long
    with (tmp_path / "log").open("w+") as file, Screen(file).fold_output("Plan"):
        pass
    assert (tmp_path / "log").read_text() == ""


@pytest.mark.thorough
def test_json_holds_no_command(call: Call, run: Run) -> None:
    assert call("validate").code == 0
    for arguments in (("plan", "--format", "json"), ("apply", "--yes", "--format", "json")):
        done = run(*arguments, environ=GITHUB)
        assert "::group" not in done.stdout
