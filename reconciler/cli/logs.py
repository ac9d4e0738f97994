"""`--verbose`: one JSON object a line on standard error, for people and for whoever collects them."""

from __future__ import annotations

import json
import logging
import sys
import time
from typing import Any

from reconciler.cli.render.escaping import visible


class JsonLines(logging.Formatter):
    """A record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{record.msecs:03.0f}Z"
        said: dict[str, Any] = {"at": at, "level": record.levelname.lower(), "logger": record.name}
        said["message"] = visible(record.getMessage())
        return json.dumps(said, ensure_ascii=False)


def log_to_stderr() -> None:
    """Let our loggers, and only ours, speak."""
    speaker = logging.StreamHandler(sys.stderr)
    speaker.setFormatter(JsonLines())
    logger = logging.getLogger("reconciler")
    logger.handlers[:] = [speaker]
    logger.setLevel(logging.DEBUG)
    logger.propagate = False
