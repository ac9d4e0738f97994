"""Which streams get colours: what the environment asks for, in the order that its conventions say."""

from __future__ import annotations

import os
import pty
from collections.abc import Mapping
from pathlib import Path

import pytest

from reconciler.cli.console import Screen
from reconciler.cli.text.lines import Span, Tone, make_line
from tests.cli.conftest import UNWANTED, Call


@pytest.fixture(params=["terminal", "pipe"])
def place(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize(
    ("environ", "coloured"),
    [
        ({}, "terminal"),
        ({"NO_COLOR": ""}, "terminal"),
        ({"NO_COLOR": "1"}, ""),
        ({"FORCE_COLOR": ""}, "terminal"),
        ({"FORCE_COLOR": "1"}, "terminal and pipe"),
        ({"FORCE_COLOR": "1", "TERM": "dumb"}, "terminal and pipe"),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, ""),
        ({"CLICOLOR_FORCE": "1"}, "terminal and pipe"),
        ({"CLICOLOR_FORCE": "0"}, "terminal"),
        ({"CLICOLOR": "0"}, ""),
        ({"CLICOLOR": "0", "CLICOLOR_FORCE": "1"}, "terminal and pipe"),
        ({"TERM": "dumb"}, ""),
    ],
    ids=str,
)
def test_colours_are_where_the_environment_wants_them(
    place: str, environ: Mapping[str, str], coloured: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in UNWANTED:
        monkeypatch.delenv(name, raising=False)
    for name, value in {"TERM": "xterm", **environ}.items():
        monkeypatch.setenv(name, value)
    ours, theirs = pty.openpty()
    with os.fdopen(theirs, "w") as terminal, os.fdopen(ours, "rb", 0) as shown, (tmp_path / "pipe").open("w+") as file:
        Screen(terminal if place == "terminal" else file).show([make_line(Span("+ new", Tone.ADD))])
        file.seek(0)
        said = shown.read(100).decode() if place == "terminal" else file.read()
    assert said.replace("\r", "") == ("\x1b[32m+ new\x1b[0m\n" if place in coloured else "+ new\n")


def test_forced_colours_are_in_what_people_read_and_in_nothing_else(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = {form: call("plan", "--format", form).out for form in ("json", "markdown", "junit", "sarif")}
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert {form: call("plan", "--format", form).out for form in plain} == plain
    assert "\x1b[32m+ topic/west/shop:orders" in call("plan").out
