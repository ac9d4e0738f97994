"""Records as JSON lines, both ways: what `topic consume` writes, `topic produce` reads, byte for byte.

Bytes that are not UTF-8 are `{"base64": "…"}`; absent is `null`, empty is `""`. No character that any reader takes
for the end of a line stands unescaped inside one.
"""

from __future__ import annotations

import binascii
import difflib
from typing import TYPE_CHECKING, Any, Final

import orjson
import pyarrow as pa

from reconciler.errors import UserError
from reconciler.foreign import json_shown
from reconciler.records.headers import name_of, text_of
from reconciler.records.schema import CREATE_TIME, INPUT_SCHEMA, LOG_APPEND_TIME

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

TIMESTAMP_TYPES: Final = {"create": CREATE_TIME, "append": LOG_APPEND_TIME}
_TYPE_NAMES: Final = {number: name for name, number in TIMESTAMP_TYPES.items()}

BATCH_ROWS: Final = 1 << 14
BATCH_BYTES: Final = 1 << 24
_BOM: Final = b"\xef\xbb\xbf"
_FIELDS: Final = ("partition", "offset", "timestamp_ms", "timestamp_type", "key", "value", "headers")
_IGNORED: Final = ("topic",)
"""What `topic consume --regex` says beside a record: whoever produces it says where it goes."""
_INT32: Final = range(1 << 31)
_INT64: Final = range(1 << 63)
_TIMES: Final = range(-1, 1 << 63)
"""-1 is no time: brokers take it, and keep it."""
_SHOWN: Final = 40
_EXAMPLE: Final = '{"key": "N14228", "value": "…", "headers": [["source", "gate"]]}'
_HEADERS_HINT: Final = 'Write [["name", "value"], …].'


def to_lines(batch: pa.RecordBatch) -> Iterator[bytes]:
    """Yield each record of a batch of `RECORD_SCHEMA` as one JSON line with its newline."""
    names = batch.schema.names
    columns = [column.to_pylist() for column in batch.columns]
    for row in zip(*columns, strict=True):
        record: dict[str, Any] = dict(zip(names, row, strict=True))
        record["timestamp_type"] = _TYPE_NAMES[record["timestamp_type"]]
        record["key"], record["value"] = as_text(record["key"]), as_text(record["value"])
        record["headers"] = [
            [as_text(name_of(header["key"])), as_text(header["value"])] for header in record["headers"]
        ]
        yield dump_line(record)


def dump_line(value: object) -> bytes:
    """Return a JSON value as one line with its newline."""
    return json_shown(orjson.dumps(value)) + b"\n"


def as_text(content: bytes | None) -> str | dict[str, str] | None:
    """Return bytes as JSON can hold them."""
    if content is None:
        return None
    try:
        return content.decode()
    except UnicodeDecodeError:
        return {"base64": binascii.b2a_base64(content, newline=False).decode()}


def from_lines(lines: Iterable[bytes], *, source: str) -> Iterator[pa.RecordBatch]:
    """Yield batches of `INPUT_SCHEMA` from JSON lines; `source` names them in errors.

    `offset` and `topic` are ignored; an absent `partition` or `timestamp_ms` is null. Empty lines are skipped.

    Raises:
        UserError: A line is not a record; says which line, which field and what it should be.
    """
    rows: list[tuple[object, ...]] = []
    taken = 0
    for number, line in enumerate(lines, start=1):
        if line.isspace():
            continue
        try:
            rows.append(_row(_object(line.removeprefix(_BOM) if number == 1 else line)))
        except _BadFieldError as error:
            field = f"{error.field}: " if error.field else ""
            raise UserError(f"{source}: line {number}: {field}{error.problem}", hint=error.hint) from None
        taken += len(line)
        if len(rows) >= BATCH_ROWS or taken >= BATCH_BYTES:
            yield _batch(rows)
            rows, taken = [], 0
    if rows:
        yield _batch(rows)


def _batch(rows: Sequence[tuple[object, ...]]) -> pa.RecordBatch:
    columns = zip(*rows, strict=True)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, INPUT_SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=INPUT_SCHEMA)


class _BadFieldError(Exception):
    """What is wrong with one line; the loop adds which line it is."""

    def __init__(self, field: str, problem: str, hint: str) -> None:
        super().__init__(field, problem, hint)
        self.field, self.problem, self.hint = field, problem, hint


def _object(line: bytes) -> dict[str, object]:
    try:
        found = orjson.loads(line.rstrip(b"\r\n"))
    except orjson.JSONDecodeError as error:
        hint = "Every line is one JSON object, as `topic consume` writes it; give other files with --input-format."
        raise _BadFieldError("", f"not JSON: {error.msg} at column {error.colno}", hint) from None
    if not isinstance(found, dict):
        raise _BadFieldError("", "not a JSON object", f"A record looks like {_EXAMPLE}.")
    for name in found:
        if name not in _FIELDS and name not in _IGNORED:
            near = difflib.get_close_matches(name, _FIELDS, n=1)
            known = f"Did you mean {near[0]}?" if near else f"A record has {', '.join(_FIELDS)}."
            raise _BadFieldError(name, "not a field of a record", f"{known} Rows of your own fields are jsonl.")
    return found


def _row(record: dict[str, object]) -> tuple[object, ...]:
    if "value" not in record:
        raise _BadFieldError("value", "missing", 'Write "value": null for a tombstone, "" for an empty value.')
    _integer(record, "offset", _INT64)
    kind = record.get("timestamp_type") or "create"
    if not isinstance(kind, str) or kind not in TIMESTAMP_TYPES:
        raise _BadFieldError("timestamp_type", f"{_shown(kind)} is not a kind of timestamp", "Write create or append.")
    return (
        _integer(record, "partition", _INT32),
        _integer(record, "timestamp_ms", _TIMES),
        TIMESTAMP_TYPES[kind],
        _content("key", record.get("key")),
        _content("value", record["value"]),
        [_header(index, header) for index, header in enumerate(_list(record))],
    )


def _integer(record: dict[str, object], field: str, allowed: range) -> int | None:
    value = record.get(field)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value not in allowed:
        raise _BadFieldError(
            field, f"{_shown(value)} is not a whole number from {allowed.start}", "Write a number, or leave it out."
        )
    return value


def _content(field: str, value: object) -> bytes | None:
    match value:
        case None:
            return None
        case str():
            return value.encode()
        case {"base64": str(text), **rest} if not rest:
            try:
                return binascii.a2b_base64(text, strict_mode=True)
            except ValueError as error:
                hint = "Use the standard alphabet with padding."
                raise _BadFieldError(field, f"not base64: {error}".lower(), hint) from None
        case _:
            hint = 'Write text, null, or {"base64": "…"}; JSON inside a value is a string.'
            raise _BadFieldError(field, f"{_shown(value)} is neither text nor bytes", hint)


def _list(record: dict[str, object]) -> list[object]:
    headers = record.get("headers")
    if headers is None:
        return []
    if not isinstance(headers, list):
        raise _BadFieldError("headers", f"{_shown(headers)} is not a list", _HEADERS_HINT)
    return headers


def _header(index: int, header: object) -> dict[str, object]:
    match header:
        case [name, value] if name is not None:
            key = _content(f"headers[{index}]", name) or b""
            return {"key": text_of(key), "value": _content(f"headers[{index}]", value)}
        case _:
            raise _BadFieldError(f"headers[{index}]", f"{_shown(header)} is not a name and a value", _HEADERS_HINT)


def _shown(value: object) -> str:
    text = orjson.dumps(value).decode()
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
