"""Version, warnings, and the log of `--verbose`."""

from __future__ import annotations

import json
import logging
import sys
import time
from typing import Any, Final

from reconciler.cli.console import open_stderr
from reconciler.cli.text.lines import Span, Tone, make_line
from reconciler.runtime.text import escape_invisible
from reconciler.version import __version__


def format_version() -> str:
    """Return the output of `--version`."""
    return f"reconciler {__version__}"


def warn(text: str) -> None:
    """Print a warning; with `--verbose`, log it instead."""
    if is_log_enabled():
        log_event("warning", text=text)
        return
    open_stderr().show([make_line(Span("Warning: ", Tone.CHANGE), text)])


_LOGGER: Final = logging.getLogger("reconciler.cli")


class JsonLines(logging.Formatter):
    """Formats a log record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        """Format time, level, logger, message and facts."""
        at = f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(record.created))}.{int(record.msecs):03}Z"
        fields: dict[str, Any] = {"at": at, "level": record.levelname.lower(), "logger": record.name}
        fields["message"] = escape_invisible(record.getMessage())
        fields["facts"] = getattr(record, "facts", {})
        return json.dumps(fields, default=str)


def log_to_stderr() -> None:
    """Log this package's debug messages to standard error."""
    speaker = logging.StreamHandler(sys.stderr)
    speaker.setFormatter(JsonLines())
    logger = logging.getLogger("reconciler")
    logger.handlers[:] = [speaker]
    logger.setLevel(logging.DEBUG)
    logger.propagate = False


def log_event(message: str, /, **facts: object) -> None:
    """Log an event if `--verbose` is given."""
    if is_log_enabled():
        _LOGGER.debug(message, extra={"facts": facts})


def is_log_enabled() -> bool:
    """Return whether `--verbose` is given."""
    return _LOGGER.isEnabledFor(logging.DEBUG)


def stop_logging() -> None:
    """Undo `log_to_stderr`."""
    logger = logging.getLogger("reconciler")
    logger.handlers.clear()
    logger.setLevel(logging.NOTSET)
