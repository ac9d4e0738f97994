"""Configs as they act on a topic: its own, else the nearest tier's, else the cluster's, else the platform's default."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, assert_never

from reconciler.resources.address import (
    Address,
    address_of,
    cluster_address,
    cluster_of,
    full_name_of,
    kind_of,
    split_name,
    tiers_of,
)
from reconciler.resources.cluster import Cluster
from reconciler.resources.clusterproperties import CONFIG_DEFAULTS
from reconciler.resources.configs import BROKERS, DEFAULT
from reconciler.resources.mirrorlink import MirrorLink, MirrorTopic
from reconciler.resources.mounting import Mounting
from reconciler.resources.namespace import Namespace
from reconciler.resources.tieringpolicy import TieringPolicy
from reconciler.resources.tierrules import lay_over
from reconciler.resources.topic import Topic

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from reconciler.providers.base import Provider
    from reconciler.resources.capabilities import Capabilities
    from reconciler.resources.inventory import Inventory
    from reconciler.resources.kinds import Resource


@dataclass(frozen=True, slots=True)
class ConfigRow:
    """A value that holds. `origin` is an address, `brokers`, or `default`."""

    key: str
    value: str
    origin: str


def acting_configs(address: Address, observed: Inventory, capabilities: Capabilities) -> tuple[ConfigRow, ...]:
    """Return every config that acts on a topic, mirror or namespace as it is observed, sorted by key."""
    rows = {
        key: ConfigRow(key, known.default, DEFAULT)
        for key, known in capabilities.configs.items()
        if known.default is not None
    }
    rows |= {key: ConfigRow(key, value, BROKERS) for key, value in capabilities.defaults.items()}
    acting: dict[str, tuple[str, str]] = {}
    for layer, configs in _layers(address, observed, capabilities):
        lay_over(acting, configs, layer)
    rows |= {key: ConfigRow(key, value, origin) for key, (value, origin) in acting.items()}
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


def _layers(
    address: Address, observed: Inventory, capabilities: Capabilities
) -> Iterator[tuple[Address, Mapping[str, str]]]:
    """Yield who sets which configs for an address, the farthest first."""
    of_all, seen = cluster_address(cluster_of(address) or ""), observed.get(address)
    found = observed.get(of_all)
    if found is not None and isinstance(found.resource, Cluster):
        said = found.resource.spec.properties
        yield of_all, {config: said[name] for name, config in CONFIG_DEFAULTS.items() if name in said}
    yield of_all, seen.initial if seen is not None else {}
    for place in _tiers(address, capabilities):
        there = observed.get(place)
        yield place, configs_of(there.resource) if there is not None else {}


def _tiers(address: Address, capabilities: Capabilities) -> Iterator[Address]:
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
