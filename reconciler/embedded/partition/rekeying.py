"""What an append brings lies under the key its topic had when it was written: here it is seen that it still has it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from reconciler.embedded.catalog.encryption import key_of
from reconciler.embedded.catalog.entries import RewriteEntry
from reconciler.embedded.catalog.lookups import names_by_id
from reconciler.embedded.keys import part_key

if TYPE_CHECKING:
    from reconciler.embedded.catalog.commits import CatalogRegister
    from reconciler.embedded.catalog.tables import Catalog, Draft
    from reconciler.embedded.partition.entries import Entry
    from reconciler.embedded.partition.head import Head
    from reconciler.objectstore.base import ObjectStore


class Rekeying:
    """One append to one partition; a lost race reuses what it copied.

    A head says under which key all of it was brought last. Where what is added lies under that key too, nothing is
    asked; else the catalog tells which holds. Whoever changes a key commits that first and goes through the heads
    then, so one of both sees the other.
    """

    def __init__(self, store: ObjectStore, catalog: CatalogRegister, topic_id: str, partition: int) -> None:
        self._store = store
        self._catalog = catalog
        self._topic_id = topic_id
        self._partition = partition
        self._copied: dict[tuple[str, str | None], str] = {}

    def agreed(self, before: Head | None, after: Head) -> Head:
        """Return the head with what is new in it under the key that holds; a new head is confirmed once it is there."""
        if before is None:
            return replace(after, kms_key_id=after.entries[0].kms_key_id) if after.entries else after
        if all(entry.kms_key_id == before.kms_key_id for entry in after.entries):
            return after
        catalog = self._catalog.read()
        name = names_by_id(catalog, [self._topic_id]).get(self._topic_id)
        if name is None:
            return after
        key = key_of(catalog, name)
        if key != before.kms_key_id:
            self._mark(catalog, key)
        there = {entry.key for entry in before.entries}
        entries = (
            entry if entry.key in there or entry.kms_key_id == key else self._under(entry, name, key)
            for entry in after.entries
        )
        return replace(after, entries=tuple(entries))

    def confirm(self, catalog: Catalog, kms_key_id: str | None) -> None:
        """See that the key a head was made under still holds, by a catalog read after the head was there."""
        name = names_by_id(catalog, [self._topic_id]).get(self._topic_id)
        if name is not None and key_of(catalog, name) != kms_key_id:
            self._mark(catalog, key_of(catalog, name))

    def _mark(self, catalog: Catalog, kms_key_id: str | None) -> None:
        """Have the topic brought under its key, where somebody died before he saw that it is not."""
        if self._topic_id in catalog.rewrites:
            return

        def decide(draft: Draft) -> None:
            name = names_by_id(draft, [self._topic_id]).get(self._topic_id)
            if name is not None and key_of(draft, name) == kms_key_id:
                draft.put_rewrite(self._topic_id, RewriteEntry(name))

        self._catalog.commit(decide)

    def _under(self, entry: Entry, full_name: str, kms_key_id: str | None) -> Entry:
        copied = self._copied.get((entry.key, kms_key_id))
        if copied is None:
            copied = self._copied[entry.key, kms_key_id] = part_key(full_name, self._partition)
            self._store.copy_in(copied, self._store, entry.key, kms_key_id=kms_key_id)
        return replace(entry, key=copied, kms_key_id=kms_key_id)
