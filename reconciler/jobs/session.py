"""Starting and stopping Spark: quickly, quietly, and without leaving anything behind."""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
import threading
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, Self

from reconciler.errors import UserError
from reconciler.jobs.connecting import as_text, check_answers, connect
from reconciler.jobs.faults import refused
from reconciler.jobs.java import check_java
from reconciler.jobs.shipping import ship
from reconciler.jobs.stage import JOB_GROUP

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from types import TracebackType

    from pyspark.sql import SparkSession

    from reconciler.resources.workspace import SparkSpec

_DEFAULTS: Final = {
    "spark.app.name": "reconciler",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.catalogImplementation": "in-memory",
}
_LOCAL: Final = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    # Records stay in Python, so the JVM has nothing to optimise: measured, it starts and answers a quarter sooner.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}
_EXIT_S: Final = 20


class RunningSpark:
    """A Spark session that this process started, and the JVM behind it."""

    def __init__(self, session: SparkSession, gateway: Any | None, kept: ExitStack) -> None:
        self.session = session
        self._gateway = gateway
        self._kept = kept

    def cancel(self) -> None:
        """Stop what runs and what would be started after it; may be called from any thread."""
        if self._gateway is None:
            self.session.interruptAll()
        else:
            context: Any = self.session.sparkContext
            # Python's own call would miss a stage that is about to be submitted.
            context._jsc.sc().cancelJobGroupAndFutureJobs(JOB_GROUP)  # noqa: SLF001

    def stop(self) -> None:
        """End the session, and the JVM with it."""
        with self._kept:
            self.session.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def start_session(spark: SparkSpec, *, environ: Mapping[str, str], log: IO[bytes] | None = None) -> RunningSpark:
    """Start Spark as the workspace says, and return when it takes work.

    `log`: where Spark's own words go; by default they are kept aside and quoted when it does not start.

    Raises:
        UserError: Java, PySpark or the Connect server are missing, or Spark refuses its settings.
    """
    check_ready(spark, environ=environ)
    with ExitStack() as kept:
        if spark.remote is not None:
            session, gateway = connect(spark.remote, spark.conf), None
        else:
            with _interrupts_kept():
                session, gateway = _launch(spark, log, kept)
            session.sparkContext.pythonExec = _python(spark, environ)
        if not _is_local(spark):
            ship(session, Path(kept.enter_context(tempfile.TemporaryDirectory(prefix="reconciler-"))))
        return RunningSpark(session, gateway, kept.pop_all())


def check_ready(spark: SparkSpec, *, environ: Mapping[str, str]) -> None:
    """Return if Spark could be started here; starts nothing.

    Raises:
        UserError: Java, PySpark or the Connect server are missing.
    """
    try:
        import pyspark  # noqa: F401, PLC0415 - heavy, and an extra: only jobs need it
    except ImportError as error:
        hint = "Install it: pip install 'stream-reconciler[spark]'; to use a Spark Connect server: [connect]."
        raise UserError("Data jobs run on Spark, and PySpark is not installed", hint=hint) from error
    if spark.remote is None:
        check_java(environ)
    else:
        check_answers(spark.remote)


def _launch(spark: SparkSpec, log: IO[bytes] | None, kept: ExitStack) -> tuple[SparkSession, Any]:
    from pyspark import SparkConf, SparkContext  # noqa: PLC0415 - see above
    from pyspark.java_gateway import launch_gateway  # noqa: PLC0415
    from pyspark.sql import SparkSession  # noqa: PLC0415

    settings = {**_DEFAULTS, **(_LOCAL if _is_local(spark) else {}), "spark.master": spark.master}
    settings.update({name: as_text(value) for name, value in spark.conf.items()})
    aside = kept.enter_context(tempfile.TemporaryFile())  # noqa: SIM115 - it lives as long as the JVM writes to it
    words = {"stdout": log or aside, "stderr": log or aside}
    try:
        conf = SparkConf().setAll(list(settings.items()))
        gateway: Any = launch_gateway(conf, words)  # type: ignore[no-untyped-call]  # PySpark's own
        kept.callback(_end, gateway)
        return SparkSession(SparkContext(conf=conf, gateway=gateway)), gateway
    except Exception as error:
        aside.seek(0)
        said = aside.read(1 << 16).decode(errors="replace")
        raise refused(f"Spark does not start with master {spark.master}", error, said=said) from error


def _is_local(spark: SparkSpec) -> bool:
    return spark.remote is None and spark.master.startswith("local")


def _python(spark: SparkSpec, environ: Mapping[str, str]) -> str:
    """Return the interpreter of the tasks: this one, unless somebody says which."""
    return str(spark.conf.get("spark.pyspark.python") or environ.get("PYSPARK_PYTHON") or sys.executable)


def _end(gateway: Any) -> None:
    """Let the JVM go: it ends when its standard input does."""
    from pyspark import SparkContext  # noqa: PLC0415 - see above

    gateway.shutdown()
    SparkContext._gateway = SparkContext._jvm = None  # noqa: SLF001 - else the next session talks to a dead JVM
    gateway.proc.stdin.close()
    try:
        gateway.proc.wait(_EXIT_S)
    except subprocess.TimeoutExpired:
        gateway.proc.kill()
        gateway.proc.wait()


@contextmanager
def _interrupts_kept() -> Iterator[None]:
    """Undo what Spark does to Ctrl-C: who started us decides what an interrupt means."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    kept = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, kept)
