"""Mirror RECORDS records REPETITIONS times in one Spark, in turns with plain copies of the same files; print medians.

Arguments: the workspace's FOLDER, RECORDS, REPETITIONS.
"""

import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections import deque
from functools import partial
from pathlib import Path

from probes.embedded import fill, providers, topic
from reconciler.jobs.copy import copy_log
from reconciler.jobs.session import start_session
from reconciler.jobs.stage import Engine
from reconciler.resources.workspace import SparkSpec
from tests.engines import on

FLOOR = str(Path(__file__).resolve().parents[1] / "floors" / "copy_files.py")
folder, records, repetitions = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
WARMING = 100_000

clusters = providers(folder)
west, east = clusters["west"], clusters["east"]
fill(west.open_sink(topic("west", "events")), records)
fill(west.open_sink(topic("west", "few")), WARMING)


def copied(*options: str) -> float:
    """Copy the files of `events` to a folder that is removed again; return the seconds it took."""
    target = folder / "copied"
    command = [sys.executable, FLOOR, str(folder / ".clusters/west/topics"), str(target), "events_*", *options]
    took = float(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout.split()[-1])
    shutil.rmtree(target)
    return took


def settled(seconds: float) -> float:
    """Let the kernel write what is left, so that nobody pays for who came before."""
    os.sync()
    return seconds


def mirrored(number: int) -> float:
    """Mirror `events` once; return the seconds it took."""
    began = time.perf_counter()
    copy = copy_log(
        on(spark.session), west.open_log(topic("west", "events")), east.open_sink(topic("east", f"copy-{number}"))
    )
    if copy.records != records:
        sys.exit(f"{copy.records} records were copied, not {records}")
    return time.perf_counter() - began


def caught_up(number: int) -> float:
    """Bring a mirror to the end of a source that got a hundredth more; return the seconds it took.

    As `run` does it: so little is copied without Spark.
    """
    fill(west.open_sink(topic("west", "events")), records // 100)
    settled(0)
    began = time.perf_counter()
    engine = Engine(lambda: spark.session)
    copy = copy_log(engine, west.open_log(topic("west", "events")), east.open_sink(topic("east", f"copy-{number}")))
    took = time.perf_counter() - began
    if copy.records != records // 100:
        sys.exit(f"{copy.records} records were copied, not {records // 100}")
    return took


took: dict[str, list[float]] = {"ours": [], "floor": [], "synced": []}
turns = deque(took)
news: list[float] = []
with start_session(SparkSpec(), environ=os.environ) as spark:
    copy_log(
        on(spark.session), west.open_log(topic("west", "few")), east.open_sink(topic("east", f"copy-{repetitions}"))
    )
    settled(0)
    for number in range(repetitions):
        do = {"ours": partial(mirrored, number), "floor": copied, "synced": partial(copied, "--sync")}
        for name in turns:
            took[name].append(settled(do[name]()))
        turns.rotate()  # whoever comes first finds the machine another way
    news.extend(caught_up(repetitions - 1) for _ in range(3))
print(json.dumps({name: statistics.median(each) for name, each in {**took, "news": news}.items()}))
