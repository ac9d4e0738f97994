"""What loses nothing in place of a delete that is blocked: to unmount the topic, which keeps its records."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from reconciler.planning.actions import Delete, Reason
from reconciler.planning.wanted.switched import Switched
from reconciler.resources.address import cluster_of, full_name_of, split_name
from reconciler.resources.cluster import Cluster
from reconciler.resources.clusterproperties import ENABLED, UPLOADS
from reconciler.resources.tierrules import switches_in
from reconciler.resources.topic import Topic

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from reconciler.planning.actions import Action
    from reconciler.planning.situation import Situation
    from reconciler.resources.address import Address

_IN_THE_WAY: Final = frozenset({"protected", "only", "mirrored"})
"""Guards that would not let a topic be unmounted either."""


def with_advice(actions: Sequence[Action], situation: Situation) -> Iterator[Action]:
    """Yield the actions; blocked deletes of what can be unmounted say how, and so do those of what holds it."""
    for action in actions:
        if _is_blocked_loss(action) and isinstance(action, Delete) and _can_unmount(action, situation):
            yield advised(action, mounting_yaml(action.address))
        else:
            yield action


def mounting_yaml(topic: Address) -> str:
    """Return the Mounting that detaches a topic, as one line."""
    namespace, name = split_name(full_name_of(topic))
    where = f"{name}, namespace: {json.dumps(namespace)}" if namespace else name
    metadata = f"{{name: {where}, cluster: {cluster_of(topic)}}}"
    return f"{{apiVersion: reconciler/v1, kind: Mounting, metadata: {metadata}, spec: {{state: unmounted}}}}"


def advised(action: Delete, instead: str | None) -> Delete:
    """Return a blocked delete that says what to declare in place of it."""
    if action.blocked is None or instead is None:
        return action
    return replace(action, blocked=replace(action.blocked, instead=instead))


def _is_blocked_loss(action: Action) -> bool:
    is_blocked = action.blocked is not None and action.blocked.guard not in _IN_THE_WAY
    return is_blocked and Reason.HOLDS_DATA in action.reasons


def _can_unmount(action: Delete, situation: Situation) -> bool:
    """Tell whether a topic is tiered, on a cluster that can mount, and may be uploaded whole as things are."""
    topic, seen = action.before, situation.observed.get(action.address)
    cluster = situation.clusters.get(action.cluster or "")
    if not isinstance(topic, Topic) or seen is None or seen.legacy is None or seen.legacy.is_lost or cluster is None:
        return False
    if not situation.capabilities(topic.cluster).mountings or cluster.spec.object_storage is None:
        return False
    here = situation.observed.get(cluster.address)
    properties = here.resource.spec.properties if here and isinstance(here.resource, Cluster) else {}
    is_on = properties.get(ENABLED) == "true" and properties.get(UPLOADS) != "false"
    return is_on and switches_in(Switched(situation).now(action.address, seen)).write
