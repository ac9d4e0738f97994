"""The head is the gate: whoever it names may append, and nobody else, however they race.

Whoever must stop a writer first commits that to the catalog, then lists the topic's heads and swaps each to the next
epoch. An append swaps the head it read, so it cannot slip past. The first append to a partition makes the head and
reads the catalog before it is acknowledged; an append to a head nobody has settled reads it before its swap.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from reconciler.embedded.deletion import remove_partition
from reconciler.embedded.entries import TopicEntry
from reconciler.embedded.head import NOBODY, PRODUCERS, Head, head_register, link_writer, parse_head
from reconciler.embedded.lookups import topic_with_id
from reconciler.embedded.spilling import Spill
from reconciler.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Callable

    from reconciler.embedded.catalog import Catalog
    from reconciler.embedded.commits import CatalogRegister
    from reconciler.objectstore.base import ObjectStore
    from reconciler.objectstore.register import Held


def writer_of(topic: TopicEntry) -> str:
    """Return who may append to a topic's partitions."""
    return PRODUCERS if topic.mirror is None else link_writer(topic.mirror.link_id)


@dataclass(frozen=True, slots=True)
class Gate:
    """One topic, and the writer that wants to append to it."""

    store: ObjectStore
    catalog: CatalogRegister
    full_name: str
    topic_id: str
    writer: str

    def swap(self, partition: int, extend: Callable[[Head, int], Head | None], *, mark: str) -> Head | None:
        """Append to one partition by one swap and return the head that holds then; `None`: nothing was ever written.

        `extend` gets the head and its epoch and returns what it shall become, `None` for no change; it runs again
        after a lost race. A swap whose answer was lost is recognised by its mark.

        Raises:
            UserError: The topic is gone, or the partition belongs to another writer.
            LostRaceError: Others were faster every time.
        """
        register = head_register(self.store, self.topic_id, partition)
        spill = Spill(self.store, self.topic_id, partition)
        is_new = False

        def change(held: Held | None) -> dict[str, Any] | None:
            nonlocal is_new
            is_new = held is None
            head = (
                Head(self.writer) if held is None else self._settled(parse_head(self.store, register.key, held.value))
            )
            after = extend(head, 0 if held is None else held.epoch)
            return None if after is None else spill.spilled(after).to_json()

        held = register.update(change, mark=mark)
        if held is None:
            return None
        if is_new:
            self._confirm(partition)
        return parse_head(self.store, register.key, held.value)

    def _settled(self, head: Head) -> Head:
        if head.writer == self.writer and head.is_settled:
            return head
        self._check(self.catalog.read())
        if head.writer != self.writer:
            raise UserError(f"{self.full_name} takes no records now: {head.writer} may write", hint="Try again later.")
        return replace(head, is_settled=True)

    def _confirm(self, partition: int) -> None:
        """Read the catalog after the head is there; where the topic is gone, what was written goes with it."""
        catalog = self.catalog.read()
        if topic_with_id(catalog, self.topic_id, self.full_name) is None:
            remove_partition(self.store, self.topic_id, partition)
        self._check(catalog)

    def _check(self, catalog: Catalog) -> None:
        """Refuse a topic that is gone or belongs to another writer."""
        topic = topic_with_id(catalog, self.topic_id, self.full_name)
        if topic is None:
            raise UserError(f"topic {self.full_name} was deleted", hint="Nothing was written; create it again.")
        check_writer(self.full_name, topic, self.writer)


def check_writer(full_name: str, topic: TopicEntry, writer: str) -> None:
    """Refuse a writer the topic does not belong to.

    Raises:
        UserError: It is a mirror, or no longer one.
    """
    owner = writer_of(topic)
    if owner == writer:
        return
    if topic.mirror is not None and owner != NOBODY:
        message = f"{full_name} is a mirror of {topic.mirror.source}: only its link writes to it"
        raise UserError(message, hint="Produce to the source, or promote the mirror first.")
    raise UserError(f"{full_name} is not a mirror of that link", hint="Plan again.")
