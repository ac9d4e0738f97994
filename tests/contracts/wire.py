"""A store behind a wire that loses, delays, repeats and refuses. The client is the one that speaks to S3.

Beneath it may be any store, on a disk, in memory or in a simulation: `ConditionalWrite` is given a request to send and
one to read back with, and the wire does to them what networks and busy buckets do.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import StrEnum
from functools import partial
from typing import Any

from botocore.exceptions import ClientError, ConnectionClosedError, ReadTimeoutError

from reconciler.errors import LostRaceError
from reconciler.objectstore.base import ListedObject, ObjectStore, StoredObject, Version
from reconciler.objectstore.s3_store import write_once
from reconciler.objectstore.swap import ConditionalWrite

_ENDPOINT = "http://wire"


class Fault(StrEnum):
    """What happens to one conditional write on its way."""

    LOST = "done, and its answer is lost"
    SLOW = "done, and answered after the client has given up"
    LATE = "not answered, and done later"
    REPEATED = "done twice, and the second answer counts"
    CONFLICT = "409: not done, for another write is in progress"
    BUSY = "503: not done, for the store is busy"
    FAILED = "500: not done, as far as anybody knows"

    @property
    def is_done(self) -> bool:
        """Whether it is there when the client hears of it, or does not."""
        return self in {Fault.LOST, Fault.SLOW, Fault.REPEATED}


REFUSALS = {
    Fault.CONFLICT: (409, "ConditionalRequestConflict"),
    Fault.BUSY: (503, "SlowDown"),
    Fault.FAILED: (500, "InternalError"),
}


def _nothing() -> None:
    return


class Wire:
    """Swaps pass a wire; all else goes straight to `inner`, which is the truth. Faults are used up one by one."""

    def __init__(self, inner: ObjectStore, *, status_of_missing: int = 412) -> None:
        """`status_of_missing` is what `If-Match` on an object that is gone gets: 404 of AWS, 412 of others."""
        self.inner = inner
        self.status_of_missing = status_of_missing
        self.before: Callable[[str], None] = lambda _key: None
        """Called before each request, with its key."""
        self._faults: list[tuple[str, Fault, Callable[[], None]]] = []
        self._late: list[Callable[[], object]] = []
        self._lock = threading.Lock()

    def __copy__(self) -> Wire:
        return self

    def on(self, fault: Fault, *, key: str = "", times: int = 1, then: Callable[[], None] = _nothing) -> None:
        """Do this to the next swaps of keys that contain `key`; `then` is where somebody else gets in."""
        with self._lock:
            self._faults += [(key, fault, then)] * times

    def heal(self) -> None:
        """Forget all faults that did not come to bear; what is late stays so."""
        with self._lock:
            self._faults.clear()

    def deliver(self) -> None:
        with self._lock:
            arriving, self._late = self._late, []
        for arrive in arriving:
            arrive()

    def swap(self, key: str, body: bytes, *, expected: Version | None) -> Version:
        write = ConditionalWrite(
            lambda: write_once(lambda: self._send(key, body, expected), f"{self.url}/{key}"),
            lambda: self.inner.get(key),
        )
        return write.swap(key, body, expected=expected)

    def _send(self, key: str, body: bytes, expected: Version | None) -> Version:
        self.before(key)
        do, (fault, then) = partial(self._do, key, body, expected), self._fault_of(key)
        if fault is Fault.LATE:
            self._late.append(partial(_arrive, do))
        elif fault is not None and fault.is_done:
            _arrive(do)
        then()
        match fault:
            case None | Fault.REPEATED:
                return do()
            case Fault.LOST | Fault.LATE:
                raise ConnectionClosedError(endpoint_url=_ENDPOINT)
            case Fault.SLOW:
                raise ReadTimeoutError(endpoint_url=_ENDPOINT)
            case _:
                raise _refusal(*REFUSALS[fault])

    def _fault_of(self, key: str) -> tuple[Fault | None, Callable[[], None]]:
        with self._lock:
            for number, (wanted, fault, then) in enumerate(self._faults):
                if wanted in key:
                    del self._faults[number]
                    return fault, then
        return None, _nothing

    def _do(self, key: str, body: bytes, expected: Version | None) -> Version:
        """Compare and swap as a server does: it does not know whose body it has."""
        found = self.inner.get(key)
        if found is None and expected is not None:
            raise _refusal(self.status_of_missing, "NoSuchKey" if self.status_of_missing == 404 else "Precondition")
        if found is not None and found.version != expected:
            raise _refusal(412, "PreconditionFailed")
        try:
            return self.inner.swap(key, body, expected=expected)
        except LostRaceError:
            raise _refusal(412, "PreconditionFailed") from None

    # -- straight on

    @property
    def url(self) -> str:
        return self.inner.url

    @property
    def can_encrypt(self) -> bool:
        return self.inner.can_encrypt

    def read_clock_ms(self) -> int:
        return self.inner.read_clock_ms()

    def get(self, key: str) -> StoredObject | None:
        return self.inner.get(key)

    def get_range(self, key: str, start: int, length: int) -> bytes:
        return self.inner.get_range(key, start, length)

    def put(self, key: str, body: bytes | memoryview, *, kms_key_id: str | None = None) -> None:
        self.inner.put(key, body, kms_key_id=kms_key_id)

    def copy_from(self, key: str, source: ObjectStore, source_key: str, *, kms_key_id: str | None = None) -> None:
        self.inner.copy_from(key, source, source_key, kms_key_id=kms_key_id)

    def list(self, prefix: str) -> Iterator[ListedObject]:
        return self.inner.list(prefix)

    def delete(self, keys: Iterable[str]) -> None:
        self.inner.delete(keys)

    def find_violated_conditions(self) -> Sequence[str]:
        return self.inner.find_violated_conditions()


def _arrive(do: Callable[[], Any]) -> None:
    try:
        do()
    except ClientError:
        return


def _refusal(status: int, code: str) -> ClientError:
    answer: Any = {
        "Error": {"Code": code, "Message": "said by the wire"},
        "ResponseMetadata": {"HTTPStatusCode": status},
    }
    return ClientError(answer, "PutObject")
