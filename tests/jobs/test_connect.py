"""Every job through a real Spark Connect server, with a task whose process is killed."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from reconciler.jobs.session import RunningSpark, start_session
from reconciler.resources.workspace import SparkSpec
from tests.jobs.doubles import LostTask
from tests.jobs.every_job import JOBS, Scene, broker
from tests.jobs.standalone import connect_server

if TYPE_CHECKING:
    from tests.jobs.conftest import OneSpark

pytestmark = [pytest.mark.spark, pytest.mark.thorough, pytest.mark.xdist_group("connect")]


@pytest.fixture(scope="module")
def connected(one_spark: OneSpark, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningSpark]:
    one_spark.end()
    with connect_server(tmp_path_factory.mktemp("connect")) as url:
        with start_session(SparkSpec(remote=url), environ=os.environ) as running:
            yield running
        # PySpark says so to itself, and never takes it back: a session with a JVM of its own would not start any more.
        os.environ.pop("SPARK_CONNECT_MODE_ENABLED", None)


@pytest.mark.parametrize("job", JOBS)
def test_a_job_is_done_through_spark_connect(
    connected: RunningSpark, request: pytest.FixtureRequest, tmp_path: Path, job: Callable[[Scene], None]
) -> None:
    mishap = LostTask(tmp_path)
    job(Scene(tmp_path, mishap, connected.session, partial(broker, request)))
    assert mishap.is_over.exists()
