"""Where a group goes on in a topic that was written anew by key: nothing is skipped, and little is read again."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from reconciler.providers.brokers.ledger import REKEYED, Entries
from reconciler.providers.brokers.records.rekey_copy import RekeyedEntries, join_stretches

SOURCES, IDS = 3, ("old", "new")
Row = tuple[int, int]
"""A partition of the source, and how many of its records lie together."""
TRANSACTIONS = st.lists(st.lists(st.tuples(st.integers(0, SOURCES - 1), st.integers(1, 9)), max_size=12), max_size=4)


def written(transactions: list[list[Row]], *, most: int, is_old: bool) -> tuple[Entries, list[tuple[int, int]]]:
    """Return what the ledger says of one partition, and the records in it: of which partition, and which offset there.

    Every third record of the source goes there, and the last offsets of each transaction hold none.
    """
    entries: dict[tuple[str | int, ...], dict[str, Any]] = {}
    records: list[tuple[int, int]] = []
    ends = dict.fromkeys(range(SOURCES), 0)
    for serial, rows in enumerate(transactions):
        found: dict[int, list[tuple[int, int]]] = {}
        for source, count in rows:
            begin = len(records)
            records += [(source, ends[source] + 3 * number) for number in range(count)]
            ends[source] += 3 * count
            found.setdefault(source, []).append((records[-1][1] + 1, begin))
        ends = {source: end + 5 for source, end in ends.items()}
        stretches = {str(source): some for source, some in join_stretches(found, most).items()}
        document = {
            "source_id": IDS[0],
            "copy_id": IDS[1],
            "through": {str(source): end for source, end in ends.items()},
            "firsts": {source: some[0][1] for source, some in stretches.items()},
            "records": 0,
            "total": "0",
        }
        entries[REKEYED, "copy", 0, serial] = document if is_old else {**document, "stretches": stretches}
    return entries, records


@given(
    transactions=TRANSACTIONS,
    most=st.integers(1, 20),
    is_old=st.booleans(),
    committed=st.dictionaries(st.integers(0, SOURCES - 1), st.integers(0, 200)),
)
def test_no_record_is_skipped_that_a_group_has_not_read(
    transactions: list[list[Row]], most: int, committed: dict[int, int], *, is_old: bool
) -> None:
    entries, records = written(transactions, most=most, is_old=is_old)
    place = RekeyedEntries.parse(entries, "copy", IDS).translate_offsets(committed, {0: len(records)})[0]
    assert all(offset < committed.get(source, 0) for source, offset in records[:place])


@given(transactions=TRANSACTIONS, data=st.data())
def test_a_group_begins_with_the_rows_in_which_it_has_something_to_read(
    transactions: list[list[Row]], data: st.DataObject
) -> None:
    entries, records = written(transactions, most=100, is_old=False)
    committed = {source: data.draw(st.integers(0, 200)) for source in range(SOURCES)}
    place = RekeyedEntries.parse(entries, "copy", IDS).translate_offsets(committed, {0: len(records)})[0]
    unread = [at for at, (source, offset) in enumerate(records) if offset >= committed[source]]
    longest = max((count for rows in transactions for _, count in rows), default=0)
    assert min(unread, default=len(records)) - place < max(1, longest)


@given(
    found=st.dictionaries(st.integers(0, SOURCES - 1), st.lists(st.integers(1, 9), min_size=1)), most=st.integers(1, 9)
)
def test_a_transaction_keeps_a_few_stretches_from_its_first_record_to_its_last(
    found: dict[int, list[int]], most: int
) -> None:
    whole = {
        source: [(sum(steps[: at + 1]), sum(steps[:at])) for at in range(len(steps))] for source, steps in found.items()
    }
    kept = join_stretches(whole, most)
    assert sum(map(len, kept.values())) <= most + len(found)
    for source, stretches in kept.items():
        assert (stretches[0][1], stretches[-1][0]) == (0, sum(found[source]))
        assert all(end == begin for (end, _), (_, begin) in pairwise(stretches))
