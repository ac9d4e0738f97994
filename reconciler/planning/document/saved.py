"""The plan as JSON: what `--format json` prints, what `--out` saves, and what `apply FILE` reads back.

It holds no time, duration or host. A saved plan also holds the options it was made with, and a seal over all of it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import orjson
from pydantic import ValidationError

from reconciler.errors import UserError
from reconciler.planning.canonical import canonical
from reconciler.planning.document.comparing import compare
from reconciler.planning.document.digest import after_of, digest_of_rows, parameters_of
from reconciler.planning.document.documents import FORMAT, ActionDocument, PlanDocument
from reconciler.planning.document.rows import action_row, plan_row

if TYPE_CHECKING:
    from reconciler.planning.plan import Plan

__all__ = ["FORMAT", "ActionDocument", "PlanDocument", "canonical_bytes", "compare", "read_document", "to_document"]

ONLY_WHEN_SAVED: Final = ("options", "seal")
_AGAIN: Final = "Make it again with: reconciler plan --out FILE"


def to_document(plan: Plan, options: Mapping[str, Any] | None = None) -> PlanDocument:
    """Return the plan's document; with `options`, the one that is saved and read back by `apply FILE`."""
    actions = [action_row(action, after_of(action), parameters_of(action)) for action in plan.actions]
    row = {"format": FORMAT, **plan_row(plan), "actions": actions}
    if options is not None:
        row["options"] = dict(options)
        row["seal"] = _seal(row)
    return PlanDocument.model_validate(row)


def canonical_bytes(document: PlanDocument) -> bytes:
    """Return the document as bytes: sorted keys; the same plan always gives the same."""
    return canonical(_plain(document))


def read_document(body: bytes) -> PlanDocument:
    """Return a saved plan.

    Raises:
        UserError: It is no plan, of another version's format, or was changed after it was written.
    """
    try:
        row = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise UserError(f"not a saved plan: it is not JSON ({error})", hint=_AGAIN) from error
    found = row.get("format") if isinstance(row, dict) else None
    if found != FORMAT:
        raise UserError(f"not a saved plan of format {FORMAT}: its format is {found!r}", hint=_AGAIN)
    try:
        document = PlanDocument.model_validate(row)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise UserError(f"the saved plan does not read: {where}: {first['msg']}", hint=_AGAIN) from error
    if document.digest != digest_of_document(document) or (document.seal and document.seal != _seal(_plain(document))):
        raise UserError("the saved plan was changed after it was written: its digest does not fit", hint=_AGAIN)
    return document


def refuse_foreign(document: PlanDocument, *, workspace: str, environment: str | None, tool: str) -> None:
    """Refuse a saved plan of another workspace, environment or version.

    Raises:
        UserError: Says which of them differs.
    """
    for what, there, here in (
        ("workspace", document.workspace, workspace),
        ("environment", document.environment, environment),
        ("version of reconciler", document.tool, tool),
    ):
        if there != here:
            message = f"the saved plan is of {what} {there or 'none'}, this is {here or 'none'}"
            raise UserError(message, hint=_AGAIN)


def digest_of_document(document: PlanDocument) -> str:
    """Return the digest of the actions as they stand in a document."""
    return digest_of_rows(
        [action.id, action.after, action.verb, action.parameters, action.risk, action.precondition, action.grant]
        for action in document.actions
    )


def _plain(document: PlanDocument) -> dict[str, Any]:
    row = document.model_dump(mode="json")
    for key in ONLY_WHEN_SAVED:
        if row[key] is None:
            del row[key]
    return row


def _seal(row: Mapping[str, Any]) -> str:
    return hashlib.sha256(canonical({key: value for key, value in row.items() if key != "seal"})).hexdigest()
