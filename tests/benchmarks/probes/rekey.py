"""Re-key RECORDS records from 6 to 12 partitions in a warm Spark, in turns with Spark and one shuffle; print medians.

Both read the files of a topic and write Parquet: what a broker takes is no part of it.
Arguments: FOLDER, RECORDS, REPETITIONS.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.functions import col

from probes.embedded import cluster_in, fill
from reconciler.jobs.rekey import copy_by_key
from reconciler.jobs.session import start_session
from reconciler.records.log import Digest, ObservedSource, Written
from reconciler.records.schema import RECORD_SCHEMA
from reconciler.resources.workspace import SparkSpec
from tests.engines import on

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SOURCES, TARGETS = 6, 12
GROUP = 5_000
AS_IT_COMES = {"spark.driver.extraJavaOptions": ""}
"""Ours are meant for programs that leave nothing to the JVM; the floor leaves all to it."""


@dataclass(frozen=True)
class Files:
    """A topic of Parquet files: a folder a partition, and in it a file a round and how far the source is in them."""

    folder: Path
    partitions: int = TARGETS

    def check_shared(self) -> None:
        """Return: all is on this machine."""

    def follow_source(self, _source: ObservedSource) -> Files:
        return self

    def read_positions(self) -> Mapping[int, Mapping[int, int]]:
        return {number: self._through(number) for number in range(self.partitions)}

    def write(self, partition: int, records: Iterable[pa.RecordBatch], through: Mapping[int, int]) -> Iterator[Written]:
        place = self.folder / str(partition)
        place.mkdir(parents=True, exist_ok=True)
        path, count = place / f"{len(list(place.iterdir()))}.parquet", 0
        with pq.ParquetWriter(path, RECORD_SCHEMA, compression="none", use_dictionary=False) as writer:
            for table in gathered(records):
                writer.write_table(table)
                count += table.num_rows
        (place / "through.json").write_text(json.dumps({**self._through(partition), **through}), encoding="utf-8")
        yield Written(partition, count, path.stat().st_size)

    def read_written_digest(self) -> Digest:
        raise NotImplementedError

    def _through(self, partition: int) -> dict[int, int]:
        path = self.folder / str(partition) / "through.json"
        if not path.exists():
            return {}
        return {int(number): offset for number, offset in json.loads(path.read_text(encoding="utf-8")).items()}


def gathered(records: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Join batches: one alone is small for a group of rows of a file."""
    held: list[pa.RecordBatch] = []
    for batch in records:
        held.append(batch)
        if sum(each.num_rows for each in held) >= GROUP:
            yield pa.Table.from_batches(held)
            held = []
    if held:
        yield pa.Table.from_batches(held)


def main() -> None:
    folder, records, repetitions = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    west = cluster_in(folder / "west")
    west.create_topic("events", partitions=SOURCES, configs={"compression.type": "uncompressed"})
    records = records // SOURCES * SOURCES  # each partition gets as many
    fill(west.sink("events"), records)
    log = west.log("events")
    parts = [str(path) for path in (folder / "west").rglob("*.parquet")]

    def ours(session: SparkSession, target: Path) -> None:
        until = {number: bounds.stable for number, bounds in log.read_bounds().items()}
        done = copy_by_key(on(session), log, Files(target), until=until)
        if done.records != records:
            sys.exit(f"{done.records} records were copied, not {records}")

    def floor(session: SparkSession, target: Path) -> None:
        session.read.parquet(*parts).repartition(TARGETS, col("key")).write.parquet(str(target), compression="none")

    took: dict[str, list[float]] = {"ours": [], "floor": []}
    turns = deque({"ours": ours, "floor": floor}.items())
    with start_session(SparkSpec(conf=AS_IT_COMES), environ=os.environ) as running:
        for repetition in range(repetitions + 1):  # the first warms Spark
            for name, do in turns:
                target = folder / f"{name}-{repetition}"
                began = time.perf_counter()
                do(running.session, target)
                took[name].append(time.perf_counter() - began)
                shutil.rmtree(target)
                os.sync()
            turns.rotate()
    print(json.dumps({name: statistics.median(each[1:]) for name, each in took.items()}))


main()
