"""Location and settings of an object store, as values that executors receive."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final, NamedTuple

from reconciler.errors import UserError
from reconciler.objectstore.base import check_key
from reconciler.runtime.dataclass import dataclass, replace
from reconciler.runtime.text import escape_non_utf8


@dataclass(frozen=True, slots=True, repr=False)
class Secret:
    """Text that is printed as `***`."""

    text: str

    def __repr__(self) -> str:
        return "***"

    __str__ = __repr__


@dataclass(frozen=True, slots=True)
class Credentials:
    """A key pair, and a session token if it is temporary."""

    access_key: str
    secret_key: Secret
    token: Secret | None = None


@dataclass(frozen=True, slots=True)
class Account:
    """Cloud account of a login, by names only. Without names: the machine's own account."""

    profile: str | None = None
    """AWS profile."""
    role_arn: str | None = None
    """AWS role to assume."""
    external_id: str | None = None
    session_name: str | None = None
    service_account: str | None = None
    """Google service account to impersonate."""
    client_id: str | None = None
    """Client id of an Azure managed identity."""


_FILE: Final = "file://"


@dataclass(frozen=True, slots=True)
class Patience:
    """Timeouts of a store in ms; `None` means the default."""

    initial_backoff_ms: int | None = None
    """First pause if the store is busy. Later pauses double."""
    upload_ms: int | None = None
    """Timeout of uploads."""
    register_ms: int | None = None
    idle_ms: int | None = None
    """Time after which idle connections are not reused."""


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """Location and settings of a store. `None` means the cloud's environment or profile.

    Settings with `credentials` (S3) or `cloud` (Google, Azure) are complete, and the same on every machine.
    """

    url: str
    region: str | None = None
    endpoint: str | None = None
    force_path_style: bool | None = None
    kms_key_id: str | None = None
    credentials: Credentials | None = None
    patience: Patience = Patience()
    cloud: tuple[tuple[str, Secret], ...] | None = None
    """Options of the Google or Azure client, such as account and key."""
    trust_file: str | None = None
    """PEM file of trusted certificate authorities; `None` uses the machine's."""
    account: Account | None = None
    """Account to log in with, unless settings have credentials."""

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
        """Return settings, with a `file://` location resolved against `folder`."""
        return cls(url, region, endpoint, force_path_style, kms_key_id).resolve_path(folder)

    def resolve_path(self, folder: Path) -> StoreSettings:
        """Return settings with a `file://` location resolved against `folder`."""
        if not self.url.startswith(_FILE):
            return self
        path = self.url.removeprefix(_FILE)
        if not path:
            message = f"{self.url!r} names no folder"
            raise UserError(message, hint="Write file://folder or file:///folder.")
        absolute = os.path.abspath(folder / path)  # noqa: PTH100 - Path.resolve would also follow links
        if escape_non_utf8(absolute) != absolute:
            message = f"{self.url!r} is at {escape_non_utf8(absolute)}, and that name is not UTF-8"
            raise UserError(message, hint="Rename the folder: the state and the clusters keep their locations as text.")
        return replace(self, url=_FILE + absolute)

    @property
    def scheme(self) -> str:
        """Scheme of the URL: `file`, `s3`, `gs`, `az` or `memory`."""
        return self.url.partition("://")[0]

    @property
    def url_path(self) -> str:
        """The URL without its scheme: a path, a bucket with prefix, or a name."""
        return self.url.partition("://")[2]

    def join_prefix(self, prefix: str) -> StoreSettings:
        """Return a folder's settings in this location."""
        return replace(self, url=f"{self.url.rstrip('/')}/{prefix}")


LONGEST_KEY_BYTES: Final = 1_024


class _NamingRules(NamedTuple):
    storage: str
    noun: str
    name: str
    description: str
    reserved: str | None = None


_COMMON_NAME_RULE: Final = "have 3 to 63 small letters, digits"
_NAMING_RULES: Final = {
    "s3": _NamingRules("S3", "bucket", r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]", f"{_COMMON_NAME_RULE}, dots and hyphens"),
    "gs": _NamingRules(
        "Google Cloud Storage",
        "bucket",
        r"[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]",
        f"{_COMMON_NAME_RULE}, dots, hyphens and underscores",
        r"[\x00-\x1f\x7f]",
    ),
    "az": _NamingRules(
        "Azure",
        "container",
        r"(?=.{3,63}$)[a-z0-9]+(-[a-z0-9]+)*",
        f"{_COMMON_NAME_RULE} and single hyphens",
        r"[\x00-\x1f\x7f\\\\]|\.(/|$)",
    ),
}
"""Naming rules by scheme. Azure turns backslashes into slashes and drops dots at the end of names."""


@dataclass(frozen=True, slots=True)
class BucketLocation:
    """A bucket or container, and the prefix of all keys, which is empty or ends with a slash."""

    scheme: str
    bucket: str
    prefix: str

    @classmethod
    def from_settings(cls, settings: StoreSettings) -> BucketLocation:
        """Parse the URL of settings.

        Raises:
            UserError: The bucket is missing, or a name is invalid.
        """
        rules = _NAMING_RULES[settings.scheme]
        bucket, _, prefix = settings.url_path.partition("/")
        if not re.fullmatch(rules.name, bucket):
            message = f"{settings.url}: {bucket!r} is not the name of a {rules.noun}"
            raise UserError(message, hint=f"Names {rules.description}: {settings.scheme}://{rules.noun}/prefix.")
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
        """URL of the location."""
        return f"{self.scheme}://{self.bucket}/{self.prefix}".rstrip("/")

    @property
    def bucket_noun(self) -> str:
        """`bucket` or `container`."""
        return _NAMING_RULES[self.scheme].noun

    def build_object_name(self, key: str) -> str:
        """Return the name of a key's object in the bucket.

        Raises:
            UserError: The key is invalid or too long, or the storage would change it.
        """
        rules = _NAMING_RULES[self.scheme]
        name = self.prefix + check_key(key)
        if len(name.encode()) > LONGEST_KEY_BYTES:
            message = (
                f"{self.url}: the key {key[:80]!r}… is longer than the {LONGEST_KEY_BYTES} bytes {rules.storage} allows"
            )
            raise UserError(message, hint="Use a shorter prefix, or shorter names.")
        if rules.reserved is not None and re.search(rules.reserved, name):
            message = f"{self.url}: {rules.storage} would change the key {key[:80]!r} as it is"
            raise UserError(message, hint="Use a name without control characters, backslashes and dots at its end.")
        return name
