"""What was approved in a pull request: the digest in our comment, and who agreed to it since it was written."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from reconciler.errors import BlockedError, UsageError
from reconciler.forges.environment import Asked, commit_of_run, open_forge, pull_request_of
from reconciler.forges.marker import Marker, marker_of
from reconciler.runtime.text import counted, first_few

if TYPE_CHECKING:
    from reconciler.forges.protocol import Approval, Comment, Forge, PullRequest
    from reconciler.operations.steps.invocation import Invocation


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
    if found := forge.own_comments(request.number, wanted.is_of):
        return found[-1]
    plans: list[str] = []

    def note(text: str) -> bool:
        marker = marker_of(text)
        if marker is not None and marker.command == "plan":
            plans.append(f"{marker.workspace}{f' in {marker.environment}' if marker.environment else ''}")
        return False

    forge.own_comments(request.number, note)
    where = f"workspace {workspace}{f' in {environment}' if environment else ''}"
    others = f"; it has plans of {first_few(sorted(set(plans)))}" if plans else ""
    message = f"pull request {request.number} has no plan of {where}{others}"
    raise BlockedError(message, hint="Comment it first: reconciler plan --format markdown | reconciler comment -")


def _not_counted(given: list[Approval], request: PullRequest, comment: Comment) -> Iterator[str]:
    for each in given:
        yield f"{each.by} approved {_why_not(each, request, comment)}"


def _why_not(approval: Approval, request: PullRequest, comment: Comment) -> str | None:
    """Return why an approval does not count; `None`: it does."""
    if approval.by == request.author:
        return "what is their own"
    if not approval.is_of_head:
        return "another commit than its last one"
    if approval.at_ms < comment.changed_ms or not approval.at_ms:
        return "before the plan was written"
    return None
