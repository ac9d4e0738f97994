"""The steps of re-keying: every record goes where its key says, in the order of its source."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from reconciler.jobs import rekey as steps
from reconciler.jobs.flows import Piece, pieces_of
from reconciler.jobs.rekey import in_order, packed, split, with_every_target
from reconciler.records.hashes import murmur2
from reconciler.records.log import OffsetRange, TopicLog
from reconciler.records.schema import RECORD_SCHEMA
from tests.embedded.samples import rows_of
from tests.jobs.doubles import TOPIC, fill

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from reconciler.embedded.cluster import EmbeddedCluster

TARGETS = 5


def pieces_in(log: TopicLog) -> list[Piece]:
    ranges = {number: OffsetRange(bounds.start, bounds.stable) for number, bounds in log.bounds().items()}
    return [piece for number, each in ranges.items() for piece in pieces_of(number, each, log.extents(number, each))]


def place_of(key: bytes | None, partition: int) -> int:
    """Return where Kafka's own producer puts a key; what has none goes on lying together."""
    if key is None:
        return partition % TARGETS
    return (int(murmur2(pa.array([key], pa.binary()))[0]) & 0x7FFFFFFF) % TARGETS


def test_records_are_split_by_their_keys_and_keep_their_order(
    west: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steps, "_ROW_BYTES", 500)
    fill(west)
    (batch,) = list(west.log(TOPIC).read(1, OffsetRange(0, 40)))
    rows = list(split(batch, 1, TARGETS))
    assert [(target, offset) for target, _, offset, _ in rows] == sorted((row[0], row[2]) for row in rows)
    assert len(rows) > TARGETS
    assert max(records.num_rows for *_, records in rows) < 20
    found = [(target, row) for target, _, _, records in rows for row in rows_of([records])]
    assert all(target == place_of(row["key"], 1) for target, row in found)
    assert sorted((row for _, row in found), key=lambda row: row["offset"]) == rows_of([batch])


def test_an_empty_batch_has_no_rows() -> None:
    assert list(split(pa.RecordBatch.from_pylist([], RECORD_SCHEMA), 0, TARGETS)) == []


@pytest.mark.spark
@pytest.mark.thorough
def test_each_partition_is_one_task_that_gets_its_records_in_the_order_of_their_sources(
    spark: SparkSession, west: EmbeddedCluster
) -> None:
    fill(west)
    log = west.log(TOPIC)
    frame = in_order(with_every_target(packed(spark, log, pieces_in(log), TARGETS), TARGETS), TARGETS)
    rows = frame.selectExpr("spark_partition_id() task", "target", "source", "offset", "records").collect()
    assert all(len({row.task for row in rows if row.target == target}) == 1 for target in range(TARGETS))
    assert [row[:4] for row in rows] == sorted(row[:4] for row in rows)
    assert sorted(row.target for row in rows if row.source == -1) == list(range(TARGETS))
    found = []
    for row in rows:
        if row.source >= 0:
            found += rows_of([pa.ipc.read_record_batch(pa.py_buffer(row.records), RECORD_SCHEMA)])
    read = [row for piece in pieces_in(log) for row in rows_of(list(log.read(piece.partition, piece.offsets)))]
    assert sorted(found, key=lambda row: (row["partition"], row["offset"])) == read
