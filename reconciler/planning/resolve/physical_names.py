"""Physical names of topics on platforms without namespaces."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from reconciler.planning.findings import Finding
from reconciler.resources.address import MAX_NAME, Address, cluster_of, full_name_of, kind_of
from reconciler.resources.mirror_link import MirrorTopic
from reconciler.resources.topic import Topic

if TYPE_CHECKING:
    from reconciler.planning.situation import Situation
    from reconciler.resources.cluster import Cluster
    from reconciler.resources.inventory import Inventory, Observed


_SEPARATOR: Final = "."


def is_flat(cluster: Cluster) -> bool:
    """Tell whether a platform knows no tiers: names of topics are one word to it."""
    return cluster.spec.provider != "embedded"


def separator_of(cluster: Cluster) -> str:
    """Return what stands between tiers in the flat names of a cluster."""
    return cluster.spec.kafka.namespace_separator if cluster.spec.kafka else _SEPARATOR


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


def check_names(situation: Situation) -> Iterator[Finding]:
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
