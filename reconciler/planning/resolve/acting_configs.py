"""Effective configs of topics: own, inherited, from a policy, and after a mount."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Final, TypeAlias, assert_never

from reconciler.planning.actions import Change
from reconciler.planning.fields import CONFIGS
from reconciler.planning.plan import PlanFinding
from reconciler.planning.situation import Situation, WantedResource, list_altered_paths, list_unset_paths
from reconciler.resources.address import (
    Address,
    address_of,
    cluster_address,
    cluster_of,
    full_name_of,
    list_levels,
    split_name,
)
from reconciler.resources.cluster import Cluster
from reconciler.resources.cluster_properties import CONFIG_DEFAULTS, CREATION_DEFAULTS
from reconciler.resources.configs import DEFAULT, POLICY_KEYS, TIERING_CONFIGS
from reconciler.resources.inventory import read_own_configs
from reconciler.resources.mount import drop_origins, pin_configs
from reconciler.resources.namespace import Namespace
from reconciler.resources.tiering_policy import (
    CLUSTER,
    COPY_DISABLE,
    ENABLE,
    OFF,
    SWITCHES,
    Configs,
    Switches,
    TieringPolicy,
    TieringPolicySpec,
    apply_layer,
    find_inexpressible,
    merge_layers,
    read_switches,
    resolve_policy,
    to_policy_configs,
)
from reconciler.resources.topic import Topic
from reconciler.runtime.dataclass import dataclass

if TYPE_CHECKING:
    from reconciler.resources.inventory import (
        Capabilities,
        DeclaredResource,
        Desired,
        Inventory,
        Observed,
        Recorded,
        Resource,
    )
    from reconciler.resources.kafka_configs import ConfigKey


ActOptions: TypeAlias = dict[str, tuple[str, str]]
"""(value, origin) by config. The origin is `cluster` or the address of a topic, namespace or policy."""


class ActingConfigs:
    """Computes and caches effective configs of topics and namespaces."""

    def __init__(self, situation: Situation) -> None:
        self._situation = situation
        self._above: dict[tuple[str, str, tuple[tuple[str, str], ...]], ActOptions] = {}
        self._properties: dict[str, dict[str, str]] = {}

    def of(self, resource: Topic | Namespace) -> ActOptions:
        """Return the planned effective configs of a topic, or of new topics in a namespace."""
        match resource:
            case Topic():
                above, seen = resource.metadata.namespace, self._situation.observed.get(resource.address)
            case Namespace():
                above, seen = split_name(resource.metadata.name)[0], None
            case _:
                assert_never(resource)
        initial = self._read_creation_configs(resource.cluster) if seen is None else seen.topic.initial
        acting = dict(self._compute_inherited(resource.cluster, above, initial))
        self._add_own(acting, resource.address)
        return acting

    def above(self, cluster: str, namespace: str, initial: Mapping[str, str]) -> ActOptions:
        """Return the configs that a topic inherits. `initial` are cluster defaults at the topic's creation."""
        return dict(self._compute_inherited(cluster, namespace, initial))

    def properties(self, cluster: str) -> Mapping[str, str]:
        """Return the planned properties of a cluster."""
        if cluster not in self._properties:
            self._properties[cluster] = self._plan_own_configs(cluster_address(cluster))
        return self._properties[cluster]

    def _read_creation_configs(self, cluster: str) -> Mapping[str, str]:
        properties = self.properties(cluster)
        return {config: "true" for name, config in CREATION_DEFAULTS.items() if properties.get(name) == "true"}

    def _compute_inherited(self, cluster: str, namespace: str, initial: Mapping[str, str]) -> ActOptions:
        place = cluster, namespace, tuple(initial.items())
        if place not in self._above:
            properties = self.properties(cluster)
            acting: ActOptions = {
                config: (properties[name], CLUSTER) for name, config in CONFIG_DEFAULTS.items() if name in properties
            }
            apply_layer(acting, initial, CLUSTER)
            for tier in list_levels(namespace):
                self._add_own(acting, address_of("namespace", cluster, tier))
            self._above[place] = acting
        return self._above[place]

    def _add_own(self, acting: ActOptions, address: Address) -> None:
        configs = self._plan_own_configs(address)
        apply_layer(acting, configs, address)
        wanted = self._situation.wanted.get(address)
        for path, origin in wanted.origins.items() if wanted is not None else ():
            key = path.removeprefix(CONFIGS)
            if key in configs:
                acting[key] = configs[key], origin

    def _plan_own_configs(self, address: Address) -> dict[str, str]:
        situation = self._situation
        wanted, seen = situation.wanted.get(address), situation.observed.get(address)
        last = situation.recorded.get(address)
        live = _read_own_configs(seen.resource) if seen is not None else {}
        if wanted is None:
            return dict(live)
        goal = _read_own_configs(wanted.resource)
        if goal == live:
            return dict(goal)
        ours = {*(_read_own_configs(last.resource) if last is not None else ())}
        ours |= {path.partition(".")[2] for path in list_unset_paths(wanted.origins) | list_altered_paths(last)}
        ours |= find_reset_keys(situation, wanted, last, seen)
        return {**{key: value for key, value in live.items() if key not in ours}, **goal}


def _read_own_configs(resource: Resource) -> Mapping[str, str]:
    return resource.spec.properties if isinstance(resource, Cluster) else read_own_configs(resource)


@dataclass(frozen=True, slots=True)
class HiddenValue:
    """A config set on a topic outside the files, which overrides an inherited declared value."""

    key: str
    value: str
    declared: str
    origin: Address
    """The namespace or cluster that declares the overridden value."""
    recorded: str | None
    """The last applied value."""

    @property
    def path(self) -> str:
        """Path of the config in the topic's fields."""
        return CONFIGS + self.key


def find_hidden_values(
    situation: Situation, wanted: WantedResource, last: Recorded | None, seen: Observed | None
) -> tuple[HiddenValue, ...]:
    """Return a topic's configs that override inherited declared values."""
    topic, live = wanted.resource, seen.resource if seen is not None else None
    if not isinstance(topic, Topic) or not isinstance(live, Topic) or live.spec.configs == topic.spec.configs:
        return ()
    if not situation.find_capabilities(topic.cluster).inherits_configs:
        return ()
    ours = last.resource.spec.configs if last is not None and isinstance(last.resource, Topic) else {}
    unset = {} if last is None else last.origins.keys() - list_altered_paths(last)
    named = {*topic.spec.configs, *ours, *(path.removeprefix(CONFIGS) for path in (*wanted.origins, *unset))}
    strange = sorted(live.spec.configs.keys() - named)
    candidates = (_find_hidden(situation, topic, key, live.spec.configs[key]) for key in strange)
    return tuple(item for item in candidates if item is not None)


def find_reset_keys(
    situation: Situation, wanted: WantedResource, last: Recorded | None, seen: Observed | None
) -> frozenset[str]:
    """Return those of a topic's hidden values that the plan resets, because no rule ignores them."""
    hidden = find_hidden_values(situation, wanted, last, seen)
    address = wanted.resource.address
    return frozenset(item.key for item in hidden if situation.find_ignore_rule(address, item.path) is None)


def _find_hidden(situation: Situation, topic: Topic, key: str, value: str) -> HiddenValue | None:
    for tier in (
        *situation.list_nearest_namespaces(topic.cluster, topic.metadata.namespace),
        cluster_address(topic.cluster),
    ):
        declared, recorded = (
            _find_value_for_topics(side, key) for side in (situation.wanted.get(tier), situation.recorded.get(tier))
        )
        if declared is not None:
            return None if declared == value else HiddenValue(key, value, declared, tier, recorded)
    return None


def _find_value_for_topics(side: WantedResource | Recorded | None, key: str) -> str | None:
    resource = side.resource if side is not None else None
    if isinstance(resource, Namespace):
        return resource.spec.configs.get(key)
    if isinstance(resource, Cluster):
        names = (name for name, config in CONFIG_DEFAULTS.items() if config == key)
        return next((resource.spec.properties[name] for name in names if name in resource.spec.properties), None)
    return None


RECOVERY: Final = "remote.recovery"

NEEDS_TIERING: Final = frozenset(
    {
        *TIERING_CONFIGS,
        "local.retention.bytes",
        "local.retention.ms",
        "remote.log.copy.disable",
        "remote.log.delete.on.disable",
        "remote.storage.enable",
        OFF,
    }
)
"""Configs without effect on a cluster without tiered storage."""


_DEFAULT_ON_DISABLE: Final = ("remote.log.disable.policy", "retain")


def compile_policy(policy: TieringPolicySpec, capabilities: Capabilities) -> dict[str, str]:
    """Return the configs that a policy sets, without those that disable tiering if the platform has none.

    A platform without a policy for disabling retains remote data, which is the default of `onDisable`.
    """
    words = dict(
        _compile_directions(policy) if capabilities.tiering_words == "directions" else to_policy_configs(policy)
    )
    key, default = _DEFAULT_ON_DISABLE
    if key not in capabilities.configs and words.get(key) == default:
        del words[key]
    if capabilities.tiering:
        return words
    return {
        key: value for key, value in words.items() if not (key in NEEDS_TIERING and _is_tiering_disabled(key, value))
    }


def is_harmless(key: str, value: str, default: str | None) -> bool:
    """Return whether a tiering config has no effect on a cluster without tiering."""
    return value == default or _is_tiering_disabled(key, value)


def _is_tiering_disabled(key: str, value: str) -> bool:
    return value == "false" or key in {"remote.log.disable.policy", OFF}


def _compile_directions(policy: TieringPolicySpec) -> Iterator[tuple[str, str]]:
    for field, (word, *_others) in POLICY_KEYS.items():
        value: object = policy
        for part in field.split("."):
            value = getattr(value, part) if value is not None else None
        if value is not None:
            yield word, str(value).lower() if isinstance(value, bool) else str(value)


Layer: TypeAlias = dict[str, tuple[str, str]]
"""(declared value, address of origin) by config."""


class Inheritance:
    """Merges configs of namespaces, of which the nearest overrides others. Caches results."""

    def __init__(self, desired: Desired, observed: Inventory) -> None:
        self.findings: list[PlanFinding] = []
        self._desired = desired
        self._observed = observed
        self._above: dict[tuple[str, str], Layer] = {}
        self._read_own_configs: dict[Address, Layer] = {}

    def of_topic(self, topic: Topic, declared: DeclaredResource, capabilities: Capabilities) -> Layer:
        """Return the configs to set on a topic itself."""
        own = self._make_own_layer(topic.address, topic.spec.configs, topic.spec.tiering_policy, declared, capabilities)
        above = self.above(topic, capabilities)
        if capabilities.tiering_words == "directions":
            return {**above, **own}
        seen = self._observed.get(topic.address)
        live = seen.resource.spec.configs if seen is not None and isinstance(seen.resource, Topic) else {}
        return resolve_policy(merge_layers(above, own), topic.address, live, can_untier=capabilities.untiering)

    def above(self, topic: Topic, capabilities: Capabilities) -> Layer:
        """Return the configs that a topic inherits; empty if the platform implements inheritance."""
        if capabilities.inherits_configs or not topic.metadata.namespace:
            return {}
        place = topic.cluster, topic.metadata.namespace
        known = self._above.get(place)
        if known is None:
            # A namespace's `default` only ends inheritance; a topic's also unsets the value.
            tiers = self._merge_tiers(*place, capabilities)
            known = self._above[place] = {key: held for key, held in tiers.items() if held[0] != DEFAULT}
        return known

    def of_namespace(self, namespace: Namespace, declared: DeclaredResource, capabilities: Capabilities) -> Layer:
        """Return the configs to set on a namespace itself."""
        spec = namespace.spec
        return self._make_own_layer(namespace.address, spec.configs, spec.tiering_policy, declared, capabilities)

    def _merge_tiers(self, cluster: str, namespace: str, capabilities: Capabilities) -> Layer:
        layers: Layer = {}
        for tier in list_levels(namespace):
            declared = self._desired.get(address_of("namespace", cluster, tier))
            if declared is not None and isinstance(declared.resource, Namespace):
                layers = merge_layers(layers, self.of_namespace(declared.resource, declared, capabilities))
        return layers

    def _make_own_layer(
        self,
        address: Address,
        configs: Mapping[str, str],
        policy_name: str | None,
        declared: DeclaredResource,
        capabilities: Capabilities,
    ) -> Layer:
        known = self._read_own_configs.get(address)
        if known is not None:
            return known
        layer: Layer = {key: (value, address) for key, value in configs.items()}
        words = self._compile_policy_layer(address, policy_name, declared, capabilities)
        for key, value in words.items():
            if (key, value) == _DEFAULT_ON_DISABLE and not layer.keys().isdisjoint(POLICY_KEYS["on_disable"]):
                continue
            is_switch_twice = key == OFF and not layer.keys().isdisjoint({ENABLE, COPY_DISABLE})
            if key in layer or is_switch_twice:
                self.findings.append(
                    PlanFinding(
                        address,
                        declared.source,
                        f"{key if key != OFF else ENABLE} is set twice in one document: in configs, and by "
                        f"policy/{policy_name}",
                        "Keep one of the two.",
                    )
                )
            layer.setdefault(key, (value, f"policy/{policy_name}"))
        if not address.startswith("topic/"):
            self._read_own_configs[address] = layer
        return layer

    def _compile_policy_layer(
        self, address: Address, name: str | None, declared: DeclaredResource, capabilities: Capabilities
    ) -> Mapping[str, str]:
        if name is None:
            return {}
        policy = self._desired.get(Address(f"policy/{name}"))
        if policy is None or not isinstance(policy.resource, TieringPolicy):
            message = f"tieringPolicy {name} is not declared"
            self.findings.append(
                PlanFinding(address, declared.source, message, f"Declare a TieringPolicy named {name}.")
            )
            return {}
        if capabilities.tiering_words == "kip-405":
            self.findings += _find_unsupported_settings(address, policy.resource, declared)
        return compile_policy(policy.resource.spec, capabilities)


def _find_unsupported_settings(
    address: Address, policy: TieringPolicy, declared: DeclaredResource
) -> Iterator[PlanFinding]:
    for path, what in find_inexpressible(policy.spec):
        yield PlanFinding(
            address,
            declared.source,
            f"{policy.address} is not possible on cluster {cluster_of(address)}: {what}",
            "Remove it from the policy, or give these topics one of their own: the policy's fields are never ignored.",
            ((policy.address, ("spec", *path)),),
        )


SWITCH_PATHS = frozenset(CONFIGS + key for key in SWITCHES)


@dataclass(frozen=True, slots=True)
class SwitchReader:
    """Reads the effective tiering switches of topics: own, inherited from the nearest namespace, or the cluster's."""

    situation: Situation

    def now(self, address: Address, seen: Observed) -> Configs:
        """Return the tiering switches of an observed topic."""
        return self._merge_tiering_switches(address, _pick_switches(seen.resource), seen, self.read_own_switches)

    def then(self, address: Address, seen: Observed, old: Address | None = None) -> Configs:
        """Return the tiering switches of a topic after the plan. `old` is its current address."""
        return self._merge_tiering_switches(
            address, self.read_planned_switches(address, old), seen, self.read_planned_switches
        )

    def moved(self, address: Address, seen: Observed) -> Configs:
        """Return the tiering switches that an observed topic would have at this address."""
        return self._merge_tiering_switches(address, _pick_switches(seen.resource), seen, self.read_planned_switches)

    def read_planned_switches(self, address: Address, old: Address | None = None) -> Mapping[str, str]:
        """Return the tiering switches set on a topic or namespace after the plan."""
        place = old or address
        own, wanted = self.read_own_switches(place), self.situation.wanted.get(address)
        if wanted is None or not self.situation.can_plan(address):
            return own
        last, seen = self.situation.recorded.get(place), self.situation.observed.get(place)
        ours = {*_pick_switches(last.resource if last else None), *_find_unset_keys(wanted.origins)}
        ours |= find_reset_keys(self.situation, wanted, last, seen)
        return {**{key: value for key, value in own.items() if key not in ours}, **_pick_switches(wanted.resource)}

    def read_own_switches(self, address: Address) -> Mapping[str, str]:
        """Return the tiering switches set on a topic or namespace now."""
        seen = self.situation.observed.get(address)
        return _pick_switches(seen.resource if seen else None)

    def _merge_tiering_switches(
        self, address: Address, own: Mapping[str, str], seen: Observed, of_tier: Callable[[Address], Mapping[str, str]]
    ) -> Configs:
        switches: dict[str, tuple[str, str]] = {}
        apply_layer(switches, seen.topic.initial, CLUSTER)
        namespace, _ = split_name(full_name_of(address))
        for tier in reversed(self.situation.list_nearest_namespaces(cluster_of(address) or "", namespace)):
            apply_layer(switches, of_tier(tier), tier)
        apply_layer(switches, own, address)
        return switches


def _pick_switches(resource: Resource | None) -> Mapping[str, str]:
    if not isinstance(resource, Topic | Namespace):
        return {}
    return {key: value for key, value in resource.spec.configs.items() if key in SWITCHES}


def _find_unset_keys(origins: Mapping[str, str]) -> frozenset[str]:
    return frozenset(path.removeprefix(CONFIGS) for path in list_unset_paths(origins))


def compute_mounted_configs(
    own: Mapping[str, str], all_set: Mapping[str, str], above: Configs, catalog: Mapping[str, ConfigKey]
) -> dict[str, str]:
    """Return the configs that a mounted topic needs to keep its effective configs.

    `all_set` are configs of the topic and its previous parents; `above` those of its new parents.
    """
    return pin_configs(above, own, all_set, catalog)


def collect_set_configs(topic: Topic, initial: Mapping[str, str], situation: Situation) -> dict[str, str]:
    """Return all configs that the cluster, namespaces and the topic itself set."""
    return drop_origins(_read_current_configs(topic, initial, situation))


def read_present_switches(topic: Topic, initial: Mapping[str, str], situation: Situation) -> Switches:
    """Return the effective tiering switches of an existing topic."""
    return read_switches(_read_current_configs(topic, initial, situation))


def find_changes_by_move(new: Address, before: Observed, situation: Situation) -> Iterator[Change]:
    """Yield the effective configs that change if a topic moves to an address."""
    topic = before.resource
    if not isinstance(topic, Topic):
        return
    now = _read_current_configs(topic, before.topic.initial, situation)
    then = ActingConfigs(situation).above(topic.cluster, split_name(full_name_of(new))[0], before.topic.initial)
    apply_layer(then, topic.spec.configs, topic.address)
    for key in sorted(now.keys() | then.keys()):
        was, will = now.get(key, (None, CLUSTER)), then.get(key, (None, CLUSTER))
        # Changed cluster defaults are not caused by the move.
        if was[0] != will[0] and {was[1], will[1]} != {CLUSTER}:
            yield Change(CONFIGS + key, was[0], will[0], origin=None if will[1] == CLUSTER else will[1])


def _read_current_configs(topic: Topic, initial: Mapping[str, str], situation: Situation) -> Configs:
    acting: dict[str, tuple[str, str]] = {}
    cluster = situation.observed.get(cluster_address(topic.cluster))
    properties = cluster.resource.spec.properties if cluster and isinstance(cluster.resource, Cluster) else {}
    apply_layer(
        acting, {config: properties[name] for name, config in CONFIG_DEFAULTS.items() if name in properties}, CLUSTER
    )
    apply_layer(acting, initial, CLUSTER)
    for tier in reversed(situation.list_nearest_namespaces(topic.cluster, topic.metadata.namespace)):
        seen = situation.observed.get(tier)
        if seen is not None and isinstance(seen.resource, Namespace):
            apply_layer(acting, seen.resource.spec.configs, tier)
    apply_layer(acting, topic.spec.configs, topic.address)
    return acting
