"""What git says of a folder: the commit it is at, and the files changed since a revision."""

from __future__ import annotations

import atexit
import io
import json
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from reconciler.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Mapping

_SECONDS: Final = 30
_GIT: Final = "Install git."
_FETCH: Final = (
    "Secrets go only where the base sends them. Fetch it: `fetch-depth: 0` of actions/checkout, GIT_DEPTH 0 of GitLab."
)


def commit_of(folder: Path, environ: Mapping[str, str]) -> str | None:
    """Return the commit a folder is at; `None` outside a repository, in an empty one and without git."""
    try:
        return _git(folder, environ, "rev-parse", "--verify", "--quiet", "HEAD").strip() or None
    except (OSError, subprocess.SubprocessError):
        return None


def prefix_of(folder: Path, environ: Mapping[str, str]) -> str:
    """Return the way from the root of its repository to a folder, as `topics/`; nothing outside a repository."""
    try:
        return _git(folder, environ, "rev-parse", "--show-prefix").removesuffix("\n")
    except (OSError, subprocess.SubprocessError):
        return ""


def changed_since(folder: Path, environ: Mapping[str, str], revision: str) -> tuple[str, ...]:
    """Return the files below `folder`, relative to it, that differ from where this branch left `revision`.

    What is not committed yet counts as changed, files git does not know yet too.

    Raises:
        UserError: There is no git, no repository, no such revision, or no common ancestor.
    """
    try:
        commit = _git(folder, environ, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
        base = _git(folder, environ, "merge-base", "HEAD", commit.strip()).strip()
        changed = _git(folder, environ, "diff", "--name-only", "--no-renames", "--relative", "-z", base, "--", ".")
        unknown = _git(folder, environ, "ls-files", "--others", "--exclude-standard", "-z", "--", ".")
    except FileNotFoundError as error:
        raise UserError("--changed-since needs git, which is not installed", hint="Install git") from error
    except (OSError, subprocess.SubprocessError) as error:
        raise UserError(
            f"git cannot tell what changed since '{revision}' in {folder}",
            hint="Name a commit, branch or tag of this repository that HEAD has an ancestor in common with; "
            "in a pipeline fetch the whole history (fetch-depth: 0)",
        ) from error
    return tuple(sorted({path for path in (changed + unknown).split("\0") if path}))


def base_files(folder: Path, environ: Mapping[str, str]) -> Path | None:
    """Return a folder with what `folder` holds on the base of a pull request; `None`: this is no pull request.

    It goes when this process ends.

    Raises:
        UserError: The base is not known, or git does not have it.
    """
    revision = _base_of(environ)
    if revision is None:
        return None
    try:
        prefix = _git(folder, environ, "rev-parse", "--show-prefix").removesuffix("\n")
        root = Path(_git(folder, environ, "rev-parse", "--show-toplevel").removesuffix("\n"))
        commit = _git(folder, environ, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
        place = Path(tempfile.mkdtemp(prefix="reconciler-base-"))
        atexit.register(shutil.rmtree, place, ignore_errors=True)
        tree = f"{commit.strip()}:{prefix.rstrip('/')}"
        if _git(root, environ, "ls-tree", "--name-only", commit.strip(), "--full-tree", "--", prefix or "."):
            with tarfile.open(fileobj=io.BytesIO(_bytes(root, environ, "archive", "--format=tar", tree))) as files:
                files.extractall(place, filter="data")
    except FileNotFoundError as error:
        raise UserError("the base of this pull request is read with git, which is not installed", hint=_GIT) from error
    except (OSError, subprocess.SubprocessError, tarfile.TarError) as error:
        message = f"git cannot read {revision}, the base of this pull request"
        raise UserError(message, hint=_FETCH) from error
    return place


def _base_of(environ: Mapping[str, str]) -> str | None:
    """Return the commit or branch that a pull request is for, as the pipeline says it."""
    if told := environ.get("RECONCILER_BASE") or environ.get("CI_MERGE_REQUEST_DIFF_BASE_SHA"):
        return told
    if not environ.get("GITHUB_EVENT_NAME", "").startswith("pull_request"):
        return None
    try:
        event = json.loads(Path(environ["GITHUB_EVENT_PATH"]).read_bytes())
        return str(event["pull_request"]["base"]["sha"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        message = "this is a pull request, and the file of its event does not say what it is for"
        raise UserError(message, hint="Set RECONCILER_BASE to the branch or commit it is for.") from error


def _git(folder: Path, environ: Mapping[str, str], *arguments: str) -> str:
    return _bytes(folder, environ, *arguments).decode("utf-8", "surrogateescape")


def _bytes(folder: Path, environ: Mapping[str, str], *arguments: str) -> bytes:
    done = subprocess.run(  # noqa: S603 - a list, no shell; the revision is behind --end-of-options
        ["git", "-C", str(folder), *arguments],  # noqa: S607 - git is found on the PATH, as everywhere
        env={**environ, "GIT_OPTIONAL_LOCKS": "0"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=True,
        timeout=_SECONDS,
    )
    return done.stdout
