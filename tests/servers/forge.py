"""A forge for tests: one repository with pull requests, over HTTP, as GitHub, GitLab and Gitea each speak it.

What it holds are plain lists that a test reads and changes. Faults are data: which requests go wrong, and how.
"""

from __future__ import annotations

import json
import os
import re
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias
from urllib.parse import parse_qs, unquote, urlsplit

if TYPE_CHECKING:
    import pytest

Kind: TypeAlias = Literal["github", "gitlab", "gitea"]
KINDS: Final[tuple[Kind, ...]] = ("github", "gitlab", "gitea")

REPOSITORY: Final = "acme/topics"
TOKEN: Final = "t0ken-of-the-bot-4711"  # noqa: S105 - only this server takes it
BOT: Final = 41
"""The user of that token."""
STRANGER: Final = 666
NUMBER: Final = 7
"""Of the pull request."""
_PREFIX: Final[Mapping[Kind, str]] = {"github": "", "gitlab": "/api/v4", "gitea": "/api/v1"}


@dataclass
class Said:
    """A comment."""

    id: int
    author: int
    body: str
    is_minimized: bool = False
    changed: str = "2026-05-01T10:00:00Z"


@dataclass
class Review:
    """A review of the pull request."""

    by: str
    state: str = "APPROVED"
    at: str = "2026-05-01T12:00:00Z"
    commit: str = "c0ffee"
    may_write: bool = True
    is_dismissed: bool = False


@dataclass
class Issue:
    """An issue."""

    number: int
    author: int
    title: str
    body: str
    labels: list[str]
    is_open: bool = True


@dataclass
class Fault:
    """What becomes of the next `times` requests that match."""

    method: str
    path: str
    """A regular expression that is searched in the path."""
    status: int | None = None
    """`None`: the connection ends without an answer."""
    headers: dict[str, str] = field(default_factory=dict)
    body: str = ""
    times: int = 1
    is_done: bool = False
    """Whether the request is carried out before it goes wrong."""
    late_s: float = 0.0
    """Answered so much later, in pieces."""


class Request(NamedTuple):
    """What was asked."""

    method: str
    path: str
    token: str
    """The whole header."""


class _Answer(NamedTuple):
    status: int
    body: Any
    headers: Mapping[str, str] = {}


@dataclass
class ForgeServer:
    """One repository, and the server before it."""

    kind: Kind
    page_size: int = 2
    has_pages: bool = True
    """Gitea's versions differ in whether comments have pages."""
    comments: list[Said] = field(default_factory=list)
    issues: list[Issue] = field(default_factory=list)
    reviews: list[Review] = field(default_factory=list)
    head: str = "c0ffee"
    """The last commit of the pull request."""
    pushed: str = "2026-05-01T09:00:00Z"
    """When that was pushed."""
    merged_as: str | None = None
    """The commit that the pull request was merged with."""
    is_closed: bool = False
    """Whether it was closed without a merge."""
    has_times: bool = True
    """GitLab says only since version 18 when something was approved."""
    labels: list[str] = field(default_factory=lambda: ["bug", "drift"])
    """Gitea knows labels by number: that of their place here."""
    request_labels: list[str] = field(default_factory=list)
    """Labels of the pull request."""
    messages: list[Any] = field(default_factory=list)
    """What was sent to the webhook, `/hook` of this server."""
    faults: list[Fault] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)
    url: str = ""
    tls: tuple[Path, Path] | None = None
    """The files of a certificate and its key; `None`: it is not encrypted."""
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _last_id: int = 1000

    @contextmanager
    def started(self) -> Iterator[ForgeServer]:
        """Serve until the block ends."""
        server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        server.daemon_threads = True
        if self.tls is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*self.tls)
            server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        self.url = f"http{'' if self.tls is None else 's'}://127.0.0.1:{server.server_address[1]}"
        try:
            yield self
        finally:
            server.shutdown()
            server.server_close()
            thread.join()

    @property
    def api(self) -> str:
        return f"{self.url}{_PREFIX[self.kind]}"

    def environ(self) -> dict[str, str]:
        """Return what a runner of this forge sets, but for the event; of GitLab that of a merge request."""
        match self.kind:
            case "github":
                return {
                    "GITHUB_ACTIONS": "true",
                    "GITHUB_API_URL": self.api,
                    "GITHUB_REPOSITORY": REPOSITORY,
                    "GITHUB_TOKEN": TOKEN,
                }
            case "gitea":
                return {
                    "GITHUB_ACTIONS": "true",
                    "GITEA_ACTIONS": "true",
                    "GITHUB_API_URL": self.api,
                    "GITHUB_REPOSITORY": REPOSITORY,
                    "GITEA_TOKEN": TOKEN,
                }
            case "gitlab":
                return {
                    "GITLAB_CI": "true",
                    "CI_API_V4_URL": self.api,
                    "CI_PROJECT_PATH": REPOSITORY,
                    "GITLAB_TOKEN": TOKEN,
                    "CI_MERGE_REQUEST_IID": str(NUMBER),
                }

    def says(self, body: str, author: int = BOT) -> Said:
        """Let somebody write a comment."""
        self._last_id += 1
        said = Said(self._last_id, author, body)
        self.comments.append(said)
        return said

    def files(self, title: str, body: str, author: int = BOT) -> Issue:
        """Let somebody open an issue."""
        issue = Issue(len(self.issues) + 100, author, title, body, [])
        self.issues.append(issue)
        return issue

    def asked(self, method: str, pattern: str = "") -> list[Request]:
        """Return the requests of a method whose path matches."""
        return [each for each in self.requests if each.method == method and re.search(pattern, each.path)]

    # What is answered.

    def answer(self, method: str, path: str, body: Mapping[str, Any], token: str) -> _Answer:
        split = urlsplit(path)
        query = {name: values[0] for name, values in parse_qs(split.query).items()}
        place = unquote(split.path).removeprefix(_PREFIX[self.kind])
        if split.path == "/hook":
            self.messages.append(body)
            return _Answer(200, "ok")
        if token not in {f"Bearer {TOKEN}", f"token {TOKEN}"}:
            return _Answer(401, {"message": "Bad credentials"})
        with self._lock:
            return {"github": self._github, "gitlab": self._gitlab, "gitea": self._gitea}[self.kind](
                method, place, query, body
            )

    def _github(self, method: str, place: str, query: Mapping[str, str], body: Mapping[str, Any]) -> _Answer:
        if place == "/graphql":
            return self._graphql(body)
        if place == "/user":
            return _Answer(403, {"message": "Resource not accessible by integration"})
        if found := re.fullmatch(rf"/repos/{REPOSITORY}/collaborators/([^/]+)/permission", place):
            rights = {each.by: "write" if each.may_write else "read" for each in self.reviews}
            if found[1] not in rights:
                return _Answer(404, {"message": "Not Found"})
            return _Answer(200, {"permission": rights[found[1]], "user": {"id": 1, "login": found[1]}})
        if found := re.fullmatch(rf"/repos/{REPOSITORY}/commits/([0-9a-z]+)/pulls", place):
            return self._page(place, query, [self._request()] if found[1] == self.merged_as else [])
        return self._pulls(place, query) or self._issues(method, place, query, body)

    def _gitea(self, method: str, place: str, query: Mapping[str, str], body: Mapping[str, Any]) -> _Answer:
        if place == "/user":
            return _Answer(200, {"id": BOT, "login": "bot"})
        if found := re.fullmatch(rf"/repos/{REPOSITORY}/commits/([0-9a-z]+)/pull", place):
            is_here = found[1] == self.merged_as
            return _Answer(200, self._request()) if is_here else _Answer(404, {"message": "Not Found"})
        return self._pulls(place, query) or self._issues(method, place, query, body)

    def _pulls(self, place: str, query: Mapping[str, str]) -> _Answer | None:
        if place == f"/repos/{REPOSITORY}/pulls/{NUMBER}":
            return _Answer(200, self._request())
        if place == f"/repos/{REPOSITORY}/pulls/{NUMBER}/reviews":
            return self._page(place, query, [self._review(number, each) for number, each in enumerate(self.reviews)])
        return None

    def _request(self) -> dict[str, Any]:
        merged = "2026-05-02T08:00:00Z" if self.merged_as else None
        shown: dict[str, Any] = {"id": 9, "number": NUMBER, "merged_at": merged, "head": {"sha": self.head}}
        shown["state"] = "closed" if self.merged_as or self.is_closed else "open"
        return {**shown, "html_url": f"{self.url}/{REPOSITORY}/pull/{NUMBER}", "user": {"id": 3, "login": "author"}}

    def _review(self, number: int, review: Review) -> dict[str, Any]:
        shown: dict[str, Any] = {"id": number, "submitted_at": review.at, "commit_id": review.commit}
        shown["user"] = {"id": 100 + number, "login": review.by}
        if self.kind == "github":
            return {**shown, "state": "DISMISSED" if review.is_dismissed else review.state}
        state = "REQUEST_CHANGES" if review.state == "CHANGES_REQUESTED" else review.state
        return {**shown, "state": state, "official": review.may_write, "dismissed": review.is_dismissed}

    def _issues(self, method: str, place: str, query: Mapping[str, str], body: Mapping[str, Any]) -> _Answer:
        issues = f"/repos/{REPOSITORY}/issues"
        if place == f"{issues}/{NUMBER}/comments":
            if method == "POST":
                return self._posted(body)
            return self._listed(place, query)
        if found := re.fullmatch(rf"{issues}/comments/(\d+)", place):
            return self._one(method, int(found[1]), body)
        if found := re.fullmatch(rf"{issues}/{NUMBER}/labels(?:/(.+))?", place):
            return self._labelled(method, found[1], body)
        if place == f"/repos/{REPOSITORY}/labels":
            return self._page(place, query, [{"id": n, "name": name} for n, name in enumerate(self.labels)])
        if place == issues:
            return self._filed(body) if method == "POST" else self._page(place, query, self._open_issues(query))
        if found := re.fullmatch(rf"{issues}/(\d+)", place):
            return self._changed(int(found[1]), body)
        return _Answer(404, {"message": "Not Found"})

    def _labelled(self, method: str, key: str | None, body: Mapping[str, Any]) -> _Answer:
        """GitHub creates a label that is missing, and calls labels by name; Gitea by number."""
        name = (lambda key: self.labels[int(key)]) if self.kind == "gitea" else str
        if method == "POST":
            self.request_labels += [name(added) for added in body["labels"]]
        if method == "DELETE" and key is not None:
            self.request_labels.remove(name(key))
        return _Answer(200, [{"id": number, "name": label} for number, label in enumerate(self.request_labels)])

    def _gitlab(self, method: str, place: str, query: Mapping[str, str], body: Mapping[str, Any]) -> _Answer:
        request = f"/projects/{REPOSITORY}/merge_requests/{NUMBER}"
        if place == "/user":
            return _Answer(200, {"id": BOT, "username": "bot"})
        if place == request and method == "PUT":
            kept = [label for label in self.request_labels if label not in body["remove_labels"].split(",")]
            self.request_labels = [*kept, *({body["add_labels"]} - {*kept})]
        if place == request:
            return _Answer(200, self._merge_request())
        if place == f"{request}/approvals":
            return _Answer(200, {"approved_by": [self._approval(each) for each in self._approving()]})
        if place == f"{request}/versions":
            return self._page(place, query, [{"id": 1, "created_at": self.pushed}])
        if found := re.fullmatch(rf"/projects/{REPOSITORY}/repository/commits/([0-9a-z]+)/merge_requests", place):
            return self._page(place, query, [self._merge_request()] if found[1] == self.merged_as else [])
        if place == f"{request}/notes":
            return self._posted(body) if method == "POST" else self._listed(place, query)
        if found := re.fullmatch(rf"{request}/notes/(\d+)", place):
            return self._one(method, int(found[1]), body)
        issues = f"/projects/{REPOSITORY}/issues"
        if place == issues:
            return self._filed(body) if method == "POST" else self._page(place, query, self._open_issues(query))
        if found := re.fullmatch(rf"{issues}/(\d+)", place):
            return self._changed(int(found[1]), body)
        return _Answer(404, {"message": "404 Not found"})

    def _merge_request(self) -> dict[str, Any]:
        state = "merged" if self.merged_as else "closed" if self.is_closed else "opened"
        shown = {"id": 1, "iid": NUMBER, "web_url": f"{self.url}/mr/{NUMBER}", "sha": self.head, "state": state}
        return {**shown, "author": {"id": 3, "username": "author"}}

    def _approving(self) -> list[Review]:
        """Return who approves: GitLab lets only them who may, and keeps no review that was taken back."""
        newest = {each.by: each for each in self.reviews if each.may_write and not each.is_dismissed}
        return [each for each in newest.values() if each.state == "APPROVED"]

    def _approval(self, review: Review) -> dict[str, Any]:
        shown = {"user": {"id": 5, "username": review.by}}
        return {**shown, "approved_at": review.at} if self.has_times else shown

    def _posted(self, body: Mapping[str, Any]) -> _Answer:
        if refused := self._too_long(body):
            return refused
        return _Answer(201, self._shown(self.says(body["body"])))

    def _one(self, method: str, number: int, body: Mapping[str, Any]) -> _Answer:
        said = next((each for each in self.comments if each.id == number), None)
        if said is None:
            return _Answer(404, {"message": "Not Found"})
        if method == "DELETE":
            self.comments.remove(said)
            return _Answer(204, None)
        if method == ("PUT" if self.kind == "gitlab" else "PATCH"):
            if refused := self._too_long(body):
                return refused
            said.body = body["body"]
        return _Answer(200, self._shown(said))

    def _too_long(self, body: Mapping[str, Any]) -> _Answer | None:
        limit = 1_000_000 if self.kind == "gitlab" else 65_536
        if len(body["body"]) <= limit:
            return None
        return _Answer(422, {"message": "Validation Failed", "errors": [{"message": "body is too long"}]})

    def _filed(self, body: Mapping[str, Any]) -> _Answer:
        issue = self.files(body["title"], body["description" if self.kind == "gitlab" else "body"])
        labels = body["labels"]
        if self.kind == "gitlab":
            labels = labels.split(",") if labels else []
        issue.labels = [self.labels[each] for each in labels] if self.kind == "gitea" else labels
        return _Answer(201, self._issue(issue))

    def _changed(self, number: int, body: Mapping[str, Any]) -> _Answer:
        issue = next((each for each in self.issues if each.number == number), None)
        if issue is None:
            return _Answer(404, {"message": "Not Found"})
        issue.body = body["description" if self.kind == "gitlab" else "body"]
        if body.get("state") == "closed" or body.get("state_event") == "close":
            issue.is_open = False
        return _Answer(200, self._issue(issue))

    def _open_issues(self, query: Mapping[str, str]) -> list[dict[str, Any]]:
        author = query.get("author_id")
        found = [each for each in self.issues if each.is_open and author in {None, str(each.author)}]
        rows = [self._issue(each) for each in found]
        # GitHub lists pull requests as issues.
        return [*rows, {"id": 1, "number": NUMBER, "pull_request": {}, "body": ""}] if self.kind == "github" else rows

    def _issue(self, issue: Issue) -> dict[str, Any]:
        page = f"{self.url}/{REPOSITORY}/issues/{issue.number}"
        shown: dict[str, Any] = {"id": issue.number + 5_000, "title": issue.title}
        if self.kind == "gitlab":
            return {**shown, "iid": issue.number, "description": issue.body, "web_url": page}
        user = {"id": issue.author}
        node = f"I_{issue.number}"
        return {**shown, "number": issue.number, "body": issue.body, "html_url": page, "node_id": node, "user": user}

    def _listed(self, place: str, query: Mapping[str, str]) -> _Answer:
        rows = [self._shown(each) for each in self.comments]
        if self.kind == "gitlab":
            rows += [self._note_of(number, each) for number, each in enumerate(self._approving())]
        return self._page(place, query, rows)

    def _note_of(self, number: int, review: Review) -> dict[str, Any]:
        shown = {"id": number, "body": "approved this merge request", "system": True, "created_at": review.at}
        return {**shown, "author": {"id": 5, "username": review.by}}

    def _page(self, place: str, query: Mapping[str, str], shown: list[dict[str, Any]]) -> _Answer:
        if not self.has_pages:
            return _Answer(200, shown)
        page = int(query.get("page", "1"))
        some = shown[(page - 1) * self.page_size : page * self.page_size]
        is_last = page * self.page_size >= len(shown)
        match self.kind:
            case "github":
                first = f'<{self.api}{place}?page=1>; rel="first"'
                headers = {"Link": first if is_last else f'<{self.api}{place}?page={page + 1}>; rel="next", {first}'}
            case "gitlab":
                headers = {"x-next-page": "" if is_last else str(page + 1)}
            case "gitea":
                headers = {"X-Total-Count": str(len(shown))}
        return _Answer(200, some, headers)

    def _shown(self, said: Said) -> dict[str, Any]:
        if self.kind == "gitlab":
            shown = {"id": said.id, "body": said.body, "author": {"id": said.author}, "system": False}
            return {**shown, "updated_at": said.changed}
        page = f"{self.url}/{REPOSITORY}/pull/{NUMBER}#issuecomment-{said.id}"
        user = {"id": said.author, "login": "bot" if said.author == BOT else "stranger"}
        # GitHub gives back line ends as a browser writes them.
        body = said.body.replace("\n", "\r\n") if self.kind == "github" else said.body
        shown = {"id": said.id, "node_id": f"IC_{said.id}", "body": body, "html_url": page, "user": user}
        return {**shown, "updated_at": said.changed}

    def _graphql(self, body: Mapping[str, Any]) -> _Answer:
        by_node: dict[str, Said | Issue] = {f"IC_{each.id}": each for each in self.comments}
        by_node |= {f"I_{each.number}": each for each in self.issues}
        variables = body["variables"]
        if "minimizeComment" in body["query"]:
            hidden = by_node[variables["id"]]
            assert isinstance(hidden, Said)
            hidden.is_minimized = True
            return _Answer(200, {"data": {"minimizeComment": {"minimizedComment": {"isMinimized": True}}}})
        nodes = [
            {
                "id": node,
                "viewerDidAuthor": by_node[node].author == BOT,
                "isMinimized": getattr(by_node[node], "is_minimized", False),
            }
            if node in by_node
            else None
            for node in variables["ids"]
        ]
        return _Answer(200, {"data": {"nodes": nodes}})

    def fault_of(self, method: str, path: str) -> Fault | None:
        with self._lock:
            for each in self.faults:
                if each.times > 0 and each.method == method and re.search(each.path, path):
                    each.times -= 1
                    return each
        return None


_OF_RUNNERS: Final = re.compile(r"^(GITHUB|GH|GITEA|FORGEJO|GITLAB|CI)(_|$)|_PROXY$", re.IGNORECASE)


def enter(monkeypatch: pytest.MonkeyPatch, forge: ForgeServer) -> None:
    """Give this process the environment of a run of a forge, and of nothing else."""
    for name in [each for each in os.environ if _OF_RUNNERS.search(each)]:
        monkeypatch.delenv(name)
    for name, value in forge.environ().items():
        monkeypatch.setenv(name, value)


def _handler(forge: ForgeServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True  # else a body waits for the head before it to be acknowledged

        def do(self) -> None:
            raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            token = self.headers.get("Authorization", "")
            forge.requests.append(Request(self.command, self.path, token))
            ask: Callable[[], _Answer] = lambda: forge.answer(self.command, self.path, json.loads(raw or b"{}"), token)  # noqa: E731
            fault = forge.fault_of(self.command, self.path)
            if fault is None:
                found = ask()
                body = b"" if found.body is None else json.dumps(found.body).encode()
                self._answer(found.status, {"Content-Type": "application/json", **found.headers}, body)
                return
            if fault.is_done:
                ask()
            if fault.status is None:
                self.close_connection = True
                return
            self._answer(fault.status, fault.headers, fault.body.encode(), late_s=fault.late_s)

        do_GET = do_POST = do_PATCH = do_PUT = do_DELETE = do  # noqa: N815 - the base's names

        def _answer(self, status: int, headers: Mapping[str, str], body: bytes, *, late_s: float = 0.0) -> None:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            for each in body if late_s else ():
                time.sleep(late_s)
                try:
                    self.wfile.write(bytes([each]))
                except OSError:  # the client has gone
                    return
            if not late_s:
                self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's name
            del format, args

    return Handler
