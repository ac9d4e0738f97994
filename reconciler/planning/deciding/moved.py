"""Renames: a topic that moves between namespaces, and a record that follows a physical name to a new address."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconciler.planning.actions import Forget, Reason, Risk, Transition
from reconciler.planning.deciding.adopting import as_observed, observed_origins
from reconciler.planning.deciding.converge import adopt, change, compare
from reconciler.planning.deciding.copymoved import begin_copy, go_on, is_begun
from reconciler.planning.deciding.decision import Sides, state_precondition
from reconciler.planning.deciding.differences import Differences
from reconciler.planning.deciding.tiering import problems
from reconciler.planning.judging.limits import beyond, check_changes
from reconciler.planning.wanted.names import physical_name
from reconciler.resources.address import Address, cluster_of, full_name_of
from reconciler.resources.topic import Topic

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from reconciler.planning.actions import Action
    from reconciler.planning.deciding.decision import Decision
    from reconciler.planning.situation import Situation
    from reconciler.resources.inventory import Observed


def decide_moved(sides: Sides, old: Address, situation: Situation, decision: Decision) -> bool:
    """Decide about something that says what it was called before; `False`: that name means nothing any more."""
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
    elif old_seen is None and old_last is None:
        if sides.before is None and sides.last is None:
            decision.warn(
                sides.address,
                source,
                f"{old}, which it is moved from, is not there",
                "It is made anew and empty; correct movedFrom if its records should come along.",
            )
        return False
    elif old in decision.settled:
        decision.refuse(sides.address, source, f"{old} was moved elsewhere already", "Let one topic be moved from it.")
    elif old_seen is not None:
        _leave(sides, old, old_seen, situation, decision)
    elif _lies_detached(sides, old, situation, decision):
        decision.settled.add(old)
    elif sides.before is None or sides.last is not None:
        return False  # what we moved from is gone, and its record forgotten; we are made anew, or have a record already
    else:
        _follow(sides, old, Reason.MOVED, situation, decision)
    return True


def _leave(sides: Sides, old: Address, seen: Observed, situation: Situation, decision: Decision) -> None:
    """Decide about something that is there under its old name still."""
    is_both = sides.before is not None
    if is_both and not is_begun(sides, old, situation):
        message = f"{old}, which it was moved from, is there too"
        decision.refuse(sides.address, sides.wanted.source, message, "Remove movedFrom, or one of the two.")
        return
    decision.settled.add(old)
    if is_both:
        go_on(sides, old, seen, situation, decision)
    elif _is_copied(sides, situation):
        begin_copy(sides, old, seen, situation, decision)
    else:
        _move(sides, old, seen, situation, decision)


def _is_copied(sides: Sides, situation: Situation) -> bool:
    capabilities = situation.capabilities(cluster_of(sides.address) or "")
    is_topic = isinstance(sides.wanted.resource, Topic)
    return is_topic and capabilities.copy_move and not capabilities.topic_move


def moved_from(action: Action) -> Address | None:
    """Return the address a topic leaves by this action, if it is a move between namespaces."""
    old = action.parameters.get("from") if isinstance(action, Transition) and action.machine == "topic" else None
    return Address(old) if isinstance(old, str) else None


def _lies_detached(sides: Sides, old: Address, situation: Situation, decision: Decision) -> bool:
    """Refuse to make a topic empty whose records lie where somebody unmounted them, under its old name."""
    location = situation.given.detached.get(old)
    if location is None or sides.before is not None or sides.address in situation.mountings:
        return False
    decision.refuse(
        sides.address,
        sides.wanted.source,
        f"somebody unmounted {old}, which it is moved from: it lies detached at {location}",
        f"To have its records declare a Mounting of {full_name_of(sides.address)} with state: mounted and source: "
        f"{location}. To make a new and empty one: reconciler state rm {old}",
    )
    return True


def _move(sides: Sides, old: Address, before: Observed, situation: Situation, decision: Decision) -> None:
    moved = Sides(sides.address, sides.wanted, situation.recorded.get(old), before)
    reasons = [*_obstacles(sides, old, situation)]
    found = Differences() if reasons else compare(moved, before, situation)
    reasons += check_changes(found.changes, situation.capabilities(cluster_of(sides.address) or ""))
    reasons += problems(moved, before, found.changes, situation)
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
            after=as_observed(sides.wanted, before) if found.changes else sides.wanted.resource,
            parameters={"from": old},
            risk=Risk.DISRUPTIVE,
            reasons=(Reason.MOVED,),
            source=sides.wanted.source,
            origins=observed_origins(sides.wanted.origins) if found.changes else sides.wanted.origins,
            precondition=state_precondition(old, before),
        )
    )
    change(moved, before, found, situation, decision)


def _obstacles(sides: Sides, old: Address, situation: Situation) -> Iterator[tuple[str, str]]:
    """Yield why something cannot be moved at all."""
    capabilities = situation.capabilities(cluster_of(sides.address) or "")
    if not (isinstance(sides.wanted.resource, Topic) and capabilities.topic_move):
        yield beyond(capabilities, f"rename {old} to {sides.address}")
    elif mirrors := situation.mirrored.get(old):
        yield (
            f"{', '.join(mirrors)} mirrors {old}, and a mirror never changes its source",
            "Promote or remove the mirror first, then move the topic and mirror it anew.",
        )


def _follow(sides: Sides, old: Address, reason: Reason, situation: Situation, decision: Decision) -> None:
    """Let the record follow to the new address; nothing is called."""
    before = sides.before
    if before is None:
        return
    decision.settled.add(old)
    moved = Sides(sides.address, sides.wanted, situation.recorded[old], before)
    is_same_kind = type(before.resource) is type(sides.wanted.resource)
    found = compare(moved, before, situation) if is_same_kind else Differences()
    decision.actions.append(adopt(moved, before, found, reason, moved_from=old))
    decision.actions.append(Forget(address=old, reasons=(reason,)))
    change(moved, before, found, situation, decision)


def hand_over(sides: Sides, old: Address, situation: Situation, decision: Decision) -> None:
    """Let the record of `old` become that of a wanted address: the same thing on the platform, under another name."""
    _follow(sides, old, Reason.READDRESSED, situation, decision)


def readdressed(situation: Situation) -> Mapping[Address, Address]:
    """Return, by arriving address, the leaving one of the same physical name (flat names only)."""
    leaving: dict[tuple[str, str], Address] = {}
    for address in sorted(situation.recorded.keys() - situation.wanted.keys()):
        last = situation.recorded[address]
        cluster = cluster_of(address) or ""
        if isinstance(last.resource, Topic) and last.physical_name and situation.is_decidable(address):
            leaving[cluster, last.physical_name] = address
    if not leaving:
        return {}
    arriving: dict[Address, Address] = {}
    for address in sorted(situation.wanted.keys() - situation.recorded.keys()):
        resource = situation.wanted[address].resource
        if isinstance(resource, Topic) and resource.cluster in situation.clusters:
            name = physical_name(situation.clusters[resource.cluster], resource.full_name)
            if (resource.cluster, name) in leaving:
                arriving[address] = leaving[resource.cluster, name]
    return arriving
