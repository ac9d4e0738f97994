"""From gathered batches to parts: admitted, split by partition, written under fresh names. Nothing is readable yet."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from reconciler.embedded.access.permissions import check_writing
from reconciler.embedded.access.showing import topic_shown
from reconciler.embedded.partition.gate import Gate, check_writer
from reconciler.embedded.partition.head import PRODUCERS
from reconciler.embedded.partition.parts import PartWriter
from reconciler.embedded.partition.recent import RecentHeads
from reconciler.embedded.producing.admission import admitted, rules_of
from reconciler.embedded.producing.appending import Append
from reconciler.records.partitioner import Spread
from reconciler.records.routing import split_by_partition

if TYPE_CHECKING:
    from collections.abc import Sequence

    from reconciler.embedded.context import ClusterContext
    from reconciler.embedded.producing.admission import Rules


@dataclass(frozen=True, slots=True)
class Routed:
    """Admitted records of one topic, by partition; their offsets count from 0 in each."""

    gate: Gate
    rules: Rules
    split: dict[int, list[pa.RecordBatch]]

    def written(self, now_ms: int) -> list[Append]:
        """Write the records of each partition as parts, lowest partition first."""
        return [
            Append(
                self.gate, partition, list(PartWriter.of(self.gate.store, self.rules, partition).write(records)), now_ms
            )
            for partition, records in sorted(self.split.items())
        ]


@dataclass(frozen=True, slots=True)
class Course:
    """What a producer remembers from flush to flush: how far round robin has come, and its partitions' heads."""

    spread: Spread = field(default_factory=Spread)
    recent: RecentHeads = field(default_factory=RecentHeads)


def route(cluster: ClusterContext, full_name: str, batches: Sequence[pa.RecordBatch], course: Course) -> Routed:
    """Decide where batches of `INPUT_SCHEMA` go, by the catalog as it is now; nothing is written.

    Raises:
        InvalidNamespaceError: The topic's namespace does not exist.
        NotAuthorizedError: Whoever acts may not write to it.
        UserError: The topic does not exist, is a mirror, or refuses a record.
    """
    catalog = cluster.catalog.read()
    check_writing(cluster.permissions, catalog, full_name)
    topic = topic_shown(cluster.permissions, catalog, full_name)
    check_writer(full_name, topic, PRODUCERS)
    rules, now_ms = rules_of(catalog, full_name), cluster.now_ms()
    split: defaultdict[int, list[pa.RecordBatch]] = defaultdict(list)
    lengths: defaultdict[int, int] = defaultdict(int)
    for batch in batches:
        fitting = admitted(batch, rules, now_ms)
        for partition, records in split_by_partition(
            fitting, partitions=topic.partitions, now_ms=now_ms, spread=course.spread
        ):
            split[partition].append(_from(lengths[partition], records))
            lengths[partition] += records.num_rows
    return Routed(
        Gate(cluster.store, cluster.catalog, full_name, topic.id, PRODUCERS, course.recent), rules, dict(split)
    )


def _from(first: int, records: pa.RecordBatch) -> pa.RecordBatch:
    if first == 0:
        return records
    index = records.schema.get_field_index("offset")
    return records.set_column(index, records.schema.field(index), pa.array(np.arange(first, first + records.num_rows)))
