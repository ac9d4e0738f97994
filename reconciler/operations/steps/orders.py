"""Plan orders: what a command wants, over what is recorded and observed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from reconciler.errors import ReconcilerError, UserError
from reconciler.planning import planner
from reconciler.planning.plan import Plan, PlanInput

if TYPE_CHECKING:
    from reconciler.operations.steps.invocation import Invocation
    from reconciler.planning.orders import Order
    from reconciler.providers.protocol import Provider
    from reconciler.resources.inventory import Capabilities, Inventory, Record
    from reconciler.resources.measures import Cuts, Measures


def plan_record_orders(invocation: Invocation, orders: Sequence[Order], record: Record) -> Plan:
    """Plan orders that change the record alone.

    Raises:
        UserError: An order is refused.
    """
    return _checked(planner.judge(planner.decide({}, record, {}, given=_given(invocation, orders, {})), {}))


def plan_orders(
    invocation: Invocation,
    orders: Sequence[Order],
    cluster: str,
    provider: Provider,
    record: Record | None,
    observed: Inventory,
) -> Plan:
    """Plan orders about one cluster; `record` is `None` for a command that acts without a state.

    Raises:
        UserError: An order is refused.
    """
    given = _given(invocation, orders, {cluster: provider.capabilities}, has_state=record is not None)
    draft = planner.decide({}, record or {}, observed, given=given)
    return _checked(planner.judge(draft, _measured(provider, planner.to_measure(draft))))


def _given(
    invocation: Invocation, orders: Sequence[Order], capabilities: Mapping[str, Capabilities], *, has_state: bool = True
) -> PlanInput:
    return PlanInput(
        workspace="",
        capabilities=capabilities,
        identities={},
        today=invocation.today(),
        now_ms=invocation.now_ms(),
        tool=invocation.tool,
        orders=tuple(orders),
        has_state=has_state,
    )


def _measured(provider: Provider, cuts: Cuts) -> Measures:
    try:
        return provider.measure(list(cuts), cuts) if cuts else {}
    except ReconcilerError:
        return {}  # What is not measured counts as lost.


def _checked(plan: Plan) -> Plan:
    for error in plan.errors:
        raise UserError(error.message, hint=error.hint)
    return plan
