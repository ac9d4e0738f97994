"""A run of this workspace: its clusters, jobs and state brought together, and driven by threads of this process."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from reconciler.applying.ports import Setting
from reconciler.applying.running import Caller, Ended, Run
from reconciler.applying.threads import ThreadEffects
from reconciler.state.acquiring import Claim
from reconciler.workflow.running.jobs import SparkJobs
from reconciler.workflow.running.spooling import LocalSpool

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from reconciler.applying.events import Event
    from reconciler.applying.running import Decide, Wish
    from reconciler.workflow.beginning.opening import Site
    from reconciler.workflow.running.stopping import Stop


def run_under_lease(site: Site, wish: Wish, decide: Decide, *, report: Callable[[Event], None], stop: Stop) -> Ended:
    """Do what `decide` makes of the state under the lease; its `result` is `None` where that is nothing.

    `decide` may raise: then nothing was done and the lease is free again.

    Raises:
        LeaseError: Someone else holds it, or took over on the way.
        InterruptedRunError: Stopped before anything started.
        IncompleteError: What an earlier run left in doubt cannot be settled, or the state can no longer be written.
    """
    effects = ThreadEffects(wish.options.parallelism)
    try:
        with SparkJobs(site.providers, site.spark, site.invocation.environ) as jobs, stop.ends(effects.hurry):
            setting = Setting(
                state=site.state,
                providers=site.providers,
                jobs=jobs,
                effects=effects,
                report=report,
                stop=stop,
                spool=LocalSpool(site.edge.folder, site.invocation.warn),
            )
            return _ended(Run(setting, _caller(site), wish).run(decide))
    finally:
        effects.close()


def _ended(run: Coroutine[object, object, Ended]) -> Ended:
    """Drive a run to its end. Its task returns nothing: the standard library would write out all of it, twice."""
    found: list[Ended] = []

    async def drive() -> None:
        found.append(await run)

    asyncio.run(drive())
    return found[0]


def _caller(site: Site) -> Caller:
    invocation = site.invocation
    return Caller(
        claim=Claim(
            owner=site.owner,
            run=invocation.new_run(),
            who=invocation.who,
            lineage=invocation.new_id(),
            ci_url=invocation.ci_url,
        ),
        tool=invocation.tool,
        git_commit=invocation.git_commit(site.edge.folder),
        tell=lambda waiting: invocation.warn(str(waiting)),
        new_run=invocation.new_run,
    )
