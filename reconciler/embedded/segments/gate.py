"""Appends through the head: fencing and races.

Whoever must stop a writer first commits that to the catalog, then lists the topic's heads and swaps each to the next
epoch. An append swaps the head it read, so it cannot slip past. The first append to a partition makes the head and
reads the catalog before it is acknowledged, and settles the head: it notes there that the topic was found. An append
to a head that is not settled reads the catalog before its swap.

A migration seals heads in the same way. Where it was cancelled the catalog says so, and the next append takes its seal
off: nobody has to go through the heads again, and a seal that comes late closes nothing.

Threads of one process that append to one partition at the same time share a swap.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from itertools import groupby
from threading import Event, Lock
from typing import TYPE_CHECKING, Any, Final

from reconciler.archives.pages import Paged, all_entries, all_pages
from reconciler.embedded.catalog.model import TopicEntry
from reconciler.embedded.catalog.tables import SEAL, Catalog, check_no_replica, check_served, sealed_by, topic_with_id
from reconciler.embedded.segments.groups import clamp_groups
from reconciler.embedded.segments.head import (
    NOBODY,
    PRODUCERS,
    REPLICA,
    Head,
    Spill,
    hand_over,
    head_as_kept,
    head_register,
    is_mirroring,
    link_writer,
    parse_head,
)
from reconciler.embedded.segments.rewrites import Rekeying
from reconciler.errors import UnansweredError, UserError
from reconciler.objectstore.register import PATIENCE_S, ReadRegister, Register, fresh_mark

if TYPE_CHECKING:
    from reconciler.archives.entries import PageRef
    from reconciler.embedded.catalog.commits import CatalogRegister
    from reconciler.objectstore.base import ObjectStore


# A partition that goes: sealed, then all that its head names, and the head last.


def remove_partition(store: ObjectStore, topic_id: str, partition: int) -> None:
    """Seal a partition's head, then delete all that it names, and it last: until then its keys can be found again."""
    register = head_register(store, topic_id, partition)

    def seal(held: ReadRegister | None) -> dict[str, Any] | None:
        if held is None or held.value.get("writer") == NOBODY:
            return None
        return {**held.value, "writer": NOBODY}

    held = register.update(seal, mark=fresh_mark(), raises_epoch=True)
    if held is None:
        return
    delete_named(store, head_as_kept(store, register.key, held.value))
    store.delete([register.key])


def delete_named(store: ObjectStore, held: Paged) -> None:
    """Delete all that is named, a page after all that it names; what is gone already is passed over."""
    store.delete(entry.key for entry in all_entries(store, held, skips_missing=True))
    for pages in _by_level(all_pages(store, held, skips_missing=True)):
        store.delete(page.key for page in pages)


def _by_level(pages: Iterable[PageRef]) -> list[list[PageRef]]:
    """Group pages, the lowest level first: a page goes after all that it names."""
    ordered = sorted(pages, key=lambda page: page.level)
    return [list(group) for _, group in groupby(ordered, key=lambda page: page.level)]


Json = dict[str, Any]


def writer_of(topic: TopicEntry) -> str:
    """Return who may append to a topic's partitions."""
    if topic.hold is not None and topic.hold.is_closed:
        return sealed_by(topic.hold.migration)
    if topic.replica is not None:
        return REPLICA
    return PRODUCERS if topic.follows is None else link_writer(topic.follows.link_id)


# The threads of one process that append: they know the heads they swapped last, and stand in line for each partition.


_KEPT: Final = 128


@dataclass(frozen=True, slots=True)
class Recent:
    """A head after our own swap; what stands there now, only another swap tells."""

    held: ReadRegister
    head: Head


@dataclass(slots=True, eq=False)
class Wanted:
    """What one thread wants appended, and what came of it."""

    extend: Callable[[Head, int], Head | None]
    mark: str
    patience_s: float
    turn: Event = field(default_factory=Event)
    """Set when another thread has done it, or when this one is to do what all in line want."""
    is_done: bool = False
    error: Exception | None = None


@dataclass(eq=False)
class RecentHeads:
    """The heads that the threads of one process swapped last, and who waits to swap which. Safe to share."""

    _heads: OrderedDict[str, Recent] = field(default_factory=OrderedDict)
    _lines: dict[object, list[Wanted]] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)
    _process: int = field(default_factory=os.getpid)

    def __reduce__(self) -> tuple[type[RecentHeads], tuple[()]]:
        """Travel without what is known: elsewhere others have swapped since."""
        return RecentHeads, ()

    def get(self, key: str) -> Recent | None:
        """Return what is known of a head."""
        with self._own():
            return self._heads.get(key)

    def put(self, key: str, recent: Recent | None) -> None:
        """Keep or (`None`) forget one; of too many the oldest is forgotten."""
        with self._own():
            self._heads.pop(key, None)
            if recent is not None:
                self._heads[key] = recent
            if len(self._heads) > _KEPT:
                self._heads.popitem(last=False)

    def in_turn(self, line: object, ours: Wanted, do: Callable[[list[Wanted]], None]) -> None:
        """Have what is wanted done: by another thread with its own, or by `do` with all that wait in the same line.

        The first thread in line does it. Where that one is interrupted, the next one does what is left.

        Raises:
            UnansweredError: Another thread took too long over it.
        """
        try:
            self.join(line, ours)
            if not ours.turn.wait(ours.patience_s):
                message = "another thread of this process has been appending to the same partition for too long"
                raise UnansweredError(message, hint="Try again: what was written is found there.")
            if not ours.is_done:
                do(self._waiting(line))
        finally:
            self.leave(line, ours)

    def join(self, line: object, ours: Wanted) -> None:
        """Stand in line; who is alone has his turn at once."""
        with self._own():
            waiting = self._lines.setdefault(line, [])
            waiting.append(ours)
            if waiting[0] is ours:
                ours.turn.set()

    def leave(self, line: object, ours: Wanted) -> None:
        """Go, and wake those that are done and the first that is not."""
        with self._own():
            waiting = self._lines.get(line, [])
            if ours in waiting:
                waiting.remove(ours)
            for one in waiting:
                one.turn.set()
                if not one.is_done:
                    break
            if not waiting:
                self._lines.pop(line, None)

    def _waiting(self, line: object) -> list[Wanted]:
        with self._own():
            return [one for one in self._lines[line] if not one.is_done]

    def _own(self) -> Lock:
        """Return the lock; a forked child starts without heads and lines: the parent's threads do not exist in it."""
        if self._process != os.getpid():
            self._heads, self._lines, self._lock, self._process = OrderedDict(), {}, Lock(), os.getpid()
        return self._lock


@dataclass(frozen=True, slots=True)
class Gate:
    """One topic, and the writer that wants to append to it."""

    store: ObjectStore
    catalog: CatalogRegister
    full_name: str
    topic_id: str
    writer: str
    recent: RecentHeads = field(default_factory=RecentHeads)

    def swap(
        self,
        partition: int,
        extend: Callable[[Head, int], Head | None],
        *,
        mark: str,
        patience_s: float | None = None,
    ) -> None:
        """Append to one partition by one swap, shared with the threads that want the same at the same time.

        `extend` gets the head and its epoch and returns what it shall become, `None` for no change; it runs again
        after a lost race, maybe on another thread, and what it did last is what holds. It recognises what is there
        already. What it raises fails no other append. An own swap without an answer is recognised by its mark.

        Raises:
            UserError: The topic is gone, or the partition belongs to another writer.
            LostRaceError: Others were faster every time, until patience ended.
            UnansweredError: The store, or a thread that did it for this one, did not say in time whether it was done.
        """
        ours = Wanted(extend, mark, PATIENCE_S if patience_s is None else patience_s)
        line = self.topic_id, partition, self.full_name, self.writer
        self.recent.in_turn(line, ours, lambda wanted: self._swap_together(partition, _Group(wanted)))
        if ours.error is not None:
            raise ours.error

    def _swap_together(self, partition: int, group: _Group) -> None:
        try:
            self._swap(partition, group)
        except Exception as error:  # noqa: BLE001 - raised in every thread whose append it was
            group.fail(error)
        else:
            group.finish()

    def _swap(self, partition: int, group: _Group) -> None:
        register = head_register(self.store, self.topic_id, partition)
        spill = Spill(self.store, self.topic_id, partition)
        keys = Rekeying(self.store, self.catalog, self.topic_id, partition)
        recent = self.recent.get(register.key)
        # Where this raises nobody knows what stands there: the next try must read, or it would say what is not so.
        self.recent.put(register.key, None)
        tried: list[_Tried] = []

        def change(held: ReadRegister | None) -> Json | None:
            before = self._found(partition, register.key, held, recent)
            after = group.extended(before, held)
            spilled = None if after is None else spill.spilled(keys.agreed(None if held is None else before, after))
            tried.append(_Tried(spilled, None if spilled is None else spilled.to_json()))
            return tried[-1].value

        held = register.update(
            change,
            mark=group.mark,
            patience_s=group.patience_s,
            known=None if recent is None else recent.held,
        )
        if held is not None and group.is_shared and held.value is not tried[-1].value:
            # An answer was lost, and an earlier try may have landed: where each append lies, the head tells.
            group.extended(parse_head(self.store, register.key, held.value), held)
        left = _left(tried, held)
        if held is not None and not held.value["is_settled"]:
            catalog = self._confirm(partition)
            keys.confirm(catalog, held.value.get("kms_key_id"))
            left = self._settle(register, held, left, catalog)
        self.recent.put(register.key, left)

    def _found(self, partition: int, key: str, held: ReadRegister | None, recent: Recent | None) -> Head:
        if held is None:
            self._clamp_unwritten(partition)
            return Head(self.writer)
        is_known = recent is not None and held is recent.held
        head = recent.head if recent is not None and is_known else parse_head(self.store, key, held.value)
        return self._settled(partition, head)

    def _settled(self, partition: int, head: Head) -> Head:
        if head.writer == self.writer and head.is_settled:
            return head
        self._check(self.catalog.read())
        if head.writer.startswith(SEAL):
            return replace(head, writer=self.writer, is_settled=True)  # Of a migration that was cancelled.
        if is_mirroring(head.writer, self.writer):
            # Mirroring began or ended, and whoever said so died before this head. What is tried now loses its race
            # against the next epoch, and is tried again.
            self._clamp(partition, head.end)
            hand_over(self.store, (self.topic_id, partition), self.writer, makes=False)
            return replace(head, writer=self.writer, is_settled=True)
        if head.writer != self.writer:
            raise UserError(f"{self.full_name} takes no records now: {head.writer} may write", hint="Try again later.")
        return replace(head, is_settled=True)

    def _clamp_unwritten(self, partition: int) -> None:
        topic = topic_with_id(self.catalog.known(), self.topic_id, self.full_name)
        if topic is not None and topic.mirror is not None:
            self._clamp(partition, 0)

    def _clamp(self, partition: int, end: int) -> None:
        """Hold groups to the end of what was mirrored before producers write there."""
        if self.writer == PRODUCERS:
            clamp_groups(self.store, self.topic_id, {partition: end})

    def _confirm(self, partition: int) -> Catalog:
        """Return the catalog after the head is there; where the topic is gone, what was written goes with it."""
        catalog = self.catalog.read()
        topic = topic_with_id(catalog, self.topic_id, self.full_name)
        if topic is None:
            remove_partition(self.store, self.topic_id, partition)
        elif topic.follows is not None and self.writer == PRODUCERS:
            # It is to become a mirror. Whoever seals it makes heads where there are none; this one came before that
            # and will be sealed with all it has.
            return catalog
        self._check(catalog)
        return catalog

    def _settle(self, register: Register, held: ReadRegister, left: Recent | None, catalog: Catalog) -> Recent | None:
        """Note in the head that the topic was there, before its first records are acknowledged; return what is known.

        An older catalog may be put back later. Without the note the head would look like one whose writer died.
        """
        topic = topic_with_id(catalog, self.topic_id, self.full_name)
        if topic is None or writer_of(topic) != self.writer:
            return left
        settled = {**held.value, "is_settled": True}

        def settle(found: ReadRegister | None) -> Json | None:
            if found is held:
                return settled
            is_ours = found is not None and (found.epoch, found.value["writer"]) == (held.epoch, self.writer)
            # Another append settles the head too, and one that follows a hand-over is not ours to settle.
            return {**found.value, "is_settled": True} if found and is_ours and not found.value["is_settled"] else None

        after = register.update(settle, mark=fresh_mark(), known=held)
        if after is None or after.value is not settled or left is None:
            return None
        return Recent(after, replace(left.head, is_settled=True))

    def _check(self, catalog: Catalog) -> None:
        """Refuse a topic that is gone or belongs to another writer."""
        topic = topic_with_id(catalog, self.topic_id, self.full_name)
        if topic is None:
            raise gone(self.full_name)
        check_writer(self.full_name, topic, self.writer)


def gone(full_name: str) -> UserError:
    """Return the error for a topic that is not there any more and was to be written to."""
    hint = "Nothing was written. See whether it lies detached: reconciler mount list"
    return UserError(f"topic {full_name} was deleted or unmounted", hint=hint)


class _Group:
    """Appends to one partition that are made by one swap: one after the other, as if each had come alone."""

    def __init__(self, wanted: list[Wanted]) -> None:
        self._wanted = wanted
        self._refused: dict[int, Exception] = {}
        """By place in the group: what the last head that was found said against an append."""
        self.mark = wanted[0].mark if len(wanted) == 1 else fresh_mark()
        self.patience_s = min(one.patience_s for one in wanted)

    @property
    def is_shared(self) -> bool:
        """Whether there are several."""
        return len(self._wanted) > 1

    def extended(self, head: Head, held: ReadRegister | None) -> Head | None:
        """Return the head with all that is wanted and not refused; `None`: nothing of it is new."""
        if held is None:
            # A new head says under which key it lies, and that is the key of one append. The others come next.
            del self._wanted[1:]
        self._refused.clear()
        after = head
        for place, one in enumerate(self._wanted):
            try:
                after = one.extend(after, 0 if held is None else held.epoch) or after
            except Exception as error:  # noqa: BLE001 - raised in the thread whose append it is
                self._refused[place] = error
        return None if after is head else after

    def finish(self) -> None:
        """Tell those that took part that it is done, or why theirs was refused."""
        for place, one in self._last_first():
            one.error = self._refused.get(place)
            one.is_done = True

    def fail(self, error: Exception) -> None:
        """Tell those that took part why nothing came of it, as far as is known."""
        for _, one in self._last_first():
            one.error = error
            one.is_done = True

    def _last_first(self) -> list[tuple[int, Wanted]]:
        """Return them in the order in which they are told: who does it is first in line until all are."""
        return list(enumerate(self._wanted))[::-1]


@dataclass(frozen=True, slots=True)
class _Tried:
    """One try: what the head should become, and that as it is kept."""

    head: Head | None
    value: Json | None


def _left(tried: list[_Tried], held: ReadRegister | None) -> Recent | None:
    """Return the head as our swap left it; `None` where others write too: to know it would be a swap in vain."""
    if held is None or len(tried) != 1:
        return None
    only = tried[0]
    return Recent(held, only.head) if only.head is not None and held.value is only.value else None


def check_writer(full_name: str, topic: TopicEntry, writer: str) -> None:
    """Refuse a writer the topic does not belong to.

    Raises:
        UserError: It is a mirror, or no longer one, or a read replica; or it is being recovered, mounted or unmounted.
    """
    owner = writer_of(topic)
    check_no_replica(full_name, topic, "to write to it")
    if not writer.startswith(SEAL):
        check_served(full_name, topic)
    if owner == writer:
        return
    if topic.follows is not None and owner != NOBODY:
        message = (
            f"{full_name} is a mirror of {topic.follows.source}: only its link writes to it "
            f"(INVALID_REQUEST, Cannot append records to read-only mirror topic '{full_name}')"
        )
        raise UserError(message, hint="Produce to the source, or promote the mirror first.")
    raise UserError(f"{full_name} is not a mirror of that link", hint="Plan again.")
