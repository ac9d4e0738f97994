"""Find the source of a Mounting in object storage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Final

from reconciler.errors import UserError
from reconciler.lifecycles import is_in_progress
from reconciler.planning.situation import get_mounted_topic
from reconciler.resources.address import Address, join_name, split_name
from reconciler.resources.mount import MIGRATING, MountableTopic, Mounting, MountSource, explain_release
from reconciler.runtime.dataclass import dataclass, field

if TYPE_CHECKING:
    from reconciler.planning.situation import Situation
    from reconciler.resources.inventory import Observed, Recorded

_MAX_LOCATIONS: Final = 10
_LIST_HINT: Final = "See what object storage has: reconciler mount list"


@dataclass(frozen=True, slots=True)
class AttachedTopic:
    """A topic on a readable cluster, with its permanent location."""

    cluster: str
    name: str
    location: str
    leaves_by: Address | None = None
    """The Mounting that unmounts the topic in this plan."""


@dataclass(frozen=True)
class SharedStorage:
    """One object storage and the clusters that share it."""

    url: str
    cluster_id: str | None
    """Id of the mounting cluster; `None` if missing."""
    mountables: Sequence[MountableTopic] = ()
    attached: Sequence[AttachedTopic] = ()
    names: Mapping[str, str] = field(default_factory=dict)
    """Declared name by id of a readable cluster."""

    def format_owner(self, owner: str | None) -> str:
        """Return text with a cluster's id and, if known, name."""
        if owner is None:
            return "another cluster"
        name = self.names.get(owner)
        return f"cluster {owner}" if name is None else f"cluster {owner} ({name})"

    @cached_property
    def topics_by_location(self) -> Mapping[tuple[str, str], tuple[list[AttachedTopic], list[MountableTopic]]]:
        """Topics by cluster id and initial revision in locations."""
        topics: dict[tuple[str, str], tuple[list[AttachedTopic], list[MountableTopic]]] = {}
        for topic in self.attached:
            topics.setdefault(_split_cluster_and_revision(topic.location), ([], []))[0].append(topic)
        for one in self.mountables:
            topics.setdefault(_split_cluster_and_revision(one.location), ([], []))[1].append(one)
        return topics

    @cached_property
    def topics_by_name(self) -> Mapping[str, tuple[list[AttachedTopic], list[MountableTopic]]]:
        """Topics by original name, each listed as attached or as mountable."""
        topics: dict[str, tuple[list[AttachedTopic], list[MountableTopic]]] = {}
        taken = {topic.location for topic in self.attached}
        for topic in self.attached:
            topics.setdefault(_read_topic_part(topic.location), ([], []))[0].append(topic)
        for one in self.mountables:
            if one.location not in taken:
                topics.setdefault(one.full_name, ([], []))[1].append(one)
        return topics


def find_source(
    mounting: Mounting, last_location: str | None, storage: SharedStorage
) -> MountSource | UserError | None:
    """Return the source of a Mounting or an error; `None` if this storage has no such topic.

    Without `source`, the location that the Mounting unmounted last comes first.
    """
    source = mounting.spec.source
    if source is None and last_location is not None and _is_free(last_location, storage):
        source = last_location
    if source is not None and "/" in source:
        return _find_at(mounting, source, storage)
    return _find_named(mounting, storage)


def find_named_source(mounting: Mounting, storage: SharedStorage) -> MountSource | None:
    """Return the source that a Mounting selects, if it is unmounted or is to be."""
    location = mounting.spec.source
    if location is not None and is_location(location):
        return MountSource(location, None) if _is_free(location, storage) else None
    attached, called = storage.topics_by_name.get(get_source_name(mounting), ((), ()))
    leaving = (MountSource(topic.location, None, topic.leaves_by) for topic in attached if topic.leaves_by is not None)
    free = (MountSource(topic.location, None) for topic in called if topic.state == "detached")
    return next(free, next(leaving, None))


def find_last_detached(mounting: Mounting, storage: SharedStorage) -> MountSource | None:
    """Return the unmounted topic of the cluster with the Mounting's name, if there is exactly one."""
    last = [
        topic.location
        for topic in storage.mountables
        if (topic.state, topic.owner, topic.name) == ("detached", storage.cluster_id, mounting.topic_name)
    ]
    return MountSource(last[0], None) if len(last) == 1 else None


def find_detached_source(mounting: Mounting, storage: SharedStorage) -> MountSource | UserError | None:
    """Return the location of an unmounted topic, `None` if unknown, or an error if it never existed."""
    if (last := find_last_detached(mounting, storage)) is not None:
        return last
    match find_source(mounting, None, storage):
        case MountSource() as found:
            return found
        case UserError():
            return None
        case None:
            message = f"there is no topic {mounting.topic_name}, and none of that name is unmounted in {storage.url}"
            return UserError(message, hint="Correct its name, or remove the Mounting: there is nothing to unmount.")


def are_equal_locations(one: str, other: str) -> bool:
    """Return whether two locations are equal. Either may omit the namespace."""
    (namespace, name), (other_namespace, other_name) = (
        split_name(_read_topic_part(one)),
        split_name(_read_topic_part(other)),
    )
    return (_split_cluster_and_revision(one), name) == (_split_cluster_and_revision(other), other_name) and (
        namespace == other_namespace or not namespace or not other_namespace
    )


def find_in_other_storages(
    mounting: Mounting, url: str, others: Sequence[tuple[str, SharedStorage]]
) -> UserError | None:
    """Return an error if another storage has the topic."""
    for cluster, storage in others:
        match find_source(mounting, None, storage):
            case None:
                pass
            case MountSource() as found:
                message = f"{found.location} is in {storage.url}, the objectStorage of cluster {cluster}"
                hint = f"Mount it on a cluster with that objectStorage: this one has {url}."
                return UserError(message, hint=hint)
            case UserError() as error:
                message = f"{error.message}, in {storage.url}, the objectStorage of cluster {cluster}"
                return UserError(message, hint=f"This cluster has another one, {url}. {error.hint}")
    return None


def get_source_name(mounting: Mounting) -> str:
    """Return the full name of a Mounting's source, unless the source is a location."""
    return join_name(mounting.metadata.namespace, mounting.spec.source or mounting.metadata.name)


def build_missing_topic_error(
    mounting: Mounting, url: str, leaves_by: Address | None = None, *, can_release: bool = True
) -> UserError:
    """Return the error for an unknown topic.

    `leaves_by` is a Mounting that will unmount it. `can_release` is whether the platform has `mount release`.
    """
    source = mounting.spec.source
    if source is not None and "/" in source:
        owner = source.split("/")[1]
        release = (
            "Where it is not, its register is lost; whose it is says: "
            f"reconciler mount release {source} --owner {owner}"
        )
        return UserError(
            f"no unmounted topic is at {source} in {url}",
            hint=f"{_LIST_HINT}. A topic that was never unmounted belongs to the cluster that created it, {owner}: "
            f"unmount it there. {release if can_release else 'If that cluster is lost, restore it first.'}",
        )
    message = f"no unmounted topic {get_source_name(mounting)} is in {url}"
    if leaves_by is not None:
        hint = f"It is there once {leaves_by} has been applied: apply that without this Mounting, then add it."
        return UserError(f"{message} yet", hint=hint)
    return UserError(message, hint=f"{_LIST_HINT}, or correct source.")


def is_other_topic(mounting: Mounting, seen: Observed, situation: Situation) -> bool:
    """Return whether a topic with the Mounting's name is not the Mounting's topic."""
    location, meant = get_remote_location(seen), get_source_location(mounting, situation)
    is_hidden = location is None and hides_locations(mounting.cluster, situation)
    if is_hidden and is_location(meant) and mounting.spec.state == "mounted":
        source = situation.request.stored.mounts.get(mounting.address)
        if isinstance(source, MountSource) and source.location == meant:  # still unmounted
            return True
    last, topic = find_mounting_record(mounting, situation), situation.recorded.get(get_mounted_topic(mounting))
    ids = {record.incarnation for record in (last, topic) if record is not None} - {None}
    if seen.state == MIGRATING or seen.incarnation in ids:
        return False
    if is_hidden:
        return bool(ids)
    is_located = mounting.spec.state == "mounted" or is_unmounted(last)
    if location is not None and (is_located or is_location(meant)):
        return not matches_source(location, meant)
    return is_located or (bool(ids) and seen.incarnation is not None)


def hides_locations(cluster: str, situation: Situation) -> bool:
    """Return whether a cluster does not report the locations of its topics."""
    return bool(situation.find_capabilities(cluster).object_storage)


def has_own_topic(mounting: Mounting, situation: Situation) -> bool:
    """Return whether a Mounting's topic exists on its cluster."""
    seen = situation.observed.get(get_mounted_topic(mounting))
    return seen is not None and not is_other_topic(mounting, seen, situation)


def is_unmounted(last: Recorded | None) -> bool:
    """Return whether the last apply left a Mounting's topic unmounted."""
    return last is not None and isinstance(last.resource, Mounting) and last.resource.spec.state == "unmounted"


def is_in_object_storage(mounting: Mounting, situation: Situation) -> bool:
    """Return whether a Mounting's topic is in object storage."""
    is_found = isinstance(situation.request.stored.mounts.get(mounting.address), MountSource)
    return is_unmounted(find_mounting_record(mounting, situation)) or is_found


def find_held_state(mounting: Mounting, situation: Situation) -> str | None:
    """Return the state that a command set, unless the declared state changed since the last apply."""
    last, topic = situation.recorded.get(mounting.address), get_mounted_topic(mounting)
    was, under_way = last.resource if last is not None else None, situation.observed.get(mounting.address)
    seen = situation.observed.get(topic)
    is_moving = (under_way is not None and is_in_progress(under_way.state)) or (seen and seen.state == MIGRATING)
    if is_moving or last is None or not isinstance(was, Mounting):
        return None
    source = situation.request.stored.mounts.get(mounting.address)
    lies_at = source.location if isinstance(source, MountSource) and source.unmounts is None else None
    is_same = was.spec.source == mounting.spec.source or lies_at in {last.physical_name} - {None}
    if not is_same or (was.spec.state, was.topic_name) != (mounting.spec.state, mounting.topic_name):
        return None
    if mounting.spec.state == "unmounted":
        return "mounted" if seen is not None and not is_other_topic(mounting, seen, situation) else None
    is_gone = seen is None and (lies_at is not None or topic in situation.request.stored.mounted_elsewhere)
    return "unmounted" if is_gone else None


def get_source_location(mounting: Mounting, situation: Situation) -> str:
    """Return the location of a Mounting's source, or its original name."""
    source = mounting.spec.source
    if source is not None and is_location(source):
        return source
    last = find_mounting_record(mounting, situation)
    known = last.resource.spec if last is not None and isinstance(last.resource, Mounting) else None
    if last is not None and last.physical_name is not None and known is not None and source in {None, known.source}:
        return last.physical_name
    return get_source_name(mounting)


def find_mounting_record(mounting: Mounting, situation: Situation) -> Recorded | None:
    """Return the record of a Mounting, perhaps under its previous name."""
    last, wanted = situation.recorded.get(mounting.address), situation.wanted.get(mounting.address)
    old = wanted.moved_from if wanted is not None else None
    return situation.recorded.get(old) if last is None and old is not None else last


def get_remote_location(seen: Observed) -> str | None:
    """Return a topic's location in object storage, if any."""
    return seen.topic.legacy.location if seen.topic.legacy is not None else None


def matches_source(location: str, meant: str) -> bool:
    """Return whether a location equals `meant` or its topic has that name."""
    return are_equal_locations(meant, location) if is_location(meant) else _read_topic_part(location) == meant


def is_location(source: str) -> bool:
    """Return whether a source is a location instead of a name."""
    return "/" in source


def _find_at(mounting: Mounting, location: str, storage: SharedStorage) -> MountSource | UserError | None:
    attached, mountables = storage.topics_by_location.get(_split_cluster_and_revision(location), ((), ()))
    for leaving in attached:
        if are_equal_locations(location, leaving.location):
            return _find_attached_source(mounting, leaving)
    for mountable in mountables:
        if are_equal_locations(location, mountable.location):
            return (
                MountSource(mountable.location, None)
                if mountable.state == "detached"
                else _report_owner(mountable, storage)
            )
    for other in mountables:
        message = f"at {location} in {storage.url} is the topic {other.full_name}"
        return UserError(message, hint=f"Write {other.location}, or correct the cluster id and revision.")
    return None


def _find_named(mounting: Mounting, storage: SharedStorage) -> MountSource | UserError | None:
    full_name = get_source_name(mounting)
    attached, called = storage.topics_by_name.get(full_name, ((), ()))
    leaving = [topic for topic in attached if topic.leaves_by is not None]
    free = [topic.location for topic in called if topic.state == "detached"]
    locations = sorted({*free, *(topic.location for topic in leaving)})
    if len(locations) > 1:
        message = f"{len(locations)} topics called {full_name} lie in {storage.url}: {_join_locations(locations)}"
        return UserError(message, hint="Write the location of the one that is meant as source.")
    if leaving:
        return _find_attached_source(mounting, leaving[0])
    if free:
        return MountSource(free[0], None)
    if called:
        return _report_owner(called[0], storage)
    return _find_attached_source(mounting, attached[0]) if attached else _format_other_names(full_name, storage)


def _format_other_names(full_name: str, storage: SharedStorage) -> UserError | None:
    leaving = next(
        (topic for topic in storage.attached if topic.name == full_name and topic.leaves_by is not None), None
    )
    if leaving is not None:
        message = (
            f"no topic was created as {full_name}: the one that {leaving.leaves_by} unmounts is at {leaving.location}"
        )
        return UserError(message, hint="Write that location as source: both can be applied at once.")
    free = [topic for topic in storage.mountables if topic.state == "detached"]
    renamed = sorted(topic.location for topic in free if topic.name == full_name)
    own = split_name(full_name)[1]
    locations = renamed or sorted(topic.location for topic in free if split_name(topic.full_name)[1] == own)
    if not locations:
        return None
    why = "the last topic of that name is" if renamed else "a topic of that name in another namespace is"
    message = f"no unmounted topic {full_name} is in {storage.url}; {why} at {_join_locations(locations)}"
    return UserError(message, hint="Write the location as source: it is mounted in the mounting's own namespace.")


def _find_attached_source(mounting: Mounting, attached: AttachedTopic) -> MountSource | UserError:
    if attached.leaves_by is not None:
        return MountSource(attached.location, None, attached.leaves_by)
    message = f"{attached.location} is attached to cluster {attached.cluster} as {attached.name}"
    hint = f"Unmount it there first: a Mounting of {attached.name} on {attached.cluster} with state: unmounted."
    namespace, name = split_name(attached.name)
    if (attached.cluster, namespace) == (mounting.cluster, mounting.metadata.namespace or ""):
        hint = f"To leave it there write as: {name}. {hint}"
    return UserError(message, hint=hint)


def _report_owner(topic: MountableTopic, storage: SharedStorage) -> UserError:
    word = "mounted on" if topic.state == "mounted" else "being mounted on"
    release = f"reconciler mount release {topic.location} --owner {topic.owner} --allow release:{topic.location}"
    if topic.owner is not None and topic.owner == storage.cluster_id and topic.state == "mounted":
        message = (
            f"{topic.location} was mounted on this cluster as {topic.name}, and was deleted there outside reconciler"
        )
        hint = f"Make what is left of it mountable again: {release}"
        return UserError(message, hint=hint)
    message = f"{topic.location} is {word} {storage.format_owner(topic.owner)} as {topic.name}"
    return UserError(message, hint=explain_release(release, is_mounted=topic.state == "mounted"))


def _is_free(location: str, storage: SharedStorage) -> bool:
    _, mountables = storage.topics_by_location.get(_split_cluster_and_revision(location), ((), ()))
    return any(mountable.location == location and mountable.state == "detached" for mountable in mountables)


def _split_cluster_and_revision(location: str) -> tuple[str, str]:
    _, cluster_id, revision = location.rsplit("/", 2)
    return cluster_id.lower(), revision


def _read_topic_part(location: str) -> str:
    return location.rsplit("/", 2)[0]


def _join_locations(locations: Sequence[str]) -> str:
    return ", ".join(locations[:_MAX_LOCATIONS]) + (" …" if locations[_MAX_LOCATIONS:] else "")
