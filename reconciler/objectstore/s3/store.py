"""Objects in a bucket of S3, or of anything that speaks its language and honours its conditions.

A version is an ETag. Bodies above 32 MiB go in parts, several at once; copies between buckets of one endpoint are
made by the server. What a location leaves open comes from the AWS environment and profile (`client.py`); the store
travels with everything resolved, credentials included, so pickle it only to where they may go.
"""

from __future__ import annotations

from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, Final

from reconciler.errors import MissingObjectError, UserError
from reconciler.objectstore.base import Stored, Version
from reconciler.objectstore.probing import PROBE, probe_conditions
from reconciler.objectstore.s3.client import Clients
from reconciler.objectstore.s3.faults import code_of, s3_faults
from reconciler.objectstore.s3.listing import bare, listing
from reconciler.objectstore.s3.parts import PART_BYTES, SINGLE_BYTES, copy_in_parts, send_in_parts
from reconciler.objectstore.s3.place import Place, copied_from
from reconciler.objectstore.s3.reading import GONE, read_whole
from reconciler.objectstore.s3.swap import ConditionalWrite
from reconciler.objectstore.s3.versions import versions_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from mypy_boto3_s3.client import S3Client

    from reconciler.objectstore.base import Listed, ObjectStore
    from reconciler.objectstore.s3.place import ObjectName
    from reconciler.objectstore.s3.reading import Read
    from reconciler.objectstore.settings import StoreSettings

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
                answer: Any = self._client.head_object(**self._place.named(_CLOCK))
            except ClientError as error:
                answer = error.response
                if "date" not in answer["ResponseMetadata"]["HTTPHeaders"]:
                    raise
        date = parsedate_to_datetime(answer["ResponseMetadata"]["HTTPHeaders"]["date"])
        return int(date.timestamp()) * 1_000

    def get(self, key: str) -> Stored | None:
        """Return the object, or `None` where there is none."""
        address = self._place.named(key)
        with s3_faults("read", f"{self.url}/{key}"):
            return _stored(read_whole(lambda: self._client.get_object(**address)))

    def get_range(self, key: str, start: int, length: int) -> bytes:
        """Return at most `length` bytes from `start`."""
        address = self._place.named(key)
        # A range cannot be empty; that the object is there must be said all the same.
        wanted = f"bytes={start}-{start + max(length, 1) - 1}"
        with s3_faults("read", f"{self.url}/{key}"):
            found = read_whole(lambda: self._client.get_object(**address, Range=wanted))
        if found is None:
            raise _missing(self.url, key)
        return found.body[:length]

    def put(self, key: str, body: bytes | memoryview, *, kms_key_id: str | None = None) -> None:
        """Store under a fresh name, unconditionally. Durable when it returns."""
        target, options = self._place.named(key), self._encryption(kms_key_id)
        with s3_faults("write", f"{self.url}/{key}"):
            if len(body) <= SINGLE_BYTES:
                answer: Any = self._client.put_object(**target, Body=bytes(body), **options)
            else:
                answer = send_in_parts(self._client, target, _pieces(memoryview(body)), options)
        self._check_encrypted(key, answer, options)

    def swap(self, key: str, body: bytes, *, expected: Version | None) -> Version:
        """Store `body` if `key` is still at `expected` (`None`: if it does not exist). Durable when it returns."""
        target, options = self._place.named(key), self._encryption(None)
        condition: dict[str, Any] = {"IfNoneMatch": "*"} if expected is None else {"IfMatch": f'"{expected}"'}

        def put() -> Version:
            answer = self._clients.once.put_object(**target, Body=body, **condition, **options)
            self._check_encrypted(None, answer, options)
            return _version(answer["ETag"])

        write = ConditionalWrite(put, lambda: self._read_back(key), f"{self.url}/{key}")
        return write.swap(key, body, expected=expected)

    def copy_in(self, key: str, source: ObjectStore, source_key: str, *, kms_key_id: str | None = None) -> None:
        """Store a copy of another store's object under a fresh name; between buckets of one endpoint the server does.

        An object of another endpoint, or one that other credentials reach, passes through us, a piece at a time.
        """
        target, options = self._place.named(key), self._encryption(kms_key_id)
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
            yield from versions_of(self._client, self._place.named(key))

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
        address = self._place.named(key)
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
                if failed.get("Code") not in GONE:
                    raise ClientError(
                        {"Error": {"Code": failed["Code"], "Message": failed["Message"]}}, "DeleteObjects"
                    )

    def _copied(self, target: ObjectName, source: S3Store, source_key: str, options: dict[str, Any]) -> Any:
        from botocore.exceptions import ClientError  # noqa: PLC0415 - only users of S3 pay

        found = source._place.named(source_key)
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
                    raise _missing(source.url, source_key) from error
                raise

    def _streamed(self, target: ObjectName, source: ObjectStore, source_key: str, options: dict[str, Any]) -> Any:
        first = source.get_range(source_key, 0, PART_BYTES)
        if len(first) < PART_BYTES:
            return self._client.put_object(**target, Body=first, **options)
        return send_in_parts(self._client, target, _ranges(source, source_key, first), options)

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


def _ranges(source: ObjectStore, key: str, first: bytes) -> Iterator[bytes]:
    piece, at = first, 0
    while piece:
        yield piece
        at += len(piece)
        piece = source.get_range(key, at, PART_BYTES) if len(piece) == PART_BYTES else b""


def _missing(url: str, key: str) -> MissingObjectError:
    return MissingObjectError(f"{url} has no object {key}", hint="Something else removed it; check the bucket.")
