"""The site shows every page that people read; `make docs` builds it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import yaml

from tests.docs import markdown

DOCS = markdown.ROOT / "docs"


def _pages(nav: list[Any] | str) -> Iterator[str]:
    if isinstance(nav, str):
        yield nav
        return
    for entry in nav:
        yield from (entry,) if isinstance(entry, str) else (page for each in entry.values() for page in _pages(each))


def test_every_page_and_every_example_is_in_the_navigation_once() -> None:
    nav = yaml.safe_load((markdown.ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]
    ours = [str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md")]
    examples = [f"examples/{path.parent.name}.md" for path in (markdown.ROOT / "examples").glob("*/README.md")]
    shown = [page for page in ours if not page.startswith("decisions/0")]  # their own page lists them
    assert sorted(_pages(nav)) == sorted([*shown, *examples])
