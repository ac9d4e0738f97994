"""`state unlock`: the lease of a run that is dead, taken away; never deleted."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from reconciler.applying.threads import ThreadEffects
from reconciler.state.lockfile import read_lockfile
from reconciler.state.unlock import Unlocked, Unlocking, unlock
from reconciler.workflow.beginning.opening import open_state
from reconciler.workflow.running.emergencies import require_confirmation

if TYPE_CHECKING:
    from collections.abc import Callable

    from reconciler.workflow.beginning.invocation import Invocation, Select
    from reconciler.workflow.running.stopping import Stop


def state_unlock(
    invocation: Invocation, select: Select, run: str | None, *, confirm: Callable[[str], bool], stop: Stop
) -> Unlocked:
    """Free a lease whose holder is dead: at once with its run, else after watching one whole lease.

    `confirm` gets one line that says who holds it; where nobody does there is nothing to ask.

    Raises:
        LeaseError: It is alive, or another run holds it.
        UserError: Not confirmed.
    """
    site = open_state(invocation, select)
    found = read_lockfile(site.state, owner=site.owner)
    lease = found.lockfile.lease if found is not None else None
    if lease is not None and lease.status == "held":
        is_confirmed = confirm(f"The lease is held by {lease.who} since {lease.since}, run {lease.run}.")
        require_confirmation(is_confirmed)
    effects = ThreadEffects()
    wanted = Unlocking(
        owner=site.owner,
        run=run,
        by_run=invocation.new_run(),
        who=invocation.who,
        is_stopped=lambda: stop.is_requested,
    )
    try:
        with stop.ends(lambda: None):
            return asyncio.run(unlock(site.state, effects, wanted))
    finally:
        effects.close()
