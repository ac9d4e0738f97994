"""Appends through the head: fencing and lost races.

To fence a writer, a caller commits its successor to the catalog, then swaps the topic's heads to the next epoch.
Appends that read an earlier head fail. An append to an unsettled head reads the catalog before it is acknowledged, and
settles the head. Migrations close (seal) heads in the same way; after a cancellation, the next append opens them.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Iterable
from itertools import groupby
from threading import Event, Lock
from typing import TYPE_CHECKING, Any, Final

from reconciler.archives.pages import PagedEntries, iter_all_entries, iter_all_pages
from reconciler.embedded.catalog.model import TopicEntry
from reconciler.embedded.catalog.tables import (
    SEAL,
    Catalog,
    build_seal_writer,
    check_not_replica,
    check_served,
    find_topic_by_id,
)
from reconciler.embedded.segments.groups import clamp_groups
from reconciler.embedded.segments.head import (
    NOBODY,
    PRODUCERS,
    REPLICA,
    Head,
    PageWriter,
    build_link_writer,
    changes_mirroring,
    head_register,
    parse_head,
    parse_head_unchecked,
    replace_writer,
)
from reconciler.embedded.segments.rewrites import AppendEncryption
from reconciler.errors import UnansweredError, UserError
from reconciler.objectstore.register import PATIENCE_S, Register, RegisterSnapshot, create_mark
from reconciler.runtime.dataclass import dataclass, field, replace

if TYPE_CHECKING:
    from reconciler.archives.entries import PageRef
    from reconciler.embedded.catalog.commits import CatalogRegister
    from reconciler.objectstore.base import ObjectStore


def remove_partition(store: ObjectStore, topic_id: str, partition: int) -> None:
    """Seal a head, then delete its objects and the head; a retry deletes the rest."""
    register = head_register(store, topic_id, partition)

    def seal(held: RegisterSnapshot | None) -> dict[str, Any] | None:
        if held is None or held.value.get("writer") == NOBODY:
            return None
        return {**held.value, "writer": NOBODY}

    held = register.update(seal, mark=create_mark(), raises_epoch=True)
    if held is None:
        return
    delete_referenced_objects(store, parse_head_unchecked(store, register.key, held.value))
    store.delete([register.key])


def delete_referenced_objects(store: ObjectStore, held: PagedEntries) -> None:
    """Delete all objects that a head or manifest references, lower pages first."""
    store.delete(entry.key for entry in iter_all_entries(store, held, skips_missing=True))
    for pages in _group_by_level(iter_all_pages(store, held, skips_missing=True)):
        store.delete(page.key for page in pages)


def _group_by_level(pages: Iterable[PageRef]) -> list[list[PageRef]]:
    ordered = sorted(pages, key=lambda page: page.level)
    return [list(group) for _, group in groupby(ordered, key=lambda page: page.level)]


Json = dict[str, Any]


def find_writer(topic: TopicEntry) -> str:
    """Return the writer that the catalog allows for a topic."""
    if topic.hold is not None and topic.hold.is_closed:
        return build_seal_writer(topic.hold.migration)
    if topic.replica is not None:
        return REPLICA
    return PRODUCERS if topic.active_mirror is None else build_link_writer(topic.active_mirror.link_id)


_HEADS_LIMIT: Final = 128


@dataclass(frozen=True, slots=True)
class RecentHead:
    """A head that this process swapped; others may have swapped it since."""

    held: RegisterSnapshot
    head: Head


@dataclass(slots=True, eq=False)
class PendingAppend:
    """A thread's append and its result."""

    extend: Callable[[Head, int], Head | None]
    mark: str
    patience_s: float
    turn: Event = field(default_factory=Event)
    is_done: bool = False
    error: Exception | None = None


@dataclass(eq=False)
class RecentHeads:
    """Heads that this process swapped last, and waiting appends per partition. Thread-safe."""

    _heads: OrderedDict[str, RecentHead] = field(default_factory=OrderedDict)
    _lines: dict[object, list[PendingAppend]] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)
    _process: int = field(default_factory=os.getpid)

    def __reduce__(self) -> tuple[type[RecentHeads], tuple[()]]:
        """Pickle without heads, which only this process can use."""
        return RecentHeads, ()

    def get(self, key: str) -> RecentHead | None:
        """Return the last swapped head."""
        with self._get_process_lock():
            return self._heads.get(key)

    def put(self, key: str, recent: RecentHead | None) -> None:
        """Store a head; `None` removes it."""
        with self._get_process_lock():
            self._heads.pop(key, None)
            if recent is not None:
                self._heads[key] = recent
            if len(self._heads) > _HEADS_LIMIT:
                self._heads.popitem(last=False)

    def append_in_turn(self, line: object, ours: PendingAppend, do: Callable[[list[PendingAppend]], None]) -> None:
        """Wait in the queue `line` until another thread has done the append, or do all waiting ones.

        Raises:
            UnansweredError: Another thread took too long.
        """
        try:
            self.join_queue(line, ours)
            if not ours.turn.wait(ours.patience_s):
                message = "another thread of this process has been appending to the same partition for too long"
                raise UnansweredError(message, hint="Try again: what was written is found there.")
            if not ours.is_done:
                do(self._list_waiting(line))
        finally:
            self.leave_queue(line, ours)

    def join_queue(self, line: object, ours: PendingAppend) -> None:
        """Add an append to a queue; the first has its turn at once."""
        with self._get_process_lock():
            waiting = self._lines.setdefault(line, [])
            waiting.append(ours)
            if waiting[0] is ours:
                ours.turn.set()

    def leave_queue(self, line: object, ours: PendingAppend) -> None:
        """Remove an append from a queue; wake finished appends and the next waiting one."""
        with self._get_process_lock():
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
        with self._get_process_lock():
            return [one for one in self._lines[line] if not one.is_done]

    def _get_process_lock(self) -> Lock:
        """A forked child starts empty, without its parent's threads."""
        if self._process != os.getpid():
            self._heads, self._lines, self._lock, self._process = OrderedDict(), {}, Lock(), os.getpid()
        return self._lock


@dataclass(frozen=True, slots=True)
class AppendGate:
    """Appends of one writer to one topic."""

    store: ObjectStore
    catalog: CatalogRegister
    full_name: str
    topic_id: str
    writer: str
    recent: RecentHeads = field(default_factory=RecentHeads)

    def append_to_head(
        self, partition: int, extend: Callable[[Head, int], Head | None], *, mark: str, patience_s: float | None = None
    ) -> None:
        """Append to a partition by one swap, which other threads may share.

        `extend` gets the head and its epoch, and returns the new head or `None` for no change. It runs again after a
        lost race, maybe on another thread, so it must recognise records already appended.

        Raises:
            UnansweredError: No answer came in time; the outcome is unknown.
        """
        ours = PendingAppend(extend, mark, PATIENCE_S if patience_s is None else patience_s)
        line = self.topic_id, partition, self.full_name, self.writer
        self.recent.append_in_turn(line, ours, lambda wanted: self._append_group(partition, _SharedSwap(wanted)))
        if ours.error is not None:
            raise ours.error

    def _append_group(self, partition: int, group: _SharedSwap) -> None:
        try:
            self._swap(partition, group)
        except Exception as error:  # noqa: BLE001 - raised in every thread whose append it was
            group.fail_appends(error)
        else:
            group.finish_appends()

    def _swap(self, partition: int, group: _SharedSwap) -> None:
        register = head_register(self.store, self.topic_id, partition)
        spill = PageWriter(self.store, self.topic_id, partition)
        keys = AppendEncryption(self.store, self.catalog, self.topic_id, partition)
        recent = self.recent.get(register.key)
        # The cached head is dropped, since an update that raises may still succeed.
        self.recent.put(register.key, None)
        tried: list[_SwapAttempt] = []

        def change(held: RegisterSnapshot | None) -> Json | None:
            before = self._current_head(partition, register.key, held, recent)
            after = group.extend_head(before, held)
            spilled = (
                None
                if after is None
                else spill.spill_entries(keys.encrypt_appended(None if held is None else before, after))
            )
            tried.append(_SwapAttempt(spilled, None if spilled is None else spilled.to_json()))
            return tried[-1].value

        held = register.update(
            change, mark=group.mark, patience_s=group.patience_s, known=None if recent is None else recent.held
        )
        if held is not None and group.is_shared and held.value is not tried[-1].value:
            # An earlier attempt got no answer, but succeeded; its offsets apply.
            group.extend_head(parse_head(self.store, register.key, held.value), held)
        left = _find_own_swap(tried, held)
        if held is not None and not held.value["is_settled"]:
            catalog = self._confirm_topic(partition)
            keys.mark_outdated_key(catalog, held.value.get("kms_key_id"))
            left = self._settle_head(register, held, left, catalog)
        self.recent.put(register.key, left)

    def _current_head(self, partition: int, key: str, held: RegisterSnapshot | None, recent: RecentHead | None) -> Head:
        if held is None:
            self._clamp_unwritten_groups(partition)
            return Head(self.writer)
        is_known = recent is not None and held is recent.held
        head = recent.head if recent is not None and is_known else parse_head(self.store, key, held.value)
        return self._take_over_head(partition, head)

    def _take_over_head(self, partition: int, head: Head) -> Head:
        if head.writer == self.writer and head.is_settled:
            return head
        self._check_topic(self.catalog.read())
        if head.writer.startswith(SEAL):
            # The catalog allows this writer, so the sealing migration was cancelled.
            return replace(head, writer=self.writer, is_settled=True)
        if changes_mirroring(head.writer, self.writer):
            # The process that committed this writer died before it changed the head; otherwise this swap fails.
            self._clamp_groups(partition, head.end)
            replace_writer(self.store, (self.topic_id, partition), self.writer, makes=False)
            return replace(head, writer=self.writer, is_settled=True)
        if head.writer != self.writer:
            raise UserError(
                f"{self.full_name} accepts no records now: {head.writer} may write", hint="Try again later."
            )
        return replace(head, is_settled=True)

    def _clamp_unwritten_groups(self, partition: int) -> None:
        topic = find_topic_by_id(self.catalog.get_cached(), self.topic_id, self.full_name)
        if topic is not None and topic.mirror is not None:
            self._clamp_groups(partition, 0)

    def _clamp_groups(self, partition: int, end: int) -> None:
        if self.writer == PRODUCERS:
            clamp_groups(self.store, self.topic_id, {partition: end})

    def _confirm_topic(self, partition: int) -> Catalog:
        """Return the catalog, read after the head exists; delete the partition if its topic is gone."""
        catalog = self.catalog.read()
        topic = find_topic_by_id(catalog, self.topic_id, self.full_name)
        if topic is None:
            remove_partition(self.store, self.topic_id, partition)
        elif topic.active_mirror is not None and self.writer == PRODUCERS:
            # The topic has become a mirror, so its link takes over the head with the appended records.
            return catalog
        self._check_topic(catalog)
        return catalog

    def _settle_head(
        self, register: Register, held: RegisterSnapshot, left: RecentHead | None, catalog: Catalog
    ) -> RecentHead | None:
        """Settle the head, which would look abandoned if an older catalog were restored."""
        topic = find_topic_by_id(catalog, self.topic_id, self.full_name)
        if topic is None or find_writer(topic) != self.writer:
            return left
        settled = {**held.value, "is_settled": True}

        def settle(current: RegisterSnapshot | None) -> Json | None:
            if current is held:
                return settled
            is_ours = current is not None and (current.epoch, current.value["writer"]) == (held.epoch, self.writer)
            # Another process may have changed the head's writer.
            return (
                {**current.value, "is_settled": True}
                if current and is_ours and not current.value["is_settled"]
                else None
            )

        after = register.update(settle, mark=create_mark(), known=held)
        if after is None or after.value is not settled or left is None:
            return None
        return RecentHead(after, replace(left.head, is_settled=True))

    def _check_topic(self, catalog: Catalog) -> None:
        topic = find_topic_by_id(catalog, self.topic_id, self.full_name)
        if topic is None:
            raise missing_topic_error(self.full_name)
        check_writer(self.full_name, topic, self.writer)


def missing_topic_error(full_name: str) -> UserError:
    """Return the error for a write to a missing topic."""
    hint = "Nothing was written. See whether it is unmounted: reconciler mount list"
    return UserError(f"topic {full_name} was deleted or unmounted", hint=hint)


class _SharedSwap:
    def __init__(self, wanted: list[PendingAppend]) -> None:
        self._wanted = wanted
        self._refused: dict[int, Exception] = {}
        """Errors of the last attempt, by position."""
        self.mark = wanted[0].mark if len(wanted) == 1 else create_mark()
        self.patience_s = min(one.patience_s for one in wanted)

    @property
    def is_shared(self) -> bool:
        return len(self._wanted) > 1

    def extend_head(self, head: Head, held: RegisterSnapshot | None) -> Head | None:
        if held is None:
            # A new head has one KMS key for all entries, so other appends wait.
            del self._wanted[1:]
        self._refused.clear()
        after = head
        for place, one in enumerate(self._wanted):
            try:
                after = one.extend(after, 0 if held is None else held.epoch) or after
            except Exception as error:  # noqa: BLE001 - raised in the thread whose append it is
                self._refused[place] = error
        return None if after is head else after

    def finish_appends(self) -> None:
        for place, one in self._list_last_first():
            one.error = self._refused.get(place)
            one.is_done = True

    def fail_appends(self, error: Exception) -> None:
        for _, one in self._list_last_first():
            one.error = error
            one.is_done = True

    def _list_last_first(self) -> list[tuple[int, PendingAppend]]:
        """The swapping thread stays first in the queue."""
        return list(enumerate(self._wanted))[::-1]


@dataclass(frozen=True, slots=True)
class _SwapAttempt:
    head: Head | None
    value: Json | None


def _find_own_swap(tried: list[_SwapAttempt], held: RegisterSnapshot | None) -> RecentHead | None:
    """Return the swapped head to cache; `None` if other processes changed it, too."""
    if held is None or len(tried) != 1:
        return None
    only = tried[0]
    return RecentHead(held, only.head) if only.head is not None and held.value is only.value else None


def check_writer(full_name: str, topic: TopicEntry, writer: str) -> None:
    """Reject a writer that does not own the topic."""
    owner = find_writer(topic)
    check_not_replica(full_name, topic, "to write to it")
    if not writer.startswith(SEAL):
        check_served(full_name, topic)
    if owner == writer:
        return
    if topic.active_mirror is not None and owner != NOBODY:
        message = (
            f"{full_name} is a mirror of {topic.active_mirror.source}: only its link writes to it "
            f"(INVALID_REQUEST, Cannot append records to read-only mirror topic '{full_name}')"
        )
        raise UserError(message, hint="Produce to the source, or promote the mirror first.")
    raise UserError(f"{full_name} is not a mirror of that link", hint="Plan again.")
