"""The site shows every page that people read; `make docs` builds it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from tests.docs import markdown, reference

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


def _titles(nav: list[Any]) -> Iterator[tuple[str, str]]:
    for entry in nav:
        for title, page in entry.items():
            yield from [(page, title)] if isinstance(page, str) else _titles(page)


def test_a_page_has_one_title_in_itself_in_the_navigation_and_in_the_index() -> None:
    nav = yaml.safe_load((markdown.ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]
    titles = {page: title for page, title in _titles(nav) if page != "README.md"}
    files = {
        page: markdown.ROOT / "examples" / Path(page).stem / "README.md" if "examples/" in page else DOCS / page
        for page in titles
    }
    headings = {page: file.read_text(encoding="utf-8").partition("\n")[0] for page, file in files.items()}
    assert {page: f"# {title}" for page, title in titles.items()} == headings
    index = (DOCS / "README.md").read_text(encoding="utf-8")
    links = {(DOCS / link).resolve(): text for text, link in re.findall(r"\[([^\]]+)\]\(([^)]+)\)", index)}
    assert {title: links.get(files[page].resolve()) for page, title in titles.items()} == {
        t: t for t in titles.values()
    }


def test_the_tutorial_of_kafka_comes_first() -> None:
    nav = yaml.safe_load((markdown.ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]
    tutorials = next(entry["Tutorials"] for entry in nav if "Tutorials" in entry)
    assert tutorials[0] == {"First Kafka cluster": "tutorials/first-kafka-cluster.md"}


def test_a_page_of_the_reference_begins_with_what_it_is_about() -> None:
    for path, text in reference.pages().items():
        _, _, begins, *_ = text.split("\n")
        assert begins[0].isupper() or begins.startswith("`"), path
        assert "make schemas" not in begins, path
