"""A JVM of its own for classes that tests call."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from py4j import java_gateway, protocol
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

from tests.jobs.standalone import HOME


@contextmanager
def jvm(folder: Path, classpath: str) -> Iterator[Any]:
    """Start a JVM in a folder, which gets its output as `jvm.log`, and return its classes."""
    with (folder / "jvm.log").open("w") as log, pytest.MonkeyPatch.context() as patch:
        # A Spark session of this process has put PySpark's own errors in its place, which need Spark's JVM.
        patch.setattr(java_gateway, "get_return_value", protocol.get_return_value)
        port, token, process = launch_gateway(
            classpath=classpath,
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
            yield gateway.jvm
        finally:
            gateway.shutdown()
            process.stdin.close()
            process.wait()
