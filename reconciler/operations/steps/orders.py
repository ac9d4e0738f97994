"""Plan orders: what a command wants, over what is recorded and observed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from reconciler.errors import BlockedError, UserError
from reconciler.operations.steps.observe import measure
from reconciler.operations.steps.workspace import Work
from reconciler.planning import planner
from reconciler.planning.plan import Plan, PlanInput, Selection
from reconciler.resources.address import Address, cluster_address, cluster_of
from reconciler.resources.inventory import Declared

if TYPE_CHECKING:
    from reconciler.operations.steps.invocation import Invocation
    from reconciler.operations.steps.workspace import Site
    from reconciler.planning.orders import Order
    from reconciler.resources.inventory import Capabilities, Inventory, Record


def plan_record_orders(invocation: Invocation, orders: Sequence[Order], record: Record) -> Plan:
    """Plan orders that change the record alone.

    Raises:
        UserError: An order is refused.
    """
    return require_executable(planner.judge(planner.decide({}, record, {}, given=_given(invocation, orders, {})), {}))


def plan_orders(
    site: Site,
    orders: Sequence[Order],
    record: Record | None,
    observed: Inventory,
    allow: Sequence[str] = (),
    *,
    is_measured: bool = True,
) -> Plan:
    """Plan orders over what was observed of their clusters; an order that is refused is an error of the plan.

    `record` is `None` for a command that acts without a state. `allow` lifts guards, as `VERB:ADDR`. What is not
    measured counts as lost.
    """
    clusters = sorted({cluster for address in observed if (cluster := cluster_of(address)) is not None})
    given = replace(
        _given(site.invocation, orders, {name: site.providers[name].capabilities for name in clusters}),
        selection=Selection(allow=tuple(allow)),
        hidden={address: seen.hidden for address, seen in observed.items() if seen.hidden is not None},
        has_state=record is not None,
    )
    shown = {address: seen for address, seen in observed.items() if seen.hidden is None}
    desired: dict[Address, Declared] = {cluster_address(name): Declared(site.clusters[name], "") for name in clusters}
    if isinstance(site, Work):  # The files say what is protected, also if the state is not read.
        desired |= {address: site.loaded.desired[address] for address in observed if address in site.loaded.desired}
    draft = planner.decide(desired, record or {}, shown, given=given)
    cuts = planner.to_measure(draft) if is_measured else {}
    measures = measure(site.providers, cuts, with_groups=True, may_lack=clusters) if cuts else {}
    return planner.judge(draft, measures)


def require_executable(plan: Plan) -> Plan:
    """Return the plan unchanged if all of it can be carried out.

    Raises:
        UserError: An order is refused.
        BlockedError: A guard blocks an action.
    """
    for error in plan.errors:
        raise UserError(error.message, hint=error.hint)
    for action, block in ((action, action.blocked) for action in plan.blocked):
        hint = f"Allow it once with: --allow {block.allow}" if block and block.allow else "Nothing was done."
        raise BlockedError(f"{action.address}: {block.message if block else ''}; nothing was done", hint=hint)
    return plan


def _given(invocation: Invocation, orders: Sequence[Order], capabilities: Mapping[str, Capabilities]) -> PlanInput:
    return PlanInput(
        workspace="",
        capabilities=capabilities,
        identities={},
        today=invocation.today(),
        now_ms=invocation.now_ms(),
        tool=invocation.tool,
        orders=tuple(orders),
    )
