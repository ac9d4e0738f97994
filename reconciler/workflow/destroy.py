"""`destroy`: plan and apply the removal of what we created; what was adopted is forgotten."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from reconciler.resources.address import Address, cluster_of, full_name_of, kind_of
from reconciler.workflow.apply import Applied, Hooks, apply_wanted
from reconciler.workflow.deciding.decide import Wanted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from reconciler.applying.events import Event
    from reconciler.workflow.apply import ApplyOptions
    from reconciler.workflow.beginning.invocation import Invocation, Select
    from reconciler.workflow.plan import Planned
    from reconciler.workflow.running.stopping import Stop


def destroy(  # noqa: PLR0913 - as many as the command has options, each named by its caller
    invocation: Invocation,
    select: Select,
    options: ApplyOptions,
    *,
    recursive: bool,
    include_adopted: bool,
    confirm: Callable[[Planned], bool],
    report: Callable[[Event], None],
    stop: Stop,
) -> Applied:
    """Remove what this workspace created, or of that what is targeted; `recursive` also what lies below a target.

    Raises:
        BlockedError: A delete is not allowed by name; nothing was done.
        UserError: Not confirmed; nothing was done.
        LeaseError: Someone else is applying.
    """
    if recursive:
        below = tuple(pattern for target in select.targets for pattern in _below(target))
        select = replace(select, targets=(*select.targets, *below))
    wanted = Wanted(is_destroy=True, include_adopted=include_adopted)
    return apply_wanted(invocation, select, options, Hooks(confirm, report, stop), wanted)


def _below(target: str) -> Iterator[str]:
    """Yield patterns for everything below a cluster or namespace."""
    address = Address(target)
    match kind_of(address):
        case "cluster":
            yield f"*/{cluster_of(address)}/*"
        case "namespace":
            yield f"*/{cluster_of(address)}/{full_name_of(address)}:*"
        case _:
            return
