"""A process that can be killed at any of its writes, and takes everything it knew with it."""

from __future__ import annotations

import threading
from enum import Enum
from typing import TYPE_CHECKING, Literal, NamedTuple

from reconciler.embedded.cluster import EmbeddedCluster
from reconciler.errors import RetryableError
from tests.embedded.watched import DiedError, WatchedStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from reconciler.embedded.clients.producer import Producer
    from reconciler.embedded.clients.transactional_producer import TransactionalProducer
    from reconciler.objectstore.base import Listed, ObjectStore, Stored

DAY_MS = 86_400_000


class Fault(NamedTuple):
    """What goes wrong at the write so many writes from now."""

    at: int
    how: Literal["dies before", "dies after", "refused", "no answer"]


class Ended(Enum):
    """How something ended that one process did."""

    DONE = "done"
    DIED = "the process is gone"
    UNSURE = "the store failed, and nobody knows what was written"


class Fuse:
    """Burns down with every write; who has died stays dead, in all its threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._fault: Fault | None = None
        self._writes = -1
        self.is_dead = False

    def arm(self, fault: Fault | None) -> None:
        """Count from here."""
        self._fault, self._writes = fault, -1

    def before(self, _what: str, key: str) -> None:
        """Burn before a write."""
        with self._lock:
            self._writes += 1
        self._burn("dies before", "refused", key)

    def after(self, _what: str, key: str) -> None:
        """Burn after a write."""
        self._burn("dies after", "no answer", key)

    def check(self) -> None:
        """Be dead, if so."""
        if self.is_dead:
            raise DiedError

    def _burn(self, dies: str, fails: str, key: str) -> None:
        with self._lock:
            now = None if self._fault is None or self._fault.at != self._writes else self._fault.how
            self.is_dead |= now == dies
            self.check()
        if now == fails:
            raise RetryableError(f"{key}: {now}", hint="Try it again.")


class MortalStore(WatchedStore):
    """The store as one process reaches it. `ahead_ms` is how far its clock seems to be ahead."""

    def __init__(self, inner: ObjectStore) -> None:
        self.fuse = Fuse()
        self.ahead_ms = 0
        super().__init__(inner, before=self.fuse.before, after=self.fuse.after)

    def clock_ms(self) -> int:
        return super().clock_ms() + self.ahead_ms

    def get(self, key: str) -> Stored | None:
        self.calls.clear()
        self.fuse.check()
        return super().get(key)

    def get_range(self, key: str, start: int, length: int) -> bytes:
        self.calls.clear()
        self.fuse.check()
        return super().get_range(key, start, length)

    def list(self, prefix: str) -> Iterator[Listed]:
        self.calls.clear()
        self.fuse.check()
        return super().list(prefix)


class Process:
    """One process that works with the cluster for a while: its caches grow old, as those of others do."""

    def __init__(self, inner: ObjectStore, now_ms: Callable[[], int], new_id: Callable[[], str]) -> None:
        self.store = MortalStore(inner)
        self.cluster = EmbeddedCluster.open(self.store, now_ms=now_ms, new_id=new_id)
        self.transactional: dict[str, TransactionalProducer] = {}
        self._producer: Producer | None = None

    @property
    def producer(self) -> Producer:
        """Its one producer without transactions."""
        if self._producer is None:
            self._producer = self.cluster.producer()
        return self._producer

    def ends(self, do: Callable[[Process], object], fault: Fault | None) -> Ended:
        """Do something during which a fault may happen."""
        self.store.fuse.arm(fault)
        try:
            do(self)
        except DiedError:
            return Ended.DIED
        except RetryableError:
            assert fault is not None
            return Ended.UNSURE
        finally:
            self.store.fuse.arm(None)
        return Ended.DONE
