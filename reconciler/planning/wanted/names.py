"""Physical names: what a platform calls a topic, and the addresses that would claim the same one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from reconciler.planning.finding import Finding
from reconciler.resources.mirrorlink import MirrorTopic
from reconciler.resources.names import MAX_NAME
from reconciler.resources.topic import Topic

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reconciler.planning.situation import Situation
    from reconciler.resources.address import Address
    from reconciler.resources.cluster import Cluster

_SEPARATOR: Final = "."


def physical_name(cluster: Cluster, full_name: str) -> str:
    """Return what the platform calls a topic: the embedded cluster its full name, the others one flat word."""
    if cluster.spec.provider == "embedded":
        return full_name
    separator = cluster.spec.kafka.namespace_separator if cluster.spec.kafka else _SEPARATOR
    return full_name.replace(":", separator)


def check_names(situation: Situation) -> Iterator[Finding]:
    """Yield flat names that two wanted topics would share (`.` and `_` fold together), and names that are too long."""
    flat = {name for name, cluster in situation.clusters.items() if cluster.spec.provider != "embedded"}
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
        first = claimed.setdefault((resource.cluster, name.replace("_", ".")), address)
        is_role_change = {address.partition("/")[2]} == {first.partition("/")[2]}
        if first != address and not is_role_change:
            yield Finding(
                address,
                wanted.source,
                f"{name} on cluster {resource.cluster} is claimed by {first} too ('.' and '_' are one there)",
                f"Rename one of them; the other is declared at {situation.wanted[first].source}.",
            )
