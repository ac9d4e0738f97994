"""What the files say, before and after: a plan of all types of actions over two clusters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import date
from typing import TYPE_CHECKING

from reconciler.errors import BlockedError, RetryableError, UserError
from reconciler.planning import planner
from reconciler.planning.plan import Base, Plan, PlanInput, PlanSource, Selection
from reconciler.providers.protocol import Provider, Scope
from reconciler.resources.measures import Measure
from tests.planning.short import declared

if TYPE_CHECKING:
    from reconciler.resources.address import Address
    from reconciler.resources.inventory import Desired, Inventory
    from reconciler.state.snapshots import Snapshot

CLUSTERS = ("west", "east")

BEFORE: Desired = dict(
    declared(item)
    for item in (
        {"cluster": "west"},
        {"namespace": "shop"},
        {"namespace": "sales"},
        {"topic": "shop:clicks", "partitions": 2},
        {"topic": "shop:ghost"},
        {"topic": "shop:old"},
        {"topic": "shop:orders", "partitions": 2},
        {"topic": "shop:payments", "configs": {"retention.ms": "86400000"}},
    )
)
"""Then somebody deletes `shop:ghost`, and makes `shop:found`."""

AFTER: Desired = dict(
    declared(item)
    for item in (
        {"cluster": "west"},
        {"namespace": "audit"},
        {"namespace": "shop"},
        {"namespace": "sales"},
        {"topic": "audit:log", "configs": {"retention.ms": "172800000", "segment.ms": "3600000"}},
        {"topic": "sales:orders", "partitions": 2, "movedFrom": "shop:orders"},
        {"topic": "shop:clicks", "partitions": 2},
        {"topic": "shop:found"},
        {"topic": "shop:payments", "partitions": 3, "configs": {"retention.ms": "172800000"}},
        {"cluster": "east"},
        {"namespace": "dr", "where": "east"},
        {"topic": "dr:notes", "where": "east"},
        {"link": "from-west", "where": "east", "source": "west", "mirrors": ["shop:clicks"]},
        {"namespace": "shop", "where": "east"},
    )
)

FEWER: Desired = {
    address: item
    for address, item in AFTER.items()
    if not address.startswith(("topic/west/audit:", "topic/east/", "namespace/east/dr"))
}
"""The files of somebody else, who knows nothing of some of it."""

FILES: Mapping[str, Desired] = {"before": BEFORE, "after": AFTER, "fewer": FEWER}
ADOPTED = frozenset({"topic/west/shop:found"})

GIVEN = PlanInput(
    workspace="shop",
    capabilities={},
    identities={},
    today=date(2026, 6, 1),
    now_ms=1_780_000_000_000,
    selection=Selection(allow=("delete:topic/*",)),
    source=PlanSource(tool="simulation"),
)


@dataclass(frozen=True)
class PlanResult:
    """A plan, and what was seen when it was made."""

    plan: Plan
    observed: Inventory


def decide(files: str, providers: Mapping[str, Provider], snapshot: Snapshot) -> PlanResult:
    """Look at the clusters and plan, as `apply` does."""
    identities = {name: providers[name].identify() for name in CLUSTERS}
    observed: dict[Address, object] = {}
    for name, identity in identities.items():
        if identity is not None:
            observed.update(providers[name].observe(Scope()))
        elif f"cluster/{name}" in snapshot.record:
            raise RetryableError(f"cluster {name} is gone", hint="It was there.")
    given = replace(
        GIVEN,
        capabilities={name: provider.capabilities for name, provider in providers.items()},
        identities=identities,
        base=Base(snapshot.lineage, snapshot.serial, snapshot.sha256),
    )
    draft = planner.decide_actions(FILES[files], snapshot.record, observed, request=given)  # type: ignore[arg-type] # they are observed
    found = planner.assess_draft(draft, {address: Measure(0, 0) for address in planner.list_topics_to_measure(draft)})
    if found.errors:
        raise UserError("; ".join(error.message for error in found.errors), hint="Mend the files.")
    if found.blocked:
        raise BlockedError(", ".join(action.id for action in found.blocked), hint="Allow it.")
    return PlanResult(found, observed)  # type: ignore[arg-type] # as above
