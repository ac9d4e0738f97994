"""Observe clusters side by side, and check their identity."""

from __future__ import annotations

import gc
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, TypeVar

from reconciler.errors import NotAuthorizedError, ReconcilerError, RetryableError, UserError
from reconciler.lifecycles import is_under_way
from reconciler.operations.steps.invocation import quiet
from reconciler.planning.diff.mount_changes import is_recovery, is_replaced
from reconciler.planning.resolve.cluster_values import is_one_storage
from reconciler.planning.resolve.mount_sources import (
    Attached,
    SharedStorage,
    detached_here,
    elsewhere,
    found_beside,
    found_detached,
    found_source,
    is_unmounted,
    nothing_there,
    wanted_name,
)
from reconciler.planning.selection import names_before, renamed_namespaces
from reconciler.planning.situation import is_another, mounted_by
from reconciler.providers.protocol import Provider, Scope, archives_of, groups_of, migrations_of
from reconciler.resources.address import Address, address_of, cluster_address, cluster_of, full_name_of, kind_of
from reconciler.resources.cluster import Cluster
from reconciler.resources.inventory import Capabilities, ClusterIdentity, Desired, Inventory, Observed, Overview, Record
from reconciler.resources.mirror_link import MirrorLink
from reconciler.resources.mount import (
    MIGRATING,
    Mountable,
    MountedElsewhere,
    Mounting,
    MountSource,
    Recoveries,
    StoredTopics,
)
from reconciler.resources.namespace import Namespace
from reconciler.resources.topic import Topic
from reconciler.runtime.text import counted, first_few
from reconciler.runtime.threads import Workers, settled
from reconciler.state.snapshots import Snapshot, read_incarnations

if TYPE_CHECKING:
    from reconciler.operations.steps.workspace import Site
    from reconciler.resources.measures import Cuts, Measures


AT_ONCE: Final = 16

Seen = TypeVar("Seen")


@dataclass(frozen=True, slots=True)
class Answer:
    """What one cluster said."""

    capabilities: Capabilities
    identity: ClusterIdentity | None
    inventory: Inventory


@dataclass(frozen=True, slots=True)
class ObservedClusters:
    """What all clusters that were read said."""

    inventory: Inventory
    """What whoever acts may see of it."""
    capabilities: Mapping[str, Capabilities]
    identities: Mapping[str, ClusterIdentity | None]
    hidden: Mapping[Address, NotAuthorizedError]
    """What is there besides, and why it may not be seen."""
    lost: Mapping[str, RetryableError | UserError] = field(default_factory=dict)
    """The clusters that could not be read, and may be missing; why each."""

    @property
    def topics(self) -> int:
        """How many topics were read, without those that the platform made for itself."""
        return sum(
            1
            for address, seen in self.inventory.items()
            if kind_of(address) in {"topic", "mirror"} and not seen.is_internal
        )


def observe(
    providers: Mapping[str, Provider],
    clusters: Sequence[str],
    recorded: Record,
    *,
    can_exclude: bool = True,
    may_lack: Callable[[Inventory], Collection[str]] = lambda _found: (),
    tell: Callable[[str], None] = quiet,
) -> ObservedClusters:
    """Read `clusters`, all at once; those that `may_lack` names, of what was read, as far as they can be read.

    `can_exclude`: whether whoever asks can be told to leave one out; `tell` is told which are waited for.

    Raises:
        RetryableError: Some cannot be reached; names them all and how to go on without them.
        UserError: Some may not be read.
    """
    lost: dict[str, RetryableError | UserError]
    with ThreadPoolExecutor(max_workers=AT_ONCE, thread_name_prefix="observe") as threads:
        asked = {name: threads.submit(_ask, providers, name, recorded) for name in clusters}
        _tell_of(asked, "observing clusters", tell)
        answers, lost = settled(asked, RetryableError, UserError)
    found = {address: item for answer in answers.values() for address, item in answer.inventory.items()}
    if lost and not lost.keys() <= set(may_lack(found)):
        raise _unreadable(lost, can_exclude=can_exclude)
    hidden = {address: item.hidden for address, item in found.items() if item.hidden is not None}
    return ObservedClusters(
        {address: item for address, item in found.items() if address not in hidden} if hidden else found,
        {name: answer.capabilities for name, answer in answers.items()},
        {name: answer.identity for name, answer in answers.items()},
        hidden,
        lost,
    )


def measure(
    providers: Mapping[str, Provider],
    wanted: Cuts,
    *,
    with_groups: bool = False,
    committed: Collection[Address] = (),
    may_lack: Collection[str] = (),
    tell: Callable[[str], None] = quiet,
) -> Measures:
    """Measure what a plan needs to know the size of, and who reads it; what cannot be measured is absent.

    `wanted`: topics, and the times of which it tells how much of each is older; `committed`: the topics of which it
    counts up to where each group has read; `may_lack`: the clusters that may be gone by now; `tell` is told which
    clusters are waited for.
    """
    by_cluster: dict[str, dict[Address, Sequence[int]]] = {}
    for address, cuts in wanted.items():
        by_cluster.setdefault(cluster_of(address) or "", {})[address] = cuts
    with ThreadPoolExecutor(max_workers=AT_ONCE, thread_name_prefix="measure") as threads:
        asked = {
            name: threads.submit(
                measured_on, providers[name], here, committed, with_groups=with_groups, may_lack=name in may_lack
            )
            for name, here in sorted(by_cluster.items())
        }
        _tell_of(asked, f"measuring {counted(len(wanted), 'topic')}: clusters", tell)
        return {address: found for future in asked.values() for address, found in future.result().items()}


def _tell_of(asked: Mapping[str, Future[Any]], what: str, tell: Callable[[str], None]) -> None:
    """Tell now, and whenever a cluster has answered, which of them have not."""
    if tell is quiet:
        return

    def say(_answered: object) -> None:
        waiting = [name for name, future in asked.items() if not future.done()]
        still = f", waiting for {first_few(waiting)}" if waiting else ""
        tell(f"{what} {len(asked) - len(waiting)} of {len(asked)}{still}")

    say(None)
    for future in asked.values():
        future.add_done_callback(say)


def measured_on(
    provider: Provider,
    wanted: Cuts,
    committed: Collection[Address],
    *,
    with_groups: bool,
    may_lack: bool,
) -> Measures:
    """Measure topics of one cluster, as `measure` does."""
    try:
        found = provider.measure(list(wanted), wanted)
    except (RetryableError, UserError):
        if may_lack:
            return {}
        raise
    found = {
        address: replace(each, committed=committed_of(provider, full_name_of(address)))
        if address in committed
        else each
        for address, each in found.items()
    }
    if not (found and with_groups):
        return found
    reading = _reading(provider)
    return {
        address: replace(each, groups=None if reading is None else tuple(reading.get(full_name_of(address), ())))
        for address, each in found.items()
    }


# Clusters that an order does without: they are waited for a few seconds.


_OPTIONAL_S: Final = 2.5
"""A failover asks its sources twice, what they have and how much: five seconds at most."""


def ask_clusters(
    ask: Callable[[str], Seen], clusters: Iterable[str], optional: Collection[str]
) -> tuple[dict[str, Seen], dict[str, ReconcilerError]]:
    """Ask clusters, all at once; return the answers, and why there are no others.

    `optional`: clusters that are waited for `_OPTIONAL_S` at most.
    """
    workers, until = Workers(AT_ONCE, name="clusters"), monotonic() + _OPTIONAL_S
    asked = {name: workers.submit(partial(ask, name)) for name in clusters}
    answers: dict[str, Seen] = {}
    errors: dict[str, ReconcilerError] = {}
    for name, future in sorted(asked.items(), key=lambda item: item[0] in optional):
        try:
            answers[name] = future.result(max(0.0, until - monotonic()) if name in optional else None)
        except TimeoutError:
            hint = "Try again when it answers."
            errors[name] = RetryableError(f"cluster {name} does not answer within {_OPTIONAL_S} s", hint=hint)
        except ReconcilerError as error:
            errors[name] = error
    workers.close()
    return answers, errors


def why_lost(cluster: str, error: ReconcilerError) -> str:
    """Return why a cluster was not read, as the rest of a sentence about it."""
    rest = error.message.removeprefix(f"cluster {cluster} ")
    return rest if rest != error.message else f"does not answer: {rest}"


def absent_cluster(cluster: Cluster) -> ReconcilerError:
    """Return the error for a cluster that is not where it should be: misspelt rather than never made."""
    root = cluster.spec.root
    where = "" if root is None else f": nothing is at {root.url}"
    return UserError(
        f"cluster {cluster.metadata.name} is not there{where}",
        hint="Correct the location. A cluster that was never made is made by: reconciler apply",
    )


def committed_of(provider: Provider, full_name: str) -> dict[str, dict[int, int]] | None:
    """Return where each group goes on reading a topic; `None` where that cannot be told."""
    try:
        groups = groups_of(provider).of_topic(full_name)
    except UserError:
        return None
    if groups is None:
        return None
    return {
        group.name: {at.partition: at.reads_on for at in group.offsets if at.reads_on is not None}
        for group in groups
        if not group.is_share
    }


def _reading(provider: Provider) -> Mapping[str, Sequence[str]] | None:
    """Return who is reading each topic; `None` where that cannot be told, for a plan needs no more than to say so."""
    try:
        return groups_of(provider).reading()
    except UserError:
        return None


def _ask(providers: Mapping[str, Provider], name: str, recorded: Record) -> Answer:
    provider = providers[name]
    identity = provider.identify()
    if identity is None and cluster_address(name) in recorded:
        # A recorded cluster that is not there is out of reach, never one to be made anew over its data.
        raise gone()
    return Answer(provider.capabilities, identity, provider.observe(Scope(recorded=_on(recorded, name))))


def _on(recorded: Record, cluster: str) -> frozenset[Address]:
    return frozenset(address for address in recorded if cluster_of(address) == cluster)


def gone(site: Site | None = None, name: str = "") -> RetryableError:
    """Return the error for a recorded cluster that does not exist at its location any more."""
    hint = "Check that its root is mounted and that the location in its manifest is right."
    root = None if site is None else site.relative_root(name)
    if root is not None:
        other = f"--no-state --cluster {name}=URL says where it is, for commands that take it"
        hint = f"Its root {root} is relative to the folder of the workspace: run the command there. Or {other}."
    return RetryableError("it is recorded, but nothing is there now", hint=hint)


def _unreadable(lost: Mapping[str, RetryableError | UserError], *, can_exclude: bool) -> ReconcilerError:
    """Return the error that names them; where trying again mends none of them, it stays the kind it is."""
    named = unreachable(lost, can_exclude=can_exclude)
    for error in lost.values():
        if isinstance(error, UserError):
            error.message, error.hint, error.args = named.message, named.hint, named.args
            return error
    return named


def unreachable(lost: Mapping[str, ReconcilerError], *, can_exclude: bool = True) -> RetryableError:
    """Return the error that names clusters that cannot be read, and how to go on without them, where one can."""
    names = sorted(lost)
    is_one = len(names) == 1
    causes = {name: lost[name].message.removeprefix(f"cluster {name}: ") for name in names}
    what = "; ".join(causes[name] if is_one else f"{name}: {causes[name]}" for name in names)
    without = " ".join(f"--exclude '*/{name}/*'" for name in names)
    hints = " ".join(dict.fromkeys(lost[name].hint for name in names))
    return RetryableError(
        f"cannot read {'cluster' if is_one else 'clusters'} {', '.join(names)}: {what}",
        hint=f"{hints} To go on without: {without}" if can_exclude else hints,
    )


# Bursts of long-lived objects, made without the cyclic collector looking at them again and again.


@contextmanager
def burst() -> Iterator[None]:
    """Make many objects that stay: tens of thousands of resources, none of them garbage.

    The collector would walk all of them again and again, and free nothing: reading the state of 10,000 topics, reading
    them from their cluster and planning take half as long again with it.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


# The consumer groups that links may follow: asked only where the filters of a link are about groups.


def followed_groups(
    providers: Mapping[str, Provider], desired: Desired, seen: ObservedClusters
) -> Mapping[str, Sequence[str]]:
    """Return the groups of the clusters whose groups a link follows, of those that were read.

    It is only for a warning: a cluster that cannot tell, or does not let us know, is left out.
    """
    links = (declared.resource for declared in desired.values() if isinstance(declared.resource, MirrorLink))
    sources = {link.spec.source for link in links if _follows_by_name(link)}
    there = (name for name in sorted(sources) if seen.identities.get(name) is not None)
    return {name: names for name in there if (names := _names(providers[name])) is not None}


def _follows_by_name(link: MirrorLink) -> bool:
    syncing = link.spec.consumer_offset_sync
    return syncing is not None and syncing.enabled and any(each.name != "*" for each in syncing.filters)


def _names(provider: Provider) -> Sequence[str] | None:
    try:
        return groups_of(provider).names()
    except ReconcilerError:
        return None


# Topics that a cluster has still and object storage calls another's: released while their cluster lived.


def leaving(desired: Desired, record: Record, inventory: Inventory) -> Iterator[Address]:
    """Yield the tiered topics that a plan unmounts or deletes: whose they are says what becomes of their records."""
    mountings = (declared.resource for declared in desired.values())
    unmounted = {
        mounted_by(each) for each in mountings if isinstance(each, Mounting) and each.spec.state == "unmounted"
    }
    gone = {address for address in record if kind_of(address) == "topic" and address not in desired}
    for address in sorted(unmounted | gone):
        seen = inventory.get(address)
        if seen is not None and seen.topic.legacy is not None:
            yield address


def is_lost(seen: Observed, cluster_id: str, registered: Mountable | None) -> bool:
    """Tell whether a topic is not its cluster's any more, by its register; while it migrates, that is in order."""
    if registered is None or seen.state == MIGRATING:
        return False
    return registered.state == "detached" or registered.owner != cluster_id


def as_lost(inventory: Inventory, lost: Collection[Address]) -> Inventory:
    """Return what is there; what lies in object storage of topics that are lost stays there, and is not theirs."""
    found = dict(inventory)
    for address in lost:
        legacy = found[address].topic.legacy
        if legacy is not None:
            log = replace(found[address].topic, legacy=replace(legacy, is_deleted=False, is_lost=True))
            found[address] = replace(found[address], topic=log)
    return found


# What object storage has of topics that are to be mounted: asked only where a mounting has no topic yet.


def id_in_storage(provider: Provider, cluster_id: str) -> str:
    """Return the id that a cluster has in object storage: where jobs mount, its own may be no UUID."""
    moves = migrations_of(provider).by_jobs if provider.capabilities.mountings_by_jobs else None
    return cluster_id if moves is None else moves.cluster_id


def mountables(
    providers: Mapping[str, Provider], desired: Desired, record: Record, seen: ObservedClusters
) -> tuple[StoredTopics, frozenset[Address]]:
    """Look for what mountings name, and for topics that are gone, on clusters that were read and can mount.

    Raises:
        RetryableError: An object storage cannot be reached.
    """
    return _Looking(providers, desired, record, seen).all()


class _Looking:
    """One look at each object storage, however many mountings there are."""

    def __init__(
        self, providers: Mapping[str, Provider], desired: Desired, record: Record, seen: ObservedClusters
    ) -> None:
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
        said = {
            address: address_of("namespace", each.cluster, each.spec.moved_from)
            for address, each in ((address, declared.resource) for address, declared in desired.items())
            if isinstance(each, Namespace) and each.spec.moved_from is not None
        }
        self._renamed = renamed_namespaces(said, record)
        self._listed: dict[str, Sequence[Mountable] | UserError] = {}
        self._by_location: dict[str, Mapping[str, Mountable]] = {}
        self._lying: dict[str, SharedStorage | UserError] = {}
        self._leaving = {
            mounted_by(declared.resource): address
            for address, declared in desired.items()
            if isinstance(declared.resource, Mounting) and declared.resource.spec.state == "unmounted"
        }

    def all(self) -> tuple[StoredTopics, frozenset[Address]]:
        """Return what is stored, and the topics that leave their cluster and are not its any more."""
        if not any(map(self._can_look, self._clusters)):
            return StoredTopics(), frozenset()
        declared = ((address, each.resource) for address, each in self._desired.items())
        mountings = dict(sorted((address, each) for address, each in declared if isinstance(each, Mounting)))
        asked = {address: each for address, each in mountings.items() if self._is_asked(each)}
        mounts = {
            address: found
            for address, mounting in asked.items()
            for found in [self._resolved(address, mounting)]
            if found is not None
        }
        gone = dict(self._gone(mountings))
        detached = {address: lies for address, lies in gone.items() if isinstance(lies, str)}
        elsewhere = {address: lies for address, lies in gone.items() if isinstance(lies, MountedElsewhere)}
        filled = self._filled(mounts, asked)
        stored = StoredTopics(mounts=filled, detached=detached, mounted_elsewhere=elsewhere)
        return stored, frozenset(self._lost())

    def _is_asked(self, mounting: Mounting) -> bool:
        topic, seen = mounted_by(mounting), self._seen
        under_way = seen.inventory.get(mounting.address)
        if under_way is not None and is_under_way(under_way.state):
            return False
        last, observed = self._record.get(mounting.address), seen.inventory.get(topic)
        is_learnt = last is None or (is_unmounted(last) and last.physical_name is None)
        if mounting.spec.state == "unmounted":  # of a topic that is there: whether it is another than was applied
            known = [each for each in (last, self._record.get(topic)) if each is not None]
            is_asked = is_learnt if observed is None else any(is_another(each, observed) for each in known)
        else:  # of a topic that is there once, before it is taken for what its mounting only names
            is_asked = observed is None or (last is None and "/" not in (mounting.spec.source or ""))
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
            look = detached_here if mounting.spec.state == "unmounted" else found_beside
            return look(mounting, lying)
        if mounting.spec.state == "unmounted":
            return found_detached(mounting, lying)
        last = self._record.get(address)
        if last is None and (old := self._old_address(mounting)) is not None:
            last = self._record.get(old)
        found = found_source(mounting, last.physical_name if last is not None else None, lying)
        if found is not None:
            return found
        others = [(name, lying) for name in self._others(mounting.cluster) for lying in [self._storage(name)]]
        known = [(name, there) for name, there in others if isinstance(there, SharedStorage)]
        return elsewhere(mounting, lying.url, known) or nothing_there(mounting, lying.url, self._leaves_by(mounting))

    def _old_address(self, mounting: Mounting) -> Address | None:
        """Return what a mounting was called before: it says so, or the namespace that it lies in."""
        spec = mounting.spec
        said = address_of("mounting", mounting.cluster, spec.moved_from) if spec.moved_from is not None else None
        names = names_before(mounting.address, said, self._renamed)
        return next((name for name in names if name in self._record), None)

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
            for address, lies in archives_of(self._providers[cluster]).recoverable(locations).items():
                source = found[address]
                if isinstance(source, MountSource):
                    found[address] = lies if isinstance(lies, UserError) else replace(source, found=lies)
        return found

    def _gone(self, mountings: Mapping[Address, Mounting]) -> Iterator[tuple[Address, str | MountedElsewhere]]:
        """Yield recorded topics that are gone, and where they lie detached, or are mounted under another name."""
        gone = [
            address
            for address in sorted(self._record or self._desired)  # Without any record the state may be lost.
            if kind_of(address) == "topic"
            and self._is_gone(address)
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
            if not self._can_look(cluster):
                continue
            identity, listed = self._seen.identities.get(cluster), self._list(cluster)
            if identity is None or isinstance(listed, UserError):
                continue  # Only what a mounting rests on has to be known.
            lies = self._lies_now(address, identity.cluster_id, listed)
            if lies is not None and (address not in spoken or isinstance(lies, MountedElsewhere)):
                yield address, lies

    def _is_gone(self, address: Address) -> bool:
        """Tell whether a recorded topic is not there, or another topic has its name."""
        observed, last = self._seen.inventory.get(address), self._record.get(address)
        return observed is None or (last is not None and is_another(last, observed))

    def _lies_now(
        self, address: Address, cluster_id: str, listed: Sequence[Mountable]
    ) -> str | MountedElsewhere | None:
        """Return where a topic is that its cluster detached last, or made: whatever it was called since."""
        name = full_name_of(address)
        mine = (each for each in listed if (each.owner, each.name) == (cluster_id, name))
        location = next((each.location for each in mine if each.state == "detached"), None)
        if location is not None:
            return location
        in_storage = next((kept for kept, own in self._ids.items() if own == cluster_id), cluster_id)
        made = [each for each in listed if each.location.rpartition("/")[0] == f"{name}/{in_storage}"]
        if not made:
            return None
        is_by_jobs = in_storage != cluster_id  # Then revisions are made of topic ids, and have no order.
        last = max(made, key=lambda each: each.at_ms or 0 if is_by_jobs else int(each.location.rpartition("/")[2]))
        if last.state == "detached":
            return last.location
        owners = {name for name, each in self._seen.identities.items() if each and each.cluster_id == last.owner}
        found = (each for each in self._attached(cluster_of(address) or "") if each.location == last.location)
        attached = next((each for each in found if each.cluster in owners), None)  # Others may have begun to mount it.
        if attached is None:
            # Of a cluster that was read the topic was deleted since.
            return None if owners else MountedElsewhere(last.location, None, last.owner or "", last.name)
        topic = address_of("topic", attached.cluster, attached.name)
        known = [each.resource for each in self._record.values()] + [each.resource for each in self._desired.values()]
        is_said = any(
            each.address == topic or (isinstance(each, Mounting) and mounted_by(each) == topic) for each in known
        )
        return None if is_said else MountedElsewhere(last.location, topic, last.owner or "", attached.name)

    def _lost(self) -> Iterator[Address]:
        for address in leaving(self._desired, self._record, self._seen.inventory):
            cluster = cluster_of(address) or ""
            if self._can_look(cluster) and self._is_lost(address, cluster):
                yield address

    def _is_lost(self, address: Address, asked: str) -> bool:
        """Tell whether a topic is not its cluster's any more, as `asked` sees the storage that both have."""
        item, identity = self._seen.inventory[address], self._seen.identities.get(cluster_of(address) or "")
        if item.topic.legacy is None or identity is None:
            return False
        return is_lost(item, identity.cluster_id, self._registered(asked).get(item.topic.legacy.location))

    def _registered(self, cluster: str) -> Mapping[str, Mountable]:
        if cluster not in self._by_location:
            listed = self._list(cluster)
            known = () if isinstance(listed, UserError) else listed
            self._by_location[cluster] = {each.location: each for each in known}
        return self._by_location[cluster]

    def _list(self, cluster: str) -> Sequence[Mountable] | UserError:
        if cluster not in self._listed:
            try:
                found = archives_of(self._providers[cluster]).mountable()
                named = (self._ids.get(each.owner or "", each.owner) for each in found)
                self._listed[cluster] = [
                    each if each.owner == owner else replace(each, owner=owner)
                    for each, owner in zip(found, named, strict=True)
                ]
            except UserError as error:
                self._listed[cluster] = error
        return self._listed[cluster]

    @cached_property
    def _ids(self) -> Mapping[str, str]:
        """Return what clusters that were read and can mount call themselves, by what object storage calls them."""
        read = {name: each.cluster_id for name, each in self._seen.identities.items() if each is not None}
        able = {name: own for name, own in read.items() if self._can_look(name)}
        return {id_in_storage(self._providers[name], own): own for name, own in able.items()}

    def _storage(self, cluster: str) -> SharedStorage | UserError:
        if cluster not in self._lying:
            listed = self._list(cluster)
            self._lying[cluster] = listed if isinstance(listed, UserError) else self._lies(cluster, listed)
        return self._lying[cluster]

    def _lies(self, cluster: str, listed: Sequence[Mountable]) -> SharedStorage:
        identities = {name: each.cluster_id for name, each in self._seen.identities.items() if each is not None}
        storage = self._clusters[cluster].spec.object_storage
        return SharedStorage(
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
            is_topic = item.topic.legacy is not None and kind_of(address) == "topic" and name in sharing
            if item.topic.legacy is not None and is_topic and not self._is_lost(address, cluster):
                yield Attached(name, full_name_of(address), item.topic.legacy.location, self._leaving.get(address))

    def _is_shared(self, one: str, other: str) -> bool:
        mine, theirs = self._clusters.get(one), self._clusters.get(other)
        here, there = (self._seen.inventory.get(cluster_address(name)) for name in (one, other))
        return mine is not None and theirs is not None and is_one_storage(mine, here, theirs, there)

    def _others(self, cluster: str) -> Iterator[str]:
        """Yield the clusters that were read and have another object storage."""
        for name in sorted(self._seen.identities):
            if name != cluster and self._can_look(name) and not self._is_shared(cluster, name):
                yield name


# What object storage has of the new topics that are to be made from it: asked only where there are such topics.


def recoverables(providers: Mapping[str, Provider], desired: Desired, seen: ObservedClusters) -> Recoveries:
    """Look for what new topics name, on clusters that were read and can recover.

    Raises:
        RetryableError: An object storage cannot be reached.
    """
    asked: dict[str, dict[Address, str | None]] = {}
    for address, declared in desired.items():
        topic = declared.resource
        if not (isinstance(topic, Topic) and is_recovery(topic)) or address in seen.inventory or address in seen.hidden:
            continue
        capabilities = seen.capabilities.get(topic.cluster)
        if capabilities is not None and capabilities.recovery:
            asked.setdefault(topic.cluster, {})[address] = topic.spec.recover_from
    replicas = _new_replicas(desired, seen)
    return {
        address: source
        for cluster in sorted(asked.keys() | replicas.keys())
        for address, source in archives_of(providers[cluster])
        .recoverable(asked.get(cluster, {}), replicas.get(cluster, {}))
        .items()
    }


def _new_replicas(desired: Desired, seen: ObservedClusters) -> Mapping[str, Mapping[Address, str]]:
    """Return the locations that read replicas which are still to be made would follow, by cluster."""
    asked: dict[str, dict[Address, str]] = {}
    for address, declared in desired.items():
        topic, there = declared.resource, seen.inventory.get(address)
        if not isinstance(topic, Topic) or topic.spec.read_replica_of is None or address in seen.hidden:
            continue
        capabilities = seen.capabilities.get(topic.cluster)
        is_new = there is None or is_replaced(topic, there)
        if is_new and capabilities is not None and capabilities.read_replicas:
            asked.setdefault(topic.cluster, {})[address] = topic.spec.read_replica_of
    return asked


# Before anything is written: the cluster that answers is the one that is declared, and the one we applied to.


def refuse_another_cluster(site: Site, name: str, snapshot: Snapshot | None) -> None:
    """Return if the cluster called `name` may be written to.

    Raises:
        UserError: Another one answers in its place.
        RetryableError: It is recorded, and nothing is there.
    """
    identity = site.providers[name].identify()
    recorded = snapshot.record.get(cluster_address(name)) if snapshot is not None else None
    if identity is None and recorded is not None:
        raise unreachable({name: gone(site, name)}, can_exclude=False)
    if identity is not None:
        expected = site.clusters[name].spec.cluster_id, recorded.incarnation if recorded is not None else None
        refuse_stranger(name, identity.cluster_id, expected, consequence="Nothing was written. ")


def refuse_stranger(name: str, answers: str, expected: Iterable[str | None], *, consequence: str = "") -> None:
    """Return if the cluster that answers under a name is what it should be; `None` is whatever is there.

    Raises:
        UserError: Another one answers.
    """
    for wanted in expected:
        if wanted not in {None, answers}:
            raise UserError(
                f"cluster {name} should be {wanted}, but {answers} answers",
                hint=f"{consequence}Correct the connection; `reconciler plan` says more.",
            )


# Clusters at a glance: what `topic list` and `namespace list` read, and nothing else.


def look_over(site: Site, clusters: Sequence[str], recorded: Mapping[Address, str | None]) -> dict[str, Overview]:
    """Read what `clusters` have, all at once; one that was never made has nothing. `recorded`: which they should be.

    Raises:
        UserError: Another cluster than the recorded one answers.
        RetryableError: Some cannot be reached; a recorded one that is gone is one of them.
    """
    with burst(), ThreadPoolExecutor(max_workers=AT_ONCE, thread_name_prefix="look") as threads:
        asked = {name: threads.submit(_look, site, name, recorded) for name in clusters}
        found, lost = settled(asked, RetryableError)
    if lost:
        raise unreachable(lost, can_exclude=False)
    return found


def check_answers(site: Site, name: str, recorded: Mapping[Address, str | None] | None = None) -> None:
    """Return if the cluster called `name` that answers is the recorded one; `recorded`: which those are, where known.

    Raises:
        UserError: Another one answers, or this workspace has none of that name.
        RetryableError: It cannot be reached, or it is recorded and nothing is there.
    """
    try:
        stands(site, name, recorded_clusters(site) if recorded is None else recorded)
    except RetryableError as error:
        raise unreachable({name: error}, can_exclude=False) from error


def recorded_clusters(site: Site) -> Mapping[Address, str | None]:
    """Return which clusters we applied to; looking goes on without a state that cannot be read."""
    try:
        return read_incarnations(site.state, owner=site.owner, kind="cluster")
    except ReconcilerError as error:
        site.invocation.warn(f"the state cannot be read, so which clusters are expected is not known: {error.message}")
        return {}


def _look(site: Site, name: str, recorded: Mapping[Address, str | None]) -> Overview:
    return site.providers[name].overview() if stands(site, name, recorded) else Overview()


def stands(site: Site, name: str, recorded: Mapping[Address, str | None]) -> bool:
    """Tell whether a cluster was made; refuse another one in its place, and a recorded one that is gone."""
    identity, address = site.providers[name].identify(), cluster_address(name)
    if identity is not None:
        refuse_stranger(name, identity.cluster_id, (site.clusters[name].spec.cluster_id, recorded.get(address)))
        return True
    if address in recorded:
        raise gone(site, name)
    return False
