"""Spark is started quietly, leaves nothing behind, and does not outlive who started it."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

pytestmark = pytest.mark.spark

ROOT = Path(__file__).parents[2]
PATIENCE_S = 120


@contextmanager
def script(body: str, folder: Path, *arguments: str, warnings: str = "error") -> Iterator[subprocess.Popen[str]]:
    """Run Python that begins with a session, in a folder of its own; it is ended with the block."""
    begin = "import os, sys, signal, threading\n" + textwrap.dedent(
        """
        from reconciler.errors import UserError
        from reconciler.jobs.session import start_session
        from reconciler.resources.workspace import SparkSpec
        """
    )
    environ = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONWARNINGS": warnings}
    command = [sys.executable, "-c", begin + textwrap.dedent(body), *arguments]
    with subprocess.Popen(
        command, cwd=folder, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as running:
        try:
            yield running
        finally:
            running.kill()


def run(body: str, folder: Path, *arguments: str, warnings: str = "error") -> tuple[str, str, int]:
    with script(body, folder, *arguments, warnings=warnings) as running:
        stdout, stderr = running.communicate(timeout=PATIENCE_S)
        return stdout, stderr, running.returncode


def test_nothing_is_printed_and_nothing_is_left(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "tmp").mkdir()
    body = """
        handler = signal.getsignal(signal.SIGINT)
        conf = {"spark.local.dir": sys.argv[1], "spark.sql.shuffle.partitions": 2}
        with start_session(SparkSpec(master="local[1]", conf=conf), environ=os.environ) as spark:
            assert spark.session.range(10).groupBy().count().collect()[0][0] == 10
            assert signal.getsignal(signal.SIGINT) is handler
            assert spark.session.conf.get("spark.driver.host") == "127.0.0.1"
            assert spark.session.conf.get("spark.sql.shuffle.partitions") == "2"
            jvm = spark._gateway.proc
        assert jvm.poll() is not None
        """
    assert run(body, tmp_path / "work", str(tmp_path / "tmp")) == ("", "", 0)
    assert list((tmp_path / "work").iterdir()) == []
    assert list((tmp_path / "tmp").iterdir()) == []


REFUSED = """
        try:
            start_session(SparkSpec(master="west"), environ=os.environ)
        except UserError as error:
            print(error)
        """


def test_a_master_that_is_none_is_refused_in_one_line(tmp_path: Path) -> None:
    assert refusal_and_rest(REFUSED, tmp_path) == []


@pytest.mark.soak
def test_after_a_master_that_is_none_another_may_follow(tmp_path: Path) -> None:
    body = f"""{REFUSED}
        with start_session(SparkSpec(master="local[1]"), environ=os.environ) as spark:
            print(spark.session.range(3).count())
        """
    assert refusal_and_rest(body, tmp_path) == ["3"]


def refusal_and_rest(body: str, folder: Path) -> list[str]:
    """Run what a master refuses, and return the lines after the refusal."""
    # PySpark forgets the pipe to a JVM that did not start.
    stdout, stderr, code = run(body, folder, warnings="error,ignore::ResourceWarning")
    assert (stderr, code) == ("", 0)
    refusal, *rest = stdout.splitlines()
    assert refusal.startswith("Spark does not start with master west: Master must either be yarn or start with spark")
    assert "spec.spark in reconciler.yaml" in refusal
    return rest


@pytest.mark.soak
def test_the_jvm_does_not_outlive_a_python_that_was_killed(tmp_path: Path) -> None:
    body = """
        spark = start_session(SparkSpec(master="local[1]"), environ=os.environ)
        print(spark._gateway.proc.pid, flush=True)
        threading.Event().wait()
        """
    with script(body, tmp_path) as running:
        assert running.stdout is not None
        jvm = os.pidfd_open(int(running.stdout.readline()))
        try:
            running.send_signal(signal.SIGKILL)
            assert ended(jvm)
        finally:
            os.close(jvm)


def ended(process: int) -> bool:
    """Wait until a process is gone, whoever's child it is, but not forever."""

    return bool(select.select([process], [], [], PATIENCE_S)[0])
