"""What our pages say that a command says is what the code says."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from tests.docs import markdown

_ROW = re.compile(r"^\| `([^`|]+)` \|", re.MULTILINE)
GUIDE = markdown.ROOT / "docs" / "guides" / "mirror-troubleshooting.md"


def quoted(page: Path) -> list[str]:
    """Return what the rows of a page say that a command says."""
    return _ROW.findall(page.read_text(encoding="utf-8"))


@cache
def texts() -> str:
    """Return every string of the package, pieces of f-strings among them."""
    found: list[str] = []
    for path in sorted((markdown.ROOT / "reconciler").rglob("*.py")):
        nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        found += [node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    return "\n".join(found)


@pytest.mark.parametrize("said", quoted(GUIDE))
def test_a_text_that_a_page_explains_is_one_that_is_said(said: str) -> None:
    assert [piece for piece in said.split("…") if piece.strip() and piece.strip() not in texts()] == []


def test_a_text_that_nobody_says_would_be_noticed() -> None:
    assert "the reversal has been broken off by a goose" not in texts()
