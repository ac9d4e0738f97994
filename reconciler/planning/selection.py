"""Select a part of a workspace, with dependencies."""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping
from itertools import chain
from typing import TYPE_CHECKING, Final

from reconciler.planning.actions import HALF
from reconciler.planning.plan import PlanFinding
from reconciler.planning.situation import (
    COPYING,
    Review,
    Situation,
    WantedResource,
    get_mounted_topic,
    get_source_topic,
)
from reconciler.resources.address import (
    Address,
    address_of,
    cluster_address,
    cluster_of,
    full_name_of,
    kind_of,
    list_levels,
    matches_pattern,
    split_name,
)
from reconciler.resources.cluster import Cluster
from reconciler.resources.inventory import Desired, Inventory, Record, Resource
from reconciler.resources.mirror_link import MirrorLink, MirrorLinkSpec, MirrorTopic
from reconciler.resources.mount import Mounting, MountSource
from reconciler.resources.namespace import Namespace
from reconciler.resources.tiering_policy import TieringPolicy
from reconciler.runtime.text import find_similar, format_suggestion, pluralize

if TYPE_CHECKING:
    from reconciler.planning.actions import Value
    from reconciler.planning.plan import PlanInput, Selection


def build_other_half_address(link: MirrorLink) -> Address:
    """Return the address of the same link on the source's cluster."""
    return address_of("link", link.spec.source, link.metadata.name)


def has_two_halves(link: MirrorLink) -> bool:
    """Return whether a link's mode requires the link on both clusters."""
    return link.spec.mode != "destination"


def is_second_half(wanted: WantedResource, situation: Situation) -> bool:
    """Return whether a link is the derived half of one that platforms copy, created after the destination's."""
    by_jobs = situation.find_capabilities(cluster_of(wanted.resource.address) or "").mirrors.by_jobs
    return isinstance(wanted.resource, MirrorLink) and bool(wanted.marks) and not by_jobs


def build_half_parameters(wanted: WantedResource, situation: Situation) -> dict[str, Value]:
    """Return the parameters of a link's creation: whether it is the source's half, which platforms make otherwise."""
    link = wanted.resource
    is_source_mode = isinstance(link, MirrorLink) and link.spec.mode == "source"
    return {HALF: "source"} if is_source_mode and is_second_half(wanted, situation) else {}


_NOT_SHARED: Final = ("prefix", "start_offset", "auto_create", "acl_sync", "mirror_topics", "moved_from")
"""Fields of a bidirectional link that differ between its clusters."""


def build_other_half(link: MirrorLink, source: str) -> WantedResource:
    """Build the same link on the source's cluster, without mirrors."""
    spec = link.spec
    half = MirrorLinkSpec(source=link.cluster, mode=spec.mode)
    if spec.mode == "bidirectional":
        half = spec.model_copy(update={"source": link.cluster, **{name: getattr(half, name) for name in _NOT_SHARED}})
    moved = address_of("link", spec.source, spec.moved_from) if spec.moved_from else None
    metadata = link.metadata.model_copy(update={"cluster": spec.source})
    other = link.model_copy(update={"metadata": metadata, "spec": half})
    return WantedResource(other, source, moved_from=moved, marks=((link.address, ("spec", "mode")),))


def build_exclude_pattern(cluster: str) -> str:
    """Return the pattern that excludes everything on a cluster."""
    return f"*/{cluster}/*"


def is_partial_selection(selection: Selection) -> bool:
    """Return whether the selection covers only a part of the workspace."""
    narrowing = selection.targets or selection.excludes or selection.labels
    return bool(narrowing) or selection.changed_files is not None


def build_selector(
    request: PlanInput,
    desired: Desired,
    wanted: Mapping[Address, WantedResource],
    recorded: Record,
    observed: Inventory,
    roles: Mapping[Address, frozenset[Address]],
) -> Callable[[Address], bool]:
    """Build a predicate for addresses that the plan may change.

    A target includes its dependencies, unless it is removed. `roles` are from `map_role_changes`.
    """
    selection = request.selection
    if not is_partial_selection(selection):
        return lambda _address: True
    everything = {*wanted, *recorded, *observed}
    ends = map_moved_addresses(wanted, everything)
    changed = _find_changed_addresses(selection, desired, wanted, recorded, ends)
    if changed is None and not (selection.targets or selection.labels or selection.excludes):
        return lambda _address: True
    chosen: set[Address] = everything
    if selection.targets or selection.labels or changed is not None:
        named = {address for address in everything if _is_named(address, selection, wanted, recorded, roles)}
        named = named if changed is None else named & changed
        named |= _find_other_ends(named, ends)
        chosen = named | set(_find_dependencies(named, wanted, recorded, _find_mount_needs(request, wanted)))
        chosen |= _find_other_ends(chosen, ends)
    excluded = {
        address for address in chosen if any(matches_pattern(pattern, address) for pattern in selection.excludes)
    }
    excluded |= _find_other_ends(excluded, ends)
    excluded |= {
        address
        for address, item in wanted.items()
        if (topic := _find_mounted_topic(item.resource))
        and (topic in excluded or _any_matches(selection.excludes, [topic]))
    }
    excluded |= {entry for entry, changed in roles.items() if _any_matches(selection.excludes, changed)}
    # Either address of a renamed resource excludes both.
    excluded |= _find_other_ends(excluded, ends)
    return (chosen - excluded).__contains__


def _find_changed_addresses(
    selection: Selection,
    desired: Desired,
    wanted: Mapping[Address, WantedResource],
    recorded: Record,
    ends: Mapping[Address, Address],
) -> set[Address] | None:
    files = selection.changed_files
    if files is None:
        return None
    policies = (declared for declared in desired.values() if isinstance(declared.resource, TieringPolicy))
    if any(read_source_file(declared.source) in files for declared in policies):
        return None
    touched = {address for address, item in wanted.items() if read_source_file(item.source) in files}
    touched |= {address for address in recorded if address not in wanted and address not in ends} if files else set()
    namespaces = {address for address in touched if kind_of(address) == "namespace"}
    if namespaces:
        touched |= {
            address
            for address in {*wanted, *recorded}
            if kind_of(address) in {"topic", "namespace", "mirror"}
            and not namespaces.isdisjoint(list_dependencies(address, None))
        }
    return touched


def map_moved_addresses(
    wanted: Mapping[Address, WantedResource], known: Container[Address]
) -> Mapping[Address, Address]:
    """Map the old and new address of each move to each other."""
    ends: dict[Address, Address] = {}
    for address, item in wanted.items():
        old = item.moved_from
        if old is not None and old in known and old not in wanted:
            ends[address], ends[old] = old, address
    return ends


def find_renamed_namespaces(
    declared: Mapping[Address, Address], *known: Container[Address]
) -> Mapping[Address, Address]:
    """Return the previous address by moved namespace, from the first of `known` that has one."""
    before = dict(declared)
    for address in sorted(declared):
        names = list(guess_former_addresses(address, declared[address], before))
        before[address] = next(
            (name for names_there in known for name in names if name in names_there), declared[address]
        )
    return before


def guess_former_addresses(
    address: Address, declared: Address | None, moved: Mapping[Address, Address]
) -> Iterator[Address]:
    """Yield possible previous addresses of a resource. `declared` is from `movedFrom`."""
    if declared is not None:
        yield declared
        yield from _guess_addresses_before_moves(declared, moved)
    yield from _guess_addresses_before_moves(address, moved)


def _guess_addresses_before_moves(address: Address, moved: Mapping[Address, Address]) -> Iterator[Address]:
    if kind_of(address) not in {"topic", "namespace", "mounting"}:
        return
    cluster, full_name = cluster_of(address) or "", full_name_of(address)
    home = full_name.rpartition(":")[0] if kind_of(address) == "namespace" else split_name(full_name)[0]
    for tier in reversed(list_levels(home)):
        old = moved.get(address_of("namespace", cluster, tier))
        if old is not None:
            yield Address(f"{kind_of(address)}/{cluster}/{full_name_of(old)}{full_name[len(tier) :]}")


def _find_other_ends(addresses: Iterable[Address], ends: Mapping[Address, Address]) -> set[Address]:
    return {ends[address] for address in addresses if address in ends}


def _find_mounted_topic(resource: Resource) -> Address | None:
    return get_mounted_topic(resource) if isinstance(resource, Mounting) else None


def check_targets(situation: Situation) -> Iterator[PlanFinding]:
    """Yield an error for each target, or exclusion of a destroy, without matches."""
    selection = situation.request.selection
    yield from _find_unmatched_patterns(situation, "--target", selection.targets)
    if situation.request.options.is_destroy:
        yield from _find_unmatched_patterns(situation, "--exclude", selection.excludes)


def check_excluded_dependencies(situation: Situation) -> Iterator[PlanFinding]:
    """Yield an error for each resource to create whose missing cluster, namespace or link is excluded."""
    if not situation.request.selection.excludes or situation.request.options.is_comparison:
        return
    for address, item in sorted(situation.wanted.items()):
        if address in situation.observed or not situation.can_plan(address):
            continue
        if situation.request.options.is_only_drift and address not in situation.recorded:
            continue  # A plan that only reverts drift creates no unrecorded resource.
        if isinstance(item.resource, MirrorTopic) and item.resource.source_cluster not in situation.trusted:
            continue  # The source's cluster was not read.
        missing = next(
            (
                needed
                for needed in _find_creation_needs(address, item.resource)
                if _is_missing_and_excluded(needed, situation)
            ),
            None,
        )
        if missing is not None:
            message = f"{missing} does not exist yet, and this plan leaves it out"
            hint = f"Leave out the --exclude that names it, or what it moves from; or add --exclude {address}."
            yield PlanFinding(address, item.source, message, hint, item.marks)


def _find_creation_needs(address: Address, resource: Resource) -> Iterator[Address]:
    is_unmounted = isinstance(resource, Mounting) and resource.spec.state == "unmounted"
    is_copy = isinstance(resource, MirrorTopic) and resource.state in COPYING
    for below in list_dependencies(address, resource):
        kind = kind_of(below)
        if below == address or (kind == "link" and not is_copy):
            continue
        if kind in {"cluster", "link"} or (kind == "namespace" and not is_unmounted):
            yield below


def _is_missing_and_excluded(address: Address, situation: Situation) -> bool:
    if address not in situation.wanted or situation.is_chosen(address):
        return False
    cluster = cluster_of(address) or ""
    if kind_of(address) == "cluster":
        return cluster in situation.request.identities and situation.request.identities[cluster] is None
    is_there = address in situation.observed or address in situation.request.hidden
    is_rule = kind_of(address) == "namespace" and situation.find_capabilities(cluster).namespaces_are_rules
    return not is_there and not is_rule


def format_required_option(addresses: Collection[Address], selection: Selection) -> str:
    """Return a hint with the option that makes the plan include these addresses."""
    if selection.labels:
        return "leave out --label"
    if not selection.targets or _any_matches(selection.excludes, addresses):
        return "leave out the --exclude that names it"
    return f"add {' '.join(f'--target {address}' for address in addresses)}"


def list_selection_warnings(review: Review) -> Iterator[PlanFinding]:
    """Warn about exclusions and labels without matches, and about unplanned role changes of targets."""
    situation, selection = review.situation, review.situation.request.selection
    if not situation.request.options.is_destroy:
        clusters = {build_exclude_pattern(cluster) for cluster in (*situation.clusters, *selection.left_out)}
        named = [pattern for pattern in selection.excludes if pattern not in clusters]
        yield from _find_unmatched_patterns(situation, "--exclude", named)
    yield from _find_unselected_roles(situation)
    if selection.changed_files is not None:
        unplanned = sum(not situation.is_chosen(address) for address in situation.wanted)
        if unplanned:
            message = f"{pluralize(unplanned, 'declared resource is', 'declared resources are')} not planned"
            hint = "--changed-since plans what changed since its revision, and what that depends on."
            yield PlanFinding(None, None, message, hint)
    if not selection.labels:
        return
    resources = [item.resource for item in situation.wanted.values()]
    resources += [item.resource for item in situation.recorded.values()]
    known = {pair for resource in resources for pair in read_labels(resource).items()}
    for name, value in selection.labels:
        if (name, value) not in known:
            values = sorted(other for label, other in known if label == name)
            near = find_similar(value, values) if values else find_similar(name, {label for label, _ in known})
            hint = format_suggestion(near, otherwise="Labels are in metadata.labels.")
            yield PlanFinding(None, None, f"nothing has the label {name}={value}", hint)


def _find_unselected_roles(situation: Situation) -> Iterator[PlanFinding]:
    targets, excludes = situation.request.selection.targets, situation.request.selection.excludes
    for entry, changed in sorted(situation.changed_by_roles.items()):
        topics = sorted(address for address in changed if _any_matches(targets, [address]))
        if not topics or situation.is_chosen(entry) or _any_matches(excludes, [entry, *changed]):
            continue
        item = situation.wanted[entry]
        message = f"its role changes {', '.join(topics)}, and is not planned: it is not a target"
        yield PlanFinding(entry, item.source, message, f"To plan it as well: --target {entry}", item.marks)


def _find_unmatched_patterns(situation: Situation, option: str, patterns: Collection[str]) -> Iterator[PlanFinding]:
    before = {item.moved_from for item in situation.wanted.values() if item.moved_from is not None} if patterns else ()
    changed = chain.from_iterable(situation.changed_by_roles.values())
    everything = {*situation.wanted, *situation.recorded, *situation.observed, *before, *changed} if patterns else set()
    for pattern in patterns:
        if not any(matches_pattern(pattern, address) for address in everything):
            near = find_similar(pattern, everything)
            hint = format_suggestion(near, otherwise="Addresses are listed by: reconciler show")
            yield PlanFinding(
                None, None, f"{option} {pattern} matches nothing that is declared, recorded or on a cluster", hint
            )


def _any_matches(patterns: Iterable[str], addresses: Collection[Address]) -> bool:
    return any(matches_pattern(pattern, address) for pattern in patterns for address in addresses)


def _list_mirrors_in(changed: Iterable[Address]) -> list[Address]:
    return [address for address in changed if kind_of(address) == "mirror"]


def _is_named(
    address: Address,
    selection: Selection,
    wanted: Mapping[Address, WantedResource],
    recorded: Record,
    roles: Mapping[Address, frozenset[Address]],
) -> bool:
    item = wanted.get(address)
    if selection.targets and not _any_matches(selection.targets, [address, *_list_mirrors_in(roles.get(address, ()))]):
        return False
    if selection.labels:
        resource = item.resource if item else recorded[address].resource if address in recorded else None
        labels = read_labels(resource) if resource else {}
        if any(labels.get(name) != value for name, value in selection.labels):
            return False
    return True


def read_source_file(source: str | None) -> str:
    """Return the file of a source such as `manifests/topics.yaml:88`; empty for `None`."""
    return source.rpartition(":")[0] if source else ""


def read_labels(resource: Resource) -> Mapping[str, str]:
    """Return a resource's labels, if any."""
    return {} if isinstance(resource, MirrorTopic) else resource.metadata.labels


def _find_mount_needs(
    request: PlanInput, wanted: Mapping[Address, WantedResource]
) -> Mapping[Address, tuple[Address, ...]]:
    needs: dict[Address, tuple[Address, ...]] = {}
    for address, item in wanted.items():
        mounting = item.resource
        if isinstance(mounting, Mounting) and mounting.spec.state == "mounted":
            source = request.stored.mounts.get(address)
            needs[get_mounted_topic(mounting)] = (address,)
            if isinstance(source, MountSource) and source.unmounts is not None:
                needs[address] = (source.unmounts,)
    return needs


def _find_dependencies(
    named: Iterable[Address],
    wanted: Mapping[Address, WantedResource],
    recorded: Record,
    mounted: Mapping[Address, tuple[Address, ...]],
) -> Iterator[Address]:
    waiting = [address for address in named if address in wanted or address in mounted]
    seen = set(waiting)
    while waiting:
        address = waiting.pop()
        item = wanted.get(address)
        for below in (*list_dependencies(address, item.resource if item else None), *mounted.get(address, ())):
            if below not in seen and (below in wanted or below not in recorded):
                seen.add(below)
                waiting.append(below)
                yield below


def list_dependencies(address: Address, resource: Resource | None) -> Iterator[Address]:
    """Yield the resources that an address requires: its cluster, namespaces, link and source."""
    cluster = cluster_of(address)
    if cluster is None or isinstance(resource, Cluster | TieringPolicy):
        return
    yield cluster_address(cluster)
    kind = kind_of(address)
    if kind == "namespace":
        tiers = list_levels(full_name_of(address))[:-1]
    else:
        tiers = list_levels(split_name(full_name_of(address))[0])
    if kind != "link":
        yield from (address_of("namespace", cluster, tier) for tier in tiers)
    if isinstance(resource, MirrorLink):
        yield cluster_address(resource.spec.source)
        if has_two_halves(resource):
            yield build_other_half_address(resource)
    if isinstance(resource, MirrorTopic):
        yield address_of("link", cluster, resource.link)
        yield get_source_topic(resource)
        yield Address(get_source_topic(resource).replace("topic/", "mirror/", 1))


def find_parent_namespace(address: Address, resource: Resource) -> str:
    """Return a resource's namespace, or a namespace's parent."""
    if isinstance(resource, Namespace):
        return resource.metadata.name.rpartition(":")[0]
    return split_name(full_name_of(address))[0]
