"""A plan in which mirrors get other roles, each with what that costs."""

from __future__ import annotations

from reconciler.planning.actions import Action, Block, Estimate, Reason, Risk, RoleCost, RunJob, Transition
from reconciler.planning.plan import Base, Plan
from reconciler.resources.address import address_of
from reconciler.resources.mirror_link import MirrorTopic
from reconciler.resources.mirrors import Stretch
from tests.cli.sample_plans import DIGEST, GIB

_MINUTE_MS = 60_000


def _asked(
    name: str, verb: str, cost: RoleCost | None, *, to: str = "STOPPED", records: int = 0, size: int = 0
) -> Transition:
    is_restore = verb == "truncate-and-restore"
    here, there = ("west", "east") if is_restore else ("east", "west")
    mirror = MirrorTopic(
        cluster=here, link="dr", source_cluster=there, source=f"shop:{name}", name=f"shop:{name}", partitions=12
    )
    is_loss = verb == "failover" or is_restore
    return Transition(
        address=mirror.address,
        machine="mirror",
        verb=verb,
        from_state="REGULAR" if is_restore else "ACTIVE",
        to_state=to,
        after=mirror,
        parameters={"entry": address_of("mirror", "east", f"shop:{name}"), "role": "reversed"} if is_restore else {},
        risk=Risk.DATA_LOSS if is_loss else Risk.IRREVERSIBLE if verb == "promote" else Risk.DISRUPTIVE,
        reasons=(Reason.ROLE_WANTED, *((Reason.UNMEASURED,) if cost is not None and cost.unknown else ())),
        depends_on=(f"catch-up:{mirror.address}",) if verb == "promote" else (),
        wave=2 if verb == "promote" else 1,
        estimate=Estimate(size, records, max(1, size // (50 * 2**20)) if cost and cost.behind else 1, role=cost),
        blocked=Block("data_loss", "records would be lost, or we cannot tell", f"{verb}:{mirror.address}")
        if is_loss
        else None,
    )


def actions() -> tuple[Action, ...]:
    """Return them."""
    lag = (Stretch(0, 1_200_000, 4_000_000), Stretch(7, 3_100_000, 3_100_700))
    return (
        _asked("orders", "failover", RoleCost(lost=(Stretch(0, 40, 52), Stretch(3, 9, 10))), records=13, size=2_600),
        _asked("clicks", "failover", RoleCost()),
        _asked(
            "views",
            "failover",
            RoleCost(
                unknown="west does not answer",
                fetched=((0, 41), (1, -1), *((part, part * 10) for part in range(2, 12))),
            ),
        ),
        _asked(
            "carts",
            "truncate-and-restore",
            RoleCost(lost=(Stretch(1, 1_000, 1_250), Stretch(2, 7, 8)), groups_set_back=("billing", "fraud")),
            to="ACTIVE",
            records=251,
        ),
        _asked("audit", "truncate-and-restore", RoleCost(), to="ACTIVE"),
        RunJob(
            address=address_of("mirror", "east", "shop:refunds"),
            job="catch-up",
            source=address_of("topic", "west", "shop:refunds"),
            sink=address_of("topic", "east", "shop:refunds"),
            reasons=(Reason.ROLE_WANTED,),
            estimate=Estimate(3 * GIB, 2_800_700, 61, role=RoleCost(behind=lag, timeout_ms=5 * _MINUTE_MS)),
        ),
        _asked("refunds", "promote", None),
        _asked("returns", "reverse-and-start", RoleCost(behind=(Stretch(4, 10, 22),)), records=12, size=900),
        _asked("visits", "reverse-and-pause", RoleCost()),
    )


def roles() -> Plan:
    """Return the plan."""
    return Plan(
        workspace="shop",
        environment=None,
        base=Base("3c2e", 412, "ab" * 32),
        tool="0.1.0",
        git_commit=None,
        actions=actions(),
        digest=DIGEST,
    )
