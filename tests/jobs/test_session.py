"""Spark is started quietly, leaves nothing behind, and does not outlive who started it."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
import textwrap
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from reconciler.errors import UserError
from reconciler.jobs.progress import translate_start_error
from reconciler.jobs.session import check_java, check_ready, pack_sources, start_session
from reconciler.resources.workspace import SparkSpec

pytestmark = pytest.mark.thorough

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


@pytest.mark.spark
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


@pytest.mark.spark
def test_workers_of_a_local_session_of_ones_own_run_the_python_of_its_driver(tmp_path: Path) -> None:
    other = tmp_path / "python3"
    other.write_text("#!/bin/sh\nexit 1\n")
    other.chmod(0o700)
    body = """
        from pyspark.sql import SparkSession
        from reconciler import register
        os.environ.pop("PYSPARK_PYTHON", None)
        os.environ["PATH"] = os.getcwd() + os.pathsep + os.environ["PATH"]
        session = SparkSession.builder.master("local[1]").config("spark.ui.enabled", False).getOrCreate()
        register(session, len)
        print(session.sparkContext.parallelize([0], 1).map(lambda _: sys.executable).collect() == [sys.executable])
        session.stop()
        """
    stdout, _, code = run(body, tmp_path, warnings="ignore")
    assert (stdout, code) == ("True\n", 0)


REFUSED = """
        try:
            start_session(SparkSpec(master="west://host"), environ=os.environ)
        except UserError as error:
            print(error)
        """


@pytest.mark.spark
def test_a_master_that_is_none_is_refused_in_one_line(tmp_path: Path) -> None:
    assert refusal_and_rest(REFUSED, tmp_path) == []


@pytest.mark.spark
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
    assert refusal.startswith(
        "Spark does not start with master west://host: Master must either be yarn or start with spark"
    )
    assert "spec.spark in reconciler.yaml" in refusal
    return rest


def test_what_a_jvm_only_warned_of_is_not_why_it_did_not_start() -> None:
    said = (
        "WARNING: Using incubator modules\n26/11/26 09:38:16 WARN Utils: Your hostname resolves to a loopback address\n"
    )
    error = RuntimeError("Java gateway process exited before sending its port number.")
    found = translate_start_error("Spark does not start", error, output=said)
    assert found.message == "Spark does not start: Java gateway process exited before sending its port number"
    assert (
        translate_start_error("Spark does not start", EOFError(), output=said).message
        == "Spark does not start: EOFError"
    )


@pytest.mark.spark
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


# Java is asked for before Spark is started; a missing or old one is one line with the way out.


def program(folder: Path, name: str, script: str = "") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def java(folder: Path, version: str) -> Path:
    """A Java that says what real ones say: on standard error, in their words."""
    return program(folder, "java", f"echo 'openjdk version \"{version}\" 2025-04-15' >&2")


@pytest.mark.parametrize("version", ["17.0.15", "21", "21-ea", "25.0.1"])
def test_a_java_that_is_new_enough_is_taken(tmp_path: Path, version: str) -> None:
    java(tmp_path, version)
    check_java({"PATH": str(tmp_path)})


@pytest.mark.parametrize(("version", "means"), [("1.8.0_412", "8"), ("11.0.22", "11"), ("16.0.2", "16")])
def test_a_java_that_is_too_old_is_named_with_its_version(tmp_path: Path, version: str, means: str) -> None:
    path = java(tmp_path, version)
    with pytest.raises(UserError) as refused:
        check_java({"PATH": str(tmp_path)})
    message = f"Data jobs run on Spark, which needs Java 17 or newer: {path} is Java {means}"
    assert refused.value.message == message


def test_no_java_at_all_is_said_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError) as refused:
        check_java({"PATH": str(tmp_path)})
    assert refused.value.message.endswith("java is not on the PATH")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("installer", "command"),
    [
        ("apt-get", "sudo apt-get install openjdk-17-jre-headless"),
        ("dnf", "sudo dnf install java-17-openjdk-headless"),
        ("apk", "sudo apk add openjdk17-jre-headless"),
        ("brew", "brew install openjdk@17"),
    ],
)
def test_the_hint_is_the_command_of_this_machine(tmp_path: Path, installer: str, command: str) -> None:
    program(tmp_path, installer)
    with pytest.raises(UserError) as refused:
        check_java({"PATH": str(tmp_path)})
    assert refused.value.hint == f"Install it: {command}; or set JAVA_HOME to one."


def test_java_home_comes_before_the_path(tmp_path: Path) -> None:
    java(tmp_path / "path", "11.0.1")
    java(tmp_path / "home" / "bin", "17.0.1")
    check_java({"PATH": str(tmp_path / "path"), "JAVA_HOME": str(tmp_path / "home")})


def test_a_java_home_without_java_is_named(tmp_path: Path) -> None:
    java(tmp_path / "path", "17.0.1")
    with pytest.raises(UserError, match=r"JAVA_HOME is .*nowhere, and it has no bin/java"):
        check_java({"PATH": str(tmp_path / "path"), "JAVA_HOME": str(tmp_path / "nowhere")})


@pytest.mark.parametrize("script", ["exit 3", "echo no idea", "kill -9 $$"])
def test_a_java_that_does_not_say_its_version_is_refused(tmp_path: Path, script: str) -> None:
    program(tmp_path, "java", script)
    with pytest.raises(UserError, match="it does not print its version"):
        check_java({"PATH": f"{tmp_path}:/bin:/usr/bin"})


def test_a_file_called_java_that_is_no_program_is_refused(tmp_path: Path) -> None:
    (tmp_path / "java").write_bytes(b"\x7fELF nonsense")
    (tmp_path / "java").chmod(0o755)
    with pytest.raises(UserError, match="it does not print its version"):
        check_java({"PATH": str(tmp_path)})


def test_a_session_is_refused_before_anything_is_started(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="java is not on the PATH"):
        start_session(SparkSpec(), environ={"PATH": str(tmp_path)})


# A Spark Connect server that is not there is said at once: Spark's own client would try for minutes.


def test_a_package_whose_files_are_of_1970_is_sent_too(tmp_path: Path) -> None:
    module = tmp_path / "reconciler" / "jobs.py"
    module.parent.mkdir()
    module.write_text("IT = 1\n")
    os.utime(module, (1, 1))
    assert zipfile.ZipFile(pack_sources(tmp_path, module.parent)).namelist() == ["reconciler/jobs.py"]


def test_a_server_that_does_not_answer_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        url = f"sc://127.0.0.1:{taken.getsockname()[1]}"
    for parameters in ("", "/;token=secret"):
        with pytest.raises(UserError, match=f"no Spark Connect server answers at {url}: Connection refused"):
            check_ready(SparkSpec(remote=f"{url}{parameters}"), environ={})
