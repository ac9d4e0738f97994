"""What the edge of the program read, once, and what was typed: the first two arguments of every command."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import NamedTuple


class Base(NamedTuple):
    """What the base of a pull request has, beside what the pull request has."""

    root: Path
    """The repository."""
    files: Path
    """A folder that stands for it, with the files of the base."""

    def of(self, path: Path) -> Path:
        """Return where the base's file is that stands at a path of the repository."""
        return self.files / path.relative_to(self.root)


def no_commit(_folder: Path) -> str | None:
    """Return no commit: the folder is in no repository."""
    return None


def no_changes(_folder: Path, _revision: str) -> tuple[str, ...]:
    """Return no files: nothing changed since that revision."""
    return ()


def no_base(_folder: Path) -> Base | None:
    """Return no files: this is no pull request."""
    return None


def no_limit(_folder: Path) -> Path | None:
    """Return no folder: this is no pull request, and its files may be anywhere."""
    return None


def quiet(_line: str) -> None:
    """Say nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Invocation:
    """Clocks, ids, the environment and the working folder: nothing below reads any of them by itself."""

    cwd: Path
    environ: Mapping[str, str]
    now_ms: Callable[[], int]
    """Wall clock, for people and for timestamps of records."""
    new_id: Callable[[], str]
    """Makes UUID4: lineages, clusters, topics."""
    new_run: Callable[[], str]
    """Makes UUIDv7: runs, sorted by time."""
    tool: str
    """Our version."""
    who: str
    """Who acts, as others read it in the lease: `anna@build-7`."""
    ci_url: str | None = None
    git_commit: Callable[[Path], str | None] = no_commit
    changed_files: Callable[[Path, str], tuple[str, ...]] = no_changes
    """Files below a folder, relative to it, that changed since a revision."""
    base_files: Callable[[Path], Base | None] = no_base
    """Of a pull request: what its base has of a folder and around it; `None`: this is none."""
    read_limit: Callable[[Path], Path | None] = no_limit
    """Of a pull request: the folder outside of which no file is read because a file of it says so."""
    workspace: Path | None = None
    """The folder of `reconciler.yaml`; `None`: the nearest one upwards from `cwd`."""
    principal: str | None = None
    """Who acts on embedded clusters; `None` is the super user."""
    host: str = "*"
    """Where that principal acts from; `*`: nobody knows."""
    warn: Callable[[str], None] = quiet
    """Takes one line for people, at once."""

    def today(self) -> date:
        """Return the day in UTC: when reviewed allowances end."""
        return datetime.fromtimestamp(self.now_ms() / 1000, tz=UTC).date()


@dataclass(frozen=True, slots=True, kw_only=True)
class Select:
    """SELECT of the command line, as it was typed."""

    environment: str | None = None
    variables: tuple[str, ...] = ()
    var_files: tuple[Path, ...] = ()
    targets: tuple[str, ...] = ()
    excludes: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    changed_since: str | None = None
    allow: tuple[str, ...] = ()
