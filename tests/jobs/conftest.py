"""One Spark session for all tests of a process that need one, and two clusters that executors can see."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark import cloudpickle

from reconciler.jobs.session import RunningSpark, start_session
from reconciler.objectstore.directory import DirectoryStore
from reconciler.resources.workspace import SparkSpec
from tests.embedded.samples import NOW, cluster_in
from tests.jobs import doubles

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from reconciler.embedded.cluster import EmbeddedCluster


SPARK = SparkSpec(master="local[2]", conf={"spark.sql.shuffle.partitions": 2})


class OneSpark:
    """The Spark session of this process, of which there can be no second one."""

    def __init__(self) -> None:
        self._kept = ExitStack()
        self._running: RunningSpark | None = None

    def running(self) -> RunningSpark:
        if self._running is None:
            self._running = self._kept.enter_context(start_session(SPARK, environ=os.environ))
        return self._running

    def end(self) -> None:
        self._running = None
        self._kept.close()


@pytest.fixture(scope="session")
def one_spark() -> Iterator[OneSpark]:
    # Executors do not have the tests: what is defined here travels whole.
    cloudpickle.register_pickle_by_value(doubles)
    one = OneSpark()
    yield one
    one.end()


@pytest.fixture
def running(one_spark: OneSpark) -> RunningSpark:
    return one_spark.running()


@pytest.fixture
def spark(running: RunningSpark) -> SparkSession:
    return running.session


@pytest.fixture
def west(tmp_path: Path) -> EmbeddedCluster:
    return cluster_in(DirectoryStore(tmp_path / "west"), now_ms=NOW)


@pytest.fixture
def east(tmp_path: Path) -> EmbeddedCluster:
    return cluster_in(DirectoryStore(tmp_path / "east"), now_ms=NOW + 1)
