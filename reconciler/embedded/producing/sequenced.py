"""A producer whose user keeps its id and its sequence numbers: started again, it finds out what landed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconciler.embedded.keys import check_producer_id
from reconciler.embedded.partition.head import read_heads
from reconciler.embedded.producing.appending import publish
from reconciler.embedded.producing.batches import conformed
from reconciler.embedded.producing.delivery import DELIVERY_TIMEOUT_MS, Delivery
from reconciler.embedded.producing.fields import whole_of
from reconciler.embedded.producing.sequences import Identity, Numbered, check_sequence
from reconciler.embedded.producing.writing import Course, route
from reconciler.errors import UserError

if TYPE_CHECKING:
    import pyarrow as pa

    from reconciler.embedded.context import ClusterContext
    from reconciler.records.log import OffsetRange


class SequencedProducer:
    """Appends batches under an id and numbers of the user's own, each batch once. Not shared between threads.

    Numbers count the records of one partition, from 0 in each epoch; after 2^31 - 1 comes 0 again. A partition that has
    heard nothing of the id for 24 hours takes any number.
    """

    def __init__(
        self,
        cluster: ClusterContext,
        producer_id: str,
        *,
        epoch: int = 0,
        delivery_timeout_ms: int = DELIVERY_TIMEOUT_MS,
    ) -> None:
        """Use `EmbeddedCluster.sequenced_producer`."""
        check_producer_id(producer_id)
        if whole_of("epoch", epoch, bits=64) < 0:
            raise UserError(f"{epoch} is no producer epoch", hint="Epochs count from 0.")
        self._cluster = cluster
        self._delivery = Delivery(cluster.now_ms, delivery_timeout_ms)
        self._identity = Identity(producer_id, epoch, is_lasting=True)
        self._courses: dict[str, Course] = {}

    def append(self, topic: str, partition: int, records: pa.RecordBatch, *, sequence: int) -> OffsetRange | None:
        """Append a batch at once, its first record numbered `sequence`; return its offsets.

        A batch that is there already is not appended again: its offsets are returned, or `None` where the partition has
        the batch and no longer knows where. A batch without records is there at once.

        Raises:
            OutOfOrderSequenceError: It does not follow on the last number the partition has, and is not wholly there.
            ProducerFencedError: The partition knows a later epoch of the producer.
            NotAuthorizedError: Whoever acts may not write to the topic.
            UserError: The topic does not exist, is a mirror, or refuses a record.
            RetryableError: It was not possible in time. Append the same again: it will be there once.
        """
        check_sequence(whole_of(f"{topic}: sequence", sequence, bits=64))
        partition = whole_of(f"{topic}: partition", partition, bits=32)
        course = self._courses.setdefault(topic, Course())
        routed = route(self._cluster, topic, [conformed(topic, records, partition=partition)], course)
        for append in routed.written(self._cluster.now_ms()):
            return publish(append, Numbered(self._identity, sequence, append.records), self._delivery)
        return None

    def last_sequences(self, topic: str) -> dict[int, int]:
        """Return the last number that each partition has of the producer in its epoch; those with none are absent.

        Raises:
            UserError: The topic does not exist.
        """
        heads = read_heads(self._cluster.store, self._cluster.topic(topic).id)
        known = {number: head.producers.get(self._identity.producer_id) for number, head in heads.items()}
        return {
            number: state["last"]
            for number, state in sorted(known.items())
            if state is not None and state["epoch"] == self._identity.epoch and state["last"] >= 0
        }
