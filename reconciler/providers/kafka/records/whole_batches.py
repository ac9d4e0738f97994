"""Record batches that are copied whole: from Kafka to Kafka nothing of them is unpacked.

A batch is packed and compressed once, by the producer that wrote it. The copy has it under another producer's name and
numbers; its records, its compression and what its checksum protects stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache
from typing import Final

from reconciler.providers.kafka.records.record_batches import (
    COMPRESSION,
    PREFIX,
    REST,
    TRANSACTIONAL,
    Answer,
    BatchHead,
    Leader,
    Producer,
    fetched,
    heads_in,
)
from reconciler.records.log import Isolation, OffsetRange

_WORTH_RECORDS: Final = 100
_WORTH_BYTES: Final = 32 << 10
"""A request for each batch is worth it where batches have so many records, or bytes, on average."""


@dataclass(frozen=True, slots=True)
class WholeBatch:
    """A batch as a broker keeps it: its records follow each other without a gap. One that does not count has none."""

    first: int
    through: int
    """The offset after its last record."""
    records: int
    newest_ms: int
    codec: str
    raw: bytes = field(repr=False)


def has_whole_batches(leader: Leader, offsets: OffsetRange, isolation: Isolation) -> bool:
    """Tell whether a range is worth to be copied by whole batches, as far as its beginning shows."""
    return _is_worth(whole_in(fetched(leader, offsets.start, isolation), offsets))


def whole_batches(leader: Leader, offsets: OffsetRange, isolation: Isolation) -> Iterator[WholeBatch]:
    """Yield the batches of a range, in order, up to the first that must be read record by record.

    Those are batches with gaps, with the broker's times, of old formats, or not wholly in the range.
    """

    def ask(offset: int) -> Answer:
        return fetched(leader, offset, isolation)

    def worthy(answer: Answer, left: OffsetRange) -> Sequence[BatchHead]:
        found = whole_in(answer, left)
        return found if _is_worth(found) else ()

    for answer, heads in answers(ask, offsets, worthy):
        yield from (whole_of(answer, head) for head in heads)


def whole_of(answer: Answer, head: BatchHead) -> WholeBatch:
    """Return a batch of an answer as it is, or that it does not count."""
    if not head.counts:
        return WholeBatch(head.first, head.through, 0, 0, "none", b"")
    raw = answer.batches[head.begin : head.end]
    return WholeBatch(head.first, head.through, head.records, head.newest_ms, head.codec or "none", raw)


def answers(
    ask: Callable[[int], Answer], offsets: OffsetRange, taken: Callable[[Answer, OffsetRange], Sequence[BatchHead]]
) -> Iterator[tuple[Answer, Sequence[BatchHead]]]:
    """Yield the answers of a range with the batches that are taken of each, up to the first of which none is.

    The next one is fetched while this one is used.
    """
    with ThreadPoolExecutor(1, thread_name_prefix="fetch") as ahead:
        coming = ahead.submit(ask, offsets.start)
        while offsets.length:
            answer = coming.result()
            found = taken(answer, offsets)
            if not found:
                return
            offsets = OffsetRange(min(found[-1].through, offsets.stop), offsets.stop)
            if offsets.length:
                coming = ahead.submit(ask, offsets.start)
            yield answer, found


def whole_in(answer: Answer, offsets: OffsetRange) -> Sequence[BatchHead]:
    """Return the batches at the beginning of an answer that can be copied whole, and those that do not count."""
    found: list[BatchHead] = []
    through = offsets.start
    for head in heads_in(answer):
        is_gapless = head.records == head.through - head.first
        if head.counts and not (is_gapless and head.has_only(COMPRESSION | TRANSACTIONAL)):
            break
        if head.first < through or head.through > offsets.stop:
            break
        found.append(head)
        through = head.through
    return found


def _is_worth(batches: Sequence[BatchHead]) -> bool:
    """Tell whether batches are large enough on average. Those that do not count cost nothing, whatever there is."""
    counting = [batch for batch in batches if batch.counts]
    records = sum(batch.records for batch in counting)
    size = sum(batch.end - batch.begin for batch in counting)
    return bool(batches) and (records >= _WORTH_RECORDS * len(counting) or size >= _WORTH_BYTES * len(counting))


def stamped(batch: WholeBatch, producer: Producer, number: int) -> bytes:
    """Return a batch as that of another producer; `number` counts its records in the partition before it.

    The checksum follows from the one it has, so what was damaged on its way is refused by the broker that gets it.
    """
    from kafka.record.util import calc_crc32c  # noqa: PLC0415 - who copies record by record imports no second client

    raw, rest = batch.raw, PREFIX.size + REST.size
    _, length, _, form, checksum = PREFIX.unpack_from(raw)
    attributes, last, first_ms, newest_ms, *_, count = REST.unpack_from(raw, PREFIX.size)
    attributes &= ~TRANSACTIONAL
    attributes |= 0 if producer.transactional_id is None else TRANSACTIONAL
    head = REST.pack(attributes, last, first_ms, newest_ms, producer.id, producer.epoch, number & 0x7FFFFFFF, count)
    changed = calc_crc32c(raw[PREFIX.size : rest]) ^ calc_crc32c(head)
    checksum ^= behind_zeros(changed, len(raw) - rest)
    return PREFIX.pack(0, length, -1, form, checksum) + head + raw[rest:]


# CRC-32C is linear: of two texts of one length, the checksums differ by that of their difference. Here only the head
# differs, so the difference goes on with as many zero bytes as there are bytes of records.


_POLYNOMIAL: Final = 0x82F63B78
_BITS: Final = 32
_Matrix = tuple[int, ...]


def behind_zeros(checksum: int, count: int) -> int:
    """Return what becomes of a difference of checksums after so many bytes that are the same on both sides."""
    power = 0
    while count:
        if count & 1:
            checksum = _times(_zeros(power), checksum)
        count >>= 1
        power += 1
    return checksum


@cache
def _zeros(power: int) -> _Matrix:
    """Return what 2 to the power of `power` zero bytes make of each bit."""
    if power:
        half = _zeros(power - 1)
        return tuple(_times(half, column) for column in half)
    columns = []
    for bit in range(_BITS):
        column = 1 << bit
        for _ in range(8):
            column = column >> 1 ^ (_POLYNOMIAL if column & 1 else 0)
        columns.append(column)
    return tuple(columns)


def _times(matrix: _Matrix, vector: int) -> int:
    found = 0
    while vector:
        lowest = vector & -vector
        found ^= matrix[lowest.bit_length() - 1]
        vector ^= lowest
    return found
