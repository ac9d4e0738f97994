"""The offset map and the progress of a copy, read from what earlier copies of that name have left in the ledger."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

from reconciler.providers.brokers.ledger import Key, LedgerReader, encode_entry, map_key, progress_key
from reconciler.providers.brokers.records.copy_progress import (
    Progress,
    ProgressReader,
    SourceSnapshot,
    advance_progress,
    build_ledger_messages,
    parse_offset_map,
)
from reconciler.records.log import Bounds
from reconciler.records.offset_map import CHUNK_PIECES, Chunk, Piece

TOPIC = "orders"
SOURCE = SourceSnapshot("source", Bounds(0, 0, 10_000, 10_000))


class Written:
    """What a reader of the ledger is told, in the order in which it was written."""

    def __init__(self, *messages: tuple[bytes, bytes | None]) -> None:
        self.messages = messages

    def read_new(self, _forget: Callable[[], None]) -> Iterator[tuple[bytes, bytes | None]]:
        yield from self.messages


def gapped(count: int, source: int = 0) -> list[Piece]:
    """Return so many pieces between which there is a marker on both sides."""
    return [Piece(source + 2 * number, 2 * number, 1) for number in range(count)]


def entries_of(progress: Progress, *chunks: Chunk) -> dict[Key, Mapping[str, Any]]:
    found: dict[Key, Mapping[str, Any]] = {map_key(TOPIC, 0, each.number): each.to_document() for each in chunks}
    return {**found, progress_key(TOPIC, 0): progress.to_document()}


def test_a_map_has_no_piece_of_a_larger_copy_that_had_the_name_before() -> None:
    larger, chunks = advance_progress(Progress(copy_id="deleted"), 10_000, gapped(2 * CHUNK_PIECES), SOURCE)
    smaller, chunk = advance_progress(Progress(copy_id="there"), 9, [Piece(0, 0, 8)], SOURCE)
    found = parse_offset_map({**entries_of(larger, *chunks), **entries_of(smaller, *chunk)}, TOPIC, 0)
    assert list(found) == [Piece(0, 0, 8)]
    assert found.find_target(9) == 8


def test_a_restored_mirror_that_was_emptied_adds_nothing_to_the_map_it_had_before() -> None:
    before, chunks = advance_progress(Progress(copy_id="there"), 5_000, gapped(3), SOURCE)
    emptied = Progress(through=0, copy_id="there")
    ledgers = ProgressReader(
        cast(
            "LedgerReader",
            Written(
                *build_ledger_messages(TOPIC, 0, before, chunks),
                *(encode_entry(map_key(TOPIC, 0, each.number), None) for each in chunks),
                encode_entry(progress_key(TOPIC, 0), emptied.to_document()),
            ),
        ),
        TOPIC,
    )
    ledgers.read()
    known = ledgers.find_progress(0)
    assert known is not None
    _, written = advance_progress(known, 8, [Piece(0, 100, 8)], SOURCE)
    assert written == [Chunk(0, (Piece(0, 100, 8),))]


def test_a_copy_that_has_no_record_yet_has_no_piece_of_one_that_had_its_name_before() -> None:
    before, chunks = advance_progress(Progress(copy_id="deleted", commits=0), 5_000, gapped(3), SOURCE)
    begun, none = advance_progress(Progress(copy_id="there", commits=0), 4, [], SOURCE)
    assert not none
    assert not list(parse_offset_map({**entries_of(before, *chunks), **entries_of(begun)}, TOPIC, 0))
    told = Written(*build_ledger_messages(TOPIC, 0, before, chunks), *build_ledger_messages(TOPIC, 0, begun, none))
    ledgers = ProgressReader(cast("LedgerReader", told), TOPIC)
    ledgers.read()
    known = ledgers.find_progress(0)
    assert known is not None
    _, written = advance_progress(known, 8, [Piece(4, 0, 4)], SOURCE)
    assert written == [Chunk(0, (Piece(4, 0, 4),))]
