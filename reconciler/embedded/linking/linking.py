"""One cluster's side of links and mirrors: every call is durable before it returns, and may be made again."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from reconciler.embedded.catalog.lookups import topic_named
from reconciler.embedded.catalog.mirroring import (
    Peer,
    advance,
    aim,
    ask_mirror,
    join_peer,
    set_begins,
    set_link_trouble,
    set_task_trouble,
    set_trouble,
    under_way,
)
from reconciler.embedded.linking.clamping import clamp_groups
from reconciler.embedded.linking.grouping import release_groups
from reconciler.embedded.partition.gate import writer_of
from reconciler.embedded.partition.handing import hand_over
from reconciler.embedded.partition.head import NOBODY, PRODUCERS, Head, read_bounds, read_heads
from reconciler.embedded.partition.headswaps import Partition, swap_head
from reconciler.embedded.threads import all_side_by_side, side_by_side
from reconciler.embedded.transactions.finishing import abort, finish
from reconciler.lifecycles.mirror import LinkStatus, MirrorStatus
from reconciler.resources.mirrorstates import FAILOVER, Asked

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from reconciler.embedded.admin import Admin
    from reconciler.embedded.catalog.entries import TopicEntry
    from reconciler.embedded.catalog.tables import Draft
    from reconciler.records.log import Bounds
    from reconciler.resources.linkentries import MirrorEntry, TroubleEntry
    from reconciler.resources.mirroring import Truncated


@dataclass(frozen=True)
class Linking:
    """The links of one cluster. Safe to share between threads. Links and mirrors are the super user's."""

    cluster: Admin
    may_go_on: Callable[[], None] = lambda: None
    """Asked before every write, from any thread; may raise, and whoever comes next goes on."""

    def ask(self, full_name: str, verb: str, *, operation: str = "") -> MirrorEntry:
        """Ask for a verb; a failover is done when it returns, what takes several steps has begun.

        Raises:
            UserError: It is no mirror, or the verb is not legal in its state.
        """
        asked = self._asked(operation)
        after = self._commit(lambda draft: ask_mirror(draft, full_name, verb, asked), f"{verb} mirror {full_name}")
        if verb == FAILOVER:
            self.open_heads(full_name)
        return after

    def join(self, full_name: str, peer: Peer, verb: str, *, operation: str) -> MirrorEntry:
        """Let an ordinary topic become the mirror of its own mirror: nobody appends to it from here on.

        Where groups had got to in it is as if brought: from here on its source has the last word.

        Raises:
            UserError: It is a mirror already, or the link has no half here.
        """
        asked = self._asked(operation)
        after = self._commit(lambda draft: join_peer(draft, full_name, peer, verb, asked), f"mirror over {full_name}")
        self._seal(full_name)
        self.may_go_on()
        release_groups(self.cluster.store, topic_named(self.cluster.catalog.read(), full_name).id)
        return after

    def aim(self, full_name: str, ends: Mapping[int, int], *, operation: str) -> MirrorEntry:
        """Write down where an operation is to end; the first ones count."""
        return self._commit(lambda draft: aim(draft, full_name, operation, ends), f"change mirror {full_name}")

    def advance(self, full_name: str, to: MirrorStatus, *, operation: str) -> MirrorEntry:
        """Let a mirror go to the next state of its operation; one that stops takes records when this returns.

        Raises:
            UserError: Another operation is under way, or the table has no such move.
        """
        asked = self._asked(operation)
        after = self._commit(lambda draft: advance(draft, full_name, to, asked), f"change mirror {full_name}")
        if after.is_stopped:
            self.open_heads(full_name)
        return after

    def open_heads(self, full_name: str) -> None:
        """Hold the groups of a topic whose mirroring is over to its ends, then hand its heads to producers."""
        topic = topic_named(self.cluster.catalog.read(), full_name)
        if topic.follows is not None:
            return  # It is a mirror again.
        heads = read_heads(self.cluster.store, topic.id)
        held = {number: heads.get(number, _UNWRITTEN) for number in range(topic.partitions)}
        self.may_go_on()
        ends = {number: head.end for number, head in held.items() if head.writer != PRODUCERS}
        clamp_groups(self.cluster.store, topic.id, ends)
        self._hand(topic)

    def truncate(self, full_name: str, *, operation: str) -> Mapping[int, Truncated]:
        """Cut what a restore has to cut, and return what was cut off each partition.

        Raises:
            UserError: That operation is not under way.
        """
        from reconciler.embedded.linking.truncating import truncate_topic  # noqa: PLC0415 - brings Arrow

        catalog = self.cluster.catalog.read()
        topic, (_, asked) = topic_named(catalog, full_name), under_way(catalog, full_name, operation)
        cuts = asked.ends or {}
        found = truncate_topic(self.cluster, full_name, cuts, operation, may_go_on=self.may_go_on)
        clamp_groups(self.cluster.store, topic.id, self.ends(full_name))
        return found

    def ends(self, full_name: str) -> dict[int, int]:
        """Return where each partition ends."""
        topic = topic_named(self.cluster.catalog.read(), full_name)
        bounds = read_bounds(self.cluster.store, topic.id, topic.partitions)
        return {number: found.end for number, found in bounds.items()}

    def stand(self, full_name: str, source_topic_id: str, bounds: Mapping[int, Bounds], *, operation: str) -> None:
        """Note in every head that it equals its source, whose bounds these are, up to its own end.

        Raises:
            UserError: That operation is not under way.
        """
        topic = topic_named(self.cluster.catalog.read(), full_name)

        def note(number: int) -> None:
            self.may_go_on()
            epochs = [list(each) for each in bounds[number].epochs]

            def standing(head: Head) -> Head | None:
                # Read after the head: where that operation is over, the head may have got what its source has not.
                under_way(self.cluster.catalog.read(), full_name, operation)
                source = {"topic_id": source_topic_id, "epochs": epochs, "fetched": head.end}
                return None if head.source == source else replace(head, source=source)

            swap_head(self.cluster.store, Partition(full_name, topic.id, number), standing)

        all_side_by_side(note, sorted(bounds), name="stand")

    def begin(self, full_name: str, offsets: Mapping[int, int]) -> MirrorEntry:
        """Write down where a new mirror begins, and let partitions that hold nothing begin there."""
        after = self._commit(lambda draft: set_begins(draft, full_name, offsets), f"change mirror {full_name}")
        topic = topic_named(self.cluster.catalog.read(), full_name)
        begins = {number: offset for number, offset in (after.begins or {}).items() if offset}

        def start(number: int) -> None:
            self.may_go_on()
            place = (topic.id, number)
            hand_over(self.cluster.store, place, writer_of(topic), makes=True)
            swap_head(self.cluster.store, Partition(full_name, *place), lambda head: _begun(head, begins[number]))

        all_side_by_side(start, sorted(begins), name="begin")
        return after

    def set_trouble(
        self, full_name: str, trouble: TroubleEntry | None, *, fails: bool = False, operation: str | None = None
    ) -> None:
        """Note why a mirror, or an operation of it, cannot go on, or that it can again; `fails`: it never will."""
        self._commit(
            lambda draft: set_trouble(draft, full_name, trouble, fails=fails, operation=operation),
            f"change mirror {full_name}",
        )

    def set_link_trouble(self, link: str, status: LinkStatus, trouble: TroubleEntry | None) -> None:
        """Note whether a link reaches its source."""
        self._commit(lambda draft: set_link_trouble(draft, link, status, trouble), f"change link {link}")

    def set_task_trouble(self, link: str, task: str, trouble: TroubleEntry | None) -> None:
        """Note what is wrong with a task of a link, or that nothing is."""
        self._commit(lambda draft: set_task_trouble(draft, link, task, trouble), f"change link {link}")

    def heads(self, full_name: str) -> dict[int, Head]:
        """Return the heads of the partitions that were ever written."""
        return read_heads(self.cluster.store, topic_named(self.cluster.catalog.read(), full_name).id)

    def _asked(self, operation: str) -> Asked:
        return Asked(self.cluster.now_ms(), operation)

    def _commit(self, decide: Callable[[Draft], MirrorEntry | None], what: str) -> MirrorEntry:
        self.cluster.permissions.check_super_user(what)
        found: list[MirrorEntry | None] = []

        def decided(draft: Draft) -> None:
            found[:] = [decide(draft)]  # It decides anew where another commit was faster.

        self.cluster.catalog.commit(decided, may_go_on=self.may_go_on)
        return found[0]  # type: ignore[return-value]  # None only of those that return none

    def _seal(self, full_name: str) -> None:
        """Shut producers out of every partition, those that hold nothing too, and abort what they have open."""
        topic = topic_named(self.cluster.catalog.read(), full_name)
        heads = self._hand(topic)
        opened = {(name, one["epoch"]) for head in heads.values() for name, one in head.transactions.items()}
        for transactional_id, epoch in sorted(opened):
            self.may_go_on()
            abort(self.cluster.store, transactional_id, epoch)
            finish(self.cluster.store, self.cluster.catalog, transactional_id, now_ms=self.cluster.now_ms())

    def _hand(self, topic: TopicEntry) -> dict[int, Head]:
        def hand(number: int) -> Head | None:
            self.may_go_on()
            return hand_over(self.cluster.store, (topic.id, number), writer_of(topic), makes=True)

        found = side_by_side(hand, range(topic.partitions), name="hand")
        return {number: head for number, head in enumerate(found) if head is not None}


_UNWRITTEN: Final = Head(NOBODY)


def _begun(head: Head, offset: int) -> Head | None:
    is_empty = head.end == 0 and not head.entries and not head.pages
    return replace(head, start=offset, local_start=offset, end=offset) if is_empty else None
