"""The English of messages and pages is plain: see tests/docs/words.py for how that is measured."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs import catalog, markdown
from tests.docs.words import AVOIDED, grade, sentences

HARDEST = 9.0
"""Flesch-Kincaid grade of a page."""
LONGEST = 45
"""Words of a sentence."""
MOST = 800
"""Words of a page that shows how to do one thing, without its blocks of code."""
GUIDES = sorted((markdown.ROOT / "docs" / "guides").glob("*.md"))
PAGES = [
    *GUIDES,
    *sorted((markdown.ROOT / "docs" / "tutorials").glob("*.md")),
    *sorted((markdown.ROOT / "docs" / "explanation").glob("*.md")),
    markdown.ROOT / "README.md",
    markdown.ROOT / "docs" / "README.md",
    markdown.ROOT / "docs" / "reference" / "cli.md",
    *sorted((markdown.ROOT / "examples").glob("*/README.md")),
]


def _name(path: Path) -> str:
    return str(path.relative_to(markdown.ROOT))


def _messages(file: Path) -> Iterator[tuple[int, str]]:
    """Yield each text of a module that has a space in it and is no docstring, with `{}` for what is put in."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    inner = {
        id(part)
        for node in ast.walk(tree)
        for part in (
            node.values if isinstance(node, ast.JoinedStr) else [node.value] if isinstance(node, ast.Expr) else []
        )
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            text = "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inner:
            text = node.value
        else:
            continue
        if " " in text:
            yield node.lineno, text


def test_no_message_hides_who_does_what() -> None:
    found = [
        f"{_name(file)}:{line}: {text}"
        for file in sorted((markdown.ROOT / "reconciler").rglob("*.py"))
        for line, text in _messages(file)
        if AVOIDED.search(text)
    ]
    assert found == []


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_a_page_is_plain_english(page: Path) -> None:
    text = markdown.without_blocks(page)
    hidden = [line for line in text.splitlines() if AVOIDED.search(line)]
    found = sentences(text)
    long = [" ".join(each) for each in found if len(each) > LONGEST]
    assert (hidden, long) == ([], [])
    assert grade(found) <= HARDEST


@pytest.mark.parametrize("page", GUIDES, ids=_name)
def test_a_guide_is_about_one_task(page: Path) -> None:
    assert len(markdown.without_blocks(page).split()) <= MOST


@pytest.mark.parametrize(
    "page",
    sorted(page for folder in ("decisions", "development") for page in (markdown.ROOT / "docs" / folder).glob("*.md")),
    ids=_name,
)
def test_a_decision_says_who_does_what(page: Path) -> None:
    assert [line for line in markdown.without_blocks(page).splitlines() if AVOIDED.search(line)] == []


def test_the_list_of_messages_is_what_the_code_says() -> None:
    assert catalog.FILE.read_text(encoding="utf-8") == catalog.page(), "write it anew: make schemas"


def test_messages_are_plain_english() -> None:
    found = sentences("\n\n".join(catalog.FILE.read_text(encoding="utf-8").splitlines()[2:]))
    assert [" ".join(each) for each in found if len(each) > LONGEST] == []
    assert grade(found) <= HARDEST


def test_what_is_measured_tells_plain_from_hard() -> None:
    plain = sentences(
        "The plan shows the topic. It is blocked.\n\n| a | table |\n\n- `apply` deletes [it](there.md) now."
    )
    hard = sentences(
        "Notwithstanding considerable organizational reconfiguration, heterogeneous infrastructural dependencies "
        "necessitate comprehensive reconciliation procedures beforehand."
    )
    assert [" ".join(each) for each in plain] == ["The plan shows the topic", "It is blocked", "it deletes it now"]
    assert grade(plain) < HARDEST < grade(hard)
    assert AVOIDED.findall("Nobody's topic; whoever reads somebody") == ["Nobody", "whoever", "somebody"]
