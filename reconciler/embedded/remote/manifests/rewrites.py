"""Other objects in the place of remote segments, at the same offsets: one swap of the manifest replaces what was read.

What it names no more becomes garbage in the same swap, and is deleted after it. A reader that misses an object reads
the manifest again. Whoever dies in between leaves garbage, or pages that nobody names, to the next.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import orjson

from reconciler.embedded.keys import index_key
from reconciler.embedded.partition.entries import STALE_MS
from reconciler.embedded.partition.rebuilding import Gain, Rebuilding
from reconciler.embedded.partition.spilling import TAIL
from reconciler.embedded.remote.manifests.manifest import Garbage
from reconciler.embedded.remote.manifests.purging import purge
from reconciler.embedded.remote.manifests.spilling import ManifestSpill
from reconciler.embedded.remote.manifests.swaps import ManifestSwap
from reconciler.errors import MissingObjectError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from reconciler.embedded.catalog.tiering import Tiering
    from reconciler.embedded.partition.entries import Entry, PageRef
    from reconciler.embedded.partition.rebuilding import Replacement
    from reconciler.embedded.remote.manifests.manifest import Manifest, RemotePartition
    from reconciler.objectstore.base import ObjectStore

_LOOKS: Final = 3
"""How often a manifest is read again that names a page which is not there, before that is believed."""


@dataclass(frozen=True, slots=True)
class RemoteRewrite:
    """What was written of one partition in object storage: durable, and named by nobody yet. Picklable."""

    partition: RemotePartition
    cluster_id: str
    """Of the cluster that acts."""
    tiering: Tiering
    """As it was when this was written: under a newer tiered epoch nothing of it is published."""
    replacements: tuple[Replacement, ...]
    is_whole: bool = False
    """Of a compaction: published whole or not at all."""
    epoch: int = 0
    """Of a compaction: the newest that the log had when it was read. A manifest that knows a newer one may be that of
    a log whose end was cut since, and what supersedes is gone."""
    learned_to: int = 0
    """Of a compaction: what supersedes lies below it, in either tier."""

    def gain(self, holding: Iterable[Replacement]) -> Gain:
        """Sum up what holds: of a compaction what it removed, else what was written anew."""
        before = list(holding)
        after = [entry for one in before for entry in one.added] if self.is_whole else []
        records = sum(one.records for one in before) - sum(entry.digest.records for entry in after)
        stored = sum(one.bytes for one in before) - sum(entry.bytes for entry in after)
        return Gain(records, stored, sum(len(one.added) for one in before))


def keys_of(segments: Iterable[str]) -> list[str]:
    """Return the keys of remote segments, each with its index."""
    return [each for key in segments for each in (key, index_key(key))]


@contextmanager
def whole_or_deleted(storage: ObjectStore | None) -> Iterator[list[Replacement]]:
    """Give a list for what is written there; where the block fails, what is in it is deleted: nobody will name it."""
    done: list[Replacement] = []
    try:
        yield done
    except BaseException:
        if storage is not None:
            storage.delete(keys_of(key for one in done for key in one.written))
        raise


def publish_remote(
    storage: ObjectStore, rewrite: RemoteRewrite, *, put_ms: int, now_ms: Callable[[], int]
) -> Gain | None:
    """Put what was written in its place by one swap, what it replaces into the garbage; then delete that.

    `put_ms`: since when it may have lain there, by the clock `now_ms`. Return what came of it; `None`: nothing.

    Raises:
        MissingObjectError: A page is not there.
        OwnershipLostError: The partition belongs to another cluster now.
        LostRaceError: Others were faster every time.
    """
    swap = ManifestSwap(storage, rewrite.cluster_id, rewrite.tiering)
    change = _Change(storage, rewrite, lambda: now_ms() - put_ms > STALE_MS)
    for look in range(1, _LOOKS + 1):
        try:
            after = swap(rewrite.partition, change)
        except MissingObjectError:
            # Others may have put another page in its place: the manifest tells.
            if look == _LOOKS:
                raise
        else:
            break
    holding = () if after is None else change.holding
    dropped = (key for one in rewrite.replacements if one not in holding for key in one.written)
    storage.delete([*change.superfluous(after), *keys_of(dropped)])
    if after is None:
        return None
    purge(swap, rewrite.partition, after.garbage)
    return rewrite.gain(holding)


class _Change:
    """What becomes of a manifest, decided anew after a lost race."""

    def __init__(self, storage: ObjectStore, rewrite: RemoteRewrite, is_stale: Callable[[], bool]) -> None:
        self._storage = storage
        self._rewrite = rewrite
        self._is_stale = is_stale
        self._spill = ManifestSpill(storage, rewrite.partition, rewrite.tiering.spill_bytes)
        self._gone_pages: list[str] = []
        self.holding: tuple[Replacement, ...] = ()

    def __call__(self, manifest: Manifest) -> Manifest | None:
        if self._is_stale():
            return None
        rebuilding = Rebuilding(self._storage, manifest, manifest.start, self._rewrite.replacements)
        self.holding, self._gone_pages = rebuilding.holding, rebuilding.gone_pages
        is_all = len(self.holding) == len(self._rewrite.replacements)
        if not self.holding or (self._rewrite.is_whole and not is_all):
            return None
        if self._rewrite.is_whole and manifest.epochs[-1][0] > self._rewrite.epoch:
            return None
        pages, entries = rebuilding.rebuilt(self._leaves, tail=TAIL)
        garbage = Garbage(manifest.garbage.pages, (*manifest.garbage.entries, *rebuilding.replaced))
        # The head is told only by a later swap, and whoever cuts the log in between has to know of it.
        learned = max(manifest.learned, (self._rewrite.epoch, self._rewrite.learned_to), key=lambda known: known[1])
        return replace(manifest, learned=learned, pages=tuple(pages), entries=entries, garbage=garbage)

    def superfluous(self, after: Manifest | None) -> list[str]:
        """Return the pages nobody names once `after` is the manifest (`None`: it stayed as it was)."""
        return [*(() if after is None else self._gone_pages), *self._spill.superfluous(after)]

    def _leaves(self, entries: Sequence[Entry]) -> list[PageRef]:
        pages: list[PageRef] = []
        taken: list[Entry] = []
        size = 0
        for entry in entries:
            taken.append(entry)
            size += len(orjson.dumps(entry.to_json()))
            if size >= self._rewrite.tiering.spill_bytes:
                pages.append(self._spill.page(taken))
                taken, size = [], 0
        return [*pages, self._spill.page(taken)] if taken else pages
