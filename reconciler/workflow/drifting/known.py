"""What the caller of `drift --known FILE` was told before: a local file of fingerprints, replaced as a whole.

One file may serve many: each workspace, environment and state has marks of its own in it, and hides nothing of another.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import orjson

from reconciler.errors import UserError
from reconciler.objectstore.files import write_whole
from reconciler.resources.address import Address

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from reconciler.workflow.drifting.finding import Found

FORMAT: Final = "reconciler.known-drift/2"
_UNNAMED: Final = "reconciler.known-drift/1"
"""Without a word of whose drift it tells: read as that of a workspace without environments; it would hide others'."""

_ANEW: Final = "Delete it; it is written anew."

_Marks: TypeAlias = Mapping[str, Address | None]
"""Fingerprint → where it was found."""


class Whose(NamedTuple):
    """Whose drift was told; the same fingerprint elsewhere is news."""

    workspace: str
    environment: str | None = None
    lineage: str | None = None
    """Of the state; `None` before there is one."""


_NOBODY: Final = Whose("")
"""Under which what an old file says is kept until its owner takes it."""


@dataclass(frozen=True, slots=True)
class Known:
    """A file of what was told, as it was when it was read, and what there is to tell now."""

    path: Path
    whose: Whose
    told: _Marks
    findings: tuple[Found, ...]
    """All that is there now, told before or not."""
    was_looked_at: Callable[[Address], bool]
    """Whether what this run did not find at an address is really gone from there."""

    @classmethod
    def read(
        cls, path: Path, whose: Whose, findings: Sequence[Found], was_looked_at: Callable[[Address], bool]
    ) -> Known:
        """Read what was told of `whose`; a file that is not there says that nothing was.

        Raises:
            UserError: It is no such file, or cannot be read or kept.
        """
        _check_folder(path)
        return cls(path, whose, _taken(_read(path), whose)[whose], tuple(findings), was_looked_at)

    @property
    def unknown(self) -> tuple[Found, ...]:
        """What is to be told now."""
        return tuple(found for found in self.findings if mark_of(found) not in self.told)

    def remember(self) -> None:
        """Keep what was told now; call it when that is done, for what is kept is not told again.

        What is gone from the world leaves the file, so that it is told again when it comes back. What another run has
        added meanwhile stays.

        Raises:
            UserError: The file cannot be written; it is as it was before.
        """
        now = {mark_of(found): found.address for found in self.findings}
        with _only_one(self.path):
            before = _taken(_read(self.path), self.whose)
            kept = {mark: address for mark, address in before[self.whose].items() if self._is_kept(mark, address)}
            _replace(self.path, {**before, self.whose: {**kept, **now}})

    def _is_kept(self, mark: str, address: Address | None) -> bool:
        return mark not in self.told or (address is not None and not self.was_looked_at(address))


def mark_of(found: Found) -> str:
    """Return what is kept of a finding; one that is ignored is told anew when it no longer is."""
    return f"{found.fingerprint} ignored" if found.ignored is not None else found.fingerprint


def _check_folder(path: Path) -> None:
    if not path.parent.is_dir():
        raise UserError(
            f"cannot write {path}: there is no folder {path.parent}", hint="Name a file that can be written."
        )


def _taken(told: Mapping[Whose, _Marks], whose: Whose) -> dict[Whose, _Marks]:
    """Return everything with an entry for `whose`, who takes what an old file says where that can be theirs."""
    found = {whose: {}, **told}
    if whose.environment is None:
        found[whose] = {**found.pop(_NOBODY, {}), **found[whose]}
    return found


def _read(path: Path) -> Mapping[Whose, _Marks]:
    try:
        held = orjson.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}", hint="Name a readable file.") from error
    except orjson.JSONDecodeError as error:
        raise UserError(f"{path} is not JSON: {error}", hint=_ANEW) from error
    try:
        return dict(_parsed(held))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise UserError(f"{path} is not a file of {FORMAT}", hint=_ANEW) from error


def _parsed(held: Any) -> Iterator[tuple[Whose, _Marks]]:
    if held["format"] == _UNNAMED:
        yield _NOBODY, _marks(held)
        return
    if held["format"] != FORMAT:
        raise ValueError(held["format"])
    for each in held["told"]:
        yield Whose(str(each["workspace"]), each.get("environment"), each.get("lineage")), _marks(each)


def _marks(held: Mapping[str, Any]) -> _Marks:
    places = held.get("addresses") or {}
    return {str(mark): Address(place) if (place := places.get(mark)) else None for mark in [*held["fingerprints"]]}


def _replace(path: Path, told: Mapping[Whose, _Marks]) -> None:
    """Write a new file beside the old one and put it in its place: at every moment one of the two is there, whole."""
    ordered = sorted(told, key=lambda whose: [part or "" for part in whose])
    body = orjson.dumps(
        {"format": FORMAT, "told": [_written(whose, told[whose]) for whose in ordered]},
        option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS,
    )
    try:
        write_whole(path, body + b"\n")
    except OSError as error:
        raise _cannot_write(path, error) from error


def _written(whose: Whose, marks: _Marks) -> dict[str, Any]:
    places = {mark: place for mark in sorted(marks) if (place := marks[mark]) is not None}
    return {**whose._asdict(), "fingerprints": sorted(marks), "addresses": places}


@contextmanager
def _only_one(path: Path) -> Iterator[None]:
    """Keep other runs out while the file is read and replaced; the folder is what is locked, for the file changes."""
    try:
        folder = os.open(path.resolve().parent, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise _cannot_write(path, error) from error
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def _cannot_write(path: Path, error: OSError) -> UserError:
    why = error.strerror or error
    return UserError(f"cannot write {path}: {why}; it is as it was", hint="Name a file that can be written.")
