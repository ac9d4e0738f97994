"""Start and stop Spark, and send this package to executors."""

from __future__ import annotations

import importlib.util
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any, Final, Self

from reconciler.errors import MissingSparkError, UserError
from reconciler.jobs.progress import translate_start_error
from reconciler.jobs.stage import JOB_GROUP
from reconciler.resources.workspace import parse_spark_connect_address

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from reconciler.resources.workspace import SparkSpec

# ruff: noqa: PLC0415 - PySpark is an optional dependency

_PACKAGE: Final = Path(__file__).parents[1]


OLDEST: Final = 17
_JAVA_TIMEOUT_S: Final = 60
_VERSION: Final = re.compile(r'version "(?:1\.)?(\d+)')
_INSTALLERS: Final = (
    ("apt-get", f"sudo apt-get install openjdk-{OLDEST}-jre-headless"),
    ("dnf", f"sudo dnf install java-{OLDEST}-openjdk-headless"),
    ("apk", f"sudo apk add openjdk{OLDEST}-jre-headless"),
    ("brew", f"brew install openjdk@{OLDEST}"),
)


def check_java(environ: Mapping[str, str]) -> None:
    """Reject a missing or unsuitable Java in `JAVA_HOME` or on the `PATH`."""
    path = environ.get("PATH", "")
    home = environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else shutil.which("java", path=path)
    if java is None or shutil.which(java) is None:
        where = f"JAVA_HOME is {home}, and it has no bin/java" if home else "java is not on the PATH"
        raise MissingSparkError(
            f"Data jobs run on Spark, which needs Java {OLDEST} or newer: {where}", hint=_install_hint(path)
        )
    version = _java_version(java, environ)
    if version is None:
        raise MissingSparkError(f"{java} does not run: it does not print its version", hint=_install_hint(path))
    if version < OLDEST:
        message = f"Data jobs run on Spark, which needs Java {OLDEST} or newer: {java} is Java {version}"
        raise MissingSparkError(message, hint=_install_hint(path))


def _java_version(java: str, environ: Mapping[str, str]) -> int | None:
    try:
        result = subprocess.run(  # noqa: S603 - the program Spark itself would start
            [java, "-version"], env=dict(environ), capture_output=True, text=True, timeout=_JAVA_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = _VERSION.search(result.stderr + result.stdout)
    return int(match[1]) if match else None


def _install_hint(path: str) -> str:
    for program, command in _INSTALLERS:
        if shutil.which(program, path=path):
            return f"Install it: {command}; or set JAVA_HOME to one."
    place = "winget install EclipseAdoptium.Temurin.17.JRE" if sys.platform == "win32" else "https://adoptium.net"
    return f"Install it: {place}; or set JAVA_HOME to one."


_CONNECT_TIMEOUT_S: Final = 10


def check_spark_connect_server(url: str) -> None:
    """Reject a Spark Connect server that does not answer; Spark's client would retry for minutes."""
    shown, (host, port) = _hide_parameters(url), parse_spark_connect_address(url)
    try:
        socket.create_connection((host, port), timeout=_CONNECT_TIMEOUT_S).close()
    except OSError as error:
        hint = "Start it, or correct spec.spark.remote in reconciler.yaml."
        raise UserError(f"no Spark Connect server answers at {shown}: {error.strerror or error}", hint=hint) from error
    if importlib.util.find_spec("grpc") is None:
        hint = "Install it: pip install 'stream-reconciler[connect]'."
        raise MissingSparkError(
            f"Data jobs run through Spark Connect at {shown}, and its client is not installed", hint=hint
        )


def _hide_parameters(url: str) -> str:
    """Return a URL without its parameters, which may contain a token."""
    return url.partition(";")[0].rstrip("/")


def connect_spark(url: str, conf: Mapping[str, str | int | bool]) -> SparkSession:
    """Return a session of a Spark Connect server that has answered."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.remote(url)
    for name, value in conf.items():
        builder = builder.config(name, format_setting(value))
    try:
        session = builder.getOrCreate()
        session.range(1).count()
    except Exception as error:
        raise translate_start_error(f"Spark Connect at {_hide_parameters(url)} refuses", error) from error
    return session


def format_setting(value: str | int | bool) -> str:  # noqa: FBT001 - a YAML value
    """Return a setting as Spark's text."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def ship_package(session: SparkSession, folder: Path) -> None:
    """Send this package to executors, which must have its dependencies.

    The zip file in `folder` must outlive the session.
    """
    session.addArtifacts(str(pack_sources(folder)), pyfile=True)


def pack_sources(folder: Path, source: Path = _PACKAGE) -> Path:
    """Write the package's sources into an importable zip file; return its path."""
    target = folder / "reconciler.zip"
    # Zip files cannot store dates before 1980, and Nix dates files to 1970.
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, strict_timestamps=False) as archive:
        for path in sorted(source.rglob("*.py")):
            archive.write(path, Path(source.name, path.relative_to(source)))
    return target


_DEFAULTS: Final = {
    "spark.app.name": "reconciler",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.catalogImplementation": "in-memory",
}
_LOCAL: Final = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    # Spark starts a quarter faster without an optimizing compiler.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}
_EXIT_S: Final = 20
_GATEWAY: Final = "PYSPARK_GATEWAY_PORT"
"""Set by `spark-submit`, which has started the JVM with the submission's settings and stops it."""


class RunningSpark:
    """A Spark session that this process started, and its JVM."""

    def __init__(self, session: SparkSession, gateway: Any | None, resources: ExitStack) -> None:
        self.session = session
        self._gateway = gateway
        self._resources = resources

    def cancel(self) -> None:
        """Cancel running and future stages. Any thread may call it."""
        if self._gateway is None:
            self.session.interruptAll()
        else:
            context: Any = self.session.sparkContext
            # PySpark's `cancelAllJobs` misses stages submitted later.
            context._jsc.sc().cancelJobGroupAndFutureJobs(JOB_GROUP)  # noqa: SLF001

    @property
    def has_executors(self) -> bool:
        """Whether tasks can run: executors are registered, or the session is remote or `local`."""
        if self._gateway is None:
            return True
        context: Any = self.session.sparkContext
        if context.master.startswith("local"):
            return True
        known = context._jsc.sc().getExecutorMemoryStatus()  # noqa: SLF001 - Python has no API for it
        return bool(known.size() > 1)

    def stop(self) -> None:
        """Stop the session and its JVM."""
        with self._resources:
            self.session.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def start_session(spark: SparkSpec, *, environ: Mapping[str, str], log: IO[bytes] | None = None) -> RunningSpark:
    """Start Spark as the workspace configures it. `log` receives Spark's output."""
    check_ready(spark, environ=environ)
    with ExitStack() as resources:
        if spark.remote is not None:
            session, gateway = connect_spark(spark.remote, spark.conf), None
        else:
            with _restore_signal_handlers():
                session, gateway = _launch(spark, log, resources, environ)
            session.sparkContext.pythonExec = _find_python(spark, environ)
        if not _is_local(spark):
            ship_package(session, Path(resources.enter_context(tempfile.TemporaryDirectory(prefix="reconciler-"))))
        return RunningSpark(session, gateway, resources.pop_all())


def check_ready(spark: SparkSpec, *, environ: Mapping[str, str]) -> None:
    """Check that Spark can start on this machine, without starting it."""
    try:
        import pyspark  # noqa: F401
    except ImportError as error:
        hint = "Install it: pip install 'stream-reconciler[spark]'; to use a Spark Connect server: [connect]."
        raise MissingSparkError("Data jobs run on Spark, and PySpark is not installed", hint=hint) from error
    if spark.remote is None:
        if _GATEWAY not in environ:
            check_java(environ)
    else:
        check_spark_connect_server(spark.remote)


def _launch(
    spark: SparkSpec, log: IO[bytes] | None, resources: ExitStack, environ: Mapping[str, str]
) -> tuple[SparkSession, Any]:
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    settings = {"spark.master": spark.master}
    if _GATEWAY not in environ:
        settings |= {**_DEFAULTS, **(_LOCAL if _is_local(spark) else {})}
    settings.update({name: format_setting(value) for name, value in spark.conf.items()})
    aside = resources.enter_context(tempfile.TemporaryFile())  # noqa: SIM115 - the JVM writes to it
    words = {"stdout": log or aside, "stderr": log or aside}
    try:
        conf = SparkConf().setAll(list(settings.items()))
        gateway: Any = launch_gateway(conf, words)  # type: ignore[no-untyped-call]  # PySpark's own
        if gateway.proc is None:
            _check_submitted_master(spark.master, gateway)
        else:
            resources.callback(_stop_jvm, gateway)
        return SparkSession(SparkContext(conf=conf, gateway=gateway)), gateway
    except UserError:
        raise
    except Exception as error:
        aside.seek(0)
        output = aside.read(1 << 16).decode(errors="replace")
        raise translate_start_error(f"Spark does not start with master {spark.master}", error, output=output) from error


def _check_submitted_master(master: str, gateway: Any) -> None:
    submitted = gateway.jvm.System.getProperty("spark.master")
    if submitted != master:
        raise UserError(
            f"spark-submit runs this command with master {submitted}, and spec.spark.master is {master}",
            hint=f"Write master: {submitted} under spec.spark in reconciler.yaml, or pass --master '{master}'.",
        )


def _is_local(spark: SparkSpec) -> bool:
    return spark.remote is None and spark.master.startswith("local")


def _find_python(spark: SparkSpec, environ: Mapping[str, str]) -> str:
    return str(spark.conf.get("spark.pyspark.python") or environ.get("PYSPARK_PYTHON") or sys.executable)


def _stop_jvm(gateway: Any) -> None:
    """Close the JVM's standard input, which ends the JVM."""
    from pyspark import SparkContext

    gateway.shutdown()
    SparkContext._gateway = SparkContext._jvm = None  # noqa: SLF001 - or the next session would use this JVM
    gateway.proc.stdin.close()
    try:
        gateway.proc.wait(_EXIT_S)
    except subprocess.TimeoutExpired:
        gateway.proc.kill()
        gateway.proc.wait()


@contextmanager
def _restore_signal_handlers() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
