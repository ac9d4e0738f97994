"""The stores that suites run over: a fresh one of each kind."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from reconciler.objectstore.directory import DirectoryStore
from reconciler.objectstore.memory import MemoryStore
from reconciler.objectstore.open import open_store

if TYPE_CHECKING:
    from reconciler.objectstore.base import ObjectStore

KINDS: Final = (
    "memory",
    "directory",
    "s3",
    pytest.param("gs", marks=pytest.mark.thorough),
    pytest.param("az", marks=pytest.mark.thorough),
)
"""What a fixture of stores takes as its `params`."""
ON_SERVERS_THOROUGHLY: Final = (
    "memory",
    "directory",
    *(pytest.param(kind, marks=pytest.mark.thorough) for kind in ("s3", "gs", "az")),
)
"""The same where tests are about what is stored: stores and their swaps are tested on a server elsewhere."""


def fresh_store(request: pytest.FixtureRequest, folder: Path) -> ObjectStore:
    """Return an empty store of the kind `request.param`; servers start with the first that needs it."""
    match request.param:
        case "memory":
            return MemoryStore()
        case "directory":
            return DirectoryStore(folder)
        case "s3":
            return open_store(request.getfixturevalue("s3_server").settings(folder.name))
        case "gs" | "az":
            return open_store(request.getfixturevalue(f"{request.param}_server").settings(folder.name))
        case other:
            message = f"no store of kind {other!r}"
            raise AssertionError(message)
