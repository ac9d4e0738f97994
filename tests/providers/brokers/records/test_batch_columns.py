"""Batches of the protocol as columns: every record as it was packed, and damage that is seen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.providers.brokers.records import columns
from reconciler.providers.brokers.records.columns import decode_columns, select_decodable
from reconciler.providers.brokers.records.record_batches import (
    CODECS,
    FORMAT,
    LENGTH_END,
    PREFIX,
    REST,
    FetchReply,
    ProducerId,
    pack_batch,
    parse_heads,
)
from reconciler.providers.brokers.records.whole_batches import select_whole_batches
from reconciler.records.log import OffsetRange
from reconciler.records.schema import RECORD_SCHEMA, to_name_column

WRITER = ProducerId(-1, -1)
ALL = OffsetRange(0, 1 << 40)
APPEND_TIME = 0x08

cells = st.one_of(st.none(), st.binary(max_size=40), st.integers(0, 40_000).map(lambda size: b"v" * size))
names = st.one_of(st.text(max_size=5).map(str.encode), st.binary(max_size=5))
times = st.integers(0, (1 << 62) - 1)
rows = st.tuples(cells, cells, times, st.lists(st.tuples(names, cells), max_size=3), st.just(0))


def moved(raw: bytes, first: int, *, attributes: int = 0) -> bytes:
    """Return a batch that begins at another offset, with more attributes; nobody looks at its checksum here."""
    rest: list[Any] = list(REST.unpack_from(raw, PREFIX.size))
    rest[0] |= attributes
    return PREFIX.pack(first, *PREFIX.unpack_from(raw)[1:]) + REST.pack(*rest) + raw[PREFIX.size + REST.size :]


def answered(batches: Sequence[tuple[Sequence[Any], str]], *, gap: int = 0, attributes: int = 0) -> bytes:
    """Return batches of records one behind the other, with a gap between two of them."""
    first, found = 0, b""
    for records, codec in batches:
        found += moved(pack_batch(records, WRITER, 0, codec=codec), first, attributes=attributes)
        first += len(records) + gap
    return found


def read(answer: bytes | FetchReply, offsets: OffsetRange = ALL) -> list[dict[str, Any]]:
    answer = answer if isinstance(answer, FetchReply) else FetchReply(answer)
    found = [batch for _, batch in decode_columns(answer, select_decodable(answer, offsets), 3, offsets)]
    for batch in found:
        batch.validate(full=True)
    return pa.Table.from_batches(found, RECORD_SCHEMA).to_pylist()


def shown(row: Any, offset: int) -> dict[str, Any]:
    value, key, time, headers, _ = row
    keys = to_name_column([name for name, _ in headers or ()]).to_pylist()
    return {
        "partition": 3,
        "offset": offset,
        "timestamp_ms": time,
        "timestamp_type": 0,
        "key": key,
        "value": value,
        "headers": [{"key": name, "value": each} for name, (_, each) in zip(keys, headers or (), strict=True)],
    }


@pytest.mark.thorough
@given(st.lists(st.tuples(st.lists(rows, min_size=1, max_size=5), st.sampled_from(sorted(CODECS))), min_size=1))
def test_every_record_is_read_as_it_was_packed(batches: list[tuple[list[Any], str]]) -> None:
    records = [row for some, _ in batches for row in some]
    assert read(answered(batches)) == [shown(row, offset) for offset, row in enumerate(records)]


def many(count: int) -> list[Any]:
    return [(b"v" * (number % 300), b"k%d" % number, 1_000 + number, [(b"h", b"1")], 0) for number in range(count)]


@pytest.mark.parametrize("codecs", [("none", "none"), ("none", "zstd"), ("lz4", "gzip")], ids="-".join)
def test_of_batches_that_reach_out_of_the_range_only_its_records_are_read(codecs: tuple[str, str]) -> None:
    records = many(20_000)
    answer = answered([(records[:9_000], codecs[0]), (records[9_000:], codecs[1])], gap=500)
    offsets = [number + 500 * (number >= 9_000) for number in range(20_000)]
    for start, stop in ((0, 20_500), (10, 8_999), (8_999, 9_501), (9_100, 9_300), (20_499, 20_500)):
        there = [offset for offset in offsets if start <= offset < stop]
        assert [row["offset"] for row in read(answer, OffsetRange(start, stop))] == there
    lots = list(decode_columns(FetchReply(answer), select_decodable(FetchReply(answer), ALL), 3, ALL))
    assert lots[-1][0] == 20_500


def test_the_time_of_appending_is_that_of_the_whole_batch() -> None:
    found = read(answered([(many(3), "none")], attributes=APPEND_TIME))
    assert [(row["timestamp_ms"], row["timestamp_type"]) for row in found] == [(1_002, 1)] * 3


@pytest.mark.parametrize("attributes", [0x20, 0x05, 0x80], ids=["no-marker", "codec", "unknown"])
def test_what_only_the_client_can_read_ends_what_is_read(attributes: int) -> None:
    good, odd = pack_batch(many(10), WRITER, 0, codec="none"), pack_batch(many(10), WRITER, 0, codec="none")
    answer = good + moved(odd, 10, attributes=attributes) + moved(good, 20)
    assert [row["offset"] for row in read(answer)] == list(range(10))
    assert select_decodable(FetchReply(b""), ALL) == select_decodable(FetchReply(good[:-1]), ALL) == []


class ClientTransactions:
    """A log as a broker keeps it: batches of transactions that overlap, of none, and the markers of their ends."""

    def __init__(self) -> None:
        self.raw, self.end = b"", 0
        self.open: dict[int, tuple[int, list[int]]] = {}
        self.counting: list[int] = []
        self.aborted: list[tuple[int, int, int]] = []

    def append(self, count: int, *, producer: int | None = None, codec: str = "none") -> None:
        by = WRITER if producer is None else ProducerId(producer, 0, "writer")
        self.raw += moved(pack_batch(many(count), by, 0, codec=codec), self.end)
        offsets = list(range(self.end, self.end + count))
        self.end += count
        if producer is None:
            self.counting += offsets
        else:
            self.open.setdefault(producer, (offsets[0], []))[1].extend(offsets)

    def finish(self, producer: int, *, is_committed: bool) -> None:
        first, offsets = self.open.pop(producer)
        marker = (b"\0\0\0\0\0\0", b"\0\0\0" + bytes([is_committed]), 1, None, 0)
        raw = pack_batch([marker], ProducerId(producer, 0, "writer"), 0, codec="none")
        self.raw += moved(raw, self.end, attributes=0x20)
        if is_committed:
            self.counting += offsets
        else:
            self.aborted.append((producer, first, self.end))
        self.end += 1

    def answer(self, start: int) -> FetchReply:
        """Return what a broker sends from the first batch on of which something lies behind an offset."""
        heads = list(parse_heads(FetchReply(self.raw)))
        begin = next((head.begin for head in heads if head.through > start), len(self.raw))
        named = [(producer, first) for producer, first, last in reversed(self.aborted) if last >= start]
        return FetchReply(self.raw[begin:], named)


steps = st.tuples(st.sampled_from([None, 1, 2, 3]), st.sampled_from(["append", "commit", "abort"]), st.integers(1, 4))


@pytest.mark.fact("F-K-090")
@given(st.lists(steps, max_size=30), st.sampled_from(sorted(CODECS)), st.data())
def test_of_transactions_only_what_was_committed_is_read_or_copied(
    told: list[tuple[int | None, str, int]], codec: str, data: st.DataObject
) -> None:
    log = ClientTransactions()
    for producer, verb, count in told:
        if verb == "append" or producer not in log.open:
            log.append(count, producer=producer, codec=codec)
        elif producer is not None:
            log.finish(producer, is_committed=verb == "commit")
    for producer in sorted(log.open):
        log.finish(producer, is_committed=False)
    start = data.draw(st.integers(0, log.end))
    stop = data.draw(st.integers(start, log.end + 1))
    answer, offsets = log.answer(start), OffsetRange(start, stop)
    assert [row["offset"] for row in read(answer, offsets)] == [at for at in sorted(log.counting) if start <= at < stop]
    lots = list(decode_columns(answer, select_decodable(answer, offsets), 3, offsets))
    assert (lots[-1][0] if lots else start) == min(stop, log.end)
    begin = data.draw(st.sampled_from([0, *(head.first for head in parse_heads(log.answer(0)))]))
    whole = select_whole_batches(log.answer(begin), OffsetRange(begin, log.end))
    copied = [at for head in whole if head.is_readable for at in range(head.first, head.through)]
    assert copied == [at for at in sorted(log.counting) if at >= begin]


def test_a_marker_that_compaction_has_emptied_ends_nothing() -> None:
    log = ClientTransactions()
    log.append(3, producer=1)
    log.raw += PREFIX.pack(3, PREFIX.size - LENGTH_END + REST.size, -1, FORMAT, 0) + REST.pack(
        0x30, 0, 1, 1, 1, 0, 0, 0
    )
    log.end += 1
    log.append(2, producer=1)
    log.finish(1, is_committed=False)
    log.append(2)
    assert [row["offset"] for row in read(log.answer(0))] == [7, 8]


@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_a_batch_that_is_damaged_is_seen_or_read_never_a_crash(codec: str) -> None:
    good = pack_batch([(b"v", None, 1, [(b"h", b"1")], 0), (None, b"key", 70_000, None, 0)] * 3, WRITER, 0, codec=codec)
    seen = 0
    for at in range(len(good)):
        for bit in (0x01, 0x80):
            bad = good[:at] + bytes([good[at] ^ bit]) + good[at + 1 :]
            try:
                read(bad)
            except ValueError:
                seen += 1
    assert seen > 50  # a byte of a value may be any


def test_a_batch_that_no_column_can_hold_is_left_to_the_client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "_ARROW_BYTES", 100)
    with pytest.raises(ValueError, match="larger than a column may be"):
        read(answered([(many(30), "zstd")]))
