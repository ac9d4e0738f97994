"""Plan and create topics from object storage."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from reconciler.archives.cluster_metadata import (
    OffsetsByLocation,
    build_location_key,
    list_stored_clusters,
    read_stored_groups,
)
from reconciler.archives.keys import build_metadata_key, build_topic_manifest_key
from reconciler.archives.location import TopicLocation
from reconciler.archives.ownership import OwnershipState, iter_ownerships
from reconciler.archives.recoverable import check_recoverable, count_manifests, find_location
from reconciler.archives.topic_manifest import read_topic_manifest
from reconciler.embedded.acl import Permissions, to_acl_entries
from reconciler.embedded.catalog.tiering_state import get_topic_location
from reconciler.embedded.catalog.topics import TopicShape, recover_topic
from reconciler.embedded.tiered.cluster_metadata import PARTS, read_cluster_metadata
from reconciler.embedded.tiered.replicas import read_replica_source
from reconciler.errors import ReconcilerError, UserError
from reconciler.planning.actions import ControlAction, Create
from reconciler.providers.embedded.translate import list_observed
from reconciler.providers.models import no_storage_error, to_declared_link
from reconciler.providers.protocol import (
    NO_REPLICAS,
    CompletedAction,
    FailedAction,
    MaintenanceJobResult,
    Outcome,
    StoredCluster,
)
from reconciler.resources.address import Address, address_of, full_name_of, kind_of
from reconciler.resources.configs import DEFAULT
from reconciler.resources.inventory import ClusterMetadata, MetadataPart, Observed
from reconciler.resources.mount import MountableTopic, RecoverableTopic, Recoveries
from reconciler.resources.topic import Topic
from reconciler.runtime.dataclass import dataclass, replace
from reconciler.runtime.text import pluralize
from reconciler.runtime.threads import Memo, map_in_parallel

if TYPE_CHECKING:
    from reconciler.embedded.catalog.tables import Catalog, Draft
    from reconciler.embedded.cluster import EmbeddedCluster
    from reconciler.objectstore.base import ObjectStore


_FROM: Final = "recoverFrom"
_CONFIGS: Final = "configs."
_MAX_NAMED: Final = 10


@dataclass(frozen=True, slots=True)
class EmbeddedArchives:
    """Topics in one cluster's object storage. `cluster_id` reads the cluster's id."""

    cluster_address: Address
    storage: ObjectStore | None
    who: Permissions
    cluster_id: Callable[[], str | None]

    def find_recovery_sources(
        self, topics: Mapping[Address, str | None], replicas: Mapping[Address, str] = NO_REPLICAS
    ) -> Recoveries:
        """Return the sources of new topics. Sends a GET per topic and partition."""
        sources = look_up_sources(self.storage, self.cluster_id(), topics, self.who) if topics else {}
        return {**sources, **find_replica_sources(self.storage, replicas, self.who)} if replicas else sources

    def read_stored_cluster(self, cluster_id: str | None = None) -> StoredCluster:
        """Return all topics and metadata, by one GET per topic, partition and part."""
        topics = list_archived(self.cluster_address, self.storage, cluster_id)
        return StoredCluster(topics, read_stored_metadata(full_name_of(self.cluster_address), self.storage, cluster_id))

    def list_mountable_topics(self) -> Sequence[MountableTopic]:
        """Return all topics ever detached, with one GET each."""
        from reconciler.providers.migration_views import list_mountable_topics  # noqa: PLC0415 - only mounts need it

        return list_mountable_topics(self.cluster_address, self.storage)


def find_replica_sources(storage: ObjectStore | None, replicas: Mapping[Address, str], who: Permissions) -> Recoveries:
    """Return the sources of new read replicas, which only the super user may create."""

    def find_source(address: Address, location: str) -> RecoverableTopic | UserError:
        try:
            who.check_super_user(f"make {address} a read replica")
            if storage is None:
                return no_storage_error()
            return read_replica_source(storage, TopicLocation.parse(location))
        except UserError as error:
            return error

    sources = map_in_parallel(lambda item: find_source(*item), replicas.items(), name="replicas")
    return dict(zip(replicas, sources, strict=True))


def look_up_sources(
    storage: ObjectStore | None, cluster_id: str | None, topics: Mapping[Address, str | None], who: Permissions
) -> Recoveries:
    """Return the sources of new topics, by location or name, which only the super user may use."""

    def find_source(address: Address, location: str | None) -> RecoverableTopic | UserError:
        try:
            who.check_super_user(f"{'mount' if kind_of(address) == 'mounting' else 'recover'} {address}")
            if storage is None:
                return no_storage_error()
            name = full_name_of(address)
            where = find_location(storage, name) if location is None else TopicLocation.parse(location)
            source = check_recoverable(storage, where, cluster_id)
            return source if kind_of(address) == "mounting" else _add_group_offsets(source, storage)
        except UserError as error:
            return error

    def _add_group_offsets(outcomes: RecoverableTopic, storage: ObjectStore) -> RecoverableTopic:
        location = TopicLocation.parse(outcomes.location)
        if location.cluster_id == cluster_id:
            return outcomes
        metadata, why = groups.get(location.cluster_id, lambda: read_stored_groups(storage, location.cluster_id))
        if metadata is None:
            return replace(outcomes, groups_error=why)
        offsets = metadata.read_group_offsets(build_location_key(location.cluster_id, location.revision))
        by_group = {group: {number: entry.offset for number, entry in of.items()} for group, of in offsets.items()}
        return replace(outcomes, groups=by_group, groups_error=why)

    groups = Memo()
    outcomes = map_in_parallel(lambda entry: find_source(*entry), topics.items(), name="recoverable")
    return dict(zip(topics, outcomes, strict=True))


def list_archived(
    cluster: Address, storage: ObjectStore | None, cluster_id: str | None
) -> Iterator[tuple[str, RecoverableTopic | UserError]]:
    """Yield the topics that one cluster created, by key, in a stable order.

    Mounted topics of other clusters follow as errors, because they must be released first.

    Raises:
        UserError: There is no object storage, or the cluster's id is ambiguous or unknown there.
    """
    if storage is None:
        raise UserError(f"{cluster} has no object storage", hint="Declare its objectStorage: nothing else is read.")
    cluster_id = cluster_id or _find_only_cluster_id(storage)
    manifests = count_manifests(storage, cluster_id)
    mounted = dict(_list_foreign_mount_errors(cluster_id, storage))
    if not (manifests or mounted or _has_metadata(storage, cluster_id)) or cluster_id is None:
        _check_chosen_cluster(
            storage, cluster_id, sorted({made_by for made_by, _ in manifests or count_manifests(storage)})
        )
    for (made_by, revision), count in manifests.items():
        place = build_topic_manifest_key(made_by, revision)
        try:
            manifest = read_topic_manifest(storage, made_by, revision)
            if manifest is None and count:
                raise _missing_description_error(storage, place, count)
            if manifest is not None:
                yield place, check_recoverable(storage, manifest.location, None)
        except UserError as error:
            yield place, error
    yield from mounted.items()


def _find_only_cluster_id(storage: ObjectStore) -> str | None:
    cluster_ids = {made_by for made_by, _ in count_manifests(storage)} | set(list_stored_clusters(storage))
    return cluster_ids.pop() if len(cluster_ids) == 1 else None


def _has_metadata(storage: ObjectStore, cluster_id: str | None) -> bool:
    return cluster_id is not None and storage.get(build_metadata_key(cluster_id)) is not None


def _list_foreign_mount_errors(cluster_id: str | None, storage: ObjectStore) -> Iterator[tuple[str, UserError]]:
    for place, ownership in iter_ownerships(storage) if cluster_id is not None else ():
        if isinstance(ownership, UserError):
            yield place, ownership
        elif (
            ownership.state is not OwnershipState.DETACHED
            and ownership.owner == cluster_id != ownership.location.cluster_id
        ):
            location = ownership.location
            hint = (
                f"Where that cluster is lost permanently: reconciler mount release {location} --owner {cluster_id} "
                f"--allow release:{location}. Then declare a Mounting with source: {location} on the new one."
            )
            yield place, UserError(f"{location} is mounted on cluster {cluster_id} as {ownership.name}", hint=hint)


def _check_chosen_cluster(storage: ObjectStore, cluster_id: str | None, made_by: Sequence[str]) -> None:
    if cluster_id is None and len(made_by) <= 1:
        return
    others = ", ".join(made_by[:_MAX_NAMED]) + (" …" if made_by[_MAX_NAMED:] else "")
    if cluster_id is None:
        message = f"topics of {len(made_by)} clusters lie in {storage.url}: {others}"
        raise UserError(message, hint="Choose one with --cluster-id: which of them this cluster was is not known.")
    if made_by:
        message = f"no topic of cluster {cluster_id} is in {storage.url}; there are topics of {others}"
        raise UserError(message, hint="Choose one of those with --cluster-id. Nothing was written.")


def _missing_description_error(storage: ObjectStore, place: str, manifests: int) -> UserError:
    count = pluralize(manifests, "partition", grouping="")
    message = f"{storage.url} has no {place}, but manifests of {count}: which topic that was is not known"
    hint = (
        "If its cluster exists: reconciler run --once --only scrub writes it again. Else restore it from a "
        "version or copy of the bucket. Where the topic is being deleted, leave it."
    )
    return UserError(message, hint=hint)


def read_stored_metadata(cluster: str, storage: ObjectStore | None, cluster_id: str | None) -> ClusterMetadata | None:
    """Return a cluster's stored metadata; `None` if missing or the cluster's id is ambiguous."""
    if storage is None:
        return None
    cluster_id = cluster_id or _find_only_cluster_id(storage)
    if cluster_id is None:
        return None
    try:
        metadata = read_cluster_metadata(storage, cluster_id)
    except UserError as error:
        return ClusterMetadata(cluster_id=cluster_id, error=error)
    if metadata is None:
        return None
    left_out: list[tuple[str, UserError]] = []
    inventory = _list_inventory(metadata.catalog, cluster, cluster_id, left_out)
    places: dict[str, Address] = {}
    recovering: dict[Address, str] = {}
    for name, topic in metadata.catalog.topics.items():
        location = get_topic_location(name, topic, cluster_id)
        address = address_of("topic" if topic.active_mirror is None else "mirror", cluster, name)
        places[build_topic_manifest_key(location.cluster_id, location.revision)] = address
        if topic.recovering is not None:
            recovering[address] = topic.recovering
    return ClusterMetadata(
        cluster_id=cluster_id,
        parts=tuple(
            MetadataPart(name, part.entries, part.bytes, part.written_ms, metadata.lost.get(name))
            for name in PARTS
            if (part := metadata.parts.get(name)) is not None
        ),
        revision=metadata.revision,
        inventory=inventory,
        left_out=tuple(left_out),
        places=places,
        recovering=recovering,
        groups={group: dict(_key_offsets_by_location(offsets)) for group, offsets in metadata.groups.items()},
        properties=metadata.catalog.cluster.properties,
    )


def _key_offsets_by_location(offsets: OffsetsByLocation) -> Iterator[tuple[str, Mapping[int, int]]]:
    for place, by_partition in offsets.items():
        made_by, _, revision = place.rpartition("/")
        yield (
            build_topic_manifest_key(made_by, int(revision)),
            {number: offset.offset for number, offset in by_partition.items()},
        )


def _list_inventory(
    catalog: Catalog, cluster: str, cluster_id: str, left_out: list[tuple[str, UserError]]
) -> dict[Address, Observed]:
    links = dict(catalog.links)
    for name, link in catalog.links.items():
        try:
            to_declared_link(name, cluster, link)
        except (UserError, ValueError) as error:
            del links[name]
            left_out.append((address_of("link", cluster, name), _undeclarable_error(error)))
    catalog = replace(catalog, links=links)
    live = {entry.id for entry in links.values()}
    for name, topic in catalog.topics.items():
        if topic.active_mirror is not None and topic.active_mirror.link_id not in live:
            hint = "Declare the link, with this mirror among its mirrorTopics."
            left_out.append((address_of("mirror", cluster, name), UserError("its link is not known", hint=hint)))
    resources = list_observed(catalog, cluster, cluster_id=cluster_id)
    return {
        address: observed
        for address, observed in resources
        if kind_of(address) != "mirror" or observed.mirror.topic_if_stopped is not None
    }


def _undeclarable_error(error: UserError | ValueError) -> UserError:
    if isinstance(error, UserError):
        return error
    return UserError(f"it cannot be declared: {str(error).splitlines()[0]}", hint="Declare it by hand.")


def list_recoveries(actions: Iterable[ControlAction]) -> dict[Address, str | None]:
    """Return the locations of topics that actions recover, by address of the new topic."""
    return {
        action.address: str(action.parameters[_FROM])
        for action in actions
        if isinstance(action, Create) and isinstance(action.after, Topic) and _FROM in action.parameters
    }


def list_replica_sources(actions: Iterable[ControlAction]) -> dict[Address, str]:
    """Return the source locations of new read replicas, by address."""
    return {
        action.address: action.after.spec.read_replica_of
        for action in actions
        if isinstance(action, Create) and isinstance(action.after, Topic) and action.after.spec.read_replica_of
    }


def begin_recovery(
    draft: Draft, action: Create, topic: Topic, source: RecoverableTopic | UserError, topic_id: str
) -> str:
    """Create the topic to fill, if missing; return its id."""
    if isinstance(source, UserError):
        raise source
    spec, existing = topic.spec, draft.topics.get(topic.full_name)
    if existing is None:
        shape = TopicShape(
            partitions=spec.partitions or source.partitions,
            replication_factor=spec.replication_factor or source.replication_factor,
            configs=spec.configs,
            acls=to_acl_entries(spec.acls),
        )
        unset = {path.removeprefix(_CONFIGS) for path, origin in action.origins.items() if origin == DEFAULT}
        configs = {key: value for key, value in source.configs.items() if key not in unset}
        recover_topic(draft, topic.full_name, shape, topic_id=topic_id, location=source.location, original=configs)
    elif existing.recovering not in {None, source.location} or not spec.configs.items() <= existing.configs.items():
        message = f"topic {topic.full_name} exists and differs from what was to be recovered"
        raise UserError(message, hint="It was created after the plan: plan again.")
    return draft.topics[topic.full_name].id


def complete_recoveries(
    cluster: EmbeddedCluster, outcomes: Iterable[Outcome], names: Mapping[str, str], may_go_on: Callable[[], None]
) -> Iterator[Outcome]:
    """Yield outcomes. Those of topics in `names` follow when recovery has ended."""
    begun = []
    for outcome in outcomes:
        if outcome.id in names and isinstance(outcome, CompletedAction):
            begun.append(outcome)
        else:
            yield outcome
    wanted = {names[outcome.id] for outcome in begun}
    errors = cluster.finish_recoveries(wanted.__contains__, may_go_on=may_go_on) if begun else {}
    for outcome in begun:
        error = errors.get(outcome.incarnation or "")
        yield outcome if error is None else FailedAction(outcome.id, error)


def build_recovery_result(results: Mapping[str, ReconcilerError | None]) -> MaintenanceJobResult:
    """Return the recovery job's result from each topic's error."""
    errors = tuple(error for error in results.values() if error is not None)
    return MaintenanceJobResult("topic", len(results) - len(errors), failed=len(errors), errors=errors)
