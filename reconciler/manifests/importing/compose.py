"""From what was found to resources of ours: every topic by its flat name, in the default namespace.

What is in namespaces, and what topics share, is found out afterwards, as `export` does it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pydantic import ValidationError

from reconciler.manifests.importing.connections import secrets_of
from reconciler.manifests.importing.found import Lost, Place
from reconciler.manifests.importing.permissions import permissions_of
from reconciler.manifests.importing.topics import composed_topic, named_topics
from reconciler.manifests.problems import path_text
from reconciler.manifests.sentences import complaints_of
from reconciler.resources.bindings import Binding
from reconciler.resources.cluster import Cluster
from reconciler.resources.topic import Topic

if TYPE_CHECKING:
    from reconciler.manifests.importing.found import FoundCluster, Reading
    from reconciler.manifests.importing.targets import Target


@dataclass(slots=True)
class Flat:
    """What was found of one cluster: topics by the names they have there, and rules that no topic carries."""

    topics: dict[str, Topic] = field(default_factory=dict)
    places: dict[str, Place] = field(default_factory=dict)
    """Where each topic was written."""
    bindings: Mapping[Binding, Place] = field(default_factory=dict)


@dataclass(slots=True)
class Composed:
    """What was found by cluster, the clusters themselves, and what was not carried over."""

    flat: dict[str, Flat] = field(default_factory=dict)
    clusters: dict[str, Cluster] = field(default_factory=dict)
    lost: list[Lost] = field(default_factory=list)


def compose(reading: Reading, targets: Mapping[str, Target]) -> Composed:
    """Return what was read as resources; `targets`: each cluster as the other tool calls it → ours, maybe the same."""
    composed = Composed(lost=list(reading.lost))
    for cluster in reading.clusters:
        mark = targets[cluster.name].name if len(reading.clusters) > 1 else ""
        _add_cluster(cluster, targets[cluster.name], secrets_of(cluster.security, mark), composed)
    for target in {target.name: target for target in targets.values()}.values():
        composed.flat[target.name] = _flat(reading, targets, target, composed.lost)
    return composed


def _flat(reading: Reading, targets: Mapping[str, Target], target: Target, lost: list[Lost]) -> Flat:
    topics = (topic for topic in reading.topics if targets[topic.cluster].name == target.name)
    named = named_topics(topics, lost)
    rules = (rule for rule in reading.rules if targets[rule.cluster].name == target.name)
    permissions = permissions_of(rules, named, lost)
    flat = Flat(bindings=permissions.bindings)
    for name, found in sorted(named.items()):
        acls = permissions.topics.get(name, [])
        topic = composed_topic(found, target, acls, lost)
        if topic is not None:
            flat.topics[name], flat.places[name] = topic, found.place
        elif acls:
            lost.append(Lost(found.place, f"topic {name}", "", "its access rules are left out with it"))
    return flat


def _add_cluster(found: FoundCluster, target: Target, security: Mapping[str, str], composed: Composed) -> None:
    if target.is_declared:
        return
    subject = f"cluster {found.name or target.name}"
    if target.name in composed.clusters:
        composed.lost.append(Lost(found.place, subject, "", f"the cluster {target.name} is there already"))
        return
    kafka = {
        "bootstrapServers": list(found.bootstrap_servers),
        "security": dict(security) or None,
        "namespaceSeparator": target.separator,
    }
    spec = {"provider": target.provider, "clusterId": found.cluster_id, "kafka": kafka}
    content = {"metadata": {"name": target.name}, "spec": spec}
    try:
        composed.clusters[target.name] = Cluster.model_validate(content)
    except ValidationError as error:
        composed.lost += [
            Lost(found.place, subject, path_text(each.at), each.message, each.hint)
            for each in complaints_of(error, Cluster, content)
        ]
