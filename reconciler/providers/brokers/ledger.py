"""The ledger of links and mounts: the compacted topic `__reconciler`, written in transactions.

Instead of locks, processes fence each other by transactional ids:

* A transition reads the ledger, decides, and writes with its link's id (`build_writer_id`). After the commit it fences
  the ids of all partitions (`build_copier_id`) before it acts.
* A copier initialises its id, reads the state, copies, and commits its progress together with the records.

A copier that began before a transition is fenced, and a later one reads the new state. Of two concurrent transitions of
a link, the slower one decides again. Keys contain the brokers' names of topics.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from functools import partial
from time import monotonic
from typing import Any, Final, TypeAlias, cast

import orjson

from reconciler.errors import ProducerFencedError, ReconcilerError, RetryableError, UserError
from reconciler.providers.brokers.faults import find_cause, find_original_error
from reconciler.providers.brokers.reachability import (
    LEADERLESS,
    check_can_recover,
    read_watermarks,
    translate_record_error,
)
from reconciler.providers.brokers.security import reveal_secrets
from reconciler.resources.kafka_configs import LEDGER
from reconciler.resources.owners import OwnerChange, Owners, ResourceOwner
from reconciler.runtime.dataclass import dataclass, field
from reconciler.runtime.retry import pause, shorten_randomly

# ruff: noqa: PLC0415, SLF001

TRANSACTION_MS: Final = 60_000
"""Timeout in ms after which the cluster aborts a dead producer's transaction."""
WAIT_S: Final = TRANSACTION_MS / 1000 + 15.0
SLICE_S: Final = 10.0
"""Seconds between a waiting client's checks whether brokers can be reached."""
_WRITING: Final = "writing what links keep"
_ANSWER_S: Final = 30.0
_POLL_S: Final = 0.1
_RECORDS_AT_ONCE: Final = 1_000
_MISSING: Final = -1
_QUICKLY: Final = {"retry.backoff.ms": 20}
_READING: Final = {
    "group.id": "reconciler",  # The library requires a group id, though no offsets are committed.
    "enable.auto.commit": False,
    "enable.partition.eof": True,
    "isolation.level": "read_committed",
    "fetch.wait.max.ms": 1,
    **_QUICKLY,
}
"""Settings without the brokers' default delay of empty fetches, because every read ends with one."""


class LedgerReader:
    """Reader of the ledger that continues at its last offset."""

    def __init__(
        self, settings: Mapping[str, Any], cluster: str, start: int = 0, *, is_needed: Callable[[], bool] = lambda: True
    ) -> None:
        self._settings, self._cluster, self._is_needed = settings, cluster, is_needed
        self._consumer: Any = None
        self._next = start

    @property
    def position(self) -> int:
        """Next offset to read."""
        return self._next

    def read_new(self, clear_cache: Callable[[], None]) -> Iterator[tuple[bytes, bytes | None]]:
        """Yield keys and values of new records, also of other programs, and wait for open transactions.

        Calls `clear_cache` if the topic was recreated.
        """
        from confluent_kafka import TopicPartition

        stable = self._read_stable_offset()
        if self._next and stable < self._next:
            clear_cache()
            self.close()
            self._next = 0
            stable = self._read_stable_offset()
        if stable == _MISSING:
            return
        self._consumer.assign([TopicPartition(TOPIC, 0, self._next)])
        try:
            yield from self._read_to_end()
        finally:
            self._consumer.unassign()

    def close(self) -> None:
        """Close the connection until the next read."""
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None

    def _read_to_end(self) -> Iterator[tuple[bytes, bytes | None]]:
        from confluent_kafka import KafkaError

        until, has_seen_end = monotonic() + WAIT_S, False
        while not (has_seen_end and self._next >= self._read_log_end()):
            before = self._next
            for received in self._receive():
                if (error := received.error()) is None:
                    yield received.key() or b"", received.value()
                    self._next = received.offset() + 1
                elif error.code() == KafkaError._PARTITION_EOF:
                    self._next, has_seen_end = max(self._next, received.offset()), True
                elif error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
                    pass  # A consumer that commits nothing can read without rights on the group.
                elif not error.retriable() and error.code() not in LEADERLESS:
                    raise translate_ledger_error(error, self._settings, f"reading {TOPIC}", self._cluster)
            if self._next > before:
                until = monotonic() + WAIT_S
            elif monotonic() > until:
                message = f"{TOPIC} of cluster {self._cluster} is not readable from offset {self._next} on"
                hint = "A transaction is open there, or brokers are down: it ends within a minute. Try again then."
                raise RetryableError(message, hint=hint)

    def _receive(self) -> Iterator[Any]:
        """Wait for a record, and yield it with those that have arrived together with it."""
        first = self._consumer.poll(_POLL_S)
        if first is not None:
            yield first
            yield from self._consumer.consume(_RECORDS_AT_ONCE, 0)

    def _read_log_end(self) -> int:
        from confluent_kafka import TopicPartition

        place = TopicPartition(TOPIC, 0)
        return cast("int", self._consumer.get_watermark_offsets(place, cached=True)[1])

    def _read_stable_offset(self) -> int:
        from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

        if self._consumer is None:
            self._consumer = Consumer(reveal_secrets({**self._settings, **_READING}))
        try:
            place = TopicPartition(TOPIC, 0)
            return read_watermarks(self._consumer, place, self._settings)[1]
        except KafkaException as error:
            missing = {KafkaError._UNKNOWN_PARTITION, KafkaError._UNKNOWN_TOPIC, KafkaError.UNKNOWN_TOPIC_OR_PART}
            cause = error.args[0]
            if cause.code() in missing and (cause := self._find_hidden_error()) is None:
                self.close()  # This client has cached that the topic is missing.
                return _MISSING
            raise translate_ledger_error(cause, self._settings, f"reading {TOPIC}", self._cluster) from error

    def _find_hidden_error(self) -> Any:
        """Return an error if the ledger is hidden, which the client reports as missing."""
        from confluent_kafka import KafkaError, KafkaException

        if not self._is_needed():
            return None
        try:
            error = self._consumer.list_topics(TOPIC, _ANSWER_S).topics[TOPIC].error
        except KafkaException as failed:
            return failed.args[0]
        return error if error is not None and error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED else None


def read_start_offsets(
    settings: Mapping[str, Any], cluster: str, places: Iterable[tuple[str, int]]
) -> dict[tuple[str, int], int]:
    """Return the first offsets of partitions."""
    from confluent_kafka import Consumer, KafkaException, TopicPartition

    consumer: Any = Consumer(reveal_secrets({**settings, **_READING}))
    try:
        return {place: read_watermarks(consumer, TopicPartition(*place), settings)[0] for place in places}
    except KafkaException as error:
        raise translate_ledger_error(error.args[0], settings, "looking where partitions begin", cluster) from error
    finally:
        consumer.close()


class LedgerWriter:
    """Transactional producer. A new one fences earlier producers with its id."""

    def __init__(
        self, settings: Mapping[str, Any], transactional_id: str, cluster: str, *, patience_s: float = WAIT_S
    ) -> None:
        from confluent_kafka import Producer

        how = {
            "transactional.id": transactional_id,
            "linger.ms": 0,
            "transaction.timeout.ms": TRANSACTION_MS,
            # A client that connects only as needed waits 60 or 500 ms before it asks for its coordinator.
            "enable.sparse.connections": False,
            **_QUICKLY,
        }
        self._producer, self._settings, self._cluster = Producer(reveal_secrets({**settings, **how})), settings, cluster
        self._patience_s = patience_s
        self._call(self._producer.init_transactions, SLICE_S)

    def write(self, topic: str, messages: Sequence[tuple[bytes, bytes | None]]) -> None:
        """Write records to partition 0 of a topic in one transaction.

        Raises:
            ProducerFencedError: A newer producer of this id exists; nothing was written.
            RetryableError: The cluster does not respond; the records may have been written.
        """
        self._call(self._producer.begin_transaction)
        for key, value in messages:
            self._call(self._producer.produce, topic, key=key, value=value, partition=0)
        self._call(self._producer.commit_transaction, SLICE_S)

    def _call(self, call: Callable[..., Any], *arguments: Any, **options: Any) -> None:
        from confluent_kafka import KafkaException

        try:
            repeat_patiently(
                partial(call, *arguments, **options),
                self._settings,
                doing=_WRITING,
                cluster=self._cluster,
                patience_s=self._patience_s,
            )
        except (KafkaException, SystemError) as error:
            if (cause := find_cause(error)) is None:
                raise
            cause = find_original_error(self._producer, cause)
            if cause.txn_requires_abort():
                with suppress(KafkaException):
                    self._producer.abort_transaction(_ANSWER_S)
            raise translate_ledger_error(cause, self._settings, _WRITING, self._cluster) from error


def repeat_patiently(
    call: Callable[[], object], settings: Mapping[str, Any], *, doing: str, cluster: str, patience_s: float = WAIT_S
) -> None:
    """Repeat a call of a transactional producer until it succeeds, fails permanently, or reaches no broker."""
    from confluent_kafka import KafkaException

    until = monotonic() + patience_s
    while True:
        try:
            call()
        except KafkaException as error:
            if not error.args[0].retriable() or monotonic() > until:
                raise
            check_can_recover(settings, doing=doing, cluster=cluster)
        else:
            return


def is_fenced(error: Any) -> bool:
    """Return whether a newer producer has the id, or brokers have dropped it as idle."""
    from confluent_kafka import KafkaError

    return error.code() in {
        KafkaError._FENCED,
        KafkaError.PRODUCER_FENCED,
        KafkaError.INVALID_PRODUCER_EPOCH,
        KafkaError.INVALID_PRODUCER_ID_MAPPING,
    }


def translate_ledger_error(error: Any, settings: Mapping[str, Any], doing: str, cluster: str) -> ReconcilerError:
    """Translate an error of a ledger client."""
    if is_fenced(error):
        message = f"{doing} on cluster {cluster}: {error.str()}"
        return ProducerFencedError(message, hint="Another process took over: run the same command again.")
    return translate_record_error(error, settings, doing=doing, cluster=cluster)


TOPIC: Final = LEDGER
CONFIGS: Final = {
    "cleanup.policy": "compact",
    "segment.bytes": str(16 << 20),
    "min.cleanable.dirty.ratio": "0.1",
    # A reader with a cache of up to seven days receives all tombstones.
    "delete.retention.ms": str(7 * 86_400_000),
}
REPLICAS: Final = 3

LINK_ENTRY: Final = "link"
MIRROR_ENTRY: Final = "mirror"
PROGRESS: Final = "progress"
MAP: Final = "map"
REKEYED: Final = "rekeyed"
STATES: Final = (LINK_ENTRY, MIRROR_ENTRY)
COPIES: Final = (*STATES, PROGRESS, MAP)
OWNER: Final = "owner"
"""Kind of a resource's owner, keyed `topic/<broker name>`, `namespace/<prefix>` or `link/<name>`."""
WORKSPACE: Final = "workspace"
"""Kind of a workspace that owns resources, keyed by the lineage of its state."""
OWNERS_WRITER: Final = "reconciler.owners"
"""Transactional id for owners and workspaces. A fenced concurrent writer decides again."""
_LARGE: Final = frozenset({PROGRESS, MAP, REKEYED})
"""Kinds that grow with every copy. All other kinds are fully cached."""

Key: TypeAlias = tuple[str | int, ...]
Value: TypeAlias = "Mapping[str, Any]"
Entries: TypeAlias = "Mapping[Key, Value]"
Changes: TypeAlias = "Mapping[Key, Value | None]"
"""Entries to write; `None` removes an entry."""
_ATTEMPTS: Final = 20
_PAUSE_S: Final = 0.02


def link_key(name: str) -> Key:
    """Return the ledger key of a link."""
    return (LINK_ENTRY, name)


def mirror_key(topic: str) -> Key:
    """Return the ledger key of a mirror with this flat name."""
    return (MIRROR_ENTRY, topic)


def progress_key(topic: str, partition: int) -> Key:
    """Return the ledger key of a partition's progress."""
    return (PROGRESS, topic, partition)


def map_key(topic: str, partition: int, chunk: int) -> Key:
    """Return the ledger key of a chunk of a partition's offset map."""
    return (MAP, topic, partition, chunk)


def build_writer_id(link: str) -> str:
    """Return the transactional id for writing a link's and its mirrors' entries."""
    return f"reconciler.link.{link}"


def build_copier_id(link_id: str, topic: str, partition: int) -> str:
    """Return the transactional id for copying a mirror's partition."""
    return f"reconciler.{link_id}.{topic}.{partition}"


def encode_entry(key: Key, value: Value | None) -> tuple[bytes, bytes | None]:
    """Return an entry as a record's key and value; a `None` value is a tombstone."""
    return _encode_json(list(key)), None if value is None else _encode_json(value)


def parse_key(key: bytes) -> Key | None:
    """Return the ledger key that a record's key encodes; `None` if another program wrote it."""
    try:
        parts = orjson.loads(key)
    except ValueError:
        return None
    is_place = isinstance(parts, list) and len(parts) > 1 and all(isinstance(part, str | int) for part in parts)
    return tuple(parts) if is_place and orjson.dumps(parts) == key else None


def parse_value(key: Key, value: bytes) -> Value:
    """Return the entry that a record's value encodes.

    Raises:
        UserError: Another program wrote the value.
    """
    try:
        entry: Value = json.loads(value)  # Numbers may exceed 64 bits, which orjson rounds.
    except ValueError as error:
        raise foreign_entry_error(key, error) from error
    return entry


def foreign_entry_error(key: Key, error: Exception) -> UserError:
    """Return the error for a ledger entry of another program."""
    text = _encode_json(list(key)).decode()
    message = f"topic {TOPIC} has an entry {text} that reconciler did not write: {error!r} in it"
    hint = f"Only reconciler may write there. Remove it by a record with the key {text} and no value."
    return UserError(message, hint=hint)


def _encode_json(document: object) -> bytes:
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


@dataclass
class _CachedEntries:
    reader: LedgerReader
    entries: dict[Key, Value] = field(default_factory=dict)
    unparsed: dict[bytes, bytes | None] = field(default_factory=dict)
    """Last values of records that are read, but not in `entries`. Earlier values of a key are never parsed."""
    started_reads: int = 0
    completed_reads: int = 0

    def read_new(self, unwanted: AbstractSet[str | int]) -> None:
        """Bring `entries` up to date, without the kinds in `unwanted`."""
        prefixes = tuple(f'["{kind}",'.encode() for kind in unwanted)
        for name, value in self.reader.read_new(self._clear):
            if not name.startswith(prefixes):
                self.unparsed[name] = value
        while self.unparsed:
            name, value = next(iter(self.unparsed.items()))
            if (key := parse_key(name)) is not None:
                if value is None:
                    self.entries.pop(key, None)
                else:
                    self.entries[key] = parse_value(key, value)
            del self.unparsed[name]

    def _clear(self) -> None:
        self.entries.clear()
        self.unparsed.clear()


@dataclass
class Ledger:
    """Ledger of one cluster. Thread-safe; pickling drops the cache.

    `create` creates a missing topic. Reads of a hidden topic raise if `is_needed`, or return nothing.
    """

    settings: Mapping[str, Any]
    cluster: str
    create: Callable[[], None] | None = None
    is_needed: Callable[[], bool] = lambda: True
    _reads: dict[frozenset[str | int], _CachedEntries] = field(default_factory=dict, repr=False, compare=False)
    _writers: dict[str, LedgerWriter] = field(default_factory=dict, repr=False, compare=False)
    _read_lock: Any = field(default_factory=threading.Lock, repr=False, compare=False)
    _write_lock: Any = field(default_factory=threading.Lock, repr=False, compare=False)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (dict(self.settings), self.cluster)

    def read(self, *kinds: str) -> Entries:
        """Return the committed entries of `kinds` (default `STATES`); empty if the topic does not exist.

        Raises:
            RetryableError: The cluster does not respond, or a transaction stays open.
            NotAuthorizedError: The ledger may not be described.
        """
        wanted = frozenset(kinds or STATES)
        large = wanted & _LARGE
        before = self._reads.get(large)
        started_reads = 0 if before is None else before.started_reads
        with self._read_lock:
            known = self._reads.get(large)
            if known is None:
                known = self._reads[large] = _CachedEntries(
                    LedgerReader(self.settings, self.cluster, is_needed=self.is_needed)
                )
            # A read that another thread began and completed meanwhile is recent enough.
            if known.completed_reads <= started_reads:
                known.started_reads += 1
                known.read_new(_LARGE - large)
                known.completed_reads = known.started_reads
            return {place: entry for place, entry in known.entries.items() if place[0] in wanted}

    def change(
        self, writer: str, decide: Callable[[Entries], Changes], *kinds: str, patience_s: float = WAIT_S
    ) -> Entries:
        """Decide on current entries, write the changes in one transaction, and return the new entries.

        `decide` is called again after a lost race; if it raises, nothing is written. It receives the entries of `kinds`
        (default `STATES`). `patience_s` limits each wait for brokers.

        Raises:
            RetryableError: Every race was lost, or the cluster does not respond.
        """
        with self._write_lock:
            for attempt in range(_ATTEMPTS):
                if writer not in self._writers and not decide(entries := self.read(*kinds)):
                    return entries  # Without a change, no writer is opened, which would fence others.
                self._create_topic()
                try:
                    return self._change_once(writer, decide, kinds, patience_s)
                except BaseException as error:
                    # The failed writer is dropped, because its transaction may be open.
                    self._writers.pop(writer, None)
                    if not isinstance(error, ProducerFencedError):
                        raise
                # Two processes with equal pauses could fence each other forever, so pauses are random.
                pause(shorten_randomly(2 * _PAUSE_S * (attempt + 1), 0.5))
        message = f"{TOPIC} of cluster {self.cluster}: another process keeps writing as {writer} all the time"
        raise RetryableError(message, hint="Run the same command again.")

    def close(self) -> None:
        """Close the connections until the next call."""
        with self._write_lock, self._read_lock:
            self._writers.clear()
            for known in self._reads.values():
                known.reader.close()

    def _change_once(
        self, writer: str, decide: Callable[[Entries], Changes], kinds: tuple[str, ...], patience_s: float
    ) -> Entries:
        if writer not in self._writers:
            self._writers[writer] = LedgerWriter(self.settings, writer, self.cluster, patience_s=patience_s)
        entries = self.read(*kinds)  # A writer that begins after this read fences this one, so `entries` are current.
        changes = decide(entries)
        if not changes:
            return entries
        self._writers[writer].write(TOPIC, [encode_entry(key, value) for key, value in changes.items()])
        unchanged = {key: value for key, value in entries.items() if key not in changes}
        return {**unchanged, **{key: value for key, value in changes.items() if value is not None}}

    def _create_topic(self) -> None:
        if self.create is not None:
            self.create()
            self.create = None


def parse_owners(entries: Entries) -> Owners:
    """Return the owners of resources, and the workspaces, from ledger entries."""
    who = {str(key[1]): ResourceOwner.from_json(value) for key, value in entries.items() if key[0] == WORKSPACE}
    return Owners(who, {str(key[1]): value["lineage"] for key, value in entries.items() if key[0] == OWNER})


_OWNERS_S: Final = 20.0
"""Limit of each wait for brokers before the first change of an apply."""


def record_owners(ledger: Ledger, change: OwnerChange) -> Mapping[str, ResourceOwner]:
    """Record owners in one transaction. If others own some resources, return these owners and write nothing."""
    refused: dict[str, ResourceOwner] = {}

    def decide(entries: Entries) -> Changes:
        nonlocal refused
        held = parse_owners(entries)
        changes, refused = change.compute_changes(held)
        if refused:
            return {}
        who = {} if not (changes or held.lineages_by_key) else change.find_changed_workspaces(held, changes)
        return {
            **{(WORKSPACE, lineage): None if owner is None else owner.to_json() for lineage, owner in who.items()},
            **{
                (OWNER, key): None if owner_lineage is None else {"lineage": owner_lineage}
                for key, owner_lineage in changes.items()
            },
        }

    if not decide(ledger.read(OWNER, WORKSPACE)):
        return refused
    try:
        ledger.change(OWNERS_WRITER, decide, OWNER, WORKSPACE, patience_s=_OWNERS_S)
    except RetryableError as error:
        hint = "See transaction.state.log.replication.factor of the brokers, and whether they are alive."
        raise UserError(f"it can be read, but no transaction writes it: {error.message}", hint=hint) from error
    return refused
