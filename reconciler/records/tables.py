"""CSV and Parquet files as batches of rows, streamed, with Arrow's complaints put into our words."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, BinaryIO, Final

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from reconciler.errors import UserError
from reconciler.records.fields import Rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

_ROWS: Final = 1 << 14
_BLOCK: Final = 1 << 24
_NULLS: Final = ["", "NA", "N/A", "NULL", "null", "NaN", "nan"]
_TYPES_HINT: Final = (
    "Types of CSV columns are taken from the first 16 MiB; write the file as Parquet or JSON lines to choose them."
)


def read_csv(stream: BinaryIO, source: str) -> Iterator[Rows]:
    """Yield the rows of a CSV file with a header line.

    Columns have the types Arrow infers from the first 16 MiB; a column empty so far is text, where the file can be
    read from its start again. A cell that is empty, NA, N/A, NULL or NaN is null, unless it is quoted.
    """
    start = stream.tell() if stream.seekable() else None
    names: list[str] = []
    try:
        reader = _csv_reader(stream, {})
        names = reader.schema.names
        empty = {field.name: pa.string() for field in reader.schema if pa.types.is_null(field.type)}
        if empty and start is not None:
            stream.seek(start)
            reader = _csv_reader(stream, empty)
        # Lines are counted as an editor does: the header is the first. A cell with a line break in it is one of them.
        # Closed also after an error: Arrow reads ahead in a thread, which must not outlive us.
        with reader:
            for rows in _counted(reader, source):
                yield replace(rows, before=rows.before + 1, unit="line")
    except pa.ArrowInvalid as error:
        raise _bad_csv(source, names, error) from error


def _csv_reader(stream: BinaryIO, types: dict[str, pa.DataType]) -> pyarrow.csv.CSVStreamingReader:
    convert = pyarrow.csv.ConvertOptions(
        column_types=types, null_values=_NULLS, strings_can_be_null=True, quoted_strings_can_be_null=False
    )
    options = pyarrow.csv.ReadOptions(block_size=_BLOCK, use_threads=False)
    return pyarrow.csv.open_csv(stream, read_options=options, convert_options=convert)


def read_parquet(stream: BinaryIO, source: str) -> Iterator[Rows]:
    """Yield the rows of a Parquet file.

    Raises:
        UserError: It is no Parquet file, or comes through a pipe.
    """
    if not stream.seekable():
        hint = "Parquet is read from its end: give the file's name instead of a pipe."
        raise UserError(f"{source}: a Parquet file cannot be read from a pipe", hint=hint)
    try:
        yield from _counted(pq.ParquetFile(stream).iter_batches(batch_size=_ROWS), source)
    except (pa.ArrowInvalid, OSError) as error:
        hint = "Name the format with --input-format, or write the file anew."
        raise UserError(f"{source}: not a readable Parquet file: {_first_line(error)}", hint=hint) from error


def _counted(batches: Iterable[pa.RecordBatch], source: str) -> Iterator[Rows]:
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


def _bad_csv(source: str, names: Sequence[str], error: pa.ArrowInvalid) -> UserError:
    said, where = _first_line(error), source
    if row := re.search(r"Row #(\d+): ", said):
        # Arrow counts the header as row 1, as an editor does.
        where, said = f"{where}: line {row[1]}", said.replace(row[0], "")
    if column := re.search(r"In CSV column #(\d+): ", said):
        number = int(column[1])
        name = names[number] if number < len(names) else f"column {number + 1}"
        where, said = f"{where}: {name}", said.replace(column[0], "")
    hint = _TYPES_HINT if "conversion error" in said else "A CSV file has a header line and as many cells in every row."
    return UserError(f"{where}: {said}", hint=hint)


def _first_line(error: Exception) -> str:
    return str(error).split("\n", 1)[0].rstrip(".")
