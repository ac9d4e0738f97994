"""Writes docs/reference from the code: `make schemas` runs it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from reconciler.cli.app import COMMANDS, CommandEntry, build_root_command
from tests.docs import door, fields, programs

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "reference"
_WIDTH = 110
_HEAD = """\
# Command line

The help of each command. [Read a plan](../guides/plans.md) says what a plan means, [Exit codes](exit-codes.md) how a
command ends.
"""
_NOTE = "\n<!-- Written by `make schemas` from the code; do not edit. -->\n"
"""Below each page: it begins with what it is about."""


def pages() -> dict[Path, str]:
    """Return every page of the reference, by its file."""
    texts = {
        "cli.md": _commands_page(),
        **dict((*programs.pages(), door.page())),
        **{f"manifests/{name}": text for name, text in fields.pages()},
    }
    return {FOLDER / name: text + _NOTE for name, text in texts.items()}


def _commands_page() -> str:
    parts = [_HEAD]
    for name, command in _commands(build_root_command(), COMMANDS, "reconciler"):
        parts.append(f"## {name}\n\n```text\n{_help(command, name)}\n```\n")
    return "\n".join(parts)


def _commands(group: Any, entries: tuple[CommandEntry, ...], prefix: str) -> Iterator[tuple[str, Any]]:
    context = group.context_class(group, info_name=prefix)
    for entry in entries:
        command = group.get_command(context, entry.name)
        name = f"{prefix} {entry.name}"
        if entry.entries:
            yield from _commands(command, entry.entries, name)
        else:
            yield name, command


def _help(command: Any, name: str) -> str:
    context = command.context_class(command, info_name=name, terminal_width=_WIDTH, max_content_width=_WIDTH)
    return "\n".join(line.rstrip() for line in command.get_help(context).splitlines())


if __name__ == "__main__":
    for path, text in pages().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
