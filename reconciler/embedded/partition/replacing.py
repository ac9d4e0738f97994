"""Other objects in the place of parts, at the same offsets: one swap replaces exactly the entries that were read.

After a lost race the entries are found again or, where somebody else replaced or removed them, left alone.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from reconciler.embedded.partition.entries import STALE_MS
from reconciler.embedded.partition.headswaps import swap_head
from reconciler.embedded.partition.rebuilding import Gain, Rebuilding, Replacement
from reconciler.embedded.partition.spilling import TAIL, Spill

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from reconciler.embedded.partition.entries import Entry, PageRef
    from reconciler.embedded.partition.head import Head
    from reconciler.embedded.partition.headswaps import Partition
    from reconciler.embedded.remote.manifests.rewrites import RemoteRewrite
    from reconciler.objectstore.base import ObjectStore


@dataclass(frozen=True, slots=True)
class Rewritten:
    """What was written of one partition: durable, and named by nobody yet. Picklable."""

    partition: Partition
    replacements: tuple[Replacement, ...]
    compacted_to: int | None = None
    """Of a compaction: how far it went. It is published whole or not at all."""
    remote: RemoteRewrite | None = None
    """What was written of its remote tier: published first, and nothing else where that does not hold."""
    changes_key: bool = False
    """Of a rewrite: it brings parts under another key; what else is written has to lie under the one that holds."""
    epoch: int = 0
    """Of a compaction: the newest the log had when it was read. What it removed may be superseded by nothing any more
    where the log's end was cut since."""

    def is_under(self, kms_key_id: str | None) -> bool:
        """Tell whether all that was written lies under the key its partition was brought under last."""
        written = {key for one in self.replacements for key in one.written}
        added = (entry for one in self.replacements for entry in one.added if entry.key in written)
        return all(entry.kms_key_id == kms_key_id for entry in added)

    def gain(self, holding: Iterable[Replacement]) -> Gain:
        """Sum up what holds."""
        before = [one for one in holding if one.written or self.compacted_to is not None]
        after = [entry for one in before for entry in one.added] if self.compacted_to is not None else []
        records = sum(one.records for one in before) - sum(entry.digest.records for entry in after)
        return Gain(records, sum(one.bytes for one in before) - sum(entry.bytes for entry in after))


@contextmanager
def whole_or_gone(store: ObjectStore) -> Iterator[list[Replacement]]:
    """Give a list for what is written; where the block fails, what is in it is deleted: nobody will name it."""
    done: list[Replacement] = []
    try:
        yield done
    except BaseException:
        store.delete([key for one in done for key in one.written])
        raise


def publish_rewritten(
    store: ObjectStore, rewritten: Rewritten, *, put_ms: int, now_ms: Callable[[], int]
) -> Gain | None:
    """Put what was written in its place by one swap, then delete what has become superfluous.

    `put_ms`: since when it may have lain there, by the clock `now_ms`. Return what came of it; `None`: nothing.

    Raises:
        MissingObjectError: A page is not there.
        LostRaceError: Others were faster every time.
    """
    change: _Change | None = None
    written: list[str] = []

    def changed(head: Head) -> Head | None:
        nonlocal change
        change = None
        if now_ms() - put_ms > STALE_MS or not (rewritten.changes_key or rewritten.is_under(head.kms_key_id)):
            return None
        found = _Change(store, rewritten, head)
        after = found.after()
        written.extend(found.written)
        if after is not None:
            change = found
        return after

    if not swap_head(store, rewritten.partition, changed):
        change = None  # What an earlier attempt decided does not hold.
    holding = () if change is None else change.holding
    named = () if change is None else change.written
    dropped = [key for one in rewritten.replacements if one not in holding for key in one.written]
    unnamed = [key for key in written if key not in named]
    store.delete([*(() if change is None else change.superfluous), *unnamed, *dropped])
    return None if change is None else rewritten.gain(holding)


class _Change:
    """What becomes of one head that was found."""

    def __init__(self, store: ObjectStore, rewritten: Rewritten, head: Head) -> None:
        self._rewritten = rewritten
        self._head = head
        self._spill = Spill(store, rewritten.partition.topic_id, rewritten.partition.number)
        self._rebuilding = Rebuilding(store, head, head.local_start, rewritten.replacements)
        self.holding = self._rebuilding.holding

    @property
    def written(self) -> tuple[str, ...]:
        """The pages written for it."""
        return self._spill.keys

    @property
    def superfluous(self) -> list[str]:
        """What is named no more once it holds: parts, then pages, each after those below it."""
        return [entry.key for entry in self._rebuilding.replaced] + self._rebuilding.gone_pages

    def after(self) -> Head | None:
        """Return the head as it shall be; `None`: nothing of it is to be changed."""
        compacted_to = self._rewritten.compacted_to
        if compacted_to is None:
            return self._rebuilt() if self.holding else None
        is_whole = len(self.holding) == len(self._rewritten.replacements)
        if not is_whole or compacted_to > self._head.end or self._head.truncated_in > self._rewritten.epoch:
            return None
        head = self._rebuilt() if self.holding else self._head
        return replace(head, compacted_to=max(head.compacted_to, compacted_to))

    def _rebuilt(self) -> Head:
        pages, entries = self._rebuilding.rebuilt(self._leaves, tail=TAIL)
        return replace(self._head, pages=self._spill.packed(pages), entries=entries)

    def _leaves(self, entries: Sequence[Entry]) -> list[PageRef]:
        return [self._spill.leaf(entries[at : at + TAIL]) for at in range(0, len(entries), TAIL)]
