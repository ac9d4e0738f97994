"""Where objects live: `state`, `objectStorage` and `embedded.root` of the manifests."""

from __future__ import annotations

import posixpath
import re
from typing import Annotated, Final

from pydantic import BeforeValidator, Field, field_validator

from reconciler.resources.base import Complaint, Flag, Model, refusal

SCHEMES: Final = ("file", "s3", "memory")
_URL: Final = re.compile(r"([a-z][a-z0-9+.-]*)://(.*)", re.DOTALL)


_SOMEWHERE: Final = "/" + "\0/" * 64
"""The folder of reconciler.yaml, where nobody says which it is: `..` leads out of it, and no name is like its own."""


class LocationSpec(Model):
    """A folder or a bucket. What is not written comes from the AWS environment and profile."""

    url: str = Field(
        description="`file://folder` (relative to reconciler.yaml), `file:///folder` or `s3://bucket/prefix`.",
        examples=["s3://topics/prod", "file://.reconciler"],
    )
    region: str | None = Field(default=None, description="AWS region.", examples=["eu-west-1"])
    endpoint: str | None = Field(
        default=None, description="Endpoint of an S3-compatible store.", examples=["http://127.0.0.1:8333"]
    )
    force_path_style: Flag | None = Field(
        default=None, description="Address buckets by path, not by host name.", examples=[True]
    )
    kms_key_id: str | None = Field(
        default=None, description="Key objects are encrypted under (SSE-KMS).", examples=["alias/topics"]
    )

    @field_validator("url")
    @classmethod
    def _known_scheme(cls, url: str) -> str:
        parts = _URL.fullmatch(url)
        if parts is None or parts[1] not in SCHEMES or not parts[2]:
            raise refusal(
                Complaint(
                    f"{url!r} is not a location", hint="Write file://folder, file:///folder or s3://bucket/prefix"
                )
            )
        return url


def _from_url(value: object) -> object:
    return {"url": value} if isinstance(value, str) else value


Location = Annotated[LocationSpec, BeforeValidator(_from_url, json_schema_input_type=str | LocationSpec)]
"""A URL, or a mapping with `url` and settings."""


def is_overlapping(one: str, other: str) -> bool:
    """Tell whether two URLs are one place, or one lies in the other; relative ones in the same folder.

    A relative folder and an absolute one are never told to be the same. Pure: no link is followed.
    """
    (scheme, first), (other_scheme, second) = _place(one), _place(other)
    shared = min(len(first), len(second))
    return scheme == other_scheme and first[:shared] == second[:shared]


def _place(url: str) -> tuple[str, tuple[str, ...]]:
    """Return the scheme of a URL, and the names that lead to the place; a store in memory lies in no other."""
    scheme, _, rest = url.partition("://")
    if scheme == "memory":
        return scheme, (rest,)
    path = posixpath.normpath(posixpath.join(_SOMEWHERE, rest)) if scheme == "file" else rest
    return scheme, tuple(name for name in path.split("/") if name)
