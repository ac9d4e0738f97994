"""`mount list`, `status`, `cancel`, `delete` and `release`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, TypeVar, get_args

from reconciler.errors import (
    BlockedError,
    InterruptedRunError,
    NotAuthorizedError,
    ReconcilerError,
    RetryableError,
    UsageError,
    UserError,
)
from reconciler.lifecycles import MOUNT, UNMOUNT, Lifecycle, MigrationState
from reconciler.operations.steps.observe import (
    AT_ONCE,
    check_cluster_exists,
    read_id_in_storage,
    unreachable_clusters_error,
)
from reconciler.operations.steps.recorded import read_state
from reconciler.operations.steps.runner import SiteOptions, Stop, require_confirmation
from reconciler.operations.steps.workspace import Site, build_store_settings, get_address_provider
from reconciler.planning.situation import get_mounted_topic
from reconciler.providers.protocol import Scope, require_archives, require_migrations
from reconciler.resources.address import (
    Address,
    address_of,
    cluster_address,
    cluster_of,
    full_name_of,
    kind_of,
    matches_pattern,
)
from reconciler.resources.mount import Migration, MountableTopic, Mounting
from reconciler.runtime.dataclass import dataclass, replace
from reconciler.runtime.text import find_similar, format_suggestion, pluralize
from reconciler.runtime.threads import wait_for_all

if TYPE_CHECKING:
    from reconciler.resources.inventory import Desired, Record


A = TypeVar("A")


def select_clusters(site: Site, names: Sequence[str]) -> tuple[str, ...]:
    """Return the named clusters, sorted; without names, all with object storage."""
    if not names:
        return tuple(name for name in sorted(site.clusters) if site.clusters[name].spec.object_storage is not None)
    unique_names = tuple(sorted({name.removeprefix("cluster/") for name in names}))
    for name in unique_names:
        site.providers[name]
    return unique_names


def get_storage_url(site: Site, cluster: str) -> str:
    """Return the URL of a cluster's object storage."""
    declared = site.clusters[cluster].spec.object_storage
    if declared is None:
        hint = "Declare its objectStorage: topics are mounted from it."
        raise UserError(f"{cluster_address(cluster)} has no object storage", hint=hint)
    return build_store_settings(declared, site.edge.folder).url


def query_clusters(names: Sequence[str], call: Callable[[str], A]) -> tuple[dict[str, A], dict[str, ReconcilerError]]:
    """Call a function per cluster in parallel. Return results and errors by name."""
    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="mounts") as threads:
        return wait_for_all({name: threads.submit(call, name) for name in names}, ReconcilerError)


def unread_clusters_error(lost: Mapping[str, ReconcilerError]) -> ReconcilerError | None:
    """Return one error for all unreadable clusters, or `None`."""
    if not lost:
        return None
    for name in sorted(lost):
        if not isinstance(lost[name], RetryableError):
            return lost[name]
    return unreachable_clusters_error(lost, can_exclude=False)


MigrationVerb: TypeAlias = Literal["cancel", "delete"]


@dataclass(frozen=True, slots=True)
class ClusterMigration:
    """A recorded migration of one cluster."""

    cluster: str
    migration: Migration

    @property
    def state(self) -> MigrationState:
        """State of the migration."""
        return MigrationState(self.migration.state)

    @property
    def lifecycle(self) -> Lifecycle[MigrationState]:
        """Lifecycle of mounts or of unmounts."""
        return MOUNT if self.migration.direction == "inbound" else UNMOUNT

    @property
    def legal(self) -> tuple[str, ...]:
        """Verbs that are allowed in the current state."""
        return self.lifecycle.list_legal_verbs(self.state)

    @property
    def continues_in_run(self) -> bool:
        """Whether the next `run` continues the migration."""
        if self.migration.by_jobs or self.migration.by_cluster:
            return False
        if self.migration.is_automatic:
            return self.state is not MigrationState.CANCELLED
        return self.state is not MigrationState.FINISHED and bool(self.lifecycle.list_automatic_states(self.state))


@dataclass(frozen=True, slots=True)
class MountStatus:
    """Recorded migrations. Completed ones have no record."""

    migrations: tuple[ClusterMigration, ...]
    lost: Mapping[str, ReconcilerError]

    @property
    def verdict(self) -> ReconcilerError | None:
        """Error for an unreadable cluster."""
        return unread_clusters_error(self.lost)


def read_mount_status(reach: SiteOptions, migration: int | None = None, cluster: str | None = None) -> MountStatus:
    """Return recorded migrations, of one id or cluster if given."""
    site = reach.open_site(is_reader=True)
    migrations, lost = _read_migrations(reach, site, cluster)
    if migration is None:
        return MountStatus(migrations, lost)
    return MountStatus((_find_migration(migrations, lost, migration, select_clusters(site, _to_names(cluster))),), lost)


def change_migration(
    reach: SiteOptions,
    migration: int,
    verb: MigrationVerb,
    cluster: str | None,
    *,
    confirm: Callable[[ClusterMigration], bool],
    stop: Stop,
) -> ClusterMigration:
    """Cancel a migration and wait for the end, or delete its record."""
    site = reach.open_site()
    migrations, lost = _read_migrations(reach, site, cluster)
    verdict = unread_clusters_error(lost)
    if verdict is not None:
        verdict.hint = f"{verdict.hint.removesuffix('.')}. Where it is another cluster's, name it: --cluster NAME"
        raise verdict
    chosen = _find_migration(migrations, lost, migration, select_clusters(site, _to_names(cluster)))
    _check_verb_legal(chosen, verb)
    reach.check_writable(site, chosen.cluster)
    require_confirmation(confirm(chosen))

    def check_stop() -> None:
        if stop.is_requested:
            raise InterruptedRunError("Interrupted", hint="Nothing was started")

    with stop.call_on_stop(lambda: None):
        after = require_migrations(site.providers[chosen.cluster]).request_verb(migration, verb, may_go_on=check_stop)
    return replace(chosen, migration=after)


def _read_migrations(
    reach: SiteOptions, site: Site, cluster: str | None
) -> tuple[tuple[ClusterMigration, ...], Mapping[str, ReconcilerError]]:
    recorded = reach.read_recorded_ids(site)

    def read_cluster(name: str) -> list[ClusterMigration]:
        if not check_cluster_exists(site, name, recorded):
            return []
        return [
            ClusterMigration(name, migration)
            for migration in require_migrations(site.providers[name]).list_unfinished()
        ]

    migrations, lost = query_clusters(select_clusters(site, _to_names(cluster)), read_cluster)
    return tuple(
        _replace_ids_in_waits(site, _add_mountings(site, underway))
        for name in sorted(migrations)
        for underway in migrations[name]
    ), lost


def _add_mountings(site: Site, underway: ClusterMigration) -> ClusterMigration:
    """Add the declared Mountings to a migration whose cluster does not know them."""
    migration = underway.migration
    if not migration.by_cluster:
        return underway
    state = "mounted" if migration.direction == "inbound" else "unmounted"
    declared = [item.resource for item in site.desired.values() if isinstance(item.resource, Mounting)]
    names = {
        get_mounted_topic(mounting): full_name_of(mounting.address)
        for mounting in declared
        if mounting.spec.state == state
    }
    topics = (
        replace(topic, mounting=names.get(address_of("topic", underway.cluster, topic.full_name)))
        for topic in migration.topics
    )
    return replace(underway, migration=replace(migration, topics=tuple(topics)))


def _replace_ids_in_waits(site: Site, underway: ClusterMigration) -> ClusterMigration:
    waits = tuple(replace_cluster_ids_with_names(site, wait) for wait in underway.migration.waits)
    return replace(underway, migration=replace(underway.migration, waits=waits))


def _find_migration(
    migrations: tuple[ClusterMigration, ...],
    lost: Mapping[str, ReconcilerError],
    migration: int,
    clusters: tuple[str, ...],
) -> ClusterMigration:
    matching = [underway for underway in migrations if underway.migration.id == migration]
    if len(matching) == 1:
        return matching[0]
    if matching:
        names = ", ".join(underway.cluster for underway in matching)
        message = f"migration {migration} exists on several clusters ({names}): each cluster counts its own ids"
        raise UserError(message, hint=f"Name the cluster: --cluster {matching[0].cluster}")
    verdict = unread_clusters_error(lost)
    if verdict is not None:
        raise verdict
    where = (
        f" on cluster {clusters[0]}" if len(clusters) == 1 else f" on any of {', '.join(clusters)}" if clusters else ""
    )
    message = f"migration {migration} has no record{where}: it is finished, its record was deleted, or there was none"
    raise UserError(message, hint="See where its topics are now: reconciler mount list")


def _check_verb_legal(underway: ClusterMigration, verb: MigrationVerb) -> None:
    underway.lifecycle.apply_verb(
        underway.state,
        verb,
        subject=f"migration {underway.migration.id} of cluster {underway.cluster} is {underway.state}",
    )


def _to_names(cluster: str | None) -> tuple[str, ...]:
    return () if cluster is None else (cluster,)


MountableState: TypeAlias = Literal["mountable", "mounting", "mounted", "unmounting"]

_ENDED: Final = frozenset({MigrationState.FINISHED, MigrationState.CANCELLED})
_CLUSTER_ID: Final = re.compile(r"\bcluster ([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})")
_STATES: Final[Mapping[str, MountableState]] = {"detached": "mountable", "claimed": "mounting", "mounted": "mounted"}


@dataclass(frozen=True, slots=True, kw_only=True)
class MountRow:
    """A topic at one location in object storage."""

    location: str
    """Permanent location, `<topic>/<cluster uuid>/<initial revision>`."""
    name: str
    """Name on the owner; the original name of a mountable topic."""
    state: MountableState
    storage: str
    clusters: tuple[str, ...]
    owner: str | None = None
    """Id of the cluster that owns or is mounting the topic; `null` if none."""
    owner_name: str | None = None
    """Name of the owner; `null` if the workspace does not declare it."""
    partitions: int | None = None
    """`null` if unknown."""
    records: int | None = None
    """Records at the last unmount; `null` if there was none."""
    bytes: int | None = None
    """Size at the last unmount; `null` if there was none."""
    since_ms: int | None = None
    """Time of the last change of `state`; `null` if it never changed."""
    migrations: tuple[ClusterMigration, ...] = ()


@dataclass(frozen=True, slots=True)
class DamagedRegister:
    """An unreadable register in object storage; its topic's owner is unknown."""

    storage: str
    key: str
    error: UserError


@dataclass(frozen=True, slots=True)
class MountList:
    """Mountable, mounted and migrating topics."""

    rows: tuple[MountRow, ...]
    damaged: tuple[DamagedRegister, ...]
    lost: Mapping[str, ReconcilerError]
    storages: tuple[str, ...]
    states: tuple[str, ...] = ()

    @property
    def verdict(self) -> ReconcilerError | None:
        """Error for an unreadable register or cluster."""
        if self.damaged:
            what = pluralize(len(self.damaged), "register")
            message = f"{what} of ownership cannot be read: who has those topics is not known"
            return UserError(message, hint=self.damaged[0].error.hint)
        return unread_clusters_error(self.lost)


@dataclass(frozen=True, slots=True)
class _ClusterMigrations:
    cluster_id: str | None
    migrations: tuple[ClusterMigration, ...] = ()


def list_mounts(reach: SiteOptions, clusters: Sequence[str], states: Sequence[str] = ()) -> MountList:
    """Return topics in object storage, limited to `clusters` and `states`."""
    known = (*get_args(MountableState), *(state.value for state in MigrationState if state is not MigrationState.GONE))
    for state in states:
        if state not in known:
            hint = format_suggestion(find_similar(state, known), otherwise=f"States: {', '.join(known)}; or a URL.")
            raise UsageError(f"--state {state!r} is neither a state of topics nor a URL", hint=hint)
    site = reach.open_site(is_reader=True)
    names = select_clusters(site, clusters)
    sharing: dict[str, list[str]] = {}
    for name in names:
        sharing.setdefault(get_storage_url(site, name), []).append(name)
    recorded = reach.read_recorded_ids(site)

    def read_cluster(name: str) -> _ClusterMigrations:
        if not check_cluster_exists(site, name, recorded):
            return _ClusterMigrations(None)
        provider = site.providers[name]
        identity = provider.identify()
        return _ClusterMigrations(
            None if identity is None else identity.cluster_id,
            tuple(
                ClusterMigration(name, migration)
                for migration in require_migrations(provider).list_unfinished(is_measured=False)
            ),
        )

    answers, lost = query_clusters(names, read_cluster)
    listed, unlisted = query_clusters(
        list(sharing), lambda url: list(require_migrations(site.providers[sharing[url][0]]).list_detached_topics())
    )
    for url, error in unlisted.items():
        lost |= dict.fromkeys(sharing[url], error)
    owners = {cluster_id: name for name in site.clusters if (cluster_id := recorded.get(cluster_address(name)))}
    owners |= {answer.cluster_id: name for name, answer in answers.items() if answer.cluster_id}
    rows: list[MountRow] = []
    damaged: list[DamagedRegister] = []
    for url, sharing_names in sharing.items():
        registers, sharers = listed.get(url, []), tuple(sharing_names)
        migrations = [migration for name in sharers if name in answers for migration in answers[name].migrations]
        good = {register.location: register for _, register in registers if not isinstance(register, UserError)}
        damaged += [
            DamagedRegister(url, key, register) for key, register in registers if isinstance(register, UserError)
        ]
        rows += [replace(row, storage=url, clusters=sharers) for row in _build_rows(good, migrations, owners, states)]
    wanted = (row for row in _merge_rows(rows) if not states or row.state in states or _has_migration_in(row, states))
    return MountList(tuple(wanted), tuple(damaged), lost, tuple(sharing), tuple(states))


def _has_migration_in(row: MountRow, states: Sequence[str]) -> bool:
    return any(migration.state in states for migration in row.migrations)


def read_cluster_names(site: Site, names: Iterable[str]) -> dict[str, str]:
    """Return names of reachable clusters by their ids, including those in object storage."""

    def read_ids(name: str) -> set[str]:
        provider = site.providers[name]
        identity = provider.identify()
        return set() if identity is None else {identity.cluster_id, read_id_in_storage(provider, identity.cluster_id)}

    ids_by_name, _ = query_clusters(list(names), read_ids)
    return {cluster_id: name for name, ids in ids_by_name.items() for cluster_id in ids}


def replace_cluster_ids_with_names(site: Site, text: str) -> str:
    """Replace the ids of reachable clusters."""
    if not _CLUSTER_ID.search(text):
        return text
    names = read_cluster_names(site, site.clusters)
    return _CLUSTER_ID.sub(lambda match: f"cluster {names.get(match[1], match[1])}", text)


def _build_rows(
    registers: Mapping[str, MountableTopic],
    recorded: Sequence[ClusterMigration],
    owners: Mapping[str, str],
    states: Sequence[str],
) -> Iterator[MountRow]:
    moving: dict[str, list[ClusterMigration]] = {}
    ended: dict[str, list[ClusterMigration]] = {}
    for underway in recorded:
        is_ended = underway.state in _ENDED
        if not is_ended or underway.state in states:
            for topic in underway.migration.topics:
                (ended if is_ended else moving).setdefault(topic.location, []).append(underway)
    for location in sorted({*registers, *moving, *ended}):
        register, ways = registers.get(location), tuple(moving.get(location, ()))
        row = _build_row(location, register, () if _is_mounted_elsewhere(register, ways, owners) else ways)
        name = None if row.owner is None else owners.get(row.owner)
        yield replace(row, owner_name=name, migrations=(*ways, *ended.get(location, ())))


def _is_mounted_elsewhere(
    register: MountableTopic | None, moving: Sequence[ClusterMigration], owners: Mapping[str, str]
) -> bool:
    if register is None or register.state != "mounted":
        return False
    owner = owners.get(register.owner or "")
    return owner is not None and owner not in {migration.cluster for migration in moving}


def _build_row(location: str, register: MountableTopic | None, moving: tuple[ClusterMigration, ...]) -> MountRow:
    full_name, _, rest = location.partition("/")  # a mount by a bare name has no location
    cluster_id = rest.partition("/")[0]
    row = MountRow(location=location, name=full_name, state="mounted", storage="", clusters=(), owner=cluster_id)
    if register is not None:
        is_owned = register.state != "detached"
        row = replace(
            row,
            name=register.name if is_owned else register.full_name,
            state=_STATES[register.state],
            owner=register.owner if is_owned else None,
            partitions=register.partitions,
            records=register.records,
            bytes=register.bytes,
            since_ms=register.at_ms,
        )
    if not moving:
        return row
    first = moving[0].migration
    topic = next(topic for topic in first.topics if topic.location == location)
    return replace(
        row,
        name=topic.full_name,
        state="mounting" if first.direction == "inbound" else "unmounting",
        partitions=row.partitions if row.partitions is not None else topic.partitions,
        since_ms=first.created_ms,
        migrations=moving,
    )


def _merge_rows(rows: Sequence[MountRow]) -> tuple[MountRow, ...]:
    merged: dict[MountRow, MountRow] = {}
    for row in rows:
        alike = replace(row, storage="", clusters=(), migrations=())
        earlier = merged.get(alike)
        merged[alike] = (
            row
            if earlier is None
            else replace(
                earlier, clusters=(*earlier.clusters, *row.clusters), migrations=(*earlier.migrations, *row.migrations)
            )
        )
    return tuple(sorted(merged.values(), key=lambda row: (row.location, row.storage)))


# Only the user knows whether the owner of a topic still exists.


_VERB: Final = "release"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseRequest:
    """The topic to release, and its owner."""

    location: str
    owner: str
    cluster: str | None = None
    """Cluster whose object storage has the topic. `None` searches all."""
    allow: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Release:
    """Release of a topic, so that any cluster can mount it."""

    topic: MountableTopic
    owner: str
    owner_name: str | None
    """Name of the owner; `None` if the workspace has no such reachable cluster."""
    clusters: tuple[str, ...]


def release_topic_ownership(
    reach: SiteOptions, request: ReleaseRequest, *, confirm: Callable[[Release], bool], stop: Stop
) -> Release:
    """Remove a topic's owner, so any cluster can mount it. `allow` must name the topic."""
    site = reach.open_site()
    sharing: dict[str, list[str]] = {}
    for name in select_clusters(site, () if request.cluster is None else (request.cluster,)):
        sharing.setdefault(get_storage_url(site, name), []).append(name)
    if not sharing:
        hint = "Declare objectStorage on a Cluster: topics are mounted through that cluster."
        raise UserError("no cluster of this workspace has object storage", hint=hint)
    name_of_owner = read_cluster_names(site, site.clusters).get(request.owner)
    if name_of_owner is not None:
        request = replace(request, owner=read_id_in_storage(site.providers[name_of_owner], request.owner))
    sharers, topic = _find_releasable_topic(site, sharing, request)
    release = Release(topic, request.owner, name_of_owner, tuple(sharers))
    if not any(_is_release_allowed(text, topic.location) for text in request.allow):
        raise _release_blocked_error(release)
    require_confirmation(confirm(release))
    if stop.is_requested:
        raise InterruptedRunError("Interrupted", hint="Nothing was started")
    with stop.call_on_stop(lambda: None):
        released = require_migrations(site.providers[sharers[0]]).release_topic(topic.location, request.owner)
    return Release(released, release.owner, release.owner_name, release.clusters)


def _find_releasable_topic(
    site: Site, sharing: Mapping[str, Sequence[str]], request: ReleaseRequest
) -> tuple[Sequence[str], MountableTopic]:
    def find_topic(url: str) -> MountableTopic:
        return require_migrations(site.providers[sharing[url][0]]).read_releasable_topic(
            request.location, request.owner
        )

    topics, lost = query_clusters(list(sharing), find_topic)
    if len(topics) > 1:
        named = ", ".join(sharing[url][0] for url in topics)
        message = f"{request.location} is in the object storage of each of the clusters {named}"
        raise UserError(message, hint=f"Name the cluster: --cluster {sharing[next(iter(topics))][0]}")
    for url, topic in topics.items():
        return sharing[url], topic
    raise _choose_gravest_error(lost)


def _choose_gravest_error(lost: Mapping[str, ReconcilerError]) -> ReconcilerError:
    errors = list(lost.values())
    if len(errors) == 1 or isinstance(errors[0], NotAuthorizedError):
        return errors[0]
    if all(isinstance(error, UserError) for error in errors):
        messages = "; ".join(dict.fromkeys(error.message for error in errors))
        return UserError(messages, hint="See what there is, and whose: reconciler mount list")
    return unread_clusters_error(lost) or errors[0]


def _is_release_allowed(text: str, location: str) -> bool:
    verb, _, pattern = text.partition(":")
    return verb == _VERB and matches_pattern(pattern, Address(location))


def _release_blocked_error(release: Release) -> BlockedError:
    topic, owner = release.topic, release.owner
    has = "is being mounted" if topic.state == "claimed" else "is mounted"
    stored = f"{topic.records:,} records, {topic.bytes:,} bytes"
    message = (
        f"{topic.location} {has} on cluster {owner} as {topic.name}: to release it is data-loss. "
        f"What that cluster has not uploaded is lost; {stored} in object storage are kept"
    )
    command = f"reconciler mount release {topic.location} --owner {owner} --allow {_VERB}:{topic.location}"
    if release.owner_name is not None:
        hint = f"Cluster {release.owner_name} of this workspace is that cluster, and answers: unmount it there. Else"
        return BlockedError(message, hint=f"{hint} allow it once with: {command}")
    return BlockedError(message, hint=f"Where that cluster is lost permanently, allow it once with: {command}")


@dataclass(frozen=True, slots=True)
class UnmountedTopic:
    """A topic that a Mounting unmounts, or has unmounted."""

    mounting: Address
    location: str | None
    """`None` if unknown."""

    @property
    def description(self) -> str:
        """Description that stays true if another cluster mounts the topic."""
        return f"unmounted{f' to {self.location}' if self.location else ''} by {self.mounting}"


def find_unmounted_topics(desired: Desired, record: Record) -> dict[Address, UnmountedTopic]:
    """Return topics that Mountings in files or state unmount."""
    declared = [declared_resource.resource for declared_resource in desired.values()]
    wanted = [
        mounting for mounting in declared if isinstance(mounting, Mounting) and mounting.spec.state == "unmounted"
    ]
    topics = {get_mounted_topic(mounting): UnmountedTopic(mounting.address, None) for mounting in wanted}
    for address, last in record.items():
        if isinstance(last.resource, Mounting) and last.resource.spec.state == "unmounted":
            topics[get_mounted_topic(last.resource)] = UnmountedTopic(address, last.physical_name)
    return topics


@contextmanager
def explain_unmounted(site: Site, topic: Address) -> Iterator[None]:
    """Add an unmounted topic's location to a "does not exist" error raised in the block."""
    try:
        yield
    except NotAuthorizedError:
        raise
    # Unauthorized callers must not see the location.
    except UserError as error:
        explanation = None if _topic_exists(site, topic) else _explain_missing_topic(site, topic)
        if explanation is None:
            raise
        raise explanation from error


def _topic_exists(site: Site, topic: Address) -> bool:
    mirror = address_of("mirror", cluster_of(topic) or "", full_name_of(topic))
    provider = get_address_provider(site, topic)
    return provider.identify() is None or bool(provider.observe(Scope((topic, mirror))))


def _explain_missing_topic(site: Site, topic: Address) -> UserError | None:
    desired, record = site.desired, _read_record(site)
    known = find_unmounted_topics(desired, record).get(topic)
    if known is None and topic not in desired and topic not in record:
        return None
    register = _find_register(site, topic, known)
    location = register.location if register is not None else known.location if known is not None else None
    if known is None and register is None:
        return None
    by = "" if known is None else f" by {known.mounting}"
    if register is None or register.state == "detached":
        place = f" at {location}" if location is not None else ""
        return UserError(f"{topic} is unmounted{place}{by}", hint=_build_mount_hint(topic, known, location))
    clusters = {
        recorded.incarnation: cluster_of(address)
        for address, recorded in record.items()
        if kind_of(address) == "cluster"
    }
    other_clusters = [
        name for name, cluster in site.clusters.items() if cluster.spec.object_storage and cluster.spec.root is None
    ]
    owner = clusters.get(register.owner) or read_cluster_names(site, other_clusters).get(register.owner or "")
    word = "mounted" if register.state == "mounted" else "being mounted"
    message = (
        f"{topic} was unmounted to {location}{by}, and is {word} on cluster {owner or register.owner} "
        f"as {register.name}"
    )
    hint = f"Look for it there: {address_of('topic', owner, register.name)}" if owner else "Look for it there."
    return UserError(message, hint=hint)


def _read_record(site: Site) -> Record:
    try:
        snapshot = read_state(site)
    except ReconcilerError:
        return {}
    return snapshot.record if snapshot is not None else {}


def _find_register(site: Site, topic: Address, known: UnmountedTopic | None) -> MountableTopic | None:
    provider = get_address_provider(site, topic)
    try:
        listed, identity = require_archives(provider).list_mountable_topics(), provider.identify()
    except ReconcilerError:
        return None
    if known is not None and known.location is not None:
        return next((register for register in listed if register.location == known.location), None)
    own = (None if identity is None else identity.cluster_id, full_name_of(topic))
    return next(
        (register for register in listed if register.state == "detached" and (register.owner, register.name) == own),
        None,
    )


def _build_mount_hint(topic: Address, known: UnmountedTopic | None, location: str | None) -> str:
    if known is not None:
        return f"To have it back: state: mounted in {known.mounting}, and reconciler apply"
    source = f" and source: {location}" if location is not None else ""
    return (
        f"To have it back: declare a Mounting of {full_name_of(topic)} on {cluster_of(topic)} with state: mounted"
        f"{source}, and reconciler apply"
    )
