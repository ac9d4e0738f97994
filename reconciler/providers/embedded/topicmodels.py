"""Topics of a catalog as resources: ten thousand of them in a tenth of a second."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconciler.embedded.access.rules import topic_rules
from reconciler.resources.address import split_name
from reconciler.resources.metadata import InNamespace
from reconciler.resources.topic import Topic, TopicSpec

if TYPE_CHECKING:
    from reconciler.embedded.catalog.entries import TopicEntry


class TopicModels:
    """Copies of one checked model, and one spec for all that are alike."""

    def __init__(self, cluster: str) -> None:
        self._pattern = Topic(metadata=InNamespace(name="t", cluster=cluster), spec=TopicSpec(partitions=1))
        self._specs: dict[object, TopicSpec] = {}

    def of(self, full_name: str, entry: TopicEntry) -> Topic:
        """Return a topic as its catalog has it, own configs only."""
        namespace, name = split_name(full_name)
        alike = entry.partitions, entry.replication_factor, entry.acls, *entry.configs.items()
        spec = self._specs.get(alike)
        if spec is None:
            shape = {
                "partitions": entry.partitions,
                "replication_factor": entry.replication_factor,
                "configs": dict(entry.configs),
                "acls": topic_rules(entry.acls),
            }
            spec = self._specs[alike] = self._pattern.spec.model_copy(update=shape)
        metadata = self._pattern.metadata.model_copy(update={"name": name, "namespace": namespace})
        return self._pattern.model_copy(update={"metadata": metadata, "spec": spec})
