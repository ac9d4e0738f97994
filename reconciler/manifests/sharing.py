"""No two Clusters may be the same cluster: each would take what the other made for a stranger's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconciler.objectstore.settings import StoreSettings
from reconciler.resources.base import Complaint
from reconciler.resources.cluster import Cluster

if TYPE_CHECKING:
    import pathlib

    from reconciler.manifests.findings import Findings
    from reconciler.manifests.gathering import Gathering


def check_sharing(gathering: Gathering, folder: pathlib.Path, findings: Findings) -> None:
    """Complain about each Cluster that is reached in the same way as one declared before it."""
    seen: dict[tuple[str, ...], str] = {}
    for address, declared in sorted(gathering.desired.items()):
        if isinstance(declared.resource, Cluster):
            first = seen.setdefault(_reached(declared.resource, folder), f"{address} ({declared.source})")
            if not first.startswith(f"{address} "):
                name = declared.resource.spec.provider
                complaint = Complaint(
                    f"is the same cluster as {first}",
                    "Declare each cluster once, or correct one of the two",
                    ("spec", name),
                )
                findings.complain(gathering.places[address], complaint)


def _reached(cluster: Cluster, folder: pathlib.Path) -> tuple[str, ...]:
    """Return what two Clusters share only where they are one."""
    spec = cluster.spec
    if spec.embedded is not None:
        root = spec.embedded.root
        url = StoreSettings.resolve(root.url, folder=folder).url
        return "embedded", url.rstrip("/"), root.endpoint or ""
    if spec.confluent is not None:
        return "confluent", spec.confluent.rest_endpoint, spec.confluent.cluster_id
    servers = spec.kafka or spec.redpanda
    return ("kafka", *sorted(servers.bootstrap_servers)) if servers is not None else (cluster.address,)
