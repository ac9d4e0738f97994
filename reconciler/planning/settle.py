"""Determine from observed resources whether an interrupted action has happened."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, assert_never

from reconciler.lifecycles import LIFECYCLES, MIRROR, MOUNT, MirrorStatus, is_in_progress
from reconciler.planning.actions import Action, Adopt, Change, Create, Delete, Forget, RunJob, Transition, Update, Value
from reconciler.planning.diff.mount_changes import RECOVERING
from reconciler.planning.fields import is_equal_value, list_fields
from reconciler.planning.situation import as_topic, get_mounted_topic
from reconciler.resources.address import Address
from reconciler.resources.mirror_link import MirrorTopic
from reconciler.resources.mount import MIGRATING, Mounting
from reconciler.runtime.dataclass import dataclass

if TYPE_CHECKING:
    from reconciler.resources.inventory import Inventory, Observed
    from reconciler.resources.kafka_configs import ConfigKey


_PENDING: Final = "PENDING_"

ActionVerdict: TypeAlias = Literal["absent", "done", "partial", "moving", "conflict", "unknown"]
"""`absent`: the action did not happen. `partial`: repeating it completes it. `moving`: brokers still move replicas.
`conflict`: another process changed the resource. `unknown`: reconciler may not read the resource.
"""


@dataclass(frozen=True, slots=True)
class Settlement:
    """The verdict on an interrupted action. `left` is the resource after a completed action."""

    verdict: ActionVerdict
    left: Observed | None = None

    @property
    def incarnation(self) -> str | None:
        """Incarnation of the resource, if known."""
        return self.left.incarnation if self.left else None

    @property
    def physical_name(self) -> str | None:
        """Name on the platform, if known."""
        return self.left.physical_name if self.left else None


def list_settled_addresses(action: Action) -> tuple[Address, ...]:
    """Return the addresses to observe for settling an action."""
    match action:
        case Transition(after=Mounting() as mounting):
            return (action.address, get_mounted_topic(mounting))
        case Transition(after=MirrorTopic() as mirror):
            return (action.address, as_topic(mirror))
        case Transition():
            old = action.parameters.get("from")
            return (action.address, Address(old)) if isinstance(old, str) and "/" in old else (action.address,)
        case Create() | Update() | Delete():
            kind, _, name = action.address.partition("/")
            return (action.address, *((Address(f"topic/{name}"),) if kind == "mirror" else ()))
        case Adopt() | Forget() | RunJob():
            return ()
        case _:
            assert_never(action)


def settle_action(action: Action, observed: Inventory, catalog: Mapping[str, ConfigKey]) -> Settlement:
    """Return the verdict on an action. `observed` has the addresses of `list_settled_addresses`.

    A job is always absent, because its next run completes it.
    """
    if _is_hidden(action, observed):
        return Settlement("unknown")
    current = observed.get(action.address)
    match action:
        case Create():
            return _settle_create(action, current, catalog)
        case Update():
            return _settle_update(action, current, catalog)
        case Delete():
            return _settle_delete(action, current)
        case Transition(after=Mounting() as mounting):
            return _settle_mount(action, current, observed.get(get_mounted_topic(mounting)))
        case Transition(after=MirrorTopic()):
            return _settle_mirror(action, current)
        case Transition():
            return _settle_move(action, current, observed)
        case Adopt() | Forget():
            return Settlement("done")
        case RunJob():
            return Settlement("absent")
        case _:
            assert_never(action)


def _is_hidden(action: Action, observed: Inventory) -> bool:
    resources = (observed.get(address) for address in list_settled_addresses(action))
    hidden = [seen for seen in resources if seen is not None and seen.hidden is not None]
    return any(not isinstance(action, Delete) or seen.incarnation is None for seen in hidden)


def _settle_create(action: Create, current: Observed | None, catalog: Mapping[str, ConfigKey]) -> Settlement:
    if current is None:
        return Settlement("absent")
    want, have = list_fields(action.after), list_fields(current.resource)
    differing = [path for path in want if not is_equal_value(path, want[path], have.get(path), catalog)]
    if type(current.resource) is not type(action.after) or "partitions" in differing:
        return Settlement("conflict")
    return Settlement("partial" if differing or current.state == RECOVERING else "done", current)


def _settle_update(action: Update, current: Observed | None, catalog: Mapping[str, ConfigKey]) -> Settlement:
    if current is None:
        return Settlement("conflict")
    if action.is_trim:
        return Settlement("absent")  # Deleting the same records again changes nothing.
    have = list_fields(current.resource)
    sides = {_find_matching_side(change, have.get(change.path), catalog) for change in action.changes}
    if "other" in sides:
        return Settlement("conflict")
    if sides <= {"after"}:
        is_moving = current.topic.is_moving and any(change.path == "replicationFactor" for change in action.changes)
        return Settlement("moving") if is_moving else Settlement("done", current)
    return Settlement("absent" if sides == {"before"} else "partial")


def _settle_delete(action: Delete, current: Observed | None) -> Settlement:
    is_ours = current is not None and (action.incarnation is None or current.incarnation in {None, action.incarnation})
    return Settlement("absent" if is_ours else "done")


def _settle_move(action: Transition, current: Observed | None, observed: Inventory) -> Settlement:
    old = next((address for address in list_settled_addresses(action) if address != action.address), None)
    if old is not None:
        match (current is not None, old in observed):
            case (True, False):
                return Settlement("done", current)
            case (False, True):
                return Settlement("absent")
            case _:
                return Settlement("conflict")
    if current is None:
        return Settlement("absent")
    match (
        current.state in _list_following_states(action, action.to_state),
        current.state in _list_following_states(action, action.from_state),
    ):
        case (True, False):
            return Settlement("done", current)
        case (False, True):
            return Settlement("absent")
        case _:
            return Settlement("conflict")


def _settle_mount(action: Transition, migration: Observed | None, topic: Observed | None) -> Settlement:
    if migration is not None and is_in_progress(migration.state) and isinstance(migration.resource, Mounting):
        is_ours = migration.resource.spec.state == action.to_state
        return Settlement("partial" if is_ours else "conflict")
    is_mount = action.machine == MOUNT.name
    if topic is None or topic.state == MIGRATING:
        return Settlement("absent" if is_mount or topic is not None else "done")
    source = str(action.parameters.get("source"))
    # A topic never tiered has no location; then `source` is its name.
    is_same = action.parameters.get("incarnation") in {None, topic.incarnation}
    is_it = topic.topic.legacy.location == source if topic.topic.legacy is not None else "/" not in source and is_same
    if is_mount:
        return Settlement("done", topic) if is_it else Settlement("conflict")
    return Settlement("absent" if is_it else "done")  # If another topic has the name, the unmount is done.


def _settle_mirror(action: Transition, current: Observed | None) -> Settlement:
    if current is None or current.state is None or current.state == action.from_state:
        return Settlement("absent")
    if current.state == action.to_state:
        return Settlement("done", current)
    if current.state in _list_intermediate_states(action):
        return Settlement("partial")
    was, will = (
        set(MIRROR.list_automatic_states(MirrorStatus(action.from_state))),
        set(_list_following_states(action, action.to_state)),
    )
    if not action.to_state.startswith(_PENDING):
        # A state that only a later request can cause belongs to another transition.
        will = set(MIRROR.list_automatic_states(MirrorStatus(action.to_state)))
    match (current.state in will, current.state in was):
        case (True, False):
            return Settlement("done", current)
        case (False, True):
            return Settlement("absent")
        case _:
            return Settlement("conflict")


def _list_intermediate_states(action: Transition) -> frozenset[str]:
    ends = {move.end for move in MIRROR.moves if (move.start, move.verb) == (action.from_state, action.verb)}
    begun = {end for end in ends if end != action.to_state}
    further = {end for state in begun for end in MIRROR.list_automatic_states(state) if end.startswith(_PENDING)}
    return frozenset(begun | further)


def _list_following_states(action: Transition, state: str) -> frozenset[str]:
    lifecycle = LIFECYCLES.get(action.machine)
    reached, open_ends = [state], [state] if lifecycle is not None else []
    while lifecycle is not None and open_ends:
        reached_state = open_ends.pop()
        known = next((known for known in lifecycle.states if known == reached_state), None)
        further = (
            [end for end in lifecycle.list_automatic_states(known) if end not in reached] if known is not None else []
        )
        reached += further
        open_ends += [end for end in further if end.startswith(_PENDING)]
    return frozenset(reached)


def _find_matching_side(
    change: Change, have: Value, catalog: Mapping[str, ConfigKey]
) -> Literal["before", "after", "other"]:
    if is_equal_value(change.path, change.after, have, catalog):
        return "after"
    return "before" if is_equal_value(change.path, change.before, have, catalog) else "other"
