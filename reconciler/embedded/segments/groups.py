"""Consumer groups: one register each.

Offsets are keyed by topic id and partition, so they survive a rename. Offsets of deleted topics are ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from reconciler.archives.objects import decode_object
from reconciler.archives.topic_manifest import CommittedOffset
from reconciler.embedded.catalog.tables import Catalog, check_namespace_exists, check_served, is_closed
from reconciler.embedded.catalog.tiering_state import hides_remote_records
from reconciler.embedded.keys import GROUPS, group_key, parse_group_key
from reconciler.embedded.segments.head import read_head
from reconciler.errors import BlockedError, NotFoundError, UserError
from reconciler.objectstore.register import Register, RegisterSnapshot, create_mark
from reconciler.records.log import MAX_OFFSET, Bounds
from reconciler.resources.groups import READING_MS
from reconciler.runtime.dataclass import dataclass, field, replace

if TYPE_CHECKING:
    from reconciler.embedded.catalog.commits import CatalogRegister
    from reconciler.objectstore.base import ObjectStore


Json = dict[str, Any]
Place: TypeAlias = tuple[str, int]
"""Topic id and partition."""


@dataclass(frozen=True, slots=True)
class Group:
    """Offsets that a consumer group committed or a link synced."""

    own: Mapping[Place, CommittedOffset] = field(default_factory=dict)
    synced: Mapping[Place, CommittedOffset] = field(default_factory=dict)

    @property
    def offsets(self) -> dict[Place, CommittedOffset]:
        """Next offsets to read; commits take precedence over synced offsets."""
        return {**self.synced, **self.own}

    @property
    def topic_ids(self) -> set[str]:
        """Ids of topics with offsets."""
        return {topic_id for topic_id, _ in (*self.own, *self.synced)}

    def find_last_commit_ms(self, topic_id: str | None = None) -> int | None:
        """Return when the group last committed, to one topic or any; `None` without commits."""
        times = [
            committed.at_ms
            for (of, _), committed in self.own.items()
            if committed.at_ms is not None and topic_id in {None, of}
        ]
        return max(times, default=None)

    def is_reading(self, now_ms: int, topic_id: str | None = None) -> bool:
        """Whether the group committed within 24 hours, to one topic or any."""
        last = self.find_last_commit_ms(topic_id)
        return last is not None and now_ms - last < READING_MS

    def with_own(self, offsets: Mapping[Place, CommittedOffset]) -> Group:
        """Return the group after a commit or reset of offsets."""
        return Group({**self.own, **offsets}, self.synced)

    def limit_to_topics(self, topic_ids: Iterable[str]) -> Group:
        """Return the group with these topics' offsets only."""
        wanted_ids = frozenset(topic_ids)
        return Group(_limit_to_topics(self.own, wanted_ids), _limit_to_topics(self.synced, wanted_ids))

    def to_json(self) -> Json:
        """Convert to JSON."""
        return {"offsets": _offsets_to_json(self.own), "synced": _offsets_to_json(self.synced)}

    @classmethod
    def from_json(cls, document: Json) -> Group:
        """Parse JSON."""
        return cls(_offsets_from_json(document["offsets"]), _offsets_from_json(document["synced"]))


def _limit_to_topics(
    offsets: Mapping[Place, CommittedOffset], topic_ids: frozenset[str]
) -> dict[Place, CommittedOffset]:
    return {place: committed for place, committed in offsets.items() if place[0] in topic_ids}


def _offsets_to_json(offsets: Mapping[Place, CommittedOffset]) -> Json:
    document: Json = {}
    for (topic_id, partition), committed in sorted(offsets.items()):
        document.setdefault(topic_id, {})[str(partition)] = committed.to_json()
    return document


def _offsets_from_json(document: Json) -> dict[Place, CommittedOffset]:
    return {
        (topic_id, int(partition)): CommittedOffset.from_json(committed)
        for topic_id, partitions in document.items()
        for partition, committed in partitions.items()
    }


_OFFSETS: Final = {str: {str: {"offset": int, "metadata": str, "at_ms": (None, int)}}}
_SHAPE: Final = {"offsets": _OFFSETS, "synced": _OFFSETS}

MAX_METADATA_BYTES: Final = 4096
"""Default of Kafka's `offset.metadata.max.bytes`."""


def check_commit(catalog: Catalog, group: str, offsets: Mapping[Place, int | CommittedOffset]) -> None:
    """Reject offsets that cannot be committed."""
    group_key(group)
    check_namespace_exists(catalog, group)
    topics = {entry.id: (name, entry) for name, entry in catalog.topics.items()} if offsets else {}
    for (topic_id, partition), value in offsets.items():
        name, topic = topics.get(topic_id, (topic_id, None))
        partitions = partition + 1 if topic is None else topic.partitions
        if topic is not None and is_closed(topic):
            check_served(name, topic)  # The migration or recovery of a closed topic would lose the offset.
        where, committed = f"group {group}: {name}, partition {partition}", _to_committed_offset(value)
        if not 0 <= partition < partitions:
            raise NotFoundError(f"{where}: there is no such partition", hint=f"The topic has {partitions} partitions.")
        if not 0 <= committed.offset <= MAX_OFFSET:
            raise UserError(
                f"{where}: {committed.offset} is not an offset", hint="Commit the next offset to be read, from 0."
            )
        if len(committed.metadata.encode(errors="surrogatepass")) > MAX_METADATA_BYTES:
            message = f"{where}: the metadata is longer than {MAX_METADATA_BYTES:,} bytes"
            raise UserError(message, hint="Store a short note with an offset, and the rest elsewhere.")


def commit_offsets(
    store: ObjectStore,
    catalog: CatalogRegister,
    group: str,
    offsets: Mapping[Place, int | CommittedOffset],
    *,
    mark: str,
    now_ms: int,
) -> None:
    """Commit the next offsets to read; a repeated mark commits nothing."""

    def read_checked() -> Catalog:
        known = catalog.read()
        check_commit(known, group, offsets)
        return known

    if offsets:
        _commit_if_read(group_register(store, group), read_checked, _stamp_offsets(offsets, now_ms), mark)
    else:
        read_checked()


def commit_decided_offsets(
    store: ObjectStore,
    catalog: CatalogRegister,
    group: str,
    offsets: Mapping[Place, int | CommittedOffset],
    *,
    mark: str,
    now_ms: int,
) -> None:
    """Commit a decided transaction's offsets, even if their topics were renamed or deleted."""
    _commit_if_read(group_register(store, group), catalog.read, _stamp_offsets(offsets, now_ms), mark)


def copy_offsets(
    store: ObjectStore, read: Callable[[], Catalog], group: str, offsets: Mapping[Place, CommittedOffset], *, mark: str
) -> None:
    """Copy offsets into a group.

    Before every swap `read` returns the catalog, or raises to stop.
    """
    _commit_if_read(group_register(store, group), read, offsets, mark)


def _commit_if_read(
    register: Register, read: Callable[[], Catalog], offsets: Mapping[Place, CommittedOffset], mark: str
) -> None:
    def change(held: RegisterSnapshot | None) -> dict[str, Any] | None:
        # The catalog is read after the group, to include the topics of new offsets.
        catalog = read()
        after = parse_group(register, held).with_own(offsets)
        after = after.limit_to_topics(topic.id for topic in catalog.topics.values())
        return None if held is None and not after.own else after.to_json()

    register.update(change, mark=mark)


def list_groups(store: ObjectStore) -> list[str]:
    """Return all group names by one listing, sorted."""
    names = (parse_group_key(listed.key) for listed in store.list(GROUPS))
    return sorted(name for name in names if name is not None)


def read_group(store: ObjectStore, group: str) -> Group | None:
    """Return a group; `None` if it never committed."""
    register = group_register(store, group)
    held = register.read()
    return None if held is None else parse_group(register, held)


def get_existing_group(store: ObjectStore, group: str) -> Group:
    """Return a group; reject a missing one."""
    existing = read_group(store, group)
    if existing is None:
        raise NotFoundError(f"group {group} does not exist", hint="A group is created by its first commit.")
    return existing


def fetch_offsets(
    store: ObjectStore, catalog: CatalogRegister, group: str, places: Iterable[Place] | None = None
) -> dict[Place, CommittedOffset]:
    """Return a group's next offsets, limited to each partition's bounds."""
    existing = read_group(store, group)
    if existing is None:
        return {}
    offsets = existing.offsets
    wanted = offsets if places is None else offsets.keys() & set(places)
    known = catalog.read()
    living = {topic.id: name for name, topic in known.topics.items()}
    fetched: dict[Place, CommittedOffset] = {}
    for place in sorted(key for key in wanted if key[0] in living):
        bounds = read_partition_bounds(store, place)
        is_hiding = bounds.start < bounds.limit_to_local().start and hides_remote_records(known, living[place[0]])
        fetched[place] = offsets[place].clamp(bounds.limit_to_local() if is_hiding else bounds)
    return fetched


def delete_group(store: ObjectStore, group: str, *, now_ms: int, force: bool = False) -> bool:
    """Delete a group; return whether it existed. Concurrent commits are lost.

    Raises:
        BlockedError: The group is reading, and `force` is not set.
    """
    existing = read_group(store, group)
    if existing is None:
        return False
    if not force:
        check_idle(group, existing, now_ms)
    store.delete([group_key(group)])
    return True


def delete_offsets(store: ObjectStore, group: str, topic_id: str, *, now_ms: int, force: bool = False) -> bool:
    """Delete a group's offsets of a topic; return whether any existed.

    Raises:
        BlockedError: The group is reading the topic, and `force` is not set.
    """

    def forget(existing: Group) -> Group:
        if not force:
            check_idle(group, existing, now_ms, topic_id)
        return existing.limit_to_topics(existing.topic_ids - {topic_id})

    return change_group(store, group, forget)


def change_group(store: ObjectStore, group: str, decide: Callable[[Group], Group]) -> bool:
    """Change an existing group; return whether it changed. `decide` may run several times."""
    is_changed = False

    def change(held: RegisterSnapshot | None) -> dict[str, Any] | None:
        nonlocal is_changed
        if held is None:
            is_changed = False
            return None
        before = parse_group(register, held)
        after = decide(before)
        is_changed = after != before
        return after.to_json() if is_changed else None

    register = group_register(store, group)
    register.update(change, mark=create_mark())
    return is_changed


def check_idle(group: str, existing: Group, now_ms: int, topic_id: str | None = None) -> None:
    """Reject a group that committed within 24 hours, to one topic or any."""
    if existing.is_reading(now_ms, topic_id):
        raise BlockedError(
            f"group {group} is reading: it committed within the last 24 hours",
            hint="Stop its consumers, then force it (--force): reconciler cannot see whether they stopped.",
        )


def group_register(store: ObjectStore, group: str) -> Register:
    """Return a group's register."""
    return Register(store, group_key(group), format="reconciler.group/1", shape=_SHAPE)


def parse_group(register: Register, held: RegisterSnapshot | None) -> Group:
    """Parse a group's register; a missing one is an empty group."""
    return Group() if held is None else decode_object(register.store, register.key, held.value, Group.from_json)


def read_partition_bounds(store: ObjectStore, place: Place) -> Bounds:
    """Return a partition's bounds."""
    head = read_head(store, *place)
    return Bounds(0, 0, 0, 0) if head is None else head.bounds


def _to_committed_offset(value: int | CommittedOffset) -> CommittedOffset:
    return CommittedOffset(value) if isinstance(value, int) else value


def _stamp_offsets(offsets: Mapping[Place, int | CommittedOffset], now_ms: int) -> dict[Place, CommittedOffset]:
    committed = {place: _to_committed_offset(value) for place, value in offsets.items()}
    return {
        place: one_committed if one_committed.at_ms is not None else replace(one_committed, at_ms=now_ms)
        for place, one_committed in committed.items()
    }


def clamp_groups(store: ObjectStore, topic_id: str, ends: Mapping[int, int]) -> int:
    """Lower offsets beyond partitions' ends to these ends; return how many groups changed (F-C-041).

    Do this before producers may write to a former mirror, since groups never read records below their offsets.
    """

    def clamp(offsets: Mapping[Place, CommittedOffset]) -> dict[Place, CommittedOffset]:
        return {
            place: CommittedOffset(ends[place[1]], committed.metadata, committed.at_ms)
            if place[0] == topic_id and committed.offset > ends.get(place[1], MAX_OFFSET)
            else committed
            for place, committed in offsets.items()
        }

    def clamp_group(existing: Group) -> Group:
        return Group(clamp(existing.own), clamp(existing.synced))

    return sum(change_group(store, group, clamp_group) for group in list_groups(store))
