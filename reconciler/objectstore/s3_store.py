"""The object store in an S3 bucket.

A version is an ETag. The server copies between buckets of one endpoint. A pickled store has credentials.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from email.utils import parsedate_to_datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from reconciler.errors import UserError
from reconciler.objectstore.base import (
    PROBE,
    ListedObject,
    ObjectStore,
    StoredObject,
    Version,
    missing_object_error,
    probe_conditions,
    read_chunks,
)
from reconciler.objectstore.s3_client import (
    Clients,
    ObjectName,
    build_copy_source,
    build_object_name,
    read_error_code,
    read_http_status,
    translate_error,
    translate_s3_errors,
)
from reconciler.objectstore.settings import BucketLocation, StoreSettings
from reconciler.objectstore.swap import ConditionalWrite, WriteFailure, WriteOutcome
from reconciler.runtime.dataclass import dataclass

if TYPE_CHECKING:
    from mypy_boto3_s3.client import S3Client

# ruff: noqa: PLC0415 - boto3 takes 0.2 s to import


_LISTS_BY_FOLDER: Final = "SeaweedFS"
"""Server that sorts `a/b` before `a-b`, unlike S3."""


def list_objects(client: S3Client, place: BucketLocation, prefix: str) -> Iterator[ListedObject]:
    """Yield objects, sorted by key."""
    rows: list[ListedObject] = []
    for page in client.get_paginator("list_objects_v2").paginate(Bucket=place.bucket, Prefix=place.prefix + prefix):
        page_rows = [_to_listed(row, place) for row in page.get("Contents", ()) if not row["Key"].endswith("/")]
        if _is_sorted(page):
            yield from page_rows
        else:
            rows += page_rows
    yield from sorted(rows, key=lambda row: row.key)


def strip_quotes(tag: str) -> str:
    """Return an ETag without its quotes."""
    return tag.strip('"')


def _is_sorted(page: Any) -> bool:
    return _LISTS_BY_FOLDER not in page["ResponseMetadata"]["HTTPHeaders"].get("server", "")


def _to_listed(row: Any, place: BucketLocation) -> ListedObject:
    modified_ms = int(row["LastModified"].timestamp() * 1_000)
    hint = f"{strip_quotes(row['ETag'])}-{modified_ms}-{row['Size']}"
    return ListedObject(row["Key"].removeprefix(place.prefix), row["Size"], hint, modified_ms)


GONE: Final = frozenset({"NoSuchKey", "NoSuchVersion", "404"})
_TRIES: Final = 4
_NOTHING_THERE: Final = 416


@dataclass(frozen=True, slots=True)
class ReadBody:
    """Body and ETag of an object. The body is empty if the range begins after the end."""

    body: bytes
    tag: str


def read_whole(ask: Callable[[], Any], *, tries: int = _TRIES) -> ReadBody | None:
    """Return the body from the GET request `ask`; `None` if the object is missing. Retry incomplete bodies."""
    from botocore.exceptions import ClientError, HTTPClientError, IncompleteReadError

    for left in reversed(range(tries)):
        try:
            answer = ask()
        except ClientError as error:
            if read_error_code(error) in GONE:
                return None
            if read_http_status(error) == _NOTHING_THERE:
                return ReadBody(b"", "")
            raise
        try:
            return ReadBody(answer["Body"].read(), answer["ETag"])
        except (HTTPClientError, IncompleteReadError):
            if left == 0:
                raise
    raise AssertionError


PART_BYTES: Final = 16 << 20
"""Size of an uploaded part; S3 allows 10,000 parts."""
SINGLE_BYTES: Final = 32 << 20
COPIED_PART_BYTES: Final = 1 << 30
_AT_ONCE: Final = 4

Json = dict[str, Any]


def send_in_parts(client: S3Client, target: ObjectName, bodies: Iterable[bytes], options: Json) -> Json:
    """Store an object in parts of at least 5 MiB, except the last; return the last response.

    If the process is killed, the bucket's rule AbortIncompleteMultipartUpload removes the parts.
    """

    def send_part(upload: str, number: int, body: bytes) -> str:
        answer = client.upload_part(**target, UploadId=upload, PartNumber=number, Body=body)
        return answer["ETag"]

    return _run_multipart_upload(client, target, bodies, options, send_part)


def copy_in_parts(client: S3Client, target: ObjectName, source: ObjectName, options: Json) -> Json:
    """Copy an object of any size on the server; return the last response."""
    size = client.head_object(**source)["ContentLength"]

    def copy(upload: str, number: int, piece: str) -> str:
        answer = client.upload_part_copy(
            **target, UploadId=upload, PartNumber=number, CopySource=build_copy_source(source), CopySourceRange=piece
        )
        return answer["CopyPartResult"]["ETag"]

    return _run_multipart_upload(client, target, _part_ranges(size), options, copy)


def _part_ranges(size: int) -> Iterator[str]:
    for start in range(0, size, COPIED_PART_BYTES):
        yield f"bytes={start}-{min(start + COPIED_PART_BYTES, size) - 1}"


def _run_multipart_upload(
    client: S3Client, target: ObjectName, pieces: Iterable[Any], options: Json, move: Callable[[str, int, Any], str]
) -> Json:
    created = client.create_multipart_upload(**target, **options)
    upload = created["UploadId"]
    try:
        tags = _upload_parts(upload, pieces, move)
        return {**created, **_complete_upload(client, target, upload, tags)}
    except BaseException:
        from botocore.exceptions import BotoCoreError, ClientError

        with suppress(BotoCoreError, ClientError):
            client.abort_multipart_upload(**target, UploadId=upload)
        raise


def _upload_parts(upload: str, pieces: Iterable[Any], move: Callable[[str, int, Any], str]) -> dict[int, str]:
    tags: dict[int, str] = {}
    running: dict[Future[str], int] = {}
    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="s3-part") as pool:
        try:
            for number, piece in enumerate(pieces, start=1):
                if len(running) == _AT_ONCE:
                    _collect_tags(running, tags)
                running[pool.submit(move, upload, number, piece)] = number
            while running:
                _collect_tags(running, tags)
        except BaseException:
            # A part uploaded after the abort would never be removed, so running uploads end first.
            pool.shutdown(wait=True, cancel_futures=True)
            raise
    return tags


def _collect_tags(running: dict[Future[str], int], tags: dict[int, str]) -> None:
    finished, _ = wait(running, return_when=FIRST_COMPLETED)
    for future in finished:
        tags[running.pop(future)] = future.result()


def _complete_upload(client: S3Client, target: ObjectName, upload: str, tags: dict[int, str]) -> Json:
    from botocore.exceptions import ClientError

    parts: list[Any] = [{"PartNumber": number, "ETag": tag} for number, tag in sorted(tags.items())]
    try:
        return dict(client.complete_multipart_upload(**target, UploadId=upload, MultipartUpload={"Parts": parts}))
    except ClientError as error:
        if read_error_code(error) != "NoSuchUpload":
            raise
        # An earlier attempt, whose response was lost, has completed the upload.
        return dict(client.head_object(**target))


_LOST_STATUS: Final = 412
_CONFLICT_STATUS: Final = 409
_BUSY_STATUS: Final = 429
_SERVER_ERROR: Final = 500


def write_once(put: Callable[[], Version], url: str) -> Version | WriteFailure:
    """Try a write once; return the version, or the failure if the condition failed or the outcome is unknown.

    Raises:
        ReconcilerError: The write failed, and a retry would not help.
    """
    from botocore.exceptions import BotoCoreError, ClientError

    with translate_s3_errors("write", url):
        try:
            return put()
        except (BotoCoreError, ClientError) as error:
            outcome = _classify_error(error)
            if outcome is None:
                raise
            return WriteFailure(outcome, translate_error(error, "write", url))


def _classify_error(error: Exception) -> WriteOutcome | None:
    from botocore.exceptions import ClientError, ConnectionError, HTTPClientError, SSLError  # noqa: A004

    match error:
        case ClientError():
            return _classify_outcome(read_error_code(error), read_http_status(error))
        case SSLError():
            return None
        case HTTPClientError() | ConnectionError():
            return WriteOutcome.UNKNOWN
        case _:
            return None


def _classify_outcome(code: str, status: int) -> WriteOutcome | None:
    if status == _LOST_STATUS or code == "NoSuchKey":
        return WriteOutcome.REFUSED
    if status in {_CONFLICT_STATUS, _BUSY_STATUS} or status >= _SERVER_ERROR or code in {"SlowDown", "RequestTimeout"}:
        return WriteOutcome.UNKNOWN
    return None


_UNVERSIONED: Final = "null"
_NO_VERSIONING: Final = frozenset({"NotImplemented", "MethodNotAllowed"})


def list_versions(client: S3Client, target: ObjectName) -> Iterator[bytes | None]:
    """Yield bodies of an object, newest first; `None` is a deletion. Without versioning, yield nothing."""
    rows = _list_version_rows(client, target)
    if rows and rows[0]["VersionId"] == _UNVERSIONED:
        return
    for row in rows:
        if "ETag" not in row:
            yield None
            continue
        read = read_whole(partial(client.get_object, **target, VersionId=row["VersionId"]))
        if read is not None:
            yield read.body


def _list_version_rows(client: S3Client, target: ObjectName) -> list[Any]:
    from botocore.exceptions import ClientError

    bucket, key = target["Bucket"], target["Key"]
    deleted, rows = list[Any](), list[Any]()
    try:
        for page in client.get_paginator("list_object_versions").paginate(Bucket=bucket, Prefix=key):
            deleted += page.get("DeleteMarkers", ())
            rows += page.get("Versions", ())
    except ClientError as error:
        if read_error_code(error) in _NO_VERSIONING:
            return []
        raise
    own = [row for row in [*deleted, *rows] if row["Key"] == key]
    return sorted(own, key=lambda row: row["LastModified"], reverse=True)


_DELETED_AT_ONCE: Final = 1_000
_CLOCK: Final = ".clock"
"""Key never written; the response to its GET has the store's time."""
_TOO_LARGE_TO_COPY: Final = frozenset({"InvalidRequest", "EntityTooLarge"})


class S3Store:
    """An object store under a prefix of an existing bucket."""

    def __init__(self, settings: StoreSettings) -> None:
        self._place = BucketLocation.from_settings(settings)
        self._clients = Clients(settings)
        self._kms_key_id = settings.kms_key_id

    def __copy__(self) -> S3Store:
        return S3Store(self._clients.settings)

    def __reduce__(self) -> tuple[type[S3Store], tuple[StoreSettings]]:
        return S3Store, (self._clients.resolve_settings(),)

    @property
    def url(self) -> str:
        """URL without secrets."""
        return self._place.url

    @property
    def settings(self) -> StoreSettings:
        """Complete settings with credentials."""
        return self._clients.resolve_settings()

    @property
    def can_encrypt(self) -> bool:
        """True; the first write detects a store that ignores KMS keys."""
        return True

    def read_clock_ms(self) -> int:
        """Return the `Date` of a response, in whole seconds."""
        from botocore.exceptions import ClientError

        with translate_s3_errors("read", self.url):
            try:
                answer: Any = self._client.head_object(**build_object_name(self._place, _CLOCK))
            except ClientError as error:
                answer = error.response
                if "date" not in answer["ResponseMetadata"]["HTTPHeaders"]:
                    raise
        date = parsedate_to_datetime(answer["ResponseMetadata"]["HTTPHeaders"]["date"])
        return int(date.timestamp()) * 1_000

    def get(self, key: str) -> StoredObject | None:
        """Return the object."""
        address = build_object_name(self._place, key)
        with translate_s3_errors("read", f"{self.url}/{key}"):
            return _to_stored(read_whole(lambda: self._client.get_object(**address)))

    def get_range(self, key: str, start: int, length: int) -> bytes:
        """Return a range of bytes."""
        address = build_object_name(self._place, key)
        # S3 has no empty ranges, so a read of 0 bytes requests one byte.
        wanted = f"bytes={start}-{start + max(length, 1) - 1}"
        with translate_s3_errors("read", f"{self.url}/{key}"):
            read = read_whole(lambda: self._client.get_object(**address, Range=wanted))
        if read is None:
            raise missing_object_error(self.url, key, place="bucket")
        return read.body[:length]

    def put(self, key: str, body: bytes | memoryview, *, kms_key_id: str | None = None) -> None:
        """Store a new object."""
        target, options = build_object_name(self._place, key), self._build_encryption(kms_key_id)
        with translate_s3_errors("write", f"{self.url}/{key}"):
            if len(body) <= SINGLE_BYTES:
                answer: Any = self._client.put_object(**target, Body=bytes(body), **options)
            else:
                answer = send_in_parts(self._client, target, _split_body(memoryview(body)), options)
        self._check_encrypted(key, answer, options)

    def swap(self, key: str, body: bytes, *, expected: Version | None) -> Version:
        """Store `body` conditionally."""
        target, options = build_object_name(self._place, key), self._build_encryption(None)
        condition: dict[str, Any] = {"IfNoneMatch": "*"} if expected is None else {"IfMatch": f'"{expected}"'}

        def put() -> Version:
            answer = self._clients.single_try_client.put_object(**target, Body=body, **condition, **options)
            self._check_encrypted(None, answer, options)
            return _parse_version(answer["ETag"])

        write = ConditionalWrite(lambda: write_once(put, f"{self.url}/{key}"), lambda: self._read_back(key))
        return write.swap(key, body, expected=expected)

    def copy_from(self, key: str, source: ObjectStore, source_key: str, *, kms_key_id: str | None = None) -> None:
        """Copy an object; within an endpoint, on the server."""
        target, options = build_object_name(self._place, key), self._build_encryption(kms_key_id)
        if isinstance(source, S3Store) and self._can_copy_from(source):
            answer = self._copy_on_server(target, source, source_key, options)
        else:
            with translate_s3_errors("write", f"{self.url}/{key}"):
                answer = self._send_stream(target, source, source_key, options)
        self._check_encrypted(key, answer, options)

    def list(self, prefix: str) -> Iterator[ListedObject]:
        """Yield objects, sorted by key."""
        with translate_s3_errors("list", f"{self.url}/{prefix}"):
            yield from list_objects(self._client, self._place, prefix)

    def list_versions(self, key: str) -> Iterator[bytes | None]:
        """Yield bodies, newest first."""
        with translate_s3_errors("list", f"{self.url}/{key}"):
            yield from list_versions(self._client, build_object_name(self._place, key))

    def delete(self, keys: Iterable[str]) -> None:
        """Delete objects."""
        batch: list[str] = []
        for key in keys:
            batch.append(self._place.build_object_name(key))
            if len(batch) == _DELETED_AT_ONCE:
                self._delete(batch)
                batch = []
        if batch:
            self._delete(batch)

    def find_violated_conditions(self) -> Sequence[str]:
        """Return the ignored conditions."""
        next(self.list(PROBE), None)
        return probe_conditions(self)

    @property
    def _client(self) -> S3Client:
        return self._clients.retrying_client

    def _read_back(self, key: str) -> StoredObject | None:
        address = build_object_name(self._place, key)
        with translate_s3_errors("read", f"{self.url}/{key}"):
            return _to_stored(read_whole(lambda: self._clients.single_try_client.get_object(**address), tries=1))

    def _can_copy_from(self, other: S3Store) -> bool:
        return self._clients.can_share_access(other._clients)

    def _delete(self, names: Sequence[str]) -> None:
        from botocore.exceptions import ClientError

        with translate_s3_errors("delete", self.url):
            if len(names) == 1:
                self._client.delete_object(Bucket=self._place.bucket, Key=names[0])
                return
            answer = self._client.delete_objects(
                Bucket=self._place.bucket, Delete={"Objects": [{"Key": name} for name in names], "Quiet": True}
            )
            for failed in answer.get("Errors", ()):
                code, message = failed.get("Code", ""), failed.get("Message", "")
                if code not in GONE:
                    raise ClientError({"Error": {"Code": code, "Message": message}}, "DeleteObjects")

    def _copy_on_server(self, target: ObjectName, source: S3Store, source_key: str, options: dict[str, Any]) -> Any:
        from botocore.exceptions import ClientError

        original = build_object_name(source._place, source_key)
        with translate_s3_errors("copy", f"{source.url}/{source_key}"):
            try:
                try:
                    return self._client.copy_object(**target, CopySource=build_copy_source(original), **options)
                except ClientError as error:
                    if read_error_code(error) not in _TOO_LARGE_TO_COPY:
                        raise
                    return copy_in_parts(self._client, target, original, options)
            except ClientError as error:
                if read_error_code(error) in GONE:
                    raise missing_object_error(source.url, source_key, place="bucket") from error
                raise

    def _send_stream(self, target: ObjectName, source: ObjectStore, source_key: str, options: dict[str, Any]) -> Any:
        first = source.get_range(source_key, 0, PART_BYTES)
        if len(first) < PART_BYTES:
            return self._client.put_object(**target, Body=first, **options)
        return send_in_parts(self._client, target, read_chunks(source, source_key, first, PART_BYTES), options)

    def _build_encryption(self, kms_key_id: str | None) -> dict[str, Any]:
        key = kms_key_id or self._kms_key_id
        return {} if key is None else {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": key}

    def _check_encrypted(self, key: str | None, answer: Any, options: dict[str, Any]) -> None:
        wanted = options.get("ServerSideEncryption")
        if wanted is None or answer.get("ServerSideEncryption") == wanted:
            return
        if key is not None:
            self.delete([key])
        message = f"{self.url} did not encrypt under key {options['SSEKMSKeyId']}: it ignores keys"
        raise UserError(message, hint="Use a store with SSE-KMS, or take the key out of the location or namespace.")


def _to_stored(read: ReadBody | None) -> StoredObject | None:
    return None if read is None else StoredObject(read.body, _parse_version(read.tag))


def _parse_version(tag: str) -> Version:
    return Version(strip_quotes(tag))


def _split_body(body: memoryview) -> Iterator[bytes]:
    for start in range(0, len(body), PART_BYTES):
        yield bytes(body[start : start + PART_BYTES])
