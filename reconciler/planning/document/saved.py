"""The plan as JSON: what `--format json` prints and what `--out` saves.

It holds no time, duration or host. A saved plan also holds the options it was made with, and a seal over all of it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from reconciler.planning.canonical import canonical
from reconciler.planning.document.digest import after_of, digest_of_rows, parameters_of
from reconciler.planning.document.documents import FORMAT, ActionDocument, PlanDocument
from reconciler.planning.document.rows import action_row, plan_row

if TYPE_CHECKING:
    from reconciler.planning.actions import Action
    from reconciler.planning.plan import Plan

ONLY_WHEN_SAVED: Final = ("options", "seal")


def to_document(plan: Plan, options: Mapping[str, Any] | None = None) -> PlanDocument:
    """Return the plan's document; with `options`, the one that is saved and read back by `apply FILE`."""
    actions = [_row(action) for action in plan.actions]
    row = {"format": FORMAT, **plan_row(plan), "actions": actions}
    if options is not None:
        row["options"] = dict(options)
        row["seal"] = _seal(row)
    return PlanDocument.model_validate(row)


def to_row(action: Action) -> ActionDocument:
    """Return one action as a plan's document has it."""
    return ActionDocument.model_validate(_row(action))


def canonical_bytes(document: PlanDocument) -> bytes:
    """Return the document as bytes: sorted keys; the same plan always gives the same."""
    return canonical(_plain(document))


def digest_of_document(document: PlanDocument) -> str:
    """Return the digest of the actions as they stand in a document."""
    return digest_of_rows(
        [action.id, action.after, action.verb, action.parameters, action.risk, action.precondition, action.grant]
        for action in document.actions
    )


def seal_of_document(document: PlanDocument) -> str:
    """Return the seal over all of a document as it stands, the seal itself left out."""
    return _seal(_plain(document))


def _row(action: Action) -> dict[str, Any]:
    return action_row(action, after_of(action), parameters_of(action))


def _plain(document: PlanDocument) -> dict[str, Any]:
    row = document.model_dump(mode="json")
    for key in ONLY_WHEN_SAVED:
        if row[key] is None:
            del row[key]
    return row


def _seal(row: Mapping[str, Any]) -> str:
    return hashlib.sha256(canonical({key: value for key, value in row.items() if key != "seal"})).hexdigest()
