"""The version, warnings, and the log of `--verbose`."""

from __future__ import annotations

import json
import logging
import sys
import time
from typing import Any, Final

from reconciler.cli.console import err
from reconciler.cli.text.lines import Span, Tone, line
from reconciler.runtime.text import visible
from reconciler.version import __version__

# Which reconciler this is.


def version_line() -> str:
    """Return what `--version` prints."""
    return f"reconciler {__version__}"


def warn(text: str) -> None:
    """Say one line to people, at once; with `--verbose` as a line of the log."""
    if speaks():
        note("warning", text=text)
        return
    err().show([line(Span("Warning: ", Tone.CHANGE), text)])


# `--verbose`: one JSON object a line on standard error, for people and for the process that collects them.


_LOGGER: Final = logging.getLogger("reconciler.cli")


class JsonLines(logging.Formatter):
    """A record as one line of JSON: when, how grave, who, what, and the facts that belong to it."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        at = f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(record.created))}.{int(record.msecs):03}Z"
        fields: dict[str, Any] = {"at": at, "level": record.levelname.lower(), "logger": record.name}
        fields["message"] = visible(record.getMessage())
        fields["facts"] = getattr(record, "facts", {})
        return json.dumps(fields, default=str)


def log_to_stderr() -> None:
    """Let our loggers, and only ours, speak."""
    speaker = logging.StreamHandler(sys.stderr)
    speaker.setFormatter(JsonLines())
    logger = logging.getLogger("reconciler")
    logger.handlers[:] = [speaker]
    logger.setLevel(logging.DEBUG)
    logger.propagate = False


def note(message: str, /, **facts: object) -> None:
    """Log something worth knowing at 3 a.m.; costs nothing where nobody asked."""
    if speaks():
        _LOGGER.debug(message, extra={"facts": facts})


def speaks() -> bool:
    """Tell whether somebody asked for the log."""
    return _LOGGER.isEnabledFor(logging.DEBUG)


def hush() -> None:
    """End what `log_to_stderr` began: the next command in this process is asked anew."""
    logger = logging.getLogger("reconciler")
    logger.handlers.clear()
    logger.setLevel(logging.NOTSET)
