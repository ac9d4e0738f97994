"""The records of one topic of an embedded cluster, as a `TopicLog`. Picklable: an executor opens the store anew."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from reconciler.embedded.access.operations import Kind, Operation
from reconciler.embedded.access.permissions import SUPER_USER, Permissions
from reconciler.embedded.catalog.lookups import name_with_id, topic_with_id
from reconciler.embedded.clusterfile import check_shared
from reconciler.embedded.partition.head import read_bounds, read_head
from reconciler.embedded.partition.pages import entries_within
from reconciler.embedded.partition.partfiles import read_part, read_times
from reconciler.errors import MissingObjectError, UserError
from reconciler.records.hashing import digest_of
from reconciler.records.log import Extent, OffsetRange

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa

    from reconciler.embedded.catalog.commits import CatalogRegister
    from reconciler.embedded.partition.entries import Entry
    from reconciler.embedded.partition.head import Head
    from reconciler.objectstore.base import ObjectStore
    from reconciler.records.digest import Digest
    from reconciler.records.log import Bounds, Isolation

_LOOKS: Final = 3
"""How often a head is read again that names an object which is not there, before that is believed."""


@dataclass(frozen=True, slots=True)
class EmbeddedLog:
    """One topic. It keeps to the topic's id: a topic of the same name made later is another log."""

    store: ObjectStore
    catalog: CatalogRegister
    full_name: str
    topic_id: str
    permissions: Permissions = SUPER_USER
    """Whose reads these are: held to the rules as they were when this process last read the catalog."""
    isolation: Isolation = "read_committed"

    def check_shared(self) -> None:
        """Refuse a machine that does not see the cluster.

        Raises:
            UserError: The topic is not found from here.
        """
        found = topic_with_id(self.catalog.read(), self.topic_id, self.full_name)
        check_shared(self.store, self.full_name, is_found=found is not None)

    def bounds(self) -> Mapping[int, Bounds]:
        """Return every partition's bounds: the catalog, one listing, one GET for each partition ever written.

        Raises:
            UserError: The topic is gone.
            NotAuthorizedError: It may not be described.
        """
        topic = topic_with_id(self.catalog.read(), self.topic_id, self.full_name)
        self._check(Operation.DESCRIBE)
        if topic is None:
            raise UserError(f"topic {self.full_name} was deleted", hint="Its records are gone with it.")
        return read_bounds(self.store, self.topic_id, topic.partitions)

    def read(self, partition: int, offsets: OffsetRange) -> Iterator[pa.RecordBatch]:
        """Yield what is readable in `offsets`, in offset order, as batches of `RECORD_SCHEMA`.

        Raises:
            MissingObjectError: A part or page is not there; the message says which offsets lay in it.
        UserError: It is damaged; as above.
            NotAuthorizedError: It may not be read.
        """
        self._check(Operation.READ)
        at, looks = offsets.start, 0
        while True:
            head = self.head(partition)
            if head is None:
                return
            rest = OffsetRange(max(at, head.start), self._stop(head, offsets))
            try:
                for entry in entries_within(self.store, head, rest):
                    for batch in read_part(self.store, entry, partition, rest):
                        yield batch
                        at, looks = batch.column("offset")[-1].as_py() + 1, 0
            except MissingObjectError as error:
                # A running job may have put another object in its place and deleted it: the head tells.
                looks += 1
                if looks == _LOOKS:
                    raise MissingObjectError(self._said(partition, error), hint=error.hint) from error
            except UserError as error:
                raise UserError(self._said(partition, error), hint=error.hint) from error
            else:
                return

    def extents(self, partition: int, offsets: OffsetRange) -> Iterator[Extent]:
        """Yield how `offsets` is stored: one extent a part, cut at both ends; reads no records."""
        self._check(Operation.DESCRIBE)
        for entry, cut in self.stretches(partition, offsets):
            length = entry.last + 1 - entry.base
            yield Extent(cut, entry.digest.records * cut.length // length, entry.bytes * cut.length // length)

    def digests(self, partition: int, offsets: OffsetRange) -> Iterator[Digest]:
        """Yield digests that together cover `offsets`, absolute: kept ones for whole parts, read ones at the ends."""
        self._check(Operation.READ)
        for entry, cut in self.stretches(partition, offsets):
            if entry.is_within(cut):
                yield entry.digest.shifted(entry.base)
            else:
                for batch in self.read(partition, cut):
                    yield digest_of(batch, base=0)

    def offset_for_time(self, partition: int, timestamp_ms: int) -> int | None:
        """Return the first offset whose record is at or after a time; `None` where all are older."""
        self._check(Operation.DESCRIBE)
        for look in range(1, _LOOKS + 1):
            try:
                return self._offset_for_time(partition, timestamp_ms)
            except MissingObjectError as error:
                if look == _LOOKS:
                    raise MissingObjectError(self._said(partition, error), hint=error.hint) from error
            except UserError as error:
                raise UserError(self._said(partition, error), hint=error.hint) from error
        return None

    def _offset_for_time(self, partition: int, timestamp_ms: int) -> int | None:
        head = self.head(partition)
        if head is None:
            return None
        readable = OffsetRange(head.start, head.bounds.readable_end(self.isolation))
        for entry in entries_within(self.store, head, readable, since_ms=timestamp_ms):
            times = read_times(self.store, entry)
            is_late = times.column("timestamp_ms").to_numpy() >= timestamp_ms
            deltas = times.column("offset_delta").to_numpy()[is_late]
            later = deltas[deltas + entry.base >= head.start]
            if len(later):
                return entry.base + int(later[0])
        return None

    def entries(self, head: Head, offsets: OffsetRange) -> Iterator[Entry]:
        """Yield the parts a head has for what is readable of a range, oldest first."""
        return entries_within(self.store, head, OffsetRange(max(offsets.start, head.start), self._stop(head, offsets)))

    def stretches(self, partition: int, offsets: OffsetRange) -> Iterator[tuple[Entry, OffsetRange]]:
        """Yield the parts that hold what is readable of a range, oldest first, and which offsets of each lie in it.

        No offset comes twice, also where upkeep puts other parts in their place meanwhile.

        Raises:
            MissingObjectError: A page is not there.
        """
        at, looks = offsets.start, 0
        while True:
            head = self.head(partition)
            if head is None:
                return
            stop = self._stop(head, offsets)
            try:
                for entry in self.entries(head, OffsetRange(at, stop)):
                    yield entry, OffsetRange(max(entry.base, at, head.start), min(entry.last + 1, stop))
                    at, looks = entry.last + 1, 0
            except MissingObjectError:
                looks += 1
                if looks == _LOOKS:
                    raise
            else:
                return

    def head(self, partition: int) -> Head | None:
        """Return a partition's head; `None` where nothing was ever written."""
        return read_head(self.store, self.topic_id, partition)

    def _check(self, operation: Operation) -> None:
        if not self.permissions.is_super_user:
            catalog = self.catalog.known()
            name = name_with_id(catalog, self.topic_id, self.full_name)
            self.permissions.check(catalog, operation, Kind.TOPIC, name)

    def _said(self, partition: int, error: UserError) -> str:
        return f"{self.full_name}, partition {partition}: {error.message}"

    def _stop(self, head: Head, offsets: OffsetRange) -> int:
        return min(offsets.stop, head.bounds.readable_end(self.isolation))
