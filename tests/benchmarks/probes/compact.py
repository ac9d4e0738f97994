"""Compact a partition of KEYS keys in a warm Spark, in turns with the newest offset of each by Spark; print medians.

Both read the same files. Ours also writes the records that stay, and publishes them.
Arguments: FOLDER, KEYS, REPETITIONS.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from pyspark.sql.functions import max as newest

from probes.embedded import BATCH, EDGE, cluster_in
from reconciler.embedded.cluster import EmbeddedCluster
from reconciler.embedded.maintenance import compaction as in_memory
from reconciler.jobs.compaction import run_in_spark
from reconciler.jobs.session import start_session
from reconciler.objectstore.directory import DirectoryStore
from reconciler.records.schema import HEADERS, RECORD_SCHEMA
from reconciler.resources.workspace import SparkSpec
from tests.engines import on

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONFIGS = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0", "segment.bytes": "128MiB"}
CONFIGS |= {"max.message.bytes": "256MiB"}
CLOSES = 129 << 20
"""A value of so many bytes fits into no segment with others."""
AS_IT_COMES = {"spark.driver.extraJavaOptions": ""}
"""Ours are meant for programs that leave nothing to the JVM; the floor leaves all to it."""
AGAIN = 5
"""Of so many keys one comes a second time."""


def records_of(keys: int) -> Iterator[pa.RecordBatch]:
    """Yield a record of each key in any order, and then another one of some."""
    random = np.random.default_rng(1)
    numbers = np.concatenate([random.permutation(keys), random.integers(0, keys, keys // AGAIN)]).astype(np.uint64)
    for first in range(0, len(numbers), BATCH):
        yield batch_of(numbers[first : first + BATCH], first)


def batch_of(numbers: np.ndarray, first: int) -> pa.RecordBatch:
    rows = len(numbers)
    key = np.stack([numbers, numbers * np.uint64(0x9E3779B97F4A7C15)], axis=1).tobytes()
    offsets = np.arange(first, first + rows)
    columns = [
        pa.array(np.zeros(rows, np.int32)),
        pa.array(offsets),
        pa.array(1_700_000_000_000 + offsets),
        pa.array(np.zeros(rows, np.int8)),
        fixed(key, rows, 16),
        fixed(offsets.tobytes(), rows, 8),
        pa.array([[]] * rows, HEADERS),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=RECORD_SCHEMA)


def fixed(content: bytes, rows: int, width: int) -> pa.Array:
    ends = pa.py_buffer(np.arange(0, rows * width + 1, width, dtype=np.int32))
    return pa.Array.from_buffers(pa.binary(), rows, [None, ends, pa.py_buffer(content)])


def filled(folder: Path, keys: int) -> EmbeddedCluster:
    cluster = cluster_in(folder)
    cluster.create_topic("events", configs=CONFIGS)
    sink = cluster.sink("events")
    sink.publish([sink.stage(0, records_of(keys), at=None)])
    with cluster.producer() as producer:  # the newest segment is not compacted
        producer.send("events", bytes(CLOSES), key="z")
    return cluster


def compacted(session: SparkSession, folder: Path) -> float:
    """Compact a copy of the cluster; return the seconds it took."""
    copy = folder.with_name("copy")
    shutil.copytree(folder, copy)
    cluster = EmbeddedCluster.open(DirectoryStore(copy), **EDGE)
    os.sync()
    engine = on(session)
    began = time.perf_counter()
    done = cluster.upkeep().compact(partial(run_in_spark, engine))
    took = time.perf_counter() - began
    if (done.partitions, done.failed) != (1, 0) or not engine.used.spark_tasks:
        sys.exit(f"nothing was compacted in Spark: {done}")
    shutil.rmtree(copy)
    return took


def grouped(session: SparkSession, folder: Path) -> float:
    """Find the newest offset of each key (as far as files say it) and throw it away; return the seconds it took."""
    parts = [str(path) for path in folder.rglob("*.parquet")]
    began = time.perf_counter()
    frame = session.read.parquet(*parts).groupBy("key").agg(newest("offset_delta"))
    frame.write.format("noop").mode("overwrite").save()
    return time.perf_counter() - began


def main() -> None:
    folder, keys, repetitions = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    in_memory.MAX_LEARNED_KEYS = 0  # Spark does it, however few there are
    small, large = folder / "small", folder / "large"
    filled(small, 100_000)
    filled(large, keys)
    took: dict[str, list[float]] = {"ours": [], "floor": []}
    with start_session(SparkSpec(conf=AS_IT_COMES), environ=os.environ) as running:
        compacted(running.session, small)
        grouped(running.session, small)
        for _ in range(repetitions):
            took["floor"].append(grouped(running.session, large))
            took["ours"].append(compacted(running.session, large))
    print(json.dumps({name: statistics.median(each) for name, each in took.items()}))


main()
