"""Objects under another key than their topic's: copied under a fresh name, then named in the old one's place.

A commit that changes a topic's key marks it. Every part says under which key it lies, so the work is found again by
whoever comes next; a reader that misses an object looks at the head again.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from reconciler.embedded.catalog.encryption import key_of
from reconciler.embedded.catalog.holding import is_closed
from reconciler.embedded.catalog.lookups import names_by_id
from reconciler.embedded.keys import part_key
from reconciler.embedded.partition.head import NOBODY, read_head
from reconciler.embedded.partition.headswaps import Partition, swap_head
from reconciler.embedded.partition.pages import all_entries
from reconciler.embedded.partition.rebuilding import Replacement
from reconciler.embedded.partition.replacing import Rewritten, publish_rewritten, whole_or_gone
from reconciler.embedded.upkeep.deletion import each_head, heads_of, raise_first
from reconciler.errors import MissingObjectError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from reconciler.embedded.catalog.commits import CatalogRegister
    from reconciler.embedded.catalog.tables import Draft
    from reconciler.embedded.partition.entries import Entry
    from reconciler.embedded.partition.head import Head
    from reconciler.objectstore.base import ObjectStore

AT_ONCE: Final = 8
"""Objects of one partition copied side by side: the store does the copying, we wait for it."""
CHUNK: Final = 256
"""Objects named by one swap: what is lost when we die."""
_LOOKS: Final = 10
"""How often a partition is gone through whose writers are in the way, before it is left to the next run."""


def finish_rewrites(
    store: ObjectStore, catalog: CatalogRegister, is_stopped: Callable[[], bool] = lambda: False
) -> int:
    """Bring the objects of every marked topic under its key, then take the marks away; return how many are done.

    Raises:
        MissingObjectError: An object that a head names is not there; the topics without such a one are done.
    """
    now = catalog.read()
    closed = {topic.id for topic in now.topics.values() if is_closed(topic)}  # Their migration alone touches them.
    marked = [topic_id for topic_id in now.rewrites if topic_id not in closed]
    names = names_by_id(now, marked)
    keys = {topic_id: key_of(now, name) for topic_id, name in names.items()}

    def rewritten(head: tuple[str, int]) -> bool:
        topic_id, number = head
        return _rewrite(store, Partition(names[topic_id], topic_id, number), keys[topic_id], is_stopped)

    left = each_head(rewritten, heads_of(store, names)) if names else {}
    done = [topic_id for topic_id in marked if topic_id not in left]

    def unmark(draft: Draft) -> None:
        moved = names_by_id(draft, done)
        for topic_id in done:
            # Where the key has changed once more it stays marked.
            is_right = topic_id not in moved or key_of(draft, moved[topic_id]) == keys.get(topic_id)
            if is_right and topic_id in draft.rewrites:
                draft.put_rewrite(topic_id, None)

    after = catalog.commit(unmark) if done else now
    raise_first(left)
    return sum(topic_id not in after.rewrites for topic_id in done)


def _rewrite(store: ObjectStore, partition: Partition, kms_key_id: str | None, is_stopped: Callable[[], bool]) -> bool:
    """Bring all of a partition under a key; say whether it is, and whoever appends knows."""
    for look in range(_LOOKS):
        head = read_head(store, partition.topic_id, partition.number)
        if head is None:
            return True
        if head.writer == NOBODY:
            return False
        try:
            others = [entry for entry in all_entries(store, head) if entry.kms_key_id != kms_key_id]
            for at in range(0, len(others), CHUNK):
                if is_stopped():
                    return False
                _replace(store, partition, others[at : at + CHUNK], kms_key_id)
        except MissingObjectError:
            # Other upkeep may have put another object in its place: the head tells.
            if look == _LOOKS - 1:
                raise
            continue
        if not others and _settled(store, partition, head, kms_key_id):
            return True
    return False


def _replace(store: ObjectStore, partition: Partition, entries: Sequence[Entry], kms_key_id: str | None) -> None:
    put_ms = store.clock_ms()

    def copied(entry: Entry) -> None:
        key = part_key(partition.full_name, partition.number)
        store.copy_in(key, store, entry.key, kms_key_id=kms_key_id)
        done.append(Replacement.of([entry], [replace(entry, key=key, kms_key_id=kms_key_id)]))

    with whole_or_gone(store) as done, ThreadPoolExecutor(AT_ONCE, thread_name_prefix="rewrite") as threads:
        list(threads.map(copied, entries))
    written = Rewritten(partition, tuple(done), changes_key=True)
    publish_rewritten(store, written, put_ms=put_ms, now_ms=store.clock_ms)


def _settled(store: ObjectStore, partition: Partition, seen: Head, kms_key_id: str | None) -> bool:
    """Let the head say that all of it lies under a key; `False`: something has come since it was gone through."""
    if seen.kms_key_id == kms_key_id:
        return True
    pages = {page.key for page in seen.pages}

    def settle(head: Head) -> Head | None:
        is_whole = all(entry.kms_key_id == kms_key_id for entry in head.entries)
        return replace(head, kms_key_id=kms_key_id) if is_whole and pages.issuperset(_keys(head)) else None

    return swap_head(store, partition, settle)


def _keys(head: Head) -> set[str]:
    return {page.key for page in head.pages}
