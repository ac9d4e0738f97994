"""The 128-bit hash of records, one batch at a time.

A record is framed as its timestamp, the lengths of key and value (-1 where absent), the number of headers, the bytes
of key and value, then each header in the same way; no two different records have the same frame. Frames are built
by whole columns; one call of xxh3 per record is all that Python does for each.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from reconciler.records.log import Digest

_MODULUS: Final = 1 << 128
_ROWS: Final = 1 << 15
"""Rows hashed at once: 2^15 sums of a 16-bit limb times a 32-bit offset stay below 2^63."""
_BYTES: Final = 1 << 26
_LENGTHS: Final = np.dtype([("key", "<i4"), ("value", "<i4")])
_FIXED: Final = np.dtype([("timestamp", "<i8"), ("key", "<i4"), ("value", "<i4"), ("headers", "<i4")])


def digest_of(batch: pa.RecordBatch, *, base: int) -> Digest:
    """Return the digest of records, their offsets counted from `base`."""
    digest = Digest()
    for piece in _pieces(batch):
        digest += _digest(piece, base)
    return digest


def hashes_of(batch: pa.RecordBatch) -> npt.NDArray[np.uint8]:
    """Return each record's hash, 16 bytes a row, most significant first."""
    frames = _frames(batch).to_numpy(zero_copy_only=False).tolist()
    joined = b"".join(map(xxhash.xxh3_128_digest, frames))
    return np.frombuffer(joined, np.uint8).reshape(-1, 16)


def _pieces(batch: pa.RecordBatch) -> list[pa.RecordBatch]:
    if batch.num_rows == 0:
        return []
    if batch.num_rows == 1 or (batch.num_rows <= _ROWS and batch.nbytes <= _BYTES):
        return [batch]
    half = batch.num_rows // 2
    return _pieces(batch.slice(0, half)) + _pieces(batch.slice(half))


def _digest(piece: pa.RecordBatch, base: int) -> Digest:
    limbs = hashes_of(piece).view(">u2").astype(np.uint64)
    offsets = piece.column("offset").to_numpy()
    first = int(offsets[0])
    total = _join(limbs.sum(axis=0))
    steps = offsets - first
    if int(steps.max()) >> 32 or int(steps.min()) < 0:
        weighted = sum(int(step) * _join(row) for step, row in zip(steps, limbs, strict=True)) % _MODULUS
    else:
        weighted = _join(steps.astype(np.uint64) @ limbs)
    return Digest(piece.num_rows, total % _MODULUS, weighted % _MODULUS).shifted(first - base)


def _join(limbs: npt.NDArray[np.uint64]) -> int:
    """Return the number whose sums of 16-bit limbs, most significant first, these are."""
    joined = 0
    for limb in limbs.tolist():
        joined = (joined << 16) + limb
    return joined


def _frames(batch: pa.RecordBatch) -> pa.Array:
    key, value, headers = batch.column("key"), batch.column("value"), batch.column("headers")
    fixed = np.empty(batch.num_rows, _FIXED)
    fixed["timestamp"] = batch.column("timestamp_ms").to_numpy()
    fixed["key"], fixed["value"] = _lengths(key), _lengths(value)
    parts = [_present(key), _present(value)]
    if len(headers.flatten()):
        fixed["headers"] = pc.list_value_length(headers).to_numpy()
        parts.append(_header_frames(headers))
    else:
        fixed["headers"] = 0
    return pc.binary_join_element_wise(_binary(fixed), *parts, b"")


def _header_frames(headers: pa.ListArray) -> pa.Array:
    counts = pc.list_value_length(headers).to_numpy()
    flat = headers.flatten()
    key, value = flat.field("key").cast(pa.binary()), flat.field("value")
    fixed = np.empty(len(flat), _LENGTHS)
    fixed["key"], fixed["value"] = _lengths(key), _lengths(value)
    each = pc.binary_join_element_wise(_binary(fixed), _present(key), _present(value), b"")
    starts = np.concatenate(([0], np.cumsum(counts))).astype(np.int32)
    return pc.binary_join(pa.ListArray.from_arrays(pa.array(starts), each), b"")


def _lengths(column: pa.Array) -> npt.NDArray[np.int32]:
    lengths: npt.NDArray[np.int32] = pc.fill_null(pc.binary_length(column), -1).to_numpy()
    return lengths


def _present(column: pa.Array) -> pa.Array:
    return pc.fill_null(column, b"") if column.null_count else column


def _binary(fixed: npt.NDArray[np.void]) -> pa.Array:
    starts = np.arange(0, fixed.nbytes + 1, fixed.itemsize, dtype=np.int32)
    return pa.Array.from_buffers(pa.binary(), len(fixed), [None, pa.py_buffer(starts), pa.py_buffer(fixed)])
