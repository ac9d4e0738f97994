"""What a topic will say itself once it is mounted: what it said, and what its new surroundings would say otherwise."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconciler.resources.address import cluster_address
from reconciler.resources.cluster import Cluster
from reconciler.resources.clusterproperties import CONFIG_DEFAULTS
from reconciler.resources.namespace import Namespace
from reconciler.resources.pinning import pinned, told
from reconciler.resources.tierrules import CLUSTER, Switches, lay_over, switches_in

if TYPE_CHECKING:
    from collections.abc import Mapping

    from reconciler.planning.situation import Situation
    from reconciler.resources.configs import ConfigKey
    from reconciler.resources.tierrules import Configs
    from reconciler.resources.topic import Topic


def configs_once_mounted(
    own: Mapping[str, str], all_set: Mapping[str, str], above: Configs, catalog: Mapping[str, ConfigKey]
) -> dict[str, str]:
    """Return what a topic has of its own then: nothing of it changes by mounting it.

    `all_set` are the configs that were set for it, by itself and its surroundings; `above` those that will act there.
    """
    return pinned(above, own, all_set, catalog)


def configs_said_now(topic: Topic, initial: Mapping[str, str], situation: Situation) -> dict[str, str]:
    """Return all configs that are set for a topic that is there: by its cluster, its tiers and itself."""
    return told(_said_now(topic, initial, situation))


def switches_now(topic: Topic, initial: Mapping[str, str], situation: Situation) -> Switches:
    """Return whether a topic that is there uploads to and fetches from object storage."""
    return switches_in(_said_now(topic, initial, situation))


def _said_now(topic: Topic, initial: Mapping[str, str], situation: Situation) -> Configs:
    found: dict[str, tuple[str, str]] = {}
    cluster = situation.observed.get(cluster_address(topic.cluster))
    said = cluster.resource.spec.properties if cluster and isinstance(cluster.resource, Cluster) else {}
    lay_over(found, {config: said[name] for name, config in CONFIG_DEFAULTS.items() if name in said}, CLUSTER)
    lay_over(found, initial, CLUSTER)
    for tier in reversed(situation.nearest(topic.cluster, topic.metadata.namespace)):
        seen = situation.observed.get(tier)
        if seen is not None and isinstance(seen.resource, Namespace):
            lay_over(found, seen.resource.spec.configs, tier)
    lay_over(found, topic.spec.configs, topic.address)
    return found
