"""The map of a copy that was re-numbered: every offset of the source leads to the same record, or to the next one."""

from __future__ import annotations

import json
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.records.offset_map import CHUNK_PIECES, Chunk, OffsetMap, Piece, append_pieces, make_pieces, parse_chunk

Records = list[tuple[int, int]]
"""Offsets of records in a source and in its copy."""


@st.composite
def copies(draw: st.DrawFn) -> tuple[list[Records], int]:
    """Return batches of records as a copy wrote them, gaps on both sides, and how far the source was copied."""
    source, target = draw(st.integers(0, 5)), draw(st.integers(0, 5))
    batches: list[Records] = []
    for gaps in draw(st.lists(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), max_size=30), max_size=6)):
        batch: Records = []
        for source_gap, target_gap in gaps:
            source, target = source + source_gap, target + target_gap
            batch.append((source, target))
            source, target = source + 1, target + 1
        batches.append(batch)
    return batches, source + draw(st.integers(0, 3))


def mapped(batches: list[Records]) -> dict[int, Chunk]:
    """Return the chunks of a ledger after every batch was appended as a copier does it, through JSON."""
    ledger: dict[int, Chunk] = {}
    last = Chunk()
    for batch in batches:
        sources, targets = (np.array([pair[side] for pair in batch], np.int64) for side in (0, 1))
        for chunk in append_pieces(last, make_pieces(sources, targets)):
            ledger[chunk.number] = last = parse_chunk(chunk.number, json.loads(json.dumps(chunk.to_document())))
    return ledger


@pytest.mark.fact("F-K-091")
@given(copies())
def test_an_offset_leads_to_its_record_or_to_the_next_one(copy: tuple[list[Records], int]) -> None:
    batches, through = copy
    records = [record for batch in batches for record in batch]
    found = OffsetMap(mapped(batches).values(), through)
    for offset in range(through + 1):
        expected = next((target for source, target in records if source >= offset), None)
        if records:
            assert found.find_target(offset) == (records[-1][1] + 1 if expected is None else expected)
        else:
            assert found.find_target(offset) is None
    assert found.find_target(through + 1) is None
    for offset in range(through + 2):
        below = [target for source, target in records if source < offset]
        assert found.find_target_end(offset) == (below[-1] + 1 if below else 0)


@pytest.mark.fact("F-K-091")
@given(copies())
def test_an_offset_of_a_copy_leads_back_to_its_record_and_one_of_somebody_else_to_none(
    copy: tuple[list[Records], int],
) -> None:
    batches, through = copy
    back = {target: source for batch in batches for source, target in batch}
    targets = np.arange(max(back, default=0) + 3)
    found = OffsetMap(mapped(batches).values(), through).find_sources(targets)
    assert found.tolist() == [back.get(int(target), -1) for target in targets]


@given(copies())
def test_an_offset_of_the_copy_leads_back_to_its_record_or_to_the_next_one(copy: tuple[list[Records], int]) -> None:
    batches, through = copy
    records = [record for batch in batches for record in batch]
    found = OffsetMap(mapped(batches).values(), through)
    for offset in range(records[-1][1] + 2 if records else 1):
        expected = next((source for source, target in records if target >= offset), through)
        assert found.find_source(offset) == expected


@given(copies())
def test_pieces_cover_the_records_and_no_two_could_be_one(copy: tuple[list[Records], int]) -> None:
    batches, through = copy
    pieces = list(OffsetMap(mapped(batches).values(), through))
    covered = [(piece.source + nth, piece.target + nth) for piece in pieces for nth in range(piece.length)]
    assert covered == [record for batch in batches for record in batch]
    assert not any((a.source_end, a.target_end) == (b.source, b.target) for a, b in pairwise(pieces))


def test_a_chunk_that_is_full_is_written_once_more_and_then_left_alone() -> None:
    last, rewritten = Chunk(), []
    for nth in range(3 * CHUNK_PIECES):
        chunks = append_pieces(last, [Piece(2 * nth, 3 * nth, 1)])
        rewritten.append([chunk.number for chunk in chunks])
        last = chunks[-1]
    assert all(len(numbers) <= 2 for numbers in rewritten)
    assert rewritten[-1] == [2]
    assert last.number == 2
    assert len(last.pieces) == CHUNK_PIECES


def test_many_pieces_at_once_become_many_chunks() -> None:
    pieces = [Piece(2 * nth, 3 * nth, 1) for nth in range(2 * CHUNK_PIECES + 1)]
    chunks = append_pieces(Chunk(4), pieces)
    assert [(chunk.number, len(chunk.pieces)) for chunk in chunks] == [(4, CHUNK_PIECES), (5, CHUNK_PIECES), (6, 1)]
    assert append_pieces(chunks[-1], []) == []


def test_a_chunk_of_the_longest_numbers_fits_into_a_record() -> None:
    pieces = tuple(Piece(1 << 60, 1 << 60, 1 << 40) for _ in range(CHUNK_PIECES))
    assert len(json.dumps(Chunk(0, pieces).to_document())) < 100_000
