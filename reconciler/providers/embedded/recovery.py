"""Topics made from object storage, in plans and batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from reconciler.archives.cluster_metadata import GroupOffsets, kept_clusters, kept_groups, place_of
from reconciler.archives.keys import cluster_metadata_key, topic_manifest_key
from reconciler.archives.location import TopicLocation
from reconciler.archives.ownership import Owning, ownerships
from reconciler.archives.recoverable import location_named, manifests_in, recoverable
from reconciler.archives.topic_manifest import read_topic_manifest
from reconciler.embedded.acl import Permissions, entries_of
from reconciler.embedded.catalog.tiering_state import location_of
from reconciler.embedded.catalog.topics import TopicShape, recover_topic
from reconciler.embedded.tiered.cluster_metadata import PARTS, read_cluster_metadata
from reconciler.embedded.tiered.replicas import followable
from reconciler.errors import ReconcilerError, UserError
from reconciler.planning.actions import ControlAction, Create
from reconciler.providers.embedded.translate import observed_in
from reconciler.providers.models import link_in, no_storage
from reconciler.providers.protocol import NO_REPLICAS, Done, Failed, Outcome, StoredCluster, Upkept
from reconciler.resources.address import Address, address_of, full_name_of, kind_of
from reconciler.resources.configs import DEFAULT
from reconciler.resources.inventory import ClusterMetadata, MetadataPart, Observed
from reconciler.resources.mount import Mountable, Recoverable, Recoveries
from reconciler.resources.topic import Topic
from reconciler.runtime.text import counted
from reconciler.runtime.threads import Memo, side_by_side

if TYPE_CHECKING:
    from reconciler.embedded.catalog.tables import Catalog, Draft
    from reconciler.embedded.cluster import EmbeddedCluster
    from reconciler.objectstore.base import ObjectStore


_FROM: Final = "recoverFrom"
_CONFIGS: Final = "configs."
_NAMED: Final = 10


@dataclass(frozen=True, slots=True)
class EmbeddedArchives:
    """Topics in the object storage of one cluster. The cluster is asked for its id only."""

    cluster_address: Address
    storage: ObjectStore | None
    who: Permissions
    cluster_id: Callable[[], str | None]

    def recoverable(
        self, topics: Mapping[Address, str | None], replicas: Mapping[Address, str] = NO_REPLICAS
    ) -> Recoveries:
        """Return what new topics could be made from: a GET for each, its partitions; a listing where only a name is."""
        sources = looked_up(self.storage, self.cluster_id(), topics, self.who) if topics else {}
        return {**sources, **replicable(self.storage, replicas, self.who)} if replicas else sources

    def cluster(self, cluster_id: str | None = None) -> StoredCluster:
        """Return every topic and what is kept besides: a listing, and a GET for each topic, partition and part."""
        topics = archived_in(self.cluster_address, self.storage, cluster_id)
        return StoredCluster(topics, metadata_in(full_name_of(self.cluster_address), self.storage, cluster_id))

    def mountable(self) -> Sequence[Mountable]:
        """Return what was ever detached in the object storage: one listing, and a GET for each."""
        from reconciler.providers.migration_views import mountable_in  # noqa: PLC0415 - only who mounts pays

        return mountable_in(self.cluster_address, self.storage)


def replicable(storage: ObjectStore | None, asked: Mapping[Address, str], who: Permissions) -> Recoveries:
    """Return what new read replicas would follow, each by its location; the super user's to make, as a recovery is."""

    def look(address: Address, location: str) -> Recoverable | UserError:
        try:
            who.check_super_user(f"make {address} a read replica")
            if storage is None:
                return no_storage()
            return followable(storage, TopicLocation.parse(location))
        except UserError as error:
            return error

    found = side_by_side(lambda each: look(*each), asked.items(), name="replicas")
    return dict(zip(asked, found, strict=True))


def looked_up(
    storage: ObjectStore | None, cluster_id: str | None, asked: Mapping[Address, str | None], who: Permissions
) -> Recoveries:
    """Return what object storage has of new topics, each by its location or, without one, by its name.

    What lies there may be anybody's, and says nothing of who may read it: it is the super user's to recover.
    """

    def look(address: Address, location: str | None) -> Recoverable | UserError:
        try:
            who.check_super_user(f"{'mount' if kind_of(address) == 'mounting' else 'recover'} {address}")
            if storage is None:
                return no_storage()
            name = full_name_of(address)
            where = location_named(storage, name) if location is None else TopicLocation.parse(location)
            lying = recoverable(storage, where, cluster_id)
            return lying if kind_of(address) == "mounting" else _with_groups(lying, storage)
        except UserError as error:
            return error

    def _with_groups(found: Recoverable, storage: ObjectStore) -> Recoverable:
        """Say where groups go on with it; a copy on the cluster that made it has none."""
        location = TopicLocation.parse(found.location)
        if location.cluster_id == cluster_id:
            return found
        kept, why = groups.get(location.cluster_id, lambda: kept_groups(storage, location.cluster_id))
        if kept is None:
            return replace(found, groups_lost=why)
        offsets = kept.offsets_of(place_of(location.cluster_id, location.revision))
        said = {group: {number: each.offset for number, each in of.items()} for group, of in offsets.items()}
        return replace(found, groups=said, groups_lost=why)

    groups = Memo()
    found = side_by_side(lambda each: look(*each), asked.items(), name="recoverable")
    return dict(zip(asked, found, strict=True))


def archived_in(
    cluster: Address, storage: ObjectStore | None, cluster_id: str | None
) -> Iterator[tuple[str, Recoverable | UserError]]:
    """Yield every topic of an object storage that one cluster made, by its place there, in a lasting order.

    Then why each topic is no use yet that others made and that is mounted on it: it has to be released first.

    Raises:
        UserError: There is no object storage; `cluster_id` is not said, and several clusters have topics there; or the
            one that is said has none there, and others have.
    """
    if storage is None:
        raise UserError(f"{cluster} has no object storage", hint="Declare its objectStorage: nothing else is read.")
    cluster_id = cluster_id or _only_one(storage)
    manifests = manifests_in(storage, cluster_id)
    mounted = dict(_mounted_on(cluster_id, storage))
    if not (manifests or mounted or _is_kept(storage, cluster_id)) or cluster_id is None:
        _check_chosen(storage, cluster_id, sorted({made_by for made_by, _ in manifests or manifests_in(storage)}))
    for (made_by, revision), count in manifests.items():
        place = topic_manifest_key(made_by, revision)
        try:
            found = read_topic_manifest(storage, made_by, revision)
            if found is None and count:
                raise _undescribed(storage, place, count)
            if found is not None:
                yield place, recoverable(storage, found.location, None)
        except UserError as error:
            yield place, error
    yield from mounted.items()


def _only_one(storage: ObjectStore) -> str | None:
    """Return the one cluster that has topics or metadata in an object storage; `None`: there are several, or none."""
    found = {made_by for made_by, _ in manifests_in(storage)} | set(kept_clusters(storage))
    return found.pop() if len(found) == 1 else None


def _is_kept(storage: ObjectStore, cluster_id: str | None) -> bool:
    return cluster_id is not None and storage.get(cluster_metadata_key(cluster_id)) is not None


def _mounted_on(cluster_id: str | None, storage: ObjectStore) -> Iterator[tuple[str, UserError]]:
    """Yield the topics of other clusters that a cluster had mounted, by their registers, and registers nobody can read.

    To copy what is another's by its register is refused, and to mount it copies nothing: so its manifest is a Mounting.
    """
    for place, found in ownerships(storage) if cluster_id is not None else ():
        if isinstance(found, UserError):
            yield place, found
        elif found.state is not Owning.DETACHED and found.owner == cluster_id != found.location.cluster_id:
            location = found.location
            hint = (
                f"Where that cluster is gone for good: reconciler mount release {location} --owner {cluster_id} "
                f"--allow release:{location}. Then declare a Mounting with source: {location} on the new one."
            )
            yield place, UserError(f"{location} is mounted on cluster {cluster_id} as {found.name}", hint=hint)


def _check_chosen(storage: ObjectStore, cluster_id: str | None, made_by: Sequence[str]) -> None:
    """Let nobody take the topics of one cluster for those of another."""
    if cluster_id is None and len(made_by) <= 1:
        return
    others = ", ".join(made_by[:_NAMED]) + (" …" if made_by[_NAMED:] else "")
    if cluster_id is None:
        message = f"topics of {len(made_by)} clusters lie in {storage.url}: {others}"
        raise UserError(message, hint="Choose one with --cluster-id: which of them this cluster was is not known.")
    if made_by:
        message = f"no topic of cluster {cluster_id} lies in {storage.url}; there are topics of {others}"
        raise UserError(message, hint="Choose one of those with --cluster-id. Nothing was written.")


def _undescribed(storage: ObjectStore, place: str, manifests: int) -> UserError:
    count = counted(manifests, "partition", grouping="")
    message = f"{storage.url} has no {place}, but manifests of {count}: which topic that was is not known"
    hint = (
        "Where its cluster is there: reconciler run --once --only scrub writes it again. Else restore it from a "
        "version or copy of the bucket. Where the topic is being deleted, leave it."
    )
    return UserError(message, hint=hint)


# What is kept of a cluster beside segments, as the resources that declare it.


def metadata_in(cluster: str, storage: ObjectStore | None, cluster_id: str | None) -> ClusterMetadata | None:
    """Return what is kept of a cluster that is called `cluster` here; `None`: nothing, or nobody knows of which."""
    if storage is None:
        return None
    cluster_id = cluster_id or _only_one(storage)
    if cluster_id is None:
        return None
    try:
        kept = read_cluster_metadata(storage, cluster_id)
    except UserError as error:
        return ClusterMetadata(cluster_id=cluster_id, error=error)
    if kept is None:
        return None
    left_out: list[tuple[str, UserError]] = []
    inventory = _inventory_of(kept.catalog, cluster, cluster_id, left_out)
    places: dict[str, Address] = {}
    recovering: dict[Address, str] = {}
    for name, topic in kept.catalog.topics.items():
        location = location_of(name, topic, cluster_id)
        address = address_of("topic" if topic.follows is None else "mirror", cluster, name)
        places[topic_manifest_key(location.cluster_id, location.revision)] = address
        if topic.recovering is not None:
            recovering[address] = topic.recovering
    return ClusterMetadata(
        cluster_id=cluster_id,
        parts=tuple(
            MetadataPart(name, part.entries, part.bytes, part.written_ms, kept.lost.get(name))
            for name in PARTS
            if (part := kept.parts.get(name)) is not None
        ),
        revision=kept.revision,
        inventory=inventory,
        left_out=tuple(left_out),
        places=places,
        recovering=recovering,
        groups={group: dict(_offsets_by_key(offsets)) for group, offsets in kept.groups.items()},
        properties=kept.catalog.cluster.properties,
    )


def _offsets_by_key(offsets: GroupOffsets) -> Iterator[tuple[str, Mapping[int, int]]]:
    for place, found in offsets.items():
        made_by, _, revision = place.rpartition("/")
        yield topic_manifest_key(made_by, int(revision)), {number: each.offset for number, each in found.items()}


def _inventory_of(
    catalog: Catalog, cluster: str, cluster_id: str, left_out: list[tuple[str, UserError]]
) -> dict[Address, Observed]:
    """Return what a catalog has as resources; what cannot be declared here is left out, and said."""
    links = dict(catalog.links)
    for name, link in catalog.links.items():
        try:
            link_in(name, cluster, link)
        except (UserError, ValueError) as error:
            del links[name]
            left_out.append((address_of("link", cluster, name), _undeclarable(error)))
    catalog = replace(catalog, links=links)
    live = {entry.id for entry in links.values()}
    for name, topic in catalog.topics.items():
        if topic.follows is not None and topic.follows.link_id not in live:
            hint = "Declare the link, with this mirror among its mirrorTopics."
            left_out.append((address_of("mirror", cluster, name), UserError("its link is not known", hint=hint)))
    found = observed_in(catalog, cluster, cluster_id=cluster_id)
    return {
        address: observed
        for address, observed in found
        if kind_of(address) != "mirror"
        or observed.mirror.becomes is not None  # One that was stopped is a topic by now.
    }


def _undeclarable(error: UserError | ValueError) -> UserError:
    if isinstance(error, UserError):
        return error
    return UserError(f"it cannot be declared: {str(error).splitlines()[0]}", hint="Declare it by hand.")


def asked_in(actions: Iterable[ControlAction]) -> dict[Address, str | None]:
    """Return where the new topics of a batch are to be made from."""
    return {
        action.address: str(action.parameters[_FROM])
        for action in actions
        if isinstance(action, Create) and isinstance(action.after, Topic) and _FROM in action.parameters
    }


def replicas_in(actions: Iterable[ControlAction]) -> dict[Address, str]:
    """Return what the new read replicas of a batch follow."""
    return {
        action.address: action.after.spec.read_replica_of
        for action in actions
        if isinstance(action, Create) and isinstance(action.after, Topic) and action.after.spec.read_replica_of
    }


def begin(draft: Draft, action: Create, topic: Topic, found: Recoverable | UserError, topic_id: str) -> str:
    """Make a topic that is to be filled, or find that it was begun or done before; return its id.

    Raises:
        UserError: It cannot be made from there, or another topic has its name.
    """
    if isinstance(found, UserError):
        raise found
    spec, existing = topic.spec, draft.topics.get(topic.full_name)
    if existing is None:
        shape = TopicShape(
            partitions=spec.partitions or found.partitions,
            replication_factor=spec.replication_factor or found.replication_factor,
            configs=spec.configs,
            acls=entries_of(spec.acls),
        )
        unset = {path.removeprefix(_CONFIGS) for path, origin in action.origins.items() if origin == DEFAULT}
        kept = {key: value for key, value in found.configs.items() if key not in unset}
        recover_topic(draft, topic.full_name, shape, topic_id=topic_id, location=found.location, found=kept)
    elif existing.recovering not in {None, found.location} or not spec.configs.items() <= existing.configs.items():
        message = f"topic {topic.full_name} exists and differs from what was to be recovered"
        raise UserError(message, hint="It was created after the plan: plan again.")
    return draft.topics[topic.full_name].id


def ended(
    cluster: EmbeddedCluster,
    outcomes: Iterable[Outcome],
    names: Mapping[str, str],
    may_go_on: Callable[[], None],
) -> Iterator[Outcome]:
    """Yield outcomes, those of topics that recover once they have come to their end; `names` are theirs, by action."""
    begun = []
    for outcome in outcomes:
        if outcome.id in names and isinstance(outcome, Done):
            begun.append(outcome)
        else:
            yield outcome
    wanted = {names[outcome.id] for outcome in begun}
    errors = cluster.finish_recoveries(wanted.__contains__, may_go_on=may_go_on) if begun else {}
    for outcome in begun:
        error = errors.get(outcome.incarnation or "")
        yield outcome if error is None else Failed(outcome.id, error)


def upkept(found: Mapping[str, ReconcilerError | None]) -> Upkept:
    """Return what one pass of the job came to."""
    errors = tuple(error for error in found.values() if error is not None)
    return Upkept("topic", len(found) - len(errors), failed=len(errors), errors=errors)
