"""Manifests of a lost cluster, from object storage."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from reconciler.errors import UserError
from reconciler.operations.export_layout import OmittedResource
from reconciler.planning.resolve.cluster_values import compile_cluster
from reconciler.resources.address import Address, address_of, cluster_address, kind_of, list_levels, split_name
from reconciler.resources.base import InNamespace, OfNamespace
from reconciler.resources.cluster import Cluster
from reconciler.resources.cluster_properties import CONFIG_DEFAULTS, EMBEDDED_PROPERTIES
from reconciler.resources.inventory import ClusterMetadata, Observed
from reconciler.resources.mount import ClampedOffset, RecoverableTopic
from reconciler.resources.namespace import Namespace
from reconciler.resources.topic import Topic, TopicSpec
from reconciler.runtime.dataclass import dataclass, field, replace

_ONLY_AT_CREATION: Final = "remote.recovery"
_SHOWN_PARTITIONS: Final = 10
NEVER_KEPT: Final = (
    "Records that were not uploaded: the open segment of each partition, and all of topics that are not tiered.",
    "Sequence numbers of producers: one that sends again what it sent before the loss may write it twice.",
    "Transactions that were open, and transactional ids. A committed one is complete up to the last upload.",
    "Migrations, and transitions of mirrors: live mirrors are copied from their sources again.",
    "What groups committed after their part was written: they read again from what it has.",
)


@dataclass(frozen=True, slots=True)
class GroupReturn:
    """Committed offsets of a group that can be recovered."""

    group: str
    offsets: int
    """Number of partitions with offsets to recover."""
    clamped: tuple[tuple[Address, ClampedOffset], ...] = ()
    """Offsets beyond the uploaded records, reduced to their end."""
    lost: tuple[Address, ...] = ()
    """Topics without uploaded records, and therefore without offsets."""
    waiting: tuple[Address, ...] = ()
    """Topics mounted from other clusters, whose offsets can be recovered after a release."""


@dataclass(frozen=True, slots=True)
class Archives:
    """Resources that object storage can restore."""

    inventory: Mapping[Address, Observed] = field(default_factory=dict)
    recoveries: Mapping[Address, RecoverableTopic] = field(default_factory=dict)
    older: Mapping[Address, Sequence[str]] = field(default_factory=dict)
    """Locations of older topics with the same name."""
    left_out: tuple[OmittedResource, ...] = ()
    unsaid: tuple[OmittedResource, ...] = ()
    metadata: ClusterMetadata | None = None
    empty: tuple[Address, ...] = ()
    groups: tuple[GroupReturn, ...] = ()


def select_archives(
    cluster: Cluster,
    archived: Iterable[tuple[str, RecoverableTopic | UserError]],
    metadata: ClusterMetadata | None = None,
) -> Archives:
    """Select the topics of a cluster to declare: for each name the newest.

    A topic missing in `metadata` was deleted, or is newer than the metadata.
    """
    builder = _ManifestBuilder(cluster, metadata or ClusterMetadata(cluster_id=""))
    by_name: dict[str, list[tuple[str, RecoverableTopic]]] = {}
    for place, topic in archived:
        match topic:
            case UserError():
                builder.left_out.append(OmittedResource(place, topic))
            case RecoverableTopic():
                by_name.setdefault(topic.full_name, []).append((place, topic))
    for _, versions in sorted(by_name.items()):
        builder.add_newest(versions)
    builder.add_empty_topics()
    builder.add_unset_properties()
    return Archives(
        builder.inventory,
        builder.taken,
        builder.older,
        tuple(builder.left_out),
        tuple(builder.unsaid),
        metadata,
        tuple(builder.empty),
        tuple(builder.list_group_recoveries()),
    )


class _ManifestBuilder:
    def __init__(self, cluster: Cluster, metadata: ClusterMetadata) -> None:
        self._cluster = cluster.metadata.name
        self._metadata = metadata
        wanted = compile_cluster(cluster, "", EMBEDDED_PROPERTIES)[0].resource
        self._properties = wanted.spec.properties if isinstance(wanted, Cluster) else {}
        is_topic = {address: kind_of(address) == "topic" for address in metadata.inventory}
        self._topics = {address: seen for address, seen in metadata.inventory.items() if is_topic[address]}
        self.inventory = {address: seen for address, seen in metadata.inventory.items() if not is_topic[address]}
        self.left_out = [OmittedResource(place, error) for place, error in metadata.left_out]
        if metadata.error is not None:
            self.left_out.append(OmittedResource("metadata", metadata.error))
        self.left_out += [
            OmittedResource(f"metadata: {part.name}", part.error) for part in metadata.parts if part.error
        ]
        self.taken: dict[Address, RecoverableTopic] = {}
        self._taken_at: set[str] = set()
        self.older: dict[Address, Sequence[str]] = {}
        self.unsaid: list[OmittedResource] = []
        self.empty: list[Address] = []
        self._done: set[str] = set()

    def add_newest(self, versions: list[tuple[str, RecoverableTopic]]) -> None:
        versions.sort(key=lambda item: _parse_revision(item[1].location))
        place, newest = versions[-1]
        address = address_of("topic", self._cluster, newest.full_name)
        known = self._metadata.places.get(place)
        self._done.add(place)
        if known is not None and known in self.inventory:
            return
        # A topic that the later metadata lacks was deleted.
        if (
            self._metadata.has_part("topics")
            and known is None
            and _parse_revision(newest.location) <= self._metadata.revision
        ):
            hint = f"To recover it: recoverFrom: {newest.location}"
            message = f"topic {newest.full_name} was deleted from the cluster, and its records were kept"
            self.unsaid += [OmittedResource(key, UserError(message, hint=hint)) for key, _ in versions]
            return
        try:
            declared = self._declare_topic(newest, None if known is None else self._topics.get(known))
        except ValueError as error:
            message = f"topic {newest.full_name!r} cannot be declared: {str(error).splitlines()[0]}"
            self.left_out.append(
                OmittedResource(place, UserError(message, hint="Its topic.json was not written by this tool."))
            )
            return
        for made, seen in declared.items():
            self.inventory.setdefault(made, seen)
        self.taken[address] = replace(newest, groups=self._list_group_offsets(place))
        self._taken_at.add(place)
        if versions[:-1]:
            self.older[address] = [topic.location for _, topic in versions[:-1]]

    def add_empty_topics(self) -> None:
        unusable = {left.place for left in self.left_out}
        for place, address in sorted(self._metadata.places.items(), key=lambda item: item[1]):
            seen = self._topics.get(address)
            if seen is None or place in self._done or place in unusable or address in self.inventory:
                continue
            source = self._metadata.recovering.get(address)
            if source is None and self._is_foreign_location(place):
                continue
            try:
                declared = self._declare_topic(_build_empty_topic(seen, source), seen)
            except ValueError as error:
                message = f"it cannot be declared: {str(error).splitlines()[0]}"
                self.left_out.append(OmittedResource(address, UserError(message, hint="Declare it by hand.")))
                continue
            for made, observed in declared.items():
                self.inventory.setdefault(made, observed)
            if source is None:
                self.empty.append(address)

    def add_unset_properties(self) -> None:
        for name, value in sorted(self._metadata.properties.items()):
            if name not in self._properties:
                message = f"the property {name} was {value}, and the manifest of the Cluster does not set it"
                hint = "Write it under properties of the Cluster, to apply it again."
                self.unsaid.append(OmittedResource(cluster_address(self._cluster), UserError(message, hint=hint)))

    def list_group_recoveries(self) -> Iterator[GroupReturn]:
        clamped: dict[str, list[tuple[Address, ClampedOffset]]] = {}
        for address, topic in self.taken.items():
            for offset in topic.list_clamped_offsets():
                clamped.setdefault(offset.group, []).append((address, offset))
        for group, offsets in sorted(self._metadata.groups.items()):
            comes = {place: partitions for place, partitions in offsets.items() if place in self._taken_at}
            left = {
                place: self._metadata.places[place]
                for place in offsets
                if place in self._metadata.places.keys() - comes
            }
            waiting = {address for place, address in left.items() if self._is_foreign_location(place)}
            lost = set(left.values()) - waiting
            lost -= {address for address in lost if kind_of(address) == "mirror" and address in self.inventory}
            yield GroupReturn(
                group,
                sum(map(len, comes.values())),
                tuple(clamped.get(group, ())),
                tuple(sorted(lost)),
                tuple(sorted(waiting)),
            )

    def _is_foreign_location(self, place: str) -> bool:
        return not place.startswith(f"topics/{self._metadata.cluster_id}/")

    def _list_group_offsets(self, place: str) -> dict[str, Mapping[int, int]]:
        return {group: offsets[place] for group, offsets in self._metadata.groups.items() if place in offsets}

    def _declare_topic(self, recoverable: RecoverableTopic, known: Observed | None) -> dict[Address, Observed]:
        namespace, name = split_name(recoverable.full_name)
        around = self._compute_inherited_configs(namespace)
        configs = {
            key: value
            for key, value in recoverable.configs.items()
            if key != _ONLY_AT_CREATION and (key in recoverable.own or around.get(key) != value)
        }
        resource = None if known is None else known.resource
        acls = resource.spec.acls if isinstance(resource, Topic) else ()
        versions = recoverable.replication_factor if recoverable.replication_factor > 1 else None
        topic = Topic(
            metadata=InNamespace(name=name, namespace=namespace, cluster=self._cluster),
            spec=TopicSpec(
                partitions=recoverable.partitions,
                replication_factor=versions,
                configs=configs,
                acls=acls,
                recover_from=recoverable.location or None,
            ),
        )
        declared = {topic.address: Observed(topic, None if known is None else known.incarnation)}
        if namespace:
            above = Namespace(metadata=OfNamespace(name=namespace, cluster=self._cluster))
            declared[above.address] = Observed(above)
        return declared

    def _compute_inherited_configs(self, namespace: str) -> dict[str, str]:
        configs = {
            config: self._properties[name] for name, config in CONFIG_DEFAULTS.items() if name in self._properties
        }
        for tier in list_levels(namespace):
            seen = self.inventory.get(address_of("namespace", self._cluster, tier))
            if seen is not None and isinstance(seen.resource, Namespace):
                configs |= seen.resource.spec.configs
        return configs


def _build_empty_topic(seen: Observed, source: str | None) -> RecoverableTopic:
    topic = seen.resource
    if not isinstance(topic, Topic):
        raise TypeError(topic)
    spec = topic.spec
    return RecoverableTopic(
        source or "",
        topic.full_name,
        spec.partitions or 1,
        spec.replication_factor or 1,
        configs=spec.configs,
        own=spec.configs,
    )


def describe_next_offsets(recoverable: RecoverableTopic) -> str:
    """Describe each partition's next offset. Records from there on were not uploaded."""
    shown = range(min(recoverable.partitions, _SHOWN_PARTITIONS))
    named = [f"{_format_next_offset(recoverable.ends.get(number))} of partition {number}" for number in shown]
    more = recoverable.partitions - len(named)
    return ", ".join(named) + (f" and those of {more} more" if more else "")


def _format_next_offset(bounds: tuple[int, int] | None) -> str:
    return f"{0 if bounds is None else bounds[1]:,}"


def _parse_revision(location: str) -> int:
    return int(location.rpartition("/")[2])
