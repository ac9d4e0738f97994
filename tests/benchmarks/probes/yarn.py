"""Mirror RECORDS records REPETITIONS times on YARN, in turns with the same on a standalone cluster; print medians.

Both have two executors of a core with the same memory, started for each mirror.
Arguments: the workspace's FOLDER, RECORDS, REPETITIONS.
"""

import itertools
import json
import os
import sys
import time
from collections import deque
from pathlib import Path
from statistics import median

from probes.embedded import fill, providers, topic
from reconciler.jobs.copy import copy_log
from reconciler.jobs.session import start_session
from reconciler.resources.workspace import SparkSpec
from tests.engines import on
from tests.jobs.standalone import two_workers
from tests.jobs.yarn import spark_settings, yarn

folder, records, repetitions = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
WARMING = 100_000
numbers = itertools.count()
clusters = providers(folder)
west, east = clusters["west"], clusters["east"]
fill(west.open_sink(topic("west", "events")), records)
fill(west.open_sink(topic("west", "few")), WARMING)
took: dict[str, dict[str, list[float]]] = {part: {"ours": [], "floor": []} for part in ("start", "mirror")}


def measure(name: str, master: str) -> None:
    """Start Spark and copy `few` and `events`, each to a topic of its own."""
    os.sync()
    began = time.perf_counter()
    conf: dict[str, str | int | bool] = {"spark.driver.host": "127.0.0.1", **spark_settings(folder)}
    with start_session(SparkSpec(master=master, conf=conf), environ=os.environ) as spark:
        for source, part, expected in (("few", "start", WARMING), ("events", "mirror", records)):
            sink = east.open_sink(topic("east", f"copy-{next(numbers)}"))
            copy = copy_log(on(spark.session), west.open_log(topic("west", source)), sink)
            if copy.records != expected:
                sys.exit(f"{copy.records} records were copied, not {expected}")
            took[part][name].append(time.perf_counter() - began)
            os.sync()
            began = time.perf_counter()


(folder / "hadoop").mkdir()
with yarn(folder / "hadoop"), two_workers(folder / "standalone") as cluster:
    turns = deque([("ours", "yarn"), ("floor", cluster.master)])
    for _ in range(repetitions):
        for name, master in turns:
            measure(name, master)
        turns.rotate()  # whoever comes first finds the machine another way
print(json.dumps({part: {name: median(each) for name, each in found.items()} for part, found in took.items()}))
