"""A loop does not take a name that its function uses for something else and reads again after it.

Nothing else finds that: the types are alike, and it shows only where the loop has something to go through.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.structure.imports import ROOT, modules

COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


def taken(source: str) -> Iterator[str]:
    """Give the names that loops take so, each with its line."""
    for function in ast.walk(ast.parse(source)):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        own = list(own_nodes(function))
        names = sorted(
            (each for each in own if isinstance(each, ast.Name)), key=lambda name: (name.lineno, name.col_offset)
        )
        arguments = {each.arg for each in ast.walk(function.args) if isinstance(each, ast.arg)}
        for loop in own:
            if isinstance(loop, ast.For | ast.AsyncFor):
                for target in names_in(loop.target) - {"_"}:
                    same = [each for each in names if each.id == target]
                    before = [each for each in same if isinstance(each.ctx, ast.Store) and each.lineno < loop.lineno]
                    after = [each for each in same if each.lineno > (loop.end_lineno or 0)]
                    if (before or target in arguments) and after and isinstance(after[0].ctx, ast.Load):
                        yield f"{loop.lineno}: {target}"


def own_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """Give what a function has itself, without functions inside it and names that comprehensions bind."""
    for each in ast.iter_child_nodes(node):
        if isinstance(each, FUNCTIONS):
            continue
        yield each
        bound: set[str] = set()
        if isinstance(each, COMPREHENSIONS):
            bound = bound.union(*(names_in(part.target) for part in each.generators))
        yield from (inner for inner in own_nodes(each) if not (isinstance(inner, ast.Name) and inner.id in bound))


def names_in(node: ast.AST) -> set[str]:
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}


def test_no_loop_takes_a_name_that_is_read_after_it() -> None:
    found = [f"{file.relative_to(ROOT)}:{name}" for file in modules().values() for name in taken(file.read_text())]
    assert found == []


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("def f(name, kept):\n for name in kept:\n  pass\n return name", ["2: name"]),
        ("def f(a, kept):\n name = a\n for name, other in kept:\n  print(other)\n print(name)", ["3: name"]),
        ("def f(kept):\n for name in kept:\n  pass\n return name", []),
        ("def f(name, kept):\n for other in kept:\n  pass\n return name", []),
        ("def f(name, kept):\n print(name)\n for name in kept:\n  pass\n name = 1\n return name", []),
        ("def f(name, kept):\n for name in kept:\n  pass\n return [name for name in kept]", []),
        ("def f(name, kept):\n def g():\n  for name in kept:\n   pass\n return g, name", []),
    ],
)
def test_such_a_name_is_found(source: str, found: list[str]) -> None:
    assert list(taken(source)) == found
