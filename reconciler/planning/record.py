"""What the record says after an action: a pure fold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import chain
from typing import Protocol, TypeAlias, assert_never

from reconciler.lifecycles import MOUNT
from reconciler.planning.actions import Action, Adopt, Create, Delete, Forget, Reason, RunJob, Transition, Update
from reconciler.planning.resolve.mirror_sources import after_command, peer_of, without_marks
from reconciler.planning.situation import IMPLIED, mounted_by
from reconciler.resources.address import Address, cluster_address, cluster_of
from reconciler.resources.inventory import Inventory, Ownership, Record, Recorded, Resource
from reconciler.resources.mirror_link import MirrorTopic
from reconciler.resources.mount import Mounting
from reconciler.resources.namespace import Namespace
from reconciler.resources.owners import NOBODY, ResourceOwner, owned_as
from reconciler.resources.topic import Topic

RecordChanges: TypeAlias = Mapping[Address, Recorded | None]
"""What the record says from now on; `None`: nothing any more."""


class Finished(Protocol):
    """What a platform said when an action was complete."""

    @property
    def incarnation(self) -> str | None:
        """Which one it is, where the platform tells."""
        ...

    @property
    def physical_name(self) -> str | None:
        """What the platform calls it, where that is not its address."""
        ...


def after_action(action: Action, done: Finished | None, record: Record, run: str) -> RecordChanges:
    """Return what changes in the record once `action` is complete.

    `done` is `None` for what calls no platform (adopting, forgetting) and for jobs.
    """
    last = record.get(action.address)
    if Reason.BY_COMMAND in action.reasons:
        return _marked(action, record, run)
    match action:
        case Create():
            return {action.address: _recorded(action, "created", last, done, run)}
        case Update():
            return {action.address: _recorded(action, "adopted", last, done, run)}
        case Adopt():
            return _adopted(action, record, run)
        case Transition():
            return _moved(action, done, record, run)
        case Delete() | Forget():
            return {action.address: None}
        case RunJob():
            return {}
        case _:
            assert_never(action)


def after_refusal(action: Action, made: Finished, record: Record, run: str) -> RecordChanges:
    """Return what changes in the record where something was made, and its access rules were refused after that."""
    if not isinstance(action, Create) or not isinstance(action.after, Topic | Namespace):
        return {}
    resource = action.after
    bare = resource.model_copy(update={"spec": resource.spec.model_copy(update={"acls": ()})})
    last = record.get(action.address)
    return {action.address: _recorded(replace(action, after=bare), "created", last, made, run)}


def learn(record: dict[Address, Recorded], changes: RecordChanges) -> None:
    """Change a record that is being built: what each action costs does not grow with it."""
    for address, recorded in changes.items():
        if recorded is None:
            record.pop(address, None)
        else:
            record[address] = recorded


def _recorded(
    action: Create | Update | Transition,
    ownership: Ownership,
    last: Recorded | None,
    done: Finished | None,
    run: str,
) -> Recorded:
    is_new = last is None or isinstance(action, Create)
    resource = action.after
    if isinstance(resource, MirrorTopic) and resource.denied:  # Passes of `run` change that, too: clusters say it.
        resource = resource.model_copy(update={"denied": ()})
    return Recorded(
        resource=resource,
        incarnation=_known(done.incarnation if done else None, None if is_new or not last else last.incarnation),
        physical_name=_known(done.physical_name if done else None, last.physical_name if last else None),
        ownership=ownership if is_new or not last else last.ownership,
        protect=_protect(action.after, last),
        run=run,
        origins=dict(action.origins),
    )


def _adopted(action: Adopt, record: Record, run: str) -> RecordChanges:
    last = record.get(action.moved_from) if action.moved_from else record.get(action.address)
    incarnation = _known(action.incarnation, last.incarnation if last else None)
    if incarnation is None and isinstance(action.after, Topic):
        incarnation = _mounted_as(action.address, record)  # it was not there when this was planned
    adopted = Recorded(
        resource=action.after,
        incarnation=incarnation,
        physical_name=_known(action.physical_name, last.physical_name if last else None),
        ownership=_owned(action, last),
        protect=_protect(action.after, last),
        run=run,
        origins=dict(action.origins),
    )
    gone: dict[Address, None] = {action.moved_from: None} if action.moved_from else {}
    return {**gone, action.address: adopted}


def _owned(action: Adopt, last: Recorded | None) -> Ownership:
    """Return whose it is: what another process made under a name that was ours is not ours to delete."""
    if last is not None and Reason.RECREATED not in action.reasons:
        return last.ownership
    return "created" if Reason.ONLY_A_PREFIX in action.reasons else "adopted"


def _moved(action: Transition, done: Finished | None, record: Record, run: str) -> RecordChanges:
    if isinstance(action.after, Mounting):
        return _mounted(action, action.after, done, record, run)
    if isinstance(action.after, MirrorTopic) and isinstance(entry := action.parameters.get("entry"), str):
        return _swapped(action, action.after, Address(entry), record, run)
    old = action.parameters.get("from")
    if action.machine != "topic" or not isinstance(old, str):
        last = record.get(action.address)
        return {action.address: _recorded(action, "adopted", last, done, run)}
    last = record.get(Address(old))
    return {
        Address(old): None,
        action.address: _recorded(action, "adopted", last, done, run),
    }


def _marked(action: Action, record: Record, run: str) -> RecordChanges:
    """Return the mark that a command leaves in the record of a mirror; it leaves none in other records."""
    if not isinstance(action, Transition) or not isinstance(action.after, MirrorTopic):
        return {}
    entry, role = action.parameters.get("entry", action.address), action.parameters.get("role", action.after.state)
    last = record.get(Address(str(entry)))
    return {} if last is None else {Address(str(entry)): replace(after_command(last, str(role)), run=run)}


def _swapped(action: Transition, peer: MirrorTopic, entry: Address, record: Record, run: str) -> RecordChanges:
    """Remember the role that was brought about by asking the mirror on the other cluster: that one has no entry."""
    last = record.get(entry)
    mirror = last.resource if last is not None else None
    known = mirror if isinstance(mirror, MirrorTopic) else peer_of(peer)
    resource = known.model_copy(update={"state": action.parameters.get("role")})
    origins = {**without_marks(last), **action.origins}
    before = last or Recorded(resource, ownership="adopted")
    return {entry: replace(before, resource=resource, run=run, origins=origins)}


def _mounted(action: Transition, mounting: Mounting, done: Finished | None, record: Record, run: str) -> RecordChanges:
    """Remember where the topic lies for life, and which one it is here; it has another id whenever it is mounted."""
    last = record.get(action.address)
    location = action.parameters.get("source")
    known = str(location) if location is not None and "/" in str(location) else last.physical_name if last else None
    recorded = replace(
        _recorded(action, "adopted", last, done, run),
        ownership="created",  # brought about by us, whatever it was when it was found
        incarnation=done.incarnation if done is not None and action.machine == MOUNT.name else None,
        physical_name=_known(_location(done), known),
    )
    changes: dict[Address, Recorded | None] = {action.address: recorded}
    topic = mounted_by(mounting)
    if action.machine == MOUNT.name and topic in record:
        changes[topic] = replace(record[topic], incarnation=recorded.incarnation)
    return changes


def _location(done: Finished | None) -> str | None:
    """Return where a platform says that a topic lies; one that only looked at the topic says what that is called."""
    found = done.physical_name if done is not None else None
    return found if found is not None and "/" in found else None


def _mounted_as(topic: Address, record: Record) -> str | None:
    """Return which topic the mounting of an address has mounted there; most are called as their topic is."""
    likely = Address("mounting/" + topic.partition("/")[2])
    others = (address for address in record if address.startswith("mounting/") and address != likely)
    for address in chain((likely,), others):
        known = record.get(address)
        if known is not None and isinstance(known.resource, Mounting) and mounted_by(known.resource) == topic:
            return known.incarnation
    return None


def _protect(after: Resource, last: Recorded | None) -> bool:
    """Protection is held until the files lift it: not naming it any more leaves it as it was."""
    declared = after.spec.protect if isinstance(after, Topic) else None
    return declared if declared is not None else bool(last and last.protect)


def _known(now: str | None, before: str | None) -> str | None:
    return now if now is not None else before


# What of a record its workspace owns, as clusters say it.


def owned_keys(record: Record, cluster: str) -> list[str]:
    """Return the keys of all that is recorded on a cluster and has an owner: tiers that namespaces imply are shared."""
    return [
        key
        for address, last in record.items()
        if cluster_of(address) == cluster and IMPLIED not in last.origins
        if (key := owned_as(address, last.resource)) is not None
    ]


def clusters_to_tell(record: Record, inventory: Inventory, me: ResourceOwner) -> frozenset[str]:
    """Return the clusters that do not say of all that is recorded who owns it, or say more of us than that.

    Older versions told them nothing, and a run that was killed may have told them more than it did.
    """
    found: set[str] = set()
    for cluster in {cluster_of(address) for address in record} - {None}:
        seen = inventory.get(cluster_address(cluster or ""))
        if seen is None:
            continue
        owners = seen.cluster.owners or NOBODY
        if owners.unknown is not None:
            continue
        keys = set(owned_keys(record, cluster or ""))
        mine = {lineage for lineage, owner in owners.who.items() if owner.is_same(me)}
        if keys - owners.what.keys() or any(by in mine and key not in keys for key, by in owners.what.items()):
            found.add(cluster or "")
    return frozenset(found)
