"""What a bucket with versioning keeps of an object."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from reconciler.objectstore.s3.faults import code_of
from reconciler.objectstore.s3.reading import read_whole

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mypy_boto3_s3.client import S3Client

    from reconciler.objectstore.s3.place import ObjectName

_KEEPS_NONE: Final = frozenset({"NotImplemented", "MethodNotAllowed"})


def versions_of(client: S3Client, target: ObjectName) -> Iterator[bytes | None]:
    """Yield what an object held, the newest first; `None` where it was deleted. A bucket without versioning has one."""
    for row in _rows(client, target):
        if "ETag" not in row:  # the marker of a deletion
            yield None
            continue
        found = read_whole(partial(client.get_object, **target, VersionId=row["VersionId"]))
        if found is not None:
            yield found.body


def _rows(client: S3Client, target: ObjectName) -> list[Any]:
    """Return versions and deletions. Of those of one second a deletion counts as the newer one: it ends the search."""
    from botocore.exceptions import ClientError  # noqa: PLC0415 - only users of S3 pay

    bucket, key = target["Bucket"], target["Key"]
    deleted, rows = list[Any](), list[Any]()
    try:
        for page in client.get_paginator("list_object_versions").paginate(Bucket=bucket, Prefix=key):
            deleted += page.get("DeleteMarkers", ())
            rows += page.get("Versions", ())
    except ClientError as error:
        if code_of(error) in _KEEPS_NONE:
            return []
        raise
    own = [row for row in [*deleted, *rows] if row["Key"] == key]
    return sorted(own, key=lambda row: row["LastModified"], reverse=True)
