"""`state mv`, `rm`, `unlock` and `repair`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from reconciler.applying.run import Basis, RunOptions, RunRequest, ToDo
from reconciler.errors import StalePlanError, UsageError
from reconciler.operations.state_views import read_current
from reconciler.operations.steps.orders import plan_record_orders
from reconciler.operations.steps.runner import Stop, require_confirmation, run_under_lease
from reconciler.operations.steps.workspace import Site, open_state
from reconciler.planning.actions import Adopt
from reconciler.planning.diff.ordered import forbids_move
from reconciler.planning.orders import ForgetOrder, Order, ReaddressOrder
from reconciler.planning.plan import Plan
from reconciler.planning.plan_rows import digest
from reconciler.resources.address import (
    Address,
)
from reconciler.resources.cluster import Cluster
from reconciler.resources.inventory import Record, Recorded
from reconciler.runtime.threads import ThreadEffects
from reconciler.state.diagnosis import look_at
from reconciler.state.lockfile import read_lockfile
from reconciler.state.repair import Choice, Repair, Unlocked, Unlocking, judge, mend, unlock

if TYPE_CHECKING:
    from reconciler.applying.events import Event
    from reconciler.operations.steps.invocation import Invocation, Select


@dataclass(frozen=True, slots=True, kw_only=True)
class Surgery:
    """One change of the record: of which state, under what name, and whom to tell."""

    invocation: Invocation
    select: Select
    command: str
    lock_timeout_s: float
    stop: Stop
    show: Callable[[Plan], None] | None = None
    """Given the plan of a dry run, which asks and changes nothing."""

    def carry_out(self, orders: Sequence[Order], confirm: Callable[[Plan, Record], bool]) -> Plan:
        """Apply orders to the record after `confirm` accepts their plan; return the plan.

        Raises:
            UserError: Nothing was ever applied, an order is refused, or it was not confirmed; nothing was changed.
            StalePlanError: The record changed after it was confirmed, so the plan would differ; nothing was changed.
            LeaseError: Someone else is applying.
        """
        site = open_state(self.invocation, self.select)
        snapshot = read_current(site)
        confirmed = plan_record_orders(self.invocation, orders, snapshot.record)
        if self.show is not None:
            self.show(confirmed)
            return confirmed
        require_confirmation(confirm(confirmed, snapshot.record))

        def decide_under_lease(basis: Basis) -> ToDo:
            if basis.is_again:
                return ToDo((), digest(()))
            plan = plan_record_orders(self.invocation, orders, basis.snapshot.record)
            if plan.digest != confirmed.digest:
                raise StalePlanError(
                    "what is recorded has changed since it was shown",
                    hint="Nothing was changed. Run the command again.",
                )
            return ToDo(plan.actions, plan.digest)

        wish = RunRequest(command=self.command, options=RunOptions(parallelism=2, lock_timeout_s=self.lock_timeout_s))
        at = _with_clusters(site, snapshot.record)
        run_under_lease(at, wish, decide_under_lease, report=_tell_nobody, stop=self.stop)
        return confirmed


def _tell_nobody(_event: Event) -> None:
    """Forgetting and readdressing are shown before and over at once."""


def _with_clusters(site: Site, record: Record) -> Site:
    """Return the site with the clusters as recorded: a run left open is settled first, and that asks them."""
    resources = (recorded.resource for recorded in record.values())
    return replace(site, clusters={item.metadata.name: item for item in resources if isinstance(item, Cluster)})


# `state rm`: stop owning, change nothing.


def state_rm(
    surgery: Surgery,
    patterns: Sequence[str],
    *,
    recursive: bool,
    confirm: Callable[[tuple[tuple[Address, Recorded], ...]], bool],
) -> tuple[Address, ...]:
    """Forget what `patterns` name; with `recursive` also what lies in those namespaces and on those clusters.

    `confirm` is asked with all that would be forgotten. Nothing on any cluster is changed; what is forgotten is owned
    by nobody there. Where a cluster cannot be told, a warning says so.

    Raises:
        UserError: One names nothing that is recorded, or it was not confirmed.
        UsageError: A pattern may name more than one, and `recursive` is not set.
    """
    for pattern in patterns:
        if "*" in pattern and not recursive:
            message = f"{pattern} may name more than one resource"
            raise UsageError(message, hint="Give --recursive; what goes is shown before.")
    orders = [ForgetOrder(pattern, recursive) for pattern in patterns]

    def rows(plan: Plan, record: Record) -> bool:
        return confirm(tuple((action.address, record[action.address]) for action in plan.actions))

    return tuple(action.address for action in surgery.carry_out(orders, rows).actions)


# `state mv`: what is recorded under one address is recorded under another from then on; nothing is touched.


def state_mv(
    surgery: Surgery, before: str, after: str, *, confirm: Callable[[tuple[ReaddressOrder, ...]], bool]
) -> tuple[ReaddressOrder, ...]:
    """Record `before` as `after` from now on, a namespace with all that lies in it; `confirm` is asked with each move.

    Raises:
        UsageError: The two are of different kinds or clusters, or of a kind that keeps its name.
        UserError: `before` is not recorded, `after` is, or it was not confirmed.
    """
    order = ReaddressOrder(Address(before), Address(after))
    forbidden = forbids_move(order.before, order.after)
    if forbidden is not None:
        message, hint = forbidden
        raise UsageError(message, hint=hint)
    plan = surgery.carry_out([order], lambda plan, _record: confirm(_moves_of(plan)))
    return _moves_of(plan)


def _moves_of(plan: Plan) -> tuple[ReaddressOrder, ...]:
    adopted = ((action.moved_from, action.address) for action in plan.actions if isinstance(action, Adopt))
    return tuple(ReaddressOrder(before, after) for before, after in adopted if before is not None)


# `state repair`: look at what is left, show what would mend it, ask, and write it.


_AT_ONCE: Final = 16


@dataclass(frozen=True, slots=True)
class Repaired:
    """What was wrong with a state, and how it was repaired; `None`: there was nothing to repair."""

    repair: Repair | None
    kept: str | None = None
    """Where the lockfile that was there is kept."""


def state_repair(
    invocation: Invocation, select: Select, choice: Choice, *, confirm: Callable[[Repair], bool]
) -> Repaired:
    """Make the lockfile anew from what is beside it; `confirm` is asked with what would be done.

    Raises:
        UserError: The state is another's, of a newer version, or a person has to decide; or not confirmed.
        LeaseError: Somebody is applying.
    """
    site = open_state(invocation, select)
    with ThreadPoolExecutor(max_workers=_AT_ONCE, thread_name_prefix="look") as threads:
        remains = look_at(site.state, threads.map)
    repair = judge(site.state, remains, site.owner, choice, lineage=invocation.new_id())
    if repair is None:
        return Repaired(None)
    require_confirmation(confirm(repair))
    return Repaired(repair, mend(site.state, repair))


# `state unlock`: the lease of a run that is dead, taken away; never deleted.


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
