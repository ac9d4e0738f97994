"""Flat names of topics on platforms without namespaces, and their collisions."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING

from reconciler.planning.plan import PlanFinding
from reconciler.resources.address import (
    MAX_NAME,
    Address,
    address_of,
    cluster_of,
    full_name_of,
    kind_of,
    list_levels,
    split_name,
)
from reconciler.resources.cluster import FLAT_SEPARATOR
from reconciler.resources.kafka_configs import is_internal
from reconciler.resources.mirror_link import MirrorLink, MirrorTopic
from reconciler.resources.namespace import Namespace
from reconciler.resources.topic import Topic
from reconciler.runtime.dataclass import dataclass, replace

if TYPE_CHECKING:
    from reconciler.planning.situation import Situation
    from reconciler.resources.cluster import Cluster
    from reconciler.resources.inventory import Inventory, Observed


def has_flat_names(cluster: Cluster) -> bool:
    """Return whether a cluster's platform has no namespaces."""
    return cluster.spec.connection.find_separator() is not None


def read_separator(cluster: Cluster) -> str:
    """Return the separator of namespaces in a cluster's flat names."""
    return cluster.spec.connection.find_separator() or FLAT_SEPARATOR


def build_physical_name(cluster: Cluster, full_name: str) -> str:
    """Return a topic's name on the platform."""
    return full_name.replace(":", read_separator(cluster)) if has_flat_names(cluster) else full_name


def use_physical_names(link: MirrorLink, cluster: Cluster) -> MirrorLink:
    """Return a link whose filters of topics and access rules have the platform's names."""
    making, rules = link.spec.auto_create, link.spec.acl_sync
    update: dict[str, object] = {}
    if making is not None:
        names = [
            name_filter.model_copy(update={"name": build_physical_name(cluster, name_filter.name)})
            for name_filter in making.filters
        ]
        update["auto_create"] = making.model_copy(update={"filters": tuple(names)})
    if rules is not None:
        acls = [
            rule.model_copy(update={"resource_name": build_physical_name(cluster, rule.resource_name)})
            for rule in rules.filters
        ]
        update["acl_sync"] = rules.model_copy(update={"filters": tuple(acls)})
    return link.model_copy(update={"spec": link.spec.model_copy(update=update)}) if update else link


def build_name_prefix(cluster: Cluster, namespace: str) -> str:
    """Return the prefix of a namespace's flat names, including the separator."""
    return build_physical_name(cluster, namespace) + read_separator(cluster)


def fold_name(name: str) -> str:
    """Return a name with `.` for `_`, because Kafka's metrics do not distinguish them."""
    return name.replace("_", ".")


def rekey_observed(
    observed: Inventory, wanted: Container[Address], ours: Iterable[Address], clusters: Mapping[str, Cluster]
) -> Inventory:
    """Return the observed inventory with topics on flat platforms at their known addresses.

    `ours` are declared, then recorded addresses.
    """
    flat = {name: cluster for name, cluster in clusters.items() if has_flat_names(cluster)}
    if not flat:
        return observed
    strange = {
        (cluster_of(address) or "", _find_name(address, seen, flat)): address
        for address, seen in observed.items()
        if address not in wanted and kind_of(address) == "topic" and cluster_of(address) in flat
    }
    if not strange:
        return observed
    inventory = dict(observed)
    for address in ours:
        if address in observed or kind_of(address) != "topic":
            continue
        cluster = cluster_of(address) or ""
        if cluster not in flat:
            continue
        former = strange.get((cluster, build_physical_name(flat[cluster], full_name_of(address))))
        seen = inventory.pop(former, None) if former is not None else None
        if seen is not None:
            inventory[address] = _change_address(address, seen)
    return inventory


def _find_name(address: Address, seen: Observed, clusters: Mapping[str, Cluster]) -> str:
    return seen.physical_name or build_physical_name(clusters[cluster_of(address) or ""], full_name_of(address))


def _change_address(address: Address, seen: Observed) -> Observed:
    if not isinstance(seen.resource, Topic):
        return seen
    namespace, _, name = full_name_of(address).rpartition(":")
    metadata = seen.resource.metadata.model_copy(update={"namespace": namespace, "name": name})
    return replace(seen, resource=seen.resource.model_copy(update={"metadata": metadata}))


def check_shared_names(situation: Situation) -> Iterator[PlanFinding]:
    """Yield desired topics whose flat names are too long, or collide in Kafka's metrics."""
    flat = {name for name, cluster in situation.clusters.items() if has_flat_names(cluster)}
    if not flat:
        return
    claimed: dict[tuple[str, str], Address] = {}
    for address in sorted(situation.wanted):
        wanted = situation.wanted[address]
        resource = wanted.resource
        if not isinstance(resource, Topic | MirrorTopic) or resource.cluster not in flat:
            continue
        name = build_physical_name(situation.clusters[resource.cluster], resource.full_name)
        if len(name) > MAX_NAME:
            yield PlanFinding(
                address, wanted.source, f"{name} is longer than {MAX_NAME} characters", "Shorten its name."
            )
        first = claimed.setdefault((resource.cluster, fold_name(name)), address)
        is_role_change = {address.partition("/")[2]} == {first.partition("/")[2]}
        if first != address and not is_role_change:
            yield PlanFinding(
                address,
                wanted.source,
                f"{name} on cluster {resource.cluster} is claimed by {first} too ('.' and '_' are one there)",
                f"Rename one of them; the other is declared at {situation.wanted[first].source}.",
            )


def check_flat_names(situation: Situation) -> Iterator[PlanFinding]:
    """Yield collisions of flat names with the platform, its tools and other namespaces."""
    for name in sorted(situation.trusted):
        if has_flat_names(situation.clusters[name]):
            yield from _FlatNames(name, situation).all()


@dataclass(frozen=True)
class _FlatNames:
    cluster: str
    situation: Situation

    def all(self) -> Iterator[PlanFinding]:
        for address in sorted(self.situation.wanted):
            resource = self.situation.wanted[address].resource
            if not isinstance(resource, Namespace | Topic) or resource.cluster != self.cluster:
                continue
            if self.situation.can_plan(address):
                match resource:
                    case Namespace():
                        yield from self._check_namespace(address, resource.metadata.name)
                    case Topic():
                        yield from self._check_topic(address, resource)

    @property
    def _cluster_spec(self) -> Cluster:
        return self.situation.clusters[self.cluster]

    @cached_property
    def _separator(self) -> str:
        return read_separator(self._cluster_spec)

    @cached_property
    def _internal_topics(self) -> tuple[str, ...]:
        return self.situation.find_capabilities(self.cluster).internal_topics

    def _check_namespace(self, address: Address, name: str) -> Iterator[PlanFinding]:
        """Report a namespace whose prefix begins with another's, because they share rules and topics (F-K-030)."""
        prefix = build_name_prefix(self._cluster_spec, name)
        for start in _list_prefixes(fold_name(prefix), fold_name(read_separator(self._cluster_spec))):
            for other in self._prefixes.get(start, ()):
                is_told_there = len(start) == len(prefix) and other > name
                if other == name or name in list_levels(other) or other in list_levels(name) or is_told_there:
                    continue
                other_prefix = build_name_prefix(self._cluster_spec, other)
                is_equal = len(start) == len(prefix)
                what = f"are {prefix!r} to it" if is_equal else f"begin with {other_prefix!r}, as all of that one's do"
                yield self._make_finding(
                    address,
                    f"its topics' names {what}: it cannot be told apart from "
                    f"{address_of('namespace', self.cluster, other)} ('.' and '_' are one)",
                    "Rename one of the two, or make one a level of the other; namespaceSeparator separates the levels.",
                )
                return

    def _check_topic(self, address: Address, topic: Topic) -> Iterator[PlanFinding]:
        name = topic.full_name.replace(":", self._separator)
        seen = self.situation.observed.get(address)
        internal = self._internal_topics
        if is_internal(name, internal) or (seen is not None and seen.is_internal):
            yield self._make_finding(
                address,
                f"{name} is a name reserved by the platform: such topics are never managed",
                "Remove it from the files, or give it another name.",
            )
        yield from self._check_home(address, name, topic)
        if seen is None:
            yield from self._check_fold(address, name)

    def _check_home(self, address: Address, name: str, topic: Topic) -> Iterator[PlanFinding]:
        namespace = topic.metadata.namespace
        own = namespace.replace(":", self._separator) + self._separator if namespace else ""
        longer = [start for start in _list_prefixes(name, self._separator) if len(start) > len(own)]
        for start in reversed(longer):
            home = self._homes.get(start)
            if home is not None:
                full_name, owner = f"{home}:{name[len(start) :]}", address_of("namespace", self.cluster, home)
                yield self._make_finding(
                    address,
                    f"its name on the brokers is {name}, which belongs to {owner}",
                    f"Declare it as {full_name}, or rename it.",
                )
                return

    def _check_fold(self, address: Address, name: str) -> Iterator[PlanFinding]:
        other = self._observed_names.get(fold_name(name))
        if other is None:
            return
        observed = self.situation.observed[other]
        known = observed.physical_name or build_physical_name(self._cluster_spec, full_name_of(other))
        if known == name:
            return
        yield self._make_finding(
            address,
            f"{name} folds onto {known}, which is there ({other}): '.' and '_' are one in names of topics",
            "Give it another name; two such topics cannot be on one cluster.",
        )

    @cached_property
    def _prefixes(self) -> Mapping[str, list[str]]:
        namespaces: dict[str, list[str]] = {}
        for address in sorted(self.situation.wanted):
            if kind_of(address) == "namespace" and cluster_of(address) == self.cluster:
                name = full_name_of(address)
                namespaces.setdefault(fold_name(build_name_prefix(self._cluster_spec, name)), []).append(name)
        return namespaces

    @cached_property
    def _homes(self) -> Mapping[str, str]:
        homes: set[str] = set()
        for address in self.situation.wanted:
            kind = kind_of(address)
            if kind in {"namespace", "topic", "mirror"} and cluster_of(address) == self.cluster:
                name = full_name_of(address)
                homes.add(name if kind == "namespace" else split_name(name)[0])
        tiers = sorted({tier for home in homes for tier in list_levels(home)}, reverse=True)
        return {build_name_prefix(self._cluster_spec, tier): tier for tier in tiers}

    @cached_property
    def _observed_names(self) -> Mapping[str, Address]:
        return {
            fold_name(seen.physical_name or build_physical_name(self._cluster_spec, full_name_of(address))): address
            for address, seen in sorted(self.situation.observed.items())
            if kind_of(address) in {"topic", "mirror"} and cluster_of(address) == self.cluster
        }

    def _make_finding(self, address: Address, message: str, hint: str) -> PlanFinding:
        return PlanFinding(address, self.situation.wanted[address].source, message, hint)


def _list_prefixes(name: str, separator: str) -> Iterator[str]:
    at = name.find(separator)
    while at >= 0:
        yield name[: at + 1]
        at = name.find(separator, at + 1)
