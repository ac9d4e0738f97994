"""Docstrings and comments name files that are there, also after modules were merged or renamed."""

from __future__ import annotations

import ast
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.structure.imports import modules

FILE = re.compile(r"`((?:\w+/)*\w+\.py)`|\bsee ((?:\w+/)*\w+\.py)\b")
"""A file of the package in prose: `gate.py`, `segments/gate.py`, or without backticks where a comment says "see"."""


def prose(file: Path) -> Iterator[str]:
    """Return the docstrings and comments of a file, those below constants included."""
    for node in ast.walk(ast.parse(file.read_bytes())):
        match node:
            case ast.Expr(value=ast.Constant(value=str(text))):
                yield text
    with tokenize.open(file) as source:
        yield from (
            token.string for token in tokenize.generate_tokens(source.readline) if token.type == tokenize.COMMENT
        )


def named(file: Path) -> set[str]:
    if b".py" not in file.read_bytes():
        return set()
    return {quoted or seen for text in prose(file) for quoted, seen in FILE.findall(text)}


def test_files_that_prose_names_are_there() -> None:
    known = {f"/{file.as_posix()}" for file in modules().values()}
    missing = {
        (module, name)
        for module, file in modules().items()
        for name in named(file)
        if not any(one.endswith(f"/{name}") for one in known)
    }
    assert missing == set()


@pytest.mark.parametrize(
    "source",
    ['"""See `a/gone.py`."""', "x = 1\n'''As `a/gone.py` says.'''", "x = 1  # see a/gone.py", "# Why: `a/gone.py`."],
)
def test_a_name_is_found_wherever_it_stands(tmp_path: Path, source: str) -> None:
    file = tmp_path / "module.py"
    file.write_text(source)
    assert named(file) == {"a/gone.py"}
