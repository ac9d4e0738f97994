"""Where in an object storage a store lies: a bucket (Azure's container) and a prefix."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from reconciler.errors import UserError
from reconciler.objectstore.base import check_key

if TYPE_CHECKING:
    from reconciler.objectstore.settings import StoreSettings


LONGEST_KEY_BYTES: Final = 1_024
"""Of S3, Google Cloud Storage and, in characters, Azure."""


class _Rules(NamedTuple):
    """What one kind of storage calls a bucket, and what such a name may be."""

    storage: str
    noun: str
    name: re.Pattern[str]
    told: str
    reserved: re.Pattern[str] | None = None
    """What no key may have, though others take it."""


_SMALL: Final = "have 3 to 63 small letters, digits"
_RULES: Final = {
    "s3": _Rules("S3", "bucket", re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]"), f"{_SMALL}, dots and hyphens"),
    "gs": _Rules(
        "Google Cloud Storage",
        "bucket",
        re.compile(r"[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]"),
        f"{_SMALL}, dots, hyphens and underscores",
        re.compile(r"[\x00-\x1f\x7f]"),
    ),
    "az": _Rules(
        "Azure",
        "container",
        re.compile(r"(?=.{3,63}$)[a-z0-9]+(-[a-z0-9]+)*"),
        f"{_SMALL} and single hyphens",
        re.compile(r"[\x00-\x1f\x7f\\\\]|\.(/|$)"),
    ),
}
"""Azure takes a backslash for a slash, and leaves away a dot at the end of a name."""


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
        if not rules.name.fullmatch(bucket):
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
        if rules.reserved is not None and rules.reserved.search(name):
            message = f"{self.url}: {rules.storage} does not keep the key {key[:80]!r} as it is"
            raise UserError(message, hint="Use a name without control characters, backslashes and dots at its end.")
        return name
