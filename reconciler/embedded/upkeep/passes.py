"""Upkeep of a cluster's partitions: what expired goes, what closed becomes one file and is uploaded, keys compacted.

Which partitions need it is decided from their heads, many at a time, and heads are swapped from a pool of threads. What
writes records anew is handed to a `Spread`, which does it here or on executors.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from reconciler.embedded.remote.leaving.space import disk_under
from reconciler.embedded.remote.tidying.housekeeping import Tidying
from reconciler.embedded.remote.tier import remote_tier
from reconciler.embedded.threads import side_by_side
from reconciler.embedded.upkeep.chores import Chore, Refused, is_little
from reconciler.embedded.upkeep.cleanable import next_cleaning_ms, to_clean
from reconciler.embedded.upkeep.describing import describe
from reconciler.embedded.upkeep.retaining import Retaining
from reconciler.embedded.upkeep.surveying import HeadCache, Survey
from reconciler.embedded.upkeep.tended import Tended
from reconciler.embedded.upkeep.trimming import Trimming
from reconciler.embedded.upkeep.wholelog import is_reached, place_of, remote_entries, whole_segments
from reconciler.errors import ReconcilerError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from reconciler.embedded.catalog.commits import CatalogRegister
    from reconciler.embedded.partition.head import Head
    from reconciler.embedded.partition.headswaps import Partition
    from reconciler.embedded.partition.rebuilding import Gain
    from reconciler.embedded.partition.replacing import Rewritten
    from reconciler.embedded.remote.tier import RemoteTier
    from reconciler.embedded.remote.uploading.upload import Uploaded
    from reconciler.embedded.upkeep.chores import Job
    from reconciler.embedded.upkeep.choretasks import ChoreTask
    from reconciler.embedded.upkeep.cleanup import CleanupPolicy
    from reconciler.embedded.upkeep.merges import Merges
    from reconciler.embedded.upkeep.surveying import Lying
    from reconciler.embedded.upkeep.uploads import Uploads
    from reconciler.objectstore.base import ObjectStore

    Outcome: TypeAlias = Rewritten | Uploaded | Refused
    Spread: TypeAlias = Callable[[Sequence[Chore], ChoreTask], Iterator[Sequence[Outcome]]]
    """Does chores, wherever, and yields what came of them in rounds: what is published in between is safe."""

A = TypeVar("A")
T = TypeVar("T")

if TYPE_CHECKING:
    Look: TypeAlias = Callable[[Lying, Head], tuple[T | None, int | None]]
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

    @property
    def remote(self) -> RemoteTier | None:
        """The remote tier, by the catalog as it was last read."""
        return remote_tier(self.storage, self.cluster_id, self.catalog.known().cluster)

    def retain(self) -> Tended:
        """Delete what has expired, on both tiers; let leave the local one what is uploaded and takes too much."""
        tended = Tended()
        retaining = Retaining(self.store, self.storage, self.cluster_id, self.catalog, self.now_ms)
        for _, found in self._looked("retention", tended, lambda policy: policy.is_bounded, retaining.look):
            tended.count(records=found.records, stored=found.bytes)
        Trimming(retaining, self.heads, self.is_wanted, self.disk_bytes).trim(tended)
        return tended

    def roll(self, spread: Spread | None = None) -> Tended:
        """Make one file of every closed segment; with `spread` where there is more than a little to do, else here."""
        return self._rewritten("roll", spread, lambda _policy: True, self._to_roll)

    def upload(self, spread: Spread | None = None) -> Tended:
        """Copy to object storage what tiered topics have closed; `spread` as in `roll`."""
        from reconciler.embedded.upkeep.uploads import Uploads  # noqa: PLC0415 - brings Arrow

        catalog = self.catalog.read()
        tended, remote = Tended(), self.remote
        if remote is None:
            return tended

        uploads, survey = Uploads(self.store, remote, self.now_ms), Survey.begun(self.store, self.cluster_id, "upload")
        for full_name, error in describe(remote, catalog, self.is_wanted, survey.notes.setdefault("topics", {})):
            tended.fail(full_name, error)
        found = sorted(self._found(survey, tended, _uploads, uploads.due), key=_backlog)
        chores = _all_of(found)
        tended.levels = uploads.share(survey.notes, sum(chore.bytes for chore in chores))
        survey.end()
        self.upload_all(uploads, chores, tended, spread)
        again = _all_of(self._looked("reupload", tended, uploads.reuploads, uploads.outdated))
        self.reupload_all(again, tended, spread)
        return tended

    def upload_all(self, uploads: Uploads, chores: Sequence[Chore], tended: Tended, spread: Spread | None) -> None:
        """Upload what was found due, and name it round by round."""
        self._spread("upload", spread, chores, tended, lambda taken, put_ms: self._name(uploads, taken, put_ms, tended))

    def reupload_all(self, chores: Sequence[Chore], tended: Tended, spread: Spread | None) -> None:
        """Upload once more what was found compacted since."""
        self._spread("reupload", spread, chores, tended, lambda taken, put_ms: self._publish(taken, put_ms, tended))

    def compact(self, spread: Spread | None = None) -> Tended:
        """Compact every partition of which it is worth it by now; `spread` as in `roll`."""
        with self.tidying.turn("compact", self.catalog.read().cluster.properties) as may_tidy:

            def look(lying: Lying, head: Head) -> tuple[Chore | None, int | None]:
                is_local = head.start == head.local_start
                return self._to_compact(lying, head) if is_local or may_tidy() else (None, self.now_ms())

            return self._rewritten("compact", spread, lambda policy: policy.compacts, look)

    def merge(self, spread: Spread | None = None) -> Tended:
        """Make one object of small neighbours in object storage; `spread` as in `roll`."""
        from reconciler.embedded.upkeep.merges import Merges  # noqa: PLC0415 - brings Arrow

        properties, tended, remote = self.catalog.read().cluster.properties, Tended(), self.remote
        if remote is None:
            return tended
        merges = Merges(remote)
        with self.tidying.turn("merge", properties) as may_tidy:
            giving_way = replace(self, is_stopped=lambda: self.is_stopped() or not may_tidy())
            giving_way._merge(merges, spread, tended)  # noqa: SLF001 - it is ourselves
        return tended

    def _merge(self, merges: Merges, spread: Spread | None, tended: Tended) -> None:
        found = _all_of(self._looked("merge", tended, merges.asks, merges.due, begin=merges.begin))
        self._spread("merge", spread, found, tended, lambda taken, put_ms: self._publish(taken, put_ms, tended))

    def _to_roll(self, lying: Lying, head: Head) -> tuple[Chore | None, int | None]:
        from reconciler.embedded.upkeep.rolling import bytes_to_roll  # noqa: PLC0415 - brings Arrow

        stored = bytes_to_roll(self.store, head, lying.policy)
        return None if stored is None else Chore(lying.partition, stored), None

    def _to_compact(self, lying: Lying, head: Head) -> tuple[Chore | None, int | None]:
        now_ms, remote = self.now_ms(), self.remote
        if not is_reached(head, lying.policy, remote):
            return None, now_ms
        there = remote_entries(head, place_of(lying.policy, lying.partition), remote)
        segments = list(whole_segments(self.store, head, there, lying.policy))
        found = to_clean(segments, head, lying.policy, now_ms=now_ms)
        if not found:
            return None, next_cleaning_ms(segments, head, lying.policy, now_ms=now_ms)
        return Chore(lying.partition, sum(segment.bytes for segment in found)), None

    def _rewritten(
        self, job: Job, spread: Spread | None, asks: Callable[[CleanupPolicy], bool], look: Look[Chore]
    ) -> Tended:
        tended = Tended()
        chores = [found for _, found in self._looked(job, tended, asks, look)]
        self._spread(job, spread, chores, tended, lambda taken, put_ms: self._publish(taken, put_ms, tended))
        return tended

    def _spread(
        self,
        job: Job,
        spread: Spread | None,
        chores: Sequence[Chore],
        tended: Tended,
        publish: Callable[[Iterable[Outcome], int], None],
    ) -> None:
        """Do chores, wherever, and publish each round with when its writing began at the earliest."""
        from reconciler.embedded.upkeep.choretasks import ChoreTask, do_here  # noqa: PLC0415 - brings Arrow

        if not chores or self.is_stopped():
            return
        put_ms = self.now_ms()
        task = ChoreTask(self.store, self.catalog, self.cluster_id, job, put_ms, self.remote)
        do = do_here if spread is None or is_little(chores) else spread
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
        tended: Tended,
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
        self, survey: Survey, tended: Tended, asks: Callable[[CleanupPolicy], bool], look: Look[T]
    ) -> Iterator[tuple[Partition, T]]:
        """Yield the partitions in which something was found: their heads are going to change."""

        def is_asked(full_name: str, policy: CleanupPolicy) -> bool:
            return self.is_wanted(full_name) and asks(policy)

        def looked(lying: Lying) -> T | None:
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

    def _publish(self, taken: Iterable[Outcome], put_ms: int, tended: Tended) -> None:
        """Publish a round, many partitions at a time, of each in the order of its offsets."""
        from reconciler.embedded.partition.replacing import Rewritten  # noqa: PLC0415 - as above
        from reconciler.embedded.upkeep.publishing import drop, publish  # noqa: PLC0415 - as above

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

    def _name(self, uploads: Uploads, taken: Iterable[Outcome], put_ms: int, tended: Tended) -> None:
        """Name a round of uploads, many partitions at a time, of each in the order of its offsets."""
        from reconciler.embedded.remote.uploading.upload import Uploaded  # noqa: PLC0415 - as above

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
