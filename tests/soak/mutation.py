"""Change the code where a change would lose data, one place at a time, and see whether the tests notice.

`python -m tests.soak.mutation [WORD]` says of each place, or of those whose entry holds the word, what came of it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from shutil import copytree, ignore_patterns
from typing import Final

import yaml

ROOT: Final = Path(__file__).resolve().parents[2]
LIST: Final = Path(__file__).with_name("mutations.yaml")
_LEFT_OUT: Final = ignore_patterns(".*", "__pycache__", "site", "*.egg-info")
_FAILED: Final = 1
"""How pytest exits where a test failed; other codes say that it could not run."""
_TIMEOUT_S: Final = 900


@dataclass(frozen=True, slots=True)
class Mutation:
    """One change of one file."""

    file: str
    old: str
    new: str
    lost: str
    """What goes wrong with the change."""
    tests: tuple[str, ...]
    """Where the tests lie that must notice."""

    def __str__(self) -> str:
        return f"{self.file}: {self.lost}"

    def is_in(self, root: Path) -> bool:
        """Tell whether what is changed occurs once in its file."""
        return (root / self.file).read_text(encoding="utf-8").count(self.old) == 1


def mutations() -> tuple[Mutation, ...]:
    kept = yaml.safe_load(LIST.read_text(encoding="utf-8"))
    return tuple(Mutation(**{**each, "tests": tuple(each["tests"])}) for each in kept)


@contextmanager
def copied() -> Iterator[Path]:
    """Yield a copy of the tree, in which the code may be changed."""
    with tempfile.TemporaryDirectory(prefix="mutation-") as folder:
        yield copytree(ROOT, Path(folder) / "tree", ignore=_LEFT_OUT)


def is_noticed(mutation: Mutation, tree: Path) -> bool:
    """Tell whether a test of `make test` or `make test-all` fails with the change; the file is as before afterwards.

    Raises:
        RuntimeError: The tests could not be run.
    """
    file = tree / mutation.file
    before = file.read_text(encoding="utf-8")
    file.write_text(before.replace(mutation.old, mutation.new), encoding="utf-8")
    marks = "not soak"
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-m", marks, "-p", "no:cacheprovider", *mutation.tests]
    workers = ["-n", "2", "--dist", "loadgroup", "--no-loadscope-reorder"]
    environ = {**os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(
            [*command, *workers], cwd=tree, env=environ, capture_output=True, timeout=_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return True  # A run that never ends is noticed too.
    finally:
        file.write_text(before, encoding="utf-8")
    if done.returncode not in (0, _FAILED, 2):
        raise RuntimeError(f"{mutation}: pytest exits with {done.returncode}: {done.stdout.decode()[-2000:]}")
    return done.returncode != 0


def main(word: str) -> None:
    """Run the list, or a part of it."""
    with copied() as tree:
        for mutation in mutations():
            if word in f"{mutation} {mutation.old}":
                found = "noticed" if is_noticed(mutation, tree) else "NOT NOTICED"
                print(f"{found:12}{mutation}", flush=True)  # noqa: T201 - what the command is for


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "")
