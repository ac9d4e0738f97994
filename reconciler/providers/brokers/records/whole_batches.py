"""Copy record batches between Kafka clusters without unpacking.

Only producer id and sequence numbers change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Final

from reconciler.providers.brokers.records.record_batches import (
    COMPRESSION,
    PREFIX,
    REST,
    TRANSACTIONAL,
    BatchHead,
    FetchReply,
    LeaderConnection,
    ProducerId,
    fetch_batches,
    parse_heads,
)
from reconciler.records.log import Isolation, OffsetRange
from reconciler.runtime.dataclass import dataclass, field

_WORTH_RECORDS: Final = 100
_WORTH_BYTES: Final = 32 << 10


@dataclass(frozen=True, slots=True)
class WholeBatch:
    """Stored batch with consecutive offsets. A batch that consumers do not get is empty."""

    first: int
    through: int
    """Offset after the last record."""
    records: int
    newest_ms: int
    codec: str
    raw: bytes = field(repr=False)


def has_whole_batches(leader: LeaderConnection, offsets: OffsetRange, isolation: Isolation) -> bool:
    """Return whether the first batches can be copied whole and have many records or bytes."""
    return _is_worthwhile(select_whole_batches(fetch_batches(leader, offsets.start, isolation), offsets))


def read_whole_batches(leader: LeaderConnection, offsets: OffsetRange, isolation: Isolation) -> Iterator[WholeBatch]:
    """Yield a range's batches, up to the first that must be read record by record.

    That batch has gaps, broker timestamps or an old format, or exceeds the range.
    """

    def ask(offset: int) -> FetchReply:
        return fetch_batches(leader, offset, isolation)

    def select_worthwhile(answer: FetchReply, rest: OffsetRange) -> Sequence[BatchHead]:
        heads = select_whole_batches(answer, rest)
        return heads if _is_worthwhile(heads) else ()

    for answer, heads in fetch_answers(ask, offsets, select_worthwhile):
        yield from (to_whole_batch(answer, head) for head in heads)


def to_whole_batch(answer: FetchReply, head: BatchHead) -> WholeBatch:
    """Return a response's batch; empty if consumers do not get it."""
    if not head.is_readable:
        return WholeBatch(head.first, head.through, 0, 0, "none", b"")
    raw = answer.batches[head.begin : head.end]
    return WholeBatch(head.first, head.through, head.records, head.newest_ms, head.codec or "none", raw)


def fetch_answers(
    ask: Callable[[int], FetchReply],
    offsets: OffsetRange,
    taken: Callable[[FetchReply, OffsetRange], Sequence[BatchHead]],
) -> Iterator[tuple[FetchReply, Sequence[BatchHead]]]:
    """Yield fetch responses of a range with the batches that `taken` selects; end when it selects none."""
    with ThreadPoolExecutor(1, thread_name_prefix="fetch") as ahead:
        next_answer = ahead.submit(ask, offsets.start)
        while offsets.length:
            answer = next_answer.result()
            heads = taken(answer, offsets)
            if not heads:
                return
            offsets = OffsetRange(min(heads[-1].through, offsets.stop), offsets.stop)
            if offsets.length:
                next_answer = ahead.submit(ask, offsets.start)
            yield answer, heads


def select_whole_batches(answer: FetchReply, offsets: OffsetRange) -> Sequence[BatchHead]:
    """Return the response's first batches, up to one that cannot be copied whole."""
    heads: list[BatchHead] = []
    through = offsets.start
    for head in parse_heads(answer):
        is_gapless = head.records == head.through - head.first
        if head.is_readable and not (is_gapless and head.has_only_attributes(COMPRESSION | TRANSACTIONAL)):
            break
        if head.first < through or head.through > offsets.stop:
            break
        heads.append(head)
        through = head.through
    return heads


def _is_worthwhile(batches: Sequence[BatchHead]) -> bool:
    counting = [batch for batch in batches if batch.is_readable]
    records = sum(batch.records for batch in counting)
    size = sum(batch.end - batch.begin for batch in counting)
    return bool(batches) and (records >= _WORTH_RECORDS * len(counting) or size >= _WORTH_BYTES * len(counting))


def replace_producer(batch: WholeBatch, producer: ProducerId, number: int) -> bytes:
    """Return a batch with another producer's ids; `number` is its first sequence number.

    The checksum is computed from the original one, so brokers reject damaged batches.
    """
    from kafka.record.util import calc_crc32c  # noqa: PLC0415 - imports a second client

    raw, rest = batch.raw, PREFIX.size + REST.size
    _, length, _, form, checksum = PREFIX.unpack_from(raw)
    attributes, last, first_ms, newest_ms, *_, count = REST.unpack_from(raw, PREFIX.size)
    attributes &= ~TRANSACTIONAL
    attributes |= 0 if producer.transactional_id is None else TRANSACTIONAL
    head = REST.pack(attributes, last, first_ms, newest_ms, producer.id, producer.epoch, number & 0x7FFFFFFF, count)
    changed = calc_crc32c(raw[PREFIX.size : rest]) ^ calc_crc32c(head)
    checksum ^= extend_by_zeros(changed, len(raw) - rest)
    return PREFIX.pack(0, length, -1, form, checksum) + head + raw[rest:]


# CRC-32C is linear: the checksum changes by the difference of the headers' checksums, extended by one zero byte per
# record byte.


_POLYNOMIAL: Final = 0x82F63B78
_BITS: Final = 32
_Matrix = tuple[int, ...]


def extend_by_zeros(checksum: int, count: int) -> int:
    """Return a checksum difference extended by `count` zero bytes."""
    power = 0
    while count:
        if count & 1:
            checksum = _multiply(_build_zeros_matrix(power), checksum)
        count >>= 1
        power += 1
    return checksum


@cache
def _build_zeros_matrix(power: int) -> _Matrix:
    """Return the matrix that extends a checksum by 2 to the power of `power` zero bytes."""
    if power:
        half = _build_zeros_matrix(power - 1)
        return tuple(_multiply(half, column) for column in half)
    columns = []
    for bit in range(_BITS):
        column = 1 << bit
        for _ in range(8):
            column = column >> 1 ^ (_POLYNOMIAL if column & 1 else 0)
        columns.append(column)
    return tuple(columns)


def _multiply(matrix: _Matrix, vector: int) -> int:
    product = 0
    while vector:
        lowest = vector & -vector
        product ^= matrix[lowest.bit_length() - 1]
        vector ^= lowest
    return product
