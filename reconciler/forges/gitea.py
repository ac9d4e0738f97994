"""Client for Gitea and Forgejo."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final
from urllib.parse import quote

from reconciler.forges.github import (
    GitHubCompatibleForge,
    find_latest_approvals,
    parse_comment,
    parse_issue,
    parse_pull_request,
    read_author_login,
)
from reconciler.forges.http import ApiClient, ForgeTraits
from reconciler.forges.protocol import (
    Approval,
    Comment,
    ForgeSettings,
    Issue,
    Kind,
    PullRequest,
    collapse_comment_text,
    parse_marker,
    parse_time_ms,
)

_TRAITS: Final = ForgeTraits(
    "Gitea",
    "The token needs the scopes `write:issue`, `read:repository` and `read:user`; that of a workflow needs "
    "nothing more, but in a pull request from a fork it can only read.",
)
_PAGE_SIZE: Final = 50
_NOT_FOUND: Final = 404


class Gitea(GitHubCompatibleForge):
    """A repository on Gitea or Forgejo.

    Own comments are those by the user of `GET /user`. Older ones are collapsed with `<details>`.
    """

    kind: Kind = "gitea"
    title = "Gitea"
    limit = 65_535

    def __init__(self, settings: ForgeSettings, now_ms: Callable[[], int]) -> None:
        headers = {"Authorization": f"token {settings.token}", "Accept": "application/json"}
        super().__init__(ApiClient(settings, headers, _TRAITS, now_ms), settings.repository)
        self._labels = f"{self._repository}/labels"

    def measure_text(self, text: str) -> int:
        """Return the size in bytes."""
        return len(text.encode())

    def list_own_comments(self, number: int, is_wanted: Callable[[str], bool]) -> list[Comment]:
        """Return own comments."""
        matching = [item for item in self._list_comments(number) if is_wanted(str(item.get("body") or ""))]
        if not matching:
            return []
        me = self._api.get("/user", "see whose token this is").parse_object()["id"]
        own = (parse_comment(item) for item in matching if (item.get("user") or {}).get("id") == me)
        return sorted(own, key=lambda item: item.id)

    def collapse_comment(self, number: int, comment: Comment) -> None:
        """Edit a comment to collapse its text."""
        marker = parse_marker(comment.body)
        if marker is not None:
            self.edit_comment(
                number, comment, collapse_comment_text(marker, comment.body, self.limit, self.measure_text)
            )

    def list_own_issues(self, is_wanted: Callable[[str], bool]) -> list[Issue]:
        """Return own open issues."""
        rows = self._list_rows(f"{self._issues}?state=open&type=issues", "list the issues")
        matching = [item for item in rows if is_wanted(str(item.get("body") or ""))]
        if not matching:
            return []
        me = self._api.get("/user", "see whose token this is").parse_object()["id"]
        own = (parse_issue(item) for item in matching if (item.get("user") or {}).get("id") == me)
        return sorted(own, key=lambda item: item.number)

    def open_issue(self, title: str, body: str, labels: Sequence[str]) -> Issue:
        """Create an issue; labels that do not exist are omitted."""
        numbers = list(self._read_label_keys(labels).values()) if labels else []
        content = {"title": title, "body": body, "labels": numbers}
        return parse_issue(self._api.send("POST", self._issues, "open an issue", body=content).parse_object())

    def edit_issue(self, issue: Issue, body: str, *, closes: bool = False) -> Issue | None:
        """Replace an issue's body."""
        content = {"body": body, **({"state": "closed"} if closes else {})}
        path = f"{self._issues}/{issue.number}"
        answer = self._api.send("PATCH", path, "change its issue", body=content, accepts=(_NOT_FOUND,))
        return None if answer.status == _NOT_FOUND else parse_issue(answer.parse_object())

    def find_merged_requests(self, commit: str) -> list[int]:
        """Return the merged pull request's number, in a list."""
        path = f"{self._repository}/commits/{quote(commit)}/pull"
        answer = self._api.get(path, "see which pull request a commit is of", accepts=(_NOT_FOUND,))
        if answer.status == _NOT_FOUND:
            return []
        pull_request = parse_pull_request(answer.parse_object())
        return [pull_request.number] if pull_request.is_merged else []

    def list_approvals(self, request: PullRequest) -> list[Approval]:
        """Return `official` approvals: those by people with write access."""
        rows = self._list_rows(f"{self._repository}/pulls/{request.number}/reviews?", "list the reviews")
        latest = find_latest_approvals(
            (review for review in rows if not review.get("dismissed")), "APPROVED", ("REQUEST_CHANGES",)
        )
        return [
            Approval(
                read_author_login(review),
                parse_time_ms(review.get("submitted_at")),
                review.get("commit_id") == request.head,
            )
            for review in latest
            if review.get("official")
        ]

    def _read_label_keys(self, names: Sequence[str]) -> dict[str, str | int]:
        known = self._list_rows(f"{self._labels}?", "list the labels")
        return {label["name"]: label["id"] for label in known if label.get("name") in names}

    def _list_comments(self, number: int) -> Iterator[dict[str, Any]]:
        return self._list_rows(f"{self._issues}/{number}/comments?", "list the comments")

    def _list_rows(self, path: str, what: str) -> Iterator[dict[str, Any]]:
        seen: set[int] = set()
        page = 1
        while True:
            answer = self._api.get(f"{path}&page={page}&limit={_PAGE_SIZE}", what)
            new = [item for item in answer.parse_objects() if item["id"] not in seen]
            seen.update(item["id"] for item in new)
            yield from new
            total = answer.headers.get("x-total-count", "")
            if not new or (total.isdecimal() and len(seen) >= int(total)):
                return
            page += 1
