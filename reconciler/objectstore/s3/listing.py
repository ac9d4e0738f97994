"""What lies under a prefix of a bucket, in the order of the keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from reconciler.objectstore.base import Listed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mypy_boto3_s3.client import S3Client

    from reconciler.objectstore.s3.place import Place

_LISTS_BY_FOLDER: Final = "SeaweedFS"
"""This server names a folder's objects before its neighbours (`a/b` before `a-b`), where S3 sorts keys as text."""


def listing(client: S3Client, place: Place, prefix: str) -> Iterator[Listed]:
    """Yield what lies under `prefix` of a place, sorted by key; a page at a time, where the server sorts."""
    rows: list[Listed] = []
    for page in client.get_paginator("list_objects_v2").paginate(Bucket=place.bucket, Prefix=place.prefix + prefix):
        found = [_listed(row, place) for row in page.get("Contents", ()) if not row["Key"].endswith("/")]
        if _sorts(page):
            yield from found
        else:
            rows += found
    yield from sorted(rows, key=lambda row: row.key)


def bare(tag: str) -> str:
    """Return an ETag without its quotes."""
    return tag.strip('"')


def _sorts(page: Any) -> bool:
    return _LISTS_BY_FOLDER not in page["ResponseMetadata"]["HTTPHeaders"].get("server", "")


def _listed(row: Any, place: Place) -> Listed:
    modified_ms = int(row["LastModified"].timestamp() * 1_000)
    hint = f"{bare(row['ETag'])}-{modified_ms}-{row['Size']}"
    return Listed(row["Key"].removeprefix(place.prefix), row["Size"], hint, modified_ms)
