"""A run of this workspace: its clusters, jobs and state brought together, and driven by threads of this process."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from reconciler.applying.ports import Setting
from reconciler.applying.running import Ended, Run, drives_nothing, gives_up_nothing
from reconciler.applying.running import Wish as RunWish
from reconciler.applying.threads import ThreadEffects
from reconciler.state.acquiring import Claim, Patience
from reconciler.workflow.running.jobs import SparkJobs
from reconciler.workflow.running.spooling import LocalSpool

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from reconciler.applying.events import Event
    from reconciler.applying.running import Decide
    from reconciler.planning.actions import Transition
    from reconciler.resources.address import Address
    from reconciler.workflow.beginning.opening import Site
    from reconciler.workflow.running.stopping import Stop


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """One wish to change something: how it is called, how long to wait, whom to tell and who may stop it."""

    command: str
    lock_timeout_s: float
    parallelism: int
    report: Callable[[Event], None]
    stop: Stop
    resumes: bool = False
    leaves_jobs: bool = False
    drives: Callable[[Transition], bool] = drives_nothing
    """Which transitions over two clusters that an open run has left under way are ended, before all else."""
    gives_up: Callable[[Address], bool] = gives_up_nothing
    """Addresses whose doubt may end without a look: their cluster was left out by name."""


def run_under_lease(site: Site, wish: Wish, decide: Decide) -> Ended:
    """Do what `decide` makes of the state under the lease; its `result` is `None` where that is nothing.

    `decide` may raise: then nothing was done and the lease is free again.

    Raises:
        LeaseError: Someone else holds it, or took over on the way.
        InterruptedRunError: Stopped before anything started.
        IncompleteError: What an earlier run left in doubt cannot be settled, or the state can no longer be written.
    """
    effects = ThreadEffects(wish.parallelism)
    try:
        with SparkJobs(site.providers, site.spark, site.invocation.environ) as jobs, wish.stop.ends(effects.hurry):
            setting = Setting(
                state=site.state,
                providers=site.providers,
                jobs=jobs,
                effects=effects,
                report=wish.report,
                stop=wish.stop,
                spool=LocalSpool(site.edge.folder, site.invocation.warn),
                parallelism=wish.parallelism,
            )
            return _ended(Run(setting, _run_wish(site, wish)).run(decide))
    finally:
        effects.close()


def _ended(run: Coroutine[object, object, Ended]) -> Ended:
    """Drive a run to its end. Its task returns nothing: the standard library would write out all of it, twice."""
    found: list[Ended] = []

    async def drive() -> None:
        found.append(await run)

    asyncio.run(drive())
    return found[0]


def _run_wish(site: Site, wish: Wish) -> RunWish:
    invocation = site.invocation

    return RunWish(
        claim=Claim(
            owner=site.owner,
            run=invocation.new_run(),
            who=invocation.who,
            lineage=invocation.new_id(),
            ci_url=invocation.ci_url,
        ),
        command=wish.command,
        tool=invocation.tool,
        git_commit=invocation.git_commit(site.edge.folder),
        patience=Patience(
            lock_timeout_s=wish.lock_timeout_s,
            tell=lambda waiting: invocation.warn(str(waiting)),
            is_stopped=lambda: wish.stop.is_requested,
        ),
        resumes=wish.resumes,
        leaves_jobs=wish.leaves_jobs,
        drives=wish.drives,
        gives_up=wish.gives_up,
        new_run=invocation.new_run,
    )
