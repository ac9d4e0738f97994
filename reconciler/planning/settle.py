"""Decide from what is observed whether an action in doubt has happened.

A run that died between "about to" and "done" leaves actions of which nobody knows. Names are deterministic, so looking
at their addresses tells: it has not happened, it has, or a part of it has. What fits neither is another's doing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, assert_never

from reconciler.lifecycles import LIFECYCLES, MIRROR, MOUNT, MirrorStatus, is_under_way
from reconciler.planning.actions import Action, Adopt, Change, Create, Delete, Forget, RunJob, Transition, Update, Value
from reconciler.planning.diff.mount_changes import RECOVERING
from reconciler.planning.fields import equal, fields_of
from reconciler.planning.situation import mounted_by, topic_of
from reconciler.resources.address import Address
from reconciler.resources.mirror_link import MirrorTopic
from reconciler.resources.mount import MIGRATING, Mounting

if TYPE_CHECKING:
    from reconciler.resources.inventory import Inventory, Observed
    from reconciler.resources.kafka_configs import ConfigKey


_ON_ITS_WAY: Final = "PENDING_"

Verdict: TypeAlias = Literal["absent", "done", "partial", "moving", "conflict", "unknown"]
"""`absent`: nothing of it has happened. `partial`: some has, and doing it again completes it. `moving`: the platform
still moves replicas. `conflict`: what is there is neither what it was nor what it was to be. `unknown`: it is
hidden from whoever looks."""


@dataclass(frozen=True, slots=True)
class Settlement:
    """What became of an action in doubt, as far as can be seen; `left` is what is there now, where it is done."""

    verdict: Verdict
    left: Observed | None = None

    @property
    def incarnation(self) -> str | None:
        """Which one is there."""
        return self.left.incarnation if self.left else None

    @property
    def physical_name(self) -> str | None:
        """What the platform calls it."""
        return self.left.physical_name if self.left else None


def scope_of(action: Action) -> tuple[Address, ...]:
    """Return the addresses that have to be looked at to settle an action."""
    match action:
        case Transition(after=Mounting() as mounting):
            return (action.address, mounted_by(mounting))
        case Transition(after=MirrorTopic() as mirror):
            return (action.address, topic_of(mirror))  # It becomes an ordinary topic, or ends as one.
        case Transition():
            old = action.parameters.get("from")
            return (action.address, Address(old)) if isinstance(old, str) and "/" in old else (action.address,)
        case Create() | Update() | Delete():
            # Where a platform hides a mirror, it only says so of a topic of that name.
            kind, _, name = action.address.partition("/")
            return (action.address, *((Address(f"topic/{name}"),) if kind == "mirror" else ()))
        case Adopt() | Forget() | RunJob():
            return ()
        case _:
            assert_never(action)


def settle(action: Action, observed: Inventory, catalog: Mapping[str, ConfigKey]) -> Settlement:
    """Return what became of `action`; `observed` has what is there of `scope_of(action)`, and nothing where it is not.

    A job counts as absent: what it published is found by the next one, which does the rest.
    """
    if _is_hidden(action, observed):
        return Settlement("unknown")
    there = observed.get(action.address)
    match action:
        case Create():
            return _created(action, there, catalog)
        case Update():
            return _updated(action, there, catalog)
        case Delete():
            return _deleted(action, there)
        case Transition(after=Mounting() as mounting):
            return _mounted(action, there, observed.get(mounted_by(mounting)))
        case Transition(after=MirrorTopic()):
            return _mirrored(action, there)
        case Transition():
            return _moved(action, there, observed)
        case Adopt() | Forget():
            return Settlement("done")
        case RunJob():
            return Settlement("absent")
        case _:
            assert_never(action)


def _is_hidden(action: Action, observed: Inventory) -> bool:
    """Tell whether what an action is about may not be seen; to settle a delete, its incarnation is enough."""
    found = (observed.get(address) for address in scope_of(action))
    hidden = [seen for seen in found if seen is not None and seen.hidden is not None]
    return any(not isinstance(action, Delete) or seen.incarnation is None for seen in hidden)


def _created(action: Create, there: Observed | None, catalog: Mapping[str, ConfigKey]) -> Settlement:
    if there is None:
        return Settlement("absent")
    want, have = fields_of(action.after), fields_of(there.resource)
    differing = [path for path in want if not equal(path, want[path], have.get(path), catalog)]
    if type(there.resource) is not type(action.after) or "partitions" in differing:
        return Settlement("conflict")
    return Settlement("partial" if differing or there.state == RECOVERING else "done", there)


def _updated(action: Update, there: Observed | None, catalog: Mapping[str, ConfigKey]) -> Settlement:
    if there is None:
        return Settlement("conflict")
    have = fields_of(there.resource)
    found = {_side(change, have.get(change.path), catalog) for change in action.changes}
    if "other" in found:
        return Settlement("conflict")
    if found <= {"after"}:
        is_moving = there.topic.is_moving and any(change.path == "replicationFactor" for change in action.changes)
        return Settlement("moving") if is_moving else Settlement("done", there)
    return Settlement("absent" if found == {"before"} else "partial")


def _deleted(action: Delete, there: Observed | None) -> Settlement:
    """Another one under its name is none of ours: what was to be deleted is gone."""
    is_ours = there is not None and (action.incarnation is None or there.incarnation in {None, action.incarnation})
    return Settlement("absent" if is_ours else "done")


def _moved(action: Transition, there: Observed | None, observed: Inventory) -> Settlement:
    old = next((address for address in scope_of(action) if address != action.address), None)
    if old is not None:
        match (there is not None, old in observed):
            case (True, False):
                return Settlement("done", there)
            case (False, True):
                return Settlement("absent")
            case _:
                return Settlement("conflict")
    if there is None:
        return Settlement("absent")
    match (there.state in _onward(action, action.to_state), there.state in _onward(action, action.from_state)):
        case (True, False):
            return Settlement("done", there)
        case (False, True):
            return Settlement("absent")
        case _:
            return Settlement("conflict")


def _mounted(action: Transition, migration: Observed | None, topic: Observed | None) -> Settlement:
    """Judge by a migration that is there: to mount or unmount again goes on with it, or begins after a cancelled one.

    One that came to its end is not there any more: then the topic tells, by where it lies.
    """
    if migration is not None and is_under_way(migration.state) and isinstance(migration.resource, Mounting):
        is_ours = migration.resource.spec.state == action.to_state
        return Settlement("partial" if is_ours else "conflict")
    is_mount = action.machine == MOUNT.name
    if topic is None or topic.state == MIGRATING:
        return Settlement("absent" if is_mount or topic is not None else "done")
    source = str(action.parameters.get("source"))
    # Where jobs do it a topic has no place before it is archived: its id says which it is, where the action has it.
    is_same = action.parameters.get("incarnation") in {None, topic.incarnation}
    is_it = topic.topic.legacy.location == source if topic.topic.legacy is not None else "/" not in source and is_same
    if is_mount:
        return Settlement("done", topic) if is_it else Settlement("conflict")
    return Settlement("absent" if is_it else "done")  # else the name is another topic's by now


def _mirrored(action: Transition, there: Observed | None) -> Settlement:
    """Judge by the state of the mirror it was asked of; on its way there, to ask again goes on with it."""
    if there is None or there.state is None or there.state == action.from_state:
        return Settlement("absent")
    if there.state == action.to_state:
        return Settlement("done", there)
    if there.state in _on_the_way(action):
        return Settlement("partial")
    was, will = set(MIRROR.by_itself(MirrorStatus(action.from_state))), set(_onward(action, action.to_state))
    if not action.to_state.startswith(_ON_ITS_WAY):
        will = set(MIRROR.by_itself(MirrorStatus(action.to_state)))  # what it does later is of another transition
    match (there.state in will, there.state in was):
        case (True, False):
            return Settlement("done", there)
        case (False, True):
            return Settlement("absent")
        case _:
            return Settlement("conflict")


def _on_the_way(action: Transition) -> frozenset[str]:
    """Return the states a verb of more than one step passes through."""
    ends = {move.end for move in MIRROR.moves if (move.start, move.verb) == (action.from_state, action.verb)}
    begun = {end for end in ends if end != action.to_state}
    further = {end for state in begun for end in MIRROR.by_itself(state) if end.startswith(_ON_ITS_WAY)}
    return frozenset(begun | further)


def _onward(action: Transition, state: str) -> frozenset[str]:
    """Return a state and what follows it by itself: nobody looks at the very moment in which a move is made."""
    lifecycle = LIFECYCLES.get(action.machine)
    found, open_ends = [state], [state] if lifecycle is not None else []
    while lifecycle is not None and open_ends:
        here = open_ends.pop()
        known = next((known for known in lifecycle.states if known == here), None)
        further = [end for end in lifecycle.by_itself(known) if end not in found] if known is not None else []
        found += further
        open_ends += [end for end in further if end.startswith(_ON_ITS_WAY)]
    return frozenset(found)


def _side(change: Change, have: Value, catalog: Mapping[str, ConfigKey]) -> Literal["before", "after", "other"]:
    if equal(change.path, change.after, have, catalog):
        return "after"
    return "before" if equal(change.path, change.before, have, catalog) else "other"
