"""What is done now and told to the files later: an ordinary run under the lease, or done without asking any state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, assert_never

from reconciler.applying.events import ActionDone, ActionStarted
from reconciler.applying.running import Basis, ToDo
from reconciler.errors import UserError
from reconciler.planning.document.digest import digest
from reconciler.providers.base import Done, Failed
from reconciler.resources.address import cluster_of
from reconciler.workflow.beginning.identity import refuse_another_cluster
from reconciler.workflow.beginning.opening import open_site, open_work
from reconciler.workflow.looking.overviews import check_answers
from reconciler.workflow.running.underlease import Wish, run_under_lease

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from reconciler.applying.events import Event
    from reconciler.planning.actions import ControlAction
    from reconciler.providers.base import Provider
    from reconciler.resources.inventory import Record
    from reconciler.workflow.beginning.invocation import Invocation, Select
    from reconciler.workflow.beginning.opening import Site
    from reconciler.workflow.running.stopping import Stop


@dataclass(frozen=True, slots=True, kw_only=True)
class Emergency:
    """How a command acts at once. `state_url` stands in for a workspace: connections come from what is recorded."""

    invocation: Invocation
    select: Select
    command: str
    no_state: bool
    state_url: str | None
    lock_timeout_s: float
    report: Callable[[Event], None]
    stop: Stop

    def site(self, cluster: str) -> Site:
        """Open where it happens, and look that the cluster it happens to is the recorded one.

        Raises:
            UserError: Another one answers in its place.
            RetryableError: It is recorded, and nothing is there.
        """
        if self.state_url is None:
            site: Site = open_work(self.invocation, self.select)
        else:
            site = open_site(self.invocation, self.state_url)
        if not self.no_state:
            check_answers(site, cluster)
        return site

    def carry_out(
        self, site: Site, cluster: str, decide: Callable[[Provider, Record | None], Sequence[ControlAction]]
    ) -> tuple[ControlAction, ...]:
        """Do what `decide` makes of a cluster as it is, and of the record (`None`: without a state); return it.

        Raises:
            UserError: Another cluster answers, or the platform refused an action; those before it are done.
            LeaseError: Someone else is applying.
        """
        if self.no_state:
            refuse_another_cluster(site, cluster, None)
            actions = tuple(decide(site.providers[cluster], None))
            self._do(site.providers[cluster], actions)
            return actions
        decided: list[tuple[ControlAction, ...]] = []

        def decide_now(basis: Basis) -> ToDo:
            if basis.is_again:
                return ToDo((), digest(()))
            refuse_another_cluster(site, cluster, basis.snapshot)
            decided.append(tuple(decide(site.providers[cluster], basis.snapshot.record)))
            return ToDo(decided[-1], digest(decided[-1]))

        wish = Wish(
            command=self.command,
            lock_timeout_s=self.lock_timeout_s,
            parallelism=2,
            report=self.report,
            stop=self.stop,
            # In an emergency another cluster may be the very one that does not answer.
            gives_up=lambda address: cluster_of(address) != cluster,
        )
        result = run_under_lease(site, wish, decide_now).result
        if result is not None and result.failed:
            raise result.failed[0].error
        return decided[-1]

    def _do(self, provider: Provider, actions: Sequence[ControlAction]) -> None:
        addresses = {action.id: action.address for action in actions}
        for action in actions:
            self.report(ActionStarted(action.id, action.address))
        for outcome in provider.apply(actions) if actions else ():
            match outcome:
                case Failed(error=error):
                    raise error
                case Done():
                    self.report(ActionDone(outcome.id, addresses[outcome.id], 0.0))
                case _:
                    assert_never(outcome)


def require_confirmation(is_confirmed: bool) -> None:  # noqa: FBT001 - the answer is all there is
    """Go on where it was confirmed.

    Raises:
        UserError: It was not.
    """
    if not is_confirmed:
        raise UserError("not confirmed: nothing was done", hint="Only 'yes' confirms.")
