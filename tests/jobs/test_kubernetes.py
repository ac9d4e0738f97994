"""A mirror on Kubernetes, in client and in cluster mode, with an executor killed in the middle."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from reconciler.jobs.session import start_session
from reconciler.resources.workspace import SparkSpec
from tests.jobs.doubles import LostExecutor
from tests.jobs.every_job import SUBMITTED_MIRROR, Scene, mirror_is_the_same, no_broker
from tests.jobs.kubernetes import HOST, SPARK_SETTINGS, Kubernetes, kubernetes

if TYPE_CHECKING:
    from tests.jobs.conftest import OneSpark

pytestmark = [pytest.mark.spark, pytest.mark.thorough, pytest.mark.xdist_group("kubernetes")]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Kubernetes]:
    (tmp_path / "pods").mkdir()
    with kubernetes(tmp_path / "pods") as running:
        yield running


def test_an_executor_is_killed_in_the_middle_of_a_mirror_in_client_mode(
    cluster: Kubernetes, one_spark: OneSpark, tmp_path: Path
) -> None:
    one_spark.end()
    mishap = LostExecutor(tmp_path)
    conf = {**SPARK_SETTINGS, "spark.driver.host": HOST, "spark.driver.bindAddress": HOST}
    with start_session(SparkSpec(master=f"k8s://{cluster.url}", conf=conf), environ=os.environ) as running:
        mirror_is_the_same(Scene(tmp_path, mishap, running.session, no_broker))
    assert mishap.is_over.exists()
    assert cluster.objects["pods"] == {}


def test_an_executor_is_killed_in_the_middle_of_a_mirror_in_cluster_mode(cluster: Kubernetes, tmp_path: Path) -> None:
    main = tmp_path / "submitted.py"
    main.write_text(SUBMITTED_MIRROR)
    options = {"spark.executor.extraJavaOptions": "-Dnote='of two words' -Dother=1"}
    assert cluster.submit(main, str(tmp_path), f"k8s://{cluster.url}", conf=options) == 0
    assert (LostExecutor(tmp_path).is_over.exists(), (tmp_path / "mirrored").exists()) == (True, True)
