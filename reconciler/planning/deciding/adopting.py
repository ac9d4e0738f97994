"""Owning what already exists: what the record will say of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from reconciler.planning.fields import acls_of
from reconciler.resources.cluster import Cluster
from reconciler.resources.configs import DEFAULT
from reconciler.resources.mirrorlink import MirrorLink, MirrorTopic
from reconciler.resources.mounting import Mounting
from reconciler.resources.namespace import Namespace
from reconciler.resources.tieringpolicy import TieringPolicy
from reconciler.resources.topic import Topic

if TYPE_CHECKING:
    from collections.abc import Mapping

    from reconciler.planning.situation import Wanted
    from reconciler.resources.inventory import Observed
    from reconciler.resources.kinds import Resource


def as_observed(wanted: Wanted, before: Observed) -> Resource:
    """Return the wanted resource with every declared field as it is observed: owned, and not yet changed."""
    resource, seen = wanted.resource, before.resource
    match resource:
        case Topic():
            return _topic(resource, seen)
        case Namespace():
            live = seen.spec.configs if isinstance(seen, Namespace) else {}
            kept = tuple(acl for acl in resource.spec.acls if _is_there(acl.to_json(), seen))
            changed = {"configs": _shared(resource.spec.configs, live), "acls": kept}
            return resource.model_copy(update={"spec": resource.spec.model_copy(update=changed)})
        case MirrorTopic():
            live = seen.configs if isinstance(seen, MirrorTopic) else {}
            return resource.model_copy(update={"configs": _shared(resource.configs, live)})
        case MirrorLink():
            spec = seen.spec if isinstance(seen, MirrorLink) else resource.spec
            bare = spec.model_copy(update={"mirror_topics": (), "moved_from": None})
            return resource.model_copy(update={"spec": bare})
        case Cluster():
            live = seen.spec.properties if isinstance(seen, Cluster) else {}
            changed = {"properties": _shared(resource.spec.properties, live)}
            return resource.model_copy(update={"spec": resource.spec.model_copy(update=changed)})
        case Mounting() | TieringPolicy():
            return resource
        case _:
            assert_never(resource)


def observed_origins(origins: Mapping[str, str]) -> dict[str, str]:
    """Return the origins of what is owned and not yet changed: nothing of it has been unset by us."""
    return {path: origin for path, origin in origins.items() if origin != DEFAULT}


def _topic(topic: Topic, seen: Resource) -> Topic:
    if not isinstance(seen, Topic):
        return topic
    spec, live = topic.spec, seen.spec
    changed = {
        "partitions": live.partitions,
        "replication_factor": live.replication_factor if spec.replication_factor is not None else None,
        "configs": _shared(spec.configs, live.configs),
        "acls": tuple(acl for acl in spec.acls if _is_there(acl.to_json(), seen)),
    }
    return topic.model_copy(update={"spec": spec.model_copy(update=changed)})


def _shared(declared: Mapping[str, str], live: Mapping[str, str]) -> dict[str, str]:
    return {key: live[key] for key in declared if key in live}


def _is_there(rule: object, seen: Resource) -> bool:
    return rule in acls_of(seen).values()
