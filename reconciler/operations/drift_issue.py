"""`drift --issue`: one issue for each workspace and environment, open as long as something has drifted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Literal, TypeAlias

from reconciler.errors import UserError
from reconciler.forges.environment import Asked, open_forge
from reconciler.forges.owners import owners_of, repository_of
from reconciler.forges.protocol import Forge, Issue, Kind, Marker, fitted, owing_message
from reconciler.operations.comment import is_same, keep
from reconciler.operations.drift_patch import Accepted, patch_for

if TYPE_CHECKING:
    from reconciler.operations.drift import Drifted
    from reconciler.operations.steps.invocation import Invocation


Did: TypeAlias = Literal["opened", "updated", "unchanged", "closed", "none"]


@dataclass(frozen=True, slots=True)
class Filed:
    """What became of the issue."""

    did: Did
    forge: str
    issue: Issue | None
    owes: str | None = None
    """What the issue says once a message about it is sent; `None`: none is to be sent."""


@dataclass(frozen=True, slots=True)
class Remedy:
    """What an issue says besides the findings."""

    accepted: Accepted | None
    """The patch that takes them into the files; `None`: there is none."""
    owners: tuple[str, ...]
    """Of the files that declare what drifted."""


def file_issue(
    invocation: Invocation,
    drifted: Drifted,
    asked: Asked,
    text_of: Callable[[Remedy], str],
    labels: Sequence[str] = (),
    *,
    owes_message: bool = False,
) -> Filed:
    """Open, change or close the issue of a workspace and environment.

    It is closed only where all could be compared and nothing that fails was found. Where something could not be
    compared, and nothing was found, it stays as it is. `text_of` returns what it says. With `owes_message` the issue
    says that a message is still to be sent, until `message_sent` is called: one that failed is sent by the next run.

    Raises:
        UserError: The forge refuses it.
        UsageError: It is not known which forge or repository is meant.
        NotAuthorizedError: The token may not do that.
        RetryableError: There was no answer in time.
    """
    plan = drifted.planned.plan
    marker = Marker("drift", plan.workspace, plan.environment)
    forge = open_forge(invocation.environ, asked, tool=invocation.tool, now_ms=invocation.now_ms)
    try:
        if drifted.failing:
            text = text_of(_remedy(drifted, forge.kind))
            name = f"{plan.workspace} ({plan.environment})" if plan.environment else plan.workspace
            return _said(forge, marker, f"Drift of {name}", text, labels, owes_message=owes_message)
        found = [] if drifted.errors else forge.own_issues(marker.is_in)
        closed = [
            forge.edit_issue(each, fitted(text_of(Remedy(None, ())), forge.limit, forge.size), closes=True)
            for each in found
        ]
        return Filed("closed" if found else "none", forge.title, closed[-1] if closed else None)
    finally:
        forge.close()


def _remedy(drifted: Drifted, kind: Kind) -> Remedy:
    if drifted.compared is None:
        return Remedy(None, ())
    loaded, decided, doubtful = drifted.compared
    addresses = dict.fromkeys(found.address for found in drifted.failing)
    try:
        accepted = patch_for(loaded, decided, tuple(addresses), doubtful)
    except UserError:
        accepted = None  # nothing of it can be written as a patch: what to do is said with each finding
    root = repository_of(loaded.folder)
    files = dict.fromkeys(place.file for each in addresses for place in loaded.places.get(each, ()))
    if root is None:
        return Remedy(accepted, ())
    below = PurePosixPath(loaded.folder.resolve().relative_to(root))
    return Remedy(accepted, owners_of(root, kind, [str(below / file) for file in files]))


def message_sent(invocation: Invocation, filed: Filed, asked: Asked) -> None:
    """Let the issue say that nothing more is to be sent. Where this fails, the message comes once more.

    Raises:
        UserError: The forge refuses it.
        NotAuthorizedError: The token may not do that.
        RetryableError: There was no answer in time.
    """
    if filed.issue is None or filed.owes is None:
        return
    forge = open_forge(invocation.environ, asked, tool=invocation.tool, now_ms=invocation.now_ms)
    try:
        forge.edit_issue(filed.issue, filed.owes)
    finally:
        forge.close()


def _said(forge: Forge, marker: Marker, title: str, text: str, labels: Sequence[str], *, owes_message: bool) -> Filed:
    """Let the newest of our open issues say a text, or open one; older ones of several are closed."""
    said = fitted(text, forge.limit, forge.size)

    def own() -> list[Issue]:
        return forge.own_issues(marker.is_in)

    found = own()
    owes = owes_message and not (found and is_same(found[-1].body, said))
    body = fitted(owing_message(text), forge.limit, forge.size) if owes else said
    did, kept, older = keep(
        found,
        body,
        again=own,
        write=lambda: forge.open_issue(title, body, labels),
        change=lambda each: forge.edit_issue(each, body),
        what="the issue",
    )
    for each in older:
        forge.edit_issue(each, each.body, closes=True)
    return Filed("opened" if did == "created" else did, forge.title, kept, said if owes else None)
