"""Writes docs/facts.md: each behaviour the project claims, and the tests that show it. `make schemas` runs it.

What is claimed stands in facts.yaml beside this file; a test names what it shows by `@pytest.mark.fact("F-K-014")`, a
planning case by `facts: [F-C-065]`. Tests are parsed, never imported.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "facts.md"
CLAIMS = Path(__file__).with_name("facts.yaml")
UNSHOWN = "**no test shows it**"
_HEAD = """\
# Facts

Written by `make schemas` from the markers of the tests; do not edit. Each line is a behaviour of the real systems that
this project claims to have as well, and the tests that show it.
"""


@dataclass(frozen=True, slots=True)
class Shown:
    """A test that says which facts it shows."""

    file: str
    line: int
    test: str
    facts: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.file}:{self.line} {self.test}"


def claims() -> dict[str, dict[str, str]]:
    """Return heading → number → what is claimed."""
    found: dict[str, dict[str, str]] = yaml.load(CLAIMS.read_bytes(), yaml.CSafeLoader)
    return found


def marked(folder: Path = ROOT / "tests") -> list[Shown]:
    """Return every test that carries a marker, sorted by file and line."""
    found: list[Shown] = []
    for path in sorted(folder.rglob("test_*.py")):
        source = path.read_text(encoding="utf-8")
        if "mark.fact(" in source:
            found.extend(shown_in(source, str(path.relative_to(folder.parent))))
    for path in sorted((folder / "cases").rglob("*.yaml")):
        found.extend(cases_in(path.read_text(encoding="utf-8"), str(path.relative_to(folder.parent))))
    return found


def cases_in(source: str, file: str) -> Iterator[Shown]:
    """Yield the planning cases of one file that say what they show."""
    for document in yaml.compose_all(source, yaml.CSafeLoader):
        row = yaml.CSafeLoader("").construct_document(document)
        if row and "facts" in row:
            yield Shown(file, document.start_mark.line + 1, row["why"], tuple(row["facts"]))


def shown_in(source: str, file: str) -> Iterator[Shown]:
    """Yield the tests of one file that carry a marker."""
    module = ast.parse(source, file)
    classes = (node.body for node in module.body if isinstance(node, ast.ClassDef))
    for node in chain(module.body, *classes):
        if isinstance(node, ast.FunctionDef):
            facts = tuple(dict.fromkeys(number for each in node.decorator_list for number in _numbers(each)))
            if facts:
                yield Shown(file, node.lineno, node.name, facts)


def _numbers(decorator: ast.expr) -> Iterator[str]:
    """Yield what a decorator marks, itself or in one of its `pytest.param`s."""
    for node in ast.walk(decorator):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "fact":
            for argument in node.args:
                yield str(ast.literal_eval(argument))


def page(claimed: Mapping[str, Mapping[str, str]], shown: Iterable[Shown]) -> str:
    """Return the whole page."""
    by_fact: defaultdict[str, list[Shown]] = defaultdict(list)
    for one in shown:
        for number in one.facts:
            by_fact[number].append(one)
    parts = [_HEAD]
    for heading, facts in claimed.items():
        rows = [f"| {number} | {claim} | {_cell(by_fact[number])} |" for number, claim in facts.items()]
        parts.append("\n".join((f"## {heading}\n", "| fact | claim | shown by |", "| --- | --- | --- |", *rows, "")))
    return "\n".join(parts)


def _cell(shown: list[Shown]) -> str:
    files: dict[str, list[str]] = {}
    for one in shown:
        files.setdefault(one.file, []).append(one.test)
    cells = [f"[{Path(file).stem}](../{file}): {_named(file, names)}" for file, names in files.items()]
    return "<br>".join(cells) or UNSHOWN


def _named(file: str, names: list[str]) -> str:
    """Name tests; of cases, whose names are sentences, say how many there are."""
    if file.endswith(".py"):
        return ", ".join(f"`{name}`" for name in names)
    return "1 case" if len(names) == 1 else f"{len(names)} cases"


if __name__ == "__main__":
    PAGE.write_text(page(claims(), marked()), encoding="utf-8")
