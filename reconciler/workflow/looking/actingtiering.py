"""What tiering makes of a topic: whether it uploads and fetches, how much it keeps where, and by which rule each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from reconciler.lifecycles.tiering import TieringState
from reconciler.planning.fields import CONFIGS
from reconciler.resources.address import Address, address_of, cluster_address, tiers_of
from reconciler.resources.cluster import Cluster
from reconciler.resources.clusterproperties import CONFIG_DEFAULTS, ENABLED
from reconciler.resources.namespace import Namespace
from reconciler.resources.tierrules import (
    CLUSTER,
    SWITCHES,
    disable_policy_in,
    lay_over,
    switch_rules_in,
    switches_in,
    targets_in,
)
from reconciler.resources.topic import Topic

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from reconciler.resources.inventory import Inventory, Observed
    from reconciler.resources.tierrules import Configs, Switches

_TRUE: Final = "true"
_UNLIMITED: Final = "-1"
_POLICY: Final = "remote.log.disable.policy"


@dataclass(frozen=True, slots=True)
class TieringRow:
    """One number or switch that holds, as platforms store it, and the rule by which it came about."""

    key: str
    value: str
    rule: str


def acting_tiering(
    address: Address, inventory: Inventory, origins: Mapping[Address, Mapping[str, str]]
) -> tuple[TieringRow, ...]:
    """Return what holds for a topic as the inventory has it; nothing where nobody ever spoke of tiering it.

    `origins` of what was recorded name the policies that values came from.
    """
    found = inventory.get(address)
    if found is None or not isinstance(found.resource, Topic):
        return ()
    configs = _configs(address, found, inventory, origins)
    is_tiered = any(state == found.state for state in TieringState)
    if not is_tiered and SWITCHES.isdisjoint(configs):
        return ()
    return tuple(_rows(found, configs, inventory))


def _rows(found: Observed, configs: Configs, inventory: Inventory) -> Iterator[TieringRow]:
    targets, rules = targets_in(configs), switch_rules_in(configs)
    switches, off = switches_in(configs), _why_off(found, configs, inventory)
    for key, is_on in (("remote.write", switches.write), ("remote.read", switches.read)):
        is_kept = key == "remote.read" and _is_kept(found, switches, configs)
        if is_kept:
            yield TieringRow(key, _TRUE, "tiering was switched off and retains what is uploaded: it stays readable")
        else:
            yield TieringRow(key, _text(is_on and off is None), off if is_on and off is not None else rules[key])
    yield TieringRow("remote.delete", _value("remote.delete", configs, _TRUE), _rule("remote.delete", configs))
    yield TieringRow(_POLICY, disable_policy_in(configs), _policy_rule(configs))
    numbers = {
        "retention.ms": targets.total_ms,
        "retention.bytes": targets.total_bytes,
        "retention.local.target.ms": targets.local_ms,
        "retention.local.target.bytes": targets.local_bytes,
    }
    for key, number in numbers.items():
        yield TieringRow(key, _UNLIMITED if number is None else str(number), targets.rules[key])
    yield TieringRow("retention.local.strict", _text(targets.is_strict), targets.rules["retention.local.strict"])


def _why_off(found: Observed, configs: Configs, inventory: Inventory) -> str | None:
    """Return what keeps a topic from being tiered whatever its own switches say (F-R-001)."""
    name = found.resource.cluster or ""
    cluster = inventory.get(cluster_address(name))
    if cluster is None or not isinstance(cluster.resource, Cluster):
        return None
    spec = cluster.resource.spec
    if spec.object_storage is None:
        return f"{cluster.resource.address} has no object storage"
    if spec.properties.get(ENABLED) != _TRUE:
        return f"{ENABLED} of {cluster.resource.address} is not true"
    if found.state == TieringState.DISABLING:
        return f"it is being switched off ({disable_policy_in(configs)})"
    return None


def _is_kept(found: Observed, switches: Switches, configs: Configs) -> bool:
    is_off = found.state in {TieringState.DISABLING, TieringState.DISABLED}
    return is_off and switches.is_off and disable_policy_in(configs) == "retain"


def _configs(
    address: Address, found: Observed, inventory: Inventory, origins: Mapping[Address, Mapping[str, str]]
) -> Configs:
    topic = found.resource
    if not isinstance(topic, Topic):
        return {}
    acting: dict[str, tuple[str, str]] = {}
    cluster = inventory.get(cluster_address(topic.cluster))
    if cluster is not None and isinstance(cluster.resource, Cluster):
        said = cluster.resource.spec.properties
        acting = {config: (said[name], CLUSTER) for name, config in CONFIG_DEFAULTS.items() if name in said}
    lay_over(acting, found.initial, CLUSTER)
    for place in (
        *(address_of("namespace", topic.cluster, tier) for tier in tiers_of(topic.metadata.namespace)),
        address,
    ):
        seen = inventory.get(place)
        if seen is not None and isinstance(seen.resource, Topic | Namespace):
            own, named = seen.resource.spec.configs, origins.get(place, {})
            lay_over(acting, own, place)
            acting.update({key: (own[key], named[CONFIGS + key]) for key in own if CONFIGS + key in named})
    return acting


def _policy_rule(configs: Configs) -> str:
    if _POLICY in configs or "remote.log.delete.on.disable" not in configs:
        return _rule(_POLICY, configs)
    return f"remote.log.delete.on.disable, {_rule('remote.log.delete.on.disable', configs)}"


def _rule(key: str, configs: Configs) -> str:
    return f"set by {configs[key][1]}" if key in configs else "nothing says otherwise: the default"


def _value(key: str, configs: Configs, default: str) -> str:
    return configs[key][0] if key in configs else default


def _text(value: bool) -> str:  # noqa: FBT001 - one value, and its text
    return "true" if value else "false"
