"""One run, from the lease to its result: settle what an earlier one left, decide once, do it, commit, let go.

Everything it does to the world goes through `Setting`, so the same run is driven by a simulation with a clock of its
own, where it can be killed at every step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from reconciler.applying.ending import Ending, stamp
from reconciler.applying.engine import Engine, RunResult
from reconciler.applying.events import PlanMade, Summary
from reconciler.applying.ports import Means
from reconciler.applying.recovery import Recovery, Settled
from reconciler.applying.turn import LeaseTurn
from reconciler.errors import IncompleteError, InterruptedRunError, StoppedError, UserError
from reconciler.planning.document.stored import stored_action
from reconciler.state.acquiring import Claim, Patience, acquire, tell_nobody
from reconciler.state.journal import Journal
from reconciler.state.runs import RunFile

if TYPE_CHECKING:
    from reconciler.applying.ports import Setting
    from reconciler.planning.actions import Action, Transition
    from reconciler.planning.plan import Plan
    from reconciler.resources.address import Address
    from reconciler.resources.inventory import Record
    from reconciler.state.lease import Lease
    from reconciler.state.notices import Notice
    from reconciler.state.snapshots import Snapshot


@dataclass(frozen=True, slots=True)
class ToDo:
    """What a run is to do, decided under the lease."""

    actions: Sequence[Action]
    digest: str
    plan: Plan | None = None
    """Where the actions come from, if from a plan."""
    options: Mapping[str, Any] | None = None
    """What was typed, so that another machine can plan the same again."""


@dataclass(frozen=True, slots=True)
class Basis:
    """What a decision rests on."""

    snapshot: Snapshot
    """The state under the lease."""
    settled: Settled | None = None
    """The open run that was found, if there was one."""
    is_again: bool = False
    """The plan is done; what the settled run had left in doubt is looked at once more."""


Decide: TypeAlias = Callable[[Basis], ToDo]


def drives_nothing(_action: Transition) -> bool:
    """Leave everything to `run`."""
    return False


def gives_up_nothing(_address: Address) -> bool:
    """Look at everything."""
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """How a run was asked for. Times are in seconds."""

    resumes: bool = False
    """Finish the open run's own plan, whoever began it, and nothing else; it is closed only when its rest begins."""
    leaves_jobs: bool = False
    """Do what needs no Spark; the jobs are left to `--resume` or `run`."""
    parallelism: int = 8
    """So many calls to platforms at once; jobs and writes of the state are beside them."""
    lock_timeout_s: float = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Whose run it is, as others read it."""

    claim: Claim
    tool: str = ""
    git_commit: str | None = None
    tell: Callable[[Notice], None] = tell_nobody
    """Takes who holds the lease, while it is waited for."""
    new_run: Callable[[], str]
    """Makes the id of a second round."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """One wish to change something: how it is called, and how it deals with what others left."""

    command: str
    options: RunOptions = field(default_factory=RunOptions)
    drives: Callable[[Transition], bool] = drives_nothing
    """Which transitions over two clusters that an open run has left under way are ended, before all else."""
    gives_up: Callable[[Address], bool] = gives_up_nothing
    """Addresses whose doubt may end without a look: their cluster was left out by name."""


@dataclass(frozen=True, slots=True)
class Ended:
    """What came of a run. `result` is `None` where there was nothing to do."""

    result: RunResult | None
    settled: Settled | None = None


class Run:
    """One run of one wish."""

    def __init__(self, setting: Setting, caller: Caller, wish: Wish) -> None:
        """Nothing is asked of anybody yet."""
        self._setting = setting
        self._caller = caller
        self._wish = wish
        self._effects = setting.effects
        self._began = setting.effects.now()

    async def run(self, decide: Decide) -> Ended:
        """Do what `decide` makes of the state. It may raise: then nothing was done, and the lease is free again.

        Raises:
            LeaseError: Someone else holds it, or took over on the way.
            InterruptedRunError: Stopped before anything started.
            IncompleteError: What an earlier run left in doubt cannot be settled; or the state can no longer be written.
        """
        wish, resumes = self._wish, self._wish.options.resumes
        async with await self._acquired() as lease:
            self._check_stop()
            recovery = Recovery(lease, self._setting, gives_up=wish.gives_up, drives=wish.drives, resumes=resumes)
            settled = await recovery.settle_open_run(closes=not resumes)
            if settled is None and resumes:
                raise UserError(
                    "there is nothing to resume: no run is open", hint="Plan and apply with: reconciler apply"
                )
            result = await self._round(lease, decide, Basis(await lease.snapshot(), settled), self._caller.claim.run)
            if self._has_to_look_again(result, settled):
                await self._look_again(lease, decide, settled)
        return Ended(result, settled)

    async def _acquired(self) -> Lease:
        claim = self._caller.claim
        patience = Patience(
            lock_timeout_s=self._wish.options.lock_timeout_s,
            tell=self._caller.tell,
            is_stopped=lambda: self._setting.stop.is_requested,
        )
        try:
            return await acquire(self._setting.state, self._effects, claim, patience)
        except StoppedError as error:
            raise InterruptedRunError(
                "stopped before anything started: the state store does not answer",
                hint=f"Nothing was changed. If it had just given run {claim.run} the lease, that one is free again "
                f"{claim.terms.lease_s:.0f} s from now.",
            ) from error

    # -- one round: begin, do, conclude

    async def _round(self, lease: Lease, decide: Decide, basis: Basis, run: str) -> RunResult | None:
        try:
            todo = await self._effects.call(lambda: decide(basis))
        except StoppedError as error:
            raise InterruptedRunError("stopped before anything started", hint="Nothing was changed.") from error
        self._check_stop()
        if todo.plan is not None and not basis.is_again:
            self._setting.report(PlanMade(todo.plan))
        if not todo.actions:
            if lease.lockfile.open_run is not None:
                await lease.end_run(None)
            if not basis.is_again:
                self._tell_nothing(lease, run)
            return None
        if not self._wish.options.leaves_jobs:
            await self._effects.call(lambda: self._setting.jobs.check(todo.actions))
        await lease.begin(self._run_file(run, todo, basis, lease))
        journal = Journal(lease, self._effects, run)
        result = await self._do(lease, journal, todo, basis.snapshot.record)
        keeps_lease = not basis.is_again and self._has_to_look_again(result, basis.settled)
        ending = Ending(self._setting, lease, journal, run)
        return await ending.conclude(result, keeps_lease=keeps_lease, began=self._began)

    async def _do(self, lease: Lease, journal: Journal, todo: ToDo, record: Record) -> RunResult:
        setting, options = self._setting, self._wish.options
        means = Means(
            providers=setting.providers,
            jobs=setting.jobs,
            turn=LeaseTurn(lease, journal, self._effects),
            effects=self._effects,
            report=setting.report,
            parallelism=options.parallelism,
        )
        engine = Engine(todo.actions, means, record=record, run=journal.run, leaves_jobs=options.leaves_jobs)
        with setting.stop.ends(engine.stop):
            return await engine.run()

    def _has_to_look_again(self, result: RunResult | None, settled: Settled | None) -> bool:
        """Tell whether a call of the settled run, under way when it was taken over, may have landed since."""
        is_over = result is None or result.is_whole
        return is_over and settled is not None and bool(settled.doubtful)

    async def _look_again(self, lease: Lease, decide: Decide, settled: Settled | None) -> None:
        if self._setting.stop.is_requested:
            raise IncompleteError(
                "stopped: the plan is done, but what the run before had left in doubt was not looked at once more",
                hint="Look with: reconciler plan",
            )
        doubtful = settled.doubtful if settled else frozenset()

        def decide_again(basis: Basis) -> ToDo:
            todo = decide(basis)
            return replace(todo, actions=[action for action in todo.actions if action.address in doubtful])

        await self._round(
            lease, decide_again, Basis(await lease.snapshot(), settled, is_again=True), self._caller.new_run()
        )

    # -- what it says of itself

    def _run_file(self, run: str, todo: ToDo, basis: Basis, lease: Lease) -> RunFile:
        caller, claim = self._caller, self._caller.claim
        resumed = basis.settled.run.file.run if basis.settled and self._wish.options.resumes else None
        return RunFile(
            run=run,
            command=self._wish.command,
            plan_digest=todo.digest,
            actions=tuple(stored_action(action) for action in todo.actions),
            workspace=claim.owner.workspace,
            environment=claim.owner.environment,
            base_serial=basis.snapshot.serial,
            base_sha256=basis.snapshot.sha256,
            epoch=lease.lockfile.lease.epoch,
            options=todo.options,
            resumes=resumed,
            git_commit=caller.git_commit,
            tool=caller.tool,
            who=claim.who,
            ci_url=claim.ci_url,
            started=stamp(self._effects),
        )

    def _tell_nothing(self, lease: Lease, run: str) -> None:
        """Say how a run ended that had nothing to do: whoever reads events waits for its summary."""
        seconds, serial = self._effects.now() - self._began, lease.lockfile.serial
        self._setting.report(Summary(run, done=0, failed=0, skipped=0, not_started=0, seconds=seconds, serial=serial))

    def _check_stop(self) -> None:
        if self._setting.stop.is_requested:
            raise InterruptedRunError("stopped before anything started", hint="Nothing was changed.")
