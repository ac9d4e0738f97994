"""Where an object store is and how it is reached, as plain values that travel to executors."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, NamedTuple

from reconciler.errors import UserError
from reconciler.objectstore.base import check_key
from reconciler.runtime.text import in_utf8

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
        if in_utf8(absolute) != absolute:
            message = f"{self.url!r} lies at {in_utf8(absolute)}, and that name is not UTF-8"
            raise UserError(message, hint="Rename the folder: the state and the clusters keep their locations as text.")
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


# Where in an object storage a store lies: a bucket (Azure's container) and a prefix.


LONGEST_KEY_BYTES: Final = 1_024
"""Of S3, Google Cloud Storage and, in characters, Azure."""


class _Rules(NamedTuple):
    """What one kind of storage calls a bucket, and what such a name may be."""

    storage: str
    noun: str
    name: str
    told: str
    reserved: str | None = None
    """What no key may have, though others take it."""


_SMALL: Final = "have 3 to 63 small letters, digits"
_RULES: Final = {
    "s3": _Rules("S3", "bucket", r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]", f"{_SMALL}, dots and hyphens"),
    "gs": _Rules(
        "Google Cloud Storage",
        "bucket",
        r"[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]",
        f"{_SMALL}, dots, hyphens and underscores",
        r"[\x00-\x1f\x7f]",
    ),
    "az": _Rules(
        "Azure",
        "container",
        r"(?=.{3,63}$)[a-z0-9]+(-[a-z0-9]+)*",
        f"{_SMALL} and single hyphens",
        r"[\x00-\x1f\x7f\\\\]|\.(/|$)",
    ),
}
"""Patterns are text, and compiled once a bucket is named. Azure takes a backslash for a slash, and leaves away a dot at
the end of a name."""


@dataclass(frozen=True, slots=True)
class Place:
    """A bucket and what all keys of the store begin with: nothing, or a prefix that ends in a slash."""

    scheme: str
    bucket: str
    prefix: str

    @classmethod
    def of(cls, settings: StoreSettings) -> Place:
        """Return the place a location names.

        Raises:
            UserError: It names no bucket, or one or a prefix that cannot be.
        """
        rules = _RULES[settings.scheme]
        bucket, _, prefix = settings.rest.partition("/")
        if not re.fullmatch(rules.name, bucket):
            message = f"{settings.url}: {bucket!r} is not the name of a {rules.noun}"
            raise UserError(message, hint=f"Names {rules.told}: {settings.scheme}://{rules.noun}/prefix.")
        prefix = prefix.rstrip("/")
        if not prefix:
            return cls(settings.scheme, bucket, "")
        try:
            return cls(settings.scheme, bucket, f"{check_key(prefix)}/")
        except UserError as error:
            message = f"{settings.url}: {prefix!r} is not a prefix that keys can have"
            raise UserError(message, hint="Write it without empty, '.' or '..' segments.") from error

    @property
    def url(self) -> str:
        """The place as people write it."""
        return f"{self.scheme}://{self.bucket}/{self.prefix}".rstrip("/")

    @property
    def noun(self) -> str:
        """What the storage calls a bucket."""
        return _RULES[self.scheme].noun

    def name_of(self, key: str) -> str:
        """Return the name the bucket has for a key of the store.

        Raises:
            UserError: It is no key, too long, or of characters that this storage does not keep as they are.
        """
        rules = _RULES[self.scheme]
        name = self.prefix + check_key(key)
        if len(name.encode()) > LONGEST_KEY_BYTES:
            message = (
                f"{self.url}: the key {key[:80]!r}… is longer than the {LONGEST_KEY_BYTES} bytes {rules.storage} allows"
            )
            raise UserError(message, hint="Use a shorter prefix, or shorter names.")
        if rules.reserved is not None and re.search(rules.reserved, name):
            message = f"{self.url}: {rules.storage} does not keep the key {key[:80]!r} as it is"
            raise UserError(message, hint="Use a name without control characters, backslashes and dots at its end.")
        return name
