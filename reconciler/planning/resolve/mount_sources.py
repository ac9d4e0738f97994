"""Which topic in object storage a mounting means."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Final

from reconciler.errors import UserError
from reconciler.lifecycles import is_under_way
from reconciler.planning.situation import mounted_by
from reconciler.resources.address import Address, join_name, split_name
from reconciler.resources.mount import MIGRATING, Mountable, Mounting, MountSource, way_to_free

if TYPE_CHECKING:
    from reconciler.planning.situation import Situation
    from reconciler.resources.inventory import Observed, Recorded

_NAMED: Final = 10
_SEE: Final = "See what lies there: reconciler mount list"


@dataclass(frozen=True, slots=True)
class Attached:
    """A topic that a cluster which was read has, and where it lies for life."""

    cluster: str
    name: str
    location: str
    leaves_by: Address | None = None
    """The mounting of this plan that detaches it, where one does."""


@dataclass(frozen=True)
class SharedStorage:
    """One object storage as the clusters that share it see it."""

    url: str
    cluster_id: str | None
    """Of the cluster that mounts; `None`: it is still to be made."""
    mountables: Sequence[Mountable] = ()
    attached: Sequence[Attached] = ()
    names: Mapping[str, str] = field(default_factory=dict)
    """What clusters that were read are called in the files, by their ids."""

    def whose(self, owner: str | None) -> str:
        """Return a cluster as a message names it: by its id, and by its name where that is known."""
        if owner is None:
            return "another cluster"
        name = self.names.get(owner)
        return f"cluster {owner}" if name is None else f"cluster {owner} ({name})"

    @cached_property
    def at(self) -> Mapping[tuple[str, str], tuple[list[Attached], list[Mountable]]]:
        """Return what lies at each place, by cluster id and revision: of a thousand mountings each looks once."""
        found: dict[tuple[str, str], tuple[list[Attached], list[Mountable]]] = {}
        for each in self.attached:
            found.setdefault(_place(each.location), ([], []))[0].append(each)
        for one in self.mountables:
            found.setdefault(_place(one.location), ([], []))[1].append(one)
        return found

    @cached_property
    def called(self) -> Mapping[str, tuple[list[Attached], list[Mountable]]]:
        """Return what was made with each name; of what is attached the register says nothing new."""
        found: dict[str, tuple[list[Attached], list[Mountable]]] = {}
        taken = {each.location for each in self.attached}
        for each in self.attached:
            found.setdefault(_topic(each.location), ([], []))[0].append(each)
        for one in self.mountables:
            if one.location not in taken:
                found.setdefault(one.full_name, ([], []))[1].append(one)
        return found


def found_source(mounting: Mounting, kept: str | None, storage: SharedStorage) -> MountSource | UserError | None:
    """Return what a mounting takes, or why it cannot; `None`: this object storage knows of no such topic.

    `kept` is the location that this very mounting detached last, which its name means before any other.
    """
    source = mounting.spec.source
    if source is None and kept is not None and _is_free(kept, storage):
        source = kept
    if source is not None and "/" in source:
        return _at(mounting, source, storage)
    return _named(mounting, storage)


def found_beside(mounting: Mounting, storage: SharedStorage) -> MountSource | None:
    """Return what a mounting would take by name alone, were there not a topic that has its name on the cluster."""
    attached, called = storage.called.get(wanted_name(mounting), ((), ()))
    leaving = (MountSource(each.location, None, each.leaves_by) for each in attached if each.leaves_by is not None)
    free = (MountSource(each.location, None) for each in called if each.state == "detached")
    return next(free, next(leaving, None))


def detached_here(mounting: Mounting, storage: SharedStorage) -> MountSource | None:
    """Return the one detached topic that the cluster of a mounting had under its name; `None`: none, or several."""
    last = [
        each.location
        for each in storage.mountables
        if (each.state, each.owner, each.name) == ("detached", storage.cluster_id, mounting.topic_name)
    ]
    return MountSource(last[0], None) if len(last) == 1 else None


def found_detached(mounting: Mounting, storage: SharedStorage) -> MountSource | UserError | None:
    """Return where the topic of an unmounted mounting lies that is not there; `None`: it cannot be told.

    A topic that never was is a slip: nothing could ever be unmounted.
    """
    if (last := detached_here(mounting, storage)) is not None:
        return last
    match found_source(mounting, None, storage):
        case MountSource() as found:
            return found
        case UserError():
            return None
        case None:
            message = f"there is no topic {mounting.topic_name}, and none of that name lies detached in {storage.url}"
            return UserError(message, hint="Correct its name, or remove the Mounting: there is nothing to unmount.")


def is_same_place(one: str, other: str) -> bool:
    """Tell whether two locations are one: the namespace may be left out, as people do."""
    (here, name), (there, other_name) = split_name(_topic(one)), split_name(_topic(other))
    return (_place(one), name) == (_place(other), other_name) and (here == there or not here or not there)


def elsewhere(mounting: Mounting, url: str, others: Sequence[tuple[str, SharedStorage]]) -> UserError | None:
    """Return that what a mounting asks for lies in the object storage of other clusters, by their names."""
    for cluster, storage in others:
        match found_source(mounting, None, storage):
            case None:
                pass
            case MountSource() as found:
                message = f"{found.location} lies in {storage.url}, the objectStorage of cluster {cluster}"
                hint = f"Mount it on a cluster with that objectStorage: this one has {url}."
                return UserError(message, hint=hint)
            case UserError() as error:
                message = f"{error.message}, in {storage.url}, the objectStorage of cluster {cluster}"
                return UserError(message, hint=f"This cluster has another one, {url}. {error.hint}")
    return None


def wanted_name(mounting: Mounting) -> str:
    """Return the full name that a mounting's source has, where it is no location."""
    return join_name(mounting.metadata.namespace, mounting.spec.source or mounting.metadata.name)


def nothing_there(mounting: Mounting, url: str, leaves_by: Address | None = None) -> UserError:
    """Return the error for a topic that nobody knows of.

    `leaves_by` is a mounting that unmounts a topic of that name, which has no location before: copies make it.
    """
    source = mounting.spec.source
    if source is not None and "/" in source:
        owner = source.split("/")[1]
        return UserError(
            f"no detached topic lies at {source} in {url}",
            hint=f"{_SEE}. What was never detached belongs to the cluster that made it, {owner}: unmount it there. "
            f"Where it is not, its register is lost; whose it is says: "
            f"reconciler mount release {source} --owner {owner}",
        )
    message = f"no detached topic {wanted_name(mounting)} lies in {url}"
    if leaves_by is not None:
        hint = f"It lies there once {leaves_by} has been applied: apply that without this Mounting, then add it."
        return UserError(f"{message} yet", hint=hint)
    return UserError(message, hint=f"{_SEE}, or correct source.")


# Whether the topic that has a mounting's name on its cluster is the one that the mounting means.


def is_stranger(mounting: Mounting, seen: Observed, situation: Situation) -> bool:
    """Tell whether the topic that has the name of a mounting is not the topic that was mounted, unmounted or applied.

    A topic keeps its id until it is unmounted, and its location for life. It gets a location when it is tiered, on
    Kafka when it is mounted.
    """
    last, topic = last_of(mounting, situation), situation.recorded.get(mounted_by(mounting))
    ids = {each.incarnation for each in (last, topic) if each is not None} - {None}
    if seen.state == MIGRATING or seen.incarnation in ids:
        return False
    location, meant = location_of(seen), meant_by(mounting, situation)
    is_located = mounting.spec.state == "mounted" or is_unmounted(last)
    if location is not None and (is_located or is_explicit(meant)):
        return not is_at(location, meant)
    return is_located or (bool(ids) and seen.incarnation is not None)


def has_own_topic(mounting: Mounting, situation: Situation) -> bool:
    """Tell whether the topic of a mounting is on its cluster."""
    seen = situation.observed.get(mounted_by(mounting))
    return seen is not None and not is_stranger(mounting, seen, situation)


def is_unmounted(last: Recorded | None) -> bool:
    """Tell whether a mounting was unmounted when it was applied last."""
    return last is not None and isinstance(last.resource, Mounting) and last.resource.spec.state == "unmounted"


def is_away(mounting: Mounting, situation: Situation) -> bool:
    """Tell whether the topic of a mounting is in object storage, by the record or by its register."""
    is_found = isinstance(situation.request.stored.mounts.get(mounting.address), MountSource)
    return is_unmounted(last_of(mounting, situation)) or is_found


def held_place(mounting: Mounting, situation: Situation) -> str | None:
    """Return the state to which a command brought a mounting whose entry in the files is the recorded one."""
    last, topic = situation.recorded.get(mounting.address), mounted_by(mounting)
    was, under_way = last.resource if last is not None else None, situation.observed.get(mounting.address)
    seen = situation.observed.get(topic)
    is_moving = (under_way is not None and is_under_way(under_way.state)) or (seen and seen.state == MIGRATING)
    if is_moving or last is None or not isinstance(was, Mounting):
        return None
    source = situation.request.stored.mounts.get(mounting.address)
    lies_at = source.location if isinstance(source, MountSource) and source.unmounts is None else None
    is_same = was.spec.source == mounting.spec.source or lies_at in {last.physical_name} - {None}
    if not is_same or (was.spec.state, was.topic_name) != (mounting.spec.state, mounting.topic_name):
        return None
    if mounting.spec.state == "unmounted":
        return "mounted" if seen is not None and not is_stranger(mounting, seen, situation) else None
    is_gone = seen is None and (lies_at is not None or topic in situation.request.stored.mounted_elsewhere)
    return "unmounted" if is_gone else None


def meant_by(mounting: Mounting, situation: Situation) -> str:
    """Return the location that a mounting means or, where it says and knows none, the name its topic was made with."""
    source = mounting.spec.source
    if source is not None and is_explicit(source):
        return source
    last = last_of(mounting, situation)
    known = last.resource.spec if last is not None and isinstance(last.resource, Mounting) else None
    if last is not None and last.physical_name is not None and known is not None and source in {None, known.source}:
        return last.physical_name
    return wanted_name(mounting)


def last_of(mounting: Mounting, situation: Situation) -> Recorded | None:
    """Return the record of a mounting, be it under the name it had before."""
    last, wanted = situation.recorded.get(mounting.address), situation.wanted.get(mounting.address)
    old = wanted.moved_from if wanted is not None else None
    return situation.recorded.get(old) if last is None and old is not None else last


def location_of(seen: Observed) -> str | None:
    """Return where a topic is in object storage; `None`: it has no location there."""
    return seen.topic.legacy.location if seen.topic.legacy is not None else None


def is_at(location: str, meant: str) -> bool:
    """Tell whether a location is the meant one, or was made with the meant name."""
    return is_same_place(meant, location) if is_explicit(meant) else _topic(location) == meant


def is_explicit(source: str) -> bool:
    """Tell whether a source is a location, not a name."""
    return "/" in source


def _at(mounting: Mounting, location: str, storage: SharedStorage) -> MountSource | UserError | None:
    attached, mountables = storage.at.get(_place(location), ((), ()))
    for leaving in attached:
        if is_same_place(location, leaving.location):
            return _taken_from(mounting, leaving)
    for found in mountables:
        if is_same_place(location, found.location):
            return MountSource(found.location, None) if found.state == "detached" else _owned(found, storage)
    for other in mountables:
        message = f"at {location} in {storage.url} lies topic {other.full_name}"
        return UserError(message, hint=f"Write {other.location}, or correct the cluster id and revision.")
    return None


def _named(mounting: Mounting, storage: SharedStorage) -> MountSource | UserError | None:
    full_name = wanted_name(mounting)
    attached, called = storage.called.get(full_name, ((), ()))
    leaving = [each for each in attached if each.leaves_by is not None]
    free = [each.location for each in called if each.state == "detached"]
    found = sorted({*free, *(each.location for each in leaving)})
    if len(found) > 1:
        message = f"{len(found)} topics called {full_name} lie in {storage.url}: {_some(found)}"
        return UserError(message, hint="Write the location of the one that is meant as source.")
    if leaving:
        return _taken_from(mounting, leaving[0])
    if free:
        return MountSource(free[0], None)
    if called:
        return _owned(called[0], storage)
    return _taken_from(mounting, attached[0]) if attached else _called_otherwise(full_name, storage)


def _called_otherwise(full_name: str, storage: SharedStorage) -> UserError | None:
    """Return where a topic lies that somebody may mean by a name that it was not made with."""
    leaving = next((each for each in storage.attached if each.name == full_name and each.leaves_by is not None), None)
    if leaving is not None:
        message = (
            f"no topic was made as {full_name}: the one that {leaving.leaves_by} unmounts lies at {leaving.location}"
        )
        return UserError(message, hint="Write that location as source: both can be applied at once.")
    free = [each for each in storage.mountables if each.state == "detached"]
    renamed = sorted(each.location for each in free if each.name == full_name)
    own = split_name(full_name)[1]
    found = renamed or sorted(each.location for each in free if split_name(each.full_name)[1] == own)
    if not found:
        return None
    why = "what was called so last lies" if renamed else "in another namespace that name lies"
    message = f"no detached topic {full_name} lies in {storage.url}; {why} at {_some(found)}"
    return UserError(message, hint="Write the location as source: it is mounted in the mounting's own namespace.")


def _taken_from(mounting: Mounting, attached: Attached) -> MountSource | UserError:
    if attached.leaves_by is not None:
        return MountSource(attached.location, None, attached.leaves_by)
    message = f"{attached.location} is attached to cluster {attached.cluster} as {attached.name}"
    hint = f"Unmount it there first: a Mounting of {attached.name} on {attached.cluster} with state: unmounted."
    namespace, name = split_name(attached.name)
    if (attached.cluster, namespace) == (mounting.cluster, mounting.metadata.namespace or ""):
        hint = f"To leave it there write as: {name}. {hint}"
    return UserError(message, hint=hint)


def _owned(found: Mountable, storage: SharedStorage) -> UserError:
    word = "mounted on" if found.state == "mounted" else "being mounted on"
    release = f"reconciler mount release {found.location} --owner {found.owner} --allow release:{found.location}"
    if found.owner is not None and found.owner == storage.cluster_id and found.state == "mounted":
        message = (
            f"{found.location} was mounted on this cluster as {found.name}, and was deleted there outside reconciler"
        )
        hint = f"Make what is left of it mountable again: {release}"
        return UserError(message, hint=hint)
    message = f"{found.location} is {word} {storage.whose(found.owner)} as {found.name}"
    return UserError(message, hint=way_to_free(release, is_mounted=found.state == "mounted"))


def _is_free(location: str, storage: SharedStorage) -> bool:
    _, mountables = storage.at.get(_place(location), ((), ()))
    return any(each.location == location and each.state == "detached" for each in mountables)


def _place(location: str) -> tuple[str, str]:
    _, cluster_id, revision = location.rsplit("/", 2)
    return cluster_id.lower(), revision


def _topic(location: str) -> str:
    return location.rsplit("/", 2)[0]


def _some(locations: Sequence[str]) -> str:
    return ", ".join(locations[:_NAMED]) + (" …" if locations[_NAMED:] else "")
