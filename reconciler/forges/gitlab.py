"""GitLab: notes of merge requests."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote

from reconciler.forges.http import Advice, Api
from reconciler.forges.protocol import (
    Approval,
    Comment,
    ForgeSettings,
    Issue,
    Kind,
    PullRequest,
    folded_away,
    marker_of,
    ms_of,
)

_ADVICE: Final = Advice(
    "GitLab",
    "Use a project access token with the scope `api` and the role Reporter or more, as a masked variable GITLAB_TOKEN.",
)
_AT_ONCE: Final = 100
_GONE: Final = 404


class GitLab:
    """A project on gitlab.com or a GitLab of one's own.

    A note is ours if its author is the user that `GET /user` names. There is no hiding, so an older note becomes a fold
    with its text.
    """

    kind: Kind = "gitlab"
    title = "GitLab"
    limit = 1_000_000

    def __init__(self, settings: ForgeSettings, now_ms: Callable[[], int]) -> None:
        """Connect to nothing yet."""
        headers = {"Authorization": f"Bearer {settings.token}", "Accept": "application/json"}
        self._api = Api(settings, headers, _ADVICE, now_ms)
        self._project = f"/projects/{quote(settings.repository, safe='')}"
        self._pages: dict[int, str] = {}

    def size(self, text: str) -> int:
        """Return the characters."""
        return len(text)

    def own_comments(self, number: int, is_wanted: Callable[[str], bool]) -> list[Comment]:
        """Return the notes with wanted texts that this token's user wrote, oldest first."""
        found = [each for each in self._all(number) if is_wanted(str(each.get("body") or ""))]
        if not found:
            return []
        me = self._api.get("/user", "see whose token this is").item()["id"]
        own = [each for each in found if (each.get("author") or {}).get("id") == me and not each.get("system")]
        page = self._page_of(number)
        return sorted((_note(each, page) for each in own), key=lambda each: each.id)

    def post_comment(self, number: int, body: str) -> Comment:
        """Write a new note."""
        page = self._page_of(number)
        answer = self._api.send("POST", self._notes(number), "post a comment", body={"body": body})
        return _note(answer.item(), page)

    def edit_comment(self, number: int, comment: Comment, body: str) -> Comment | None:
        """Give a note another text; `None`: it is not there any more."""
        path = f"{self._notes(number)}/{comment.id}"
        answer = self._api.send("PUT", path, "edit its comment", body={"body": body}, accepts=(_GONE,))
        return None if answer.status == _GONE else Comment(comment.id, body, comment.url)

    def delete_comment(self, number: int, comment: Comment) -> None:
        """Delete a note; that it is gone already is no error."""
        self._api.send("DELETE", f"{self._notes(number)}/{comment.id}", "delete its comment", accepts=(_GONE,))

    def collapse_comment(self, number: int, comment: Comment) -> None:
        """Fold its text away."""
        marker = marker_of(comment.body)
        if marker is not None:
            self.edit_comment(number, comment, folded_away(marker, comment.body, self.limit))

    def own_issues(self, is_wanted: Callable[[str], bool]) -> list[Issue]:
        """Return the open issues with wanted texts that this token's user wrote, oldest first."""
        me = self._api.get("/user", "see whose token this is").item()["id"]
        path = f"{self._project}/issues?state=opened&scope=all&author_id={me}"
        found = map(_issue, self._rows(path, "list the issues"))
        return sorted((each for each in found if is_wanted(each.body)), key=lambda each: each.number)

    def open_issue(self, title: str, body: str, labels: Sequence[str]) -> Issue:
        """Write a new issue; labels that are not there are made."""
        content = {"title": title, "description": body, "labels": ",".join(labels)}
        return _issue(self._api.send("POST", f"{self._project}/issues", "open an issue", body=content).item())

    def edit_issue(self, issue: Issue, body: str, *, closes: bool = False) -> Issue | None:
        """Give an issue another text, and close it if asked; `None`: it is not there any more."""
        content = {"description": body, **({"state_event": "close"} if closes else {})}
        path = f"{self._project}/issues/{issue.number}"
        answer = self._api.send("PUT", path, "change its issue", body=content, accepts=(_GONE,))
        return None if answer.status == _GONE else _issue(answer.item())

    def pull_request(self, number: int) -> PullRequest:
        """Return a merge request."""
        found = self._api.get(f"{self._project}/merge_requests/{number}", "see the merge request").item()
        return _request(found)

    def merged_with(self, commit: str) -> list[int]:
        """Return the numbers of the merged merge requests that brought a commit."""
        path = f"{self._project}/repository/commits/{quote(commit)}/merge_requests?"
        found = self._rows(path, "see which merge request a commit is of")
        return sorted(each.number for each in map(_request, found) if each.is_merged)

    def approvals(self, request: PullRequest) -> list[Approval]:
        """Return the approvals that stand: only who may can give one.

        Older versions do not say when; then the note does that GitLab writes about it. An approval is of the head if
        all commits were pushed before it.
        """
        place = f"{self._project}/merge_requests/{request.number}"
        rows = self._api.get(f"{place}/approvals", "see the approvals").part("approved_by") or ()
        rows = [each for each in rows if isinstance(each, dict)]
        if not rows:
            return []
        versions = self._rows(f"{place}/versions?", "see when commits were pushed")
        pushed_ms = max((ms_of(each.get("created_at")) for each in versions), default=0)
        noted = self._noted_approvals(request.number) if any(not each.get("approved_at") for each in rows) else {}
        found: list[Approval] = []
        for each in rows:
            by = str((each.get("user") or {}).get("username") or "")
            at_ms = ms_of(each.get("approved_at")) or noted.get(by, 0)
            found.append(Approval(by, at_ms, at_ms > pushed_ms > 0))
        return found

    def _noted_approvals(self, number: int) -> dict[str, int]:
        """Return when each person approved last, by the notes that GitLab itself writes."""
        return {
            str((each.get("author") or {}).get("username") or ""): ms_of(each.get("created_at"))
            for each in self._all(number)
            if each.get("system") and str(each.get("body")).startswith("approved this merge request")
        }

    def close(self) -> None:
        """Close the connections."""
        self._api.close()

    def _notes(self, number: int) -> str:
        return f"{self._project}/merge_requests/{number}/notes"

    def _all(self, number: int) -> Iterator[dict[str, Any]]:
        return self._rows(f"{self._notes(number)}?sort=asc&order_by=created_at", "list the comments")

    def _rows(self, path: str, what: str) -> Iterator[dict[str, Any]]:
        """Yield what is on a page and all that follow it."""
        page = 1
        while True:
            answer = self._api.get(f"{path}&per_page={_AT_ONCE}&page={page}", what)
            yield from answer.listed()
            following = answer.headers.get("x-next-page", "").strip()
            if not following.isdecimal() or int(following) <= page:
                return
            page = int(following)

    def _page_of(self, number: int) -> str:
        """Return the page of a merge request, which a note does not name."""
        if number not in self._pages:
            answer = self._api.get(f"{self._project}/merge_requests/{number}", "see the merge request")
            self._pages[number] = str(answer.part("web_url") or "")
        return self._pages[number]


def _issue(found: Mapping[str, Any]) -> Issue:
    number = found.get("iid")
    return Issue(
        number if isinstance(number, int) else 0,
        str(found.get("title") or ""),
        str(found.get("description") or ""),
        str(found.get("web_url") or ""),
    )


def _request(found: Mapping[str, Any]) -> PullRequest:
    number = found.get("iid")
    return PullRequest(
        number if isinstance(number, int) else 0,
        str(found.get("web_url") or ""),
        str(found.get("sha") or ""),
        str((found.get("author") or {}).get("username") or ""),
        found.get("state") == "merged",
        is_closed=found.get("state") == "closed",
    )


def _note(found: Mapping[str, Any], page: str) -> Comment:
    number = int(found["id"])
    url = f"{page}#note_{number}" if page else ""
    return Comment(number, str(found.get("body") or ""), url, changed_ms=ms_of(found.get("updated_at")))
