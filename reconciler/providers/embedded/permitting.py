"""What a principal needs for each action of a plan."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, assert_never

from reconciler.embedded.access.operations import Kind, Operation
from reconciler.errors import NotAuthorizedError
from reconciler.lifecycles.mounting import UNMOUNT
from reconciler.lifecycles.tiering import TIERING
from reconciler.planning.actions import Create, Delete, Transition, Update
from reconciler.resources.address import Address, full_name_of, kind_of
from reconciler.resources.cluster import Cluster
from reconciler.resources.mirrorlink import MirrorLink
from reconciler.resources.mirrortopic import MirrorTopic
from reconciler.resources.mounting import Mounting
from reconciler.resources.namespace import Namespace
from reconciler.resources.tieringpolicy import TieringPolicy
from reconciler.resources.topic import Topic

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from reconciler.embedded.access.permissions import Permissions
    from reconciler.embedded.catalog.tables import Catalog, Draft
    from reconciler.planning.actions import Change, ControlAction
    from reconciler.resources.inventory import Inventory, Observed
    from reconciler.resources.kinds import Resource

_KINDS: Final[Mapping[str, Kind]] = {
    "namespace": Kind.NAMESPACE,
    "topic": Kind.TOPIC,
    "mirror": Kind.TOPIC,
    "mounting": Kind.TOPIC,
}
_CONFIGS: Final = "configs."


def hide(who: Permissions, catalog: Catalog, inventory: Inventory) -> dict[Address, Observed]:
    """Return an inventory in which what may not be described says so; clusters and links everyone may see."""

    def shown(address: Address, observed: Observed) -> Observed:
        try:
            check_shown(who, catalog, address)
            if isinstance(observed.resource, Mounting):  # It may call its topic otherwise.
                who.check(catalog, Operation.DESCRIBE, Kind.TOPIC, observed.resource.topic_name)
        except NotAuthorizedError as error:
            return replace(observed, hidden=error)
        return observed

    return {address: shown(address, observed) for address, observed in inventory.items()}


def check_shown(who: Permissions, catalog: Catalog, address: Address) -> None:
    """Refuse who may not describe what an address names, be it there or not; clusters and links everyone may see.

    Raises:
        NotAuthorizedError: By which rule.
    """
    kind = _KINDS.get(kind_of(address))
    if kind is not None:
        who.check(catalog, Operation.DESCRIBE, kind, full_name_of(address))


def check_action(who: Permissions, draft: Draft, action: ControlAction) -> None:
    """Refuse an action that whoever acts may not do, by the rules as they are now.

    Raises:
        NotAuthorizedError: Says what is not allowed, and by which rule.
    """
    if who.is_super_user:
        return
    match action:
        case Create() | Update():
            resource = action.after
        case Delete():
            resource = action.before
        case Transition():
            _check_move(who, draft, action)
            return
        case _:
            assert_never(action)
    kind = _kind_of(resource)
    if kind is None:
        who.check_super_user(f"{action.verb} {action.address}")
        return
    for operation in _needed(action):
        who.check(draft, operation, kind, full_name_of(action.address))


def _check_move(who: Permissions, draft: Draft, action: Transition) -> None:
    if action.machine == TIERING.name:
        who.check(draft, Operation.ALTER_CONFIGS, Kind.TOPIC, full_name_of(action.address))
        return
    if isinstance(action.after, Mounting):
        _check_mounting(who, draft, action, action.after)
        return
    old = action.parameters.get("from")
    if action.verb != "move" or not isinstance(old, str):
        who.check_super_user(f"{action.verb} {action.address}")
        return
    who.check(draft, Operation.DELETE, Kind.TOPIC, full_name_of(Address(old)))
    who.check(draft, Operation.CREATE, Kind.TOPIC, full_name_of(action.address))


def _check_mounting(who: Permissions, draft: Draft, action: Transition, mounting: Mounting) -> None:
    """Refuse a mount but by the super user, as a recovery: what lies in object storage may be anybody's."""
    if action.machine == UNMOUNT.name:
        who.check(draft, Operation.DELETE, Kind.TOPIC, mounting.topic_name)
        return
    who.check(draft, Operation.CREATE, Kind.TOPIC, mounting.topic_name)
    who.check_super_user(f"{action.verb} {action.address}")


def _kind_of(resource: Resource) -> Kind | None:
    """Return what rules there are about a resource; `None` where it is the super user's alone."""
    match resource:
        case Topic():
            return Kind.TOPIC
        case Namespace():
            return Kind.NAMESPACE
        case Cluster() | MirrorLink() | MirrorTopic() | Mounting() | TieringPolicy():
            return None
        case _:
            assert_never(resource)


def _needed(action: Create | Update | Delete) -> Iterator[Operation]:
    match action:
        case Create():
            yield Operation.CREATE
            if isinstance(action.after, Topic | Namespace) and action.after.spec.acls:
                yield Operation.ALTER
        case Update():
            yield from sorted({_operation_of(change) for change in action.changes})
        case Delete():
            yield Operation.DELETE
        case _:
            assert_never(action)


def _operation_of(change: Change) -> Operation:
    return Operation.ALTER_CONFIGS if change.path.startswith(_CONFIGS) else Operation.ALTER
