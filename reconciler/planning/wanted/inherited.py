"""Where the configs of a topic or namespace come from: its own, its policy's, and those of the tiers above it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from reconciler.planning.finding import Finding
from reconciler.planning.wanted.policies import compile_policy
from reconciler.resources.address import Address, address_of, cluster_of, tiers_of
from reconciler.resources.configs import DEFAULT
from reconciler.resources.kip405 import COPY_DISABLE, ENABLE, OFF, laid_over, of_topic, unsayable
from reconciler.resources.namespace import Namespace
from reconciler.resources.tieringconfigs import POLICY_KEYS
from reconciler.resources.tieringpolicy import TieringPolicy
from reconciler.resources.topic import Topic

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from reconciler.resources.capabilities import Capabilities
    from reconciler.resources.inventory import Declared, Desired, Inventory

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
            f"{policy.address} cannot be said on cluster {cluster_of(address)}: {what}",
            "Remove it from the policy, or give these topics one of their own: nothing is left out silently.",
            ((policy.address, ("spec", *path)),),
        )
