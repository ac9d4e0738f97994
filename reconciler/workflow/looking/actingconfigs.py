"""Configs as they act on a topic: its own, else the nearest tier's, else the platform's default."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, assert_never

from reconciler.resources.address import Address, address_of, cluster_of, full_name_of, kind_of, split_name, tiers_of
from reconciler.resources.cluster import Cluster
from reconciler.resources.mirrorlink import MirrorLink, MirrorTopic
from reconciler.resources.mounting import Mounting
from reconciler.resources.namespace import Namespace
from reconciler.resources.tieringpolicy import TieringPolicy
from reconciler.resources.topic import Topic

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from reconciler.providers.base import Provider
    from reconciler.resources.capabilities import Capabilities
    from reconciler.resources.inventory import Inventory
    from reconciler.resources.kinds import Resource


@dataclass(frozen=True, slots=True)
class ConfigRow:
    """A value that holds. `origin` is an address, or `default`."""

    key: str
    value: str
    origin: str


def acting_configs(address: Address, observed: Inventory, capabilities: Capabilities) -> tuple[ConfigRow, ...]:
    """Return every config that acts on a topic, mirror or namespace as it is observed, sorted by key."""
    rows = {
        key: ConfigRow(key, known.default, "default")
        for key, known in capabilities.configs.items()
        if known.default is not None
    }
    for layer in _layers(address, capabilities):
        found = observed.get(layer)
        for key, value in (configs_of(found.resource) if found else {}).items():
            rows[key] = ConfigRow(key, value, layer)
    return tuple(rows[key] for key in sorted(rows))


def configs_on(provider: Provider, address: Address, observed: Inventory) -> tuple[ConfigRow, ...]:
    """Return what acts on an address, and of a mirror also what its link took over from its source."""
    rows = acting_configs(address, observed, provider.capabilities)
    found = observed.get(address)
    if found is None or not isinstance(found.resource, MirrorTopic):
        return rows
    link = address_of("link", found.resource.cluster, found.resource.link)
    held = provider.source_topic(address).configs
    return tuple(
        ConfigRow(row.key, held[row.key], link) if held.get(row.key, row.value) != row.value else row for row in rows
    )


def _layers(address: Address, capabilities: Capabilities) -> Iterator[Address]:
    """Yield who sets configs for an address, the farthest first."""
    cluster, name = cluster_of(address) or "", full_name_of(address)
    is_namespace = kind_of(address) == "namespace"
    namespace = name if is_namespace else split_name(name)[0]
    if capabilities.inherits_configs or is_namespace:
        yield from (address_of("namespace", cluster, tier) for tier in tiers_of(namespace))
    if not is_namespace:
        yield address


def configs_of(resource: Resource) -> Mapping[str, str]:
    """Return the configs a resource has as its own."""
    match resource:
        case Topic() | Namespace():
            return resource.spec.configs
        case MirrorTopic():
            return resource.configs
        case Cluster() | TieringPolicy() | Mounting() | MirrorLink():
            return {}
        case _:
            assert_never(resource)
