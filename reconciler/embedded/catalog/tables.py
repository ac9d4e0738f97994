"""The catalog as an immutable value, and drafts of changes.

A commit holds the new entry of each changed key; `null` removes it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, TypeVar

from reconciler.embedded.catalog.model import (
    ClusterEntry,
    DeletionEntry,
    Json,
    MigrationEntry,
    NamespaceEntry,
    QuotaEntry,
    RewriteEntry,
    TopicEntry,
)
from reconciler.errors import InvalidNamespaceError, NotFoundError, QuotaExceededError, UserError
from reconciler.resources.address import check_full_name, list_levels, split_name
from reconciler.resources.mirrors import LinkEntry
from reconciler.resources.owners import Owners, ResourceOwner
from reconciler.runtime.dataclass import dataclass, field
from reconciler.runtime.text import find_similar, format_suggestion

# Commits check quotas of topics and partitions; only planning checks quotas of bytes.


@dataclass(frozen=True, slots=True)
class TopicCounts:
    """Numbers of topics and partitions."""

    topics: int = 0
    partitions: int = 0

    def __add__(self, other: TopicCounts) -> TopicCounts:
        return TopicCounts(self.topics + other.topics, self.partitions + other.partitions)

    def __sub__(self, other: TopicCounts) -> TopicCounts:
        return TopicCounts(self.topics - other.topics, self.partitions - other.partitions)

    @classmethod
    def of(cls, topic: TopicEntry | None) -> TopicCounts:
        """Return a topic's counts; zero for `None`."""
        return cls() if topic is None else cls(1, topic.partitions)


class CountsByNamespace:
    """Topic counts per namespace, computed on first use."""

    def __init__(self) -> None:
        self._below: dict[str, TopicCounts] = {}

    def count_below(self, namespace: str, topics: Mapping[str, TopicEntry]) -> TopicCounts:
        """Count topics and partitions below a namespace."""
        usage = self._below.get(namespace)
        if usage is None:
            prefix = f"{namespace}:"
            held = [topic for name, topic in topics.items() if name.startswith(prefix)]
            usage = self._below[namespace] = TopicCounts(len(held), sum(topic.partitions for topic in held))
        return usage

    def update_counts(self, full_name: str, before: TopicEntry | None, after: TopicEntry | None) -> None:
        """Adjust the counts. `before` is `None` for a new topic, `after` for a deleted one."""
        if self._below:
            for tier in list_levels(split_name(full_name)[0]):
                if tier in self._below:
                    self._below[tier] += TopicCounts.of(after) - TopicCounts.of(before)


def check_quotas(
    namespaces: Mapping[str, NamespaceEntry],
    usage_below: Callable[[str], TopicCounts],
    full_name: str,
    added: TopicCounts,
    *,
    leaving: str = "",
) -> None:
    """Reject `added` counts that would exceed a quota of the topic's namespaces.

    Namespaces above `leaving`, a moved topic's previous namespace, already count the topic.
    """
    for tier in list_levels(split_name(full_name)[0]):
        entry = namespaces.get(tier)
        if entry is None or entry.quotas is None or f"{leaving}:".startswith(f"{tier}:"):
            continue
        held = usage_below(tier)
        for word, limit, before, after in _list_quota_usages(entry.quotas, held, held + added):
            if limit is not None and after > max(limit, before):
                message = f"namespace {tier} may hold {limit:,} {word}: with {full_name} it would be {after:,}"
                hint = f"Raise quotas.{word} of the namespace, or delete some; it holds {before:,} now."
                raise QuotaExceededError(message, hint=hint)


def _list_quota_usages(
    quotas: QuotaEntry, held: TopicCounts, after: TopicCounts
) -> tuple[tuple[str, int | None, int, int], ...]:
    return (
        ("topics", quotas.topics, held.topics, after.topics),
        ("partitions", quotas.partitions, held.partitions, after.partitions),
    )


class OwnerEntry(str):
    """Owner of a resource: its state's lineage, as a plain string to save space."""

    __slots__ = ()

    def to_json(self) -> str:
        """Convert to JSON."""
        return str(self)

    @classmethod
    def from_json(cls, lineage: Any) -> OwnerEntry:
        """Parse JSON."""
        return cls(lineage)


Entry = (
    ClusterEntry
    | NamespaceEntry
    | TopicEntry
    | LinkEntry
    | DeletionEntry
    | RewriteEntry
    | MigrationEntry
    | OwnerEntry
    | ResourceOwner
)
E = TypeVar(
    "E",
    ClusterEntry,
    NamespaceEntry,
    TopicEntry,
    LinkEntry,
    DeletionEntry,
    RewriteEntry,
    MigrationEntry,
    OwnerEntry,
    ResourceOwner,
)

_CLUSTER_KEY: Final = "cluster"


@dataclass(frozen=True, slots=True)
class Catalog:
    """Contents of a cluster after `serial` commits; `id` is the last commit's."""

    serial: int = 0
    id: str = ""
    revision: int = 0
    namespaces: Mapping[str, NamespaceEntry] = field(default_factory=dict)
    topics: Mapping[str, TopicEntry] = field(default_factory=dict)
    links: Mapping[str, LinkEntry] = field(default_factory=dict)
    deletions: Mapping[str, DeletionEntry] = field(default_factory=dict)
    rewrites: Mapping[str, RewriteEntry] = field(default_factory=dict)
    clusters: Mapping[str, ClusterEntry] = field(default_factory=dict)
    """Cluster-wide settings, at most one entry."""
    migrations: Mapping[str, MigrationEntry] = field(default_factory=dict)
    """Migrations by decimal id."""
    owners: Mapping[str, OwnerEntry] = field(default_factory=dict)
    """Owners by resource, such as `topic/shop:orders`, `namespace/shop`, `link/east-west`."""
    workspaces: Mapping[str, ResourceOwner] = field(default_factory=dict)

    @property
    def resource_owners(self) -> Owners:
        """Owners of the catalog's resources."""
        return Owners(self.workspaces, self.owners)

    @property
    def cluster(self) -> ClusterEntry:
        """Cluster-wide settings."""
        return self.clusters.get(_CLUSTER_KEY) or ClusterEntry()

    def to_json(self) -> Json:
        """Convert to a snapshot's JSON."""
        return {
            "serial": self.serial,
            "id": self.id,
            "revision": self.revision,
            "tables": {
                "namespaces": {name: entry.to_json() for name, entry in self.namespaces.items()},
                "topics": {name: entry.to_json() for name, entry in self.topics.items()},
                "links": {name: entry.to_json() for name, entry in self.links.items()},
                "deletions": {name: entry.to_json() for name, entry in self.deletions.items()},
                "rewrites": {name: entry.to_json() for name, entry in self.rewrites.items()},
                "clusters": {name: entry.to_json() for name, entry in self.clusters.items()},
                "migrations": {name: entry.to_json() for name, entry in self.migrations.items()},
                "owners": dict(self.owners),
                "workspaces": {name: entry.to_json() for name, entry in self.workspaces.items()},
            },
        }

    def apply_commit(self, commit: Json) -> Catalog:
        """Return the catalog with a commit's changes."""
        tables: dict[str, dict[str, Json | None]] = commit["tables"]
        return Catalog(
            serial=commit["serial"],
            id=commit["id"],
            revision=commit["revision"],
            namespaces=_apply_changes(self.namespaces, tables.get("namespaces"), NamespaceEntry),
            topics=_apply_changes(self.topics, tables.get("topics"), TopicEntry),
            links=_apply_changes(self.links, tables.get("links"), LinkEntry),
            deletions=_apply_changes(self.deletions, tables.get("deletions"), DeletionEntry),
            rewrites=_apply_changes(self.rewrites, tables.get("rewrites"), RewriteEntry),
            clusters=_apply_changes(self.clusters, tables.get("clusters"), ClusterEntry),
            migrations=_apply_changes(self.migrations, tables.get("migrations"), MigrationEntry),
            owners=_apply_changes(self.owners, tables.get("owners"), OwnerEntry),
            workspaces=_apply_changes(self.workspaces, tables.get("workspaces"), ResourceOwner),
        )


def _apply_changes(table: Mapping[str, E], changes: dict[str, Json | None] | None, kind: type[E]) -> Mapping[str, E]:
    if not changes:
        return table
    changed = dict(table)
    read = kind.from_json
    for key, document in changes.items():
        if document is None:
            changed.pop(key, None)
        else:
            changed[key] = read(document)
    return changed


class Draft:
    """A mutable copy of a catalog that records its changes."""

    def __init__(self, base: Catalog) -> None:
        self.base = base
        self.revision = base.revision
        self.namespaces = dict(base.namespaces)
        self.topics = dict(base.topics)
        self.links = dict(base.links)
        self.deletions = dict(base.deletions)
        self.rewrites = dict(base.rewrites)
        self.clusters = dict(base.clusters)
        self.migrations = dict(base.migrations)
        self.owners = dict(base.owners)
        self.workspaces = dict(base.workspaces)
        self._usages = CountsByNamespace()
        self._changes: dict[str, dict[str, Entry | None]] = {}

    @property
    def cluster(self) -> ClusterEntry:
        """Cluster-wide settings."""
        return self.clusters.get(_CLUSTER_KEY) or ClusterEntry()

    def count_below(self, namespace: str) -> TopicCounts:
        """Count topics and partitions below a namespace."""
        return self._usages.count_below(namespace, self.topics)

    def assign_revision(self) -> int:
        """Assign the next revision or migration id."""
        self.revision += 1
        return self.revision

    def put_cluster(self, entry: ClusterEntry) -> None:
        """Set the cluster-wide settings."""
        if entry != self.cluster:
            self._put("clusters", self.clusters, _CLUSTER_KEY, entry)

    def put_namespace(self, name: str, entry: NamespaceEntry | None) -> None:
        """Set a namespace; `None` removes it."""
        self._put("namespaces", self.namespaces, name, entry)

    def put_topic(self, name: str, entry: TopicEntry | None) -> None:
        """Set a topic; `None` removes it."""
        self._usages.update_counts(name, self.topics.get(name), entry)
        self._put("topics", self.topics, name, entry)

    def put_link(self, name: str, entry: LinkEntry | None) -> None:
        """Set a link; `None` removes it."""
        self._put("links", self.links, name, entry)

    def put_deletion(self, topic_id: str, entry: DeletionEntry | None) -> None:
        """Mark a topic's objects for deletion; `None` removes the mark."""
        self._put("deletions", self.deletions, topic_id, entry)

    def put_rewrite(self, topic_id: str, entry: RewriteEntry | None) -> None:
        """Mark a topic's objects for a rewrite; `None` removes the mark."""
        self._put("rewrites", self.rewrites, topic_id, entry)

    def put_migration(self, migration: int, entry: MigrationEntry | None) -> None:
        """Set a migration; `None` removes it."""
        self._put("migrations", self.migrations, str(migration), entry)

    @property
    def resource_owners(self) -> Owners:
        """Owners of the draft's resources."""
        return Owners(self.workspaces, self.owners)

    def put_owner(self, key: str, lineage: str | None) -> None:
        """Set a resource's owner; `None` removes it."""
        self._put("owners", self.owners, key, None if lineage is None else OwnerEntry(lineage))

    def put_workspace(self, lineage: str, entry: ResourceOwner | None) -> None:
        """Set a lineage's workspace; `None` removes it."""
        self._put("workspaces", self.workspaces, lineage, entry)

    def _put(self, name: str, table: dict[str, E], key: str, entry: E | None) -> None:
        if table.get(key) == entry:
            return
        if entry is None:
            del table[key]
        else:
            table[key] = entry
        self._changes.setdefault(name, {})[key] = entry

    def run_or_undo(self, decide: Callable[[Draft], object]) -> None:
        """Run `decide` on this draft; undo its changes if it raises."""
        before = {name: dict(held) if isinstance(held, dict) else held for name, held in vars(self).items()}
        before |= {"_changes": {name: dict(changes) for name, changes in self._changes.items()}}
        try:
            decide(self)
        except BaseException:
            vars(self).update(before, _usages=CountsByNamespace())
            raise

    @property
    def is_changed(self) -> bool:
        """Whether this draft has changes to commit."""
        return bool(self._changes)

    def count_changes(self) -> dict[str, int]:
        """Count changed entries per table."""
        return {name: len(changes) for name, changes in self._changes.items()}

    def changes_to_json(self) -> Json:
        """Return the changes as a commit's JSON tables."""
        return {
            name: {key: None if entry is None else entry.to_json() for key, entry in changes.items()}
            for name, changes in self._changes.items()
        }

    def to_catalog(self, commit_id: str) -> Catalog:
        """Return the catalog after a commit of this draft."""
        return Catalog(
            serial=self.base.serial + 1,
            id=commit_id,
            revision=self.revision,
            namespaces=self.namespaces,
            topics=self.topics,
            links=self.links,
            deletions=self.deletions,
            rewrites=self.rewrites,
            clusters=self.clusters,
            migrations=self.migrations,
            owners=self.owners,
            workspaces=self.workspaces,
        )


def get_topic(catalog: Catalog | Draft, full_name: str, *, known: Collection[str] | None = None) -> TopicEntry:
    """Return a topic by name; the error suggests similar names of `known` topics."""
    entry = catalog.topics.get(full_name)
    if entry is not None:
        return entry
    check_namespace_exists(catalog, full_name)
    near = find_similar(full_name, catalog.topics if known is None else known)
    raise NotFoundError(f"topic {full_name} does not exist", hint=format_suggestion(near, otherwise="Create it first."))


def find_topic_by_id(catalog: Catalog, topic_id: str, full_name: str) -> TopicEntry | None:
    """Return a topic by id, or `None`; `full_name` is its last known name."""
    entry = catalog.topics.get(full_name)
    if entry is not None and entry.id == topic_id:
        return entry
    return next((entry for entry in catalog.topics.values() if entry.id == topic_id), None)


def find_current_name(catalog: Catalog, topic_id: str, full_name: str) -> str:
    """Return a topic's current name; `full_name` if deleted."""
    entry = catalog.topics.get(full_name)
    if entry is not None and entry.id == topic_id:
        return full_name
    return next((name for name, entry in catalog.topics.items() if entry.id == topic_id), full_name)


def map_names_by_id(catalog: Catalog | Draft, topic_ids: Collection[str]) -> dict[str, str]:
    """Return names by topic id, without deleted topics."""
    return {entry.id: name for name, entry in catalog.topics.items() if entry.id in topic_ids}


def get_link(catalog: Catalog | Draft, name: str) -> LinkEntry:
    """Return a link by name; reject a missing one."""
    entry = catalog.links.get(name)
    if entry is None:
        raise NotFoundError(f"link {name} does not exist", hint="Create it first.")
    return entry


def check_name_free(catalog: Catalog | Draft, full_name: str) -> None:
    """Reject a taken, reserved or invalid topic name."""
    try:
        check_full_name(full_name)
    except ValueError as error:
        raise UserError(f"{full_name!r} is {error}", hint="Example: shop:eu:orders.") from error
    check_namespace_exists(catalog, full_name)
    if full_name in catalog.topics:
        raise UserError(f"topic {full_name} exists", hint="Change it instead, or choose another name.")


def check_namespace_exists(catalog: Catalog | Draft, full_name: str) -> None:
    """Reject a topic or group whose namespace does not exist."""
    namespace, _ = split_name(full_name)
    if namespace and namespace not in catalog.namespaces:
        raise unknown_namespace_error(namespace)


def unknown_namespace_error(name: str) -> InvalidNamespaceError:
    """Return the error for a missing namespace."""
    return InvalidNamespaceError(
        f"namespace {name} does not exist", hint="Create it first; namespaces are not created implicitly."
    )


# Kafka has no error for migrating topics: records fail with INVALID_TOPIC_EXCEPTION, changes with POLICY_VIOLATION.


_NOT_THERE_YET: Final = frozenset({"planned", "preparing"})
_STATUS_HINT: Final = "See its owner, its progress and what may be done: reconciler mount status"
SEAL: Final = "migration:"
"""Prefix of the writer of a sealed head, which accepts no records; the migration's id follows."""


def build_seal_writer(migration: int) -> str:
    """Return the writer of heads that a migration sealed."""
    return f"{SEAL}{migration}"


def is_closed(topic: TopicEntry) -> bool:
    """Whether only a migration may access the topic's records."""
    return topic.hold is not None and topic.hold.is_closed


def is_served(topic: TopicEntry) -> bool:
    """Whether clients may read and write a topic."""
    return topic.recovering is None and not is_closed(topic)


def check_served(full_name: str, topic: TopicEntry) -> None:
    """Reject reads and writes of a topic in recovery or migration."""
    if topic.recovering is not None:
        message = (
            f"topic {full_name} is being recovered from {topic.recovering}: its records cannot be written or read yet"
        )
        raise UserError(message, hint="Wait until that is done: `reconciler run --once` continues it.")
    if topic.hold is not None and topic.hold.is_closed:
        message = (
            f"topic {full_name} cannot be written or read: migration {topic.hold.migration} has it "
            "(INVALID_TOPIC_EXCEPTION, RESOURCE_IS_BEING_MIGRATED)"
        )
        raise UserError(message, hint=_STATUS_HINT)


def check_not_replica(full_name: str, topic: TopicEntry, what: str) -> None:
    """Reject the operation `what` on a read replica."""
    if topic.replica is not None:
        message = f"topic {full_name} is a read replica of {topic.replica.location}: {what} is not possible"
        raise UserError(f"{message} (INVALID_TOPIC_EXCEPTION)", hint="Do it at its source, on the cluster that has it.")


def check_not_migrating(full_name: str, topic: TopicEntry, what: str) -> None:
    """Reject the operation `what` on a topic in a migration."""
    if topic.hold is not None:
        message = (
            f"topic {full_name}: {what} is not possible: the resource is undergoing data migration "
            f"{topic.hold.migration} (POLICY_VIOLATION)"
        )
        raise UserError(message, hint=f"Wait until it is done, or stop it. {_STATUS_HINT}")


def check_name_unreserved(catalog: Catalog | Draft, full_name: str, topic_id: str | None = None) -> None:
    """Reject a name that a planned mount reserved for another topic."""
    for number, migration in catalog.migrations.items():
        for topic in migration.topics:
            # A plan may create thousands of topics, so names are compared before states.
            if topic.name != full_name or topic.topic_id == topic_id:
                continue
            if migration.direction == "inbound" and migration.state in _NOT_THERE_YET:
                message = f"topic {full_name} is being mounted by migration {number} (POLICY_VIOLATION)"
                raise UserError(message, hint=f"Wait until it is done. {_STATUS_HINT}")
