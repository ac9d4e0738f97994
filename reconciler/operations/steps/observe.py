"""Observe clusters in parallel, and check their ids."""

from __future__ import annotations

import gc
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import cached_property, partial
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, TypeVar

from reconciler.errors import NotAuthorizedError, ReconcilerError, RetryableError, UserError
from reconciler.lifecycles import is_in_progress
from reconciler.operations.steps.invocation import print_nothing
from reconciler.planning.diff.mount_changes import is_recovery, is_replaced
from reconciler.planning.resolve.cluster_values import is_one_storage
from reconciler.planning.resolve.mount_sources import (
    AttachedTopic,
    SharedStorage,
    build_missing_topic_error,
    find_detached_source,
    find_in_other_storages,
    find_last_detached,
    find_named_source,
    find_source,
    get_source_name,
    is_unmounted,
)
from reconciler.planning.selection import find_renamed_namespaces, guess_former_addresses
from reconciler.planning.situation import get_mounted_topic, is_recreated
from reconciler.providers.protocol import Provider, Scope, require_archives, require_groups, require_migrations
from reconciler.resources.address import Address, address_of, cluster_address, cluster_of, full_name_of, kind_of
from reconciler.resources.cluster import Cluster
from reconciler.resources.inventory import Capabilities, ClusterIdentity, Desired, Inventory, Observed, Overview, Record
from reconciler.resources.mirror_link import MirrorLink
from reconciler.resources.mount import (
    MIGRATING,
    MountableTopic,
    Mounting,
    MountSource,
    Recoveries,
    RemountedTopic,
    StoredTopics,
)
from reconciler.resources.namespace import Namespace
from reconciler.resources.topic import Topic
from reconciler.resources.workspace import ClustersSpec
from reconciler.runtime.dataclass import dataclass, field, replace
from reconciler.runtime.text import format_elapsed, list_first, pluralize
from reconciler.runtime.threads import TimedCall, Workers, wait_for_all
from reconciler.state.snapshots import Snapshot, read_incarnations

if TYPE_CHECKING:
    from reconciler.operations.steps.workspace import Site
    from reconciler.resources.measures import Cuts, Measures


AT_ONCE: Final = 16
ALL_DEFAULTS: Final = ClustersSpec()

Seen = TypeVar("Seen")


@dataclass(frozen=True, slots=True)
class ClusterObservation:
    """Observation of one cluster."""

    capabilities: Capabilities
    identity: ClusterIdentity | None
    inventory: Inventory


@dataclass(frozen=True, slots=True)
class ObservedClusters:
    """Observations of clusters."""

    inventory: Inventory
    capabilities: Mapping[str, Capabilities]
    identities: Mapping[str, ClusterIdentity | None]
    hidden: Mapping[Address, NotAuthorizedError]
    """Resources hidden from the caller, with reasons."""
    lost: Mapping[str, RetryableError | UserError] = field(default_factory=dict)
    """Errors of unreadable clusters that the plan can do without."""
    left_out: Mapping[str, RetryableError] = field(default_factory=dict)
    """Those of `lost` that the plan needs, and leaves out."""

    @property
    def topics(self) -> int:
        """Number of topics, except internal ones."""
        # A stopped mirror is listed as a topic too.
        names = {
            address.partition("/")[2]
            for address, seen in self.inventory.items()
            if kind_of(address) in {"topic", "mirror"} and not seen.is_internal
        }
        return len(names)


def observe(  # noqa: PLR0913 - each is an option of one reading, and has a default
    providers: Mapping[str, Provider],
    clusters: Sequence[str],
    recorded: Record,
    *,
    can_exclude: bool = True,
    find_optional: Callable[[Inventory], Collection[str]] = lambda _found: (),
    can_leave_out: Callable[[str], bool] = lambda _cluster: False,
    limits: ClustersSpec = ALL_DEFAULTS,
    tell: Callable[[str], None] = print_nothing,
) -> ObservedClusters:
    """Observe `clusters` in parallel.

    Those that `find_optional` returns for the observed resources may fail, but not by refusing the login. Clusters
    of `can_leave_out` may be unreachable if another one answers. `can_exclude` lets errors suggest `--exclude`.
    """
    workers = Workers(limits.parallel, name="observe")
    by_cluster = _group_by_cluster(recorded)
    calls = {name: TimedCall(partial(_observe_cluster, providers, name, by_cluster.get(name, ()))) for name in clusters}
    futures = {name: workers.submit(call) for name, call in calls.items()}
    _report_progress(futures, "observing clusters", tell)
    try:
        answers, lost = _wait_for_clusters(calls, futures, limits.timeout / 1000, workers)
    finally:
        workers.close()
    inventory = {address: item for answer in answers.values() for address, item in answer.inventory.items()}
    optional = find_optional(inventory) if lost else ()
    needed = {
        name: error for name, error in lost.items() if name not in optional or isinstance(error, NotAuthorizedError)
    }
    left_out = {name: error for name, error in needed.items() if isinstance(error, RetryableError)}
    if needed and not (answers and needed.keys() == left_out.keys() and all(map(can_leave_out, left_out))):
        raise _unreadable_error(lost, can_exclude=can_exclude)
    hidden = {address: item.hidden for address, item in inventory.items() if item.hidden is not None}
    return ObservedClusters(
        {address: item for address, item in inventory.items() if address not in hidden} if hidden else inventory,
        {name: answer.capabilities for name, answer in answers.items()},
        {name: answer.identity for name, answer in answers.items()},
        hidden,
        lost,
        left_out,
    )


def _wait_for_clusters(
    calls: Mapping[str, TimedCall[ClusterObservation]],
    futures: Mapping[str, Future[ClusterObservation]],
    limit_s: float,
    workers: Workers,
) -> tuple[dict[str, ClusterObservation], dict[str, RetryableError | UserError]]:
    answers: dict[str, ClusterObservation] = {}
    errors: dict[str, RetryableError | UserError] = {}
    for name, future in futures.items():
        try:
            answers[name] = calls[name].wait(future, limit_s)
        except TimeoutError:
            workers.replace_hanging()
            message = f"cluster {name}: it was not read within {format_elapsed(limit_s)}"
            hint = "See whether its nodes are alive, or raise spec.clusters.timeout of reconciler.yaml."
            errors[name] = RetryableError(message, hint=hint)
        except (RetryableError, UserError) as error:
            errors[name] = error
    return answers, errors


def measure(  # noqa: PLR0913 - each is an option of one reading, and has a default
    providers: Mapping[str, Provider],
    wanted: Cuts,
    *,
    with_groups: bool = False,
    committed: Collection[Address] = (),
    optional: Collection[str] = (),
    at_once: int = AT_ONCE,
    tell: Callable[[str], None] = print_nothing,
) -> Measures:
    """Measure topics, and with `with_groups` their groups. Omit unmeasurable topics.

    `wanted` maps topics to times that split their size by age. Committed offsets are read of topics in `committed`.
    Clusters in `optional` may fail.
    """
    by_cluster: dict[str, dict[Address, Sequence[int]]] = {}
    for address, cuts in wanted.items():
        by_cluster.setdefault(cluster_of(address) or "", {})[address] = cuts
    with ThreadPoolExecutor(max_workers=at_once, thread_name_prefix="measure") as threads:
        futures = {
            name: threads.submit(
                measure_on_cluster,
                providers[name],
                topics,
                committed,
                with_groups=with_groups,
                is_optional=name in optional,
            )
            for name, topics in sorted(by_cluster.items())
        }
        _report_progress(futures, f"measuring {pluralize(len(wanted), 'topic')}: clusters", tell)
        return {address: size for future in futures.values() for address, size in future.result().items()}


def _report_progress(futures: Mapping[str, Future[Any]], what: str, tell: Callable[[str], None]) -> None:
    if tell is print_nothing:
        return

    def report_waiting(_answered: object) -> None:
        waiting = [name for name, future in futures.items() if not future.done()]
        still = f", waiting for {list_first(waiting)}" if waiting else ""
        tell(f"{what} {len(futures) - len(waiting)} of {len(futures)}{still}")

    report_waiting(None)
    for future in futures.values():
        future.add_done_callback(report_waiting)


def measure_on_cluster(
    provider: Provider, wanted: Cuts, committed: Collection[Address], *, with_groups: bool, is_optional: bool
) -> Measures:
    """Measure topics of one cluster, as `measure` does. An optional cluster may fail."""
    try:
        sizes = provider.measure_topics(list(wanted), wanted)
    except (RetryableError, UserError):
        if is_optional:
            return {}
        raise
    sizes = {
        address: replace(size, committed=read_committed_offsets(provider, full_name_of(address)))
        if address in committed
        else size
        for address, size in sizes.items()
    }
    if not (sizes and with_groups):
        return sizes
    reading = _read_groups(provider)
    return {
        address: replace(size, groups=None if reading is None else tuple(reading.get(full_name_of(address), ())))
        for address, size in sizes.items()
    }


_OPTIONAL_TIMEOUT_S: Final = 2.5
"""Short, because a failover queries its sources twice."""


def query_in_parallel(
    ask: Callable[[str], Seen], clusters: Iterable[str], optional: Collection[str]
) -> tuple[dict[str, Seen], dict[str, ReconcilerError]]:
    """Query clusters in parallel. Return results and errors by name. `optional` clusters have a short time-out."""
    workers, until = Workers(AT_ONCE, name="clusters"), monotonic() + _OPTIONAL_TIMEOUT_S
    futures = {name: workers.submit(partial(ask, name)) for name in clusters}
    answers: dict[str, Seen] = {}
    errors: dict[str, ReconcilerError] = {}
    for name, future in sorted(futures.items(), key=lambda item: item[0] in optional):
        try:
            answers[name] = future.result(max(0.0, until - monotonic()) if name in optional else None)
        except TimeoutError:
            hint = "Try again when it answers."
            message = f"does not answer within {_OPTIONAL_TIMEOUT_S} s"
            errors[name] = RetryableError(message, hint=hint, subject=f"cluster {name} ")
        except ReconcilerError as error:
            errors[name] = error
    workers.close()
    return answers, errors


def explain_lost_cluster(cluster: str, error: ReconcilerError) -> str:
    """Explain why a cluster was not read, as the end of a sentence."""
    subject = f"cluster {cluster} "
    return error.strip_subject(subject) if error.subject == subject else f"does not answer: {error.message}"


def absent_cluster_error(cluster: Cluster) -> ReconcilerError:
    """Build the error for a missing cluster, whose location may be misspelt."""
    root = cluster.spec.root
    where = "" if root is None else f": nothing is at {root.url}"
    return UserError(
        f"is not there{where}",
        hint="Correct the location. If the cluster was never created: reconciler apply",
        subject=f"cluster {cluster.metadata.name} ",
    )


def read_committed_offsets(provider: Provider, full_name: str) -> dict[str, dict[int, int]] | None:
    """Return a topic's committed offsets, by group and partition; `None` if unknown."""
    try:
        groups = require_groups(provider).list_for_topic(full_name)
    except UserError:
        return None
    if groups is None:
        return None
    return {
        group.name: {
            at.partition: at.next_readable_offset for at in group.offsets if at.next_readable_offset is not None
        }
        for group in groups
        if not group.is_share
    }


def _read_groups(provider: Provider) -> Mapping[str, Sequence[str]] | None:
    try:
        return require_groups(provider).find_topic_readers()
    except UserError:
        return None


def _observe_cluster(providers: Mapping[str, Provider], name: str, recorded: Sequence[Address]) -> ClusterObservation:
    provider = providers[name]
    identity = provider.identify()
    if identity is None and cluster_address(name) in recorded:
        # Creating a recorded cluster again could overwrite its data.
        raise missing_cluster_error()
    inventory = provider.observe(Scope(recorded=frozenset(recorded)))
    return ClusterObservation(provider.capabilities, identity, inventory)


def _group_by_cluster(recorded: Record) -> Mapping[str, list[Address]]:
    by_cluster: dict[str, list[Address]] = {}
    for address in recorded:
        by_cluster.setdefault(cluster_of(address) or "", []).append(address)
    return by_cluster


def missing_cluster_error(site: Site | None = None, name: str = "") -> RetryableError:
    """Build the error for a recorded cluster that does not exist."""
    hint = "Check that its root is mounted and that the location in its manifest is right."
    root = None if site is None else site.find_relative_root(name)
    if root is not None:
        other = f"--no-state --cluster {name}=URL gives its location, for commands that accept it"
        hint = f"Its root {root} is relative to the folder of the workspace: run the command there. Or {other}."
    return RetryableError("it is recorded in the state, but its location is empty", hint=hint)


def _unreadable_error(lost: Mapping[str, RetryableError | UserError], *, can_exclude: bool) -> ReconcilerError:
    named = unreachable_clusters_error(lost, can_exclude=can_exclude)
    for error in lost.values():
        if isinstance(error, UserError):
            error.message, error.hint, error.args = named.message, named.hint, named.args
            return error
    return named


def unreachable_clusters_error(lost: Mapping[str, ReconcilerError], *, can_exclude: bool = True) -> RetryableError:
    """Build one error for all unreadable clusters."""
    names = sorted(lost)
    is_one = len(names) == 1
    causes = {name: lost[name].message.removeprefix(f"cluster {name}: ") for name in names}
    what = "; ".join(causes[name] if is_one else f"{name}: {causes[name]}" for name in names)
    without = " ".join(f"--exclude '*/{name}/*'" for name in names)
    *others, last = dict.fromkeys(lost[name].hint for name in names)
    hints = " ".join([*(f"{hint.removesuffix('.')}." for hint in others), last])
    return RetryableError(
        f"cannot read {'cluster' if is_one else 'clusters'} {', '.join(names)}: {what}",
        hint=f"{hints.removesuffix('.')}. To continue without: {without}" if can_exclude else hints,
    )


@contextmanager
def pause_garbage_collection() -> Iterator[None]:
    """Disable garbage collection, which takes a third of the time to plan 10,000 topics."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def read_followed_groups(
    providers: Mapping[str, Provider], desired: Desired, seen: ObservedClusters
) -> Mapping[str, Sequence[str]]:
    """Return the groups of source clusters, for warnings about filters."""
    links = (declared.resource for declared in desired.values() if isinstance(declared.resource, MirrorLink))
    sources = {link.spec.source for link in links if _filters_groups(link)}
    sources_read = (name for name in sorted(sources) if seen.identities.get(name) is not None)
    return {name: names for name in sources_read if (names := _list_group_names(providers[name])) is not None}


def _filters_groups(link: MirrorLink) -> bool:
    syncing = link.spec.consumer_offset_sync
    return syncing is not None and syncing.enabled and any(entry.name != "*" for entry in syncing.filters)


def _list_group_names(provider: Provider) -> Sequence[str] | None:
    try:
        return require_groups(provider).list_names()
    except ReconcilerError:
        return None


def find_leaving_topics(desired: Desired, record: Record, inventory: Inventory) -> Iterator[Address]:
    """Yield tiered topics that a plan unmounts or deletes."""
    mountings = (declared.resource for declared in desired.values())
    unmounted = {
        get_mounted_topic(mounting)
        for mounting in mountings
        if isinstance(mounting, Mounting) and mounting.spec.state == "unmounted"
    }
    gone = {address for address in record if kind_of(address) == "topic" and address not in desired}
    for address in sorted(unmounted | gone):
        seen = inventory.get(address)
        if seen is not None and seen.topic.legacy is not None:
            yield address


def names_other_owner(seen: Observed, cluster_id: str, registered: MountableTopic | None) -> bool:
    """Return whether a topic's register names another owner, except during a migration."""
    if registered is None or seen.state == MIGRATING:
        return False
    return registered.state == "detached" or registered.owner != cluster_id


def mark_lost_topics(inventory: Inventory, lost: Collection[Address]) -> Inventory:
    """Mark topics whose remote records another cluster owns."""
    result = dict(inventory)
    for address in lost:
        legacy = result[address].topic.legacy
        if legacy is not None:
            log = replace(result[address].topic, legacy=replace(legacy, is_deleted=False, is_lost=True))
            result[address] = replace(result[address], topic=log)
    return result


def read_id_in_storage(provider: Provider, cluster_id: str) -> str:
    """Return a cluster's id in object storage. Kafka cluster ids are mapped to UUIDs."""
    moves = require_migrations(provider).job_steps if provider.capabilities.mountings_by_jobs else None
    return cluster_id if moves is None else moves.cluster_id


def find_mountable_topics(
    providers: Mapping[str, Provider], desired: Desired, record: Record, seen: ObservedClusters
) -> tuple[StoredTopics, frozenset[Address]]:
    """Return topics in object storage that Mountings name, and topics whose records another cluster owns."""
    return _StorageIndex(providers, desired, record, seen).find_all()


class _StorageIndex:
    def __init__(
        self, providers: Mapping[str, Provider], desired: Desired, record: Record, seen: ObservedClusters
    ) -> None:
        self._providers = providers
        self._desired = desired
        self._record = record
        self._seen = seen
        resources = (declared.resource for address, declared in desired.items() if kind_of(address) == "cluster")
        self._clusters = {resource.metadata.name: resource for resource in resources if isinstance(resource, Cluster)}
        self._moved_clusters = {
            cluster_of(address)
            for address, declared in desired.items()
            if isinstance(declared.resource, Topic | Namespace) and declared.resource.spec.moved_from is not None
        }
        old_names = {
            address: address_of("namespace", resource.cluster, resource.spec.moved_from)
            for address, resource in ((address, declared.resource) for address, declared in desired.items())
            if isinstance(resource, Namespace) and resource.spec.moved_from is not None
        }
        self._renamed_namespaces = find_renamed_namespaces(old_names, record)
        self._listed: dict[str, Sequence[MountableTopic] | UserError] = {}
        self._by_location: dict[str, Mapping[str, MountableTopic]] = {}
        self._storages: dict[str, SharedStorage | UserError] = {}
        self._unmounting = {
            get_mounted_topic(declared.resource): address
            for address, declared in desired.items()
            if isinstance(declared.resource, Mounting) and declared.resource.spec.state == "unmounted"
        }

    def find_all(self) -> tuple[StoredTopics, frozenset[Address]]:
        if not any(map(self._has_storage, self._clusters)):
            return StoredTopics(), frozenset()
        declared = ((address, item.resource) for address, item in self._desired.items())
        mountings = dict(
            sorted((address, resource) for address, resource in declared if isinstance(resource, Mounting))
        )
        queried = {address: mounting for address, mounting in mountings.items() if self._needs_storage(mounting)}
        mounts = {
            address: source
            for address, mounting in queried.items()
            for source in [self._resolve_source(address, mounting)]
            if source is not None
        }
        gone = dict(self._find_missing_topics(mountings))
        detached = {address: lies for address, lies in gone.items() if isinstance(lies, str)}
        elsewhere = {address: lies for address, lies in gone.items() if isinstance(lies, RemountedTopic)}
        filled = self._add_recoveries(mounts, queried)
        stored = StoredTopics(mounts=filled, detached=detached, mounted_elsewhere=elsewhere)
        return stored, frozenset(self._find_lost_topics())

    def _needs_storage(self, mounting: Mounting) -> bool:
        topic, seen = get_mounted_topic(mounting), self._seen
        under_way = seen.inventory.get(mounting.address)
        if under_way is not None and is_in_progress(under_way.state):
            return False
        last, observed = self._record.get(mounting.address), seen.inventory.get(topic)
        is_learnt = last is None or (is_unmounted(last) and last.physical_name is None)
        if mounting.spec.state == "unmounted":
            known = [recorded for recorded in (last, self._record.get(topic)) if recorded is not None]
            is_asked = is_learnt if observed is None else any(is_recreated(recorded, observed) for recorded in known)
        else:
            is_told = (
                "/" in (mounting.spec.source or "") and not self._seen.capabilities[mounting.cluster].object_storage
            )
            is_asked = observed is None or (last is None and not is_told)
        return is_asked and self._has_storage(mounting.cluster)

    def _has_storage(self, cluster: str) -> bool:
        capabilities, declared = self._seen.capabilities.get(cluster), self._clusters.get(cluster)
        can_mount = capabilities is not None and capabilities.mountings
        return can_mount and declared is not None and declared.spec.object_storage is not None

    def _resolve_source(self, address: Address, mounting: Mounting) -> MountSource | UserError | None:
        storage, is_there = (
            self._load_shared_storage(mounting.cluster),
            get_mounted_topic(mounting) in self._seen.inventory,
        )
        if isinstance(storage, UserError):
            return None if is_there else storage
        if is_there:
            look = find_last_detached if mounting.spec.state == "unmounted" else find_named_source
            return look(mounting, storage)
        if mounting.spec.state == "unmounted":
            return find_detached_source(mounting, storage)
        last = self._record.get(address)
        if last is None and (old := self._find_old_address(mounting)) is not None:
            last = self._record.get(old)
        source = find_source(mounting, last.physical_name if last is not None else None, storage)
        if source is not None:
            return source
        others = [
            (name, other_storage)
            for name in self._list_other_storages(mounting.cluster)
            for other_storage in [self._load_shared_storage(name)]
        ]
        known = [(name, other) for name, other in others if isinstance(other, SharedStorage)]
        can_release = not self._seen.capabilities[mounting.cluster].object_storage
        return find_in_other_storages(mounting, storage.url, known) or build_missing_topic_error(
            mounting, storage.url, self._find_mounting_to_unmount(mounting), can_release=can_release
        )

    def _find_old_address(self, mounting: Mounting) -> Address | None:
        spec = mounting.spec
        declared_old = (
            address_of("mounting", mounting.cluster, spec.moved_from) if spec.moved_from is not None else None
        )
        names = guess_former_addresses(mounting.address, declared_old, self._renamed_namespaces)
        return next((name for name in names if name in self._record), None)

    def _find_mounting_to_unmount(self, mounting: Mounting) -> Address | None:
        name = get_source_name(mounting)
        unmounting = sorted(self._unmounting.items())
        return next(
            (by for topic, by in unmounting if full_name_of(topic) == name and topic in self._seen.inventory), None
        )

    def _add_recoveries(
        self, mounts: Mapping[Address, MountSource | UserError], mountings: Mapping[Address, Mounting]
    ) -> dict[Address, MountSource | UserError]:
        filled = dict(mounts)
        wanted: dict[str, dict[Address, str | None]] = {}
        for address, source in mounts.items():
            is_mount = (
                mountings[address].spec.state == "mounted"
                and get_mounted_topic(mountings[address]) not in self._seen.inventory
            )
            if is_mount and isinstance(source, MountSource) and source.unmounts is None:
                wanted.setdefault(mountings[address].cluster, {})[address] = source.location
        for cluster, locations in sorted(wanted.items()):
            for address, lies in require_archives(self._providers[cluster]).find_recovery_sources(locations).items():
                source = filled[address]
                if isinstance(source, MountSource):
                    filled[address] = lies if isinstance(lies, UserError) else replace(source, recoverable=lies)
        return filled

    def _find_missing_topics(
        self, mountings: Mapping[Address, Mounting]
    ) -> Iterator[tuple[Address, str | RemountedTopic]]:
        gone = [
            address
            for address in sorted(self._record or self._desired)
            if kind_of(address) == "topic"
            and self._is_missing(address)
            and address not in self._seen.hidden
            and (address in self._desired or cluster_of(address) in self._moved_clusters)
        ]
        mounted_topics = {get_mounted_topic(mounting) for mounting in mountings.values()}
        if gone:
            lasts = (last.resource for last in self._record.values())
            unmounted = (last for last in lasts if isinstance(last, Mounting) and last.spec.state == "unmounted")
            # The state may have unmounts that the files lack.
            mounted_topics |= {get_mounted_topic(last) for last in unmounted}
        for address in gone:
            cluster = cluster_of(address) or ""
            if not self._has_storage(cluster):
                continue
            identity, listed = self._seen.identities.get(cluster), self._list_registers(cluster)
            if identity is None or isinstance(listed, UserError):
                continue
            location = self._find_location(address, identity.cluster_id, listed)
            if location is not None and (address not in mounted_topics or isinstance(location, RemountedTopic)):
                yield address, location

    def _is_missing(self, address: Address) -> bool:
        observed, last = self._seen.inventory.get(address), self._record.get(address)
        return observed is None or (last is not None and is_recreated(last, observed))

    def _find_location(
        self, address: Address, cluster_id: str, listed: Sequence[MountableTopic]
    ) -> str | RemountedTopic | None:
        name = full_name_of(address)
        mine = (register for register in listed if (register.owner, register.name) == (cluster_id, name))
        location = next((register.location for register in mine if register.state == "detached"), None)
        if location is not None:
            return location
        in_storage = next(
            (stored_id for stored_id, own in self._cluster_ids_in_storage.items() if own == cluster_id), cluster_id
        )
        made = [register for register in listed if register.location.rpartition("/")[0] == f"{name}/{in_storage}"]
        if not made:
            return None
        # Locations that jobs create end with topic ids instead of revisions. Ids have no order.
        is_by_jobs = in_storage != cluster_id
        last = max(
            made, key=lambda register: register.at_ms or 0 if is_by_jobs else int(register.location.rpartition("/")[2])
        )
        if last.state == "detached":
            return last.location
        owners = {
            name for name, identity in self._seen.identities.items() if identity and identity.cluster_id == last.owner
        }
        candidates = (
            candidate
            for candidate in self._list_attached_topics(cluster_of(address) or "")
            if candidate.location == last.location
        )
        attached = next(
            (candidate for candidate in candidates if candidate.cluster in owners),
            None,
        )
        if attached is None:
            return None if owners else RemountedTopic(last.location, None, last.owner or "", last.name)
        topic = address_of("topic", attached.cluster, attached.name)
        known = [item.resource for item in self._record.values()] + [item.resource for item in self._desired.values()]
        is_said = any(
            resource.address == topic or (isinstance(resource, Mounting) and get_mounted_topic(resource) == topic)
            for resource in known
        )
        return None if is_said else RemountedTopic(last.location, topic, last.owner or "", attached.name)

    def _find_lost_topics(self) -> Iterator[Address]:
        for address in find_leaving_topics(self._desired, self._record, self._seen.inventory):
            cluster = cluster_of(address) or ""
            if self._has_storage(cluster) and self._is_owned_elsewhere(address, cluster):
                yield address

    def _is_owned_elsewhere(self, address: Address, viewer: str) -> bool:
        item, identity = self._seen.inventory[address], self._seen.identities.get(cluster_of(address) or "")
        if item.topic.legacy is None or identity is None:
            return False
        return names_other_owner(
            item, identity.cluster_id, self._read_registers(viewer).get(item.topic.legacy.location)
        )

    def _read_registers(self, cluster: str) -> Mapping[str, MountableTopic]:
        if cluster not in self._by_location:
            listed = self._list_registers(cluster)
            known = () if isinstance(listed, UserError) else listed
            self._by_location[cluster] = {register.location: register for register in known}
        return self._by_location[cluster]

    def _list_registers(self, cluster: str) -> Sequence[MountableTopic] | UserError:
        if cluster not in self._listed:
            try:
                registers = require_archives(self._providers[cluster]).list_mountable_topics()
                named = (
                    self._cluster_ids_in_storage.get(register.owner or "", register.owner) for register in registers
                )
                self._listed[cluster] = [
                    register if register.owner == owner else replace(register, owner=owner)
                    for register, owner in zip(registers, named, strict=True)
                ]
            except UserError as error:
                self._listed[cluster] = error
        return self._listed[cluster]

    @cached_property
    def _cluster_ids_in_storage(self) -> Mapping[str, str]:
        read = {name: identity.cluster_id for name, identity in self._seen.identities.items() if identity is not None}
        able = {name: own for name, own in read.items() if self._has_storage(name)}
        return {read_id_in_storage(self._providers[name], own): own for name, own in able.items()}

    def _load_shared_storage(self, cluster: str) -> SharedStorage | UserError:
        if cluster not in self._storages:
            listed = self._list_registers(cluster)
            self._storages[cluster] = listed if isinstance(listed, UserError) else self._build_storage(cluster, listed)
        return self._storages[cluster]

    def _build_storage(self, cluster: str, listed: Sequence[MountableTopic]) -> SharedStorage:
        identities = {
            name: identity.cluster_id for name, identity in self._seen.identities.items() if identity is not None
        }
        storage = self._clusters[cluster].spec.object_storage
        return SharedStorage(
            storage.url if storage is not None else "",
            identities.get(cluster),
            listed,
            tuple(self._list_attached_topics(cluster)),
            {cluster_id: name for name, cluster_id in sorted(identities.items(), reverse=True)},
        )

    def _list_attached_topics(self, cluster: str) -> Iterator[AttachedTopic]:
        sharing = {cluster, *(name for name in self._seen.identities if self._share_storage(cluster, name))}
        for address, item in sorted(self._seen.inventory.items()):
            name = cluster_of(address) or ""
            is_topic = item.topic.legacy is not None and kind_of(address) == "topic" and name in sharing
            if item.topic.legacy is not None and is_topic and not self._is_owned_elsewhere(address, cluster):
                yield AttachedTopic(
                    name, full_name_of(address), item.topic.legacy.location, self._unmounting.get(address)
                )

    def _share_storage(self, one: str, other: str) -> bool:
        mine, theirs = self._clusters.get(one), self._clusters.get(other)
        mine_seen, theirs_seen = (self._seen.inventory.get(cluster_address(name)) for name in (one, other))
        return mine is not None and theirs is not None and is_one_storage(mine, mine_seen, theirs, theirs_seen)

    def _list_other_storages(self, cluster: str) -> Iterator[str]:
        for name in sorted(self._seen.identities):
            if name != cluster and self._has_storage(name) and not self._share_storage(cluster, name):
                yield name


def find_recoveries(providers: Mapping[str, Provider], desired: Desired, seen: ObservedClusters) -> Recoveries:
    """Return sources from which new topics can be recovered."""
    wanted: dict[str, dict[Address, str | None]] = {}
    for address, declared in desired.items():
        topic = declared.resource
        if not (isinstance(topic, Topic) and is_recovery(topic)) or address in seen.inventory or address in seen.hidden:
            continue
        capabilities = seen.capabilities.get(topic.cluster)
        if capabilities is not None and capabilities.recovery:
            wanted.setdefault(topic.cluster, {})[address] = topic.spec.recover_from
    replicas = _find_new_replicas(desired, seen)
    return {
        address: source
        for cluster in sorted(wanted.keys() | replicas.keys())
        for address, source in require_archives(providers[cluster])
        .find_recovery_sources(wanted.get(cluster, {}), replicas.get(cluster, {}))
        .items()
    }


def _find_new_replicas(desired: Desired, seen: ObservedClusters) -> Mapping[str, Mapping[Address, str]]:
    wanted: dict[str, dict[Address, str]] = {}
    for address, declared in desired.items():
        topic, seen_topic = declared.resource, seen.inventory.get(address)
        if not isinstance(topic, Topic) or topic.spec.read_replica_of is None or address in seen.hidden:
            continue
        capabilities = seen.capabilities.get(topic.cluster)
        is_new = seen_topic is None or is_replaced(topic, seen_topic)
        if is_new and capabilities is not None and capabilities.read_replicas:
            wanted.setdefault(topic.cluster, {})[address] = topic.spec.read_replica_of
    return wanted


def reject_other_cluster(site: Site, name: str, snapshot: Snapshot | None) -> None:
    """Reject a cluster that does not exist, or is not the recorded one."""
    identity = site.providers[name].identify()
    recorded = snapshot.record.get(cluster_address(name)) if snapshot is not None else None
    if identity is None and recorded is not None:
        raise unreachable_clusters_error({name: missing_cluster_error(site, name)}, can_exclude=False)
    if identity is not None:
        expected = site.clusters[name].spec.cluster_id, recorded.incarnation if recorded is not None else None
        reject_unexpected_cluster(name, identity.cluster_id, expected, consequence="Nothing was written. ")


def reject_unexpected_cluster(
    name: str, answers: str, expected: Iterable[str | None], *, consequence: str = ""
) -> None:
    """Reject a cluster with an unexpected id. `None` in `expected` accepts any id."""
    for wanted in expected:
        if wanted not in {None, answers}:
            raise UserError(
                f"cluster {name} should be {wanted}, but {answers} answers",
                hint=f"{consequence}Correct the connection; `reconciler plan` has details.",
            )


def read_overviews(site: Site, clusters: Sequence[str], recorded: Mapping[Address, str | None]) -> dict[str, Overview]:
    """Read overviews of clusters in parallel. New clusters have empty ones.

    `recorded` has the expected ids.
    """
    with pause_garbage_collection(), ThreadPoolExecutor(max_workers=AT_ONCE, thread_name_prefix="look") as threads:
        futures = {name: threads.submit(_read_overview, site, name, recorded) for name in clusters}
        overviews, lost = wait_for_all(futures, RetryableError)
    if lost:
        raise unreachable_clusters_error(lost, can_exclude=False)
    return overviews


def check_cluster_answers(site: Site, name: str, recorded: Mapping[Address, str | None] | None = None) -> None:
    """Reject a cluster that does not answer, or is not the recorded one."""
    try:
        check_cluster_exists(site, name, read_recorded_clusters(site) if recorded is None else recorded)
    except RetryableError as error:
        raise unreachable_clusters_error({name: error}, can_exclude=False) from error


def read_recorded_clusters(site: Site) -> Mapping[Address, str | None]:
    """Read recorded cluster ids. An unreadable state only causes a warning."""
    try:
        return read_incarnations(site.state, owner=site.owner, kind="cluster")
    except ReconcilerError as error:
        site.invocation.warn(f"the state cannot be read, so which clusters are expected is not known: {error.message}")
        return {}


def _read_overview(site: Site, name: str, recorded: Mapping[Address, str | None]) -> Overview:
    return site.providers[name].read_overview() if check_cluster_exists(site, name, recorded) else Overview()


def check_cluster_exists(site: Site, name: str, recorded: Mapping[Address, str | None]) -> bool:
    """Return whether a cluster exists. Reject a missing recorded cluster, or one with another id."""
    identity, address = site.providers[name].identify(), cluster_address(name)
    if identity is not None:
        reject_unexpected_cluster(
            name, identity.cluster_id, (site.clusters[name].spec.cluster_id, recorded.get(address))
        )
        return True
    if address in recorded:
        raise missing_cluster_error(site, name)
    return False
