"""One partition being read: a position that moves on as records are taken, and what was fetched beyond it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconciler.errors import ReconcilerError, UserError
from reconciler.records.log import MAX_OFFSET, OffsetRange

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from reconciler.embedded.partition.log import EmbeddedLog
    from reconciler.records.log import Bounds


class Stream:
    """Reads one partition of a log from `position` on. Not shared between threads."""

    def __init__(self, log: EmbeddedLog, partition: int, position: int, *, is_strict: bool = False) -> None:
        """Read from `position`; `is_strict`: where the log does not have that any more, nobody goes on elsewhere."""
        self.log = log
        self.partition = partition
        self._is_strict = is_strict
        self.position = position
        """The offset of the next record to be taken, or of a gap before it."""
        self._batches: Iterator[pa.RecordBatch] | None = None
        self._rest: pa.RecordBatch | None = None
        self._until = position
        self.epoch: int | None = None
        """The newest that the log had when it was last looked at."""

    def take(self, most: int) -> pa.RecordBatch | None:
        """Return the next records, at most so many; `None` where there are none now.

        Raises:
            UserError: It is strict, and the log does not have its position.
        """
        if self._rest is None:
            self._rest = self._next()
        if self._rest is None:
            return None
        taken, rest = self._rest.slice(0, most), self._rest.slice(most)
        self._rest = rest if rest.num_rows else None
        self.position = taken.column("offset")[-1].as_py() + 1
        return taken

    def seek(self, offset: int) -> None:
        """Go on reading elsewhere; what was fetched is forgotten."""
        self.position, self._batches, self._rest, self.epoch = offset, None, None, None

    def bounds(self) -> Bounds:
        """Return where the partition begins and ends now."""
        return self.log.bounds_of(self.partition)

    def end(self, bounds: Bounds) -> int:
        """Return how far it may be read."""
        return bounds.readable_end(self.log.isolation)

    def _next(self) -> pa.RecordBatch | None:
        if self._batches is None:
            bounds = self.bounds()
            # Of what was read, some may have been cut since: what lies there now is new (KIP-320).
            same_to = MAX_OFFSET if self.epoch is None else bounds.same_to(self.epoch)
            if self._is_strict:
                self._check_within(bounds.start, min(bounds.end, same_to))
            self.position = min(self.position, same_to)
            self.epoch = bounds.epochs[-1][0]
            self._until, self.position = self.end(bounds), max(self.position, bounds.start)
            if self.position >= self._until:
                return None
            self._batches = self.log.read(self.partition, OffsetRange(self.position, self._until))
        try:
            found = next(self._batches, None)
        except ReconcilerError:
            self._batches = None  # it would look read to its end, and what could not be read be left out
            raise
        if found is None:
            # Past a gap at the end: aborted or compacted records are never read, and are not waited for.
            self.position, self._batches = self._until, None
        return found

    def _check_within(self, start: int, end: int) -> None:
        if not start <= self.position <= end:
            where = f"{self.log.full_name}, partition {self.partition}"
            message = f"{where}: offset {self.position} is out of range: what was read is there from offset {start}"
            hint = "Seek to where it is to go on, or let it begin at 'earliest' or 'latest'."
            raise UserError(f"{message} to offset {end}", hint=hint)
