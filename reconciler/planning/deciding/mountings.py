"""Mountings: whether a topic is attached here, and what that leaves of its Topic manifest."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconciler.lifecycles.mounting import MOUNT, UNMOUNT, MigrationState
from reconciler.planning.actions import Adopt, Reason, Risk, Transition
from reconciler.planning.deciding.decision import state_precondition
from reconciler.planning.plan import Waiting
from reconciler.resources.address import address_of
from reconciler.resources.mounting import Mounting

if TYPE_CHECKING:
    from reconciler.planning.actions import Value
    from reconciler.planning.deciding.converge import Sides
    from reconciler.planning.deciding.decision import Decision
    from reconciler.planning.situation import Situation
    from reconciler.resources.inventory import Observed

_DONE = frozenset({MigrationState.FINISHED.value, MigrationState.GONE.value, MigrationState.CANCELLED.value})


def decide_mounting(sides: Sides, situation: Situation, decision: Decision) -> None:
    """Decide about one mounting: mount, unmount, wait, or only remember that it is as it should be."""
    mounting = sides.wanted.resource
    if not isinstance(mounting, Mounting):
        return
    running = sides.before.state if sides.before else None
    if running is not None and running not in _DONE:
        decision.waiting.append(Waiting(sides.address, running))
        return
    topic = situation.observed.get(address_of("topic", mounting.cluster, mounting.topic_name))
    if (topic is not None) != (mounting.spec.state == "mounted"):
        decision.actions.append(_transition(sides, mounting, topic))
    elif sides.last is None or sides.last.resource != mounting:
        reason = Reason.ALREADY_EXISTS if sides.last is None else Reason.RECORD_ONLY
        decision.actions.append(
            Adopt(
                address=sides.address, observed=mounting, after=mounting, reasons=(reason,), source=sides.wanted.source
            )
        )


def _transition(sides: Sides, mounting: Mounting, topic: Observed | None) -> Transition:
    machine = MOUNT if topic is None else UNMOUNT
    parameters: dict[str, Value] = {"source": mounting.spec.source or mounting.metadata.name}
    if mounting.spec.as_ is not None:
        parameters["as"] = mounting.spec.as_
    if mounting.spec.timeout is not None:
        parameters["timeout_ms"] = mounting.spec.timeout
    return Transition(
        address=sides.address,
        machine=machine.name,
        verb=machine.name,
        from_state="unmounted" if topic is None else "mounted",
        to_state=mounting.spec.state,
        after=mounting,
        parameters=parameters,
        risk=Risk.NONE if topic is None else Risk.DISRUPTIVE,
        reasons=(Reason.ROLE_WANTED,),
        source=sides.wanted.source,
        precondition=state_precondition(sides.address, topic) if topic else "",
    )
