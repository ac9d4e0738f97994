"""What links keep on their destination: the compacted topic `__reconciler`, written in transactions.

Who changes states and who copies never hold a lock. They fence each other by transactional ids:

* A transition decides over what it reads, writes that through the id of its link (`writer_of`), and fences the ids of
  all partitions (`copier_of`) *after* the new state is committed. Then it acts.
* A copier initialises its id, then reads the state, then copies, and commits its progress together with the records.

So a copier that began before a transition is fenced by it, and one that comes later reads the new state. Two
transitions of one link fence each other by its id: the slower one reads and decides again.

Topics are known here by the names that their brokers give them: ours depend on which namespaces somebody knows.
"""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from reconciler.errors import ProducerFencedError, RetryableError
from reconciler.objectstore.nonces import jitter
from reconciler.providers.kafka.ledgerwire import Tail, Writer
from reconciler.providers.kafka.reaching.patience import pause
from reconciler.providers.kafka.translate import LEDGER

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

TOPIC: Final = LEDGER
CONFIGS: Final = {
    "cleanup.policy": "compact",
    "segment.bytes": str(16 << 20),
    "min.cleanable.dirty.ratio": "0.1",
    # A process that keeps for days what it has read still meets what was removed since.
    "delete.retention.ms": str(7 * 86_400_000),
}
REPLICAS: Final = 3
"""At most: as many as there are brokers."""

LINK: Final = "link"
MIRROR: Final = "mirror"
PROGRESS: Final = "progress"
MAP: Final = "map"
REKEYED: Final = "rekeyed"
STATES: Final = (LINK, MIRROR)
"""An entry for each link and each mirror."""
_LARGE: Final = frozenset({PROGRESS, MAP, REKEYED})
"""What grows with every copy. All the rest is small, and kept whole by whoever reads any of it."""

Key: TypeAlias = tuple[str | int, ...]
Value: TypeAlias = "Mapping[str, Any]"
Entries: TypeAlias = "Mapping[Key, Value]"
Changes: TypeAlias = "Mapping[Key, Value | None]"
"""What to write; `None` removes."""
_ATTEMPTS: Final = 20
_PAUSE_S: Final = 0.02


def link_key(name: str) -> Key:
    """Return the key of a link's entry."""
    return (LINK, name)


def mirror_key(topic: str) -> Key:
    """Return the key of a mirror's entry, by the name its broker gives it."""
    return (MIRROR, topic)


def progress_key(topic: str, partition: int) -> Key:
    """Return the key of how far a partition of a mirror has come."""
    return (PROGRESS, topic, partition)


def map_key(topic: str, partition: int, chunk: int) -> Key:
    """Return the key of a piece of the offset map of a partition."""
    return (MAP, topic, partition, chunk)


def writer_of(link: str) -> str:
    """Return the transactional id through which all states of a link and its mirrors are written."""
    return f"reconciler.link.{link}"


def copier_of(link_id: str, topic: str, partition: int) -> str:
    """Return the transactional id through which a partition of a mirror is copied."""
    return f"reconciler.{link_id}.{topic}.{partition}"


def message(key: Key, value: Value | None) -> tuple[bytes, bytes | None]:
    """Return an entry as a record has it; `None` removes it."""
    return _bytes(list(key)), None if value is None else _bytes(value)


def entry_of(key: bytes, value: bytes | None) -> tuple[Key, Value | None]:
    """Return the entry that a record has."""
    return tuple(json.loads(key)), None if value is None else json.loads(value)


def _bytes(found: object) -> bytes:
    return json.dumps(found, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


@dataclass
class _Read:
    """What was read: all that is small, and some of the large kinds; and what reads on."""

    tail: Tail
    entries: dict[Key, Value] = field(default_factory=dict)


@dataclass
class Ledger:
    """The ledger of one cluster. Safe to share between threads; pickled, it forgets what it has read.

    `settings` are those of confluent-kafka clients, secrets hidden. `create` makes the topic where it is not there.
    """

    settings: Mapping[str, Any]
    cluster: str
    create: Callable[[], None] | None = None
    _reads: dict[frozenset[str | int], _Read] = field(default_factory=dict, repr=False, compare=False)
    _writers: dict[str, Writer] = field(default_factory=dict, repr=False, compare=False)
    _reading: Any = field(default_factory=threading.Lock, repr=False, compare=False)
    _writing: Any = field(default_factory=threading.Lock, repr=False, compare=False)

    def __reduce__(self) -> tuple[Any, ...]:
        """Travel without connections: executors read, and write through transactions of their own."""
        return type(self), (dict(self.settings), self.cluster)

    def read(self, *kinds: str) -> Entries:
        """Return what is committed now of some kinds (by default `STATES`), by key; nothing where it was never written.

        Waits for transactions that are open in it, and reads on from where it stopped before.

        Raises:
            RetryableError: The cluster does not answer, or a transaction stays open.
        """
        wanted = frozenset(kinds or STATES)
        large = wanted & _LARGE
        with self._reading:
            known = self._reads.get(large)
            if known is None:
                known = self._reads[large] = _Read(Tail(self.settings, TOPIC, self.cluster))
            for key, value in known.tail.news(known.entries.clear):
                place, entry = entry_of(key, value)
                if place[0] in _LARGE - large:
                    continue
                if entry is None:
                    known.entries.pop(place, None)
                else:
                    known.entries[place] = entry
            return {place: entry for place, entry in known.entries.items() if place[0] in wanted}

    def change(self, writer: str, decide: Callable[[Entries], Changes], *kinds: str) -> Entries:
        """Write what is decided over what is there, all or nothing, and return what is there then.

        `decide` is asked again where somebody else was faster; it may raise, and then nothing is written. What it
        returns may be empty. `kinds`: those it looks at, by default `STATES`.

        Raises:
            RetryableError: Somebody else was faster every time, or the cluster does not answer.
        """
        with self._writing:
            for attempt in range(_ATTEMPTS):
                if writer not in self._writers and not decide(entries := self.read(*kinds)):
                    return entries  # Nothing to fence for.
                self._make()
                try:
                    return self._changed(writer, decide, kinds)
                except BaseException as error:
                    self._writers.pop(writer, None)  # It may be in the middle of a transaction.
                    if not isinstance(error, ProducerFencedError):
                        raise
                # Two that fence each other at the same pace would go on doing so: their pauses differ.
                pause(_PAUSE_S * (attempt + 1) * (1 + jitter()))
        message = f"{TOPIC} of cluster {self.cluster}: somebody else writes as {writer} all the time"
        raise RetryableError(message, hint="Run the same command again.")

    def close(self) -> None:
        """Let go of connections; another call opens them again."""
        with self._writing, self._reading:
            self._writers.clear()
            for known in self._reads.values():
                known.tail.close()

    def _changed(self, writer: str, decide: Callable[[Entries], Changes], kinds: tuple[str, ...]) -> Entries:
        if writer not in self._writers:
            self._writers[writer] = Writer(self.settings, writer, self.cluster)
        entries = self.read(*kinds)  # Under the fence: whoever writes between this and the commit fences us.
        changes = decide(entries)
        if not changes:
            return entries
        self._writers[writer].write(TOPIC, [message(key, value) for key, value in changes.items()])
        kept = {key: value for key, value in entries.items() if key not in changes}
        return {**kept, **{key: value for key, value in changes.items() if value is not None}}

    def _make(self) -> None:
        if self.create is not None:
            self.create()
            self.create = None
