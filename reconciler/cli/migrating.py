"""What `mount cancel` and `mount delete` have in common: a migration is shown, and what is asked of it confirmed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from reconciler.cli import signals
from reconciler.cli.asking import approved

if TYPE_CHECKING:
    from reconciler.workflow.mounting.migrations import Underway, Verb
    from reconciler.workflow.mounting.reaching import Reach


@dataclass(frozen=True, slots=True)
class Which:
    """A migration by its id, and the cluster that counts it, where that is said."""

    migration: int
    cluster: str | None


def asked(reach: Reach, which: Which, verb: Verb, *, yes: bool, form: Literal["text", "json"]) -> Underway:
    """Ask a verb of a migration, once that is confirmed; return the migration as it is then."""
    from reconciler.cli.render.mountables_text import asking_text
    from reconciler.workflow.mounting.migrations import ask_migration
    from reconciler.workflow.running.stopping import Stop

    def confirm(underway: Underway) -> bool:
        return approved(asking_text(underway, verb), f"{verb.capitalize()} it?", yes=yes, form=form)

    stop = Stop()
    with signals.stopping(stop, patience_s=signals.RUN_S):
        return ask_migration(reach, which.migration, verb, which.cluster, confirm=confirm, stop=stop)
