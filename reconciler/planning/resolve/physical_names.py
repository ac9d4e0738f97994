"""Physical names of topics on platforms without namespaces, and checks of names that collide there."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from reconciler.planning.plan import Finding
from reconciler.resources.address import (
    MAX_NAME,
    Address,
    address_of,
    cluster_of,
    full_name_of,
    kind_of,
    split_name,
    tiers_of,
)
from reconciler.resources.cluster import FLAT_SEPARATOR
from reconciler.resources.kafka_configs import is_internal
from reconciler.resources.mirror_link import MirrorTopic
from reconciler.resources.namespace import Namespace
from reconciler.resources.topic import Topic

if TYPE_CHECKING:
    from reconciler.planning.situation import Situation
    from reconciler.resources.cluster import Cluster
    from reconciler.resources.inventory import Inventory, Observed


def is_flat(cluster: Cluster) -> bool:
    """Tell whether a platform knows no tiers: names of topics are one word to it."""
    return cluster.spec.connection.separator() is not None


def separator_of(cluster: Cluster) -> str:
    """Return what stands between tiers in the flat names of a cluster."""
    return cluster.spec.connection.separator() or FLAT_SEPARATOR


def physical_name(cluster: Cluster, full_name: str) -> str:
    """Return what the platform calls a topic: the embedded cluster its full name, the others one flat word."""
    return full_name.replace(":", separator_of(cluster)) if is_flat(cluster) else full_name


def prefix_of(cluster: Cluster, namespace: str) -> str:
    """Return how the flat names of a namespace's topics begin; it ends with the separator: `team` is not `team2.x`."""
    return physical_name(cluster, namespace) + separator_of(cluster)


def folded(name: str) -> str:
    """Return a flat name as Kafka's metrics have it, where `.` and `_` are one: no two topics may share it."""
    return name.replace("_", ".")


def addressed(
    observed: Inventory,
    wanted: Container[Address],
    ours: Iterable[Address],
    clusters: Mapping[str, Cluster],
) -> Inventory:
    """Return what is observed under the addresses we know: on flat platforms the physical name is the identity.

    What is there is addressed by the namespaces that are known, and those change: a topic that lies in one by its name
    may be declared, or recorded, without it. `ours` are the addresses that are declared or recorded, declared first.
    """
    flat = {name: cluster for name, cluster in clusters.items() if is_flat(cluster)}
    if not flat:
        return observed
    strange = {
        (cluster_of(address) or "", _name_of(address, seen, flat)): address
        for address, seen in observed.items()
        if address not in wanted and kind_of(address) == "topic" and cluster_of(address) in flat
    }
    if not strange:
        return observed
    found = dict(observed)
    for address in ours:
        if address in observed or kind_of(address) != "topic":
            continue
        cluster = cluster_of(address) or ""
        if cluster not in flat:
            continue
        there = strange.get((cluster, physical_name(flat[cluster], full_name_of(address))))
        seen = found.pop(there, None) if there is not None else None
        if seen is not None:
            found[address] = _called(address, seen)
    return found


def _name_of(address: Address, seen: Observed, clusters: Mapping[str, Cluster]) -> str:
    return seen.physical_name or physical_name(clusters[cluster_of(address) or ""], full_name_of(address))


def _called(address: Address, seen: Observed) -> Observed:
    """Return the same topic under another address."""
    if not isinstance(seen.resource, Topic):
        return seen
    namespace, _, name = full_name_of(address).rpartition(":")
    metadata = seen.resource.metadata.model_copy(update={"namespace": namespace, "name": name})
    return replace(seen, resource=seen.resource.model_copy(update={"metadata": metadata}))


def check_shared_names(situation: Situation) -> Iterator[Finding]:
    """Yield flat names that two wanted topics would share (`.` and `_` fold together), and names that are too long."""
    flat = {name for name, cluster in situation.clusters.items() if is_flat(cluster)}
    if not flat:
        return
    claimed: dict[tuple[str, str], Address] = {}
    for address in sorted(situation.wanted):
        wanted = situation.wanted[address]
        resource = wanted.resource
        if not isinstance(resource, Topic | MirrorTopic) or resource.cluster not in flat:
            continue
        name = physical_name(situation.clusters[resource.cluster], resource.full_name)
        if len(name) > MAX_NAME:
            yield Finding(address, wanted.source, f"{name} is longer than {MAX_NAME} characters", "Shorten its name.")
        first = claimed.setdefault((resource.cluster, folded(name)), address)
        is_role_change = {address.partition("/")[2]} == {first.partition("/")[2]}
        if first != address and not is_role_change:
            yield Finding(
                address,
                wanted.source,
                f"{name} on cluster {resource.cluster} is claimed by {first} too ('.' and '_' are one there)",
                f"Rename one of them; the other is declared at {situation.wanted[first].source}.",
            )


# Names of one cluster that it, its tools or other namespaces have already.


def check_flat_names(situation: Situation) -> Iterator[Finding]:
    """Yield what is wrong with the flat names of each cluster that has some."""
    for name in sorted(situation.trusted):
        if is_flat(situation.clusters[name]):
            yield from _Naming(name, situation).all()


@dataclass(frozen=True)
class _Naming:
    """The names of one cluster."""

    cluster: str
    situation: Situation

    def all(self) -> Iterator[Finding]:
        """Yield everything that is wrong, by address."""
        for address in sorted(self.situation.wanted):
            resource = self.situation.wanted[address].resource
            if not isinstance(resource, Namespace | Topic) or resource.cluster != self.cluster:
                continue
            if self.situation.is_decidable(address):
                match resource:
                    case Namespace():
                        yield from self._namespace(address, resource.metadata.name)
                    case Topic():
                        yield from self._topic(address, resource)

    @property
    def _declared(self) -> Cluster:
        return self.situation.clusters[self.cluster]

    def _namespace(self, address: Address, name: str) -> Iterator[Finding]:
        """A namespace is its prefix: what shares it shares its rules and its topics (F-K-030)."""
        prefix = prefix_of(self._declared, name)
        for start in _starts(folded(prefix), folded(separator_of(self._declared))):
            for other in self._prefixes.get(start, ()):
                is_told_there = len(start) == len(prefix) and other > name
                if other == name or name in tiers_of(other) or other in tiers_of(name) or is_told_there:
                    continue
                there = prefix_of(self._declared, other)
                is_equal = len(start) == len(prefix)
                what = f"are {prefix!r} to it" if is_equal else f"begin with {there!r}, as all of that one's do"
                yield self._finding(
                    address,
                    f"its topics' names {what}: it cannot be told apart from "
                    f"{address_of('namespace', self.cluster, other)} ('.' and '_' are one)",
                    "Rename one of the two, or make one a tier of the other; namespaceSeparator says what stands "
                    "between tiers.",
                )
                return

    def _topic(self, address: Address, topic: Topic) -> Iterator[Finding]:
        name = physical_name(self._declared, topic.full_name)
        seen = self.situation.observed.get(address)
        internal = self.situation.capabilities(self.cluster).internal_topics
        if is_internal(name, internal) or (seen is not None and seen.is_internal):
            yield self._finding(
                address,
                f"{name} is a name that the platform keeps for itself: such topics are never managed",
                "Remove it from the files, or give it another name.",
            )
        yield from self._in_other(address, name, topic)
        if seen is None:
            yield from self._onto(address, name)

    def _in_other(self, address: Address, name: str, topic: Topic) -> Iterator[Finding]:
        """Yield the nearer namespace that a topic lies in by its flat name, whatever the files say (F-K-030)."""
        own = prefix_of(self._declared, topic.metadata.namespace) if topic.metadata.namespace else ""
        for start in reversed(list(_starts(name, separator_of(self._declared)))):
            home = self._homes.get(start)
            if home is not None and len(start) > len(own):
                there = f"{home}:{name[len(start) :]}"
                yield self._finding(
                    address,
                    f"it is {name} there, which lies in {address_of('namespace', self.cluster, home)} by its name",
                    f"Declare it as {there}, or rename it.",
                )
                return

    def _onto(self, address: Address, name: str) -> Iterator[Finding]:
        """Yield the topic that is there and has the same name once it is folded (F-K-031)."""
        other = self._there.get(folded(name))
        if other is None:
            return
        there = self.situation.observed[other]
        known = there.physical_name or physical_name(self._declared, full_name_of(other))
        if known == name:
            return  # the same topic under another address: told, or its record follows
        yield self._finding(
            address,
            f"{name} folds onto {known}, which is there ({other}): '.' and '_' are one in names of topics",
            "Give it another name; two such topics cannot be on one cluster.",
        )

    @cached_property
    def _prefixes(self) -> Mapping[str, list[str]]:
        """Return the wanted namespaces by their folded prefix."""
        found: dict[str, list[str]] = {}
        for address in sorted(self.situation.wanted):
            if kind_of(address) == "namespace" and cluster_of(address) == self.cluster:
                name = full_name_of(address)
                found.setdefault(folded(prefix_of(self._declared, name)), []).append(name)
        return found

    @cached_property
    def _homes(self) -> Mapping[str, str]:
        """Return the namespaces that are wanted, or that something wanted lies in, by their prefix."""
        homes: set[str] = set()
        for address in self.situation.wanted:
            kind = kind_of(address)
            if kind in {"namespace", "topic", "mirror"} and cluster_of(address) == self.cluster:
                name = full_name_of(address)
                homes.add(name if kind == "namespace" else split_name(name)[0])
        tiers = sorted({tier for home in homes for tier in tiers_of(home)}, reverse=True)
        return {prefix_of(self._declared, tier): tier for tier in tiers}

    @cached_property
    def _there(self) -> Mapping[str, Address]:
        """Return what is observed by its folded name."""
        return {
            folded(seen.physical_name or physical_name(self._declared, full_name_of(address))): address
            for address, seen in sorted(self.situation.observed.items())
            if kind_of(address) in {"topic", "mirror"} and cluster_of(address) == self.cluster
        }

    def _finding(self, address: Address, message: str, hint: str) -> Finding:
        return Finding(address, self.situation.wanted[address].source, message, hint)


def _starts(name: str, separator: str) -> Iterator[str]:
    """Yield what a name begins with, up to each separator."""
    at = name.find(separator)
    while at >= 0:
        yield name[: at + 1]
        at = name.find(separator, at + 1)
