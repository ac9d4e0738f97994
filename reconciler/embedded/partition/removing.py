"""A partition that goes: sealed, then all that its head names, and the head last."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Any

from reconciler.embedded.keys import fresh_mark
from reconciler.embedded.partition.head import NOBODY, head_as_kept, head_register
from reconciler.embedded.partition.pages import all_entries, all_pages

if TYPE_CHECKING:
    from collections.abc import Iterable

    from reconciler.embedded.partition.entries import PageRef
    from reconciler.embedded.partition.pages import Paged
    from reconciler.objectstore.base import ObjectStore
    from reconciler.objectstore.register import Held


def remove_partition(store: ObjectStore, topic_id: str, partition: int) -> None:
    """Seal a partition's head, then delete all that it names, and it last: until then its keys can be found again."""
    register = head_register(store, topic_id, partition)

    def seal(held: Held | None) -> dict[str, Any] | None:
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
