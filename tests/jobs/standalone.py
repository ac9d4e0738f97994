"""Real Spark servers: a standalone cluster of a master and two workers, and a Connect server, each a process."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pyspark

from reconciler.jobs.session import RunningSpark, start_session
from reconciler.resources.workspace import SparkSpec

HOME = Path(pyspark.__file__).parent


def _process(stack: ExitStack, folder: Path, kind: str, host: str, *arguments: str) -> subprocess.Popen[str]:
    """Start a part of a Spark cluster, ended with the stack."""
    command = [str(HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{kind}", "--host", host]
    ports = ["--port", "0", "--webui-port", "0"]
    environ = os.environ | {"SPARK_NO_DAEMONIZE": "1", "SPARK_LOCAL_IP": host, "PYTHONPATH": ""}
    running = stack.enter_context(
        subprocess.Popen([*command, *ports, *arguments], cwd=folder, env=environ, stderr=subprocess.PIPE, text=True)
    )
    stack.callback(running.kill)
    return running


def _wait_for(process: subprocess.Popen[str], pattern: str) -> str:
    lines = process.stderr
    assert lines is not None
    for line in lines:
        if found := re.search(pattern, line):
            # It goes on talking: a full pipe would stop it.
            threading.Thread(target=lambda: deque(lines, 0), daemon=True).start()
            return found[1]
    raise AssertionError(f"it ended without saying {pattern}")


@dataclass(slots=True)
class Standalone:
    """A master and its workers, and the session of a driver."""

    stack: ExitStack
    folder: Path
    master: str
    workers: dict[int, subprocess.Popen[str]] = field(default_factory=dict)
    spark: RunningSpark = field(init=False)

    def add_worker(self) -> None:
        """Start a worker with a core; each is a host of its own, because Spark tries a slow task on another one."""
        number = len(self.workers)
        options = ("--cores", "1", "--memory", "1g", "--work-dir", str(self.folder / f"work-{number}"))
        host = f"127.0.0.{number + 2}"
        self.workers[number] = _process(self.stack, self.folder, "worker.Worker", host, *options, self.master)
        _wait_for(self.workers[number], r"Successfully (registered) with master")

    def kill_worker_of(self, folder: str) -> None:
        """Kill the worker whose executor works in a folder, and with it the executor."""
        (number,) = (int(part.removeprefix("work-")) for part in Path(folder).parts if part.startswith("work-"))
        self.workers[number].kill()
        self.workers[number].wait()


@contextmanager
def master_alone(folder: Path) -> Iterator[str]:
    """Start a master without any worker, and return its URL."""
    with ExitStack() as stack:
        yield _wait_for(
            _process(stack, folder, "master.Master", "127.0.0.1"), r"Starting Spark master at (spark://\S+)"
        )


@contextmanager
def two_workers(folder: Path) -> Iterator[Standalone]:
    """Start a cluster of two workers with a core each, without a session."""
    folder.mkdir(exist_ok=True)
    with ExitStack() as stack:
        process = _process(stack, folder, "master.Master", "127.0.0.1")
        running = Standalone(stack, folder, _wait_for(process, r"Starting Spark master at (spark://\S+)"))
        running.add_worker()
        running.add_worker()
        yield running


@contextmanager
def standalone(folder: Path) -> Iterator[Standalone]:
    """Start a cluster of two workers with a core each, and a session on it that tries slow tasks a second time."""
    with two_workers(folder) as running:
        conf: dict[str, str | int | bool] = {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.executor.memory": "512m",
            "spark.sql.shuffle.partitions": 2,
            "spark.speculation": True,
            "spark.speculation.interval": "100ms",
            "spark.speculation.quantile": "0.1",
            "spark.speculation.multiplier": "1.1",
            "spark.speculation.task.duration.threshold": "2s",
        }
        running.spark = running.stack.enter_context(
            start_session(SparkSpec(master=running.master, conf=conf), environ=os.environ)
        )
        yield running


@contextmanager
def connect_server(folder: Path) -> Iterator[str]:
    """Start a Spark Connect server that tries a task that failed again, and return its URL."""
    conf = {"spark.connect.grpc.binding.port": "0", "spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2"}
    options = [part for name, value in conf.items() for part in ("--conf", f"{name}={value}")]
    command = [str(HOME / "bin" / "spark-submit"), "--master", "local[2,4]", *options]
    environ = os.environ | {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": ""}
    service = ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal"]
    with subprocess.Popen([*command, *service], cwd=folder, env=environ, stderr=subprocess.PIPE, text=True) as server:
        try:
            port = _wait_for(server, r"Spark Connect server started at: .*:(\d+)")
            yield f"sc://127.0.0.1:{port}"
        finally:
            server.kill()
