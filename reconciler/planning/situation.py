"""The situation: everything that decisions read, collected once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from reconciler.resources.address import Address, address_of, cluster_address, cluster_of, rank, tiers_of
from reconciler.resources.configs import DEFAULT
from reconciler.resources.mirror_link import MirrorTopic
from reconciler.resources.mount import Mounting
from reconciler.resources.owners import ResourceOwner, owner_key_of
from reconciler.resources.topic import Topic

if TYPE_CHECKING:
    from reconciler.planning.actions import Action
    from reconciler.planning.plan import Mark, PlanInput
    from reconciler.resources.cluster import Cluster
    from reconciler.resources.inventory import Capabilities, Desired, Inventory, Observed, Record, Recorded, Resource
    from reconciler.resources.measures import Measure


IMPLIED: Final = ""
"""Path in `origins` for the declared namespace that implied a tier above it."""

NO_ORIGINS: Final[Mapping[str, str]] = MappingProxyType({})

STOPPED: Final = "STOPPED"
"""Cluster state of a mirror that has stopped mirroring permanently."""

COPYING: Final = frozenset({"mirroring", "paused"})
"""Roles of a mirror that takes no records of its own."""


@dataclass(frozen=True, slots=True)
class WantedResource:
    """A desired resource with effective, canonical values.

    `origins`: path → origin of the value, if not the resource itself; `default` marks a path to be unset.
    """

    resource: Resource
    source: str | None
    origins: Mapping[str, str] = field(default_factory=lambda: NO_ORIGINS)
    moved_from: Address | None = None
    marks: tuple[Mark, ...] = ()
    """Manifest fields from which it was derived, if it has no document."""
    passed_on: Mapping[str, str] = field(default_factory=lambda: NO_ORIGINS)
    """For a namespace whose platform has no inheritance: configs written to each of its topics."""

    @property
    def implied_by(self) -> str | None:
        """Address of the declared namespace that implies this parent namespace, if it has no document."""
        return self.origins.get(IMPLIED)


def list_unset_paths(origins: Mapping[str, str]) -> frozenset[str]:
    """Return the paths that are declared to be unset."""
    return frozenset(path for path, origin in origins.items() if origin == DEFAULT) if origins else frozenset()


ALTERED: Final = "a command"
"""Origin of a recorded field that a command set first; the next plan removes the field."""


def list_altered_paths(last: Recorded | None) -> frozenset[str]:
    """Return the paths of a record that a command set and that files never set."""
    origins = last.origins if last is not None else {}
    return frozenset(path for path, origin in origins.items() if origin == ALTERED) if origins else frozenset()


MOVED_BY_COMMAND: Final = "namespace move"
"""Path in the origins of a recorded topic for the address from which a command moved it."""


@dataclass(frozen=True)
class Situation:
    """The three inventories and the request of a plan."""

    wanted: Mapping[Address, WantedResource]
    recorded: Record
    observed: Inventory
    request: PlanInput
    clusters: Mapping[str, Cluster]
    trusted: frozenset[str]
    """Clusters that were read and have the right identity, including clusters to be created."""
    is_chosen: Callable[[Address], bool] = lambda _address: True
    ignored: Callable[[Address, str], str | None] = lambda _address, _path: None
    """Returns the reviewed rule that leaves a field as observed, if any."""
    changed_by_roles: Mapping[Address, frozenset[Address]] = field(default_factory=dict)
    """Declared mirror → addresses changed by verbs to its role; only for a selection by address."""

    def capabilities(self, cluster: str) -> Capabilities:
        """Return the capabilities of a trusted cluster."""
        return self.request.capabilities[cluster]

    def can_plan(self, address: Address) -> bool:
        """Return whether an address is selected and its cluster was read, so that the plan may change it."""
        return cluster_of(address) in self.trusted and self.is_chosen(address)

    def is_there(self, address: Address) -> bool:
        """Return whether the observed resource is the recorded one, and no recreated one."""
        seen, last = self.observed.get(address), self.recorded.get(address)
        return seen is not None and not (last is not None and is_another(last, seen))

    def has_namespace(self, cluster: str, namespace: str) -> bool:
        """Return whether a namespace is declared, implied or exists; the root always does."""
        address = address_of("namespace", cluster, namespace)
        is_there = address in self.observed or address in self.request.hidden
        return not namespace or address in self.wanted or is_there

    def nearest(self, cluster: str, namespace: str) -> tuple[Address, ...]:
        """Return the addresses of a namespace and its parents, nearest first."""
        return tuple(address_of("namespace", cluster, tier) for tier in reversed(tiers_of(namespace)))

    @cached_property
    def others(self) -> Mapping[str, Mapping[str, ResourceOwner]]:
        """Resources that other workspaces own: cluster → owner key → owner."""
        me = self.request.me
        if not self.request.has_state:  # Without state, this workspace's owner is unknown.
            return {}
        owners_by_key: dict[str, Mapping[str, ResourceOwner]] = {}
        for cluster in self.trusted:
            seen = self.observed.get(cluster_address(cluster))
            if seen is None or seen.cluster.owners is None:
                continue
            owners = seen.cluster.owners
            strange = {name: owner for name, owner in owners.who.items() if me is None or not owner.is_same(me)}
            if strange:
                owners_by_key[cluster] = {key: strange[name] for key, name in owners.what.items() if name in strange}
        return owners_by_key

    def other_owner(self, address: Address, resource: object = None) -> ResourceOwner | None:
        """Return the other workspace that owns a resource, if any."""
        others = self.others.get(cluster_of(address) or "")
        key = owner_key_of(address, resource) if others else None
        return None if not others or key is None else others.get(key)

    def refused_owner(self, address: Address, *related: Address) -> tuple[str, str] | None:
        """Return message and hint if another workspace owns a resource that is not recorded here.

        `related` are resources that it belongs to; one of them may be recorded instead.
        """
        owner = self.other_owner(address)
        if owner is None or self.recorded.keys() & {address, *related}:
            return None
        return (
            f"{address} is owned by {owner}",
            "Change it in that workspace. In an emergency: --no-state does not check owners.",
        )

    @cached_property
    def mirrors(self) -> Mapping[Address, MirrorTopic]:
        """Mirrors that exist, by address."""
        resources = (
            (address, item.resource) for address, item in self.observed.items() if address.startswith("mirror/")
        )
        return {address: resource for address, resource in resources if isinstance(resource, MirrorTopic)}

    @cached_property
    def mirrored(self) -> Mapping[Address, tuple[Address, ...]]:
        """Source topic → its mirrors: desired ones that copy, and existing ones that still mirror."""
        mirrors_by_source: dict[Address, list[Address]] = {}
        made = {address: mirror for address, mirror in self.entries.items() if mirror.state in COPYING}
        for address, mirror in {**self.mirrors, **made}.items():
            if address not in self.mirrors or is_live(self.observed[address]):
                mirrors_by_source.setdefault(source_of(mirror), []).append(address)
        return {source: tuple(sorted(mirrors)) for source, mirrors in mirrors_by_source.items()}

    @cached_property
    def entries(self) -> Mapping[Address, MirrorTopic]:
        """Desired mirrors, by address."""
        resources = ((address, item.resource) for address, item in self.wanted.items() if address.startswith("mirror/"))
        return {address: resource for address, resource in resources if isinstance(resource, MirrorTopic)}

    @cached_property
    def entries_of(self) -> Mapping[Address, tuple[MirrorTopic, ...]]:
        """Topic → desired mirrors whose source it is, whatever their role."""
        entries: dict[Address, list[MirrorTopic]] = {}
        for address in sorted(self.entries):
            entries.setdefault(source_of(self.entries[address]), []).append(self.entries[address])
        return {source: tuple(mirrors) for source, mirrors in entries.items()}

    @cached_property
    def mountings(self) -> Mapping[Address, Mounting]:
        """Topic → the desired Mounting that mounts or unmounts it."""
        resources = (item.resource for address, item in self.wanted.items() if address.startswith("mounting/"))
        return {mounted_by(mounting): mounting for mounting in resources if isinstance(mounting, Mounting)}

    @cached_property
    def left_names(self) -> frozenset[Address]:
        """Former addresses of observed resources that are declared as moved."""
        return frozenset(
            wanted.moved_from
            for address, wanted in self.wanted.items()
            if wanted.moved_from is not None and address in self.observed
        )

    @cached_property
    def moved_away(self) -> Mapping[Address, Address]:
        """Declared topic that does not exist → the address to which a command moved it, by record or incarnation."""
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
    def unmounted(self) -> Mapping[Address, str]:
        """Address of a topic or Mounting → location of the topic's records, if no cluster has the topic attached."""
        locations = dict(self.request.stored.detached)
        for address, last in self.recorded.items():
            mounting = last.resource
            if isinstance(mounting, Mounting) and mounting.spec.state == "unmounted" and last.physical_name:
                locations |= dict.fromkeys((address, mounted_by(mounting)), last.physical_name)
        attached = {item.topic.legacy.location for item in self.observed.values() if item.topic.legacy is not None}
        return {address: place for address, place in locations.items() if place not in attached}


def source_of(mirror: MirrorTopic) -> Address:
    """Return the address of a mirror's source as a topic."""
    return address_of("topic", mirror.source_cluster, mirror.source)


def topic_of(mirror: MirrorTopic) -> Address:
    """Return the address of a mirror as a topic."""
    return address_of("topic", mirror.cluster, mirror.name)


def is_live(mirror: Observed | None) -> bool:
    """Return whether an observed mirror still mirrors its source, so that it rejects other records."""
    return mirror is not None and mirror.state != STOPPED


def is_replica(item: Observed | WantedResource | None) -> bool:
    """Return whether a desired or observed resource is a read replica."""
    return item is not None and isinstance(item.resource, Topic) and item.resource.spec.read_replica_of is not None


def is_another(last: Recorded, seen: Observed) -> bool:
    """Return whether the observed resource was recreated under the recorded name."""
    return last.incarnation is not None and seen.incarnation is not None and last.incarnation != seen.incarnation


def mounted_by(mounting: Mounting) -> Address:
    """Return the address of a mounting's topic."""
    return address_of("topic", mounting.cluster, mounting.topic_name)


def mirror_at(topic: Address) -> Address:
    """Return the address that a topic would have as a mirror."""
    return Address("mirror/" + topic.partition("/")[2])


def find_taken_over(
    record: Record, inventory: Inventory, me: ResourceOwner | None
) -> Iterator[tuple[Address, ResourceOwner]]:
    """Yield recorded resources that another workspace owns."""
    for address in sorted(record, key=rank):
        last, cluster = record[address], inventory.get(cluster_address(cluster_of(address) or ""))
        if cluster is None or cluster.cluster.owners is None or IMPLIED in last.origins:
            continue
        key = owner_key_of(address, last.resource)
        other = None if key is None else cluster.cluster.owners.other(key, me)
        if other is not None:
            yield address, other


@dataclass(frozen=True, slots=True)
class Review:
    """A plan that checks read before its findings are added."""

    situation: Situation
    desired: Desired
    actions: Sequence[Action]
    measure: Callable[..., Measure | None]
    """Returns the measurement of a topic; `is_wish`: no risk depends on it."""
    below: Callable[[Address], Iterable[Address]]
    """Returns the topics in a namespace or on a cluster; none for other addresses."""
