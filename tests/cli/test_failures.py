"""Errors become words on standard error and an exit code in one place."""

from __future__ import annotations

import errno

import pytest

from reconciler import errors
from reconciler.cli.errors import exit_code_of
from reconciler.manifests.positions import ManifestError, Problem

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
    assert exit_code_of(kind("it broke", hint="Mend it."), is_verbose=False) == code
    shown = capsys.readouterr()
    assert not shown.out
    assert shown.err.count("Traceback") == 0
    if kind is not errors.PendingError:
        assert "it broke\n  hint: Mend it\n" in shown.err


def test_pending_changes_are_no_error_to_talk_about(capsys: pytest.CaptureFixture[str]) -> None:
    exit_code_of(errors.PendingError("2 changes are pending", hint="Apply."), is_verbose=False)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (OSError(errno.ENOSPC, "No space left on device", "/out/plan.json"), 1, "/out/plan.json: No space left"),
        (PermissionError(errno.EACCES, "Permission denied"), 1, "Error: Permission denied"),
        (MemoryError(), 1, "Not enough memory"),
        (RecursionError("maximum recursion depth exceeded"), 1, "nested too deeply"),
        (KeyboardInterrupt(), 130, "Interrupted: nothing was started"),
        (EOFError(), 130, "Interrupted: nothing was started"),
        (ZeroDivisionError("division by zero"), 1, "Unexpected ZeroDivisionError: division by zero"),
        (AssertionError(), 1, "This is our bug"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_nobody_raised_on_purpose_is_still_one_line(
    error: BaseException, code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code_of(error, is_verbose=False) == code
    shown = capsys.readouterr().err
    assert said in shown
    assert "Traceback" not in shown


def test_verbose_adds_the_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        _ = 1 / 0
    exit_code_of(caught.value, is_verbose=True)
    assert "Traceback (most recent call last)" in capsys.readouterr().err


def test_problems_of_files_stand_alone_before_the_error(capsys: pytest.CaptureFixture[str]) -> None:
    problem = Problem("manifests/a.yaml", 3, 5, "spec.partitions", "is required", "Add it.")
    exit_code_of(ManifestError([problem], hint="Mend them."), is_verbose=False)
    assert capsys.readouterr().err.splitlines() == [
        "manifests/a.yaml:3:5: spec.partitions: is required. Add it.",
        "Error: 1 problem in 1 file",
        "  hint: Mend them",
    ]


def test_an_error_of_many_lines_is_indented(capsys: pytest.CaptureFixture[str]) -> None:
    exit_code_of(errors.UserError("two things:\nfirst\nsecond", hint="Mend both."), is_verbose=False)
    assert capsys.readouterr().err == "Error: two things:\n  first\n  second\n  hint: Mend both\n"


def test_a_message_cannot_speak_to_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    exit_code_of(errors.UserError("no topic \x1b[2J[red]x", hint="See \x07."), is_verbose=False)
    assert capsys.readouterr().err == "Error: no topic \\x1b[2J[red]x\n  hint: See \\x07\n"
