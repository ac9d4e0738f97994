"""Appends through the head: fencing and races.

To stop a writer, a caller commits that to the catalog, then swaps the topic's heads to the next epoch; an append swaps
the head that it read, so it fails. An append to a new or unsettled head reads the catalog before it is acknowledged,
and settles the head. A migration seals heads the same way; if it was cancelled, the next append removes its seal.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from itertools import groupby
from threading import Event, Lock
from typing import TYPE_CHECKING, Any, Final

from reconciler.archives.pages import PagedEntries, iter_all_entries, iter_all_pages
from reconciler.embedded.catalog.model import TopicEntry
from reconciler.embedded.catalog.tables import SEAL, Catalog, check_no_replica, check_served, seal_writer, topic_with_id
from reconciler.embedded.segments.groups import clamp_groups
from reconciler.embedded.segments.head import (
    NOBODY,
    PRODUCERS,
    REPLICA,
    Head,
    PageWriter,
    begins_or_ends_mirroring,
    hand_over,
    head_register,
    link_writer,
    parse_head,
    parse_head_unchecked,
)
from reconciler.embedded.segments.rewrites import AppendEncryption
from reconciler.errors import UnansweredError, UserError
from reconciler.objectstore.register import PATIENCE_S, Register, RegisterSnapshot, fresh_mark

if TYPE_CHECKING:
    from reconciler.archives.entries import PageRef
    from reconciler.embedded.catalog.commits import CatalogRegister
    from reconciler.objectstore.base import ObjectStore


def remove_partition(store: ObjectStore, topic_id: str, partition: int) -> None:
    """Seal a head, delete all objects that it names, then the head, so that a retry finds them."""
    register = head_register(store, topic_id, partition)

    def seal(held: RegisterSnapshot | None) -> dict[str, Any] | None:
        if held is None or held.value.get("writer") == NOBODY:
            return None
        return {**held.value, "writer": NOBODY}

    held = register.update(seal, mark=fresh_mark(), raises_epoch=True)
    if held is None:
        return
    delete_named(store, parse_head_unchecked(store, register.key, held.value))
    store.delete([register.key])


def delete_named(store: ObjectStore, held: PagedEntries) -> None:
    """Delete all named objects, lower pages first; skips missing ones."""
    store.delete(entry.key for entry in iter_all_entries(store, held, skips_missing=True))
    for pages in _group_by_level(iter_all_pages(store, held, skips_missing=True)):
        store.delete(page.key for page in pages)


def _group_by_level(pages: Iterable[PageRef]) -> list[list[PageRef]]:
    ordered = sorted(pages, key=lambda page: page.level)
    return [list(group) for _, group in groupby(ordered, key=lambda page: page.level)]


Json = dict[str, Any]


def writer_of(topic: TopicEntry) -> str:
    """Return the writer that may append to a topic."""
    if topic.hold is not None and topic.hold.is_closed:
        return seal_writer(topic.hold.migration)
    if topic.replica is not None:
        return REPLICA
    return PRODUCERS if topic.follows is None else link_writer(topic.follows.link_id)


_HEADS_LIMIT: Final = 128


@dataclass(frozen=True, slots=True)
class RecentHead:
    """A head after this process's own swap; others may have swapped it since."""

    held: RegisterSnapshot
    head: Head


@dataclass(slots=True, eq=False)
class PendingAppend:
    """One thread's append, and its result."""

    extend: Callable[[Head, int], Head | None]
    mark: str
    patience_s: float
    turn: Event = field(default_factory=Event)
    """Set when the append is done, or when this thread must do all that wait."""
    is_done: bool = False
    error: Exception | None = None


@dataclass(eq=False)
class RecentHeads:
    """The heads that this process swapped last, and waiting threads per partition. Thread-safe."""

    _heads: OrderedDict[str, RecentHead] = field(default_factory=OrderedDict)
    _lines: dict[object, list[PendingAppend]] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)
    _process: int = field(default_factory=os.getpid)

    def __reduce__(self) -> tuple[type[RecentHeads], tuple[()]]:
        """Pickle without heads, which are stale elsewhere."""
        return RecentHeads, ()

    def get(self, key: str) -> RecentHead | None:
        """Return a remembered head."""
        with self._own_lock():
            return self._heads.get(key)

    def put(self, key: str, recent: RecentHead | None) -> None:
        """Remember a head, or forget it (`None`)."""
        with self._own_lock():
            self._heads.pop(key, None)
            if recent is not None:
                self._heads[key] = recent
            if len(self._heads) > _HEADS_LIMIT:
                self._heads.popitem(last=False)

    def in_turn(self, line: object, ours: PendingAppend, do: Callable[[list[PendingAppend]], None]) -> None:
        """Wait until another thread has done the append, or do all appends that wait.

        Raises:
            UnansweredError: Another thread took too long.
        """
        try:
            self.join(line, ours)
            if not ours.turn.wait(ours.patience_s):
                message = "another thread of this process has been appending to the same partition for too long"
                raise UnansweredError(message, hint="Try again: what was written is found there.")
            if not ours.is_done:
                do(self._list_waiting(line))
        finally:
            self.leave(line, ours)

    def join(self, line: object, ours: PendingAppend) -> None:
        """Add an append to the line; the first thread in it has its turn at once."""
        with self._own_lock():
            waiting = self._lines.setdefault(line, [])
            waiting.append(ours)
            if waiting[0] is ours:
                ours.turn.set()

    def leave(self, line: object, ours: PendingAppend) -> None:
        """Remove an append from the line; wake threads whose append is done, and the first of the others."""
        with self._own_lock():
            waiting = self._lines.get(line, [])
            if ours in waiting:
                waiting.remove(ours)
            for one in waiting:
                one.turn.set()
                if not one.is_done:
                    break
            if not waiting:
                self._lines.pop(line, None)

    def _list_waiting(self, line: object) -> list[PendingAppend]:
        with self._own_lock():
            return [one for one in self._lines[line] if not one.is_done]

    def _own_lock(self) -> Lock:
        """A forked child starts empty: the parent's threads do not exist in it."""
        if self._process != os.getpid():
            self._heads, self._lines, self._lock, self._process = OrderedDict(), {}, Lock(), os.getpid()
        return self._lock


@dataclass(frozen=True, slots=True)
class Gate:
    """Appends of one writer to one topic."""

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
        """Append to one partition by one swap, shared with other threads of this process.

        `extend` gets the head and its epoch; it returns the new head, or `None` for no change. After a lost race it
        runs again, possibly on another thread, so it must recognise records already appended. Its errors fail no other
        append.

        Raises:
            UnansweredError: No answer came in time; the outcome is unknown.
        """
        ours = PendingAppend(extend, mark, PATIENCE_S if patience_s is None else patience_s)
        line = self.topic_id, partition, self.full_name, self.writer
        self.recent.in_turn(line, ours, lambda wanted: self._swap_together(partition, _SharedSwap(wanted)))
        if ours.error is not None:
            raise ours.error

    def _swap_together(self, partition: int, group: _SharedSwap) -> None:
        try:
            self._swap(partition, group)
        except Exception as error:  # noqa: BLE001 - raised in every thread whose append it was
            group.fail(error)
        else:
            group.finish()

    def _swap(self, partition: int, group: _SharedSwap) -> None:
        register = head_register(self.store, self.topic_id, partition)
        spill = PageWriter(self.store, self.topic_id, partition)
        keys = AppendEncryption(self.store, self.catalog, self.topic_id, partition)
        recent = self.recent.get(register.key)
        # If this raises, the head is unknown.
        self.recent.put(register.key, None)
        tried: list[_SwapAttempt] = []

        def change(held: RegisterSnapshot | None) -> Json | None:
            before = self._current_head(partition, register.key, held, recent)
            after = group.extended(before, held)
            spilled = None if after is None else spill.spilled(keys.agreed(None if held is None else before, after))
            tried.append(_SwapAttempt(spilled, None if spilled is None else spilled.to_json()))
            return tried[-1].value

        held = register.update(
            change,
            mark=group.mark,
            patience_s=group.patience_s,
            known=None if recent is None else recent.held,
        )
        if held is not None and group.is_shared and held.value is not tried[-1].value:
            # An answer was lost, and an earlier try may have landed.
            group.extended(parse_head(self.store, register.key, held.value), held)
        left = _own_swap(tried, held)
        if held is not None and not held.value["is_settled"]:
            catalog = self._confirm(partition)
            keys.confirm(catalog, held.value.get("kms_key_id"))
            left = self._settle(register, held, left, catalog)
        self.recent.put(register.key, left)

    def _current_head(self, partition: int, key: str, held: RegisterSnapshot | None, recent: RecentHead | None) -> Head:
        if held is None:
            self._clamp_unwritten(partition)
            return Head(self.writer)
        is_known = recent is not None and held is recent.held
        head = recent.head if recent is not None and is_known else parse_head(self.store, key, held.value)
        return self._settle_locally(partition, head)

    def _settle_locally(self, partition: int, head: Head) -> Head:
        if head.writer == self.writer and head.is_settled:
            return head
        self._check_topic(self.catalog.read())
        if head.writer.startswith(SEAL):
            return replace(head, writer=self.writer, is_settled=True)  # The migration was cancelled.
        if begins_or_ends_mirroring(head.writer, self.writer):
            # Mirroring began or ended, and its process died before this head. The swap loses against the next epoch.
            self._clamp(partition, head.end)
            hand_over(self.store, (self.topic_id, partition), self.writer, makes=False)
            return replace(head, writer=self.writer, is_settled=True)
        if head.writer != self.writer:
            raise UserError(
                f"{self.full_name} accepts no records now: {head.writer} may write", hint="Try again later."
            )
        return replace(head, is_settled=True)

    def _clamp_unwritten(self, partition: int) -> None:
        topic = topic_with_id(self.catalog.known(), self.topic_id, self.full_name)
        if topic is not None and topic.mirror is not None:
            self._clamp(partition, 0)

    def _clamp(self, partition: int, end: int) -> None:
        if self.writer == PRODUCERS:
            clamp_groups(self.store, self.topic_id, {partition: end})

    def _confirm(self, partition: int) -> Catalog:
        """Return the catalog, read after the head exists; if the topic is gone, delete the partition."""
        catalog = self.catalog.read()
        topic = topic_with_id(catalog, self.topic_id, self.full_name)
        if topic is None:
            remove_partition(self.store, self.topic_id, partition)
        elif topic.follows is not None and self.writer == PRODUCERS:
            # The topic becomes a mirror; this head came before sealing and is sealed with its records.
            return catalog
        self._check_topic(catalog)
        return catalog

    def _settle(
        self, register: Register, held: RegisterSnapshot, left: RecentHead | None, catalog: Catalog
    ) -> RecentHead | None:
        """Settle the head after a check of the catalog.

        After a restore of an older catalog, an unsettled head would look like one whose writer died.
        """
        topic = topic_with_id(catalog, self.topic_id, self.full_name)
        if topic is None or writer_of(topic) != self.writer:
            return left
        settled = {**held.value, "is_settled": True}

        def settle(current: RegisterSnapshot | None) -> Json | None:
            if current is held:
                return settled
            is_ours = current is not None and (current.epoch, current.value["writer"]) == (held.epoch, self.writer)
            # A hand-over may have taken it from this writer.
            return (
                {**current.value, "is_settled": True}
                if current and is_ours and not current.value["is_settled"]
                else None
            )

        after = register.update(settle, mark=fresh_mark(), known=held)
        if after is None or after.value is not settled or left is None:
            return None
        return RecentHead(after, replace(left.head, is_settled=True))

    def _check_topic(self, catalog: Catalog) -> None:
        topic = topic_with_id(catalog, self.topic_id, self.full_name)
        if topic is None:
            raise missing_topic_error(self.full_name)
        check_writer(self.full_name, topic, self.writer)


def missing_topic_error(full_name: str) -> UserError:
    """Return the error for a write to a missing topic."""
    hint = "Nothing was written. See whether it is unmounted: reconciler mount list"
    return UserError(f"topic {full_name} was deleted or unmounted", hint=hint)


class _SharedSwap:
    """Appends to one partition in one swap, in order."""

    def __init__(self, wanted: list[PendingAppend]) -> None:
        self._wanted = wanted
        self._refused: dict[int, Exception] = {}
        """Of the last try, by position."""
        self.mark = wanted[0].mark if len(wanted) == 1 else fresh_mark()
        self.patience_s = min(one.patience_s for one in wanted)

    @property
    def is_shared(self) -> bool:
        return len(self._wanted) > 1

    def extended(self, head: Head, held: RegisterSnapshot | None) -> Head | None:
        """Return the head with all appends; `None`: nothing is new."""
        if held is None:
            # A new head stores one KMS key; the other appends follow later.
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
        for place, one in self._last_first():
            one.error = self._refused.get(place)
            one.is_done = True

    def fail(self, error: Exception) -> None:
        for _, one in self._last_first():
            one.error = error
            one.is_done = True

    def _last_first(self) -> list[tuple[int, PendingAppend]]:
        """Return pending appends, last first; the working thread is first in line until all are done."""
        return list(enumerate(self._wanted))[::-1]


@dataclass(frozen=True, slots=True)
class _SwapAttempt:
    head: Head | None
    value: Json | None


def _own_swap(tried: list[_SwapAttempt], held: RegisterSnapshot | None) -> RecentHead | None:
    """Return the swapped head to remember; `None` if others write: the next swap from it would fail."""
    if held is None or len(tried) != 1:
        return None
    only = tried[0]
    return RecentHead(held, only.head) if only.head is not None and held.value is only.value else None


def check_writer(full_name: str, topic: TopicEntry, writer: str) -> None:
    """Reject a writer that does not own the topic."""
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
