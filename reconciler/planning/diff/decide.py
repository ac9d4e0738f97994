"""Decide the actions for every address."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import TYPE_CHECKING, assert_never

from reconciler.planning.actions import Adopt, Reason
from reconciler.planning.allowances import ADOPT, collect_allowances
from reconciler.planning.diff.converge import AddressView, Decision, converge, decide_cluster
from reconciler.planning.diff.field_differences import is_unchanged
from reconciler.planning.diff.mirror_changes import (
    decide_mirror,
    decide_released_topic,
    describe_released_topic,
    find_remaining_mirrors,
    refuse_empty_topic,
    skip_mirrored_topic,
)
from reconciler.planning.diff.mount_changes import (
    create_recovered,
    create_replica,
    decide_mounted_topic,
    decide_mounting,
    decide_moved_mounting,
    describe_other_topic,
    hold_detached_topic,
    hold_remounted_topic,
    is_in_transition_state,
    is_recovery,
    is_replaced,
    replace_topic,
    wait_for_transition,
)
from reconciler.planning.diff.moves import (
    decide_moved_resource,
    find_readdressed,
    hold_moved_topic,
    is_namespace_refused,
    move_record,
)
from reconciler.planning.resolve.acting_configs import find_hidden_values
from reconciler.planning.resolve.mirror_sources import is_two_way, link_of
from reconciler.planning.resolve.mount_sources import is_other_topic, is_unmounted
from reconciler.planning.situation import STOPPED, Situation, as_mirror, find_taken_resources, get_mounted_topic
from reconciler.resources.address import Address, address_of, build_sort_key, full_name_of, kind_of, matches_pattern
from reconciler.resources.cluster import Cluster
from reconciler.resources.mirror_link import MirrorLink, MirrorTopic, is_auto_created
from reconciler.resources.mount import Mounting
from reconciler.resources.namespace import Namespace
from reconciler.resources.tiering_policy import TieringPolicy
from reconciler.resources.topic import Topic

if TYPE_CHECKING:
    from reconciler.resources.inventory import Observed


def is_decided_elsewhere(sides: AddressView, situation: Situation, decision: Decision) -> bool:
    """Return whether a mirror or Mounting decides about a topic instead of the topic's manifest."""
    return skip_mirrored_topic(sides, situation, decision) or _is_decided_by_mounting(sides, situation, decision)


def _is_decided_by_mounting(sides: AddressView, situation: Situation, decision: Decision) -> bool:
    mounting = situation.mountings_by_topic.get(sides.address)
    before = sides.before
    # The Mounting unmounts the topic, or another topic has its name.
    if mounting is not None:
        is_other = before is not None and is_other_topic(mounting, before, situation)
        return mounting.spec.state == "unmounted" or is_other
    cluster = sides.address.split("/")[1]
    last = situation.recorded.get(address_of("mounting", cluster, full_name_of(sides.address)))
    if last is None or not isinstance(last.resource, Mounting) or not is_unmounted(last):
        return False
    if before is not None and not is_other_topic(last.resource, before, situation):
        return False
    where = last.physical_name or last.resource.spec.source or last.resource.metadata.name
    other, new = describe_other_topic(sides)
    declared = situation.wanted.get(last.resource.address)
    if declared is not None and isinstance(declared.resource, Mounting):
        name = declared.resource.topic_name
        decision.refuse(
            sides.address,
            sides.wanted.source,
            f"{other}it is detached at {where}, and {declared.resource.address} mounts it as {name}",
            f"Rename the Topic to {name} with movedFrom: {full_name_of(sides.address)}, or remove it from the files.",
        )
        return True
    forgetting = last.resource.address if sides.last is None else f"{last.resource.address} {sides.address}"
    decision.refuse(
        sides.address,
        sides.wanted.source,
        f"{other}it is detached at {where}, and its Mounting is no longer declared",
        "Declare the Mounting again: mounted to have the topic back, unmounted to leave it there. "
        f"{new}: reconciler state rm {forgetting}",
    )
    return True


def decide_wanted(situation: Situation, refused: frozenset[Address], decision: Decision) -> None:
    """Add the actions of every desired address that has no errors."""
    renamed = find_readdressed(situation)
    speaking = _find_shared_topics(situation)
    for address in sorted(situation.planned, key=build_sort_key):
        wanted = situation.wanted[address]
        if address in refused:
            if wanted.moved_from is not None:
                decision.settled.add(wanted.moved_from)  # The recorded topic stays until the error is fixed.
            continue
        if isinstance(wanted.resource, MirrorLink) and any(link in refused for link, _ in wanted.marks):
            continue  # The same link has errors on its other cluster.
        last, before = situation.recorded.get(address), situation.observed.get(address)
        old = wanted.moved_from
        if (
            last is not None
            and before is not None
            and old is None
            and address not in speaking
            and not is_in_transition_state(before)
            and not before.topic.is_sealed
            and before.topic.filled is None
            and is_unchanged(wanted, last, before)
            and not find_hidden_values(situation, wanted, last, before)
        ):
            continue
        sides = AddressView(address, wanted, last, before)
        if is_in_transition_state(before):
            wait_for_transition(sides, situation, decision)
            continue
        if old is not None and _decide_renamed(sides, old, situation, decision):
            continue
        _decide_one(sides, renamed, speaking, situation, decision)


def _decide_renamed(sides: AddressView, old: Address, situation: Situation, decision: Decision) -> bool:
    if isinstance(sides.wanted.resource, Namespace):
        return is_namespace_refused(sides, old, situation, decision)
    if isinstance(sides.wanted.resource, Mounting):
        return decide_moved_mounting(sides, old, situation, decision)
    return decide_moved_resource(sides, old, situation, decision)


def _decide_one(
    sides: AddressView,
    renamed: Mapping[Address, Address],
    speaking: AbstractSet[Address],
    situation: Situation,
    decision: Decision,
) -> None:
    resource = sides.wanted.resource
    match resource:
        case Cluster():
            decide_cluster(sides, situation, decision)
        case Topic():
            if sides.address not in speaking or not is_decided_elsewhere(sides, situation, decision):
                _decide_topic(sides, renamed, speaking, situation, decision)
        case MirrorTopic():
            decide_mirror(sides, situation, decision)
        case Mounting():
            decide_mounting(sides, situation, decision)
        case Namespace() | MirrorLink():
            converge(sides, situation, decision)
        case TieringPolicy():
            pass
        case _:
            assert_never(resource)


def _decide_topic(
    sides: AddressView,
    renamed: Mapping[Address, Address],
    speaking: AbstractSet[Address],
    situation: Situation,
    decision: Decision,
) -> None:
    old = renamed.get(sides.address) or _find_stopped_mirror(sides, situation)
    before = sides.before or (situation.observed.get(old) if old else None)
    topic, mounting = sides.wanted.resource, situation.mountings_by_topic.get(sides.address)
    if sides.address in situation.topics_moved_away:
        hold_moved_topic(sides, situation, decision)
    elif before is None and mounting is not None:
        decide_mounted_topic(sides, mounting, situation, decision)
    elif old is not None and before is not None:
        move_record(replace(sides, before=before), old, situation, decision)
    elif before is None and isinstance(topic, Topic) and topic.spec.read_replica_of is not None:
        create_replica(sides, situation, decision)
    elif before is not None and isinstance(topic, Topic) and is_replaced(topic, before):
        replace_topic(sides, topic, before, situation, decision)
    elif before is None and isinstance(topic, Topic) and is_recovery(topic):
        create_recovered(sides, topic, situation, decision)
    elif (
        sides.address in speaking
        and (stopped := describe_released_topic(replace(sides, before=before), situation)) is not None
    ):
        decide_released_topic(sides, stopped, situation, decision)
    elif sides.address in situation.request.stored.detached:
        hold_detached_topic(sides, situation, decision)
    elif sides.address in situation.request.stored.mounted_elsewhere:
        hold_remounted_topic(sides, situation, decision)
    elif mirrors := find_remaining_mirrors(sides.address, situation):
        refuse_empty_topic(sides, mirrors, decision)
    else:
        converge(sides, situation, decision)


def _find_stopped_mirror(sides: AddressView, situation: Situation) -> Address | None:
    mirror = as_mirror(sides.address)
    seen = situation.observed.get(mirror)
    is_left = mirror in situation.recorded and mirror not in situation.wanted
    return mirror if is_left and sides.last is None and seen is not None and seen.state == STOPPED else None


def _find_shared_topics(situation: Situation) -> frozenset[Address]:
    recorded = (address for address in situation.recorded if address.startswith(("mounting/", "mirror/")))
    named = {*situation.observed_mirrors, *situation.desired_mirrors, *recorded}
    topics = (Address("topic/" + name.partition("/")[2]) for name in named)
    swapped = (
        source
        for source, entries in situation.desired_mirrors_by_source.items()
        if any(is_two_way(entry, situation) for entry in entries)
    )
    return frozenset({*topics, *situation.mountings_by_topic, *swapped})


def find_unmanaged(situation: Situation) -> tuple[Address, ...]:
    """Return observed addresses in the plan, neither declared nor recorded."""
    if situation.request.options.is_destroy:
        return ()
    patterns, moved = situation.request.guards.only, frozenset(situation.topics_moved_away.values())
    addresses = (
        address
        for address, seen in situation.observed.items()
        if address not in situation.wanted
        and address not in situation.recorded
        and address not in moved
        and _is_unmanaged(address, seen, situation)
    )
    return tuple(
        sorted(
            (item for item in addresses if not patterns or any(matches_pattern(only, item) for only in patterns)),
            key=build_sort_key,
        )
    )


def _is_unmanaged(address: Address, seen: Observed, situation: Situation) -> bool:
    if seen.is_internal or not situation.can_plan(address) or kind_of(address) in {"cluster", "policy"}:
        return False
    if isinstance(seen.resource, MirrorTopic):
        return not (_is_of_our_link(seen.resource, situation) or _is_made_by_link(seen.resource, situation))
    if isinstance(seen.resource, Mounting):  # It may have the name of its topic, and the declared one another name.
        return get_mounted_topic(seen.resource) not in situation.mountings_by_topic
    if kind_of(address) != "topic":
        return True
    mirror = situation.observed_mirrors.get(as_mirror(address))
    is_role = as_mirror(address) in situation.wanted or as_mirror(address) in situation.recorded
    is_stopped = mirror is not None and _is_of_our_link(mirror, situation)
    return not (is_role or is_stopped or address in situation.mountings_by_topic)


def _is_of_our_link(mirror: MirrorTopic, situation: Situation) -> bool:
    link = link_of(mirror)
    return link in situation.wanted or link in situation.recorded


def _is_made_by_link(mirror: MirrorTopic, situation: Situation) -> bool:
    seen = situation.observed.get(link_of(mirror))
    making = seen.resource.spec.auto_create if seen is not None and isinstance(seen.resource, MirrorLink) else None
    return making is not None and making.enabled and is_auto_created(making.filters, mirror.source)


def adopt_again(situation: Situation, decision: Decision) -> None:
    """Adopt unchanged resources that another workspace took over, if an allowance permits it."""
    allowed = [
        allowance
        for allowance in collect_allowances(situation.request.guards, situation.request.selection)
        if allowance.verb == ADOPT
    ]
    if not allowed or not situation.foreign_owners:
        return
    changed = {action.address for action in decision.actions}
    for address, _ in find_taken_resources(situation.recorded, situation.observed, situation.request.me):
        last, seen = situation.recorded[address], situation.observed.get(address)
        is_ours = address in situation.wanted and address not in changed and situation.can_plan(address)
        if seen is not None and is_ours and any(allowance.allows_takeover(address) for allowance in allowed):
            decision.actions.append(
                Adopt(
                    address=address,
                    source=situation.wanted[address].source,
                    observed=seen.resource,
                    after=last.resource,
                    incarnation=last.incarnation,
                    physical_name=last.physical_name,
                    reasons=(Reason.RECORD_ONLY,),
                    origins=last.origins,
                )
            )
