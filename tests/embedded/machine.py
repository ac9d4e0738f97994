"""A state machine that drives a cluster from two processes, either of which may die at any write, against a model.

What is uncertain after a death is either one of a few states or another; reading settles which. Nothing else may be
there, ever.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule, run_state_machine_as_test

from reconciler.embedded.catalog.model import AclEntry
from reconciler.embedded.check.check import check_cluster
from reconciler.embedded.keys import HEADS
from reconciler.errors import NotAuthorizedError, ProducerFencedError, UserError
from reconciler.records.log import OffsetRange
from reconciler.records.schema import INPUT_SCHEMA
from tests.embedded.deaths import (
    DAY_MS,
    NAMES,
    NAMESPACES,
    OWNERS,
    Driven,
    Fault,
    Process,
    RunOutcome,
    fault,
    has_open,
    has_topics,
    process,
    which,
)
from tests.embedded.model import GROUPS, SHORT_MS, TOMBSTONE_MS, Row, Rule, observe

# The machine's rules about records: appended alone and in transactions, by producers that live or died.


def run_machine(machine: Callable[[], Any], *, examples: int, steps: int, number: int | None = None) -> None:
    """Run a machine so often, with a seed where one is given; else the same each time."""
    budget = settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        phases=[Phase.generate, Phase.shrink],
        database=None,
        derandomize=number is None,
        print_blob=True,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(machine if number is None else seed(number)(machine), settings=budget)


content = st.none() | st.binary(max_size=6)
header = st.tuples(st.text(max_size=3), content)
record = st.tuples(
    st.integers(0, 1),
    st.none() | st.integers(0, 2 * SHORT_MS),
    st.none() | st.sampled_from([b"a", b"b", b"c"]),
    content,
    st.lists(header, max_size=2).map(tuple),
)
records = st.lists(record, min_size=1, max_size=5)


class Writing(Driven):
    """Appends, and decides."""

    @has_topics
    @rule(process=process, which=which, rows=records, fault=fault)
    def append(self, process: int, which: int, rows: Sequence[Any], fault: Fault | None) -> None:
        self._append(process, self._topic(which), rows, fault, None)

    @has_topics
    @rule(process=process, which=which, rows=st.lists(record, min_size=4, max_size=12))
    def append_one_by_one(self, process: int, which: int, rows: Sequence[Any]) -> None:
        for row in rows:
            self._append(process, self._topic(which), [row], None, None)

    @has_topics
    @has_open
    @rule(owner=st.sampled_from(OWNERS), which=which, rows=records, fault=fault)
    def append_in_transaction(self, owner: str, which: int, rows: Sequence[Any], fault: Fault | None) -> None:
        if owner in self.owner:
            ended = self._append(self.owner[owner], self._topic(which), rows, fault, owner)
            if ended is RunOutcome.UNSURE:
                # It says so itself: all that is left to do is to abort.
                self.end_transaction(owner, commits=False, fault=None)

    def _append(
        self, process: int, name: str, rows: Sequence[Any], fault: Fault | None, owner: str | None
    ) -> RunOutcome:
        topic = self.model.topics[name]
        by_partition: dict[int, list[Row]] = {}
        for number, age_ms, key, value, headers in rows:
            # A compacted topic takes no record without a key.
            has_key = key is not None or topic.kind != "compact"
            row = Row(0, self.now_ms - (age_ms or 0), key if has_key else b"", value, headers)
            by_partition.setdefault(number % len(topic.partitions), []).append(row)
        batch = _batch(by_partition)

        def act(it: Process) -> None:
            producer = it.producer if owner is None else it.transactional[owner]
            producer.append(name, batch)
            gained = producer.flush()[name]
            expected = {
                number: OffsetRange(topic.partitions[number].end, topic.partitions[number].end + len(added))
                for number, added in by_partition.items()
            }
            assert gained == expected

        if owner is not None:
            self.model.began_ms.setdefault(owner, self.now_ms)
        possible = [self.model]
        for number, added in sorted(by_partition.items()):
            possible.append(possible[-1].copy())
            possible[-1].topics[name].partitions[number].append(added, owner)
        return self._attempt(process, act, fault, possible)

    # -- transactions

    @rule(process=process, owner=st.sampled_from(OWNERS), takes_over=st.booleans(), fault=fault)
    def begin_transaction(self, process: int, owner: str, *, takes_over: bool, fault: Fault | None) -> None:
        producer = self.processes[process].transactional.get(owner)
        if producer is not None and not takes_over:
            if owner not in self.owner:
                producer.begin()
                self.owner[owner] = process
            return

        def take(it: Process) -> None:
            taken = it.cluster.producer(owner)
            taken.init_transactions()
            taken.begin()
            it.transactional[owner] = taken

        self._fence(owner)
        after = self.model.copy()
        after.decide(owner, commits=False)
        if self._ended(process, take, fault) is RunOutcome.DONE:
            self.model = after
            self.owner[owner] = process
        else:
            self._resolve(owner, [after])

    @has_topics
    @rule(
        process=process,
        owner=st.sampled_from(OWNERS),
        appends=st.lists(st.tuples(which, records), min_size=1, max_size=3),
        commits=st.booleans(),
        fault=fault,
    )
    def whole_transaction(
        self, process: int, owner: str, appends: Sequence[Any], *, commits: bool, fault: Fault | None
    ) -> None:
        self.begin_transaction(process, owner, takes_over=owner not in self.owner, fault=None)
        for number, rows in appends:
            self.append_in_transaction(owner, number, rows, None)
        self.send_offsets(owner, GROUPS[0], appends[0][0], len(appends))
        self.end_transaction(owner, commits=commits, fault=fault)

    @has_open
    @rule(owner=st.sampled_from(OWNERS), commits=st.booleans(), fault=fault)
    def end_transaction(self, owner: str, *, commits: bool, fault: Fault | None) -> None:
        if owner not in self.owner:
            return
        process = self.owner.pop(owner)
        aborted, committed = self.model.copy(), self.model.copy()
        aborted.decide(owner, commits=False)
        committed.decide(owner, commits=True)

        def end(it: Process) -> None:
            producer = it.transactional[owner]
            if commits:
                producer.commit()
            else:
                producer.abort()

        if self._ended(process, end, fault) is RunOutcome.DONE:
            self.model = committed if commits else aborted
        else:
            self._resolve(owner, [aborted, committed] if commits else [aborted])

    @has_topics
    @has_open
    @rule(owner=st.sampled_from(OWNERS), group=st.sampled_from(GROUPS), which=which, at=st.integers(0, 9))
    def send_offsets(self, owner: str, group: str, which: int, at: int) -> None:
        if owner in self.owner and self._has_home(group):
            name = self._topic(which)
            self.processes[self.owner[owner]].transactional[owner].send_offsets(group, {(name, 0): at})
            promised = self.model.promised.setdefault(owner, {}).setdefault(group, {})
            promised[self.model.topics[name].id, 0] = at

    @precondition(lambda self: bool(self.zombies) and bool(self.model.topics))
    @rule(which=which)
    def a_zombie_tries_again(self, which: int) -> None:
        producer = self.zombies.pop()
        with contextlib.suppress(ProducerFencedError):
            with contextlib.suppress(UserError):
                producer.begin()
            producer.send(self._topic(which), b"brains", key=b"zombie")
            producer.commit()
            raise AssertionError("a producer that was fenced has committed")


def _batch(by_partition: dict[int, list[Row]]) -> pa.RecordBatch:
    made = [
        {
            "partition": number,
            "timestamp_ms": row.timestamp_ms,
            "timestamp_type": 0,
            "key": row.key,
            "value": row.value,
            "headers": [{"key": name, "value": content} for name, content in row.headers],
        }
        for number, rows in by_partition.items()
        for row in rows
    ]
    return pa.RecordBatch.from_pylist(made, schema=INPUT_SCHEMA)


# The machine's rules about namespaces and topics: made, moved, deleted.


SEGMENT = {"segment.bytes": "3000"}
"""A part or two."""
KINDS = {
    "plain": SEGMENT,
    "short": {**SEGMENT, "retention.ms": str(SHORT_MS)},
    "compact": {
        **SEGMENT,
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0",
        "delete.retention.ms": str(TOMBSTONE_MS),
    },
}


class ClusterNaming(Driven):
    """Makes, moves and deletes."""

    @initialize(partitions=st.integers(1, 2), kind=st.sampled_from(sorted(KINDS)))
    def begin(self, partitions: int, kind: str) -> None:
        self.create_namespace(0, "shop", None)
        self.create_topic(0, "shop:orders", kind, partitions, None)

    @rule(process=process, name=st.sampled_from(NAMESPACES), fault=fault)
    def create_namespace(self, process: int, name: str, fault: Fault | None) -> None:
        if name not in self.model.namespaces:
            self._do(process, lambda it: it.cluster.create_namespace(name), fault, lambda m: m.create_namespace(name))

    @rule(
        process=process,
        name=st.builds(
            lambda namespace, name: f"{namespace}:{name}".lstrip(":"),
            st.sampled_from(["", *NAMESPACES]),
            st.sampled_from(NAMES),
        ),
        kind=st.sampled_from(sorted(KINDS)),
        partitions=st.integers(1, 2),
        fault=fault,
    )
    def create_topic(self, process: int, name: str, kind: str, partitions: int, fault: Fault | None) -> None:
        namespace = name.rpartition(":")[0]
        if name in self.model.topics or (namespace and namespace not in self.model.namespaces):
            with contextlib.suppress(UserError):
                self.processes[process].cluster.create_topic(name)
                raise AssertionError(name)
            return
        self._do(
            process,
            lambda it: it.cluster.create_topic(name, partitions=partitions, configs=KINDS[kind]),
            fault,
            lambda model: model.create_topic(name, kind, partitions),
        )

    @has_topics
    @rule(process=process, which=which, to=st.sampled_from(["", *NAMESPACES]), fault=fault)
    def move_topic(self, process: int, which: int, to: str, fault: Fault | None) -> None:
        name = self._topic(which)
        target = f"{to}:{name.rpartition(':')[2]}".lstrip(":")
        if target not in self.model.topics and (not to or to in self.model.namespaces):
            self._do(
                process,
                lambda it: it.cluster.move_topic(name, target),
                fault,
                lambda model: model.move_topic(name, target),
            )

    @precondition(lambda self: len(self.model.topics) > 1)
    @rule(process=process, which=which, fault=fault)
    def delete_topic(self, process: int, which: int, fault: Fault | None) -> None:
        name = self._topic(which)
        self._do(process, lambda it: it.cluster.delete_topic(name), fault, lambda model: model.delete_topic(name))

    @precondition(lambda self: len(self.model.namespaces) > 1)
    @rule(process=process, name=st.sampled_from(NAMESPACES), fault=fault)
    def delete_namespace(self, process: int, name: str, fault: Fault | None) -> None:
        if name in self.model.namespaces:
            self._do(
                process,
                lambda it: it.cluster.delete_namespace(name, recursive=True),
                fault,
                lambda model: model.delete_namespace(name),
            )


# The machine's rules about groups and access: offsets committed, rules set, and somebody who is held to them.


ALICE = "User:alice"

rules = st.lists(
    st.builds(Rule, st.sampled_from([ALICE, "User:bob", "User:*"]), st.booleans(), st.sampled_from(["read", "write"])),
    max_size=2,
    unique=True,
).map(tuple)


class Committing(Driven):
    """Commits offsets, protects, and tries."""

    @has_topics
    @rule(process=process, group=st.sampled_from(GROUPS), which=which, at=st.integers(0, 9), fault=fault)
    def commit_offsets(self, process: int, group: str, which: int, at: int, fault: Fault | None) -> None:
        name = self._topic(which)
        number = at % len(self.model.topics[name].partitions)
        if self._has_home(group):
            self._do(
                process,
                lambda it: it.cluster.groups.commit(group, {(name, number): at}),
                fault,
                lambda model: model.commit(group, {(model.topics[name].id, number): at}),
            )

    @rule(process=process, group=st.sampled_from(GROUPS), fault=fault)
    def delete_group(self, process: int, group: str, fault: Fault | None) -> None:
        self._do(
            process,
            lambda it: it.cluster.groups.delete(group, force=True),
            fault,
            lambda model: model.groups.pop(group, None),
        )

    # -- access rules

    @has_topics
    @rule(process=process, which=which, rules=rules, fault=fault)
    def protect_topic(self, process: int, which: int, rules: tuple[Rule, ...], fault: Fault | None) -> None:
        name = self._topic(which)
        self.model.topics[name].rules = rules
        if self._ended(process, lambda it: it.cluster.set_topic_acls(name, _acls(rules)), fault) is not RunOutcome.DONE:
            self.processes[process].cluster.set_topic_acls(name, _acls(rules))

    @rule(process=process, name=st.sampled_from(NAMESPACES), rules=rules)
    def protect_namespace(self, process: int, name: str, rules: tuple[Rule, ...]) -> None:
        if name in self.model.namespaces:
            self.processes[process].cluster.set_namespace_acls(name, _acls(rules))
            self.model.namespaces[name] = rules

    @has_topics
    @rule(process=process, which=which)
    def alice_reads_and_writes_what_she_may(self, process: int, which: int) -> None:
        name = self._topic(which)
        cluster = self.processes[process].cluster.acting_as(ALICE)
        cluster.catalog.read()
        assert self._is_allowed(lambda: list(cluster.log(name).read(0, OffsetRange(0, 1)))) is self.model.may(
            ALICE, "read", name
        )
        producer = cluster.producer()
        producer.send(name, b"written", key=b"alice", partition=0)
        if self._is_allowed(producer.flush):
            assert self.model.may(ALICE, "write", name)
            self.model.topics[name].partitions[0].append([Row(0, self.now_ms, b"alice", b"written", ())], None)
        else:
            assert not self.model.may(ALICE, "write", name)

    def _is_allowed(self, act: Callable[[], object]) -> bool:
        try:
            act()
        except NotAuthorizedError:
            return False
        return True


def _acls(rules: Sequence[Rule]) -> list[AclEntry]:
    return [AclEntry(rule.principal, "allow" if rule.is_allowed else "deny", (rule.operation,)) for rule in rules]


class ClusterMachine(ClusterNaming, Writing, Committing):
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
        if self._ended(process, finish, fault) is not RunOutcome.DONE:
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
            assert log.find_offset_at(number, time_ms) == first

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
