"""The pictures of states on our pages are the tables that the code follows."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import pytest

from reconciler.cli.text.inventory_text import format_mermaid
from reconciler.lifecycles import MOUNT, UNMOUNT, Lifecycle
from reconciler.operations.show import draw_lifecycle
from tests.docs import markdown

_ARROW = re.compile(r"^ +(\S+) --> (\S+): (.+)$", re.MULTILINE)
GONE = "gone"


def pictured(page: str) -> set[tuple[str, str, str]]:
    """Return start, end and word of each arrow of a page's picture, but the first."""
    (block,) = (block for block in markdown.blocks("mermaid") if block.file.name == page)
    return {(start, GONE if end == "[*]" else end, word) for start, end, word in _ARROW.findall(block.text)}


def arrows(moves: Iterable[Any]) -> set[tuple[str, str, str]]:
    """Return the same of a table; what may be asked for and also comes by itself is one arrow."""
    words: dict[tuple[str, str], list[str]] = {}
    for move in moves:
        words.setdefault((move.start, move.end), []).append("by itself" if move.is_automatic else move.verb)
    return {(start, end, ", or ".join(found)) for (start, end), found in words.items()}


@pytest.mark.parametrize("lifecycle", [MOUNT, UNMOUNT], ids=lambda lifecycle: lifecycle.name)
def test_the_states_of_a_migration_are_drawn_as_they_are(lifecycle: Lifecycle[Any]) -> None:
    assert pictured("migration-states.md") == arrows(lifecycle.moves)


def test_the_states_of_a_mirror_are_drawn_as_graph_draws_them() -> None:
    (block,) = (block for block in markdown.blocks("mermaid") if block.file.name == "mirror-states.md")
    assert block.text.strip() == format_mermaid(draw_lifecycle("mirror")).strip(), "reconciler graph --lifecycle mirror"
