"""Consumers of one process, kept open between readings.

Opening a consumer costs tens of milliseconds and a connection to every broker; a job reads thousands of ranges.
"""

from __future__ import annotations

import atexit
import os
import pickle
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import Consumer

from reconciler.providers.kafka.reaching.revealing import revealed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from reconciler.records.log import Isolation

_IDLE: Final = 4
"""Consumers of the same settings that are kept open while nobody reads through them."""
_CONSUMER: Final = {
    "group.id": "reconciler",  # the library demands one; nothing is ever committed, so no group exists
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "enable.partition.eof": True,
    # Where an offset is not there, nobody else decides where to go on.
    "auto.offset.reset": "error",
    # How long the end of a partition is waited for: an empty answer is what tells that it was reached.
    "fetch.wait.max.ms": 5,
    # A topic that was just made is known everywhere after that; one that is still unknown does not exist.
    "topic.metadata.propagation.max.ms": 5000,
    "fetch.message.max.bytes": 4 << 20,
    "queued.min.messages": 100_000,
    "queued.max.messages.kbytes": 64 << 10,
}


class _Pool:
    """Consumers that nobody reads through at the moment, by settings; those of a parent process are left alone."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: dict[bytes, list[Consumer]] = {}
        self._inherited: list[object] = []
        os.register_at_fork(after_in_child=self._inherit)
        atexit.register(self.close)

    def take(self, key: bytes, settings: dict[str, Any]) -> Consumer:
        with self._lock:
            idle = self._idle.get(key)
            if idle:
                return idle.pop()
        return Consumer(settings)

    def give_back(self, key: bytes, consumer: Consumer) -> None:
        consumer.unassign()
        with self._lock:
            idle = self._idle.setdefault(key, [])
            if len(idle) < _IDLE:
                idle.append(consumer)
                return
        consumer.close()

    def close(self) -> None:
        with self._lock:
            idle = [consumer for each in self._idle.values() for consumer in each]
            self._idle.clear()
        for consumer in idle:
            with suppress(Exception):
                consumer.close()

    def _inherit(self) -> None:
        """Begin anew in a forked process: the threads of these clients live on in its parent alone."""
        # Kept, never used: to end a client whose threads are not here would wait for them for ever.
        self._inherited.append(self._idle)
        self._lock, self._idle = threading.Lock(), {}


_pool: Final = _Pool()


@contextmanager
def consumer(settings: Mapping[str, Any], isolation: Isolation) -> Iterator[Consumer]:
    """Lend a consumer that reads what `isolation` may see; after an error it is closed, else kept for the next."""
    key = pickle.dumps((dict(settings), isolation))
    lent = _pool.take(key, {**_CONSUMER, **revealed(settings), "isolation.level": isolation})
    try:
        yield lent
    except GeneratorExit:
        _pool.give_back(key, lent)
        raise
    except BaseException:
        lent.close()
        raise
    else:
        _pool.give_back(key, lent)


def close_consumers() -> None:
    """Close what is kept open. Another reading opens it again."""
    _pool.close()
