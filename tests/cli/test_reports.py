"""`--report FORM=FILE`: one look at the clusters, in as many forms as a pipeline needs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Call

FORMS = ("json", "markdown", "html", "junit", "sarif")
BROKEN = "apiVersion: reconciler/v1\nkind: Topic\nmetadata: {name: orders, cluster: west}\nspec: {partitions: many}\n"


def outputs(path: Path) -> dict[str, str]:
    return dict(line.split("=", 1) for line in path.read_text().splitlines())


def asked(forms: tuple[str, ...]) -> list[str]:
    return [part for form in forms for part in ("--report", f"{form}=r.{form}")]


@pytest.mark.parametrize("command", ["plan", "drift", "validate"])
def test_a_report_is_what_the_same_command_prints_in_that_form(call: Call, tmp_path: Path, command: str) -> None:
    forms = tuple(form for form in FORMS if (command, form) != ("validate", "html"))
    assert call(command, *asked(forms)).code == 0
    for form in forms:
        assert (tmp_path / f"r.{form}").read_text() == call(command, "--format", form).out


@pytest.mark.parametrize("form", FORMS)
def test_an_error_is_reported_as_the_same_command_prints_it(call: Call, tmp_path: Path, form: str) -> None:
    (tmp_path / "manifests" / "broken.yaml").write_text(BROKEN)
    assert call("plan", "--report", f"{form}=r").code == 1
    assert (tmp_path / "r").read_text() == call("plan", "--format", form).out
    assert "partitions" in (tmp_path / "r").read_text()


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("--no-such-option", "--no-such-option"),
        ("--fail-on=nothing", "nothing"),
        ("--out=manifests", "manifests"),
        ("--report=htm=x", "htm=x"),
        ("--report", "--report"),
        ("stray", "stray"),
    ],
)
def test_a_command_line_that_is_wrong_is_reported_too(call: Call, tmp_path: Path, wrong: str, said: str) -> None:
    (tmp_path / "overlays" / "prod").mkdir(parents=True)
    done = call("plan", "--format=json", "--report", "markdown=m", "-e", "prod", "--report=outputs=o", wrong)
    assert done.code == 64
    assert said in done.err
    assert json.loads(done.out)["exit_code"] == 64
    text = (tmp_path / "m").read_text()
    assert text.startswith("<!-- reconciler:plan workspace=")
    assert "environment=prod" in text.splitlines()[0]
    assert "was not planned" in text
    assert said in text.replace("&#45;", "-")
    assert (outputs(tmp_path / "o")["exit_code"], said in outputs(tmp_path / "o")["failure"]) == ("64", True)


@pytest.mark.parametrize("wrong", ["--issue-label=x", "--fail-on=doubt", "--issue", "--nothing"])
def test_a_command_line_of_drift_that_is_wrong_is_reported_too(call: Call, tmp_path: Path, wrong: str) -> None:
    assert call("drift", "--report", "outputs=o", wrong).code == 64
    assert outputs(tmp_path / "o")["exit_code"] == "64"


def test_a_pipeline_gets_how_much_is_wrong_with_files(call: Call, tmp_path: Path) -> None:
    assert call("validate", "--report", "outputs=o").code == 0
    assert (outputs(tmp_path / "o")["errors"], outputs(tmp_path / "o")["failure"]) == ("0", "")
    (tmp_path / "manifests" / "broken.yaml").write_text(BROKEN)
    assert call("validate", "--report", "outputs=o", "--report", "sarif=s").code == 1
    assert (outputs(tmp_path / "o")["exit_code"], "1 problem" in outputs(tmp_path / "o")["failure"]) == ("1", True)
    assert "manifests/broken.yaml" in (tmp_path / "s").read_text()


def test_what_is_printed_is_the_same_with_reports_and_without(call: Call) -> None:
    with_reports, without = call("plan", *asked(FORMS)), call("plan")
    assert with_reports.code == without.code
    # The first line says how long it took.
    assert with_reports.out.splitlines()[1:] == without.out.splitlines()[1:]


def test_a_pipeline_gets_the_digest_the_counts_and_why_it_failed(call: Call, tmp_path: Path) -> None:
    assert call("plan", "--report", "outputs=o", "--report", "gitlab=g").code == 0
    digest = json.loads(call("plan", "--format", "json").out)["digest"]
    found = outputs(tmp_path / "o")
    assert {name: found[name] for name in ("digest", "empty", "create", "danger", "blocked", "failure")} == {
        "digest": digest,
        "empty": "false",
        "create": "3",
        "danger": "0",
        "blocked": "0",
        "failure": "",
    }
    assert json.loads((tmp_path / "g").read_text()) == {"create": 3, "update": 0, "delete": 0}
    (tmp_path / "manifests" / "broken.yaml").write_text(BROKEN)
    assert call("plan", "--report", "outputs=o", "--report", "gitlab=g").code == 1
    found = outputs(tmp_path / "o")
    assert (found["digest"], found["exit_code"]) == ("", "1")
    assert "1 problem" in found["failure"]
    assert (tmp_path / "o").read_text().count("digest=") == 2  # others write into such a file, too: nothing is removed


def test_drift_says_how_much_it_found_and_that_it_fails(call: Call, tmp_path: Path) -> None:
    assert call("apply", "--yes").code == 0
    assert call("topic", "alter", "topic/west/shop:orders", "--set", "retention.ms=7d", "--no-state").code == 0
    assert call("drift", "--fail-on", "unmanaged", "--report", "outputs=o").code == 3
    found = outputs(tmp_path / "o")
    assert (found["findings"], found["failing"], found["exit_code"]) == ("1", "1", "3")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("html", "is not FORM=FILE"),
        ("html=", "is not FORM=FILE"),
        ("htm=x", "Did you mean html?"),
        ("text=x", "is not FORM=FILE"),
        ("html=manifests", "is a folder"),
        ("html=missing/x", "missing/x"),
        ("markdown=notes.txt", "is not a report"),
        ("json=.reconciler/x", "holds a state"),
        ("outputs=ok --report html=ok", "another report goes to that file"),
    ],
)
def test_a_file_that_cannot_be_written_is_named_and_nothing_is_lost(
    call: Call, tmp_path: Path, given: str, said: str
) -> None:
    assert call("apply", "--yes").code == 0
    (tmp_path / "notes.txt").write_text("mine")
    done = call("plan", "--report", *given.split())
    assert done.code == 64
    assert said in done.err
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_a_report_takes_the_place_of_the_last_one(call: Call, tmp_path: Path) -> None:
    forms = (*FORMS, "gitlab")
    for _ in range(2):
        assert call("plan", *asked(forms)).code == 0
    (tmp_path / "manifests" / "broken.yaml").write_text(BROKEN)
    for _ in range(2):
        assert call("plan", *asked(forms)).code == 1
