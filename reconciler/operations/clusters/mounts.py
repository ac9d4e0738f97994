"""`mount list`, `status`, `cancel`, `delete` and `release`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
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
from reconciler.operations.steps.observe import AT_ONCE, id_in_storage, stands, unreachable
from reconciler.operations.steps.recorded import read_state
from reconciler.operations.steps.runner import SiteOptions, Stop, require_confirmation
from reconciler.operations.steps.workspace import Site, provider_of, settings_of
from reconciler.planning.situation import mounted_by
from reconciler.providers.protocol import Scope, archives_of, migrations_of
from reconciler.resources.address import (
    Address,
    address_of,
    cluster_address,
    cluster_of,
    full_name_of,
    kind_of,
    matches,
)
from reconciler.resources.mount import Migration, Mountable, Mounting
from reconciler.runtime.text import counted, did_you_mean, nearest
from reconciler.runtime.threads import settled

if TYPE_CHECKING:
    from reconciler.resources.inventory import Desired, Record


# The clusters of which topics are mounted or unmounted: found by files or by a state alone, and asked side by side.


A = TypeVar("A")


def clusters_named(site: Site, names: Sequence[str]) -> tuple[str, ...]:
    """Return the clusters that were named, by default all that have object storage, sorted.

    Raises:
        UserError: One is not in this workspace.
    """
    if not names:
        return tuple(name for name in sorted(site.clusters) if site.clusters[name].spec.object_storage is not None)
    given = tuple(sorted({name.removeprefix("cluster/") for name in names}))
    for name in given:
        site.providers[name]  # says which there are
    return given


def storage_of(site: Site, cluster: str) -> str:
    """Return where the object storage of a cluster is; clusters that say the same share it.

    Raises:
        UserError: It has none.
    """
    declared = site.clusters[cluster].spec.object_storage
    if declared is None:
        hint = "Declare its objectStorage: topics are mounted from it."
        raise UserError(f"{cluster_address(cluster)} has no object storage", hint=hint)
    return settings_of(declared, site.edge.folder).url


def ask_each(names: Sequence[str], call: Callable[[str], A]) -> tuple[dict[str, A], dict[str, ReconcilerError]]:
    """Return what `call` says of each, and why it says nothing of the others; all at once."""
    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="mounts") as threads:
        return settled({name: threads.submit(call, name) for name in names}, ReconcilerError)


def verdict_on(lost: Mapping[str, ReconcilerError]) -> ReconcilerError | None:
    """Return the error to end with where some clusters said nothing."""
    if not lost:
        return None
    for name in sorted(lost):
        if not isinstance(lost[name], RetryableError):
            return lost[name]
    return unreachable(lost, can_exclude=False)


# `mount status`, `cancel` and `delete`: migrations under way, and what the table allows to be asked of them.


MigrationVerb: TypeAlias = Literal["cancel", "delete"]


@dataclass(frozen=True, slots=True)
class Underway:
    """A migration of one cluster."""

    cluster: str
    migration: Migration

    @property
    def state(self) -> MigrationState:
        """Where it is."""
        return MigrationState(self.migration.state)

    @property
    def table(self) -> Lifecycle[MigrationState]:
        """The table of its direction."""
        return MOUNT if self.migration.direction == "inbound" else UNMOUNT

    @property
    def legal(self) -> tuple[str, ...]:
        """The verbs that may be asked for in its state."""
        return self.table.legal(self.state)

    @property
    def goes_on(self) -> bool:
        """Tell whether `run` brings it further."""
        if self.migration.by_jobs:
            return False
        if self.migration.is_automatic:
            return self.state is not MigrationState.CANCELLED
        return self.state is not MigrationState.FINISHED and bool(self.table.by_itself(self.state))


@dataclass(frozen=True, slots=True)
class MountStatus:
    """The migrations there is a record of; one that is done has none."""

    migrations: tuple[Underway, ...]
    lost: Mapping[str, ReconcilerError]
    """Clusters of which nothing is known, and why."""

    @property
    def verdict(self) -> ReconcilerError | None:
        """The error to end with, where a cluster could not be read."""
        return verdict_on(self.lost)


def mount_status(reach: SiteOptions, migration: int | None = None, cluster: str | None = None) -> MountStatus:
    """Return the migrations of the clusters there is a record of, or the one with an id.

    Raises:
        UserError: There is none with that id, or several clusters have one.
    """
    site = reach.site(is_reader=True)
    found, lost = _under_way(reach, site, cluster)
    if migration is None:
        return MountStatus(found, lost)
    return MountStatus((_the_one(found, lost, migration, clusters_named(site, _given(cluster))),), lost)


def ask_migration(
    reach: SiteOptions,
    migration: int,
    verb: MigrationVerb,
    cluster: str | None,
    *,
    confirm: Callable[[Underway], bool],
    stop: Stop,
) -> Underway:
    """Cancel a migration, and bring it to its end, or delete its record; `confirm` is asked where that is legal.

    Raises:
        UserError: There is none, that is not legal in its state, or it was not confirmed.
        IncompleteError: It is cancelled, and not at its end: `run` goes on.
    """
    site = reach.site()
    found, lost = _under_way(reach, site, cluster)
    verdict = verdict_on(lost)
    if verdict is not None:
        verdict.hint = f"{verdict.hint.removesuffix('.')}. Where it is another cluster's, say whose: --cluster NAME"
        raise verdict
    one = _the_one(found, lost, migration, clusters_named(site, _given(cluster)))
    _check_legal(one, verb)
    reach.check_writable(site, one.cluster)
    require_confirmation(confirm(one))

    def go_on() -> None:
        if stop.is_requested:
            raise InterruptedRunError("Interrupted", hint="Nothing was started")

    with stop.ends(lambda: None):
        after = migrations_of(site.providers[one.cluster]).ask(migration, verb, may_go_on=go_on)
    return replace(one, migration=after)


def _under_way(
    reach: SiteOptions, site: Site, cluster: str | None
) -> tuple[tuple[Underway, ...], Mapping[str, ReconcilerError]]:
    recorded = reach.recorded(site)

    def look(name: str) -> list[Underway]:
        if not stands(site, name, recorded):
            return []
        return [Underway(name, each) for each in migrations_of(site.providers[name]).under_way()]

    found, lost = ask_each(clusters_named(site, _given(cluster)), look)
    return tuple(_with_names(site, each) for name in sorted(found) for each in found[name]), lost


def _with_names(site: Site, underway: Underway) -> Underway:
    waits = tuple(name_clusters(site, each) for each in underway.migration.waits)
    return replace(underway, migration=replace(underway.migration, waits=waits))


def _the_one(
    found: tuple[Underway, ...], lost: Mapping[str, ReconcilerError], migration: int, asked: tuple[str, ...]
) -> Underway:
    ones = [each for each in found if each.migration.id == migration]
    if len(ones) == 1:
        return ones[0]
    if ones:
        names = ", ".join(each.cluster for each in ones)
        message = f"migration {migration} is one of each of the clusters {names}: ids are counted by each cluster"
        raise UserError(message, hint=f"Say whose: --cluster {ones[0].cluster}")
    verdict = verdict_on(lost)
    if verdict is not None:
        raise verdict
    where = f" on cluster {asked[0]}" if len(asked) == 1 else f" on any of {', '.join(asked)}" if asked else ""
    message = f"migration {migration} has no record{where}: it is finished, its record was deleted, or there was none"
    raise UserError(message, hint="See where its topics are now: reconciler mount list")


def _check_legal(one: Underway, verb: MigrationVerb) -> None:
    one.table.step(one.state, verb, subject=f"migration {one.migration.id} of cluster {one.cluster} is {one.state}")


def _given(cluster: str | None) -> tuple[str, ...]:
    return () if cluster is None else (cluster,)


MountableState: TypeAlias = Literal["mountable", "mounting", "mounted", "unmounting"]

_ENDED: Final = frozenset({MigrationState.FINISHED, MigrationState.CANCELLED})
_CLUSTER_ID: Final = re.compile(r"\bcluster ([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})")
_STATES: Final[Mapping[str, MountableState]] = {"detached": "mountable", "claimed": "mounting", "mounted": "mounted"}


@dataclass(frozen=True, slots=True, kw_only=True)
class MountRow:
    """One location. Sizes are those it had when it was detached last; `None`: it never was."""

    location: str
    """`<topic>/<cluster uuid>/<initial revision>`, for life."""
    name: str
    """What its owner calls it; of a mountable one, the name it was made with."""
    state: MountableState
    storage: str
    clusters: tuple[str, ...]
    """Those of the workspace that share the object storage: it can be mounted on any of them."""
    owner: str | None = None
    """Id of the cluster that owns it or is mounting it. Null: no cluster owns it."""
    owner_name: str | None = None
    """What the workspace calls the owner. Null: it is not one of it."""
    partitions: int | None = None
    """Null: not known."""
    records: int | None = None
    """When it was detached last. Null: it never was."""
    bytes: int | None = None
    """When it was detached last. Null: it never was."""
    since_ms: int | None = None
    """Null: since it was made."""
    migrations: tuple[Underway, ...] = ()


@dataclass(frozen=True, slots=True)
class DamagedRegister:
    """A register that does not say who owns a topic."""

    storage: str
    key: str
    error: UserError


@dataclass(frozen=True, slots=True)
class MountList:
    """What can be mounted, is mounted, or is on its way, by location."""

    rows: tuple[MountRow, ...]
    damaged: tuple[DamagedRegister, ...]
    lost: Mapping[str, ReconcilerError]
    """Clusters of which nothing is known, and why."""
    storages: tuple[str, ...]
    states: tuple[str, ...] = ()
    """Those that were asked for; none: all."""

    @property
    def verdict(self) -> ReconcilerError | None:
        """The error to end with, where something could not be read."""
        if self.damaged:
            what = counted(len(self.damaged), "register")
            message = f"{what} of ownership cannot be read: who has those topics is not known"
            return UserError(message, hint=self.damaged[0].error.hint)
        return verdict_on(self.lost)


@dataclass(frozen=True, slots=True)
class _Cluster:
    """What one cluster says of itself; no id: it was never made."""

    cluster_id: str | None
    migrations: tuple[Underway, ...] = ()


def list_mounts(reach: SiteOptions, clusters: Sequence[str], states: Sequence[str] = ()) -> MountList:
    """Return what lies in the object storage of clusters, by default of all: one row for each location.

    `states`: only what is in one of these, or has a migration that is.

    Raises:
        UsageError: There is no such state.
        UserError: One is not in this workspace, or has no object storage.
    """
    known = (*get_args(MountableState), *(state.value for state in MigrationState if state is not MigrationState.GONE))
    for state in states:
        if state not in known:
            hint = did_you_mean(nearest(state, known), otherwise=f"States: {', '.join(known)}; or a URL.")
            raise UsageError(f"--state {state!r} is neither a state of topics nor a URL", hint=hint)
    site = reach.site(is_reader=True)
    names = clusters_named(site, clusters)
    sharing: dict[str, list[str]] = {}
    for name in names:
        sharing.setdefault(storage_of(site, name), []).append(name)
    recorded = reach.recorded(site)

    def look(name: str) -> _Cluster:
        if not stands(site, name, recorded):
            return _Cluster(None)
        provider = site.providers[name]
        identity = provider.identify()
        return _Cluster(
            None if identity is None else identity.cluster_id,
            tuple(Underway(name, each) for each in migrations_of(provider).under_way(is_measured=False)),
        )

    found, lost = ask_each(names, look)
    listed, unlisted = ask_each(
        list(sharing), lambda url: list(migrations_of(site.providers[sharing[url][0]]).detached())
    )
    for url, error in unlisted.items():
        lost |= dict.fromkeys(sharing[url], error)
    owners = {cluster_id: name for name in site.clusters if (cluster_id := recorded.get(cluster_address(name)))}
    owners |= {each.cluster_id: name for name, each in found.items() if each.cluster_id}
    rows: list[MountRow] = []
    damaged: list[DamagedRegister] = []
    for url, names_here in sharing.items():
        registers, here = listed.get(url, []), tuple(names_here)
        way = [each for name in here if name in found for each in found[name].migrations]
        good = {each.location: each for _, each in registers if not isinstance(each, UserError)}
        damaged += [DamagedRegister(url, key, each) for key, each in registers if isinstance(each, UserError)]
        rows += [replace(row, storage=url, clusters=here) for row in _rows(good, way, owners, states)]
    wanted = (row for row in _merged(rows) if not states or row.state in states or _is_in(row, states))
    return MountList(tuple(wanted), tuple(damaged), lost, tuple(sharing), tuple(states))


def _is_in(row: MountRow, states: Sequence[str]) -> bool:
    return any(each.state in states for each in row.migrations)


def cluster_ids(site: Site, names: Iterable[str]) -> dict[str, str]:
    """Return the names of the clusters that answer, by each id: their own, and the one that object storage has."""

    def look(name: str) -> set[str]:
        provider = site.providers[name]
        identity = provider.identify()
        return set() if identity is None else {identity.cluster_id, id_in_storage(provider, identity.cluster_id)}

    found, _ = ask_each(list(names), look)
    return {cluster_id: name for name, ids in found.items() for cluster_id in ids}


def name_clusters(site: Site, text: str) -> str:
    """Return a text with the names of the workspace's clusters for their ids; a cluster that is away keeps its id."""
    if not _CLUSTER_ID.search(text):
        return text
    names = cluster_ids(site, site.clusters)
    return _CLUSTER_ID.sub(lambda match: f"cluster {names.get(match[1], match[1])}", text)


def _rows(
    registers: Mapping[str, Mountable], recorded: Sequence[Underway], owners: Mapping[str, str], states: Sequence[str]
) -> Iterator[MountRow]:
    """Yield the rows of one storage; migrations that ended are in them where their state is asked for."""
    moving: dict[str, list[Underway]] = {}
    ended: dict[str, list[Underway]] = {}
    for each in recorded:
        is_ended = each.state in _ENDED
        if not is_ended or each.state in states:
            for topic in each.migration.topics:
                (ended if is_ended else moving).setdefault(topic.location, []).append(each)
    for location in sorted({*registers, *moving, *ended}):
        register, ways = registers.get(location), tuple(moving.get(location, ()))
        row = _row(location, register, () if _is_had(register, ways, owners) else ways)
        name = None if row.owner is None else owners.get(row.owner)
        yield replace(row, owner_name=name, migrations=(*ways, *ended.get(location, ())))


def _is_had(register: Mountable | None, moving: Sequence[Underway], owners: Mapping[str, str]) -> bool:
    """Tell whether a topic is mounted on another cluster of the workspace than those that move it."""
    if register is None or register.state != "mounted":
        return False
    owner = owners.get(register.owner or "")
    return owner is not None and owner not in {each.cluster for each in moving}


def _row(location: str, register: Mountable | None, moving: tuple[Underway, ...]) -> MountRow:
    full_name, cluster_id, _ = location.split("/")
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


def _merged(rows: Sequence[MountRow]) -> tuple[MountRow, ...]:
    """Return one row for each location: a bucket may be written in two ways, and is the same one."""
    merged: dict[MountRow, MountRow] = {}
    for row in rows:
        alike = replace(row, storage="", clusters=(), migrations=())
        there = merged.get(alike)
        merged[alike] = (
            row
            if there is None
            else replace(
                there,
                clusters=(*there.clusters, *row.clusters),
                migrations=(*there.migrations, *row.migrations),
            )
        )
    return tuple(sorted(merged.values(), key=lambda row: (row.location, row.storage)))


# `mount release`: a topic is taken from an owner that will not come back, which nobody can tell but who says so.


_VERB: Final = "release"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseOf:
    """What is to be released, and from whom."""

    location: str
    owner: str
    cluster: str | None = None
    """By whose object storage; `None`: that of any cluster that has it."""
    allow: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Release:
    """A topic that is taken from its owner and made mountable."""

    topic: Mountable
    owner: str
    """Id of the cluster that had it."""
    owner_name: str | None
    """What the workspace calls the owner, where it is one of its clusters and answers: then it is not gone."""
    clusters: tuple[str, ...]
    """Those of the workspace that share the object storage: it can be mounted on any of them."""


def release_topic(reach: SiteOptions, asked: ReleaseOf, *, confirm: Callable[[Release], bool], stop: Stop) -> Release:
    """Make a topic nobody's; `confirm` is asked where it is allowed.

    Raises:
        UserError: There is no such topic, it has another owner or none, or it was not confirmed.
        BlockedError: It is not allowed by name; says what is lost.
    """
    site = reach.site()
    sharing: dict[str, list[str]] = {}
    for name in clusters_named(site, () if asked.cluster is None else (asked.cluster,)):
        sharing.setdefault(storage_of(site, name), []).append(name)
    if not sharing:
        hint = "Declare objectStorage on a Cluster: it is taken by way of it."
        raise UserError("no cluster of this workspace has object storage", hint=hint)
    name_of_owner = cluster_ids(site, site.clusters).get(asked.owner)
    if name_of_owner is not None:
        asked = replace(asked, owner=id_in_storage(site.providers[name_of_owner], asked.owner))
    here, topic = _found(site, sharing, asked)
    release = Release(topic, asked.owner, name_of_owner, tuple(here))
    if not any(_covers(text, topic.location) for text in asked.allow):
        raise _blocked(release)
    require_confirmation(confirm(release))
    if stop.is_requested:
        raise InterruptedRunError("Interrupted", hint="Nothing was started")
    with stop.ends(lambda: None):  # It is short, and half of it would have to be done again.
        released = migrations_of(site.providers[here[0]]).release(topic.location, asked.owner)
    return Release(released, release.owner, release.owner_name, release.clusters)


def _found(site: Site, sharing: Mapping[str, Sequence[str]], asked: ReleaseOf) -> tuple[Sequence[str], Mountable]:
    """Return the clusters in whose object storage a topic lies, and what it is."""

    def look(url: str) -> Mountable:
        return migrations_of(site.providers[sharing[url][0]]).releasable(asked.location, asked.owner)

    found, lost = ask_each(list(sharing), look)
    if len(found) > 1:
        named = ", ".join(sharing[url][0] for url in found)
        message = f"{asked.location} lies in the object storage of each of the clusters {named}"
        raise UserError(message, hint=f"Say in which: --cluster {sharing[next(iter(found))][0]}")
    for url, topic in found.items():
        return sharing[url], topic
    raise _nowhere(lost)


def _nowhere(lost: Mapping[str, ReconcilerError]) -> ReconcilerError:
    errors = list(lost.values())
    if len(errors) == 1 or isinstance(errors[0], NotAuthorizedError):
        return errors[0]
    if all(isinstance(error, UserError) for error in errors):
        said = "; ".join(dict.fromkeys(error.message for error in errors))
        return UserError(said, hint="See what there is, and whose: reconciler mount list")
    return verdict_on(lost) or errors[0]


def _covers(text: str, location: str) -> bool:
    verb, _, pattern = text.partition(":")
    return verb == _VERB and matches(pattern, Address(location))


def _blocked(release: Release) -> BlockedError:
    topic, owner = release.topic, release.owner
    has = "is being mounted" if topic.state == "claimed" else "is mounted"
    kept = f"{topic.records:,} records, {topic.bytes:,} bytes"
    message = (
        f"{topic.location} {has} on cluster {owner} as {topic.name}: to release it is data-loss. "
        f"What that cluster has not uploaded is lost; {kept} in object storage are kept"
    )
    command = f"reconciler mount release {topic.location} --owner {owner} --allow {_VERB}:{topic.location}"
    if release.owner_name is not None:
        hint = f"Cluster {release.owner_name} of this workspace is that cluster, and answers: unmount it there. Else"
        return BlockedError(message, hint=f"{hint} allow it once with: {command}")
    return BlockedError(message, hint=f"Where that cluster is gone for good, allow it once with: {command}")


# Unmounted topics that a command asks for: where their records are, and how to mount them again.


@dataclass(frozen=True, slots=True)
class UnmountedTopic:
    """A topic that a mounting has unmounted, or shall."""

    mounting: Address
    location: str | None
    """Where it was when it was unmounted; `None`: that was not recorded."""

    @property
    def said(self) -> str:
        """Say so; true as well where another cluster has mounted it since."""
        return f"unmounted{f' to {self.location}' if self.location else ''} by {self.mounting}"


def unmounted_topics(desired: Desired, record: Record) -> dict[Address, UnmountedTopic]:
    """Return the topics that mountings have unmounted or shall, as the state and the files say it."""
    declared = [each.resource for each in desired.values()]
    wanted = [each for each in declared if isinstance(each, Mounting) and each.spec.state == "unmounted"]
    found = {mounted_by(each): UnmountedTopic(each.address, None) for each in wanted}
    for address, last in record.items():
        if isinstance(last.resource, Mounting) and last.resource.spec.state == "unmounted":
            found[mounted_by(last.resource)] = UnmountedTopic(address, last.physical_name)
    return found


@contextmanager
def told_unmounted(site: Site, topic: Address) -> Iterator[None]:
    """Say of a topic that is not there that it is unmounted, if it is, in place of that it does not exist."""
    try:
        yield
    except NotAuthorizedError:
        raise  # who may not see it is not told where it lies
    except UserError as error:
        found = None if _is_there(site, topic) else _unmounted(site, topic)
        if found is None:
            raise
        raise found from error


def _is_there(site: Site, topic: Address) -> bool:
    mirror = address_of("mirror", cluster_of(topic) or "", full_name_of(topic))
    provider = provider_of(site, topic)
    return provider.identify() is None or bool(provider.observe(Scope((topic, mirror))))


def _unmounted(site: Site, topic: Address) -> UserError | None:
    desired, record = site.desired, _recorded(site)
    known = unmounted_topics(desired, record).get(topic)
    if known is None and topic not in desired and topic not in record:
        return None  # nobody speaks of it: a slip of the pen is not looked for in object storage
    lying = _lying(site, topic, known)
    location = lying.location if lying is not None else known.location if known is not None else None
    if known is None and lying is None:
        return None
    by = "" if known is None else f" by {known.mounting}"
    if lying is None or lying.state == "detached":
        place = f" at {location}" if location is not None else ""
        return UserError(f"{topic} lies detached{place}{by}", hint=_mount_hint(topic, known, location))
    clusters = {
        each.incarnation: cluster_of(address) for address, each in record.items() if kind_of(address) == "cluster"
    }
    # Object storage has another id of what is no embedded cluster than the state: only those are asked for it.
    asked = [name for name, each in site.clusters.items() if each.spec.object_storage and each.spec.root is None]
    owner = clusters.get(lying.owner) or cluster_ids(site, asked).get(lying.owner or "")
    word = "mounted" if lying.state == "mounted" else "being mounted"
    message = (
        f"{topic} was unmounted to {location}{by}, and is {word} on cluster {owner or lying.owner} as {lying.name}"
    )
    there = f"Look for it there: {address_of('topic', owner, lying.name)}" if owner else "Look for it there."
    return UserError(message, hint=there)


def _recorded(site: Site) -> Record:
    try:
        snapshot = read_state(site)
    except ReconcilerError:
        return {}  # the state cannot be read: what the files and the object storage say is left to tell
    return snapshot.record if snapshot is not None else {}


def _lying(site: Site, topic: Address, known: UnmountedTopic | None) -> Mountable | None:
    """Return what object storage has of a topic; `None` where it has nothing, or cannot be asked."""
    provider = provider_of(site, topic)
    try:
        listed, identity = archives_of(provider).mountable(), provider.identify()
    except ReconcilerError:
        return None  # that the topic is not there is the news, and stands as it was said
    if known is not None and known.location is not None:
        return next((each for each in listed if each.location == known.location), None)
    own = (None if identity is None else identity.cluster_id, full_name_of(topic))
    return next((each for each in listed if each.state == "detached" and (each.owner, each.name) == own), None)


def _mount_hint(topic: Address, known: UnmountedTopic | None, location: str | None) -> str:
    if known is not None:
        return f"To have it back: state: mounted in {known.mounting}, and reconciler apply"
    source = f" and source: {location}" if location is not None else ""
    return (
        f"To have it back: declare a Mounting of {full_name_of(topic)} on {cluster_of(topic)} with state: mounted"
        f"{source}, and reconciler apply"
    )
