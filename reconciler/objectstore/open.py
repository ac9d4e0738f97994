"""Open the store that settings name."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from reconciler.errors import UserError
from reconciler.objectstore.wrappers import noted

if TYPE_CHECKING:
    from reconciler.objectstore.base import ObjectStore
    from reconciler.objectstore.settings import StoreSettings


def open_store(settings: StoreSettings) -> ObjectStore:
    """Return the store at `settings.url`, its requests noted where somebody listens; nothing is read or written yet.

    Raises:
        UserError: No such kind of store, or a `file://` location that is not absolute.
    """
    return noted(_opened(settings))


def _opened(settings: StoreSettings) -> ObjectStore:
    match settings.scheme:
        case "file":
            return _directory(settings)
        case "memory":
            from reconciler.objectstore.memory import MemoryStore  # noqa: PLC0415 - only who asks for it pays

            return MemoryStore(settings.rest)
        case "s3":
            from reconciler.objectstore.s3_store import S3Store  # noqa: PLC0415 - only who asks for it pays

            return S3Store(settings)
        case "gs" | "az":
            from reconciler.objectstore.cloud_store import CloudStore  # noqa: PLC0415 - only who asks for it pays

            return CloudStore(settings)
        case _:
            message = f"{settings.url!r} is not a location"
            hint = "Write file://folder, s3://bucket/prefix, gs://bucket/prefix or az://container/prefix."
            raise UserError(message, hint=hint)


def _directory(settings: StoreSettings) -> ObjectStore:
    from reconciler.objectstore.directory import DirectoryStore  # noqa: PLC0415 - only who asks for it pays

    root = Path(settings.rest)
    if not root.is_absolute():
        message = f"{settings.url}: a relative folder has no meaning here"
        raise UserError(message, hint="Resolve it against the folder of reconciler.yaml, or write file:///folder.")
    return DirectoryStore(root)
