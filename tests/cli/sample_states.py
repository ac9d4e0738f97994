"""What the state commands find, made by hand: no store is asked."""

from __future__ import annotations

from reconciler.errors import UserError
from reconciler.operations.state_edit import Repaired
from reconciler.operations.state_views import StateDiff, StateDifference
from reconciler.planning.actions import Change
from reconciler.resources.address import Address
from reconciler.resources.inventory import Recorded
from reconciler.resources.topic import Topic
from reconciler.state.lockfile import LeaseEntry, Lockfile, OpenRun, StatePointer
from reconciler.state.repair import Doubt, ForgottenRun, Repair, Unlocked
from reconciler.state.snapshots import Snapshot

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


def unlocked() -> Unlocked:
    """A lease taken from a run that had begun two actions."""
    opened = OpenRun(run=_RUN, plan_digest="d" * 64)
    doubt = Doubt(_RUN, ("create:topic/west/shop:eu:orders", "delete:topic/west/shop:eu:logs"), ("update:link/west/a",))
    return Unlocked(was_free=False, run=_RUN, who="anna@build-7", epoch=42, open_run=opened, doubt=doubt)


def unreadable() -> Unlocked:
    """A lease that was free, beside an open run whose journal has a hole."""
    error = UserError(f"s3://ops/shop/runs/{_RUN}/journal/000001.json is missing", hint="Restore it.")
    opened = OpenRun(run=_RUN, plan_digest="d" * 64)
    return Unlocked(was_free=True, epoch=42, open_run=opened, doubt=Doubt(_RUN, unreadable=error))


def repair() -> Repair:
    """A lost lockfile, with a run that stays open."""
    return _repair(("s3://ops/shop/lockfile.json is gone, and what lies beside it is not",), opened=_RUN)


def forgetting() -> Repair:
    """A damaged snapshot, and a person who goes on from an older one."""
    actions = tuple(f"create:topic/west/t{number:02}" for number in range(22))
    run = ForgottenRun(_LATER, actions, "apply", "anna@build-7", "2026-01-31T00:00:00Z")
    problem = "s3://ops/shop/state/000000000412-0123456789ab.json.gz is damaged: its sha256 is not what its name says"
    return _repair((problem,), forgotten=(run,), body=b"")


def repaired() -> Repaired:
    """What was done about it."""
    return Repaired(repair(), "lockfile.damaged-0123.json")


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
        given_up=None,
        stored=None,
    )
