"""One run: take the lease, decide once under it, do it, commit, let the lease go."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from reconciler.applying.engine import Engine, RunResult
from reconciler.applying.events import PlanMade, Summary
from reconciler.applying.ports import Means
from reconciler.applying.threads import ThreadEffects
from reconciler.errors import InterruptedRunError
from reconciler.state.acquiring import Claim, Patience, acquire
from reconciler.state.runs import ResultFile, RunFile, write_result
from reconciler.workflow.jobs import SparkJobs
from reconciler.workflow.turn import LeaseTurn

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from reconciler.applying.events import Event
    from reconciler.effects import Effects
    from reconciler.planning.actions import Action
    from reconciler.planning.plan import Plan
    from reconciler.resources.inventory import Record
    from reconciler.state.lease import Lease
    from reconciler.state.snapshots import Snapshot
    from reconciler.workflow.opening import Site
    from reconciler.workflow.stopping import Stop


@dataclass(frozen=True, slots=True)
class Settled:
    """What a run is to do, settled under the lease."""

    actions: Sequence[Action]
    digest: str
    plan: Plan | None = None
    """Where the actions come from, if from a plan."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """One wish to change something: how it is called, how long to wait, whom to tell and who may stop it."""

    command: str
    lock_timeout_s: float
    parallelism: int
    report: Callable[[Event], None]
    stop: Stop


def run_under_lease(site: Site, wish: Wish, settle: Callable[[Snapshot], Settled]) -> RunResult | None:
    """Do what `settle` makes of the state under the lease; `None` where that is nothing.

    `settle` may raise: then nothing was done and the lease is free again.

    Raises:
        LeaseError: Someone else holds it, or took over on the way.
        InterruptedRunError: Stopped before anything started.
    """
    effects = ThreadEffects(wish.parallelism)
    try:
        with wish.stop.ends(_nothing):
            return asyncio.run(_Run(site, wish, effects).run(settle))
    finally:
        effects.close()


def _nothing() -> None:
    """While the lease is taken and the plan is made, a request to stop is looked at afterwards."""


class _Run:
    """One run, from the lease to its result."""

    def __init__(self, site: Site, wish: Wish, effects: Effects) -> None:
        self._site = site
        self._wish = wish
        self._effects = effects
        self._id = site.invocation.new_run()
        self._began = effects.now()
        self._jobs = SparkJobs(site.providers, site.spark, site.invocation.environ)

    async def run(self, settle: Callable[[Snapshot], Settled]) -> RunResult | None:
        async with await self._acquire() as lease:
            self._check_stop()
            snapshot = await lease.snapshot()
            settled = await self._effects.call(lambda: settle(snapshot))
            self._check_stop()
            if settled.plan is not None:
                self._wish.report(PlanMade(settled.plan))
            if not settled.actions:
                return None
            await self._effects.call(lambda: self._jobs.check(settled.actions))
            started = self._stamp()
            await lease.begin(self._run_file(settled, snapshot, lease, started))
            result = await self._do(lease, settled, snapshot.record)
            serial = await lease.close(result.record if result.is_changed else None)
        await self._finish(result, serial)
        if result.trouble is not None:
            raise result.trouble
        return result

    async def _acquire(self) -> Lease:
        site, wish = self._site, self._wish
        claim = Claim(
            owner=site.owner,
            run=self._id,
            who=site.invocation.who,
            lineage=site.invocation.new_id(),
            ci_url=site.invocation.ci_url,
        )
        patience = Patience(
            lock_timeout_s=wish.lock_timeout_s,
            tell=lambda waiting: site.invocation.warn(str(waiting)),
            is_stopped=lambda: wish.stop.is_requested,
        )
        return await acquire(site.state, self._effects, claim, patience)

    async def _do(self, lease: Lease, settled: Settled, record: Record) -> RunResult:
        site, wish, jobs = self._site, self._wish, self._jobs
        means = Means(
            providers=site.providers,
            jobs=jobs,
            turn=LeaseTurn(lease, self._effects),
            effects=self._effects,
            report=wish.report,
        )
        engine = Engine(settled.actions, means, record=record, run=self._id)
        with jobs, wish.stop.ends(engine.stop):
            return await engine.run()

    async def _finish(self, result: RunResult, serial: int) -> None:
        file = ResultFile(
            run=self._id,
            status=status_of(result),
            serial=serial,
            done=result.done,
            failed=tuple(
                {"id": item.id, "error": item.error.message, "hint": item.error.hint} for item in result.failed
            ),
            skipped=tuple({"id": item.id, "because": item.because} for item in result.skipped),
            not_started=result.not_started,
            ended=self._stamp(),
        )
        await self._effects.call(lambda: write_result(self._site.state, file))
        self._wish.report(
            Summary(
                self._id,
                done=len(result.done),
                failed=len(result.failed),
                skipped=len(result.skipped),
                not_started=len(result.not_started),
                seconds=self._effects.now() - self._began,
                serial=serial,
                skipped_because={item.id: item.because for item in result.skipped},
            )
        )

    def _run_file(self, settled: Settled, snapshot: Snapshot, lease: Lease, started: str) -> RunFile:
        invocation, owner = self._site.invocation, self._site.owner
        return RunFile(
            run=self._id,
            command=self._wish.command,
            plan_digest=settled.digest,
            actions=tuple(action.id for action in settled.actions),
            workspace=owner.workspace,
            environment=owner.environment,
            base_serial=snapshot.serial,
            base_sha256=snapshot.sha256,
            epoch=lease.lockfile.lease.epoch,
            git_commit=invocation.git_commit(self._site.edge.folder),
            tool=invocation.tool,
            who=invocation.who,
            ci_url=invocation.ci_url,
            started=started,
        )

    def _check_stop(self) -> None:
        if self._wish.stop.is_requested:
            raise InterruptedRunError("stopped before anything started", hint="Nothing was changed.")

    def _stamp(self) -> str:
        return self._effects.utc().strftime("%Y-%m-%dT%H:%M:%SZ")


def status_of(result: RunResult) -> str:
    """Return how a run ended, in one word."""
    if result.not_started:
        return "stopped"
    return "partial" if result.failed else "done"
