"""Clock, ids, user, environment variables and git of the process."""

from __future__ import annotations

import atexit
import getpass
import json
import os
import re
import shutil
import socket
import subprocess
import tempfile
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final, NamedTuple

from reconciler.errors import UsageError, UserError
from reconciler.operations.steps.invocation import Invocation, PullRequestBase
from reconciler.runtime.text import escape_non_utf8
from reconciler.version import __version__


def build_invocation(
    workspace: Path | None = None,
    principal: str | None = None,
    host: str | None = None,
    *,
    warn: Callable[[str], None],
    environ: Mapping[str, str] | None = None,
) -> Invocation:
    """Build the invocation of this process; `environ` defaults to its environment variables."""
    _check_principal(principal, host)
    environ = dict(os.environ if environ is None else environ)
    return Invocation(
        cwd=_find_working_folder(),
        environ=environ,
        now_ms=lambda: time.time_ns() // 1_000_000,
        new_id=lambda: str(uuid.uuid4()),
        new_run=_create_run_id,
        tool=__version__,
        who=_read_user(environ),
        ci_url=_build_ci_url(environ),
        git_commit=lambda folder: read_commit(folder, environ),
        fork_point=lambda folder, revision: find_fork_point(folder, environ, revision),
        is_ancestor=lambda folder, commit, of: is_ancestor(folder, environ, commit, of),
        changed_files=lambda folder, extra_paths, revision: list_changed_files(folder, environ, revision, extra_paths),
        base_files=lambda folder: extract_base_files(folder, environ),
        files_at=lambda folder, commit: extract_commit_files(folder, environ, commit),
        read_limit=lambda folder: find_read_limit(folder, environ),
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


def _find_working_folder() -> Path:
    try:
        return Path.cwd()
    except FileNotFoundError as error:
        raise UsageError(
            "the folder this command runs in was deleted", hint="Change into a folder that exists, or give --workspace"
        ) from error


def _create_run_id() -> str:
    import uuid_utils

    return str(uuid_utils.uuid7())


def _read_user(environ: Mapping[str, str]) -> str:
    user = environ.get("GITHUB_ACTOR") or environ.get("GITLAB_USER_LOGIN") or _read_login_name()
    return escape_non_utf8(f"{user}@{socket.gethostname()}")


def _read_login_name() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid-{os.getuid()}"


def _build_ci_url(environ: Mapping[str, str]) -> str | None:
    server, repository, run = (environ.get(f"GITHUB_{word}") for word in ("SERVER_URL", "REPOSITORY", "RUN_ID"))
    if server and repository and run:
        return escape_non_utf8(f"{server}/{repository}/actions/runs/{run}")
    page = environ.get("CI_JOB_URL") or environ.get("BUILD_URL")
    return page and escape_non_utf8(page)


_GIT_TIMEOUT_S: Final = 30
_MAX_FILE_BYTES: Final = 32 * 2**20
_SYMLINK_MODE: Final = "120000"
_SAFE_OPTIONS: Final = ("--no-replace-objects", "-c", "safe.bareRepository=explicit", "-c", "core.fsmonitor=false")
"""Options that stop git from running commands configured in a repository."""
_INSTALL_GIT: Final = "Install git."
_FETCH_BASE: Final = (
    "Secrets go only where the base sends them. Fetch it: `fetch-depth: 0` of actions/checkout, GIT_DEPTH 0 of GitLab."
)


def read_commit(folder: Path, environ: Mapping[str, str]) -> str | None:
    """Return the commit checked out in a folder; `None` without git, repository or commit."""
    try:
        return _read_git(folder, environ, "rev-parse", "--verify", "--quiet", "HEAD").strip() or None
    except (OSError, subprocess.SubprocessError):
        return None


def read_repository_prefix(folder: Path, environ: Mapping[str, str]) -> str:
    """Return a folder's path in its repository, such as `topics/`; empty at the root or outside one."""
    try:
        return _read_git(folder, environ, "rev-parse", "--show-prefix").removesuffix("\n")
    except (OSError, subprocess.SubprocessError):
        return ""


class Forge(NamedTuple):
    """URL prefixes of files and commits on a forge, the commit, and the URL of the CI run."""

    files: str
    commits: str
    commit: str = ""
    run: str | None = None


_SERVER: Final = re.compile(r"https?://[A-Za-z0-9.:\[\]_-]+(/[A-Za-z0-9._~/-]*)?")
_COMMIT: Final = re.compile(r"[0-9a-f]{7,64}")


def read_forge(folder: Path, environ: Mapping[str, str]) -> Forge | None:
    """Return the forge's URLs for a folder at its commit; `None` if no environment variable names a forge.

    GitHub and Gitea: https://docs.github.com/actions/reference/variables-reference

    GitLab: https://docs.gitlab.com/ci/variables/predefined_variables
    """
    from urllib.parse import quote

    if project := environ.get("CI_PROJECT_URL"):
        base, ci_commit, files, commits = project, environ.get("CI_COMMIT_SHA"), "-/blob", "-/commit"
    elif (server := environ.get("GITHUB_SERVER_URL")) and (name := environ.get("GITHUB_REPOSITORY")):
        is_gitea = "GITEA_ACTIONS" in environ or "FORGEJO_ACTIONS" in environ
        base, ci_commit = f"{server.rstrip('/')}/{quote(name)}", environ.get("GITHUB_SHA")
        files, commits = "src/commit" if is_gitea else "blob", "commit"
    else:
        return None
    commit = read_commit(folder, environ) or ci_commit or ""
    if not _SERVER.fullmatch(base.rstrip("/")) or not _COMMIT.fullmatch(commit):
        return None
    root, run = base.rstrip("/"), _build_ci_url(environ) or ""
    prefix = quote(read_repository_prefix(folder, environ), errors="surrogateescape")
    return Forge(
        f"{root}/{files}/{commit}/{prefix}", f"{root}/{commits}/", commit, run if _SERVER.fullmatch(run) else None
    )


def find_fork_point(folder: Path, environ: Mapping[str, str], revision: str) -> str:
    """Return the merge base of HEAD and `revision`."""
    with _translate_git_errors(folder, revision):
        _find_trusted_root(folder, environ)
        return _read_git(folder, environ, "merge-base", "HEAD", _resolve_commit(folder, environ, revision)).strip()


def is_ancestor(folder: Path, environ: Mapping[str, str], commit: str, of: str) -> bool | None:
    """Return whether `commit` is an ancestor of `of`; `None` without git or a needed commit."""
    try:
        if not _read_git(folder, environ, "rev-list", "-1", commit, f"^{of}"):
            return True
        is_shallow = _read_git(folder, environ, "rev-parse", "--is-shallow-repository").strip() == "true"
        return None if is_shallow and _read_git(folder, environ, "rev-list", "-1", of, f"^{commit}") else False
    except (OSError, subprocess.SubprocessError):
        return None


def list_changed_files(
    folder: Path, environ: Mapping[str, str], revision: str, extra_paths: Iterable[Path] = ()
) -> tuple[str, ...]:
    """Return the files changed since the merge base with `revision`, including uncommitted files.

    Paths below `folder` are relative, others absolute.
    """
    base = find_fork_point(folder, environ, revision)
    with _translate_git_errors(folder, revision):
        root = _find_trusted_root(folder, environ)
        places = {folder.resolve(): Path(), **{place.resolve(): place for place in extra_paths}}
        pathspecs = [str(real) for real in places if real.is_relative_to(root)]
        diff = ("-c", "diff.relative=false", "diff", "--name-only", "--no-renames", "-z", base, "--", *pathspecs)
        changed = _read_git(root, environ, "--literal-pathspecs", *diff)
        listed = ("ls-files", "--others", "--exclude-standard", "-z", "--", *pathspecs)
        unknown = _read_git(root, environ, "--literal-pathspecs", *listed)
    changed_paths = [root / path for path in (changed + unknown).split("\0") if path]
    named = (
        name / path.relative_to(real)
        for path in changed_paths
        for real, name in places.items()
        if path.is_relative_to(real)
    )
    return tuple(sorted({str(path) for path in named}))


@contextmanager
def _translate_git_errors(folder: Path, revision: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        raise UserError("--changed-since needs git, which is not installed", hint="Install git") from error
    except (OSError, subprocess.SubprocessError) as error:
        raise UserError(
            f"git cannot tell what changed since '{revision}' in {folder}",
            hint="Name a commit, branch or tag of this repository that HEAD has an ancestor in common with; "
            "in a pipeline fetch the whole history (fetch-depth: 0)",
        ) from error


def extract_base_files(folder: Path, environ: Mapping[str, str]) -> PullRequestBase | None:
    """Write a pull request's base to a temporary folder; return `None` outside pull requests.

    It has all files below `folder` and the repository's YAML files, and is deleted at exit.
    """
    revision = _find_base_revision(environ)
    if revision is None:
        return None
    try:
        root = _find_trusted_root(folder, environ)
        if _read_git(folder, environ, "rev-parse", "--show-superproject-working-tree").strip():
            message = f"{folder} is a submodule, and its base is not the one of this pull request"
            raise UserError(message, hint="Plan the workspace in its own repository.")
        base = _extract_files(root, environ, _resolve_base_commit(folder, environ, revision), folder.resolve())
    except FileNotFoundError as error:
        raise UserError(
            "the base of this pull request is read with git, which is not installed", hint=_INSTALL_GIT
        ) from error
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        message = f"git cannot read {revision}, the base of this pull request"
        raise UserError(message, hint=_FETCH_BASE) from error
    return base


def extract_commit_files(folder: Path, environ: Mapping[str, str], commit: str) -> PullRequestBase:
    """Write the files of a commit to a temporary folder, as `extract_base_files` does."""
    with _translate_git_errors(folder, commit):
        return _extract_files(_find_trusted_root(folder, environ), environ, commit, folder.resolve())


def _extract_files(root: Path, environ: Mapping[str, str], commit: str, folder: Path) -> PullRequestBase:
    files = Path(tempfile.mkdtemp(prefix="reconciler-base-"))
    atexit.register(shutil.rmtree, files, ignore_errors=True)
    _write_files(root, environ, commit, folder, files)
    return PullRequestBase(root, files.resolve())


def find_read_limit(folder: Path, environ: Mapping[str, str]) -> Path | None:
    """Return the repository that limits a pull request's reads; `None` outside pull requests."""
    if not _is_pull_request(environ):
        return None
    try:
        return _find_trusted_root(folder, environ)
    except (OSError, subprocess.SubprocessError, UserError):
        return folder.resolve()


def _write_files(root: Path, environ: Mapping[str, str], commit: str, folder: Path, into: Path) -> None:
    listed = _read_git(root, environ, "ls-tree", "-r", "-l", "-z", "--full-tree", commit)
    chosen: dict[str, list[tuple[str, Path]]] = {}
    for entry in filter(None, listed.split("\0")):
        about, _, path = entry.partition("\t")
        mode, kind, sha, size = about.split()
        is_wanted = (root / path).is_relative_to(folder) or path.endswith((".yaml", ".yml"))
        if kind == "blob" and is_wanted and int(size) <= _MAX_FILE_BYTES:
            chosen.setdefault(sha, []).append((mode, into / path))
    with tempfile.TemporaryFile() as batch:
        ids = "".join(f"{sha}\n" for sha in chosen).encode()
        _run_git(root, environ, "cat-file", "--batch", asks=ids, into=batch)
        batch.seek(0)
        for sha, content in _parse_blobs(batch):
            for mode, place in chosen[sha]:
                place.parent.mkdir(parents=True, exist_ok=True)
                if mode == _SYMLINK_MODE:
                    place.symlink_to(content.decode("utf-8", "surrogateescape"))
                else:
                    place.write_bytes(content)


def _parse_blobs(batch: IO[bytes]) -> Iterator[tuple[str, bytes]]:
    while head := batch.readline():
        sha, _, size = head.decode().split()
        yield sha, batch.read(int(size))
        batch.read(1)


def _find_trusted_root(folder: Path, environ: Mapping[str, str]) -> Path:
    """Return the repository's root. Reject a git folder around `folder`: a commit may contain it."""
    place = Path(_read_git(folder, environ, "rev-parse", "--absolute-git-dir").removesuffix("\n")).resolve()
    if folder.resolve().is_relative_to(place):
        message = f"{place} holds the files of a git repository, and is not one"
        raise UserError(message, hint="Delete HEAD, objects and refs there. They are not trusted.")
    return Path(_read_git(folder, environ, "rev-parse", "--show-toplevel").removesuffix("\n")).resolve()


def _resolve_commit(folder: Path, environ: Mapping[str, str], revision: str) -> str:
    name = f"{revision}^{{commit}}"
    return _read_git(folder, environ, "rev-parse", "--verify", "--quiet", "--end-of-options", name).strip()


def _resolve_base_commit(folder: Path, environ: Mapping[str, str], revision: str) -> str:
    for prefix in ("refs/remotes/", "refs/remotes/origin/", "refs/heads/"):
        try:
            return _resolve_commit(folder, environ, f"{prefix}{revision}")
        except subprocess.CalledProcessError:
            continue
    return _resolve_commit(folder, environ, revision)


def _is_pull_request(environ: Mapping[str, str]) -> bool:
    return _read_declared_base(environ) is not None or environ.get("GITHUB_EVENT_NAME", "").startswith("pull_request")


def _read_declared_base(environ: Mapping[str, str]) -> str | None:
    for name in ("RECONCILER_BASE", "CI_MERGE_REQUEST_DIFF_BASE_SHA"):
        if name in environ:
            if not environ[name].strip():
                message = f"{name} is set and empty, so the base of this pull request is not known"
                raise UserError(
                    message, hint=f"Set {name} to the base branch or commit, or unset it outside pull requests."
                )
            return environ[name]
    return None


def _find_base_revision(environ: Mapping[str, str]) -> str | None:
    if (declared := _read_declared_base(environ)) is not None or not _is_pull_request(environ):
        return declared
    try:
        event = json.loads(Path(environ["GITHUB_EVENT_PATH"]).read_bytes())
        return str(event["pull_request"]["base"]["sha"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        message = "this is a pull request, and the file of its event does not name the pull request"
        raise UserError(message, hint="Set RECONCILER_BASE to the branch or commit it is for.") from error


def _read_git(folder: Path, environ: Mapping[str, str], *arguments: str) -> str:
    return _run_git(folder, environ, *arguments).decode("utf-8", "surrogateescape")


def _run_git(
    folder: Path, environ: Mapping[str, str], *arguments: str, asks: bytes = b"", into: IO[bytes] | None = None
) -> bytes:
    done = subprocess.run(  # noqa: S603 - a list, no shell; the revision is behind --end-of-options
        ["git", *_SAFE_OPTIONS, "-C", str(folder), *arguments],  # noqa: S607 - git is on the PATH
        env={**environ, "GIT_OPTIONAL_LOCKS": "0"},
        input=asks,
        stdout=subprocess.PIPE if into is None else into,
        stderr=subprocess.PIPE,
        check=True,
        timeout=_GIT_TIMEOUT_S,
    )
    return done.stdout or b""
