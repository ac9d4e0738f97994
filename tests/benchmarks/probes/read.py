"""Count a topic of RECORDS records through `topic-log` REPETITIONS times, in turns with the floor; print medians.

Arguments: the workspace's FOLDER, RECORDS, REPETITIONS.
"""

import json
import os
import statistics
import sys
import time
from pathlib import Path

import pyarrow as pa

from floors.memory_source import MemorySource
from probes.embedded import fill, providers, topic
from reconciler.jobs import source
from reconciler.jobs.session import start_session
from reconciler.records.log import OffsetRange
from reconciler.resources.workspace import SparkSpec

folder, records, repetitions = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
west = providers(folder)["west"]
events = topic("west", "events")
fill(west.open_sink(events), records)
log = west.open_log(events)


def body_of(batch: pa.RecordBatch) -> str:
    """Return a batch as an option can carry it."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    return sink.getvalue().to_pybytes().hex()


with start_session(SparkSpec(), environ=os.environ) as spark:
    source.register(spark.session, lambda _: log)
    spark.session.dataSource.register(MemorySource)
    ours = spark.session.read.format(source.NAME).options(cluster="west", topic="events").load()
    tasks = ours.rdd.getNumPartitions()
    batch = next(log.read(0, OffsetRange(0, records)))
    given = {"tasks": str(tasks), "rows": str(records // tasks), "body": body_of(batch)}
    floor = spark.session.read.format("memory").options(**given).load()
    took: dict[str, list[float]] = {"floor": [], "ours": []}
    for number in range(repetitions + 1):
        for name, frame in (("floor", floor), ("ours", ours)):
            began = time.perf_counter()
            counted = frame.count()
            if number:  # the first only warms Spark
                took[name].append(time.perf_counter() - began)
            if records - counted > tasks:
                sys.exit(f"{name}: {counted} records were counted, not {records}")
print(json.dumps({name: statistics.median(each) for name, each in took.items()}))
