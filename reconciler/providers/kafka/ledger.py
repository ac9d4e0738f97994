"""The ledger of links and mounts: the compacted topic `__reconciler`, read and written in small transactions.

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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from time import monotonic
from typing import Any, Final, TypeAlias, cast

import orjson

from reconciler.errors import ProducerFencedError, ReconcilerError, RetryableError, UserError
from reconciler.providers.kafka.faults import behind, named
from reconciler.providers.kafka.reachability import LEADERLESS, check_hope, watermarks
from reconciler.providers.kafka.reachability import told as told_of_records
from reconciler.providers.kafka.security import revealed
from reconciler.resources.kafka_configs import LEDGER
from reconciler.resources.owners import OwnerChange, Owners, ResourceOwner
from reconciler.runtime.retry import pause, spread_out

# How the ledger is read and written: one partition, to its end, and small transactions, over confluent-kafka.


# A process that has no links imports no client.
# ruff: noqa: PLC0415
# The library has no public names for what it finds wrong itself.
# ruff: noqa: SLF001

TRANSACTION_MS: Final = 60_000
"""After this long the cluster aborts a transaction whose producer is gone: nobody waits longer for one to end."""
WAIT_S: Final = TRANSACTION_MS / 1000 + 15.0
SLICE_S: Final = 10.0
"""After so long of it, whoever waits looks whether that is of use."""
_WRITING: Final = "writing what links keep"
_ANSWER_S: Final = 30.0
_POLL_S: Final = 0.1
_MISSING: Final = -1
_QUICKLY: Final = {"retry.backoff.ms": 20}
"""Little is written, and somebody waits for it."""
_READING: Final = {
    "group.id": "reconciler",  # Required by the library; nothing is committed under it.
    "enable.auto.commit": False,
    "enable.partition.eof": True,
    "isolation.level": "read_committed",
    "fetch.wait.max.ms": 1,
    **_QUICKLY,
}
"""Every reading ends with a fetch that finds nothing, and brokers hold that one back: a restore reads 30 times."""


class Tail:
    """Reads the ledger from where it stopped before, up to its end of now, as far as it is committed."""

    def __init__(
        self,
        settings: Mapping[str, Any],
        cluster: str,
        start: int = 0,
        *,
        is_needed: Callable[[], bool] = lambda: True,
    ) -> None:
        """Read from an offset on. `is_needed`: whether one that may not be described is missed, which may be there."""
        self._settings, self._cluster, self._is_needed = settings, cluster, is_needed
        self._consumer: Any = None
        self._next = start

    @property
    def position(self) -> int:
        """The offset at which another reader goes on who knows what was read here."""
        return self._next

    def news(self, forget: Callable[[], None]) -> Iterator[tuple[bytes, bytes | None]]:
        """Yield what is new, waiting for transactions that are open there; `forget` where the topic was made anew.

        Raises:
            RetryableError: The cluster does not answer, or a transaction stays open.
            NotAuthorizedError: It may not be read.
        """
        from confluent_kafka import TopicPartition

        stable = self._stable()
        if self._next and stable < self._next:
            forget()
            self.close()
            self._next = 0
            stable = self._stable()
        if stable == _MISSING:
            return
        self._consumer.assign([TopicPartition(TOPIC, 0, self._next)])
        try:
            yield from self._to_the_end()
        finally:
            self._consumer.unassign()

    def close(self) -> None:
        """Let go of the connection; another call opens it again."""
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None

    def _to_the_end(self) -> Iterator[tuple[bytes, bytes | None]]:
        from confluent_kafka import KafkaError

        until, has_looked = monotonic() + WAIT_S, False
        while not (has_looked and self._next >= self._end()):
            found = self._consumer.poll(_POLL_S)
            if found is None:
                pass
            elif (error := found.error()) is None:
                if _is_key(found.key()):
                    yield found.key(), found.value()
                self._next, until = found.offset() + 1, monotonic() + WAIT_S
            elif error.code() == KafkaError._PARTITION_EOF:
                self._next, has_looked = max(self._next, found.offset()), True
            elif error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
                pass  # The library asks for a coordinator that is not needed: nothing is committed.
            elif not error.retriable() and error.code() not in LEADERLESS:
                raise told(error, self._settings, f"reading {TOPIC}", self._cluster)
            if monotonic() > until:
                message = f"{TOPIC} of cluster {self._cluster} is not readable from offset {self._next} on"
                hint = "A transaction is open there, or brokers are gone: it is over within a minute. Try again then."
                raise RetryableError(message, hint=hint)

    def _end(self) -> int:
        """Return where it ends, uncommitted records too, as the last fetch has it.

        What a transaction has left that has just ended may not be readable yet: it is waited for.
        """
        from confluent_kafka import TopicPartition

        place = TopicPartition(TOPIC, 0)
        return cast("int", self._consumer.get_watermark_offsets(place, cached=True)[1])

    def _stable(self) -> int:
        """Return up to where it is readable; asks, and so finds out whether it is there at all."""
        from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

        if self._consumer is None:
            self._consumer = Consumer(revealed({**self._settings, **_READING}))
        try:
            place = TopicPartition(TOPIC, 0)
            return watermarks(self._consumer, place, self._settings)[1]
        except KafkaException as error:
            missing = {KafkaError._UNKNOWN_PARTITION, KafkaError._UNKNOWN_TOPIC, KafkaError.UNKNOWN_TOPIC_OR_PART}
            found = error.args[0]
            if found.code() in missing and (found := self._hidden()) is None:
                self.close()  # It would go on believing that.
                return _MISSING
            raise told(found, self._settings, f"reading {TOPIC}", self._cluster) from error

    def _hidden(self) -> Any:
        """Return why it does not show, where it is needed and may be there: the client says only that it is not."""
        from confluent_kafka import KafkaError, KafkaException

        if not self._is_needed():
            return None
        try:
            error = self._consumer.list_topics(TOPIC, _ANSWER_S).topics[TOPIC].error
        except KafkaException as failed:
            return failed.args[0]
        return error if error is not None and error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED else None


def starts_of(
    settings: Mapping[str, Any], cluster: str, places: Iterable[tuple[str, int]]
) -> dict[tuple[str, int], int]:
    """Return where partitions begin.

    Raises:
        RetryableError: The cluster does not answer.
    """
    from confluent_kafka import Consumer, KafkaException, TopicPartition

    consumer: Any = Consumer(revealed({**settings, **_READING}))
    try:
        return {place: watermarks(consumer, TopicPartition(*place), settings)[0] for place in places}
    except KafkaException as error:
        raise told(error.args[0], settings, "looking where partitions begin", cluster) from error
    finally:
        consumer.close()


class Writer:
    """A producer of one transactional id: from here on, all others of that id are fenced."""

    def __init__(
        self, settings: Mapping[str, Any], transactional_id: str, cluster: str, *, patience_s: float = WAIT_S
    ) -> None:
        from confluent_kafka import Producer

        how = {
            "transactional.id": transactional_id,
            "linger.ms": 0,
            "transaction.timeout.ms": TRANSACTION_MS,
            **_QUICKLY,
        }
        self._producer, self._settings, self._cluster = Producer(revealed({**settings, **how})), settings, cluster
        self._patience_s = patience_s
        self._asked(self._producer.init_transactions, SLICE_S)

    def write(self, topic: str, messages: Sequence[tuple[bytes, bytes | None]]) -> None:
        """Write records into partition 0 of a topic, all or none.

        Raises:
            ProducerFencedError: Another producer of this id began meanwhile; nothing was written.
            RetryableError: The cluster does not answer: it may have been written or not.
        """
        self._asked(self._producer.begin_transaction)
        for key, value in messages:
            self._asked(self._producer.produce, topic, key=key, value=value, partition=0)
        self._asked(self._producer.commit_transaction, SLICE_S)

    def _asked(self, call: Callable[..., Any], *given: Any, **more: Any) -> None:
        from confluent_kafka import KafkaException

        try:
            patiently(
                partial(call, *given, **more),
                self._settings,
                doing=_WRITING,
                cluster=self._cluster,
                patience_s=self._patience_s,
            )
        except (KafkaException, SystemError) as error:
            if (found := behind(error)) is None:
                raise
            found = named(self._producer, found)
            if found.txn_requires_abort():
                with suppress(KafkaException):
                    self._producer.abort_transaction(_ANSWER_S)
            raise told(found, self._settings, _WRITING, self._cluster) from error


def patiently(
    call: Callable[[], object], settings: Mapping[str, Any], *, doing: str, cluster: str, patience_s: float = WAIT_S
) -> None:
    """Make a call of a transactional producer until it is through, as long as that may help.

    Raises:
        KafkaException: It is refused, or it took too long.
        UserError: No broker can be reached, and that does not pass by itself.
    """
    from confluent_kafka import KafkaException

    until = monotonic() + patience_s
    while True:
        try:
            call()
        except KafkaException as error:
            if not error.args[0].retriable() or monotonic() > until:
                raise
            check_hope(settings, doing=doing, cluster=cluster)
        else:
            return


def is_fenced(error: Any) -> bool:
    """Tell whether another producer of the same transactional id has begun, or brokers have forgotten this one.

    They forget an id that wrote nothing for long (`transactional.id.expiration.ms`): who begins anew gets it again.
    """
    from confluent_kafka import KafkaError

    return error.code() in {
        KafkaError._FENCED,
        KafkaError.PRODUCER_FENCED,
        KafkaError.INVALID_PRODUCER_EPOCH,
        KafkaError.INVALID_PRODUCER_ID_MAPPING,
    }


def told(error: Any, settings: Mapping[str, Any], doing: str, cluster: str) -> ReconcilerError:
    """Return what went wrong in our words."""
    if is_fenced(error):
        message = f"{doing} on cluster {cluster}: {error.str()}"
        return ProducerFencedError(message, hint="Another process took over: run the same command again.")
    return told_of_records(error, settings, doing=doing, cluster=cluster)


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

LINK_ENTRY: Final = "link"
MIRROR_ENTRY: Final = "mirror"
PROGRESS: Final = "progress"
MAP: Final = "map"
REKEYED: Final = "rekeyed"
STATES: Final = (LINK_ENTRY, MIRROR_ENTRY)
"""An entry for each link and each mirror."""
COPIES: Final = (*STATES, PROGRESS, MAP)
"""The states, and what was copied where."""
OWNER: Final = "owner"
"""Which state owns what: `topic/<name on the brokers>`, `namespace/<prefix>`, `link/<name>`."""
WORKSPACE: Final = "workspace"
"""Who that is, by the lineage of the state."""
OWNERS_WRITER: Final = "reconciler.owners"
"""The transactional id through which both are written: of two that take the same, one is fenced and decides again."""
_LARGE: Final = frozenset({PROGRESS, MAP, REKEYED})
"""What grows with every copy. All the rest is small, and kept whole by the process that reads any of it."""

Key: TypeAlias = tuple[str | int, ...]
Value: TypeAlias = "Mapping[str, Any]"
Entries: TypeAlias = "Mapping[Key, Value]"
Changes: TypeAlias = "Mapping[Key, Value | None]"
"""What to write; `None` removes."""
_ATTEMPTS: Final = 20
_PAUSE_S: Final = 0.02


def link_key(name: str) -> Key:
    """Return the key of a link's entry."""
    return (LINK_ENTRY, name)


def mirror_key(topic: str) -> Key:
    """Return the key of a mirror's entry, by the name its broker gives it."""
    return (MIRROR_ENTRY, topic)


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
    """Return the entry that a record has.

    Raises:
        UserError: Its value is none of ours.
    """
    place = tuple(json.loads(key))
    try:
        return place, None if value is None else json.loads(value)
    except ValueError as error:
        raise foreign(place, error) from error


def foreign(key: Key, error: Exception) -> UserError:
    """Return what to say of an entry that somebody else wrote; compaction removes what has the very same bytes."""
    text = _bytes(list(key)).decode()
    message = f"topic {TOPIC} has an entry {text} that reconciler did not write: {error!r} in it"
    hint = f"Only reconciler may write there. Remove it by a record with the key {text} and no value."
    return UserError(message, hint=hint)


def _is_key(key: bytes | None) -> bool:
    """Tell whether a record may be an entry: what others wrote under any other key says nothing.

    Also not what means the same in other bytes: what we write under ours does not take its place.
    """
    try:
        parts = orjson.loads(key or b"")
    except ValueError:
        return False
    is_place = isinstance(parts, list) and len(parts) > 1 and all(isinstance(part, str | int) for part in parts)
    return is_place and orjson.dumps(parts) == key


def _bytes(found: object) -> bytes:
    return json.dumps(found, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


@dataclass
class _Read:
    """What was read: all that is small, and some of the large kinds; and what reads on."""

    tail: Tail
    entries: dict[Key, Value] = field(default_factory=dict)
    begun: int = 0
    """How many readings have begun."""
    done: int = 0
    """The last of them that came to its end, by its number."""


@dataclass
class Ledger:
    """The ledger of one cluster. Safe to share between threads; pickled, it forgets what it has read.

    `settings` are those of confluent-kafka clients, secrets hidden. `create` makes the topic where it is not there.
    `is_needed`: whether one that may not be described is missed; if not, it counts as never written.
    """

    settings: Mapping[str, Any]
    cluster: str
    create: Callable[[], None] | None = None
    is_needed: Callable[[], bool] = lambda: True
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
            NotAuthorizedError: It may not be read.
        """
        wanted = frozenset(kinds or STATES)
        large = wanted & _LARGE
        before = self._reads.get(large)
        begun = 0 if before is None else before.begun
        with self._reading:
            known = self._reads.get(large)
            if known is None:
                known = self._reads[large] = _Read(Tail(self.settings, self.cluster, is_needed=self.is_needed))
            if known.done <= begun:  # Else another thread has read all that was there when this one asked.
                known.begun += 1
                self._read_on(known, _LARGE - large)
                known.done = known.begun
            return {place: entry for place, entry in known.entries.items() if place[0] in wanted}

    def change(
        self, writer: str, decide: Callable[[Entries], Changes], *kinds: str, patience_s: float = WAIT_S
    ) -> Entries:
        """Write what is decided over what is there, all or nothing, and return what is there then.

        `decide` is asked again where another process was faster; it may raise, and then nothing is written. What it
        returns may be empty. `kinds`: those it looks at, by default `STATES`. `patience_s`: how long brokers may
        take over each step.

        Raises:
            RetryableError: Somebody else was faster every time, or the cluster does not answer.
        """
        with self._writing:
            for attempt in range(_ATTEMPTS):
                if writer not in self._writers and not decide(entries := self.read(*kinds)):
                    return entries  # Nothing to fence for.
                self._make()
                try:
                    return self._changed(writer, decide, kinds, patience_s)
                except BaseException as error:
                    self._writers.pop(writer, None)  # It may be in the middle of a transaction.
                    if not isinstance(error, ProducerFencedError):
                        raise
                # Two that fence each other at the same pace would go on doing so: their pauses differ.
                pause(spread_out(2 * _PAUSE_S * (attempt + 1), 0.5))
        message = f"{TOPIC} of cluster {self.cluster}: another process keeps writing as {writer} all the time"
        raise RetryableError(message, hint="Run the same command again.")

    def close(self) -> None:
        """Let go of connections; another call opens them again."""
        with self._writing, self._reading:
            self._writers.clear()
            for known in self._reads.values():
                known.tail.close()

    def _read_on(self, known: _Read, unwanted: AbstractSet[str | int]) -> None:
        for key, value in known.tail.news(known.entries.clear):
            place, entry = entry_of(key, value)
            if place[0] in unwanted:
                continue
            if entry is None:
                known.entries.pop(place, None)
            else:
                known.entries[place] = entry

    def _changed(
        self, writer: str, decide: Callable[[Entries], Changes], kinds: tuple[str, ...], patience_s: float
    ) -> Entries:
        if writer not in self._writers:
            self._writers[writer] = Writer(self.settings, writer, self.cluster, patience_s=patience_s)
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


# Who owns what on a cluster, by the names its brokers know.


def owners_in(entries: Entries) -> Owners:
    """Return who owns what; nothing where that was never written."""
    who = {str(key[1]): ResourceOwner.from_json(value) for key, value in entries.items() if key[0] == WORKSPACE}
    return Owners(who, {str(key[1]): value["lineage"] for key, value in entries.items() if key[0] == OWNER})


_OWNERS_S: Final = 20.0
"""As long as other requests are tried again: nothing rests on it, and a person waits before the first change."""


def own(ledger: Ledger, change: OwnerChange) -> Mapping[str, ResourceOwner]:
    """Write who owns what in one transaction, and return what of it is another's: then nothing was written.

    Raises:
        NotAuthorizedError: The principal may not make or write the ledger, or not use its transactional id.
        UserError: Transactions do not work there.
        RetryableError: The cluster does not answer.
    """
    refused: dict[str, ResourceOwner] = {}

    def decide(entries: Entries) -> Changes:
        nonlocal refused
        held = owners_in(entries)
        changes, refused = change.on(held)
        if refused:
            return {}
        who = {} if not (changes or held.what) else change.workspaces_on(held, changes)
        return {
            **{(WORKSPACE, lineage): None if one is None else one.to_json() for lineage, one in who.items()},
            **{(OWNER, key): None if by is None else {"lineage": by} for key, by in changes.items()},
        }

    if not decide(ledger.read(OWNER, WORKSPACE)):
        return refused
    try:
        ledger.change(OWNERS_WRITER, decide, OWNER, WORKSPACE, patience_s=_OWNERS_S)
    except RetryableError as error:
        hint = "See transaction.state.log.replication.factor of the brokers, and whether they are alive."
        raise UserError(f"it can be read, but no transaction writes it: {error.message}", hint=hint) from error
    return refused
