"""Client for GitHub: REST, and GraphQL to find authors and hide comments."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote

from reconciler.errors import NotAuthorizedError, UserError
from reconciler.forges.http import ApiClient, ForgeResponse, ForgeTraits, RetryReason
from reconciler.forges.protocol import Approval, Comment, ForgeSettings, Issue, Kind, PullRequest, parse_time_ms
from reconciler.runtime.text import to_one_line


def _list_graphql_errors(answer: ForgeResponse) -> list[Mapping[str, Any]]:
    errors = answer.read_field("errors")
    rows = errors if isinstance(errors, list) else []
    return [row for row in rows if isinstance(row, dict) and row.get("type") != "NOT_FOUND"]


def _find_retry_reason(answer: ForgeResponse) -> RetryReason | None:
    """Return why to retry a GraphQL request; `None` on success. Its HTTP status is always 200."""
    if b'"errors"' not in answer.body:
        return None
    types = {problem.get("type") for problem in _list_graphql_errors(answer)}
    if "RATE_LIMITED" in types:
        return "limit"
    return "busy" if None in types else None


_TRAITS: Final = ForgeTraits(
    "GitHub",
    "Give the job `permissions: {pull-requests: write}`, for issues `{issues: write}`; the token of a pull request "
    "from a fork can only read.",
    _find_retry_reason,
)
_NEXT_LINK: Final = re.compile(r'<([^>]*)>\s*;[^,]*\brel="?next"?')
_PAGE_SIZE: Final = 100
_NODES_QUERY: Final = (
    "query($ids:[ID!]!){nodes(ids:$ids){"
    "...on IssueComment{id viewerDidAuthor isMinimized}...on Issue{id viewerDidAuthor}}}"
)
_MINIMIZE_MUTATION: Final = (
    "mutation($id:ID!){minimizeComment(input:{subjectId:$id,classifier:OUTDATED}){minimizedComment{isMinimized}}}"
)


class GitHubCompatibleForge:
    """The REST API that GitHub and Gitea share."""

    def __init__(self, api: ApiClient, repository: str) -> None:
        self._api = api
        self._repository = f"/repos/{quote(repository)}"
        self._issues = f"{self._repository}/issues"

    def post_comment(self, number: int, body: str) -> Comment:
        """Create a comment."""
        path = f"{self._issues}/{number}/comments"
        return parse_comment(self._api.send("POST", path, "post a comment", body={"body": body}).parse_object())

    def edit_comment(self, number: int, comment: Comment, body: str) -> Comment | None:  # noqa: ARG002 - the protocol's
        """Edit a comment."""
        path = f"{self._issues}/comments/{comment.id}"
        answer = self._api.send("PATCH", path, "edit its comment", body={"body": body}, accepts=(_NOT_FOUND,))
        return None if answer.status == _NOT_FOUND else parse_comment(answer.parse_object())

    def delete_comment(self, number: int, comment: Comment) -> None:  # noqa: ARG002 - the protocol's
        """Delete a comment."""
        self._api.send("DELETE", f"{self._issues}/comments/{comment.id}", "delete its comment", accepts=(_NOT_FOUND,))

    def set_label(self, number: int, label: str, others: Sequence[str]) -> None:
        """Add `label` and remove `others`."""
        path = f"{self._issues}/{number}/labels"
        keys = self._read_label_keys([label, *others])
        rows = self._api.get(f"{path}?per_page={_PAGE_SIZE}", "list the labels").parse_objects()
        present = {str(row.get("name")) for row in rows}
        if label in keys and label not in present:
            self._api.send("POST", path, "label it", body={"labels": [keys[label]]}, is_repeatable=True)
        for other in present & keys.keys() & {*others}:
            self._api.send(
                "DELETE", f"{path}/{quote(str(keys[other]), safe='')}", "remove a label", accepts=(_NOT_FOUND,)
            )

    def _read_label_keys(self, names: Sequence[str]) -> dict[str, str | int]:
        """Keys are names on GitHub, ids on Gitea."""
        return {name: name for name in names}

    def read_pull_request(self, number: int) -> PullRequest:
        """Return a pull request, open or closed."""
        return parse_pull_request(
            self._api.get(f"{self._repository}/pulls/{number}", "see the pull request").parse_object()
        )

    def close(self) -> None:
        """Close the connections."""
        self._api.close()


class GitHub(GitHubCompatibleForge):
    """A repository on github.com or a GitHub Enterprise Server.

    GraphQL's `viewerDidAuthor` marks own comments, since workflow tokens cannot call `GET /user`.
    """

    kind: Kind = "github"
    title = "GitHub"
    limit = 65_536

    def __init__(self, settings: ForgeSettings, now_ms: Callable[[], int]) -> None:
        headers = {
            "Authorization": f"Bearer {settings.token}",
            "Accept": "application/vnd.github+json",
            "X-GitHub-Api-Version": "2022-11-28",
        }
        super().__init__(ApiClient(settings, headers, _TRAITS, now_ms), settings.repository)
        self._graphql = f"{settings.api.removesuffix('/v3')}/graphql"

    def measure_text(self, text: str) -> int:
        """Return the length in characters."""
        return len(text)

    def list_own_comments(self, number: int, is_wanted: Callable[[str], bool]) -> list[Comment]:
        """Return own visible comments."""
        matching = [comment for comment in self._list_comments(number) if is_wanted(comment.body)]
        own = self._find_own_nodes([comment.node_id for comment in matching])
        return sorted((comment for comment in matching if comment.node_id in own), key=lambda comment: comment.id)

    def collapse_comment(self, number: int, comment: Comment) -> None:  # noqa: ARG002 - the protocol's
        """Hide a comment as outdated."""
        self._send_graphql("hide an older comment", _MINIMIZE_MUTATION, {"id": comment.node_id})

    def list_own_issues(self, is_wanted: Callable[[str], bool]) -> list[Issue]:
        """Return own open issues."""
        rows = self._list_rows(f"{self._issues}?state=open&per_page={_PAGE_SIZE}", "list the issues")
        issues = [parse_issue(issue) for issue in rows if "pull_request" not in issue]
        wanted = [issue for issue in issues if is_wanted(issue.body)]
        own = self._find_own_nodes([issue.node_id for issue in wanted])
        return sorted((issue for issue in wanted if issue.node_id in own), key=lambda issue: issue.number)

    def open_issue(self, title: str, body: str, labels: Sequence[str]) -> Issue:
        """Create an issue; GitHub creates missing labels."""
        content = {"title": title, "body": body, "labels": list(labels)}
        return parse_issue(self._api.send("POST", self._issues, "open an issue", body=content).parse_object())

    def edit_issue(self, issue: Issue, body: str, *, closes: bool = False) -> Issue | None:
        """Replace an issue's body."""
        content = {"body": body, **({"state": "closed", "state_reason": "completed"} if closes else {})}
        path = f"{self._issues}/{issue.number}"
        answer = self._api.send("PATCH", path, "change its issue", body=content, accepts=(_NOT_FOUND, _STATUS_GONE))
        return None if answer.status in {_NOT_FOUND, _STATUS_GONE} else parse_issue(answer.parse_object())

    def find_merged_requests(self, commit: str) -> list[int]:
        """Return the numbers of merged pull requests with a commit."""
        path = f"{self._repository}/commits/{quote(commit)}/pulls?per_page={_PAGE_SIZE}"
        pulls = self._list_rows(path, "see which pull request a commit is of")
        return sorted(parse_pull_request(pull).number for pull in pulls if pull.get("merged_at"))

    def list_approvals(self, request: PullRequest) -> list[Approval]:
        """Return approvals by people with write access; GitHub lists others, too."""
        path = f"{self._repository}/pulls/{request.number}/reviews?per_page={_PAGE_SIZE}"
        latest = find_latest_approvals(
            self._list_rows(path, "list the reviews"), "APPROVED", ("CHANGES_REQUESTED", "DISMISSED")
        )
        return [
            Approval(
                read_author_login(review),
                parse_time_ms(review.get("submitted_at")),
                review.get("commit_id") == request.head,
            )
            for review in latest
            if self._may_write(read_author_login(review))
        ]

    def _may_write(self, login: str) -> bool:
        path = f"{self._repository}/collaborators/{quote(login, safe='')}/permission"
        answer = self._api.get(path, "see who may write", accepts=(_NOT_FOUND,))
        return answer.status != _NOT_FOUND and answer.read_field("permission") in {"admin", "write"}

    def _list_comments(self, number: int) -> Iterator[Comment]:
        path = f"{self._issues}/{number}/comments?per_page={_PAGE_SIZE}"
        return map(parse_comment, self._list_rows(path, "list the comments"))

    def _list_rows(self, path: str, what: str) -> Iterator[dict[str, Any]]:
        place: str | None = path
        seen: set[str] = set()
        while place is not None and place not in seen:
            seen.add(place)
            answer = self._api.get(place, what)
            yield from answer.parse_objects()
            following = _NEXT_LINK.search(answer.headers.get("link", ""))
            place = None if following is None else following[1]

    def _find_own_nodes(self, nodes: Sequence[str]) -> set[str]:
        own: set[str] = set()
        for start in range(0, len(nodes), _PAGE_SIZE):
            data = self._send_graphql(
                "see who wrote a comment", _NODES_QUERY, {"ids": nodes[start : start + _PAGE_SIZE]}
            )
            for node in data.get("nodes") or ():
                is_own = isinstance(node, dict) and node.get("viewerDidAuthor") is True
                if is_own and node.get("isMinimized") is not True:
                    own.add(str(node.get("id")))
        return own

    def _send_graphql(self, what: str, query: str, variables: Mapping[str, object]) -> dict[str, Any]:
        body = {"query": query, "variables": variables}
        answer = self._api.send("POST", self._graphql, what, body=body, is_repeatable=True)
        data, wrong = answer.read_field("data"), _list_graphql_errors(answer)
        if not wrong:
            return data if isinstance(data, dict) else {}
        reasons = to_one_line("; ".join(str(problem.get("message", "")) for problem in wrong))
        if any(problem.get("type") in {"FORBIDDEN", "INSUFFICIENT_SCOPES"} for problem in wrong):
            raise NotAuthorizedError(f"GitHub does not let this token {what}: {reasons}", hint=_TRAITS.rights_hint)
        raise UserError(
            f"GitHub refuses to {what}: {reasons}", hint="Read the answer, then run the same command again."
        )


_NOT_FOUND: Final = 404
_STATUS_GONE: Final = 410


def parse_comment(row: Mapping[str, Any]) -> Comment:
    """Parse a comment of the REST API."""
    return Comment(
        int(row["id"]),
        str(row.get("body") or ""),
        str(row.get("html_url") or ""),
        str(row.get("node_id") or ""),
        parse_time_ms(row.get("updated_at")),
    )


def parse_pull_request(row: Mapping[str, Any]) -> PullRequest:
    """Parse a pull request of the REST API."""
    number = row.get("number")
    is_merged = bool(row.get("merged") or row.get("merged_at"))
    return PullRequest(
        number if isinstance(number, int) else 0,
        str(row.get("html_url") or ""),
        str((row.get("head") or {}).get("sha") or ""),
        read_author_login(row),
        is_merged,
        is_closed=not is_merged and row.get("state") == "closed",
    )


def read_author_login(row: Mapping[str, Any]) -> str:
    """Return the login of the author of a comment, review or pull request."""
    return str((row.get("user") or {}).get("login") or "")


def find_latest_approvals(
    reviews: Iterable[Mapping[str, Any]], approved: str, others: Collection[str]
) -> list[Mapping[str, Any]]:
    """Return each author's latest review if its state is `approved`. Only the states `approved` and `others` count."""
    newest = {read_author_login(review): review for review in reviews if review.get("state") in {approved, *others}}
    return [review for review in newest.values() if review.get("state") == approved]


def parse_issue(row: Mapping[str, Any]) -> Issue:
    """Parse an issue of the REST API."""
    number = row.get("number")
    return Issue(
        number if isinstance(number, int) else 0,
        str(row.get("title") or ""),
        str(row.get("body") or ""),
        str(row.get("html_url") or ""),
        str(row.get("node_id") or ""),
    )
