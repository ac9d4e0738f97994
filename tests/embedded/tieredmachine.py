"""A state machine that drives a tiered topic against a list in memory, with a death at any write of either store."""

from __future__ import annotations

import itertools
from bisect import insort
from contextlib import suppress
from typing import TYPE_CHECKING, Literal

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from reconciler.embedded.segments.pages import all_entries
from reconciler.embedded.tiered.manifest import read_manifest
from reconciler.embedded.tiered.remote_tier import remote_partition
from reconciler.errors import UserError
from reconciler.lifecycles.tiered import TieringState
from reconciler.records.log import OffsetRange
from tests.embedded.mortal import DAY_MS, Fault
from tests.embedded.tieredmodel import BOTH, CONFIGS, JOBS, KEPT_MS, PARTITIONS, TOPIC, Open, TieredModel

if TYPE_CHECKING:
    from collections.abc import Callable

    from reconciler.embedded.cluster import EmbeddedCluster
    from reconciler.embedded.tiered.manifest import Manifest
    from reconciler.objectstore.base import ObjectStore

    Work = Literal["none", "new", "old"]
    """What a job finds to do: nothing in particular, new segments, or the same and old ones."""

OFF = {"remote.write": "false", "remote.read": "false"}
SWITCHES = {
    "off, retain": {**OFF, "remote.log.disable.policy": "retain"},
    "off, delete": {**OFF, "remote.log.disable.policy": "delete"},
    "on": BOTH,
}
WRITES = {"put": ("put", "copy_in"), "swap": ("swap",), "delete": ("delete",)}

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
            end = self.cluster.log(TOPIC).bounds()[partition].end
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
        end = self.cluster.log(TOPIC).bounds()[partition].end
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
        """Do what one pass of upkeep does."""

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
        head = self.cluster.log(TOPIC).head(number)
        entries = [] if manifest is None else list(all_entries(self.storage, manifest))
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
