"""Where an object store is and how it is reached, as plain values that travel to executors."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from reconciler.errors import UserError

# Keys of an account, which travel inside pickles and are never shown.


@dataclass(frozen=True, slots=True, repr=False)
class Secret:
    """Text that shows as `***` wherever it is printed."""

    text: str

    def __repr__(self) -> str:
        return "***"

    __str__ = __repr__


@dataclass(frozen=True, slots=True)
class Credentials:
    """A key pair, with a session token where it was lent for a while."""

    access_key: str
    secret_key: Secret
    token: Secret | None = None


_FILE: Final = "file://"


@dataclass(frozen=True, slots=True)
class Patience:
    """How a store is waited for, in ms; what is `None` is as it is for every store."""

    initial_backoff_ms: int | None = None
    """First pause after a store said that it is busy; each that follows is twice as long."""
    upload_ms: int | None = None
    """For the answer to one request that moves bytes; then it is tried again."""
    register_ms: int | None = None
    """For the answer to one conditional write."""
    idle_ms: int | None = None
    """A connection that was idle for longer is not used again."""


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """A location with its settings; what is `None` comes from the environment (and profile) of its cloud.

    With `credentials` (S3) or `cloud` (Google, Azure) they are complete: no environment is asked, so that they mean
    the same on every machine.
    """

    url: str
    region: str | None = None
    endpoint: str | None = None
    force_path_style: bool | None = None
    kms_key_id: str | None = None
    credentials: Credentials | None = None
    patience: Patience = Patience()
    cloud: tuple[tuple[str, Secret], ...] | None = None
    """What the client of Google or Azure is told, by its own names: an account, a key, a token."""
    trust_file: str | None = None
    """Certificates of authorities (PEM) to trust; `None`: those of the machine."""

    @classmethod
    def resolve(
        cls,
        url: str,
        *,
        folder: Path,
        region: str | None = None,
        endpoint: str | None = None,
        force_path_style: bool | None = None,
        kms_key_id: str | None = None,
    ) -> StoreSettings:
        """Return settings whose `file://` location is absolute, read relative to `folder`."""
        return cls(url, region, endpoint, force_path_style, kms_key_id).resolved(folder)

    def resolved(self, folder: Path) -> StoreSettings:
        """Return the same with a `file://` location made absolute, read relative to `folder`."""
        if not self.url.startswith(_FILE):
            return self
        path = self.url.removeprefix(_FILE)
        if not path:
            message = f"{self.url!r} names no folder"
            raise UserError(message, hint="Write file://folder or file:///folder.")
        absolute = os.path.abspath(folder / path)  # noqa: PTH100 - Path.resolve would also follow links
        return replace(self, url=_FILE + absolute)

    @property
    def scheme(self) -> str:
        """`file`, `s3`, `gs`, `az` or `memory`."""
        return self.url.partition("://")[0]

    @property
    def rest(self) -> str:
        """What follows the scheme: a path, a bucket with its prefix, a name."""
        return self.url.partition("://")[2]

    def below(self, prefix: str) -> StoreSettings:
        """Return the location of a folder inside this one."""
        return replace(self, url=f"{self.url.rstrip('/')}/{prefix}")
