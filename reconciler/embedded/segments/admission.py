"""Check records before they are appended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from reprlib import repr as shortened
from typing import TYPE_CHECKING, Any, Final, SupportsIndex

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reconciler.embedded.catalog.topic_configs import CONFIGS, find_explicit_configs, find_topic_kms_key
from reconciler.errors import UserError
from reconciler.records.schema import CREATE_TIME, INPUT_SCHEMA, LOG_APPEND_TIME, encode_name_as_text
from reconciler.runtime.dataclass import dataclass
from reconciler.runtime.text import find_similar, format_suggestion

if TYPE_CHECKING:
    from reconciler.embedded.catalog.tables import Catalog


_KEYS: Final = (
    "max.message.bytes",
    "message.timestamp.type",
    "message.timestamp.before.max.ms",
    "message.timestamp.after.max.ms",
    "message.timestamp.difference.max.ms",
    "compression.type",
    "segment.bytes",
    "cleanup.policy",
)


@dataclass(frozen=True, slots=True)
class AppendRules:
    """Topic configs that apply to every append."""

    full_name: str
    max_record_bytes: int
    is_append_time: bool
    before_max_ms: int
    after_max_ms: int
    difference_max_ms: int
    """Maximum difference from the current time in ms, in either direction."""
    compression: str
    segment_bytes: int
    is_compacted: bool
    kms_key_id: str | None = None


def read_append_rules(catalog: Catalog, full_name: str) -> AppendRules:
    """Return a topic's current rules."""
    configs = find_explicit_configs(catalog, full_name)
    values = {key: configs[key][0] if key in configs else CONFIGS[key].default or "" for key in _KEYS}
    return AppendRules(
        full_name,
        int(values["max.message.bytes"]),
        values["message.timestamp.type"] == "LogAppendTime",
        int(values["message.timestamp.before.max.ms"]),
        int(values["message.timestamp.after.max.ms"]),
        int(values["message.timestamp.difference.max.ms"]),
        values["compression.type"],
        int(values["segment.bytes"]),
        "compact" in values["cleanup.policy"].split(","),
        find_topic_kms_key(catalog, full_name),
    )


def admit_batch(batch: pa.RecordBatch, rules: AppendRules, now_ms: int) -> pa.RecordBatch:
    """Check a batch of `INPUT_SCHEMA`; return it with its stored timestamps."""
    _check_sizes(batch, rules)
    _check_keys(batch, rules)
    if rules.is_append_time:
        times = pa.repeat(pa.scalar(now_ms, pa.int64()), batch.num_rows)
    else:
        times = batch.column("timestamp_ms")
        if times.null_count:
            times = pc.fill_null(times, now_ms)
        _check_times(times, rules, now_ms)
    kind = pa.scalar(LOG_APPEND_TIME if rules.is_append_time else CREATE_TIME, pa.int8())
    stored = {"timestamp_ms": times, "timestamp_type": pa.repeat(kind, batch.num_rows)}
    columns = [stored.get(name, batch.column(name)) for name in INPUT_SCHEMA.names]
    return pa.RecordBatch.from_arrays(columns, schema=INPUT_SCHEMA)


def _check_sizes(batch: pa.RecordBatch, rules: AppendRules) -> None:
    # A batch within the limit of one record has no record above it.
    if batch.nbytes <= rules.max_record_bytes:
        return
    key, headers = batch.column("key"), batch.column("headers")
    sizes = _compute_lengths(batch.column("value"))
    if key.null_count < len(key):
        sizes = pc.add(sizes, _compute_lengths(key))
    if len(headers.flatten()):
        sizes = pc.add(sizes, _compute_header_lengths(headers))
    largest = pc.max(sizes).as_py()
    if largest is not None and largest > rules.max_record_bytes:
        row = pc.index(sizes, largest).as_py()
        message = (
            f"{rules.full_name}: record {row} of the batch has {largest:,} bytes of key, value and headers "
            "(MESSAGE_TOO_LARGE)"
        )
        raise UserError(message, hint=f"max.message.bytes of the topic is {rules.max_record_bytes:,}; raise it.")


def _check_keys(batch: pa.RecordBatch, rules: AppendRules) -> None:
    key = batch.column("key")
    if rules.is_compacted and key.null_count:
        row = pc.index(key.is_valid(), value=False).as_py()
        message = (
            f"{rules.full_name}: record {row} of the batch has no key: Compacted topic cannot accept message without "
            "key (INVALID_RECORD)"
        )
        raise UserError(message, hint="Give it a key, or take compact out of the topic's cleanup.policy.")


def _compute_lengths(column: pa.Array[Any]) -> pa.Array[Any]:
    lengths = pc.binary_length(column)
    return pc.fill_null(lengths, 0) if lengths.null_count else lengths


def _compute_header_lengths(headers: pa.ListArray[Any]) -> pa.Array[Any]:
    flat = headers.flatten()
    lengths = pc.add(_compute_lengths(flat.field("key")), _compute_lengths(flat.field("value"))).to_numpy()
    sums = np.concatenate(([0], np.cumsum(lengths)))
    stops = np.cumsum(pc.list_value_length(headers).to_numpy())
    return pa.array(np.diff(sums[np.concatenate(([0], stops))]).astype(np.int32))


def _check_times(times: pa.Array[Any], rules: AppendRules, now_ms: int) -> None:
    if not len(times):
        return
    ends = pc.min_max(times).as_py()
    if ends["min"] < 0:
        hint = "Times are ms since 1970 and not negative; leave it out to get the present one."
        raise _bad_time_error(times, ends["min"], rules, f"is {ends['min']:,} ms", hint)
    for end, off, own_limit, word in (
        (ends["min"], now_ms - ends["min"], rules.before_max_ms, "before"),
        (ends["max"], ends["max"] - now_ms, rules.after_max_ms, "after"),
    ):
        limit, of = min((own_limit, word), (rules.difference_max_ms, "difference"))
        if off > limit:
            hint = f"message.timestamp.{of}.max.ms of the topic is {limit:,}; correct the time, or raise it."
            raise _bad_time_error(times, end, rules, f"lies {off:,} ms {word} now", hint)


def _bad_time_error(times: pa.Array[Any], time: int, rules: AppendRules, what: str, hint: str) -> UserError:
    row = pc.index(times, time).as_py()
    return UserError(f"{rules.full_name}: the time of record {row} of the batch {what} (INVALID_TIMESTAMP)", hint=hint)


_CONTENT: Final = "text, bytes or None"
_NOTHING_TAKEN: Final = "This record was not accepted; those before it were."


def encode_content(topic: str, field: str, value: object) -> bytes | None:
    """Convert a key, value or header value to bytes; text becomes UTF-8."""
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return _encode_text(topic, field, value)
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    raise _wrong_type_error(
        f"{topic}: {field} takes {_CONTENT}", value, "Encode it first, for example with json.dumps."
    )


def encode_headers(topic: str, value: object) -> list[dict[str, Any]]:
    """Convert a record's headers to their stored form."""
    if value is None:
        return []
    if not isinstance(value, Mapping):
        raise _wrong_type_error(f"{topic}: headers take a mapping from text to {_CONTENT}", value)
    return [
        {"key": _encode_header_name(topic, name), "value": encode_content(topic, f"header {name}", content)}
        for name, content in value.items()
    ]


def parse_whole_number(field: str, value: object, *, bits: int) -> int:
    """Return a value as a signed integer of `bits` bits, or reject it; `field` begins the error."""
    if not isinstance(value, SupportsIndex) or isinstance(value, bool):
        raise _wrong_type_error(f"{field} takes a whole number", value)
    number = value.__index__()
    if not -(1 << bits - 1) <= number < 1 << bits - 1:
        raise _wrong_type_error(f"{field} takes a whole number of {bits} bits", number)
    return number


def parse_optional_number(topic: str, field: str, value: object, *, bits: int) -> int | None:
    """Return a signed integer of `bits` bits; `None` stays `None`."""
    return None if value is None else parse_whole_number(f"{topic}: {field}", value, bits=bits)


def _encode_header_name(topic: str, name: object) -> str:
    if not isinstance(name, str):
        raise _wrong_type_error(f"{topic}: the name of a header takes text", name)
    try:
        return name if name.isascii() else encode_name_as_text(name.encode("utf-8", "surrogateescape"))
    except UnicodeEncodeError as error:
        raise _wrong_type_error(
            f"{topic}: the name of a header takes text that can be written as UTF-8", name
        ) from error


def _encode_text(topic: str, field: str, text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise _wrong_type_error(f"{topic}: {field} takes text that can be written as UTF-8", text) from error


def _wrong_type_error(start: str, value: object, hint: str = "") -> UserError:
    got = "None" if value is None else f"{shortened(value)} ({type(value).__name__})"
    return UserError(f"{start}, not {got}", hint=f"{hint} {_NOTHING_TAKEN}".lstrip())


_TAKEN: Final = ("value", "key", "headers", "timestamp_ms", "partition")
_MILLISECONDS: Final = pa.timestamp("ms")
_IGNORED_COLUMNS: Final = frozenset({"offset", "timestamp_type", "topic"})


def to_row(
    topic: str,
    value: str | bytes | None,
    *,
    key: str | bytes | None,
    headers: Mapping[str, str | bytes | None] | None,
    partition: int | None,
    timestamp_ms: int | None,
) -> dict[str, Any]:
    """Convert a record to a row of `INPUT_SCHEMA`."""
    return {
        "partition": parse_optional_number(topic, "partition", partition, bits=32),
        "timestamp_ms": parse_optional_number(topic, "timestamp_ms", timestamp_ms, bits=64),
        "timestamp_type": CREATE_TIME,
        "key": encode_content(topic, "key", key),
        "value": encode_content(topic, "value", value),
        "headers": encode_headers(topic, headers),
    }


def conform_batch(topic: str, records: pa.RecordBatch, *, partition: int | None = None) -> pa.RecordBatch:
    """Convert a batch to `INPUT_SCHEMA`: order and cast columns; missing columns become null.

    `partition` applies to all records.
    """
    _check_columns(topic, records)
    columns: list[pa.Array[Any]] = []
    for field in INPUT_SCHEMA:
        index = records.schema.get_field_index(field.name)
        if field.name == "partition" and partition is not None:
            columns.append(pa.repeat(pa.scalar(partition, field.type), records.num_rows))
        elif index >= 0 and field.name != "timestamp_type":
            column = records.column(index)
            if field.name == "headers":
                _check_headers(topic, column)  # Arrow's own error would not name the header.
            columns.append(_cast_column(topic, field, column))
        else:
            columns.append(_build_null_column(field, records.num_rows))
    return pa.RecordBatch.from_arrays(columns, schema=INPUT_SCHEMA)


def _check_columns(topic: str, records: object) -> None:
    if not isinstance(records, pa.RecordBatch):
        message = f"{topic}: append takes a pyarrow.RecordBatch, not {type(records).__name__}"
        raise UserError(
            message, hint="Of a table, append each of to_batches(); of rows, RecordBatch.from_pylist(rows)."
        )
    for name, count in Counter(records.schema.names).items():
        if name in _TAKEN and count > 1:
            raise UserError(f"{topic}: {count} columns are named {name}", hint="Leave out or rename all but one.")
        if name not in _TAKEN and name not in _IGNORED_COLUMNS:
            near = find_similar(name.lower(), _TAKEN)
            known = f"A record has the columns {', '.join(_TAKEN)}: rename it, or leave it out."
            raise UserError(f"{topic}: {name} is no column of a record", hint=format_suggestion(near, then=known))


def _cast_column(topic: str, field: pa.Field[Any], column: pa.Array[Any]) -> pa.Array[Any]:
    if column.type == field.type and not (column.null_count and not field.nullable):
        return column
    try:
        # `safe=False` drops fractions of a millisecond.
        times = pa.types.is_temporal(column.type)
        cast = column.cast(_MILLISECONDS, safe=False).cast(field.type) if times else column.cast(field.type)
        return cast if field.nullable else pc.coalesce(cast, pa.scalar([], field.type))
    except pa.ArrowException as error:
        reason = str(error).split("\n", 1)[0].rstrip(".")
        raise UserError(
            f"{topic}: column {field.name} takes {field.type}, not {column.type}: {reason}",
            hint="Cast the column first; nothing of this batch was accepted.",
        ) from error


def _check_headers(topic: str, headers: pa.Array[Any]) -> None:
    if not (pa.types.is_list(headers.type) or pa.types.is_large_list(headers.type)):
        return
    flat = headers.flatten()
    has_names = isinstance(flat, pa.StructArray) and flat.type.get_field_index("key") >= 0
    if flat.null_count or (has_names and flat.field("key").null_count):
        message = f"{topic}: column headers has a header that is null, or whose name is"
        hint = "A header has a name; its value may be null. Nothing of this batch was accepted."
        raise UserError(message, hint=hint)


def _build_null_column(field: pa.Field[Any], rows: int) -> pa.Array[Any]:
    if field.name == "headers":
        none = pa.array(np.zeros(rows + 1, np.int32))
        return pa.ListArray.from_arrays(none, pa.array([], field.type.value_type), type=field.type)
    if field.name == "timestamp_type":
        return pa.repeat(pa.scalar(CREATE_TIME, field.type), rows)
    return pa.nulls(rows, field.type)
