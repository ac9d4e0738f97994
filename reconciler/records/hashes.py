"""Hashes of records: a 128-bit hash for digests, and murmur2, which chooses the partition.

Source: `Utils.murmur2` and `BuiltInPartitioner.partitionForKey` of Apache Kafka's clients.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from reconciler.errors import UserError
from reconciler.records.log import Digest
from reconciler.records.schema import RECORD_SCHEMA
from reconciler.runtime.dataclass import dataclass

_SEED: Final = np.uint32(0x9747B28C)
_M: Final = np.uint32(0x5BD1E995)
_WORD: Final = 0xFFFFFFFF
_FEW: Final = 8
RUN: Final = 1_000
"""Number of consecutive rows without a key in one partition."""

Words = npt.NDArray[np.uint32]


@dataclass(slots=True)
class RoundRobinPosition:
    """Round-robin position across batches of one input."""

    keyless: int = 0


def assign_partitions(keys: pa.Array, partitions: int, *, state: RoundRobinPosition) -> pa.Array:
    """Return the partition (int32) of each key. Every 1,000 rows without a key go to the next partition."""
    chosen = compute_key_partitions(keys, partitions)
    if keys.null_count:
        absent = np.flatnonzero(keys.is_null().to_numpy(zero_copy_only=False))
        turns = (state.keyless + np.arange(len(absent))) // RUN
        chosen[absent] = turns % partitions
        state.keyless += len(absent)
    return pa.array(chosen)


def compute_key_partitions(keys: pa.Array, partitions: int) -> npt.NDArray[np.int32]:
    """Return the partition that Kafka's producers choose for each key; undefined for absent keys."""
    return ((murmur2(keys) & np.uint32(0x7FFFFFFF)) % np.uint32(partitions)).astype(np.int32)


def murmur2(keys: pa.Array) -> Words:
    """Return the murmur2 hash of each key, unsigned; undefined for absent keys."""
    starts, lengths, content = _lay_out(keys)
    # Keys are sorted by length, so the keys that have a word at `index` are at the end.
    order = np.argsort(lengths, kind="stable")
    starts, lengths = starts[order], lengths[order]
    mixed = _SEED ^ lengths.astype(np.uint32)
    # `words` has the word at every byte, without a copy. Four bytes of padding make the last ones readable.
    words = np.ndarray((len(content) - 3,), "<u4", content, strides=(1,))
    whole = lengths // 4
    for index in range(int(whole[-_FEW]) if len(whole) >= _FEW else 0):
        active = slice(int(np.searchsorted(whole, index, side="right")), None)
        word = words[starts[active] + 4 * index] * _M
        word ^= word >> np.uint32(24)
        mixed[active] = mixed[active] * _M ^ word * _M
    _mix_longest_keys(mixed, words, starts, whole)
    _mix_last_bytes(mixed, words, starts + 4 * whole, lengths % 4)
    mixed ^= mixed >> np.uint32(13)
    mixed *= _M
    mixed ^= mixed >> np.uint32(15)
    result = np.empty_like(mixed)
    result[order] = mixed
    return result


def _mix_longest_keys(mixed: Words, words: Words, starts: npt.NDArray[np.int64], whole: npt.NDArray[np.int64]) -> None:
    done = int(whole[-_FEW]) if len(whole) >= _FEW else 0
    for row in range(max(0, len(whole) - _FEW), len(whole)):
        state = int(mixed[row])
        first = int(starts[row])
        for word in words[first + 4 * done : first + 4 * int(whole[row]) : 4].tolist():
            scrambled = word * 0x5BD1E995 & _WORD
            scrambled ^= scrambled >> 24
            state = (state * 0x5BD1E995 ^ scrambled * 0x5BD1E995) & _WORD
        mixed[row] = state


def _mix_last_bytes(mixed: Words, words: Words, at: npt.NDArray[np.int64], rest: npt.NDArray[np.int64]) -> None:
    with_rest = np.flatnonzero(rest)
    mask = (np.uint32(1) << (rest[with_rest] * 8).astype(np.uint32)) - np.uint32(1)
    mixed[with_rest] = (mixed[with_rest] ^ (words[at[with_rest]] & mask)) * _M


def _lay_out(keys: pa.Array) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.uint8]]:
    _, bounds, content = keys.buffers()
    offsets = np.zeros(1, np.int64)
    if len(keys):
        offsets = np.frombuffer(bounds, np.int32)[keys.offset : keys.offset + len(keys) + 1].astype(np.int64)
    first, last = int(offsets[0]), int(offsets[-1])
    padded = np.zeros(last - first + 4, np.uint8)
    if last > first:
        padded[:-4] = np.frombuffer(content, np.uint8)[first:last]
    return offsets[:-1] - first, np.diff(offsets), padded


def split_by_partition(
    batch: pa.RecordBatch, *, partitions: int, now_ms: int, spread: RoundRobinPosition
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield (partition, records) of a batch of `INPUT_SCHEMA`, lowest partition first.

    The records are batches of `RECORD_SCHEMA`, with offsets from 0 in each partition. A missing partition is chosen by
    key or round robin; a missing time becomes `now_ms`.
    """
    chosen, records = _choose_partitions(batch, partitions, spread), batch
    # A copy would cost as much as hashing.
    if not np.all(chosen[:-1] <= chosen[1:]):
        order = np.argsort(chosen, kind="stable")
        chosen, records = chosen[order], batch.take(pa.array(order))
    times = records.column("timestamp_ms")
    if times.null_count:
        times = pc.fill_null(times, now_ms)
    edges = np.searchsorted(chosen, np.arange(partitions + 1)).tolist()
    for partition, (start, stop) in enumerate(pairwise(edges)):
        if start < stop:
            size = stop - start
            numbered = [pa.repeat(pa.scalar(partition, pa.int32()), size), pa.array(np.arange(size))]
            columns = [column.slice(start, size) for column in (times, *records.columns[2:])]
            yield partition, pa.RecordBatch.from_arrays(numbered + columns, schema=RECORD_SCHEMA)


def check_partitions(named: pa.Array, partitions: int) -> None:
    """Reject partitions that the topic does not have."""
    ends = pc.min_max(named).as_py()
    for number in (ends["max"], ends["min"]):
        if number is not None and not 0 <= number < partitions:
            partitions_text = (
                f"Its partitions are 0 to {partitions - 1}" if partitions > 1 else "Its only partition is 0"
            )
            hint = f"{partitions_text}; leave the partition out to have it chosen by the key."
            raise UserError(f"partition {number}: the topic does not have it", hint=hint)


def _choose_partitions(
    batch: pa.RecordBatch, partitions: int, spread: RoundRobinPosition
) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    named = batch.column("partition")
    check_partitions(named, partitions)
    if partitions == 1:
        return np.zeros(len(named), np.int32)
    if named.null_count == 0:
        chosen = named
    elif named.null_count == len(named):
        chosen = assign_partitions(batch.column("key"), partitions, state=spread)
    else:
        free = named.is_null()
        picked = assign_partitions(batch.column("key").filter(free), partitions, state=spread)
        chosen = pc.replace_with_mask(named, free, picked)
    numbers: np.ndarray[tuple[int], np.dtype[np.int32]] = chosen.to_numpy()
    return numbers


# A record is hashed as a frame: timestamp, lengths of key and value (-1 if absent), number of headers, key, value, and
# headers in the same form. Frames are built by columns and hashed with xxh3.


_MODULUS: Final = 1 << 128
_ROWS: Final = 1 << 15
"""Rows per sum. A sum of 2^15 products of 16-bit and 32-bit numbers is below 2^63."""
_BYTES: Final = 1 << 26
_LENGTHS: Final = np.dtype([("key", "<i4"), ("value", "<i4")])
_FIXED: Final = np.dtype([("timestamp", "<i8"), ("key", "<i4"), ("value", "<i4"), ("headers", "<i4")])


def compute_digest(batch: pa.RecordBatch, *, base: int) -> Digest:
    """Return the digest of records, with offsets relative to `base`."""
    digest = Digest()
    for piece in _split_rows(batch):
        digest += _digest_piece(piece, base)
    return digest


def compute_hashes(batch: pa.RecordBatch) -> npt.NDArray[np.uint8]:
    """Return each record's hash as a row of 16 bytes (big-endian)."""
    frames = _build_frames(batch).to_numpy(zero_copy_only=False).tolist()
    joined = b"".join(map(xxhash.xxh3_128_digest, frames))
    return np.frombuffer(joined, np.uint8).reshape(-1, 16)


def _split_rows(batch: pa.RecordBatch) -> list[pa.RecordBatch]:
    if batch.num_rows == 0:
        return []
    if batch.num_rows == 1 or (batch.num_rows <= _ROWS and batch.nbytes <= _BYTES):
        return [batch]
    half = batch.num_rows // 2
    return _split_rows(batch.slice(0, half)) + _split_rows(batch.slice(half))


def _digest_piece(piece: pa.RecordBatch, base: int) -> Digest:
    limbs = compute_hashes(piece).view(">u2").astype(np.uint64)
    offsets = piece.column("offset").to_numpy()
    first = int(offsets[0])
    total = _join_limbs(limbs.sum(axis=0))
    steps = offsets - first
    if int(steps.max()) >> 32 or int(steps.min()) < 0:
        weighted = sum(int(step) * _join_limbs(row) for step, row in zip(steps, limbs, strict=True)) % _MODULUS
    else:
        weighted = _join_limbs(steps.astype(np.uint64) @ limbs)
    return Digest(piece.num_rows, total % _MODULUS, weighted % _MODULUS).shift(first - base)


def _join_limbs(limbs: npt.NDArray[np.uint64]) -> int:
    joined = 0
    for limb in limbs.tolist():
        joined = (joined << 16) + limb
    return joined


def _build_frames(batch: pa.RecordBatch) -> pa.Array:
    key, value, headers = batch.column("key"), batch.column("value"), batch.column("headers")
    fixed = np.empty(batch.num_rows, _FIXED)
    fixed["timestamp"] = batch.column("timestamp_ms").to_numpy()
    fixed["key"], fixed["value"] = _measure_lengths(key), _measure_lengths(value)
    parts = [_mark_present(key), _mark_present(value)]
    if len(headers.flatten()):
        fixed["headers"] = pc.list_value_length(headers).to_numpy()
        parts.append(_build_header_frames(headers))
    else:
        fixed["headers"] = 0
    return pc.binary_join_element_wise(_to_binary(fixed), *parts, b"")


def _build_header_frames(headers: pa.ListArray) -> pa.Array:
    counts = pc.list_value_length(headers).to_numpy()
    flat = headers.flatten()
    key, value = flat.field("key").cast(pa.binary()), flat.field("value")
    fixed = np.empty(len(flat), _LENGTHS)
    fixed["key"], fixed["value"] = _measure_lengths(key), _measure_lengths(value)
    frames = pc.binary_join_element_wise(_to_binary(fixed), _mark_present(key), _mark_present(value), b"")
    starts = np.concatenate(([0], np.cumsum(counts))).astype(np.int32)
    return pc.binary_join(pa.ListArray.from_arrays(pa.array(starts), frames), b"")


def _measure_lengths(column: pa.Array) -> npt.NDArray[np.int32]:
    lengths: npt.NDArray[np.int32] = pc.fill_null(pc.binary_length(column), -1).to_numpy()
    return lengths


def _mark_present(column: pa.Array) -> pa.Array:
    return pc.fill_null(column, b"") if column.null_count else column


def _to_binary(fixed: npt.NDArray[np.void]) -> pa.Array:
    starts = np.arange(0, fixed.nbytes + 1, fixed.itemsize, dtype=np.int32)
    return pa.Array.from_buffers(pa.binary(), len(fixed), [None, pa.py_buffer(starts), pa.py_buffer(fixed)])
