"""Who imports whom inside the package; `python -m tests.structure.imports` prints it."""

from __future__ import annotations

import ast
import statistics
import sys
from collections.abc import Iterable, Iterator, Mapping
from itertools import combinations
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).parents[2]
PACKAGE = "reconciler"

Imports = Mapping[str, frozenset[str]]
"""Modules or folders, each with what it imports."""


def modules(root: Path = ROOT) -> dict[str, Path]:
    """Return every module below the package with its file; a folder stands for its `__init__`."""
    found = {}
    for file in sorted((root / PACKAGE).rglob("*.py")):
        parts = file.relative_to(root).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file
    return found


def file_imports(root: Path = ROOT) -> Imports:
    """Return what every module imports, also under `TYPE_CHECKING` and inside functions."""
    known = modules(root)
    return {name: frozenset(_imported(ast.parse(file.read_bytes()), known)) - {name} for name, file in known.items()}


def _imported(tree: ast.Module, known: Mapping[str, Path]) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                if inner in known:
                    yield inner
                elif node.module in known:
                    yield node.module


def folder_imports(imports: Imports, folders: Mapping[str, str]) -> Imports:
    """Return what every folder imports of folders that neither contain it nor lie in it."""
    found: dict[str, set[str]] = {folder: set() for folder in sorted(set(folders.values()))}
    for name, others in imports.items():
        mine = folders[name]
        theirs = {folders[other] for other in others}
        found[mine].update(one for one in theirs if not (_contains(mine, one) or _contains(one, mine)))
    return {folder: frozenset(others) for folder, others in found.items()}


def _contains(outer: str, inner: str) -> bool:
    return f"{inner}.".startswith(f"{outer}.")


def folders_of(known: Mapping[str, Path], root: Path = ROOT) -> dict[str, str]:
    """Return the folder that each module lies in, as a package name."""
    return {name: ".".join(file.relative_to(root).parts[:-1]) for name, file in known.items()}


def pairs(imports: Imports) -> list[tuple[str, str]]:
    """Return the pairs that import each other, in order of their names."""
    return [(one, two) for one, two in combinations(sorted(imports), 2) if two in imports[one] and one in imports[two]]


def circles(imports: Imports) -> list[tuple[str, ...]]:
    """Return the strongly connected components of more than one member, by Tarjan's algorithm without recursion."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found = []
    for start in sorted(imports):
        if start in index:
            continue
        work: list[tuple[str, Iterator[str]]] = [(start, _enter(start, imports, index, low, stack))]
        while work:
            name, rest = work[-1]
            for other in rest:
                if other not in index:
                    work.append((other, _enter(other, imports, index, low, stack)))
                    break
                if other in stack:
                    low[name] = min(low[name], index[other])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[name])
                if low[name] == index[name]:
                    cut = stack.index(name)
                    if len(stack) - cut > 1:
                        found.append(tuple(sorted(stack[cut:])))
                    del stack[cut:]
    return sorted(found)


def _enter(name: str, imports: Imports, index: dict[str, int], low: dict[str, int], stack: list[str]) -> Iterator[str]:
    index[name] = low[name] = len(index)
    stack.append(name)
    return iter(sorted(imports[name]))


def median_lines(files: Iterable[Path]) -> float:
    return statistics.median(len(file.read_bytes().splitlines()) for file in files)


def depth(files: Iterable[Path], root: Path = ROOT) -> int:
    """Return how many folders below a top-level package the deepest file lies in."""
    return max(len(PurePosixPath(file.relative_to(root / PACKAGE)).parts) - 2 for file in files)


def report(root: Path = ROOT) -> str:
    """Return modules, median lines, the depth of folders, and the circles between files and between packages."""
    known = modules(root)
    files = [file for file in known.values() if file.name != "__init__.py"]
    imports = file_imports(root)
    packages = folder_imports(imports, folders_of(known, root))
    return "".join(
        (
            f"modules: {len(files)}\n",
            f"median lines: {median_lines(files):.0f}\n",
            f"folder depth below a top-level package: {depth(files, root)}\n",
            _listed("circles between files", circles(imports)),
            _listed("circles between packages", circles(packages)),
            _listed("packages that import each other", pairs(packages)),
        )
    )


def _listed(title: str, found: Iterable[tuple[str, ...]]) -> str:
    lines = [f"  {len(one)}: {' '.join(name.removeprefix(f'{PACKAGE}.') for name in one)}\n" for one in found]
    return "".join((f"{title}: {len(lines)}\n", *lines))


if __name__ == "__main__":
    sys.stdout.write(report())
