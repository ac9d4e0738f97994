"""Write BATCHES files of RECORDS rows as Parquet, which is the floor, then as a stream into a topic; print medians.

A batch of the stream is one file, which the floor reads too. The first files of both only warm Spark.
Arguments: the workspace's FOLDER, RECORDS, BATCHES.
"""

import json
import os
import statistics
import sys
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from probes.embedded import batches, providers, topic
from reconciler.jobs.session import start_session
from reconciler.jobs.source import register
from reconciler.resources.workspace import SparkSpec

WARMING = 3
folder, records, count = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
west = providers(folder)["west"]
log, sink = west.open_log(topic("west", "events")), west.open_append_sink(topic("west", "events"))
rows = folder / "rows"
rows.mkdir()
files = [f"{number:03}.parquet" for number in range(WARMING + count)]
for number, name in enumerate(files):
    table = pa.Table.from_batches(list(batches(number, records))).select(["key", "value"])
    pq.write_table(table, rows / name, row_group_size=records // 8)

with start_session(SparkSpec(), environ=os.environ) as running:
    spark = running.session
    register(spark, lambda _: log, lambda _: sink)
    took: dict[str, list[float]] = {"ours": [], "floor": []}
    for name in files:
        began = time.perf_counter()
        spark.read.parquet(str(rows / name)).write.parquet(str(folder / "floor" / name), compression="none")
        took["floor"].append(time.perf_counter() - began)
    stream = spark.readStream.schema("key binary, value binary").option("maxFilesPerTrigger", 1).parquet(str(rows))
    writer = stream.writeStream.format("topic-log").options(cluster="west", topic="events")
    query = writer.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True).start()
    query.awaitTermination()
    progress = [each for each in query.recentProgress if each["numInputRows"]]
    took["ours"] = [each["durationMs"]["triggerExecution"] / 1000 for each in progress]
    if len(progress) != len(files):
        sys.exit(f"{len(progress)} batches were written, not {len(files)}")
written = sum(bounds.end for bounds in log.read_bounds().values())
if written != records * len(files):
    sys.exit(f"{written} records were written, not {records * len(files)}")
print(json.dumps({name: statistics.median(each[WARMING:]) for name, each in took.items()}))
