"""Find and read a workspace's files, and collect problems."""

from __future__ import annotations

import os
import pathlib
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from reconciler.errors import UserError
from reconciler.manifests.positions import FieldPath, Problem, Spot, find_spots, format_excerpt, format_path
from reconciler.runtime.text import escape_non_utf8, list_first

if TYPE_CHECKING:
    from reconciler.resources.base import FieldProblem


WORKSPACE_FILE: Final = "reconciler.yaml"
OVERLAYS: Final = "overlays"
ENVIRONMENT: Final = re.compile(r"[a-z0-9-]{1,40}")
MAX_BYTES: Final = 32 * 2**20

_SUFFIXES: Final = (".yaml", ".yml")
_API: Final = b"reconciler/v1"
_SHOWN: Final = 5


def find_workspace(start: Path) -> Path:
    """Return the nearest folder at or above `start` with a `reconciler.yaml`. Raises `UserError` if none."""
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


def list_environments(folder: Path) -> tuple[str, ...]:
    """Return the environments (folders of overlays)."""
    try:
        names = [child.name for child in (folder / OVERLAYS).iterdir() if child.is_dir()]
    except OSError:
        return ()
    return tuple(sorted(name for name in names if ENVIRONMENT.fullmatch(name)))


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except PermissionError as error:
        raise UserError(
            f"cannot look for {path}: permission denied",
            hint="Name the workspace with --workspace DIR, or get the right",
        ) from error


def build_label(path: Path, folder: Path) -> str:
    """Return a path for messages, relative to the workspace if inside."""
    return path.relative_to(folder).as_posix() if path.is_relative_to(folder) else str(path)


def is_outside(path: Path, within: Path | None) -> bool:
    """Return whether a path, after resolving links, is outside `within`."""
    return within is not None and not Path(os.path.realpath(path)).is_relative_to(within)


def build_outside_problem(label: str) -> Problem:
    """Build the problem of a file outside the pull request's repository."""
    message = "is outside the repository, and a pull request reads nothing there"
    return Problem(label, None, None, "", message, "Move it into the repository")


def read_bounded(path: Path, label: str) -> bytes | Problem:
    """Read a regular file; return a problem if it exceeds `MAX_BYTES` or is unreadable."""
    try:
        # Without O_NONBLOCK, opening a pipe waits for its writer.
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    except OSError as error:
        return _build_unreadable_problem(label, error)
    status = os.fstat(handle)
    if not stat.S_ISREG(status.st_mode):
        os.close(handle)
        return Problem(label, None, None, "", "is not a regular file", "Name a file of YAML")
    with open(handle, "rb") as file:  # noqa: PTH123 - from a descriptor, so what was checked is what is read
        if status.st_size > MAX_BYTES:
            return _build_size_problem(label, status.st_size)
        try:
            raw = file.read(MAX_BYTES + 1)
        except OSError as error:
            return _build_unreadable_problem(label, error)
    return raw if len(raw) <= MAX_BYTES else _build_size_problem(label, len(raw))


class ManifestSearch(NamedTuple):
    """Result of a search: sorted files, problems and warnings."""

    files: tuple[Path, ...]
    problems: tuple[Problem, ...]
    warnings: tuple[Problem, ...]


def find_manifests(
    folder: Path,
    listed: Iterable[str],
    *,
    apart: AbstractSet[Path],
    may_be_empty: bool = False,
    within: Path | None = None,
) -> ManifestSearch:
    """Find YAML files in `listed` paths. Skip hidden folders, `apart`, and paths outside `within`."""
    files: dict[str, Path] = {}
    problems: list[Problem] = []
    warnings: list[Problem] = []
    for name in listed:
        walk = _FolderWalk(folder, apart, may_be_empty=may_be_empty, within=within)
        walk.visit(folder / name, name)
        for file in walk.files:
            files.setdefault(os.path.realpath(file), file)
        problems += walk.problems
        warnings += walk.list_warnings(name)
    return ManifestSearch(tuple(sorted(files.values())), tuple(problems), tuple(warnings))


class _FolderWalk:
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
            self.problems.append(build_outside_problem(name))
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
            self.problems.append(_build_unreadable_problem(name, error))
            return
        if not stat.S_ISDIR(mode):
            self.files.append(path)
            return
        before = len(self.problems)
        self._descend(path)
        if not self.files and not self._may_be_empty and len(self.problems) == before:
            hint = "Write a manifest there, or take the folder out of spec.manifests"
            self.problems.append(Problem(name, None, None, "", "holds no *.yaml or *.yml file", hint))

    def list_warnings(self, name: str) -> Iterator[Problem]:
        if self._others:
            shown = list_first(sorted(self._others), _SHOWN, grouping="")
            hint = "Only *.yaml and *.yml are manifests; move the rest away to silence this"
            yield Problem(name, None, None, "", f"not read: {shown}", hint)

    def _descend(self, folder: Path) -> None:
        real = os.path.realpath(folder)
        if real in self._visited:
            return
        self._visited.add(real)
        if is_outside(folder, self._within):
            self.problems.append(build_outside_problem(escape_non_utf8(build_label(folder, self._folder))))
            return
        try:
            with os.scandir(folder) as entries:
                children = sorted(entries, key=lambda entry: entry.name)
        except OSError as error:
            self.problems.append(_build_unreadable_problem(escape_non_utf8(build_label(folder, self._folder)), error))
            return
        for child in children:
            self._enter(child)

    def _enter(self, child: os.DirEntry[str]) -> None:
        path = Path(child.path)
        if path in self._apart:
            return
        label = escape_non_utf8(build_label(path, self._folder))
        is_yaml = child.name.endswith(_SUFFIXES)
        try:
            is_folder = child.is_dir()
        except OSError:
            is_folder = False  # Reading a circular link reports the error.
        if is_folder:
            if not child.name.startswith("."):
                self._descend(path)
            elif self._has_hidden_manifests(path):
                self._others.append(f"{label}/")
        elif child.name.startswith("."):
            if is_yaml:
                self._others.append(label)
        elif not is_yaml:
            self._others.append(label)
        elif label != build_label(path, self._folder):
            self.problems.append(Problem(label, None, None, "", "has a name that is not UTF-8", "Rename it"))
        else:
            self.files.append(path)

    def _has_hidden_manifests(self, folder: Path) -> bool:
        """Ignore `.git`, and `..data` of a mounted ConfigMap."""
        if folder.name == ".git" or folder.name.startswith("..") or is_outside(folder, self._within):
            return False
        files = (Path(place, name) for place, _, names in os.walk(folder) for name in names if name.endswith(_SUFFIXES))
        bodies = (read_bounded(file, file.name) for file in files if not is_outside(file, self._within))
        return any(isinstance(body, bytes) and _API in body for body in bodies)


def _build_unreadable_problem(label: str, error: OSError) -> Problem:
    why = (error.strerror or type(error).__name__).lower()
    return Problem(label, None, None, "", f"cannot be read: {why}", "Check the path and its permissions")


def _build_size_problem(label: str, size: int) -> Problem:
    message = f"is too big: {size / 2**20:,.0f} MiB, more than {MAX_BYTES // 2**20}"
    return Problem(label, None, None, "", message, "Split it into several files")


class Place(NamedTuple):
    """Position of a document: path for messages, number and first line."""

    file: str
    number: int
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


class Findings:
    """Problems, warnings and field positions of one load.

    `places` of a resource are its overlay, if any, and its base.
    """

    def __init__(
        self, folder: pathlib.Path, *, within: pathlib.Path | None = None, typed: tuple[pathlib.Path, ...] = ()
    ) -> None:
        """Reject files outside `within`. Only `typed` paths may be outside, but not through a link inside."""
        self.tell: Callable[[str], None] = lambda _text: None
        self.problems: list[Problem] = []
        self.warnings: list[Problem] = []
        self.is_whole = True
        """Whether every file was read. Otherwise missing addresses are not reported."""
        self.within = within
        self._folder = folder
        self._typed = typed
        self._known: dict[str, tuple[Mapping[FieldPath, Spot], ...]] = {}

    def read(self, path: pathlib.Path, label: str) -> bytes | Problem:
        """Read a file, or return the problem."""
        if self.within is not None and is_outside(path, self.within):
            is_typed = path in self._typed and not pathlib.Path(os.path.abspath(path)).is_relative_to(self.within)  # noqa: PTH100 - links stay
            if not is_typed:
                return build_outside_problem(label)
        return read_bounded(path, label)

    def add_unreadable(self, problem: Problem) -> None:
        """Add the problem of an unreadable file."""
        self.problems.append(problem)
        self.is_whole = False

    def add_search(self, result: ManifestSearch) -> None:
        """Add problems and warnings of a search."""
        self.problems += result.problems
        self.warnings += result.warnings
        self.is_whole &= not result.problems

    def add_complaint(self, places: tuple[Place, ...], complaint: FieldProblem) -> None:
        """Add a document's complaint as a problem."""
        self.problems.append(self._to_problem(places, complaint))

    def add_complaints(self, places: tuple[Place, ...], complaints: Iterable[FieldProblem]) -> None:
        """Add a document's complaints as problems."""
        for complaint in complaints:
            self.add_complaint(places, complaint)

    def add_warning(self, places: tuple[Place, ...], complaint: FieldProblem, *, unseen: str | None = None) -> None:
        """Add a warning. `unseen` is an undeclared address that may exist on a cluster."""
        self.warnings.append(self._to_problem(places, complaint)._replace(unseen=unseen))

    def format_location(self, places: tuple[Place, ...], path: FieldPath) -> str:
        """Return `file:line` of a field."""
        place, spot = self.find_spot(places, path)
        return f"{place.file}:{spot.line}"

    def find_spot(self, places: tuple[Place, ...], path: FieldPath) -> tuple[Place, Spot]:
        """Return document and position of a field, or of its nearest written parent."""
        for length in range(len(path), 0, -1):
            for place in places:
                if spot := self.list_spots(place).get(path[:length]):
                    return place, spot
        place = places[-1]
        return place, self.list_spots(place).get((), Spot(place.line, 1))

    def list_spots(self, place: Place) -> Mapping[FieldPath, Spot]:
        """Return the positions of a document's fields. The first call reads the file again."""
        if place.file not in self._known:
            raw = self.read(self._folder / place.file, place.file)
            self._known[place.file] = () if isinstance(raw, Problem) else find_spots(raw)
        documents = self._known[place.file]
        return documents[place.number] if place.number < len(documents) else {}

    def read_excerpts(self, problems: Iterable[Problem]) -> Mapping[Problem, tuple[str, ...]]:
        """Read the file lines to show below each problem."""
        texts: dict[str, list[str]] = {}
        excerpts: dict[Problem, tuple[str, ...]] = {}
        for problem in problems:
            if problem.line is not None and problem.file not in texts:
                raw = self.read(self._folder / problem.file, problem.file)
                texts[problem.file] = [] if isinstance(raw, Problem) else raw.decode("utf-8", "replace").splitlines()
            if lines := format_excerpt(problem, texts.get(problem.file, ())):
                excerpts[problem] = lines
        return excerpts

    def _to_problem(self, places: tuple[Place, ...], complaint: FieldProblem) -> Problem:
        place, spot = self.find_spot(places, complaint.at)
        return Problem(
            place.file, spot.line, spot.column, format_path(complaint.at), complaint.message, complaint.hint.rstrip(".")
        )
