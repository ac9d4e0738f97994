"""The local spool: what a run knows and cannot write to its state, in `.reconciler/spool/<run>.json` of a workspace."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Final

import orjson
from pydantic import TypeAdapter, ValidationError

from reconciler.errors import UserError
from reconciler.objectstore.directory import write_whole
from reconciler.runtime.text import no_json, refusal
from reconciler.state.journal import AnyEntry, Entry

FORMAT: Final = "reconciler.spool/1"


class LocalSpool:
    """A folder of this machine."""

    def __init__(self, folder: Path, warn: Callable[[str], None]) -> None:
        """Create no folder before an entry is kept. `warn` takes one line for each file that cannot be used."""
        self._folder = folder / ".reconciler" / "spool"
        self._warn = warn

    def keep(self, run: str, entries: Sequence[Entry]) -> str:
        """Write entries of a run, and return the path of the file.

        Raises:
            UserError: The file cannot be written.
        """
        path = self._path(run)
        content = [entry.model_dump(mode="json") for entry in entries]
        body = {"format": FORMAT, "run": run, "sha256": _digest(content), "entries": content}
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            write_whole(path, orjson.dumps(body, option=orjson.OPT_INDENT_2), mode=0o600)
        except OSError as error:
            raise UserError(
                f"{path}: {_reason(error)}", hint="Nothing is lost: the next run looks at the clusters."
            ) from error
        return str(path)

    def kept(self, run: str) -> Sequence[Entry]:
        """Return the entries of a run. A file that cannot be used is set aside and counts as empty."""
        path = self._path(run)
        try:
            return _entries(path.read_bytes(), run)
        except FileNotFoundError:
            return ()
        except OSError as error:
            self._set_aside(path, _reason(error))
        except ValueError as error:
            self._set_aside(path, str(error))
        return ()

    def runs(self) -> Sequence[str]:
        """Return the runs that have a file."""
        return sorted(path.stem for path in self._folder.glob("[!.]*.json"))

    def forget(self, run: str) -> None:
        """Delete the file of a run and the folders made for it; warn if it cannot be deleted."""
        path = self._path(run)
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            self._warn(f"{path} is of no use any more and cannot be removed: {_reason(error)}")
            return
        with suppress(OSError):  # The folders hold other files.
            self._folder.rmdir()
            self._folder.parent.rmdir()

    def _set_aside(self, path: Path, why: str) -> None:
        damaged = path.with_suffix(".damaged")
        try:
            path.replace(damaged)
        except OSError as error:
            where = f"it stays where it is ({_reason(error)})"
        else:
            where = f"set aside as {damaged.name}"
        self._warn(f"{path} cannot be used: {why}; {where}, and what its run did is found by looking")

    def _path(self, run: str) -> Path:
        return self._folder / f"{run}.json"


def _entries(body: bytes, run: str) -> Sequence[Entry]:
    """Parse a file; a `ValueError` says what is wrong with it, for people."""
    try:
        content = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise ValueError(no_json(error, body)) from error
    if not isinstance(content, dict) or (content.get("format"), content.get("run")) != (FORMAT, run):
        message = "it is of another run or format"
        raise ValueError(message)
    if content.get("sha256") != _digest(content.get("entries")):
        message = "it was changed after it was written"
        raise ValueError(message)
    try:
        return TypeAdapter(tuple[AnyEntry, ...]).validate_json(orjson.dumps(content["entries"]))
    except ValidationError as error:
        raise ValueError(refusal(error)) from error


def _digest(entries: object) -> str:
    return sha256(orjson.dumps(entries)).hexdigest()


def _reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()
