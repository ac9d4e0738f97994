"""What git says of a folder: the commit it is at, and the files changed since a revision."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING, Final

from reconciler.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_SECONDS: Final = 30


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


def _git(folder: Path, environ: Mapping[str, str], *arguments: str) -> str:
    done = subprocess.run(  # noqa: S603 - a list, no shell; the revision is behind --end-of-options
        ["git", "-C", str(folder), *arguments],  # noqa: S607 - git is found on the PATH, as everywhere
        env={**environ, "GIT_OPTIONAL_LOCKS": "0"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=True,
        timeout=_SECONDS,
    )
    return done.stdout.decode("utf-8", "surrogateescape")
