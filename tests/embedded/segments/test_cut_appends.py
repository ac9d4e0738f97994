"""Appends larger than `segment.bytes`: cut into parts of at most that size, published by one swap."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.embedded.segments.parts import PartWriter
from reconciler.errors import UnansweredError
from reconciler.objectstore.memory import MemoryStore
from reconciler.records.hashes import compute_digest
from reconciler.records.log import Digest, OffsetRange
from reconciler.records.schema import RECORD_SCHEMA
from tests.embedded.maintenance.tiny_segments import (
    ALL,
    TOPIC,
    clocked,
    digest_in,
    head_of,
    held,
    parts_in,
    with_topic,
)
from tests.embedded.stores import DiedError, WatchedStore
from tests.embedded.tiered.tiered_cluster import tiered

if TYPE_CHECKING:
    from reconciler.embedded.cluster import EmbeddedCluster


MIB = 1 << 20
LIMIT = 20_000
SMALL = {"segment_bytes": str(LIMIT)}
CODECS = ["producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"]


def random_values(count: int, size: int) -> list[bytes]:
    random = np.random.default_rng(1)
    return [random.bytes(size) for _ in range(count)]


def appended(cluster: EmbeddedCluster, given: list[bytes]) -> OffsetRange:
    producer = cluster.producer()
    producer.append(TOPIC, pa.RecordBatch.from_pydict({"value": pa.array(given, pa.binary())}))
    return producer.flush()[TOPIC][0]


def is_cut(cluster: EmbeddedCluster, limit: int = LIMIT) -> bool:
    """Tell whether a partition has several parts, one after the other, none above the limit or much below half."""
    entries = head_of(cluster).entries
    assert [entry.base for entry in entries] == [0, *[entry.last + 1 for entry in entries[:-1]]]
    assert all(entry.bytes <= limit for entry in entries)
    assert all(entry.bytes > limit // 2 for entry in entries[:-1])
    return len(entries) > 1


def test_local_retention_evicts_most_of_one_large_append() -> None:
    targets = {"retention_local_target_bytes": str(2 * MIB), "retention_local_strict": "true"}
    it = tiered(segment_bytes=str(MIB), retention_ms="-1", **targets)
    given = random_values(4_700, 1_000)
    assert appended(it.cluster, given) == OffsetRange(0, 4_700)
    assert is_cut(it.cluster, MIB)
    assert head_of(it.cluster).stored_bytes > 4 * MIB
    it.upload()
    it.cluster.upkeep().retain()
    head = head_of(it.cluster)
    assert 0 < head.stored_bytes <= 2 * MIB
    assert head.start == 0 < head.local_start < head.end
    assert [row["value"] for row in held(it.cluster)] == given


def test_total_retention_lets_go_of_the_oldest_of_one_large_append() -> None:
    cluster, _ = clocked()
    with_topic(cluster, **SMALL, retention_ms="-1", retention_bytes="50000")
    given = random_values(300, 300)
    appended(cluster, given)
    cluster.upkeep().retain()
    assert LIMIT < head_of(cluster).stored_bytes <= 50_000
    assert [row["value"] for row in held(cluster)] == given[head_of(cluster).start :]


@pytest.mark.thorough
@given(
    codec=st.sampled_from(CODECS),
    limit=st.integers(14, 30_000),
    seed=st.integers(0, 1 << 20),
    sizes=st.lists(st.tuples(st.integers(1, 60), st.integers(0, 1_000), st.integers(0, 2)), max_size=4),
)
def test_no_part_of_several_records_is_above_the_limit_and_nothing_is_lost(
    codec: str, limit: int, seed: int, sizes: list[tuple[int, int, int]]
) -> None:
    random, offset = Random(seed), 0  # noqa: S311 - hypothesis gives the seed
    batches: list[pa.RecordBatch] = []
    for count, size, headers in sizes:
        rows = [
            {
                "partition": 0,
                "offset": offset + at,
                "timestamp_ms": random.getrandbits(60),
                "timestamp_type": 0,
                "key": random.randbytes(size // 10) if at % 3 else None,
                "value": random.randbytes(size * at % 701) if at % 5 else b"x" * size,
                "headers": [{"key": "h", "value": random.randbytes(7)}] * headers,
            }
            for at in range(count)
        ]
        offset += count
        batches.append(pa.RecordBatch.from_pylist(rows, schema=RECORD_SCHEMA))
    writer = PartWriter(MemoryStore(), "orders", 0, compression=codec, limit=limit)
    entries = list(writer.write(batches))
    # A file of a few records is nearly all frame: no limit makes it smaller.
    assert all(entry.bytes <= max(limit, 5_000) for entry in entries if entry.digest.records > 1)
    assert [entry.base for entry in entries] == [0, *[entry.last + 1 for entry in entries[:-1]]][: len(entries)]
    whole = sum((compute_digest(batch, base=0) for batch in batches), Digest())
    assert sum((entry.digest.shift(entry.base) for entry in entries), Digest()) == whole


def test_a_record_larger_than_a_segment_is_a_part_of_its_own() -> None:
    cluster, _ = clocked()
    with_topic(cluster, **SMALL)
    small, large = b"s" * 10, random_values(1, 3 * LIMIT)[0]
    appended(cluster, [small, small, large, small])
    assert [(entry.base, entry.last) for entry in head_of(cluster).entries] == [(0, 1), (2, 2), (3, 3)]
    assert [row["value"] for row in held(cluster)] == [small, small, large, small]


def test_records_of_very_different_sizes_are_cut_by_bytes_not_by_number() -> None:
    cluster, _ = clocked()
    with_topic(cluster, **SMALL)
    given = [*random_values(2_000, 1), *random_values(60, 1_000)]
    appended(cluster, given)
    assert all(entry.bytes <= LIMIT for entry in head_of(cluster).entries)
    assert [row["value"] for row in held(cluster)] == given


def test_one_swap_names_all_parts_and_a_death_before_it_leaves_nothing_to_read() -> None:
    store = WatchedStore(MemoryStore())
    cluster, _ = clocked(store)
    with_topic(cluster, **SMALL)
    appended(cluster, [b"first"])

    def die(what: str, key: str) -> None:
        if what == "swap" and key.startswith("heads/"):
            raise DiedError

    store.before = die
    with pytest.raises(DiedError):
        appended(cluster, random_values(300, 300))
    store.before = lambda _what, _key: None
    assert [row["value"] for row in held(cluster)] == [b"first"]
    store.calls.clear()
    assert appended(cluster, random_values(300, 300)) == OffsetRange(1, 301)
    assert store.count("put", "topics/") > 3
    assert store.count("swap", "heads/") == 1


def test_a_lost_answer_and_the_same_append_again_bring_all_parts_once() -> None:
    store = WatchedStore(MemoryStore())
    cluster, _ = clocked(store)
    with_topic(cluster, **SMALL)
    lost = iter([True])

    def lose(what: str, key: str) -> None:
        if what == "swap" and key.startswith("heads/") and next(lost, False):
            raise UnansweredError("the answer was lost", hint="Try again.")

    store.after = lose
    producer = cluster.sequenced_producer("p")
    batch = pa.RecordBatch.from_pydict({"value": pa.array(random_values(300, 300), pa.binary())})
    assert producer.append(TOPIC, 0, batch, sequence=0) == OffsetRange(0, 300)
    assert producer.append(TOPIC, 0, batch, sequence=0) == OffsetRange(0, 300)
    assert is_cut(cluster)
    numbers = [(entry.producer or {})["last"] for entry in head_of(cluster).entries]
    assert numbers == [entry.last for entry in head_of(cluster).entries]
    assert producer.last_sequences(TOPIC) == {0: 299}
    assert producer.append(TOPIC, 0, batch, sequence=300) == OffsetRange(300, 600)


@pytest.mark.parametrize("end", ["commit", "abort"])
def test_a_transaction_has_all_parts_or_none(end: str) -> None:
    cluster, _ = clocked()
    with_topic(cluster, **SMALL)
    producer = cluster.producer(transactional_id="t")
    producer.init_transactions()
    producer.begin()
    producer.append(TOPIC, pa.RecordBatch.from_pydict({"value": pa.array(random_values(300, 300), pa.binary())}))
    producer.flush()
    assert is_cut(cluster)
    assert {entry.txn for entry in head_of(cluster).entries} != {None}
    getattr(producer, end)()
    assert [row["offset"] for row in held(cluster)] == (list(range(300)) if end == "commit" else [])
    assert head_of(cluster).end == 300
    assert {entry.txn for entry in head_of(cluster).entries} <= {None}


@pytest.mark.parametrize("at", [OffsetRange(0, 300), None])
def test_what_is_staged_is_cut_and_published_at_once(at: OffsetRange | None) -> None:
    west, _ = clocked()
    with_topic(west)
    appended(west, random_values(300, 300))
    assert len(head_of(west).entries) == 1
    east, _ = clocked()
    with_topic(east, **SMALL)
    sink = east.sink(TOPIC)
    staged = sink.stage(0, west.log(TOPIC).read(0, ALL), at=at)
    assert sink.publish([staged]) == sink.publish([staged]) == {0: OffsetRange(0, 300)}
    assert is_cut(east)
    assert held(east) == held(west)
    assert digest_in(east) == digest_in(west) == staged.digest


def test_a_verbatim_copy_keeps_the_parts_of_its_source() -> None:
    west, _ = clocked()
    with_topic(west)
    appended(west, random_values(300, 300))
    east, _ = clocked()
    with_topic(east, **SMALL)
    sink = east.sink(TOPIC)
    sink.publish([sink.stage_copy(0, west.log(TOPIC), OffsetRange(0, 300))])
    (ours,), (theirs,) = head_of(east).entries, head_of(west).entries
    assert replace(ours, key="") == replace(theirs, key="", producer=None)


def test_an_append_below_the_limit_stays_one_part() -> None:
    cluster, _ = clocked()
    with_topic(cluster, **SMALL)
    appended(cluster, random_values(10, 1_000))
    assert len(head_of(cluster).entries) == len(parts_in(cluster.store)) == 1
