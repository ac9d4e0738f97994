"""Spark on the other side of Spark Connect: no Java here."""

from __future__ import annotations

import importlib.util
import socket
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from reconciler.errors import UserError
from reconciler.jobs.faults import refused

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

_PORT: Final = 15002
_PATIENCE_S: Final = 10


def check_answers(url: str) -> None:
    """Return if somebody listens where the server should be: Spark's own client would try for minutes.

    Raises:
        UserError: Nobody does, the URL is none, or the client's libraries are missing.
    """
    host, port = _address(url)
    try:
        socket.create_connection((host, port), timeout=_PATIENCE_S).close()
    except OSError as error:
        hint = "Start it, or correct spec.spark.remote in reconciler.yaml."
        raise UserError(f"no Spark Connect server answers at {url}: {error.strerror or error}", hint=hint) from error
    if importlib.util.find_spec("grpc") is None:
        hint = "Install it: pip install 'stream-reconciler[connect]'."
        raise UserError(f"Data jobs run through Spark Connect at {url}, and its client is not installed", hint=hint)


def _address(url: str) -> tuple[str, int]:
    try:
        parts = urlsplit(url)
        if parts.scheme == "sc" and parts.hostname:
            return parts.hostname, parts.port or _PORT
    except ValueError:  # a port that is no number
        pass
    raise UserError(f"spec.spark.remote is {url}: not a Spark Connect URL", hint="Write sc://host:15002.")


def connect(url: str, conf: Mapping[str, str | int | bool]) -> SparkSession:
    """Return a session of the server that has answered something.

    Raises:
        UserError: It refuses.
    """
    from pyspark.sql import SparkSession  # noqa: PLC0415 - heavy, and an extra: only jobs need it

    builder = SparkSession.builder.remote(url)
    for name, value in conf.items():
        builder = builder.config(name, as_text(value))
    try:
        session = builder.getOrCreate()
        session.range(1).count()
    except Exception as error:
        raise refused(f"Spark Connect at {url} refuses", error) from error
    return session


def as_text(value: str | int | bool) -> str:  # noqa: FBT001 - what YAML gives
    """Return a setting as Spark reads it."""
    return str(value).lower() if isinstance(value, bool) else str(value)
