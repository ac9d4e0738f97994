"""Where a forge is, and which pull request is meant, as the runners of each set it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from reconciler.errors import ReconcilerError, UsageError, UserError
from reconciler.forges.environment import ForgeRequest, find_pull_request, read_forge_settings

GITHUB = {"GITHUB_ACTIONS": "true", "GITHUB_API_URL": "https://api.github.com", "GITHUB_REPOSITORY": "acme/topics"}
GITLAB = {"GITLAB_CI": "true", "CI_API_V4_URL": "https://gitlab.example.com/api/v4/", "CI_PROJECT_ID": "42"}
GITEA = {
    "GITHUB_ACTIONS": "true",
    "GITHUB_API_URL": "https://git.example.com/api/v1",
    "GITHUB_REPOSITORY": "acme/topics",
}

FOUND = [
    (
        GITHUB | {"GITHUB_TOKEN": "t"},
        ForgeRequest(),
        ("github", "https://api.github.com", "acme/topics", "GITHUB_TOKEN"),
    ),
    (GITHUB | {"GH_TOKEN": "t\n"}, ForgeRequest(), ("github", "https://api.github.com", "acme/topics", "GH_TOKEN")),
    (
        GITLAB | {"GITLAB_TOKEN": "t"},
        ForgeRequest(),
        ("gitlab", "https://gitlab.example.com/api/v4", "42", "GITLAB_TOKEN"),
    ),
    (
        GITLAB | {"GITLAB_TOKEN": "t", "CI_MERGE_REQUEST_PROJECT_ID": "7"},  # of a fork, the project it is for
        ForgeRequest(),
        ("gitlab", "https://gitlab.example.com/api/v4", "7", "GITLAB_TOKEN"),
    ),
    (
        GITEA | {"GITHUB_TOKEN": "t"},
        ForgeRequest(),
        ("gitea", "https://git.example.com/api/v1", "acme/topics", "GITHUB_TOKEN"),
    ),
    (
        GITEA | {"GITEA_ACTIONS": "true", "GITEA_TOKEN": "t", "GITHUB_TOKEN": "u"},
        ForgeRequest(),
        ("gitea", "https://git.example.com/api/v1", "acme/topics", "GITEA_TOKEN"),
    ),
    (
        {"GITLAB_TOKEN": "t"},
        ForgeRequest(forge="gitlab", repository="a/b/c"),
        ("gitlab", "https://gitlab.com/api/v4", "a/b/c", "GITLAB_TOKEN"),
    ),
]


@pytest.mark.parametrize(("environ", "asked", "found"), FOUND)
def test_the_forge_is_found_as_its_runner_says_it(
    environ: dict[str, str], asked: ForgeRequest, found: tuple[str, ...]
) -> None:
    settings = read_forge_settings(environ, asked, "1")
    assert (settings.kind, settings.api, settings.repository, settings.token_name) == found
    assert "'t" not in repr(settings)
    assert settings.token == environ[settings.token_name].strip()


WRONG: list[tuple[dict[str, str], ForgeRequest, type[ReconcilerError], str]] = [
    ({}, ForgeRequest(), UsageError, "forge is unknown"),
    ({}, ForgeRequest(forge="gitea"), UsageError, "where Gitea is"),
    ({"GITHUB_TOKEN": "t"}, ForgeRequest(forge="github"), UsageError, "does not name a repository"),
    (GITHUB, ForgeRequest(), UserError, "GITHUB_TOKEN is not set"),
    (GITHUB | {"GITHUB_TOKEN": " "}, ForgeRequest(), UserError, "GITHUB_TOKEN is not set"),
    (GITHUB | {"GITHUB_TOKEN": "secret one"}, ForgeRequest(), UserError, "is not a token"),
    (GITHUB | {"GITHUB_TOKEN": "gehëim"}, ForgeRequest(), UserError, "is not a token"),
    (GITLAB | {"CI_JOB_TOKEN": "t"}, ForgeRequest(), UserError, "GITLAB_TOKEN is not set"),
    *(
        (GITHUB | {"GITHUB_TOKEN": "t"}, ForgeRequest(repository=name), UsageError, "is not a repository")
        for name in ("topics", "a/../b", "a/b?c", "a b/c", "https://x/y")
    ),
    *(
        (
            GITHUB | {"GITHUB_API_URL": url, "GITHUB_TOKEN": "t"},
            ForgeRequest(),
            UsageError,
            "is not the address of an API",
        )
        for url in ("ftp://x", "x", "https://", "https://u:secret@x", "https://x:99999", "https://[x", "https://x/?a=b")
    ),
    *(
        (GITHUB | {"GITHUB_API_URL": url, "GITHUB_TOKEN": "t"}, ForgeRequest(), UsageError, "is not encrypted")
        for url in ("http://git.example.com/api", "http://127.0.0.1.example.com", "http://10.0.0.1")
    ),
]


@pytest.mark.parametrize(("environ", "asked", "kind", "message"), WRONG)
def test_what_is_missing_or_wrong_is_said_without_the_secret(
    environ: dict[str, str], asked: ForgeRequest, kind: type[ReconcilerError], message: str
) -> None:
    with pytest.raises(kind) as found:
        read_forge_settings(environ, asked, "1")
    assert message in found.value.message
    assert found.value.hint
    assert "secret" not in str(found.value)


@pytest.mark.parametrize("url", ["http://127.0.0.1:3000", "http://localhost", "http://[::1]:1"])
def test_http_is_for_this_machine_or_where_it_is_allowed(url: str) -> None:
    environ = GITHUB | {"GITHUB_API_URL": url, "GITHUB_TOKEN": "t"}
    assert read_forge_settings(environ, ForgeRequest(), "1").api == url
    away = environ | {"GITHUB_API_URL": "http://gitea:3000"}
    assert read_forge_settings(away, ForgeRequest(allows_http=True), "1").api == "http://gitea:3000"


EVENTS: list[tuple[Any, int | None]] = [
    ({"pull_request": {"number": 7}}, 7),
    ({"issue": {"number": 8, "pull_request": {"url": "…"}}}, 8),
    ({"issue": {"number": 8}}, None),
    ({"workflow_run": {"pull_requests": [{"number": 9}]}}, 9),
    ({"workflow_run": {"pull_requests": [{"number": 9}, {"number": 10}]}}, None),
    ({"workflow_run": {"pull_requests": []}}, None),
    ({"pull_request": {"number": "7; rm"}}, None),
    ({"pull_request": None}, None),
    ([], None),
    ({"ref": "refs/heads/main"}, None),
]


@pytest.mark.parametrize(("event", "number"), EVENTS)
def test_the_pull_request_is_the_one_of_the_event(tmp_path: Path, event: Any, number: int | None) -> None:
    file = tmp_path / "event.json"
    file.write_text(json.dumps(event))
    environ = GITHUB | {"GITHUB_EVENT_PATH": str(file), "GITHUB_EVENT_NAME": "push"}
    if number is not None:
        assert find_pull_request(environ, ForgeRequest()) == number
        return
    with pytest.raises(UsageError, match="pull request") as found:
        find_pull_request(environ, ForgeRequest())
    assert "--pull-request N" in found.value.hint
    assert find_pull_request(environ, ForgeRequest(pull_request=3)) == 3


@pytest.mark.parametrize(
    ("environ", "number"),
    [
        ({"CI_MERGE_REQUEST_IID": "5"}, 5),
        ({"CI_OPEN_MERGE_REQUESTS": "acme/topics!6"}, 6),
        ({"CI_OPEN_MERGE_REQUESTS": "acme/topics!6,acme/topics!7"}, None),
        ({"CI_PIPELINE_SOURCE": "push"}, None),
    ],
)
def test_the_merge_request_is_the_one_of_the_pipeline(environ: dict[str, str], number: int | None) -> None:
    if number is not None:
        assert find_pull_request(GITLAB | environ, ForgeRequest()) == number
    else:
        with pytest.raises(UsageError, match="pull request"):
            find_pull_request(GITLAB | environ, ForgeRequest())


@pytest.mark.parametrize("text", [None, "", "{", "\xff"])
def test_an_event_that_cannot_be_read_is_said(tmp_path: Path, text: str | None) -> None:
    file = tmp_path / "event.json"
    if text is not None:
        file.write_bytes(text.encode("latin-1"))
    with pytest.raises(UsageError, match="cannot be read"):
        find_pull_request(GITHUB | {"GITHUB_EVENT_PATH": str(file)}, ForgeRequest())
