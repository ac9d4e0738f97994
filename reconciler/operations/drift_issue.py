"""`drift --issue`: an issue per workspace and environment, open during drift."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Literal, TypeAlias

from reconciler.errors import UserError
from reconciler.forges.environment import ForgeRequest, open_forge
from reconciler.forges.owners import find_owners, find_repository_root
from reconciler.forges.protocol import Forge, Issue, Kind, Marker, fit_comment, mark_message_unsent
from reconciler.operations.comment import is_same_text, update_or_create_newest
from reconciler.operations.drift_patch import AcceptResult, build_patch
from reconciler.runtime.dataclass import dataclass

if TYPE_CHECKING:
    from reconciler.operations.drift import DriftResult
    from reconciler.operations.steps.invocation import Invocation


Did: TypeAlias = Literal["opened", "updated", "unchanged", "closed", "none"]


@dataclass(frozen=True, slots=True)
class FiledIssue:
    """Result of an issue update."""

    did: Did
    forge: str
    issue: Issue | None
    owes: str | None = None
    """Issue text to store once the message is sent; `None` if none is due."""


@dataclass(frozen=True, slots=True)
class DriftRemedy:
    """Ways to end the drift."""

    accepted: AcceptResult | None
    owners: tuple[str, ...]


def file_issue(
    invocation: Invocation,
    drifted: DriftResult,
    options: ForgeRequest,
    text_of: Callable[[DriftRemedy], str],
    labels: Sequence[str] = (),
    *,
    owes_message: bool = False,
) -> FiledIssue:
    """Open, update or close the issue of a workspace and environment.

    Only a complete comparison without failing items closes the issue. `owes_message` notes a chat message as due.
    """
    plan = drifted.planned.plan
    marker = Marker("drift", plan.workspace, plan.environment)
    forge = open_forge(invocation.environ, options, tool=invocation.tool, now_ms=invocation.now_ms)
    try:
        if drifted.failing:
            text = text_of(_find_remedy(drifted, forge.kind))
            name = f"{plan.workspace} ({plan.environment})" if plan.environment else plan.workspace
            return _update_issue(forge, marker, f"Drift of {name}", text, labels, owes_message=owes_message)
        open_issues = [] if drifted.errors else forge.list_own_issues(marker.is_anywhere_in)
        closed = [
            forge.edit_issue(
                issue, fit_comment(text_of(DriftRemedy(None, ())), forge.limit, forge.measure_text), closes=True
            )
            for issue in open_issues
        ]
        return FiledIssue("closed" if open_issues else "none", forge.title, closed[-1] if closed else None)
    finally:
        forge.close()


def _find_remedy(drifted: DriftResult, kind: Kind) -> DriftRemedy:
    if drifted.compared is None:
        return DriftRemedy(None, ())
    loaded, decided, doubtful = drifted.compared
    addresses = dict.fromkeys(item.address for item in drifted.failing)
    try:
        accepted = build_patch(loaded, decided, tuple(addresses), doubtful)
    except UserError:
        accepted = None
    root = find_repository_root(loaded.folder)
    files = dict.fromkeys(place.file for address in addresses for place in loaded.places.get(address, ()))
    if root is None:
        return DriftRemedy(accepted, ())
    below = PurePosixPath(loaded.folder.resolve().relative_to(root))
    return DriftRemedy(accepted, find_owners(root, kind, [str(below / file) for file in files]))


def record_message_sent(invocation: Invocation, filed: FiledIssue, options: ForgeRequest) -> None:
    """Record in the issue that the message was sent."""
    if filed.issue is None or filed.owes is None:
        return
    forge = open_forge(invocation.environ, options, tool=invocation.tool, now_ms=invocation.now_ms)
    try:
        forge.edit_issue(filed.issue, filed.owes)
    finally:
        forge.close()


def _update_issue(
    forge: Forge, marker: Marker, title: str, text: str, labels: Sequence[str], *, owes_message: bool
) -> FiledIssue:
    plain_text = fit_comment(text, forge.limit, forge.measure_text)

    def list_own() -> list[Issue]:
        return forge.list_own_issues(marker.is_anywhere_in)

    issues = list_own()
    owes = owes_message and not (issues and is_same_text(issues[-1].body, plain_text))
    body = fit_comment(mark_message_unsent(text), forge.limit, forge.measure_text) if owes else plain_text
    did, current, older = update_or_create_newest(
        issues,
        body,
        again=list_own,
        write=lambda: forge.open_issue(title, body, labels),
        change=lambda issue: forge.edit_issue(issue, body),
        what="the issue",
    )
    for issue in older:
        forge.edit_issue(issue, issue.body, closes=True)
    return FiledIssue("opened" if did == "created" else did, forge.title, current, plain_text if owes else None)
