"""Topics that are not there and lie in object storage: compared, before they are mounted, as they will be then."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, assert_never

from reconciler.lifecycles.mounting import is_under_way
from reconciler.lifecycles.tiering import TieringState
from reconciler.planning.actions import Adopt, Create, Delete, Forget, Reason, RunJob, Transition, Update
from reconciler.planning.canonical import plain
from reconciler.planning.deciding.converge import converge
from reconciler.planning.deciding.decision import Decision
from reconciler.planning.deciding.differences import drifted
from reconciler.planning.situation import mounted_by
from reconciler.planning.wanted.acting import ActingConfigs
from reconciler.planning.wanted.mountedconfigs import configs_once_mounted, configs_said_now
from reconciler.resources.inventory import Observed, RemoteLegacy
from reconciler.resources.mountable import MountSource
from reconciler.resources.mounting import Mounting
from reconciler.resources.topic import Topic, TopicSpec

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from reconciler.planning.actions import Action
    from reconciler.planning.deciding.decision import Sides
    from reconciler.planning.situation import Situation

DETACHED_AT: Final = "detached at "
"""How drift begins that says where a topic lies that is gone from its cluster."""


def decide_mounted(sides: Sides, mounting: Mounting, situation: Situation, decision: Decision) -> None:
    """Decide what of a topic changes once it is mounted; without a mount, or while one is under way, nothing does."""
    under_way = situation.observed.get(mounting.address)
    source = situation.given.mounts.get(mounting.address)
    if not isinstance(source, MountSource) or not situation.is_decidable(mounting.address):
        return
    if under_way is not None and is_under_way(under_way.state):
        return  # what it will be is compared when it is there
    there = _as_mounted(sides, source, situation)
    if there is None:
        return
    found = Decision()
    converge(replace(sides, before=there), situation, found)
    decision.actions += not_there_yet(found.actions)
    decision.errors += found.errors
    decision.warnings += found.warnings


def lies_detached(sides: Sides, situation: Situation, decision: Decision) -> None:
    """Refuse to make a topic anew that somebody unmounted by hand, and say where what it held lies."""
    location = situation.given.detached[sides.address]
    if sides.last is not None:
        recorded = plain(sides.last.resource.to_json())
        decision.drift.append(drifted(sides.address, "", recorded, f"{DETACHED_AT}{location}"))
    decision.refuse(
        sides.address,
        sides.wanted.source,
        f"somebody unmounted it: it lies detached at {location}",
        f"To have its records back declare a Mounting with state: mounted and source: {location}; to leave it there, "
        f"one with state: unmounted. To make a new and empty one: reconciler state rm {sides.address}",
    )


def not_there_yet(actions: Iterable[Action]) -> Iterator[Action]:
    """Yield what is done to a topic that was not there when it was decided: nothing of it can have drifted."""
    for action in actions:
        match action:
            case Update() | Transition():
                changes = tuple(replace(change, drift=False) for change in action.changes)
                reasons = (Reason.CHANGED if each is Reason.DRIFTED else each for each in action.reasons)
                yield replace(action, changes=changes, reasons=tuple(dict.fromkeys(reasons)), precondition="")
            case Adopt():
                yield replace(action, precondition="")
            case Create() | Delete() | RunJob() | Forget():
                yield action
            case _:
                assert_never(action)


def _as_mounted(sides: Sides, source: MountSource, situation: Situation) -> Observed | None:
    """Return a topic as it will be; `None`: what is known of it was not looked at."""
    topic = sides.wanted.resource
    if not isinstance(topic, Topic):
        return None
    if source.found is not None:
        found = source.found
        partitions, factor, initial = found.partitions, found.replication_factor, found.initial
        own, all_set = found.own, found.configs
    else:
        seen = _leaving(source, situation)
        if seen is None or not isinstance(seen.resource, Topic):
            return None
        spec = seen.resource.spec
        partitions, factor, initial = spec.partitions or 1, spec.replication_factor or 1, seen.initial
        own, all_set = spec.configs, configs_said_now(seen.resource, seen.initial, situation)
    above = ActingConfigs(situation).above(topic.cluster, topic.metadata.namespace, initial)
    catalog = situation.capabilities(topic.cluster).configs
    spec = TopicSpec(
        partitions=partitions,
        replication_factor=factor,
        configs=configs_once_mounted(own, all_set, above, catalog),
    )
    there = topic.model_copy(update={"spec": spec})
    legacy = RemoteLegacy(source.location, is_deleted=False)
    return Observed(there, state=TieringState.ENABLED.value, initial=initial, legacy=legacy)


def _leaving(source: MountSource, situation: Situation) -> Observed | None:
    """Return the topic that this plan detaches first."""
    detaching = situation.wanted.get(source.unmounts) if source.unmounts is not None else None
    if detaching is None or not isinstance(detaching.resource, Mounting):
        return None
    return situation.observed.get(mounted_by(detaching.resource))
