import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.records.hashes import Spread, murmur2, partitions_of

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
    """Kafka's `Utils.murmur2`, line by line."""
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
    assert partitions_of(array, partitions, state=Spread()).to_pylist() == expected


def test_an_empty_key_is_a_key() -> None:
    assert partitions_of(pa.array([b"", b""]), 12, state=Spread()).to_pylist() == [slow_murmur2(b"") % 12] * 2


def test_rows_without_a_key_take_turns_of_a_thousand_from_partition_0_across_batches() -> None:
    state, chosen = Spread(), []
    for size in (700, 700, 1600):
        chosen += partitions_of(pa.nulls(size, pa.binary()), 2, state=state).to_pylist()
    assert chosen == [0] * 1000 + [1] * 1000 + [0] * 1000


def test_rows_with_a_key_do_not_count_for_the_turns_of_those_without() -> None:
    keys = pa.array([None, b"abc"] * 1001, pa.binary())
    chosen = partitions_of(keys, 3, state=Spread()).to_pylist()
    assert chosen[::2] == [0] * 1000 + [1]
    assert set(chosen[1::2]) == {479470107 % 3}


def test_a_key_of_a_megabyte_between_short_ones_is_hashed_right() -> None:
    keys = [b"a", b"x" * 1_000_003, b""]
    assert murmur2(pa.array(keys)).tolist() == [slow_murmur2(key) for key in keys]
