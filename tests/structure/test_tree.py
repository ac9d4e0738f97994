"""The tree of the package stays one that a newcomer can read: few folders, deep modules, nouns for names."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Final

from tests.structure.imports import depth, folders_of, median_lines, modules

LEAST_MEDIAN_LINES: Final = 150
SMALL_LINES: Final = 60
DEEPEST_FOLDER: Final = 2
FULLEST_FOLDER: Final = 20
GERUNDS: Final = {"planning", "applying"}
SAME_NAMES: Final = {"provider", "client", "translate", "links", "mounts", "faults"}
"""Each platform has a folder with the same file names."""

TREE: Final = {name: file for name, file in modules().items() if file.name != "__init__.py"}


def lines(file: Path) -> int:
    return len(file.read_bytes().splitlines())


def test_modules_are_deep() -> None:
    assert median_lines(TREE.values()) >= LEAST_MEDIAN_LINES
    small = [name for name, file in TREE.items() if lines(file) < SMALL_LINES]
    assert len(small) <= len(TREE) / 10, small


def test_folders_are_few_and_shallow() -> None:
    assert depth(TREE.values()) <= DEEPEST_FOLDER
    counts = Counter(folders_of(TREE).values())
    assert [folder for folder, count in counts.items() if count > FULLEST_FOLDER] == []
    assert [folder for folder, count in counts.items() if count < 4 and folder != "reconciler"] == []


def test_names_are_nouns() -> None:
    parts = {part for name in TREE for part in name.split(".")}
    assert {part for part in parts if part.endswith("ing")} == GERUNDS


def test_a_name_is_used_once_within_a_package() -> None:
    names = Counter((*name.split(".")[1:2], name.rsplit(".", 1)[1]) for name in TREE)
    assert {name for (*_, name), count in names.items() if count > 1} <= SAME_NAMES
