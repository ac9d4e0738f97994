"""`comment`: one comment of a pull request is kept, on every forge, whatever the forge and the network do."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from reconciler.forges.protocol import RESULTS, Marker, parse_marker
from tests.cli.conftest import Call, Said
from tests.servers.certificates import Authority
from tests.servers.forge import BOT, KINDS, NUMBER, STRANGER, TOKEN, Fault, ForgeServer, Kind, enter

SHOP = Marker("plan", "shop", "prod", "7c41", 3)
OLD = "<!-- reconciler:plan workspace=shop environment=prod digest=1111 -->\nas an older version wrote it\n"
EVENT = {"pull_request": {"number": NUMBER}}


def result(text: str = "three things to do", marker: Marker = SHOP) -> str:
    return f"{marker.line}\n### Plan\n\n{text}\n"


@pytest.fixture(params=KINDS)
def forge(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[ForgeServer]:
    """A forge of each kind, and the environment of a run for its pull request."""
    kind: Kind = request.param
    with ForgeServer(kind).started() as server:
        enter(monkeypatch, server)
        if kind != "gitlab":
            event = tmp_path / "event.json"
            event.write_text(json.dumps(EVENT))
            monkeypatch.setenv("GITHUB_EVENT_PATH", str(event))
            monkeypatch.setenv("GITHUB_EVENT_NAME", "pull_request")
        yield server


@pytest.fixture
def say(typed: Call, forge: ForgeServer) -> Call:
    """Run `comment -` for a text; no output ever has the token."""

    def run(text: str, *options: str) -> Said:
        said = typed("comment", "-", *options, stdin=text.encode())
        assert TOKEN not in said.out + said.err
        return said

    del forge
    return run


def only(forge: ForgeServer) -> str:
    (comment,) = forge.comments
    return comment.body


# What is written, and what is left alone.


def test_a_first_result_is_written_and_the_next_takes_its_place(forge: ForgeServer, say: Call) -> None:
    for text, did in (("one", "Wrote a comment"), ("two", "Updated the comment"), ("two", "is up to date")):
        said = say(result(text))
        assert (said.code, said.err) == (0, "")
        assert did in said.out
        assert str(forge.comments[0].id) in said.out.splitlines()[1]
        assert only(forge) == result(text)
    assert len([each for each in forge.requests if each.method in {"PATCH", "PUT"}]) == 1


@pytest.mark.parametrize(
    ("page", "code"), [("https://git.example/a/b/artifacts/9", 0), ("javascript:alert(1)", 64), ("https://a b)", 64)]
)
def test_the_comment_links_the_page_of_its_plan(forge: ForgeServer, say: Call, page: str, code: int) -> None:
    assert say(result(), "--page", page).code == code
    assert [comment.body for comment in forge.comments] == [
        f"{result()}\n[The plan as a page]({page})\n" for _ in range(code == 0)
    ]


def test_labels_tell_the_gravest_result_of_all_plans_of_a_pull_request(forge: ForgeServer, say: Call) -> None:
    forge.labels += [f"plan: {result}" for result in RESULTS]
    forge.request_labels = ["bug"]
    steps = {
        "changes": SHOP,
        "blocked": replace(SHOP, environment="dev", verdict="blocked"),
        "errors": replace(SHOP, digest=""),
    }
    for label, marker in steps.items():
        assert say(result(marker=marker), "--labels").err == ""
        assert forge.request_labels == ["bug", f"plan: {label}"]
    say(result(marker=replace(SHOP, items=0)), "--labels")
    say(result(marker=replace(SHOP, environment="dev", items=0)), "--labels")
    assert forge.request_labels == ["bug", "plan: no changes"]
    forge.faults = [Fault("GET" if forge.kind != "gitlab" else "PUT", "labels|requests/7$", status=403)]
    said = say(result("again"), "--labels")
    assert (said.code, "the pull request has no label 'plan: changes'" in said.err) == (0, True), said.err


def test_the_comment_is_found_among_many_pages_of_others(forge: ForgeServer, say: Call) -> None:
    for number in range(5):
        forge.says(f"talk {number}", STRANGER)
    mine = forge.says(OLD)
    forge.says("more talk", STRANGER)
    assert say(result()).code == 0
    assert (mine.body, len(forge.comments)) == (result(), 7)


@pytest.mark.parametrize(
    ("body", "author"),
    [
        (result("pasted"), STRANGER),
        (f"> quoted\n\n{result()}", BOT),
        (result(marker=Marker("plan", "shop", "test")), BOT),
        (result(marker=Marker("plan", "shop")), BOT),
        (result(marker=Marker("plan", "shop2", "prod")), BOT),
        (result(marker=Marker("drift", "shop", "prod")), BOT),
        ("<!-- reconciler:plan -->", BOT),
        ("", BOT),
    ],
)
def test_what_somebody_else_wrote_or_is_about_something_else_is_never_touched(
    forge: ForgeServer, say: Call, body: str, author: int
) -> None:
    other = forge.says(body, author)
    assert say(result()).code == 0
    assert (other.body, other.is_minimized) == (body, False)
    assert [each.body for each in forge.comments[1:]] == [result()]
    assert say(result(marker=Marker("plan", "shop", "prod", "", 0)), "--delete-when-empty").code == 0
    assert forge.comments == [other]


def test_a_comment_that_was_edited_by_hand_is_overwritten(forge: ForgeServer, say: Call) -> None:
    forge.says(f"{SHOP.line}\r\nall is well, merge it")
    assert say(result()).code == 0
    assert only(forge) == result()


def test_of_several_the_newest_is_kept_and_older_ones_are_hidden(forge: ForgeServer, say: Call) -> None:
    older, newest = [forge.says(OLD), forge.says(result("older"))], forge.says(OLD)
    said = say(result("new"), "--format", "json")
    found = json.loads(said.out)
    assert (found["action"], found["id"], found["hidden"]) == ("updated", newest.id, 2)
    assert newest.body == result("new")
    if forge.kind == "github":
        assert [each.is_minimized for each in (*older, newest)] == [True, True, False]
    else:
        assert ["<details>" in each.body for each in older] == [True, True]
        assert ["as an older version wrote it" in older[0].body, "older" in older[1].body] == [True, True]
    # They are not found again, and nothing is left to do.
    before = [(each.body, each.is_minimized) for each in forge.comments]
    assert json.loads(say(result("new"), "--format", "json").out)["action"] == "unchanged"
    assert [(each.body, each.is_minimized) for each in forge.comments] == before


def test_older_comments_that_may_not_be_hidden_are_told_and_the_new_one_stays(forge: ForgeServer, say: Call) -> None:
    oldest, newest = forge.says(OLD), forge.says(OLD)
    method, path = ("POST", "graphql") if forge.kind == "github" else ("PATCH" if forge.kind == "gitea" else "PUT", "")
    newest.body = result()
    if forge.kind == "github":
        forge.faults = [
            Fault(
                method,
                path,
                200,
                body='{"data": {"nodes": [{"id": "IC_1001", "viewerDidAuthor": true},'
                '{"id": "IC_1002", "viewerDidAuthor": true}]}}',
            ),
            Fault(method, path, 200, body='{"errors": [{"type": "FORBIDDEN", "message": "no"}]}'),
        ]
    else:
        forge.faults = [Fault(method, path, 403, body='{"message": "no"}')]
    said = say(result())
    assert said.code == 0
    assert "an older comment stays open" in said.err
    assert (oldest.body, newest.body) == (OLD, result())


@pytest.mark.parametrize("has_old", [True, False])
def test_a_result_that_reports_nothing_deletes_the_comment(forge: ForgeServer, say: Call, has_old: bool) -> None:  # noqa: FBT001
    empty = result("nothing to do", Marker("plan", "shop", "prod", "7c41", 0))
    if has_old:
        forge.says(OLD)
        forge.says(result())
    said = say(empty, "--delete-when-empty", "--format", "json")
    assert (said.code, json.loads(said.out)["action"]) == (0, "deleted" if has_old else "none")
    assert forge.comments == []
    assert say(empty).code == 0
    assert only(forge) == empty


@pytest.mark.parametrize("forge", ["gitlab"], indirect=True)  # in the others a pull request has a base
def test_a_plan_says_in_its_marker_whether_anything_is_to_do(forge: ForgeServer, call: Call) -> None:
    def plan() -> str:
        return call("plan", "--format", "markdown").out

    first = plan()
    found = parse_marker(first)
    assert found is not None
    assert found.items
    assert call("comment", "-", "--delete-when-empty", stdin=first.encode()).code == 0
    assert only(forge) == first
    assert call("apply", "--yes").code == 0
    assert call("comment", "-", "--delete-when-empty", stdin=plan().encode()).code == 0
    assert forge.comments == []


def test_a_text_that_is_too_long_is_cut_where_folds_and_code_can_be_closed(forge: ForgeServer, say: Call) -> None:
    long = result(
        "<details>\n<summary>all</summary>\n\n````diff\n" + "+ topic/west/añ ```\n" * 80_000 + "````\n</details>"
    )
    said = say(long)
    assert said.code == 0
    assert "too long" in said.out
    limit, size = {
        "github": (65_536, len),
        "gitlab": (1_000_000, len),
        "gitea": (65_535, lambda each: len(each.encode())),
    }[forge.kind]
    body = only(forge)
    assert limit - 300 < size(body) <= limit
    *_, end_of_code, end_of_fold, _, sentence = body.splitlines()
    assert (end_of_code, end_of_fold) == ("````", "</details>")
    assert re.fullmatch(r"\*\*The rest does not fit here: [\d,]+ more lines\. .*\*\*", sentence)


# What goes wrong on the way.


@pytest.mark.parametrize("status", [502, None])
@pytest.mark.parametrize("is_done", [True, False])
@pytest.mark.parametrize("verb", ["create", "update", "delete"])
def test_a_lost_answer_writes_nothing_twice(
    forge: ForgeServer,
    say: Call,
    verb: str,
    is_done: bool,  # noqa: FBT001 - a case
    status: int | None,
) -> None:
    if verb != "create":
        forge.says(OLD)
    method = {"create": "POST", "update": "PUT" if forge.kind == "gitlab" else "PATCH", "delete": "DELETE"}[verb]
    forge.faults = [Fault(method, "comments|notes", status, is_done=is_done)]
    empty = Marker("plan", "shop", "prod", "", 0)
    said = say(result(marker=empty if verb == "delete" else SHOP), "--delete-when-empty")
    assert (said.code, said.err) == (0, "")
    assert [each.body for each in forge.comments] == ([] if verb == "delete" else [result()])


def test_reading_is_tried_again(forge: ForgeServer, say: Call) -> None:
    forge.says(OLD)
    forge.faults = [
        Fault("GET", "comments|notes", 502, body="<html>bad gateway"),
        Fault("GET", "comments|notes", None),
        Fault("GET", "comments|notes", 429, {"Retry-After": "0"}),
    ]
    assert say(result()).code == 0
    assert only(forge) == result()


LIMITED = '{"errors": [{"type": "RATE_LIMITED", "message": "API rate limit exceeded"}]}'
BROKEN = '{"data": null, "errors": [{"message": "Something went wrong while executing your query."}]}'


@pytest.mark.parametrize("forge", ["github"], indirect=True)
@pytest.mark.parametrize(("headers", "body"), [({"Retry-After": "0"}, LIMITED), ({}, BROKEN)])
def test_what_graphql_says_of_limits_and_of_itself_in_a_success_is_waited_for(
    forge: ForgeServer, say: Call, headers: dict[str, str], body: str
) -> None:
    forge.says(OLD)
    forge.faults = [Fault("POST", "graphql", 200, headers, body)]
    assert say(result()).code == 0
    assert only(forge) == result()


@pytest.mark.parametrize("forge", ["github"], indirect=True)
@pytest.mark.parametrize(
    ("headers", "body", "message"),
    [
        ({"x-ratelimit-remaining": "0", "x-ratelimit-reset": "99999999999"}, LIMITED, "asks to wait about .* days"),
        ({}, BROKEN, "answers 200: Something went wrong"),
    ],
)
def test_what_graphql_says_until_the_timeout_is_told(
    forge: ForgeServer, say: Call, headers: dict[str, str], body: str, message: str
) -> None:
    forge.says(OLD)
    forge.faults = [Fault("POST", "graphql", 200, headers, body, times=99)]
    said = say(result(), "--timeout", "1s")
    assert (said.code, only(forge)) == (1, OLD)
    assert re.search(message, said.err)


LIMITS = [
    (429, {"Retry-After": "3600"}, "", "about 1 h"),
    (403, {"Retry-After": "600"}, '{"message": "You have exceeded a secondary rate limit"}', "about 10 min"),
    (403, {}, '{"message": "You have exceeded a secondary rate limit"}', "about 1 min"),
    (403, {"x-ratelimit-remaining": "0", "x-ratelimit-reset": "99999999999"}, "{}", r"about \d+ days"),
    (429, {"Retry-After": "Fri, 31 Dec 2100 23:59:59 GMT"}, "", r"about \d+ days"),
    (429, {"Retry-After": "soon"}, "", "about 1 min"),
    (503, {"Retry-After": "900"}, "", "about 15 min"),
]


@pytest.mark.parametrize("forge", ["github"], indirect=True)
@pytest.mark.parametrize(("status", "headers", "body", "pause"), LIMITS)
def test_a_limit_that_lasts_longer_than_the_timeout_is_told_at_once(
    forge: ForgeServer, say: Call, status: int, headers: dict[str, str], body: str, pause: str
) -> None:
    forge.faults = [Fault("GET", "comments|notes", status, headers, body)]
    said = say(result(), "--timeout", "20s")
    assert said.code == 1
    assert re.search(f"asks to wait {pause}", said.err)
    assert "--timeout" in said.err
    assert forge.comments == []


def test_a_limit_that_ends_in_time_is_waited_for_and_nothing_is_written_twice(forge: ForgeServer, say: Call) -> None:
    limited = '{"message": "You have exceeded a secondary rate limit"}'
    forge.faults = [Fault("POST", "comments|notes", 403, {"Retry-After": "0"}, limited, times=2)]
    assert say(result()).code == 0
    assert only(forge) == result()


REFUSALS = [
    (401, '{"message": "Bad credentials"}', "does not accept the token", "expired"),
    (
        403,
        '{"message": "Resource not accessible by integration"}',
        "does not let this token",
        "pull-requests: write|scope",
    ),
    (404, '{"message": "Not Found"}', "does not exist, or this token may not see it", "--pull-request"),
    (422, '{"message": "Validation Failed", "errors": [{"message": "body is too long"}]}', "body is too long", "Read"),
    (410, "<html>", r"\(410\)", "Read"),
    (500, "", "answers 500", "again"),
]


@pytest.mark.parametrize(("status", "body", "message", "hint"), REFUSALS)
def test_a_refusal_is_said_with_what_to_do(
    forge: ForgeServer, say: Call, status: int, body: str, message: str, hint: str
) -> None:
    forge.faults = [Fault("POST", "comments|notes", status, body=body, times=9)]
    said = say(result())
    assert (said.code, said.out) == (1, "")
    assert re.search(message, said.err)
    assert re.search(f"hint: .*({hint})", said.err)
    assert len(forge.asked("POST")) == 1


@pytest.mark.parametrize("forge", ["github"], indirect=True)
def test_what_a_forge_says_is_shown_as_text_without_the_token(forge: ForgeServer, say: Call) -> None:
    said = {"message": f"\x1b[31mno\x07 \u202e::error::\n##[group] {TOKEN} {'x' * 5_000}"}
    forge.faults = [Fault("POST", "comments|notes", 422, body=json.dumps(said))]
    shown = say(result())
    assert shown.code == 1
    assert r"\x1b[31mno\x07 \u202e::error::" in shown.err
    assert not set("\x1b\x07\u202e") & set(shown.err)
    assert len(shown.err) < 1_000
    assert "##[" not in shown.err


@pytest.mark.parametrize("forge", ["github"], indirect=True)
@pytest.mark.parametrize("body", ["", "<html>sign in", "[1, 2]", '{"id": "x"}', '[{"body": "no id"}]', '{"id": 1, '])
def test_answers_that_are_none_of_an_api_are_refused_in_a_sentence(forge: ForgeServer, say: Call, body: str) -> None:
    forge.faults = [Fault("GET", "comments|notes", 200, body=body)]
    said = say(result())
    assert said.code == 1
    assert "not a response of the forge's API" in said.err
    assert "Unexpected" not in said.err


@pytest.mark.parametrize("forge", ["github"], indirect=True)
def test_an_answer_that_trickles_in_ends_with_the_timeout(forge: ForgeServer, say: Call) -> None:
    forge.faults = [Fault("GET", "comments|notes", 200, body="[" + " " * 10_000, times=99, late_s=0.05)]
    began = time.monotonic()
    said = say(result(), "--timeout", "1s")
    assert time.monotonic() - began < 10
    assert said.code == 1
    assert "cannot list the comments" in said.err


# Whom the token is shown.


@pytest.mark.parametrize("status", [301, 302, 307, 308])
@pytest.mark.parametrize("is_page", [True, False])
def test_the_token_never_goes_to_another_host(forge: ForgeServer, say: Call, status: int, is_page: bool) -> None:  # noqa: FBT001
    with ForgeServer(forge.kind).started() as other:
        if is_page and forge.kind == "github":
            link = {"Link": f'<{other.url}/repos?page=2>; rel="next"'}
            forge.faults = [Fault("GET", "comments", 200, link, "[]")]
        else:
            forge.faults = [Fault("GET", "comments|notes", status, {"Location": f"{other.url}/elsewhere"})]
        said = say(result())
        assert said.code == 1
        assert "which is another host" in said.err
        assert other.requests == []


def test_a_certificate_that_is_not_trusted_is_said_at_once_and_its_authority_can_be_named(
    monkeypatch: pytest.MonkeyPatch, typed: Call, tmp_path: Path
) -> None:
    (tmp_path / "c.md").write_text(result())
    authority = Authority(tmp_path)
    with ForgeServer("github", tls=authority.issued("forge")).started() as server:
        enter(monkeypatch, server)
        said = typed("comment", "c.md", "--pull-request", str(NUMBER))
        assert said.code == 1
        assert re.search(r"the certificate of 127\.0\.0\.1:\d+ is not trusted", said.err)
        assert "SSL_CERT_FILE" in said.err
        assert server.requests == []
        for broken in (tmp_path / "nowhere", tmp_path / "c.md"):
            monkeypatch.setenv("SSL_CERT_FILE", str(broken))
            said = typed("comment", "c.md", "--pull-request", str(NUMBER))
            assert (said.code, f"the certificates in {broken} cannot be read" in said.err) == (1, True)
        monkeypatch.setenv("SSL_CERT_FILE", str(authority.ca))
        assert typed("comment", "c.md", "--pull-request", str(NUMBER)).code == 0
        assert only(server) == result()


def test_a_forge_that_cannot_be_reached_is_said_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, typed: Call, tmp_path: Path
) -> None:
    (tmp_path / "c.md").write_text(result())
    with ForgeServer("github").started() as server:
        enter(monkeypatch, server)
    said = typed("comment", "c.md", "--pull-request", str(NUMBER), "--timeout", "1s")
    assert said.code == 1
    assert "does not answer: [Errno 111] Connection refused" in said.err


@pytest.mark.parametrize(
    ("proxy", "direct", "message"),
    [
        ("{server}", "elsewhere.example.com", None),
        ("{server}", "127.0.0.1", "127.0.0.1:9 does not answer: [Errno 111] Connection refused"),
        ("gopher://user:hush@proxy", "", "the proxy that the environment names cannot be used"),
    ],
)
def test_requests_take_the_proxy_of_the_environment_except_for_hosts_in_no_proxy(
    monkeypatch: pytest.MonkeyPatch, typed: Call, tmp_path: Path, proxy: str, direct: str, message: str | None
) -> None:
    (tmp_path / "c.md").write_text(result())
    with ForgeServer("github").started() as server:
        enter(monkeypatch, server)
        monkeypatch.setenv("GITHUB_API_URL", "http://127.0.0.1:9")  # nothing listens there
        monkeypatch.setenv("http_proxy", proxy.format(server=server.url))
        monkeypatch.setenv("no_proxy", direct)
        said = typed("comment", "c.md", "--pull-request", str(NUMBER), "--timeout", "1s")
    assert said.code == (1 if message else 0)
    assert (message or "") in said.err
    assert "hush" not in said.err
    assert [comment.body for comment in server.comments] == ([] if message else [result()])


def test_a_repository_that_was_renamed_is_followed_on_the_same_host(forge: ForgeServer, say: Call) -> None:
    forge.says(OLD)
    notes = {"gitlab": f"/projects/acme%2Ftopics/merge_requests/{NUMBER}/notes"}.get(
        forge.kind, f"/repos/acme/topics/issues/{NUMBER}/comments"
    )
    forge.faults = [Fault("GET", "comments|notes", 301, {"Location": f"{forge.api}{notes}"})]
    assert say(result()).code == 0
    assert only(forge) == result()


def test_gitea_without_pages_is_asked_for_all_at_once(
    monkeypatch: pytest.MonkeyPatch, typed: Call, tmp_path: Path
) -> None:
    (tmp_path / "c.md").write_text(result())
    with ForgeServer("gitea", has_pages=False).started() as server:
        monkeypatch.setenv("GITEA_TOKEN", TOKEN)
        monkeypatch.setenv("GITEA_API_URL", server.api)
        for number in range(60):
            server.says(f"talk {number}", STRANGER)
        server.says(OLD)
        where = ("--forge", "gitea", "--repository", "acme/topics", "--pull-request", str(NUMBER))
        assert typed("comment", "c.md", *where).code == 0
        assert len(server.comments) == 61
        assert server.comments[-1].body == result()


# What is typed wrongly.


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"### a plan", "does not begin with reconciler's marker"),
        (b"", "does not begin with reconciler's marker"),
        (b"\n" + SHOP.line.encode(), "does not begin with reconciler's marker"),
        (b"\xff\xfe", "it is not UTF-8 text"),
    ],
)
def test_a_file_that_is_no_result_is_refused(typed: Call, tmp_path: Path, text: bytes, message: str) -> None:
    (tmp_path / "c.md").write_bytes(text)
    said = typed("comment", "c.md")
    assert said.code in {1, 64}
    assert message in said.err
    assert "--format markdown" in said.err


def test_a_file_that_is_not_there_is_refused(typed: Call) -> None:
    said = typed("comment", "c.md")
    assert said.code == 64
    assert "c.md cannot be read: No such file or directory" in said.err


@pytest.mark.parametrize("wrong", [(), ("x.md", "--failed", "why"), ("x.md", "--environment", "prod")])
def test_a_comment_is_of_a_file_or_of_a_plan_that_failed(typed: Call, wrong: tuple[str, ...]) -> None:
    assert typed("comment", *wrong).code == 64


def test_a_plan_that_could_not_be_made_takes_the_place_of_the_last_one(forge: ForgeServer, call: Call) -> None:
    forge.says(call("plan", "--format", "markdown").out)
    assert call("comment", "--failed", "the runner ended | <b>").code == 0
    (comment,) = forge.comments
    assert "was not planned" in comment.body
    assert "digest=" not in comment.body
    assert "<b>" not in comment.body.replace("`the runner ended \\| <b>. The log of the job has details.`", "")
