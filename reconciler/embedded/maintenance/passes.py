"""Maintenance passes over a cluster's partitions, with scrub and merge jobs.

Rewrites are handed to a `Spread`, which runs them here or on executors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar
from zlib import crc32

from reconciler.archives.manifest import ManifestSwap, check_own, purge, read_manifest, remote_partition
from reconciler.archives.pages import iter_entries_within
from reconciler.archives.storage import check_storage
from reconciler.embedded.maintenance.chores import Chore, ChoreTask, FailedChore, Job
from reconciler.embedded.maintenance.compaction import (
    find_remote_partition,
    is_log_reachable,
    iter_all_segments,
    next_cleaning_ms,
    read_remote_only_entries,
    select_segments_to_clean,
)
from reconciler.embedded.maintenance.local_space import LocalTrim, RetentionJob
from reconciler.embedded.maintenance.roll import MergeLimits, Run, iter_runs, merge_limits, merges_segments
from reconciler.embedded.maintenance.survey import (
    HeadCache,
    MaintenanceResult,
    Survey,
    SurveyedPartition,
    load_results,
    store_results,
)
from reconciler.embedded.maintenance.uploads import Uploads, refresh_description, write_changed_descriptions
from reconciler.embedded.segments.admission import rules_of
from reconciler.embedded.segments.head import Head, Partition
from reconciler.embedded.tiered.cluster_metadata import MetadataKeeper, MetadataUpdate
from reconciler.embedded.tiered.idle_work import HousekeepingTurn
from reconciler.embedded.tiered.object_rewrites import PartitionRewrite
from reconciler.embedded.tiered.remote_retention import measure_disk_under
from reconciler.embedded.tiered.remote_tier import RemoteTier, check_not_behind, remote_tier
from reconciler.embedded.tiered.scrub import Scrub, ScrubFinding
from reconciler.embedded.tiered.upload import UploadBatch
from reconciler.errors import ReconcilerError
from reconciler.records.log import OffsetRange
from reconciler.resources.cluster_properties import ENABLED, METADATA_INTERVAL, METADATA_UPLOADS, read_property
from reconciler.runtime.threads import map_in_parallel

if TYPE_CHECKING:
    from reconciler.embedded.catalog.commits import CatalogRegister
    from reconciler.embedded.catalog.tables import Catalog
    from reconciler.embedded.segments.retention import CleanupPolicy
    from reconciler.embedded.segments.rewrites import Gain
    from reconciler.objectstore.base import ObjectStore


Outcome: TypeAlias = PartitionRewrite | UploadBatch | FailedChore
Spread: TypeAlias = Callable[[Sequence[Chore], ChoreTask], Iterator[Sequence[Outcome]]]
"""Runs chores and yields results in rounds, published in between."""

A = TypeVar("A")
T = TypeVar("T")

Look: TypeAlias = Callable[[SurveyedPartition, Head], tuple[T | None, int | None]]
"""Returns work for a partition, or when to check again without changes; `None`: never."""


@dataclass(frozen=True)
class Upkeep:
    """One pass over a cluster's partitions; its jobs share the heads they read."""

    store: ObjectStore
    catalog: CatalogRegister
    cluster_id: str
    now_ms: Callable[[], int]
    """Clock by which records expire."""
    is_wanted: Callable[[str], bool] = lambda _full_name: True
    is_stopped: Callable[[], bool] = lambda: False
    heads: HeadCache = field(default_factory=HeadCache)
    storage: ObjectStore | None = None
    tidying: HousekeepingTurn = field(default_factory=HousekeepingTurn)
    """Decides when the remote tier may be tidied."""
    may_go_on: Callable[[], None] = lambda: None
    """Called before each round is published; may raise to stop the job."""
    disk_bytes: Callable[[ObjectStore], int | None] = measure_disk_under
    """Returns the bytes of the disk under a store; `None`: no disk."""
    lost: set[str] = field(default_factory=set)
    """Topics of another cluster, each reported once."""

    @property
    def remote(self) -> RemoteTier | None:
        """The remote tier, by the last read catalog."""
        return remote_tier(self.storage, self.cluster_id, self.catalog.known().cluster)

    def retain(self) -> MaintenanceResult:
        """Delete expired records, and evict uploaded ones beyond the local limits."""
        tended = MaintenanceResult(lost=self.lost)
        retaining = RetentionJob(self.store, self.storage, self.cluster_id, self.catalog, self.now_ms)
        for _, result in self._check_due("retention", tended, lambda policy: policy.is_bounded, retaining.look):
            tended.count(records=result.records, stored=result.bytes)
        LocalTrim(retaining, self.heads, self.is_wanted, self.disk_bytes).trim(tended)
        return tended

    def roll(self, spread: Spread | None = None) -> MaintenanceResult:
        """Merge closed segments into one file each; `spread` runs larger work elsewhere."""
        return self._run_rewrites("roll", spread, lambda _policy: True, self._to_roll)

    def upload(self, spread: Spread | None = None) -> MaintenanceResult:
        """Upload the closed segments of tiered topics; `spread` as in `roll`."""
        from reconciler.embedded.maintenance.uploads import Uploads  # noqa: PLC0415 - brings Arrow

        catalog = self.catalog.read()
        tended, remote = MaintenanceResult(lost=self.lost), self.remote
        if remote is None:
            return tended

        uploads, survey = Uploads(self.store, remote, self.now_ms), Survey.load(self.store, self.cluster_id, "upload")
        for full_name, error in write_changed_descriptions(
            remote, catalog, self.is_wanted, survey.notes.setdefault("topics", {})
        ):
            tended.fail(full_name, error)
        again: list[Chore] = []

        def due(surveyed: SurveyedPartition, head: Head) -> tuple[list[Chore] | None, int | None]:
            due_chores, due_ms = uploads.due(surveyed, head)
            # Compacted topics have a survey of their own.
            if due_chores is None and not surveyed.policy.compacts and uploads.reuploads(surveyed.policy):
                outdated, _ = uploads.outdated(surveyed, head)
                again.extend(outdated or ())
                return None, due_ms if outdated is None else self.now_ms()
            return due_chores, due_ms

        due_chores = sorted(self._iter_due_work(survey, tended, _has_uploads, due), key=_backlog_key)
        chores = _flatten_chores(due_chores)
        tended.levels = uploads.share(survey.notes, sum(chore.bytes for chore in chores))
        survey.end()
        self.upload_all(uploads, chores, tended, spread)
        compacting = self._check_due(
            "reupload", tended, lambda policy: policy.compacts and uploads.reuploads(policy), uploads.outdated
        )
        self.reupload_all([*again, *_flatten_chores(compacting)], tended, spread)
        return tended

    def upload_all(
        self, uploads: Uploads, chores: Sequence[Chore], tended: MaintenanceResult, spread: Spread | None
    ) -> None:
        """Upload chores, and publish round by round."""
        self._spread(
            "upload",
            spread,
            chores,
            tended,
            lambda taken, put_ms: self._publish_uploads(uploads, taken, put_ms, tended),
        )

    def reupload_all(self, chores: Sequence[Chore], tended: MaintenanceResult, spread: Spread | None) -> None:
        """Upload compacted segments again."""
        self._spread("reupload", spread, chores, tended, lambda taken, put_ms: self._publish(taken, put_ms, tended))

    def compact(self, spread: Spread | None = None) -> MaintenanceResult:
        """Compact every partition that needs it; `spread` as in `roll`."""
        with self.tidying.turn("compact", self.catalog.read().cluster.properties) as may_tidy:

            def look(surveyed: SurveyedPartition, head: Head) -> tuple[Chore | None, int | None]:
                is_local = head.start == head.local_start
                return self._to_compact(surveyed, head) if is_local or may_tidy() else (None, self.now_ms())

            return self._run_rewrites("compact", spread, lambda policy: policy.compacts, look)

    def merge(self, spread: Spread | None = None) -> MaintenanceResult:
        """Merge small neighbouring remote segments; `spread` as in `roll`."""
        tended, remote = MaintenanceResult(lost=self.lost), self.remote
        properties = self.catalog.read().cluster.properties
        if remote is None:
            return tended
        merges = Merges(remote)
        with self.tidying.turn("merge", properties) as may_tidy:
            giving_way = replace(self, is_stopped=lambda: self.is_stopped() or not may_tidy())
            giving_way._merge(merges, spread, tended)  # noqa: SLF001 - the same class
        return tended

    def keep_metadata(self, *, is_named: bool = False) -> MetadataUpdate:
        """Store the cluster's metadata in object storage, if due or named.

        Not for a cluster of only read replicas: its access may be read-only.
        """
        catalog, remote = self.catalog.read(), self.remote
        properties, topics = catalog.cluster.properties, catalog.topics.values()
        switches = (ENABLED, METADATA_UPLOADS)
        if remote is None or any(read_property(properties, name) != "true" for name in switches):
            return MetadataUpdate()
        if topics and all(topic.replica is not None for topic in topics):
            return MetadataUpdate()
        _, notes = load_results(self.store, "metadata")
        now_ms, interval_ms = self.now_ms(), int(read_property(properties, METADATA_INTERVAL) or 0)
        looked_ms = notes.get("looked_ms")
        is_due = not isinstance(looked_ms, int) or not looked_ms <= now_ms < looked_ms + interval_ms
        if self.is_stopped() or not (is_due or is_named):
            return MetadataUpdate()
        check_storage(remote.storage, self.catalog.known().cluster.storage_id)
        keeper = MetadataKeeper(self.store, remote.storage, self.catalog, self.cluster_id, self.now_ms, self.may_go_on)
        update = keeper.keep(checks=is_named)
        store_results(self.store, "metadata", {}, {"looked_ms": now_ms})
        return update

    def _merge(self, merges: Merges, spread: Spread | None, tended: MaintenanceResult) -> None:
        chores = _flatten_chores(self._check_due("merge", tended, merges.asks, merges.due, begin=merges.begin))
        self._spread("merge", spread, chores, tended, lambda taken, put_ms: self._publish(taken, put_ms, tended))

    def _to_roll(self, surveyed: SurveyedPartition, head: Head) -> tuple[Chore | None, int | None]:
        from reconciler.embedded.tiered.object_rewrites import bytes_to_roll  # noqa: PLC0415 - brings Arrow

        stored = bytes_to_roll(self.store, head, surveyed.policy)
        return None if stored is None else Chore(surveyed.partition, stored), None

    def _to_compact(self, surveyed: SurveyedPartition, head: Head) -> tuple[Chore | None, int | None]:
        now_ms, remote = self.now_ms(), self.remote
        if not is_log_reachable(head, surveyed.policy, remote):
            return None, now_ms
        remote_part = read_remote_only_entries(head, find_remote_partition(surveyed.policy, surveyed.partition), remote)
        segments = list(iter_all_segments(self.store, head, remote_part, surveyed.policy))
        segments_to_clean = select_segments_to_clean(segments, head, surveyed.policy, now_ms=now_ms)
        if not segments_to_clean:
            return None, next_cleaning_ms(segments, head, surveyed.policy, now_ms=now_ms)
        dirty = [entry for segment in segments_to_clean for entry in segment.entries if entry.last >= head.compacted_to]
        keys = sum(entry.digest.records for entry in dirty)
        return Chore(surveyed.partition, sum(segment.bytes for segment in segments_to_clean), keys=keys), None

    def _run_rewrites(
        self, job: Job, spread: Spread | None, asks: Callable[[CleanupPolicy], bool], look: Look[Chore]
    ) -> MaintenanceResult:
        tended = MaintenanceResult(lost=self.lost)
        chores = [chore for _, chore in self._check_due(job, tended, asks, look)]
        self._spread(job, spread, chores, tended, lambda taken, put_ms: self._publish(taken, put_ms, tended))
        return tended

    def _spread(
        self,
        job: Job,
        spread: Spread | None,
        chores: Sequence[Chore],
        tended: MaintenanceResult,
        publish: Callable[[Iterable[Outcome], int], None],
    ) -> None:
        from reconciler.embedded.maintenance.chores import ChoreTask, run_chores_here  # noqa: PLC0415 - brings Arrow

        if not chores or self.is_stopped():
            return
        put_ms = self.now_ms()
        task = ChoreTask(self.store, self.catalog, self.cluster_id, job, put_ms, self.remote)
        do = spread or run_chores_here
        try:
            for taken in do(chores, task):
                self.may_go_on()
                publish(taken, put_ms)
                if self.is_stopped():
                    break
                put_ms = self.now_ms()
        except ReconcilerError as error:
            tended.record_abort(error)

    def _check_due(
        self,
        job: str,
        tended: MaintenanceResult,
        asks: Callable[[CleanupPolicy], bool],
        look: Look[T],
        *,
        begin: Callable[[Survey], None] = lambda _survey: None,
    ) -> Iterator[tuple[Partition, T]]:
        survey = Survey.load(self.store, self.cluster_id, job)
        begin(survey)
        yield from self._iter_due_work(survey, tended, asks, look)
        survey.end()

    def _iter_due_work(
        self, survey: Survey, tended: MaintenanceResult, asks: Callable[[CleanupPolicy], bool], look: Look[T]
    ) -> Iterator[tuple[Partition, T]]:
        def is_asked(full_name: str, policy: CleanupPolicy) -> bool:
            return self.is_wanted(full_name) and asks(policy)

        def check(surveyed: SurveyedPartition) -> T | None:
            if self.is_stopped():
                return None
            try:
                head = self.heads.read(self.store, surveyed)
                work, due_ms = (None, None) if head is None else look(surveyed, head)
            except ReconcilerError as error:
                tended.fail(surveyed.partition, error)
                return None
            if work is None:
                survey.remember(surveyed, due_ms)
            return work

        due = list(survey.find_due(self.catalog.read(), self.heads, is_asked, now_ms=self.now_ms()))
        for surveyed, work in zip(due, _map_in_parallel(check, due), strict=True):
            if work is not None:
                self.heads.mark_changed(surveyed.partition)
                yield surveyed.partition, work

    def _publish(self, taken: Iterable[Outcome], put_ms: int, tended: MaintenanceResult) -> None:
        """Publish partitions in parallel, each in order of offsets."""
        from reconciler.embedded.maintenance.roll import delete_unpublished, publish  # noqa: PLC0415 - as above
        from reconciler.embedded.tiered.object_rewrites import PartitionRewrite  # noqa: PLC0415 - as above

        remote = self.remote
        by_partition: dict[Partition, list[PartitionRewrite]] = {}
        for one in taken:
            if isinstance(one, FailedChore):
                tended.fail(one.partition, one.error)
            elif isinstance(one, PartitionRewrite):
                by_partition.setdefault(one.partition, []).append(one)

        def publish_partition(of_one: list[PartitionRewrite]) -> list[Gain]:
            gains: list[Gain | None] = []
            for one in of_one:
                try:  # No record may outlive a tombstone of its key.
                    do = delete_unpublished if tended.has_failed(one.partition) else publish
                    gains.append(do(self.store, remote, one, put_ms=put_ms, now_ms=self.now_ms))
                except ReconcilerError as error:
                    tended.fail(one.partition, error)
            return [gain for gain in gains if gain is not None]

        for partition, gains in zip(
            by_partition, _map_in_parallel(publish_partition, by_partition.values()), strict=True
        ):
            for gain in gains:
                tended.count(records=gain.records, stored=gain.bytes, partition=partition)
                tended.counts["jobs_cloud_segment_reuploads"] += gain.uploaded

    def _publish_uploads(
        self, uploads: Uploads, taken: Iterable[Outcome], put_ms: int, tended: MaintenanceResult
    ) -> None:
        """Publish partitions in parallel, each in order of offsets."""
        from reconciler.embedded.tiered.upload import UploadBatch  # noqa: PLC0415 - as above

        by_partition: dict[Partition, list[UploadBatch]] = {}
        for one in taken:
            if isinstance(one, FailedChore):
                tended.fail(one.partition, one.error)
            elif isinstance(one, UploadBatch):
                by_partition.setdefault(one.partition, []).append(one)

        def publish_partition(of_one: list[UploadBatch]) -> Gain | None:
            try:
                return uploads.publish(of_one, put_ms=put_ms)
            except ReconcilerError as error:
                tended.fail(of_one[0].partition, error)
                return None

        for partition, gain in zip(
            by_partition, _map_in_parallel(publish_partition, by_partition.values()), strict=True
        ):
            if gain is not None:
                tended.count(records=gain.records, stored=gain.bytes, partition=partition)
                tended.counts["segment_uploads_total"] += gain.uploaded
                tended.counts["uploaded_bytes"] += gain.bytes


def _has_uploads(policy: CleanupPolicy) -> bool:
    return policy.tiering is not None and policy.tiering.uploads


def _flatten_chores(pairs: Iterable[tuple[Partition, Sequence[Chore]]]) -> list[Chore]:
    return [chore for _, of_one in pairs for chore in of_one]


def _backlog_key(pair: tuple[Partition, Sequence[Chore]]) -> tuple[int, Partition]:
    partition, chores = pair
    return -sum(chore.bytes for chore in chores), partition


def _map_in_parallel(call: Callable[[A], T], items: Iterable[A]) -> Iterator[T]:
    return map_in_parallel(call, items, name="upkeep")


EVERY_MS: Final = 24 * 60 * 60 * 1000
"""Object storage loses next to nothing, and listings cost."""


def scrub(upkeep: Upkeep, *, is_named: bool = False) -> MaintenanceResult:
    """Scrub due manifests, or all with `is_named`, and check their topics' descriptions.

    Partitions are due once a day. Unrepaired faults are errors; `records` and `bytes` count what was uploaded again.
    """
    tended, catalog = MaintenanceResult(lost=upkeep.lost), upkeep.catalog.read()
    remote = upkeep.remote
    if remote is None or read_property(remote.properties, ENABLED) != "true":
        return tended
    check_storage(remote.storage, catalog.cluster.storage_id)
    with upkeep.tidying.turn("scrub", remote.properties) as may_tidy:
        _Scrubs(upkeep, remote, catalog, tended).over(may_tidy, is_named=is_named)
    return tended


class _Scrubs:
    def __init__(self, upkeep: Upkeep, remote: RemoteTier, catalog: Catalog, tended: MaintenanceResult) -> None:
        self._upkeep = upkeep
        self._remote = remote
        self._catalog = catalog
        self._tended = tended

    def over(self, may_tidy: Callable[[], bool], *, is_named: bool) -> None:
        upkeep, now_ms = self._upkeep, self._upkeep.now_ms()
        survey = Survey.load(upkeep.store, upkeep.cluster_id, "scrub")
        done_ms: dict[str, int] = dict(survey.notes.get("done_ms", {}))
        if is_named:
            survey.rows.clear()
        due = list(survey.find_due(self._catalog, upkeep.heads, self._asks, now_ms=now_ms))

        def scrub_if_due(surveyed: SurveyedPartition) -> list[ScrubFinding] | None:
            next_ms = done_ms.setdefault(surveyed.key, now_ms - _phase_ms(surveyed.key)) + EVERY_MS
            if next_ms > now_ms and not is_named:
                survey.remember(surveyed, next_ms)
                return None
            if upkeep.is_stopped() or not may_tidy():
                return None
            return self._scrub_partition(surveyed)

        topics = {name for name in self._catalog.topics if is_named and upkeep.is_wanted(name)}
        for surveyed, findings in zip(due, map_in_parallel(scrub_if_due, due, name="scrub"), strict=True):
            if findings is not None:
                topics.add(surveyed.partition.full_name)
                done_ms[surveyed.key] = now_ms
                survey.remember(surveyed, now_ms + EVERY_MS)
                self._count(surveyed, findings)
        survey.notes["done_ms"] = {key: at_ms for key, at_ms in done_ms.items() if at_ms > now_ms - 2 * EVERY_MS}
        survey.end()
        self._describe(sorted(topics))

    def _describe(self, full_names: list[str]) -> None:
        now = self._upkeep.catalog.read()  # Skips topics deleted since.

        def describe_topic(full_name: str) -> ReconcilerError | None:
            try:
                if full_name in now.topics:
                    refresh_description(self._remote, now, full_name)
            except ReconcilerError as error:
                return error
            return None

        for full_name, error in zip(
            full_names, map_in_parallel(describe_topic, full_names, name="describe"), strict=True
        ):
            if error is not None:
                self._tended.fail(full_name, error)

    def _asks(self, full_name: str, policy: CleanupPolicy) -> bool:
        return policy.tiering is not None and self._upkeep.is_wanted(full_name)

    def _scrub_partition(self, surveyed: SurveyedPartition) -> list[ScrubFinding] | None:
        """Scrub one partition and return its faults; `None`: it could not be read."""
        tiering, partition = surveyed.policy.tiering, surveyed.partition
        try:
            head = self._upkeep.heads.read(self._upkeep.store, surveyed)
            if head is None or tiering is None:
                return []
            rules = rules_of(self._catalog, partition.full_name)
            scrub = Scrub(self._upkeep.store, self._remote, tiering, rules, partition.number, self._upkeep.now_ms)
            return scrub.done(head)
        except ReconcilerError as error:
            self._tended.fail(partition, error)
            return None

    def _count(self, surveyed: SurveyedPartition, findings: list[ScrubFinding]) -> None:
        for finding in findings:
            if not finding.is_mended:
                self._tended.fail(surveyed.partition, finding.error)
        if findings:
            self._tended.counts["anomalies"] += len(findings)
        mended = [finding for finding in findings if finding.is_mended]
        self._tended.count(
            records=sum(finding.records for finding in mended), stored=sum(finding.bytes for finding in mended)
        )


def _phase_ms(key: str) -> int:
    return crc32(key.encode()) % EVERY_MS


_CHORE_BYTES: Final = 512 * 1024 * 1024
_CHORE_RUNS: Final = 64
"""Per task: neighbouring runs published together."""
_ANY_SEGMENT: Final = 1 << 30
"""Stands for the topic's `segment.bytes`, which is part of its policy."""


class Merges:
    """Decides in one pass which remote segments to merge.

    Thread-safe. Remembers each partition's first mergeable run per limits: only the end of a long history is read.
    """

    def __init__(self, remote: RemoteTier) -> None:
        self._remote = remote
        self._before: dict[str, list[int]] = {}
        self._settled: dict[str, list[int]] = {}
        """By head key: high, low, and the offset before which they merge nothing."""

    def begin(self, survey: Survey) -> None:
        """Load the last pass's results, unless the limits changed."""
        judged = repr(merge_limits(self._remote.properties, _ANY_SEGMENT))
        if survey.notes.get("limits") != judged:
            survey.rows.clear()
        self._before = survey.notes.get("settled", {})
        # Drops rows of deleted topics.
        self._settled = {key: settled for key, settled in self._before.items() if key in survey.rows}
        survey.notes.update(limits=judged, settled=self._settled)

    def asks(self, policy: CleanupPolicy) -> bool:
        """Whether a topic's segments may be merged."""
        return merges_segments(policy, self._remote)

    def due(self, surveyed: SurveyedPartition, head: Head) -> tuple[list[Chore] | None, int | None]:
        """Return a partition's runs to merge, or `None` and when to check again.

        Deletes garbage of an interrupted merge.

        Raises:
            OwnershipLostError: Another cluster owns the partition.
        """
        tiering, storage = surveyed.policy.tiering, self._remote.storage
        if tiering is None or not merges_segments(surveyed.policy, self._remote):
            return None, None
        place = remote_partition(tiering.location, surveyed.partition.number)
        manifest = read_manifest(storage, place)
        if manifest is None:
            return None, None
        check_own(place, manifest, self._remote.cluster_id)
        check_not_behind(manifest, head, place, surveyed.partition)
        purge(ManifestSwap(storage, self._remote.cluster_id, tiering), place, manifest.garbage)
        limits = merge_limits(self._remote.properties, surveyed.policy.limits.bytes)
        high, low, settled = self._before.get(surveyed.key, [0, 0, 0])
        start = max(manifest.start, settled if (high, low) == (limits.high, limits.low) else 0)
        # Compacted segments leave the local tier only if their copies are equal.
        floor = head.compacted_to if head.compacted_to > head.local_start else 0
        found_there = iter_entries_within(storage, manifest, OffsetRange(start, max(start, manifest.end)))
        entries = (entry for entry in found_there if entry.base >= floor)
        runs = [run for run in iter_runs(entries, limits) if run.is_open]
        self._settled[surveyed.key] = [limits.high, limits.low, runs[0].entries[0].base if runs else manifest.end]
        return list(_chores(surveyed.partition, runs, limits)) or None, None


def _chores(partition: Partition, runs_found: Iterable[Run], limits: MergeLimits) -> Iterator[Chore]:
    runs = stored = start = stop = 0
    for run in runs_found:
        if not run.is_worth(limits):
            continue
        if runs and (runs == _CHORE_RUNS or stored + run.bytes > _CHORE_BYTES):
            yield Chore(partition, stored, OffsetRange(start, stop))
            runs = stored = 0
        start = start if runs else run.entries[0].base
        runs, stored, stop = runs + 1, stored + run.bytes, run.entries[-1].last + 1
    if runs:
        yield Chore(partition, stored, OffsetRange(start, stop))
