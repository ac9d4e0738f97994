"""A list in memory beside a tiered topic: what is readable is always a stretch of it, byte for byte.

The list holds every record that was acknowledged, in order, and the model says where the stretch may begin: only what
is older than the topic keeps, what a disabling gives up or what a lost disk took may be missing. No manifest ever names
an object that is not there; in the end nothing lies there that none names.
"""

from __future__ import annotations

import itertools
from bisect import insort
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple
from unittest.mock import patch

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from reconciler.archives.keys import build_index_key, build_location_prefix
from reconciler.archives.location import TopicTiering
from reconciler.archives.manifest import (
    Manifest,
    ManifestSpill,
    ManifestSwap,
    RemotePartition,
    iter_object_keys,
    manifest_register,
    parse_manifest,
    read_manifest,
    remote_partition,
)
from reconciler.archives.pages import iter_all_entries, iter_entries_within
from reconciler.embedded.catalog.tiering_state import find_tiering
from reconciler.embedded.catalog.topics import finish_recovery
from reconciler.embedded.check.check import check_cluster
from reconciler.embedded.cluster import EmbeddedCluster
from reconciler.embedded.maintenance import roll, uploads
from reconciler.embedded.maintenance.roll import SegmentMerge
from reconciler.embedded.maintenance.uploads import UploadJob
from reconciler.embedded.mounts.recovery import Recoveries
from reconciler.embedded.segments.head import Head, swap_head
from reconciler.embedded.tiered import remote_reads, remote_retention, remote_sweep
from reconciler.embedded.tiered.remote_retention import TieredPartition, expire_below
from reconciler.embedded.tiered.topic_deletion import _TopicDisablement
from reconciler.embedded.tiered.upload import PartitionUpload, UploadBatch, iter_segments_to_upload
from reconciler.errors import RetryableError, UserError
from reconciler.lifecycles import TieringState
from reconciler.objectstore.memory import MemoryStore
from reconciler.records.log import Bounds, OffsetRange
from tests.embedded.deaths import DAY_MS, Fault, Fuse, MortalStore
from tests.embedded.samples import NOW, ids, rows_of
from tests.embedded.stores import DiedError

if TYPE_CHECKING:
    from reconciler.archives.entries import Entry
    from reconciler.embedded.clients.topic_log import EmbeddedLog
    from reconciler.embedded.clients.transactional_producer import TransactionalProducer
    from reconciler.embedded.segments.retention import ExpiryResult, Segment
    from reconciler.embedded.tiered.object_rewrites import RemoteRewrite
    from reconciler.objectstore.base import ObjectStore


TOPIC = "orders"
PARTITIONS = 2
KEPT_MS = 3 * DAY_MS
ALL = OffsetRange(0, 1 << 40)
JOBS = ("roll", "upload", "retain", "merge", "finish", "sweep")
BOTH = {"remote.write": "true", "remote.read": "true"}
CONFIGS = {
    "segment.bytes": "4500",
    "retention.ms": str(KEPT_MS),
    "retention.local.target.bytes": "1",
    "retention.local.strict": "true",
    **BOTH,
}


Row = tuple[int, int, bytes]
"""Offset, time and value."""


class Open(NamedTuple):
    """A transaction that is neither committed nor aborted, and its one record."""

    producer: TransactionalProducer
    partition: int
    row: Row


class TieredModel:
    """One topic of two partitions, its local store, its object storage, and what must hold for them."""

    def __init__(self, store: Callable[[], ObjectStore], storage: Callable[[], ObjectStore]) -> None:
        self.make_store, self.storage = store, storage()
        self.now_ms = NOW
        self.new_id = ids()
        self.serial = 0
        self.log: list[list[Row]] = [[] for _ in range(PARTITIONS)]
        """By partition: (offset, time, value) of every record that was acknowledged."""
        self.starts = [0] * PARTITIONS
        """Below it nothing may be readable ever again."""
        self.is_keeping = True
        """Whether only age may take anything from the log's front."""
        self.open: Open | None = None
        self.ended: dict[int, int] = {}
        """By partition: where object storage ends since tiering is off."""
        self.deaths = 0
        """How many processes have died."""
        self._begin(self.make_store())
        self.cluster.create_topic(TOPIC, partitions=PARTITIONS, configs=CONFIGS)

    def _begin(self, store: ObjectStore) -> None:
        self.store = store
        self.cluster = EmbeddedCluster.create(store, now_ms=self._now, new_id=self.new_id, storage=self.storage)
        self.cluster.alter_cluster(
            {
                "cloud_storage_enabled": "true",
                "cloud_storage_spillover_manifest_size": "1024",
                "cloud_storage_segment_size_target": "10000",
            }
        )

    def _now(self) -> int:
        return self.now_ms

    def _recover_or_make(self, location: str) -> None:
        try:
            self.cluster.recover_topic(TOPIC, location, configs=CONFIGS)
        except UserError:
            assert all(not rows for rows in self.log)
            self.cluster.create_topic(TOPIC, partitions=PARTITIONS, configs=CONFIGS)

    # -- looking

    def _look(self) -> None:
        """See that what is readable is what the model says, and nothing else."""
        cluster = EmbeddedCluster.open(self.store, now_ms=self._now, new_id=self.new_id, storage=self.storage)
        tiering, log = self.tiering(), cluster.log(TOPIC)
        for number in range(PARTITIONS):
            bounds, found = self._found(log, number)
            assert bounds.start <= bounds.local_start <= bounds.end
            assert bounds.start >= self.starts[number]
            if tiering.serves and self.is_keeping:
                lost = [row for row in self.log[number] if self.starts[number] <= row[0] < bounds.start]
                assert all(row[1] < self.now_ms - KEPT_MS for row in lost)
            if tiering.serves:
                self.starts[number] = bounds.start
            stable = self.open.row[0] if self.open is not None and self.open.partition == number else bounds.end
            assert found == [row for row in self.log[number] if bounds.start <= row[0] < stable]
            self._look_at_manifest(number, log.read_head(number), tiering)

    def _found(self, log: EmbeddedLog, number: int) -> tuple[Bounds, list[Row]]:
        """Return a partition's bounds and all that is read; threads of whoever is overtaken may be at work in it."""
        bounds = log.read_bounds()[number]
        while True:
            found = [(row["offset"], row["timestamp_ms"], row["value"]) for row in rows_of(log.read(number, ALL))]
            before, bounds = bounds, log.read_bounds()[number]
            if before == bounds:
                return bounds, found

    def _look_at_manifest(self, number: int, head: Head | None, tiering: TopicTiering) -> None:
        manifest = read_manifest(self.storage, remote_partition(tiering.location, number))
        if manifest is None:
            return
        assert head is None or head.uploaded_to <= max(manifest.end, head.start)
        if tiering.state is not TieringState.DISABLED:
            self.ended.clear()
        else:
            # Nobody uploads any more.
            assert manifest.end <= self.ended.setdefault(number, manifest.end)
        there = {listed.key for listed in self.storage.list("topics/")}
        is_there = all(
            {entry.key, build_index_key(entry.key)} <= there for entry in iter_all_entries(self.storage, manifest)
        )
        assert is_there or manifest != read_manifest(self.storage, remote_partition(tiering.location, number))

    def _state(self) -> TieringState:
        return self.tiering().state

    def tiering(self) -> TopicTiering:
        found = find_tiering(self.cluster.catalog.read(), TOPIC, self.cluster.cluster_id)
        assert found is not None
        return found

    # -- the rest

    def _value(self) -> bytes:
        self.serial += 1
        return b"v%05d" % self.serial

    def _alter(self, configs: Mapping[str, str], death: Fault | None) -> None:
        state = self._state()
        try:
            self._mortally(lambda cluster: cluster.alter_topic(TOPIC, configs), death)
        except UserError:
            assert state is TieringState.DISABLING

    def _do(self, cluster: EmbeddedCluster, job: str) -> None:
        match job:
            case "finish":
                cluster.finish_disablings()
            case "sweep":
                cluster.sweep()
            case _:
                assert getattr(cluster.upkeep(), job)().errors == []

    def _mortally(
        self,
        do: Callable[[EmbeddedCluster], object],
        death: Fault | None,
        *,
        ahead_ms: int = 0,
        before: Callable[[str], None] = lambda _what: None,
    ) -> None:
        """Do something in a process of its own that may die, and look at what is left; `before` is called at writes."""
        fuse, stores = Fuse(), []

        def write(what: str, key: str) -> None:
            before(what)
            fuse.before(what, key)

        for inner in (self.store, self.storage):
            store = MortalStore(inner)
            store.fuse, store.before, store.after = fuse, write, fuse.after
            store.ahead_ms = ahead_ms
            stores.append(store)
        cluster = EmbeddedCluster.open(stores[0], now_ms=self._now, new_id=self.new_id, storage=stores[1])
        fuse.arm(death)
        try:
            do(cluster)
        except (DiedError, RetryableError):
            assert death is not None
            self.deaths += 1
        finally:
            self._look_if_there()

    def _look_if_there(self) -> None:
        topic = self.cluster.topics().get(TOPIC)
        if topic is not None and topic.recovering is None and topic.tiering is not None:
            self._look()

    def teardown(self) -> None:
        """Finish everything: then nothing is left over in either store, and every object is consistent."""
        for _ in range(2):
            self._mortally(lambda cluster: [self._do(cluster, job) for job in JOBS], None, ahead_ms=2 * DAY_MS)
        assert self._state() is not TieringState.DISABLING
        found = check_cluster(self.store, deep=True, storage=self.storage)
        assert found.errors == 0, found.findings
        location = self.tiering().location
        there = {
            listed.key for listed in self.storage.list(build_location_prefix(location.cluster_id, location.revision))
        }
        named = {key for number in range(PARTITIONS) for key in self._named(remote_partition(location, number))}
        assert {key for key in there if key.endswith((".parquet", ".index")) or "/pages/" in key} == named

    def _named(self, place: RemotePartition) -> Iterator[str]:
        manifest = read_manifest(self.storage, place)
        if manifest is not None:
            assert not manifest.garbage
            yield from (page.key for page in manifest.pages)
            yield from iter_object_keys(iter_all_entries(self.storage, manifest))


# A state machine that drives a tiered topic against a list in memory, with a death at any write of either store.

Work = Literal["none", "new", "old"]
"""What a job finds to do: nothing in particular, new segments, or the same and old ones."""

OFF = {"remote.write": "false", "remote.read": "false"}
SWITCHES = {
    "off, retain": {**OFF, "remote.log.disable.policy": "retain"},
    "off, delete": {**OFF, "remote.log.disable.policy": "delete"},
    "on": BOTH,
}
WRITES = {"put": ("put", "copy_from"), "swap": ("swap",), "delete": ("delete",)}

partition = st.integers(0, PARTITIONS - 1)
hows = st.sampled_from(["dies before", "dies after"])
deaths = st.one_of(st.none(), st.builds(Fault, st.integers(0, 4), hows), st.builds(Fault, st.integers(0, 20), hows))
moments = st.tuples(st.integers(0, 3), st.sampled_from(sorted(WRITES)))
works = st.sampled_from(["new", "old", "none"])


class TieredMachine(TieredModel, RuleBasedStateMachine):
    """One topic of two partitions, its local store and its object storage."""

    def __init__(self, store: Callable[[], ObjectStore], storage: Callable[[], ObjectStore]) -> None:
        RuleBasedStateMachine.__init__(self)
        TieredModel.__init__(self, store, storage)

    # -- doing

    @rule(partition=partition, count=st.integers(1, 3))
    def append(self, partition: int, count: int) -> None:
        """Append parts; two of them are a segment."""
        for _ in range(count):
            values = [self._value(), self._value()]
            with self.cluster.producer() as producer:
                for value in values:
                    producer.send(TOPIC, value, partition=partition, timestamp_ms=self.now_ms)
            end = self.cluster.log(TOPIC).read_bounds()[partition].end
            self.log[partition] += [(end - len(values) + at, self.now_ms, value) for at, value in enumerate(values)]

    @precondition(lambda self: self.open is None)
    @rule(partition=partition)
    def begin(self, partition: int) -> None:
        """Leave a transaction open: from its record on nothing is readable, nor uploaded."""
        producer = self.cluster.producer("checkout", transaction_timeout_ms=900_000)
        producer.init_transactions()
        producer.begin()
        value = self._value()
        producer.send(TOPIC, value, partition=partition, timestamp_ms=self.now_ms)
        producer.flush()
        end = self.cluster.log(TOPIC).read_bounds()[partition].end
        self.open = Open(producer, partition, (end - 1, self.now_ms, value))

    @precondition(lambda self: self.open is not None)
    @rule(commits=st.booleans())
    def end(self, commits: bool) -> None:  # noqa: FBT001 - hypothesis names its arguments
        """What is aborted leaves a gap, in either tier."""
        was, self.open = self.open, None
        assert was is not None
        if commits:
            was.producer.commit()
            insort(self.log[was.partition], was.row)
        else:
            was.producer.abort()

    @precondition(lambda self: self.open is None)
    @rule(hours=st.sampled_from([1, 20, 50]))
    def time_passes(self, hours: int) -> None:
        self.now_ms += hours * 3_600_000

    @rule(job=st.sampled_from(JOBS), work=works, death=deaths)
    def tend(self, job: str, work: Work, death: Fault | None) -> None:
        """Do one job, maybe die in it; whoever comes next goes on."""
        self._make_work_for(job, work)
        self._mortally(lambda cluster: self._do(cluster, job), death, ahead_ms=2 * DAY_MS if job == "sweep" else 0)

    def _make_work_for(self, job: str, work: Work) -> None:
        """See to it that a job has something to do, where the state of the topic allows it."""
        for number in range(PARTITIONS if work != "none" else 0):
            self.append(number, 10 if job == "merge" else 4)
        before = {"upload": ("roll",), "merge": ("roll", "upload"), "retain": ("roll", "upload")}
        for each in before.get(job, ()) if work != "none" else ():
            self._mortally(lambda cluster, each=each: self._do(cluster, each), None)
        if work == "old" and self.open is None:
            self.now_ms += KEPT_MS + 1

    @rule(death=deaths)
    def tend_wholly(self, death: Fault | None) -> None:
        def all_of_it(cluster: EmbeddedCluster) -> None:
            for job in ("finish", "roll", "upload", "retain", "merge"):
                self._do(cluster, job)

        self._mortally(all_of_it, death)

    @rule(job=st.sampled_from(JOBS), work=works, moment=moments, then=st.sampled_from([*JOBS, *SWITCHES]))
    def overtake(self, job: str, work: Work, moment: tuple[int, str], then: str) -> None:
        """Stop before a write of one job, let another process do all of something, and go on."""

        def faster() -> None:
            if then in SWITCHES:
                self._switch(then, None)
            else:
                self._mortally(lambda cluster: self._do(cluster, then), None)

        self._make_work_for(job, work)
        self._mortally(lambda cluster: self._do(cluster, job), None, before=at_write(moment, faster))

    # -- switching

    @rule(key=st.sampled_from(["remote.write", "remote.read"]), on=st.booleans(), death=deaths)
    def switch(self, key: str, on: bool, death: Fault | None) -> None:  # noqa: FBT001 - as above
        """Switch one of both; where that makes both off, it is a disabling that retains."""
        self._alter({key: str(on).lower()}, death)

    @rule(then=st.sampled_from(sorted(SWITCHES)), death=deaths)
    def switch_both(self, then: str, death: Fault | None) -> None:
        """Switch both together, one of two ways off."""
        self._switch(then, death)

    def _switch(self, then: str, death: Fault | None) -> None:
        if self._state() is TieringState.ENABLED and then == "off, delete":
            self.is_keeping = False
        self._alter(SWITCHES[then], death)

    @precondition(lambda self: self._state() is TieringState.ENABLED)
    @rule(death=deaths)
    def lose_the_disk(self, death: Fault | None) -> None:
        """Everything local is gone; the topic is made anew from object storage, up to what was uploaded."""
        before = self.tiering()
        self.open = None
        for number in range(PARTITIONS):
            manifest = read_manifest(self.storage, remote_partition(before.location, number))
            self._keep_what_is_named(number, manifest)
            # Where retention died between head and manifest, what the head had let go comes back with the manifest.
            self.starts[number] = 0 if manifest is None else manifest.start
        self._begin(self.make_store())
        location = str(before.location)
        with suppress(UserError):  # Nothing was ever uploaded; that this is why is seen below.
            self._mortally(lambda cluster: cluster.recover_topic(TOPIC, location, configs=CONFIGS), death)
        self.cluster.finish_recoveries()
        if TOPIC not in self.cluster.topics():
            self._recover_or_make(location)

    def _keep_what_is_named(self, number: int, manifest: Manifest | None) -> None:
        """Forget what was not uploaded; of what the log still has, that is only what lies above its end there."""
        head = self.cluster.log(TOPIC).read_head(number)
        entries = [] if manifest is None else list(iter_all_entries(self.storage, manifest))
        named = [row for row in self.log[number] if any(each.base <= row[0] <= each.last for each in entries)]
        live = OffsetRange(0 if head is None else head.start, 0 if manifest is None else manifest.end)
        assert set(named) >= {row for row in self.log[number] if live.start <= row[0] < live.stop}
        self.log[number] = named


def at_write(moment: tuple[int, str], do: Callable[[], None]) -> Callable[[str], None]:
    """Return what does something when it is called for that time with a write of that kind, counted from zero."""
    at, kind = moment
    writes = itertools.count()

    def call(what: str) -> None:
        if what in WRITES[kind] and next(writes) == at:
            do()

    return call


# The machine without chance: each of its rules with a death at every write, or overtaken before every write.

Rule = Callable[[TieredMachine, Fault | None], None]


def _tend(job: str, work: Work) -> Rule:
    return lambda machine, death: machine.tend(job=job, work=work, death=death)


def _switch(then: str) -> Rule:
    def rule(machine: TieredMachine, death: Fault | None) -> None:
        machine.tend(job="retain", work="new", death=None)
        machine.switch_both(then=then, death=death)

    return rule


def _recover(machine: TieredMachine, death: Fault | None) -> None:
    machine.tend(job="retain", work="new", death=None)
    machine.lose_the_disk(death=death)


def _behind(machine: TieredMachine, death: Fault | None) -> None:
    machine.tend(job="roll", work="new", death=None)
    machine.tend(job="retain", work="none", death=death)


def _undecided(machine: TieredMachine, death: Fault | None) -> None:
    machine.begin(partition=0)
    machine.tend(job="upload", work="new", death=death)
    machine.end(commits=False)


RULES: Final[Mapping[str, Rule]] = {
    "upload": _tend("upload", "new"),
    "eviction": _tend("retain", "new"),
    "retention": _tend("retain", "old"),
    "merge": _tend("merge", "new"),
    "delete": _switch("off, delete"),
    "retain": _switch("off, retain"),
    "recovery": _recover,
    "retention before any upload": _behind,
    "upload beside a transaction": _undecided,
}
HOWS: Final[tuple[Literal["dies before", "dies after"], ...]] = ("dies before", "dies after")
WORKS: Final[Mapping[str, Work]] = {"roll": "new", "upload": "new", "retain": "old", "merge": "new"}
OTHERS: Final = ("upload", "retain", "merge", "sweep", *SWITCHES)


def die_everywhere(name: str, *, every: int = 1) -> int:
    """Let a rule die before and after each of its writes, others finish what it left; return how often it died."""
    died = 0
    for how in HOWS:
        for at in itertools.count(step=every):
            machine = TieredMachine(MemoryStore, MemoryStore)
            RULES[name](machine, Fault(at, how))
            if not machine.deaths:
                break
            died += 1
            finish(machine)
    return died


def be_overtaken(job: str, then: str, *, moments: int = 3) -> None:
    """Let one job be overtaken by another, or by a switch, before its first writes of each kind."""
    for at, kind in itertools.product(range(moments), WRITES):
        machine = TieredMachine(MemoryStore, MemoryStore)
        machine.overtake(job=job, work=WORKS[job], moment=(at, kind), then=then)
        finish(machine)


def finish(machine: TieredMachine) -> None:
    """Let others come by, switch tiering on again, and see that it all ends well."""
    machine.tend_wholly(death=None)
    machine.switch_both(then="on", death=None)
    machine.tend(job="retain", work="new", death=None)
    machine.teardown()


# Deliberately broken variants of the two tiers: each leaves out one rule of the order of writes, or of reading.


Patched = tuple[Any, str, Any]
"""Where, the name there, and what is put in its place."""


@dataclass(frozen=True, slots=True)
class Broken:
    """A variant: what is put in place of what, and what notices it: deaths in a rule, or a job that is overtaken by."""

    noticed: str | tuple[str, str]
    patches: tuple[Patched, ...]

    @contextmanager
    def applied(self) -> Iterator[None]:
        with ExitStack() as stack:
            for where, name, by in self.patches:
                stack.enter_context(patch.object(where, name, by))
            yield


_put, _publish = PartitionUpload.upload_segments, UploadJob.publish_uploads
_expire, _evictable, _evict = (
    TieredPartition.expire_to,
    remote_retention.find_evictable_segments,
    remote_retention.evict_segments,
)
_publish_remote, _write_merged, _finish = roll.publish_remote, SegmentMerge._write_merged, Recoveries._finish_topic
_read_head, _uploaded, _cut = remote_reads.read_head, Head.with_uploaded, _TopicDisablement._raise_start

_swap = ManifestSwap.__call__

_AHEAD: Final[dict[str, bytes]] = {}
"""Objects that are to be put when they are named."""


def _puts_nothing_yet(self: PartitionUpload, *asked: Any) -> UploadBatch:
    buffer = MemoryStore()
    found = _put(replace(self, storage=buffer), *asked)
    for key in found.keys:
        stored = buffer.get(key)
        assert stored is not None
        _AHEAD[key] = stored.body
    return found


def _names_first(self: UploadJob, found: Sequence[UploadBatch], *, put_ms: int) -> Any:
    gain = _publish(self, found, put_ms=put_ms)
    for one in found if gain is not None else ():
        for key in one.keys:
            self.remote.storage.put(key, _AHEAD[key])
    return gain


def _head_first(self: UploadJob, found: Sequence[UploadBatch], *, put_ms: int) -> Any:
    last = found[-1]
    manifest = read_manifest(self.remote.storage, remote_partition(last.tiering.location, last.partition.number))
    assert manifest is not None
    self._update_head(last.partition, None, replace(manifest, end=last.offsets.stop), last.tiering)
    return _publish(self, found, put_ms=put_ms)


def _all_is_uploaded(store: Any, head: Head, *asked: Any, now_ms: int) -> Any:
    return _evictable(store, replace(head, uploaded_to=head.end), *asked, now_ms=now_ms)


def _swaps_as_if_all_were_uploaded(store: Any, partition: Any, change: Callable[[Head], Head | None]) -> bool:
    def changed(head: Head) -> Head | None:
        after = change(replace(head, uploaded_to=head.end))
        return None if after is None else replace(after, uploaded_to=head.uploaded_to)

    return swap_head(store, partition, changed)


def _evicts_before_the_swap(store: Any, partition: Any, segments: Sequence[Segment]) -> Any:
    store.delete(entry.key for segment in segments for entry in segment.entries)
    return _evict(store, partition, segments)


def _expires_before_the_swap(self: TieredPartition, head: Head, manifest: Manifest, start: int) -> ExpiryResult | None:
    if self.remote is not None:
        gone = iter_entries_within(self.remote.storage, manifest, OffsetRange(0, start))
        self.remote.storage.delete(iter_object_keys(entry for entry in gone if entry.last < start))
    return _expire(self, head, manifest, start)


def _manifest_first(self: TieredPartition, head: Head, _manifest: Manifest, start: int) -> ExpiryResult | None:
    if self.remote is not None:
        storage = self.remote.storage
        spill = ManifestSpill(storage, self.place, self.tiering.spill_bytes)

        def without(found: Manifest) -> Manifest | None:
            cut = expire_below(storage, found, start, spill)
            return None if cut is None else cut.manifest

        self._make_swap(self.remote)(self.place, without)
    return _expire(self, head, self.read_own_manifest(), start)


def _unfenced(self: ManifestSwap, partition: Any, change: Any, *, mark: str | None = None) -> Manifest | None:
    found = manifest_register(self.storage, partition)
    stored = found.read()
    newest = 0 if stored is None else parse_manifest(self.storage, found.key, stored.value).tiered_epoch
    tiering = replace(self.tiering, epoch=max(newest, self.tiering.epoch))
    return _swap(replace(self, tiering=tiering), partition, change, mark=mark)


def _raised_by_whoever_comes(self: Head, to: int, _tiered_epoch: int) -> Head | None:
    return _uploaded(self, to, 1 << 30)


def _opens_too_early(self: Recoveries, found: Any, full_name: str, topic: Any, location: str) -> None:
    self.catalog.commit(lambda draft: finish_recovery(draft, topic.id))
    _finish(self, found, full_name, topic, location)


def _merges_all_but_the_last(self: SegmentMerge, run: tuple[Entry, ...], place: Any) -> Entry:
    return replace(_write_merged(self, run[:-1], place), last=run[-1].last)


def _deletes_its_run_first(storage: Any, rewrite: RemoteRewrite, **times: Any) -> Any:
    manifest = read_manifest(storage, rewrite.partition)
    assert manifest is not None
    for one in rewrite.replacements:
        storage.delete(iter_object_keys(iter_entries_within(storage, manifest, OffsetRange(one.base, one.last + 1))))
    return _publish_remote(storage, rewrite, **times)


def _begins_at_zero(*asked: Any) -> Head | None:
    head = _read_head(*asked)
    return None if head is None else replace(head, start=0)


def _unstable_too(entries: Any, limits: Any, *, stable: int, takes_open: bool = False) -> Iterator[Segment]:
    del stable
    return iter_segments_to_upload(entries, limits, stable=1 << 40, takes_open=takes_open)


def _leaves_the_head(self: Any, store: Any, number: int) -> Head | None:
    return remote_reads.read_head(store, self.topic_id, number)


VARIANTS: Mapping[str, Broken] = {
    "a manifest names what is put after it": Broken(
        "upload",
        ((PartitionUpload, "upload_segments", _puts_nothing_yet), (UploadJob, "publish_uploads", _names_first)),
    ),
    "a head says uploaded before the manifest does": Broken("upload", ((UploadJob, "publish_uploads", _head_first),)),
    "eviction takes what was never uploaded": Broken(
        "retention before any upload",
        (
            (remote_retention, "find_evictable_segments", _all_is_uploaded),
            (remote_retention, "swap_head", _swaps_as_if_all_were_uploaded),
        ),
    ),
    "eviction deletes before its swap": Broken(
        "eviction", ((remote_retention, "evict_segments", _evicts_before_the_swap),)
    ),
    "retention deletes before its swap": Broken(
        "retention", ((TieredPartition, "expire_to", _expires_before_the_swap),)
    ),
    "retention cuts the manifest before the head": Broken(
        "retention", ((TieredPartition, "expire_to", _manifest_first),)
    ),
    "a manifest is swapped under any tiered epoch": Broken(
        ("upload", "off, retain"), ((ManifestSwap, "__call__", _unfenced),)
    ),
    "a head is raised under any tiered epoch": Broken(
        ("upload", "off, delete"), ((Head, "with_uploaded", _raised_by_whoever_comes),)
    ),
    "a topic opens before its partitions are made": Broken(
        "recovery", ((Recoveries, "_finish_topic", _opens_too_early),)
    ),
    "a merge loses the last of its run": Broken("merge", ((SegmentMerge, "_write_merged", _merges_all_but_the_last),)),
    "a merge deletes its run before its swap": Broken("merge", ((roll, "publish_remote", _deletes_its_run_first),)),
    "a reader looks below the start": Broken("retention", ((remote_reads, "read_head", _begins_at_zero),)),
    "an upload takes what is not decided": Broken(
        "upload beside a transaction", ((uploads, "iter_segments_to_upload", _unstable_too),)
    ),
    "a sweep waits for nobody": Broken(("upload", "sweep"), ((remote_sweep, "MIN_AGE_MS", -1),)),
    "a disabling that deletes leaves the head": Broken(
        "delete", ((_TopicDisablement, "_raise_start", _leaves_the_head),)
    ),
}
