"""Where two logs begin to differ: halves of a range are compared by digest until what is left can be read."""

from __future__ import annotations

from itertools import zip_longest
from typing import TYPE_CHECKING, Final, NamedTuple

from reconciler.records.digest import Digest
from reconciler.records.hashing import digest_of, hashes_of
from reconciler.records.log import OffsetRange

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reconciler.records.log import TopicLog

_READ: Final = 4096
"""Ranges this short are read instead of halved."""


def kept_digest(log: TopicLog, partition: int, offsets: OffsetRange) -> Digest:
    """Return the digest of a range from what the log keeps."""
    return sum(log.digests(partition, offsets), Digest())


def read_digest(log: TopicLog, partition: int, offsets: OffsetRange) -> Digest:
    """Return the digest of a range from its records."""
    return sum((digest_of(batch, base=0) for batch in log.read(partition, offsets)), Digest())


def first_difference(
    left: TopicLog, right: TopicLog, partition: int, offsets: OffsetRange, *, is_deep: bool
) -> int | None:
    """Return the first offset whose record only one log has, or whose records differ; `None` where none does."""
    digest = read_digest if is_deep else kept_digest
    start, stop = offsets.start, offsets.stop
    while stop - start > _READ:
        middle = (start + stop) // 2
        half = OffsetRange(start, middle)
        if digest(left, partition, half) == digest(right, partition, half):
            start = middle
        else:
            stop = middle
    rest = OffsetRange(start, stop)
    for one, other in zip_longest(_records(left, partition, rest), _records(right, partition, rest)):
        if one != other:
            return min(record.offset for record in (one, other) if record is not None)
    return None


class _Hashed(NamedTuple):
    offset: int
    hash: bytes


def _records(log: TopicLog, partition: int, offsets: OffsetRange) -> Iterator[_Hashed]:
    for batch in log.read(partition, offsets):
        for offset, row in zip(batch.column("offset").to_pylist(), hashes_of(batch), strict=True):
            yield _Hashed(offset, bytes(row))
