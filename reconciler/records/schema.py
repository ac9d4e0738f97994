"""The Arrow schema of records, header names, and columns of times."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from reconciler.errors import UserError

CREATE_TIME: Final = 0
LOG_APPEND_TIME: Final = 1

HEADERS: Final = pa.list_(
    pa.struct([pa.field("key", pa.string(), nullable=False), pa.field("value", pa.binary(), nullable=True)])
)

_FIELDS: Final[list[pa.Field[Any]]] = [
    pa.field("partition", pa.int32(), nullable=False),
    pa.field("offset", pa.int64(), nullable=False),
    pa.field("timestamp_ms", pa.int64(), nullable=False),
    pa.field("timestamp_type", pa.int8(), nullable=False),
    pa.field("key", pa.binary(), nullable=True),
    pa.field("value", pa.binary(), nullable=True),
    pa.field("headers", HEADERS, nullable=False),
]

RECORD_SCHEMA: Final = pa.schema(_FIELDS)

INPUT_SCHEMA: Final = pa.schema(
    [
        pa.field("partition", pa.int32(), nullable=True),
        pa.field("timestamp_ms", pa.int64(), nullable=True),
        *_FIELDS[3:],
    ]
)
"""Records to be produced, without offsets. Partition and time may be null."""


# Kafka's header names may be invalid UTF-8. An invalid byte becomes the private character `U+10F700` plus the byte.
# Names that contain such characters are escaped, so the mapping is reversible.


_ESCAPED: Final = re.compile("[\U0010f780-\U0010f7ff]")
_MARKS: Final = b"\xf4\x8f\x9e", b"\xf4\x8f\x9f"
_TO_TEXT: Final = {0xDC00 + byte: 0x10F700 + byte for byte in range(0x80, 0x100)}
_TO_BYTES: Final = {text: surrogate for surrogate, text in _TO_TEXT.items()}


def encode_name_as_text(name: bytes) -> str:
    """Return a header name as text, with invalid bytes as private characters."""
    text = name.decode("utf-8", "surrogateescape")
    if any(mark in name for mark in _MARKS):
        text = _ESCAPED.sub(lambda one: one[0].encode().decode("ascii", "surrogateescape"), text)
    return text.translate(_TO_TEXT)


def decode_text_as_name(text: str) -> bytes:
    """Return the header name that a text encodes."""
    return text.encode() if text.isascii() else text.translate(_TO_BYTES).encode("utf-8", "surrogateescape")


def decode_name(text: str) -> str:
    """Return the header name that a text encodes, decoded with `surrogateescape`."""
    return text if text.isascii() else decode_text_as_name(text).decode("utf-8", "surrogateescape")


def to_name_column(names: Sequence[str | bytes]) -> pa.Array[Any]:
    """Return a column of header names as text."""
    if bytes in set(map(type, names)):
        return pa.array(
            [encode_name_as_text(name if isinstance(name, bytes) else name.encode()) for name in names], pa.string()
        )
    texts: pa.Array[Any] = pa.array(names, pa.string())
    return (
        pa.array([encode_name_as_text(name.encode()) for name in texts.to_pylist()], pa.string())
        if has_private_characters(texts)
        else texts
    )


def has_private_characters(texts: pa.Array[Any]) -> bool:
    """Return whether texts may contain private characters and so differ from their header names."""
    return any(_is_in(mark, texts) for mark in _MARKS)


def has_nul_byte(texts: pa.Array[Any]) -> bool:
    """Return whether texts may contain byte 0."""
    return _is_in(b"\0", texts)


def _is_in(part: bytes, texts: pa.Array[Any]) -> bool:
    content = texts.buffers()[2] if len(texts) else None
    return content is not None and part in content.to_pybytes()


LONGEST_PATTERN: Final = 10_000


def match_names(pattern: str, full_names: Sequence[str]) -> list[str]:
    """Return the names that a regular expression matches completely."""
    if len(pattern) > LONGEST_PATTERN:
        message = f"a regular expression of {len(pattern):,} characters"
        raise UserError(message, hint=f"It has at most {LONGEST_PATTERN:,}.")
    try:
        pc.match_substring_regex(pa.array([""]), pattern)  # This rejects a `)` that would end the group below.
        is_match = pc.match_substring_regex(pa.array(full_names, pa.string()), rf"\A(?:{pattern})\z")
    except (pa.ArrowException, UnicodeEncodeError) as error:
        message = f"{pattern!r} is not a regular expression: {str(error).removeprefix('Invalid regular expression: ')}"
        raise UserError(message, hint="Example: shop:eu:.* (RE2: without look-around and back-references).") from error
    return [name for name, is_wanted in zip(full_names, is_match.to_pylist(), strict=True) if is_wanted]


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_AFTER_TIME: Final = 1 << 63
_MILLISECOND: Final = timedelta(milliseconds=1)


class BadTimeError(ValueError):
    """A cell that is not a time, or is before 1970 (`is_early`). `row` counts from 0 in a batch."""

    def __init__(self, row: int, cell: object, *, is_early: bool = False) -> None:
        super().__init__(f"{cell!r} is before 1970" if is_early else f"{cell!r} is not a time")
        self.row, self.cell, self.is_early = row, cell, is_early


def to_milliseconds(column: pa.Array | Sequence[object]) -> pa.Array:
    """Return cells as int64 milliseconds since 1970, or null. Raise `BadTimeError` for other cells."""
    times = _convert_column(column) if isinstance(column, pa.Array) else _convert_cells(column)
    early = pc.index(pc.less(times, 0), pa.scalar(value=True)).as_py()
    if early >= 0:
        raise BadTimeError(early, times[early].as_py(), is_early=True)
    return times


def _convert_column(column: pa.Array) -> pa.Array:
    kind = column.type
    if pa.types.is_date(kind):
        return column.cast(pa.date64()).cast(pa.int64())
    if pa.types.is_timestamp(kind):
        times = column.cast(pa.timestamp(kind.unit))
        milliseconds = times.cast(pa.timestamp("ms"), safe=False).cast(pa.int64())
        # The cast rounds toward zero, but earlier times than 1970 must stay negative. `floor_temporal` overflows at the
        # lowest time.
        return pc.if_else(pc.less(times.cast(pa.int64()), 0), pc.min_element_wise(milliseconds, -1), milliseconds)
    if pa.types.is_integer(kind):
        with suppress(pa.ArrowInvalid):
            return column.cast(pa.int64())
    return _convert_cells(_to_python(row, cell) for row, cell in enumerate(column))


def _to_python(row: int, cell: pa.Scalar[Any]) -> object:
    try:
        return cell.as_py()
    except (ValueError, OverflowError, KeyError):
        raise BadTimeError(row, cell.type) from None


def _convert_cells(cells: Iterable[object]) -> pa.Array:
    return pa.array([_parse_milliseconds(row, cell) for row, cell in enumerate(cells)], pa.int64())


def _parse_milliseconds(row: int, cell: object) -> int | None:
    match cell:
        case None:
            return None
        case bool():
            raise BadTimeError(row, cell)
        case int() | float() if -_AFTER_TIME <= cell < _AFTER_TIME and cell % 1 == 0:
            return int(cell)
        case str():
            try:
                return parse_time_ms(cell)
            except (ValueError, OverflowError):
                raise BadTimeError(row, cell) from None
        case _:
            raise BadTimeError(row, cell)


def parse_time_ms(text: str) -> int:
    """Parse an ISO 8601 time into ms; the default time zone is UTC. Raise `ValueError` for other text."""
    time = datetime.fromisoformat(text.strip())
    return ((time if time.tzinfo else time.replace(tzinfo=UTC)) - _EPOCH) // _MILLISECOND
