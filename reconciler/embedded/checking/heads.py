"""A head judged by itself and by what the catalog says of its topic. Pure: nothing is read here."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

from reconciler.embedded.checking.findings import Finding, Kind
from reconciler.embedded.partition.entries import Entry, PageRef

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from reconciler.embedded.checking.findings import Place
    from reconciler.embedded.partition.head import Head


def judge_head(head: Head, place: Place, *, epoch: int) -> Iterator[Finding]:
    """Yield what a head says that cannot be; `epoch` is its register's."""
    for what in [
        *_of_numbers(head),
        *_of_epochs(head, epoch),
        *_of_order([*head.pages, *head.entries], head.end),
        *_of_entries(head.entries, epoch),
        *_of_transactions(head),
    ]:
        yield Finding(Kind.HEAD_CONTRADICTION, what, place)


def judge_page(
    page: PageRef, below: Sequence[Entry] | Sequence[PageRef], place: Place, *, epoch: int
) -> Iterator[Finding]:
    """Yield what differs between a page and what is known of it where it is named."""
    if not below:
        yield Finding(Kind.PAGE_DAMAGED, "it names nothing", place)
        return
    entries = [each for each in below if isinstance(each, Entry)]
    pages = [each for each in below if isinstance(each, PageRef)]
    found = PageRef.over(page.key, pages) if pages else PageRef.of(page.key, entries)
    for each in fields(PageRef):
        said, is_so = getattr(page, each.name), getattr(found, each.name)
        if said != is_so:
            yield Finding(Kind.PAGE_DAMAGED, f"its {each.name} is {is_so}, not {said} as where it is named", place)
    for what in [*_of_order([*below], page.last + 1), *_of_entries(entries, epoch)]:
        yield Finding(Kind.PAGE_DAMAGED, what, place)


def is_whole(head: Head) -> bool:
    """Tell whether every number is a number: a head edited by hand may hold anything."""
    tables: list[Any] = [head.transactions, head.producers]
    if not all(isinstance(table, dict) for table in tables):
        return False
    numbers: list[Any] = [head.start, head.local_start, head.end, head.compacted_to, head.uploaded_to]
    numbers += [number for pair in head.epochs for number in pair]
    return all(type(number) is int for number in numbers) and are_numbers([*head.pages, *head.entries])


def are_numbers(named: Sequence[Entry] | Sequence[PageRef] | Sequence[Entry | PageRef]) -> bool:
    """Tell the same of what a head or a page names."""
    texts: list[Any] = [each.key for each in named]
    numbers: list[Any] = [
        number for each in named for number in (each.base, each.last, each.min_ts, each.max_ts, each.bytes)
    ]
    for each in named:
        own = (each.epoch, each.digest.records) if isinstance(each, Entry) else (each.records, each.entries, each.level)
        numbers += own
    return all(type(text) is str for text in texts) and all(type(number) is int for number in numbers)


def _of_numbers(head: Head) -> Iterator[str]:
    if not 0 <= head.start <= head.end:
        yield f"it begins at offset {head.start} and ends at {head.end}"
    if not head.start <= head.local_start <= head.end:
        yield f"its local records begin at offset {head.local_start}, it holds {head.start} to {head.end}"
    if head.truncated is not None and head.truncated["offset"] > head.end:
        yield f"it was cut at offset {head.truncated['offset']} and ends at {head.end}"
    if head.uploaded_to > head.end:
        yield f"it is uploaded to offset {head.uploaded_to} and ends at {head.end}"
    if head.start < head.local_start and head.uploaded_to < head.local_start:
        yield (
            f"its local records begin at offset {head.local_start}, it is uploaded to {head.uploaded_to}: "
            "what lies between is nowhere"
        )


def _of_epochs(head: Head, epoch: int) -> Iterator[str]:
    for (before, first), (after, second) in zip(head.epochs, head.epochs[1:], strict=False):
        if after <= before or second < first:
            yield f"epoch {after} from offset {second} follows epoch {before} from offset {first}"
    for number, start in head.epochs:
        if number > epoch or start > head.end:
            yield f"it knows epoch {number} from offset {start}, and is in epoch {epoch} with end {head.end}"


def _of_order(stretches: Sequence[PageRef | Entry], end: int) -> Iterator[str]:
    """Parts lie one behind the other. A gap is no fault: transactions are aborted, keys compacted."""
    before: PageRef | Entry | None = None
    for stretch in stretches:
        if stretch.last < stretch.base:
            yield f"{stretch.key} ends at offset {stretch.last}, before it begins at {stretch.base}"
        if before is not None and stretch.base <= before.last:
            yield f"{stretch.key} begins at offset {stretch.base}, within {before.key}, which ends at {before.last}"
        before = stretch
    if before is not None and before.last >= end:
        yield f"{before.key} ends at offset {before.last}, beyond the end {end}"


def _of_entries(entries: Sequence[Entry], epoch: int) -> Iterator[str]:
    last = 0
    for entry in entries:
        if entry.digest.records > entry.last - entry.base + 1 or entry.digest.records < 0:
            yield f"{entry.key} has {entry.digest.records} records at offsets {entry.base} to {entry.last}"
        if entry.epoch > epoch or entry.epoch < last:
            yield f"{entry.key} is of epoch {entry.epoch}, after epoch {last}, in a partition of epoch {epoch}"
        if entry.min_ts > entry.max_ts or entry.bytes <= 0:
            yield f"{entry.key} has times {entry.min_ts} to {entry.max_ts} and {entry.bytes} bytes"
        last = max(last, entry.epoch)


def _of_transactions(head: Head) -> Iterator[str]:
    for name, opened in head.transactions.items():
        if not isinstance(opened, dict) or type(opened.get("base")) is not int or type(opened.get("epoch")) is not int:
            yield f"what it keeps of transaction {name} cannot be read"
    for entry in head.entries:
        if entry.txn is None:
            continue
        name, _, number = entry.txn.rpartition("/")
        opened = head.transactions.get(name)
        if not isinstance(opened, dict) or str(opened.get("epoch")) != number or opened.get("base", 0) > entry.base:
            yield f"{entry.key} belongs to transaction {entry.txn}, which is not open in this partition"
