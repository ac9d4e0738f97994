"""Open the object store at a URL."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from reconciler.errors import UserError
from reconciler.objectstore.wrappers import log_requests

if TYPE_CHECKING:
    from reconciler.objectstore.base import ObjectStore
    from reconciler.objectstore.settings import StoreSettings

# ruff: noqa: PLC0415 - a store imports only its own client


def open_store(settings: StoreSettings) -> ObjectStore:
    """Return the store at `settings.url`, without a request. It logs requests at debug level."""
    return log_requests(_open(settings))


def _open(settings: StoreSettings) -> ObjectStore:
    match settings.scheme:
        case "file":
            return _open_directory(settings)
        case "memory":
            from reconciler.objectstore.memory import MemoryStore

            return MemoryStore(settings.url_path)
        case "s3":
            from reconciler.objectstore.s3_store import S3Store

            return S3Store(settings)
        case "gs" | "az":
            from reconciler.objectstore.cloud_store import CloudStore

            return CloudStore(settings)
        case _:
            message = f"{settings.url!r} is not a location"
            hint = "Write file://folder, s3://bucket/prefix, gs://bucket/prefix or az://container/prefix."
            raise UserError(message, hint=hint)


def _open_directory(settings: StoreSettings) -> ObjectStore:
    from reconciler.objectstore.directory import DirectoryStore

    root = Path(settings.url_path)
    if not root.is_absolute():
        message = f"{settings.url}: a relative folder cannot be resolved here"
        raise UserError(message, hint="Resolve it against the folder of reconciler.yaml, or write file:///folder.")
    return DirectoryStore(root)
