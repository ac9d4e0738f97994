"""Changes to what is recorded and to nothing else: shown, confirmed, then an ordinary run under the lease."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from reconciler.applying.running import Basis, RunOptions, ToDo, Wish
from reconciler.errors import StalePlanError
from reconciler.planning.document.digest import digest
from reconciler.resources.cluster import Cluster
from reconciler.workflow.beginning.opening import open_state
from reconciler.workflow.running.emergencies import require_confirmation
from reconciler.workflow.running.underlease import run_under_lease
from reconciler.workflow.stating.diff import read_current

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from reconciler.applying.events import Event
    from reconciler.planning.actions import Adopt, Forget
    from reconciler.resources.inventory import Record
    from reconciler.workflow.beginning.invocation import Invocation, Select
    from reconciler.workflow.beginning.opening import Site
    from reconciler.workflow.running.stopping import Stop


@dataclass(frozen=True, slots=True, kw_only=True)
class Surgery:
    """One change of the record: of which state, under what name, and whom to tell."""

    invocation: Invocation
    select: Select
    command: str
    lock_timeout_s: float
    stop: Stop

    def carry_out(
        self, decide: Callable[[Record], Sequence[Adopt | Forget]], confirm: Callable[[Record], bool]
    ) -> None:
        """Do what `decide` makes of the record, once it was confirmed on the record as it is.

        Raises:
            UserError: Nothing was ever applied, or it was not confirmed; nothing was changed.
            StalePlanError: By now it would be something else than what was confirmed; nothing was changed.
            LeaseError: Someone else is applying.
        """
        site = open_state(self.invocation, self.select)
        snapshot = read_current(site)
        confirmed = decide(snapshot.record)
        require_confirmation(confirm(snapshot.record))

        def decide_under_lease(basis: Basis) -> ToDo:
            if basis.is_again:
                return ToDo((), digest(()))
            actions = decide(basis.snapshot.record)
            if digest(actions) != digest(confirmed):
                raise StalePlanError(
                    "what is recorded has changed since it was shown",
                    hint="Nothing was changed. Give the command again.",
                )
            return ToDo(actions, digest(actions))

        wish = Wish(command=self.command, options=RunOptions(parallelism=2, lock_timeout_s=self.lock_timeout_s))
        at = _with_clusters(site, snapshot.record)
        run_under_lease(at, wish, decide_under_lease, report=_tell_nobody, stop=self.stop)


def _tell_nobody(_event: Event) -> None:
    """Forgetting and readdressing are shown before and over at once."""


def _with_clusters(site: Site, record: Record) -> Site:
    """Return the site with the clusters as recorded: a run left open is settled first, and that asks them."""
    resources = (recorded.resource for recorded in record.values())
    return replace(site, clusters={item.metadata.name: item for item in resources if isinstance(item, Cluster)})
