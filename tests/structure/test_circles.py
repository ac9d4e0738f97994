"""Files of the package import each other in one direction only."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.structure.imports import Imports, circles, file_imports, folder_imports, folders_of, modules, report

CASES = {
    "a plain import": {"a": "import reconciler.b", "b": "from reconciler.a import one"},
    "a module imported by its name": {"a": "from reconciler import b", "b": "from reconciler import a"},
    "an import for types alone": {
        "a": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from reconciler.b import one",
        "b": "import reconciler.a",
    },
    "an import inside a function": {
        "a": "def one():\n    from reconciler.b import two",
        "b": "import reconciler.a",
    },
    "a long way round": {
        "a": "import reconciler.c",
        "b": "import reconciler.a",
        "c": "import reconciler.d",
        "d": "import reconciler.b",
    },
}


@pytest.fixture(scope="module")
def imports() -> Imports:
    return file_imports()


def test_no_files_import_each_other_in_a_circle(imports: Imports) -> None:
    assert circles(imports) == []


def test_no_packages_import_each_other_in_a_circle(imports: Imports) -> None:
    assert circles(folder_imports(imports, folders_of(modules()))) == []


@pytest.mark.parametrize("sources", CASES.values(), ids=CASES)
def test_a_circle_is_found_whatever_the_import_looks_like(tmp_path: Path, sources: dict[str, str]) -> None:
    _write(tmp_path, {**sources, "lone": "import reconciler.a"})
    assert circles(file_imports(tmp_path)) == [tuple(f"reconciler.{name}" for name in sources)]


def test_packages_that_import_each_other_are_named_unless_one_contains_the_other(tmp_path: Path) -> None:
    _write(
        tmp_path,
        {
            "a/one": "import reconciler.b.one, reconciler.a.inner.one",
            "a/two": "",
            "a/inner/one": "import reconciler.a.two",
            "b/one": "",
            "b/two": "import reconciler.a.two",
        },
    )
    assert circles(file_imports(tmp_path)) == []
    folders = folders_of(modules(tmp_path), tmp_path)
    assert circles(folder_imports(file_imports(tmp_path), folders)) == [("reconciler.a", "reconciler.b")]
    assert report(tmp_path).splitlines() == [
        "modules: 5",
        "median lines: 1",
        "folder depth below a top-level package: 1",
        "circles between files: 0",
        "circles between packages: 1",
        "  2: a b",
        "packages that import each other: 1",
        "  2: a b",
    ]


def _write(root: Path, sources: dict[str, str]) -> None:
    for name, source in sources.items():
        file = root / "reconciler" / f"{name}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(source)
