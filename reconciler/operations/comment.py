"""`comment`: a result as one comment of a pull request, which the next result takes the place of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, TypeVar

from reconciler.errors import RetryableError, UnansweredError, UserError
from reconciler.forges.environment import Asked, open_forge, pull_request_of
from reconciler.forges.marker import OUTDATED, Marker, fitted, marker_of
from reconciler.runtime.retry import Backoff, Tries

if TYPE_CHECKING:
    from reconciler.forges.protocol import Comment, Forge, Issue
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
