"""Plans to render: one with every kind of action, and very large ones."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

from reconciler.planning.actions import (
    Action,
    Adopt,
    Block,
    Change,
    Create,
    Delete,
    Estimate,
    Forget,
    Reason,
    Risk,
    RunJob,
    Transition,
    Update,
)
from reconciler.planning.findings import Finding
from reconciler.planning.plan import Base, DriftFinding, Plan, Waiting
from reconciler.resources.address import Address
from reconciler.resources.cluster import Cluster
from reconciler.resources.mirror_link import MirrorLink
from reconciler.resources.mount import Mounting
from reconciler.resources.namespace import Namespace
from reconciler.resources.topic import Topic

GIB = 2**30
DIGEST = "7c41d0e2" + "0" * 56


@dataclass(frozen=True)
class Reading:
    """How a plan came about."""

    topics: int = 1284
    clusters: int = 2
    seconds: float = 1.1


def topic(name: str, cluster: str = "west", partitions: int = 6, **configs: str) -> Topic:
    namespace, _, own = name.rpartition(":")
    return Topic.model_validate(
        {
            "kind": "Topic",
            "metadata": {"name": own, "namespace": namespace, "cluster": cluster},
            "spec": {
                "partitions": partitions,
                "replicationFactor": 3,
                "configs": {key.replace("_", "."): value for key, value in configs.items()},
            },
        }
    )


def namespace(name: str) -> Namespace:
    return Namespace.model_validate(
        {
            "kind": "Namespace",
            "metadata": {"name": name, "cluster": "west"},
            "spec": {"configs": {"min.insync.replicas": 2}},
        }
    )


def mounting() -> Mounting:
    return Mounting.model_validate(
        {
            "kind": "Mounting",
            "metadata": {"name": "clicks", "namespace": "shop:eu", "cluster": "east"},
            "spec": {
                "state": "mounted",
                "source": "clicks/67f5505a-32f3-4677-bcad-3c75a1a702a6/10",
                "as": "clicks-2025",
            },
        }
    )


def link() -> MirrorLink:
    return MirrorLink.model_validate(
        {
            "kind": "MirrorLink",
            "metadata": {"name": "from-west", "cluster": "east"},
            "spec": {"source": "west", "mirrorTopics": [{"source": "shop:eu:refunds"}]},
        }
    )


def cluster(name: str) -> Cluster:
    return Cluster.model_validate(
        {"kind": "Cluster", "metadata": {"name": name}, "spec": {"embedded": {"root": f"file://.clusters/{name}"}}}
    )


def update(name: str, *changes: Change, **carried: object) -> Update:
    after = topic(name)
    return Update(address=after.address, before=after, after=after, changes=changes, **carried)


def dangerous() -> tuple[Action, ...]:
    orders = topic("shop:eu:orders")
    return (
        Delete(
            address=orders.address,
            before=orders,
            risk=Risk.DATA_LOSS,
            reasons=(Reason.NO_LONGER_DECLARED, Reason.HOLDS_DATA),
            estimate=Estimate(bytes=int(41.2 * GIB), groups=("a", "b", "c")),
            blocked=Block("protected", "it is protected", f"delete:{orders.address}"),
        ),
        update(
            "shop:eu:clicks",
            Change("partitions", 12, 24),
            risk=Risk.IRREVERSIBLE,
            reasons=(Reason.CHANGED, Reason.PARTITIONS_INCREASE),
        ),
        update(
            "shop:eu:logs",
            Change("configs.retention.ms", "604800000", "259200000"),
            risk=Risk.DATA_LOSS,
            reasons=(Reason.CHANGED, Reason.RETENTION_LOWERED),
            estimate=Estimate(bytes=18 * GIB),
            blocked=Block("data_loss", "records would expire now", "update:topic/west/shop:eu:logs"),
        ),
        update(
            "shop:eu:found",
            Change("configs.cleanup.policy", "compact", "delete"),
            Change("configs.max.message.bytes", None, "4194304"),
            reasons=(Reason.ADOPTED_DIFFERS,),
        ),
    )


def ordinary() -> tuple[Action, ...]:
    refunds, found, old = topic("shop:eu:refunds"), topic("shop:eu:found"), topic("shop:eu:old")
    declared = (Reason.DECLARED,)
    return (
        Create(address=cluster("east").address, after=cluster("east"), reasons=declared),
        Create(address=namespace("shop:eu").address, after=namespace("shop:eu"), reasons=declared),
        Create(address=refunds.address, after=refunds, reasons=declared, source="manifests/topics.yaml:88"),
        Create(address=link().address, after=link(), reasons=declared),
        Create(address=link().mirrors()[0].address, after=link().mirrors()[0], reasons=declared),
        Adopt(address=found.address, observed=found, after=found, reasons=(Reason.ALREADY_EXISTS,)),
        update(
            "shop:eu:payments", Change("configs.max.message.bytes", "1048576", "4194304"), reasons=(Reason.CHANGED,)
        ),
        update("shop:eu:audit", Change("configs.retention.ms", "172800000", "86400000", drift=True)),
        Forget(address=old.address, reasons=(Reason.ALREADY_GONE,)),
        Transition(
            address=mounting().address,
            machine="mount",
            verb="mount",
            from_state="detached",
            to_state="mounted",
            after=mounting(),
            depends_on=("create:link/east/from-west",),
            reasons=declared,
        ),
        RunJob(
            address=Address("mirror/east/shop:eu:refunds"),
            job="mirror",
            source=refunds.address,
            sink=Address("topic/east/shop:eu:refunds"),
            depends_on=("create:topic/west/shop:eu:refunds",),
            estimate=Estimate(bytes=int(1.2 * GIB), records=4_100_000, seconds=120),
            reasons=(Reason.FIRST_COPY,),
        ),
    )


def everything() -> Plan:
    """Return a plan with every kind of action, drift, and something half-way."""
    return Plan(
        workspace="shop",
        environment=None,
        base=Base("3c2e", 412, "ab" * 32),
        tool="0.1.0",
        git_commit="1f2e9ab3" * 5,
        actions=(*dangerous(), *ordinary()),
        drift=(
            DriftFinding(
                Address("topic/west/shop:eu:audit"), "configs.retention.ms", "86400000", "172800000", "sha256:1"
            ),
            DriftFinding(Address("topic/west/shop:eu:kept"), "partitions", 3, 6, "sha256:2", ignored="OPS-13"),
        ),
        waiting=(Waiting(Address("mounting/east/shop:eu:logs"), "PREPARING"),),
        unmanaged=(Address("topic/west/legacy"),),
        digest=DIGEST,
    )


def empty() -> Plan:
    """Return a plan of nothing."""
    return Plan(
        workspace="shop", environment="prod", base=None, tool="0.1.0", git_commit=None, actions=(), digest=DIGEST
    )


def refused() -> Plan:
    """Return a plan with errors."""
    address = Address("topic/west/shop:eu:orders")
    return Plan(
        workspace="shop",
        environment=None,
        base=None,
        tool="0.1.0",
        git_commit=None,
        actions=(),
        errors=(
            Finding(address, "manifests/topics.yaml:88", "partitions 12 → 6 cannot be done in place", "Keep 12."),
            Finding(None, None, "the cluster west is another one", "Check clusterId."),
        ),
        digest=DIGEST,
    )


@cache
def many(count: int) -> Plan:
    """Return a plan that creates `count` topics and changes one dangerously."""
    actions = tuple(
        Create(address=each.address, after=each, reasons=(Reason.DECLARED,))
        for each in (topic(f"shop:eu:topic-{number:06}", retention_ms="7d") for number in range(count))
    )
    return Plan(
        workspace="shop",
        environment=None,
        base=None,
        tool="0.1.0",
        git_commit=None,
        actions=(*dangerous(), *actions),
        digest=DIGEST,
    )


@cache
def mostly_dangerous(count: int) -> Plan:
    """Return a plan of `count` blocked deletes and nothing else."""
    (delete, *_) = dangerous()
    return replace(
        empty(),
        actions=tuple(
            replace(delete, address=Address(f"topic/west/shop:eu:topic-{number:06}")) for number in range(count)
        ),
    )
