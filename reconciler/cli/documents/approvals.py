"""JSON of how what is planned now stands to what was approved, where it may be done."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconciler.cli.documents.base import Part

if TYPE_CHECKING:
    from reconciler.state.advance import StateAdvance


class StateAdvancePart(Part):
    """The state went on since the plan was approved; the run is the last that moved it."""

    approved: int
    now: int
    run: str | None
    command: str | None
    who: str | None
    started: str | None

    @classmethod
    def of(cls, advance: StateAdvance | None) -> StateAdvancePart | None:
        """Say it, where it did."""
        if advance is None:
            return None
        return cls(
            approved=advance.approved,
            now=advance.now,
            run=advance.run,
            command=advance.command,
            who=advance.who,
            started=advance.started,
        )
