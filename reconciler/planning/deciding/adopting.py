"""Owning what already exists: what the record will say of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar, assert_never

from reconciler.resources.aclpaths import rule_fields, rule_path
from reconciler.resources.cluster import Cluster
from reconciler.resources.configs import DEFAULT
from reconciler.resources.mirrorlink import MirrorLink, MirrorTopic
from reconciler.resources.mounting import Mounting
from reconciler.resources.namespace import Namespace
from reconciler.resources.tieringpolicy import TieringPolicy
from reconciler.resources.topic import Topic

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from reconciler.planning.situation import Wanted
    from reconciler.resources.acls import TopicAcl
    from reconciler.resources.inventory import Observed
    from reconciler.resources.kinds import Resource

Rule = TypeVar("Rule", bound="TopicAcl")


def as_observed(wanted: Wanted, before: Observed) -> Resource:
    """Return the wanted resource with every declared field as it is observed: owned, and not yet changed."""
    resource, seen = wanted.resource, before.resource
    match resource:
        case Topic():
            return _topic(resource, seen)
        case Namespace():
            if not isinstance(seen, Namespace):
                return resource
            changed = {
                "configs": _shared(resource.spec.configs, seen.spec.configs),
                "acls": _shared_rules(resource.spec.acls, seen.spec.acls),
            }
            return resource.model_copy(update={"spec": resource.spec.model_copy(update=changed)})
        case MirrorTopic():
            live = seen.configs if isinstance(seen, MirrorTopic) else {}
            return resource.model_copy(update={"configs": _shared(resource.configs, live)})
        case MirrorLink():
            spec = seen.spec if isinstance(seen, MirrorLink) else resource.spec
            bare = spec.model_copy(update={"mirror_topics": (), "moved_from": None})
            return resource.model_copy(update={"spec": bare})
        case Cluster():
            return _cluster(resource, seen)
        case Mounting() | TieringPolicy():
            return resource
        case _:
            assert_never(resource)


def observed_origins(origins: Mapping[str, str]) -> dict[str, str]:
    """Return the origins of what is owned and not yet changed: nothing of it has been unset by us."""
    return {path: origin for path, origin in origins.items() if origin != DEFAULT}


def _cluster(cluster: Cluster, seen: Resource) -> Cluster:
    if not isinstance(seen, Cluster):
        return cluster
    spec, live = cluster.spec, seen.spec
    changed = {
        "properties": _shared(spec.properties, live.properties),
        "object_storage": spec.object_storage if live.object_storage is not None else None,
    }
    return cluster.model_copy(update={"spec": spec.model_copy(update=changed)})


def _topic(topic: Topic, seen: Resource) -> Topic:
    if not isinstance(seen, Topic):
        return topic
    spec, live = topic.spec, seen.spec
    changed = {
        "partitions": live.partitions,
        "replication_factor": live.replication_factor if spec.replication_factor is not None else None,
        "configs": _shared(spec.configs, live.configs),
        "acls": _shared_rules(spec.acls, live.acls),
    }
    return topic.model_copy(update={"spec": spec.model_copy(update=changed)})


def _shared(declared: Mapping[str, str], live: Mapping[str, str]) -> dict[str, str]:
    return {key: live[key] for key in declared if key in live}


def _shared_rules(declared: Sequence[Rule], live: Sequence[TopicAcl]) -> tuple[Rule, ...]:
    """Return the declared rules that are there, with the operations they have there."""
    there = rule_fields(live)
    ours = {path: rule for rule in declared if (path := rule_path(rule)) in there}
    return tuple(rule.model_copy(update={"operations": there[path]}) for path, rule in ours.items())
