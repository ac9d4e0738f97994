"""Every relative link of our pages leads somewhere."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from tests.docs import markdown

_LINK = re.compile(r"\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)


def _name(file: Path) -> str:
    return str(file.relative_to(markdown.ROOT))


def _anchors(file: Path) -> set[str]:
    headings = _HEADING.findall(markdown.without_blocks(file))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_relative_link_leads_to_a_file_and_a_heading() -> None:
    wrong = [f"{_name(file)}: {said}" for file in markdown.files() for said in _wrong_links(file)]
    assert wrong == []


def _wrong_links(file: Path) -> Iterator[str]:
    for link in _LINK.findall(markdown.without_blocks(file)):
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = (file.parent / path).resolve() if path else file
        if not target.exists():
            yield f"{link}: no such file"
        elif not target.is_relative_to(markdown.ROOT):
            yield f"{link}: outside of the repository"
        elif anchor and anchor not in _anchors(target):
            yield f"{link}: no such heading"


def test_the_index_names_every_page() -> None:
    index = markdown.ROOT / "docs" / "README.md"
    linked = {(index.parent / link).resolve() for link in _LINK.findall(index.read_text(encoding="utf-8"))}
    pages = {page.resolve() for page in (markdown.ROOT / "docs").rglob("*.md") if page.parent.name != "decisions"}
    assert pages - linked - {index} == set()


def test_the_index_of_decisions_names_every_decision() -> None:
    folder = markdown.ROOT / "docs" / "decisions"
    text = (folder / "README.md").read_text(encoding="utf-8")
    assert [page.name for page in sorted(folder.glob("0*.md")) if page.name not in text] == []
