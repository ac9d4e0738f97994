"""Configs as they will act on a topic once the plan is done: its own over its tiers' over the cluster's defaults."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias, assert_never

from reconciler.planning.fields import CONFIGS
from reconciler.planning.situation import unset_paths
from reconciler.resources.address import address_of, cluster_address, split_name, tiers_of
from reconciler.resources.cluster import Cluster
from reconciler.resources.clusterproperties import CONFIG_DEFAULTS, CREATION_DEFAULTS
from reconciler.resources.mirrorlink import MirrorLink, MirrorTopic
from reconciler.resources.mounting import Mounting
from reconciler.resources.namespace import Namespace
from reconciler.resources.tieringpolicy import TieringPolicy
from reconciler.resources.tierrules import CLUSTER, lay_over
from reconciler.resources.topic import Topic

if TYPE_CHECKING:
    from collections.abc import Mapping

    from reconciler.planning.situation import Situation
    from reconciler.resources.address import Address
    from reconciler.resources.kinds import Resource

Acting: TypeAlias = dict[str, tuple[str, str]]
"""Config → (value, origin): the address of a topic, a tier or a policy, or `cluster`."""


class ActingConfigs:
    """Works out what acts on topics and namespaces; what is above them is worked out once."""

    def __init__(self, situation: Situation) -> None:
        self._situation = situation
        self._above: dict[tuple[str, str, tuple[tuple[str, str], ...]], Acting] = {}
        self._properties: dict[str, dict[str, str]] = {}

    def of(self, resource: Topic | Namespace) -> Acting:
        """Return what will act on a topic, or on topics made in a namespace.

        What is new takes over what the cluster's defaults will be by then.
        """
        match resource:
            case Topic():
                above, seen = resource.metadata.namespace, self._situation.observed.get(resource.address)
            case Namespace():
                above, seen = split_name(resource.metadata.name)[0], None
            case _:
                assert_never(resource)
        initial = self._creation(resource.cluster) if seen is None else seen.initial
        found = dict(self._over(resource.cluster, above, initial))
        self._lay(found, resource.address)
        return found

    def above(self, cluster: str, namespace: str, initial: Mapping[str, str]) -> Acting:
        """Return what will act on a topic of a namespace that says nothing itself, made with the defaults `initial`."""
        return dict(self._over(cluster, namespace, initial))

    def properties(self, cluster: str) -> Mapping[str, str]:
        """Return the properties a cluster will have."""
        if cluster not in self._properties:
            self._properties[cluster] = self._said(cluster_address(cluster))
        return self._properties[cluster]

    def _creation(self, cluster: str) -> Mapping[str, str]:
        properties = self.properties(cluster)
        return {config: "true" for name, config in CREATION_DEFAULTS.items() if properties.get(name) == "true"}

    def _over(self, cluster: str, namespace: str, initial: Mapping[str, str]) -> Acting:
        place = cluster, namespace, tuple(initial.items())
        if place not in self._above:
            properties = self.properties(cluster)
            found: Acting = {
                config: (properties[name], CLUSTER) for name, config in CONFIG_DEFAULTS.items() if name in properties
            }
            lay_over(found, initial, CLUSTER)
            for tier in tiers_of(namespace):
                self._lay(found, address_of("namespace", cluster, tier))
            self._above[place] = found
        return self._above[place]

    def _lay(self, found: Acting, address: Address) -> None:
        configs = self._said(address)
        lay_over(found, configs, address)
        wanted = self._situation.wanted.get(address)
        for path, origin in wanted.origins.items() if wanted is not None else ():
            key = path.removeprefix(CONFIGS)
            if key in configs:
                found[key] = configs[key], origin

    def _said(self, address: Address) -> dict[str, str]:
        """Return what an address will say itself: what is wanted, and what nobody here ever set."""
        situation = self._situation
        wanted, seen = situation.wanted.get(address), situation.observed.get(address)
        last = situation.recorded.get(address)
        live = _own(seen.resource) if seen is not None else {}
        if wanted is None:
            return dict(live)
        goal = _own(wanted.resource)
        if goal == live:
            return dict(goal)
        ours = {*(_own(last.resource) if last is not None else ())}
        ours |= {path.partition(".")[2] for path in unset_paths(wanted.origins)}
        return {**{key: value for key, value in live.items() if key not in ours}, **goal}


def _own(resource: Resource) -> Mapping[str, str]:
    """Return what a resource says itself of the keys that act on topics: configs, or a cluster's properties."""
    match resource:
        case Topic() | Namespace():
            return resource.spec.configs
        case Cluster():
            return resource.spec.properties
        case MirrorTopic():
            return resource.configs
        case MirrorLink() | Mounting() | TieringPolicy():
            return {}
        case _:
            assert_never(resource)
