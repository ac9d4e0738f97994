"""The situation: everything that decisions look at, gathered once."""

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
from reconciler.resources.owners import ResourceOwner, owned_as
from reconciler.resources.topic import Topic

if TYPE_CHECKING:
    from reconciler.planning.actions import Action
    from reconciler.planning.plan import Mark, PlanInput
    from reconciler.resources.cluster import Cluster
    from reconciler.resources.inventory import Capabilities, Desired, Inventory, Observed, Record, Recorded, Resource
    from reconciler.resources.measures import Measure


IMPLIED: Final = ""
"""The path under which `origins` keep what implied a resource as a whole: a tier above a declared namespace."""

NO_ORIGINS: Final[Mapping[str, str]] = MappingProxyType({})

STOPPED: Final = "STOPPED"
"""What a cluster says of a mirror whose mirroring is over for good."""

COPYING: Final = frozenset({"mirroring", "paused"})
"""The roles of a mirror that takes no records of its own."""


@dataclass(frozen=True, slots=True)
class WantedResource:
    """A resource as it is to be: effective, canonical, nothing left to look up.

    `origins` say where values come from that are not the resource's own; a path whose origin is `default` is to be
    unset.
    """

    resource: Resource
    source: str | None
    origins: Mapping[str, str] = field(default_factory=lambda: NO_ORIGINS)
    moved_from: Address | None = None
    marks: tuple[Mark, ...] = ()
    """The fields it was derived from, where it is no document of its own."""
    passed_on: Mapping[str, str] = field(default_factory=lambda: NO_ORIGINS)
    """Of a namespace whose topics do not inherit by themselves: the configs that are written on each of them."""

    @property
    def implied_by(self) -> str | None:
        """The declared namespace that this tier is there for."""
        return self.origins.get(IMPLIED)


def unset_paths(origins: Mapping[str, str]) -> frozenset[str]:
    """Return the paths that are declared to be unset."""
    return frozenset(path for path, origin in origins.items() if origin == DEFAULT) if origins else frozenset()


ALTERED: Final = "a command"
"""The origin, in a record, of a field that nothing recorded and that a command set: a plan takes it away again."""


def altered_paths(last: Recorded | None) -> frozenset[str]:
    """Return the paths of a record that a command set, and that were never applied from files."""
    origins = last.origins if last is not None else {}
    return frozenset(path for path, origin in origins.items() if origin == ALTERED) if origins else frozenset()


MOVED_BY_COMMAND: Final = "namespace move"
"""The path under which the origins of a recorded topic keep the address that a command moved it from."""


@dataclass(frozen=True)
class Situation:
    """The three inventories side by side."""

    wanted: Mapping[Address, WantedResource]
    recorded: Record
    observed: Inventory
    request: PlanInput
    clusters: Mapping[str, Cluster]
    """The declared clusters by name."""
    trusted: frozenset[str]
    """The clusters that were read and are who they should be; a cluster still to be created is one of them."""
    is_chosen: Callable[[Address], bool] = lambda _address: True
    ignored: Callable[[Address, str], str | None] = lambda _address, _path: None
    """Which reviewed rule leaves a field as it is observed, if any."""
    changed_by_roles: Mapping[Address, frozenset[Address]] = field(default_factory=dict)
    """By entry of a mirror, what the verbs to its role change; worked out only where a part was selected by address."""

    def capabilities(self, cluster: str) -> Capabilities:
        """Return the limits of a trusted cluster."""
        return self.request.capabilities[cluster]

    def is_decidable(self, address: Address) -> bool:
        """Tell whether anything may be decided about an address: it was selected and its cluster was read."""
        return cluster_of(address) in self.trusted and self.is_chosen(address)

    def is_there(self, address: Address) -> bool:
        """Tell whether a resource is observed, and is no other than the one that is recorded under its name."""
        seen, last = self.observed.get(address), self.recorded.get(address)
        return seen is not None and not (last is not None and is_another(last, seen))

    def has_namespace(self, cluster: str, namespace: str) -> bool:
        """Tell whether a namespace is declared, implied by a declared one, or there; the default one always is."""
        address = address_of("namespace", cluster, namespace)
        is_there = address in self.observed or address in self.request.hidden
        return not namespace or address in self.wanted or is_there

    def nearest(self, cluster: str, namespace: str) -> tuple[Address, ...]:
        """Return the addresses of a namespace's tiers, nearest first."""
        return tuple(address_of("namespace", cluster, tier) for tier in reversed(tiers_of(namespace)))

    @cached_property
    def others(self) -> Mapping[str, Mapping[str, ResourceOwner]]:
        """Return what other workspaces own, by cluster and key: mostly nothing."""
        me = self.request.me
        if not self.request.has_state:  # Then no process can tell which of them is this workspace.
            return {}
        found: dict[str, Mapping[str, ResourceOwner]] = {}
        for cluster in self.trusted:
            seen = self.observed.get(cluster_address(cluster))
            if seen is None or seen.cluster.owners is None:
                continue
            owners = seen.cluster.owners
            strange = {name: each for name, each in owners.who.items() if me is None or not each.is_same(me)}
            if strange:
                found[cluster] = {key: strange[name] for key, name in owners.what.items() if name in strange}
        return found

    def other_owner(self, address: Address, resource: object = None) -> ResourceOwner | None:
        """Return which other workspace owns a resource."""
        others = self.others.get(cluster_of(address) or "")
        key = owned_as(address, resource) if others else None
        return None if not others or key is None else others.get(key)

    def refused_owner(self, address: Address, *related: Address) -> tuple[str, str] | None:
        """Return why an order may not change a resource: another workspace owns it, and nothing of it is recorded here.

        `related` are the resources that it belongs to. What no workspace owns may be changed, and stays so.
        """
        owner = self.other_owner(address)
        if owner is None or self.recorded.keys() & {address, *related}:
            return None
        return (
            f"{address} is owned by {owner}",
            "Change it in that workspace. In an emergency: --no-state asks no owner.",
        )

    @cached_property
    def mirrors(self) -> Mapping[Address, MirrorTopic]:
        """Return the mirrors that are observed."""
        found = ((address, item.resource) for address, item in self.observed.items() if address.startswith("mirror/"))
        return {address: resource for address, resource in found if isinstance(resource, MirrorTopic)}

    @cached_property
    def mirrored(self) -> Mapping[Address, tuple[Address, ...]]:
        """Return, by source topic, the live mirrors that need it: wanted ones, and observed ones that go on."""
        found: dict[Address, list[Address]] = {}
        made = {address: mirror for address, mirror in self.entries.items() if mirror.state in COPYING}
        for address, mirror in {**self.mirrors, **made}.items():
            if address not in self.mirrors or is_live(self.observed[address]):
                found.setdefault(source_of(mirror), []).append(address)
        return {source: tuple(sorted(mirrors)) for source, mirrors in found.items()}

    @cached_property
    def entries(self) -> Mapping[Address, MirrorTopic]:
        """Return the mirrors that are wanted."""
        found = ((address, item.resource) for address, item in self.wanted.items() if address.startswith("mirror/"))
        return {address: resource for address, resource in found if isinstance(resource, MirrorTopic)}

    @cached_property
    def entries_of(self) -> Mapping[Address, tuple[MirrorTopic, ...]]:
        """Return the wanted mirrors by the topic they follow, or would."""
        found: dict[Address, list[MirrorTopic]] = {}
        for address in sorted(self.entries):
            found.setdefault(source_of(self.entries[address]), []).append(self.entries[address])
        return {source: tuple(mirrors) for source, mirrors in found.items()}

    @cached_property
    def mountings(self) -> Mapping[Address, Mounting]:
        """Return the wanted mountings by the address of their topic."""
        found = (item.resource for address, item in self.wanted.items() if address.startswith("mounting/"))
        return {mounted_by(mounting): mounting for mounting in found if isinstance(mounting, Mounting)}

    @cached_property
    def left_names(self) -> frozenset[Address]:
        """Return the addresses that something observed was moved from, or is declared to be."""
        return frozenset(
            wanted.moved_from
            for address, wanted in self.wanted.items()
            if wanted.moved_from is not None and address in self.observed
        )

    @cached_property
    def moved_away(self) -> Mapping[Address, Address]:
        """Return, by declared topic that is not there, the address it was moved to without the files.

        The record says so; a topic that was moved without the state keeps its incarnation. Where its new address is
        declared, too, the old one is another topic.
        """
        gone = {each for each in self.wanted if each.startswith("topic/") and each not in self.observed}
        if not gone:
            return {}
        lasts = ((address, self.recorded.get(address)) for address in gone)
        known = {(cluster_of(address), last.incarnation): address for address, last in lasts if last is not None}
        found: dict[Address, Address] = {}
        for address in self.observed.keys() - self.wanted.keys():
            last, incarnation = self.recorded.get(address), self.observed[address].incarnation
            was = last.origins.get(MOVED_BY_COMMAND) if last is not None else None
            old = Address(was) if was else known.get((cluster_of(address), incarnation)) if incarnation else None
            if old in gone and address.startswith("topic/"):
                found[old] = address
        return found

    @cached_property
    def unmounted(self) -> Mapping[Address, str]:
        """Return where records lie that no cluster has: of topics unmounted, and of the mountings that did it."""
        found = dict(self.request.stored.detached)
        for address, last in self.recorded.items():
            mounting = last.resource
            if isinstance(mounting, Mounting) and mounting.spec.state == "unmounted" and last.physical_name:
                found |= dict.fromkeys((address, mounted_by(mounting)), last.physical_name)
        attached = {item.topic.legacy.location for item in self.observed.values() if item.topic.legacy is not None}
        return {address: place for address, place in found.items() if place not in attached}


def source_of(mirror: MirrorTopic) -> Address:
    """Return the address under which a mirror's source is read as a topic."""
    return address_of("topic", mirror.source_cluster, mirror.source)


def topic_of(mirror: MirrorTopic) -> Address:
    """Return the address under which a mirror is read as a topic."""
    return address_of("topic", mirror.cluster, mirror.name)


def is_live(mirror: Observed | None) -> bool:
    """Tell whether an observed mirror takes no records of its own; a stopped one is an ordinary topic with a record."""
    return mirror is not None and mirror.state != STOPPED


def is_replica(item: Observed | WantedResource | None) -> bool:
    """Tell whether something is a read replica."""
    return item is not None and isinstance(item.resource, Topic) and item.resource.spec.read_replica_of is not None


def is_another(last: Recorded, seen: Observed) -> bool:
    """Tell whether an observed resource was created under the name of the recorded one, after that was deleted."""
    return last.incarnation is not None and seen.incarnation is not None and last.incarnation != seen.incarnation


def mounted_by(mounting: Mounting) -> Address:
    """Return the address of the topic that a mounting is about."""
    return address_of("topic", mounting.cluster, mounting.topic_name)


def mirror_at(topic: Address) -> Address:
    """Return the address a topic would have if it were a mirror."""
    return Address("mirror/" + topic.partition("/")[2])


def taken_over(
    record: Record, inventory: Inventory, me: ResourceOwner | None
) -> Iterator[tuple[Address, ResourceOwner]]:
    """Yield what is recorded and another workspace owns, by address."""
    for address in sorted(record, key=rank):
        last, cluster = record[address], inventory.get(cluster_address(cluster_of(address) or ""))
        if cluster is None or cluster.cluster.owners is None or IMPLIED in last.origins:
            continue
        key = owned_as(address, last.resource)
        other = None if key is None else cluster.cluster.owners.other(key, me)
        if other is not None:
            yield address, other


# What a check of a whole plan looks at: its situation, actions and measures.


@dataclass(frozen=True, slots=True)
class Review:
    """A plan before its findings: the situation it was made in, its actions, and what they were judged by."""

    situation: Situation
    desired: Desired
    """The files as they are, also what is no resource of a cluster: policies."""
    actions: Sequence[Action]
    measure: Callable[..., Measure | None]
    """Returns what was measured of a topic; `is_wish`: no risk rests on it."""
    below: Callable[[Address], Iterable[Address]]
    """Returns the topics in a namespace or on a cluster; of anything else none."""
