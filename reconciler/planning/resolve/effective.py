"""Compile policies and links, and add implied namespaces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final, assert_never

from reconciler.planning.fields import CONFIGS
from reconciler.planning.plan import PlanFinding, PlanInput
from reconciler.planning.resolve.acting_configs import Inheritance, Layer
from reconciler.planning.resolve.cluster_values import compile_cluster
from reconciler.planning.selection import build_other_half, build_other_half_address, has_two_halves
from reconciler.planning.situation import IMPLIED, NO_ORIGINS, WantedResource
from reconciler.resources.acls import TopicAcl, find_refused_rules, split_namespace_rules
from reconciler.resources.address import Address, address_of, list_levels
from reconciler.resources.base import OfNamespace
from reconciler.resources.cluster import Cluster
from reconciler.resources.configs import DEFAULT, EMBEDDED_CONFIGS, canonicalize_value, explain_refused_value
from reconciler.resources.inventory import Capabilities, DeclaredResource, Desired, Inventory
from reconciler.resources.mirror_link import MirrorLink, MirrorTopic
from reconciler.resources.mount import Mounting
from reconciler.resources.namespace import Namespace
from reconciler.resources.tiering_policy import OFF, TieringPolicy
from reconciler.resources.topic import Topic

NOTHING: Final[Inventory] = MappingProxyType({})


def resolve_desired(
    desired: Desired, request: PlanInput, observed: Inventory = NOTHING
) -> tuple[dict[Address, WantedResource], list[PlanFinding]]:
    """Return the desired resources, and findings about invalid values."""
    return _Resolver(desired, request, observed).all()


class _Resolver:
    def __init__(self, desired: Desired, request: PlanInput, observed: Inventory) -> None:
        self._desired = desired
        self._request = request
        self._wanted: dict[Address, WantedResource] = {}
        self._findings: list[PlanFinding] = []
        self._links: dict[Address, tuple[MirrorLink, DeclaredResource]] = {}
        self._canonical: dict[tuple[int, str, str], str] = {}
        self._inheritance = Inheritance(desired, observed)

    def all(self) -> tuple[dict[Address, WantedResource], list[PlanFinding]]:
        for address, declared in self._desired.items():
            self._resolve(address, declared)
        # Sorted, so plans always report the same one of two conflicting links.
        for address in sorted(self._links):
            self._resolve_link(*self._links[address])
        for address in sorted(self._links):
            self._add_half(*self._links[address])
        for address in sorted(self._wanted):
            if address.startswith("namespace/"):
                self._add_parents(address)
        self._findings.extend(self._inheritance.findings)
        return self._wanted, self._findings

    def _resolve(self, address: Address, declared: DeclaredResource) -> None:
        resource = declared.resource
        if declared.origins is not None:
            self._wanted[address] = WantedResource(resource, declared.source, declared.origins)
            return
        match resource:
            case Topic():
                self._wanted[address] = self._resolve_topic(resource, declared)
            case Namespace():
                self._wanted[address] = self._resolve_namespace(resource, declared)
            case MirrorLink():
                self._links[address] = resource, declared
            case Cluster():
                self._wanted[address] = self._resolve_cluster(resource, declared)
            case Mounting():
                self._wanted[address] = _resolve_mounting(resource, declared)
            case TieringPolicy():
                pass
            case MirrorTopic():
                self._report(
                    address, declared, "a mirror topic is not declared by itself", "Name it in its MirrorLink."
                )
            case _:
                assert_never(resource)

    def _resolve_cluster(self, cluster: Cluster, declared: DeclaredResource) -> WantedResource:
        capabilities = self._request.capabilities.get(cluster.metadata.name)
        if capabilities is None or not capabilities.cluster_properties:
            return WantedResource(cluster, declared.source)
        wanted, findings = compile_cluster(cluster, declared.source, capabilities.properties)
        self._findings.extend(findings)
        return wanted

    def _resolve_topic(self, topic: Topic, declared: DeclaredResource) -> WantedResource:
        spec = topic.spec
        capabilities = self._request.capabilities.get(topic.cluster)
        if capabilities is None:
            return WantedResource(topic, declared.source)
        moved = address_of("topic", topic.cluster, spec.moved_from) if spec.moved_from else None
        self._check_rules(topic.address, declared, spec.acls, capabilities)
        is_simple = moved is None and spec.tiering_policy is None and _is_canonical(spec.configs, capabilities)
        if is_simple and not self._inheritance.above(topic, capabilities):
            return WantedResource(topic, declared.source)
        layer = self._inheritance.of_topic(topic, declared, capabilities)
        configs, origins = self._canonical_configs(topic.address, declared, layer, capabilities)
        changed = spec.model_copy(update={"configs": configs, "tiering_policy": None, "moved_from": None})
        return WantedResource(topic.model_copy(update={"spec": changed}), declared.source, origins, moved)

    def _resolve_namespace(self, namespace: Namespace, declared: DeclaredResource) -> WantedResource:
        spec = namespace.spec
        capabilities = self._request.capabilities.get(namespace.cluster)
        if capabilities is None:
            return WantedResource(namespace, declared.source)
        moved = address_of("namespace", namespace.cluster, spec.moved_from) if spec.moved_from else None
        layer = self._inheritance.of_namespace(namespace, declared, capabilities)
        configs, origins = self._canonical_configs(namespace.address, declared, layer, capabilities)
        propagated_configs: Mapping[str, str] = NO_ORIGINS
        if not capabilities.inherits_configs:
            configs, origins, propagated_configs = {}, {}, {key: value for key, value in configs.items() if key != OFF}
        changed = spec.model_copy(update={"configs": configs, "tiering_policy": None, "moved_from": None})
        if capabilities.access.operations and spec.acls:
            self._check_rules(namespace.address, declared, spec.acls, capabilities)
            apart = split_namespace_rules(spec.acls, capabilities.access.operations)
            changed = changed.model_copy(update={"acls": apart})
        bare = namespace.model_copy(update={"spec": changed})
        return WantedResource(bare, declared.source, origins, moved, propagated_configs=propagated_configs)

    def _resolve_link(self, link: MirrorLink, declared: DeclaredResource) -> None:
        spec = link.spec
        moved = address_of("link", link.cluster, spec.moved_from) if spec.moved_from else None
        # The link omits its mirrors, which have their own addresses.
        bare = link.model_copy(update={"spec": spec.model_copy(update={"mirror_topics": (), "moved_from": None})})
        self._wanted[link.address] = WantedResource(bare, declared.source, moved_from=moved)
        for place, mirror in enumerate(link.mirrors()):
            mark = link.address, ("spec", "mirrorTopics", place, "source")
            if mirror.address in self._wanted:
                self._report(
                    mirror.address,
                    declared,
                    f"{mirror.address} is declared twice: {self._wanted[mirror.address].source} names it too",
                    "Remove it from one of the links, or give one of them a prefix.",
                )
            self._wanted[mirror.address] = WantedResource(mirror, declared.source, marks=(mark,))

    def _add_half(self, link: MirrorLink, declared: DeclaredResource) -> None:
        if has_two_halves(link) and build_other_half_address(link) not in self._wanted:
            self._wanted[build_other_half_address(link)] = build_other_half(link, declared.source)

    def _add_parents(self, address: Address) -> None:
        below = self._wanted[address].resource
        if not isinstance(below, Namespace):
            return
        for tier in list_levels(below.metadata.name)[:-1]:
            above = address_of("namespace", below.cluster, tier)
            if above not in self._wanted:
                implied = Namespace(metadata=OfNamespace(name=tier, cluster=below.cluster))
                self._wanted[above] = WantedResource(implied, self._wanted[address].source, {IMPLIED: address})

    def _canonical_configs(
        self, address: Address, declared: DeclaredResource, layer: Layer, capabilities: Capabilities
    ) -> tuple[dict[str, str], dict[str, str]]:
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
                # Invalid configs that a namespace declares are reported once, at the namespace.
                if origin == address or not origin.startswith("namespace/"):
                    self._report(
                        address, declared, f"{key}: {explain_refused_value(value, error)}", "Correct it, or remove it."
                    )
        return configs, origins

    def _check_rules(
        self, address: Address, declared: DeclaredResource, rules: Sequence[TopicAcl], capabilities: Capabilities
    ) -> None:
        if capabilities.access.operations:
            for place, field, what, hint in find_refused_rules(rules, capabilities.access.operations):
                self._report(address, declared, f"acls[{place}].{field}: {what}", hint)

    def _canonical_value(self, key: str, value: str, capabilities: Capabilities) -> str:
        cache_key = id(capabilities.configs), key, value
        canonical = self._canonical.get(cache_key)
        if canonical is None:
            canonical = self._canonical[cache_key] = canonicalize_value(key, value, capabilities.configs)
        return canonical

    def _report(self, address: Address, declared: DeclaredResource, message: str, hint: str) -> None:
        self._findings.append(PlanFinding(address, declared.source, message, hint))


def _resolve_mounting(mounting: Mounting, declared: DeclaredResource) -> WantedResource:
    spec = mounting.spec
    if spec.moved_from is None:
        return WantedResource(mounting, declared.source)
    bare = mounting.model_copy(update={"spec": spec.model_copy(update={"moved_from": None})})
    return WantedResource(bare, declared.source, moved_from=address_of("mounting", mounting.cluster, spec.moved_from))


def _is_canonical(configs: Mapping[str, str], capabilities: Capabilities) -> bool:
    if not configs:
        return True
    if DEFAULT in configs.values():
        return False
    # Parsing made values canonical by `EMBEDDED_CONFIGS`.
    return capabilities.configs is EMBEDDED_CONFIGS or all(
        EMBEDDED_CONFIGS.get(key) is capabilities.configs.get(key) for key in configs
    )
