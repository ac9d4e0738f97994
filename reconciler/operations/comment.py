"""Write pull request comments, and read approvals."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, TypeVar

from reconciler.errors import BlockedError, RetryableError, UnansweredError, UsageError, UserError
from reconciler.forges.environment import ForgeRequest, find_pull_request, find_run_commit, open_forge
from reconciler.forges.protocol import (
    OUTDATED,
    RESULTS,
    Approval,
    Comment,
    Forge,
    Issue,
    Marker,
    PullRequest,
    fit_comment,
    parse_marker,
)
from reconciler.runtime.dataclass import dataclass
from reconciler.runtime.retry import Backoff, Tries
from reconciler.runtime.text import list_first, pluralize

if TYPE_CHECKING:
    from reconciler.operations.steps.invocation import Invocation


Did: TypeAlias = Literal["created", "updated", "unchanged", "deleted", "none"]

_BACKOFF: Final = Backoff(0.25, 10.0, spread=0.5)
_ATTEMPTS: Final = 5


@dataclass(frozen=True, slots=True)
class CommentResult:
    """Result of a comment update."""

    did: Did
    marker: Marker
    forge: str
    number: int
    comment: Comment | None
    collapsed: int
    is_cut: bool


def write_comment(
    invocation: Invocation, text: str, options: ForgeRequest, *, deletes_empty: bool = False, labels: bool = False
) -> CommentResult:
    """Update the newest own comment with the marker of `text`, or create one; hide older ones.

    `deletes_empty` deletes comments without findings. `labels` adds the gravest result as label.
    """
    marker = parse_marker(text)
    if marker is None or marker.command == OUTDATED:
        message = "the text does not begin with reconciler's marker, so its comment would never be found again"
        raise UserError(message, hint="Write it with: reconciler plan --format markdown > comment.md")
    number = find_pull_request(invocation.environ, options)
    forge = open_forge(invocation.environ, options, tool=invocation.tool, now_ms=invocation.now_ms)
    try:
        body = fit_comment(text, forge.limit, forge.measure_text)
        if deletes_empty and marker.items == 0:
            comments = forge.list_own_comments(number, marker.is_at_start_of)
            for old in comments:
                forge.delete_comment(number, old)
            return CommentResult("deleted" if comments else "none", marker, forge.title, number, None, 0, is_cut=False)
        did, current, older = _update_or_create(forge, number, marker, body)
        collapsed = _collapse_older(invocation, forge, number, older)
        if labels:
            _label_request(invocation, forge, number)
        return CommentResult(did, marker, forge.title, number, current, collapsed, is_cut=body != text)
    finally:
        forge.close()


def _update_or_create(forge: Forge, number: int, marker: Marker, body: str) -> tuple[Did, Comment, list[Comment]]:
    def list_own() -> list[Comment]:
        return forge.list_own_comments(number, marker.is_at_start_of)

    did, written, older = update_or_create_newest(
        list_own(),
        body,
        again=list_own,
        write=lambda: forge.post_comment(number, body),
        change=lambda old: forge.edit_comment(number, old, body),
        what=f"the comment on pull request {number}",
    )
    if did != "created":
        return did, written, older
    # The first listing may lack the comment of a concurrent run.
    others = [other for other in list_own() if other.id != written.id]
    *older, newest = sorted([*others, written], key=lambda candidate: candidate.id)
    return did, newest, older


Item = TypeVar("Item", "Comment", "Issue")


def update_or_create_newest(
    items: list[Item],
    body: str,
    *,
    again: Callable[[], list[Item]],
    write: Callable[[], Item],
    change: Callable[[Item], Item | None],
    what: str,
) -> tuple[Literal["created", "updated", "unchanged"], Item, list[Item]]:
    """Set the newest item to `body`, or create one. Return what was done, the item, and older items.

    After an unanswered write, `again` lists the items, to avoid duplicates. Raises `UnansweredError`.
    """
    tries = Tries(_BACKOFF, attempts=_ATTEMPTS)
    was_written = False
    while True:
        if items and is_same_text(items[-1].body, body):
            return "created" if was_written else "unchanged", items[-1], items[:-1]
        try:
            if not items:
                was_written = True
                return "created", write(), []
            if (changed := change(items[-1])) is not None:
                return "updated", changed, items[:-1]
        except UnansweredError:
            if tries.has_ended:
                raise
        if tries.has_ended:
            message = f"{what} does not stay: it was deleted after each write"
            raise RetryableError(message, hint="See who deletes it, then run the same command again.")
        tries.wait()
        items = again()


def _collapse_older(invocation: Invocation, forge: Forge, number: int, older: list[Comment]) -> int:
    for hidden, old in enumerate(older):
        try:
            forge.collapse_comment(number, old)
        except UserError as error:
            invocation.warn(f"an older comment stays open: {error}")
            return hidden
    return len(older)


def _label_request(invocation: Invocation, forge: Forge, number: int) -> None:
    texts = forge.list_own_comments(
        number, lambda text: (marker := parse_marker(text)) is not None and marker.command == "plan"
    )
    results = [RESULTS.index(marker.result) for text in texts if (marker := parse_marker(text.body)) is not None]
    names = [f"plan: {result}" for result in RESULTS]
    label = names[max(results, default=0)]
    try:
        forge.set_label(number, label, [name for name in names if name != label])
    except UserError as error:
        invocation.warn(f"the pull request has no label {label!r}: {error}")


def is_same_text(one: str, other: str) -> bool:
    """Return whether texts are equal except for line ends and outer space."""
    return one.replace("\r\n", "\n").strip() == other.replace("\r\n", "\n").strip()


@dataclass(frozen=True, slots=True)
class ApprovedRequest:
    """A plan approved in a pull request."""

    digest: str
    by: tuple[str, ...]
    url: str
    at_ms: int
    approvers: int
    """Required number of approvals, by plan and base of the pull request."""


def read_approved_request(
    invocation: Invocation, workspace: str, environment: str | None, options: ForgeRequest
) -> ApprovedRequest:
    """Return the plan approved in this run's pull request, or in the one merged with its commit.

    Approvals count if others with write permission gave them after the last commit and comment change.

    Raises:
        BlockedError: The pull request is closed, is not approved, or has no plan of this environment.
    """
    forge = open_forge(invocation.environ, options, tool=invocation.tool, now_ms=invocation.now_ms)
    try:
        request = forge.read_pull_request(_find_request_number(invocation, forge, options))
        if request.is_closed:
            message = f"pull request {request.number} was closed without a merge, so nothing of it is approved"
            raise BlockedError(message, hint=f"Open it again if it is wanted: {request.url}")
        comment = _find_plan_comment(forge, request, workspace, environment)
        marker = parse_marker(comment.body)
        digest = "" if marker is None else marker.digest
        if not digest:
            message = f"the last plan in pull request {request.number} failed, so nothing was approved"
            raise BlockedError(message, hint=f"Read why: {comment.url or request.url}")
        approvals = forge.list_approvals(request)
        counting = [approval for approval in approvals if _explain_rejection(approval, request, comment) is None]
        if not counting:
            reasons = (
                "; ".join(_explain_rejections(approvals, request, comment))
                or "there is no approval by a user who may write"
            )
            message = f"pull request {request.number} is not approved as it is now: {reasons}"
            raise BlockedError(message, hint=f"Have it approved, then run this again: {request.url}")
        by = tuple(sorted({approval.by for approval in counting}))
        at_ms = max(approval.at_ms for approval in counting)
        return ApprovedRequest(digest, by, request.url, at_ms, 0 if marker is None else marker.approvers)
    finally:
        forge.close()


def _find_request_number(invocation: Invocation, forge: Forge, options: ForgeRequest) -> int:
    with suppress(UsageError):
        return find_pull_request(invocation.environ, options)
    # After a merge, only the commit identifies the pull request.
    commit = find_run_commit(invocation.environ)
    hint = "Name the pull request: --approved-in N"
    if commit is None:
        raise UsageError("the environment does not name the approved pull request", hint=hint)
    merged = forge.find_merged_requests(commit)
    if len(merged) == 1:
        return merged[0]
    origin = "no merged pull request" if not merged else f"{pluralize(len(merged), 'merged pull request')}"
    raise UsageError(f"commit {commit[:10]} came with {origin}", hint=hint)


def _find_plan_comment(forge: Forge, request: PullRequest, workspace: str, environment: str | None) -> Comment:
    wanted = Marker("plan", workspace, environment)
    texts: list[str] = []

    def is_plan(text: str) -> bool:
        marker = parse_marker(text)
        texts.append(text)
        return marker is not None and marker.command == wanted.command

    own = forge.list_own_comments(request.number, is_plan)
    if of_workspace := [own_comment for own_comment in own if wanted.is_at_start_of(own_comment.body)]:
        return of_workspace[-1]
    plans = {_describe_marker(marker) for own_comment in own if (marker := parse_marker(own_comment.body)) is not None}
    others = f"; it has plans of {list_first(sorted(plans))}" if plans else ""
    others += (
        "; the one that is there was written by another account, or is hidden"
        if any(map(wanted.is_at_start_of, texts))
        else ""
    )
    where = f"workspace {_describe_marker(wanted)}"
    message = f"pull request {request.number} has no plan of {where}{others}"
    raise BlockedError(message, hint="Comment it first: reconciler plan --format markdown | reconciler comment -")


def _describe_marker(marker: Marker) -> str:
    return f"{marker.workspace}{f' in {marker.environment}' if marker.environment else ''}"


def _explain_rejections(approvals: list[Approval], request: PullRequest, comment: Comment) -> Iterator[str]:
    for approval in approvals:
        yield f"{approval.by} approved {_explain_rejection(approval, request, comment)}"


def _explain_rejection(approval: Approval, request: PullRequest, comment: Comment) -> str | None:
    if approval.by == request.author:
        return "what is their own"
    if not approval.approves_head:
        return "another commit than its last one"
    # Forges round times to seconds, so an approval of equal time may be older.
    if approval.at_ms <= comment.changed_ms:
        return "no later than the plan was written"
    return None
