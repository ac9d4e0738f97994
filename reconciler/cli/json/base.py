"""The base of every JSON output."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any, Final, Self, TypeAlias

import orjson
from pydantic import AfterValidator, BaseModel, ConfigDict

from reconciler.cli.hint_rewrite import typed_again
from reconciler.runtime.text import in_utf8, json_shown, plain

if TYPE_CHECKING:
    from reconciler.planning.actions import Change

_CONSTANT: Final = frozenset({"format", "event"})
"""What a document says of itself, and no record does."""
Hint: TypeAlias = Annotated[str, AfterValidator(typed_again)]
"""What to do. The commands in it act, typed as they stand there, on what this one acted on."""


class Part(BaseModel):
    """A piece of a document. A field's `validation_alias` is what the record it is made of calls it."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        from_attributes=True,
        validate_by_name=True,
        defer_build=True,
        json_schema_serialization_defaults_required=True,
    )

    @classmethod
    def from_record(cls, record: object, **stated: Any) -> Self:
        """Say a record: fields that are not stated are its attributes, and so are those of the parts within."""
        taken = {
            name: getattr(record, str(field.validation_alias or name))
            for name, field in cls.model_fields.items()
            if name not in stated and name not in _CONSTANT
        }
        return cls.model_validate(taken | stated)


class MovedPart(Part):
    """One value that differs; null where there is none."""

    path: str
    before: Any
    after: Any

    @classmethod
    def of(cls, changes: Iterable[Change]) -> tuple[MovedPart, ...]:
        """Say what differs."""
        return tuple(
            cls(path=change.path, before=plain(change.before), after=plain(change.after)) for change in changes
        )


class Document(Part):
    """A whole output; `format` names it and its version."""


def document_bytes(document: Part) -> bytes:
    """Return a document as people and programs read it: the same bytes for the same content."""
    return _json(document, orjson.OPT_INDENT_2)


def document_line(document: BaseModel) -> bytes:
    """Return a document as one line, where several follow each other."""
    return _json(document)


def _json(document: BaseModel, option: int = 0) -> bytes:
    row = document.model_dump(mode="json")
    try:
        body = orjson.dumps(row, option=option)
    except TypeError:  # The name of a file is not UTF-8. Seldom, so only then is all of it looked through.
        body = orjson.dumps(_in_utf8(row), option=option)
    return json_shown(body) + b"\n"


def _in_utf8(value: Any) -> Any:
    """Return a value in which names of files that are not UTF-8 are written out."""
    match value:
        case str():
            return in_utf8(value)
        case dict():
            return {in_utf8(key): _in_utf8(item) for key, item in value.items()}
        case list():
            return [_in_utf8(item) for item in value]
        case _:
            return value
