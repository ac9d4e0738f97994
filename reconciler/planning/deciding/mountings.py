"""Mountings: whether a topic is attached here; mounted, unmounted, waited for, or only remembered as it should be."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from reconciler.lifecycles.mounting import BY_JOBS, MOUNT, UNMOUNT, MigrationState, is_under_way
from reconciler.planning.actions import Adopt, Change, Forget, Reason, Risk, Transition
from reconciler.planning.deciding.decision import state_precondition
from reconciler.planning.deciding.differences import drifted
from reconciler.planning.plan import Waiting
from reconciler.planning.situation import mounted_by
from reconciler.resources.mountable import MIGRATING, MountSource
from reconciler.resources.mounting import Mounting

if TYPE_CHECKING:
    from reconciler.planning.actions import Value
    from reconciler.planning.deciding.decision import Decision, Sides
    from reconciler.planning.situation import Situation
    from reconciler.resources.address import Address
    from reconciler.resources.inventory import Observed


def decide_mounting(sides: Sides, situation: Situation, decision: Decision, old: Address | None = None) -> None:
    """Decide about one mounting; `old` is the address at which it is recorded still, if it was called otherwise."""
    mounting = sides.wanted.resource
    if not isinstance(mounting, Mounting):
        return
    topic = mounted_by(mounting)
    seen = situation.observed.get(topic)
    is_by_jobs = situation.capabilities(mounting.cluster).mountings_by_jobs
    if _is_on_its_way(sides, mounting, seen, decision, is_by_jobs=is_by_jobs):
        return
    if old is not None:
        _follow(sides, old, decision)
    _tell_drift(sides, mounting, seen, decision)
    if (seen is not None) == (mounting.spec.state == "mounted"):
        if old is None and (sides.last is None or sides.last.resource != mounting):
            decision.actions.append(_remembered(sides, mounting, seen, situation))
    elif seen is not None:
        decision.actions.append(_unmount(sides, mounting, seen, situation, decision))
    elif not _comes(topic, situation):
        _mount(sides, mounting, situation, decision)


def is_migrating(seen: Observed | None) -> bool:
    """Tell whether a topic is being mounted or unmounted."""
    return seen is not None and seen.state == MIGRATING


def _is_on_its_way(
    sides: Sides, mounting: Mounting, seen: Observed | None, decision: Decision, *, is_by_jobs: bool
) -> bool:
    """Wait for a migration that is under way, or go on with it where jobs do it; refuse to turn it round."""
    running = sides.before.state if sides.before is not None else None
    if not is_under_way(running):
        if is_migrating(seen):
            decision.waiting.append(Waiting(sides.address, MIGRATING))
        return is_migrating(seen)
    there = sides.before.resource if sides.before is not None else None
    if isinstance(there, Mounting) and there.spec.state != mounting.spec.state and running in set(MigrationState):
        machine = MOUNT if there.spec.state == "mounted" else UNMOUNT
        legal = ", ".join(machine.legal(MigrationState(running))) or "nothing"
        decision.refuse(
            sides.address,
            sides.wanted.source,
            f"a migration is under way by which it is {there.spec.state} ({running}), "
            f"and {mounting.spec.state} is wanted",
            f"Wait until it is done, and plan again (`reconciler run` goes on with it). Legal from {running}: {legal}; "
            "see: reconciler mount status",
        )
    elif is_by_jobs and isinstance(there, Mounting):
        decision.actions.append(_gone_on(sides, mounting, there, running or ""))
    else:
        decision.waiting.append(Waiting(sides.address, running or ""))
    return True


def _gone_on(sides: Sides, mounting: Mounting, there: Mounting, running: str) -> Transition:
    """Return the move that a job had begun: nobody but an apply goes on with it."""
    is_mount = mounting.spec.state == "mounted"
    machine = MOUNT if is_mount else UNMOUNT
    return Transition(
        address=sides.address,
        machine=machine.name,
        verb=machine.name,
        from_state=running,
        to_state=mounting.spec.state,
        after=mounting,
        parameters={"source": there.spec.source or mounting.metadata.name, "by": BY_JOBS},
        risk=Risk.NONE if is_mount else Risk.DISRUPTIVE,
        reasons=(Reason.ROLE_WANTED,),
        source=sides.wanted.source,
    )


def _tell_drift(sides: Sides, mounting: Mounting, seen: Observed | None, decision: Decision) -> None:
    """Say that somebody mounted or unmounted by hand what was as it is wanted when it was last applied."""
    last = sides.last.resource if sides.last is not None else None
    if isinstance(last, Mounting) and mounted_by(last) == mounted_by(mounting):
        now = "unmounted" if seen is None else "mounted"
        if last.spec.state == mounting.spec.state != now:
            decision.drift.append(drifted(sides.address, "state", last.spec.state, now))


def _comes(topic: Address, situation: Situation) -> bool:
    """Tell whether a topic takes its name by this plan: it is called otherwise still."""
    wanted = situation.wanted.get(topic)
    old = wanted.moved_from if wanted is not None else None
    return old is not None and old in situation.observed and situation.is_decidable(topic)


def _mount(sides: Sides, mounting: Mounting, situation: Situation, decision: Decision) -> None:
    source = situation.given.mounts.get(sides.address)
    if not isinstance(source, MountSource):
        return  # said by the checks
    leaving = situation.observed.get(source.unmounts) if source.unmounts is not None else None
    if leaving is not None and is_under_way(leaving.state):
        decision.waiting.append(Waiting(sides.address, MIGRATING, after=source.unmounts))
        return
    decision.actions.append(_transition(sides, mounting, None, source.location, situation, decision))


def _unmount(sides: Sides, mounting: Mounting, seen: Observed, situation: Situation, decision: Decision) -> Transition:
    location = seen.legacy.location if seen.legacy is not None else mounting.metadata.name
    if situation.capabilities(mounting.cluster).mountings_by_jobs:
        decision.warn(
            sides.address,
            sides.wanted.source,
            f"producers of topic {mounting.topic_name} are refused once most of it is archived",
            "Stop them first, or let them find its records elsewhere. It is deleted only once all of it was compared. "
            "Where that fails they are let in again.",
        )
    return _transition(sides, mounting, seen, location, situation, decision)


def _transition(
    sides: Sides, mounting: Mounting, topic: Observed | None, location: str, situation: Situation, decision: Decision
) -> Transition:
    """Return the move to where a mounting says; it sets back what somebody did by hand, where that drifted."""
    machine = MOUNT if topic is None else UNMOUNT
    moved = (found for found in decision.drift if found.address == sides.address)
    changes = tuple(Change(found.path, found.observed, found.recorded, drift=True) for found in moved)
    parameters: dict[str, Value] = {"source": location}
    if mounting.spec.as_ is not None:
        parameters["as"] = mounting.spec.as_
    if mounting.spec.timeout is not None:
        parameters["timeout_ms"] = mounting.spec.timeout
    if situation.capabilities(mounting.cluster).mountings_by_jobs:
        parameters["by"] = BY_JOBS
    return Transition(
        address=sides.address,
        machine=machine.name,
        verb=machine.name,
        from_state="unmounted" if topic is None else "mounted",
        to_state=mounting.spec.state,
        after=mounting,
        parameters=parameters,
        risk=Risk.NONE if topic is None else Risk.DISRUPTIVE,
        reasons=(Reason.ROLE_WANTED, *((Reason.DRIFTED,) if changes else ())),
        changes=changes,
        source=sides.wanted.source,
        precondition=state_precondition(sides.address, topic) if topic else "",
    )


def _remembered(sides: Sides, mounting: Mounting, seen: Observed | None, situation: Situation) -> Adopt:
    """Return the action by which the record learns of a mounting that is as it should be, and where its topic lies."""
    source = situation.given.mounts.get(sides.address)
    location = source.location if isinstance(source, MountSource) else None
    if seen is not None:
        location = seen.legacy.location if seen.legacy is not None else None
    return Adopt(
        address=sides.address,
        observed=mounting,
        after=mounting,
        incarnation=seen.incarnation if seen is not None else None,
        physical_name=location,
        reasons=(Reason.ALREADY_EXISTS if sides.last is None else Reason.RECORD_ONLY,),
        source=sides.wanted.source,
    )


def _follow(sides: Sides, old: Address, decision: Decision) -> None:
    """Let the record of a mounting go where it is called now; nothing is called."""
    mounting = sides.wanted.resource
    moved = Adopt(
        address=sides.address,
        observed=mounting,
        after=mounting,
        moved_from=old,
        reasons=(Reason.MOVED,),
        source=sides.wanted.source,
    )
    decision.settled.add(old)
    decision.actions += [moved, Forget(address=old, reasons=(Reason.MOVED,))]


def decide_moved_mounting(sides: Sides, old: Address, situation: Situation, decision: Decision) -> bool:
    """Decide about a mounting that says what it was called before; `False`: that name means nothing any more."""
    last = situation.recorded.get(old)
    mounting, source = sides.wanted.resource, sides.wanted.source
    if old == sides.address or last is None or not isinstance(mounting, Mounting):
        return False
    before = last.resource
    if old in situation.wanted:
        hint = "Remove movedFrom, or one of the two."
        decision.refuse(sides.address, source, f"{old}, which it is moved from, is declared too", hint)
    elif sides.last is not None:
        hint = f"Remove movedFrom: {old} is forgotten then, and its topic stays as it is."
        decision.refuse(sides.address, source, f"{old}, which it was moved from, is recorded too", hint)
    elif isinstance(before, Mounting) and _is_left_behind(before, mounting, situation):
        message = f"its topic is called {before.topic_name} here, and would be {mounting.topic_name}"
        hint = f"Keep the name with `as: {before.spec.as_ or before.metadata.name}`, or let the Topic move with it."
        decision.settled.add(old)
        decision.refuse(sides.address, source, message, hint)
    else:
        decide_mounting(replace(sides, last=last), situation, decision, old)
    return True


def _is_left_behind(before: Mounting, mounting: Mounting, situation: Situation) -> bool:
    """Tell whether a topic keeps a name that its mounting does not have any more."""
    old, new = mounted_by(before), mounted_by(mounting)
    is_there = old != new and old in situation.observed and new not in situation.observed
    wanted = situation.wanted.get(new)
    return is_there and (wanted is None or wanted.moved_from != old)
