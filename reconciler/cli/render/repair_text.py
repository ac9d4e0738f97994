"""What is wrong with a state, what would mend it, and what was done, as text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from reconciler.cli.render.amounts import counted
from reconciler.cli.render.lines import Line, Span, Tone, line

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reconciler.state.forgetting import ForgottenRun
    from reconciler.state.repair import Repair
    from reconciler.workflow.stating.repairing import Repaired

_NAMED: Final = 20
"""How many actions of a run are named."""


def repair_text(repair: Repair) -> list[Line]:
    """Return what is wrong, and what would be done about it."""
    return [
        *(line(Span("✗ ", Tone.DANGER), problem) for problem in repair.problems),
        *(line(Span("→ ", Tone.CHANGE), step) for step in _steps(repair)),
        *(part for run in repair.forgotten for part in _forgotten(run)),
    ]


def repaired_text(repaired: Repaired) -> list[Line]:
    """Return that it was done, and what to do next."""
    repair = repaired.repair
    if repair is None:
        return [line("There is nothing to repair")]
    kept = f"; what was there is kept as {repaired.kept}" if repaired.kept else ""
    next_step = "reconciler apply" if repair.lockfile.open_run is not None else "reconciler plan"
    return [
        line(f"Repaired: state #{repair.lockfile.serial}, epoch {repair.lockfile.lease.epoch}{kept}"),
        line(f"Look at it next:  {next_step}"),
    ]


def _steps(repair: Repair) -> Iterator[str]:
    lockfile, base = repair.lockfile, repair.base
    owned = counted(len(base.record), "resource")
    by = f" of run {base.run}" if base.run else ""
    again = f", written again as #{lockfile.serial}" if repair.body is not None and repair.rebuilt_from is None else ""
    yield f"go on from state #{base.serial}{by}, {owned}{again}"
    if repair.rebuilt_from is not None:
        yield f"add what the journal of run {repair.rebuilt_from} says, as state #{lockfile.serial}"
    if repair.lineage_was is not None:
        yield f"take lineage {lockfile.lineage}, which every snapshot says, instead of {repair.lineage_was}"
    if lockfile.open_run is not None:
        yield f"leave run {lockfile.open_run.run} open: the next apply settles what it left in doubt"
    yield f"write the lockfile anew, under epoch {lockfile.lease.epoch}"


def _forgotten(forgotten: ForgottenRun) -> Iterator[Line]:
    said = ", ".join(part for part in (forgotten.command, forgotten.who, forgotten.started) if part)
    run = f"run {forgotten.run} ({said})" if said else f"run {forgotten.run}"
    yield line(Span("! ", Tone.DANGER), f"forget what {run} did; it stays on the clusters:")
    names = forgotten.actions
    yield from (line(f"    {name}") for name in names[:_NAMED])
    if len(names) > _NAMED:
        yield line(f"    … and {counted(len(names) - _NAMED, 'more action')}")
