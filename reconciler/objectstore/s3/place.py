"""Where in S3 a store lies: a bucket and a prefix."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypedDict

from reconciler.errors import UserError
from reconciler.objectstore.keys import check_key

if TYPE_CHECKING:
    from mypy_boto3_s3.type_defs import CopySourceTypeDef

    from reconciler.objectstore.settings import StoreSettings

_BUCKET: Final = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
LONGEST_KEY_BYTES: Final = 1_024


class ObjectName(TypedDict):
    """An object as S3 names it, in the words of its calls."""

    Bucket: str
    Key: str


@dataclass(frozen=True, slots=True)
class Place:
    """A bucket and what all keys of the store begin with: nothing, or a prefix that ends in a slash."""

    bucket: str
    prefix: str

    @classmethod
    def of(cls, settings: StoreSettings) -> Place:
        """Return the place a location names.

        Raises:
            UserError: It names no bucket, or one or a prefix that cannot be.
        """
        bucket, _, prefix = settings.rest.partition("/")
        if not _BUCKET.fullmatch(bucket):
            message = f"{settings.url}: {bucket!r} is not the name of a bucket"
            raise UserError(
                message, hint="Names have 3 to 63 small letters, digits, dots and hyphens: s3://bucket/prefix."
            )
        prefix = prefix.rstrip("/")
        if not prefix:
            return cls(bucket, "")
        try:
            return cls(bucket, f"{check_key(prefix)}/")
        except UserError as error:
            message = f"{settings.url}: {prefix!r} is not a prefix that keys can have"
            raise UserError(message, hint="Write it without empty, '.' or '..' segments.") from error

    @property
    def url(self) -> str:
        """The place as people write it."""
        return f"s3://{self.bucket}/{self.prefix}".rstrip("/")

    def name_of(self, key: str) -> str:
        """Return the name the bucket has for a key of the store.

        Raises:
            UserError: It is no key, or too long for S3.
        """
        name = self.prefix + check_key(key)
        if len(name.encode()) > LONGEST_KEY_BYTES:
            message = f"{self.url}: the key {key[:80]!r}… is longer than the {LONGEST_KEY_BYTES} bytes S3 allows"
            raise UserError(message, hint="Use a shorter prefix, or shorter names.")
        return name

    def named(self, key: str) -> ObjectName:
        """Return the object a key is."""
        return {"Bucket": self.bucket, "Key": self.name_of(key)}


def copied_from(source: ObjectName) -> CopySourceTypeDef:
    """Return an object as what is copied."""
    return {"Bucket": source["Bucket"], "Key": source["Key"]}
