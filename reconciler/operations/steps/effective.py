"""Configs, access rules and tiering as they act on a topic."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from reconciler.lifecycles import TieringState
from reconciler.planning.actions import Action, Change, Create, Transition, Update
from reconciler.planning.fields import CONFIGS, PROPERTIES
from reconciler.planning.situation import is_replica
from reconciler.resources.acls import NamespaceAcl, rule_at, rule_fields, rule_path
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
from reconciler.resources.cluster_properties import CONFIG_DEFAULTS, CREATION_DEFAULTS, ENABLED
from reconciler.resources.configs import BROKERS, DEFAULT
from reconciler.resources.inventory import Capabilities, Inventory, LiveTopic, Observed, Resource, configs_of
from reconciler.resources.mirror_link import MirrorTopic
from reconciler.resources.namespace import Namespace
from reconciler.resources.tiering_policy import (
    CLUSTER,
    SWITCHES,
    Configs,
    Switches,
    disable_policy_in,
    lay_over,
    switch_rules_in,
    switches_in,
    targets_in,
)
from reconciler.resources.topic import Topic

if TYPE_CHECKING:
    from reconciler.providers.protocol import Provider


@dataclass(frozen=True, slots=True)
class AclRow:
    """A rule that is asked. `path` names it as plans do, `origin` is the address of what it lies on."""

    path: str
    rule: NamespaceAcl
    origin: Address


def acting_acls(address: Address, observed: Inventory) -> tuple[AclRow, ...]:
    """Return every rule that is asked about an address, in the order in which they are."""
    rows: list[AclRow] = []
    for place in _levels(address):
        found = observed.get(place)
        if found is None or found.hidden is not None:
            continue
        fields = rules_of(found.resource)
        rows += (AclRow(path, rule_at(path, fields[path]), place) for path in sorted(fields))
        rows += (AclRow(rule_path(rule), rule, place) for rule in found.undeclarable)
    return tuple(rows)


def rules_of(resource: Resource) -> Mapping[str, tuple[str, ...]]:
    """Return the access rules a resource has as its own: path → operations."""
    return rule_fields(resource.spec.acls) if isinstance(resource, Topic | Namespace) else {}


def _levels(address: Address) -> Iterator[Address]:
    cluster, name = cluster_of(address) or "", full_name_of(address)
    is_namespace = kind_of(address) == "namespace"
    for tier in tiers_of(name if is_namespace else split_name(name)[0]):
        yield address_of("namespace", cluster, tier)
    if not is_namespace:
        yield address


# Configs as they act on a topic: its own, else the nearest tier's, else the cluster's, else the platform's default.


@dataclass(frozen=True, slots=True)
class ConfigRow:
    """A value that holds. `origin` is an address, `brokers`, or `default`."""

    key: str
    value: str
    origin: str
    """Where it comes from: the topic, a namespace, `brokers` (what they do by themselves), or `default`."""


def acting_configs(address: Address, observed: Inventory, capabilities: Capabilities) -> tuple[ConfigRow, ...]:
    """Return every config that acts on a topic, mirror or namespace as it is observed, sorted by key."""
    if is_replica(observed.get(address)):
        return ()  # What it holds, and how long, its source says.
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
    yield of_all, seen.topic.initial if seen is not None else {}
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


# What tiering makes of a topic: whether it uploads and fetches, how much it keeps where, and by which rule each.


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
    lay_over(acting, found.topic.initial, CLUSTER)
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


# An inventory as it will be once a plan is applied, as far as configs and properties go.


def afterwards(inventory: Inventory, actions: Sequence[Action]) -> dict[Address, Observed]:
    """Return an inventory with what a plan makes and changes; what it deletes and moves stays as it is."""
    after = dict(inventory)
    for action in actions:
        seen = after.get(action.address)
        match action:
            case Create():
                after[action.address] = Observed(action.after, topic=LiveTopic(_creation(action.after, after)))
            case Update() | Transition() if seen is not None:
                after[action.address] = replace(seen, resource=_changed(seen.resource, action.after, action.changes))
            case _:
                pass
    return after


def _changed(seen: Resource, wanted: Resource, changes: Sequence[Change]) -> Resource:
    """Return what is there with its changes: what nobody here ever set stays."""
    match seen:
        case Topic() | Namespace():
            spec = seen.spec.model_copy(update={"configs": _moved(seen.spec.configs, CONFIGS, changes)})
            return seen.model_copy(update={"spec": spec})
        case Cluster() if isinstance(wanted, Cluster):
            properties = _moved(seen.spec.properties, PROPERTIES, changes)
            spec_of_all = wanted.spec.model_copy(update={"properties": properties})
            return wanted.model_copy(update={"spec": spec_of_all})
        case _:
            return seen


def _moved(before: Mapping[str, str], group: str, changes: Sequence[Change]) -> dict[str, str]:
    after = dict(before)
    for change in changes:
        if change.path.startswith(group):
            key = change.path.removeprefix(group)
            if change.after is None:
                after.pop(key, None)
            else:
                after[key] = str(change.after)
    return after


def _creation(made: Resource, inventory: Mapping[Address, Observed]) -> dict[str, str]:
    """Return what the cluster's defaults will give a new topic."""
    found = inventory.get(cluster_address(made.cluster or ""))
    if not isinstance(made, Topic) or found is None or not isinstance(found.resource, Cluster):
        return {}
    said = found.resource.spec.properties
    return {config: "true" for name, config in CREATION_DEFAULTS.items() if said.get(name) == "true"}
