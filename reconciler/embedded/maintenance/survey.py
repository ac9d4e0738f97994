"""Find the partitions that need a job, and remember what a pass found.

One listing of the heads, which all jobs of a pass share, tells which have changed. What a look at a head found is
remembered in `runner/<job>.json.gz`: the head's hint in the listing, a fingerprint of the topic's configs, and when the
job must look again although nothing was written. Losing it costs one look at every head.
"""

from __future__ import annotations

import gzip
import hashlib
import threading
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import orjson

from reconciler.embedded.catalog.tables import Catalog, is_closed
from reconciler.embedded.keys import head_key, partition_of_head, runner_key
from reconciler.embedded.segments.head import Head, Partition, list_heads, read_head
from reconciler.embedded.segments.retention import CleanupPolicy, cleanup_policy
from reconciler.errors import OwnershipLostError, ReconcilerError
from reconciler.objectstore.base import check_shape

if TYPE_CHECKING:
    from reconciler.objectstore.base import ObjectStore


# What a job of upkeep keeps for its next pass, in `runner/<job>.json.gz`: a cache, which may be lost at any time.


_FORMAT: Final = "reconciler.runner/1"


def remembered(store: ObjectStore, job: str) -> tuple[dict[str, list[Any]], dict[str, Any]]:
    """Return the rows and the notes that a job left; none where they are lost, damaged, or of another format."""
    stored = store.get(runner_key(job))
    if stored is None:
        return {}, {}
    try:
        content = orjson.loads(gzip.decompress(stored.body))
        check_shape(content, {"format": str, "rows": {str: list}, "notes?": dict})
        return (content["rows"], content.get("notes", {})) if content["format"] == _FORMAT else ({}, {})
    except (OSError, EOFError, zlib.error, ValueError, TypeError):
        return {}, {}  # It is only a cache: all is looked at once more.


def remember(store: ObjectStore, job: str, rows: Mapping[str, list[Any]], notes: Mapping[str, Any]) -> None:
    """Keep rows and notes for the next pass."""
    content = {"format": _FORMAT, "rows": dict(sorted(rows.items())), "notes": notes}
    store.put(runner_key(job), gzip.compress(orjson.dumps(content), compresslevel=1, mtime=0))


_FINGERPRINT: Final = 8
_REMEMBERED: Final = 2_000
"""Heads kept in memory; of more, each job reads its own."""


@dataclass(frozen=True, slots=True)
class SurveyedPartition:
    """A partition that was ever written, and what its topic's configs ask of upkeep."""

    partition: Partition
    policy: CleanupPolicy
    key: str
    """Of its head."""
    hint: str
    """Changes whenever the head does."""
    is_changed: bool = False
    """Whether this pass changed it since it was listed."""


class HeadCache:
    """Heads as one pass sees them: jobs that follow each other list them once and look at the same ones.

    Safe from any thread.
    """

    def __init__(self) -> None:
        """Remember nothing yet."""
        self._read: dict[tuple[str, str], Head | None] = {}
        self._listed: list[tuple[str, str]] = []
        self._changes: dict[str, int] = {}
        """How often each head was changed since it was listed."""
        self._jobs: set[str] = set()

    def listed(self, store: ObjectStore, job: str) -> Iterator[tuple[str, str, bool]]:
        """Yield key and hint of every head as the first job of the pass found them, and whether it was changed since.

        A job that is done once more begins another pass.
        """
        if not self._jobs or job in self._jobs:
            self._listed = [(listed.key, listed.hint) for listed in list_heads(store)]
            self._changes.clear()
            self._jobs.clear()
        self._jobs.add(job)
        for key, hint in self._listed:
            changes = self._changes.get(key, 0)
            yield key, f"{hint}+{changes}" if changes else hint, changes > 0

    def changed(self, partition: Partition) -> None:
        """Say that this pass changes a head: jobs that follow look at it, whatever was listed."""
        key = head_key(partition.topic_id, partition.number)
        self._changes[key] = self._changes.get(key, 0) + 1

    def read(self, store: ObjectStore, lying: SurveyedPartition) -> Head | None:
        """Return the head as it was listed, or newer; `None`: it is gone."""
        known = (lying.key, lying.hint)
        if known in self._read:
            return self._read[known]
        head = read_head(store, lying.partition.topic_id, lying.partition.number)
        if len(self._read) < _REMEMBERED:
            self._read[known] = head
        return head


@dataclass(slots=True)
class Survey:
    """What one job must look at, and what it remembers of that. `remember` is safe from any thread."""

    store: ObjectStore
    cluster_id: str
    job: str
    rows: dict[str, list[Any]] = field(default_factory=dict)
    """By key of a head: `[hint, fingerprint of the configs, next due in ms or null]`."""
    notes: dict[str, Any] = field(default_factory=dict)
    """What else the job remembers, by names of its own."""
    _kept: dict[str, list[Any]] = field(default_factory=dict)
    _noted: bytes = b"{}"

    @classmethod
    def begun(cls, store: ObjectStore, cluster_id: str, job: str) -> Survey:
        """Return what the last pass remembered; nothing where that is lost or damaged."""
        rows, notes = remembered(store, job)
        return cls(store, cluster_id, job, rows, notes, {}, orjson.dumps(notes))

    def due(
        self, catalog: Catalog, heads: HeadCache, asks: Callable[[str, CleanupPolicy], bool], *, now_ms: int
    ) -> Iterator[SurveyedPartition]:
        """Yield the partitions to look at now, of topics for which `asks` tells that the job has something to do."""
        names = {entry.id: name for name, entry in catalog.topics.items()}
        policies: dict[str, tuple[CleanupPolicy, str] | None] = {}
        for key, hint, is_changed in heads.listed(self.store, self.job):
            topic_id, number = partition_of_head(key)
            name = names.get(topic_id)
            if name is None:
                continue  # It is being deleted.
            if is_closed(catalog.topics[name]) or catalog.topics[name].replica is not None:
                continue  # Its migration alone looks after it, or the cluster of its source.
            if topic_id not in policies:
                policy = cleanup_policy(catalog, name, self.cluster_id)
                policies[topic_id] = (policy, _fingerprint(policy)) if asks(name, policy) else None
            asked, row = policies[topic_id], self.rows.get(key)
            if asked is None:
                if row is not None:
                    self._kept[key] = row
                continue
            policy, fingerprint = asked
            is_known = row is not None and not is_changed and row[:2] == [hint, fingerprint]
            if row is not None and is_known and (row[2] is None or row[2] > now_ms):
                self._kept[key] = row
                continue
            yield SurveyedPartition(Partition(name, topic_id, number), policy, key, hint, is_changed=is_changed)

    def remember(self, lying: SurveyedPartition, due_ms: int | None) -> None:
        """Remember that, while the head stays as it was listed, there is nothing to do before `due_ms`."""
        if not lying.is_changed:  # What it will be listed as is not known yet.
            self._kept[lying.key] = [lying.hint, _fingerprint(lying.policy), due_ms]

    def end(self) -> None:
        """Store what is remembered, where it has changed."""
        noted = orjson.dumps(self.notes)
        if self._kept == self.rows and noted == self._noted:
            return
        remember(self.store, self.job, self._kept, self.notes)
        self.rows, self._kept, self._noted = self._kept, {}, noted


def _fingerprint(policy: CleanupPolicy) -> str:
    return hashlib.sha256(repr(policy).encode()).hexdigest()[:_FINGERPRINT]


# What one job of a pass did, and what of it could not be done.


_NAMED: Final = 100


@dataclass(slots=True)
class MaintenanceResult:
    """What one job did; `records` and `bytes` are what it removed, of a roll what it wrote anew, of an upload those."""

    partitions: int = 0
    records: int = 0
    bytes: int = 0
    failed: int = 0
    errors: list[ReconcilerError] = field(default_factory=list)
    """At most a hundred of them."""
    counts: Counter[str] = field(default_factory=Counter, compare=False)
    """What it did with object storage, by the names of `resources.vitals.COUNTED`."""
    levels: Mapping[str, float] = field(default_factory=dict, compare=False)
    """What holds after it, by the names of `resources.vitals.LEVELS`."""
    lost: set[str] = field(default_factory=set, repr=False, compare=False)
    """Topics that are not ours any more, and were told: by the jobs of a pass that share it, once."""
    _counted: set[Partition] = field(default_factory=set, repr=False, compare=False)
    _failed: set[Partition | str] = field(default_factory=set, repr=False, compare=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    def count(self, *, records: int, stored: int, partition: Partition | None = None) -> None:
        """Count a partition that was tended; one that is named comes once, however often it was."""
        self.partitions += partition is None or partition not in self._counted
        if partition is not None:
            self._counted.add(partition)
        self.records += records
        self.bytes += stored

    def fail(self, tended: Partition | str, error: ReconcilerError) -> None:
        """Count a partition, or something else, that could not be tended. Safe from any thread.

        A topic that is not this cluster's any more counts once, with all of its partitions, whichever job finds it.
        """
        is_lost = isinstance(error, OwnershipLostError)
        where = tended if isinstance(tended, str) else tended.full_name if is_lost else str(tended)
        error.about(where)
        with self._lock:
            self._failed.add(tended)
            if is_lost and where in self.lost:
                return
            if is_lost:
                self.lost.add(where)
            self.failed += 1
            if len(self.errors) < _NAMED:
                self.errors.append(error)

    def has_failed(self, partition: Partition) -> bool:
        """Tell whether something of a partition could not be done. Safe from any thread."""
        with self._lock:
            return partition in self._failed

    def break_off(self, error: ReconcilerError) -> None:
        """Say what kept the rest from being done."""
        self.failed += 1
        self.errors.append(error)
