"""Large objects in parts: sent or copied several at a time, and taken back when one fails.

A process that is killed in between leaves an upload nobody sees; a lifecycle rule of the bucket
(AbortIncompleteMultipartUpload) removes it.
"""

from __future__ import annotations

from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from reconciler.objectstore.s3.faults import code_of
from reconciler.objectstore.s3.place import copied_from

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from mypy_boto3_s3.client import S3Client

    from reconciler.objectstore.s3.place import ObjectName

PART_BYTES: Final = 16 << 20
"""S3 allows 10,000 parts of 5 MiB to 5 GiB: this reaches 160 GiB, and what we write is cut far below that."""
SINGLE_BYTES: Final = 32 << 20
"""Up to this size an object is sent as one: a part more costs a round trip more."""
COPIED_PART_BYTES: Final = 1 << 30
"""A copied part passes through nobody; it must only be done within the time a client waits."""
_AT_ONCE: Final = 4

Json = dict[str, Any]


def send_in_parts(client: S3Client, target: ObjectName, bodies: Iterable[bytes], options: Json) -> Json:
    """Store an object made of `bodies`, all but the last at least 5 MiB, and return the answer that completed it."""

    def send(upload: str, number: int, body: bytes) -> str:
        answer = client.upload_part(**target, UploadId=upload, PartNumber=number, Body=body)
        return answer["ETag"]

    return _in_parts(client, target, bodies, options, send)


def copy_in_parts(client: S3Client, target: ObjectName, source: ObjectName, options: Json) -> Json:
    """Store a copy of an object of any size, made by the server, and return the answer that completed it."""
    size = client.head_object(**source)["ContentLength"]

    def copy(upload: str, number: int, piece: str) -> str:
        answer = client.upload_part_copy(
            **target, UploadId=upload, PartNumber=number, CopySource=copied_from(source), CopySourceRange=piece
        )
        return answer["CopyPartResult"]["ETag"]

    return _in_parts(client, target, _ranges(size), options, copy)


def _ranges(size: int) -> Iterator[str]:
    for start in range(0, size, COPIED_PART_BYTES):
        yield f"bytes={start}-{min(start + COPIED_PART_BYTES, size) - 1}"


def _in_parts(
    client: S3Client,
    target: ObjectName,
    pieces: Iterable[Any],
    options: Json,
    move: Callable[[str, int, Any], str],
) -> Json:
    created = client.create_multipart_upload(**target, **options)
    upload = created["UploadId"]
    try:
        tags = _moved(upload, pieces, move)
        return {**created, **_completed(client, target, upload, tags)}  # either may say how it is encrypted
    except BaseException:
        from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415 - only users of S3 pay

        with suppress(BotoCoreError, ClientError):  # what failed first is what is told
            client.abort_multipart_upload(**target, UploadId=upload)
        raise


def _moved(upload: str, pieces: Iterable[Any], move: Callable[[str, int, Any], str]) -> dict[int, str]:
    """Move all pieces, a few at a time, so that no more than those are in memory; return the tag of each."""
    tags: dict[int, str] = {}
    going: dict[Future[str], int] = {}
    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="s3-part") as pool:
        try:
            for number, piece in enumerate(pieces, start=1):
                if len(going) == _AT_ONCE:
                    _collect(going, tags)
                going[pool.submit(move, upload, number, piece)] = number
            while going:
                _collect(going, tags)
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)  # a part that arrives after the abort would stay for good
            raise
    return tags


def _collect(going: dict[Future[str], int], tags: dict[int, str]) -> None:
    finished, _ = wait(going, return_when=FIRST_COMPLETED)
    for one in finished:
        tags[going.pop(one)] = one.result()


def _completed(client: S3Client, target: ObjectName, upload: str, tags: dict[int, str]) -> Json:
    from botocore.exceptions import ClientError  # noqa: PLC0415 - only users of S3 pay

    parts: list[Any] = [{"PartNumber": number, "ETag": tag} for number, tag in sorted(tags.items())]
    try:
        return dict(client.complete_multipart_upload(**target, UploadId=upload, MultipartUpload={"Parts": parts}))
    except ClientError as error:
        if code_of(error) != "NoSuchUpload":
            raise
        # The answer to our first try was lost and the client tried again: names are fresh, so what is there is ours.
        return dict(client.head_object(**target))
