"""Maintenance passes over the partitions of a cluster, with scrub and merge jobs.

Which partitions need it is decided from their heads, many at a time, and heads are swapped from a pool of threads. What
writes records anew is handed to a `Spread`, which does it here or on executors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar
from zlib import crc32

from reconciler.archives.manifest import ManifestSwap, check_own, purge, read_manifest, remote_partition
from reconciler.archives.pages import entries_within
from reconciler.archives.storage import check_storage
from reconciler.embedded.maintenance.chores import Chore, ChoreTask, Job, Refused
from reconciler.embedded.maintenance.compaction import (
    is_reached,
    next_cleaning_ms,
    place_of,
    remote_entries,
    to_clean,
    whole_segments,
)
from reconciler.embedded.maintenance.local_space import Retaining, Trimming
from reconciler.embedded.maintenance.roll import MergeLimits, Run, merge_limits, merges, runs_of
from reconciler.embedded.maintenance.survey import (
    HeadCache,
    MaintenanceResult,
    Survey,
    SurveyedPartition,
    remember,
    remembered,
)
from reconciler.embedded.maintenance.uploads import Uploads, describe, describe_anew
from reconciler.embedded.segments.admission import rules_of
from reconciler.embedded.segments.head import Head, Partition
from reconciler.embedded.tiered.cluster_metadata import MetadataKeeper, MetadataKept
from reconciler.embedded.tiered.idle_work import Tidying
from reconciler.embedded.tiered.object_rewrites import Rewritten
from reconciler.embedded.tiered.remote_retention import disk_under
from reconciler.embedded.tiered.remote_tier import RemoteTier, check_not_behind, remote_tier
from reconciler.embedded.tiered.scrub import Scrub, ScrubFinding
from reconciler.embedded.tiered.upload import Uploaded
from reconciler.errors import ReconcilerError
from reconciler.records.log import OffsetRange
from reconciler.resources.cluster_properties import ENABLED, METADATA_INTERVAL, METADATA_UPLOADS, property_of
from reconciler.runtime.threads import side_by_side

if TYPE_CHECKING:
    from reconciler.embedded.catalog.commits import CatalogRegister
    from reconciler.embedded.catalog.tables import Catalog
    from reconciler.embedded.segments.retention import CleanupPolicy
    from reconciler.embedded.segments.rewrites import Gain
    from reconciler.objectstore.base import ObjectStore


Outcome: TypeAlias = Rewritten | Uploaded | Refused
Spread: TypeAlias = Callable[[Sequence[Chore], ChoreTask], Iterator[Sequence[Outcome]]]
"""Does chores, wherever, and yields what came of them in rounds: what is published in between is safe."""

A = TypeVar("A")
T = TypeVar("T")

Look: TypeAlias = Callable[[SurveyedPartition, Head], tuple[T | None, int | None]]
"""Finds something in a partition, or when to look again although nothing was written; `None`: never."""


@dataclass(frozen=True)
class Upkeep:
    """One pass over the partitions of a cluster; its jobs share the heads they read."""

    store: ObjectStore
    catalog: CatalogRegister
    cluster_id: str
    now_ms: Callable[[], int]
    """The clock that records expire by."""
    is_wanted: Callable[[str], bool] = lambda _full_name: True
    is_stopped: Callable[[], bool] = lambda: False
    heads: HeadCache = field(default_factory=HeadCache)
    storage: ObjectStore | None = None
    """Where the cluster's remote objects are, if it has object storage."""
    tidying: Tidying = field(default_factory=Tidying)
    """When the remote tier may be tidied."""
    may_go_on: Callable[[], None] = lambda: None
    """Asked before each round is published; may raise, and that job breaks off."""
    disk_bytes: Callable[[ObjectStore], int | None] = disk_under
    """How large the disk under a store is; `None`: there is none."""
    lost: set[str] = field(default_factory=set)
    """Topics that belong to another cluster now, by full name: the first job that finds one tells it."""

    @property
    def remote(self) -> RemoteTier | None:
        """The remote tier, by the catalog as it was last read."""
        return remote_tier(self.storage, self.cluster_id, self.catalog.known().cluster)

    def retain(self) -> MaintenanceResult:
        """Delete what has expired, on both tiers; let leave the local one what is uploaded and takes too much."""
        tended = MaintenanceResult(lost=self.lost)
        retaining = Retaining(self.store, self.storage, self.cluster_id, self.catalog, self.now_ms)
        for _, found in self._looked("retention", tended, lambda policy: policy.is_bounded, retaining.look):
            tended.count(records=found.records, stored=found.bytes)
        Trimming(retaining, self.heads, self.is_wanted, self.disk_bytes).trim(tended)
        return tended

    def roll(self, spread: Spread | None = None) -> MaintenanceResult:
        """Make one file of every closed segment; with `spread` where there is more than a little to do, else here."""
        return self._rewritten("roll", spread, lambda _policy: True, self._to_roll)

    def upload(self, spread: Spread | None = None) -> MaintenanceResult:
        """Copy to object storage what tiered topics have closed; `spread` as in `roll`."""
        from reconciler.embedded.maintenance.uploads import Uploads  # noqa: PLC0415 - brings Arrow

        catalog = self.catalog.read()
        tended, remote = MaintenanceResult(lost=self.lost), self.remote
        if remote is None:
            return tended

        uploads, survey = Uploads(self.store, remote, self.now_ms), Survey.begun(self.store, self.cluster_id, "upload")
        for full_name, error in describe(remote, catalog, self.is_wanted, survey.notes.setdefault("topics", {})):
            tended.fail(full_name, error)
        again: list[Chore] = []

        def due(lying: SurveyedPartition, head: Head) -> tuple[list[Chore] | None, int | None]:
            found, due_ms = uploads.due(lying, head)
            # Those that compact still have a survey of their own.
            if found is None and not lying.policy.compacts and uploads.reuploads(lying.policy):
                outdated, _ = uploads.outdated(lying, head)
                again.extend(outdated or ())
                return None, due_ms if outdated is None else self.now_ms()
            return found, due_ms

        found = sorted(self._found(survey, tended, _uploads, due), key=_backlog)
        chores = _all_of(found)
        tended.levels = uploads.share(survey.notes, sum(chore.bytes for chore in chores))
        survey.end()
        self.upload_all(uploads, chores, tended, spread)
        compacting = self._looked(
            "reupload", tended, lambda policy: policy.compacts and uploads.reuploads(policy), uploads.outdated
        )
        self.reupload_all([*again, *_all_of(compacting)], tended, spread)
        return tended

    def upload_all(
        self, uploads: Uploads, chores: Sequence[Chore], tended: MaintenanceResult, spread: Spread | None
    ) -> None:
        """Upload what was found due, and name it round by round."""
        self._spread("upload", spread, chores, tended, lambda taken, put_ms: self._name(uploads, taken, put_ms, tended))

    def reupload_all(self, chores: Sequence[Chore], tended: MaintenanceResult, spread: Spread | None) -> None:
        """Upload once more what was found compacted since."""
        self._spread("reupload", spread, chores, tended, lambda taken, put_ms: self._publish(taken, put_ms, tended))

    def compact(self, spread: Spread | None = None) -> MaintenanceResult:
        """Compact every partition of which it is worth it by now; `spread` as in `roll`."""
        with self.tidying.turn("compact", self.catalog.read().cluster.properties) as may_tidy:

            def look(lying: SurveyedPartition, head: Head) -> tuple[Chore | None, int | None]:
                is_local = head.start == head.local_start
                return self._to_compact(lying, head) if is_local or may_tidy() else (None, self.now_ms())

            return self._rewritten("compact", spread, lambda policy: policy.compacts, look)

    def merge(self, spread: Spread | None = None) -> MaintenanceResult:
        """Make one object of small neighbours in object storage; `spread` as in `roll`."""
        tended, remote = MaintenanceResult(lost=self.lost), self.remote
        properties = self.catalog.read().cluster.properties
        if remote is None:
            return tended
        merges = Merges(remote)
        with self.tidying.turn("merge", properties) as may_tidy:
            giving_way = replace(self, is_stopped=lambda: self.is_stopped() or not may_tidy())
            giving_way._merge(merges, spread, tended)  # noqa: SLF001 - it is ourselves
        return tended

    def keep_metadata(self, *, is_named: bool = False) -> MetadataKept:
        """Keep in object storage what is not in segments, where the interval is over or (`is_named`) it was asked for.

        Of a cluster with nothing but read replicas nothing is kept: to read may be all that it may do there.

        Raises:
            UserError: What is kept there is of a newer catalog, or another object storage lies there.
        """
        catalog, remote = self.catalog.read(), self.remote
        properties, topics = catalog.cluster.properties, catalog.topics.values()
        switches = (ENABLED, METADATA_UPLOADS)
        if remote is None or any(property_of(properties, name) != "true" for name in switches):
            return MetadataKept()
        if topics and all(topic.replica is not None for topic in topics):
            return MetadataKept()
        _, notes = remembered(self.store, "metadata")
        now_ms, interval_ms = self.now_ms(), int(property_of(properties, METADATA_INTERVAL) or 0)
        looked_ms = notes.get("looked_ms")
        is_due = not isinstance(looked_ms, int) or not looked_ms <= now_ms < looked_ms + interval_ms
        if self.is_stopped() or not (is_due or is_named):
            return MetadataKept()
        check_storage(remote.storage, self.catalog.known().cluster.storage_id)
        keeper = MetadataKeeper(self.store, remote.storage, self.catalog, self.cluster_id, self.now_ms, self.may_go_on)
        kept = keeper.keep(checks=is_named)
        remember(self.store, "metadata", {}, {"looked_ms": now_ms})
        return kept

    def _merge(self, merges: Merges, spread: Spread | None, tended: MaintenanceResult) -> None:
        found = _all_of(self._looked("merge", tended, merges.asks, merges.due, begin=merges.begin))
        self._spread("merge", spread, found, tended, lambda taken, put_ms: self._publish(taken, put_ms, tended))

    def _to_roll(self, lying: SurveyedPartition, head: Head) -> tuple[Chore | None, int | None]:
        from reconciler.embedded.tiered.object_rewrites import bytes_to_roll  # noqa: PLC0415 - brings Arrow

        stored = bytes_to_roll(self.store, head, lying.policy)
        return None if stored is None else Chore(lying.partition, stored), None

    def _to_compact(self, lying: SurveyedPartition, head: Head) -> tuple[Chore | None, int | None]:
        now_ms, remote = self.now_ms(), self.remote
        if not is_reached(head, lying.policy, remote):
            return None, now_ms
        there = remote_entries(head, place_of(lying.policy, lying.partition), remote)
        segments = list(whole_segments(self.store, head, there, lying.policy))
        found = to_clean(segments, head, lying.policy, now_ms=now_ms)
        if not found:
            return None, next_cleaning_ms(segments, head, lying.policy, now_ms=now_ms)
        dirty = [entry for segment in found for entry in segment.entries if entry.last >= head.compacted_to]
        keys = sum(entry.digest.records for entry in dirty)
        return Chore(lying.partition, sum(segment.bytes for segment in found), keys=keys), None

    def _rewritten(
        self, job: Job, spread: Spread | None, asks: Callable[[CleanupPolicy], bool], look: Look[Chore]
    ) -> MaintenanceResult:
        tended = MaintenanceResult(lost=self.lost)
        chores = [found for _, found in self._looked(job, tended, asks, look)]
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
        """Do chores, wherever, and publish each round with when its writing began at the earliest."""
        from reconciler.embedded.maintenance.chores import ChoreTask, do_here  # noqa: PLC0415 - brings Arrow

        if not chores or self.is_stopped():
            return
        put_ms = self.now_ms()
        task = ChoreTask(self.store, self.catalog, self.cluster_id, job, put_ms, self.remote)
        do = spread or do_here
        try:
            for taken in do(chores, task):
                self.may_go_on()
                publish(taken, put_ms)
                if self.is_stopped():
                    break
                put_ms = self.now_ms()
        except ReconcilerError as error:
            tended.break_off(error)

    def _looked(
        self,
        job: str,
        tended: MaintenanceResult,
        asks: Callable[[CleanupPolicy], bool],
        look: Look[T],
        *,
        begin: Callable[[Survey], None] = lambda _survey: None,
    ) -> Iterator[tuple[Partition, T]]:
        """Look at the partitions that are due, and yield those in which something was found."""
        survey = Survey.begun(self.store, self.cluster_id, job)
        begin(survey)
        yield from self._found(survey, tended, asks, look)
        survey.end()

    def _found(
        self, survey: Survey, tended: MaintenanceResult, asks: Callable[[CleanupPolicy], bool], look: Look[T]
    ) -> Iterator[tuple[Partition, T]]:
        """Yield the partitions in which something was found: their heads are going to change."""

        def is_asked(full_name: str, policy: CleanupPolicy) -> bool:
            return self.is_wanted(full_name) and asks(policy)

        def looked(lying: SurveyedPartition) -> T | None:
            if self.is_stopped():
                return None
            try:
                head = self.heads.read(self.store, lying)
                found, due_ms = (None, None) if head is None else look(lying, head)
            except ReconcilerError as error:
                tended.fail(lying.partition, error)
                return None
            if found is None:
                survey.remember(lying, due_ms)
            return found

        due = list(survey.due(self.catalog.read(), self.heads, is_asked, now_ms=self.now_ms()))
        for lying, found in zip(due, _side_by_side(looked, due), strict=True):
            if found is not None:
                self.heads.changed(lying.partition)
                yield lying.partition, found

    def _publish(self, taken: Iterable[Outcome], put_ms: int, tended: MaintenanceResult) -> None:
        """Publish a round, many partitions at a time, of each in the order of its offsets."""
        from reconciler.embedded.maintenance.roll import drop, publish  # noqa: PLC0415 - as above
        from reconciler.embedded.tiered.object_rewrites import Rewritten  # noqa: PLC0415 - as above

        remote = self.remote
        by_partition: dict[Partition, list[Rewritten]] = {}
        for one in taken:
            if isinstance(one, Refused):
                tended.fail(one.partition, one.error)
            elif isinstance(one, Rewritten):
                by_partition.setdefault(one.partition, []).append(one)

        def published(of_one: list[Rewritten]) -> list[Gain]:
            gains: list[Gain | None] = []
            for one in of_one:
                try:  # Never what is newer without the older: nothing may be left behind a tombstone that goes.
                    do = drop if tended.has_failed(one.partition) else publish
                    gains.append(do(self.store, remote, one, put_ms=put_ms, now_ms=self.now_ms))
                except ReconcilerError as error:
                    tended.fail(one.partition, error)
            return [gain for gain in gains if gain is not None]

        for partition, gains in zip(by_partition, _side_by_side(published, by_partition.values()), strict=True):
            for gain in gains:
                tended.count(records=gain.records, stored=gain.bytes, partition=partition)
                tended.counts["jobs_cloud_segment_reuploads"] += gain.uploaded

    def _name(self, uploads: Uploads, taken: Iterable[Outcome], put_ms: int, tended: MaintenanceResult) -> None:
        """Name a round of uploads, many partitions at a time, of each in the order of its offsets."""
        from reconciler.embedded.tiered.upload import Uploaded  # noqa: PLC0415 - as above

        by_partition: dict[Partition, list[Uploaded]] = {}
        for one in taken:
            if isinstance(one, Refused):
                tended.fail(one.partition, one.error)
            elif isinstance(one, Uploaded):
                by_partition.setdefault(one.partition, []).append(one)

        def named(of_one: list[Uploaded]) -> Gain | None:
            try:
                return uploads.publish(of_one, put_ms=put_ms)
            except ReconcilerError as error:
                tended.fail(of_one[0].partition, error)
                return None

        for partition, gain in zip(by_partition, _side_by_side(named, by_partition.values()), strict=True):
            if gain is not None:
                tended.count(records=gain.records, stored=gain.bytes, partition=partition)
                tended.counts["segment_uploads_total"] += gain.uploaded
                tended.counts["uploaded_bytes"] += gain.bytes


def _uploads(policy: CleanupPolicy) -> bool:
    return policy.tiering is not None and policy.tiering.uploads


def _all_of(found: Iterable[tuple[Partition, Sequence[Chore]]]) -> list[Chore]:
    return [chore for _, of_one in found for chore in of_one]


def _backlog(found: tuple[Partition, Sequence[Chore]]) -> tuple[int, Partition]:
    """Sort partitions by what waits in them, most first."""
    partition, chores = found
    return -sum(chore.bytes for chore in chores), partition


def _side_by_side(call: Callable[[A], T], given: Iterable[A]) -> Iterator[T]:
    return side_by_side(call, given, name="upkeep")


# The scrub of a pass: once a day of each tiered partition, spread over the day, or at once where it is named.
#
# With a partition goes the description of its topic, which recovery cannot do without.


EVERY_MS: Final = 24 * 60 * 60 * 1000
"""Object storage loses next to nothing: more often, listing it would cost more than it tells."""


def scrub(upkeep: Upkeep, *, is_named: bool = False) -> MaintenanceResult:
    """Hold the manifests that are due against their objects, and look at their topics' descriptions.

    `is_named`: at all of them.

    What could not be mended is an error of its partition; `records` and `bytes` are of what was put again.
    """
    tended, catalog = MaintenanceResult(lost=upkeep.lost), upkeep.catalog.read()
    remote = upkeep.remote
    if remote is None or property_of(remote.properties, ENABLED) != "true":
        return tended
    check_storage(remote.storage, catalog.cluster.storage_id)
    with upkeep.tidying.turn("scrub", remote.properties) as may_tidy:
        _Scrubs(upkeep, remote, catalog, tended).over(may_tidy, is_named=is_named)
    return tended


class _Scrubs:
    """The scrub of one pass."""

    def __init__(self, upkeep: Upkeep, remote: RemoteTier, catalog: Catalog, tended: MaintenanceResult) -> None:
        self._upkeep = upkeep
        self._remote = remote
        self._catalog = catalog
        self._tended = tended

    def over(self, may_tidy: Callable[[], bool], *, is_named: bool) -> None:
        upkeep, now_ms = self._upkeep, self._upkeep.now_ms()
        survey = Survey.begun(upkeep.store, upkeep.cluster_id, "scrub")
        done_ms: dict[str, int] = dict(survey.notes.get("done_ms", {}))
        if is_named:
            survey.rows.clear()
        due = list(survey.due(self._catalog, upkeep.heads, self._asks, now_ms=now_ms))

        def scrubbed(lying: SurveyedPartition) -> list[ScrubFinding] | None:
            next_ms = done_ms.setdefault(lying.key, now_ms - _phase_ms(lying.key)) + EVERY_MS
            if next_ms > now_ms and not is_named:
                survey.remember(lying, next_ms)
                return None
            if upkeep.is_stopped() or not may_tidy():
                return None
            return self._of(lying)

        topics = {name for name in self._catalog.topics if is_named and upkeep.is_wanted(name)}
        for lying, findings in zip(due, side_by_side(scrubbed, due, name="scrub"), strict=True):
            if findings is not None:
                topics.add(lying.partition.full_name)
                done_ms[lying.key] = now_ms
                survey.remember(lying, now_ms + EVERY_MS)
                self._count(lying, findings)
        survey.notes["done_ms"] = {key: at_ms for key, at_ms in done_ms.items() if at_ms > now_ms - 2 * EVERY_MS}
        survey.end()
        self._describe(sorted(topics))

    def _describe(self, full_names: list[str]) -> None:
        now = self._upkeep.catalog.read()  # Of a topic that was deleted meanwhile nothing is made again.

        def described(full_name: str) -> ReconcilerError | None:
            try:
                if full_name in now.topics:
                    describe_anew(self._remote, now, full_name)
            except ReconcilerError as error:
                return error
            return None

        for full_name, error in zip(full_names, side_by_side(described, full_names, name="describe"), strict=True):
            if error is not None:
                self._tended.fail(full_name, error)

    def _asks(self, full_name: str, policy: CleanupPolicy) -> bool:
        return policy.tiering is not None and self._upkeep.is_wanted(full_name)

    def _of(self, lying: SurveyedPartition) -> list[ScrubFinding] | None:
        """Return what was found; `None`: it could not be looked at."""
        tiering, partition = lying.policy.tiering, lying.partition
        try:
            head = self._upkeep.heads.read(self._upkeep.store, lying)
            if head is None or tiering is None:
                return []
            rules = rules_of(self._catalog, partition.full_name)
            scrub = Scrub(self._upkeep.store, self._remote, tiering, rules, partition.number, self._upkeep.now_ms)
            return scrub.done(head)
        except ReconcilerError as error:
            self._tended.fail(partition, error)
            return None

    def _count(self, lying: SurveyedPartition, findings: list[ScrubFinding]) -> None:
        for finding in findings:
            if not finding.is_mended:
                self._tended.fail(lying.partition, finding.error)
        if findings:
            self._tended.counts["anomalies"] += len(findings)
        mended = [finding for finding in findings if finding.is_mended]
        self._tended.count(
            records=sum(finding.records for finding in mended), stored=sum(finding.bytes for finding in mended)
        )


def _phase_ms(key: str) -> int:
    """Return by how much the first scrub of a partition comes before a day has passed: they spread over the day."""
    return crc32(key.encode()) % EVERY_MS


# The merge job of a pass: which partitions have small neighbours in object storage, and in which of their offsets.


_CHORE_BYTES: Final = 512 * 1024 * 1024
_CHORE_RUNS: Final = 64
"""What one task does at once of a partition: neighbouring runs, named together."""
_ANY_SEGMENT: Final = 1 << 30
"""In the place of a topic's own `segment.bytes`, which its policy tells."""


class Merges:
    """Decides for one pass. Safe from any thread.

    What lies before the first run of which anything may become is not looked at again while the limits stay: however
    long a partition's history is, its end alone is read.
    """

    def __init__(self, remote: RemoteTier) -> None:
        """Say where the remote tier is."""
        self._remote = remote
        self._before: dict[str, list[int]] = {}
        self._settled: dict[str, list[int]] = {}
        """By key of a head: high and low, and the offset before which nothing is merged under these."""

    def begin(self, survey: Survey) -> None:
        """Go by what the last pass remembered; look at everything where it is judged otherwise now."""
        judged = repr(merge_limits(self._remote.properties, _ANY_SEGMENT))
        if survey.notes.get("limits") != judged:
            survey.rows.clear()
        self._before = survey.notes.get("settled", {})
        # Of what is neither remembered nor looked at now, the topic is gone.
        self._settled = {key: settled for key, settled in self._before.items() if key in survey.rows}
        survey.notes.update(limits=judged, settled=self._settled)

    def asks(self, policy: CleanupPolicy) -> bool:
        """Tell whether anything of a topic may be merged."""
        return merges(policy, self._remote)

    def due(self, lying: SurveyedPartition, head: Head) -> tuple[list[Chore] | None, int | None]:
        """Return what of a partition is to be merged; `None`: nothing, until more is uploaded.

        What a merge that died has left as garbage is deleted.

        Raises:
            OwnershipLostError: Its remote part belongs to another cluster now.
            UserError: Its manifest lacks what was uploaded: the right one names what merging would delete.
        """
        tiering, storage = lying.policy.tiering, self._remote.storage
        if tiering is None or not merges(lying.policy, self._remote):
            return None, None
        place = remote_partition(tiering.location, lying.partition.number)
        manifest = read_manifest(storage, place)
        if manifest is None:
            return None, None
        check_own(place, manifest, self._remote.cluster_id)
        check_not_behind(manifest, head, place, lying.partition)
        purge(ManifestSwap(storage, self._remote.cluster_id, tiering), place, manifest.garbage)
        limits = merge_limits(self._remote.properties, lying.policy.limits.bytes)
        high, low, settled = self._before.get(lying.key, [0, 0, 0])
        start = max(manifest.start, settled if (high, low) == (limits.high, limits.low) else 0)
        # What was compacted leaves the local tier only as far as its copies are the same, entry by entry.
        floor = head.compacted_to if head.compacted_to > head.local_start else 0
        found_there = entries_within(storage, manifest, OffsetRange(start, max(start, manifest.end)))
        entries = (entry for entry in found_there if entry.base >= floor)
        found = [run for run in runs_of(entries, limits) if run.is_open]
        self._settled[lying.key] = [limits.high, limits.low, found[0].entries[0].base if found else manifest.end]
        return list(_chores(lying.partition, found, limits)) or None, None


def _chores(partition: Partition, found: Iterable[Run], limits: MergeLimits) -> Iterator[Chore]:
    """Yield neighbouring runs together, as many as one task does at once."""
    runs = stored = start = stop = 0
    for run in found:
        if not run.is_worth(limits):
            continue
        if runs and (runs == _CHORE_RUNS or stored + run.bytes > _CHORE_BYTES):
            yield Chore(partition, stored, OffsetRange(start, stop))
            runs = stored = 0
        start = start if runs else run.entries[0].base
        runs, stored, stop = runs + 1, stored + run.bytes, run.entries[-1].last + 1
    if runs:
        yield Chore(partition, stored, OffsetRange(start, stop))
