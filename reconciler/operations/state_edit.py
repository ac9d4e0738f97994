"""`state mv`, `rm`, `unlock` and `repair`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

from reconciler.applying.run import DecisionBasis, RunOptions, RunRequest, RunWork
from reconciler.errors import StalePlanError, UsageError
from reconciler.operations.state_views import read_current
from reconciler.operations.steps.orders import plan_record_orders
from reconciler.operations.steps.runner import Stop, require_confirmation, run_under_lease
from reconciler.operations.steps.workspace import Site, open_state
from reconciler.planning.actions import Adopt
from reconciler.planning.diff.ordered import explain_forbidden_move
from reconciler.planning.orders import ForgetOrder, Order, ReaddressOrder
from reconciler.planning.plan import Plan
from reconciler.planning.plan_rows import compute_digest
from reconciler.resources.address import (
    Address,
)
from reconciler.resources.cluster import Cluster
from reconciler.resources.inventory import Record, Recorded
from reconciler.runtime.dataclass import dataclass, replace
from reconciler.runtime.text import shorten_run_id
from reconciler.runtime.thread_effects import ThreadEffects
from reconciler.state.diagnosis import read_state_files
from reconciler.state.lockfile import read_lockfile
from reconciler.state.repair import Repair, RepairChoice, UnlockRequest, UnlockResult, plan_repair, unlock, write_repair

if TYPE_CHECKING:
    from reconciler.applying.events import Event
    from reconciler.operations.steps.invocation import Invocation, Select


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordEdit:
    """Options of commands that edit the state."""

    invocation: Invocation
    select: Select
    command: str
    lock_timeout_s: float
    stop: Stop
    show: Callable[[Plan], None] | None = None
    """Receives the plan of a dry run."""

    def apply_orders(self, orders: Sequence[Order], confirm: Callable[[Plan, Record], bool]) -> Plan:
        """Return the plan, and change the state if `confirm` accepts it."""
        site = open_state(self.invocation, self.select)
        snapshot = read_current(site)
        confirmed = plan_record_orders(self.invocation, orders, snapshot.record)
        if self.show is not None:
            self.show(confirmed)
            return confirmed
        require_confirmation(confirm(confirmed, snapshot.record))

        def decide_under_lease(basis: DecisionBasis) -> RunWork:
            if basis.is_second_round:
                return RunWork((), compute_digest(()))
            plan = plan_record_orders(self.invocation, orders, basis.snapshot.record)
            if plan.digest != confirmed.digest:
                raise StalePlanError(
                    "what is recorded has changed since it was shown",
                    hint="Nothing was changed. Run the command again.",
                )
            return RunWork(plan.actions, plan.digest)

        wish = RunRequest(command=self.command, options=RunOptions(parallelism=2, lock_timeout_s=self.lock_timeout_s))
        at = _add_recorded_clusters(site, snapshot.record)
        run_under_lease(at, wish, decide_under_lease, report=_ignore_event, stop=self.stop)
        return confirmed


def _ignore_event(_event: Event) -> None:
    pass


def _add_recorded_clusters(site: Site, record: Record) -> Site:
    resources = (recorded.resource for recorded in record.values())
    return replace(site, clusters={item.metadata.name: item for item in resources if isinstance(item, Cluster)})


def state_rm(
    surgery: RecordEdit,
    patterns: Sequence[str],
    *,
    recursive: bool,
    confirm: Callable[[tuple[tuple[Address, Recorded], ...]], bool],
) -> tuple[Address, ...]:
    """Remove resources from the state, but not from clusters. `recursive` includes those below `patterns`.

    Owner marks on clusters are removed.
    """
    for pattern in patterns:
        if "*" in pattern and not recursive:
            message = f"{pattern} may name more than one resource"
            raise UsageError(message, hint="Give --recursive; what goes is shown before.")
    orders = [ForgetOrder(pattern, recursive) for pattern in patterns]

    def confirm_rows(plan: Plan, record: Record) -> bool:
        return confirm(tuple((action.address, record[action.address]) for action in plan.actions))

    return tuple(action.address for action in surgery.apply_orders(orders, confirm_rows).actions)


def state_mv(
    surgery: RecordEdit, before: str, after: str, *, confirm: Callable[[tuple[ReaddressOrder, ...]], bool]
) -> tuple[ReaddressOrder, ...]:
    """Rename a recorded resource, or a namespace with contents. `confirm` receives all renames."""
    order = ReaddressOrder(Address(before), Address(after))
    forbidden = explain_forbidden_move(order.before, order.after)
    if forbidden is not None:
        message, hint = forbidden
        raise UsageError(message, hint=hint)
    plan = surgery.apply_orders([order], lambda plan, _record: confirm(_list_moves(plan)))
    return _list_moves(plan)


def _list_moves(plan: Plan) -> tuple[ReaddressOrder, ...]:
    adopted = ((action.moved_from, action.address) for action in plan.actions if isinstance(action, Adopt))
    return tuple(ReaddressOrder(before, after) for before, after in adopted if before is not None)


_AT_ONCE: Final = 16


@dataclass(frozen=True, slots=True)
class StateRepair:
    """Result of `state repair`; `repair` is `None` if the state is healthy."""

    repair: Repair | None
    kept: str | None = None


def state_repair(
    invocation: Invocation, select: Select, choice: RepairChoice, *, confirm: Callable[[Repair], bool]
) -> StateRepair:
    """Rebuild the lockfile from snapshots and runs, after confirmation."""
    site = open_state(invocation, select)
    with ThreadPoolExecutor(max_workers=_AT_ONCE, thread_name_prefix="look") as threads:
        remains = read_state_files(site.state, threads.map)
    repair = plan_repair(site.state, remains, site.owner, choice, lineage=invocation.new_id())
    if repair is None:
        return StateRepair(None)
    require_confirmation(confirm(repair))
    return StateRepair(repair, write_repair(site.state, repair))


def state_unlock(
    invocation: Invocation, select: Select, run: str | None, *, confirm: Callable[[str], bool], stop: Stop
) -> UnlockResult:
    """Free a dead run's lease. Without `run`, wait for a full lease without a change."""
    site = open_state(invocation, select)
    current = read_lockfile(site.state, owner=site.owner)
    lease = current.lockfile.lease if current is not None else None
    if lease is not None and lease.status == "held":
        is_confirmed = confirm(
            f"The lease is held by {lease.who} since {lease.since}, run {shorten_run_id(lease.run)}."
        )
        require_confirmation(is_confirmed)
    effects = ThreadEffects()
    wanted = UnlockRequest(
        owner=site.owner,
        run=run,
        by_run=invocation.new_run(),
        who=invocation.who,
        is_stopped=lambda: stop.is_requested,
    )
    try:
        with stop.call_on_stop(lambda: None):
            return asyncio.run(unlock(site.state, effects, wanted))
    finally:
        effects.close()
