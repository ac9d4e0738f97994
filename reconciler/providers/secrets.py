"""Secrets resolved at the edge, and object stores that clusters declare."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from reconciler.errors import BrokenInvariantError, UserError
from reconciler.objectstore.open import open_store
from reconciler.objectstore.settings import Patience, StoreSettings
from reconciler.objectstore.wrappers import read_only
from reconciler.resources.cluster import SECRET_REFERENCE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from reconciler.objectstore.base import ObjectStore
    from reconciler.providers.protocol import Edge
    from reconciler.resources.cluster import LocationSpec


_MAX_BYTES: Final = 1024 * 1024


class Secret:
    """A text that does not show. It can be pickled: executors need it, and their channel is the cluster's own."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """Return the text; only a client that sends it to its owner calls this."""
        return self._text

    def __repr__(self) -> str:
        return "***"

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return format("***", spec)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._text == self._text

    def __hash__(self) -> int:
        return hash((Secret, self._text))


def resolve(reference: str, environ: Mapping[str, str]) -> Secret:
    """Return what `${env:NAME}` or `${file:/path}` stands for; one line end after a file's text is not part of it.

    Raises:
        UserError: The variable is not set, or the file cannot be read, or there is nothing in it.
    """
    found = SECRET_REFERENCE.fullmatch(reference)
    if found is None:
        raise BrokenInvariantError("a secret is not a reference", hint="Please report how it came to be")
    source, name = found[1], found[2]
    text = _of_environment(name, environ) if source == "env" else _of_file(Path(name))
    if not text:
        raise UserError(f"the secret {reference} is empty", hint="Set it, or correct the reference")
    return Secret(text)


def _of_environment(name: str, environ: Mapping[str, str]) -> str:
    if name not in environ:
        raise UserError(
            f"the environment variable {name} is not set", hint=f"A manifest reads a secret from it: export {name}"
        )
    return environ[name]


def _of_file(path: Path) -> str:
    try:
        with path.open("rb") as file:
            raw = file.read(_MAX_BYTES + 1)
        text = raw.decode()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else "it is no UTF-8 text"
        hint = "A manifest reads a secret from it: check the path and its permissions"
        raise UserError(f"the secret's file {path} cannot be read: {why}", hint=hint) from error
    if len(raw) > _MAX_BYTES:
        raise UserError(f"the secret's file {path} is longer than a secret can be", hint="Check the path")
    return text.removesuffix("\n").removesuffix("\r")


# Object stores that clusters declare, opened for the process that acts.


def opened(location: LocationSpec, edge: Edge, patience: Patience | None = None) -> ObjectStore:
    """Open a store, for who may only read as one that cannot be written to."""
    settings = StoreSettings(
        location.url,
        location.region,
        location.endpoint,
        location.force_path_style,
        location.kms_key_id,
        patience=patience or Patience(),
    )
    store = open_store(settings.resolved(edge.folder))
    return read_only(store, edge.now_ms) if edge.is_reader else store
