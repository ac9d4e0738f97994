"""Compaction: of each key the newest record stays, at its offset; of what is deleted a tombstone, for a while.

Closed segments below the last stable offset are cleaned, those of `min.compaction.lag.ms` and older. The newest offset
of every key is learned from the *dirty* part, what lies above `Head.compacted_to`; then both parts are written anew
without what is older. Neighbours become one file of at most `segment.bytes`. Records without a key stay: nothing
supersedes them. Only keys and offsets are held in memory, of about `KEYS` keys; what is beyond waits for the next time.

**Across tiers.** The log is what object storage alone has, `[start, local_start)`, then what lies here. Both are
learned from and cleaned. Remote copies of what lies here too are not touched: what was compacted is uploaded once more.
While a topic uploads, nothing is learned from what is not uploaded yet: object storage alone has the newest value of
each key too, as far as it was ever told. Objects are put first, then one swap of the manifest names those of the remote
part, all or none, and one swap of the head those of the local part, all or none, with `compacted_to`. Whoever dies
before the first swap has changed nothing; before the second, nothing but the remote part. That this is right at any
moment rests on three things:

1. *A record goes only when a later one of its key is in the log.* What supersedes lies at or above `compacted_to` as it
   was read, and leaves the log by nothing but a later record, retention, which takes what is older first, or as a
   tombstone by the second swap of a later pass. So a reader finds the newest value of each key, whatever mix of
   compacted and raw segments it meets.
2. *A tombstone goes only when no older record of its key is left.* It goes once it is due, and becomes due only by a
   horizon that a swap has set. A remote tombstone's older records are all remote: the swap that sets its horizon drops
   them too. A local one's are remote or local: the remote ones went by the first swap, before its horizon was set by
   the second. Older records never come back: whatever is replaced must lie there as it was read, and what was evicted
   since is in the remote tier as it was here (`remote/leaving/evicting.py`), so a run that holds it fits no more.
3. *`compacted_to` rises last.* Below it no key comes twice in either tier. Where the second swap fails, the next pass
   learns the same dirty part again, from wherever it lies by then, and cleans what is left.

**Mirrors** are compacted here, not by their sources: what they hold was copied before the source compacted it. A mirror
is a beginning of its source's log, so what supersedes a record here supersedes it there too, and each may clean before
the other does: offsets stay, and whoever compares both calls such records superseded, not different. A restore cuts a
log's end, and with it what superseded; where that happened it cuts all (`linking/truncating.py`), and what was read of
the log before is not published after it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from reconciler.embedded.keys import index_key
from reconciler.embedded.partition.partfiles import read_keys, read_part
from reconciler.embedded.partition.parts import PartWriter
from reconciler.embedded.partition.rebuilding import Replacement
from reconciler.embedded.partition.replacing import Rewritten, whole_or_gone
from reconciler.embedded.remote.manifests.rewrites import RemoteRewrite, whole_or_deleted
from reconciler.embedded.remote.manifests.segmentfiles import SegmentWriter
from reconciler.embedded.upkeep.cleanable import is_due, to_clean
from reconciler.embedded.upkeep.newest import NewestOffsets
from reconciler.embedded.upkeep.sieving import Sieve, mask, newest_mask
from reconciler.embedded.upkeep.wholelog import is_reached, place_of, remote_entries, whole_segments
from reconciler.records.log import OffsetRange

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from reconciler.embedded.partition.entries import Entry
    from reconciler.embedded.partition.head import Head
    from reconciler.embedded.partition.headswaps import Partition
    from reconciler.embedded.producing.admission import Rules
    from reconciler.embedded.remote.tier import RemoteTier
    from reconciler.embedded.upkeep.cleanup import CleanupPolicy
    from reconciler.embedded.upkeep.segments import Segment
    from reconciler.objectstore.base import ObjectStore

KEYS: Final = 5_000_000
"""As many fit into the 128 MiB that Kafka's cleaner has for them."""


@dataclass(frozen=True, slots=True)
class _Piece:
    """A part that is cleaned, and where it lies."""

    entry: Entry
    store: ObjectStore
    stop: int
    """Its records from here on lie locally too."""
    is_remote: bool


@dataclass(slots=True)
class _Group:
    """Neighbouring parts of one tier that become one file."""

    pieces: list[_Piece]
    bytes: int
    horizon_ms: int | None
    """When the tombstones in it may go; `None`: it has none that stay."""

    @property
    def entries(self) -> list[Entry]:
        """What becomes one file."""
        return [piece.entry for piece in self.pieces]

    @property
    def first(self) -> _Piece:
        """The oldest of them."""
        return self.pieces[0]


class Compaction:
    """One pass over one partition, as its head was read."""

    def __init__(
        self,
        store: ObjectStore,
        partition: Partition,
        policy: CleanupPolicy,
        rules: Rules,
        remote: RemoteTier | None = None,
    ) -> None:
        """Say of which partition, and where its remote part is; nothing is read yet."""
        self._store = store
        self._partition = partition
        self._policy = policy
        self._rules = rules
        self._remote = remote
        self._place = place_of(policy, partition)

    def compacted(self, head: Head, *, now_ms: int) -> Rewritten | None:
        """Write what stays under fresh names, in each tier; `None`: nothing is to be cleaned yet.

        Raises:
            MissingObjectError: A part, a page or the manifest is not there.
            UserError: A part is damaged.
        """
        if not is_reached(head, self._policy, self._remote):
            return None
        there = remote_entries(head, self._place, self._remote)
        clean = to_clean(whole_segments(self._store, head, there, self._policy), head, self._policy, now_ms=now_ms)
        if not clean:
            return None
        pieces = list(self._pieces(clean, there, head.local_start))
        newest, through = self._learned(pieces, head.compacted_to)
        pieces = [piece for piece in pieces if piece.entry.base < through]
        storage = None if self._remote is None else self._remote.storage
        with whole_or_gone(self._store) as here, whole_or_deleted(storage) as far:
            for group in self._groups(pieces, head.compacted_to, now_ms):
                replacement = self._cleaned(group, newest, head.compacted_to, now_ms)
                if replacement is not None:
                    (far if group.first.is_remote else here).append(replacement)
        through = max(through, head.compacted_to)
        return Rewritten(
            self._partition,
            tuple(here),
            through,
            self._remotely(tuple(far), head.epochs[-1][0], through),
            epoch=head.epochs[-1][0],
        )

    def _remotely(self, done: tuple[Replacement, ...], epoch: int, through: int) -> RemoteRewrite | None:
        if not done or self._remote is None or self._place is None or self._policy.tiering is None:
            return None
        cluster_id = self._remote.cluster_id
        tiering = self._policy.tiering
        return RemoteRewrite(self._place, cluster_id, tiering, done, is_whole=True, epoch=epoch, learned_to=through)

    def _pieces(self, clean: Iterable[Segment], remote: Iterable[Entry], local_start: int) -> Iterator[_Piece]:
        there = {entry.key for entry in remote}
        for segment in clean:
            for entry in segment.entries:
                if self._remote is not None and entry.key in there:
                    yield _Piece(entry, self._remote.storage, min(entry.last + 1, local_start), is_remote=True)
                else:
                    yield _Piece(entry, self._store, entry.last + 1, is_remote=False)

    def _learned(self, pieces: Sequence[_Piece], dirty_from: int) -> tuple[NewestOffsets, int]:
        """Return the newest offset of each key of the dirty part, and how far it was read."""
        newest = NewestOffsets()
        for piece in pieces:
            if piece.stop <= dirty_from:
                continue
            for batch in read_keys(piece.store, piece.entry, OffsetRange(dirty_from, piece.stop)):
                offsets = batch.column("offset").to_numpy()
                has_key = batch.column("key").is_valid()
                newest.add(batch.column("key").filter(has_key), offsets[mask(has_key)])
                if newest.is_full(KEYS):
                    return newest, int(offsets[-1]) + 1
        return newest, pieces[-1].stop

    def _groups(self, pieces: Iterable[_Piece], dirty_from: int, now_ms: int) -> Iterator[_Group]:
        """Yield runs of one epoch and tier that fit into a segment and whose tombstones go at the same time."""
        group: _Group | None = None
        for piece in pieces:
            horizon_ms = self._horizon_ms(piece.entry, dirty_from, now_ms)
            if group is not None and self._joins(group, piece, horizon_ms):
                group.pieces.append(piece)
                group.bytes += piece.entry.bytes
                group.horizon_ms = horizon_ms if group.horizon_ms is None else group.horizon_ms
                continue
            if group is not None:
                yield group
            group = _Group([piece], piece.entry.bytes, horizon_ms)
        if group is not None:
            yield group

    def _joins(self, group: _Group, piece: _Piece, horizon_ms: int | None) -> bool:
        return (
            piece.is_remote == group.first.is_remote
            and piece.entry.epoch == group.first.entry.epoch
            and group.bytes + piece.entry.bytes <= self._policy.limits.bytes
            and (horizon_ms is None or group.horizon_ms in {None, horizon_ms})
        )

    def _horizon_ms(self, entry: Entry, dirty_from: int, now_ms: int) -> int | None:
        if entry.horizon_ms is not None:
            return None if is_due(entry, now_ms) else entry.horizon_ms
        return now_ms + self._policy.tombstones_ms if entry.last >= dirty_from else None

    def _cleaned(self, group: _Group, newest: NewestOffsets, dirty_from: int, now_ms: int) -> Replacement | None:
        """Write a group without what is superseded; `None`: all of it stays as it is."""
        first = group.first.entry
        is_alone = len(group.pieces) == 1 and (first.is_segment or group.first.is_remote)
        if is_alone and first.last < dirty_from and not is_due(first, now_ms) and not _loses(group.first, newest):
            return None
        sieve = Sieve(newest)
        entry = self._writer(group).write_one(
            kept
            for piece in group.pieces
            for kept in sieve.kept(
                read_part(piece.store, piece.entry, self._partition.number, _whole(piece.entry)),
                drops_tombstones=is_due(piece.entry, now_ms),
            )
        )
        horizon_ms = group.horizon_ms if sieve.tombstones else None
        if entry is None:
            return Replacement.of(group.entries, [])
        if is_alone and not sieve.dropped:
            group.first.store.delete([entry.key, *([index_key(entry.key)] if group.first.is_remote else [])])
            entry = first
            if entry.horizon_ms == horizon_ms:
                return None
        return Replacement.of(
            group.entries, [replace(entry, epoch=first.epoch, is_segment=True, horizon_ms=horizon_ms)]
        )

    def _writer(self, group: _Group) -> PartWriter:
        if self._place is None or not group.first.is_remote:
            return PartWriter.of(self._store, self._rules, self._partition.number)
        return SegmentWriter.under(group.first.store, self._rules, self._place, group.first.entry.epoch)


def _loses(piece: _Piece, newest: NewestOffsets) -> bool:
    """Tell whether a part has a record that is superseded; reads keys alone."""
    return any(
        not newest_mask(batch, newest).all() for batch in read_keys(piece.store, piece.entry, _whole(piece.entry))
    )


def _whole(entry: Entry) -> OffsetRange:
    return OffsetRange(entry.base, entry.last + 1)
