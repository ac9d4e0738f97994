"""What the caller of `drift --known FILE` was told before: a local file of fingerprints, replaced as a whole."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import orjson

from reconciler.errors import UserError
from reconciler.objectstore.nonces import nonce
from reconciler.resources.address import Address

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from reconciler.workflow.drifting.finding import Found

FORMAT: Final = "reconciler.known-drift/1"


@dataclass(frozen=True, slots=True)
class Known:
    """A file of what was told, as it was when it was read, and what there is to tell now."""

    path: Path
    told: Mapping[str, Address | None]
    """Fingerprint → where it was found."""
    findings: tuple[Found, ...]
    """All that is there now, told before or not."""
    was_looked_at: Callable[[Address], bool]
    """Whether what this run did not find at an address is really gone from there."""

    @classmethod
    def read(cls, path: Path, findings: Sequence[Found], was_looked_at: Callable[[Address], bool]) -> Known:
        """Read what was told; a file that is not there says that nothing was.

        Raises:
            UserError: It is no such file, or cannot be read or kept.
        """
        _check_folder(path)
        return cls(path, _read(path), tuple(findings), was_looked_at)

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
            before = _read(self.path)
            kept = {mark: address for mark, address in before.items() if self._is_kept(mark, address)}
            _replace(self.path, {**kept, **now})

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


def _read(path: Path) -> Mapping[str, Address | None]:
    try:
        held = orjson.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}", hint="Name a readable file.") from error
    except orjson.JSONDecodeError as error:
        raise UserError(f"{path} is not JSON: {error}", hint="Delete it; it is written anew.") from error
    if not isinstance(held, dict) or held.get("format") != FORMAT or not isinstance(held.get("fingerprints"), list):
        raise UserError(f"{path} is not a file of {FORMAT}", hint="Delete it; it is written anew.")
    places = held.get("addresses")
    places = places if isinstance(places, dict) else {}
    found = ((str(mark), places.get(str(mark))) for mark in held["fingerprints"])
    return {mark: Address(place) if isinstance(place, str) else None for mark, place in found}


def _replace(path: Path, told: Mapping[str, Address | None]) -> None:
    """Write a new file beside the old one and put it in its place: at every moment one of the two is there, whole."""
    marks = sorted(told)
    places = {mark: place for mark in marks if (place := told[mark]) is not None}
    body = orjson.dumps(
        {"format": FORMAT, "fingerprints": marks, "addresses": places},
        option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS,
    )
    target = path.resolve()  # through a link, the file it names
    fresh = target.with_name(f".{target.name}.{nonce()}")
    try:
        try:
            with fresh.open("xb") as stream:
                stream.write(body + b"\n")
                stream.flush()
                os.fsync(stream.fileno())
            if target.exists():
                fresh.chmod(target.stat().st_mode & 0o7777)
            fresh.replace(target)
        finally:
            fresh.unlink(missing_ok=True)
    except OSError as error:
        raise _cannot_write(path, error) from error


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
