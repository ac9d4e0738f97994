"""Files of another tool: found below a path and read whole, bounded as manifests are."""

from __future__ import annotations

import os
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from reconciler.errors import UserError
from reconciler.manifests.documents import PARSER, parse
from reconciler.manifests.files import label_of, read_bounded
from reconciler.manifests.importing.found import Place
from reconciler.manifests.positions import spots
from reconciler.manifests.problems import ManifestError, Problem

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from reconciler.manifests.positions import Path, Spot

MAX_FILES: Final = 50_000
YAML: Final = (".yaml", ".yml")
_TEMPLATES: Final = (b"{{", b"{%")
_MERGE: Final = "<<"


class Document(NamedTuple):
    """One document of a file, and where each of its fields is written."""

    file: str
    path: FilePath
    content: Any
    line: int
    spots: Mapping[Path, Spot]

    def locate(self, path: Path) -> Place:
        """Return where a field stands; of what came in by an alias or a merge, where that stands."""
        for length in range(len(path), -1, -1):
            if found := self.spots.get(path[:length]):
                return Place(self.file, found.line)
        return Place(self.file, self.line)


def files_below(path: FilePath) -> tuple[FilePath, ...]:
    """Return a file, or all files below a folder, sorted; what begins with a dot is passed over.

    Raises:
        UserError: There is nothing there, or far too much.
    """
    if not path.exists():
        raise UserError(f"there is no {path}", hint="Name the file or folder that the other tool reads.")
    if not path.is_dir():
        return (path,)
    found: list[FilePath] = []
    for folder, folders, names in os.walk(path):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        found += [FilePath(folder) / name for name in sorted(names) if not name.startswith(".")]
        if len(found) > MAX_FILES:
            raise UserError(
                f"{path} holds more than {MAX_FILES:,} files", hint="Name the folder that the other tool reads."
            )
    return tuple(found)


def read_text(path: FilePath, cwd: FilePath) -> bytes:
    """Return what a file holds.

    Raises:
        ManifestError: It cannot be read.
    """
    raw = read_bounded(path, label_of(path, cwd))
    if isinstance(raw, Problem):
        raise refused([raw])
    return raw


def read_documents(files: Iterable[FilePath], cwd: FilePath) -> tuple[Document, ...]:
    """Return every document of YAML files; JSON is YAML, too.

    Raises:
        ManifestError: Some are not YAML; lists every problem of every file.
    """
    found: list[Document] = []
    problems: list[Problem] = []
    for path in files:
        label = label_of(path, cwd)
        raw = read_bounded(path, label)
        if isinstance(raw, Problem):
            problems.append(raw)
            continue
        parsed = parse(raw, label, may_merge=True)
        problems += _explained(parsed.problems, raw)
        where = spots(raw, PARSER)
        for number, document in enumerate(parsed.documents):
            at = where[number] if number < len(where) else {}
            found.append(Document(label, path, merged(document.content), document.line, at))
    if problems:
        raise refused(problems)
    return tuple(found)


def refused(problems: Iterable[Problem]) -> ManifestError:
    """Return the error of files that cannot be read."""
    return ManifestError(tuple(problems), hint="Nothing was written: mend the files, or name others.")


def merged(content: Any) -> Any:
    """Return a value with its merge keys (`<<`) written out: many tools still read them."""
    match content:
        case dict():
            return {**_bases(content.get(_MERGE)), **{key: merged(each) for key, each in _own(content)}}
        case list():
            return [merged(each) for each in content]
        case _:
            return content


def _own(content: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    return ((key, value) for key, value in content.items() if key != _MERGE)


def _bases(merge: Any) -> dict[str, Any]:
    """Return what is merged in; of several the first wins."""
    found: dict[str, Any] = {}
    for each in reversed(merge if isinstance(merge, list) else [merge]):
        if isinstance(each, dict):
            found.update(merged(each))
    return found


def _explained(problems: Iterable[Problem], raw: bytes) -> Iterator[Problem]:
    """Say of a file that is a template that it is one: no YAML parser's word helps there."""
    is_template = any(mark in raw for mark in _TEMPLATES)
    for problem in problems:
        hint = "It looks like a template: render it first, and import what that gives" if is_template else problem.hint
        yield problem._replace(hint=hint)
