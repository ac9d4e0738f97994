"""A real YARN cluster in one JVM: a resource manager and a node manager, which starts containers as processes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from examples.kafkajars import java, yarn_classpath
from tests.jobs.jvm import jvm
from tests.jobs.standalone import HOME

_SETTINGS = {
    "yarn.scheduler.capacity.root.queues": "default",
    "yarn.scheduler.capacity.root.default.capacity": "100",
    "yarn.scheduler.capacity.maximum-am-resource-percent": "1",
    "yarn.scheduler.minimum-allocation-mb": "64",
    "yarn.nodemanager.resource.memory-mb": "4096",
    "yarn.nodemanager.vmem-check-enabled": "false",
    "yarn.nodemanager.disk-health-checker.max-disk-utilization-per-disk-percentage": "100",
}

_QUICK_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


@contextmanager
def yarn(folder: Path) -> Iterator[None]:
    """Start a cluster, and set the environment variables with which its clients find it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HADOOP_CONF_DIR", str(folder))
        patch.setenv("JAVA_HOME", str(Path(java()).resolve().parents[1]))
        with jvm(folder, yarn_classpath()) as classes:
            site = classes.java.io.FileOutputStream(str(folder / "yarn-site.xml"))
            _start_cluster(classes).getConfig().writeXml(site)
            site.close()
            yield


def _start_cluster(classes: Any) -> Any:
    settings = classes.org.apache.hadoop.yarn.conf.YarnConfiguration()
    for name, value in _SETTINGS.items():
        settings.set(name, value)
    cluster = classes.org.apache.hadoop.yarn.server.MiniYARNCluster("yarn", 1, 1, 1)
    cluster.init(settings)
    cluster.start()
    assert cluster.waitForNodeManagersToConnect(60_000)
    return cluster


def spark_settings(folder: Path) -> dict[str, str]:
    """Return Spark's settings for two small executors, whose jars are on this machine."""
    return {
        "spark.yarn.jars": f"local:{HOME}/jars/*",
        "spark.yarn.stagingDir": folder.as_uri(),
        "spark.yarn.am.memory": "512m",
        "spark.driver.memory": "512m",
        "spark.executor.memory": "512m",
        "spark.executor.instances": "2",
        "spark.yarn.scheduler.heartbeat.interval-ms": "500",
        "spark.scheduler.minRegisteredResourcesRatio": "0",
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.enabled": "false",
        **{f"spark.{process}.extraJavaOptions": _QUICK_START for process in ("driver", "yarn.am", "executor")},
    }
