"""Two thousand partitions: one stage of work, few requests, and nothing to do the second time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from reconciler.embedded.maintenance import passes
from reconciler.jobs.flows import Budget, rounds, tasks_of
from reconciler.objectstore.memory import MemoryStore
from tests.embedded.upkeeping import TOPIC, clocked, held, with_topic
from tests.embedded.watched import WatchedStore

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from reconciler.embedded.maintenance.chores import Chore, ChoreTask, Refused
    from reconciler.embedded.tiered.object_rewrites import Rewritten

PARTITIONS = 2_000


@pytest.mark.soak
def test_two_thousand_partitions_are_one_stage_and_few_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passes, "is_little", lambda _chores: False)
    store = WatchedStore(MemoryStore())
    cluster, _ = clocked(store)
    with_topic(cluster, partitions=PARTITIONS, segment_bytes="2000")
    partitions = pa.array(range(PARTITIONS), pa.int32())
    for number in range(2):
        with cluster.producer() as producer:
            values = pa.array([b"%d" % number] * PARTITIONS, pa.binary())
            producer.append(TOPIC, pa.RecordBatch.from_pydict({"value": values, "partition": partitions}))
    before = held(cluster, 1_234)
    stages: list[int] = []

    def spread(chores: Sequence[Chore], task: ChoreTask) -> Iterator[list[Rewritten | Refused]]:
        """Do as the executors of two cores would."""
        for taken in rounds(chores, Budget(2)):
            tasks = tasks_of(taken, 2)
            stages.append(len(tasks))
            yield [one for chores_of_task in tasks for one in task(chores_of_task)]

    store.calls.clear()
    done = cluster.upkeep().roll(spread)
    assert (done.partitions, done.failed) == (PARTITIONS, 0)
    assert len(stages) == 1
    assert 2 < stages[0] < 40
    assert store.count("list") == 1
    assert store.count("swap") == PARTITIONS
    # Each head is read to decide, to do, and to publish.
    assert store.count("get", "heads/") == 3 * PARTITIONS
    assert store.count("get", "catalog/") < 2 * stages[0]
    assert held(cluster, 1_234) == before

    cluster.upkeep().roll(spread)
    store.calls.clear()
    assert cluster.upkeep().roll(spread).partitions == 0
    assert len(store.calls) == 3
    assert len(stages) == 1
