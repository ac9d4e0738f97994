"""A producer of the embedded cluster, kept to one topic."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from reconciler.embedded.gate import check_writer
from reconciler.embedded.head import PRODUCERS
from reconciler.embedded.lookups import topic_named
from reconciler.embedded.permissions import check_writing
from reconciler.embedded.producer import Producer

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from reconciler.embedded.cluster import EmbeddedCluster
    from reconciler.records.log import OffsetRange


@dataclass(frozen=True, slots=True)
class OneTopic:
    """New records of one topic go in here."""

    producer: Producer
    full_name: str

    @classmethod
    def of(cls, cluster: EmbeddedCluster, full_name: str) -> Self:
        """Return where records of a topic go in, before the first of them is read.

        Raises:
            NotAuthorizedError: It may not be written to.
            UserError: It does not exist, or it is a mirror.
        """
        catalog = cluster.catalog.read()
        check_writing(cluster.permissions, catalog, full_name)
        check_writer(full_name, topic_named(catalog, full_name), PRODUCERS)
        return cls(cluster.producer(), full_name)

    def append(self, records: pa.RecordBatch) -> None:
        """Take a batch; it is written when there is enough."""
        self.producer.append(self.full_name, records)

    def flush(self) -> Mapping[int, OffsetRange]:
        """Write all that was taken, and return what each partition gained since the last call."""
        return self.producer.flush().get(self.full_name, {})
