"""A topic that moves where none can be renamed: made under its new name, filled, its groups switched, the old deleted.

Every step is an action of its own, and the last one is blocked until it is allowed by name. What was begun is kept in
the record of the new topic, so that a run that ended between goes on, and what merely has both names is told from it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from reconciler.planning.actions import Create, Delete, Reason, Risk, RunJob
from reconciler.planning.deciding.converge import GOING, converge
from reconciler.planning.deciding.decision import precondition
from reconciler.planning.judging.retention import Keeping
from reconciler.resources.topic import Topic

if TYPE_CHECKING:
    from reconciler.planning.deciding.decision import Decision, Sides
    from reconciler.planning.situation import Situation
    from reconciler.resources.address import Address
    from reconciler.resources.inventory import Observed, Recorded

MOVE: Final = "move"
SWITCH_GROUPS: Final = "switch-groups"
JOBS: Final = frozenset({MOVE, SWITCH_GROUPS})
"""The jobs of a move, in this order; both have the old topic as their source, and the new one as their sink."""
_BEGUN: Final = "movedFrom"
"""The path under which the origins of the new topic keep which one is copied into it."""


def begin_copy(sides: Sides, old: Address, seen: Observed, situation: Situation, decision: Decision) -> None:
    """Plan a move from its first step on."""
    last = situation.recorded.get(old)
    if last is None:
        decision.refuse(
            sides.address,
            sides.wanted.source,
            f"{old}, which it is moved from, is not ours to delete: nobody applied or adopted it",
            "Declare it under the name it has and apply, which adopts it; then move it.",
        )
    elif not _is_refused(sides, old, seen, situation, decision):
        wanted = sides.wanted
        decision.actions.append(
            Create(
                address=sides.address,
                after=wanted.resource,
                reasons=(Reason.MOVED,),
                source=wanted.source,
                origins={**wanted.origins, _BEGUN: _mark(old, last)},
            )
        )
        _copy(sides, old, seen, situation, decision)


def is_begun(sides: Sides, old: Address, situation: Situation) -> bool:
    """Tell whether an earlier run began to copy this very topic to its new name."""
    last = situation.recorded.get(old)
    begun = sides.last.origins.get(_BEGUN) if sides.last is not None else None
    return last is not None and begun == _mark(old, last)


def go_on(sides: Sides, old: Address, seen: Observed, situation: Situation, decision: Decision) -> None:
    """Plan what is left of a move: all of its jobs, which find what was copied, and the delete."""
    last = situation.recorded[old]
    if last.incarnation != seen.incarnation:
        decision.refuse(
            sides.address,
            sides.wanted.source,
            f"{old}, which it is moved from, was deleted and made anew by somebody else",
            "Remove movedFrom; what had been copied of the first one is here.",
        )
    elif not _is_refused(sides, old, seen, situation, decision):
        origins = {**sides.wanted.origins, _BEGUN: _mark(old, last)}
        converge(replace(sides, wanted=replace(sides.wanted, origins=origins)), situation, decision)
        _copy(sides, old, seen, situation, decision)


def _is_refused(sides: Sides, old: Address, seen: Observed, situation: Situation, decision: Decision) -> bool:
    found: tuple[str, str] | None = None
    if seen.state == GOING:
        found = f"{old}, which it is moved from, is being deleted", "Remove movedFrom: there is nothing left to copy."
    elif mirrors := situation.mirrored.get(old):
        found = (
            f"{', '.join(mirrors)} mirrors {old}, and a mirror never changes its source",
            "Promote or remove the mirror first, then move the topic and mirror it anew.",
        )
    if found is not None:
        decision.refuse(sides.address, sides.wanted.source, *found)
    return found is not None


def _copy(sides: Sides, old: Address, seen: Observed, situation: Situation, decision: Decision) -> None:
    _warn_of_expiry(sides, old, seen, situation, decision)
    parameters = {"incarnation": seen.incarnation, "partitioning": _partitioning(sides, seen)}
    if parameters["partitioning"] == "by-key":
        decision.warn(
            sides.address,
            sides.wanted.source,
            "it has another number of partitions: groups go on at the earliest record of each that they may not have "
            "read, so that none is skipped and some are read twice",
            "Order is kept by key, as far as all records of a key lay in one partition. What that costs readers is "
            "theirs to say.",
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
    decision.actions.append(
        Delete(
            address=old,
            before=seen.resource,
            incarnation=seen.incarnation,
            reasons=(Reason.MOVED,),
            precondition=precondition(old, seen),
        )
    )


def _warn_of_expiry(sides: Sides, old: Address, seen: Observed, situation: Situation, decision: Decision) -> None:
    """Say that copies keep their timestamps: what is too old for the new topic expires as soon as it is there."""
    new, topic = sides.wanted.resource, seen.resource
    if not (isinstance(new, Topic) and isinstance(topic, Topic)):
        return
    limits = situation.capabilities(new.cluster)
    will, was = (Keeping.read(each.spec.configs.get, limits.configs, limits.defaults) for each in (new, topic))
    if will.is_stricter_than(was):
        decision.warn(
            sides.address,
            sides.wanted.source,
            f"it keeps less than {old}, which is deleted once it is copied: what is beyond that expires in the copy",
            "Give it the retention of the old topic first, and lower it when you have looked.",
        )


def _partitioning(sides: Sides, seen: Observed) -> str:
    """Return how records find their partition: as they lie, or, where there is another number of them, by their key."""
    new, old = sides.wanted.resource, seen.resource
    is_same = isinstance(new, Topic) and isinstance(old, Topic) and new.spec.partitions == old.spec.partitions
    return "same" if is_same else "by-key"


def _mark(old: Address, last: Recorded) -> str:
    return f"{old} {last.incarnation}" if last.incarnation else old
