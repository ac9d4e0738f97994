"""The object store in a bucket of Google Cloud Storage, or in a container of Azure Blob Storage, through `obstore`.

A version is a generation at Google and an ETag at Azure; neither ever repeats. Bodies above 32 MiB go in parts; copies
within one bucket are made by the server. What a location leaves open comes from the cloud's environment
(`cloud_client.py`); the store travels with everything resolved, credentials included, so pickle it only to where they
may go.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from email.utils import parsedate_to_datetime
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Final

from reconciler.errors import BrokenInvariantError, RetryableError, UserError
from reconciler.objectstore.base import (
    PROBE,
    Listed,
    ObjectStore,
    Stored,
    Version,
    missing_object,
    probe_conditions,
    refuse_key,
    rest_of,
)
from reconciler.objectstore.cloud_client import (
    CloudClients,
    certificates,
    cloud_faults,
    is_beyond,
    is_fault,
    is_missing,
    is_refused,
    is_unknown,
    status_of,
    told,
)
from reconciler.objectstore.settings import Place, StoreSettings
from reconciler.objectstore.swap import Answer, ConditionalWrite, Failed
from reconciler.runtime.retry import Backoff, Tries

if TYPE_CHECKING:
    from obstore import GetOptions
    from obstore.store import AzureStore, GCSStore


PART_BYTES: Final = 16 << 20
SINGLE_BYTES: Final = 32 << 20
"""Up to this size an object is sent as one: a part more costs a round trip more."""
_PARTS_AT_ONCE: Final = 4
_DELETED_AT_ONCE: Final = 256
"""The most that one request of Azure takes; at Google each is a request."""
_DELETING: Final = 16
_LISTED_AT_ONCE: Final = 1_000
_TRIES: Final = 4
"""How often what breaks off is asked for: a body, or the answer to a deletion."""
_BACKOFF: Final = Backoff(first_s=0.1, longest_s=1.0, spread=0.5)
_CLOCK_SECONDS: Final = 10.0
_SERVER_ERROR: Final = 500


class CloudStore:
    """An object store under a prefix of a bucket or container, which must be there; nothing makes one."""

    def __init__(self, settings: StoreSettings) -> None:
        """Name the place; nothing is asked yet.

        Raises:
            UserError: The location names no bucket, or what only S3 has; or `obstore` is not installed.
        """
        self._place = Place.of(settings)
        self._clients = CloudClients(settings)

    def __copy__(self) -> CloudStore:
        """Return the same place with clients of its own, whose credentials are found here as ours are."""
        return CloudStore(self._clients.settings)

    def __reduce__(self) -> tuple[type[CloudStore], tuple[StoreSettings]]:
        """Travel as complete settings: no other environment is asked where it arrives."""
        return CloudStore, (self._clients.resolved(),)

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
        """Objects are encrypted as the bucket or account says; a key of a namespace's own is not offered."""
        return False

    def clock_ms(self) -> int:
        """Return what time the store has, to the second: the date of an answer to a request without credentials."""
        import httpx  # noqa: PLC0415 - only who asks for it pays

        endpoint, trusted = self._clients.endpoint, self._clients.settings.trust_file
        verify = httpx.create_ssl_context()
        if trusted is not None:
            verify.load_verify_locations(cadata=certificates(trusted, self.url).decode("ascii", "ignore"))
        try:
            answer = httpx.head(endpoint, timeout=_CLOCK_SECONDS, verify=verify)
            if answer.status_code >= _SERVER_ERROR:
                answer = httpx.head(endpoint, timeout=_CLOCK_SECONDS, verify=verify)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            message = f"cannot read {self.url}: it does not say what time it is"
            raise RetryableError(
                message, hint="Check the endpoint and the network. Run the same command again."
            ) from error
        date = answer.headers.get("date")
        if date is None:
            message = f"cannot read {self.url}: its answers have no date"
            raise UserError(message, hint="Use a store, or a proxy before it, whose answers have one.")
        return int(parsedate_to_datetime(date).timestamp()) * 1_000

    def get(self, key: str) -> Stored | None:
        """Return the object, or `None` where there is none."""
        return self._read(self._client, key)

    def get_range(self, key: str, start: int, length: int) -> bytes:
        """Return at most `length` bytes from `start`."""
        # A range cannot be empty; that the object is there must be said all the same.
        found = self._read(self._client, key, (start, start + max(length, 1)))
        if found is None:
            raise missing_object(self.url, key)
        return found.body[:length]

    def put(self, key: str, body: bytes | memoryview, *, kms_key_id: str | None = None) -> None:
        """Store under a fresh name, unconditionally. Durable when it returns."""
        refuse_key(self.url, kms_key_id)
        with cloud_faults("write", f"{self.url}/{key}"):
            self._put(self._place.name_of(key), memoryview(body).cast("B"))

    def swap(self, key: str, body: bytes, *, expected: Version | None) -> Version:
        """Store `body` if `key` is still at `expected` (`None`: if it does not exist). Durable when it returns."""
        name = self._place.name_of(key)

        def put() -> Version | Failed:
            import obstore  # noqa: PLC0415 - only who asks for it pays

            with cloud_faults("write", f"{self.url}/{key}"):
                try:
                    done = obstore.put(
                        self._clients.once, name, body, mode=self._condition(expected), use_multipart=False
                    )
                except Exception as error:
                    answer = _answer_of(error)
                    if answer is None:
                        raise
                    return Failed(answer, told(error, "write", f"{self.url}/{key}"))
            return self._version(done)

        return ConditionalWrite(put, lambda: self._read(self._clients.once, key, tries=1)).swap(
            key, body, expected=expected
        )

    def copy_in(self, key: str, source: ObjectStore, source_key: str, *, kms_key_id: str | None = None) -> None:
        """Store a copy of another store's object under a fresh name; within one bucket the server does.

        Any other object passes through us, a piece at a time.
        """
        refuse_key(self.url, kms_key_id)
        name = self._place.name_of(key)
        if isinstance(source, CloudStore) and self._reaches(source):
            self._copy(name, source, source_key)
            return
        first = source.get_range(source_key, 0, PART_BYTES)
        if len(first) < PART_BYTES:
            self.put(key, first)
            return
        with cloud_faults("write", f"{self.url}/{key}"):
            self._put_parts(name, rest_of(source, source_key, first, PART_BYTES))

    def list(self, prefix: str) -> Iterator[Listed]:
        """Yield what lies under `prefix`, sorted by key, a page at a time."""
        wanted = self._place.prefix + prefix
        folder, last = wanted.rpartition("/")[0], ""
        with cloud_faults("list", f"{self.url}/{prefix}"):
            for row in chain.from_iterable(self._rows(folder, wanted)):
                name: str = row["path"]
                if name > wanted and not name.startswith(wanted):
                    break
                if not name.startswith(wanted):
                    continue
                if name < last:
                    raise _unsorted(self.url)
                last = name
                yield self._listed(row)

    def delete(self, keys: Iterable[str]) -> None:
        """Remove objects, unconditionally, many a request; a key that is not there is no error."""
        names = map(self._place.name_of, keys)
        while batch := list(islice(names, _DELETED_AT_ONCE)):
            self._delete(batch)

    def probe(self) -> Sequence[str]:
        """Return what this store does not honour of the conditions; empty when it may be trusted.

        Raises:
            UserError: The bucket is not there, or these credentials may not write, read, list or delete in it.
        """
        next(self.list(PROBE), None)
        return probe_conditions(self)

    @property
    def _client(self) -> GCSStore | AzureStore:
        return self._clients.steady

    def _reaches(self, other: CloudStore) -> bool:
        return self._clients.reach_the_same_as(other._clients)

    def _condition(self, expected: Version | None) -> Any:
        if expected is None:
            return "create"
        return {"version": expected} if self._place.scheme == "gs" else {"e_tag": expected}

    def _version(self, told_by: Any) -> Version:
        found = told_by["version" if self._place.scheme == "gs" else "e_tag"]
        if not found:
            message = f"{self.url} does not say which version of an object it has"
            raise UserError(message, hint="Conditional writes need that: this store cannot keep a state or a cluster.")
        return Version(found)

    def _read(
        self, client: GCSStore | AzureStore, key: str, wanted: tuple[int, int] | None = None, *, tries: int = _TRIES
    ) -> Stored | None:
        """Return an object, or a part of it; a body that breaks off is asked for again."""
        import obstore  # noqa: PLC0415 - only who asks for it pays

        name, options = self._place.name_of(key), _options(wanted)
        with cloud_faults("read", f"{self.url}/{key}"):
            for left in reversed(range(tries)):
                try:
                    answer = obstore.get(client, name, options=options)
                    version = self._version(answer.meta)
                except Exception as error:
                    if is_fault(error) and is_missing(error):
                        return None
                    if is_fault(error) and wanted is not None and is_beyond(error):
                        return Stored(b"", Version(""))
                    raise
                try:
                    return Stored(bytes(answer.bytes()), version)
                except Exception as error:
                    if left == 0 or not is_fault(error):
                        raise
        raise BrokenInvariantError(f"{name} was not read", hint="Please report this.")

    def _put(self, name: str, body: memoryview) -> None:
        import obstore  # noqa: PLC0415 - only who asks for it pays

        if len(body) <= SINGLE_BYTES:
            obstore.put(self._client, name, body, use_multipart=False)
        else:
            self._put_parts(name, (body[at : at + PART_BYTES] for at in range(0, len(body), PART_BYTES)))

    def _put_parts(self, name: str, pieces: Iterator[bytes | memoryview]) -> None:
        """Send an object in parts; what fails while they are read is raised as it is."""
        import obstore  # noqa: PLC0415 - only who asks for it pays

        with ThreadPoolExecutor(1, thread_name_prefix="cloud-pieces") as pool:
            passing = _Passing(pieces, pool)
            try:
                obstore.put(self._client, name, passing, chunk_size=PART_BYTES, max_concurrency=_PARTS_AT_ONCE)
            except Exception as error:
                if passing.failure is not None:
                    raise passing.failure from None
                if not (passing.is_over and is_fault(error) and self._is_whole(name, passing.sent)):
                    raise

    def _is_whole(self, name: str, size: int) -> bool:
        """Tell whether an object is there whose last answer was lost: names are fresh, so what is there is ours."""
        import obstore  # noqa: PLC0415 - only who asks for it pays

        try:
            return bool(obstore.head(self._client, name)["size"] == size)
        except Exception as error:
            if not is_fault(error):
                raise
            return False

    def _copy(self, name: str, source: CloudStore, source_key: str) -> None:
        import obstore  # noqa: PLC0415 - only who asks for it pays

        with cloud_faults("copy", f"{source.url}/{source_key}"):
            try:
                obstore.copy(self._client, source._place.name_of(source_key), name)
            except Exception as error:
                if is_fault(error) and is_missing(error):
                    raise missing_object(source.url, source_key) from None
                raise

    def _rows(self, folder: str, wanted: str) -> Iterator[Sequence[Any]]:
        """Yield pages of a folder and all below it, from about `wanted` on: the client knows no other prefixes."""
        import obstore  # noqa: PLC0415 - only who asks for it pays

        beyond = wanted[:-1] if len(wanted) > len(folder) + 1 else None
        return iter(obstore.list(self._client, folder or None, offset=beyond, chunk_size=_LISTED_AT_ONCE))

    def _listed(self, row: Any) -> Listed:
        modified_ms = int(row["last_modified"].timestamp() * 1_000)
        hint = f"{(row['e_tag'] or '').strip(chr(34))}-{modified_ms}-{row['size']}"
        return Listed(row["path"].removeprefix(self._place.prefix), row["size"], hint, modified_ms)

    def _delete(self, names: Sequence[str]) -> None:
        with cloud_faults("delete", self.url):
            if self._are_deleted(names):
                return
            # An object was missing, and the answer does not say which of the others were deleted: each goes alone.
            with ThreadPoolExecutor(_DELETING, thread_name_prefix="cloud-delete") as pool:
                for _ in pool.map(self._are_deleted, ([name] for name in names)):
                    pass

    def _are_deleted(self, names: Sequence[str]) -> bool:
        """Delete objects in one request, asked again when it breaks off; False where one of them was missing."""
        import obstore  # noqa: PLC0415 - only who asks for it pays

        tries = Tries(_BACKOFF, attempts=_TRIES)
        while True:
            try:
                obstore.delete(self._client, names)
            except Exception as error:  # Its errors share no class with a public name: `is_fault` knows them.
                if not is_fault(error):
                    raise
                if is_missing(error):
                    return False
                if tries.is_over or status_of(error) or not is_unknown(error):
                    raise  # What a server refuses, the client has tried again by itself.
                tries.wait()
            else:
                return True


class _Passing:
    """Pieces on their way into a client that wraps what fails in them; kept, so that it is told as it was.

    The client asks for them from within its own machinery, where no store of its kind may be asked for anything: they
    are read in another thread.
    """

    def __init__(self, pieces: Iterator[bytes | memoryview], pool: ThreadPoolExecutor) -> None:
        self._pieces = pieces
        self._pool = pool
        self.sent = 0
        self.is_over = False
        self.failure: Exception | None = None

    def __iter__(self) -> Iterator[bytes | memoryview]:
        return self

    def __next__(self) -> bytes | memoryview:
        try:
            piece = self._pool.submit(next, self._pieces, None).result()
        except Exception as error:
            self.failure = error
            raise
        if piece is None:
            self.is_over = True
            raise StopIteration
        self.sent += len(piece)
        return piece


def _options(wanted: tuple[int, int] | None) -> GetOptions:
    return {} if wanted is None else {"range": wanted}


def _answer_of(error: Exception) -> Answer | None:
    """Tell what a failure says about a write; `None`: it was not written, and the user must do something."""
    if not is_fault(error):
        return None
    if is_refused(error):
        return Answer.REFUSED
    return Answer.UNKNOWN if is_unknown(error) else None


def _unsorted(url: str) -> UserError:
    message = f"{url} does not list objects in the order of their names"
    return UserError(message, hint="Use a storage account without hierarchical namespace.")
