"""Mirrors: made from their source, brought to the role wanted of them, and copied for the first time by a job."""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from reconciler.lifecycles.mirror import MIRROR, MirrorStatus
from reconciler.lifecycles.roles import Ask, Held, Refuse, Wait, towards
from reconciler.planning.actions import Reason, Risk, RunJob, Transition
from reconciler.planning.deciding.converge import Sides, converge, create
from reconciler.planning.deciding.decision import precondition, state_precondition
from reconciler.planning.plan import Waiting
from reconciler.planning.situation import Wanted, source_of, topic_of
from reconciler.planning.wanted.sources import taken_from_source
from reconciler.resources.mirrorlink import MirrorTopic

if TYPE_CHECKING:
    from reconciler.planning.deciding.decision import Decision
    from reconciler.planning.situation import Situation
    from reconciler.resources.inventory import Observed

_COPIES = frozenset({MirrorStatus.ACTIVE, MirrorStatus.SOURCE_UNAVAILABLE})


def decide_mirror(sides: Sides, situation: Situation, decision: Decision) -> None:
    """Decide about one mirror."""
    mirror = sides.wanted.resource
    if not isinstance(mirror, MirrorTopic) or not situation.capabilities(mirror.cluster).links:
        return  # without links, the link itself was refused
    if sides.before is None:
        _make(sides, mirror, situation, decision)
    else:
        _bring(sides, mirror, sides.before, situation, decision)


def _make(sides: Sides, mirror: MirrorTopic, situation: Situation, decision: Decision) -> None:
    topic = topic_of(mirror)
    there = situation.observed.get(topic)
    source = sides.wanted.source
    if mirror.state != "mirroring":
        if there is None:
            hint = "Begin with state mirroring, or remove the entry."
            decision.refuse(sides.address, source, f"it is not there, so it cannot become {mirror.state}", hint)
        return  # an ordinary topic by now: what it was asked to become
    if mirror.source_cluster not in situation.trusted:
        message = f"it is left out: its source, cluster {mirror.source_cluster}, was not read"
        decision.warn(sides.address, source, message, "Plan again with both clusters.")
        return
    if there is not None and not (topic in situation.recorded and topic not in situation.wanted):
        hint = "Delete that topic first, or give the link a prefix: a mirror is never made over an existing topic."
        decision.refuse(sides.address, source, f"{topic} exists", hint)
        return
    parameters = taken_from_source(mirror, situation)
    partitions = parameters.get("partitions")
    made = mirror.model_copy(update={"partitions": partitions}) if isinstance(partitions, int) else mirror
    wanted = Wanted(made, source, sides.wanted.origins)
    create(Sides(sides.address, wanted, sides.last, None), decision, parameters)
    decision.actions.append(first_copy(sides, mirror))


def _bring(sides: Sides, mirror: MirrorTopic, before: Observed, situation: Situation, decision: Decision) -> None:
    status = _status(before)
    if status is None:
        decision.waiting.append(Waiting(sides.address, before.state or ""))
        return
    verdict = towards(mirror.state, status)
    match verdict:
        case Refuse():
            message = f"it is {status} and cannot become {mirror.state}"
            legal = ", ".join(MIRROR.legal(status)) or "none"
            hint = f"{verdict.hint} Legal from there: {legal}."
            decision.refuse(sides.address, sides.wanted.source, message, hint)
        case Wait():
            decision.waiting.append(Waiting(sides.address, status.value))
        case Held() | Ask():
            converge(sides, situation, decision)
            if isinstance(verdict, Ask):
                _ask(sides, mirror, before, verdict, decision)
            is_resumed = isinstance(verdict, Ask)
            is_copying = mirror.state == "mirroring" and (is_resumed or status in _COPIES)
            if is_copying and not before.first_copy_done and mirror.source_cluster in situation.trusted:
                decision.actions.append(first_copy(sides, mirror))
        case _:
            assert_never(verdict)


def _ask(sides: Sides, mirror: MirrorTopic, before: Observed, verdict: Ask, decision: Decision) -> None:
    state = _status(before) or MirrorStatus.ACTIVE
    for verb in verdict.verbs:
        reached = MIRROR.step(state, verb)
        decision.actions.append(
            Transition(
                address=sides.address,
                machine=MIRROR.name,
                verb=verb,
                from_state=state.value,
                to_state=reached.value,
                after=mirror,
                risk=_RISKS.get(verb, Risk.DISRUPTIVE),
                reasons=(Reason.ROLE_WANTED,),
                source=sides.wanted.source,
                precondition=state_precondition(sides.address, before),
            )
        )
        state = reached


_RISKS = {
    "resume": Risk.NONE,
    "promote": Risk.IRREVERSIBLE,
    "failover": Risk.IRREVERSIBLE,
    "truncate-and-restore": Risk.DATA_LOSS,
}
"""What a verb may cost; the rest interrupt something."""


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


def _status(before: Observed) -> MirrorStatus | None:
    try:
        return MirrorStatus(before.state or MirrorStatus.ACTIVE)
    except ValueError:
        return None
