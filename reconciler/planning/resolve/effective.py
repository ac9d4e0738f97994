"""Resolve desired resources: policies compiled, namespaces implied, mirrors derived.

Configs that read `default` leave the resource and stay in `origins`: they are to be unset, whoever set them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final, assert_never

from reconciler.planning.fields import CONFIGS
from reconciler.planning.plan import Finding, PlanInput
from reconciler.planning.resolve.acting_configs import Inheritance, Layer
from reconciler.planning.resolve.cluster_values import compiled_cluster
from reconciler.planning.selection import half_at, half_of, has_two_halves
from reconciler.planning.situation import IMPLIED, NO_ORIGINS, WantedResource
from reconciler.resources.acls import TopicAcl, namespace_rules_apart, refused_rules
from reconciler.resources.address import Address, address_of, tiers_of
from reconciler.resources.base import OfNamespace
from reconciler.resources.cluster import Cluster
from reconciler.resources.configs import DEFAULT, EMBEDDED_CONFIGS, canonical_value, refused_value
from reconciler.resources.inventory import Capabilities, Declared, Desired, Inventory
from reconciler.resources.mirror_link import MirrorLink, MirrorTopic
from reconciler.resources.mount import Mounting
from reconciler.resources.namespace import Namespace
from reconciler.resources.tiering_policy import OFF, TieringPolicy
from reconciler.resources.topic import Topic

NOTHING: Final[Inventory] = MappingProxyType({})


def effective(
    desired: Desired, request: PlanInput, observed: Inventory = NOTHING
) -> tuple[dict[Address, WantedResource], list[Finding]]:
    """Return what each address is to be, and what of the files could not be understood.

    `observed` tells which topics are tiered: where a policy switches that off, only those need words for it.
    What lives on a cluster that was not read stays as it is declared: nothing is decided about it.
    """
    return _Making(desired, request, observed).all()


class _Making:
    """The desired resources in the making, one after the other."""

    def __init__(self, desired: Desired, request: PlanInput, observed: Inventory) -> None:
        self._desired = desired
        self._request = request
        self._wanted: dict[Address, WantedResource] = {}
        self._findings: list[Finding] = []
        self._links: dict[Address, tuple[MirrorLink, Declared]] = {}
        self._canonical: dict[tuple[int, str, str], str] = {}
        self._inheritance = Inheritance(desired, observed)

    def all(self) -> tuple[dict[Address, WantedResource], list[Finding]]:
        """Walk every declared resource."""
        for address, declared in self._desired.items():
            self._add(address, declared)
        # Sorted: of two links that claim one mirror it is always the same that is told.
        for address in sorted(self._links):
            self._link(*self._links[address])
        for address in sorted(self._links):
            self._half(*self._links[address])
        for address in sorted(self._wanted):
            if address.startswith("namespace/"):
                self._imply(address)
        self._findings.extend(self._inheritance.findings)
        return self._wanted, self._findings

    def _add(self, address: Address, declared: Declared) -> None:
        resource = declared.resource
        if declared.origins is not None:
            self._wanted[address] = WantedResource(resource, declared.source, declared.origins)
            return
        match resource:
            case Topic():
                self._wanted[address] = self._topic(resource, declared)
            case Namespace():
                self._wanted[address] = self._namespace(resource, declared)
            case MirrorLink():
                self._links[address] = resource, declared
            case Cluster():
                self._wanted[address] = self._cluster(resource, declared)
            case Mounting():
                self._wanted[address] = _mounting(resource, declared)
            case TieringPolicy():
                pass  # a policy yields no action of its own: its effect shows on the topics
            case MirrorTopic():
                self._wrong(address, declared, "a mirror topic is not declared by itself", "Name it in its MirrorLink.")
            case _:
                assert_never(resource)

    def _cluster(self, cluster: Cluster, declared: Declared) -> WantedResource:
        capabilities = self._request.capabilities.get(cluster.metadata.name)
        if capabilities is None or not capabilities.cluster_properties:
            return WantedResource(cluster, declared.source)
        wanted, findings = compiled_cluster(cluster, declared.source, capabilities.properties)
        self._findings.extend(findings)
        return wanted

    def _topic(self, topic: Topic, declared: Declared) -> WantedResource:
        spec = topic.spec
        capabilities = self._request.capabilities.get(topic.cluster)
        if capabilities is None:
            return WantedResource(topic, declared.source)
        moved = address_of("topic", topic.cluster, spec.moved_from) if spec.moved_from else None
        self._check_rules(topic.address, declared, spec.acls, capabilities)
        is_simple = moved is None and spec.tiering_policy is None and _is_plain(spec.configs, capabilities)
        if is_simple and not self._inheritance.above(topic, capabilities):
            return WantedResource(topic, declared.source)
        layer = self._inheritance.of_topic(topic, declared, capabilities)
        configs, origins = self._settle(topic.address, declared, layer, capabilities)
        changed = spec.model_copy(update={"configs": configs, "tiering_policy": None, "moved_from": None})
        return WantedResource(topic.model_copy(update={"spec": changed}), declared.source, origins, moved)

    def _namespace(self, namespace: Namespace, declared: Declared) -> WantedResource:
        spec = namespace.spec
        capabilities = self._request.capabilities.get(namespace.cluster)
        if capabilities is None:
            return WantedResource(namespace, declared.source)
        moved = address_of("namespace", namespace.cluster, spec.moved_from) if spec.moved_from else None
        layer = self._inheritance.of_namespace(namespace, declared, capabilities)
        configs, origins = self._settle(namespace.address, declared, layer, capabilities)
        passed_on: Mapping[str, str] = NO_ORIGINS
        if not capabilities.inherits_configs:
            configs, origins, passed_on = {}, {}, {key: value for key, value in configs.items() if key != OFF}
        changed = spec.model_copy(update={"configs": configs, "tiering_policy": None, "moved_from": None})
        if capabilities.access.operations and spec.acls:
            self._check_rules(namespace.address, declared, spec.acls, capabilities)
            apart = namespace_rules_apart(spec.acls, capabilities.access.operations)
            changed = changed.model_copy(update={"acls": apart})
        bare = namespace.model_copy(update={"spec": changed})
        return WantedResource(bare, declared.source, origins, moved, passed_on=passed_on)

    def _link(self, link: MirrorLink, declared: Declared) -> None:
        spec = link.spec
        moved = address_of("link", link.cluster, spec.moved_from) if spec.moved_from else None
        # Each mirror is compared at its own address, so the link itself is kept without them.
        bare = link.model_copy(update={"spec": spec.model_copy(update={"mirror_topics": (), "moved_from": None})})
        self._wanted[link.address] = WantedResource(bare, declared.source, moved_from=moved)
        for place, mirror in enumerate(link.mirrors()):
            mark = link.address, ("spec", "mirrorTopics", place, "source")
            if mirror.address in self._wanted:
                self._wrong(
                    mirror.address,
                    declared,
                    f"{mirror.address} is declared twice: {self._wanted[mirror.address].source} names it too",
                    "A topic is mirrored by one link; give one of the links a prefix.",
                )
            self._wanted[mirror.address] = WantedResource(mirror, declared.source, marks=(mark,))

    def _half(self, link: MirrorLink, declared: Declared) -> None:
        if has_two_halves(link) and half_at(link) not in self._wanted:
            self._wanted[half_at(link)] = half_of(link, declared.source)

    def _imply(self, address: Address) -> None:
        """Add every tier above a declared namespace that is not declared itself."""
        below = self._wanted[address].resource
        if not isinstance(below, Namespace):
            return
        for tier in tiers_of(below.metadata.name)[:-1]:
            above = address_of("namespace", below.cluster, tier)
            if above not in self._wanted:
                implied = Namespace(metadata=OfNamespace(name=tier, cluster=below.cluster))
                self._wanted[above] = WantedResource(implied, self._wanted[address].source, {IMPLIED: address})

    def _settle(
        self, address: Address, declared: Declared, layer: Layer, capabilities: Capabilities
    ) -> tuple[dict[str, str], dict[str, str]]:
        """Return the configs of a layer in canonical form, and the origins that are not the resource itself."""
        configs: dict[str, str] = {}
        origins: dict[str, str] = {}
        for key, (value, origin) in sorted(layer.items()):
            if value == DEFAULT:
                origins[CONFIGS + key] = DEFAULT
                continue
            if origin != address:
                origins[CONFIGS + key] = origin
            try:
                configs[key] = self._canonical_value(key, value, capabilities)
            except ValueError as error:
                if origin == address or not origin.startswith("namespace/"):  # else it is told at the namespace
                    self._wrong(address, declared, f"{key}: {refused_value(value, error)}", "Correct it, or remove it.")
        return configs, origins

    def _check_rules(
        self, address: Address, declared: Declared, rules: Sequence[TopicAcl], capabilities: Capabilities
    ) -> None:
        if capabilities.access.operations:
            for place, field, what, hint in refused_rules(rules, capabilities.access.operations):
                self._wrong(address, declared, f"acls[{place}].{field}: {what}", hint)

    def _canonical_value(self, key: str, value: str, capabilities: Capabilities) -> str:
        """Judge a value of a key once for each catalog: thousands of topics share a few."""
        asked = id(capabilities.configs), key, value
        found = self._canonical.get(asked)
        if found is None:
            found = self._canonical[asked] = canonical_value(key, value, capabilities.configs)
        return found

    def _wrong(self, address: Address, declared: Declared, message: str, hint: str) -> None:
        self._findings.append(Finding(address, declared.source, message, hint))


def _mounting(mounting: Mounting, declared: Declared) -> WantedResource:
    spec = mounting.spec
    if spec.moved_from is None:
        return WantedResource(mounting, declared.source)
    bare = mounting.model_copy(update={"spec": spec.model_copy(update={"moved_from": None})})
    return WantedResource(bare, declared.source, moved_from=address_of("mounting", mounting.cluster, spec.moved_from))


def _is_plain(configs: Mapping[str, str], capabilities: Capabilities) -> bool:
    """Tell whether configs stand as they are: nothing to unset, nothing in words only this platform knows."""
    if not configs:
        return True
    if DEFAULT in configs.values():
        return False
    # Manifests are read with this catalog; values of keys that mean the same here are canonical already.
    return capabilities.configs is EMBEDDED_CONFIGS or all(
        EMBEDDED_CONFIGS.get(key) is capabilities.configs.get(key) for key in configs
    )
