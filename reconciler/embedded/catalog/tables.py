"""The catalog as a value: namespaces, topics, links and deletions, and how one commit changes them.

A commit says for each key it touches what stands there now (`null`: nothing), so folding commits is assignment.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeVar

from reconciler.embedded.catalog.entries import (
    ClusterEntry,
    DeletionEntry,
    Json,
    NamespaceEntry,
    RewriteEntry,
    TopicEntry,
)
from reconciler.embedded.catalog.migrationentries import MigrationEntry
from reconciler.embedded.catalog.quotas import Usage, Usages
from reconciler.resources.linkentries import LinkEntry

if TYPE_CHECKING:
    from collections.abc import Callable

Entry = ClusterEntry | NamespaceEntry | TopicEntry | LinkEntry | DeletionEntry | RewriteEntry | MigrationEntry
E = TypeVar("E", ClusterEntry, NamespaceEntry, TopicEntry, LinkEntry, DeletionEntry, RewriteEntry, MigrationEntry)

_THE_CLUSTER: Final = "cluster"
"""The one key of the table `clusters`."""


@dataclass(frozen=True, slots=True)
class Catalog:
    """What a cluster holds, after `serial` commits; `id` names the last of them."""

    serial: int = 0
    id: str = ""
    revision: int = 0
    """The initial revision the last new topic got; only rises."""
    namespaces: Mapping[str, NamespaceEntry] = field(default_factory=dict)
    topics: Mapping[str, TopicEntry] = field(default_factory=dict)
    links: Mapping[str, LinkEntry] = field(default_factory=dict)
    deletions: Mapping[str, DeletionEntry] = field(default_factory=dict)
    """By topic id."""
    rewrites: Mapping[str, RewriteEntry] = field(default_factory=dict)
    """By topic id."""
    clusters: Mapping[str, ClusterEntry] = field(default_factory=dict)
    """One entry, where anything was ever set."""
    migrations: Mapping[str, MigrationEntry] = field(default_factory=dict)
    """By id, in decimal digits."""

    @property
    def cluster(self) -> ClusterEntry:
        """What belongs to the cluster as a whole."""
        return self.clusters.get(_THE_CLUSTER) or ClusterEntry()

    def to_json(self) -> Json:
        """Return the whole of it, as snapshots keep it."""
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
            },
        }

    @classmethod
    def from_json(cls, kept: Json) -> Catalog:
        """Read a snapshot back: it is a commit onto nothing."""
        return cls().after(kept)

    def after(self, commit: Json) -> Catalog:
        """Return what it is after a commit."""
        tables: dict[str, dict[str, Json | None]] = commit["tables"]
        return Catalog(
            serial=commit["serial"],
            id=commit["id"],
            revision=commit["revision"],
            namespaces=_after(self.namespaces, tables.get("namespaces"), NamespaceEntry),
            topics=_after(self.topics, tables.get("topics"), TopicEntry),
            links=_after(self.links, tables.get("links"), LinkEntry),
            deletions=_after(self.deletions, tables.get("deletions"), DeletionEntry),
            rewrites=_after(self.rewrites, tables.get("rewrites"), RewriteEntry),
            clusters=_after(self.clusters, tables.get("clusters"), ClusterEntry),
            migrations=_after(self.migrations, tables.get("migrations"), MigrationEntry),
        )


def _after(table: Mapping[str, E], changes: dict[str, Json | None] | None, kind: type[E]) -> Mapping[str, E]:
    if not changes:
        return table
    changed = dict(table)
    read = kind.from_json
    for key, kept in changes.items():
        if kept is None:
            changed.pop(key, None)
        else:
            changed[key] = read(kept)
    return changed


class Draft:
    """A catalog that is being changed: what is read is what was written, and `commit` says what a commit will."""

    def __init__(self, base: Catalog) -> None:
        """Begin at `base`, which stays as it is."""
        self.base = base
        self.revision = base.revision
        self.namespaces = dict(base.namespaces)
        self.topics = dict(base.topics)
        self.links = dict(base.links)
        self.deletions = dict(base.deletions)
        self.rewrites = dict(base.rewrites)
        self.clusters = dict(base.clusters)
        self.migrations = dict(base.migrations)
        self._usages = Usages()
        self._changes: dict[str, dict[str, Entry | None]] = {}

    @property
    def cluster(self) -> ClusterEntry:
        """What belongs to the cluster as a whole."""
        return self.clusters.get(_THE_CLUSTER) or ClusterEntry()

    def usage_below(self, namespace: str) -> Usage:
        """Return what lies in a namespace and below it."""
        return self._usages.below(namespace, self.topics)

    def next_revision(self) -> int:
        """Return the initial revision of a new topic, or the id of a new migration: no number comes twice."""
        self.revision += 1
        return self.revision

    def put_cluster(self, entry: ClusterEntry) -> None:
        """Set what belongs to the cluster as a whole; where nothing was ever set, nothing stands."""
        if entry != self.cluster:
            self._put("clusters", self.clusters, _THE_CLUSTER, entry)

    def put_namespace(self, name: str, entry: NamespaceEntry | None) -> None:
        """Set or remove a namespace."""
        self._put("namespaces", self.namespaces, name, entry)

    def put_topic(self, name: str, entry: TopicEntry | None) -> None:
        """Set or remove a topic."""
        self._usages.replaced(name, self.topics.get(name), entry)
        self._put("topics", self.topics, name, entry)

    def put_link(self, name: str, entry: LinkEntry | None) -> None:
        """Set or remove a link."""
        self._put("links", self.links, name, entry)

    def put_deletion(self, topic_id: str, entry: DeletionEntry | None) -> None:
        """Mark a topic's objects for deletion, or say that they are gone."""
        self._put("deletions", self.deletions, topic_id, entry)

    def put_rewrite(self, topic_id: str, entry: RewriteEntry | None) -> None:
        """Mark a topic's objects to be written under another key, or say that they are."""
        self._put("rewrites", self.rewrites, topic_id, entry)

    def put_migration(self, migration: int, entry: MigrationEntry | None) -> None:
        """Set a migration, or remove its record."""
        self._put("migrations", self.migrations, str(migration), entry)

    def _put(self, name: str, table: dict[str, E], key: str, entry: E | None) -> None:
        if table.get(key) == entry:
            return
        if entry is None:
            del table[key]
        else:
            table[key] = entry
        self._changes.setdefault(name, {})[key] = entry

    def attempt(self, decide: Callable[[Draft], object]) -> None:
        """Let `decide` change it, or leave it as it is where that raises: others have changed it, too."""
        before = {name: dict(held) if isinstance(held, dict) else held for name, held in vars(self).items()}
        before |= {"_changes": {name: dict(changes) for name, changes in self._changes.items()}}
        try:
            decide(self)
        except BaseException:
            vars(self).update(before, _usages=Usages())
            raise

    @property
    def is_changed(self) -> bool:
        """Tell whether there is anything to commit."""
        return bool(self._changes)

    def counts(self) -> dict[str, int]:
        """Return how many entries of each table change."""
        return {name: len(changes) for name, changes in self._changes.items()}

    def tables(self) -> Json:
        """Return what changes, as a commit keeps it."""
        return {
            name: {key: None if entry is None else entry.to_json() for key, entry in changes.items()}
            for name, changes in self._changes.items()
        }

    def committed(self, commit_id: str) -> Catalog:
        """Return the catalog this becomes."""
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
        )
