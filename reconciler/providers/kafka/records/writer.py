"""Records that librdkafka cannot write, written as batches packed here: once each, in their order."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from reconciler.providers.kafka.faults import of_code
from reconciler.providers.kafka.reaching.security import as_admin
from reconciler.providers.kafka.records.asking import asking
from reconciler.providers.kafka.records.batches import Producer, packed, size_of
from reconciler.providers.kafka.records.wire import Leader, until_told

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from reconciler.providers.kafka.client import KafkaClient
    from reconciler.providers.kafka.records.batches import Row

# Whoever meets no such record imports no client.
# ruff: noqa: PLC0415

_BATCH_BYTES: Final = 1_000_000
_OVERHEAD: Final = 1_024
_TIMEOUT_MS: Final = 30_000
_VERSIONS: Final = (3, 11)
"""Of the request: from 12 on brokers open transactions with it, from 13 on topics are named by their ids."""
_CODECS: Final = {"producer": "gzip", "uncompressed": "none"}
"""What a topic keeps as it comes is packed so that every client can read it."""
_LOADING: Final = frozenset({14, 15, 16})


class _Packing(NamedTuple):
    """How batches for a topic are made: brokers that pack them anew replace what is not UTF-8."""

    codec: str
    bytes: int


class BatchWriter:
    """One producer id. Every batch waits for the one before it; one that is sent again is written once."""

    def __init__(self, settings: Mapping[str, Any], cluster: str, producer: Producer | None = None) -> None:
        """Take settings of confluent-kafka, and who writes; `None`: brokers are asked for a new producer id."""
        self._settings, self._cluster = settings, cluster
        self._client = asking(as_admin(settings), cluster)
        self._producer = producer or _new(self._client)
        self._counts: Counter[tuple[str, int]] = Counter()
        self._leaders: dict[tuple[str, int], Leader] = {}
        self._packings: dict[str, _Packing] = {}

    def write(self, topic: str, partition: int, rows: Sequence[Row]) -> list[int]:
        """Write records to a partition and return the offset of each.

        Raises:
            ReconcilerError: Brokers refuse them, or do not answer; a part may have been written.
        """
        from kafka.protocol.producer import ProduceRequest

        place = (topic, partition)
        leader = self._leaders.setdefault(place, Leader(self._settings, self._cluster, topic, partition))
        packing = self._packing(topic)
        named = ProduceRequest.TopicProduceData
        offsets: list[int] = []
        for some in _cut(rows, packing.bytes):
            content = packed(some, self._producer, self._counts[place], codec=packing.codec)
            data = named.PartitionProduceData(index=partition, records=content)
            request = ProduceRequest(
                transactional_id=self._producer.transactional_id,
                acks=-1,
                timeout_ms=_TIMEOUT_MS,
                topic_data=[named(name=topic, partition_data=[data])],
                min_version=_VERSIONS[0],
                max_version=_VERSIONS[1],
            )
            doing = f"writing to {topic}, partition {partition}"
            found = leader.send(request, lambda answer: answer.responses[0].partition_responses[0], doing=doing)
            self._counts[place] += len(some)
            offsets += range(found.base_offset, found.base_offset + len(some))
        return offsets

    def _packing(self, topic: str) -> _Packing:
        if topic not in self._packings:
            ((_, found),) = self._client.configs([topic], ["compression.type", "max.message.bytes"])
            values = {} if isinstance(found, int) else {name: each.value for name, each in found.items()}
            kept_as = values.get("compression.type") or "producer"
            most = int(values.get("max.message.bytes") or _BATCH_BYTES)
            size = max(1, min(_BATCH_BYTES, most - _OVERHEAD))
            self._packings[topic] = _Packing(_CODECS.get(kept_as, kept_as), size)
        return self._packings[topic]


def _new(client: KafkaClient) -> Producer:
    """Return a producer without transactions."""
    from kafka.protocol.producer import InitProducerIdRequest

    doing = "asking for a producer id"
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0, max_version=4)
    found = until_told(
        lambda: client.send(request, doing=doing), lambda found: int(found.error_code), _LOADING, lambda: None
    )
    if found.error_code:
        raise of_code(found.error_code, "", what=f"cluster {client.name}: {doing}")
    return Producer(found.producer_id, found.producer_epoch)


def _cut(rows: Sequence[Row], most: int) -> Iterator[Sequence[Row]]:
    """Yield records in lots that fit into a batch; one that is larger has a batch of its own."""
    begin = size = 0
    for at, row in enumerate(rows):
        each = size_of(row)
        if at > begin and size + each > most:
            yield rows[begin:at]
            begin, size = at, 0
        size += each
    if begin < len(rows):
        yield rows[begin:]
