"""Jobs on a real YARN cluster, in client and in cluster mode, with an executor killed in the middle."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from reconciler.embedded.cluster import EmbeddedCluster
from reconciler.jobs.session import start_session
from reconciler.objectstore.directory import DirectoryStore
from reconciler.resources.workspace import SparkSpec
from tests.embedded.samples import NOW, ids
from tests.jobs.doubles import LostExecutor
from tests.jobs.every_job import SUBMITTED_MIRROR, Scene, mirror_is_the_same, no_broker
from tests.jobs.standalone import HOME
from tests.jobs.yarn import spark_settings, yarn
from tests.operations.stage import CLUSTER, LINK, ORDERS, TOPIC

if TYPE_CHECKING:
    from tests.jobs.conftest import OneSpark

pytestmark = [pytest.mark.spark, pytest.mark.thorough, pytest.mark.xdist_group("yarn")]

ROOT = Path(__file__).parents[2]
PATIENCE_S = 300
RECONCILER = Path(sys.executable).with_name("reconciler").read_text(encoding="utf-8")
WORKSPACE = """\
apiVersion: reconciler/v1
kind: Workspace
metadata: {name: shop}
spec:
  spark: {engine: spark, master: yarn}
"""


@pytest.fixture(scope="module")
def cluster(one_spark: OneSpark, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    one_spark.end()
    folder = tmp_path_factory.mktemp("yarn")
    with yarn(folder):
        yield folder


def test_an_executor_is_killed_in_the_middle_of_a_mirror_in_client_mode(cluster: Path, tmp_path: Path) -> None:
    mishap = LostExecutor(tmp_path)
    conf: dict[str, Any] = {"spark.driver.host": "127.0.0.1", **spark_settings(cluster)}
    with start_session(SparkSpec(master="yarn", conf=conf), environ=os.environ) as running:
        mirror_is_the_same(Scene(tmp_path, mishap, running.session, no_broker))
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
    ended = submit(cluster, SUBMITTED_MIRROR, str(tmp_path), "yarn")
    assert ended.returncode == 0, ended.stderr
    assert (LostExecutor(tmp_path).is_over.exists(), (tmp_path / "mirrored").exists()) == (True, True)


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """Return a workspace whose mirror from west to east has nine records to copy."""
    link = LINK.replace("MODE", "bidirectional").replace("ROLE", "mirroring")
    manifests = (CLUSTER.replace("NAME", "west"), CLUSTER.replace("NAME", "east"), TOPIC, link)
    (tmp_path / "manifests").mkdir()
    (tmp_path / "manifests" / "all.yaml").write_text("---\n".join(manifests))
    (tmp_path / "reconciler.yaml").write_text(WORKSPACE)
    subprocess.run([sys.executable, "-m", "reconciler.cli.main", "apply", "--yes"], cwd=tmp_path, check=True)
    with opened(tmp_path, "west").producer() as producer:
        for number in range(9):
            producer.send(ORDERS, f"order {number}", partition=0)
    return tmp_path


def opened(workspace: Path, name: str) -> EmbeddedCluster:
    return EmbeddedCluster.open(DirectoryStore(workspace / ".clusters" / name), now_ms=lambda: NOW, new_id=ids())


def submit_run(cluster: Path, workspace: Path, mode: str) -> subprocess.CompletedProcess[str]:
    options = ("--once", "--only", "mirror", "--workspace", str(workspace))
    return submit(cluster, RECONCILER, "run", *options, mode=mode)


@pytest.mark.parametrize("mode", ["client", "cluster"])
def test_run_is_submitted_to_yarn(cluster: Path, workspace: Path, mode: str) -> None:
    ended = submit_run(cluster, workspace, mode)
    assert ended.returncode == 0, ended.stderr
    assert [one.value for one in opened(workspace, "east").consume(ORDERS)] == [b"order %d" % n for n in range(9)]


def test_a_submission_to_another_master_than_that_of_the_workspace_is_refused(cluster: Path, workspace: Path) -> None:
    (workspace / "reconciler.yaml").write_text(WORKSPACE.replace("yarn", '"local[2]"'))
    ended = submit_run(cluster, workspace, "client")
    assert ended.returncode != 0
    assert "spark-submit runs this command with master yarn, and spec.spark.master is local[2]" in ended.stdout
    assert list(opened(workspace, "east").consume(ORDERS)) == []
