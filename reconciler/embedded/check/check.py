"""`cluster check`: list the store once, then check catalog, partitions, groups and transactions.

Memory: 16 bytes per object, and one partition per thread.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

from reconciler.archives.keys import CLUSTER
from reconciler.archives.storage import check_storage
from reconciler.embedded.catalog.commits import (
    CatalogRegister,
    catalog_register,
    find_catalog_trace,
    lost_catalog_message,
)
from reconciler.embedded.check.check_catalog import (
    CatalogReading,
    GroupCheck,
    OpenTransaction,
    TransactionCheck,
    read_catalog,
)
from reconciler.embedded.check.check_owners import check_ownership
from reconciler.embedded.check.check_partitions import (
    PartitionCheck,
    PartitionReport,
    TopicIndex,
    report_unreferenced_objects,
)
from reconciler.embedded.check.check_remote import RemoteCheck
from reconciler.embedded.check.damage import CheckFinding, CheckResult, FindingPlace, Kind, Severity
from reconciler.embedded.check.stored import HeadlessObjects, HeadlessPartitions, ObjectIndex, StoreListing, list_store
from reconciler.embedded.keys import CATALOG, GROUPS, HEADS, TRANSACTIONS, is_head_key
from reconciler.embedded.objects import read_cluster_id
from reconciler.errors import UserError
from reconciler.objectstore.wrappers import DamageCheckStore
from reconciler.runtime.dataclass import dataclass, field, replace
from reconciler.runtime.threads import CallPool

if TYPE_CHECKING:
    from reconciler.embedded.catalog.tables import Catalog
    from reconciler.objectstore.base import ObjectStore
    from reconciler.objectstore.register import Register


class CurrentTopics:
    """The current catalog's topics; it may be newer than the checked one. Thread-safe."""

    def __init__(self, store: ObjectStore, serial: int | None) -> None:
        self._catalog = CatalogRegister(store)
        self._serial = serial
        self._lock = threading.Lock()
        self._turned: tuple[str, TopicIndex] | None = None

    def read_topics(self) -> TopicIndex | None:
        """Return the topics; `None` if the catalog is unreadable or older than the checked one."""
        with self._lock:
            catalog = self._read_if_current()
            if catalog is None:
                return None
            if self._turned is None or self._turned[0] != catalog.id:
                self._turned = catalog.id, TopicIndex.of(catalog)
            return self._turned[1]

    def read_catalog(self) -> Catalog | None:
        """Return the catalog; `None` if unreadable or older than the checked one."""
        with self._lock:
            return self._read_if_current()

    def _read_if_current(self) -> Catalog | None:
        try:
            catalog = None if self._serial is None else self._catalog.read()
        except UserError:
            return None
        return catalog if catalog is not None and catalog.serial >= (self._serial or 0) else None


_LOOKS: Final = 3
_AT_ONCE: Final = 16
_DEEP_THREADS: Final = 4
"""Number of parallel reads of records; a 64 MiB part needs several times its size in memory."""


def check_cluster(store: ObjectStore, *, deep: bool = False, storage: ObjectStore | None = None) -> CheckResult:
    """Check every register and object of a cluster; `deep` also checks every record.

    Writers may be active, so problems are read again before they are reported.

    Raises:
        MendFirstError: A store rejects the credentials.
    """
    store = DamageCheckStore(store)
    storage = None if storage is None else DamageCheckStore(storage)
    contents, stored = list_store(store)
    checked = CheckResult(objects=contents.objects, stored_bytes=contents.bytes)
    checked.add(_check_cluster_file(store, checked))
    read = _read_stable_catalog(store)
    checked.add(read.findings)
    if read.catalog is not None:
        checked.serial = read.catalog.serial
        checked.namespaces, checked.topics = len(read.catalog.namespaces), len(read.catalog.topics)
    stored.mark_referenced(read.keys)
    present = CurrentTopics(store, checked.serial)
    remote = _make_remote_check(storage, read.catalog, checked.cluster_id, deep=deep)
    if remote is not None:
        owned = check_ownership(remote.storage, remote.cluster_id, present.read_catalog)
        checked.add(owned.findings)
        remote = replace(remote, lost=owned.lost)
    at_once = _DEEP_THREADS if deep else _AT_ONCE
    with ThreadPoolExecutor(at_once, thread_name_prefix="check") as threads:
        look = _ClusterCheck(store, contents, stored, read, CallPool(threads, 4 * at_once), present, remote=remote)
        ends = look.check_partitions(checked, deep=deep)
        committed = look.check_groups(checked, ends)
        look.check_transactions(checked)
    checked.add(_find_foreign_objects(contents))
    unnamed = report_unreferenced_objects(store, stored, look.find_headless(committed))
    checked.add(finding for finding in list(unnamed) if checked.is_sure or finding.kind is not Kind.UNNAMED)
    checked.findings.sort(key=_sort_key)
    return checked


def _make_remote_check(
    storage: ObjectStore | None, catalog: Catalog | None, cluster_id: str | None, *, deep: bool
) -> RemoteCheck | None:
    bound = None if catalog is None else catalog.cluster.storage_id
    if storage is None or bound is None or cluster_id is None:
        return None
    check_storage(storage, bound)
    if not deep:
        return RemoteCheck(storage, cluster_id)
    from reconciler.embedded.check.check_partitions import SegmentContentCheck  # noqa: PLC0415 - only this brings Arrow

    return RemoteCheck(storage, cluster_id, SegmentContentCheck(storage))


@dataclass(frozen=True, slots=True)
class _ClusterCheck:
    store: ObjectStore
    contents: StoreListing
    stored: ObjectIndex
    read: CatalogReading
    threads: CallPool
    present: CurrentTopics
    opened: list[OpenTransaction] = field(default_factory=list)
    remote: RemoteCheck | None = None

    def check_partitions(self, checked: CheckResult, *, deep: bool) -> dict[tuple[str, int], int]:
        known = None if self.read.catalog is None else TopicIndex.of(self.read.catalog)
        reader = None
        if deep:
            from reconciler.embedded.check.check_partitions import PartContentCheck  # noqa: PLC0415 - only this brings Arrow

            reader = PartContentCheck(self.store)
        look = PartitionCheck(self.store, self.stored, known, self.present.read_topics, reader, self.remote)
        ends: dict[tuple[str, int], int] = {}
        for looked in self.threads.map_calls(look.check_partition, self._iter_head_keys(checked)):
            _add_report(checked, looked)
            if looked.end is not None:
                ends[looked.topic_id, looked.partition] = looked.end
            for name, epoch in looked.transactions.items():
                self.opened.append(OpenTransaction(name, epoch, looked.topic_id, looked.partition))
        return ends

    def check_transactions(self, checked: CheckResult) -> None:
        look = TransactionCheck(self.store, self.store.read_clock_ms())
        for findings in self.threads.map_calls(look.check_transaction, self.contents.registers[TRANSACTIONS]):
            checked.transactions += 1
            checked.add(findings)
        for findings in self.threads.map_calls(look.check_open_transaction, self.opened):
            checked.add(findings)

    def find_headless(self, committed: set[tuple[str, int]]) -> HeadlessObjects | None:
        catalog = self.present.read_catalog()
        if catalog is None or self.stored.are_all_referenced:
            return None
        return HeadlessObjects(
            HeadlessPartitions.of(catalog, (listed.key for listed in self.store.list(HEADS))), committed
        )

    def check_groups(self, checked: CheckResult, ends: dict[tuple[str, int], int]) -> set[tuple[str, int]]:
        look = GroupCheck(self.store, self.present.read_topics, ends)
        for findings in self.threads.map_calls(look.check_group, self.contents.registers[GROUPS]):
            checked.groups += 1
            checked.add(findings)
        return look.headless

    def _iter_head_keys(self, checked: CheckResult) -> Iterator[str]:
        for key in self.contents.registers[HEADS]:
            if is_head_key(key):
                yield key
            else:
                checked.add(
                    [
                        CheckFinding(
                            Kind.FOREIGN,
                            f"{key} looks like a partition's head, but no partition has it",
                            FindingPlace(key),
                        )
                    ]
                )


def _add_report(checked: CheckResult, report: PartitionReport) -> None:
    checked.partitions += report.exists
    checked.pages += report.pages
    checked.parts += report.parts
    checked.records += report.records
    checked.segments += report.segments
    checked.remote_records += report.remote_records
    checked.add(report.findings)


def _check_cluster_file(store: ObjectStore, checked: CheckResult) -> Iterator[CheckFinding]:
    try:
        checked.cluster_id = read_cluster_id(store)
    except UserError as error:
        yield CheckFinding(Kind.CLUSTER_FILE, error.message, FindingPlace(CLUSTER))


def _read_stable_catalog(store: ObjectStore) -> CatalogReading:
    register = catalog_register(store)
    read = _read_once(register)
    for _ in range(_LOOKS - 1):
        if not any(finding.severity is Severity.ERROR for finding in read.findings):
            break
        read = _read_once(register)
    return read


def _read_once(register: Register) -> CatalogReading:
    try:
        held = register.read()
    except UserError as error:
        return CatalogReading(None, (), (CheckFinding(Kind.CATALOG_DAMAGED, error.message, FindingPlace(CATALOG)),))
    trace = find_catalog_trace(register.store) if held is None else None
    if trace is not None:
        return CatalogReading(
            None, (), (CheckFinding(Kind.CATALOG_LOST, lost_catalog_message(trace), FindingPlace(CATALOG)),)
        )
    return read_catalog(register.store, held)


def _find_foreign_objects(contents: StoreListing) -> Iterator[CheckFinding]:
    for folder, objects in sorted(contents.foreign.items()):
        where = f"in {folder}" if folder else "at the root"
        what = f"{objects.objects:,} {where} that are not part of a cluster"
        yield CheckFinding(Kind.FOREIGN, what, FindingPlace(objects.first), (), objects.objects, objects.bytes)


_RANKS: Final = tuple(Severity)


def _sort_key(finding: CheckFinding) -> tuple[int, str, str, int, int]:
    place, first = finding.place, finding.gone[0].start if finding.gone else -1
    partition = -1 if place.partition is None else place.partition
    return _RANKS.index(finding.severity), finding.kind, place.topic or place.key, partition, first
