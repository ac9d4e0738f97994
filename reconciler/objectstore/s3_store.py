"""The object store in an S3 bucket: conditional writes, multipart uploads, listings and versions.

A version is an ETag. Bodies above 32 MiB go in parts, several at once; copies between buckets of one endpoint are
made by the server. What a location leaves open comes from the AWS environment and profile (`s3_client.py`); the store
travels with everything resolved, credentials included, so pickle it only to where they may go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from reconciler.errors import UserError
from reconciler.objectstore.base import (
    PROBE,
    Listed,
    ObjectStore,
    Stored,
    Version,
    missing_object,
    probe_conditions,
    rest_of,
)
from reconciler.objectstore.s3_client import (
    Clients,
    ObjectName,
    code_of,
    copied_from,
    named,
    s3_faults,
    status_of,
    told,
)
from reconciler.objectstore.settings import Place, StoreSettings
from reconciler.objectstore.swap import Answer, ConditionalWrite, Failed

if TYPE_CHECKING:
    from mypy_boto3_s3.client import S3Client


# What lies under a prefix of a bucket, in the order of the keys.


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


# Read an object of S3 to its end: a body that breaks off is asked for again.


GONE: Final = frozenset({"NoSuchKey", "NoSuchVersion", "404"})
_TRIES: Final = 4
_NOTHING_THERE: Final = 416


@dataclass(frozen=True, slots=True)
class Read:
    """A body and its ETag; beyond the end of an object both are empty."""

    body: bytes
    tag: str


def read_whole(ask: Callable[[], Any], *, tries: int = _TRIES) -> Read | None:
    """Return what `ask` (a GET) answers, whole; `None` where there is no object.

    The client repeats a request by itself, but not one whose answer has begun to arrive: that is done here.
    """
    from botocore.exceptions import ClientError, HTTPClientError, IncompleteReadError  # noqa: PLC0415 - as S3 itself

    for left in reversed(range(tries)):
        try:
            answer = ask()
        except ClientError as error:
            if code_of(error) in GONE:
                return None
            if status_of(error) == _NOTHING_THERE:
                return Read(b"", "")
            raise
        try:
            return Read(answer["Body"].read(), answer["ETag"])
        except (HTTPClientError, IncompleteReadError):
            if left == 0:
                raise
    raise AssertionError


# Large objects in parts: sent or copied several at a time, and taken back when one fails.
#
# A process that is killed in between leaves an upload nobody sees; a lifecycle rule of the bucket
# (AbortIncompleteMultipartUpload) removes it.


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

    return _in_parts(client, target, _part_ranges(size), options, copy)


def _part_ranges(size: int) -> Iterator[str]:
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


# What S3's answer to a conditional write says about it (`swap.py`).


_LOST_STATUS: Final = 412
_CONFLICT_STATUS: Final = 409
_BUSY_STATUS: Final = 429
_SERVER_ERROR: Final = 500


def answered(put: Callable[[], Version], url: str) -> Version | Failed:
    """Write once, and return the version; or that it was refused or nobody knows.

    Raises:
        ReconcilerError: It was not written, and the user must do something.
    """
    from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415 - only users of S3 pay

    with s3_faults("write", url):
        try:
            return put()
        except (BotoCoreError, ClientError) as error:
            answer = _answer_of(error)
            if answer is None:
                raise
            return Failed(answer, told(error, "write", url))


def _answer_of(error: Exception) -> Answer | None:
    """Tell what a failure says about the write; `None`: it was not written, and the user must do something."""
    from botocore.exceptions import ClientError, ConnectionError, HTTPClientError, SSLError  # noqa: A004, PLC0415

    match error:
        case ClientError():
            return _said(code_of(error), status_of(error))
        case SSLError():
            return None
        case HTTPClientError() | ConnectionError():
            return Answer.UNKNOWN
        case _:
            return None


def _said(code: str, status: int) -> Answer | None:
    if status == _LOST_STATUS or code == "NoSuchKey":
        return Answer.REFUSED
    if status in {_CONFLICT_STATUS, _BUSY_STATUS} or status >= _SERVER_ERROR or code in {"SlowDown", "RequestTimeout"}:
        return Answer.UNKNOWN
    return None


# What a bucket with versioning keeps of an object.


_UNVERSIONED: Final = "null"
_KEEPS_NONE: Final = frozenset({"NotImplemented", "MethodNotAllowed"})


def versions_of(client: S3Client, target: ObjectName) -> Iterator[bytes | None]:
    """Yield what an object held, the newest first; `None` where it was deleted. Nothing where versions are not kept."""
    rows = _rows(client, target)
    if rows and rows[0]["VersionId"] == _UNVERSIONED:
        return  # what it held before is not kept, if it held anything
    for row in rows:
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


_DELETED_AT_ONCE: Final = 1_000
_CLOCK: Final = ".clock"
"""A key that is asked for and never written: every answer says what time the store has."""
_TOO_LARGE_TO_COPY: Final = frozenset({"InvalidRequest", "EntityTooLarge"})


class S3Store:
    """An object store under a prefix of a bucket. The bucket must be there; nothing makes one."""

    def __init__(self, settings: StoreSettings) -> None:
        """Name the place; nothing is asked yet.

        Raises:
            UserError: The location names no bucket.
        """
        self._place = Place.of(settings)
        self._clients = Clients(settings)
        self._kms_key_id = settings.kms_key_id

    def __copy__(self) -> S3Store:
        """Return the same place with clients of its own, whose credentials are found and refreshed here as ours are."""
        return S3Store(self._clients.settings)

    def __reduce__(self) -> tuple[type[S3Store], tuple[StoreSettings]]:
        """Travel as complete settings: no other environment is asked where it arrives."""
        return S3Store, (self._clients.resolved(),)

    @property
    def url(self) -> str:
        """Where this store is."""
        return self._place.url

    @property
    def settings(self) -> StoreSettings:
        """Return the complete settings, credentials included, for clients of another make."""
        return self._clients.resolved()

    @property
    def encrypts(self) -> bool:
        """S3 encrypts under keys of its KMS; a store that leaves that out is found out at the first write."""
        return True

    def clock_ms(self) -> int:
        """Return what time the store has, to the second: the date of its answer."""
        from botocore.exceptions import ClientError  # noqa: PLC0415 - only users of S3 pay

        with s3_faults("read", self.url):
            try:
                answer: Any = self._client.head_object(**named(self._place, _CLOCK))
            except ClientError as error:
                answer = error.response
                if "date" not in answer["ResponseMetadata"]["HTTPHeaders"]:
                    raise
        date = parsedate_to_datetime(answer["ResponseMetadata"]["HTTPHeaders"]["date"])
        return int(date.timestamp()) * 1_000

    def get(self, key: str) -> Stored | None:
        """Return the object, or `None` where there is none."""
        address = named(self._place, key)
        with s3_faults("read", f"{self.url}/{key}"):
            return _stored(read_whole(lambda: self._client.get_object(**address)))

    def get_range(self, key: str, start: int, length: int) -> bytes:
        """Return at most `length` bytes from `start`."""
        address = named(self._place, key)
        # A range cannot be empty; that the object is there must be said all the same.
        wanted = f"bytes={start}-{start + max(length, 1) - 1}"
        with s3_faults("read", f"{self.url}/{key}"):
            found = read_whole(lambda: self._client.get_object(**address, Range=wanted))
        if found is None:
            raise missing_object(self.url, key, place="bucket")
        return found.body[:length]

    def put(self, key: str, body: bytes | memoryview, *, kms_key_id: str | None = None) -> None:
        """Store under a fresh name, unconditionally. Durable when it returns."""
        target, options = named(self._place, key), self._encryption(kms_key_id)
        with s3_faults("write", f"{self.url}/{key}"):
            if len(body) <= SINGLE_BYTES:
                answer: Any = self._client.put_object(**target, Body=bytes(body), **options)
            else:
                answer = send_in_parts(self._client, target, _pieces(memoryview(body)), options)
        self._check_encrypted(key, answer, options)

    def swap(self, key: str, body: bytes, *, expected: Version | None) -> Version:
        """Store `body` if `key` is still at `expected` (`None`: if it does not exist). Durable when it returns."""
        target, options = named(self._place, key), self._encryption(None)
        condition: dict[str, Any] = {"IfNoneMatch": "*"} if expected is None else {"IfMatch": f'"{expected}"'}

        def put() -> Version:
            answer = self._clients.once.put_object(**target, Body=body, **condition, **options)
            self._check_encrypted(None, answer, options)
            return _version(answer["ETag"])

        write = ConditionalWrite(lambda: answered(put, f"{self.url}/{key}"), lambda: self._read_back(key))
        return write.swap(key, body, expected=expected)

    def copy_in(self, key: str, source: ObjectStore, source_key: str, *, kms_key_id: str | None = None) -> None:
        """Store a copy of another store's object under a fresh name; between buckets of one endpoint the server does.

        An object of another endpoint, or one that other credentials reach, passes through us, a piece at a time.
        """
        target, options = named(self._place, key), self._encryption(kms_key_id)
        if isinstance(source, S3Store) and self._reaches(source):
            answer = self._copied(target, source, source_key, options)
        else:
            with s3_faults("write", f"{self.url}/{key}"):
                answer = self._streamed(target, source, source_key, options)
        self._check_encrypted(key, answer, options)

    def list(self, prefix: str) -> Iterator[Listed]:
        """Yield what lies under `prefix`, sorted by key, a page at a time."""
        with s3_faults("list", f"{self.url}/{prefix}"):
            yield from listing(self._client, self._place, prefix)

    def versions(self, key: str) -> Iterator[bytes | None]:
        """Yield what an object held, the newest first, as far as the bucket keeps it; `None` where it was deleted."""
        with s3_faults("list", f"{self.url}/{key}"):
            yield from versions_of(self._client, named(self._place, key))

    def delete(self, keys: Iterable[str]) -> None:
        """Remove objects, unconditionally, a thousand a request; a key that is not there is no error."""
        batch: list[str] = []
        for key in keys:
            batch.append(self._place.name_of(key))
            if len(batch) == _DELETED_AT_ONCE:
                self._delete(batch)
                batch = []
        if batch:
            self._delete(batch)

    def probe(self) -> Sequence[str]:
        """Return what this store does not honour of the conditions; empty when it may be trusted.

        Raises:
            UserError: The bucket is not there, or these credentials may not write, read, list or delete in it.
        """
        next(self.list(PROBE), None)
        return probe_conditions(self)

    @property
    def _client(self) -> S3Client:
        return self._clients.steady

    def _read_back(self, key: str) -> Stored | None:
        """Read once: whoever swaps cannot wait, and is told that there was no answer."""
        address = named(self._place, key)
        with s3_faults("read", f"{self.url}/{key}"):
            return _stored(read_whole(lambda: self._clients.once.get_object(**address), tries=1))

    def _reaches(self, other: S3Store) -> bool:
        return self._clients.reach_the_same_as(other._clients)

    def _delete(self, names: Sequence[str]) -> None:
        from botocore.exceptions import ClientError  # noqa: PLC0415 - only users of S3 pay

        with s3_faults("delete", self.url):
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

    def _copied(self, target: ObjectName, source: S3Store, source_key: str, options: dict[str, Any]) -> Any:
        from botocore.exceptions import ClientError  # noqa: PLC0415 - only users of S3 pay

        found = named(source._place, source_key)
        with s3_faults("copy", f"{source.url}/{source_key}"):
            try:
                try:
                    return self._client.copy_object(**target, CopySource=copied_from(found), **options)
                except ClientError as error:
                    if code_of(error) not in _TOO_LARGE_TO_COPY:
                        raise
                    return copy_in_parts(self._client, target, found, options)
            except ClientError as error:
                if code_of(error) in GONE:
                    raise missing_object(source.url, source_key, place="bucket") from error
                raise

    def _streamed(self, target: ObjectName, source: ObjectStore, source_key: str, options: dict[str, Any]) -> Any:
        first = source.get_range(source_key, 0, PART_BYTES)
        if len(first) < PART_BYTES:
            return self._client.put_object(**target, Body=first, **options)
        return send_in_parts(self._client, target, rest_of(source, source_key, first, PART_BYTES), options)

    def _encryption(self, kms_key_id: str | None) -> dict[str, Any]:
        key = kms_key_id or self._kms_key_id
        return {} if key is None else {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": key}

    def _check_encrypted(self, key: str | None, answer: Any, options: dict[str, Any]) -> None:
        """Refuse a store that takes no notice of a key, and take back (a fresh name) what it wrote in the clear."""
        wanted = options.get("ServerSideEncryption")
        if wanted is None or answer.get("ServerSideEncryption") == wanted:
            return
        if key is not None:
            self.delete([key])
        message = f"{self.url} did not encrypt under key {options['SSEKMSKeyId']}: it takes no notice of keys"
        raise UserError(message, hint="Use a store with SSE-KMS, or take the key out of the location or namespace.")


def _stored(found: Read | None) -> Stored | None:
    return None if found is None else Stored(found.body, _version(found.tag))


def _version(tag: str) -> Version:
    return Version(bare(tag))


def _pieces(body: memoryview) -> Iterator[bytes]:
    for start in range(0, len(body), PART_BYTES):
        yield bytes(body[start : start + PART_BYTES])
