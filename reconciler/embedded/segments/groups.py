"""Consumer groups and committed offsets: one register a group.

A group is made by its first commit. Offsets are keyed by topic id and partition: a topic that moves keeps them. Those
of topics that are gone are ignored, and removed by the next commit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from reconciler.archives.objects import decoded
from reconciler.archives.topic_manifest import Committed
from reconciler.embedded.catalog.tables import Catalog, check_namespace_of, check_served, is_closed
from reconciler.embedded.catalog.tiering_state import hides_remote
from reconciler.embedded.keys import GROUPS, group_key, group_of_key
from reconciler.embedded.segments.head import read_head
from reconciler.errors import BlockedError, NotFoundError, UserError
from reconciler.objectstore.register import ReadRegister, Register, fresh_mark
from reconciler.records.log import MAX_OFFSET, Bounds
from reconciler.resources.groups import READING_MS

if TYPE_CHECKING:
    from reconciler.embedded.catalog.commits import CatalogRegister
    from reconciler.objectstore.base import ObjectStore


Json = dict[str, Any]
Place: TypeAlias = tuple[str, int]
"""Topic id and partition."""


@dataclass(frozen=True, slots=True)
class Group:
    """What a group has committed itself, and what a link has brought over from the source of a mirror."""

    own: Mapping[Place, Committed] = field(default_factory=dict)
    synced: Mapping[Place, Committed] = field(default_factory=dict)

    @property
    def offsets(self) -> dict[Place, Committed]:
        """Where it goes on reading: its own offsets, else the synced ones."""
        return {**self.synced, **self.own}

    @property
    def topic_ids(self) -> set[str]:
        """The topics it holds anything of."""
        return {topic_id for topic_id, _ in (*self.own, *self.synced)}

    def last_commit_ms(self, topic_id: str | None = None) -> int | None:
        """Return when it last committed, of one topic or at all; `None`: it never did."""
        times = [each.at_ms for (of, _), each in self.own.items() if each.at_ms is not None and topic_id in {None, of}]
        return max(times, default=None)

    def is_reading(self, now_ms: int, topic_id: str | None = None) -> bool:
        """Tell whether it committed within 24 hours, of one topic or at all."""
        last = self.last_commit_ms(topic_id)
        return last is not None and now_ms - last < READING_MS

    def with_own(self, offsets: Mapping[Place, Committed]) -> Group:
        """Return it after a commit or a reset."""
        return Group({**self.own, **offsets}, self.synced)

    def only(self, topic_ids: Iterable[str]) -> Group:
        """Return it without the offsets of all other topics."""
        kept = frozenset(topic_ids)
        return Group(_only(self.own, kept), _only(self.synced, kept))

    def to_json(self) -> Json:
        """Return what the register keeps."""
        return {"offsets": _nested(self.own), "synced": _nested(self.synced)}

    @classmethod
    def from_json(cls, kept: Json) -> Group:
        """Read it back."""
        return cls(_flat(kept["offsets"]), _flat(kept["synced"]))


def _only(offsets: Mapping[Place, Committed], topic_ids: frozenset[str]) -> dict[Place, Committed]:
    return {place: each for place, each in offsets.items() if place[0] in topic_ids}


def _nested(offsets: Mapping[Place, Committed]) -> Json:
    kept: Json = {}
    for (topic_id, partition), each in sorted(offsets.items()):
        kept.setdefault(topic_id, {})[str(partition)] = each.to_json()
    return kept


def _flat(kept: Json) -> dict[Place, Committed]:
    return {
        (topic_id, int(partition)): Committed.from_json(one)
        for topic_id, partitions in kept.items()
        for partition, one in partitions.items()
    }


_OFFSETS: Final = {str: {str: {"offset": int, "metadata": str, "at_ms": (None, int)}}}
_SHAPE: Final = {"offsets": _OFFSETS, "synced": _OFFSETS}

MAX_METADATA_BYTES: Final = 4096
"""As Kafka's `offset.metadata.max.bytes`."""


def check_commit(catalog: Catalog, group: str, offsets: Mapping[Place, int | Committed]) -> None:
    """Refuse offsets that a group cannot have.

    Raises:
        InvalidNamespaceError: The group's namespace does not exist; none is made implicitly.
        UserError: The group's name cannot be, or a partition or an offset; or a topic is being mounted or unmounted.
    """
    group_key(group)
    check_namespace_of(catalog, group)
    topics = {entry.id: (name, entry) for name, entry in catalog.topics.items()} if offsets else {}
    for (topic_id, partition), given in offsets.items():
        name, topic = topics.get(topic_id, (topic_id, None))
        partitions = partition + 1 if topic is None else topic.partitions
        if topic is not None and is_closed(topic):
            check_served(name, topic)  # It would stay behind, or be overwritten.
        where, each = f"group {group}: {name}, partition {partition}", _committed(given)
        if not 0 <= partition < partitions:
            raise NotFoundError(f"{where}: there is no such partition", hint=f"The topic has {partitions} partitions.")
        if not 0 <= each.offset <= MAX_OFFSET:
            raise UserError(
                f"{where}: {each.offset} is not an offset", hint="Commit the next offset to be read, from 0."
            )
        if len(each.metadata.encode(errors="surrogatepass")) > MAX_METADATA_BYTES:
            message = f"{where}: the metadata is longer than {MAX_METADATA_BYTES:,} bytes"
            raise UserError(message, hint="Keep a short note beside an offset, and the rest elsewhere.")


def commit_offsets(
    store: ObjectStore,
    catalog: CatalogRegister,
    group: str,
    offsets: Mapping[Place, int | Committed],
    *,
    mark: str,
    now_ms: int,
) -> None:
    """Commit the next offsets to be read; the same commit (the same mark) done twice is done once.

    Offsets of a topic that is gone are dropped.

    Raises:
        InvalidNamespaceError: The group's namespace does not exist.
        UserError: The group's name cannot be, or a partition or an offset.
        LostRaceError: Others were faster every time.
    """

    def checked() -> Catalog:
        known = catalog.read()
        check_commit(known, group, offsets)
        return known

    if offsets:
        _put(group_register(store, group), checked, _stamped(offsets, now_ms), mark)
    else:
        checked()


def put_offsets(
    store: ObjectStore,
    catalog: CatalogRegister,
    group: str,
    offsets: Mapping[Place, int | Committed],
    *,
    mark: str,
    now_ms: int,
) -> None:
    """Commit offsets that were checked before: what a transaction does once it is decided, whatever became of names."""
    _put(group_register(store, group), catalog.read, _stamped(offsets, now_ms), mark)


def bring_offsets(
    store: ObjectStore, read: Callable[[], Catalog], group: str, offsets: Mapping[Place, Committed], *, mark: str
) -> None:
    """Set what a group had committed of a topic elsewhere: as it was said there, whoever said it and when.

    `read` returns the catalog, and raises where it is too late for that; it is asked before every swap.
    """
    _put(group_register(store, group), read, offsets, mark)


def _put(register: Register, read: Callable[[], Catalog], offsets: Mapping[Place, Committed], mark: str) -> None:
    def change(held: ReadRegister | None) -> dict[str, Any] | None:
        # Read after the register: what is in it was committed on topics that an older catalog may not have yet.
        catalog = read()
        after = group_of(register, held).with_own(offsets)
        after = after.only(topic.id for topic in catalog.topics.values())
        return None if held is None and not after.own else after.to_json()

    register.update(change, mark=mark)


def list_groups(store: ObjectStore) -> list[str]:
    """Return the names of all groups, sorted: listings, and nothing is opened."""
    found = (group_of_key(listed.key) for listed in store.list(GROUPS))
    return sorted(name for name in found if name is not None)


def read_group(store: ObjectStore, group: str) -> Group | None:
    """Return what a group holds; `None` where it never committed.

    Raises:
        UserError: It is damaged.
    """
    register = group_register(store, group)
    held = register.read()
    return None if held is None else group_of(register, held)


def existing_group(store: ObjectStore, group: str) -> Group:
    """Return what a group holds.

    Raises:
        UserError: There is none.
    """
    found = read_group(store, group)
    if found is None:
        raise NotFoundError(f"group {group} does not exist", hint="A group is made by its first commit.")
    return found


def fetch_offsets(
    store: ObjectStore, catalog: CatalogRegister, group: str, places: Iterable[Place] | None = None
) -> dict[Place, Committed]:
    """Return where a group goes on reading, within what each log has now; what it never committed is absent.

    `places` are the partitions asked for, by default all it ever committed.
    """
    found = read_group(store, group)
    if found is None:
        return {}
    offsets = found.offsets
    asked = offsets if places is None else offsets.keys() & set(places)
    known = catalog.read()
    living = {topic.id: name for name, topic in known.topics.items()}
    fetched: dict[Place, Committed] = {}
    for place in sorted(each for each in asked if each[0] in living):
        bounds = bounds_at(store, place)
        is_hiding = bounds.start < bounds.local_start and hides_remote(known, living[place[0]])
        fetched[place] = offsets[place].clamped(bounds.only_local() if is_hiding else bounds)
    return fetched


def delete_group(store: ObjectStore, group: str, *, now_ms: int, force: bool = False) -> bool:
    """Forget a group and all its offsets; say whether it was there.

    A commit that lands between the look and the deletion goes with it, as one made just before it would.

    Raises:
        BlockedError: It is reading, and `force` is not set.
    """
    found = read_group(store, group)
    if found is None:
        return False
    if not force:
        check_idle(group, found, now_ms)
    store.delete([group_key(group)])
    return True


def delete_offsets(store: ObjectStore, group: str, topic_id: str, *, now_ms: int, force: bool = False) -> bool:
    """Forget a group's offsets of one topic; say whether there were any.

    Raises:
        BlockedError: It is reading that topic, and `force` is not set.
    """

    def forget(found: Group) -> Group:
        if not force:
            check_idle(group, found, now_ms, topic_id)
        return found.only(found.topic_ids - {topic_id})

    return change_group(store, group, forget)


def change_group(store: ObjectStore, group: str, decide: Callable[[Group], Group]) -> bool:
    """Change a group that is there, where `decide` makes it another; say whether it did. It may be called again."""
    is_changed = False

    def change(held: ReadRegister | None) -> dict[str, Any] | None:
        nonlocal is_changed
        if held is None:
            is_changed = False
            return None
        before = group_of(register, held)
        after = decide(before)
        is_changed = after != before
        return after.to_json() if is_changed else None

    register = group_register(store, group)
    register.update(change, mark=fresh_mark())
    return is_changed


def check_idle(group: str, found: Group, now_ms: int, topic_id: str | None = None) -> None:
    """Refuse to change the offsets of a group that somebody reads with.

    Raises:
        BlockedError: It committed within 24 hours.
    """
    if found.is_reading(now_ms, topic_id):
        raise BlockedError(
            f"group {group} is reading: it committed within the last 24 hours",
            hint="Stop its consumers, then force it (--force): there is no membership that could tell they stopped.",
        )


def group_register(store: ObjectStore, group: str) -> Register:
    """Return the register of a group.

    Raises:
        UserError: No group can have that name.
    """
    return Register(store, group_key(group), format="reconciler.group/1", shape=_SHAPE)


def group_of(register: Register, held: ReadRegister | None) -> Group:
    """Return what a group's register holds; nothing where it was never written.

    Raises:
        UserError: It is damaged.
    """
    return Group() if held is None else decoded(register.store, register.key, held.value, Group.from_json)


def bounds_at(store: ObjectStore, place: Place) -> Bounds:
    """Return where one partition begins and ends."""
    head = read_head(store, *place)
    return Bounds(0, 0, 0, 0) if head is None else head.bounds


def _committed(given: int | Committed) -> Committed:
    return Committed(given) if isinstance(given, int) else given


def _stamped(offsets: Mapping[Place, int | Committed], now_ms: int) -> dict[Place, Committed]:
    committed = {place: _committed(given) for place, given in offsets.items()}
    return {place: each if each.at_ms is not None else replace(each, at_ms=now_ms) for place, each in committed.items()}


# Consumer groups at the end of mirroring: none points beyond what there is (F-C-041).
#
# A reader clamps what it finds; that is not enough here, for the log goes on growing below such an offset, and what
# comes in between would never be read. So this comes before producers get the head, whoever gives it to them, and only
# then: later they may have written more, and a group may have read that.


def clamp_groups(store: ObjectStore, topic_id: str, ends: Mapping[int, int]) -> int:
    """Set offsets that lie beyond the ends of these partitions of a topic to them; return how many groups had some."""

    def clamped(offsets: Mapping[Place, Committed]) -> dict[Place, Committed]:
        return {
            place: Committed(ends[place[1]], each.metadata, each.at_ms)
            if place[0] == topic_id and each.offset > ends.get(place[1], MAX_OFFSET)
            else each
            for place, each in offsets.items()
        }

    def within(found: Group) -> Group:
        return Group(clamped(found.own), clamped(found.synced))

    return sum(change_group(store, group, within) for group in list_groups(store))
