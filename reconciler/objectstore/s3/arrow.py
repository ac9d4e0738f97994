"""pyarrow's file system for a location, made of the same resolved setting as our own clients.

pyarrow reads `AWS_ENDPOINT_URL`, not `AWS_ENDPOINT_URL_S3`, and profiles in its own way: it is told everything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from reconciler.errors import UserError
from reconciler.objectstore.s3.client import Clients
from reconciler.objectstore.s3.place import Place

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

    from reconciler.objectstore.settings import StoreSettings


def arrow_filesystem(settings: StoreSettings) -> tuple[FileSystem, str]:
    """Return a file system of pyarrow, and the path that the location has in it.

    Raises:
        UserError: pyarrow cannot reach such a location.
    """
    from pyarrow.fs import LocalFileSystem, S3FileSystem  # noqa: PLC0415 - only who asks for it pays

    match settings.scheme:
        case "file":
            return LocalFileSystem(), settings.rest
        case "s3":
            place = Place.of(settings)
            resolved = Clients(settings).resolved()
            return S3FileSystem(**_options(resolved)), f"{place.bucket}/{place.prefix}".rstrip("/")
        case _:
            raise UserError(f"pyarrow cannot read {settings.url}", hint="Use a file:// or s3:// location.")


def _options(settings: StoreSettings) -> dict[str, Any]:
    options: dict[str, Any] = {
        "region": settings.region,
        "force_virtual_addressing": not settings.force_path_style,
    }
    if settings.credentials is not None:
        token = settings.credentials.token
        options |= {
            "access_key": settings.credentials.access_key,
            "secret_key": settings.credentials.secret_key.text,
            "session_token": None if token is None else token.text,
        }
    if settings.endpoint is not None:
        endpoint = urlsplit(settings.endpoint)
        options |= {"endpoint_override": endpoint.netloc + endpoint.path.rstrip("/"), "scheme": endpoint.scheme}
    return options
