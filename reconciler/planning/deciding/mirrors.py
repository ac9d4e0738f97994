"""Mirrors: made from their source, brought to the role wanted of them, and copied for the first time by a job."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, assert_never

from reconciler.lifecycles.mirror import MIRROR, MirrorStatus
from reconciler.planning.actions import Change, Delete, Reason, Risk, RunJob, Transition
from reconciler.planning.deciding.converge import adopt, converge, create
from reconciler.planning.deciding.decision import Sides, precondition, state_precondition
from reconciler.planning.deciding.differences import Differences
from reconciler.planning.judging.allowances import allowances, granted_by
from reconciler.planning.plan import Waiting
from reconciler.planning.situation import COPYING, Wanted, is_live, source_of, topic_of
from reconciler.planning.wanted.commandmarks import NOTHING, STATE, is_marked, said_then
from reconciler.planning.wanted.sources import link_of, taken_from_source
from reconciler.planning.wanted.ways import (
    Asked,
    LeftOut,
    Refused,
    Step,
    Waited,
    status_of,
    way_of,
)
from reconciler.resources.mirrorlink import MirrorLink, MirrorTopic

if TYPE_CHECKING:
    from reconciler.planning.deciding.decision import Decision
    from reconciler.planning.situation import Situation
    from reconciler.planning.wanted.ways import Way
    from reconciler.resources.inventory import Observed

CATCH_UP: Final = "catch-up"
"""The job that goes before a promotion: it copies until nothing lags behind, for as long as that makes progress."""

_COPIES = frozenset({MirrorStatus.ACTIVE, MirrorStatus.SOURCE_UNAVAILABLE})
_RISKS = {
    "resume": Risk.NONE,
    "promote": Risk.IRREVERSIBLE,
    "failover": Risk.DATA_LOSS,
    "truncate-and-restore": Risk.DATA_LOSS,
}
"""What a verb may cost; the rest interrupt something."""


def decide_mirror(sides: Sides, situation: Situation, decision: Decision) -> None:
    """Decide about one mirror."""
    mirror = sides.wanted.resource
    if not isinstance(mirror, MirrorTopic) or not situation.capabilities(mirror.cluster).links:
        return  # without links, the link itself was refused
    way = way_of(mirror, situation)
    if way is None:
        _make(sides, mirror, situation, decision)
    elif _is_failed(sides, mirror) and sides.before is not None:
        _make_afresh(sides, mirror, sides.before, situation, decision)
    else:
        _go(sides, mirror, way, situation, decision)


def _make(sides: Sides, mirror: MirrorTopic, situation: Situation, decision: Decision) -> None:
    topic = topic_of(mirror)
    there = situation.observed.get(topic)
    if mirror.state not in COPYING:
        _look_at_topic(sides, mirror, there, decision)
        return
    if mirror.source_cluster not in situation.trusted:
        message = f"it is left out: its source, cluster {mirror.source_cluster}, was not read"
        _warn(sides, message, "Plan again with both clusters.", decision)
        return
    if there is not None and not (topic in situation.recorded and topic not in situation.wanted):
        hint = "Delete that topic first, or give the link a prefix: a mirror is never made over an existing topic."
        _refuse(sides, f"{topic} exists", hint, decision)
        return
    _create(sides, mirror, situation, decision)


def _look_at_topic(sides: Sides, mirror: MirrorTopic, there: Observed | None, decision: Decision) -> None:
    """An ordinary topic is what a mirror was to become; one that never mirrored anything cannot."""
    if there is None:
        hint = "Begin with state mirroring, or remove the entry."
        _refuse(sides, f"it is not there, so it cannot become {mirror.state}", hint, decision)
    elif mirror.state == "reversed":
        message = (
            f"it is an ordinary topic by now, without a record of what it mirrored: it cannot become {mirror.state}"
        )
        hint = "Mirror it over a link on the other cluster, under a name that is free there, and remove the entry."
        _refuse(sides, message, hint, decision)


def _create(sides: Sides, mirror: MirrorTopic, situation: Situation, decision: Decision) -> None:
    parameters = taken_from_source(mirror, situation)
    partitions = parameters.get("partitions")
    made = mirror.model_copy(update={"partitions": partitions}) if isinstance(partitions, int) else mirror
    wanted = Wanted(made, sides.wanted.source, sides.wanted.origins)
    create(Sides(sides.address, wanted, sides.last, None), decision, parameters)
    if mirror.state == "paused":
        state = MirrorStatus.ACTIVE
        pause = Step(mirror, "pause", state, MIRROR.step(state, "pause"))
        decision.actions.append(_transition(pause, sides, mirror, None))
    else:
        decision.actions.append(first_copy(sides, mirror))


def _is_failed(sides: Sides, mirror: MirrorTopic) -> bool:
    return mirror.state == "mirroring" and sides.before is not None and sides.before.state == MirrorStatus.FAILED


def _make_afresh(sides: Sides, mirror: MirrorTopic, before: Observed, situation: Situation, decision: Decision) -> None:
    """A mirror that failed for good is deleted and made again, if somebody allowed that; nothing else mends it."""
    delete = Delete(
        address=sides.address,
        before=before.resource,
        incarnation=before.incarnation,
        reasons=(Reason.RECREATED,),
        source=sides.wanted.source,
        precondition=precondition(sides.address, before),
    )
    legal = ", ".join(MIRROR.legal(MirrorStatus.FAILED))
    if sides.last is None or granted_by(delete, allowances(situation.given.guards, situation.given.selection)) is None:
        owned = "" if sides.last is not None else "It is not ours yet: declare it failed-over, or delete it by hand. "
        hint = (
            f"{owned}It will not recover by itself: --allow delete:{sides.address} deletes it, and mirrors it afresh. "
            f"To keep the topic with what it has: state failed-over. Legal from there: {legal}."
        )
        _refuse(sides, f"it is {MirrorStatus.FAILED} and cannot become {mirror.state}", hint, decision)
        return
    if mirror.source_cluster not in situation.trusted:
        message = f"it is left as it is, FAILED: its source, cluster {mirror.source_cluster}, was not read"
        _warn(sides, message, "Plan again with both clusters.", decision)
        return
    decision.actions.append(delete)
    _create(Sides(sides.address, sides.wanted, None, None), mirror, situation, decision)


def _go(sides: Sides, mirror: MirrorTopic, way: Way, situation: Situation, decision: Decision) -> None:
    match way:
        case Waited():
            decision.waiting.append(Waiting(way.address, way.state))
        case Refused():
            _refuse(sides, way.message, f"{_pending(sides, mirror)}{way.hint}", decision)
        case LeftOut():
            _warn(sides, way.message, way.hint, decision)
        case Asked():
            _ask(sides, mirror, way, situation, decision)
        case _:
            assert_never(way)


def _ask(sides: Sides, mirror: MirrorTopic, way: Asked, situation: Situation, decision: Decision) -> None:
    before = sides.before
    if before is not None:
        _own(sides, mirror, before, situation, decision)
        if not way.steps:
            _remember(sides, mirror, before, decision)
    for step in way.steps:
        if step.verb == "promote":
            decision.actions.append(_catch_up(sides, mirror, situation))
        seen = situation.observed.get(step.mirror.address) or situation.observed.get(topic_of(step.mirror))
        decision.actions.append(_transition(step, sides, mirror, seen))
    if before is not None and _is_to_be_copied(mirror, before, way) and mirror.source_cluster in situation.trusted:
        decision.actions.append(first_copy(sides, mirror))


def _own(sides: Sides, mirror: MirrorTopic, before: Observed, situation: Situation, decision: Decision) -> None:
    """Own and change what is there; of a stopped mirror with a Topic manifest, that one says the configs."""
    if is_live(before) or topic_of(mirror) not in situation.wanted:
        converge(sides, situation, decision)
    elif sides.last is None:
        decision.actions.append(adopt(sides, before, Differences(), Reason.ALREADY_EXISTS))


def _remember(sides: Sides, mirror: MirrorTopic, before: Observed, decision: Decision) -> None:
    """Let the record learn of a role that was brought about by hand."""
    last = sides.last.resource if sides.last is not None else None
    is_told = STATE in sides.wanted.origins
    is_told_now = is_marked(sides.last) and not is_told
    is_changed = isinstance(last, MirrorTopic) and last.state != mirror.state and not is_told
    if isinstance(last, MirrorTopic) and (is_changed or is_told_now):
        said = said_then(sides.last.origins[STATE]) if is_told_now and sides.last is not None else last.state
        found = Differences(record_changes=(Change("state", None if said == NOTHING else said, mirror.state),))
        if not any(action.address == sides.address for action in decision.actions):
            decision.actions.append(adopt(sides, before, found, Reason.RECORD_ONLY))


def _is_to_be_copied(mirror: MirrorTopic, before: Observed, way: Asked) -> bool:
    is_resumed = any(step.verb == "resume" and step.mirror is mirror for step in way.steps)
    is_copying = is_resumed or (not way.steps and status_of(before) in _COPIES)
    return mirror.state == "mirroring" and is_copying and not before.first_copy_done


def _transition(step: Step, sides: Sides, mirror: MirrorTopic, seen: Observed | None) -> Transition:
    address = step.mirror.address
    is_of_peer = address != sides.address
    return Transition(
        address=address,
        machine=MIRROR.name,
        verb=step.verb,
        from_state=step.from_state.value,
        to_state=step.to_state.value,
        after=step.mirror,
        parameters={"entry": sides.address, "role": mirror.state} if is_of_peer else {},
        risk=_RISKS.get(step.verb, Risk.DISRUPTIVE),
        reasons=(Reason.ROLE_WANTED,),
        source=sides.wanted.source,
        precondition=state_precondition(address, seen) if seen is not None else "",
    )


def _catch_up(sides: Sides, mirror: MirrorTopic, situation: Situation) -> RunJob:
    patience_ms = patience_of(mirror, situation)
    return RunJob(
        address=sides.address,
        job=CATCH_UP,
        source=source_of(mirror),
        sink=topic_of(mirror),
        parameters={} if patience_ms is None else {"timeout_ms": patience_ms},
        reasons=(Reason.ROLE_WANTED,),
        declared_at=sides.wanted.source,
        precondition=precondition(sides.address, sides.before),
    )


def patience_of(mirror: MirrorTopic, situation: Situation) -> int | None:
    """Return for how long the lag may not shrink before a promotion: as the link says once this plan is applied."""
    link = link_of(mirror)
    item = situation.wanted.get(link) or situation.observed.get(link)
    return item.resource.spec.retry_timeout if item and isinstance(item.resource, MirrorLink) else None


def first_copy(sides: Sides, mirror: MirrorTopic) -> RunJob:
    """Return the job that brings a mirror to where its source is now; keeping up afterwards is no action."""
    return RunJob(
        address=sides.address,
        job="mirror",
        source=source_of(mirror),
        sink=topic_of(mirror),
        reasons=(Reason.FIRST_COPY,),
        declared_at=sides.wanted.source,
        precondition=precondition(sides.address, sides.before),
    )


def _pending(sides: Sides, mirror: MirrorTopic) -> str:
    """Say what the files do not say yet: somebody changed the role by a command, and that is recorded."""
    last = sides.last.resource if sides.last is not None else None
    is_by_command = is_marked(sides.last)  # What was applied became so by the files, and is no secret of theirs.
    if not is_by_command or not isinstance(last, MirrorTopic) or last.state in {*COPYING, mirror.state}:
        return ""
    return f"It was made {last.state} by a command: write that into the files (reconciler drift --accept). "


def _refuse(sides: Sides, message: str, hint: str, decision: Decision) -> None:
    decision.refuse(sides.address, sides.wanted.source, message, hint, marks=sides.wanted.marks)


def _warn(sides: Sides, message: str, hint: str, decision: Decision) -> None:
    decision.warn(sides.address, sides.wanted.source, message, hint, marks=sides.wanted.marks)
