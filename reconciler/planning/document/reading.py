"""A plan's document read back: what is no plan, too new, cut off or edited by hand is refused with a way on."""

from __future__ import annotations

from typing import Any, Final

import orjson
from pydantic import ValidationError

from reconciler.errors import UserError
from reconciler.planning.document.documents import FORMAT, PlanDocument
from reconciler.planning.document.saved import digest_of_document, seal_of_document
from reconciler.wording import no_json, refusal

AGAIN: Final = "Make it again with: reconciler plan --out FILE"
_NAME, _, _VERSION = FORMAT.rpartition("/")


def read_document(body: bytes) -> PlanDocument:
    """Return a plan that was printed or saved.

    Raises:
        UserError: It is no plan, of another version's format, or was changed after it was written.
    """
    row = _parsed(body)
    _check_format(row.get("format") if isinstance(row, dict) else None)
    try:
        document = PlanDocument.model_validate(row)
    except ValidationError as error:
        raise UserError(f"the saved plan does not read: {refusal(error)}", hint=AGAIN) from error
    if document.digest != digest_of_document(document):
        raise UserError("the saved plan was changed after it was written: its digest does not fit", hint=AGAIN)
    if document.seal is not None and document.seal != seal_of_document(document):
        raise UserError("the saved plan was changed after it was written: its seal does not fit", hint=AGAIN)
    return document


def read_saved(body: bytes) -> PlanDocument:
    """Return a plan that `--out` saved, for it to be applied: with the options it was made with, and sealed.

    Raises:
        UserError: As `read_document`; or it was printed, not saved, or its seal was taken off.
    """
    document = read_document(body)
    if document.seal is None or document.options is None:
        message = "the plan was printed, not saved: it holds neither the options it was made with nor a seal"
        raise UserError(message, hint="Save one with: reconciler plan --out FILE")
    return document


def _parsed(body: bytes) -> Any:
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise UserError(f"not a saved plan: {no_json(error, body)}", hint=AGAIN) from error


def _check_format(found: object) -> None:
    if found == FORMAT:
        return
    name, _, version = found.rpartition("/") if isinstance(found, str) else ("", "", "")
    if name == _NAME and version.isdecimal() and int(version) > int(_VERSION):
        message = f"not a saved plan that this version can read: its format is {found!r}, of a newer one"
        raise UserError(message, hint=f"Upgrade this one: pip install --upgrade stream-reconciler. {AGAIN}")
    raise UserError(f"not a saved plan of format {FORMAT}: its format is {repr(found)[:40]}", hint=AGAIN)
