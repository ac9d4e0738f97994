"""The tree of the package stays one that a newcomer can read: few folders, deep modules, nouns for names."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final, get_args

from reconciler.resources.cluster import Provider
from tests.structure.imports import depth, folders_of, median_lines, modules

LEAST_MEDIAN_LINES: Final = 150
SMALL_LINES: Final = 60
DEEPEST_FOLDER: Final = 2
FULLEST_FOLDER: Final = 20
GERUNDS: Final = {"planning", "applying"}
SAME_NAMES: Final = {"provider", "client", "translate", "links", "mounts", "faults", "link_options", "capabilities"}
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


PLATFORMS: Final = set(get_args(get_args(Provider)[0]))
WITHOUT_PLATFORMS: Final = {"applying", "cli", "importers", "jobs", "manifests", "operations", "planning", "state"}
OF_OTHER_TOOLS: Final = {
    "reconciler.importers.julie",  # what its clusters are called
    "reconciler.importers.kafka_gitops",  # a section of its files
    "reconciler.importers.strimzi",  # a section of its files
    "reconciler.importers.terraform",  # a provider of its files
    "reconciler.importers.terraform_confluent",  # the same
}


def named_platforms(file: Path) -> Iterator[str]:
    """Yield texts and attributes that name a platform, each with its line."""
    for node in ast.walk(ast.parse(file.read_bytes())):
        text = node.value if isinstance(node, ast.Constant) else node.attr if isinstance(node, ast.Attribute) else None
        if isinstance(text, str) and (text in PLATFORMS or re.search(rf"spec\.({'|'.join(PLATFORMS)})\b", text)):
            yield f"{getattr(node, 'lineno', 0)}: {text}"


def test_no_module_above_the_platforms_names_one() -> None:
    above = {name: file for name, file in TREE.items() if name.split(".")[1] in WITHOUT_PLATFORMS}
    named = {name: found for name, file in above.items() if (found := list(named_platforms(file)))}
    assert named.keys() == OF_OTHER_TOOLS, named


def test_a_module_that_names_a_platform_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "check.py").write_text("""
if spec.kafka or spec.provider == "embedded":
    say(f"set spec.redpanda.security of {name}", "Kafka takes an embedded topic")
""")
    named = list(named_platforms(tmp_path / "check.py"))
    assert named == [
        "2: kafka",
        "2: embedded",
        "3: set spec.redpanda.security of ",
    ]
