"""A plan that switches tiering, to render: what is lost, what is kept, what is uploaded, and what is waited for."""

from __future__ import annotations

from reconciler.planning.actions import Action, Block, Change, Delete, Estimate, Reason, Risk, Transition, Unreadable
from reconciler.planning.findings import Finding
from reconciler.planning.plan import Base, Plan, Waiting
from reconciler.resources.address import Address
from tests.cli.sample_plans import DIGEST, GIB, topic, update

READ_OFF = Change("configs.remote.read", "true", "false")
WRITE_OFF = Change("configs.remote.write", "true", "false")


def _off(name: str, policy: str, **carried: object) -> Transition:
    after = topic(name)
    return Transition(
        address=after.address,
        machine="tiering",
        verb="disable-tiering",
        from_state="ENABLED",
        to_state="DISABLING",
        after=after,
        parameters={"policy": policy},
        changes=(READ_OFF, WRITE_OFF),
        **carried,  # type: ignore[arg-type]  # fields by name
    )


def _actions() -> tuple[Action, ...]:
    deleted = Address("topic/west/shop:eu:clicks")
    lost = tuple(Unreadable(deleted, number, 1_000 * number, 1_200_000, 7 * GIB) for number in range(3))
    return (
        _off(
            "shop:eu:clicks",
            "delete",
            risk=Risk.DATA_LOSS,
            reasons=(Reason.CHANGED, Reason.BECOMES_UNREADABLE),
            estimate=Estimate(21 * GIB, unreadable=lost),
            blocked=Block("data_loss", "records would be lost, or we cannot tell", f"disable-tiering:{deleted}"),
        ),
        _off(
            "shop:eu:logs",
            "delete",
            risk=Risk.DATA_LOSS,
            reasons=(Reason.CHANGED, Reason.BECOMES_UNREADABLE, Reason.UNMEASURED),
            granted_by="--allow disable-tiering:*",
        ),
        _off("shop:eu:orders", "retain", reasons=(Reason.CHANGED,)),
        Transition(
            address=topic("shop:eu:payments").address,
            machine="tiering",
            verb="enable-tiering",
            from_state="DISABLED",
            to_state="ENABLED",
            after=topic("shop:eu:payments"),
            changes=(Change("configs.remote.write", "false", "true"),),
            reasons=(Reason.CHANGED, Reason.UPLOADS),
            estimate=Estimate(uploads=int(3.5 * GIB)),
        ),
        update(
            "shop:eu:refunds",
            Change("configs.remote.write", None, "true"),
            reasons=(Reason.CHANGED, Reason.UPLOADS),
            estimate=Estimate(uploads=GIB),
        ),
        _delete("shop:eu:returns", is_kept=False),
        _delete("shop:eu:visits", is_kept=True),
    )


def _delete(name: str, *, is_kept: bool) -> Delete:
    gone = topic(name)
    return Delete(
        address=gone.address,
        before=gone,
        risk=Risk.DATA_LOSS,
        reasons=(
            Reason.NO_LONGER_DECLARED,
            Reason.REMOTE_KEPT if is_kept else Reason.REMOTE_DELETED,
            Reason.HOLDS_DATA,
        ),
        estimate=Estimate(3 * GIB, location=f"{name}/67f5505a-32f3-4677-bcad-3c75a1a702a6/10"),
    )


def switching() -> Plan:
    """Return the plan."""
    return Plan(
        workspace="shop",
        environment=None,
        base=Base("3c2e", 412, "ab" * 32),
        tool="0.1.0",
        git_commit=None,
        actions=_actions(),
        waiting=(Waiting(Address("topic/west/shop:eu:audit"), "DISABLING"),),
        warnings=(
            Finding(
                Address("topic/west/shop:eu:payments"),
                "manifests/topics.yaml:12",
                "nothing was uploaded for a while: object storage will never have 80 offsets (partition 0: 120 to 199)",
                "Next time pause uploads without a gap: set the cluster's cloud_storage_enable_segment_uploads: false.",
            ),
        ),
        digest=DIGEST,
    )
