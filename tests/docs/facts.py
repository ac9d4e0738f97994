"""Writes docs/facts.md: each behaviour of the real systems, on which platform it is shown, by which tests, run by what.

What is claimed stands in facts.yaml beside this file; a test names what it shows by `@pytest.mark.fact("F-K-014")`, a
planning case by `facts: [F-C-065]`. Tests are parsed, never imported. A test shows a fact on the platform it runs on:
one below a folder `kafka`, or a case of a file `kafka_…`, on Kafka, the same for `redpanda`, any other on the embedded
cluster. What holds where none does stands in platforms.yaml.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Final, TypeGuard

import yaml

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "facts.md"
CLAIMS = Path(__file__).with_name("facts.yaml")
CELLS = Path(__file__).with_name("platforms.yaml")
PLATFORMS: Final = ("embedded", "kafka", "redpanda", "confluent")
NOT_YET: Final = "not yet"
KINDS: Final = ("shown", "partly: ", "not possible: ", "not asked: ", NOT_YET)
"""How a cell begins."""
RUNS: Final = {"soak": "soak", "thorough": "test-all"}
"""By which `make` target a test with a marker runs; without one: `test`."""
_HEAD = """\
# Facts

Each line is a behaviour of the real systems. `make schemas` writes this page from the markers of the tests; do not
edit it.

A cell says what tests of this version show on a platform: *shown*; *partly*, with what is missing; *not possible*
there, with the reason; *not asked*, if the fact is about something else; *not yet*. The last columns are the tests and
the command that runs them: `make test`, `make test-all`, or `make soak`. What is shown of Redpanda is shown against an
emulation of its documented contract, not a live server.
"""


@dataclass(frozen=True, slots=True)
class Shown:
    """A test that says which facts it shows."""

    file: str
    line: int
    test: str
    facts: tuple[str, ...]
    run: str = "test"

    def __str__(self) -> str:
        return f"{self.file}:{self.line} {self.test}"

    @property
    def platform(self) -> str:
        *folders, name = Path(self.file).parts
        brokers = ("kafka", "redpanda", "confluent")
        return next((one for one in brokers if one in folders or name.startswith(f"{one}_")), "embedded")


def claims() -> dict[str, dict[str, str]]:
    """Return heading → number → what is claimed."""
    found: dict[str, dict[str, str]] = yaml.load(CLAIMS.read_bytes(), yaml.CSafeLoader)
    return found


def cells() -> list[tuple[str, str, Mapping[str, str]]]:
    """Return what platforms.yaml says: first fact, last fact, platform → cell."""
    rows: list[dict[str, str]] = yaml.load(CELLS.read_bytes(), yaml.CSafeLoader)
    found = []
    for row in rows:
        first, _, last = row.pop("facts").partition(" to ")
        found.append((first, last or first, row))
    return found


def cell(number: str, platform: str, shown: Iterable[Shown], said: Iterable[tuple[str, str, Mapping[str, str]]]) -> str:
    """Return what is shown of a fact on a platform."""
    words = next((row[platform] for first, last, row in said if first <= number <= last and platform in row), NOT_YET)
    is_shown = any(one.platform == platform for one in shown)
    return words if not is_shown or words.startswith("partly: ") else "shown"


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
    of_all = next(filter(None, (_run(node.value) for node in module.body if _is_mark_of_all(node))), None)
    classes = (node.body for node in module.body if isinstance(node, ast.ClassDef))
    for node in chain(module.body, *classes):
        if isinstance(node, ast.FunctionDef):
            facts = tuple(dict.fromkeys(number for each in node.decorator_list for number in _numbers(each)))
            if facts:
                own = next(filter(None, map(_run, node.decorator_list)), None)
                yield Shown(file, node.lineno, node.name, facts, own or of_all or "test")


def _is_mark_of_all(node: ast.stmt) -> TypeGuard[ast.Assign]:
    return isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark"


def _run(mark: ast.expr) -> str | None:
    """Return what runs a test that has these marks, where they say so."""
    said = ast.unparse(mark)
    if said.startswith("pytest.mark.parametrize"):
        return None  # of one case
    return next((target for name, target in RUNS.items() if f"mark.{name}" in said), None)


def _numbers(decorator: ast.expr) -> Iterator[str]:
    """Yield what a decorator marks, itself or in one of its `pytest.param`s."""
    for node in ast.walk(decorator):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "fact":
            for argument in node.args:
                yield str(ast.literal_eval(argument))


def page(claimed: Mapping[str, Mapping[str, str]], shown: Iterable[Shown]) -> str:
    by_fact: defaultdict[str, list[Shown]] = defaultdict(list)
    for one in shown:
        for number in one.facts:
            by_fact[number].append(one)
    said, parts = cells(), [_HEAD]
    header = f"| fact | claim | {' | '.join(PLATFORMS)} | tests | run by |"
    for heading, facts in claimed.items():
        parts.append("\n".join((f"## {heading}\n", header, "| --- " * 8 + "|")))
        for number, claim in facts.items():
            tests = by_fact[number]
            on = " | ".join(cell(number, platform, tests, said) for platform in PLATFORMS)
            parts.append(f"| {number} | {claim} | {on} | {_cell(tests)} | {_runs(tests)} |")
        parts.append("")
    return "\n".join(parts)


def _runs(shown: Sequence[Shown]) -> str:
    """Say what runs the tests of a fact, what runs first first."""
    found = [target for target in ("test", *reversed(RUNS.values())) if any(one.run == target for one in shown)]
    return ", ".join(f"`{target}`" for target in found) or NOT_YET


def _cell(shown: list[Shown]) -> str:
    files: dict[str, list[str]] = {}
    for one in shown:
        files.setdefault(one.file, []).append(one.test)
    cells = [f"[{Path(file).stem}](../{file}): {_named(file, names)}" for file, names in files.items()]
    return "<br>".join(cells) or NOT_YET


def _named(file: str, names: list[str]) -> str:
    """Name tests; of cases, whose names are sentences, say how many there are."""
    if file.endswith(".py"):
        return ", ".join(f"`{name}`" for name in names)
    return "1 case" if len(names) == 1 else f"{len(names)} cases"


if __name__ == "__main__":
    PAGE.write_text(page(claims(), marked()), encoding="utf-8")
