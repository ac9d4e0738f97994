"""The records of one topic of a Kafka cluster, as a `TopicLog`. Picklable: whoever reads opens what it needs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from reconciler.errors import ReconcilerError
from reconciler.providers.kafka.faults import of_code
from reconciler.providers.kafka.offsets import EARLIEST, LATEST, bounds_of, offsets_at, sizes_of
from reconciler.providers.kafka.records import fetching
from reconciler.providers.kafka.records.asking import asking
from reconciler.records.hashing import digest_of
from reconciler.records.log import Extent, OffsetRange

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    import pyarrow as pa
    from confluent_kafka import Message

    from reconciler.providers.kafka.client import KafkaClient
    from reconciler.providers.kafka.metadata import TopicSeen
    from reconciler.records.digest import Digest
    from reconciler.records.log import Bounds, Isolation

_EXTENT_BYTES: Final = 16 << 20
_RECORD_BYTES: Final = 100
"""What a record is taken to need where brokers do not say."""


@dataclass(frozen=True)
class KafkaLog:
    """One topic, by the name its brokers give it.

    `settings` are those of confluent-kafka, `admin` those of kafka-python (for what the other cannot ask); values with
    `reveal` are secrets. `id` is the topic's where it is known: one made later under its name is another topic.
    """

    topic: str
    settings: Mapping[str, Any] = field(repr=False)
    admin: Mapping[str, Any] = field(repr=False)
    cluster: str
    isolation: Isolation = "read_committed"
    id: str | None = None
    _sizes: dict[int, int] = field(default_factory=dict, repr=False, compare=False)
    """Bytes of each partition as they were when extents were first asked for: only estimates come of them."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Travel without what was seen."""
        settings, admin = dict(self.settings), dict(self.admin)
        return type(self), (self.topic, settings, admin, self.cluster, self.isolation, self.id)

    @property
    def topic_id(self) -> str | None:
        """Which topic it is."""
        return self.id or self._seen().id

    def check_shared(self) -> None:
        """Return: brokers are found from everywhere, or reading says why not."""

    def bounds(self, only: Collection[int] | None = None) -> Mapping[int, Bounds]:
        """Return every partition's bounds, or those of some: one request for each kind of offset to each leader.

        Raises:
            UserError: There is no such topic any more, or it may not be described.
        """
        partitions = range(len(self._seen().replicas))
        wanted = [number for number in partitions if only is None or number in only]
        found = bounds_of(self._client, [(self.topic, number) for number in wanted])
        return {number: found[self.topic, number] for number in wanted}

    def compacts(self) -> bool:
        """Tell whether records may be gone that later ones of their keys supersede.

        Raises:
            NotAuthorizedError: Its configs may not be described.
        """
        ((_, found),) = self._client.configs([self.topic], ["cleanup.policy"])
        if isinstance(found, int):
            raise of_code(found, "", what=f"configs of topic {self.topic} of cluster {self.cluster}")
        return "compact" in (found["cleanup.policy"].value or "")

    def read(self, partition: int, offsets: OffsetRange) -> Iterator[pa.RecordBatch]:
        """Yield what is readable in `offsets`, in offset order, as batches of `RECORD_SCHEMA`.

        Raises:
            UserError: There is no such partition, or it may not be read.
            RetryableError: Brokers stay away, or records were removed while they were read.
        """
        return fetching.batches(self._place(partition), offsets)

    def messages(self, partition: int, offsets: OffsetRange) -> Iterator[Sequence[Message]]:
        """Yield the same as lists of confluent-kafka's messages, none of them an error."""
        return fetching.messages(self._place(partition), offsets)

    def offset_for_time(self, partition: int, timestamp_ms: int) -> int | None:
        """Return the first offset whose record is at or after a time; `None` where all are older."""
        found = offsets_at(self._client, [(self.topic, partition)], timestamp_ms)[self.topic, partition]
        return None if found < 0 else found

    def extents(self, partition: int, offsets: OffsetRange) -> Iterator[Extent]:
        """Yield even stretches of what there is of `offsets`; their records and bytes are estimates."""
        place = (self.topic, partition)
        start = offsets_at(self._client, [place], EARLIEST)[place]
        end = offsets_at(self._client, [place], LATEST, is_stable=self.isolation == "read_committed")[place]
        within = OffsetRange(max(offsets.start, start), min(offsets.stop, end))
        each_bytes = self._record_bytes(partition, end - start)
        step = max(1, int(_EXTENT_BYTES / each_bytes))
        for at in range(within.start, within.stop, step):
            cut = OffsetRange(at, min(at + step, within.stop))
            yield Extent(cut, cut.length, max(1, int(cut.length * each_bytes)))

    def digests(self, partition: int, offsets: OffsetRange) -> Iterator[Digest]:
        """Yield digests of `offsets`, absolute, by reading: brokers keep none."""
        for batch in self.read(partition, offsets):
            yield digest_of(batch, base=0)

    def _record_bytes(self, partition: int, offsets: int) -> float:
        if not self._sizes:
            try:
                self._sizes.update({number: size for (_, number), size in sizes_of(self._client, [self.topic]).items()})
            except ReconcilerError:  # Sizes of disks are told to few; they only even out the work.
                return _RECORD_BYTES
        return max(1.0, self._sizes.get(partition, 0) / max(1, offsets))

    def _seen(self) -> TopicSeen:
        seen = self._client.topics([self.topic])[self.topic]
        if seen.error:
            raise of_code(seen.error, "", what=f"topic {self.topic} of cluster {self.cluster}")
        return seen

    def _place(self, partition: int) -> fetching.Place:
        return fetching.Place(self.settings, self.cluster, self.topic, partition, self.isolation)

    @property
    def _client(self) -> KafkaClient:
        return asking(self.admin, self.cluster)
