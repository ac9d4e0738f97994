"""Tiering switched off and on again (KIP-950): a move of a lifecycle, apart from the fields that merely change."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from reconciler.lifecycles.tiering import TIERING, TieringState
from reconciler.planning.actions import Transition
from reconciler.planning.deciding.adopting import as_observed, observed_origins
from reconciler.planning.deciding.decision import precondition
from reconciler.planning.wanted.switched import SWITCH_PATHS, Switched
from reconciler.resources.address import cluster_of, split_name, tiers_of
from reconciler.resources.namespace import Namespace
from reconciler.resources.tierrules import SWITCHES, disable_policy_in, switches_in
from reconciler.resources.topic import Topic

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reconciler.planning.actions import Change
    from reconciler.planning.deciding.decision import Sides
    from reconciler.planning.deciding.differences import Differences
    from reconciler.planning.situation import Situation
    from reconciler.resources.address import Address
    from reconciler.resources.inventory import Observed

_NAMED: Final = ("remote.write", "remote.read")
_FEW: Final = 3


def parted(
    sides: Sides, before: Observed, found: Differences, situation: Situation
) -> tuple[Transition | None, Differences]:
    """Take what switches the tiering of a topic off or on again out of what differs, as the move it is.

    What is left changes in place, after it.
    """
    moving = tuple(change for change in found.changes if change.path in SWITCH_PATHS)
    state = _state_of(before)
    if not moving or state is None or not isinstance(sides.wanted.resource, Topic):
        return None, found
    old = before.resource.address if isinstance(before.resource, Topic) else None
    then = Switched(situation).then(sides.address, before, None if old == sides.address else old)
    is_off = switches_in(then).is_off
    if is_off != (state is TieringState.ENABLED):
        return None, found
    rest = replace(found, changes=tuple(change for change in found.changes if change not in moving))
    verb = "disable-tiering" if is_off else "enable-tiering"
    wanted, is_all = sides.wanted, not rest.changes
    return Transition(
        address=sides.address,
        machine=TIERING.name,
        verb=verb,
        from_state=state,
        to_state=TIERING.step(state, verb),
        after=wanted.resource if is_all else _switched(sides, before),
        parameters={"policy": disable_policy_in(then)} if is_off else {},
        changes=moving,
        reasons=found.reasons,
        source=wanted.source,
        origins=wanted.origins if is_all else observed_origins(wanted.origins),
        precondition=precondition(sides.address, before, (change.path for change in moving)),
    ), rest


def is_disabling(before: Observed) -> bool:
    """Tell whether the tiering of a topic is being switched off."""
    return _state_of(before) is TieringState.DISABLING


def problems(
    sides: Sides, before: Observed, changes: tuple[Change, ...], situation: Situation
) -> Iterator[tuple[str, str]]:
    """Yield why the tiering of a topic, or of those below a namespace, cannot change as it is wanted."""
    switched = [change for change in changes if change.path in SWITCH_PATHS]
    if not switched or before.resource.cluster is None:
        return
    concerned = list(_concerned(sides.address, before, situation))
    busy = [address for address, seen in concerned if is_disabling(seen)]
    if busy:
        which = "its tiering" if busy == [sides.address] else f"the tiering of {_some(busy)}"
        key = switched[0].path.removeprefix("configs.")
        yield (
            f"{which} is being switched off ({TieringState.DISABLING}): {key} cannot change until that is done",
            "`run` finishes it; then plan again.",
        )
    yield from _left_to_chance(sides.address, switched, concerned, situation)


def _left_to_chance(
    address: Address, switched: list[Change], concerned: list[tuple[Address, Observed]], situation: Situation
) -> Iterator[tuple[str, str]]:
    """Say that nothing would name a switch any more that is on (F-K-075)."""
    look = Switched(situation)
    for key in _NAMED:
        if not any(change.path == f"configs.{key}" and change.after is None for change in switched):
            continue
        left = [topic for topic, seen in concerned if _is_left(look, key, topic, seen)]
        if left:
            whose = "its tiered storage" if left == [address] else f"the tiered storage of {_some(left)}"
            yield (
                f"{whose} would be left to chance: nothing names {key} any more, and it is on",
                "Switch it off first: keep the policy with remoteWrite: false and remoteRead: false for one apply.",
            )
            return


def _is_left(look: Switched, key: str, topic: Address, seen: Observed) -> bool:
    value, _ = look.now(topic, seen).get(key, ("", ""))
    then = look.then(topic, seen)
    return value == "true" and key not in then and "remote.storage.enable" not in then


def _concerned(address: Address, before: Observed, situation: Situation) -> Iterator[tuple[Address, Observed]]:
    """Yield the topics whose switches a change may move: one topic, or those below a namespace."""
    resource = before.resource
    if isinstance(resource, Topic):
        yield address, before
    elif isinstance(resource, Namespace):
        name = resource.metadata.name
        for topic, seen in sorted(situation.observed.items()):
            if cluster_of(topic) == resource.cluster and isinstance(seen.resource, Topic):
                namespace, _ = split_name(seen.resource.full_name)
                if name in tiers_of(namespace):
                    yield topic, seen


def _state_of(before: Observed) -> TieringState | None:
    return next((state for state in TieringState if state == before.state), None)


def _switched(sides: Sides, before: Observed) -> Topic:
    """Return the topic with its tiering as it is wanted, and all the rest as it is observed."""
    wanted, seen = sides.wanted.resource, as_observed(sides.wanted, before)
    if not (isinstance(wanted, Topic) and isinstance(seen, Topic)):
        message = "only the tiering of topics is switched"
        raise TypeError(message)
    kept = {key: value for key, value in seen.spec.configs.items() if key not in SWITCHES}
    moved = {key: value for key, value in wanted.spec.configs.items() if key in SWITCHES}
    return seen.model_copy(update={"spec": seen.spec.model_copy(update={"configs": {**kept, **moved}})})


def _some(addresses: list[Address]) -> str:
    more = f" and {len(addresses) - _FEW} more" if len(addresses) > _FEW else ""
    return ", ".join(addresses[:_FEW]) + more
