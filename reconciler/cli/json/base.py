"""JSON documents of dataclasses; a form lists an object's keys in order.

A dataclass without a form is printed with all fields. Keys omit the prefix `is_`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import orjson

from reconciler.cli.hint_rewrite import add_typed_options
from reconciler.errors import ReconcilerError
from reconciler.runtime.dataclass import dataclass, field
from reconciler.runtime.text import escape_json, escape_non_utf8

if TYPE_CHECKING:
    from pydantic import BaseModel

JsonObject: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True, eq=False)
class JsonForm:
    """Keys of a JSON object in order, each with the attribute or function that supplies its value.

    An item is an attribute path (`seen.link`) whose last name is the key, or `key=path`; `.` is the record. `None` on a
    path makes the item null. A nested form applies to records in the item. A trailing `?` gives the item a default in
    the schema.
    """

    record: type
    items: tuple[Item, ...] = ()
    constants: Mapping[str, str] = field(default_factory=dict)
    """Constant keys, which come first."""
    about: str = ""
    """Description; by default the record's docstring."""

    def build_row(self, record: object) -> JsonObject:
        """Convert a record to a JSON object."""
        row: JsonObject = dict(self.constants)
        for key in list_keys(self):
            value = _read_path(record, key.path) if key.compute is None else key.compute(record)
            value = _to_json_value(value, key.form)
            row[key.name] = value if key.name not in _CONVERSIONS or value is None else _CONVERSIONS[key.name](value)
        return row


Computed: TypeAlias = Callable[[Any], Any]
Item: TypeAlias = str | tuple[str, JsonForm | Computed] | tuple[str, Computed, JsonForm]


def define_document(name: str, record: type, *items: Item, about: str = "") -> JsonForm:
    """Define a document's form; `name` is its format and version."""
    return JsonForm(record, items, {"format": name}, about)


@dataclass(frozen=True, slots=True)
class FormKey:
    """A parsed item of a form."""

    name: str
    path: tuple[str, ...]
    form: JsonForm | None = None
    compute: Computed | None = None
    is_late: bool = False
    """Whether the key has a default in the schema."""


@cache
def build_default_form(record: type) -> JsonForm:
    """Build a form with all fields of a dataclass."""
    return JsonForm(record)


@cache
def list_keys(form: JsonForm) -> tuple[FormKey, ...]:
    """List a form's keys; without items, the fields of the record."""
    if form.items:
        return tuple(map(_parse_item, form.items))
    return tuple(
        FormKey(_to_key_name(name), (name,), is_late=has_default)
        for name, has_default in _list_fields(form.record).items()
    )


def is_record(record: type) -> bool:
    """Return whether a class is a dataclass or named tuple."""
    return is_dataclass(record) or hasattr(record, "_fields")


def _list_fields(record: Any) -> dict[str, bool]:
    if is_dataclass(record):
        return {item.name: item.default is not MISSING for item in fields(record)}
    return {name: name in record._field_defaults for name in record._fields}


def _parse_item(item: Item) -> FormKey:
    how: list[Any]
    text, *how = (item,) if isinstance(item, str) else item
    name, _, path = text.rstrip("?").rpartition("=")
    steps = tuple(filter(None, path.split(".")))
    forms = [part for part in how if isinstance(part, JsonForm)]
    computes = [part for part in how if not isinstance(part, JsonForm)]
    return FormKey(
        name or _to_key_name(steps[-1]),
        steps,
        forms[0] if forms else None,
        computes[0] if computes else None,
        is_late=text.endswith("?"),
    )


def _to_key_name(name: str) -> str:
    return name if name == "is_current" else name.removeprefix("is_")


def _read_path(record: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        record = None if record is None else getattr(record, name)
    return record


def _to_json_value(value: Any, form: JsonForm | None = None) -> Any:
    if value is None or isinstance(value, (str, int, float)):
        return value
    if form is not None and isinstance(value, form.record):
        return form.build_row(value)
    record: Any = type(value)
    if is_record(record):
        return build_default_form(record).build_row(value)
    if isinstance(value, ReconcilerError):
        return value.message
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): _to_json_value(item, form) for key, item in value.items()}
    return [_to_json_value(item, form) for item in value] if isinstance(value, (tuple, list)) else value.to_json()


def _round_seconds(seconds: float) -> float:
    return round(float(seconds), 3)


_CONVERSIONS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "hint": add_typed_options,
    "seconds": _round_seconds,
    "seconds_left": _round_seconds,
    "skew": _round_seconds,
}


def format_document(document: JsonObject | BaseModel) -> bytes:
    """Format indented JSON; equal documents give equal bytes."""
    return _dump_json(document, orjson.OPT_INDENT_2)


def format_document_line(document: JsonObject | BaseModel) -> bytes:
    """Format one line of JSON."""
    return _dump_json(document)


def _dump_json(document: JsonObject | BaseModel, option: int = 0) -> bytes:
    row = document if isinstance(document, dict) else document.model_dump(mode="json")
    try:
        body = orjson.dumps(row, option=option)
    except TypeError:  # orjson rejects file names that are not UTF-8.
        body = orjson.dumps(_escape_non_utf8(row), option=option)
    return escape_json(body) + b"\n"


def _escape_non_utf8(value: Any) -> Any:
    match value:
        case str():
            return escape_non_utf8(value)
        case dict():
            return {escape_non_utf8(key): _escape_non_utf8(item) for key, item in value.items()}
        case list():
            return [_escape_non_utf8(item) for item in value]
        case _:
            return value
