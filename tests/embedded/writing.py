"""The machine's rules about records: appended alone and in transactions, by producers that live or died."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from reconciler.errors import ProducerFencedError, UserError
from reconciler.records.log import OffsetRange
from reconciler.records.schema import INPUT_SCHEMA
from tests.embedded.driving import OWNERS, Driven, fault, has_open, has_topics, process, which
from tests.embedded.model import SHORT_MS, Row
from tests.embedded.mortal import Ended, Fault, Process
from tests.embedded.observing import GROUPS

if TYPE_CHECKING:
    from collections.abc import Sequence


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
            if ended is Ended.UNSURE:
                # It says so itself: all that is left to do is to abort.
                self.end_transaction(owner, commits=False, fault=None)

    def _append(self, process: int, name: str, rows: Sequence[Any], fault: Fault | None, owner: str | None) -> Ended:
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
        if self._ended(process, take, fault) is Ended.DONE:
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

        if self._ended(process, end, fault) is Ended.DONE:
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
