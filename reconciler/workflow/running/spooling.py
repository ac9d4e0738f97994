"""What a run knows and cannot write to its state: kept in `.reconciler/spool/<run>.json` beside the manifests."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import orjson
from pydantic import TypeAdapter, ValidationError

from reconciler.errors import UserError
from reconciler.state.entries import AnyEntry, Entry

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

FORMAT: Final = "reconciler.spool/1"


class LocalSpool:
    """A folder of this machine."""

    def __init__(self, folder: Path) -> None:
        """Nothing is made until something has to be kept."""
        self._folder = folder / ".reconciler" / "spool"

    def keep(self, run: str, entries: Sequence[Entry]) -> str:
        """Keep entries, and return where."""
        path = self._path(run)
        body = {"format": FORMAT, "run": run, "entries": [entry.model_dump(mode="json") for entry in entries]}
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            _write_whole(path, orjson.dumps(body, option=orjson.OPT_INDENT_2))
        except OSError as error:
            return f"no file ({path}: {error.strerror or error})"
        return str(path)

    def kept(self, run: str) -> Sequence[Entry]:
        """Return what is kept of a run.

        Raises:
            UserError: The file cannot be read.
        """
        path = self._path(run)
        try:
            body = orjson.loads(path.read_bytes())
            if body["format"] != FORMAT or body["run"] != run:
                raise _damaged(path, "it is of another run or format")
            return TypeAdapter(tuple[AnyEntry, ...]).validate_json(orjson.dumps(body["entries"]))
        except FileNotFoundError:
            return ()
        except (OSError, orjson.JSONDecodeError, ValidationError, KeyError, TypeError) as error:
            raise _damaged(path, str(error).splitlines()[0]) from error

    def forget(self, run: str) -> None:
        """Drop what is kept of a run, and the folders that were made for it."""
        self._path(run).unlink(missing_ok=True)
        with suppress(OSError):  # something else is in there
            self._folder.rmdir()
            self._folder.parent.rmdir()

    def _path(self, run: str) -> Path:
        return self._folder / f"{run}.json"


def _write_whole(path: Path, body: bytes) -> None:
    """Write a file that only its owner reads; it is there whole or not at all, and stays where the power fails."""
    fresh = path.with_name(f".{path.name}.new")
    try:
        with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "wb") as stream:
            stream.write(body)
            stream.flush()
            os.fsync(stream.fileno())
        fresh.replace(path)
    except OSError:
        with suppress(OSError):
            fresh.unlink(missing_ok=True)
        raise


def _damaged(path: Path, why: str) -> UserError:
    return UserError(
        f"{path} cannot be read: {why}",
        hint="It holds what a run did and could not write. Move it away to go on without: what is there is looked at.",
    )
