"""`man`: a page for each command, that man reads without a word, made from the command line itself."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from reconciler import __version__
from reconciler.cli.commands.manual import EXIT_CODES, _prose
from tests.cli.conftest import Call
from tests.cli.test_command_line import PATHS

OnTerminal = Callable[..., tuple[int, str]]
_REQUEST = re.compile(r"\.(TH|SH|TP|PP)\b")


def plain(roff: str) -> str:
    """Return a page as it reads, without fonts."""
    text = re.sub(r"\\f[BR]|\\&", "", roff)
    for escape, letter in ((r"\-", "-"), (r"\(aq", "'"), (r"\(dq", '"'), (r"\(ga", "`"), (r"\e", "\\")):
        text = text.replace(escape, letter)
    return re.sub(r"\\\[u([0-9A-F]{4})\]", lambda found: chr(int(found[1], 16)), text)


def test_every_command_has_a_page_with_all_that_its_help_says(typed: Call, tmp_path: Path) -> None:
    assert typed("man", "--out", "pages").out == f"Wrote {len(PATHS) + 1} pages into pages\n"
    for path in PATHS:
        roff = (tmp_path / "pages" / f"reconciler-{'-'.join(path)}.1").read_text()
        helped = typed(*path, "--help").out
        page = " ".join(plain(roff).split())
        assert set(re.findall(r"(?<!\S)--[a-z-]+", helped)) <= set(re.findall(r"--[a-z-]+", page)), path
        assert roff.splitlines()[1:3] == [".SH NAME", roff.splitlines()[2]]
        assert roff.isascii()
        requests = [line for line in roff.splitlines() if line.startswith((".", "'"))]
        assert all(map(_REQUEST.match, requests)), path
        assert "`" not in roff
        assert ".TP\n.TP" not in roff


def test_the_page_of_the_program_has_its_commands_and_exit_codes(typed: Call) -> None:
    page = plain(typed("man").out)
    assert page.startswith(f'.TH RECONCILER 1 "" "reconciler {__version__}"')
    assert all(f"reconciler-{path[0]}(1)" in page for path in PATHS)
    assert all(f".TP\n{code}\n" in page for code in EXIT_CODES)


def test_pages_are_the_same_every_time_and_replace_only_pages(typed: Call, tmp_path: Path) -> None:
    assert typed("man", "--out", "pages").code == 0
    before = {path: path.read_bytes() for path in (tmp_path / "pages").iterdir()}
    assert typed("man", "--out", "pages").code == 0
    assert {path: path.read_bytes() for path in (tmp_path / "pages").iterdir()} == before
    (tmp_path / "pages" / "reconciler-apply.1").write_text("mine")
    said = typed("man", "--out", "pages")
    assert (said.code, "is not a manual page" in said.err) == (64, True)


@pytest.mark.parametrize(
    ("text", "roff"),
    [
        (".so /etc/passwd", r"\&.so /etc/passwd"),
        ("'br", r"\(aqbr"),
        (r"a\fBb", r"a\efBb"),
        ("--x `-y`\n.TH z", r"\-\-x \fB\-y\fR .TH z"),
        ("12 → 24", r"12 \[u2192] 24"),
    ],
)
def test_no_sentence_is_taken_for_a_request(text: str, roff: str) -> None:
    assert _prose(text) == roff


def test_an_unknown_command_is_refused_with_the_one_that_was_meant(typed: Call) -> None:
    said = typed("man", "state", "unlok")
    assert (said.code, said.err) == (
        64,
        "Error: there is no command 'state unlok'\n  hint: Did you mean state unlock?\n",
    )


@pytest.mark.thorough
def test_a_terminal_gets_man_and_without_it_the_help(on_terminal: OnTerminal, tmp_path: Path) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    code, shown = on_terminal("man", "apply", environ={"PATH": str(folder)})
    assert code == 0
    assert "Usage: reconciler apply" in shown
    man = folder / "man"
    man.write_text('#!/bin/sh\nread -r first\necho "man $* read: $first"\n')
    man.chmod(0o755)
    code, shown = on_terminal("man", "apply", environ={"PATH": str(folder)})
    assert (code, shown.startswith(r"man -l - read: .TH RECONCILER\-APPLY 1")) == (0, True), shown
