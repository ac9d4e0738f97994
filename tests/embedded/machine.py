"""A state machine that drives a cluster from two processes, either of which may die at any write, against a model.

What is uncertain after a death is either one of a few states or another; reading settles which. Nothing else may be
there, ever.
"""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import rule

from reconciler.embedded.check.check import check_cluster
from reconciler.embedded.keys import HEADS
from tests.embedded.committing import Committing
from tests.embedded.driving import fault, has_topics, process, which
from tests.embedded.model import SHORT_MS
from tests.embedded.mortal import DAY_MS, Ended, Fault, Process
from tests.embedded.naming import Naming
from tests.embedded.observing import observe
from tests.embedded.writing import Writing


class ClusterMachine(Naming, Writing, Committing):
    """All of it, with upkeep, and looks at everything."""

    @rule(minutes=st.sampled_from([1, 20, 90]))
    def time_passes(self, minutes: int) -> None:
        self.now_ms += minutes * 60_000

    @rule(process=process, job=st.sampled_from(["retain", "roll", "compact"]), fault=fault)
    def tend(self, process: int, job: str, fault: Fault | None) -> None:
        def tend(it: Process) -> None:
            tended = getattr(it.cluster.upkeep(), job)()
            assert tended.errors == [] or fault is not None

        self._ended(process, tend, fault)
        seen = self._observed()
        if job == "retain":
            self.model.adopt_expired(seen, self.now_ms)
        if job == "compact":
            self.model.adopt_compacted(seen, self.now_ms)
        assert seen == self.model.seen

    @rule(process=process, fault=fault)
    def finish(self, process: int, fault: Fault | None) -> None:
        def finish(it: Process) -> None:
            it.cluster.finish_deletions()
            it.cluster.finish_transactions()

        overdue = self.model.overdue(self.now_ms)
        for owner in overdue:
            self._fence(owner)
        if self._ended(process, finish, fault) is not Ended.DONE:
            finish(self._process())
        for owner in overdue:
            self.model.decide(owner, commits=False)

    @rule(process=process, fault=fault)
    def sweep(self, process: int, fault: Fault | None) -> None:
        """Two days later by the clock of the store: whatever nobody names may go, and nothing else."""
        self.processes[process].store.ahead_ms = 2 * DAY_MS
        self._ended(process, lambda it: it.cluster.sweep(), fault)
        self.processes[process].store.ahead_ms = 0
        assert self._observed() == self.model.seen

    # -- looking

    @rule(process=process)
    def look(self, process: int) -> None:
        """Also who has been there for long sees what there is."""
        assert observe(self.processes[process].cluster) == self.model.seen

    @has_topics
    @rule(process=process, which=which, age_ms=st.integers(-1, 3 * SHORT_MS))
    def look_by_time(self, process: int, which: int, age_ms: int) -> None:
        name, time_ms = self._topic(which), self.now_ms - age_ms
        log = self.processes[process].cluster.log(name)
        for number, partition in enumerate(self.model.topics[name].partitions):
            rows = partition.until(partition.stable)
            first = next((row.offset for row in rows if row.timestamp_ms >= time_ms), None)
            assert log.offset_for_time(number, time_ms) == first

    def teardown(self) -> None:
        """Finish everything: then nothing is left of what is gone, and every object is consistent."""
        self.now_ms += DAY_MS
        overdue = self.model.overdue(self.now_ms)
        last = self._process()
        last.cluster.finish_deletions()
        last.cluster.finish_transactions()
        for owner in overdue:
            self.model.decide(owner, commits=False)
        assert observe(last.cluster) == self.model.seen
        last.store.ahead_ms = 2 * DAY_MS
        last.cluster.sweep()
        living = {topic.id for topic in last.cluster.topics().values()}
        left = [listed.key for prefix in (HEADS, "pages/") for listed in self.inner.list(prefix)]
        assert [key for key in left if key.split("/")[1] not in living] == []
        found = check_cluster(self.inner, deep=True)
        assert found.errors == 0, found.findings
