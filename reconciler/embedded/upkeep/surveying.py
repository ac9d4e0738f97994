"""Which partitions need a job's attention, without looking at all of them every time.

One listing of the heads tells which have changed. What a look at a head found is remembered in `runner/<job>.json.gz`:
the head's hint in the listing, a fingerprint of the topic's configs, and when the job must look again although nothing
was written. Losing it costs one look at every head.
"""

from __future__ import annotations

import gzip
import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import orjson

from reconciler.embedded.keys import HEADS, partition_of_head, runner_key
from reconciler.embedded.partition.head import read_head
from reconciler.embedded.partition.headswaps import Partition
from reconciler.embedded.upkeep.cleanup import cleanup_policy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from reconciler.embedded.catalog.tables import Catalog
    from reconciler.embedded.partition.head import Head
    from reconciler.embedded.upkeep.cleanup import CleanupPolicy
    from reconciler.objectstore.base import ObjectStore

_FORMAT: Final = "reconciler.runner/1"
_FINGERPRINT: Final = 8
_REMEMBERED: Final = 2_000
"""Heads kept in memory; of more, each job reads its own."""


@dataclass(frozen=True, slots=True)
class Lying:
    """A partition that was ever written, and what its topic's configs ask of upkeep."""

    partition: Partition
    policy: CleanupPolicy
    key: str
    """Of its head."""
    hint: str
    """Changes whenever the head does."""


class HeadCache:
    """Heads read during one pass: jobs that follow each other look at the same ones. Safe from any thread."""

    def __init__(self) -> None:
        """Remember nothing yet."""
        self._read: dict[tuple[str, str], Head | None] = {}

    def read(self, store: ObjectStore, lying: Lying) -> Head | None:
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
    _kept: dict[str, list[Any]] = field(default_factory=dict)

    @classmethod
    def begun(cls, store: ObjectStore, cluster_id: str, job: str) -> Survey:
        """Return what the last pass remembered; nothing where that is lost or damaged."""
        stored = store.get(runner_key(job))
        rows: dict[str, list[Any]] = {}
        if stored is not None:
            try:
                content = orjson.loads(gzip.decompress(stored.body))
                rows = content["rows"] if content["format"] == _FORMAT else {}
            except (OSError, EOFError, ValueError, KeyError, TypeError):
                rows = {}  # It is only a cache: every head is looked at once more.
        return cls(store, cluster_id, job, rows)

    def due(self, catalog: Catalog, asks: Callable[[str, CleanupPolicy], bool], *, now_ms: int) -> Iterator[Lying]:
        """Yield the partitions to look at now, of topics for which `asks` tells that the job has something to do."""
        names = {entry.id: name for name, entry in catalog.topics.items()}
        policies: dict[str, tuple[CleanupPolicy, str] | None] = {}
        for listed in self.store.list(HEADS):
            topic_id, number = partition_of_head(listed.key)
            name = names.get(topic_id)
            if name is None:
                continue  # It is being deleted.
            if topic_id not in policies:
                policy = cleanup_policy(catalog, name, self.cluster_id)
                policies[topic_id] = (policy, _fingerprint(policy)) if asks(name, policy) else None
            asked, row = policies[topic_id], self.rows.get(listed.key)
            if asked is None:
                if row is not None:
                    self._kept[listed.key] = row
                continue
            policy, fingerprint = asked
            if row is not None and row[:2] == [listed.hint, fingerprint] and (row[2] is None or row[2] > now_ms):
                self._kept[listed.key] = row
                continue
            yield Lying(Partition(name, topic_id, number), policy, listed.key, listed.hint)

    def remember(self, lying: Lying, due_ms: int | None) -> None:
        """Remember that, while the head stays as it was listed, there is nothing to do before `due_ms`."""
        self._kept[lying.key] = [lying.hint, _fingerprint(lying.policy), due_ms]

    def end(self) -> None:
        """Store what is remembered, where it has changed."""
        if self._kept == self.rows:
            return
        body = orjson.dumps({"format": _FORMAT, "rows": dict(sorted(self._kept.items()))})
        self.store.put(runner_key(self.job), gzip.compress(body, compresslevel=1, mtime=0))
        self.rows, self._kept = self._kept, {}


def _fingerprint(policy: CleanupPolicy) -> str:
    return hashlib.sha256(repr(policy).encode()).hexdigest()[:_FINGERPRINT]
