"""What the stories of the examples have in common: a workspace, commands typed in it, and what they insist on.

A story is a list of chapters. It shows each command and what it prints, and ends where something comes out otherwise
than it says.
"""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

RECONCILER = Path(sys.executable).with_name("reconciler")


class DeviationError(Exception):
    """Something came out otherwise than the story says."""


def require(*, that: bool, otherwise: str) -> None:
    if not that:
        raise DeviationError(otherwise)


def say(line: str = "") -> None:
    print(line, flush=True)


def chapter(title: str) -> None:
    say(f"\n── {title}")


@dataclass
class Story:
    """A story whose files lie in `here`, told in `workspace`."""

    here: Path
    workspace: Path

    @classmethod
    def of(cls, demo: str) -> Story:
        """Return the story that a script tells, in the folder it is given, else in one beside it."""
        here = Path(demo).resolve().parent
        return cls(here, Path(sys.argv[1]).resolve() if sys.argv[1:] else here / ".workspace")

    def begin(self, *folders: str) -> None:
        """Make the workspace anew, with these folders of the example."""
        shutil.rmtree(self.workspace, ignore_errors=True)
        self.workspace.mkdir(parents=True)
        for folder in folders:
            shutil.copytree(self.here / folder, self.workspace / folder, ignore=shutil.ignore_patterns(".*"))
        shutil.copy(self.here / "reconciler.yaml", self.workspace)

    def typed(self, *arguments: str) -> tuple[int, str]:
        """Type a command in the workspace; return its exit code and what it prints."""
        done = subprocess.run(
            [RECONCILER, *arguments],
            cwd=self.workspace,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            check=False,
        )
        return done.returncode, done.stdout

    def run(self, *arguments: str, expect: int = 0, shows: str = "") -> str:
        """Type `reconciler`, show what it prints, and insist on how it ends and on what it says."""
        say(f"   $ reconciler {shlex.join(arguments)}")
        code, told = self.typed(*arguments)
        for line in told.splitlines():
            say(f"     {line}".rstrip())
        require(that=code == expect, otherwise=f"exit code {code} where {expect} was expected")
        require(that=shows in told, otherwise=f"it does not say {shows!r}")
        return told

    def read(self, *arguments: str) -> Any:
        """Return what a command says in JSON, without showing it."""
        code, told = self.typed(*arguments, "--format", "json")
        require(that=code == 0, otherwise=f"exit code {code} of {shlex.join(arguments)}")
        return json.loads(told)

    def edit(self, file: str, old: str, new: str) -> None:
        """Change a manifest, as an editor would."""
        say(f"   {file}: {old} → {' '.join(new.split())}")
        path = self.workspace / "manifests" / file
        text = path.read_text(encoding="utf-8")
        require(that=text.count(old) == 1, otherwise=f"{file} does not say {old!r} once")
        path.write_text(text.replace(old, new), encoding="utf-8")

    def show(self, file: str) -> None:
        """Show a manifest."""
        say(f"   $ cat manifests/{file}")
        for line in (self.workspace / "manifests" / file).read_text(encoding="utf-8").splitlines():
            say(f"     {line}")

    def settled(self) -> None:
        """Insist that there is nothing left to do."""
        self.run("plan", "--detailed-exitcode", shows="nothing to do")

    def tell(self, chapters: Iterable[Callable[[], None]]) -> int:
        """Tell all of it; return 1 where something is not as the story says."""
        began = time.monotonic()
        try:
            for told in chapters:
                told()
        except DeviationError as error:
            print(f"demo: {error}", file=sys.stderr)
            return 1
        say(f"\nAll as the story says, in {time.monotonic() - began:.0f} s.")
        say(f"Play with it: cd {shlex.quote(str(self.workspace))}")
        return 0
