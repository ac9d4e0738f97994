"""Resources as the documents that declare them, without what holds anyway."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, assert_never

from reconciler.manifests.editing.layout import laid_out
from reconciler.resources.cluster import Cluster
from reconciler.resources.mirrorlink import MirrorLink, MirrorTopic
from reconciler.resources.mounting import Mounting
from reconciler.resources.namespace import Namespace
from reconciler.resources.quantities import format_duration, format_size
from reconciler.resources.tieringpolicy import TieringPolicy
from reconciler.resources.topic import Topic
from reconciler.workflow.accepting.fresh import metadata_of, spec_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from reconciler.resources.inventory import Inventory
    from reconciler.resources.kinds import Resource

_DURATIONS: Final = frozenset({"time"})
_SIZES: Final = frozenset({"bytes", "segmentBytes"})
_USUAL: Final[Mapping[str, Any]] = {"deletionProtection": True, "properties": {}}


def document_text(resource: Resource, inventory: Inventory) -> str:
    """Return a resource as its manifest; the mirrors of a link are those that the inventory has of it."""
    match resource:
        case Topic() | Namespace() | MirrorLink():
            metadata: dict[str, Any] = metadata_of(resource.address, resource)
            spec: Mapping[str, Any] = dict(spec_of(resource, inventory))
        case TieringPolicy():
            metadata, spec = {"name": resource.metadata.name}, _policy(resource)
        case Cluster():
            metadata, spec = {"name": resource.metadata.name}, _cluster(resource)
        case Mounting() | MirrorTopic():
            message = f"{resource.address} is declared by others"
            raise ValueError(message)
        case _:
            assert_never(resource)
    labels = dict(resource.metadata.labels)
    return laid_out(
        {
            "apiVersion": "reconciler/v1",
            "kind": resource.kind,
            "metadata": {**metadata, **({"labels": labels} if labels else {})},
            "spec": spec,
        }
    )


def _policy(policy: TieringPolicy) -> dict[str, Any]:
    said = policy.spec.to_json()
    if said.get("onDisable") == "retain":
        del said["onDisable"]
    return {key: _quantity(key, value) for key, value in said.items()}


def _quantity(key: str, value: Any) -> Any:
    if isinstance(value, dict):
        return {inner: _quantity(inner, item) for inner, item in value.items()}
    if key in _DURATIONS:
        return format_duration(value)
    return format_size(value) if key in _SIZES else value


def _cluster(cluster: Cluster) -> dict[str, Any]:
    """Return how a cluster is reached, and the id that tells it from any other."""
    said = cluster.spec.to_json()
    for key in _USUAL.keys() & said.keys():
        if said[key] == _USUAL[key]:
            del said[key]
    connection = said.get(cluster.spec.provider, {})
    if connection.get("namespaceSeparator") == ".":
        del connection["namespaceSeparator"]
    return said
