"""Where time, ids and the environment enter: read here once, handed down from here."""

from __future__ import annotations

import getpass
import os
import socket
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

from reconciler.cli.console import err
from reconciler.cli.render.lines import Span, Tone, line
from reconciler.cli.version import tool_version
from reconciler.errors import UsageError, UserError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from reconciler.workflow.beginning.invocation import Invocation


def invocation(workspace: Path | None = None, principal: str | None = None, host: str | None = None) -> Invocation:
    """Return what a command is told of the world.

    Raises:
        UsageError: The principal is nobody's name, or there is a host without one.
    """
    _check_principal(principal, host)
    from reconciler.cli import git
    from reconciler.workflow.beginning.invocation import Invocation

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
        changed_files=lambda folder, revision: git.changed_since(folder, environ, revision),
        base_files=lambda folder: git.base_files(folder, environ),
        read_limit=lambda folder: git.limit_of(folder, environ),
        workspace=workspace,
        principal=principal,
        host=host or "*",
        warn=warn,
    )


def warn(text: str) -> None:
    """Say one line to people, at once; with `--verbose` as a line of the log."""
    from reconciler.cli.logs import note, speaks

    if speaks():
        note("warning", text=text)
        return
    err().show([line(Span("Warning: ", Tone.CHANGE), text)])


def _check_principal(principal: str | None, host: str | None) -> None:
    if principal is None:
        if host is not None:
            raise UsageError(
                "--host says where a principal acts from", hint="Name whom, too: --principal User:checkout"
            )
        return
    from reconciler.embedded.access.permissions import Permissions

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
    return f"{user}@{socket.gethostname()}"


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
        return f"{server}/{repository}/actions/runs/{run}"
    return environ.get("CI_JOB_URL") or environ.get("BUILD_URL")
