"""Find the partitions that need a job, and store the results of a pass.

`runner/<job>.json.gz` stores each head's hint (its listed version), a fingerprint of its topic's configs, and when to
check it again.
Without this file a pass reads every head.
"""

from __future__ import annotations

import gzip
import hashlib
import threading
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import orjson

from reconciler.embedded.catalog.tables import Catalog, is_closed
from reconciler.embedded.keys import head_key, job_results_key, parse_head_key
from reconciler.embedded.segments.head import Head, Partition, list_heads, read_head
from reconciler.embedded.segments.retention import CleanupPolicy, read_cleanup_policy
from reconciler.errors import OwnershipLostError, ReconcilerError
from reconciler.objectstore.base import check_shape
from reconciler.runtime.dataclass import dataclass, field

if TYPE_CHECKING:
    from reconciler.objectstore.base import ObjectStore


_FORMAT: Final = "reconciler.runner/1"


def load_results(store: ObjectStore, job: str) -> tuple[dict[str, list[Any]], dict[str, Any]]:
    """Return a job's stored rows and notes; empty if missing or damaged."""
    stored = store.get(job_results_key(job))
    if stored is None:
        return {}, {}
    try:
        content = orjson.loads(gzip.decompress(stored.body))
        check_shape(content, {"format": str, "rows": {str: list}, "notes?": dict})
        return (content["rows"], content.get("notes", {})) if content["format"] == _FORMAT else ({}, {})
    except (OSError, EOFError, zlib.error, ValueError, TypeError):
        return {}, {}


def store_results(store: ObjectStore, job: str, rows: Mapping[str, list[Any]], notes: Mapping[str, Any]) -> None:
    """Store rows and notes for the next pass."""
    content = {"format": _FORMAT, "rows": dict(sorted(rows.items())), "notes": notes}
    store.put(job_results_key(job), gzip.compress(orjson.dumps(content), compresslevel=1, mtime=0))


_FINGERPRINT: Final = 8
_MAX_CACHED_HEADS: Final = 2_000
"""Maximum heads in memory; jobs read further heads themselves."""


@dataclass(frozen=True, slots=True)
class SurveyedPartition:
    """A partition with a head, and its topic's cleanup policy."""

    partition: Partition
    policy: CleanupPolicy
    key: str
    hint: str
    is_changed: bool = False
    """Whether this pass changed the head after listing it."""


class HeadCache:
    """Heads that the jobs of a pass share. Thread-safe."""

    def __init__(self) -> None:
        self._read: dict[tuple[str, str], Head | None] = {}
        self._listed: list[tuple[str, str]] = []
        self._changes: dict[str, int] = {}
        """How often this pass changed each listed head."""
        self._jobs: set[str] = set()

    def list_heads(self, store: ObjectStore, job: str) -> Iterator[tuple[str, str, bool]]:
        """Yield every head's key and hint, and whether this pass changed the head since.

        A repeated job begins a new pass.
        """
        if not self._jobs or job in self._jobs:
            self._listed = [(listed.key, listed.hint) for listed in list_heads(store)]
            self._changes.clear()
            self._jobs.clear()
        self._jobs.add(job)
        for key, hint in self._listed:
            changes = self._changes.get(key, 0)
            yield key, f"{hint}+{changes}" if changes else hint, changes > 0

    def mark_changed(self, partition: Partition) -> None:
        """Record that this pass changes a head."""
        key = head_key(partition.topic_id, partition.number)
        self._changes[key] = self._changes.get(key, 0) + 1

    def read_head(self, store: ObjectStore, surveyed: SurveyedPartition) -> Head | None:
        """Return the listed head or a newer one; `None` if deleted."""
        known = (surveyed.key, surveyed.hint)
        if known in self._read:
            return self._read[known]
        head = read_head(store, surveyed.partition.topic_id, surveyed.partition.number)
        if len(self._read) < _MAX_CACHED_HEADS:
            self._read[known] = head
        return head


@dataclass(slots=True)
class Survey:
    """Partitions that a job must check, and its results. Recording is thread-safe."""

    store: ObjectStore
    cluster_id: str
    job: str
    rows: dict[str, list[Any]] = field(default_factory=dict)
    """Results by head key: `[hint, configs' fingerprint, next due in ms or null]`."""
    notes: dict[str, Any] = field(default_factory=dict)
    _kept: dict[str, list[Any]] = field(default_factory=dict)
    _noted: bytes = b"{}"

    @classmethod
    def load(cls, store: ObjectStore, cluster_id: str, job: str) -> Survey:
        """Load a job's last results; empty if missing or damaged."""
        rows, notes = load_results(store, job)
        return cls(store, cluster_id, job, rows, notes, {}, orjson.dumps(notes))

    def find_due_partitions(
        self, catalog: Catalog, heads: HeadCache, is_wanted: Callable[[str, CleanupPolicy], bool], *, now_ms: int
    ) -> Iterator[SurveyedPartition]:
        """Yield the partitions of wanted topics that the job must check now."""
        names = {entry.id: name for name, entry in catalog.topics.items()}
        policies: dict[str, tuple[CleanupPolicy, str] | None] = {}
        for key, hint, is_changed in heads.list_heads(self.store, self.job):
            topic_id, number = parse_head_key(key)
            name = names.get(topic_id)
            if name is None:
                continue  # The head's topic is being deleted.
            if is_closed(catalog.topics[name]) or catalog.topics[name].replica is not None:
                continue  # The migration, or the source's cluster, maintains this partition.
            if topic_id not in policies:
                policy = read_cleanup_policy(catalog, name, self.cluster_id)
                policies[topic_id] = (policy, _fingerprint(policy)) if is_wanted(name, policy) else None
            wanted, row = policies[topic_id], self.rows.get(key)
            if wanted is None:
                if row is not None:
                    self._kept[key] = row
                continue
            policy, fingerprint = wanted
            is_known = row is not None and not is_changed and row[:2] == [hint, fingerprint]
            if row is not None and is_known and (row[2] is None or row[2] > now_ms):
                self._kept[key] = row
                continue
            yield SurveyedPartition(Partition(name, topic_id, number), policy, key, hint, is_changed=is_changed)

    def record_due_time(self, surveyed: SurveyedPartition, due_ms: int | None) -> None:
        """Record that nothing is due before `due_ms` unless the head changes."""
        if not surveyed.is_changed:  # If this pass changed the head, the listed hint is outdated.
            self._kept[surveyed.key] = [surveyed.hint, _fingerprint(surveyed.policy), due_ms]

    def store_if_changed(self) -> None:
        """Store the results if they changed."""
        noted = orjson.dumps(self.notes)
        if self._kept == self.rows and noted == self._noted:
            return
        store_results(self.store, self.job, self._kept, self.notes)
        self.rows, self._kept, self._noted = self._kept, {}, noted


def _fingerprint(policy: CleanupPolicy) -> str:
    return hashlib.sha256(repr(policy).encode()).hexdigest()[:_FINGERPRINT]


_NAMED: Final = 100


@dataclass(slots=True)
class MaintenanceResult:
    """Result of one job; `records` and `bytes` were removed, rolled or uploaded."""

    partitions: int = 0
    records: int = 0
    bytes: int = 0
    failed: int = 0
    errors: list[ReconcilerError] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter, compare=False)
    """Counters, by names in `resources.vitals.COUNTER_HELP`."""
    levels: Mapping[str, float] = field(default_factory=dict, compare=False)
    """Gauges, by names in `resources.vitals.LEVELS`."""
    lost: set[str] = field(default_factory=set, repr=False, compare=False)
    """Topics of other clusters that this pass has reported."""
    _counted: set[Partition] = field(default_factory=set, repr=False, compare=False)
    _failed: set[Partition | str] = field(default_factory=set, repr=False, compare=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    def count_work(self, *, records: int, stored: int, partition: Partition | None = None) -> None:
        """Add records and stored bytes; count `partition` once."""
        self.partitions += partition is None or partition not in self._counted
        if partition is not None:
            self._counted.add(partition)
        self.records += records
        self.bytes += stored

    def record_failure(self, failed_item: Partition | str, error: ReconcilerError) -> None:
        """Count a failed partition or named item. Thread-safe.

        A topic of another cluster is reported once.
        """
        is_lost = isinstance(error, OwnershipLostError)
        where = failed_item if isinstance(failed_item, str) else failed_item.full_name if is_lost else str(failed_item)
        error.add_subject(where)
        with self._lock:
            self._failed.add(failed_item)
            if is_lost and where in self.lost:
                return
            if is_lost:
                self.lost.add(where)
            self.failed += 1
            if len(self.errors) < _NAMED:
                self.errors.append(error)

    def has_failed(self, partition: Partition) -> bool:
        """Whether a partition had an error. Thread-safe."""
        with self._lock:
            return partition in self._failed

    def record_abort(self, error: ReconcilerError) -> None:
        """Record the error that stopped the job."""
        self.failed += 1
        self.errors.append(error)
