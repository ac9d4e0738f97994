"""Every relative link of our pages leads somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs import markdown

_LINK = re.compile(r"\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)


def _name(file: Path) -> str:
    return str(file.relative_to(markdown.ROOT))


def _anchors(file: Path) -> set[str]:
    headings = _HEADING.findall(markdown.without_blocks(file))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("file", markdown.files(), ids=_name)
def test_every_relative_link_leads_to_a_file_and_a_heading(file: Path) -> None:
    for link in _LINK.findall(markdown.without_blocks(file)):
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = (file.parent / path).resolve() if path else file
        assert target.exists(), f"{_name(file)} links to {link}"
        assert target.is_relative_to(markdown.ROOT), f"{_name(file)} links outside of the repository: {link}"
        assert not anchor or anchor in _anchors(target), f"{_name(file)} links to {link}: no such heading"


def test_the_index_names_every_page() -> None:
    index = markdown.ROOT / "docs" / "README.md"
    linked = {(index.parent / link).resolve() for link in _LINK.findall(index.read_text(encoding="utf-8"))}
    pages = {page.resolve() for page in (markdown.ROOT / "docs").rglob("*.md") if page.parent.name != "decisions"}
    assert pages - linked - {index} == set()


def test_the_index_of_decisions_names_every_decision() -> None:
    folder = markdown.ROOT / "docs" / "decisions"
    text = (folder / "README.md").read_text(encoding="utf-8")
    assert [page.name for page in sorted(folder.glob("0*.md")) if page.name not in text] == []
