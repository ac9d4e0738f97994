"""What a topic's configs let in: the largest record, whose clock tells the time, how far times may be off."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reconciler.embedded.catalog.configs import CONFIGS, set_configs
from reconciler.embedded.catalog.encryption import key_of
from reconciler.errors import UserError
from reconciler.records.schema import CREATE_TIME, INPUT_SCHEMA, LOG_APPEND_TIME

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
class Rules:
    """The effective configs of a topic that every append obeys, and the key it is written under."""

    full_name: str
    max_record_bytes: int
    is_append_time: bool
    before_max_ms: int
    after_max_ms: int
    compression: str
    segment_bytes: int
    is_compacted: bool
    kms_key_id: str | None = None


def rules_of(catalog: Catalog, full_name: str) -> Rules:
    """Return what holds for a topic now."""
    found = set_configs(catalog, full_name)
    values = {key: found[key][0] if key in found else CONFIGS[key].default or "" for key in _KEYS}
    difference = int(values["message.timestamp.difference.max.ms"])
    return Rules(
        full_name,
        int(values["max.message.bytes"]),
        values["message.timestamp.type"] == "LogAppendTime",
        min(difference, int(values["message.timestamp.before.max.ms"])),
        min(difference, int(values["message.timestamp.after.max.ms"])),
        values["compression.type"],
        int(values["segment.bytes"]),
        "compact" in values["cleanup.policy"].split(","),
        key_of(catalog, full_name),
    )


def admitted(batch: pa.RecordBatch, rules: Rules, now_ms: int) -> pa.RecordBatch:
    """Return a batch of `INPUT_SCHEMA` with the times it will be stored under.

    Raises:
        UserError: A record is too large, its time too far from now, or it lacks the key that compaction goes by;
            says which row, and Kafka's name for it.
    """
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


def _check_sizes(batch: pa.RecordBatch, rules: Rules) -> None:
    # A record cannot be larger than its batch: nearly always this one look is enough.
    if batch.nbytes <= rules.max_record_bytes:
        return
    key, headers = batch.column("key"), batch.column("headers")
    sizes = _lengths(batch.column("value"))
    if key.null_count < len(key):
        sizes = pc.add(sizes, _lengths(key))
    if len(headers.flatten()):
        sizes = pc.add(sizes, _header_lengths(headers))
    largest = pc.max(sizes).as_py()
    if largest is not None and largest > rules.max_record_bytes:
        row = pc.index(sizes, largest).as_py()
        message = (
            f"{rules.full_name}: record {row} of the batch has {largest:,} bytes of key, value and headers "
            "(MESSAGE_TOO_LARGE)"
        )
        raise UserError(message, hint=f"max.message.bytes of the topic is {rules.max_record_bytes:,}; raise it.")


def _check_keys(batch: pa.RecordBatch, rules: Rules) -> None:
    key = batch.column("key")
    if rules.is_compacted and key.null_count:
        row = pc.index(key.is_valid(), value=False).as_py()
        message = (
            f"{rules.full_name}: record {row} of the batch has no key: Compacted topic cannot accept message without "
            "key (INVALID_RECORD)"
        )
        raise UserError(message, hint="Give it a key, or take compact out of the topic's cleanup.policy.")


def _lengths(column: pa.Array[Any]) -> pa.Array[Any]:
    lengths = pc.binary_length(column)
    return pc.fill_null(lengths, 0) if lengths.null_count else lengths


def _header_lengths(headers: pa.ListArray[Any]) -> pa.Array[Any]:
    flat = headers.flatten()
    each = pc.add(_lengths(flat.field("key")), _lengths(flat.field("value"))).to_numpy()
    sums = np.concatenate(([0], np.cumsum(each)))
    stops = np.cumsum(pc.list_value_length(headers).to_numpy())
    return pa.array(np.diff(sums[np.concatenate(([0], stops))]).astype(np.int32))


def _check_times(times: pa.Array[Any], rules: Rules, now_ms: int) -> None:
    if not len(times):
        return
    ends = pc.min_max(times).as_py()
    for end, off, limit, word in (
        (ends["min"], now_ms - ends["min"], rules.before_max_ms, "before"),
        (ends["max"], ends["max"] - now_ms, rules.after_max_ms, "after"),
    ):
        if off > limit:
            hint = f"message.timestamp.{word}.max.ms of the topic is {limit:,}; correct the time, or raise it."
            raise _bad_time(times, end, rules, f"lies {off:,} ms {word} now", hint)
    if ends["min"] < 0:
        hint = "Times are ms since 1970 and not negative; leave it out to get the present one."
        raise _bad_time(times, ends["min"], rules, f"is {ends['min']:,} ms", hint)


def _bad_time(times: pa.Array[Any], time: int, rules: Rules, what: str, hint: str) -> UserError:
    row = pc.index(times, time).as_py()
    return UserError(f"{rules.full_name}: the time of record {row} of the batch {what} (INVALID_TIMESTAMP)", hint=hint)
