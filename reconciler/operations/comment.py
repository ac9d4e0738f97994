"""One comment of a pull request: what `comment` writes, and what was approved there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, TypeVar

from reconciler.errors import BlockedError, RetryableError, UnansweredError, UsageError, UserError
from reconciler.forges.environment import Asked, commit_of_run, open_forge, pull_request_of
from reconciler.forges.protocol import OUTDATED, Approval, Comment, Forge, Issue, Marker, PullRequest, fitted, marker_of
from reconciler.runtime.retry import Backoff, Tries
from reconciler.runtime.text import counted, first_few

if TYPE_CHECKING:
    from reconciler.operations.steps.invocation import Invocation


Did: TypeAlias = Literal["created", "updated", "unchanged", "deleted", "none"]

_BACKOFF: Final = Backoff(0.25, 10.0, spread=0.5)
_ATTEMPTS: Final = 5
"""Of looking what is there, then writing, where it is not known whether a comment was written."""


@dataclass(frozen=True, slots=True)
class Commented:
    """What became of a comment."""

    did: Did
    marker: Marker
    forge: str
    number: int
    """Of the pull request."""
    comment: Comment | None
    """What stands there now."""
    collapsed: int
    """Older comments that were hidden."""
    is_cut: bool
    """Whether the text was too long."""


def comment(invocation: Invocation, text: str, asked: Asked, *, deletes_empty: bool = False) -> Commented:
    """Let one comment of a pull request say `text`: the newest of ours with its marker, or a new one.

    Older ones are hidden. With `deletes_empty` a text that reports nothing deletes them all. Others' comments are never
    touched, whatever they say.

    Raises:
        UserError: The text has no marker, or the forge refuses it.
        UsageError: It is not known which pull request is meant.
        NotAuthorizedError: The token may not do that.
        RetryableError: There was no answer in time.
    """
    marker = marker_of(text)
    if marker is None or marker.command == OUTDATED:
        message = "the text does not begin with reconciler's marker, so its comment would never be found again"
        raise UserError(message, hint="Write it with: reconciler plan --format markdown > comment.md")
    number = pull_request_of(invocation.environ, asked)
    forge = open_forge(invocation.environ, asked, tool=invocation.tool, now_ms=invocation.now_ms)
    try:
        body = fitted(text, forge.limit, forge.size)
        if deletes_empty and marker.items == 0:
            found = forge.own_comments(number, marker.is_of)
            for each in found:
                forge.delete_comment(number, each)
            return Commented("deleted" if found else "none", marker, forge.title, number, None, 0, is_cut=False)
        did, kept, older = _kept(forge, number, marker, body)
        collapsed = _collapsed(invocation, forge, number, older)
        return Commented(did, marker, forge.title, number, kept, collapsed, is_cut=body != text)
    finally:
        forge.close()


def _kept(forge: Forge, number: int, marker: Marker, body: str) -> tuple[Did, Comment, list[Comment]]:
    """Return what was done, the comment that says `body` now, and older ones."""

    def own() -> list[Comment]:
        return forge.own_comments(number, marker.is_of)

    did, kept, older = keep(
        own(),
        body,
        again=own,
        write=lambda: forge.post_comment(number, body),
        change=lambda each: forge.edit_comment(number, each, body),
        what=f"the comment on pull request {number}",
    )
    if did != "created":
        return did, kept, older
    # Another run may have written one at the same moment: of both the newer one stays. A list may lag.
    others = [each for each in own() if each.id != kept.id]
    *older, newest = sorted([*others, kept], key=lambda each: each.id)
    return did, newest, older


Kept = TypeVar("Kept", "Comment", "Issue")


def keep(
    found: list[Kept],
    body: str,
    *,
    again: Callable[[], list[Kept]],
    write: Callable[[], Kept],
    change: Callable[[Kept], Kept | None],
    what: str,
) -> tuple[Literal["created", "updated", "unchanged"], Kept, list[Kept]]:
    """Let the newest of our own say `body`, or write one; return what was done, which one says it, and older ones.

    `found` are those that are there, oldest first. They are listed `again` where an answer is lost: it is never there
    twice.

    Raises:
        UnansweredError: It is not known whether it was written.
        RetryableError: `what` is gone each time it was written.
    """
    tries = Tries(_BACKOFF, attempts=_ATTEMPTS)
    was_written = False
    while True:
        if found and is_same(found[-1].body, body):
            return "created" if was_written else "unchanged", found[-1], found[:-1]
        try:
            if not found:
                was_written = True
                return "created", write(), []
            if (changed := change(found[-1])) is not None:
                return "updated", changed, found[:-1]
        except UnansweredError:
            if tries.is_over:
                raise
        if tries.is_over:
            message = f"{what} does not stay: it is gone each time it was written"
            raise RetryableError(message, hint="See who deletes it, then run the same command again.")
        tries.wait()
        found = again()


def _collapsed(invocation: Invocation, forge: Forge, number: int, older: list[Comment]) -> int:
    """Hide older comments, and return how many were; that it is not allowed leaves the new one where it is."""
    for hidden, each in enumerate(older):
        try:
            forge.collapse_comment(number, each)
        except UserError as error:
            invocation.warn(f"an older comment stays open: {error}")
            return hidden
    return len(older)


def is_same(one: str, other: str) -> bool:
    """Tell whether two texts are the same as forges keep them: with other line ends, and without those at the end."""
    return one.replace("\r\n", "\n").strip() == other.replace("\r\n", "\n").strip()


# What was approved in a pull request: the digest in our comment, and who agreed to it since it was written.


@dataclass(frozen=True, slots=True)
class ApprovedRequest:
    """A plan that was approved in a pull request."""

    digest: str
    by: tuple[str, ...]
    url: str
    """Of the pull request."""
    at_ms: int
    """When the last of them agreed."""
    approvers: int
    """How many the plan asked for: the base may have asked for more than the files do after the merge."""


def approved_request(invocation: Invocation, workspace: str, environment: str | None, asked: Asked) -> ApprovedRequest:
    """Return which plan was approved in the pull request of this run: the one it is about, or that was merged with it.

    An approval counts if it was given by somebody else than the author, who may write to the repository, for the commit
    that the pull request ends with, and after our comment was written or changed last.

    Raises:
        UsageError: It is not known which pull request is meant.
        BlockedError: It was closed without a merge, has no plan of this workspace and environment, or nobody has
            approved it as it is now.
        NotAuthorizedError: The token may not see that.
        RetryableError: There was no answer in time.
    """
    forge = open_forge(invocation.environ, asked, tool=invocation.tool, now_ms=invocation.now_ms)
    try:
        request = forge.pull_request(_number(invocation, forge, asked))
        if request.is_closed:
            message = f"pull request {request.number} was closed without a merge, so nothing of it is approved"
            raise BlockedError(message, hint=f"Open it again if it is wanted: {request.url}")
        comment = _plan_in(forge, request, workspace, environment)
        marker = marker_of(comment.body)
        digest = "" if marker is None else marker.digest
        if not digest:
            message = f"the last plan in pull request {request.number} failed, so nothing was approved"
            raise BlockedError(message, hint=f"Read why: {comment.url or request.url}")
        given = forge.approvals(request)
        counting = [each for each in given if _why_not(each, request, comment) is None]
        if not counting:
            said = "; ".join(_not_counted(given, request, comment)) or "there is no approval of anybody who may write"
            message = f"pull request {request.number} is not approved as it is now: {said}"
            raise BlockedError(message, hint=f"Have it approved, then run this again: {request.url}")
        by = tuple(sorted({each.by for each in counting}))
        at_ms = max(each.at_ms for each in counting)
        return ApprovedRequest(digest, by, request.url, at_ms, 0 if marker is None else marker.approvers)
    finally:
        forge.close()


def _number(invocation: Invocation, forge: Forge, asked: Asked) -> int:
    with suppress(UsageError):  # after a merge no event names one: its commit does
        return pull_request_of(invocation.environ, asked)
    commit = commit_of_run(invocation.environ)
    hint = "Name the pull request: --approved-in N"
    if commit is None:
        raise UsageError("the environment does not say which pull request was approved", hint=hint)
    found = forge.merged_with(commit)
    if len(found) == 1:
        return found[0]
    brought = "no merged pull request" if not found else f"{counted(len(found), 'merged pull request')}"
    raise UsageError(f"commit {commit[:10]} came with {brought}", hint=hint)


def _plan_in(forge: Forge, request: PullRequest, workspace: str, environment: str | None) -> Comment:
    """Return our newest comment with a plan of a workspace and environment.

    Raises:
        BlockedError: There is none.
    """
    wanted = Marker("plan", workspace, environment)
    texts: list[str] = []

    def is_plan(text: str) -> bool:
        marker = marker_of(text)
        texts.append(text)
        return marker is not None and marker.command == wanted.command

    own = forge.own_comments(request.number, is_plan)
    if of_workspace := [each for each in own if wanted.is_of(each.body)]:
        return of_workspace[-1]
    plans = {_where(marker) for each in own if (marker := marker_of(each.body)) is not None}
    others = f"; it has plans of {first_few(sorted(plans))}" if plans else ""
    others += (
        "; the one that is there was written by another account, or is hidden" if any(map(wanted.is_of, texts)) else ""
    )
    where = f"workspace {_where(wanted)}"
    message = f"pull request {request.number} has no plan of {where}{others}"
    raise BlockedError(message, hint="Comment it first: reconciler plan --format markdown | reconciler comment -")


def _where(marker: Marker) -> str:
    return f"{marker.workspace}{f' in {marker.environment}' if marker.environment else ''}"


def _not_counted(given: list[Approval], request: PullRequest, comment: Comment) -> Iterator[str]:
    for each in given:
        yield f"{each.by} approved {_why_not(each, request, comment)}"


def _why_not(approval: Approval, request: PullRequest, comment: Comment) -> str | None:
    """Return why an approval does not count; `None`: it does."""
    if approval.by == request.author:
        return "what is their own"
    if not approval.is_of_head:
        return "another commit than its last one"
    if approval.at_ms <= comment.changed_ms:  # Forges count whole seconds: of the same one it may be older.
        return "no later than the plan was written"
    return None
