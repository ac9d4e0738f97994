"""The consumer groups of a cluster, by the full names of their topics, for one principal."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from reconciler.embedded.access.operations import Kind, Operation
from reconciler.embedded.access.permissions import not_every_topic
from reconciler.embedded.access.showing import topic_shown
from reconciler.embedded.catalog.lookups import names_by_id
from reconciler.embedded.consuming.groups import (
    commit_offsets,
    delete_group,
    delete_offsets,
    fetch_offsets,
    list_groups,
    read_group,
)
from reconciler.embedded.consuming.views import describe_group, groups_of, reading_groups
from reconciler.embedded.keys import fresh_mark

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from reconciler.embedded.access.permissions import Permissions
    from reconciler.embedded.catalog.commits import CatalogRegister
    from reconciler.embedded.catalog.tables import Catalog
    from reconciler.embedded.consuming.offsets import Committed, Place
    from reconciler.embedded.context import ClusterContext
    from reconciler.embedded.remote.tier import RemoteTier
    from reconciler.objectstore.base import ObjectStore
    from reconciler.resources.groups import ConsumerGroup, OffsetMove, Reset

# Looking at groups must not load pyarrow: only a reset by time reads records.
# ruff: noqa: PLC0415


@dataclass(frozen=True, slots=True)
class Groups:
    """What `cluster.groups` is. Offsets go by (full name of the topic, partition)."""

    store: ObjectStore
    catalog: CatalogRegister
    permissions: Permissions
    now_ms: Callable[[], int]
    remote: RemoteTier | None = None

    @classmethod
    def of(cls, cluster: ClusterContext) -> Groups:
        """Return the groups of a cluster."""
        return cls(cluster.store, cluster.catalog, cluster.permissions, cluster.now_ms, cluster.remote)

    def names(self) -> list[str]:
        """Return the groups that may be described, sorted."""
        catalog = self.catalog.read()
        return [name for name in list_groups(self.store) if self._may_see(catalog, Kind.GROUP, name)]

    def describe(self, group: str) -> ConsumerGroup:
        """Return what a group has committed, its lag, and whether it is reading.

        Raises:
            UserError: There is no such group.
        """
        catalog = self._checked(Operation.DESCRIBE, group)
        found = describe_group(self.store, catalog, group, now_ms=self.now_ms())
        shown = (row for row in found.offsets if self._may_see(catalog, Kind.TOPIC, row.topic))
        return replace(found, offsets=tuple(shown))

    def of_topic(self, full_name: str) -> list[ConsumerGroup] | None:
        """Return the groups that have offsets of a topic, each of that topic alone; `None`: too many to ask.

        Raises:
            UserError: There is no such topic.
        """
        catalog = self._checked(Operation.DESCRIBE, full_name, kind=Kind.TOPIC)
        topic_id = topic_shown(self.permissions, catalog, full_name).id
        found = groups_of(self.store, catalog, topic_id, now_ms=self.now_ms())
        if found is None:
            return None
        return [group for group in found if self._may_see(catalog, Kind.GROUP, group.name)]

    def reading(self) -> dict[str, tuple[str, ...]] | None:
        """Return the groups that are reading each topic, by its full name; `None`: there are too many to ask."""
        catalog, found = self.catalog.read(), reading_groups(self.store, now_ms=self.now_ms())
        if found is None:
            return None
        return {
            full_name: tuple(name for name in found[entry.id] if self._may_see(catalog, Kind.GROUP, name))
            for full_name, entry in catalog.topics.items()
            if entry.id in found
        }

    def commit(
        self, group: str, offsets: Mapping[tuple[str, int], int | Committed], *, mark: str | None = None
    ) -> None:
        """Commit the next offsets a group wants to read; with the same `mark` twice, it is done once.

        Raises:
            InvalidNamespaceError: The group's namespace does not exist.
            UserError: A topic or partition does not exist, or an offset cannot be.
        """
        catalog = self._checked(Operation.READ, group, *{topic for topic, _ in offsets})
        places = {
            (topic_shown(self.permissions, catalog, topic).id, partition): each
            for (topic, partition), each in offsets.items()
        }
        self.commit_places(group, places, mark=mark)

    def commit_places(self, group: str, offsets: Mapping[Place, int | Committed], *, mark: str | None = None) -> None:
        """Commit by topic id: of a topic that has moved too, and not of one made anew under its name."""
        self._checked(Operation.READ, group)
        commit_offsets(self.store, self.catalog, group, offsets, mark=mark or fresh_mark(), now_ms=self.now_ms())

    def fetch(self, group: str, topics: Iterable[str] | None = None) -> dict[tuple[str, int], Committed]:
        """Return where a group goes on reading, within the logs as they are now; what it never committed is absent."""
        catalog = self._checked(Operation.READ, group)
        names = {entry.id: name for name, entry in catalog.topics.items()}
        wanted = None if topics is None else frozenset(topics)
        places = None
        if wanted is not None:
            asked = [(entry.id, entry.partitions) for name, entry in catalog.topics.items() if name in wanted]
            places = [(topic_id, partition) for topic_id, partitions in asked for partition in range(partitions)]
        found = fetch_offsets(self.store, self.catalog, group, places)
        named = {(names.get(topic_id, ""), partition): each for (topic_id, partition), each in found.items()}
        return {
            place: each for place, each in named.items() if place[0] and self._may_see(catalog, Kind.TOPIC, place[0])
        }

    def committed(self, group: str, topics: Iterable[str]) -> dict[tuple[str, int], int]:
        """Return the offsets alone."""
        return {place: each.offset for place, each in self.fetch(group, topics).items()}

    def fetch_places(self, group: str, places: Iterable[Place]) -> dict[Place, Committed]:
        """Return the same by topic id and partition."""
        self._checked(Operation.READ, group)
        return fetch_offsets(self.store, self.catalog, group, places)

    def moves(
        self, group: str, reset: Reset, *, topic: str | None = None, partition: int | None = None
    ) -> tuple[OffsetMove, ...]:
        """Return what a reset would set; changes nothing. Without `topic`: every topic the group has offsets of.

        Raises:
            UserError: There is no such group, topic or partition.
            NotAuthorizedError: Whoever asks may not do it, whether anything would be set or not.
        """
        from reconciler.embedded.consuming.resetting import Logs, moves_of

        if topic is None:
            self._check_all_read(self._checked(Operation.READ, group), group)
        else:
            topic_shown(self.permissions, self._checked(Operation.READ, group, topic), topic)
        logs = Logs(self.store, self.catalog, self.remote)
        return moves_of(logs, group, reset, topic=topic, partition=partition)

    def move(self, group: str, moves: Sequence[OffsetMove], *, force: bool = False) -> None:
        """Set a group's offsets by one swap.

        Raises:
            BlockedError: The group is reading one of the topics, and `force` is not set.
        """
        from reconciler.embedded.consuming.resetting import move_offsets

        self._checked(Operation.READ, group, *{move.topic for move in moves})
        move_offsets(self.store, self.catalog, group, moves, now_ms=self.now_ms(), force=force)

    def delete(self, group: str, topic: str | None = None, *, force: bool = False) -> bool:
        """Forget a group, or what it has of one topic; say whether there was anything.

        Raises:
            BlockedError: It is reading, and `force` is not set.
            NotAuthorizedError: It may not be deleted, or a topic that it has offsets of may not be read.
        """
        catalog, now_ms = self._checked(Operation.DELETE, group), self.now_ms()
        if topic is None:
            self._check_all_read(catalog, group)
            return delete_group(self.store, group, now_ms=now_ms, force=force)
        self.permissions.check(catalog, Operation.READ, Kind.TOPIC, topic)
        return delete_offsets(
            self.store, group, topic_shown(self.permissions, catalog, topic).id, now_ms=now_ms, force=force
        )

    def _checked(self, operation: Operation, name: str, *topics: str, kind: Kind = Kind.GROUP) -> Catalog:
        """Return the catalog, having refused what may not be done; what is read of topics must be readable."""
        catalog = self.catalog.read()
        self.permissions.check(catalog, operation, kind, name)
        for topic in sorted(topics):
            self.permissions.check(catalog, Operation.READ, Kind.TOPIC, topic)
        return catalog

    def _check_all_read(self, catalog: Catalog, group: str) -> None:
        """Refuse where a group has offsets of a topic that may not be read; what is hidden stays unnamed."""
        who = self.permissions
        found = None if who.is_super_user else read_group(self.store, group)
        names = [] if found is None else sorted(names_by_id(catalog, found.topic_ids).values())
        for name in names:
            if self._may_see(catalog, Kind.TOPIC, name):
                who.check(catalog, Operation.READ, Kind.TOPIC, name)
        if not all(self._may_see(catalog, Kind.TOPIC, name) for name in names):
            raise not_every_topic(who, group)

    def _may_see(self, catalog: Catalog, kind: Kind, name: str) -> bool:
        return self.permissions.may(catalog, Operation.DESCRIBE, kind, name)
