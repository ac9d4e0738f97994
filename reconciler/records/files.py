"""CSV, JSON and Parquet files as streamed batches of records.

Each row becomes a JSON value; chosen fields become key and time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from io import BytesIO
from pathlib import PurePath
from typing import BinaryIO, Final, Literal, assert_never, get_args

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

from reconciler.errors import UserError
from reconciler.records.json_lines import (
    NO_FIELDS,
    Fields,
    Rows,
    dump_records,
    parse_records,
    read_jsonl,
    to_records,
)
from reconciler.records.schema import RECORD_SCHEMA
from reconciler.runtime.dataclass import dataclass, replace

_ROWS: Final = 1 << 14
_BLOCK: Final = 1 << 24
_NULLS: Final = ["", "NA", "N/A", "NULL", "null", "NaN", "nan"]
_TYPES_HINT: Final = (
    "Types of CSV columns are taken from the first 16 MiB; write the file as Parquet or JSON lines to choose them."
)


_LIKE_A_NUMBER: Final = {"integer": r"^\s*-?0\d", "floating": r"^\s*(?:[+-]?(?:0\d|\d{17})|\+\d{7,}\s*$)"}
"""Patterns of cells that would lose digits as numbers, such as `00123` and `+4917012345678`."""


def read_csv(stream: BinaryIO, source: str) -> Iterator[Rows]:
    """Yield the rows of a CSV file with a header line.

    Types are inferred from the first 16 MiB; empty columns, and columns that would lose digits, are text. An unquoted
    cell that is empty, NA, N/A, NULL or NaN is null.
    """
    begun = _PeekedStream(stream)
    names: list[str] = []
    try:
        reader = _open_csv(begun, _find_text_columns(begun.first))
        names = reader.schema.names
        # Errors count the header as line 1, and a cell with line breaks as one. Only `with` ends the reader's thread.
        with reader:
            for rows in _number_rows(reader, source):
                yield replace(rows, before=rows.before + 1, unit="line")
    except pa.ArrowInvalid as error:
        raise _csv_error(source, names, error) from error


class _PeekedStream:
    closed = False

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self.first = self._rest = stream.read(_BLOCK)

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        if not self._rest:
            return self._stream.read(size)
        block, self._rest = (self._rest, b"") if size < 0 else (self._rest[:size], self._rest[size:])
        return block + self._stream.read() if size < 0 else block


def _find_text_columns(first: bytes) -> dict[str, pa.DataType]:
    whole = first[: first.rfind(b"\n") + 1] if len(first) == _BLOCK else first
    try:
        table = _open_csv(BytesIO(whole or first), {}).read_all()
        kinds = {field.name: _classify_type(field.type) for field in table.schema}
        numbers = {name: pa.string() for name, kind in kinds.items() if kind in _LIKE_A_NUMBER}
        cells = _open_csv(BytesIO(whole or first), numbers).read_all() if numbers else table
    except pa.ArrowInvalid:
        return {}
    texts = [name for name, kind in kinds.items() if kind == "null"]
    for name, column in zip(cells.schema.names, cells.columns, strict=True):
        pattern = _LIKE_A_NUMBER.get(kinds[name])
        if pattern is not None and pc.any(pc.match_substring_regex(column, pattern)).as_py():
            texts.append(name)
    return dict.fromkeys(texts, pa.string())


def _classify_type(of: pa.DataType) -> str:
    kinds = {"null": pa.types.is_null, "integer": pa.types.is_integer, "floating": pa.types.is_floating}
    return next((kind for kind, is_one in kinds.items() if is_one(of)), "other")


def _open_csv(stream: BinaryIO | _PeekedStream, types: dict[str, pa.DataType]) -> pyarrow.csv.CSVStreamingReader:
    convert = pyarrow.csv.ConvertOptions(
        column_types=types, null_values=_NULLS, strings_can_be_null=True, quoted_strings_can_be_null=False
    )
    options = pyarrow.csv.ReadOptions(block_size=_BLOCK, use_threads=False)
    return pyarrow.csv.open_csv(stream, read_options=options, convert_options=convert)


def read_parquet(stream: BinaryIO, source: str) -> Iterator[Rows]:
    """Yield the rows of a Parquet file."""
    if not stream.seekable():
        hint = "Parquet is read from its end: give the file's name instead of a pipe."
        raise UserError(f"{source}: a Parquet file cannot be read from a pipe", hint=hint)
    try:
        yield from _number_rows(pq.ParquetFile(stream).iter_batches(batch_size=_ROWS), source)
    except (pa.ArrowInvalid, OSError) as error:
        hint = "Name the format with --input-format, or write the file again."
        raise UserError(f"{source}: not a readable Parquet file: {_first_line(error)}", hint=hint) from error


def _number_rows(batches: Iterable[pa.RecordBatch], source: str) -> Iterator[Rows]:
    before = 0
    for batch in batches:
        names = batch.schema.names
        if twice := [name for name in names if names.count(name) > 1]:
            raise UserError(
                f"{source}: two columns are named {twice[0]}", hint="A JSON object has each name once: rename one."
            )
        for start in range(0, batch.num_rows, _ROWS):
            yield Rows(source, before + start, batch.slice(start, _ROWS))
        before += batch.num_rows


def _csv_error(source: str, names: Sequence[str], error: pa.ArrowInvalid) -> UserError:
    problem, where = _first_line(error), source
    if row := re.search(r"Row #(\d+): ", problem):
        # Arrow counts the header as row 1.
        where, problem = f"{where}: line {row[1]}", problem.replace(row[0], "")
    if column := re.search(r"In CSV column #(\d+): ", problem):
        number = int(column[1])
        name = names[number] if number < len(names) else f"column {number + 1}"
        where, problem = f"{where}: {name}", problem.replace(column[0], "")
    hint = (
        _TYPES_HINT if "conversion error" in problem else "A CSV file has a header line and as many cells in every row."
    )
    return UserError(f"{where}: {problem}", hint=hint)


def _first_line(error: Exception) -> str:
    return str(error).split("\n", 1)[0].rstrip(".")


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
    """An input stream. `name` is a file name or `-`, for errors."""

    stream: BinaryIO
    name: str
    form: InputFormat
    fields: Fields = NO_FIELDS
    partition: int | None = None
    """Partition of all records; `None` lets each record or its key choose."""


def detect_format(name: str) -> InputFormat:
    """Return the format that a file name's suffix stands for."""
    form = _ENDINGS.get(PurePath(name).suffix.lower())
    if form is None:
        what = "standard input has no name to guess its format by" if name == "-" else f"{name}: not a format we know"
        raise UserError(what, hint=f"Name it with --input-format: {', '.join(INPUT_FORMATS)}.")
    return form


def read_input(source: Input) -> Iterator[pa.RecordBatch]:
    """Yield an input's records as batches of `INPUT_SCHEMA`. Errors name line or row, and field."""
    for batch in _read_batches(source):
        if source.partition is None:
            yield batch
        else:
            yield batch.set_column(
                0, batch.schema.field(0), pa.repeat(pa.scalar(source.partition, pa.int32()), len(batch))
            )


def _read_batches(source: Input) -> Iterator[pa.RecordBatch]:
    match source.form:
        case "jsonl":
            yield from read_jsonl(_read_lines(source), source.fields, source.name)
        case "records":
            if source.fields != NO_FIELDS:
                hint = "Leave out --key-field and --timestamp-field, or read the file as jsonl."
                raise UserError(f"{source.name}: records bring their own keys and times", hint=hint)
            yield from parse_records(_read_lines(source), source=source.name)
        case "csv":
            for rows in read_csv(source.stream, source.name):
                yield to_records(rows, source.fields)
        case "parquet":
            for rows in read_parquet(source.stream, source.name):
                yield to_records(rows, source.fields)
        case _:
            assert_never(source.form)


def _read_lines(source: Input) -> Iterator[bytes]:
    number = 0
    while line := source.stream.readline(_LONGEST_LINE):
        number += 1
        if len(line) == _LONGEST_LINE:
            hint = "Write one JSON value on each line; name other formats with --input-format."
            raise UserError(f"{source.name}: line {number} is longer than 256 MiB", hint=hint)
        yield line


# `records` are JSON lines, which `topic produce` reads. `values` has one value per line, empty if absent. `parquet` is
# a table of `RECORD_SCHEMA`.


OutputFormat = Literal["records", "values", "parquet"]
OUTPUT_FORMATS: Final[tuple[str, ...]] = get_args(OutputFormat)
_GROUP_BYTES: Final = 1 << 26


def write_output(batches: Iterable[pa.RecordBatch], stream: BinaryIO, *, form: OutputFormat) -> int:
    """Write batches of `RECORD_SCHEMA` as they arrive; return the number of records."""
    match form:
        case "records":
            return _write_text(batches, stream, _render_lines)
        case "values":
            return _write_text(batches, stream, _render_values)
        case "parquet":
            return _write_parquet(batches, stream)
        case _:
            assert_never(form)


def _write_text(batches: Iterable[pa.RecordBatch], stream: BinaryIO, render: Callable[[pa.RecordBatch], bytes]) -> int:
    written = 0
    for batch in batches:
        stream.write(render(batch))
        stream.flush()
        written += batch.num_rows
    return written


def _render_lines(batch: pa.RecordBatch) -> bytes:
    return b"".join(dump_records(batch))


def _render_values(batch: pa.RecordBatch) -> bytes:
    values = pc.fill_null(batch.column("value"), b"")
    return b"".join(value + b"\n" for value in values.to_numpy(zero_copy_only=False).tolist())


def _write_parquet(batches: Iterable[pa.RecordBatch], stream: BinaryIO) -> int:
    written = 0
    with pq.ParquetWriter(stream, RECORD_SCHEMA, compression="zstd") as writer:
        for group in _group_rows(batches):
            writer.write_table(group)
            written += group.num_rows
    return written


def _group_rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    held: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        held.append(batch)
        size += batch.nbytes
        if size >= _GROUP_BYTES:
            yield pa.Table.from_batches(held, RECORD_SCHEMA)
            held, size = [], 0
    if held:
        yield pa.Table.from_batches(held, RECORD_SCHEMA)
