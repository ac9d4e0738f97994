"""An inventory as it will be once a plan is applied, as far as configs and properties go."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from reconciler.planning.actions import Create, Transition, Update
from reconciler.planning.fields import CONFIGS, PROPERTIES
from reconciler.resources.address import cluster_address
from reconciler.resources.cluster import Cluster
from reconciler.resources.clusterproperties import CREATION_DEFAULTS
from reconciler.resources.inventory import Observed
from reconciler.resources.namespace import Namespace
from reconciler.resources.topic import Topic

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from reconciler.planning.actions import Action, Change
    from reconciler.resources.address import Address
    from reconciler.resources.inventory import Inventory
    from reconciler.resources.kinds import Resource


def afterwards(inventory: Inventory, actions: Sequence[Action]) -> dict[Address, Observed]:
    """Return an inventory with what a plan makes and changes; what it deletes and moves stays as it is."""
    after = dict(inventory)
    for action in actions:
        seen = after.get(action.address)
        match action:
            case Create():
                after[action.address] = Observed(action.after, initial=_creation(action.after, after))
            case Update() | Transition() if seen is not None:
                after[action.address] = replace(seen, resource=_changed(seen.resource, action.after, action.changes))
            case _:
                pass
    return after


def _changed(seen: Resource, wanted: Resource, changes: Sequence[Change]) -> Resource:
    """Return what is there with its changes: what nobody here ever set stays."""
    match seen:
        case Topic() | Namespace():
            spec = seen.spec.model_copy(update={"configs": _moved(seen.spec.configs, CONFIGS, changes)})
            return seen.model_copy(update={"spec": spec})
        case Cluster() if isinstance(wanted, Cluster):
            properties = _moved(seen.spec.properties, PROPERTIES, changes)
            spec_of_all = wanted.spec.model_copy(update={"properties": properties})
            return wanted.model_copy(update={"spec": spec_of_all})
        case _:
            return seen


def _moved(before: Mapping[str, str], group: str, changes: Sequence[Change]) -> dict[str, str]:
    after = dict(before)
    for change in changes:
        if change.path.startswith(group):
            key = change.path.removeprefix(group)
            if change.after is None:
                after.pop(key, None)
            else:
                after[key] = str(change.after)
    return after


def _creation(made: Resource, inventory: Mapping[Address, Observed]) -> dict[str, str]:
    """Return what the cluster's defaults will give a new topic."""
    found = inventory.get(cluster_address(made.cluster or ""))
    if not isinstance(made, Topic) or found is None or not isinstance(found.resource, Cluster):
        return {}
    said = found.resource.spec.properties
    return {config: "true" for name, config in CREATION_DEFAULTS.items() if said.get(name) == "true"}
