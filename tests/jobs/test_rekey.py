"""The steps of re-keying: every record goes where its key says, in the order of its source."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from reconciler.jobs import flows
from reconciler.jobs import rekey as steps
from reconciler.jobs.flows import PIECE_COST, Piece, iter_pieces
from reconciler.jobs.rekey import add_target_rows, copy_by_key, read_pieces, sort_by_target, split_by_target
from reconciler.records.hashes import murmur2
from reconciler.records.log import Digest, ObservedSource, OffsetRange, TopicLog, Written
from reconciler.records.schema import RECORD_SCHEMA
from tests.embedded.samples import rows_of
from tests.engines import here
from tests.jobs.doubles import TOPIC, append, fill

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from reconciler.embedded.cluster import EmbeddedCluster

TARGETS = 5


def pieces_in(log: TopicLog) -> list[Piece]:
    ranges = {number: OffsetRange(bounds.start, bounds.stable) for number, bounds in log.read_bounds().items()}
    return [
        piece for number, each in ranges.items() for piece in iter_pieces(number, each, log.list_extents(number, each))
    ]


@dataclass
class Kept:
    """A `RekeySink` that keeps which records were written into each partition, by those of the source and offsets."""

    partitions: int = TARGETS
    rows: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    through: dict[int, dict[int, int]] = field(default_factory=dict)

    def check_shared(self) -> None:
        pass

    def follow_source(self, _source: ObservedSource) -> Kept:
        return self

    def read_positions(self) -> Mapping[int, Mapping[int, int]]:
        return {number: self.through.get(number, {}) for number in range(self.partitions)}

    def write(self, partition: int, records: Iterable[pa.RecordBatch], through: Mapping[int, int]) -> Iterator[Written]:
        rows = [(row["partition"], row["offset"]) for row in rows_of(list(records))]
        self.rows.setdefault(partition, []).extend(rows)
        self.through.setdefault(partition, {}).update(through)
        yield Written(partition, len(rows), 0)

    def read_written_digest(self) -> Digest:
        raise NotImplementedError


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
    rows = list(split_by_target(batch, 1, TARGETS, OffsetRange(0, 80)))
    assert [(target, offset) for target, _, _, offset, _ in rows] == sorted((row[0], row[3]) for row in rows)
    assert all(place == (records.column("offset")[-1].as_py() + 1) / 80 for _, place, _, _, records in rows)
    assert len(rows) > TARGETS
    assert max(records.num_rows for *_, records in rows) < 20
    found = [(target, row) for target, *_, records in rows for row in rows_of([records])]
    assert all(target == place_of(row["key"], 1) for target, row in found)
    assert sorted((row for _, row in found), key=lambda row: row["offset"]) == rows_of([batch])


def test_an_empty_batch_has_no_rows() -> None:
    assert list(split_by_target(pa.RecordBatch.from_pylist([], RECORD_SCHEMA), 0, TARGETS, OffsetRange(0, 1))) == []


def test_a_group_that_lags_in_one_partition_reads_little_of_the_others_again(
    west: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flows, "PIECE_BYTES", 1)  # A piece is a part,
    monkeypatch.setattr(steps, "_IN_PROCESS_BYTES", 6 * PIECE_COST)  # a round is a few of them,
    monkeypatch.setattr(steps, "_ROW_RECORDS", 4)  # and a row a few records.
    west.create_topic(TOPIC, partitions=3)
    append(west, partitions=3, count=100, parts=1)
    append(west, partitions=1, count=100, parts=7)  # The first partition is the longest.
    log, sink = west.log(TOPIC), Kept()
    ends = {number: bounds.stable for number, bounds in log.read_bounds().items()}
    copy_by_key(here(), log, sink, until=ends)
    assert sum(map(len, sink.rows.values())) == sum(ends.values()) == 1000
    for lagging, end in ends.items():
        again = 0
        for rows in sink.rows.values():
            unread = [at for at, (source, offset) in enumerate(rows) if source == lagging and offset >= end - 5]
            again += len(rows) - min(unread, default=len(rows))
        assert again <= TARGETS * len(ends) * 4 + 15, lagging


@pytest.mark.spark
@pytest.mark.thorough
def test_each_partition_is_one_task_that_gets_its_records_in_the_order_of_their_sources(
    spark: SparkSession, west: EmbeddedCluster
) -> None:
    fill(west)
    log = west.log(TOPIC)
    frame = sort_by_target(add_target_rows(read_pieces(spark, log, pieces_in(log), TARGETS), TARGETS), TARGETS)
    rows = frame.selectExpr("spark_partition_id() task", "target", "place", "source", "offset", "records").collect()
    assert all(len({row.task for row in rows if row.target == target}) == 1 for target in range(TARGETS))
    assert [row[:5] for row in rows] == sorted(row[:5] for row in rows)
    assert max(row.place for row in rows) == 1
    assert sorted(row.target for row in rows if row.source == -1) == list(range(TARGETS))
    found = []
    for row in rows:
        if row.source >= 0:
            found += rows_of([pa.ipc.read_record_batch(pa.py_buffer(row.records), RECORD_SCHEMA)])
    read = [row for piece in pieces_in(log) for row in rows_of(list(log.read(piece.partition, piece.offsets)))]
    assert sorted(found, key=lambda row: (row["partition"], row["offset"])) == read
