"""Jobs on a real YARN cluster, in client and in cluster mode, with an executor killed in the middle."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from reconciler.jobs.session import RunningSpark, start_session
from reconciler.resources.workspace import SparkSpec
from tests.jobs.doubles import LostExecutor
from tests.jobs.every_job import Scene, mirror_is_the_same
from tests.jobs.yarn import spark_settings, yarn

if TYPE_CHECKING:
    from tests.jobs.conftest import OneSpark
    from tests.jobs.kafka.copies import Place

pytestmark = [pytest.mark.spark, pytest.mark.thorough, pytest.mark.xdist_group("yarn")]


def no_broker() -> Place:
    raise AssertionError("a mirror of embedded clusters asks for no broker")


@pytest.fixture(scope="module")
def cluster(one_spark: OneSpark, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    one_spark.end()
    folder = tmp_path_factory.mktemp("yarn")
    with yarn(folder):
        yield folder


@pytest.fixture(scope="module")
def client(cluster: Path) -> Iterator[RunningSpark]:
    conf: dict[str, Any] = {"spark.driver.host": "127.0.0.1", **spark_settings(cluster)}
    with start_session(SparkSpec(master="yarn", conf=conf), environ=os.environ) as running:
        yield running


def test_an_executor_is_killed_in_the_middle_of_a_mirror_in_client_mode(client: RunningSpark, tmp_path: Path) -> None:
    mishap = LostExecutor(tmp_path)
    mirror_is_the_same(Scene(tmp_path, mishap, client.session, no_broker))
    assert mishap.is_over.exists()
