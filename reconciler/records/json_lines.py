"""Records as JSON lines, and rows of files as records.

Bytes that are not UTF-8 become `{"base64": "…"}`; absent content is `null`, empty content `""`. Characters that some
readers treat as line ends are escaped.
"""

from __future__ import annotations

import binascii
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from math import isfinite
from typing import Any, Final

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from reconciler.errors import UserError
from reconciler.records.schema import (
    CREATE_TIME,
    HEADERS,
    INPUT_SCHEMA,
    LOG_APPEND_TIME,
    BadTimeError,
    decode_text_as_name,
    encode_name_as_text,
    to_milliseconds,
)
from reconciler.runtime.dataclass import dataclass
from reconciler.runtime.text import escape_json, find_similar, format_suggestion

TIMESTAMP_TYPES: Final = {"create": CREATE_TIME, "append": LOG_APPEND_TIME}
_TYPE_NAMES: Final = {number: name for name, number in TIMESTAMP_TYPES.items()}

BATCH_ROWS: Final = 1 << 14
BATCH_BYTES: Final = 1 << 24
_BOM: Final = b"\xef\xbb\xbf"
_FIELDS: Final = ("partition", "offset", "timestamp_ms", "timestamp_type", "key", "value", "headers")
_IGNORED: Final = ("topic",)
"""Ignored fields, which `topic consume --regex` writes."""
_INT32: Final = range(1 << 31)
_INT64: Final = range(1 << 63)
_TIMES: Final = range(-(1 << 63), 1 << 63)
"""Times that brokers accept; -1 means no time."""
_LONGEST_KEY: Final = 1 << 64
_SHOWN: Final = 40
_EXAMPLE: Final = '{"key": "N14228", "value": "…", "headers": [["source", "gate"]]}'
_HEADERS_HINT: Final = 'Write [["name", "value"], …].'


def dump_records(batch: pa.RecordBatch) -> Iterator[bytes]:
    """Yield each record of `RECORD_SCHEMA` as a JSON line."""
    names = batch.schema.names
    columns = [column.to_pylist() for column in batch.columns]
    for row in zip(*columns, strict=True):
        record: dict[str, Any] = dict(zip(names, row, strict=True))
        record["timestamp_type"] = _TYPE_NAMES[record["timestamp_type"]]
        record["key"], record["value"] = to_json_value(record["key"]), to_json_value(record["value"])
        record["headers"] = [
            [to_json_value(decode_text_as_name(header["key"])), to_json_value(header["value"])]
            for header in record["headers"]
        ]
        yield dump_line(record)


def dump_line(value: object) -> bytes:
    """Return a JSON value as one line, with a newline."""
    return escape_json(orjson.dumps(value)) + b"\n"


def to_json_value(content: bytes | None) -> str | dict[str, str] | None:
    """Return a key or value as a JSON value."""
    if content is None:
        return None
    try:
        return content.decode()
    except UnicodeDecodeError:
        return {"base64": binascii.b2a_base64(content, newline=False).decode()}


def parse_records(lines: Iterable[bytes], *, source: str) -> Iterator[pa.RecordBatch]:
    """Yield batches of `INPUT_SCHEMA` from JSON lines. Errors name source, line and field.

    `offset`, `topic` and empty lines are ignored. An absent `partition` or `timestamp_ms` is null.
    """
    rows: list[tuple[object, ...]] = []
    take = 0
    for number, line in enumerate(lines, start=1):
        if line.isspace():
            continue
        try:
            rows.append(_parse_row(_parse_object(line.removeprefix(_BOM) if number == 1 else line)))
        except _BadFieldError as error:
            field = f"{error.field}: " if error.field else ""
            raise UserError(f"{source}: line {number}: {field}{error.problem}", hint=error.hint) from None
        take += len(line)
        if len(rows) >= BATCH_ROWS or take >= BATCH_BYTES:
            yield _build_batch(rows)
            rows, take = [], 0
    if rows:
        yield _build_batch(rows)


def _build_batch(rows: Sequence[tuple[object, ...]]) -> pa.RecordBatch:
    columns = zip(*rows, strict=True)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, INPUT_SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=INPUT_SCHEMA)


class _BadFieldError(Exception):
    def __init__(self, field: str, problem: str, hint: str) -> None:
        super().__init__(field, problem, hint)
        self.field, self.problem, self.hint = field, problem, hint


def _parse_object(line: bytes) -> dict[str, object]:
    try:
        record = orjson.loads(line.rstrip(b"\r\n"))
    except orjson.JSONDecodeError as error:
        hint = "Every line is one JSON object, as `topic consume` writes it; give other files with --input-format."
        raise _BadFieldError("", f"not JSON: {error.msg} at column {error.colno}", hint) from None
    if not isinstance(record, dict):
        raise _BadFieldError("", "not a JSON object", f"A record looks like {_EXAMPLE}.")
    for name in record:
        if name not in _FIELDS and name not in _IGNORED:
            known = format_suggestion(find_similar(name, _FIELDS), otherwise=f"A record has {', '.join(_FIELDS)}.")
            raise _BadFieldError(name, "not a field of a record", f"{known} Rows of your own fields are jsonl.")
    return record


def _parse_row(record: dict[str, object]) -> tuple[object, ...]:
    if "value" not in record:
        raise _BadFieldError("value", "missing", 'Write "value": null for a tombstone, "" for an empty value.')
    _parse_integer(record, "offset", _INT64)
    kind = record.get("timestamp_type") or "create"
    if not isinstance(kind, str) or kind not in TIMESTAMP_TYPES:
        raise _BadFieldError(
            "timestamp_type", f"{_show_value(kind)} is not a kind of timestamp", "Write create or append."
        )
    return (
        _parse_integer(record, "partition", _INT32),
        _parse_integer(record, "timestamp_ms", _TIMES),
        TIMESTAMP_TYPES[kind],
        _parse_content("key", record.get("key")),
        _parse_content("value", record["value"]),
        [_parse_header(index, header) for index, header in enumerate(_parse_list(record))],
    )


def _parse_integer(record: dict[str, object], field: str, allowed: range) -> int | None:
    value = record.get(field)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value not in allowed:
        raise _BadFieldError(
            field,
            f"{_show_value(value)} is not a whole number from {allowed.start}",
            "Write a number, or leave it out.",
        )
    return value


def _parse_content(field: str, value: object) -> bytes | None:
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
            raise _BadFieldError(field, f"{_show_value(value)} is neither text nor bytes", hint)


def _parse_list(record: dict[str, object]) -> list[object]:
    headers = record.get("headers")
    if headers is None:
        return []
    if not isinstance(headers, list):
        raise _BadFieldError("headers", f"{_show_value(headers)} is not a list", _HEADERS_HINT)
    return headers


def _parse_header(index: int, header: object) -> dict[str, object]:
    match header:
        case [name, value] if name is not None:
            key = _parse_content(f"headers[{index}]", name) or b""
            return {"key": encode_name_as_text(key), "value": _parse_content(f"headers[{index}]", value)}
        case _:
            raise _BadFieldError(f"headers[{index}]", f"{_show_value(header)} is not a name and a value", _HEADERS_HINT)


def _show_value(value: object) -> str:
    text = orjson.dumps(value).decode()
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


# Times become ISO 8601 in UTC (`…Z`), bytes become text or `{"base64": "…"}`, and decimals become strings. Durations
# become numbers in their column's unit; NaN and infinities become null.


_OPTIONS: Final = orjson.OPT_UTC_Z | orjson.OPT_NAIVE_UTC | orjson.OPT_NON_STR_KEYS


def to_json_objects(batch: pa.RecordBatch) -> pa.Array:
    """Return each row as a JSON object, with fields in column order."""
    names = batch.schema.names
    dumps, options = orjson.dumps, _OPTIONS
    rows: Iterable[tuple[Any, ...]] = zip(*map(_to_python, batch.columns), strict=True)
    objects = [dumps(dict(zip(names, row, strict=False)), _as_json, options) for row in rows]
    return pa.array(objects, pa.binary())


def to_key_texts(column: pa.Array) -> pa.Array:
    """Return each cell as a key. Text, bytes and null do not change; other values become JSON."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    kind = column.type
    if pa.types.is_integer(kind) or pa.types.is_decimal(kind):
        return column.cast(pa.string()).cast(pa.binary())
    if _is_text(kind) or _is_bytes(kind):
        return column.cast(pa.binary())
    if pa.types.is_timestamp(kind):
        return _to_iso(column).cast(pa.binary())
    # NaN becomes null, because many programs write it for a missing number.
    cells = (None if isinstance(cell, float) and not isfinite(cell) else cell for cell in _to_python(column))
    return pa.array([None if cell is None else to_key_bytes(cell) for cell in cells], pa.binary())


def to_key_bytes(cell: object) -> bytes:
    """Return a JSON value as a key. Text does not change; other values become JSON."""
    return cell.encode() if isinstance(cell, str) else orjson.dumps(cell, _as_json, _OPTIONS)


def _to_python(column: pa.Array) -> list[Any]:
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_duration(column.type):
        column = column.cast(pa.int64())
    kind = column.type
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        cells: list[Any] = (pc.fill_null(column, 0) if column.null_count else column).to_numpy().tolist()
        if column.null_count:
            for index in np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False)).tolist():
                cells[index] = None
        return cells
    if pa.types.is_timestamp(kind):
        column = _to_iso(column)
    if _is_text(column.type):
        try:
            return list(column.to_numpy(zero_copy_only=False).tolist())
        except pa.ArrowException:
            return list(column.cast(pa.binary()).to_pylist())
    if pa.types.is_temporal(kind):
        return list(_to_texts(column).to_pylist())
    return list(column.to_pylist(maps_as_pydicts="strict"))


def _to_iso(column: pa.Array) -> pa.Array:
    naive = column.cast(pa.timestamp(column.type.unit))
    whole = pc.floor_temporal(naive, unit="second") if column.type.unit != "s" else naive
    if column.type.unit != "s" and pc.all(pc.equal(whole, naive)).as_py() is not False:
        naive = whole.cast(pa.timestamp("s"))
    return pc.binary_join_element_wise(pc.replace_substring(_to_texts(naive), " ", "T"), "Z", "")


def _to_texts(times: pa.Array) -> pa.Array:
    """Format times. For times beyond its calendar, Arrow returns an error text."""
    texts = times.cast(pa.string())
    if pc.any(pc.starts_with(texts, "<")).as_py():
        message = "a time is after the year 32767"
        raise ValueError(message)
    return texts


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    is_one = pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view, pa.types.is_fixed_size_binary
    return any(is_kind(kind) for is_kind in is_one)


def _as_json(cell: object) -> object:
    match cell:
        case bytes():
            return to_json_value(cell)
        case datetime():
            return f"{(cell if cell.tzinfo is None else cell.astimezone(UTC).replace(tzinfo=None)).isoformat()}Z"
        case _:
            return str(cell)


TIME_HINT: Final = "Times are ISO 8601 such as 2013-01-01T05:00:00Z, or milliseconds since 1970; null means now."


@dataclass(frozen=True, slots=True)
class Fields:
    """Names of the fields that become key and time. `None` means no key, or the current time."""

    key: str | None = None
    timestamp: str | None = None


NO_FIELDS: Final = Fields()


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of an input, after `before` other rows. Errors count in `unit`: `row` or `line`."""

    source: str
    before: int
    batch: pa.RecordBatch
    unit: str = "row"


def to_records(rows: Rows, fields: Fields) -> pa.RecordBatch:
    """Return rows as records of `INPUT_SCHEMA` without partitions. Errors name the row."""
    batch = rows.batch
    times = _parse_times(rows, fields.timestamp) if fields.timestamp else pa.nulls(len(batch), pa.int64())
    try:
        keys = (
            to_key_texts(_find_column(rows, fields.key, "--key-field"))
            if fields.key
            else pa.nulls(len(batch), pa.binary())
        )
        values = to_json_objects(batch)
    except (ValueError, KeyError, TypeError, OverflowError) as error:
        message = (
            f"{rows.source}: {rows.unit}s {rows.before + 1} to {rows.before + len(batch)} cannot be written as JSON: "
            f"{error}"
        )
        hint = (
            "Nested texts must be UTF-8, nested times of the years 1 to 9999, others up to 32767, keys of maps text or "
            "numbers; and a map may have each key once."
        )
        raise UserError(message, hint=hint) from None
    return build_input_batch(keys, times, values)


def build_input_batch(keys: pa.Array, times: pa.Array, values: pa.Array) -> pa.RecordBatch:
    """Return records of `INPUT_SCHEMA`, without headers and partitions."""
    size = len(values)
    kinds = pa.array(np.full(size, CREATE_TIME, np.int8))
    headers = pa.ListArray.from_arrays(pa.array(np.zeros(size + 1, np.int32)), pa.array([], HEADERS.value_type))
    columns = [pa.nulls(size, pa.int32()), times, kinds, keys, values, headers.cast(HEADERS)]
    return pa.RecordBatch.from_arrays(columns, schema=INPUT_SCHEMA)


def unknown_field_error(name: str, known: Sequence[str], *, where: str, option: str) -> UserError:
    """Return the error for an unknown field, with similar names."""
    near = [f"{option} {candidate}" for candidate in find_similar(name, known, likeness=0.5)]
    hint = format_suggestion(near, otherwise=f"Fields there: {', '.join(known) or 'none'}.")
    return UserError(f"{where}: {name}: no such field ({option})", hint=hint)


def _find_column(rows: Rows, name: str, option: str) -> pa.Array:
    if name not in rows.batch.schema.names:
        raise unknown_field_error(name, rows.batch.schema.names, where=rows.source, option=option)
    return rows.batch.column(name)


def _parse_times(rows: Rows, name: str) -> pa.Array:
    try:
        return to_milliseconds(_find_column(rows, name, "--timestamp-field"))
    except BadTimeError as error:
        message = (
            f"{rows.source}: {rows.unit} {rows.before + error.row + 1}: {name}: {error.cell} is not a time since 1970"
        )
        raise UserError(message, hint=TIME_HINT) from None


def read_jsonl(lines: Iterable[bytes], fields: Fields, source: str) -> Iterator[pa.RecordBatch]:
    """Yield batches of `INPUT_SCHEMA` whose values are the non-empty lines. Errors name the line."""
    gathered = _BatchBuilder(fields, source)
    for number, line in enumerate(lines, start=1):
        if not line.isspace():
            gathered.add(number, (line.removeprefix(_BOM) if number == 1 else line).strip())
            if gathered.is_full:
                yield gathered.build_batch()
    if gathered.values:
        yield gathered.build_batch()


class _BatchBuilder:
    def __init__(self, fields: Fields, source: str) -> None:
        self.fields, self.source = fields, source
        self._reset()

    def _reset(self) -> None:
        self.numbers: list[int] = []
        self.keys: list[bytes | None] = []
        self.times: list[Any] = []
        self.values: list[bytes] = []
        self.bytes = 0

    @property
    def is_full(self) -> bool:
        return len(self.values) >= BATCH_ROWS or self.bytes >= BATCH_BYTES

    def add(self, number: int, line: bytes) -> None:
        try:
            row = orjson.loads(line)
        except orjson.JSONDecodeError as error:
            message = f"{self.source}: line {number}: not JSON: {error.msg} at column {error.colno}"
            raise UserError(
                message, hint="Every line is one JSON value; name other formats with --input-format."
            ) from None
        key = self._read_cell(number, row, self.fields.key, "--key-field")
        if isinstance(key, float) and abs(key) >= _LONGEST_KEY:
            message = f"{self.source}: line {number}: {self.fields.key}: a number with too many digits for a key"
            raise UserError(message, hint="Two of them would be one key. Write it as text, in quotes.")
        self.keys.append(None if key is None else to_key_bytes(key))
        self.times.append(self._read_cell(number, row, self.fields.timestamp, "--timestamp-field"))
        self.numbers.append(number)
        self.values.append(line)
        self.bytes += len(line)

    def _read_cell(self, number: int, row: object, field: str | None, option: str) -> object:
        if field is None:
            return None
        where = f"{self.source}: line {number}"
        if not isinstance(row, dict):
            raise UserError(f"{where}: not a JSON object, so it has no field {field}", hint=f"Leave out {option}.")
        if field not in row:
            raise unknown_field_error(field, list(row), where=where, option=option)
        return row[field]

    def build_batch(self) -> pa.RecordBatch:
        keys, values = pa.array(self.keys, pa.binary()), pa.array(self.values, pa.binary())
        try:
            batch = build_input_batch(keys, to_milliseconds(self.times), values)
        except BadTimeError as error:
            where = f"{self.source}: line {self.numbers[error.row]}: {self.fields.timestamp}"
            raise UserError(f"{where}: {error.cell} is not a time since 1970", hint=TIME_HINT) from None
        self._reset()
        return batch
