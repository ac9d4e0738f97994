"""A real standalone Spark cluster: a master and two workers, each a process of its own."""

from __future__ import annotations

import os
import re
import subprocess
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyspark

from reconciler.jobs.session import RunningSpark, start_session
from reconciler.resources.workspace import SparkSpec

HOME = Path(pyspark.__file__).parent


def _process(stack: ExitStack, folder: Path, kind: str, *arguments: str) -> subprocess.Popen[str]:
    """Start a part of a Spark cluster, ended with the stack."""
    command = [str(HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{kind}", "--host", "127.0.0.1"]
    ports = ["--port", "0", "--webui-port", "0"]
    environ = os.environ | {"SPARK_NO_DAEMONIZE": "1", "SPARK_LOCAL_IP": "127.0.0.1", "PYTHONPATH": ""}
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


@dataclass(frozen=True, slots=True)
class Standalone:
    """The session of a driver, and the processes of its workers."""

    spark: RunningSpark
    workers: tuple[subprocess.Popen[str], ...]


@contextmanager
def standalone(folder: Path) -> Iterator[Standalone]:
    """Start a cluster of two workers with a core each, and a session on it."""
    folder.mkdir(exist_ok=True)
    with ExitStack() as stack:
        master = _wait_for(_process(stack, folder, "master.Master"), r"Starting Spark master at (spark://\S+)")
        workers: list[subprocess.Popen[str]] = []
        for number in range(2):
            options = ("--cores", "1", "--memory", "1g", "--work-dir", str(folder / f"work-{number}"))
            workers.append(_process(stack, folder, "worker.Worker", *options, master))
            _wait_for(workers[-1], r"Successfully (registered) with master")
        conf: dict[str, str | int | bool] = {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.executor.memory": "512m",
        }
        spark = stack.enter_context(start_session(SparkSpec(master=master, conf=conf), environ=os.environ))
        yield Standalone(spark, tuple(workers))
