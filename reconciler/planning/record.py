"""Compute how actions change the record, without side effects."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import chain
from typing import Protocol, TypeAlias, assert_never

from reconciler.lifecycles import MOUNT
from reconciler.planning.actions import Action, Adopt, Create, Delete, Forget, Reason, RunJob, Transition, Update
from reconciler.planning.resolve.mirror_sources import derive_peer, drop_command_marks, mark_commanded_role
from reconciler.planning.situation import IMPLIED, get_mounted_topic
from reconciler.resources.address import Address, cluster_address, cluster_of
from reconciler.resources.inventory import Inventory, Ownership, Record, Recorded, Resource
from reconciler.resources.mirror_link import MirrorTopic
from reconciler.resources.mount import Mounting
from reconciler.resources.namespace import Namespace
from reconciler.resources.owners import NOBODY, ResourceOwner, build_owner_key
from reconciler.resources.topic import Topic

RecordChanges: TypeAlias = Mapping[Address, Recorded | None]
"""New records by address. `None` removes the record."""


class ActionResult(Protocol):
    """Result of a completed action, as the platform reports it."""

    @property
    def incarnation(self) -> str | None:
        """Incarnation of the resource, if reported."""
        ...

    @property
    def physical_name(self) -> str | None:
        """Name on the platform, if it differs from the address."""
        ...


def record_action(action: Action, done: ActionResult | None, record: Record, run: str) -> RecordChanges:
    """Return the record changes after an action. `done` is `None` for actions without a platform call."""
    last = record.get(action.address)
    if Reason.BY_COMMAND in action.reasons:
        return _record_command_verb(action, record, run)
    match action:
        case Create():
            return {action.address: _build_record(action, "created", last, done, run)}
        case Update():
            return {action.address: _build_record(action, "adopted", last, done, run)}
        case Adopt():
            return _record_adopt(action, record, run)
        case Transition():
            return _record_transition(action, done, record, run)
        case Delete() | Forget():
            return {action.address: None}
        case RunJob():
            return {}
        case _:
            assert_never(action)


def record_refusal(action: Action, made: ActionResult, record: Record, run: str) -> RecordChanges:
    """Return the record changes for a created resource whose access rules were rejected."""
    if not isinstance(action, Create) or not isinstance(action.after, Topic | Namespace):
        return {}
    resource = action.after
    bare = resource.model_copy(update={"spec": resource.spec.model_copy(update={"acls": ()})})
    last = record.get(action.address)
    return {action.address: _build_record(replace(action, after=bare), "created", last, made, run)}


def apply_record_changes(record: dict[Address, Recorded], changes: RecordChanges) -> None:
    """Change a record in place."""
    for address, recorded in changes.items():
        if recorded is None:
            record.pop(address, None)
        else:
            record[address] = recorded


def _build_record(
    action: Create | Update | Transition,
    ownership: Ownership,
    last: Recorded | None,
    done: ActionResult | None,
    run: str,
) -> Recorded:
    is_new = last is None or isinstance(action, Create)
    resource = action.after
    # `reconciler run` also changes a mirror's denials, so plans read them from the cluster.
    if isinstance(resource, MirrorTopic) and resource.denied:
        resource = resource.model_copy(update={"denied": ()})
    return Recorded(
        resource=resource,
        incarnation=_choose_known(done.incarnation if done else None, None if is_new or not last else last.incarnation),
        physical_name=_choose_known(done.physical_name if done else None, last.physical_name if last else None),
        ownership=ownership if is_new or not last else last.ownership,
        protect=_is_protected(action.after, last),
        run=run,
        origins=dict(action.origins),
    )


def _record_adopt(action: Adopt, record: Record, run: str) -> RecordChanges:
    last = record.get(action.moved_from) if action.moved_from else record.get(action.address)
    incarnation = _choose_known(action.incarnation, last.incarnation if last else None)
    if incarnation is None and isinstance(action.after, Topic):
        incarnation = _find_mounted_incarnation(action.address, record)  # The mount in this run recorded the id.
    adopted = Recorded(
        resource=action.after,
        incarnation=incarnation,
        physical_name=_choose_known(action.physical_name, last.physical_name if last else None),
        ownership=_choose_ownership(action, last),
        protect=_is_protected(action.after, last),
        run=run,
        origins=dict(action.origins),
    )
    gone: dict[Address, None] = {action.moved_from: None} if action.moved_from else {}
    return {**gone, action.address: adopted}


def _choose_ownership(action: Adopt, last: Recorded | None) -> Ownership:
    if last is not None and Reason.RECREATED not in action.reasons:
        return last.ownership
    return "created" if Reason.ONLY_A_PREFIX in action.reasons else "adopted"


def _record_transition(action: Transition, done: ActionResult | None, record: Record, run: str) -> RecordChanges:
    if isinstance(action.after, Mounting):
        return _record_mount(action, action.after, done, record, run)
    if isinstance(action.after, MirrorTopic) and isinstance(entry := action.parameters.get("entry"), str):
        return _record_role_swap(action, action.after, Address(entry), record, run)
    old = action.parameters.get("from")
    if action.machine != "topic" or not isinstance(old, str):
        last = record.get(action.address)
        return {action.address: _build_record(action, "adopted", last, done, run)}
    last = record.get(Address(old))
    return {Address(old): None, action.address: _build_record(action, "adopted", last, done, run)}


def _record_command_verb(action: Action, record: Record, run: str) -> RecordChanges:
    if not isinstance(action, Transition) or not isinstance(action.after, MirrorTopic):
        return {}
    entry, role = action.parameters.get("entry", action.address), action.parameters.get("role", action.after.state)
    last = record.get(Address(str(entry)))
    return {} if last is None else {Address(str(entry)): replace(mark_commanded_role(last, str(role)), run=run)}


def _record_role_swap(action: Transition, peer: MirrorTopic, entry: Address, record: Record, run: str) -> RecordChanges:
    last = record.get(entry)
    mirror = last.resource if last is not None else None
    known = mirror if isinstance(mirror, MirrorTopic) else derive_peer(peer)
    resource = known.model_copy(update={"state": action.parameters.get("role")})
    origins = {**drop_command_marks(last), **action.origins}
    before = last or Recorded(resource, ownership="adopted")
    return {entry: replace(before, resource=resource, run=run, origins=origins)}


def _record_mount(
    action: Transition, mounting: Mounting, done: ActionResult | None, record: Record, run: str
) -> RecordChanges:
    last = record.get(action.address)
    location = action.parameters.get("source")
    known = str(location) if location is not None and "/" in str(location) else last.physical_name if last else None
    recorded = replace(
        _build_record(action, "adopted", last, done, run),
        ownership="created",
        incarnation=done.incarnation if done is not None and action.machine == MOUNT.name else None,
        physical_name=_choose_known(_read_location(done), known),
    )
    changes: dict[Address, Recorded | None] = {action.address: recorded}
    topic = get_mounted_topic(mounting)
    if action.machine == MOUNT.name and topic in record:
        changes[topic] = replace(record[topic], incarnation=recorded.incarnation)
    return changes


def _read_location(done: ActionResult | None) -> str | None:
    name = done.physical_name if done is not None else None
    return name if name is not None and "/" in name else None


def _find_mounted_incarnation(topic: Address, record: Record) -> str | None:
    likely = Address("mounting/" + topic.partition("/")[2])
    others = (address for address in record if address.startswith("mounting/") and address != likely)
    for address in chain((likely,), others):
        known = record.get(address)
        if known is not None and isinstance(known.resource, Mounting) and get_mounted_topic(known.resource) == topic:
            return known.incarnation
    return None


def _is_protected(after: Resource, last: Recorded | None) -> bool:
    declared = after.spec.protect if isinstance(after, Topic) else None
    return declared if declared is not None else bool(last and last.protect)


def _choose_known(now: str | None, before: str | None) -> str | None:
    return now if now is not None else before


def list_owner_keys(record: Record, cluster: str) -> list[str]:
    """Return the owner keys of recorded resources, without implied namespaces, which workspaces share."""
    return [
        key
        for address, last in record.items()
        if cluster_of(address) == cluster and IMPLIED not in last.origins
        if (key := build_owner_key(address, last.resource)) is not None
    ]


def find_outdated_owner_clusters(record: Record, inventory: Inventory, me: ResourceOwner) -> frozenset[str]:
    """Return the clusters whose ownership marks differ from the record."""
    names: set[str] = set()
    for cluster in {cluster_of(address) for address in record} - {None}:
        seen = inventory.get(cluster_address(cluster or ""))
        if seen is None:
            continue
        owners = seen.cluster.owners or NOBODY
        if owners.unsupported_reason is not None:
            continue
        keys = set(list_owner_keys(record, cluster or ""))
        mine = {lineage for lineage, owner in owners.workspaces.items() if owner.is_same(me)}
        if keys - owners.lineages_by_key.keys() or any(
            by in mine and key not in keys for key, by in owners.lineages_by_key.items()
        ):
            names.add(cluster or "")
    return frozenset(names)
