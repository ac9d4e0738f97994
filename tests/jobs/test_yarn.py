"""Jobs on a real YARN cluster, in client and in cluster mode, with an executor killed in the middle."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from reconciler.jobs.session import RunningSpark, start_session
from reconciler.resources.workspace import SparkSpec
from tests.jobs.doubles import LostExecutor
from tests.jobs.every_job import Scene, mirror_is_the_same
from tests.jobs.standalone import HOME
from tests.jobs.yarn import spark_settings, yarn

if TYPE_CHECKING:
    from tests.jobs.conftest import OneSpark
    from tests.jobs.kafka.copies import Place

pytestmark = [pytest.mark.spark, pytest.mark.thorough, pytest.mark.xdist_group("yarn")]

ROOT = Path(__file__).parents[2]
PATIENCE_S = 300
MIRROR = """
import os, sys
from pathlib import Path
from pyspark import cloudpickle
from reconciler.jobs.session import start_session
from reconciler.resources.workspace import SparkSpec
from tests.jobs import doubles
from tests.jobs.every_job import Scene, mirror_is_the_same

cloudpickle.register_pickle_by_value(doubles)
folder = Path(sys.argv[1])
with start_session(SparkSpec(master="yarn"), environ=os.environ) as spark:
    mirror_is_the_same(Scene(folder, doubles.LostExecutor(folder), spark.session, None))
(folder / "mirrored").touch()
"""
RECONCILER = """
import sys
from reconciler.cli.main import main

sys.exit(main())
"""


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


def submit(cluster: Path, script: str, *arguments: str, mode: str = "cluster") -> subprocess.CompletedProcess[str]:
    """Run Python with `spark-submit` on YARN, and wait until its driver has ended."""
    main = cluster / "submitted.py"
    main.write_text(script)
    settings = {
        **spark_settings(cluster),
        "spark.pyspark.python": sys.executable,
        "spark.yarn.appMasterEnv.PYTHONPATH": str(ROOT),
    }
    options = [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
    return subprocess.run(
        [HOME / "bin" / "spark-submit", "--master", "yarn", "--deploy-mode", mode, *options, main, *arguments],
        env=os.environ | {"SPARK_LOCAL_IP": "127.0.0.1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )


def test_an_executor_is_killed_in_the_middle_of_a_mirror_in_cluster_mode(cluster: Path, tmp_path: Path) -> None:
    ended = submit(cluster, MIRROR, str(tmp_path))
    assert ended.returncode == 0, ended.stderr
    assert (LostExecutor(tmp_path).is_over.exists(), (tmp_path / "mirrored").exists()) == (True, True)
