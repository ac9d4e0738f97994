"""Our words and the broker's: descriptions as resources, and what actions ask for. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconciler.resources import internaltopics
from reconciler.resources.address import split_name
from reconciler.resources.internaltopics import LEDGER
from reconciler.resources.metadata import InNamespace, OfNamespace
from reconciler.resources.namespace import Namespace, NamespaceSpec
from reconciler.resources.topic import Topic, TopicSpec

if TYPE_CHECKING:
    from collections.abc import Mapping

    from reconciler.providers.kafka.metadata import TopicSeen
    from reconciler.resources.acls import NamespaceAcl, TopicAcl

__all__ = ["LEDGER", "Models", "is_internal"]


def is_internal(topic: TopicSeen) -> bool:
    """Tell whether a topic is the platform's own, one of its tools', or ours."""
    return topic.is_internal or internaltopics.is_internal(topic.name)


class Models:
    """Resources of one cluster: copies of one checked model, and one spec for all topics that are alike."""

    def __init__(self, cluster: str) -> None:
        self._cluster = cluster
        self._pattern = Topic(metadata=InNamespace(name="t", cluster=cluster), spec=TopicSpec(partitions=1))
        self._specs: dict[object, TopicSpec] = {}

    def topic(
        self, full_name: str, seen: TopicSeen, configs: Mapping[str, str], acls: tuple[TopicAcl, ...] = ()
    ) -> Topic:
        """Return a topic as the broker has it, with the configs it sets itself."""
        namespace, name = split_name(full_name)
        replicas = min(map(len, seen.replicas), default=1)
        path = tuple((each.permission, each.principal, each.host, each.operations) for each in acls)
        alike = len(seen.replicas), replicas, path, *sorted(configs.items())
        spec = self._specs.get(alike)
        if spec is None:
            shape = {
                "partitions": len(seen.replicas),
                "replication_factor": replicas,
                "configs": dict(sorted(configs.items())),
                "acls": acls,
            }
            spec = self._specs[alike] = self._pattern.spec.model_copy(update=shape)
        metadata = self._pattern.metadata.model_copy(update={"name": name, "namespace": namespace})
        return self._pattern.model_copy(update={"metadata": metadata, "spec": spec})

    def namespace(self, name: str, acls: tuple[NamespaceAcl, ...]) -> Namespace:
        """Return a namespace, of which the broker knows the access rules of its prefix alone."""
        return Namespace(
            metadata=OfNamespace(name=name, cluster=self._cluster), spec=NamespaceSpec.model_construct(acls=acls)
        )
