"""Maintenance passes over a cluster's partitions, with scrub and merge jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar
from zlib import crc32

from reconciler.archives.manifest import (
    ManifestSwap,
    check_manifest_owner,
    delete_manifest_garbage,
    read_manifest,
    remote_partition,
)
from reconciler.archives.pages import iter_entries_within
from reconciler.archives.storage import check_storage
from reconciler.embedded.maintenance.chores import Chore, ChoreTask, FailedChore, Job
from reconciler.embedded.maintenance.compaction import (
    find_next_cleaning_ms,
    find_remote_partition,
    is_log_reachable,
    iter_all_segments,
    read_remote_only_entries,
    select_segments_to_clean,
)
from reconciler.embedded.maintenance.local_space import LocalTrim, RetentionJob
from reconciler.embedded.maintenance.roll import MergeLimits, MergeRun, iter_runs, merges_segments, read_merge_limits
from reconciler.embedded.maintenance.survey import (
    HeadCache,
    MaintenanceResult,
    Survey,
    SurveyedPartition,
    load_results,
    store_results,
)
from reconciler.embedded.maintenance.uploads import UploadJob, refresh_description, write_changed_descriptions
from reconciler.embedded.segments.admission import read_append_rules
from reconciler.embedded.segments.head import Head, Partition
from reconciler.embedded.tiered.cluster_metadata import MetadataUpdate, MetadataWriter
from reconciler.embedded.tiered.idle_work import HousekeepingTurn
from reconciler.embedded.tiered.object_rewrites import PartitionRewrite
from reconciler.embedded.tiered.remote_retention import measure_disk_under
from reconciler.embedded.tiered.remote_tier import RemoteTier, build_remote_tier, check_has_uploaded_records
from reconciler.embedded.tiered.scrub import PartitionScrub, ScrubFinding
from reconciler.embedded.tiered.upload import UploadBatch
from reconciler.errors import ReconcilerError
from reconciler.records.log import OffsetRange
from reconciler.resources.cluster_properties import ENABLED, METADATA_INTERVAL, METADATA_UPLOADS, read_property
from reconciler.runtime.dataclass import dataclass, field, replace
from reconciler.runtime.threads import map_in_parallel

if TYPE_CHECKING:
    from reconciler.embedded.catalog.commits import CatalogRegister
    from reconciler.embedded.catalog.tables import Catalog
    from reconciler.embedded.segments.retention import CleanupPolicy
    from reconciler.embedded.segments.rewrites import WorkTotals
    from reconciler.objectstore.base import ObjectStore

# ruff: noqa: PLC0415 - brings Arrow


Outcome: TypeAlias = PartitionRewrite | UploadBatch | FailedChore
Spread: TypeAlias = Callable[[Sequence[Chore], ChoreTask], Iterator[Sequence[Outcome]]]
"""Runs chores here or on executors, and yields results in rounds; each round is published before the next."""

A = TypeVar("A")
T = TypeVar("T")

FindWork: TypeAlias = Callable[[SurveyedPartition, Head], tuple[T | None, int | None]]
"""Returns a partition's work, or when to check it again if unchanged; `None` means never."""


@dataclass(frozen=True)
class Upkeep:
    """One maintenance pass over a cluster's partitions; its jobs share heads."""

    store: ObjectStore
    catalog: CatalogRegister
    cluster_id: str
    now_ms: Callable[[], int]
    is_wanted: Callable[[str], bool] = lambda _full_name: True
    is_stopped: Callable[[], bool] = lambda: False
    heads: HeadCache = field(default_factory=HeadCache)
    storage: ObjectStore | None = None
    tidying: HousekeepingTurn = field(default_factory=HousekeepingTurn)
    may_go_on: Callable[[], None] = lambda: None
    """Called before a round is published; may raise to stop the job."""
    disk_bytes: Callable[[ObjectStore], int | None] = measure_disk_under
    lost: set[str] = field(default_factory=set)
    """Topics of another cluster, each reported once."""

    @property
    def remote(self) -> RemoteTier | None:
        """The remote tier, by the cached catalog."""
        return build_remote_tier(self.storage, self.cluster_id, self.catalog.get_cached().cluster)

    def retain(self) -> MaintenanceResult:
        """Delete expired records, and evict uploaded ones beyond the local limits."""
        job_result = MaintenanceResult(lost=self.lost)
        retaining = RetentionJob(self.store, self.storage, self.cluster_id, self.catalog, self.now_ms)
        for _, result in self._survey_due_work(
            "retention", job_result, lambda policy: policy.has_retention, retaining.expire_partition
        ):
            job_result.count_work(records=result.records, stored=result.bytes)
        LocalTrim(retaining, self.heads, self.is_wanted, self.disk_bytes).evict_excess(job_result)
        return job_result

    def roll(self, spread: Spread | None = None) -> MaintenanceResult:
        """Merge each closed segment into one file."""
        return self._run_rewrites("roll", spread, lambda _policy: True, self._find_roll_chore)

    def upload(self, spread: Spread | None = None) -> MaintenanceResult:
        """Upload the closed segments of tiered topics."""
        from reconciler.embedded.maintenance.uploads import UploadJob

        catalog = self.catalog.read()
        job_result, remote = MaintenanceResult(lost=self.lost), self.remote
        if remote is None:
            return job_result

        uploads, survey = UploadJob(self.store, remote, self.now_ms), Survey.load(self.store, self.cluster_id, "upload")
        for full_name, error in write_changed_descriptions(
            remote, catalog, self.is_wanted, survey.notes.setdefault("topics", {})
        ):
            job_result.record_failure(full_name, error)
        again: list[Chore] = []

        def due(surveyed: SurveyedPartition, head: Head) -> tuple[list[Chore] | None, int | None]:
            due_chores, due_ms = uploads.find_due_chores(surveyed, head)
            # Another survey finds the outdated segments of compacted topics.
            if due_chores is None and not surveyed.policy.compacts and uploads.uploads_compacted_again(surveyed.policy):
                outdated, _ = uploads.find_outdated_chores(surveyed, head)
                again.extend(outdated or ())
                return None, due_ms if outdated is None else self.now_ms()
            return due_chores, due_ms

        due_chores = sorted(self._iter_due_work(survey, job_result, _has_uploads, due), key=_backlog_key)
        chores = _flatten_chores(due_chores)
        job_result.levels = uploads.update_connection_share(survey.notes, sum(chore.bytes for chore in chores))
        survey.store_if_changed()
        self.upload_all(uploads, chores, job_result, spread)
        compacting = self._survey_due_work(
            "reupload",
            job_result,
            lambda policy: policy.compacts and uploads.uploads_compacted_again(policy),
            uploads.find_outdated_chores,
        )
        self.reupload_all([*again, *_flatten_chores(compacting)], job_result, spread)
        return job_result

    def upload_all(
        self, uploads: UploadJob, chores: Sequence[Chore], job_result: MaintenanceResult, spread: Spread | None
    ) -> None:
        """Upload chores, and publish each round."""
        self._run_and_publish(
            "upload",
            spread,
            chores,
            job_result,
            lambda taken, put_ms: self._publish_uploads(uploads, taken, put_ms, job_result),
        )

    def reupload_all(self, chores: Sequence[Chore], job_result: MaintenanceResult, spread: Spread | None) -> None:
        """Upload compacted segments again, and publish each round."""
        self._run_and_publish(
            "reupload", spread, chores, job_result, lambda taken, put_ms: self._publish(taken, put_ms, job_result)
        )

    def compact(self, spread: Spread | None = None) -> MaintenanceResult:
        """Compact every partition that needs it."""
        with self.tidying.run_job("compact", self.catalog.read().cluster.properties) as may_tidy:

            def find_local_work(surveyed: SurveyedPartition, head: Head) -> tuple[Chore | None, int | None]:
                is_local = head.start == head.local_start
                return self._find_compaction_chore(surveyed, head) if is_local or may_tidy() else (None, self.now_ms())

            return self._run_rewrites("compact", spread, lambda policy: policy.compacts, find_local_work)

    def merge(self, spread: Spread | None = None) -> MaintenanceResult:
        """Merge small neighbouring remote segments."""
        job_result, remote = MaintenanceResult(lost=self.lost), self.remote
        properties = self.catalog.read().cluster.properties
        if remote is None:
            return job_result
        merges = MergePlanner(remote)
        with self.tidying.run_job("merge", properties) as may_tidy:
            giving_way = replace(self, is_stopped=lambda: self.is_stopped() or not may_tidy())
            giving_way._merge(merges, spread, job_result)  # noqa: SLF001 - the same class
        return job_result

    def store_metadata(self, *, ignores_interval: bool = False) -> MetadataUpdate:
        """Store the cluster's metadata in object storage if due, or always with `ignores_interval`.

        A cluster with only read replicas stores none, since its access may be read-only.
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
        if self.is_stopped() or not (is_due or ignores_interval):
            return MetadataUpdate()
        check_storage(remote.storage, self.catalog.get_cached().cluster.storage_id)
        keeper = MetadataWriter(self.store, remote.storage, self.catalog, self.cluster_id, self.now_ms, self.may_go_on)
        update = keeper.update_stored(checks=ignores_interval)
        store_results(self.store, "metadata", {}, {"looked_ms": now_ms})
        return update

    def _merge(self, merges: MergePlanner, spread: Spread | None, job_result: MaintenanceResult) -> None:
        chores = _flatten_chores(
            self._survey_due_work(
                "merge", job_result, merges.may_merge, merges.find_due_runs, begin=merges.load_results
            )
        )
        self._run_and_publish(
            "merge", spread, chores, job_result, lambda taken, put_ms: self._publish(taken, put_ms, job_result)
        )

    def _find_roll_chore(self, surveyed: SurveyedPartition, head: Head) -> tuple[Chore | None, int | None]:
        from reconciler.embedded.tiered.object_rewrites import count_bytes_to_roll

        stored = count_bytes_to_roll(self.store, head, surveyed.policy)
        return None if stored is None else Chore(surveyed.partition, stored), None

    def _find_compaction_chore(self, surveyed: SurveyedPartition, head: Head) -> tuple[Chore | None, int | None]:
        now_ms, remote = self.now_ms(), self.remote
        if not is_log_reachable(head, surveyed.policy, remote):
            return None, now_ms
        remote_part = read_remote_only_entries(head, find_remote_partition(surveyed.policy, surveyed.partition), remote)
        segments = list(iter_all_segments(self.store, head, remote_part, surveyed.policy))
        segments_to_clean = select_segments_to_clean(segments, head, surveyed.policy, now_ms=now_ms)
        if not segments_to_clean:
            return None, find_next_cleaning_ms(segments, head, surveyed.policy, now_ms=now_ms)
        dirty = [entry for segment in segments_to_clean for entry in segment.entries if entry.last >= head.compacted_to]
        keys = sum(entry.digest.records for entry in dirty)
        return Chore(surveyed.partition, sum(segment.bytes for segment in segments_to_clean), keys=keys), None

    def _run_rewrites(
        self, job: Job, spread: Spread | None, asks: Callable[[CleanupPolicy], bool], look: FindWork[Chore]
    ) -> MaintenanceResult:
        job_result = MaintenanceResult(lost=self.lost)
        chores = [chore for _, chore in self._survey_due_work(job, job_result, asks, look)]
        self._run_and_publish(
            job, spread, chores, job_result, lambda taken, put_ms: self._publish(taken, put_ms, job_result)
        )
        return job_result

    def _run_and_publish(
        self,
        job: Job,
        spread: Spread | None,
        chores: Sequence[Chore],
        job_result: MaintenanceResult,
        publish: Callable[[Iterable[Outcome], int], None],
    ) -> None:
        from reconciler.embedded.maintenance.chores import ChoreTask, run_chores_here

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
            job_result.record_abort(error)

    def _survey_due_work(
        self,
        job: str,
        job_result: MaintenanceResult,
        asks: Callable[[CleanupPolicy], bool],
        look: FindWork[T],
        *,
        begin: Callable[[Survey], None] = lambda _survey: None,
    ) -> Iterator[tuple[Partition, T]]:
        survey = Survey.load(self.store, self.cluster_id, job)
        begin(survey)
        yield from self._iter_due_work(survey, job_result, asks, look)
        survey.store_if_changed()

    def _iter_due_work(
        self, survey: Survey, job_result: MaintenanceResult, asks: Callable[[CleanupPolicy], bool], look: FindWork[T]
    ) -> Iterator[tuple[Partition, T]]:
        def is_asked(full_name: str, policy: CleanupPolicy) -> bool:
            return self.is_wanted(full_name) and asks(policy)

        def find_partition_work(surveyed: SurveyedPartition) -> T | None:
            if self.is_stopped():
                return None
            try:
                head = self.heads.read_head(self.store, surveyed)
                work, due_ms = (None, None) if head is None else look(surveyed, head)
            except ReconcilerError as error:
                job_result.record_failure(surveyed.partition, error)
                return None
            if work is None:
                survey.record_due_time(surveyed, due_ms)
            return work

        due = list(survey.find_due_partitions(self.catalog.read(), self.heads, is_asked, now_ms=self.now_ms()))
        for surveyed, work in zip(due, _map_in_parallel(find_partition_work, due), strict=True):
            if work is not None:
                self.heads.mark_changed(surveyed.partition)
                yield surveyed.partition, work

    def _publish(self, taken: Iterable[Outcome], put_ms: int, job_result: MaintenanceResult) -> None:
        from reconciler.embedded.maintenance.roll import delete_unpublished_objects, publish_rewrite
        from reconciler.embedded.tiered.object_rewrites import PartitionRewrite

        remote = self.remote
        by_partition: dict[Partition, list[PartitionRewrite]] = {}
        for one in taken:
            if isinstance(one, FailedChore):
                job_result.record_failure(one.partition, one.error)
            elif isinstance(one, PartitionRewrite):
                by_partition.setdefault(one.partition, []).append(one)

        def publish_partition(of_one: list[PartitionRewrite]) -> list[WorkTotals]:
            all_totals: list[WorkTotals | None] = []
            for one in of_one:
                try:
                    # After a failed rewrite, a later one could remove a tombstone before the records that it deletes.
                    do = delete_unpublished_objects if job_result.has_failed(one.partition) else publish_rewrite
                    all_totals.append(do(self.store, remote, one, put_ms=put_ms, now_ms=self.now_ms))
                except ReconcilerError as error:
                    job_result.record_failure(one.partition, error)
            return [totals for totals in all_totals if totals is not None]

        for partition, all_totals in zip(
            by_partition, _map_in_parallel(publish_partition, by_partition.values()), strict=True
        ):
            for totals in all_totals:
                job_result.count_work(records=totals.records, stored=totals.bytes, partition=partition)
                job_result.counts["jobs_cloud_segment_reuploads"] += totals.uploaded

    def _publish_uploads(
        self, uploads: UploadJob, taken: Iterable[Outcome], put_ms: int, job_result: MaintenanceResult
    ) -> None:
        from reconciler.embedded.tiered.upload import UploadBatch

        by_partition: dict[Partition, list[UploadBatch]] = {}
        for one in taken:
            if isinstance(one, FailedChore):
                job_result.record_failure(one.partition, one.error)
            elif isinstance(one, UploadBatch):
                by_partition.setdefault(one.partition, []).append(one)

        def publish_partition(of_one: list[UploadBatch]) -> WorkTotals | None:
            try:
                return uploads.publish_uploads(of_one, put_ms=put_ms)
            except ReconcilerError as error:
                job_result.record_failure(of_one[0].partition, error)
                return None

        for partition, totals in zip(
            by_partition, _map_in_parallel(publish_partition, by_partition.values()), strict=True
        ):
            if totals is not None:
                job_result.count_work(records=totals.records, stored=totals.bytes, partition=partition)
                job_result.counts["segment_uploads_total"] += totals.uploaded
                job_result.counts["uploaded_bytes"] += totals.bytes


def _has_uploads(policy: CleanupPolicy) -> bool:
    return policy.tiering is not None and policy.tiering.uploads


def _flatten_chores(pairs: Iterable[tuple[Partition, Sequence[Chore]]]) -> list[Chore]:
    return [chore for _, of_one in pairs for chore in of_one]


def _backlog_key(pair: tuple[Partition, Sequence[Chore]]) -> tuple[int, Partition]:
    partition, chores = pair
    return -sum(chore.bytes for chore in chores), partition


def _map_in_parallel(call: Callable[[A], T], items: Iterable[A]) -> Iterator[T]:
    return map_in_parallel(call, items, name="upkeep")


SCRUB_INTERVAL_MS: Final = 24 * 60 * 60 * 1000
"""Scrub interval of a partition: object storage rarely loses objects, and listings cost."""


def scrub_cluster(upkeep: Upkeep, *, ignores_interval: bool = False) -> MaintenanceResult:
    """Scrub due manifests, or all with `ignores_interval`, and refresh topic descriptions.

    They are due once a day. Unrepaired faults are errors; `records` and `bytes` count new uploads.
    """
    job_result, catalog = MaintenanceResult(lost=upkeep.lost), upkeep.catalog.read()
    remote = upkeep.remote
    if remote is None or read_property(remote.properties, ENABLED) != "true":
        return job_result
    check_storage(remote.storage, catalog.cluster.storage_id)
    with upkeep.tidying.run_job("scrub", remote.properties) as may_tidy:
        _ScrubJob(upkeep, remote, catalog, job_result).run(may_tidy, ignores_interval=ignores_interval)
    return job_result


class _ScrubJob:
    def __init__(self, upkeep: Upkeep, remote: RemoteTier, catalog: Catalog, job_result: MaintenanceResult) -> None:
        self._upkeep = upkeep
        self._remote = remote
        self._catalog = catalog
        self._job_result = job_result

    def run(self, may_tidy: Callable[[], bool], *, ignores_interval: bool) -> None:
        upkeep, now_ms = self._upkeep, self._upkeep.now_ms()
        survey = Survey.load(upkeep.store, upkeep.cluster_id, "scrub")
        done_ms: dict[str, int] = dict(survey.notes.get("done_ms", {}))
        if ignores_interval:
            survey.rows.clear()
        due = list(survey.find_due_partitions(self._catalog, upkeep.heads, self._is_wanted, now_ms=now_ms))

        def scrub_if_due(surveyed: SurveyedPartition) -> list[ScrubFinding] | None:
            next_ms = done_ms.setdefault(surveyed.key, now_ms - _compute_phase_ms(surveyed.key)) + SCRUB_INTERVAL_MS
            if next_ms > now_ms and not ignores_interval:
                survey.record_due_time(surveyed, next_ms)
                return None
            if upkeep.is_stopped() or not may_tidy():
                return None
            return self._scrub_partition(surveyed)

        topics = {name for name in self._catalog.topics if ignores_interval and upkeep.is_wanted(name)}
        for surveyed, findings in zip(due, map_in_parallel(scrub_if_due, due, name="scrub"), strict=True):
            if findings is not None:
                topics.add(surveyed.partition.full_name)
                done_ms[surveyed.key] = now_ms
                survey.record_due_time(surveyed, now_ms + SCRUB_INTERVAL_MS)
                self._count_findings(surveyed, findings)
        survey.notes["done_ms"] = {
            key: at_ms for key, at_ms in done_ms.items() if at_ms > now_ms - 2 * SCRUB_INTERVAL_MS
        }
        survey.store_if_changed()
        self._refresh_descriptions(sorted(topics))

    def _refresh_descriptions(self, full_names: list[str]) -> None:
        now = self._upkeep.catalog.read()  # Some topics may have been deleted during the scrub.

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
                self._job_result.record_failure(full_name, error)

    def _is_wanted(self, full_name: str, policy: CleanupPolicy) -> bool:
        return policy.tiering is not None and self._upkeep.is_wanted(full_name)

    def _scrub_partition(self, surveyed: SurveyedPartition) -> list[ScrubFinding] | None:
        tiering, partition = surveyed.policy.tiering, surveyed.partition
        try:
            head = self._upkeep.heads.read_head(self._upkeep.store, surveyed)
            if head is None or tiering is None:
                return []
            rules = read_append_rules(self._catalog, partition.full_name)
            scrub = PartitionScrub(
                self._upkeep.store, self._remote, tiering, rules, partition.number, self._upkeep.now_ms
            )
            return scrub.scrub_partition(head)
        except ReconcilerError as error:
            self._job_result.record_failure(partition, error)
            return None

    def _count_findings(self, surveyed: SurveyedPartition, findings: list[ScrubFinding]) -> None:
        for finding in findings:
            if not finding.is_mended:
                self._job_result.record_failure(surveyed.partition, finding.error)
        if findings:
            self._job_result.counts["anomalies"] += len(findings)
        mended = [finding for finding in findings if finding.is_mended]
        self._job_result.count_work(
            records=sum(finding.records for finding in mended), stored=sum(finding.bytes for finding in mended)
        )


def _compute_phase_ms(key: str) -> int:
    return crc32(key.encode()) % SCRUB_INTERVAL_MS


_CHORE_BYTES: Final = 512 * 1024 * 1024
_CHORE_RUNS: Final = 64
_ANY_SEGMENT: Final = 1 << 30
"""Placeholder for `segment.bytes`, which differs by topic."""


class MergePlanner:
    """Decides which remote segments a pass merges. Thread-safe.

    It stores each partition's first mergeable run; later passes skip older segments.
    """

    def __init__(self, remote: RemoteTier) -> None:
        self._remote = remote
        self._before: dict[str, list[int]] = {}
        self._settled: dict[str, list[int]] = {}
        """High limit, low limit and offset below which nothing is merged, by head key."""

    def load_results(self, survey: Survey) -> None:
        """Load the last pass's results if its limits were the same."""
        judged = repr(read_merge_limits(self._remote.properties, _ANY_SEGMENT))
        if survey.notes.get("limits") != judged:
            survey.rows.clear()
        self._before = survey.notes.get("settled", {})
        self._settled = {key: settled for key, settled in self._before.items() if key in survey.rows}
        survey.notes.update(limits=judged, settled=self._settled)

    def may_merge(self, policy: CleanupPolicy) -> bool:
        """Whether a topic's segments may be merged."""
        return merges_segments(policy, self._remote)

    def find_due_runs(self, surveyed: SurveyedPartition, head: Head) -> tuple[list[Chore] | None, int | None]:
        """Return a partition's runs to merge, or when to check again.

        This also deletes the garbage of interrupted merges.
        """
        tiering, storage = surveyed.policy.tiering, self._remote.storage
        if tiering is None or not merges_segments(surveyed.policy, self._remote):
            return None, None
        place = remote_partition(tiering.location, surveyed.partition.number)
        manifest = read_manifest(storage, place)
        if manifest is None:
            return None, None
        check_manifest_owner(place, manifest, self._remote.cluster_id)
        check_has_uploaded_records(manifest, head, place, surveyed.partition)
        delete_manifest_garbage(ManifestSwap(storage, self._remote.cluster_id, tiering), place, manifest.garbage)
        limits = read_merge_limits(self._remote.properties, surveyed.policy.limits.bytes)
        high, low, settled = self._before.get(surveyed.key, [0, 0, 0])
        start = max(manifest.start, settled if (high, low) == (limits.high, limits.low) else 0)
        # Copies of local segments are not merged: a compacted segment is evicted only if its remote copy is equal.
        floor = head.compacted_to if head.compacted_to > head.local_start else 0
        found_there = iter_entries_within(storage, manifest, OffsetRange(start, max(start, manifest.end)))
        entries = (entry for entry in found_there if entry.base >= floor)
        runs = [run for run in iter_runs(entries, limits) if run.is_mergeable]
        self._settled[surveyed.key] = [limits.high, limits.low, runs[0].entries[0].base if runs else manifest.end]
        return list(_group_runs(surveyed.partition, runs, limits)) or None, None


def _group_runs(partition: Partition, runs_found: Iterable[MergeRun], limits: MergeLimits) -> Iterator[Chore]:
    runs = stored = start = stop = 0
    for run in runs_found:
        if not run.should_merge(limits):
            continue
        if runs and (runs == _CHORE_RUNS or stored + run.bytes > _CHORE_BYTES):
            yield Chore(partition, stored, OffsetRange(start, stop))
            runs = stored = 0
        start = start if runs else run.entries[0].base
        runs, stored, stop = runs + 1, stored + run.bytes, run.entries[-1].last + 1
    if runs:
        yield Chore(partition, stored, OffsetRange(start, stop))
