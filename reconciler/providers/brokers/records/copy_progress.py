"""Progress and offset map of a copy, stored in the ledger, the map in chunks."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from reconciler.providers.brokers.ledger import (
    LINK_ENTRY,
    MAP,
    MIRROR_ENTRY,
    PROGRESS,
    Entries,
    LedgerReader,
    encode_entry,
    map_key,
    parse_key,
    progress_key,
)
from reconciler.records.log import Bounds, SinkPosition
from reconciler.records.offset_map import Chunk, OffsetMap, Piece, append_pieces, parse_chunk
from reconciler.runtime.dataclass import dataclass, field, replace

_NO_CHUNK: Final = Chunk()
_NOT_COPIED: Final = frozenset({"STOPPED", "CREATING"})


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of a partition. Source offsets below `through` are copied; `last` is the last chunk of its map."""

    through: int = 0
    topic_id: str | None = None
    epochs: tuple[tuple[int, int], ...] = ()
    last: Chunk = _NO_CHUNK
    copy_id: str | None = None
    """Id of the target topic. Progress of a deleted topic of the same name is invalid."""
    newest_ms: int | None = None
    """Latest timestamp of a copied record in ms. Brokers cannot report it, because they include transaction markers."""
    commits: int | None = None
    """Number of transactions with records; `None` if an earlier version wrote some."""

    @property
    def reached(self) -> SinkPosition:
        """Position of a copy job in source offsets."""
        return SinkPosition(self.through, self.topic_id, self.epochs, self.through)

    @property
    def written_end(self) -> int:
        """Target offset after the last written record, or 0."""
        return 0 if self.commits == 0 or not self.last.pieces else self.last.pieces[-1].target_end

    def to_document(self) -> dict[str, Any]:
        """Return the ledger document, without the map's last chunk."""
        epochs = [list(epoch) for epoch in self.epochs]
        document = {
            "through": self.through,
            "topic_id": self.topic_id,
            "epochs": epochs,
            "chunk": self.last.number,
            "copy_id": self.copy_id,
        }
        more = {"newest_ms": self.newest_ms, "commits": self.commits}
        return document | {name: value for name, value in more.items() if value is not None}


@dataclass(frozen=True, slots=True)
class SourceSnapshot:
    """Source of a partition before a copy."""

    topic_id: str | None
    bounds: Bounds

    def list_epochs_below(self, offset: int) -> tuple[tuple[int, int], ...]:
        """Return the (leader epoch, first offset) pairs that begin below an offset."""
        return tuple((epoch, start) for epoch, start in self.bounds.epochs if start < offset)


def advance_progress(
    before: Progress, through: int, pieces: Iterable[Piece], source: SourceSnapshot
) -> tuple[Progress, Sequence[Chunk]]:
    """Return the progress after a transaction, and the map chunks to write."""
    chunks = append_pieces(before.last, pieces)
    last = chunks[-1] if chunks else before.last
    epochs = source.list_epochs_below(through)
    commits = None if before.commits is None else before.commits + bool(chunks)
    after = replace(before, through=through, topic_id=source.topic_id, epochs=epochs, last=last, commits=commits)
    return after, chunks


def build_ledger_messages(
    topic: str, partition: int, progress: Progress, chunks: Iterable[Chunk]
) -> list[tuple[bytes, bytes | None]]:
    """Return a transaction's ledger records."""
    written = [encode_entry(map_key(topic, partition, chunk.number), chunk.to_document()) for chunk in chunks]
    return [*written, encode_entry(progress_key(topic, partition), progress.to_document())]


def parse_offset_map(entries: Entries, topic: str, partition: int) -> OffsetMap:
    """Return a partition's map from entries of the kinds `PROGRESS` and `MAP`."""
    known = entries.get(progress_key(topic, partition), {})
    last = -1 if known.get("commits") == 0 else known.get("chunk", -1)
    stored = {int(key[3]): value for key, value in entries.items() if key[:3] == (MAP, topic, partition)}
    chunks = [parse_chunk(number, value) for number, value in stored.items() if number <= last]
    return OffsetMap(chunks, known.get("through", 0))


@dataclass
class ProgressReader:
    """Incremental reader of the progress of one topic's copy."""

    reader: LedgerReader
    topic: str
    link: str | None = None
    state_changes: int = 0
    has_ended: bool = False
    """Whether mirroring has ended or has not begun, so nothing may be copied."""
    _progress: dict[int, Mapping[str, Any]] = field(default_factory=dict)
    _last: dict[int, Chunk] = field(default_factory=dict)

    def read(self) -> None:
        """Read entries committed since the last read."""
        for name, value in self.reader.read_new(self._clear_cached_progress):
            if (key := parse_key(name)) is not None:
                self._apply_entry(key, value)

    def find_progress(self, partition: int) -> Progress | None:
        """Return a partition's progress; `None` if nothing was copied."""
        entry = self._progress.get(partition)
        if entry is None:
            return None
        epochs = tuple((int(epoch), int(start)) for epoch, start in entry["epochs"])
        # If nothing was committed, the last chunk belongs to a deleted topic of the same name.
        last = _NO_CHUNK if entry.get("commits") == 0 else self._last.get(partition, _NO_CHUNK)
        return Progress(
            entry["through"],
            entry["topic_id"],
            epochs,
            last,
            entry.get("copy_id"),
            newest_ms=entry.get("newest_ms"),
            commits=entry.get("commits"),
        )

    def list_progress(self, only: Collection[int] | None = None) -> dict[int, Progress]:
        """Return the progress by partition; `only` limits the partitions."""
        by_partition = {
            number: self.find_progress(number) for number in self._progress if only is None or number in only
        }
        return {number: progress for number, progress in by_partition.items() if progress is not None}

    def preload(self, known: Mapping[int, Progress]) -> None:
        """Set the progress below this reader's first offset, which another process has read."""
        for number, progress in known.items():
            self._progress[number] = progress.to_document()
            self._last[number] = progress.last

    def _apply_entry(self, key: tuple[Any, ...], value: bytes | None) -> None:
        if key in {(MIRROR_ENTRY, self.topic), (LINK_ENTRY, self.link)}:
            self.state_changes += 1
        if key == (MIRROR_ENTRY, self.topic):
            self.has_ended = value is None or json.loads(value).get("state") in _NOT_COPIED
        if key[0] not in {PROGRESS, MAP} or key[1] != self.topic:
            return
        number = int(key[2])
        if key[0] == PROGRESS:
            if value is None:
                self._progress.pop(number, None)
                self._last.pop(number, None)
            else:
                self._progress[number] = json.loads(value)
        elif value is None:
            # The new map of a restored mirror must not continue the removed chunk.
            if number in self._last and self._last[number].number == int(key[3]):
                del self._last[number]
        else:
            # A transaction writes the last chunk of the map last.
            self._last[number] = parse_chunk(int(key[3]), json.loads(value))

    def _clear_cached_progress(self) -> None:
        self.state_changes += 1
        self._progress.clear()
        self._last.clear()


def open_progress(
    settings: Mapping[str, Any], cluster: str, topic: str, link: str | None, start: int = 0
) -> ProgressReader:
    """Return a reader of the ledger that starts at an offset."""
    return ProgressReader(LedgerReader(settings, cluster, start), topic, link)
