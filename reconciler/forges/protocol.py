"""Protocol of forge clients, and the marker of reconciler's comments."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Final, Literal, Protocol, TypeAlias

from reconciler.runtime.dataclass import dataclass, field
from reconciler.runtime.text import escape_invisible, format_count

# First line of `--format markdown`: `<!-- reconciler:plan workspace=shop environment=prod digest=7c41… items=3 -->`.
# Every field is optional. Unknown fields are ignored.


_MARKER: Final = re.compile(r"<!-- reconciler:([a-z-]+)((?: [a-z]+=[A-Za-z0-9._-]+)*) -->")
OUTDATED: Final = "outdated"
"""Command in the marker of a collapsed comment; searches skip such comments."""
RESULTS: Final = ("no changes", "changes", "danger", "blocked", "errors")


@dataclass(frozen=True, slots=True)
class Marker:
    """First line of a comment, with command, workspace and environment."""

    command: str
    workspace: str
    environment: str | None = None
    digest: str = ""
    items: int | None = None
    """Number of actions, findings or errors; `None` if not given."""
    approvers: int = 0
    verdict: str = ""
    """`errors`, `blocked`, `danger` or empty."""

    @property
    def result(self) -> str:
        """One of `RESULTS`."""
        return "errors" if not self.digest else self.verdict or ("no changes" if self.items == 0 else "changes")

    @property
    def line(self) -> str:
        """The marker as an HTML comment, which forges hide."""
        fields = {
            "workspace": escape_for_comment(self.workspace),
            "environment": escape_for_comment(self.environment or ""),
            "digest": self.digest,
            "items": "" if self.items is None else str(self.items),
            "approvers": str(self.approvers or ""),
            "verdict": self.verdict,
        }
        values = "".join(f" {name}={value}" for name, value in fields.items() if value)
        return f"<!-- reconciler:{self.command}{values} -->"

    def is_at_start_of(self, text: str) -> bool:
        """Return whether the first line is a marker of the same command, workspace and environment."""
        other = parse_marker(text)
        return other is not None and _subject_key(other) == _subject_key(self)

    def is_anywhere_in(self, text: str) -> bool:
        """Return whether any line is a marker of the same command, workspace and environment."""
        return any(line.startswith("<!--") and self.is_at_start_of(line) for line in text.splitlines())


def parse_marker(text: str) -> Marker | None:
    """Parse the marker in the first line, or return `None`."""
    match = _MARKER.fullmatch(text.partition("\n")[0].strip())
    if match is None:
        return None
    fields = dict(pair.split("=", 1) for pair in match[2].split())
    if "workspace" not in fields:
        return None
    items, approvers = fields.get("items", ""), fields.get("approvers", "")
    return Marker(
        match[1],
        fields["workspace"],
        fields.get("environment"),
        fields.get("digest", ""),
        int(items) if items.isdecimal() else None,
        int(approvers) if approvers.isdecimal() else 0,
        fields.get("verdict", ""),
    )


def mark_message_unsent(text: str) -> str:
    """Record in the marker that the webhook message is still unsent."""
    first, end, rest = text.partition("\n")
    return f"{first.removesuffix('-->')}message=owed -->{end}{rest}"


def escape_for_comment(text: str) -> str:
    """Replace characters not allowed in an HTML comment or the marker."""
    return re.sub(r"[^A-Za-z0-9._-]", "_", escape_invisible(text)).replace("--", "-_")


def _subject_key(marker: Marker) -> tuple[str, str, str]:
    return marker.command, escape_for_comment(marker.workspace), escape_for_comment(marker.environment or "")


_FENCE: Final = re.compile(r" {0,3}(`{3,}|~{3,})(.*)")
_FOLD: Final = re.compile(r"<(/?)details\b", re.IGNORECASE)
_ROOM: Final = 200


def fit_comment(text: str, limit: int, size: Callable[[str], int] = len) -> str:
    """Cut a text to `limit`, close open folds and code blocks, and add a note."""
    if size(text) <= limit:
        return text
    lines = text.splitlines(keepends=True)
    kept_lines, closing, used = 0, "", 0
    open_parts: list[str] = []
    for position, line in enumerate(lines):
        used += size(line)
        _track_open_parts(line, open_parts)
        ends = "".join(f"{end}\n" for end in reversed(open_parts))
        if used + size(ends) + _ROOM > limit:
            break
        kept_lines, closing = position + 1, ends
    missing = format_count(len(lines) - kept_lines)
    body = "".join(lines[:kept_lines])
    gap = "" if not body or body.endswith("\n") else "\n"
    note = f"**The rest does not fit here: {missing} more lines. The log of the job has them all.**"
    return f"{body}{gap}{closing}\n{note}\n"


def _track_open_parts(line: str, open_parts: list[str]) -> None:
    fence = _FENCE.match(line)
    if open_parts and open_parts[-1] != _END_OF_FOLD:
        if fence and fence[1].startswith(open_parts[-1]) and not fence[2].strip():
            open_parts.pop()
        return
    if fence:
        open_parts.append(fence[1])
        return
    for tag in _FOLD.finditer(line):
        if not tag[1]:
            open_parts.append(_END_OF_FOLD)
        elif open_parts:
            open_parts.pop()


_END_OF_FOLD: Final = "</details>"


def collapse_comment_text(marker: Marker, text: str, limit: int, size: Callable[[str], int] = len) -> str:
    """Collapse the text of an older comment; mark it outdated."""
    head = f"{Marker(OUTDATED, marker.workspace, marker.environment, marker.digest).line}\n"
    start = f"{head}<details>\n<summary>An older result; there is a newer comment.</summary>\n\n"
    lines: Sequence[str] = text.splitlines(keepends=True)[1:]
    room = limit - size(start) - size(_END_OF_FOLD) - 3
    return f"{start}{fit_comment(''.join(lines), room, size).rstrip()}\n\n{_END_OF_FOLD}\n"


Kind: TypeAlias = Literal["github", "gitlab", "gitea"]


@dataclass(frozen=True, slots=True)
class ForgeSettings:
    """URL, repository and token of a forge."""

    kind: Kind
    api: str
    repository: str
    """`OWNER/NAME`; on GitLab `GROUP/…/NAME` or the project id."""
    token: str = field(repr=False)
    token_name: str
    tool: str
    """Version of reconciler."""
    within_s: float
    """Time limit in seconds for all requests together."""
    ca_file: str | None = None
    """Value of `SSL_CERT_FILE`."""
    ca_folder: str | None = None
    """Value of `SSL_CERT_DIR`."""


@dataclass(frozen=True, slots=True)
class Comment:
    """A comment of a pull request."""

    id: int
    body: str
    url: str
    node_id: str = ""
    """Id in GitHub's GraphQL."""
    changed_ms: int = 0


@dataclass(frozen=True, slots=True)
class PullRequest:
    """A pull request."""

    number: int
    url: str
    head: str
    author: str
    is_merged: bool
    is_closed: bool = False


@dataclass(frozen=True, slots=True)
class Approval:
    """A valid approval by a person with write access."""

    by: str
    at_ms: int
    approves_head: bool


@dataclass(frozen=True, slots=True)
class Issue:
    """An open issue."""

    number: int
    title: str
    body: str
    url: str
    node_id: str = ""
    """Id in GitHub's GraphQL."""


def parse_time_ms(stamp: object) -> int:
    """Parse an ISO 8601 time to milliseconds since 1970; 0 if malformed."""
    try:
        return round(datetime.fromisoformat(str(stamp)).timestamp() * 1000)
    except ValueError:
        return 0


class Forge(Protocol):
    """Client for a repository on a forge.

    Every call may raise NotAuthorizedError (the token lacks a right), UserError (the forge refuses the request) or
    RetryableError (no answer, or the rate limit outlasts the time limit).
    """

    @property
    def kind(self) -> Kind:
        """Kind of forge."""
        ...

    @property
    def title(self) -> str:
        """Name for messages."""
        ...

    @property
    def limit(self) -> int:
        """Maximum length of a comment, measured by `measure_text`."""
        ...

    def measure_text(self, text: str) -> int:
        """Return a text's length in the unit of `limit`."""
        ...

    def list_own_comments(self, number: int, is_wanted: Callable[[str], bool]) -> list[Comment]:
        """Return visible comments by the token's user that `is_wanted` accepts, oldest first."""
        ...

    def post_comment(self, number: int, body: str) -> Comment:
        """Create a comment.

        Raises:
            UnansweredError: It may exist; check before a retry.
        """
        ...

    def edit_comment(self, number: int, comment: Comment, body: str) -> Comment | None:
        """Edit a comment; return `None` if missing."""
        ...

    def delete_comment(self, number: int, comment: Comment) -> None:
        """Delete a comment if it exists."""
        ...

    def collapse_comment(self, number: int, comment: Comment) -> None:
        """Hide or collapse a comment; `list_own_comments` then omits it."""
        ...

    def set_label(self, number: int, label: str, others: Sequence[str]) -> None:
        """Add `label` to a pull request and remove `others`."""
        ...

    def list_own_issues(self, is_wanted: Callable[[str], bool]) -> list[Issue]:
        """Return open issues by the token's user whose text `is_wanted` accepts, oldest first."""
        ...

    def open_issue(self, title: str, body: str, labels: Sequence[str]) -> Issue:
        """Create an issue; labels that do not exist are created or omitted.

        Raises:
            UnansweredError: It may exist; check before a retry.
        """
        ...

    def edit_issue(self, issue: Issue, body: str, *, closes: bool = False) -> Issue | None:
        """Replace an issue's body; `closes` also closes it. Return `None` if missing."""
        ...

    def read_pull_request(self, number: int) -> PullRequest:
        """Return a pull request."""
        ...

    def find_merged_requests(self, commit: str) -> list[int]:
        """Return the numbers of merged pull requests with a commit."""
        ...

    def list_approvals(self, request: PullRequest) -> list[Approval]:
        """Return valid approvals by people with write access."""
        ...

    def close(self) -> None:
        """Close the connections."""
        ...
