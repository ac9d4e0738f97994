"""Select a part of a workspace: targets, labels, changed files, dependencies."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconciler.planning.findings import Finding
from reconciler.planning.situation import Situation, WantedResource, mounted_by, source_of
from reconciler.resources.address import (
    Address,
    address_of,
    cluster_address,
    cluster_of,
    full_name_of,
    kind_of,
    matches,
    split_name,
    tiers_of,
)
from reconciler.resources.cluster import Cluster
from reconciler.resources.inventory import Resource
from reconciler.resources.mirror_link import MirrorLink, MirrorLinkSpec, MirrorTopic
from reconciler.resources.mount import Mounting, MountSource
from reconciler.resources.namespace import Namespace
from reconciler.resources.tiering_policy import TieringPolicy
from reconciler.runtime.text import did_you_mean, nearest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from reconciler.planning.plan import PlanInput, Selection
    from reconciler.resources.inventory import Inventory, Record


# The other half of a link that has two: of one name on both clusters, derived from what is declared of the first.


def half_at(link: MirrorLink) -> Address:
    """Return the address of the other half: on the source's cluster, under the same name."""
    return address_of("link", link.spec.source, link.metadata.name)


def has_two_halves(link: MirrorLink) -> bool:
    """Tell whether a link is made on both clusters."""
    return link.spec.mode != "destination"


def half_of(link: MirrorLink, source: str) -> WantedResource:
    """Return the other half, which mirrors nothing until roles are swapped.

    What it does then is what this one does; what makes mirrors or writes by itself stays with this one.
    """
    spec = link.spec
    half = MirrorLinkSpec(source=link.cluster, mode=spec.mode)
    if spec.mode == "bidirectional":
        same = (
            "paused",
            "retry_timeout",
            "metadata_interval",
            "consumer_offset_sync",
            "topic_config_sync",
            "keep_diverged",
        )
        half = half.model_copy(update={name: getattr(spec, name) for name in same})
    metadata = link.metadata.model_copy(update={"cluster": spec.source})
    other = link.model_copy(update={"metadata": metadata, "spec": half})
    return WantedResource(other, source, marks=((link.address, ("spec", "mode")),))


def is_partial(selection: Selection) -> bool:
    """Tell whether a plan is about less than the whole workspace."""
    narrowing = selection.targets or selection.excludes or selection.labels
    return bool(narrowing) or selection.changed_files is not None


def chooser(
    given: PlanInput, wanted: Mapping[Address, WantedResource], recorded: Record, observed: Inventory
) -> Callable[[Address], bool]:
    """Return the test of an address: may anything be decided about it?

    A target takes along what it depends on, except where it is to be removed: what it stood on stays.
    """
    selection = given.selection
    if not is_partial(selection):
        return lambda _address: True
    everything = {*wanted, *recorded, *observed}
    chosen: set[Address] = everything
    if selection.targets or selection.labels or selection.changed_files is not None:
        named = {address for address in everything if _is_named(address, selection, wanted, recorded)}
        chosen = (
            named if given.is_destroy else named | set(_leaned_on(named, wanted, recorded, _mounted(given, wanted)))
        )
    excluded = {address for address in chosen if any(matches(pattern, address) for pattern in selection.excludes)}
    return (chosen - excluded).__contains__


def check_targets(situation: Situation) -> Iterator[Finding]:
    """Yield each target that names nothing: a typing error must not look like nothing to do."""
    for pattern in situation.given.selection.targets:
        everything = {*situation.wanted, *situation.recorded, *situation.observed}
        if not any(matches(pattern, address) for address in everything):
            near = nearest(pattern, everything)
            hint = did_you_mean(near, otherwise="Addresses are listed by: reconciler show")
            yield Finding(None, None, f"--target {pattern} names nothing that is declared, recorded or there", hint)


def _is_named(
    address: Address, selection: Selection, wanted: Mapping[Address, WantedResource], recorded: Record
) -> bool:
    item = wanted.get(address)
    if selection.targets and not any(matches(pattern, address) for pattern in selection.targets):
        return False
    if selection.labels:
        resource = item.resource if item else recorded[address].resource if address in recorded else None
        labels = labels_of(resource) if resource else {}
        if any(labels.get(name) != value for name, value in selection.labels):
            return False
    if selection.changed_files is not None:
        if item is None:
            # What has left the files left them by a change of some file.
            return bool(selection.changed_files) and address in recorded
        return file_of(item.source) in selection.changed_files
    return True


def file_of(source: str | None) -> str:
    """Return the file of `manifests/topics.yaml:88`."""
    return source.rpartition(":")[0] if source else ""


def labels_of(resource: Resource) -> Mapping[str, str]:
    """Return the labels of a resource; a mirror topic has none of its own."""
    return {} if isinstance(resource, MirrorTopic) else resource.metadata.labels


def _mounted(given: PlanInput, wanted: Mapping[Address, WantedResource]) -> Mapping[Address, tuple[Address, ...]]:
    """Return what a topic needs that is mounted, and a mounting whose topic is detached elsewhere first."""
    found: dict[Address, tuple[Address, ...]] = {}
    for address, item in wanted.items():
        mounting = item.resource
        if isinstance(mounting, Mounting) and mounting.spec.state == "mounted":
            source = given.mounts.get(address)
            found[mounted_by(mounting)] = (address,)
            if isinstance(source, MountSource) and source.unmounts is not None:
                found[address] = (source.unmounts,)
    return found


def _leaned_on(
    named: Iterable[Address],
    wanted: Mapping[Address, WantedResource],
    recorded: Record,
    mounted: Mapping[Address, tuple[Address, ...]],
) -> Iterator[Address]:
    waiting = list(named)
    seen = set(waiting)
    while waiting:
        address = waiting.pop()
        item = wanted.get(address)
        resource = item.resource if item else recorded[address].resource if address in recorded else None
        for below in (*leans_on(address, resource), *mounted.get(address, ())):
            if below not in seen:
                seen.add(below)
                waiting.append(below)
                yield below


def leans_on(address: Address, resource: Resource | None) -> Iterator[Address]:
    """Yield what an address needs before it can be: its cluster, its tiers, its link, its source."""
    cluster = cluster_of(address)
    if cluster is None or isinstance(resource, Cluster | TieringPolicy):
        return
    yield cluster_address(cluster)
    kind = kind_of(address)
    if kind == "namespace":
        tiers = tiers_of(full_name_of(address))[:-1]
    else:
        tiers = tiers_of(split_name(full_name_of(address))[0])
    if kind != "link":
        yield from (address_of("namespace", cluster, tier) for tier in tiers)
    if isinstance(resource, MirrorLink):
        yield cluster_address(resource.spec.source)
        if has_two_halves(resource):
            yield half_at(resource)
    if isinstance(resource, MirrorTopic):
        yield address_of("link", cluster, resource.link)
        yield source_of(resource)
        yield Address(source_of(resource).replace("topic/", "mirror/", 1))


def namespace_of(address: Address, resource: Resource) -> str:
    """Return the namespace something lies in; of a namespace, the tier above it."""
    if isinstance(resource, Namespace):
        return resource.metadata.name.rpartition(":")[0]
    return split_name(full_name_of(address))[0]
