"""The state as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconciler.cli.render.amounts import bytes_text, counted
from reconciler.cli.render.inventory_text import fields_of
from reconciler.cli.render.lines import EMPTY, Line, Span, Tone, line
from reconciler.cli.render.tables import table
from reconciler.cli.render.values import value_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from reconciler.resources.inventory import Recorded
    from reconciler.state.unlock import Unlocked
    from reconciler.workflow.state import HistoryRow, StateListing


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
    return [head, EMPTY, *table(("address", "ownership", "", "run"), cells)]


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


def history_text(rows: Sequence[HistoryRow]) -> list[Line]:
    """Return the snapshots, newest first."""
    if not rows:
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
        for row in rows
    ]
    return table(("serial", "", "began", "command", "who", "commit", "size", "run"), cells, numbers=(0, 6))


def unlocked_text(unlocked: Unlocked) -> list[Line]:
    """Return whether there was anything to take, and what is in doubt now."""
    if unlocked.was_free:
        return [line("The lease is free: there is nothing to unlock")]
    lines = [line(f"Taken from run {unlocked.run}; the lease is free, its epoch is {unlocked.epoch}")]
    if unlocked.open_run is not None:
        lines.append(line(f"In doubt: what run {unlocked.open_run.run} had begun. The next apply observes and goes on"))
    return lines
