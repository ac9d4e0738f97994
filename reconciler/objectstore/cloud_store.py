"""The object store in a Google Cloud Storage bucket or an Azure container, through `obstore`.

A version is a generation at Google and an ETag at Azure; neither is repeated. A pickled store has credentials.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from email.utils import parsedate_to_datetime
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Final

from reconciler.errors import BrokenInvariantError, RetryableError, UserError
from reconciler.objectstore.base import (
    PROBE,
    ListedObject,
    ObjectStore,
    StoredObject,
    Version,
    missing_object_error,
    probe_conditions,
    read_chunks,
    reject_kms_key,
)
from reconciler.objectstore.cloud_client import (
    CloudClients,
    is_beyond_end,
    is_condition_failed,
    is_missing,
    is_obstore_error,
    is_outcome_unknown,
    read_certificates,
    read_http_status,
    translate_cloud_errors,
    translate_error,
)
from reconciler.objectstore.settings import BucketLocation, StoreSettings
from reconciler.objectstore.swap import ConditionalWrite, WriteFailure, WriteOutcome
from reconciler.runtime.retry import Backoff, Tries

if TYPE_CHECKING:
    from obstore import GetOptions
    from obstore.store import AzureStore, GCSStore

# ruff: noqa: PLC0415 - `obstore` is an optional dependency


PART_BYTES: Final = 16 << 20
SINGLE_BYTES: Final = 32 << 20
_PARTS_AT_ONCE: Final = 4
_DELETED_AT_ONCE: Final = 256
"""Maximum objects in one request at Azure; Google needs one request per object."""
_DELETE_THREADS: Final = 16
_LISTED_AT_ONCE: Final = 1_000
_TRIES: Final = 4
_BACKOFF: Final = Backoff(first_s=0.1, longest_s=1.0, spread=0.5)
_CLOCK_SECONDS: Final = 10.0
_SERVER_ERROR: Final = 500


class CloudStore:
    """An object store under a prefix of an existing bucket or container."""

    def __init__(self, settings: StoreSettings) -> None:
        self._place = BucketLocation.from_settings(settings)
        self._clients = CloudClients(settings)

    def __copy__(self) -> CloudStore:
        return CloudStore(self._clients.settings)

    def __reduce__(self) -> tuple[type[CloudStore], tuple[StoreSettings]]:
        return CloudStore, (self._clients.resolve_settings(),)

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
        """False, because encryption is a setting of the bucket or account."""
        return False

    def read_clock_ms(self) -> int:
        """Return the `Date` of a response, in whole seconds."""
        from urllib3.exceptions import HTTPError

        from reconciler.runtime.https import make_ssl_context, open_pool

        endpoint, trusted = self._clients.endpoint, self._clients.settings.trust_file
        extra = "" if trusted is None else read_certificates(trusted, self.url).decode("ascii", "ignore")
        environ = os.environ  # noqa: TID251 - the edge where the environment of a cloud is read
        context = make_ssl_context(environ.get("SSL_CERT_FILE"), environ.get("SSL_CERT_DIR"), extra=extra)
        try:
            with open_pool(endpoint, context) as pool:
                answer = pool.request("HEAD", endpoint, timeout=_CLOCK_SECONDS, redirect=False)
                if answer.status >= _SERVER_ERROR:
                    answer = pool.request("HEAD", endpoint, timeout=_CLOCK_SECONDS, redirect=False)
        except HTTPError as error:
            message = f"cannot read {self.url}: it does not report the time"
            raise RetryableError(
                message, hint="Check the endpoint and the network. Run the same command again."
            ) from error
        date = answer.headers.get("date")
        if date is None:
            message = f"cannot read {self.url}: its answers have no date"
            raise UserError(message, hint="Use a store or proxy whose responses have a Date header.")
        return int(parsedate_to_datetime(date).timestamp()) * 1_000

    def get(self, key: str) -> StoredObject | None:
        """Return the object."""
        return self._read(self._client, key)

    def get_range(self, key: str, start: int, length: int) -> bytes:
        """Return a range of bytes."""
        # HTTP has no empty ranges, so a read of 0 bytes requests one byte.
        read = self._read(self._client, key, (start, start + max(length, 1)))
        if read is None:
            raise missing_object_error(self.url, key)
        return read.body[:length]

    def put(self, key: str, body: bytes | memoryview, *, kms_key_id: str | None = None) -> None:
        """Store a new object."""
        reject_kms_key(self.url, kms_key_id)
        with translate_cloud_errors("write", f"{self.url}/{key}"):
            self._put(self._place.build_object_name(key), memoryview(body).cast("B"))

    def swap(self, key: str, body: bytes, *, expected: Version | None) -> Version:
        """Store `body` conditionally."""
        name = self._place.build_object_name(key)

        def put() -> Version | WriteFailure:
            import obstore

            with translate_cloud_errors("write", f"{self.url}/{key}"):
                try:
                    result = obstore.put(
                        self._clients.single_try_client,
                        name,
                        body,
                        mode=self._build_condition(expected),
                        use_multipart=False,
                    )
                except Exception as error:
                    answer = _classify_error(error)
                    if answer is None:
                        raise
                    return WriteFailure(answer, translate_error(error, "write", f"{self.url}/{key}"))
            return self._read_version(result)

        return ConditionalWrite(put, lambda: self._read(self._clients.single_try_client, key, tries=1)).swap(
            key, body, expected=expected
        )

    def copy_from(self, key: str, source: ObjectStore, source_key: str, *, kms_key_id: str | None = None) -> None:
        """Copy an object; within a bucket, on the server."""
        reject_kms_key(self.url, kms_key_id)
        name = self._place.build_object_name(key)
        if isinstance(source, CloudStore) and self._can_copy_from(source):
            self._copy(name, source, source_key)
            return
        first = source.get_range(source_key, 0, PART_BYTES)
        if len(first) < PART_BYTES:
            self.put(key, first)
            return
        with translate_cloud_errors("write", f"{self.url}/{key}"):
            self._put_parts(name, read_chunks(source, source_key, first, PART_BYTES))

    def list(self, prefix: str) -> Iterator[ListedObject]:
        """Yield objects, sorted by key."""
        wanted = self._place.prefix + prefix
        folder, last = wanted.rpartition("/")[0], ""
        with translate_cloud_errors("list", f"{self.url}/{prefix}"):
            for row in chain.from_iterable(self._list_pages(folder, wanted)):
                name: str = row["path"]
                if name > wanted and not name.startswith(wanted):
                    break
                if not name.startswith(wanted):
                    continue
                if name < last:
                    raise _unsorted_error(self.url)
                last = name
                yield self._to_listed(row)

    def delete(self, keys: Iterable[str]) -> None:
        """Delete objects."""
        names = map(self._place.build_object_name, keys)
        while batch := list(islice(names, _DELETED_AT_ONCE)):
            self._delete(batch)

    def find_violated_conditions(self) -> Sequence[str]:
        """Return the ignored conditions."""
        next(self.list(PROBE), None)
        return probe_conditions(self)

    @property
    def _client(self) -> GCSStore | AzureStore:
        return self._clients.retrying_client

    def _can_copy_from(self, other: CloudStore) -> bool:
        return self._clients.can_share_access(other._clients)

    def _build_condition(self, expected: Version | None) -> Any:
        if expected is None:
            return "create"
        return {"version": expected} if self._place.scheme == "gs" else {"e_tag": expected}

    def _read_version(self, metadata: Any) -> Version:
        version = metadata["version" if self._place.scheme == "gs" else "e_tag"]
        if not version:
            message = f"{self.url} does not report the version of an object"
            raise UserError(message, hint="Conditional writes need that: this store cannot keep a state or a cluster.")
        return Version(version)

    def _read(
        self, client: GCSStore | AzureStore, key: str, wanted: tuple[int, int] | None = None, *, tries: int = _TRIES
    ) -> StoredObject | None:
        import obstore

        name, options = self._place.build_object_name(key), _build_get_options(wanted)
        with translate_cloud_errors("read", f"{self.url}/{key}"):
            for left in reversed(range(tries)):
                try:
                    answer = obstore.get(client, name, options=options)
                    version = self._read_version(answer.meta)
                except Exception as error:
                    if is_obstore_error(error) and is_missing(error):
                        return None
                    if is_obstore_error(error) and wanted is not None and is_beyond_end(error):
                        return StoredObject(b"", Version(""))
                    raise
                try:
                    return StoredObject(bytes(answer.bytes()), version)
                except Exception as error:
                    if left == 0 or not is_obstore_error(error):
                        raise
        raise BrokenInvariantError(f"{name} was not read", hint="Please report this.")

    def _put(self, name: str, body: memoryview) -> None:
        import obstore

        if len(body) <= SINGLE_BYTES:
            obstore.put(self._client, name, body, use_multipart=False)
        else:
            self._put_parts(name, (body[at : at + PART_BYTES] for at in range(0, len(body), PART_BYTES)))

    def _put_parts(self, name: str, parts: Iterator[bytes | memoryview]) -> None:
        import obstore

        with ThreadPoolExecutor(1, thread_name_prefix="cloud-pieces") as pool:
            iterator = _UploadPartIterator(parts, pool)
            try:
                obstore.put(self._client, name, iterator, chunk_size=PART_BYTES, max_concurrency=_PARTS_AT_ONCE)
            except Exception as error:
                if iterator.failure is not None:
                    raise iterator.failure from None
                if not (iterator.is_over and is_obstore_error(error) and self._is_upload_complete(name, iterator.sent)):
                    raise

    def _is_upload_complete(self, name: str, size: int) -> bool:
        import obstore

        try:
            return bool(obstore.head(self._client, name)["size"] == size)
        except Exception as error:
            if not is_obstore_error(error):
                raise
            return False

    def _copy(self, name: str, source: CloudStore, source_key: str) -> None:
        import obstore

        with translate_cloud_errors("copy", f"{source.url}/{source_key}"):
            try:
                obstore.copy(self._client, source._place.build_object_name(source_key), name)
            except Exception as error:
                if is_obstore_error(error) and is_missing(error):
                    raise missing_object_error(source.url, source_key) from None
                raise

    def _list_pages(self, folder: str, wanted: str) -> Iterator[Sequence[Any]]:
        import obstore

        beyond = wanted[:-1] if len(wanted) > len(folder) + 1 else None
        return iter(obstore.list(self._client, folder or None, offset=beyond, chunk_size=_LISTED_AT_ONCE))

    def _to_listed(self, row: Any) -> ListedObject:
        modified_ms = int(row["last_modified"].timestamp() * 1_000)
        hint = f"{(row['e_tag'] or '').strip(chr(34))}-{modified_ms}-{row['size']}"
        return ListedObject(row["path"].removeprefix(self._place.prefix), row["size"], hint, modified_ms)

    def _delete(self, names: Sequence[str]) -> None:
        with translate_cloud_errors("delete", self.url):
            if self._try_delete(names):
                return
            # The response does not say which object is missing, so each is deleted by its own request.
            with ThreadPoolExecutor(_DELETE_THREADS, thread_name_prefix="cloud-delete") as pool:
                for _ in pool.map(self._try_delete, ([name] for name in names)):
                    pass

    def _try_delete(self, names: Sequence[str]) -> bool:
        import obstore

        tries = Tries(_BACKOFF, attempts=_TRIES)
        while True:
            try:
                obstore.delete(self._client, names)
            except Exception as error:
                if not is_obstore_error(error):
                    raise
                if is_missing(error):
                    return False
                if tries.has_ended or read_http_status(error) or not is_outcome_unknown(error):
                    raise
                tries.wait()
            else:
                return True


class _UploadPartIterator:
    """Passes the parts of a body to `obstore`, and stores an error of reading them, which `obstore` would wrap.

    A thread reads the parts, because stores cannot be called in the event loop of `obstore`.
    """

    def __init__(self, parts: Iterator[bytes | memoryview], pool: ThreadPoolExecutor) -> None:
        self._parts = parts
        self._pool = pool
        self.sent = 0
        self.is_over = False
        self.failure: Exception | None = None

    def __iter__(self) -> Iterator[bytes | memoryview]:
        return self

    def __next__(self) -> bytes | memoryview:
        try:
            part = self._pool.submit(next, self._parts, None).result()
        except Exception as error:
            self.failure = error
            raise
        if part is None:
            self.is_over = True
            raise StopIteration
        self.sent += len(part)
        return part


def _build_get_options(wanted: tuple[int, int] | None) -> GetOptions:
    return {} if wanted is None else {"range": wanted}


def _classify_error(error: Exception) -> WriteOutcome | None:
    if not is_obstore_error(error):
        return None
    if is_condition_failed(error):
        return WriteOutcome.REFUSED
    return WriteOutcome.UNKNOWN if is_outcome_unknown(error) else None


def _unsorted_error(url: str) -> UserError:
    message = f"{url} does not list objects in the order of their names"
    return UserError(message, hint="Use a storage account without hierarchical namespace.")
