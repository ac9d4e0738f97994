"""Find a pipeline's forge, repository and pull request from environment variables."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import orjson

from reconciler.errors import UsageError, UserError
from reconciler.forges.protocol import Forge, ForgeSettings, Kind
from reconciler.runtime.dataclass import dataclass
from reconciler.runtime.text import list_first

# ruff: noqa: PLC0415 - a pipeline has one forge


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgeRequest:
    """Command-line options for the forge; `None` means to read the environment."""

    forge: Kind | None = None
    repository: str | None = None
    pull_request: int | None = None
    timeout_s: float = 120.0
    allows_http: bool = False


@dataclass(frozen=True, slots=True)
class _ForgeVariables:
    title: str
    api: tuple[str, ...]
    public_api: str
    repository: tuple[str, ...]
    token: tuple[str, ...]
    token_hint: str


_VARIABLES: Final[Mapping[Kind, _ForgeVariables]] = {
    "github": _ForgeVariables(
        "GitHub",
        ("GITHUB_API_URL",),
        "https://api.github.com",
        ("GITHUB_REPOSITORY",),
        ("GITHUB_TOKEN", "GH_TOKEN"),
        "In a workflow write: env: {GITHUB_TOKEN: '${{ github.token }}'}",
    ),
    "gitlab": _ForgeVariables(
        "GitLab",
        ("CI_API_V4_URL",),
        "https://gitlab.com/api/v4",
        ("CI_MERGE_REQUEST_PROJECT_ID", "CI_PROJECT_ID", "CI_PROJECT_PATH"),
        ("GITLAB_TOKEN",),
        "CI_JOB_TOKEN may not comment: make a project access token with the scope `api`, and keep it as a masked "
        "variable GITLAB_TOKEN.",
    ),
    "gitea": _ForgeVariables(
        "Gitea",
        ("GITEA_API_URL", "FORGEJO_API_URL", "GITHUB_API_URL"),
        "",
        ("GITEA_REPOSITORY", "FORGEJO_REPOSITORY", "GITHUB_REPOSITORY"),
        ("GITEA_TOKEN", "FORGEJO_TOKEN", "GITHUB_TOKEN"),
        "In a workflow write: env: {GITEA_TOKEN: '${{ gitea.token }}'}",
    ),
}
_EVENT_PATHS: Final = ("GITEA_EVENT_PATH", "FORGEJO_EVENT_PATH", "GITHUB_EVENT_PATH")
_EVENT_NAMES: Final = ("GITEA_EVENT_NAME", "FORGEJO_EVENT_NAME", "GITHUB_EVENT_NAME", "CI_PIPELINE_SOURCE")
_REPOSITORY: Final = re.compile(r"[A-Za-z0-9_.-]+(/[A-Za-z0-9_.-]+)+|[0-9]+")
_TOKEN: Final = re.compile(r"[!-~]+")
_MAX_EVENT_BYTES: Final = 32 << 20
"""Maximum size of an event file; GitHub writes at most 25 MB."""


def open_forge(environ: Mapping[str, str], request: ForgeRequest, *, tool: str, now_ms: Callable[[], int]) -> Forge:
    """Return a client for the forge without sending requests."""
    settings = read_forge_settings(environ, request, tool)
    match settings.kind:
        case "github":
            from reconciler.forges.github import GitHub

            return GitHub(settings, now_ms)
        case "gitlab":
            from reconciler.forges.gitlab import GitLab

            return GitLab(settings, now_ms)
        case "gitea":
            from reconciler.forges.gitea import Gitea

            return Gitea(settings, now_ms)


def read_forge_settings(environ: Mapping[str, str], request: ForgeRequest, tool: str) -> ForgeSettings:
    """Read the forge's URL, repository and token."""
    kind = request.forge or _detect_kind(environ)
    names = _VARIABLES[kind]
    api = (_read_variable(environ, names.api) or names.public_api).rstrip("/")
    if not api:
        message = f"the environment does not set where {names.title} is"
        raise UsageError(message, hint=f"Set {names.api[0]} to its API, as https://{kind}.example.com/api/v1")
    _check_address(api, list_first(names.api, 1), allows_http=request.allows_http)
    repository = request.repository or _read_variable(environ, names.repository)
    if not repository:
        message = "the environment does not name a repository"
        raise UsageError(message, hint=f"Give --repository OWNER/NAME, or set {names.repository[0]}.")
    if not _REPOSITORY.fullmatch(repository) or {".", ".."} & set(repository.split("/")):
        raise UsageError(f"'{repository}' is not a repository", hint="Write it as --repository OWNER/NAME")
    name = next((variable for variable in names.token if environ.get(variable, "").strip()), None)
    if name is None:
        raise UserError(f"there is no token for {names.title}: {names.token[0]} is not set", hint=names.token_hint)
    token = environ[name].strip()
    if not _TOKEN.fullmatch(token):
        raise UserError(f"what {name} holds is not a token: it has spaces or line ends", hint=names.token_hint)
    trusted = environ.get("SSL_CERT_FILE") or None, environ.get("SSL_CERT_DIR") or None
    return ForgeSettings(kind, api, repository, token, name, tool, request.timeout_s, *trusted)


def find_pull_request(environ: Mapping[str, str], request: ForgeRequest) -> int:
    """Return the pipeline's pull request; raise unless exactly one."""
    if request.pull_request is not None:
        return request.pull_request
    kind = request.forge or _detect_kind(environ)
    numbers = _list_gitlab_requests(environ) if kind == "gitlab" else _list_event_requests(environ)
    if len(numbers) == 1:
        return numbers[0]
    event = _read_variable(environ, _EVENT_NAMES)
    message = (
        f"this run is about {len(numbers)} pull requests"
        if numbers
        else f"this run is not about a pull request{f' (its event is {event})' if event else ''}"
    )
    raise UsageError(message, hint="Run it for pull requests only, or name one: --pull-request N")


_COMMITS: Final = ("GITHUB_SHA", "CI_COMMIT_SHA")


def find_run_commit(environ: Mapping[str, str]) -> str | None:
    """Return the commit of the pipeline's run; `None` outside a pipeline."""
    return _read_variable(environ, _COMMITS) or None


def _detect_kind(environ: Mapping[str, str]) -> Kind:
    if environ.get("GITLAB_CI") or environ.get("CI_API_V4_URL"):
        return "gitlab"
    is_gitea = any(environ.get(name) for name in ("GITEA_ACTIONS", "FORGEJO_ACTIONS", *_VARIABLES["gitea"].api[:2]))
    if is_gitea or environ.get("GITHUB_API_URL", "").rstrip("/").endswith("/api/v1"):
        return "gitea"
    if environ.get("GITHUB_ACTIONS") or environ.get("GITHUB_API_URL") or environ.get("GITHUB_REPOSITORY"):
        return "github"
    message = "the forge is unknown: this is not a pipeline of GitHub, GitLab or Gitea"
    raise UsageError(message, hint="Give --forge github, gitlab or gitea, with --repository and --pull-request.")


def _read_variable(environ: Mapping[str, str], names: Sequence[str]) -> str:
    return next((environ[name] for name in names if environ.get(name)), "")


def _check_address(api: str, name: str, *, allows_http: bool) -> None:
    try:
        parts = urlsplit(api)
        has_port = parts.port is None or parts.port > 0
    except ValueError:
        has_port = False
        parts = urlsplit("")
    is_address = has_port and parts.scheme in {"http", "https"} and bool(parts.hostname)
    if not is_address or parts.username or parts.password or parts.query or parts.fragment:
        message = f"{name} is not the address of an API"
        raise UsageError(message, hint="Write it as https://forge.example.com/api, without a user or a query.")
    if parts.scheme == "http" and not allows_http and not is_loopback(parts.hostname or ""):
        message = f"{api} is not encrypted: anyone on the network path could read the token"
        raise UsageError(message, hint="Use https, or --allow-http where the network is trusted.")


def is_loopback(host: str) -> bool:
    """Return whether a host name or IP address is loopback."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _list_gitlab_requests(environ: Mapping[str, str]) -> list[int]:
    if number := environ.get("CI_MERGE_REQUEST_IID", ""):
        return _parse_numbers([number])
    return _parse_numbers(
        reference.rpartition("!")[2] for reference in environ.get("CI_OPEN_MERGE_REQUESTS", "").split(",") if reference
    )


def _list_event_requests(environ: Mapping[str, str]) -> list[int]:
    path = _read_variable(environ, _EVENT_PATHS)
    if not path:
        return []
    event = _load_event(Path(path))
    match event:
        case {"pull_request": {"number": number}} | {"issue": {"number": number, "pull_request": dict()}}:
            return _parse_numbers([number])
        case {"workflow_run": {"pull_requests": [*requests]}}:
            return _parse_numbers(
                pull_request.get("number") for pull_request in requests if isinstance(pull_request, dict)
            )
        case _:
            return []


def _load_event(path: Path) -> Any:
    try:
        with path.open("rb") as file:
            return orjson.loads(file.read(_MAX_EVENT_BYTES))
    except (OSError, orjson.JSONDecodeError) as error:
        message = f"the file of the run's event, {path}, cannot be read"
        raise UsageError(message, hint="Name the pull request: --pull-request N") from error


def _parse_numbers(values: Any) -> list[int]:
    texts = [str(value) for value in values]
    return [int(text) for text in texts if text.isascii() and text.isdecimal() and int(text) > 0]
