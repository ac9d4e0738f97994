"""What is done here and what executors do: bytes decide, not partitions, as long as these are not very many."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from reconciler.embedded.maintenance.chores import Chore, is_little
from reconciler.embedded.segments.head import Partition
from tests.embedded.upkeeping import TOPIC, clocked, head_of, with_topic

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from reconciler.embedded.maintenance.chores import ChoreTask

MIB = 1024 * 1024
PARTITIONS = 300


@pytest.mark.parametrize(
    ("partitions", "each", "here"),
    [
        (1, 64 * MIB, True),
        (1, 65 * MIB, False),
        (300, 4 * 1024, True),
        (3_000, 0, True),
        (3_000, 20 * 1024, True),
        (3_000, 30 * 1024, False),
        (50_000, 0, False),
    ],
)
def test_little_is_what_has_few_bytes_and_at_most_some_thousand_partitions(
    partitions: int, each: int, *, here: bool
) -> None:
    chores = [Chore(Partition(TOPIC, "id", number), each) for number in range(partitions)]
    assert is_little(chores) is here


def nowhere(_chores: Sequence[Chore], _task: ChoreTask) -> Iterator[Sequence[object]]:
    pytest.fail("it was handed to executors")


def test_marks_of_hundreds_of_partitions_are_made_without_executors() -> None:
    cluster, _ = clocked()
    with_topic(cluster, partitions=PARTITIONS, segment_bytes="100")
    for _ in range(2):
        with cluster.producer() as producer:
            for partition in range(PARTITIONS):
                producer.send(TOPIC, "x" * 200, partition=partition)
    cluster.upkeep().roll(nowhere)
    assert all(head_of(cluster, partition).entries[0].is_segment for partition in range(PARTITIONS))
