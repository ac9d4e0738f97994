"""Renames and moves of topics and namespaces, and dependencies on mounts."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final, assert_never

from reconciler.lifecycles import MOUNT, UNMOUNT
from reconciler.planning.actions import Action, Adopt, Create, Delete, Forget, Reason, Risk, RunJob, Transition, Update
from reconciler.planning.diff.converge import (
    GOING,
    AddressView,
    Decision,
    adopt_observed_values,
    compute_state_precondition,
    converge,
    drop_unset_origins,
    find_part_to_delete,
    find_platform_differences,
    find_tiering_problems,
    plan_adoption,
    plan_deletion,
    plan_resource_changes,
    warn_of_foreign_rules,
)
from reconciler.planning.diff.field_differences import Differences
from reconciler.planning.diff.mount_changes import format_mount_back_commands
from reconciler.planning.diff.retention_loss import RetentionRule, Side
from reconciler.planning.resolve.acting_configs import find_changes_by_move
from reconciler.planning.resolve.limits import check_changes, describe_unsupported
from reconciler.planning.resolve.physical_names import build_physical_name
from reconciler.planning.selection import find_renamed_namespaces, guess_former_addresses
from reconciler.planning.situation import Situation, WantedResource, get_mounted_topic, get_source_topic, is_recreated
from reconciler.resources.address import Address, cluster_of, full_name_of, kind_of, split_name
from reconciler.resources.mirror_link import MirrorLink, MirrorTopic
from reconciler.resources.mount import Mounting, MountSource
from reconciler.resources.namespace import Namespace
from reconciler.resources.topic import Topic

if TYPE_CHECKING:
    from reconciler.resources.inventory import Inventory, Observed, Record, Recorded, Resource


# On platforms without renames, a move creates a topic, copies records, switches groups and deletes the old topic.


MOVE: Final = "move"
SWITCH_GROUPS: Final = "switch-groups"
JOBS: Final = frozenset({MOVE, SWITCH_GROUPS})
"""Jobs of a move, in order."""
_COPIED_FROM: Final = "movedFrom"
"""Key in a new topic's origins for the copied topic."""


def begin_copy(sides: AddressView, old: Address, seen: Observed, situation: Situation, decision: Decision) -> None:
    """Plan all steps of a move by copying."""
    last = situation.recorded.get(old)
    if last is None:
        decision.refuse(
            sides.address,
            sides.wanted.source,
            f"{old}, which it is moved from, cannot be deleted: reconciler never applied or adopted it",
            "Declare it under the name it has and apply, which adopts it; then move it.",
        )
    elif not _refuse_copy(sides, old, seen, situation, decision):
        wanted = sides.wanted
        decision.actions.append(
            Create(
                address=sides.address,
                after=wanted.resource,
                reasons=(Reason.MOVED,),
                source=wanted.source,
                origins={**wanted.origins, _COPIED_FROM: _make_copy_mark(old, last)},
            )
        )
        _plan_copy(sides, old, seen, situation, decision)


def is_copy_begun(sides: AddressView, old: Address, situation: Situation) -> bool:
    """Return whether an earlier run began to copy `old` to its new address."""
    last = situation.recorded.get(old)
    begun = sides.last.origins.get(_COPIED_FROM) if sides.last is not None else None
    return last is not None and begun == _make_copy_mark(old, last)


def continue_copy(sides: AddressView, old: Address, seen: Observed, situation: Situation, decision: Decision) -> None:
    """Plan the remaining steps of a move."""
    last = situation.recorded[old]
    if sides.last is not None and sides.before is not None and is_recreated(sides.last, sides.before):
        decision.refuse(
            sides.address,
            sides.wanted.source,
            f"it was deleted and created again outside reconciler while {old} was copied to it",
            "Delete the topic that has its name, then apply: the copy begins again.",
        )
    elif not _refuse_copy(sides, old, seen, situation, decision):
        origins = {**sides.wanted.origins, _COPIED_FROM: _make_copy_mark(old, last)}
        begun = replace(sides, wanted=replace(sides.wanted, origins=origins), before=_predict_filled(sides.before))
        converge(begun, situation, decision)
        _plan_copy(sides, old, seen, situation, decision)


def _predict_filled(before: Observed | None) -> Observed | None:
    if before is None or before.topic.filled is None or not isinstance(before.resource, Topic):
        return before
    spec = before.resource.spec.model_copy(update={"configs": dict(before.topic.filled)})
    whole = before.resource.model_copy(update={"spec": spec})
    return replace(before, resource=whole, topic=replace(before.topic, filled=None))


def _suggest_ending(mirror: Address, situation: Situation) -> str:
    ending = situation.name_ending(mirror).capitalize()
    return f"{ending} or remove the mirror first, then move the topic and mirror it again."


def _refuse_copy(sides: AddressView, old: Address, seen: Observed, situation: Situation, decision: Decision) -> bool:
    refusal: tuple[str, str] | None = None
    if seen.state == GOING:
        refusal = f"{old}, which it is moved from, is being deleted", "Remove movedFrom: there is nothing left to copy."
    elif mirrors := situation.mirrors_by_source.get(old):
        refusal = (
            f"{', '.join(mirrors)} mirrors {old}, and a mirror never changes its source",
            _suggest_ending(mirrors[0], situation),
        )
    if refusal is not None:
        decision.refuse(sides.address, sides.wanted.source, *refusal)
    return refusal is not None


def _plan_copy(sides: AddressView, old: Address, seen: Observed, situation: Situation, decision: Decision) -> None:
    _warn_of_expiry(sides, old, seen, situation, decision)
    parameters = {"incarnation": seen.incarnation, "partitioning": _choose_partitioning(sides, seen)}
    if parameters["partitioning"] == "by-key":
        decision.warn(
            sides.address,
            sides.wanted.source,
            "it has another number of partitions: groups continue at the earliest record that they may not have read,"
            " so that none is skipped and some are read twice",
            "Order by key is kept if all records of a key were in one partition. Check whether consumers rely on the "
            "order themselves.",
        )
    for job in (MOVE, SWITCH_GROUPS):
        decision.actions.append(
            RunJob(
                address=sides.address,
                job=job,
                source=old,
                sink=sides.address,
                parameters=parameters,
                risk=Risk.DISRUPTIVE,
                reasons=(Reason.MOVED,),
                declared_at=sides.wanted.source,
            )
        )
    last, are_rules = (
        situation.recorded.get(old),
        situation.find_capabilities(cluster_of(old) or "").namespaces_are_rules,
    )
    gone = find_part_to_delete(last.resource if last is not None else None, seen.resource, are_rules=are_rules)
    warn_of_foreign_rules(old, seen, gone, decision)
    decision.actions.append(plan_deletion(old, seen, Reason.MOVED, gone=gone))


def _warn_of_expiry(sides: AddressView, old: Address, seen: Observed, situation: Situation, decision: Decision) -> None:
    """Warn of old records that expire at once, because copies keep timestamps."""
    new, topic = sides.wanted.resource, seen.resource
    if not (isinstance(new, Topic) and isinstance(topic, Topic)):
        return
    limits = situation.find_capabilities(new.cluster)
    then, now = topic.spec.configs.get, new.spec.configs.get
    was, will = RetentionRule.of_sides(Side(then, then), Side(now, now), limits.configs, limits.defaults)
    if will.expires_before(was):
        decision.warn(
            sides.address,
            sides.wanted.source,
            f"it keeps less than {old}, which is deleted once it is copied: what is beyond that expires in the copy",
            "Give it the retention of the old topic first, and lower it once you have checked the copy.",
        )


def _choose_partitioning(sides: AddressView, seen: Observed) -> str:
    new, old = sides.wanted.resource, seen.resource
    is_same = isinstance(new, Topic) and isinstance(old, Topic) and new.spec.partitions == old.spec.partitions
    return "same" if is_same else "by-key"


def _make_copy_mark(old: Address, last: Recorded) -> str:
    return f"{old} {last.incarnation}" if last.incarnation else old


def decide_moved_resource(sides: AddressView, old: Address, situation: Situation, decision: Decision) -> bool:
    """Decide about a resource with `movedFrom`. Return `False` if its old name is unknown."""
    old_seen, old_last = situation.observed.get(old), situation.recorded.get(old)
    source = sides.wanted.source
    if old == sides.address:
        return False
    if old in situation.wanted:
        decision.refuse(
            sides.address,
            source,
            f"{old}, which it is moved from, is declared too",
            "Remove movedFrom, or one of the two.",
        )
    elif old_last is None and (old_seen is None or sides.last is not None):
        if sides.before is None and sides.last is None and sides.address not in situation.mountings_by_topic:
            decision.warn(
                sides.address,
                source,
                f"{old}, which it is moved from, does not exist",
                "It is created empty. Correct movedFrom if its records should be moved.",
            )
        return False
    elif old in decision.settled:
        decision.refuse(sides.address, source, f"{old} was moved elsewhere already", "Let one topic be moved from it.")
    elif old_seen is not None and situation.exists_as_recorded(old):
        _decide_old_name(sides, old, old_seen, situation, decision)
    elif _refuse_detached(sides, old, situation, decision):
        decision.settled.add(old)
    elif old_seen is not None and _needs_old_topic(sides, old, situation):
        decision.settled.add(old)
        what = "what was copied of the first one is here" if sides.before is not None else "it is created empty"
        decision.refuse(
            sides.address,
            source,
            f"{old}, which it is moved from, was deleted and created again outside reconciler",
            f"Remove movedFrom: {what}. To move the topic that has the name now, apply it under its old name first.",
        )
    elif sides.before is None or sides.last is not None or _is_unrelated(old_last, sides.before):
        return False
    else:
        _adopt_at_new_address(sides, old, Reason.MOVED, situation, decision)
    return True


def _needs_old_topic(sides: AddressView, old: Address, situation: Situation) -> bool:
    is_new = sides.before is None and sides.address not in situation.mountings_by_topic
    return is_new or (sides.before is not None and is_copy_begun(sides, old, situation))


def _is_unrelated(last: Recorded | None, observed: Observed) -> bool:
    return last is not None and isinstance(observed.resource, Topic) and is_recreated(last, observed)


def _decide_old_name(
    sides: AddressView, old: Address, seen: Observed, situation: Situation, decision: Decision
) -> None:
    is_both = sides.before is not None
    if is_both and not is_copy_begun(sides, old, situation):
        message = f"{old}, which it was moved from, is there too"
        decision.refuse(sides.address, sides.wanted.source, message, "Remove movedFrom, or one of the two.")
        return
    decision.settled.add(old)
    if is_both:
        continue_copy(sides, old, seen, situation, decision)
    elif _needs_copy(sides, situation):
        begin_copy(sides, old, seen, situation, decision)
    else:
        _plan_rename(sides, old, seen, situation, decision)


def _needs_copy(sides: AddressView, situation: Situation) -> bool:
    capabilities = situation.find_capabilities(cluster_of(sides.address) or "")
    is_topic = isinstance(sides.wanted.resource, Topic)
    return is_topic and capabilities.copy_move and not capabilities.topic_move


def find_moved_from(action: Action) -> Address | None:
    """Return a topic's old address if the action moves the topic between namespaces."""
    old = action.parameters.get("from") if isinstance(action, Transition) and action.machine == "topic" else None
    return Address(old) if isinstance(old, str) else None


def _refuse_detached(sides: AddressView, old: Address, situation: Situation, decision: Decision) -> bool:
    location, new_place = (
        situation.request.stored.detached.get(old),
        situation.request.stored.mounted_elsewhere.get(old),
    )
    if sides.before is not None or sides.address in situation.mountings_by_topic:
        return False
    if new_place is not None:
        decision.refuse(
            sides.address,
            sides.wanted.source,
            f"{old}, which it is moved from, is mounted with its records as {new_place}, and no Mounting declares it",
            f"{format_mount_back_commands(old, new_place)} To make a new and empty one: reconciler state rm {old}",
        )
        return True
    if location is None:
        return False
    decision.refuse(
        sides.address,
        sides.wanted.source,
        f"{old}, which it is moved from, was unmounted, and no Mounting declares it: it is detached at {location}",
        f"To have its records declare a Mounting of {full_name_of(sides.address)} with state: mounted and source: "
        f"{location}. To make a new and empty one: reconciler state rm {old}",
    )
    return True


def _plan_rename(sides: AddressView, old: Address, before: Observed, situation: Situation, decision: Decision) -> None:
    moved = AddressView(sides.address, sides.wanted, situation.recorded.get(old), before)
    reasons = [*_find_obstacles(sides, old, situation)]
    differing = Differences() if reasons else find_platform_differences(moved, before, situation)
    reasons += check_changes(differing.changes, situation.find_capabilities(cluster_of(sides.address) or ""))
    inherited = tuple(find_changes_by_move(sides.address, before, situation))
    reasons += find_tiering_problems(sides.address, before, (*differing.changes, *inherited), situation)
    for message, hint in reasons:
        decision.refuse(sides.address, sides.wanted.source, message, hint)
    if reasons:
        return
    decision.actions.append(
        Transition(
            address=sides.address,
            machine="topic",
            verb="move",
            from_state=full_name_of(old),
            to_state=full_name_of(sides.address),
            after=adopt_observed_values(sides.wanted, before) if differing.changes else sides.wanted.resource,
            parameters={"from": old},
            changes=inherited,
            risk=Risk.DISRUPTIVE,
            reasons=(Reason.MOVED,),
            source=sides.wanted.source,
            origins=drop_unset_origins(sides.wanted.origins) if differing.changes else sides.wanted.origins,
            precondition=compute_state_precondition(old, before),
        )
    )
    plan_resource_changes(moved, before, differing, situation, decision)


def _find_obstacles(sides: AddressView, old: Address, situation: Situation) -> Iterator[tuple[str, str]]:
    capabilities = situation.find_capabilities(cluster_of(sides.address) or "")
    if isinstance(sides.wanted.resource, MirrorLink):
        name = full_name_of(old)
        hint = (
            f"Set its name back to {name}. A link of another name copies its mirrors again: apply it without movedFrom "
            f"and mirrorTopics, with --allow for each mirror of {name}; then declare mirrorTopics again."
        )
        yield f"no platform can rename {old} to {sides.address}", hint
    elif not capabilities.topic_move:
        yield describe_unsupported(capabilities, f"rename {old} to {sides.address}")
    elif mirrors := situation.mirrors_by_source.get(old):
        yield (
            f"{', '.join(mirrors)} mirrors {old}, and a mirror never changes its source",
            _suggest_ending(mirrors[0], situation),
        )


def _adopt_at_new_address(
    sides: AddressView, old: Address, reason: Reason, situation: Situation, decision: Decision
) -> None:
    before = sides.before
    if before is None:
        return
    decision.settled.add(old)
    moved = AddressView(sides.address, sides.wanted, situation.recorded[old], before)
    is_same_kind = type(before.resource) is type(sides.wanted.resource)
    differing = find_platform_differences(moved, before, situation) if is_same_kind else Differences()
    decision.actions.append(plan_adoption(moved, before, differing, reason, moved_from=old))
    decision.actions.append(Forget(address=old, reasons=(reason,)))
    plan_resource_changes(moved, before, differing, situation, decision)


def move_record(sides: AddressView, old: Address, situation: Situation, decision: Decision) -> None:
    """Move the record of `old` to the desired address of the same resource."""
    _adopt_at_new_address(sides, old, Reason.READDRESSED, situation, decision)


def find_readdressed(situation: Situation) -> Mapping[Address, Address]:
    """Map new addresses to recorded addresses with the same physical name, on platforms with flat names."""
    leaving: dict[tuple[str, str], Address] = {}
    for address in sorted(situation.recorded.keys() - situation.wanted.keys()):
        last = situation.recorded[address]
        cluster = cluster_of(address) or ""
        if isinstance(last.resource, Topic) and last.physical_name and situation.can_plan(address):
            leaving[cluster, last.physical_name] = address
    if not leaving:
        return {}
    arriving: dict[Address, Address] = {}
    for address in sorted(situation.wanted.keys() - situation.recorded.keys()):
        resource = situation.wanted[address].resource
        if isinstance(resource, Topic) and resource.cluster in situation.clusters:
            name = build_physical_name(situation.clusters[resource.cluster], resource.full_name)
            if (resource.cluster, name) in leaving:
                arriving[address] = leaving[resource.cluster, name]
    return arriving


MOVED_TO: Final = "moved to "


def hold_moved_topic(sides: AddressView, situation: Situation, decision: Decision) -> None:
    """Keep the record of a topic that a command moved, so its old name stays taken."""
    new_address = situation.topics_moved_away[sides.address]
    decision.add_held_change(
        sides,
        f"it was moved to {new_address}, and no file declares it",
        f"To leave it there: reconciler drift --accept {sides.address}. {_suggest_move_back(sides, new_address)}"
        f"To have a new and empty one next to it declare {new_address}, too.",
        f"{MOVED_TO}{new_address}",
    )


def _suggest_move_back(sides: AddressView, current: Address) -> str:
    (target, name), (source, now) = split_name(full_name_of(sides.address)), split_name(full_name_of(current))
    if name != now:
        return ""
    cluster, unknown = cluster_of(current) or "", ("--no-state",) if sides.last is not None else ()
    command = shlex.join(("reconciler", "namespace", "move", cluster, source, target, "--topic", name, *unknown))
    return f"To have it back: {command}. "


# The new namespace is created first, and the old namespace is deleted last.


def add_implied_moves(
    wanted: dict[Address, WantedResource], recorded: Record, observed: Inventory
) -> dict[Address, WantedResource]:
    """Add `find_moved_from` to resources declared in a moved namespace."""
    declared = {
        address: item.moved_from
        for address, item in wanted.items()
        if item.moved_from is not None and isinstance(item.resource, Namespace)
    }
    if not declared:
        return wanted
    moved = find_renamed_namespaces(declared, recorded, observed)
    resolved = dict(wanted)
    for address, item in wanted.items():
        if item.moved_from in wanted:
            continue
        names = [name for name in guess_former_addresses(address, item.moved_from, moved) if name not in wanted]
        old = next((name for name in names if name in recorded), None)
        if old is None and address not in observed:
            # If only the new address is recorded, another topic has the old name.
            old = next((name for name in names if name in observed), None)
        if old is not None:
            resolved[address] = replace(item, moved_from=old)
    return resolved


def is_namespace_refused(sides: AddressView, old: Address, situation: Situation, decision: Decision) -> bool:
    """Reject the move of a namespace whose old name is also declared."""
    source = sides.wanted.source
    if old == sides.address:
        return False
    if old in situation.wanted:
        message = f"{old}, which it is moved from, is declared too"
        decision.refuse(sides.address, source, message, "Remove movedFrom, or one of the two.")
        return True
    if sides.before is None and sides.last is None and not (old in situation.observed or old in situation.recorded):
        message = f"{old}, which it is moved from, does not exist"
        decision.warn(sides.address, source, message, "Nothing moves into it. Correct movedFrom if something should.")
    return False


_NAMED_KINDS: Final = frozenset({"topic", "mirror"})


class MountDependencies:
    """Dependencies between mounts, unmounts and other actions on their topics."""

    def __init__(self, actions: Sequence[Action], situation: Situation) -> None:
        self._situation = situation
        self._mounts: dict[Address, list[str]] = {}
        self._unmounts: dict[Address, list[str]] = {}
        self._of_mounting: dict[Address, list[str]] = {}
        for action in actions:
            if isinstance(action, Transition) and isinstance(action.after, Mounting):
                is_unmount = find_unmounted_topic(action) is not None
                ids_by_topic = self._unmounts if is_unmount else self._mounts
                ids_by_topic.setdefault(get_mounted_topic(action.after), []).append(action.id)
                if is_unmount:
                    self._of_mounting.setdefault(action.address, []).append(action.id)
        self._new = {action.address for action in actions if isinstance(action, Create)}
        self._at: dict[Address, list[Action]] = {}
        self._readers: dict[Address, list[Action]] = {}
        for action in actions if self._mounts or self._unmounts else ():
            if kind_of(action.address) in _NAMED_KINDS:
                self._at.setdefault(_topic_address(action.address), []).append(action)
            if (left := find_moved_from(action)) is not None:
                self._at.setdefault(left, []).append(action)
            if (source := self._source(action)) is not None:
                self._readers.setdefault(source, []).append(action)

    def before(self, action: Action) -> Iterator[str]:
        """Yield the ids of actions that must precede an action."""
        if not (self._mounts or self._unmounts):
            return
        if isinstance(action, Transition) and isinstance(action.after, Mounting):
            yield from self._before_mounting(action, get_mounted_topic(action.after))
            return
        topic = _topic_address(action.address)
        if _is_creating_topic(action):
            yield from self._unmounts.get(topic, ())
        elif kind_of(action.address) == "topic" and isinstance(action, Update | Adopt | Transition):
            yield from self._mounts.get(topic, ())
        source = self._source(action)
        is_going = isinstance(action, Delete | Forget)
        if source is not None and not is_going and not self._is_reading_old(action, source):
            yield from self._mounts.get(source, ())

    def _before_mounting(self, action: Transition, topic: Address) -> Iterator[str]:
        others = self._at.get(topic, ())
        if action.machine == MOUNT.name:
            source = self._situation.request.stored.mounts.get(action.address)
            if isinstance(source, MountSource) and source.unmounts is not None:
                yield from self._of_mounting.get(source.unmounts, ())
            yield from self._unmounts.get(topic, ())
            yield from (other.id for other in others if isinstance(other, Delete) or find_moved_from(other) == topic)
            return
        if topic not in self._mounts:
            yield from (other.id for other in others if _is_changing_topic(other))
        yield from (other.id for other in self._readers.get(topic, ()) if self._is_reading_old(other, topic))

    def _is_reading_old(self, action: Action, source: Address) -> bool:
        return source in self._unmounts and action.address not in self._new

    def _source(self, action: Action) -> Address | None:
        if kind_of(action.address) != "mirror":
            return None
        if isinstance(action, RunJob):
            return action.source
        resource = self._resource(action)
        return get_source_topic(resource) if isinstance(resource, MirrorTopic) else None

    def _resource(self, action: Create | Update | Delete | Adopt | Forget | Transition) -> Resource | None:
        match action:
            case Create() | Update() | Transition() | Adopt():
                return action.after
            case Delete():
                return action.before
            case Forget():
                last = self._situation.recorded.get(action.address)
                return last.resource if last is not None else None
            case _:
                assert_never(action)


def _topic_address(address: Address) -> Address:
    return Address("topic/" + address.partition("/")[2])


def _is_creating_topic(action: Action) -> bool:
    return kind_of(action.address) in _NAMED_KINDS and (
        isinstance(action, Create) or find_moved_from(action) is not None
    )


def _is_changing_topic(action: Action) -> bool:
    if kind_of(action.address) != "topic" or _is_creating_topic(action):
        return False
    return isinstance(action, Update | Adopt | Transition)


def find_unmounted_topic(action: Action) -> Address | None:
    """Return the unmounted topic, or `None`."""
    if isinstance(action, Transition) and action.machine == UNMOUNT.name and isinstance(action.after, Mounting):
        return get_mounted_topic(action.after)
    return None
