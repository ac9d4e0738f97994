"""Every `reconciler …` on our pages is a command that exists, with options it knows."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import Any

import pytest

from reconciler.cli.app import build_root_command
from tests.docs import markdown

_INLINE = re.compile(r"`(reconciler [a-z][^`]*)`")
_SEPARATORS = ("|", "&&", "||", ";", ">", ">>", "<", "2>")


def _in_blocks() -> Iterator[tuple[str, str]]:
    for block in markdown.blocks("sh", "console", "bash", "yaml"):
        for line in block.text.splitlines():
            if "reconciler " in line and (block.language != "yaml" or "run:" in line):
                yield str(block), line.split("run:")[-1].strip().removeprefix("$ ")


def _inline() -> Iterator[tuple[str, str]]:
    for file in markdown.files():
        for match in _INLINE.finditer(markdown.without_blocks(file)):
            yield str(file.relative_to(markdown.ROOT)), match[1]


def _calls(line: str) -> Iterator[list[str]]:
    """Yield the arguments of each `reconciler` of a shell line."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;<>")
    lexer.whitespace_split = True
    call: list[str] | None = None
    for word in [*lexer, ";"]:
        if word in _SEPARATORS:
            if call is not None:
                yield call
            call = None
        elif word == "reconciler" and call is None:
            call = []
        elif call is not None:
            call.append(word)


CALLS = [(where, call) for where, line in [*_in_blocks(), *_inline()] for call in _calls(line) if "…" not in call]


def _parse(command: Any, arguments: list[str]) -> None:
    """Walk down the groups, then let the command's own parser read the rest."""
    context = command.context_class(command)
    if hasattr(command, "list_commands"):
        if not arguments or {*arguments} <= {option for each in command.params for option in each.opts}:
            return
        name, *rest = arguments
        _parse(command.get_command(context, name), rest)
        return
    _, left_over, _ = command.make_parser(context).parse_args(list(arguments))
    assert not left_over


def test_every_command_on_a_page_is_one_the_tool_knows() -> None:
    wrong = []
    for where, call in CALLS:
        try:
            _parse(build_root_command(), call)
        except Exception as error:  # noqa: BLE001 - whatever the parser says of it
            wrong.append(f"{where}: {' '.join(call)}: {error}")
    assert wrong == []


def test_a_hint_that_names_jobs_of_run_says_that_it_runs_once() -> None:
    sources = sorted((markdown.ROOT / "reconciler").rglob("*.py"))
    assert [str(file) for file in sources if "reconciler run --only" in file.read_text()] == []


def test_a_command_that_does_not_exist_would_be_noticed() -> None:
    with pytest.raises(Exception, match="--no-such-option"):
        _parse(build_root_command(), ["plan", "--no-such-option"])


def test_every_page_installs_what_one_variable_names() -> None:
    pages = [*markdown.files(), *(markdown.ROOT / "examples").rglob("*.yml")]
    installs = re.compile(r"(?:pip|pipx|uv tool) install [^\n`]*stream-reconciler")
    wrong = [str(page) for page in pages if installs.search(page.read_text(encoding="utf-8"))]
    assert wrong == [str(markdown.ROOT / "docs" / "reference" / "errors.md")]  # extras of what is installed
