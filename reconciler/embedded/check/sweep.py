"""Delete unreferenced objects.

Objects are listed before references are read, so later objects are safe. An unreadable reference stops the sweep: a
seemingly unreferenced object may be a last copy. Objects of partitions without a head stay.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

import orjson

from reconciler.archives.objects import retry_if_missing
from reconciler.archives.pages import iter_all_pages, read_page
from reconciler.embedded.catalog.commits import (
    CatalogRegister,
    catalog_register,
    find_catalog_trace,
    list_referenced_keys,
    lost_catalog_error,
)
from reconciler.embedded.check.stored import IMMUTABLE, HeadlessPartitions, ObjectIndex, list_store
from reconciler.embedded.keys import job_results_key, parse_head_key
from reconciler.embedded.objects import read_cluster_id
from reconciler.embedded.segments.gate import remove_partition
from reconciler.embedded.segments.head import Head, head_register, list_heads, parse_head, read_head
from reconciler.embedded.tiered.remote_sweep import sweep_remote
from reconciler.embedded.tiered.remote_tier import RemoteTier, build_remote_tier
from reconciler.errors import UserError
from reconciler.runtime.dataclass import dataclass
from reconciler.runtime.text import pluralize
from reconciler.runtime.threads import map_in_parallel

if TYPE_CHECKING:
    from reconciler.objectstore.base import ListedObject, ObjectStore


MIN_AGE_MS: Final = 24 * 60 * 60 * 1000
"""Minimum age of deleted objects by the store's clock; writers reference an object within half a day."""
RECENT_MS: Final = 6 * 60 * 60 * 1000
_JOB: Final = "sweep"
_FORMAT: Final = "reconciler.runner/1"
_BATCH: Final = 1000


@dataclass(frozen=True, slots=True)
class SweptPartition:
    """A deleted topic's partition that the sweep deleted."""

    topic_id: str
    number: int
    records: int

    def __str__(self) -> str:
        records = pluralize(self.records, "record")
        return f"deleted partition {self.number} of topic id {self.topic_id}, which was deleted: {records}"


@dataclass(frozen=True, slots=True)
class SweepResult:
    """Result of a sweep; `bytes` is the stored size."""

    objects: int = 0
    bytes: int = 0
    partitions: tuple[SweptPartition, ...] = ()


def sweep_store(
    store: ObjectStore, catalog: CatalogRegister, *, unless_recent: bool = False, storage: ObjectStore | None = None
) -> SweepResult:
    """Delete unreferenced objects older than a day. Repeatable, and safe while writers are active.

    `unless_recent` skips the sweep if the last one was within six hours.
    """
    now_ms = store.read_clock_ms()
    if unless_recent and now_ms - _read_last_sweep_ms(store) < RECENT_MS:
        return SweepResult()
    old_ms = now_ms - MIN_AGE_MS
    contents, stored = list_store(store)
    if contents.storages:
        raise _shared_root_error(store, contents.storages[0])
    heads = list(list_heads(store))
    stored.mark_referenced(_read_keys_in_catalog(store))
    for named in map_in_parallel(lambda listed: _read_keys_in_head(store, listed.key), heads, name="sweep"):
        stored.mark_referenced(named)
    swept = _remove_unknown_partitions(store, catalog, (listed for listed in heads if listed.modified_ms < old_ms))
    objects, size = swept.objects, swept.bytes
    # If a head was deleted by hand, its parts are the only copy of acknowledged records.
    headless = HeadlessPartitions.of(catalog.read(), (listed.key for listed in heads))
    for batch in _split_into_batches(
        listed_object
        for listed_object in _iter_old_unnamed(store, stored, old_ms)
        if not headless.find_partitions(listed_object.key)
    ):
        store.delete(listed.key for listed in batch)
        objects += len(batch)
        size += sum(listed.size for listed in batch)
    remote = _make_remote_tier(store, catalog, storage)
    if remote is not None:
        remote_objects, remote_size = sweep_remote(store, remote, catalog)
        objects, size = objects + remote_objects, size + remote_size
    _store_sweep_time(store, now_ms)
    return SweepResult(objects, size, swept.partitions)


def _make_remote_tier(store: ObjectStore, catalog: CatalogRegister, storage: ObjectStore | None) -> RemoteTier | None:
    cluster_id = None if storage is None else read_cluster_id(store)
    return None if cluster_id is None else build_remote_tier(storage, cluster_id, catalog.read().cluster)


def _shared_root_error(store: ObjectStore, key: str) -> UserError:
    return UserError(
        f"{store.url} is a cluster's root, and an object storage too: it holds {key}. Nothing is swept",
        hint="Give objectStorage a location of its own: a sweep of this one would delete tiered records.",
    )


def _read_last_sweep_ms(store: ObjectStore) -> int:
    stored = store.get(job_results_key(_JOB))
    try:
        return 0 if stored is None else int(orjson.loads(gzip.decompress(stored.body))["at_ms"])
    except (OSError, EOFError, zlib.error, ValueError, KeyError, TypeError):
        return 0


def _store_sweep_time(store: ObjectStore, at_ms: int) -> None:
    body = orjson.dumps({"format": _FORMAT, "at_ms": at_ms})
    store.put(job_results_key(_JOB), gzip.compress(body, compresslevel=1, mtime=0))


def _iter_old_unnamed(store: ObjectStore, stored: ObjectIndex, old_ms: int) -> Iterator[ListedObject]:
    for prefix in () if stored.are_all_referenced else IMMUTABLE:
        for listed in stored.find_unreferenced(store.list(prefix)):
            if listed.modified_ms < old_ms:
                yield listed


def _split_into_batches(objects: Iterable[ListedObject]) -> Iterator[list[ListedObject]]:
    batch: list[ListedObject] = []
    for listed in objects:
        batch.append(listed)
        if len(batch) == _BATCH:
            yield batch
            batch = []
    if batch:
        yield batch


def _read_keys_in_catalog(store: ObjectStore) -> list[str]:
    held = catalog_register(store).read()
    if held is None:
        trace = find_catalog_trace(store)
        if trace is not None:
            raise lost_catalog_error(store, trace)
        return []
    return list_referenced_keys(store, held)


def _read_keys_in_head(store: ObjectStore, key: str) -> list[str]:
    topic_id, partition = parse_head_key(key)

    def read_keys() -> list[str]:
        head = read_head(store, topic_id, partition)
        return [] if head is None else _read_keys(store, head)

    return retry_if_missing(read_keys)


def _read_keys(store: ObjectStore, head: Head) -> list[str]:
    named = [entry.key for entry in head.entries]
    for page in iter_all_pages(store, head):
        named.append(page.key)
        if page.level == 0:
            # Retention may have deleted parts below the log's start.
            named += [entry.key for entry in read_page(store, page) if entry.last >= head.start]
    return named


def _remove_unknown_partitions(
    store: ObjectStore, catalog: CatalogRegister, heads: Iterable[ListedObject]
) -> SweepResult:
    """Keep acknowledged records: their topics may be unknown because an older catalog was restored."""
    read = catalog.read()
    known = {entry.id for entry in read.topics.values()} | set(read.deletions)
    objects = size = 0
    partitions: list[SweptPartition] = []
    for listed in heads:
        topic_id, partition = parse_head_key(listed.key)
        held = None if topic_id in known else head_register(store, topic_id, partition).read()
        head = None if held is None else parse_head(store, listed.key, held.value)
        if held is None or head is None or head.may_be_acknowledged(held.epoch):
            continue
        remove_partition(store, topic_id, partition)
        objects += 1 + len(head.pages) + len(head.entries)
        size += listed.size + head.stored_bytes
        partitions.append(SweptPartition(topic_id, partition, head.records))
    return SweepResult(objects, size, tuple(partitions))
