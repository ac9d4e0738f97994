"""Plans to render: one with every kind of action, and very large ones."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import Final

from reconciler.errors import UserError
from reconciler.operations.clusters.topics import ProfiledTopic, Storages
from reconciler.operations.state_edit import StateRepair
from reconciler.operations.state_views import StateDiff, StateDifference
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
    RoleCost,
    RunJob,
    Transition,
    Unreadable,
    Update,
)
from reconciler.planning.plan import Base, DriftFinding, Plan, PlanFinding, UnfinishedTransition
from reconciler.resources.address import Address, address_of
from reconciler.resources.cluster import Cluster
from reconciler.resources.inventory import Recorded
from reconciler.resources.measures import PartitionStorage, RemoteUsage, TieringShown, TierUsage, TopicStorage
from reconciler.resources.mirror_link import MirrorLink, MirrorTopic
from reconciler.resources.mirrors import OffsetStretch
from reconciler.resources.mount import Mounting
from reconciler.resources.namespace import Namespace
from reconciler.resources.topic import Topic
from reconciler.resources.topic_profile import (
    Counts,
    Gap,
    KeyCounts,
    KeyProfile,
    PartitionProfile,
    Profile,
    Sizes,
    Timeline,
)
from reconciler.state.lockfile import LeaseEntry, Lockfile, OpenRun, StatePointer
from reconciler.state.repair import ForgottenRun, Repair, UnlockResult, UnsettledWork
from reconciler.state.snapshots import Snapshot

GIB = 2**30
DIGEST = "7c41d0e2" + "0" * 56


@dataclass(frozen=True)
class Reading:
    """How a plan came about."""

    topics: int = 1284
    clusters: int = 2
    seconds: float = 1.1
    unread: tuple[str, ...] = ()


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
            estimate=Estimate(bytes=int(41.2 * GIB), records=4_100_000, groups=("a", "b", "c")),
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
        waiting=(UnfinishedTransition(Address("mounting/east/shop:eu:logs"), "PREPARING"),),
        unmanaged=(Address("topic/west/legacy"),),
        digest=DIGEST,
    )


def empty() -> Plan:
    return Plan(
        workspace="shop", environment="prod", base=None, tool="0.1.0", git_commit=None, actions=(), digest=DIGEST
    )


def refused() -> Plan:
    address = Address("topic/west/shop:eu:orders")
    return Plan(
        workspace="shop",
        environment=None,
        base=None,
        tool="0.1.0",
        git_commit=None,
        actions=(),
        errors=(
            PlanFinding(address, "manifests/topics.yaml:88", "partitions 12 → 6 cannot be done in place", "Keep 12."),
            PlanFinding(None, None, "the cluster west is another one", "Check clusterId."),
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


# A plan in which mirrors get other roles, each with what that costs.


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
    lag = (OffsetStretch(0, 1_200_000, 4_000_000), OffsetStretch(7, 3_100_000, 3_100_700))
    return (
        _asked(
            "orders",
            "failover",
            RoleCost(lost=(OffsetStretch(0, 40, 52), OffsetStretch(3, 9, 10))),
            records=13,
            size=2_600,
        ),
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
            RoleCost(
                lost=(OffsetStretch(1, 1_000, 1_250), OffsetStretch(2, 7, 8)), groups_set_back=("billing", "fraud")
            ),
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
        _asked("returns", "reverse-and-start", RoleCost(behind=(OffsetStretch(4, 10, 22),)), records=12, size=900),
        _asked("visits", "reverse-and-pause", RoleCost()),
    )


def roles() -> Plan:
    return Plan(
        workspace="shop",
        environment=None,
        base=Base("3c2e", 412, "ab" * 32),
        tool="0.1.0",
        git_commit=None,
        actions=actions(),
        digest=DIGEST,
    )


# A plan that switches tiering, to render: what is lost, what is kept, what is uploaded, and what is waited for.


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
    return Plan(
        workspace="shop",
        environment=None,
        base=Base("3c2e", 412, "ab" * 32),
        tool="0.1.0",
        git_commit=None,
        actions=_actions(),
        waiting=(UnfinishedTransition(Address("topic/west/shop:eu:audit"), "DISABLING"),),
        warnings=(
            PlanFinding(
                Address("topic/west/shop:eu:payments"),
                "manifests/topics.yaml:12",
                "uploads were off for some time: object storage will never contain 80 offsets (partition 0: 120 to "
                "199)",
                "Next time pause uploads without a gap: set the cluster's cloud_storage_enable_segment_uploads: false.",
            ),
        ),
        digest=DIGEST,
    )


# A plan of a topic that goes to sleep, of others that are woken, and of deletes that need not lose anything.


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


def _delete_mounted(name: str) -> Delete:
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


def mount_actions() -> tuple[Action, ...]:
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
        _delete_mounted("shop:eu:returns"),
        _delete_mounted("shop:eu:refunds"),
    )


def mount_plan() -> Plan:
    return Plan(
        workspace="shop",
        environment=None,
        base=Base("3c2e", 412, "ab" * 32),
        tool="0.1.0",
        git_commit=None,
        actions=mount_actions(),
        waiting=(UnfinishedTransition(Address("mounting/east/shop:eu:logs"), "preparing"),),
        digest=DIGEST,
    )


# Topics as `topic storage` tells them: of each sort one.


_MIB: Final = 1024 * 1024
_UPLOADED_MS: Final = 1_767_225_600_000
_LOCATION: Final = "shop:eu:orders/67f5505a-32f3-4677-bcad-3c75a1a702a6/10"


def tiering(mode: str = "full", state: str = "ENABLED", **changes: object) -> TieringShown:
    fields: dict[str, object] = {"epoch": 1, "location": _LOCATION, "url": "remote://archive/streams"}
    return TieringShown(**{"mode": mode, "state": state, "is_paused": False, "hidden": None, **fields, **changes})  # type: ignore[arg-type]  # fields by name


def orders() -> TopicStorage:
    """Return a topic whose first partition moves, whose second waits, and whose third was never written."""
    moving = PartitionStorage(
        0,
        1_000,
        81_000,
        124_500,
        TierUsage(3 * _MIB, 4),
        RemoteUsage(1_000, 120_000, TierUsage(40 * _MIB, 41), TierUsage(5 * _MIB, 2), _UPLOADED_MS, is_ahead=False),
        41 * _MIB,
        123_500,
        _MIB // 2,
    )
    waiting = PartitionStorage(
        1,
        0,
        0,
        900,
        TierUsage(_MIB, 2),
        RemoteUsage(0, 500, TierUsage(_MIB // 2, 1), TierUsage(), None, is_ahead=True),
        _MIB,
        900,
        _MIB // 4,
    )
    unwritten = PartitionStorage(2, 0, 0, 0, TierUsage(), None, 0, 0, 0)
    return TopicStorage(Address("topic/west/shop:eu:orders"), tiering(), (moving, waiting, unwritten))


def local() -> TopicStorage:
    return TopicStorage(
        Address("topic/west/plain"), None, (PartitionStorage(0, 0, 0, 12, TierUsage(2_048, 1), None, 2_048, 12, None),)
    )


def hidden() -> TopicStorage:
    """Return a tiered topic whose remote rows are not shown."""
    partition = PartitionStorage(0, 0, 500, 800, TierUsage(_MIB, 3), None, _MIB, 300, None)
    told = tiering("read_only", "DISABLED", epoch=3, hidden="kafka_enable_describe_log_dirs_remote_storage is false")
    return TopicStorage(Address("topic/west/old"), told, (partition,))


def paused() -> TopicStorage:
    partition = PartitionStorage(0, 0, 0, 800, TierUsage(_MIB, 3), None, _MIB, 800, _MIB)
    return TopicStorage(Address("topic/west/paused"), tiering(is_paused=True), (partition,))


def broken() -> TopicStorage:
    """Return a tiered topic of which one partition's manifest is gone."""
    key = "topics/67f5505a-32f3-4677-bcad-3c75a1a702a6/10/00000/manifest.json"
    gone = UserError(f"s3://archive/streams has no object {key}, which names what was uploaded", hint="Restore it.")
    whole, *others = orders().partitions
    broken = replace(whole, remote=None, problem=gone)
    return TopicStorage(Address("topic/west/broken"), tiering(), (broken, *others))


def many_topics() -> Storages:
    return Storages((broken(), hidden(), paused(), local(), orders()), unmeasured=3)


# What the state commands find, made by hand: no store is asked.


_RUN = "0199a7c4-5b1e-7c33-9d5e-0a4b7e1f2c11"
_LATER = "0199a7c5-1a2b-7c33-9d5e-0a4b7e1f2c12"


def differing() -> StateDiff:
    """Two states that differ in every way there is."""
    owned = (Change("ownership", None, "created"), Change("protect", None, after=False))
    lost = (Change("ownership", "adopted", None), Change("protect", before=False, after=None))
    changed = StateDifference(
        Address("topic/west/shop:eu:orders"),
        "changed",
        (
            Change("acls.allow User:checkout", None, ("read",)),
            Change("configs.retention.ms", "604800000", "777600000"),
            Change("partitions", 12, 24),
        ),
        (
            Change("incarnation", "id-1", "id-2"),
            Change("ownership", "adopted", "created"),
            Change("protect", before=False, after=True),
        ),
        (Change("configs.retention.ms", "policy/standard", None),),
    )
    return StateDiff(
        Snapshot("lineage", 410),
        Snapshot("lineage", 412),
        (
            StateDifference(Address("topic/west/shop:eu:clicks"), "created", (), owned, ()),
            StateDifference(Address("topic/west/shop:eu:logs"), "deleted", (), lost, ()),
            changed,
        ),
    )


def unlocked() -> UnlockResult:
    """A lease taken from a run that had begun two actions."""
    opened = OpenRun(run=_RUN, plan_digest="d" * 64)
    doubt = UnsettledWork(
        _RUN, ("create:topic/west/shop:eu:orders", "delete:topic/west/shop:eu:logs"), ("update:link/west/a",)
    )
    return UnlockResult(was_free=False, run=_RUN, who="anna@build-7", epoch=42, open_run=opened, doubt=doubt)


def unreadable() -> UnlockResult:
    """A lease that was free, beside an open run whose journal has a hole."""
    error = UserError(f"s3://ops/shop/runs/{_RUN}/journal/000001.json is missing", hint="Restore it.")
    opened = OpenRun(run=_RUN, plan_digest="d" * 64)
    return UnlockResult(was_free=True, epoch=42, open_run=opened, doubt=UnsettledWork(_RUN, unreadable=error))


def repair() -> Repair:
    """A lost lockfile, with a run that stays open."""
    return _repair(("s3://ops/shop/lockfile.json is missing, and the files next to it are not",), opened=_RUN)


def forgetting() -> Repair:
    """A damaged snapshot, and a person who goes on from an older one."""
    actions = tuple(f"create:topic/west/t{number:02}" for number in range(22))
    run = ForgottenRun(_LATER, actions, "apply", "anna@build-7", "2026-01-31T00:00:00Z")
    problem = "s3://ops/shop/state/000000000412-0123456789ab.json.gz is damaged: its sha256 is not what its name says"
    return _repair((problem,), forgotten=(run,), body=b"")


def repaired() -> StateRepair:
    return StateRepair(repair(), "lockfile.damaged-0123.json")


def _repair(
    problems: tuple[str, ...],
    *,
    opened: str | None = None,
    forgotten: tuple[ForgottenRun, ...] = (),
    body: bytes | None = None,
) -> Repair:
    raw = {"metadata": {"name": "orders", "cluster": "west"}, "spec": {"partitions": 1}}
    topic = Topic.model_validate(raw)
    base = Snapshot("lineage", 411, record={topic.address: Recorded(topic)}, run=_RUN)
    serial = 411 if body is None else 413
    lockfile = Lockfile(
        lineage="lineage",
        workspace="shop",
        environment=None,
        serial=serial,
        state=StatePointer(key=f"state/{serial:012}-0123456789ab.json.gz", sha256="0" * 64, bytes=1),
        lease=LeaseEntry(epoch=43, status="free", beat=0, lease_s=90.0),
        open_run=OpenRun(run=opened, plan_digest="d" * 64) if opened else None,
        nonce="nonce",
    )
    return Repair(
        problems=problems,
        base=base,
        lockfile=lockfile,
        body=body,
        rebuilt_from=None,
        forgotten=forgotten,
        abandoned_run=None,
        stored=None,
    )


def profiled() -> ProfiledTopic:
    """Return a topic with an empty partition, and keys that no terminal should get."""
    first, sizes = 1_356_998_400_000, Sizes(0, 118, 240, 65_536)
    counts = Counts(9_000, 1_048_576, 17, 12_016, first, first + 86_399_000, 12, 30, 28, 4_000, 500_000, sizes)
    other = Counts(3_000, 524_288, 0, 2_999, first, first + 86_399_000, 0, 0, 0, 3_000, 300_000, sizes)
    whole = Counts(12_000, 1_572_864, 0, 12_016, first, first + 86_399_000, 12, 30, 28, 7_000, 800_000, sizes)
    profile = Profile(
        partitions=(
            PartitionProfile(0, counts, KeyCounts(700, 8_288, 912_400), Gap(first, first + 5_400_000)),
            PartitionProfile(1, other, KeyCounts(300, 2_700, 400_000)),
            PartitionProfile(2),
        ),
        counts=whole,
        keys=990,
        scattered_keys=10,
        top_keys=(
            KeyProfile(b"\x1b[31mN14228", 11, 4_000, 400_000, 1),
            KeyProfile(b"\xff\x00", 2, 70, 7_000, 2),
            KeyProfile(b"", 0, 3, 12, 1),
        ),
        timeline=Timeline(first, 10_800_000, (1_000, 0, 500, 1, 3_000, 2_000, 1_500, 999)),
    )
    return ProfiledTopic(address_of("topic", "west", "shop:eu:orders"), profile, 604_800_000, "Spark local[*]")


def detailed() -> Plan:
    """Return a plan that makes resources with more fields than a line can hold."""
    configs = {
        "cleanup.policy": "compact",
        "max.message.bytes": "4MiB",
        "min.insync.replicas": "2",
        "retention.ms": "7d",
        "segment.bytes": "256MiB",
    }
    like = {key.replace(".", "_"): value for key, value in configs.items()}
    topics = [topic(f"shop:eu:{name}", **like) for name in ("orders", "refunds", "returns")]
    rules = [{"principal": f"User:{name}", "operations": ["read", "describe"]} for name in ("audit", "fraud", "search")]
    home = Namespace.model_validate(
        {
            "kind": "Namespace",
            "metadata": {"name": "shop:eu", "cluster": "west"},
            "spec": {
                "configs": {key: configs[key] for key in sorted(configs)[:4]},
                "acls": [*rules, {"principal": "User:checkout", "operations": ["all"], "resources": ["groups"]}],
                "quotas": {"topics": 100},
            },
        }
    )
    filters = [{"name": "shop:", "patternType": "prefixed"}, {"name": "shop:eu:audit", "filterType": "exclude"}]
    joined = MirrorLink.model_validate(
        {
            "kind": "MirrorLink",
            "metadata": {"name": "from-west", "cluster": "east"},
            "spec": {
                "source": "west",
                "prefix": "w.",
                "autoCreate": {"enabled": True, "filters": filters},
                "retryTimeout": "10m",
            },
        }
    )
    mirror = MirrorTopic(
        cluster="east",
        link="from-west",
        source_cluster="west",
        source="shop:eu:orders",
        name="shop:eu:w.orders",
        configs={key: configs[key] for key in ("min.insync.replicas",)},
    )
    east = Cluster.model_validate(
        {
            "kind": "Cluster",
            "metadata": {"name": "east"},
            "spec": {
                "embedded": {"root": "file://.clusters/east"},
                "properties": {
                    "log.retention.ms": "7d",
                    "log.segment.bytes": "256MiB",
                    "log.cleaner.min.compaction.lag.ms": "1h",
                    "message.max.bytes": "4MiB",
                },
            },
        }
    )
    made = (east, home, *topics, topic("shop:eu:small", retention_ms="7d"), joined, mirror)
    actions = tuple(Create(address=each.address, after=each, reasons=(Reason.DECLARED,)) for each in made)
    return replace(empty(), actions=actions, digest=DIGEST)
