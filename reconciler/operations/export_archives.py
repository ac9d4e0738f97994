"""A lost cluster as it can be declared again: from the segments in object storage, and what was kept beside them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from reconciler.errors import UserError
from reconciler.operations.export_layout import LeftOut
from reconciler.planning.resolve.cluster_values import compiled_cluster
from reconciler.resources.address import (
    Address,
    address_of,
    cluster_address,
    kind_of,
    split_name,
    tiers_of,
)
from reconciler.resources.base import InNamespace, OfNamespace
from reconciler.resources.cluster import Cluster
from reconciler.resources.cluster_properties import CONFIG_DEFAULTS, EMBEDDED_PROPERTIES
from reconciler.resources.inventory import ClusterMetadata, Observed
from reconciler.resources.mount import ClampedOffset, Recoverable
from reconciler.resources.namespace import Namespace
from reconciler.resources.topic import Topic, TopicSpec

_ONLY_AT_CREATION: Final = "remote.recovery"
_NAMED: Final = 10
NEVER_KEPT: Final = (
    "Records that were not uploaded: the open segment of each partition, and all of topics that are not tiered.",
    "Sequence numbers of producers: one that sends again what it sent before the loss may write it twice.",
    "Transactions that were open, and transactional ids. One that was committed is there as far as it was uploaded.",
    "Migrations, and what was going on with mirrors: live mirrors are copied from their sources again.",
    "What groups committed after their part was written: they read again from what it has.",
)
"""What a lost cluster does not bring back, said in every report."""


@dataclass(frozen=True, slots=True)
class GroupReturn:
    """What becomes of the offsets that a consumer group had committed."""

    group: str
    offsets: int
    """Partitions that it goes on with: once their topics are recovered."""
    clamped: tuple[tuple[Address, ClampedOffset], ...] = ()
    """Of these, those that are set back to the end of what was uploaded."""
    lost: tuple[Address, ...] = ()
    """Topics that come back without the records its offsets are about."""
    waiting: tuple[Address, ...] = ()
    """Topics that were mounted: its offsets travel on with each, once it is released."""


@dataclass(frozen=True, slots=True)
class Archives:
    """What can be made of an object storage."""

    inventory: Mapping[Address, Observed] = field(default_factory=dict)
    """Namespaces, topics and links, as they would be declared."""
    found: Mapping[Address, Recoverable] = field(default_factory=dict)
    """What each topic would be recovered from."""
    older: Mapping[Address, Sequence[str]] = field(default_factory=dict)
    """Locations that had a topic's name before, on the same cluster."""
    left_out: tuple[LeftOut, ...] = ()
    unsaid: tuple[LeftOut, ...] = ()
    """What lies there, or was set, and is not declared."""
    metadata: ClusterMetadata | None = None
    """What is kept beside segments; `None`: nothing."""
    empty: tuple[Address, ...] = ()
    """Topics that come back without records: none were in object storage."""
    groups: tuple[GroupReturn, ...] = ()


def archives_in(
    cluster: Cluster,
    found: Iterable[tuple[str, Recoverable | UserError]],
    metadata: ClusterMetadata | None = None,
) -> Archives:
    """Sort what was found of one cluster: of several topics of one name, the newest is taken.

    `metadata` says what there was beside segments: what it has no topic of was deleted, or made later.
    """
    making = _Restoring(cluster, metadata or ClusterMetadata(cluster_id=""))
    by_name: dict[str, list[tuple[str, Recoverable]]] = {}
    for place, topic in found:
        match topic:
            case UserError():
                making.left_out.append(LeftOut(place, topic))
            case Recoverable():
                by_name.setdefault(topic.full_name, []).append((place, topic))
    for _, several in sorted(by_name.items()):
        making.add(several)
    making.add_empty()
    making.add_unsaid()
    return Archives(
        making.inventory,
        making.taken,
        making.older,
        tuple(making.left_out),
        tuple(making.unsaid),
        metadata,
        tuple(making.empty),
        tuple(making.groups()),
    )


class _Restoring:
    """A lost cluster in the making, from its segments and from what was kept beside them."""

    def __init__(self, cluster: Cluster, kept: ClusterMetadata) -> None:
        self._cluster = cluster.metadata.name
        self._kept = kept
        wanted = compiled_cluster(cluster, "", EMBEDDED_PROPERTIES)[0].resource
        self._properties = wanted.spec.properties if isinstance(wanted, Cluster) else {}
        is_topic = {address: kind_of(address) == "topic" for address in kept.inventory}
        self._topics = {address: seen for address, seen in kept.inventory.items() if is_topic[address]}
        self.inventory = {address: seen for address, seen in kept.inventory.items() if not is_topic[address]}
        self.left_out = [LeftOut(place, error) for place, error in kept.left_out]
        if kept.error is not None:
            self.left_out.append(LeftOut("metadata", kept.error))
        self.left_out += [LeftOut(f"metadata: {part.name}", part.error) for part in kept.parts if part.error]
        self.taken: dict[Address, Recoverable] = {}
        self._taken_at: set[str] = set()
        self.older: dict[Address, Sequence[str]] = {}
        self.unsaid: list[LeftOut] = []
        self.empty: list[Address] = []
        self._done: set[str] = set()
        """Places of topics that are declared, or are no use."""

    def add(self, several: list[tuple[str, Recoverable]]) -> None:
        """Declare the newest topic of one name, unless the cluster had none of it any more."""
        several.sort(key=lambda each: _revision(each[1].location))
        place, newest = several[-1]
        address = address_of("topic", self._cluster, newest.full_name)
        known = self._kept.places.get(place)
        self._done.add(place)
        if known is not None and known in self.inventory:
            return  # A live mirror: its link copies it from its source.
        if self._kept.has("topics") and known is None and _revision(newest.location) <= self._kept.revision:
            hint = f"Where it is wanted: recoverFrom: {newest.location}"
            message = f"topic {newest.full_name} was deleted from the cluster, and its records were kept"
            self.unsaid += [LeftOut(each, UserError(message, hint=hint)) for each, _ in several]
            return
        try:
            declared = self._declared(newest, None if known is None else self._topics.get(known))
        except ValueError as error:  # Names and configs are checked as those of manifests are.
            message = f"topic {newest.full_name!r} cannot be declared: {str(error).splitlines()[0]}"
            self.left_out.append(
                LeftOut(place, UserError(message, hint="Its topic.json was not written by this tool."))
            )
            return
        for made, seen in declared.items():
            self.inventory.setdefault(made, seen)
        self.taken[address] = replace(newest, groups=self._offsets_at(place))
        self._taken_at.add(place)
        if several[:-1]:
            self.older[address] = [each.location for _, each in several[:-1]]

    def add_empty(self) -> None:
        """Declare the topics of which object storage has no records; those that are no use there are left out."""
        unusable = {left.place for left in self.left_out}
        for place, address in sorted(self._kept.places.items(), key=lambda each: each[1]):
            seen = self._topics.get(address)
            if seen is None or place in self._done or place in unusable or address in self.inventory:
                continue
            source = self._kept.recovering.get(address)
            if source is None and self._is_mounted(place):
                continue
            try:
                declared = self._declared(_nothing_of(seen, source), seen)
            except ValueError as error:
                message = f"it cannot be declared: {str(error).splitlines()[0]}"
                self.left_out.append(LeftOut(address, UserError(message, hint="Declare it by hand.")))
                continue
            for made, each in declared.items():
                self.inventory.setdefault(made, each)
            if source is None:
                self.empty.append(address)

    def add_unsaid(self) -> None:
        """Say what the cluster's properties were, where its manifest says nothing of them."""
        for name, value in sorted(self._kept.properties.items()):
            if name not in self._properties:
                message = f"the property {name} was {value}, and the manifest of the Cluster does not say it"
                hint = "Write it under properties of the Cluster, where it is to hold again."
                self.unsaid.append(LeftOut(cluster_address(self._cluster), UserError(message, hint=hint)))

    def groups(self) -> Iterator[GroupReturn]:
        """Yield what becomes of each consumer group."""
        clamped: dict[str, list[tuple[Address, ClampedOffset]]] = {}
        for address, topic in self.taken.items():
            for each in topic.clamped():
                clamped.setdefault(each.group, []).append((address, each))
        for group, offsets in sorted(self._kept.groups.items()):
            comes = {place: found for place, found in offsets.items() if place in self._taken_at}
            left = {place: self._kept.places[place] for place in offsets if place in self._kept.places.keys() - comes}
            waiting = {address for place, address in left.items() if self._is_mounted(place)}
            lost = set(left.values()) - waiting
            lost -= {address for address in lost if kind_of(address) == "mirror" and address in self.inventory}
            yield GroupReturn(
                group,
                sum(map(len, comes.values())),
                tuple(clamped.get(group, ())),
                tuple(sorted(lost)),
                tuple(sorted(waiting)),
            )

    def _is_mounted(self, place: str) -> bool:
        """Tell whether a topic was mounted: another cluster made it."""
        return not place.startswith(f"topics/{self._kept.cluster_id}/")

    def _offsets_at(self, place: str) -> dict[str, Mapping[int, int]]:
        return {group: found[place] for group, found in self._kept.groups.items() if place in found}

    def _declared(self, found: Recoverable, known: Observed | None) -> dict[Address, Observed]:
        """Return a topic as it is declared, and its namespace; what namespaces give it anyway is left out."""
        namespace, name = split_name(found.full_name)
        around = self._around(namespace)
        configs = {
            key: value
            for key, value in found.configs.items()
            if key != _ONLY_AT_CREATION and (key in found.own or around.get(key) != value)
        }
        resource = None if known is None else known.resource
        acls = resource.spec.acls if isinstance(resource, Topic) else ()
        several = found.replication_factor if found.replication_factor > 1 else None
        topic = Topic(
            metadata=InNamespace(name=name, namespace=namespace, cluster=self._cluster),
            spec=TopicSpec(
                partitions=found.partitions,
                replication_factor=several,
                configs=configs,
                acls=acls,
                recover_from=found.location or None,
            ),
        )
        declared = {topic.address: Observed(topic, None if known is None else known.incarnation)}
        if namespace:
            above = Namespace(metadata=OfNamespace(name=namespace, cluster=self._cluster))
            declared[above.address] = Observed(above)
        return declared

    def _around(self, namespace: str) -> dict[str, str]:
        """Return what the cluster and namespaces say, the nearest last."""
        said = {config: self._properties[name] for name, config in CONFIG_DEFAULTS.items() if name in self._properties}
        for tier in tiers_of(namespace):
            seen = self.inventory.get(address_of("namespace", self._cluster, tier))
            if seen is not None and isinstance(seen.resource, Namespace):
                said |= seen.resource.spec.configs
        return said


def _nothing_of(seen: Observed, source: str | None) -> Recoverable:
    """Return a topic of which nothing is in object storage, or which was being made from a `source` there."""
    topic = seen.resource
    if not isinstance(topic, Topic):
        raise TypeError(topic)
    spec = topic.spec
    return Recoverable(
        source or "",
        topic.full_name,
        spec.partitions or 1,
        spec.replication_factor or 1,
        configs=spec.configs,
        own=spec.configs,
    )


def ends_text(found: Recoverable) -> str:
    """Say the next offset of each partition, as `topic storage` does: what came from there on was not uploaded."""
    shown = range(min(found.partitions, _NAMED))
    named = [f"{_next(found.ends.get(number))} of partition {number}" for number in shown]
    more = found.partitions - len(named)
    return ", ".join(named) + (f" and those of {more} more" if more else "")


def _next(bounds: tuple[int, int] | None) -> str:
    return f"{0 if bounds is None else bounds[1]:,}"


def _revision(location: str) -> int:
    return int(location.rpartition("/")[2])
