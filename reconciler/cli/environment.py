"""The environment: time, ids, version and `--verbose`."""

from __future__ import annotations

import getpass
import json
import logging
import os
import socket
import sys
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from reconciler import __version__
from reconciler.cli.console import err
from reconciler.cli.text.lines import Span, Tone, line
from reconciler.errors import UsageError, UserError
from reconciler.runtime.text import in_utf8, visible

if TYPE_CHECKING:
    from reconciler.operations.steps.invocation import Invocation


# Which reconciler this is.


def tool_version() -> str:
    """Return our version."""
    return __version__


def version_line() -> str:
    """Return what `--version` prints."""
    return f"reconciler {tool_version()}"


def invocation(workspace: Path | None = None, principal: str | None = None, host: str | None = None) -> Invocation:
    """Return what a command is told of the world.

    Raises:
        UsageError: The principal is nobody's name, or there is a host without one.
    """
    _check_principal(principal, host)
    from reconciler.cli import git
    from reconciler.operations.steps.invocation import Invocation

    environ = dict(os.environ)
    return Invocation(
        cwd=_here(),
        environ=environ,
        now_ms=lambda: time.time_ns() // 1_000_000,
        new_id=lambda: str(uuid.uuid4()),
        new_run=_new_run,
        tool=tool_version(),
        who=_who(environ),
        ci_url=_ci_url(environ),
        git_commit=lambda folder: git.commit_of(folder, environ),
        fork_point=lambda folder, revision: git.fork_point(folder, environ, revision),
        is_ancestor=lambda folder, commit, of: git.is_ancestor(folder, environ, commit, of),
        changed_files=lambda folder, beside, revision: git.changed_since(folder, environ, revision, beside),
        base_files=lambda folder: git.base_files(folder, environ),
        read_limit=lambda folder: git.limit_of(folder, environ),
        workspace=workspace,
        principal=principal,
        host=host or "*",
        warn=warn,
    )


def warn(text: str) -> None:
    """Say one line to people, at once; with `--verbose` as a line of the log."""
    if speaks():
        note("warning", text=text)
        return
    err().show([line(Span("Warning: ", Tone.CHANGE), text)])


def _check_principal(principal: str | None, host: str | None) -> None:
    if principal is None:
        if host is not None:
            raise UsageError("--host needs --principal", hint="Name the principal too: --principal User:checkout")
        return
    from reconciler.embedded.acl import Permissions

    try:
        Permissions.of(principal)
    except UserError as error:
        raise UsageError(f"--principal {error.message}", hint=error.hint) from error


def _here() -> Path:
    try:
        return Path.cwd()
    except FileNotFoundError as error:
        raise UsageError(
            "the folder this command runs in is gone", hint="Change into a folder that exists, or give --workspace"
        ) from error


def _new_run() -> str:
    import uuid_utils

    return str(uuid_utils.uuid7())


def _who(environ: Mapping[str, str]) -> str:
    user = environ.get("GITHUB_ACTOR") or environ.get("GITLAB_USER_LOGIN") or _user()
    return in_utf8(f"{user}@{socket.gethostname()}")


def _user() -> str:
    """Return who is logged in; in a container a user may have a number and no name."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid-{os.getuid()}"


def _ci_url(environ: Mapping[str, str]) -> str | None:
    """Return the page of the pipeline run we are part of, in the words of the pipelines that have one."""
    server, repository, run = (environ.get(f"GITHUB_{word}") for word in ("SERVER_URL", "REPOSITORY", "RUN_ID"))
    if server and repository and run:
        return in_utf8(f"{server}/{repository}/actions/runs/{run}")
    page = environ.get("CI_JOB_URL") or environ.get("BUILD_URL")
    return page and in_utf8(page)


# `--verbose`: one JSON object a line on standard error, for people and for the process that collects them.


_LOGGER: Final = logging.getLogger("reconciler.cli")


class JsonLines(logging.Formatter):
    """A record as one line of JSON: when, how grave, who, what, and the facts that belong to it."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        at = f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(record.created))}.{int(record.msecs):03}Z"
        said: dict[str, Any] = {"at": at, "level": record.levelname.lower(), "logger": record.name}
        said["message"] = visible(record.getMessage())
        said["facts"] = getattr(record, "facts", {})
        return json.dumps(said, default=str)


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
