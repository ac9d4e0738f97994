"""What every forge must do, where one is, and the hidden line by which a comment of ours is found again."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, Literal, Protocol, TypeAlias

from reconciler.runtime.text import count_text, visible

# A marker is the first line of what `--format markdown` prints: `<!-- reconciler:plan workspace=shop environment=prod
# digest=7c41… items=3 -->`. Fields that a reader does not know are passed over, and those that an older version did not
# write are absent.


_MARKER: Final = re.compile(r"<!-- reconciler:([a-z-]+)((?: [a-z]+=[A-Za-z0-9._-]+)*) -->")
OUTDATED: Final = "outdated"
"""What stands in place of the command in a comment that was folded away: it is found no more."""


@dataclass(frozen=True, slots=True)
class Marker:
    """What a comment is about. One comment is kept for each command, workspace and environment."""

    command: str
    workspace: str
    environment: str | None = None
    digest: str = ""
    items: int | None = None
    """How many things are reported: actions, findings, errors. `None`: an older version, which did not say."""
    approvers: int = 0
    """How many people must approve what is reported."""

    @property
    def line(self) -> str:
        """The hidden line."""
        fields = {
            "workspace": comment_safe(self.workspace),
            "environment": comment_safe(self.environment or ""),
            "digest": self.digest,
            "items": "" if self.items is None else str(self.items),
            "approvers": str(self.approvers or ""),
        }
        said = "".join(f" {name}={value}" for name, value in fields.items() if value)
        return f"<!-- reconciler:{self.command}{said} -->"

    def is_of(self, text: str) -> bool:
        """Tell whether a text is about the same command, workspace and environment."""
        other = marker_of(text)
        return other is not None and _place(other) == _place(self)

    def is_in(self, text: str) -> bool:
        """Tell whether a line of a text says so: people write above what they find."""
        return any(line.startswith("<!--") and self.is_of(line) for line in text.splitlines())


def marker_of(text: str) -> Marker | None:
    """Return the marker in the first line of a text; `None`: there is none."""
    found = _MARKER.fullmatch(text.partition("\n")[0].strip())
    if found is None:
        return None
    fields = dict(pair.split("=", 1) for pair in found[2].split())
    if "workspace" not in fields:
        return None
    items, approvers = fields.get("items", ""), fields.get("approvers", "")
    return Marker(
        found[1],
        fields["workspace"],
        fields.get("environment"),
        fields.get("digest", ""),
        int(items) if items.isdecimal() else None,
        int(approvers) if approvers.isdecimal() else 0,
    )


def owing_message(text: str) -> str:
    """Return a text whose marker says that a message about it is still to be sent."""
    first, end, rest = text.partition("\n")
    return f"{first.removesuffix('-->')}message=owed -->{end}{rest}"


def comment_safe(text: str) -> str:
    """Return `text` for a hidden HTML comment: nothing that could end it."""
    return re.sub(r"[^A-Za-z0-9._-]", "_", visible(text)).replace("--", "-_")


def _place(marker: Marker) -> tuple[str, str, str]:
    return marker.command, comment_safe(marker.workspace), comment_safe(marker.environment or "")


# A text that fits.


_FENCE: Final = re.compile(r" {0,3}(`{3,}|~{3,})(.*)")
_FOLD: Final = re.compile(r"<(/?)details\b", re.IGNORECASE)
_ROOM: Final = 200
"""For the sentence that says what is missing."""


def fitted(text: str, limit: int, size: Callable[[str], int] = len) -> str:
    """Return a text of at most `limit` by `size`: one that is longer is cut at a line, and says so at its end.

    Folds and blocks of code that are open where it is cut are closed.
    """
    if size(text) <= limit:
        return text
    lines = text.splitlines(keepends=True)
    kept, closing, used = 0, "", 0
    open_parts: list[str] = []
    for position, each in enumerate(lines):
        used += size(each)
        _follow(each, open_parts)
        ends = "".join(f"{end}\n" for end in reversed(open_parts))
        if used + size(ends) + _ROOM > limit:
            break
        kept, closing = position + 1, ends
    missing = count_text(len(lines) - kept)
    body = "".join(lines[:kept])
    gap = "" if not body or body.endswith("\n") else "\n"
    said = f"**The rest does not fit here: {missing} more lines. The log of the job has them all.**"
    return f"{body}{gap}{closing}\n{said}\n"


def _follow(line: str, open_parts: list[str]) -> None:
    """Keep account of what is open after a line: how each fold and block of code ends, the innermost last."""
    fence = _FENCE.match(line)
    if open_parts and open_parts[-1] != _END_OF_FOLD:
        if fence and fence[1].startswith(open_parts[-1]) and not fence[2].strip():
            open_parts.pop()
        return
    if fence:
        open_parts.append(fence[1])
        return
    for found in _FOLD.finditer(line):
        if not found[1]:
            open_parts.append(_END_OF_FOLD)
        elif open_parts:
            open_parts.pop()


_END_OF_FOLD: Final = "</details>"


def folded_away(marker: Marker, text: str, limit: int, size: Callable[[str], int] = len) -> str:
    """Return an older comment as a fold that keeps its text, under a line by which it is not found any more."""
    head = f"{Marker(OUTDATED, marker.workspace, marker.environment, marker.digest).line}\n"
    start = f"{head}<details>\n<summary>An older result; there is a newer comment.</summary>\n\n"
    lines: Sequence[str] = text.splitlines(keepends=True)[1:]
    room = limit - size(start) - size(_END_OF_FOLD) - 3
    return f"{start}{fitted(''.join(lines), room, size).rstrip()}\n\n{_END_OF_FOLD}\n"


# Where a forge is, and what each must do.


Kind: TypeAlias = Literal["github", "gitlab", "gitea"]


@dataclass(frozen=True, slots=True)
class ForgeSettings:
    """Where a forge is, which repository is meant, and who asks."""

    kind: Kind
    api: str
    """Address of the REST API, without a slash at its end."""
    repository: str
    """As `OWNER/NAME`; on GitLab with all groups, or a number."""
    token: str = field(repr=False)
    token_name: str
    """The variable of the environment that it comes from."""
    tool: str
    """Our version."""
    within_s: float
    """For all that is asked, pauses included."""
    trusted_file: str | None = None
    """Authorities that sign its certificate, in place of the usual ones (`SSL_CERT_FILE`)."""
    trusted_folder: str | None = None
    """The same as a folder (`SSL_CERT_DIR`)."""


@dataclass(frozen=True, slots=True)
class Comment:
    """A comment of a pull request. Its text may have been changed by anybody with the right to."""

    id: int
    body: str
    url: str
    node: str = ""
    """Its id in GitHub's GraphQL API."""
    changed_ms: int = 0
    """When its text was written or changed last, by anybody."""


@dataclass(frozen=True, slots=True)
class PullRequest:
    """A pull request, as far as an approval is about it."""

    number: int
    url: str
    head: str
    """The commit that it ends with."""
    author: str
    """Who opened it, by the name to log in."""
    is_merged: bool
    is_closed: bool = False
    """Closed without a merge: whoever did that does not want it."""


@dataclass(frozen=True, slots=True)
class Approval:
    """Somebody with the right to write to the repository approves a pull request, and has not taken it back."""

    by: str
    at_ms: int
    is_of_head: bool
    """Whether it was given for the commit that the pull request ends with now."""


@dataclass(frozen=True, slots=True)
class Issue:
    """An issue that is open."""

    number: int
    title: str
    body: str
    url: str
    node: str = ""
    """Its id in GitHub's GraphQL API."""


def ms_of(stamp: object) -> int:
    """Return the milliseconds since 1970 of a time as forges write it; 0: it is none."""
    try:
        return round(datetime.fromisoformat(str(stamp)).timestamp() * 1000)
    except ValueError:
        return 0


class Forge(Protocol):
    """A repository of a forge, and what may be said in it.

    Every call may raise: NotAuthorizedError (the token may not do that), UserError (it cannot be done so),
    RetryableError (no answer in time, or a limit that lasts longer than the time that is left).
    """

    @property
    def kind(self) -> Kind:
        """Which of them it is."""
        ...

    @property
    def title(self) -> str:
        """How people call the forge."""
        ...

    @property
    def limit(self) -> int:
        """The longest body of a comment, by `size`."""
        ...

    def size(self, text: str) -> int:
        """Return how much of `limit` a text takes."""
        ...

    def own_comments(self, number: int, is_wanted: Callable[[str], bool]) -> list[Comment]:
        """Return the comments of a pull request with wanted texts that this token's user wrote, oldest first.

        What others wrote is never returned, whatever it says, nor what was hidden.
        """
        ...

    def post_comment(self, number: int, body: str) -> Comment:
        """Write a new comment.

        Raises:
            UnansweredError: It may have been written: look before it is tried again.
        """
        ...

    def edit_comment(self, number: int, comment: Comment, body: str) -> Comment | None:
        """Give a comment another text; `None`: it is not there any more."""
        ...

    def delete_comment(self, number: int, comment: Comment) -> None:
        """Delete a comment; that it is gone already is no error."""
        ...

    def collapse_comment(self, number: int, comment: Comment) -> None:
        """Hide an older comment, so that its text can still be opened; `own_comments` does not return it any more."""
        ...

    def own_issues(self, is_wanted: Callable[[str], bool]) -> list[Issue]:
        """Return the open issues with wanted texts that this token's user wrote, oldest first."""
        ...

    def open_issue(self, title: str, body: str, labels: Sequence[str]) -> Issue:
        """Write a new issue. Labels that the forge does not know are made, or left out where it cannot do that.

        Raises:
            UnansweredError: It may have been written: look before it is tried again.
        """
        ...

    def edit_issue(self, issue: Issue, body: str, *, closes: bool = False) -> Issue | None:
        """Give an issue another text, and close it if asked; `None`: it is not there any more."""
        ...

    def pull_request(self, number: int) -> PullRequest:
        """Return a pull request.

        Raises:
            UserError: There is none of that number.
        """
        ...

    def merged_with(self, commit: str) -> list[int]:
        """Return the numbers of the merged pull requests that brought a commit."""
        ...

    def approvals(self, request: PullRequest) -> list[Approval]:
        """Return the approvals that stand, of people who may write to the repository."""
        ...

    def close(self) -> None:
        """Close the connections."""
        ...
