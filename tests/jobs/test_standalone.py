"""Every job on a real standalone cluster: workers die, tasks are tried twice, and what comes of it is the same."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.jobs.doubles import (
    LostTask,
    LostWorker,
    SlowTask,
)
from tests.jobs.every_job import JOBS, Scene, broker, mirror_is_the_same, upload_and_merge_keep_every_record
from tests.jobs.standalone import Standalone, master_alone, standalone

if TYPE_CHECKING:
    import pyarrow as pa

    from tests.jobs.conftest import OneSpark

TELLS = """
from queue import SimpleQueue
from reconciler.operations.steps import jobs
from reconciler.resources.workspace import SparkSpec
jobs._EXECUTOR_WARNING_S = 1

class Here:
    environ, said = os.environ, SimpleQueue()
    warn = said.put

with jobs.SparkJobs({}, SparkSpec(master=sys.argv[1], conf={"spark.driver.host": "127.0.0.1"}), Here()) as running:
    running.get_session()
    print(Here.said.get())
"""

pytestmark = [pytest.mark.spark, pytest.mark.thorough, pytest.mark.xdist_group("standalone")]


@pytest.fixture(scope="module")
def cluster(one_spark: OneSpark, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    one_spark.end()
    with standalone(tmp_path_factory.mktemp("standalone")) as running:
        yield running


# The mishaps.


@pytest.mark.fact("F-R-033", "F-C-001")
@pytest.mark.parametrize("job", JOBS)
def test_one_of_the_workers_is_killed_in_the_middle(
    cluster: Standalone, request: pytest.FixtureRequest, tmp_path: Path, job: Callable[[Scene], None]
) -> None:
    mishap, ended = LostWorker(tmp_path), threading.Event()

    def kill() -> None:
        while not mishap.has_begun.exists():
            if ended.wait(0.01):
                return
        cluster.kill_worker_of(mishap.has_begun.read_text())
        mishap.is_over.touch()

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        job(Scene(tmp_path, mishap, cluster.spark.session, partial(broker, request)))
    finally:
        ended.set()
        killer.join()
        if mishap.has_begun.exists():
            cluster.add_worker()
    assert mishap.is_over.exists()


@pytest.mark.parametrize("job", JOBS)
def test_a_slow_task_is_overtaken_by_a_second_attempt_and_both_end(
    cluster: Standalone, request: pytest.FixtureRequest, tmp_path: Path, job: Callable[[Scene], None]
) -> None:
    mishap = SlowTask(tmp_path)
    job(Scene(tmp_path, mishap, cluster.spark.session, partial(broker, request)))
    # The second attempt may find in its process what it would read: then the slow one waits until the job has ended.
    mishap.is_over.touch()
    assert (mishap.has_begun.exists(), mishap.gave_up.exists()) == (True, False)


@pytest.mark.parametrize("job", [mirror_is_the_same, upload_and_merge_keep_every_record])
def test_the_process_of_a_task_is_killed(
    cluster: Standalone, request: pytest.FixtureRequest, tmp_path: Path, job: Callable[[Scene], None]
) -> None:
    mishap = LostTask(tmp_path)
    job(Scene(tmp_path, mishap, cluster.spark.session, partial(broker, request)))
    assert mishap.is_over.exists()


def test_executors_run_the_package_that_was_sent(cluster: Standalone) -> None:
    def where(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow  # noqa: ICN001, PLC0415 - where the executor has it

        import reconciler.jobs.copy  # noqa: PLC0415 - as above

        for _ in batches:
            yield pyarrow.RecordBatch.from_pydict({"file": [reconciler.jobs.copy.__file__], "pid": [os.getppid()]})

    tasks = cluster.spark.session.range(0, 2, 1, 2).mapInArrow(where, "file string, pid long", barrier=True)
    rows = tasks.collect()  # a barrier: both run at the same time, so on both executors
    assert all("reconciler.zip" in row.file for row in rows)
    assert len({row.pid for row in rows}) == 2


def test_a_master_without_workers_is_named_while_the_job_waits(tmp_path: Path) -> None:
    with master_alone(tmp_path) as master:
        told = subprocess.run(
            [sys.executable, "-c", f"import os, sys\n{TELLS}", master],
            env=os.environ | {"SPARK_LOCAL_IP": "127.0.0.1"},
            capture_output=True,
            text=True,
            check=True,
            timeout=120,
        ).stdout
    assert f"Spark at {master} has given no executor for 1 s, and the job waits for one." in told
