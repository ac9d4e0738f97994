"""What a run knows and cannot write to its state: kept in `.reconciler/spool/<run>.json` beside the manifests."""

from __future__ import annotations

from contextlib import suppress
from hashlib import sha256
from typing import TYPE_CHECKING, Final

import orjson
from pydantic import TypeAdapter, ValidationError

from reconciler.errors import UserError
from reconciler.objectstore.files import write_whole
from reconciler.state.entries import AnyEntry, Entry
from reconciler.wording import no_json, refusal

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

FORMAT: Final = "reconciler.spool/1"


class LocalSpool:
    """A folder of this machine."""

    def __init__(self, folder: Path, tell: Callable[[str], None]) -> None:
        """Nothing is made until something has to be kept; `tell` is given one line where it cannot be used."""
        self._folder = folder / ".reconciler" / "spool"
        self._tell = tell

    def keep(self, run: str, entries: Sequence[Entry]) -> str:
        """Keep entries, and return where.

        Raises:
            UserError: They cannot be kept.
        """
        path = self._path(run)
        told = [entry.model_dump(mode="json") for entry in entries]
        body = {"format": FORMAT, "run": run, "sha256": _digest(told), "entries": told}
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            write_whole(path, orjson.dumps(body, option=orjson.OPT_INDENT_2), mode=0o600)
        except OSError as error:
            raise UserError(
                f"{path}: {(error.strerror or str(error)).lower()}",
                hint="Nothing is lost: the next run looks at the clusters.",
            ) from error
        return str(path)

    def kept(self, run: str) -> Sequence[Entry]:
        """Return what is kept of a run; what cannot be used is set aside, for its run can be looked at as well."""
        path = self._path(run)
        try:
            return _entries(path.read_bytes(), run)
        except FileNotFoundError:
            return ()
        except OSError as error:
            self._set_aside(path, (error.strerror or str(error)).lower())
        except ValueError as error:
            self._set_aside(path, str(error))
        return ()

    def runs(self) -> Sequence[str]:
        """Return the runs of which something is kept."""
        return sorted(path.stem for path in self._folder.glob("[!.]*.json"))

    def forget(self, run: str) -> None:
        """Drop what is kept of a run, and the folders that were made for it."""
        self._path(run).unlink(missing_ok=True)
        with suppress(OSError):  # something else is in there
            self._folder.rmdir()
            self._folder.parent.rmdir()

    def _set_aside(self, path: Path, why: str) -> None:
        damaged = path.with_suffix(".damaged")
        try:
            path.replace(damaged)
        except OSError as error:
            where = f"it stays where it is ({(error.strerror or str(error)).lower()})"
        else:
            where = f"set aside as {damaged.name}"
        self._tell(f"{path} cannot be used: {why}; {where}, and what its run did is found by looking")

    def _path(self, run: str) -> Path:
        return self._folder / f"{run}.json"


def _entries(body: bytes, run: str) -> Sequence[Entry]:
    """Return what a file holds.

    Raises:
        ValueError: It is not what was kept of this run, in words for people.
    """
    try:
        found = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise ValueError(no_json(error, body)) from error
    if not isinstance(found, dict) or (found.get("format"), found.get("run")) != (FORMAT, run):
        message = "it is of another run or format"
        raise ValueError(message)
    if found.get("sha256") != _digest(found.get("entries")):
        message = "it was changed after it was written"
        raise ValueError(message)
    try:
        return TypeAdapter(tuple[AnyEntry, ...]).validate_json(orjson.dumps(found["entries"]))
    except ValidationError as error:
        raise ValueError(refusal(error)) from error


def _digest(entries: object) -> str:
    return sha256(orjson.dumps(entries)).hexdigest()
