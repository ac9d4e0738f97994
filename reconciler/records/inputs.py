"""Files of rows or records, read in a stream, as batches ready to be produced.

Of `jsonl`, `csv` and `parquet` each row becomes a JSON value, keyed and timed by the fields asked for; `records` is
what `topic consume` writes. Nothing is loaded whole.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING, BinaryIO, Final, Literal, assert_never, get_args

import pyarrow as pa

from reconciler.errors import UserError
from reconciler.records.fields import NO_FIELDS, Fields, to_records
from reconciler.records.jsonl import read_jsonl
from reconciler.records.lines import from_lines
from reconciler.records.tables import read_csv, read_parquet

if TYPE_CHECKING:
    from collections.abc import Iterator

InputFormat = Literal["jsonl", "csv", "parquet", "records"]
INPUT_FORMATS: Final[tuple[str, ...]] = get_args(InputFormat)
_ENDINGS: Final[dict[str, InputFormat]] = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".csv": "csv",
    ".parquet": "parquet",
    ".records": "records",
}
_LONGEST_LINE: Final = 1 << 28


@dataclass(frozen=True, slots=True)
class Input:
    """A stream to produce from; `name` is its file, or `-`, as errors call it."""

    stream: BinaryIO
    name: str
    form: InputFormat
    fields: Fields = NO_FIELDS
    partition: int | None = None
    """Where every record goes; `None`: where it says itself, else where its key says."""


def format_of(name: str) -> InputFormat:
    """Guess the format of a file by the ending of its name.

    Raises:
        UserError: The name does not tell.
    """
    form = _ENDINGS.get(PurePath(name).suffix.lower())
    if form is None:
        what = "standard input has no name to guess its format by" if name == "-" else f"{name}: not a format we know"
        raise UserError(what, hint=f"Name it with --input-format: {', '.join(INPUT_FORMATS)}.")
    return form


def read_input(given: Input) -> Iterator[pa.RecordBatch]:
    """Yield the records of an input as batches of `INPUT_SCHEMA`, in its order.

    Raises:
        UserError: Something in it cannot be a record; says which line or row, which field, and what to do.
    """
    for batch in _batches(given):
        if given.partition is None:
            yield batch
        else:
            yield batch.set_column(
                0, batch.schema.field(0), pa.repeat(pa.scalar(given.partition, pa.int32()), len(batch))
            )


def _batches(given: Input) -> Iterator[pa.RecordBatch]:
    match given.form:
        case "jsonl":
            yield from read_jsonl(_lines(given), given.fields, given.name)
        case "records":
            if given.fields != NO_FIELDS:
                hint = "Leave out --key-field and --timestamp-field, or read the file as jsonl."
                raise UserError(f"{given.name}: records bring their own keys and times", hint=hint)
            yield from from_lines(_lines(given), source=given.name)
        case "csv":
            for rows in read_csv(given.stream, given.name):
                yield to_records(rows, given.fields)
        case "parquet":
            for rows in read_parquet(given.stream, given.name):
                yield to_records(rows, given.fields)
        case _:
            assert_never(given.form)


def _lines(given: Input) -> Iterator[bytes]:
    """Yield lines, without ever holding a file that has none."""
    number = 0
    while line := given.stream.readline(_LONGEST_LINE):
        number += 1
        if len(line) == _LONGEST_LINE:
            hint = "Write one JSON value on each line; name other formats with --input-format."
            raise UserError(f"{given.name}: line {number} is longer than 256 MiB", hint=hint)
        yield line
