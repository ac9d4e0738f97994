import struct

import numpy as np
import pyarrow as pa
import pytest
import xxhash
from hypothesis import assume, given
from hypothesis import strategies as st

from reconciler.records.hashes import RoundRobinPosition, assign_partitions, compute_digest, compute_hashes, murmur2
from reconciler.records.log import Digest
from reconciler.records.schema import RECORD_SCHEMA
from tests.records.generated import batch_of, batches, records

MODULUS = 2**128
PLAIN = {"timestamp_ms": 5, "timestamp_type": 0, "key": b"k", "value": b"v", "headers": []}


def slow_hash(row: dict) -> int:
    """The frame as the module describes it, one record at a time."""

    def length(content: bytes | None) -> int:
        return -1 if content is None else len(content)

    key, value = row["key"], row["value"]
    frame = struct.pack("<qiii", row["timestamp_ms"], length(key), length(value), len(row["headers"]))
    frame += (key or b"") + (value or b"")
    for header in row["headers"]:
        name = header["key"].encode()
        frame += struct.pack("<ii", len(name), length(header["value"])) + name + (header["value"] or b"")
    return xxhash.xxh3_128_intdigest(frame)


def slow_digest(batch: pa.RecordBatch, base: int) -> Digest:
    rows = batch.to_pylist()
    total = sum(slow_hash(row) for row in rows)
    weighted = sum((row["offset"] - base) * slow_hash(row) for row in rows)
    return Digest(len(rows), total % MODULUS, weighted % MODULUS)


@given(batches(), st.integers(0, 2**45))
def test_the_columnar_digest_is_the_one_taken_record_by_record(batch: pa.RecordBatch, base: int) -> None:
    assert compute_digest(batch, base=base) == slow_digest(batch, base)


@given(batches(), st.integers(0, 2**45), st.integers(0, 2**45))
def test_another_base_is_reached_by_arithmetic(batch: pa.RecordBatch, base: int, other: int) -> None:
    assert compute_digest(batch, base=base).shift(base - other) == compute_digest(batch, base=other)


@given(batches(), st.data())
def test_where_records_are_cut_does_not_show(batch: pa.RecordBatch, data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, batch.num_rows))
    left, right = batch.slice(0, cut), batch.slice(cut)
    assert compute_digest(left, base=7) + compute_digest(right, base=7) == compute_digest(batch, base=7)


@given(batches(min_size=2))
def test_two_records_that_change_places_change_the_digest(batch: pa.RecordBatch) -> None:
    hashes = [bytes(row) for row in compute_hashes(batch)]
    assume(hashes[0] != hashes[1])
    swapped = batch.take([1, 0, *range(2, batch.num_rows)])
    moved = swapped.set_column(1, RECORD_SCHEMA.field("offset"), batch.column("offset"))
    before, after = compute_digest(batch, base=0), compute_digest(moved, base=0)
    assert before.total == after.total
    assert before.weighted != after.weighted


@given(records, records)
def test_different_records_have_different_hashes(one: dict, other: dict) -> None:
    alike = {**one, "timestamp_type": 0} == {**other, "timestamp_type": 0}
    first, second = compute_hashes(batch_of([one, other]))
    assert (bytes(first) == bytes(second)) == alike


def test_null_and_empty_are_told_apart_in_keys_values_and_headers() -> None:
    rows = [
        PLAIN,
        {**PLAIN, "key": None},
        {**PLAIN, "key": b""},
        {**PLAIN, "value": None},
        {**PLAIN, "value": b""},
        {**PLAIN, "key": b"", "value": b"kv"},
        {**PLAIN, "key": b"kv", "value": b""},
        {**PLAIN, "headers": [{"key": "a", "value": None}]},
        {**PLAIN, "headers": [{"key": "a", "value": b""}]},
        {**PLAIN, "headers": [{"key": "", "value": b"a"}]},
        {**PLAIN, "headers": [{"key": "a", "value": None}, {"key": "", "value": None}]},
    ]
    assert len({bytes(row) for row in compute_hashes(batch_of(rows))}) == len(rows)


def test_a_batch_larger_than_one_piece_has_the_digest_of_its_pieces() -> None:
    batch = batch_of([{**PLAIN, "value": str(i).encode()} for i in range(70_000)])
    assert compute_digest(batch, base=3) == slow_digest(batch, 3)


def test_a_slice_is_hashed_like_a_copy_of_it() -> None:
    batch = batch_of([{**PLAIN, "headers": [{"key": str(i), "value": None}] * (i % 3)} for i in range(20)])
    copied = pa.RecordBatch.from_pylist(batch.slice(5, 9).to_pylist(), schema=RECORD_SCHEMA)
    assert compute_digest(batch.slice(5, 9), base=0) == compute_digest(copied, base=0)


def test_no_records_have_the_empty_digest() -> None:
    assert compute_digest(batch_of([]), base=9) == Digest()


# UtilsTest.testMurmur2 of Apache Kafka's clients.
KNOWN = {
    "21": -973932308,
    "foobar": -790332482,
    "a-little-bit-long-string": -985981536,
    "a-little-bit-longer-string": -1486304829,
    "lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    "abc": 479470107,
}


def slow_murmur2(key: bytes) -> int:
    m, word = 0x5BD1E995, 0xFFFFFFFF
    mixed = 0x9747B28C ^ len(key)
    for at in range(0, len(key) & ~3, 4):
        k = int.from_bytes(key[at : at + 4], "little") * m & word
        k ^= k >> 24
        mixed = (mixed * m & word) ^ (k * m & word)
    rest = key[len(key) & ~3 :]
    if rest:
        mixed = (mixed ^ int.from_bytes(rest, "little")) * m & word
    mixed ^= mixed >> 13
    mixed = mixed * m & word
    return mixed ^ mixed >> 15


@pytest.mark.parametrize(("key", "expected"), KNOWN.items())
def test_murmur2_gives_what_kafkas_own_test_expects(key: str, expected: int) -> None:
    assert murmur2(pa.array([key.encode()])).astype(np.int32).tolist() == [expected]


@given(st.lists(st.binary(max_size=30)), st.integers(1, 300), st.integers(0, 5))
def test_every_key_goes_where_kafkas_java_client_sends_it(keys: list[bytes], partitions: int, skipped: int) -> None:
    array = pa.array([b"before"] * skipped + keys, pa.binary()).slice(skipped)
    expected = [(slow_murmur2(key) & 0x7FFFFFFF) % partitions for key in keys]
    assert assign_partitions(array, partitions, state=RoundRobinPosition()).to_pylist() == expected


def test_an_empty_key_is_a_key() -> None:
    assert (
        assign_partitions(pa.array([b"", b""]), 12, state=RoundRobinPosition()).to_pylist()
        == [slow_murmur2(b"") % 12] * 2
    )


def test_rows_without_a_key_take_turns_of_a_thousand_from_partition_0_across_batches() -> None:
    state, chosen = RoundRobinPosition(), []
    for size in (700, 700, 1600):
        chosen += assign_partitions(pa.nulls(size, pa.binary()), 2, state=state).to_pylist()
    assert chosen == [0] * 1000 + [1] * 1000 + [0] * 1000


def test_rows_with_a_key_do_not_count_for_the_turns_of_those_without() -> None:
    keys = pa.array([None, b"abc"] * 1001, pa.binary())
    chosen = assign_partitions(keys, 3, state=RoundRobinPosition()).to_pylist()
    assert chosen[::2] == [0] * 1000 + [1]
    assert set(chosen[1::2]) == {479470107 % 3}


def test_a_key_of_a_megabyte_between_short_ones_is_hashed_right() -> None:
    keys = [b"a", b"x" * 1_000_003, b""]
    assert murmur2(pa.array(keys)).tolist() == [slow_murmur2(key) for key in keys]
