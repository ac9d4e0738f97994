"""`run` as text: what was done to topic logs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconciler.cli.render.amounts import bytes_text, count_text, took
from reconciler.cli.render.lines import Line, Span, Tone, line
from reconciler.cli.render.tables import table

if TYPE_CHECKING:
    from reconciler.workflow.run import Upkeep


def upkeep_text(upkeep: Upkeep) -> list[Line]:
    """Return what each mirror took over, and what failed and why."""
    if not upkeep.synced:
        return [line("There are no mirrors to bring up to date.")]
    cells = [
        (each.address, count_text(each.records), bytes_text(each.bytes), took(each.seconds))
        for each in upkeep.synced
        if each.error is None
    ]
    lines = table(("mirror", "records", "size", "took"), cells, numbers=(1, 2, 3)) if cells else []
    lines += [
        line(Span("✗ ", Tone.DANGER), f"{each.address}: {each.error.message}. {each.error.hint}")
        for each in upkeep.synced
        if each.error is not None
    ]
    return lines
