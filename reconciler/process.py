"""The process that runs this: its clock, ids, user, environment variables and git."""

from __future__ import annotations

import getpass
import os
import socket
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path

from reconciler import git
from reconciler.errors import UsageError, UserError
from reconciler.operations.steps.invocation import Invocation
from reconciler.runtime.text import in_utf8
from reconciler.version import __version__


def invocation(
    workspace: Path | None = None,
    principal: str | None = None,
    host: str | None = None,
    *,
    warn: Callable[[str], None],
    environ: Mapping[str, str] | None = None,
) -> Invocation:
    """Return what operations need of the process; without `environ` its own environment variables.

    Raises:
        UsageError: The principal is nobody's name, or there is a host without one.
    """
    _check_principal(principal, host)
    environ = dict(os.environ if environ is None else environ)
    return Invocation(
        cwd=_here(),
        environ=environ,
        now_ms=lambda: time.time_ns() // 1_000_000,
        new_id=lambda: str(uuid.uuid4()),
        new_run=_new_run,
        tool=__version__,
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
