"""The state as text."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from reconciler.cli.render.amounts import bytes_text, count_text, counted
from reconciler.cli.render.inventory_text import fields_of
from reconciler.cli.render.lines import EMPTY, Line, Span, Tone, line
from reconciler.cli.render.tables import plain_table, table
from reconciler.cli.render.values import change_texts, field_name, value_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from reconciler.planning.actions import Change
    from reconciler.resources.address import Address
    from reconciler.resources.inventory import Recorded
    from reconciler.state.unlock import Doubt, Unlocked
    from reconciler.workflow.stating.diff import Difference, StateDiff
    from reconciler.workflow.stating.history import History
    from reconciler.workflow.stating.looking import StateListing


def listing_text(listing: StateListing) -> list[Line]:
    """Return what is owned, and where that is written down."""
    head = line(
        Span(f"State #{listing.serial}", Tone.STRONG), f" · {listing.url} · {counted(len(listing.rows), 'resource')}"
    )
    if not listing.rows:
        return [head]
    cells = [
        (address, recorded.ownership, "protected" if recorded.protect else "", recorded.run)
        for address, recorded in listing.rows
    ]
    return [head, EMPTY, *plain_table(("address", "ownership", "", "run"), cells)]


def recorded_text(address: str, recorded: Recorded) -> list[Line]:
    """Return one resource as it was last applied, with where its values came from."""
    facts = {
        "ownership": recorded.ownership,
        "run": recorded.run,
        "id": recorded.incarnation or "",
        "name there": recorded.physical_name or "",
        "protected": "yes" if recorded.protect else "",
    }
    fields = fields_of(recorded.resource)
    cells = [(path, value_text(path, fields[path]), recorded.origins.get(path, "")) for path in sorted(fields)]
    return [
        line(Span(address, Tone.STRONG)),
        *(line(Span(f"  {word:<12}", Tone.QUIET), said) for word, said in facts.items() if said),
        *([EMPTY, *table(("field", "value", "comes from"), cells)] if cells else []),
    ]


def history_text(history: History) -> list[Line]:
    """Return the snapshots, newest first, and how to see the older ones."""
    if not history.rows:
        return [line("There is no state yet.")]
    cells = [
        (
            f"#{row.serial}",
            "now" if row.is_current else "",
            row.started or "",
            row.command or "",
            row.who or "",
            (row.git_commit or "")[:7],
            bytes_text(row.bytes),
            row.run or "",
        )
        for row in history.rows
    ]
    more = f"… and {counted(history.older, 'older state')}: --limit 0 shows all"
    return [
        *table(("serial", "", "began", "command", "who", "commit", "size", "run"), cells, numbers=(0, 6)),
        *([line(Span(more, Tone.QUIET))] if history.older else []),
    ]


_NAMED: Final = 20
"""How many actions in doubt are named."""

_SIGNS: Final = {"created": ("+", Tone.ADD), "deleted": ("-", Tone.REMOVE), "changed": ("~", Tone.CHANGE)}


def diff_text(diff: StateDiff) -> list[Line]:
    """Return how two states differ: one line an address, one line a value."""
    counts = Counter[str](difference.change for difference in diff.differences)
    told = ", ".join(f"{count_text(counts[change])} {change}" for change in _SIGNS if counts[change])
    head = line(
        Span(f"State #{diff.before.serial} → #{diff.after.serial}", Tone.STRONG), f" · {told or 'no difference'}"
    )
    return [head, *([EMPTY] if diff.differences else []), *(row for each in diff.differences for row in _differs(each))]


def _differs(difference: Difference) -> Iterator[Line]:
    sign, tone = _SIGNS[difference.change]
    facts = {change.path: change for change in difference.facts}
    if difference.change == "created":
        yield line(Span(f"{sign} {difference.address}", tone), f"  {facts['ownership'].after}")
        return
    if difference.change == "deleted":
        yield line(Span(f"{sign} {difference.address}", tone), f"  was {facts['ownership'].before}")
        return
    yield line(Span(f"{sign} {difference.address}", tone))
    moved = (*difference.fields, *difference.facts)
    yield from (line("    ", text) for change in moved for text in change_texts(change))
    yield from (line(Span(f"    {_origin_text(change)}", Tone.QUIET)) for change in difference.origins)


def _origin_text(change: Change) -> str:
    before, after = change.before or "itself", change.after or "itself"
    return f"{field_name(change.path) or 'it'} comes from {before} → {after}"


def moves_text(moves: Sequence[tuple[Address, Address]]) -> list[Line]:
    """Return what is recorded under another address."""
    return [line(Span("» ", Tone.MOVE), before, " → ", after) for before, after in moves]


def forgetting_text(rows: Sequence[tuple[Address, Recorded]]) -> list[Line]:
    """Return what is to be forgotten, and what of it is protected."""
    return [
        line(Span("- ", Tone.REMOVE), address, Span("  protected" if recorded.protect else "", Tone.CHANGE))
        for address, recorded in rows
    ]


def forgotten_text(forgotten: Sequence[Address]) -> list[Line]:
    """Return that it was done, and what follows."""
    told = f"Forgot {counted(len(forgotten), 'resource')}; nothing on any cluster was touched. "
    return [line(told, "What the files still declare, the next apply adopts again")]


def unlocked_text(unlocked: Unlocked) -> list[Line]:
    """Return whether there was anything to take, and what is in doubt now."""
    taken = f"Taken from run {unlocked.run}; the lease is free, its epoch is {unlocked.epoch}"
    first = "The lease is free: there is nothing to unlock" if unlocked.was_free else taken
    return [line(first), *(_doubt_lines(unlocked.doubt) if unlocked.doubt is not None else ())]


def _doubt_lines(doubt: Doubt) -> Iterator[Line]:
    if doubt.unreadable is not None:
        yield line(Span("In doubt: ", Tone.CHANGE), f"what run {doubt.run} did. {doubt.unreadable.message}")
        yield line("  ", Span("hint: ", Tone.QUIET), "reconciler state repair")
        return
    unbegun = f"{counted(len(doubt.left), 'action')} not begun" if doubt.left else ""
    if not doubt.in_doubt:
        yield line(f"Run {doubt.run} is open; {unbegun or 'nothing of it is left'}")
        return
    left = f", {unbegun}" if unbegun else ""
    yield line(Span(f"In doubt: {count_text(len(doubt.in_doubt))}", Tone.CHANGE), f" of run {doubt.run}{left}")
    yield from (line(f"  {name}") for name in doubt.in_doubt[:_NAMED])
    if len(doubt.in_doubt) > _NAMED:
        yield line(f"  … and {counted(len(doubt.in_doubt) - _NAMED, 'more action')}")
    yield line("The next apply looks at them and goes on:  reconciler apply")
