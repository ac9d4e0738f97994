"""Errors become words on standard error and an exit code in one place."""

from __future__ import annotations

import errno
import io
import json
import subprocess
import sys
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from reconciler import errors
from reconciler.cli.errors import EXPLANATIONS, Explanation, find_explanation, report_error
from reconciler.cli.main import main
from reconciler.errors import UserError
from reconciler.manifests.positions import ManifestError, Problem, format_excerpt
from reconciler.planning.actions import Create
from reconciler.providers.protocol import CompletedAction, Edge
from reconciler.providers.registry import open_provider
from reconciler.resources.address import Address
from reconciler.resources.inventory import read_resource
from tests.cli.conftest import COMMAND, Call, environment
from tests.docs import catalog

CODES = {
    errors.UserError: 1,
    errors.RetryableError: 1,
    errors.BrokenInvariantError: 1,
    errors.PendingError: 2,
    errors.DriftError: 3,
    errors.IncompleteError: 4,
    errors.LeaseError: 5,
    errors.StalePlanError: 6,
    errors.BlockedError: 7,
    errors.PartialError: 8,
    errors.UsageError: 64,
    errors.InterruptedRunError: 130,
}


@pytest.mark.parametrize(("kind", "code"), CODES.items(), ids=lambda value: getattr(value, "__name__", ""))
def test_every_error_has_its_exit_code(
    kind: type[errors.ReconcilerError], code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert report_error(kind("it broke", hint="Mend it."), is_verbose=False) == code
    shown = capsys.readouterr()
    assert not shown.out
    assert shown.err.count("Traceback") == 0
    if kind is not errors.PendingError:
        assert "it broke\n  hint: Mend it\n" in shown.err


def test_an_error_as_json_writes_out_what_is_not_utf_8_in_the_name_of_a_folder(
    typed: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "w\udcff"
    folder.mkdir()
    monkeypatch.chdir(folder)
    for command in (("plan",), ("drift",), ("apply", "--yes")):
        said = typed(*command, "--format", "json")
        assert (said.code, "Unexpected" in said.err) == (1, False), said.err
        assert json.loads(said.out)
        assert r"w\\udcff or any folder above it" in said.out


@pytest.mark.parametrize("option", ["--var", "--var-file", "--target", "--exclude", "--label", "--allow"])
def test_what_runs_and_saved_plans_keep_of_a_command_line_has_to_be_utf_8(call: Call, option: str) -> None:
    said = call("apply", "--yes", option, "a=\udcff")
    assert (said.code, said.err.splitlines()[0]) == (64, rf"Error: {option} a=\udcff is not UTF-8")
    assert call("state", "history").out == "There is no state yet.\n"


def test_a_name_of_a_user_that_is_not_utf_8_is_written_out(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_ACTOR", "jos\udce9")
    monkeypatch.setenv("BUILD_URL", "https://ci.example/jos\udce9/7")
    assert call("apply", "--yes").code == 0
    assert r"jos\udce9@" in call("state", "history").out


def test_pending_changes_are_no_error_to_talk_about(capsys: pytest.CaptureFixture[str]) -> None:
    report_error(errors.PendingError("2 changes are pending", hint="Apply."), is_verbose=False)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (OSError(errno.ENOSPC, "No space left on device", "/out/plan.json"), 1, "/out/plan.json: No space left"),
        (PermissionError(errno.EACCES, "Permission denied"), 1, "Error: Permission denied"),
        (MemoryError(), 1, "Not enough memory"),
        (RecursionError("maximum recursion depth exceeded"), 1, "nested too deeply"),
        (KeyboardInterrupt(), 130, "Interrupted: nothing was started"),
        (ZeroDivisionError("division by zero"), 1, "Unexpected ZeroDivisionError: division by zero"),
        (AssertionError(), 1, "This is our bug"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_nobody_raised_on_purpose_is_still_one_line(
    error: BaseException, code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert report_error(error, is_verbose=False) == code
    shown = capsys.readouterr().err
    assert said in shown
    assert "Traceback" not in shown
    assert "\\n" not in shown


def test_verbose_adds_the_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        _ = 1 / 0
    report_error(caught.value, is_verbose=True)
    assert "Traceback (most recent call last)" in capsys.readouterr().err


def test_problems_of_files_stand_alone_before_the_error(capsys: pytest.CaptureFixture[str]) -> None:
    problem = Problem("manifests/a.yaml", 3, 5, "spec.partitions", "is required", "Add it.")
    report_error(ManifestError([problem], hint="Mend them."), is_verbose=False)
    assert capsys.readouterr().err.splitlines() == [
        "manifests/a.yaml:3:5: spec.partitions: is required. Add it.",
        "Error: 1 problem in 1 file",
        "  hint: Mend them",
    ]


def test_an_error_of_many_lines_is_indented(capsys: pytest.CaptureFixture[str]) -> None:
    report_error(errors.UserError("two things:\nfirst\nsecond", hint="Mend both."), is_verbose=False)
    assert capsys.readouterr().err == "Error: two things:\n  first\n  second\n  hint: Mend both\n"


def test_a_message_cannot_speak_to_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    report_error(errors.UserError("no topic \x1b[2J[red]x", hint="See \x07."), is_verbose=False)
    assert capsys.readouterr().err == "Error: no topic \\x1b[2J[red]x\n  hint: See \\x07\n"


# What commands say when something is not as it should be: which file, which place, in words, and once.


TOPIC = "topic/west/shop:orders"


class Said(NamedTuple):
    """What a command left behind."""

    returncode: int
    stdout: str
    stderr: str


Run = Callable[..., Said]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]) -> Run:
    """Run commands in this process, in a workspace of their own."""
    monkeypatch.chdir(tmp_path)
    for name in ("CI", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)

    def start(*arguments: str, stdin: str = "") -> Said:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        capfdbinary.readouterr()
        code = main(arguments)
        sys.stdout.flush()
        shown = capfdbinary.readouterr()
        return Said(code, shown.out.decode(), shown.err.decode())

    assert start("init").returncode == 0
    return start


@pytest.fixture
def applied(run: Run) -> Run:
    assert run("apply", "--yes").returncode == 0
    return run


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["plan", "--format", "xml"], "'xml' is not one of 'text', 'json', 'markdown', 'html', 'junit', 'sarif'\n"),
        (["apply", "--parallelism", "0"], "'--parallelism': it is at least 1\n"),
        (["apply", "--parallelism", "999"], "'--parallelism': it is at most 256\n"),
        (["import", "x", "--out", "y"], "Missing option '--from'. Choose from: terraform, terraform-state, topicctl, "),
        (["apply", "--parallelism", "many"], "'--parallelism': it is a whole number\n"),
        (["schema", "nope"], "there is no schema 'nope'\n"),
    ],
)
def test_options_are_refused_in_words(arguments: list[str], said: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 64
    shown = capfd.readouterr().err
    assert said in shown
    assert "Value error" not in shown
    assert "Input should" not in shown


def test_what_is_called_wrongly_exits_64_however_deep_it_is_found(applied: Run) -> None:
    for arguments in (
        ("verify", "a", "b"),
        ("topic", "consume", TOPIC, "--from", "banana"),
        ("topic", "produce", TOPIC, "--input", "-", "--input-format", "xml"),
    ):
        assert applied(*arguments).returncode == 64, arguments


def test_a_workspace_that_is_not_there_is_named(run: Run, tmp_path: Path) -> None:
    said = run("plan", "--workspace", "/nope")
    assert (said.returncode, said.stderr.splitlines()[0]) == (64, "Error: there is no folder /nope")
    (tmp_path / "empty").mkdir()
    said = run("plan", "--workspace", "empty")
    assert said.stderr.startswith(f"Error: {tmp_path}/empty is not a workspace: it has no reconciler.yaml\n")


def test_a_file_that_is_no_plan_is_named(applied: Run, tmp_path: Path) -> None:
    for body in ("{}", "no json", '{"format": "reconciler.plan/1"}'):
        (tmp_path / "garbage.json").write_text(body)
        said = applied("apply", "garbage.json", "--yes")
        assert said.returncode == 1
        assert said.stderr.startswith("Error: garbage.json: ")


def test_an_inherited_value_says_where_it_is_written(applied: Run) -> None:
    said = applied("explain", TOPIC)
    row = next(line for line in said.stdout.splitlines() if line.startswith("retention.ms"))
    assert row.split(maxsplit=2) == ["retention.ms", "30d", "namespace/west/shop (manifests/example.yaml:14)"]
    printed = json.loads(applied("explain", TOPIC, "--format", "json").stdout)
    assert printed["effective_origins"]["retention.ms"] == "namespace/west/shop (manifests/example.yaml:14)"
    assert printed["effective_origins"]["flush.ms"] == "default"


def test_records_for_a_mirror_are_refused_with_both_addresses(tmp_path: Path) -> None:
    cluster = {"kind": "Cluster", "metadata": {"name": "east"}, "spec": {"embedded": {"root": "memory://wording-east"}}}
    link = {"kind": "MirrorLink", "metadata": {"name": "from-west", "cluster": "east"}, "spec": {"source": "west"}}
    copy = {"kind": "MirrorTopic", "cluster": "east", "link": "from-west", "source_cluster": "west", "name": "copy"}
    given = [read_resource(each) for each in (cluster, link, {**copy, "source": "copy"})]
    provider = open_provider(given[0], Edge(tmp_path, {}, lambda: str(uuid.uuid4()), lambda: 0))
    for resource in given:
        action = Create(address=resource.address, after=resource, parameters={"partitions": 3, "configs": {}})
        assert isinstance(next(iter(provider.apply([action]))), CompletedAction)
    with pytest.raises(UserError, match="mirror/east/copy is a mirror of topic/west/copy: only its link writes"):
        provider.open_producer(Address("topic/east/copy"))


def test_lines_of_a_csv_file_are_counted_as_editors_do(applied: Run, tmp_path: Path) -> None:
    (tmp_path / "late.csv").write_text("when,n\n2013-01-01,1\nsometime,2\n")
    said = applied("topic", "produce", TOPIC, "--input", "late.csv", "--timestamp-field", "when")
    assert said.stderr.startswith("Error: late.csv: line 3: ")
    (tmp_path / "short.csv").write_text("a,b\n1,2\n3\n")
    assert applied("topic", "produce", TOPIC, "--input", "short.csv").stderr.startswith("Error: short.csv: line 3: ")


def test_a_mistyped_target_is_said_of_the_workspace(applied: Run) -> None:
    said = applied("plan", "--target", "topic/west/nothing")
    line = next(line for line in said.stdout.splitlines() if "✗" in line)
    assert line.startswith("  ✗ workspace  --target topic/west/nothing")


def test_a_warning_about_a_rule_names_the_address(applied: Run, tmp_path: Path) -> None:
    workspace = tmp_path / "reconciler.yaml"
    rules = 'guards: {rules: [{match: "topic/*", require: {labels: [team]}, message: ask platform}]}'
    text = workspace.read_text()
    workspace.write_text(f"{text}  {rules}\n" if "\nspec:" in text else f"{text}spec: {{{rules}}}\n")
    said = applied("plan")
    assert said.returncode == 0, said.stderr
    assert said.stderr.startswith(
        f"Warning: manifests/example.yaml:17: {TOPIC}: it violates a rule of guards.rules: ask platform"
    )


@pytest.mark.thorough
@pytest.mark.parametrize("arguments", [("schema",), ("schema", "topic")], ids=["text", "json"])
def test_a_full_device_is_named(arguments: tuple[str, ...]) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*COMMAND, *arguments], stdout=full, stderr=subprocess.PIPE, text=True, env=environment(), check=False
        )
    assert done.returncode == 1
    assert done.stderr.startswith("Error: standard output: No space left on device\n")


@pytest.mark.parametrize(("stderr", "is_one"), [(subprocess.STDOUT, "True"), (subprocess.PIPE, "False")])
def test_streams_that_end_in_one_place_are_known(stderr: int, is_one: str) -> None:
    ask = "from reconciler.cli.console import streams_share_target; print(streams_share_target())"
    done = subprocess.run([COMMAND[0], "-c", ask], stdout=subprocess.PIPE, stderr=stderr, text=True, check=True)
    assert done.stdout.strip() == is_one


def test_a_move_from_nowhere_is_said(run: Run, tmp_path: Path) -> None:
    manifest = tmp_path / "manifests/example.yaml"
    manifest.write_text(manifest.read_text().replace("  partitions: 3", "  movedFrom: shop:ordres\n  partitions: 3"))
    said = run("plan")
    assert f"{TOPIC}: topic/west/shop:ordres, which it is moved from, does not exist" in said.stderr


def test_destroying_from_emptied_files_says_that_it_only_forgets(applied: Run, tmp_path: Path) -> None:
    (tmp_path / "manifests/example.yaml").write_text("")
    said = applied("destroy", "--yes")
    assert said.returncode == 0
    assert said.stderr.startswith(
        "Warning: cluster/west: the files no longer declare it: 2 resources on it are forgotten, and stay there"
    )
    assert (tmp_path / ".clusters/west/catalog/head.json").is_file()


# -- errors that have a code


@pytest.mark.parametrize("explanation", EXPLANATIONS, ids=lambda each: each.code)
def test_an_explained_error_is_one_that_the_code_raises(explanation: Explanation) -> None:
    said = catalog.FILE.read_text(encoding="utf-8").splitlines()
    assert any(find_explanation(line) == explanation for line in said)


def test_codes_are_numbered_in_order() -> None:
    assert [each.code for each in EXPLANATIONS] == [f"E{number:03}" for number in range(1, len(EXPLANATIONS) + 1)]


def test_an_error_names_its_code_and_explain_prints_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["plan"]) == 1
    assert capsys.readouterr().err.splitlines()[-1].strip() == "more: reconciler explain E001"
    assert main(["explain", "e001"]) == 0
    assert capsys.readouterr().out.startswith("E001: No workspace here\n\n")


@pytest.mark.parametrize(
    ("arguments", "said"), [(["E999"], "there is no error E999"), (["E001", "--format", "json"], "only as text")]
)
def test_a_code_that_is_not_there_and_another_form_are_refused(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", *arguments]) == 64
    assert said in capsys.readouterr().err


# -- the line below a problem


@pytest.mark.parametrize(
    ("line", "column", "shown"),
    [
        ("  partitions: three", 3, ("  1 |   partitions: three", "    |   ^^^^^^^^^^")),
        ("  configs: {retention.ms: x}", 13, ("  1 |   configs: {retention.ms: x}", "    |             ^^^^^^^^^^^^")),
        ("  - a", 3, ("  1 |   - a", "    |   ^")),
        ("a: \x1b[31mred", 1, ("  1 | a: \\x1b[31mred", "    | ^")),
        ("{\x1b: 1, b: 2}", 9, ("  1 | {\\x1b: 1, b: 2}", "    |            ^")),
        ("x: " + "y" * 500, 1, ("  1 | x: " + "y" * 97 + "…", "    | ^")),
        ("    password: hunter2", 5, ()),
        ("security: {mechanism: WRONG, clientSecret: hunter2}", 12, ()),
        ("y" * 500 + ": 1", 501, ()),
        ("", 1, ()),
    ],
    ids=[
        "field",
        "inside",
        "no-name",
        "escapes",
        "after-escapes",
        "long",
        "password",
        "secret-beside",
        "beyond",
        "empty",
    ],
)
def test_a_problem_shows_its_line_and_marks_the_field(line: str, column: int, shown: tuple[str, ...]) -> None:
    assert format_excerpt(Problem("a.yaml", 1, column, "x", "is wrong", "Correct it"), [line]) == shown


@pytest.mark.parametrize(
    ("before", "line", "field"),
    [
        ("security: {password:", "  hunter2, mechanism: WRONG}", "spec.kafka.security.mechanism"),
        ("  password:\n", "    x: hunter2", "spec.kafka.security.mechanism"),
        ("  - a", "  x: hunter2", "spec.kafka.security.password"),
        ("  - a", "hunter2: x: y", ""),
    ],
    ids=["flow", "blank-between", "by-its-field", "syntax"],
)
def test_no_line_is_shown_that_may_go_on_with_a_secret(before: str, line: str, field: str) -> None:
    text = [*before.split("\n"), line]
    assert format_excerpt(Problem("a.yaml", len(text), 3, field, "is wrong", "Correct it"), text) == ()


def test_a_problem_of_a_file_that_is_gone_shows_no_line() -> None:
    assert format_excerpt(Problem("a.yaml", 3, 1, "x", "is wrong", "Correct it"), []) == ()
    assert format_excerpt(Problem("a.yaml", None, None, "", "is wrong", "Correct it"), ["x: 1"]) == ()


def test_the_lines_of_the_first_problems_are_shown_and_no_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["init", "."]) == 0
    wrong = "apiVersion: reconciler/v1\nkind: Topic\nmetadata: {name: t, cluster: west}\nspec:\n  partitions: many\n"
    typed = (
        "apiVersion: reconciler/v1\nkind: Cluster\nmetadata: {name: k}\nspec:\n  provider: kafka\n"
        '  kafka: {bootstrapServers: ["b:1"], security: {password: hunter2}}\n'
    )
    (tmp_path / "manifests" / "wrong.yaml").write_text(f"{wrong}---\n{typed}")
    capsys.readouterr()
    assert main(["validate"]) == 1
    said = capsys.readouterr().err
    assert "  5 |   partitions: many\n    |   ^^^^^^^^^^\n" in said
    assert "password" in said
    assert "hunter2" not in said
