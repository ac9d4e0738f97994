"""What is done now and told to the files later: an ordinary run under the lease, or done without asking any state."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, assert_never

from reconciler.applying.events import ActionDone, ActionFailed, ActionStarted
from reconciler.applying.lanes import JOBS, lane_of
from reconciler.applying.running import Basis, RunOptions, ToDo, Wish
from reconciler.errors import IncompleteError, LeaseError, ReconcilerError, UserError
from reconciler.planning.actions import Adopt, Create, Delete, Forget, RunJob, Transition, Update
from reconciler.planning.document.digest import digest
from reconciler.providers.base import Done, Failed
from reconciler.resources.address import cluster_of
from reconciler.workflow.beginning.identity import refuse_another_cluster
from reconciler.workflow.beginning.opening import open_at, open_site, open_work
from reconciler.workflow.looking.overviews import check_answers
from reconciler.workflow.running.jobs import SparkJobs
from reconciler.workflow.running.underlease import run_under_lease

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from reconciler.applying.engine import RunResult
    from reconciler.applying.events import Event
    from reconciler.planning.actions import Action, ControlAction
    from reconciler.providers.base import Provider
    from reconciler.resources.inventory import Record
    from reconciler.state.snapshots import Snapshot
    from reconciler.workflow.beginning.invocation import Invocation, Select
    from reconciler.workflow.beginning.opening import Site
    from reconciler.workflow.running.stopping import Stop


FAILOVER: Final = "mirror failover"


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
    at: Mapping[str, str] = field(default_factory=dict)
    """Where clusters are, by name: it stands in for a workspace where there is neither one nor a state."""

    def open(self) -> Site:
        """Open where it happens; touches no cluster.

        Raises:
            UserError: There is no workspace here, or no state there.
        """
        if self.at:
            return open_at(self.invocation, self.at)
        if self.state_url is not None:
            return open_site(self.invocation, self.state_url)
        try:
            return open_work(self.invocation, self.select)
        except UserError as error:
            way = "--state URL, as `spec.state` has it"
            error.hint = f"{error.hint.removesuffix('.')}. To go on without the files: {way}"
            raise

    def site(self, cluster: str) -> Site:
        """Open where it happens, and look that the cluster it happens to is the recorded one.

        Raises:
            UserError: Another one answers in its place.
            RetryableError: It is recorded, and nothing is there.
        """
        site = self.open()
        self.check(site, cluster)
        return site

    def check(self, site: Site, cluster: str) -> None:
        """Return if the cluster it happens to is the recorded one, as far as that is asked.

        Raises:
            UserError: Another one answers in its place.
            RetryableError: It cannot be reached, or it is recorded and nothing is there.
        """
        if not self.no_state:
            check_answers(site, cluster)

    def carry_out(
        self, site: Site, cluster: str, decide: Callable[[Provider, Record | None], Sequence[ControlAction]]
    ) -> tuple[ControlAction, ...]:
        """Do what `decide` makes of a cluster as it is, and of the record (`None`: without a state); return it.

        Raises:
            UserError: Another cluster answers, or the platform refused an action; those before it are done.
            LeaseError: Someone else is applying.
        """
        decided: list[tuple[ControlAction, ...]] = []

        def decide_on(snapshot: Snapshot | None) -> Sequence[Action]:
            refuse_another_cluster(site, cluster, snapshot)
            record = None if snapshot is None else snapshot.record
            decided.append(tuple(decide(site.providers[cluster], record)))
            return decided[-1]

        for error in self.carry_out_each(site, {cluster}, decide_on).values():
            raise error
        return decided[-1]

    def carry_out_each(
        self, site: Site, clusters: AbstractSet[str], decide: Callable[[Snapshot | None], Sequence[Action]]
    ) -> Mapping[str, ReconcilerError]:
        """Do what `decide` makes of the state (`None`: without one); return why actions were not done, by their ids.

        Raises:
            LeaseError: Someone else is applying.
        """
        if self.no_state:
            return self._done_without(site, decide(None))

        def decide_now(basis: Basis) -> ToDo:
            actions = () if basis.is_again else tuple(decide(basis.snapshot))
            return ToDo(actions, digest(actions))

        wish = Wish(
            command=self.command,
            options=RunOptions(parallelism=2, lock_timeout_s=self.lock_timeout_s),
            # In an emergency another cluster may be the very one that does not answer.
            gives_up=lambda address: cluster_of(address) not in clusters,
        )
        try:
            result = run_under_lease(site, wish, decide_now, report=self.report, stop=self.stop).result
        except LeaseError as error:
            if self.command == FAILOVER:  # The one verb that is for the day on which nobody can wait.
                error.hint = f"Where nobody can wait: --no-state does it now, whoever is at work. {error.hint}"
            raise
        return {} if result is None else _undone(result)

    def _done_without(self, site: Site, actions: Sequence[Action]) -> Mapping[str, ReconcilerError]:
        undone: dict[str, ReconcilerError] = {}
        with SparkJobs(site.providers, site.spark, self.invocation.environ) as jobs, self.stop.ends(jobs.stop):
            jobs.check(actions)
            for action in actions:
                if undone.keys() & set(action.depends_on):
                    undone[action.id] = _skipped(next(each for each in action.depends_on if each in undone))
                    continue
                self.report(ActionStarted(action.id, action.address))
                try:
                    self._do(site, jobs, action)
                except ReconcilerError as error:
                    undone[action.id] = error
                    self.report(ActionFailed(action.id, action.address, error.message, error.hint))
                else:
                    self.report(ActionDone(action.id, action.address, 0.0))
        return undone

    def _do(self, site: Site, jobs: SparkJobs, action: Action) -> None:
        match action:
            case Adopt() | Forget():
                return  # Both are about a state alone.
            case RunJob():
                jobs.run(action, self.report)
                return
            case Transition() if lane_of(action) == JOBS:
                jobs.run(action, self.report)
                return
            case Create() | Update() | Delete() | Transition():
                pass
            case _:
                assert_never(action)
        for outcome in site.providers[action.cluster or ""].apply([action]):
            match outcome:
                case Failed(error=error):
                    raise error
                case Done():
                    pass
                case _:
                    assert_never(outcome)


def _undone(result: RunResult) -> dict[str, ReconcilerError]:
    """Return why actions of a run are not done, or not known to be."""
    found: dict[str, ReconcilerError] = {item.id: item.error for item in result.failed}
    found |= {item.id: _skipped(item.because) for item in result.skipped}
    hint = "Go on with it: reconciler apply --resume"
    return found | {name: IncompleteError("stopped before it was begun", hint=hint) for name in result.not_started}


def _skipped(because: str) -> ReconcilerError:
    return UserError(f"not begun: {because} failed", hint="Mend that first.")


def require_confirmation(is_confirmed: bool) -> None:  # noqa: FBT001 - the answer is all there is
    """Go on where it was confirmed.

    Raises:
        UserError: It was not.
    """
    if not is_confirmed:
        raise UserError("not confirmed: nothing was done", hint="Only 'yes' confirms.")
