"""`destroy`: plan and apply the removal of what we created; what was adopted is forgotten."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from reconciler.resources.address import Address, cluster_of, full_name_of, kind_of
from reconciler.workflow.apply import ApplyOptions, apply_wanted
from reconciler.workflow.deciding.decide import Wanted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reconciler.workflow.apply import Applied, Hooks
    from reconciler.workflow.beginning.invocation import Invocation, Select


@dataclass(frozen=True, slots=True, kw_only=True)
class DestroyOptions(ApplyOptions):
    """How what we created is removed."""

    recursive: bool = False
    """Also what lies below a target."""
    include_adopted: bool = False
    """Delete also what was adopted."""


def destroy(invocation: Invocation, select: Select, options: DestroyOptions, hooks: Hooks) -> Applied:
    """Remove what this workspace created, or of that what is targeted.

    Raises:
        BlockedError: A delete is not allowed by name; nothing was done.
        UserError: Not confirmed; nothing was done.
        LeaseError: Someone else is applying.
    """
    if options.recursive:
        below = tuple(pattern for target in select.targets for pattern in _below(target))
        select = replace(select, targets=(*select.targets, *below))
    wanted = Wanted(is_destroy=True, include_adopted=options.include_adopted)
    return apply_wanted(invocation, select, options, hooks, wanted)


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
