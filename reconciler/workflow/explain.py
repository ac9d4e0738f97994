"""`explain`: where each value of one address comes from, how it acts, and why something is planned for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from reconciler.manifests.origins import explain_origin
from reconciler.resources.address import Address, cluster_of, kind_of
from reconciler.workflow.actingconfigs import acting_configs
from reconciler.workflow.deciding import decide
from reconciler.workflow.opening import open_work
from reconciler.workflow.reading import read_state
from reconciler.workflow.show import Shown, unknown_address

if TYPE_CHECKING:
    from collections.abc import Mapping

    from reconciler.planning.actions import Action
    from reconciler.planning.plan import DriftFinding, Finding, Waiting
    from reconciler.workflow.deciding import Decided
    from reconciler.workflow.invocation import Invocation, Select
    from reconciler.workflow.opening import Work


@dataclass(frozen=True, slots=True)
class Explained:
    """Everything known of one address."""

    shown: Shown
    origins: Mapping[str, str]
    """Field path → `file:line`, an address, or what else set it."""
    effective: Mapping[str, str]
    """Configs as they act on the cluster now, inherited ones included."""
    actions: tuple[Action, ...]
    drift: tuple[DriftFinding, ...]
    waiting: tuple[Waiting, ...]
    errors: tuple[Finding, ...]


def explain(invocation: Invocation, select: Select, address: str) -> Explained:
    """Explain one address as a plan sees it now.

    Raises:
        UserError: Nobody knows it.
    """
    work = open_work(invocation, select)
    decided = decide(work, read_state(work))
    asked = Address(address)
    shown = _shown(work, decided, asked)
    if shown.desired is None and shown.recorded is None and shown.observed is None:
        raise unknown_address(address)
    plan = decided.plan
    return Explained(
        shown=shown,
        origins=_origins(work, shown),
        effective=_effective(decided, asked),
        actions=tuple(action for action in plan.actions if action.address == asked),
        drift=tuple(finding for finding in plan.drift if finding.address == asked),
        waiting=tuple(row for row in plan.waiting if row.address == asked),
        errors=tuple(finding for finding in plan.errors if finding.address == asked),
    )


def _shown(work: Work, decided: Decided, address: Address) -> Shown:
    declared = work.loaded.desired.get(address)
    return Shown(
        address,
        declared.resource if declared else None,
        decided.recorded.get(address),
        decided.seen.inventory.get(address),
        declared.source if declared else None,
    )


def _origins(work: Work, shown: Shown) -> Mapping[str, str]:
    recorded = dict(shown.recorded.origins) if shown.recorded else {}
    declared = explain_origin(work.loaded, shown.address) if shown.desired is not None else {}
    return dict(sorted({**recorded, **declared}.items()))


def _effective(decided: Decided, address: Address) -> Mapping[str, str]:
    capabilities = decided.seen.capabilities.get(cluster_of(address) or "")
    if capabilities is None or kind_of(address) not in {"topic", "mirror", "namespace"}:
        return {}
    return {row.key: row.value for row in acting_configs(address, decided.seen.inventory, capabilities)}
