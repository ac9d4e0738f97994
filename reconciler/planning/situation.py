"""Inputs of planning decisions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from reconciler.resources.address import Address, address_of, build_sort_key, cluster_address, cluster_of, list_levels
from reconciler.resources.configs import DEFAULT
from reconciler.resources.mirror_link import MirrorTopic
from reconciler.resources.mount import Mounting
from reconciler.resources.owners import ResourceOwner, build_owner_key
from reconciler.resources.topic import Topic
from reconciler.runtime.dataclass import dataclass, field

if TYPE_CHECKING:
    from reconciler.planning.actions import Action
    from reconciler.planning.plan import FieldMark, PlanInput
    from reconciler.resources.cluster import Cluster
    from reconciler.resources.inventory import Capabilities, Desired, Inventory, Observed, Record, Recorded, Resource
    from reconciler.resources.measures import Measure


IMPLIED: Final = ""
"""Key in `origins` of an implied namespace. Its value is the declared namespace below."""

NO_ORIGINS: Final[Mapping[str, str]] = MappingProxyType({})

STOPPED: Final = "STOPPED"

COPYING: Final = frozenset({"mirroring", "paused"})
"""Roles in which a mirror rejects producers."""


@dataclass(frozen=True, slots=True)
class WantedResource:
    """A desired resource with inherited values, in canonical form.

    `origins` are the origins of inherited values by path, or `default` for a path to unset.
    """

    resource: Resource
    source: str | None
    origins: Mapping[str, str] = field(default_factory=lambda: NO_ORIGINS)
    moved_from: Address | None = None
    marks: tuple[FieldMark, ...] = ()
    propagated_configs: Mapping[str, str] = field(default_factory=lambda: NO_ORIGINS)
    """Configs of a namespace written to each topic, on platforms without inheritance."""

    @property
    def implied_by(self) -> str | None:
        """The declared namespace that implies this namespace, if it has no manifest."""
        return self.origins.get(IMPLIED)


def list_unset_paths(origins: Mapping[str, str]) -> frozenset[str]:
    """Return the paths that the files declare as unset."""
    return frozenset(path for path, origin in origins.items() if origin == DEFAULT) if origins else frozenset()


ALTERED: Final = "a command"
"""Origin of a recorded field that only a command set."""


def list_altered_paths(last: Recorded | None) -> frozenset[str]:
    """Return the recorded paths that only commands have set."""
    origins = last.origins if last is not None else {}
    return frozenset(path for path, origin in origins.items() if origin == ALTERED) if origins else frozenset()


MOVED_BY_COMMAND: Final = "namespace move"
"""Key in `origins` for the previous address of a topic that a command moved."""


@dataclass(frozen=True)
class Situation:
    """The inventories and the request of a plan."""

    wanted: Mapping[Address, WantedResource]
    recorded: Record
    observed: Inventory
    request: PlanInput
    clusters: Mapping[str, Cluster]
    trusted: frozenset[str]
    """Clusters read with the recorded identity, and clusters to create."""
    is_chosen: Callable[[Address], bool] = lambda _address: True
    find_ignore_rule: Callable[[Address, str], str | None] = lambda _address, _path: None
    """Returns the rule that ignores drift of a field, if any."""
    changed_by_roles: Mapping[Address, frozenset[Address]] = field(default_factory=dict)
    """Addresses that a role change affects, by declared mirror."""

    def find_capabilities(self, cluster: str) -> Capabilities:
        """Return the capabilities of a trusted cluster."""
        return self.request.capabilities[cluster]

    def is_copied_by_cluster(self, mirror: Address) -> bool:
        """Return whether a mirror's cluster, instead of jobs, copies it."""
        capabilities = self.request.capabilities.get(cluster_of(mirror) or "")
        return capabilities is not None and not capabilities.mirrors.by_jobs

    def name_ending(self, mirror: Address) -> str:
        """Return what makes a mirror an ordinary topic: `promote`, or `fail over` if its cluster cannot promote."""
        capabilities = self.request.capabilities.get(cluster_of(mirror) or "")
        is_lacking = capabilities is not None and "promoted" not in capabilities.mirrors.roles
        return "fail over" if is_lacking and self.is_copied_by_cluster(mirror) else "promote"

    def can_plan(self, address: Address) -> bool:
        """Return whether the plan may change an address: it is selected and its cluster is trusted."""
        return cluster_of(address) in self.trusted and self.is_chosen(address)

    @cached_property
    def planned(self) -> tuple[Address, ...]:
        """Sorted desired addresses that the plan may change."""
        return tuple(filter(self.can_plan, sorted(self.wanted)))

    def exists_as_recorded(self, address: Address) -> bool:
        """Return whether the resource exists and was not recreated since it was recorded."""
        seen, last = self.observed.get(address), self.recorded.get(address)
        return seen is not None and not (last is not None and is_recreated(last, seen))

    def has_namespace(self, cluster: str, namespace: str) -> bool:
        """Return whether a namespace is desired or exists, as the root namespace always does."""
        address = address_of("namespace", cluster, namespace)
        is_there = address in self.observed or address in self.request.hidden
        return not namespace or address in self.wanted or is_there

    def list_nearest_namespaces(self, cluster: str, namespace: str) -> tuple[Address, ...]:
        """Return a namespace and its parents, nearest first."""
        return tuple(address_of("namespace", cluster, tier) for tier in reversed(list_levels(namespace)))

    @cached_property
    def foreign_owners(self) -> Mapping[str, Mapping[str, ResourceOwner]]:
        """Other workspaces that own resources, by cluster and owner key."""
        me = self.request.me
        if not self.request.has_state:
            return {}
        owners_by_key: dict[str, Mapping[str, ResourceOwner]] = {}
        for cluster in self.trusted:
            seen = self.observed.get(cluster_address(cluster))
            if seen is None or seen.cluster.owners is None:
                continue
            owners = seen.cluster.owners
            strange = {name: owner for name, owner in owners.workspaces.items() if me is None or not owner.is_same(me)}
            if strange:
                owners_by_key[cluster] = {
                    key: strange[name] for key, name in owners.lineages_by_key.items() if name in strange
                }
        return owners_by_key

    def find_foreign_owner(self, address: Address, resource: object = None) -> ResourceOwner | None:
        """Return the other workspace that owns a resource, if any."""
        others = self.foreign_owners.get(cluster_of(address) or "")
        key = build_owner_key(address, resource) if others else None
        return None if not others or key is None else others.get(key)

    def explain_foreign_owner(self, address: Address, *related: Address) -> tuple[str, str] | None:
        """Return message and hint if another workspace owns a resource, unless it or `related` ones are recorded."""
        owner = self.find_foreign_owner(address)
        if owner is None or self.recorded.keys() & {address, *related}:
            return None
        return (
            f"{address} is owned by {owner}",
            "Change it in that workspace. In an emergency: --no-state does not check owners.",
        )

    @cached_property
    def observed_mirrors(self) -> Mapping[Address, MirrorTopic]:
        """Observed mirrors by address."""
        resources = (
            (address, item.resource) for address, item in self.observed.items() if address.startswith("mirror/")
        )
        return {address: resource for address, resource in resources if isinstance(resource, MirrorTopic)}

    @cached_property
    def mirrors_by_source(self) -> Mapping[Address, tuple[Address, ...]]:
        """Mirrors that copy a source now or after the plan, by source topic."""
        mirrors_by_source: dict[Address, list[Address]] = {}
        made = {address: mirror for address, mirror in self.desired_mirrors.items() if mirror.state in COPYING}
        for address, mirror in {**self.observed_mirrors, **made}.items():
            if address not in self.observed_mirrors or is_mirroring(self.observed[address]):
                mirrors_by_source.setdefault(get_source_topic(mirror), []).append(address)
        return {source: tuple(sorted(mirrors)) for source, mirrors in mirrors_by_source.items()}

    @cached_property
    def desired_mirrors(self) -> Mapping[Address, MirrorTopic]:
        """Desired mirrors by address."""
        resources = ((address, item.resource) for address, item in self.wanted.items() if address.startswith("mirror/"))
        return {address: resource for address, resource in resources if isinstance(resource, MirrorTopic)}

    @cached_property
    def desired_mirrors_by_source(self) -> Mapping[Address, tuple[MirrorTopic, ...]]:
        """Desired mirrors in any role, by source topic."""
        entries: dict[Address, list[MirrorTopic]] = {}
        for address in sorted(self.desired_mirrors):
            entries.setdefault(get_source_topic(self.desired_mirrors[address]), []).append(
                self.desired_mirrors[address]
            )
        return {source: tuple(mirrors) for source, mirrors in entries.items()}

    @cached_property
    def mountings_by_topic(self) -> Mapping[Address, Mounting]:
        """The desired Mounting by mounted or unmounted topic."""
        resources = (item.resource for address, item in self.wanted.items() if address.startswith("mounting/"))
        return {get_mounted_topic(mounting): mounting for mounting in resources if isinstance(mounting, Mounting)}

    @cached_property
    def former_addresses(self) -> frozenset[Address]:
        """Declared previous addresses of resources that exist at the new address."""
        return frozenset(
            wanted.moved_from
            for address, wanted in self.wanted.items()
            if wanted.moved_from is not None and address in self.observed
        )

    @cached_property
    def topics_moved_away(self) -> Mapping[Address, Address]:
        """New address by missing declared topic that a command moved."""
        gone = {wanted for wanted in self.wanted if wanted.startswith("topic/") and wanted not in self.observed}
        if not gone:
            return {}
        lasts = ((address, self.recorded.get(address)) for address in gone)
        known = {(cluster_of(address), last.incarnation): address for address, last in lasts if last is not None}
        new_addresses: dict[Address, Address] = {}
        for address in self.observed.keys() - self.wanted.keys():
            last, incarnation = self.recorded.get(address), self.observed[address].incarnation
            was = last.origins.get(MOVED_BY_COMMAND) if last is not None else None
            old = Address(was) if was else known.get((cluster_of(address), incarnation)) if incarnation else None
            if old in gone and address.startswith("topic/"):
                new_addresses[old] = address
        return new_addresses

    @cached_property
    def unmounted_locations(self) -> Mapping[Address, str]:
        """Location in object storage by unmounted topic, or its Mounting."""
        locations = dict(self.request.stored.detached)
        for address, last in self.recorded.items():
            mounting = last.resource
            if isinstance(mounting, Mounting) and mounting.spec.state == "unmounted" and last.physical_name:
                locations |= dict.fromkeys((address, get_mounted_topic(mounting)), last.physical_name)
        attached = {item.topic.legacy.location for item in self.observed.values() if item.topic.legacy is not None}
        return {address: place for address, place in locations.items() if place not in attached}


def get_source_topic(mirror: MirrorTopic) -> Address:
    """Return a mirror's source topic."""
    return address_of("topic", mirror.source_cluster, mirror.source)


def as_topic(mirror: MirrorTopic) -> Address:
    """Return a mirror's address as a topic."""
    return address_of("topic", mirror.cluster, mirror.name)


def is_mirroring(mirror: Observed | None) -> bool:
    """Return whether a mirror still mirrors its source."""
    return mirror is not None and mirror.state != STOPPED


def is_replica(item: Observed | WantedResource | None) -> bool:
    """Return whether a desired or observed resource is a read replica."""
    return item is not None and isinstance(item.resource, Topic) and item.resource.spec.read_replica_of is not None


def is_recreated(last: Recorded, seen: Observed) -> bool:
    """Return whether the resource was recreated since it was recorded."""
    return last.incarnation is not None and seen.incarnation is not None and last.incarnation != seen.incarnation


def get_mounted_topic(mounting: Mounting) -> Address:
    """Return the topic that a Mounting mounts or unmounts."""
    return address_of("topic", mounting.cluster, mounting.topic_name)


def as_mirror(topic: Address) -> Address:
    """Return a topic's address as a mirror."""
    return Address("mirror/" + topic.partition("/")[2])


def find_taken_resources(
    record: Record, inventory: Inventory, me: ResourceOwner | None
) -> Iterator[tuple[Address, ResourceOwner]]:
    """Yield recorded resources that another workspace owns."""
    for address in sorted(record, key=build_sort_key):
        last, cluster = record[address], inventory.get(cluster_address(cluster_of(address) or ""))
        if cluster is None or cluster.cluster.owners is None or IMPLIED in last.origins:
            continue
        key = build_owner_key(address, last.resource)
        other = None if key is None else cluster.cluster.owners.find_other_owner(key, me)
        if other is not None:
            yield address, other


@dataclass(frozen=True, slots=True)
class Review:
    """The input of checks: situation and planned actions."""

    situation: Situation
    desired: Desired
    actions: Sequence[Action]
    measure: Callable[..., Measure | None]
    """Returns a topic's measurement, if any. `is_wish`: only estimates need it."""
    list_topics_below: Callable[[Address], Iterable[Address]]
