"""Effective configs, access rules and tiering of a topic."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from reconciler.lifecycles import TieringState
from reconciler.planning.actions import Action, Change, Create, Transition, Update
from reconciler.planning.fields import CONFIGS, PROPERTIES
from reconciler.planning.situation import is_replica
from reconciler.resources.acls import NamespaceAcl, build_rule_path, parse_rule, to_rule_fields
from reconciler.resources.address import (
    Address,
    address_of,
    cluster_address,
    cluster_of,
    full_name_of,
    kind_of,
    list_levels,
    split_name,
)
from reconciler.resources.cluster import Cluster
from reconciler.resources.cluster_properties import CONFIG_DEFAULTS, CREATION_DEFAULTS, ENABLED
from reconciler.resources.configs import BROKERS, DEFAULT
from reconciler.resources.inventory import Capabilities, Inventory, LiveTopic, Observed, Resource, read_own_configs
from reconciler.resources.mirror_link import MirrorTopic
from reconciler.resources.namespace import Namespace
from reconciler.resources.tiering_policy import (
    CLUSTER,
    SWITCHES,
    Configs,
    Switches,
    apply_layer,
    explain_switches,
    read_disable_policy,
    read_switches,
    read_targets,
)
from reconciler.resources.topic import Topic
from reconciler.runtime.dataclass import dataclass, replace

if TYPE_CHECKING:
    from reconciler.providers.protocol import Provider


@dataclass(frozen=True, slots=True)
class AclRow:
    """An applicable access rule, its path in plans, and the address that sets it."""

    path: str
    rule: NamespaceAcl
    origin: Address


def list_effective_acls(address: Address, observed: Inventory) -> tuple[AclRow, ...]:
    """Return the rules that apply to a resource, in order of evaluation."""
    rows: list[AclRow] = []
    for place in _list_acl_levels(address):
        observed_level = observed.get(place)
        if observed_level is None or observed_level.hidden is not None:
            continue
        fields = list_own_rules(observed_level.resource)
        rows += (AclRow(path, parse_rule(path, fields[path]), place) for path in sorted(fields))
        rows += (AclRow(build_rule_path(rule), rule, place) for rule in observed_level.undeclarable)
    return tuple(rows)


def list_own_rules(resource: Resource) -> Mapping[str, tuple[str, ...]]:
    """Return operations of a resource's own rules, by path."""
    return to_rule_fields(resource.spec.acls) if isinstance(resource, Topic | Namespace) else {}


def _list_acl_levels(address: Address) -> Iterator[Address]:
    cluster, name = cluster_of(address) or "", full_name_of(address)
    is_namespace = kind_of(address) == "namespace"
    for tier in list_levels(name if is_namespace else split_name(name)[0]):
        yield address_of("namespace", cluster, tier)
    if not is_namespace:
        yield address


@dataclass(frozen=True, slots=True)
class ConfigRow:
    """An effective config of a resource."""

    key: str
    value: str
    origin: str
    """The topic, a namespace, `brokers`, or `default`."""


def compute_effective_configs(
    address: Address, observed: Inventory, capabilities: Capabilities
) -> tuple[ConfigRow, ...]:
    """Return effective configs of a topic, mirror or namespace, by key."""
    if is_replica(observed.get(address)):
        return ()
    rows = {
        key: ConfigRow(key, known.default, DEFAULT)
        for key, known in capabilities.configs.items()
        if known.default is not None
    }
    rows |= {key: ConfigRow(key, value, BROKERS) for key, value in capabilities.defaults.items()}
    acting: dict[str, tuple[str, str]] = {}
    for layer, configs in _list_config_layers(address, observed, capabilities):
        apply_layer(acting, configs, layer)
    rows |= {key: ConfigRow(key, value, origin) for key, (value, origin) in acting.items()}
    return tuple(rows[key] for key in sorted(rows))


def read_effective_configs(provider: Provider, address: Address, observed: Inventory) -> tuple[ConfigRow, ...]:
    """Return effective configs, including those that a mirror copies from its source."""
    rows = compute_effective_configs(address, observed, provider.capabilities)
    mirror = observed.get(address)
    if mirror is None or not isinstance(mirror.resource, MirrorTopic):
        return rows
    link = address_of("link", mirror.resource.cluster, mirror.resource.link)
    source_configs = provider.read_source_topic(address).configs
    return tuple(
        ConfigRow(row.key, source_configs[row.key], link)
        if source_configs.get(row.key, row.value) != row.value
        else row
        for row in rows
    )


def _list_config_layers(
    address: Address, observed: Inventory, capabilities: Capabilities
) -> Iterator[tuple[Address, Mapping[str, str]]]:
    of_all, seen = cluster_address(cluster_of(address) or ""), observed.get(address)
    cluster = observed.get(of_all)
    if cluster is not None and isinstance(cluster.resource, Cluster):
        properties = cluster.resource.spec.properties
        yield of_all, {config: properties[name] for name, config in CONFIG_DEFAULTS.items() if name in properties}
    yield of_all, seen.topic.initial if seen is not None else {}
    for place in _list_config_tiers(address, capabilities):
        observed_tier = observed.get(place)
        yield place, read_own_configs(observed_tier.resource) if observed_tier is not None else {}


def _list_config_tiers(address: Address, capabilities: Capabilities) -> Iterator[Address]:
    cluster, name = cluster_of(address) or "", full_name_of(address)
    is_namespace = kind_of(address) == "namespace"
    namespace = name if is_namespace else split_name(name)[0]
    if capabilities.inherits_configs or is_namespace:
        yield from (address_of("namespace", cluster, tier) for tier in list_levels(namespace))
    if not is_namespace:
        yield address


_TRUE: Final = "true"
_UNLIMITED: Final = "-1"
_POLICY: Final = "remote.log.disable.policy"


@dataclass(frozen=True, slots=True)
class TieringRow:
    """An effective tiering config, and the policy or switch behind it."""

    key: str
    value: str
    rule: str


def compute_effective_tiering(
    address: Address, inventory: Inventory, origins: Mapping[Address, Mapping[str, str]]
) -> tuple[TieringRow, ...]:
    """Return a topic's effective tiering; empty if never configured.

    `origins` name the policies that set recorded configs.
    """
    topic = inventory.get(address)
    if topic is None or not isinstance(topic.resource, Topic):
        return ()
    configs = _read_tiering_configs(address, topic, inventory, origins)
    is_tiered = any(state == topic.state for state in TieringState)
    if not is_tiered and SWITCHES.isdisjoint(configs):
        return ()
    return tuple(_build_tiering_rows(topic, configs, inventory))


def _build_tiering_rows(topic: Observed, configs: Configs, inventory: Inventory) -> Iterator[TieringRow]:
    targets, rules = read_targets(configs), explain_switches(configs)
    switches, off = read_switches(configs), _explain_untiered(topic, configs, inventory)
    for key, is_on in (("remote.write", switches.write), ("remote.read", switches.read)):
        is_kept = key == "remote.read" and _keeps_remote_records(topic, switches, configs)
        if is_kept:
            yield TieringRow(key, _TRUE, "tiering was switched off and retains what is uploaded: it stays readable")
        else:
            yield TieringRow(key, _format_bool(is_on and off is None), off if is_on and off is not None else rules[key])
    yield TieringRow(
        "remote.delete", _get_value("remote.delete", configs, _TRUE), _describe_origin("remote.delete", configs)
    )
    yield TieringRow(_POLICY, read_disable_policy(configs), _describe_policy(configs))
    numbers = {
        "retention.ms": targets.total_ms,
        "retention.bytes": targets.total_bytes,
        "retention.local.target.ms": targets.local_ms,
        "retention.local.target.bytes": targets.local_bytes,
    }
    for key, number in numbers.items():
        yield TieringRow(key, _UNLIMITED if number is None else str(number), targets.rules[key])
    yield TieringRow("retention.local.strict", _format_bool(targets.is_strict), targets.rules["retention.local.strict"])


def _explain_untiered(topic: Observed, configs: Configs, inventory: Inventory) -> str | None:
    """Explain why a topic whose own switches are on has no tiering (F-R-001)."""
    name = topic.resource.cluster or ""
    cluster = inventory.get(cluster_address(name))
    if cluster is None or not isinstance(cluster.resource, Cluster):
        return None
    spec = cluster.resource.spec
    if spec.object_storage is None:
        return f"{cluster.resource.address} has no object storage"
    if spec.properties.get(ENABLED) != _TRUE:
        return f"{ENABLED} of {cluster.resource.address} is not true"
    if topic.state == TieringState.DISABLING:
        return f"it is being switched off ({read_disable_policy(configs)})"
    return None


def _keeps_remote_records(topic: Observed, switches: Switches, configs: Configs) -> bool:
    is_off = topic.state in {TieringState.DISABLING, TieringState.DISABLED}
    return is_off and switches.is_off and read_disable_policy(configs) == "retain"


def _read_tiering_configs(
    address: Address, seen_topic: Observed, inventory: Inventory, origins: Mapping[Address, Mapping[str, str]]
) -> Configs:
    topic = seen_topic.resource
    if not isinstance(topic, Topic):
        return {}
    acting: dict[str, tuple[str, str]] = {}
    cluster = inventory.get(cluster_address(topic.cluster))
    if cluster is not None and isinstance(cluster.resource, Cluster):
        properties = cluster.resource.spec.properties
        acting = {config: (properties[name], CLUSTER) for name, config in CONFIG_DEFAULTS.items() if name in properties}
    apply_layer(acting, seen_topic.topic.initial, CLUSTER)
    for place in (
        *(address_of("namespace", topic.cluster, tier) for tier in list_levels(topic.metadata.namespace)),
        address,
    ):
        seen = inventory.get(place)
        if seen is not None and isinstance(seen.resource, Topic | Namespace):
            own, named = seen.resource.spec.configs, origins.get(place, {})
            apply_layer(acting, own, place)
            acting.update({key: (own[key], named[CONFIGS + key]) for key in own if CONFIGS + key in named})
    return acting


def _describe_policy(configs: Configs) -> str:
    if _POLICY in configs or "remote.log.delete.on.disable" not in configs:
        return _describe_origin(_POLICY, configs)
    return f"remote.log.delete.on.disable, {_describe_origin('remote.log.delete.on.disable', configs)}"


def _describe_origin(key: str, configs: Configs) -> str:
    return f"set by {configs[key][1]}" if key in configs else "not set: the default"


def _get_value(key: str, configs: Configs, default: str) -> str:
    return configs[key][0] if key in configs else default


def _format_bool(value: bool) -> str:  # noqa: FBT001 - the value is the only argument
    return "true" if value else "false"


def predict_inventory(inventory: Inventory, actions: Sequence[Action]) -> dict[Address, Observed]:
    """Return the inventory after a plan's creations and changes, without deletions and moves."""
    after = dict(inventory)
    for action in actions:
        seen = after.get(action.address)
        match action:
            case Create():
                after[action.address] = Observed(
                    action.after, topic=LiveTopic(_read_creation_configs(action.after, after))
                )
            case Update() | Transition() if seen is not None:
                after[action.address] = replace(
                    seen, resource=_apply_changes(seen.resource, action.after, action.changes)
                )
            case _:
                pass
    return after


def _apply_changes(seen: Resource, wanted: Resource, changes: Sequence[Change]) -> Resource:
    match seen:
        case Topic() | Namespace():
            spec = seen.spec.model_copy(update={"configs": _apply_to_configs(seen.spec.configs, CONFIGS, changes)})
            return seen.model_copy(update={"spec": spec})
        case Cluster() if isinstance(wanted, Cluster):
            properties = _apply_to_configs(seen.spec.properties, PROPERTIES, changes)
            spec_of_all = wanted.spec.model_copy(update={"properties": properties})
            return wanted.model_copy(update={"spec": spec_of_all})
        case _:
            return seen


def _apply_to_configs(before: Mapping[str, str], group: str, changes: Sequence[Change]) -> dict[str, str]:
    after = dict(before)
    for change in changes:
        if change.path.startswith(group):
            key = change.path.removeprefix(group)
            if change.after is None:
                after.pop(key, None)
            else:
                after[key] = str(change.after)
    return after


def _read_creation_configs(made: Resource, inventory: Mapping[Address, Observed]) -> dict[str, str]:
    cluster = inventory.get(cluster_address(made.cluster or ""))
    if not isinstance(made, Topic) or cluster is None or not isinstance(cluster.resource, Cluster):
        return {}
    properties = cluster.resource.spec.properties
    return {config: "true" for name, config in CREATION_DEFAULTS.items() if properties.get(name) == "true"}
