"""Whatever retention, rolling and compaction do, in any order: what is readable is what a model allows."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.embedded.upkeeping import append, clocked, head_of, held, named_in, pairs_of, parts_in, with_topic

KEYS = st.sampled_from(["a", "b", "c", "d", "e"])
VALUES = st.one_of(st.none(), st.sampled_from(["", "x", "y"]))
RETENTION_MS = 50_000
TOMBSTONES_MS = 20_000

Row = tuple[int, bytes | None, bytes | None]


class Upkeep(RuleBasedStateMachine):
    """One partition, and all that was ever acknowledged of it."""

    def __init__(self) -> None:
        super().__init__()
        self.cluster, self.clock = clocked()
        self.written: list[Row] = []
        self.times: list[int] = []
        self.cleaned: dict[int, int] = {}
        """When each tombstone was first behind a cleaning."""

    @initialize(segment=st.sampled_from(["1500", "4500", "9000"]), ratio=st.sampled_from(["0", "0.5"]))
    def create(self, segment: str, ratio: str) -> None:
        with_topic(
            self.cluster,
            segment_bytes=segment,
            min_cleanable_dirty_ratio=ratio,
            cleanup_policy="compact,delete",
            retention_ms=str(RETENTION_MS),
            delete_retention_ms=str(TOMBSTONES_MS),
        )
        append(self.cluster, ("a", "first"))
        self.written.append((0, b"a", b"first"))
        self.times.append(self.clock.now_ms)

    @rule(records=st.lists(st.tuples(KEYS, VALUES), min_size=1, max_size=4), parts=st.integers(1, 3))
    def write(self, records: list[tuple[str, str | None]], parts: int) -> None:
        for _ in range(parts):
            append(self.cluster, *records)
            for key, value in records:
                row = (len(self.written), key.encode(), None if value is None else value.encode())
                self.written.append(row)
                self.times.append(self.clock.now_ms)

    @rule(ms=st.sampled_from([1_000, 15_000, 40_000]))
    def wait(self, ms: int) -> None:
        self.clock.now_ms += ms

    @rule()
    def roll(self) -> None:
        before = held(self.cluster)
        assert not self.cluster.upkeep().roll().failed
        assert held(self.cluster) == before

    @rule()
    def retain(self) -> None:
        before, start = self.rows(), head_of(self.cluster).start
        assert not self.cluster.upkeep().retain().failed
        after, begun = self.rows(), head_of(self.cluster).start
        assert begun >= start
        assert after == [row for row in before if row[0] >= begun]
        assert all(self.clock.now_ms - self.times[offset] > RETENTION_MS for offset, _, _ in before if offset < begun)

    @rule()
    def compact(self) -> None:
        before = self.rows()
        assert not self.cluster.upkeep().compact().failed
        after = self.rows()
        assert set(after) <= set(before)
        to = head_of(self.cluster).compacted_to
        newest = {key: offset for offset, key, _ in before if offset < to}
        for row in set(before) - set(after):
            offset, key, value = row
            is_superseded = newest[key] > offset
            is_over = value is None and self.clock.now_ms - self.cleaned.get(offset, self.clock.now_ms) >= TOMBSTONES_MS
            assert offset < to
            assert is_superseded or is_over, row
        for offset, key, value in after:
            assert offset >= to or newest[key] == offset
            if offset < to and value is None:
                self.cleaned.setdefault(offset, self.clock.now_ms)

    @invariant()
    def nothing_is_changed_or_made_up(self) -> None:
        rows = self.rows()
        assert rows == sorted(rows)
        assert all(self.written[row[0]] == row for row in rows)
        if self.written:
            head = head_of(self.cluster)
            assert head.end == len(self.written)
            # The newest record of all is never taken, be it old or a tombstone.
            assert rows[-1] == self.written[-1]
            assert parts_in(self.cluster.store) == named_in(self.cluster)

    def rows(self) -> list[Row]:
        return pairs_of(self.rows_read()) if self.written else []

    def rows_read(self) -> list[dict[str, Any]]:
        rows = held(self.cluster)
        assert all(row["timestamp_ms"] == self.times[row["offset"]] for row in rows)
        return rows


Upkeep.TestCase.settings = settings(max_examples=8, stateful_step_count=25, deadline=None)
test_what_is_readable_is_what_the_model_allows = Upkeep.TestCase
