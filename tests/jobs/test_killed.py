"""A copy whose runner is killed with SIGKILL is simply started again; nothing is there twice."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from reconciler.jobs.verify import compare_logs
from tests.embedded.samples import read
from tests.engines import here
from tests.jobs.doubles import TOPIC, append, in_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from reconciler.embedded.cluster import EmbeddedCluster

pytestmark = pytest.mark.spark

ROOT = Path(__file__).parents[2]
PATIENCE_S = 180
RUNNER = """
import os, signal, sys, threading
from pathlib import Path
from reconciler.errors import IncompleteError
from reconciler.jobs.session import start_session
from reconciler.embedded.cluster import EmbeddedCluster
from reconciler.objectstore.directory import DirectoryStore
from reconciler.resources.workspace import SparkSpec
from tests.jobs.doubles import TOPIC, Halting, in_spark

def opened(name):
    return EmbeddedCluster.open(DirectoryStore(folder / name), now_ms=lambda: 0, new_id=lambda: "")

folder, where = Path(sys.argv[1]), sys.argv[2]
west, east = opened("west"), opened("east")
stopped = threading.Event()
with start_session(SparkSpec(master="local[2]"), environ=os.environ) as spark:

    def stop(*_signal):
        stopped.set()
        threading.Thread(target=spark.cancel, daemon=True).start()

    signal.signal(signal.SIGTERM, stop)
    sink = Halting(east.sink(TOPIC), where, folder / "halted")
    try:
        in_spark(spark.session, west.log(TOPIC), sink, is_stopped=stopped.is_set)
    except IncompleteError as error:
        print(error, flush=True)
"""


@pytest.fixture
def topics(west: EmbeddedCluster, east: EmbeddedCluster) -> None:
    for cluster in (west, east):
        cluster.create_topic(TOPIC, partitions=4)
    append(west, partitions=4, count=10, parts=2)


@pytest.mark.soak
@pytest.mark.usefixtures("topics")
@pytest.mark.parametrize(("where", "published"), [("staging", 0), ("publishing", 20)])
def test_a_copy_killed_half_way_goes_on_and_copies_nothing_twice(
    spark: SparkSession, west: EmbeddedCluster, east: EmbeddedCluster, tmp_path: Path, where: str, published: int
) -> None:
    said = when_halted(tmp_path, where, signal.SIGKILL)
    assert said == ""
    assert sum(east.sink(TOPIC).read_ends().values()) == published
    assert in_spark(spark, west.log(TOPIC), east.sink(TOPIC)).records == 80 - published
    assert compare_logs(here(), west.log(TOPIC), east.log(TOPIC), deep=True).is_equal
    for partition in range(4):
        assert [row["offset"] for row in read(east.log(TOPIC), partition)] == list(range(20))


@pytest.mark.soak
@pytest.mark.usefixtures("topics")
def test_a_copy_that_is_stopped_does_not_wait_for_its_tasks(tmp_path: Path, east: EmbeddedCluster) -> None:
    said = when_halted(tmp_path, "staging", signal.SIGTERM)
    assert said == "the copy was stopped; the records copied so far stay. `apply` continues it.\n"
    assert east.sink(TOPIC).read_ends() == dict.fromkeys(range(4), 0)


def when_halted(folder: Path, where: str, sent: signal.Signals) -> str:
    """Run a copy until it halts, send its driver a signal, see that its tasks end too, and return what it said."""
    command = [sys.executable, "-c", RUNNER, str(folder), where]
    environ = os.environ | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, cwd=folder, env=environ, stdout=subprocess.PIPE, text=True) as driver:
        halted = folder / "halted"
        own = os.pidfd_open(driver.pid)
        while not halted.exists():
            assert not select.select([own], [], [], 0.05)[0], "the copy ended instead of halting"
        waiting = os.pidfd_open(int(halted.read_text()))
        driver.send_signal(sent)
        said, _ = driver.communicate(timeout=PATIENCE_S)
    assert select.select([waiting], [], [], PATIENCE_S)[0]
    os.close(waiting)
    os.close(own)
    return said
