"""Which files a workspace is made of, and how they are read: bounded, and only where they are what they seem."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from reconciler.errors import UserError
from reconciler.manifests.problems import Problem

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from collections.abc import Set as AbstractSet

WORKSPACE_FILE: Final = "reconciler.yaml"
OVERLAYS: Final = "overlays"
MAX_BYTES: Final = 32 * 2**20
"""Of one file; far beyond what people write, and read in a few seconds."""

_SUFFIXES: Final = (".yaml", ".yml")
_SHOWN: Final = 5


def find_workspace(start: Path) -> Path:
    """Return the folder of the nearest `reconciler.yaml`, from `start` upwards.

    Raises:
        UserError: There is none.
    """
    beginning = start.resolve()
    for folder in (beginning, *beginning.parents):
        if _is_file(folder / WORKSPACE_FILE):
            return folder
    if _is_file(beginning / "reconciler.yml"):
        raise UserError(f"{beginning / 'reconciler.yml'} is not read", hint=f"Rename it to {WORKSPACE_FILE}")
    raise UserError(
        f"there is no {WORKSPACE_FILE} in {beginning} or any folder above it",
        hint="Name the workspace with --workspace DIR, or begin one with `reconciler init`",
    )


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except PermissionError as error:
        raise UserError(
            f"cannot look for {path}: permission denied",
            hint="Name the workspace with --workspace DIR, or get the right",
        ) from error


def label_of(path: Path, folder: Path) -> str:
    """Return how a file is named in messages: relative to the workspace where it lies within."""
    return path.relative_to(folder).as_posix() if path.is_relative_to(folder) else str(path)


def is_outside(path: Path, within: Path | None) -> bool:
    """Tell whether a path leads out of a folder, links followed."""
    return within is not None and not Path(os.path.realpath(path)).is_relative_to(within)


def outside(label: str) -> Problem:
    """Return why a file of a pull request is not read."""
    message = "lies outside of the repository, and a pull request reads nothing there"
    return Problem(label, None, None, "", message, "Move it into the repository")


def read_bounded(path: Path, label: str) -> bytes | Problem:
    """Return what a regular file of at most `MAX_BYTES` holds, or why it cannot be read."""
    try:
        # Without O_NONBLOCK opening a pipe would wait for its writer.
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    except OSError as error:
        return _unreadable(label, error)
    status = os.fstat(handle)
    if not stat.S_ISREG(status.st_mode):
        os.close(handle)
        return Problem(label, None, None, "", "is not a regular file", "Name a file of YAML")
    with open(handle, "rb") as file:  # noqa: PTH123 - from a descriptor, so that what was checked is what is read
        if status.st_size > MAX_BYTES:
            return _too_big(label, status.st_size)
        try:
            raw = file.read(MAX_BYTES + 1)
        except OSError as error:
            return _unreadable(label, error)
    return raw if len(raw) <= MAX_BYTES else _too_big(label, len(raw))


class Found(NamedTuple):
    """The manifests below the listed paths, sorted, and what was found beside them."""

    files: tuple[Path, ...]
    problems: tuple[Problem, ...]
    warnings: tuple[Problem, ...]


def manifest_files(
    folder: Path,
    listed: Iterable[str],
    *,
    apart: AbstractSet[Path],
    may_be_empty: bool = False,
    within: Path | None = None,
) -> Found:
    """Return every `*.yaml` and `*.yml` below `listed`, dot-folders excluded; a file listed twice is read once.

    `apart`: files and folders that are read as something else: the workspace, values, overlays. `within`: the folder
    outside of which no folder is looked into.
    """
    files: dict[str, Path] = {}
    problems: list[Problem] = []
    warnings: list[Problem] = []
    for name in listed:
        walk = _Walk(folder, apart, may_be_empty=may_be_empty, within=within)
        walk.visit(folder / name, name)
        for file in walk.files:
            files.setdefault(os.path.realpath(file), file)
        problems += walk.problems
        warnings += walk.warnings(name)
    return Found(tuple(sorted(files.values())), tuple(problems), tuple(warnings))


class _Walk:
    """One listed path and all below it."""

    def __init__(self, folder: Path, apart: AbstractSet[Path], *, may_be_empty: bool, within: Path | None) -> None:
        self.files: list[Path] = []
        self.problems: list[Problem] = []
        self._folder = folder
        self._apart = apart
        self._may_be_empty = may_be_empty
        self._within = within
        self._others: list[str] = []
        self._visited: set[str] = set()

    def visit(self, path: Path, name: str) -> None:
        path = Path(os.path.normpath(path))
        if is_outside(path, self._within):
            self.problems.append(outside(name))
            return
        try:
            mode = path.stat().st_mode
        except FileNotFoundError:
            hint = (
                "Patterns are not expanded: name the folder" if "*" in name else "Create it, or correct spec.manifests"
            )
            self.problems.append(Problem(name, None, None, "", "is listed in spec.manifests and does not exist", hint))
            return
        except OSError as error:
            self.problems.append(_unreadable(name, error))
            return
        if not stat.S_ISDIR(mode):
            self.files.append(path)
            return
        before = len(self.problems)
        self._descend(path)
        if not self.files and not self._may_be_empty and len(self.problems) == before:
            hint = "Write a manifest there, or take the folder out of spec.manifests"
            self.problems.append(Problem(name, None, None, "", "holds no *.yaml or *.yml file", hint))

    def warnings(self, name: str) -> Iterator[Problem]:
        if self._others:
            shown = ", ".join(sorted(self._others)[:_SHOWN])
            more = f" and {len(self._others) - _SHOWN} more" if len(self._others) > _SHOWN else ""
            hint = "Only *.yaml and *.yml are manifests; move the rest away to silence this"
            yield Problem(name, None, None, "", f"not read: {shown}{more}", hint)

    def _descend(self, folder: Path) -> None:
        real = os.path.realpath(folder)
        if real in self._visited:
            return  # a link that leads back up, or to what was read already
        self._visited.add(real)
        if is_outside(folder, self._within):
            self.problems.append(outside(label_of(folder, self._folder)))
            return
        try:
            with os.scandir(folder) as entries:
                children = sorted(entries, key=lambda entry: entry.name)
        except OSError as error:
            self.problems.append(_unreadable(label_of(folder, self._folder), error))
            return
        for child in children:
            self._enter(child)

    def _enter(self, child: os.DirEntry[str]) -> None:
        path = Path(child.path)
        if path in self._apart:
            return
        is_yaml = child.name.endswith(_SUFFIXES)
        try:
            is_folder = child.is_dir()
        except OSError:
            is_folder = False  # a link to itself: reading it says so
        if is_folder:
            if not child.name.startswith("."):
                self._descend(path)
        elif child.name.startswith("."):
            if is_yaml:
                self._others.append(label_of(path, self._folder))
        elif is_yaml:
            self.files.append(path)
        else:
            self._others.append(label_of(path, self._folder))


def _unreadable(label: str, error: OSError) -> Problem:
    why = (error.strerror or type(error).__name__).lower()
    return Problem(label, None, None, "", f"cannot be read: {why}", "Check the path and its permissions")


def _too_big(label: str, size: int) -> Problem:
    message = f"is too big: {size / 2**20:,.0f} MiB, more than {MAX_BYTES // 2**20}"
    return Problem(label, None, None, "", message, "Split it into several files")
