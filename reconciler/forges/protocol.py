"""What every forge must do, and where one is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, Protocol, TypeAlias

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
