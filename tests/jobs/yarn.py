"""A real YARN cluster in one JVM: a resource manager and a node manager, which starts containers as processes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

from examples.kafkajars import java, yarn_classpath
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


@contextmanager
def yarn(folder: Path) -> Iterator[None]:
    """Start a cluster, and set the environment variables with which its clients find it."""
    with pytest.MonkeyPatch.context() as patch, (folder / "yarn.log").open("w") as log:
        patch.setenv("HADOOP_CONF_DIR", str(folder))
        patch.setenv("JAVA_HOME", str(Path(java()).resolve().parents[1]))
        port, token, process = launch_gateway(
            classpath=yarn_classpath(),
            jarpath=str(next(HOME.glob("jars/py4j-*.jar"))),
            javaopts=["-Xmx512m"],
            die_on_exit=True,
            redirect_stdout=log,
            redirect_stderr=log,
            enable_auth=True,
            return_proc=True,
            cwd=str(folder),
        )
        gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auth_token=token))
        try:
            cluster = _start_cluster(gateway.jvm)
            site = gateway.jvm.java.io.FileOutputStream(str(folder / "yarn-site.xml"))
            cluster.getConfig().writeXml(site)
            site.close()
            yield
        finally:
            gateway.shutdown()
            process.stdin.close()
            process.wait()


def _start_cluster(jvm: Any) -> Any:
    settings = jvm.org.apache.hadoop.yarn.conf.YarnConfiguration()
    for name, value in _SETTINGS.items():
        settings.set(name, value)
    cluster = jvm.org.apache.hadoop.yarn.server.MiniYARNCluster("yarn", 1, 1, 1)
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
        "spark.sql.shuffle.partitions": "2",
    }
