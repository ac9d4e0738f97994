"""What object storage has of topics that are to be mounted: asked only where a mounting has no topic yet."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from reconciler.errors import UserError
from reconciler.lifecycles.mounting import is_under_way
from reconciler.planning.situation import mounted_by
from reconciler.planning.wanted.mountsources import (
    Attached,
    Lying,
    elsewhere,
    found_beside,
    found_detached,
    found_source,
    nothing_there,
    wanted_name,
)
from reconciler.planning.wanted.storages import is_one_storage
from reconciler.resources.address import address_of, cluster_address, cluster_of, full_name_of, kind_of
from reconciler.resources.cluster import Cluster
from reconciler.resources.mountable import MountSource
from reconciler.resources.mounting import Mounting
from reconciler.resources.namespace import Namespace
from reconciler.resources.topic import Topic
from reconciler.workflow.looking.lost import is_lost, leaving

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from reconciler.providers.base import Provider
    from reconciler.resources.address import Address
    from reconciler.resources.inventory import Desired, Record
    from reconciler.resources.mountable import Mountable, Mounts
    from reconciler.workflow.looking.observing import Seen


@dataclass(frozen=True, slots=True)
class Looked:
    """What was found: what mountings take, and where recorded topics lie that are gone."""

    mounts: Mounts
    detached: Mapping[Address, str]
    lost: frozenset[Address] = frozenset()
    """Topics that leave their cluster, and are not its any more."""


def mountables(providers: Mapping[str, Provider], desired: Desired, record: Record, seen: Seen) -> Looked:
    """Look for what mountings name, and for topics that are gone, on clusters that were read and can mount.

    Raises:
        RetryableError: An object storage cannot be reached.
    """
    return _Looking(providers, desired, record, seen).all()


class _Looking:
    """One look at each object storage, however many mountings there are."""

    def __init__(self, providers: Mapping[str, Provider], desired: Desired, record: Record, seen: Seen) -> None:
        self._providers = providers
        self._desired = desired
        self._record = record
        self._seen = seen
        found = (declared.resource for address, declared in desired.items() if kind_of(address) == "cluster")
        self._clusters = {each.metadata.name: each for each in found if isinstance(each, Cluster)}
        self._moving = {
            cluster_of(address)
            for address, declared in desired.items()
            if isinstance(declared.resource, Topic | Namespace) and declared.resource.spec.moved_from is not None
        }
        self._listed: dict[str, Sequence[Mountable] | UserError] = {}
        self._by_location: dict[str, Mapping[str, Mountable]] = {}
        self._lying: dict[str, Lying | UserError] = {}
        self._leaving = {
            mounted_by(declared.resource): address
            for address, declared in desired.items()
            if isinstance(declared.resource, Mounting) and declared.resource.spec.state == "unmounted"
        }

    def all(self) -> Looked:
        """Look."""
        if not any(map(self._can_look, self._clusters)):
            return Looked({}, {})
        declared = ((address, each.resource) for address, each in self._desired.items())
        mountings = dict(sorted((address, each) for address, each in declared if isinstance(each, Mounting)))
        asked = {address: each for address, each in mountings.items() if self._is_asked(each)}
        mounts = {
            address: found
            for address, mounting in asked.items()
            for found in [self._resolved(address, mounting)]
            if found is not None
        }
        return Looked(self._filled(mounts, asked), dict(self._detached(mountings)), frozenset(self._lost()))

    def _is_asked(self, mounting: Mounting) -> bool:
        topic, seen = mounted_by(mounting), self._seen
        under_way = seen.inventory.get(mounting.address)
        if under_way is not None and is_under_way(under_way.state):
            return False
        is_known = mounting.address in self._record
        if topic in seen.inventory:  # once, before it is taken for what its mounting only names
            is_asked = mounting.spec.state == "mounted" and "/" not in (mounting.spec.source or "") and not is_known
        else:
            is_asked = mounting.spec.state == "mounted" or not is_known
        return is_asked and self._can_look(mounting.cluster)

    def _can_look(self, cluster: str) -> bool:
        capabilities, declared = self._seen.capabilities.get(cluster), self._clusters.get(cluster)
        can_mount = capabilities is not None and capabilities.mountings
        return can_mount and declared is not None and declared.spec.object_storage is not None

    def _resolved(self, address: Address, mounting: Mounting) -> MountSource | UserError | None:
        lying, is_there = self._storage(mounting.cluster), mounted_by(mounting) in self._seen.inventory
        if isinstance(lying, UserError):
            return None if is_there else lying
        if is_there:
            return found_beside(mounting, lying)
        if mounting.spec.state == "unmounted":
            return found_detached(mounting, lying)
        last = self._record.get(address)
        if last is None and mounting.spec.moved_from is not None:
            last = self._record.get(address_of("mounting", mounting.cluster, mounting.spec.moved_from))
        found = found_source(mounting, last.physical_name if last is not None else None, lying)
        if found is not None:
            return found
        others = [(name, lying) for name in self._others(mounting.cluster) for lying in [self._storage(name)]]
        known = [(name, there) for name, there in others if isinstance(there, Lying)]
        return elsewhere(mounting, lying.url, known) or nothing_there(mounting, lying.url, self._leaves_by(mounting))

    def _leaves_by(self, mounting: Mounting) -> Address | None:
        """Return the mounting that unmounts what another wants, of a cluster whose topics get a location by that."""
        name = wanted_name(mounting)
        leaving = sorted(self._leaving.items())
        return next(
            (by for topic, by in leaving if full_name_of(topic) == name and topic in self._seen.inventory), None
        )

    def _filled(
        self, mounts: Mapping[Address, MountSource | UserError], asked: Mapping[Address, Mounting]
    ) -> dict[Address, MountSource | UserError]:
        """Return what is to be mounted with what lies there, unless this plan detaches it first."""
        found = dict(mounts)
        wanted: dict[str, dict[Address, str | None]] = {}
        for address, source in mounts.items():
            is_mount = asked[address].spec.state == "mounted" and mounted_by(asked[address]) not in self._seen.inventory
            if is_mount and isinstance(source, MountSource) and source.unmounts is None:
                wanted.setdefault(asked[address].cluster, {})[address] = source.location
        for cluster, locations in sorted(wanted.items()):
            for address, lies in self._providers[cluster].recoverable(locations).items():
                source = found[address]
                if isinstance(source, MountSource):
                    found[address] = lies if isinstance(lies, UserError) else replace(source, found=lies)
        return found

    def _detached(self, mountings: Mapping[Address, Mounting]) -> Iterator[tuple[Address, str]]:
        """Yield recorded topics that are gone, and that their cluster was the last to detach."""
        gone = [
            address
            for address in sorted(self._record)
            if kind_of(address) == "topic"
            and address not in self._seen.inventory
            and address not in self._seen.hidden
            and (address in self._desired or cluster_of(address) in self._moving)
        ]
        spoken = {mounted_by(mounting) for mounting in mountings.values()}
        if gone:
            lasts = (last.resource for last in self._record.values())
            unmounted = (last for last in lasts if isinstance(last, Mounting) and last.spec.state == "unmounted")
            spoken |= {mounted_by(last) for last in unmounted}  # said to lie there, whoever detached it
        for address in gone:
            cluster = cluster_of(address) or ""
            if address in spoken or not self._can_look(cluster):
                continue
            identity, listed = self._seen.identities.get(cluster), self._list(cluster)
            if identity is None or isinstance(listed, UserError):
                continue  # Only what a mounting rests on has to be known.
            mine = (each for each in listed if (each.owner, each.name) == (identity.cluster_id, full_name_of(address)))
            location = next((each.location for each in mine if each.state == "detached"), None)
            if location is not None:
                yield address, location

    def _lost(self) -> Iterator[Address]:
        for address in leaving(self._desired, self._record, self._seen.inventory):
            cluster = cluster_of(address) or ""
            if self._can_look(cluster) and self._is_lost(address, cluster):
                yield address

    def _is_lost(self, address: Address, asked: str) -> bool:
        """Tell whether a topic is not its cluster's any more, as `asked` sees the storage that both have."""
        item, identity = self._seen.inventory[address], self._seen.identities.get(cluster_of(address) or "")
        if item.legacy is None or identity is None:
            return False
        return is_lost(item, identity.cluster_id, self._registered(asked).get(item.legacy.location))

    def _registered(self, cluster: str) -> Mapping[str, Mountable]:
        if cluster not in self._by_location:
            listed = self._list(cluster)
            known = () if isinstance(listed, UserError) else listed
            self._by_location[cluster] = {each.location: each for each in known}
        return self._by_location[cluster]

    def _list(self, cluster: str) -> Sequence[Mountable] | UserError:
        if cluster not in self._listed:
            try:
                self._listed[cluster] = self._providers[cluster].mountable()
            except UserError as error:
                self._listed[cluster] = error
        return self._listed[cluster]

    def _storage(self, cluster: str) -> Lying | UserError:
        if cluster not in self._lying:
            listed = self._list(cluster)
            self._lying[cluster] = listed if isinstance(listed, UserError) else self._lies(cluster, listed)
        return self._lying[cluster]

    def _lies(self, cluster: str, listed: Sequence[Mountable]) -> Lying:
        identities = {name: each.cluster_id for name, each in self._seen.identities.items() if each is not None}
        storage = self._clusters[cluster].spec.object_storage
        return Lying(
            storage.url if storage is not None else "",
            identities.get(cluster),
            listed,
            tuple(self._attached(cluster)),
            {cluster_id: name for name, cluster_id in sorted(identities.items(), reverse=True)},
        )

    def _attached(self, cluster: str) -> Iterator[Attached]:
        """Yield the topics that lie in the storage of a cluster and that a cluster which was read has."""
        sharing = {cluster, *(name for name in self._seen.identities if self._is_shared(cluster, name))}
        for address, item in sorted(self._seen.inventory.items()):
            name = cluster_of(address) or ""
            is_topic = item.legacy is not None and kind_of(address) == "topic" and name in sharing
            if item.legacy is not None and is_topic and not self._is_lost(address, cluster):
                yield Attached(name, full_name_of(address), item.legacy.location, self._leaving.get(address))

    def _is_shared(self, one: str, other: str) -> bool:
        mine, theirs = self._clusters.get(one), self._clusters.get(other)
        here, there = (self._seen.inventory.get(cluster_address(name)) for name in (one, other))
        return mine is not None and theirs is not None and is_one_storage(mine, here, theirs, there)

    def _others(self, cluster: str) -> Iterator[str]:
        """Yield the clusters that were read and have another object storage."""
        for name in sorted(self._seen.identities):
            if name != cluster and self._can_look(name) and not self._is_shared(cluster, name):
                yield name
