"""Client for GitLab, which calls comments notes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote

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
    "GitLab",
    "Use a project access token with the scope `api` and the role Reporter or more, as a masked variable GITLAB_TOKEN.",
)
_PAGE_SIZE: Final = 100
_NOT_FOUND: Final = 404


class GitLab:
    """A project on gitlab.com or a self-managed GitLab.

    Own notes are those by the user of `GET /user`. Older ones are collapsed with `<details>`.
    """

    kind: Kind = "gitlab"
    title = "GitLab"
    limit = 1_000_000

    def __init__(self, settings: ForgeSettings, now_ms: Callable[[], int]) -> None:
        headers = {"Authorization": f"Bearer {settings.token}", "Accept": "application/json"}
        self._api = ApiClient(settings, headers, _TRAITS, now_ms)
        self._project = f"/projects/{quote(settings.repository, safe='')}"
        self._pages: dict[int, str] = {}

    def measure_text(self, text: str) -> int:
        """Return the length in characters."""
        return len(text)

    def list_own_comments(self, number: int, is_wanted: Callable[[str], bool]) -> list[Comment]:
        """Return own notes."""
        matching = [note for note in self._list_notes(number) if is_wanted(str(note.get("body") or ""))]
        if not matching:
            return []
        me = self._api.get("/user", "see whose token this is").parse_object()["id"]
        own = [note for note in matching if (note.get("author") or {}).get("id") == me and not note.get("system")]
        page = self._read_page_url(number)
        return sorted((_parse_note(note, page) for note in own), key=lambda note: note.id)

    def post_comment(self, number: int, body: str) -> Comment:
        """Create a note."""
        page = self._read_page_url(number)
        answer = self._api.send("POST", self._build_notes_path(number), "post a comment", body={"body": body})
        return _parse_note(answer.parse_object(), page)

    def edit_comment(self, number: int, comment: Comment, body: str) -> Comment | None:
        """Edit a note."""
        path = f"{self._build_notes_path(number)}/{comment.id}"
        answer = self._api.send("PUT", path, "edit its comment", body={"body": body}, accepts=(_NOT_FOUND,))
        return None if answer.status == _NOT_FOUND else Comment(comment.id, body, comment.url)

    def delete_comment(self, number: int, comment: Comment) -> None:
        """Delete a note."""
        self._api.send(
            "DELETE", f"{self._build_notes_path(number)}/{comment.id}", "delete its comment", accepts=(_NOT_FOUND,)
        )

    def collapse_comment(self, number: int, comment: Comment) -> None:
        """Edit a note to collapse its text."""
        marker = parse_marker(comment.body)
        if marker is not None:
            self.edit_comment(number, comment, collapse_comment_text(marker, comment.body, self.limit))

    def set_label(self, number: int, label: str, others: Sequence[str]) -> None:
        """Add `label` and remove `others`."""
        content = {"add_labels": label, "remove_labels": ",".join(others)}
        self._api.send("PUT", f"{self._project}/merge_requests/{number}", "label it", body=content)

    def list_own_issues(self, is_wanted: Callable[[str], bool]) -> list[Issue]:
        """Return own open issues."""
        me = self._api.get("/user", "see whose token this is").parse_object()["id"]
        path = f"{self._project}/issues?state=opened&scope=all&author_id={me}"
        issues = map(_parse_issue, self._list_rows(path, "list the issues"))
        return sorted((issue for issue in issues if is_wanted(issue.body)), key=lambda issue: issue.number)

    def open_issue(self, title: str, body: str, labels: Sequence[str]) -> Issue:
        """Create an issue; GitLab creates missing labels."""
        content = {"title": title, "description": body, "labels": ",".join(labels)}
        return _parse_issue(
            self._api.send("POST", f"{self._project}/issues", "open an issue", body=content).parse_object()
        )

    def edit_issue(self, issue: Issue, body: str, *, closes: bool = False) -> Issue | None:
        """Replace an issue's body."""
        content = {"description": body, **({"state_event": "close"} if closes else {})}
        path = f"{self._project}/issues/{issue.number}"
        answer = self._api.send("PUT", path, "change its issue", body=content, accepts=(_NOT_FOUND,))
        return None if answer.status == _NOT_FOUND else _parse_issue(answer.parse_object())

    def read_pull_request(self, number: int) -> PullRequest:
        """Return a merge request, open or closed."""
        row = self._api.get(f"{self._project}/merge_requests/{number}", "see the merge request").parse_object()
        return _parse_request(row)

    def find_merged_requests(self, commit: str) -> list[int]:
        """Return the numbers of merged merge requests with a commit."""
        path = f"{self._project}/repository/commits/{quote(commit)}/merge_requests?"
        rows = self._list_rows(path, "see which merge request a commit is of")
        return sorted(request.number for request in map(_parse_request, rows) if request.is_merged)

    def list_approvals(self, request: PullRequest) -> list[Approval]:
        """Return the approvals. An approval covers the head if all commits were pushed before it."""
        place = f"{self._project}/merge_requests/{request.number}"
        rows = self._api.get(f"{place}/approvals", "see the approvals").read_field("approved_by") or ()
        rows = [row for row in rows if isinstance(row, dict)]
        if not rows:
            return []
        versions = self._list_rows(f"{place}/versions?", "see when commits were pushed")
        pushed_ms = max((parse_time_ms(row.get("created_at")) for row in versions), default=0)
        noted = self._read_approval_times(request.number) if any(not row.get("approved_at") for row in rows) else {}
        approvals: list[Approval] = []
        for row in rows:
            by = str((row.get("user") or {}).get("username") or "")
            at_ms = parse_time_ms(row.get("approved_at")) or noted.get(by, 0)
            approvals.append(Approval(by, at_ms, at_ms > pushed_ms > 0))
        return approvals

    def _read_approval_times(self, number: int) -> dict[str, int]:
        return {
            str((note.get("author") or {}).get("username") or ""): parse_time_ms(note.get("created_at"))
            for note in self._list_notes(number)
            if note.get("system") and str(note.get("body")).startswith("approved this merge request")
        }

    def close(self) -> None:
        """Close the connections."""
        self._api.close()

    def _build_notes_path(self, number: int) -> str:
        return f"{self._project}/merge_requests/{number}/notes"

    def _list_notes(self, number: int) -> Iterator[dict[str, Any]]:
        return self._list_rows(f"{self._build_notes_path(number)}?sort=asc&order_by=created_at", "list the comments")

    def _list_rows(self, path: str, what: str) -> Iterator[dict[str, Any]]:
        page = 1
        while True:
            answer = self._api.get(f"{path}&per_page={_PAGE_SIZE}&page={page}", what)
            yield from answer.parse_objects()
            following = answer.headers.get("x-next-page", "").strip()
            if not following.isdecimal() or int(following) <= page:
                return
            page = int(following)

    def _read_page_url(self, number: int) -> str:
        if number not in self._pages:
            answer = self._api.get(f"{self._project}/merge_requests/{number}", "see the merge request")
            self._pages[number] = str(answer.read_field("web_url") or "")
        return self._pages[number]


def _parse_issue(row: Mapping[str, Any]) -> Issue:
    number = row.get("iid")
    return Issue(
        number if isinstance(number, int) else 0,
        str(row.get("title") or ""),
        str(row.get("description") or ""),
        str(row.get("web_url") or ""),
    )


def _parse_request(row: Mapping[str, Any]) -> PullRequest:
    number = row.get("iid")
    return PullRequest(
        number if isinstance(number, int) else 0,
        str(row.get("web_url") or ""),
        str(row.get("sha") or ""),
        str((row.get("author") or {}).get("username") or ""),
        row.get("state") == "merged",
        is_closed=row.get("state") == "closed",
    )


def _parse_note(row: Mapping[str, Any], page: str) -> Comment:
    number = int(row["id"])
    url = f"{page}#note_{number}" if page else ""
    return Comment(number, str(row.get("body") or ""), url, changed_ms=parse_time_ms(row.get("updated_at")))
