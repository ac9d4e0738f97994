"""A plan of a topic that goes to sleep, of others that are woken, and of deletes that need not lose anything."""

from __future__ import annotations

from dataclasses import replace

from reconciler.planning.actions import Action, Block, Delete, Estimate, Reason, Risk, Transition
from reconciler.planning.plan import Base, Plan, Waiting
from reconciler.resources.address import Address
from reconciler.resources.mount import Mounting
from tests.cli.sample_plans import DIGEST, GIB, topic

_ID = "67f5505a-32f3-4677-bcad-3c75a1a702a6"


def _mounting(name: str, state: str, cluster: str, **spec: str) -> Mounting:
    return Mounting.model_validate(
        {
            "kind": "Mounting",
            "metadata": {"name": name, "namespace": "shop:eu", "cluster": cluster},
            "spec": {"state": state, **spec},
        }
    )


def _unmount(name: str, revision: int, estimate: Estimate, *reasons: Reason) -> Transition:
    mounting = _mounting(name, "unmounted", "west")
    location = f"{mounting.full_name}/{_ID}/{revision}"
    return Transition(
        address=mounting.address,
        machine="unmount",
        verb="unmount",
        from_state="mounted",
        to_state="unmounted",
        after=mounting,
        parameters={"source": location},
        risk=Risk.DISRUPTIVE,
        reasons=(Reason.ROLE_WANTED, *reasons),
        estimate=replace(estimate, location=location),
    )


def _mount(mounting: Mounting, location: str, estimate: Estimate, *after: str) -> Transition:
    return Transition(
        address=mounting.address,
        machine="mount",
        verb="mount",
        from_state="unmounted",
        to_state="mounted",
        after=mounting,
        parameters={"source": location},
        reasons=(Reason.ROLE_WANTED,),
        depends_on=after,
        wave=2 if after else 1,
        estimate=replace(estimate, location=location),
    )


def _delete(name: str) -> Delete:
    gone = topic(name)
    own = name.rpartition(":")[2]
    metadata = f'{{name: {own}, namespace: "shop:eu", cluster: west}}'
    instead = f"{{apiVersion: reconciler/v1, kind: Mounting, metadata: {metadata}, spec: {{state: unmounted}}}}"
    return Delete(
        address=gone.address,
        before=gone,
        risk=Risk.DATA_LOSS,
        reasons=(Reason.NO_LONGER_DECLARED, Reason.REMOTE_DELETED, Reason.HOLDS_DATA),
        estimate=Estimate(3 * GIB, location=f"{name}/{_ID}/12"),
        blocked=Block("data_bearing", "it may hold records", f"delete:{gone.address}", instead),
    )


def actions() -> tuple[Action, ...]:
    """Return them; the second unmount was not measured."""
    groups = ("billing", "fraud", "search", "warehouse")
    size = Estimate(int(41.2 * GIB), 4_100_000, partitions=12)
    return (
        _unmount("clicks", 10, replace(size, uploads=300 * 2**20, groups=groups, no_writes_seconds=8)),
        _unmount("audit", 11, Estimate(groups=None, partitions=1), Reason.UNMEASURED),
        _mount(
            _mounting("clicks", "mounted", "east", **{"as": "clicks-2025"}),
            f"shop:eu:clicks/{_ID}/10",
            size,
            "unmount:mounting/west/shop:eu:clicks",
        ),
        _mount(
            _mounting("visits", "mounted", "east", source=f"shop:eu:visits/{_ID}/7"),
            f"shop:eu:visits/{_ID}/7",
            Estimate(512, 1, partitions=1),
        ),
        _delete("shop:eu:returns"),
        _delete("shop:eu:refunds"),
    )


def mounting() -> Plan:
    """Return the plan."""
    return Plan(
        workspace="shop",
        environment=None,
        base=Base("3c2e", 412, "ab" * 32),
        tool="0.1.0",
        git_commit=None,
        actions=actions(),
        waiting=(Waiting(Address("mounting/east/shop:eu:logs"), "preparing"),),
        digest=DIGEST,
    )
