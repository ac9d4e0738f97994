"""Batches under another producer's name: the same bytes as if they were packed anew, and damage stays damage."""

from __future__ import annotations

import os

import pytest
from kafka.record.default_records import DefaultRecordBatch

from reconciler.providers.brokers.records.record_batches import CODECS, PREFIX, REST, FetchReply, ProducerId, pack_batch
from reconciler.providers.brokers.records.whole_batches import (
    WholeBatch,
    replace_producer,
    select_whole_batches,
    to_whole_batch,
)
from reconciler.records.log import OffsetRange

WRITER, COPIER = ProducerId(5, 1), ProducerId(1 << 40, 7, "copier")
ALL = OffsetRange(0, 1_000)


def whole(raw: bytes) -> list[WholeBatch]:
    answer = FetchReply(raw)
    return [to_whole_batch(answer, head) for head in select_whole_batches(answer, ALL)]


def rows(count: int) -> list[tuple[bytes, bytes, int, None, int]]:
    return [(os.urandom(40), b"k%d" % number, 1_000 + number, None, number) for number in range(count)]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("count", [1, 2, 999])
def test_a_batch_of_another_producer_is_what_that_would_have_packed(codec: str, count: int) -> None:
    records = rows(count)
    (batch,) = whole(pack_batch(records, WRITER, 0, codec=codec))
    assert (batch.first, batch.records, batch.codec, batch.newest_ms) == (0, count, codec, 999 + count)
    for number in (0, 123_456, (1 << 31) + 5):
        assert replace_producer(batch, COPIER, number) == pack_batch(records, COPIER, number, codec=codec)


@pytest.mark.parametrize("copier", [COPIER, ProducerId(9, 2)], ids=["transactional", "not-transactional"])
def test_a_batch_of_a_transaction_is_one_of_the_copiers_transaction_or_of_none(copier: ProducerId) -> None:
    records = rows(5)
    (batch,) = whole(pack_batch(records, ProducerId(6, 3, "writer"), 0, codec="lz4"))
    assert replace_producer(batch, copier, 7) == pack_batch(records, copier, 7, codec="lz4")


def test_what_was_damaged_on_its_way_is_still_damaged_in_the_copy() -> None:
    raw = bytearray(pack_batch(rows(50), WRITER, 0, codec="none"))
    raw[-7] ^= 1
    (batch,) = whole(bytes(raw))
    assert not DefaultRecordBatch(replace_producer(batch, COPIER, 0)).validate_crc()
    raw[-7] ^= 1
    (batch,) = whole(bytes(raw))
    assert DefaultRecordBatch(replace_producer(batch, COPIER, 0)).validate_crc()


def changed(raw: bytes, **fields: int) -> bytes:
    """Return a batch with another head; nobody looks at its checksum here."""
    first, length, epoch, form, checksum = PREFIX.unpack_from(raw)
    attributes, last, *rest = REST.unpack_from(raw, PREFIX.size)
    prefix = PREFIX.pack(fields.get("first", first), length, epoch, fields.get("form", form), checksum)
    head = REST.pack(fields.get("attributes", attributes), fields.get("last", last), *rest)
    return prefix + head + raw[len(prefix) + len(head) :]


@pytest.mark.parametrize(
    "fields",
    [
        {"attributes": 0x20},
        {"attributes": 0x08},
        {"attributes": 0x40},
        {"attributes": 0x05},
        {"last": 20},
        {"form": 1},
        {"first": 995},
        {"first": -1},
    ],
    ids=["no-marker", "broker-time", "horizon", "codec", "gap", "format", "behind-the-end", "before"],
)
def test_what_must_be_read_record_by_record_ends_the_whole_batches(fields: dict[str, int]) -> None:
    good, second = pack_batch(rows(10), WRITER, 0, codec="none"), pack_batch(rows(10), WRITER, 10, codec="none")
    found = whole(good + changed(second, **{"first": 10, **fields}) + changed(second, first=20))
    assert [batch.first for batch in found] == [0]


def test_a_batch_that_is_cut_off_at_the_end_of_an_answer_is_left_out() -> None:
    good = pack_batch(rows(10), WRITER, 0, codec="none")
    for cut in (1, 20, len(good) - 1):
        assert [batch.first for batch in whole(good + changed(good, first=10)[:cut])] == [0]
    assert whole(b"") == []
