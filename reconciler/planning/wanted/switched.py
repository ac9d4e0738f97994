"""What the tiering switches of a topic say: by all that stands now, and once everything wanted is done."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from reconciler.planning.fields import CONFIGS
from reconciler.planning.situation import unset_paths
from reconciler.resources.address import Address, cluster_of, full_name_of, split_name
from reconciler.resources.namespace import Namespace
from reconciler.resources.tierrules import CLUSTER, SWITCHES, lay_over
from reconciler.resources.topic import Topic

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from reconciler.planning.situation import Situation
    from reconciler.resources.inventory import Observed
    from reconciler.resources.kinds import Resource
    from reconciler.resources.tierrules import Configs

SWITCH_PATHS = frozenset(CONFIGS + key for key in SWITCHES)
"""The fields of topics and namespaces that switch tiering."""


@dataclass(frozen=True, slots=True)
class Switched:
    """Lays the switches of a topic over those of its tiers and what the cluster gave it; the nearest wins."""

    situation: Situation

    def now(self, address: Address, seen: Observed) -> Configs:
        """Return what holds now for what is observed at an address."""
        return self._laid(address, _switches(seen.resource), seen, self.own_now)

    def then(self, address: Address, seen: Observed, old: Address | None = None) -> Configs:
        """Return what will hold at an address; `old` is where the topic is still, if it moves there."""
        return self._laid(address, self.own_then(address, old), seen, self.own_then)

    def moved(self, address: Address, seen: Observed) -> Configs:
        """Return what will hold for a topic as it is, once it has moved to an address."""
        return self._laid(address, _switches(seen.resource), seen, self.own_then)

    def own_then(self, address: Address, old: Address | None = None) -> Mapping[str, str]:
        """Return what a topic or namespace will say itself: what is wanted of it, and what is not ours to change."""
        place = old or address
        own, wanted = self.own_now(place), self.situation.wanted.get(address)
        if wanted is None or not self.situation.is_decidable(address):
            return own
        last = self.situation.recorded.get(place)
        ours = {*_switches(last.resource if last else None), *_unset(wanted.origins)}
        return {**{key: value for key, value in own.items() if key not in ours}, **_switches(wanted.resource)}

    def own_now(self, address: Address) -> Mapping[str, str]:
        """Return what a topic or namespace says itself now."""
        seen = self.situation.observed.get(address)
        return _switches(seen.resource if seen else None)

    def _laid(
        self, address: Address, own: Mapping[str, str], seen: Observed, of_tier: Callable[[Address], Mapping[str, str]]
    ) -> Configs:
        found: dict[str, tuple[str, str]] = {}
        lay_over(found, seen.initial, CLUSTER)
        namespace, _ = split_name(full_name_of(address))
        for tier in reversed(self.situation.nearest(cluster_of(address) or "", namespace)):
            lay_over(found, of_tier(tier), tier)
        lay_over(found, own, address)
        return found


def _switches(resource: Resource | None) -> Mapping[str, str]:
    if not isinstance(resource, Topic | Namespace):
        return {}
    return {key: value for key, value in resource.spec.configs.items() if key in SWITCHES}


def _unset(origins: Mapping[str, str]) -> frozenset[str]:
    return frozenset(path.removeprefix(CONFIGS) for path in unset_paths(origins))
