"""Which clusters answered, and whether they are who they should be. No `--allow` lifts what is found here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconciler.planning.finding import Finding
from reconciler.resources.address import cluster_address, cluster_of
from reconciler.resources.cluster import Cluster
from reconciler.resources.locations import is_overlapping

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reconciler.planning.plan import Given
    from reconciler.resources.address import Address
    from reconciler.resources.capabilities import ClusterIdentity
    from reconciler.resources.inventory import Declared, Desired, Record, Recorded


def declared_clusters(desired: Desired) -> dict[str, Cluster]:
    """Return the declared clusters by name."""
    found = (declared.resource for address, declared in desired.items() if address.startswith("cluster/"))
    return {resource.metadata.name: resource for resource in found if isinstance(resource, Cluster)}


def trusted_clusters(desired: Desired, given: Given, refused: tuple[Finding, ...]) -> frozenset[str]:
    """Return the clusters about which anything may be decided: declared, read, and not refused."""
    wrong = {cluster_of(finding.address) for finding in refused if finding.address}
    return frozenset(
        name
        for name in declared_clusters(desired)
        if name in given.identities and name in given.capabilities and name not in wrong
    )


def check_clusters(desired: Desired, recorded: Record, given: Given) -> Iterator[Finding]:
    """Yield what is wrong with the clusters themselves."""
    clusters = declared_clusters(desired)
    for name in sorted(clusters):
        if name in given.identities:
            address = cluster_address(name)
            yield from _check_one(desired[address], recorded.get(address), given.identities[name], given)
    yield from _check_apart(desired)
    yield from check_undeclared(desired)


def _check_apart(desired: Desired) -> Iterator[Finding]:
    """Yield each object storage in, around or at a cluster's root: the sweep there would delete what is remote."""
    clusters = declared_clusters(desired)
    roots = {name: each.spec.embedded.root for name, each in sorted(clusters.items()) if each.spec.embedded}
    for name in sorted(clusters):
        storage = clusters[name].spec.object_storage
        for other, root in roots.items():
            # One name at two endpoints is two buckets.
            if storage and storage.endpoint == root.endpoint and is_overlapping(storage.url, root.url):
                address = cluster_address(name)
                what = f"its objectStorage {storage.url} and {root.url}, the root of cluster {other},"
                message = f"{what} are one place or lie in each other"
                hint = "Give objectStorage a location of its own: a sweep deletes what its own cluster does not name."
                yield Finding(address, desired[address].source, message, hint)


def _check_one(
    declared: Declared, last: Recorded | None, identity: ClusterIdentity | None, given: Given
) -> Iterator[Finding]:
    cluster = declared.resource
    if not isinstance(cluster, Cluster):
        return
    name = cluster.metadata.name
    found: tuple[str, str] | None = None
    if identity is None:
        capabilities = given.capabilities.get(name)
        if last is not None:
            found = (
                f"cluster {name} is recorded as {last.incarnation or 'there'}, but nothing is there now",
                "A recorded cluster is never made anew. Check that its location can be reached.",
            )
        elif capabilities is not None and not capabilities.creates_cluster:
            found = (f"cluster {name} is not there", f"A {cluster.spec.provider} cluster cannot be created from here.")
    elif identity.provider != cluster.spec.provider:
        found = (
            f"cluster {name} is declared as {cluster.spec.provider}, but a {identity.provider} cluster answers",
            "Correct spec.provider, or the connection.",
        )
    elif cluster.spec.cluster_id is not None and cluster.spec.cluster_id != identity.cluster_id:
        found = (
            f"cluster {name} should be {cluster.spec.cluster_id}, but {identity.cluster_id} answers",
            "Correct spec.clusterId, or the connection: no other cluster is touched.",
        )
    elif last is not None:
        found = _moved_away(name, last, identity)
    if found:
        yield Finding(cluster.address, declared.source, *found)


def _moved_away(name: str, last: Recorded, identity: ClusterIdentity) -> tuple[str, str] | None:
    hint = (
        f"If that is on purpose: take {name} and all on it out of the files and apply, which only forgets them; "
        "then declare them again, and the next plan adopts what is there."
    )
    if isinstance(last.resource, Cluster) and last.resource.spec.provider != identity.provider:
        recorded = last.resource.spec.provider
        return f"cluster {name} was {recorded} when it was recorded, and is {identity.provider} now", hint
    if last.incarnation is not None and last.incarnation != identity.cluster_id:
        return f"cluster {name} was {last.incarnation} when it was recorded, but {identity.cluster_id} answers", hint
    return None


def check_undeclared(desired: Desired) -> Iterator[Finding]:
    """Yield each cluster that something is declared on, and that is not declared itself."""
    clusters = declared_clusters(desired)
    first: dict[str, Address] = {}
    for address in sorted(desired):
        name = cluster_of(address)
        if name is not None and name not in clusters:
            first.setdefault(name, address)
    for name, address in first.items():
        yield Finding(
            address,
            desired[address].source,
            f"cluster {name} is not declared",
            f"Declare a Cluster named {name}, or correct metadata.cluster.",
        )
