"""What `import reconciler` gives is all that docs, examples and scripts need, and it is loaded when it is used."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

import reconciler
from reconciler import errors
from tests.docs import door

ROOT: Final = Path(__file__).parents[2]
INSIDE: Final = re.compile(r"^\s*(?:from reconciler\.\w|import reconciler\.\w)", re.MULTILINE)
SCRIPT: Final = """\
from pathlib import Path

from reconciler import BlockedError, EmbeddedCluster, MemoryStore, Workspace, WorkspacePlan

shop: Workspace = Workspace.open(Path("shop"), environment="prod", variables={"region": "eu"})
plan: WorkspacePlan = shop.plan(targets=["topic/west/*"])
summary: str = plan.summary
body: bytes = plan.to_json()
try:
    done: tuple[str, ...] = shop.apply(plan, allow=["delete:topic/west/orders"]).done
except BlockedError as error:
    hint: str = error.hint
kinds: list[str] = [item.kind for item in shop.drift()]
west = EmbeddedCluster.create(MemoryStore(), now_ms=lambda: 0, new_id=lambda: "west")
names: list[str] = list(west.topics())
"""


def texts() -> Iterator[Path]:
    for folder in ("docs", "examples"):
        yield from (path for path in (ROOT / folder).rglob("*") if path.suffix in {".md", ".py"})
    yield ROOT / "README.md"


def test_docs_and_examples_import_from_the_door_alone() -> None:
    inside = [str(path.relative_to(ROOT)) for path in texts() if INSIDE.search(path.read_text(encoding="utf-8"))]
    assert inside == []


@pytest.mark.parametrize("line", ["from reconciler.errors import UserError", "    import reconciler.errors"])
def test_an_import_of_what_is_private_is_noticed(line: str) -> None:
    assert INSIDE.search(f"import os\n{line}\n")
    assert not INSIDE.search("from reconciler import UserError\nfrom reconcilers.errors import one\n")


def test_every_public_name_is_there_and_on_its_page() -> None:
    _, page = door.page()
    titles = re.findall(r"^### (\w+)$|^\| `(\w+)` \| `\w+` \| \d+ \||^\| `(__\w+__)` \|", page, re.MULTILINE)
    assert sorted("".join(title) for title in titles) == sorted(reconciler.__all__)
    assert dir(reconciler) == sorted(reconciler.__all__)
    assert [name for name in reconciler.__all__ if not hasattr(reconciler, name)] == []


def test_every_error_is_public() -> None:
    kinds = {name for name, kind in vars(errors).items() if inspect.isclass(kind) and issubclass(kind, Exception)}
    assert kinds == {name for name in reconciler.__all__ if name.endswith("Error")}


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Planner'"):
        reconciler.Planner  # noqa: B018 - it is looked up


@pytest.mark.parametrize(
    ("code", "loaded"),
    [
        ("import reconciler", {"reconciler", "reconciler.version"}),
        ("import reconciler; dir(reconciler)", {"reconciler", "reconciler.version"}),
        ("from reconciler import UserError", {"reconciler", "reconciler.errors", "reconciler.version"}),
    ],
)
def test_a_name_is_loaded_when_it_is_used(code: str, loaded: set[str]) -> None:
    told = "import sys; print(*sorted(name for name in sys.modules if name.partition('.')[0] == 'reconciler'))"
    done = subprocess.run([sys.executable, "-c", f"{code}; {told}"], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) == loaded


def test_opening_a_workspace_loads_no_library_of_clusters_records_or_the_command_line() -> None:
    code = (
        "import sys\nfrom reconciler import Workspace\nWorkspace.open(sys.argv[1])\n"
        "print({'kafka', 'pyarrow', 'numpy', 'pyspark', 'typer', 'rich', 'reconciler.cli'} & set(sys.modules))"
    )
    folder = str(ROOT / "examples" / "quickstart")
    done = subprocess.run([sys.executable, "-c", code, folder], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


@pytest.mark.thorough
def test_a_script_that_uses_it_is_typed(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    command = [sys.executable, "-m", "mypy", "--config-file", str(ROOT / "pyproject.toml"), str(tmp_path / "script.py")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    (tmp_path / "script.py").write_text(SCRIPT.replace("summary: str", "summary: int"))
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout.count(": error:") == 1, done.stdout
