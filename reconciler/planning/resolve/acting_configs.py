"""The configs that act on a topic: own, inherited, from a policy, after a mount."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias, assert_never

from reconciler.planning.actions import Change
from reconciler.planning.fields import CONFIGS
from reconciler.planning.plan import Finding
from reconciler.planning.situation import Situation, WantedResource, altered_paths, unset_paths
from reconciler.resources.address import (
    Address,
    address_of,
    cluster_address,
    cluster_of,
    full_name_of,
    split_name,
    tiers_of,
)
from reconciler.resources.cluster import Cluster
from reconciler.resources.cluster_properties import CONFIG_DEFAULTS, CREATION_DEFAULTS
from reconciler.resources.configs import DEFAULT, POLICY_KEYS, TIERING_CONFIGS
from reconciler.resources.inventory import configs_of
from reconciler.resources.mount import pinned, told
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
    laid_over,
    lay_over,
    of_topic,
    policy_words,
    switches_in,
    unsayable,
)
from reconciler.resources.topic import Topic

if TYPE_CHECKING:
    from reconciler.resources.inventory import Capabilities, Declared, Desired, Inventory, Observed, Recorded, Resource
    from reconciler.resources.kafka_configs import ConfigKey


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
        initial = self._creation(resource.cluster) if seen is None else seen.topic.initial
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
        ours |= {path.partition(".")[2] for path in unset_paths(wanted.origins) | altered_paths(last)}
        ours |= reset_keys(situation, wanted, last, seen)
        return {**{key: value for key, value in live.items() if key not in ours}, **goal}


def _own(resource: Resource) -> Mapping[str, str]:
    """Return what a resource says itself of the keys that act on topics: configs, or a cluster's properties."""
    return resource.spec.properties if isinstance(resource, Cluster) else configs_of(resource)


# Configs that only the cluster has, set on a topic by hand above what its namespaces or its cluster declare.


@dataclass(frozen=True, slots=True)
class Hiding:
    """A key of a topic that no file declares for it, and the declared value above it that it hides."""

    key: str
    value: str
    said: str
    """What is declared above."""
    origin: Address
    """The namespace or cluster that declares it."""
    recorded: str | None
    """What was last applied there; `None` where nothing was: then nothing moved away from it."""

    @property
    def path(self) -> str:
        """The field."""
        return CONFIGS + self.key


def hiding(
    situation: Situation, wanted: WantedResource, last: Recorded | None, seen: Observed | None
) -> tuple[Hiding, ...]:
    """Return what hides declared values on one topic, by key; only platforms that inherit by themselves know such keys.

    Elsewhere the declared value is written on each topic, and another one there differs by itself.
    """
    topic, live = wanted.resource, seen.resource if seen is not None else None
    if not isinstance(topic, Topic) or not isinstance(live, Topic) or live.spec.configs == topic.spec.configs:
        return ()
    if not situation.capabilities(topic.cluster).inherits_configs:
        return ()
    ours = last.resource.spec.configs if last is not None and isinstance(last.resource, Topic) else {}
    unset = {} if last is None else last.origins.keys() - altered_paths(last)
    named = {*topic.spec.configs, *ours, *(path.removeprefix(CONFIGS) for path in (*wanted.origins, *unset))}
    strange = sorted(live.spec.configs.keys() - named)
    found = (_hidden_by(situation, topic, key, live.spec.configs[key]) for key in strange)
    return tuple(each for each in found if each is not None)


def reset_keys(
    situation: Situation, wanted: WantedResource, last: Recorded | None, seen: Observed | None
) -> frozenset[str]:
    """Return the keys of a topic that a plan takes away, for they hide declared values and no rule keeps them."""
    found = hiding(situation, wanted, last, seen)
    address = wanted.resource.address
    return frozenset(each.key for each in found if situation.ignored(address, each.path) is None)


def _hidden_by(situation: Situation, topic: Topic, key: str, value: str) -> Hiding | None:
    """Return the nearest declared value above that `value` hides; `None` where they are the same, or there is none."""
    for tier in (*situation.nearest(topic.cluster, topic.metadata.namespace), cluster_address(topic.cluster)):
        said, recorded = (
            _above_topics(side, key) for side in (situation.wanted.get(tier), situation.recorded.get(tier))
        )
        if said is not None:
            return None if said == value else Hiding(key, value, said, tier, recorded)
    return None


def _above_topics(side: WantedResource | Recorded | None, key: str) -> str | None:
    """Return what a namespace, or the properties of a cluster, say of a config of the topics below."""
    resource = side.resource if side is not None else None
    if isinstance(resource, Namespace):
        return resource.spec.configs.get(key)
    if isinstance(resource, Cluster):
        names = (name for name, config in CONFIG_DEFAULTS.items() if config == key)
        return next((resource.spec.properties[name] for name in names if name in resource.spec.properties), None)
    return None


# A tiering policy in the config words of its cluster.


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
"""Configs that say nothing on a cluster without tiered storage."""


def compile_policy(policy: TieringPolicySpec, capabilities: Capabilities) -> dict[str, str]:
    """Return the configs a policy stands for; what it leaves open is absent.

    What is switched off needs no words where a cluster has no tiering; everything else keeps its words, so that the
    check of configs refuses what the cluster cannot do.
    """
    words = dict(_words(policy) if capabilities.tiering_words == "directions" else policy_words(policy))
    if capabilities.tiering:
        return words
    return {key: value for key, value in words.items() if not (key in NEEDS_TIERING and _is_off(key, value))}


def is_harmless(key: str, value: str, default: str | None) -> bool:
    """Tell whether a tiering config asks for nothing that a cluster without tiering lacks."""
    return value == default or _is_off(key, value)


def _is_off(key: str, value: str) -> bool:
    return value == "false" or key in {"remote.log.disable.policy", OFF}


def _words(policy: TieringPolicySpec) -> Iterator[tuple[str, str]]:
    for field, (word, *_others) in POLICY_KEYS.items():
        value: object = policy
        for part in field.split("."):
            value = getattr(value, part) if value is not None else None
        if value is not None:
            yield word, str(value).lower() if isinstance(value, bool) else str(value)


# Where the configs of a topic or namespace come from: its own, its policy's, and those of the tiers above it.


Layer: TypeAlias = dict[str, tuple[str, str]]
"""Config key → (value as declared, the address it comes from)."""


_SAID_ANYWAY: Final = ("remote.log.disable.policy", "retain")


class Inheritance:
    """Lays configs over each other; nearest tier wins, and a tier's own keys are asked for once."""

    def __init__(self, desired: Desired, observed: Inventory) -> None:
        self.findings: list[Finding] = []
        self._desired = desired
        self._observed = observed
        self._above: dict[tuple[str, str], Layer] = {}
        self._own: dict[Address, Layer] = {}

    def of_topic(self, topic: Topic, declared: Declared, capabilities: Capabilities) -> Layer:
        """Return the configs a topic is to have as its own."""
        own = self._layer(topic.address, topic.spec.configs, topic.spec.tiering_policy, declared, capabilities)
        above = self.above(topic, capabilities)
        if capabilities.tiering_words == "directions":
            return {**above, **own}
        seen = self._observed.get(topic.address)
        live = seen.resource.spec.configs if seen is not None and isinstance(seen.resource, Topic) else {}
        return of_topic(laid_over(above, own), topic.address, live, can_untier=capabilities.untiering)

    def above(self, topic: Topic, capabilities: Capabilities) -> Layer:
        """Return what a topic takes from its tiers as its own; nothing where the platform inherits by itself."""
        if capabilities.inherits_configs or not topic.metadata.namespace:
            return {}
        place = topic.cluster, topic.metadata.namespace
        known = self._above.get(place)
        if known is None:
            # A tier's `default` only ends inheriting; a topic's own also unsets what somebody else set.
            tiers = self._tiers(*place, capabilities)
            known = self._above[place] = {key: held for key, held in tiers.items() if held[0] != DEFAULT}
        return known

    def of_namespace(self, namespace: Namespace, declared: Declared, capabilities: Capabilities) -> Layer:
        """Return the configs a namespace is to have as its own."""
        spec = namespace.spec
        return self._layer(namespace.address, spec.configs, spec.tiering_policy, declared, capabilities)

    def _tiers(self, cluster: str, namespace: str, capabilities: Capabilities) -> Layer:
        layers: Layer = {}
        for tier in tiers_of(namespace):
            declared = self._desired.get(address_of("namespace", cluster, tier))
            if declared is not None and isinstance(declared.resource, Namespace):
                layers = laid_over(layers, self.of_namespace(declared.resource, declared, capabilities))
        return layers

    def _layer(
        self,
        address: Address,
        configs: Mapping[str, str],
        policy_name: str | None,
        declared: Declared,
        capabilities: Capabilities,
    ) -> Layer:
        known = self._own.get(address)
        if known is not None:
            return known
        layer: Layer = {key: (value, address) for key, value in configs.items()}
        words = self._policy(address, policy_name, declared, capabilities)
        for key, value in words.items():
            if (key, value) == _SAID_ANYWAY and not layer.keys().isdisjoint(POLICY_KEYS["on_disable"]):
                continue  # what happens anyway: a policy that does not mention it does not say it
            is_switch_twice = key == OFF and not layer.keys().isdisjoint({ENABLE, COPY_DISABLE})
            if key in layer or is_switch_twice:
                self.findings.append(
                    Finding(
                        address,
                        declared.source,
                        f"{key if key != OFF else ENABLE} is set twice in one document: in configs, and by "
                        f"policy/{policy_name}",
                        "Keep one of the two.",
                    )
                )
            layer.setdefault(key, (value, f"policy/{policy_name}"))
        if not address.startswith("topic/"):
            self._own[address] = layer
        return layer

    def _policy(
        self, address: Address, name: str | None, declared: Declared, capabilities: Capabilities
    ) -> Mapping[str, str]:
        if name is None:
            return {}
        found = self._desired.get(Address(f"policy/{name}"))
        if found is None or not isinstance(found.resource, TieringPolicy):
            message = f"tieringPolicy {name} is not declared"
            self.findings.append(Finding(address, declared.source, message, f"Declare a TieringPolicy named {name}."))
            return {}
        if capabilities.tiering_words == "kip-405":
            self.findings += _beyond_words(address, found.resource, declared)
        return compile_policy(found.resource.spec, capabilities)


def _beyond_words(address: Address, policy: TieringPolicy, declared: Declared) -> Iterator[Finding]:
    """Yield what of a policy its cluster has no words for."""
    for path, what in unsayable(policy.spec):
        yield Finding(
            address,
            declared.source,
            f"{policy.address} is not possible on cluster {cluster_of(address)}: {what}",
            "Remove it from the policy, or give these topics one of their own: nothing is left out silently.",
            ((policy.address, ("spec", *path)),),
        )


# What the tiering switches of a topic say: by all that stands now, and once everything wanted is done.


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
        last, seen = self.situation.recorded.get(place), self.situation.observed.get(place)
        ours = {*_switches(last.resource if last else None), *_unset(wanted.origins)}
        ours |= reset_keys(self.situation, wanted, last, seen)
        return {**{key: value for key, value in own.items() if key not in ours}, **_switches(wanted.resource)}

    def own_now(self, address: Address) -> Mapping[str, str]:
        """Return what a topic or namespace says itself now."""
        seen = self.situation.observed.get(address)
        return _switches(seen.resource if seen else None)

    def _laid(
        self, address: Address, own: Mapping[str, str], seen: Observed, of_tier: Callable[[Address], Mapping[str, str]]
    ) -> Configs:
        found: dict[str, tuple[str, str]] = {}
        lay_over(found, seen.topic.initial, CLUSTER)
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


# What a topic will say itself once it is mounted: what it said, and what its new surroundings would say otherwise.


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


def changes_by_move(new: Address, before: Observed, situation: Situation) -> Iterator[Change]:
    """Yield the configs that act on a topic otherwise once it has moved to an address, before it is changed there."""
    topic = before.resource
    if not isinstance(topic, Topic):
        return
    now = _said_now(topic, before.topic.initial, situation)
    then = ActingConfigs(situation).above(topic.cluster, split_name(full_name_of(new))[0], before.topic.initial)
    lay_over(then, topic.spec.configs, topic.address)
    for key in sorted(now.keys() | then.keys()):
        was, will = now.get(key, (None, CLUSTER)), then.get(key, (None, CLUSTER))
        # What becomes of the cluster's own defaults is no matter of the move.
        if was[0] != will[0] and {was[1], will[1]} != {CLUSTER}:
            yield Change(CONFIGS + key, was[0], will[0], origin=None if will[1] == CLUSTER else will[1])


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
