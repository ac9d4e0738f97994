"""A producer of the embedded cluster, kept to one topic."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from reconciler.embedded.access.permissions import check_writing
from reconciler.embedded.access.showing import topic_shown
from reconciler.embedded.partition.gate import check_writer
from reconciler.embedded.partition.head import PRODUCERS
from reconciler.embedded.producing.producer import Producer
from reconciler.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from reconciler.embedded.catalog.tables import Catalog
    from reconciler.embedded.cluster import EmbeddedCluster
    from reconciler.records.log import OffsetRange
    from reconciler.resources.linkentries import MirrorEntry


@dataclass(frozen=True, slots=True)
class OneTopic:
    """New records of one topic go in here."""

    producer: Producer
    full_name: str

    @classmethod
    def of(cls, cluster: EmbeddedCluster, full_name: str, *, name: str) -> Self:
        """Return where records of a topic go in, before the first of them is read; `name` is the cluster's.

        Raises:
            NotAuthorizedError: It may not be written to.
            UserError: It does not exist, or it is a mirror.
        """
        catalog = cluster.catalog.read()
        check_writing(cluster.permissions, catalog, full_name)
        topic = topic_shown(cluster.permissions, catalog, full_name)
        if topic.follows is not None:
            raise _is_mirror(catalog, name, full_name, topic.follows)
        check_writer(full_name, topic, PRODUCERS)
        return cls(cluster.producer(), full_name)

    def append(self, records: pa.RecordBatch) -> None:
        """Take a batch; it is written when there is enough."""
        self.producer.append(self.full_name, records)

    def flush(self) -> Mapping[int, OffsetRange]:
        """Write all that was taken, and return what each partition gained since the last call."""
        return self.producer.flush().get(self.full_name, {})


def _is_mirror(catalog: Catalog, name: str, full_name: str, mirror: MirrorEntry) -> UserError:
    source = next((link.source_cluster for link in catalog.links.values() if link.id == mirror.link_id), None)
    of = f"topic/{source}/{mirror.source}" if source is not None else mirror.source
    message = f"mirror/{name}/{full_name} is a mirror of {of}: only its link writes to it"
    return UserError(message, hint="Produce to the source, or promote the mirror first.")
