"""Whatever is appended in whatever pieces: reading any range gives what a list would give."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reconciler.embedded.segments import head as head_module
from reconciler.objectstore.memory import MemoryStore
from reconciler.records.hashes import compute_digest
from reconciler.records.log import Digest, OffsetRange
from reconciler.records.schema import INPUT_SCHEMA, RECORD_SCHEMA
from tests.embedded.samples import NOW, cluster_in, read

binary = st.none() | st.binary(max_size=12)
header = st.fixed_dictionaries({"key": st.text(max_size=4), "value": binary})
record = st.fixed_dictionaries(
    {
        "partition": st.integers(0, 1),
        "timestamp_ms": st.none() | st.integers(0, NOW),
        "timestamp_type": st.just(0),
        "key": binary,
        "value": binary,
        "headers": st.lists(header, max_size=3),
    }
)
appends = st.lists(st.lists(record, min_size=1, max_size=8), max_size=6)
cuts = st.tuples(st.integers(0, 50), st.integers(0, 50)).map(sorted)


@pytest.mark.thorough
@settings(max_examples=30)
@given(appends=appends, ranges=st.lists(cuts, min_size=1, max_size=4), tail=st.sampled_from([1, 2, 4, 64]))
def test_a_log_is_a_list(appends: list[list[dict[str, Any]]], ranges: list[list[int]], tail: int) -> None:
    before = head_module.TAIL, head_module.BRANCHES
    head_module.TAIL, head_module.BRANCHES = tail, 2
    try:
        check(appends, ranges)
    finally:
        head_module.TAIL, head_module.BRANCHES = before


def check(appends: list[list[dict[str, Any]]], ranges: list[list[int]]) -> None:
    cluster = cluster_in(MemoryStore())
    cluster.create_topic("orders", partitions=2)
    model: dict[int, list[dict[str, Any]]] = {0: [], 1: []}
    for rows in appends:
        producer = cluster.producer()
        producer.append("orders", pa.RecordBatch.from_pylist(rows, schema=INPUT_SCHEMA))
        gained = producer.flush()["orders"]
        starts = {partition: len(kept) for partition, kept in model.items()}
        for row in rows:
            kept = model[row["partition"]]
            time = NOW if row["timestamp_ms"] is None else row["timestamp_ms"]
            kept.append(row | {"offset": len(kept), "timestamp_ms": time})
        assert gained == {
            partition: OffsetRange(starts[partition], len(kept))
            for partition, kept in model.items()
            if len(kept) > starts[partition]
        }
    log = cluster.log("orders")
    for partition, kept in model.items():
        assert log.read_bounds()[partition].end == len(kept)
        for start, stop in ranges:
            expected = pa.RecordBatch.from_pylist(kept[start:stop], schema=RECORD_SCHEMA)
            assert read(log, partition, start, stop) == expected.to_pylist()
            digest = sum(log.read_digests(partition, OffsetRange(start, stop)), Digest())
            assert digest == compute_digest(expected, base=0)
        for time in {row["timestamp_ms"] for row in kept} | {NOW + 1}:
            first = next((row["offset"] for row in kept if row["timestamp_ms"] >= time), None)
            assert log.find_offset_at(partition, time) == first
