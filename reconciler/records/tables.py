"""CSV and Parquet files as batches of rows, streamed, with Arrow's complaints put into our words."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, BinaryIO, Final

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from reconciler.errors import UserError
from reconciler.records.fields import Rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_ROWS: Final = 1 << 14
_BLOCK: Final = 1 << 24
_TYPES_HINT: Final = (
    "Types of CSV columns are taken from the first 16 MiB; write the file as Parquet or JSON lines to choose them."
)


def read_csv(stream: BinaryIO, source: str) -> Iterator[Rows]:
    """Yield the rows of a CSV file with a header line.

    Columns have the types Arrow infers from the first 16 MiB; a column empty so far is text.
    """
    options = pyarrow.csv.ReadOptions(block_size=_BLOCK, use_threads=False)
    start = stream.tell() if stream.seekable() else None
    try:
        reader = pyarrow.csv.open_csv(stream, read_options=options)
        empty = {field.name: pa.string() for field in reader.schema if pa.types.is_null(field.type)}
        if empty and start is not None:
            stream.seek(start)
            convert = pyarrow.csv.ConvertOptions(column_types=empty, strings_can_be_null=True)
            reader = pyarrow.csv.open_csv(stream, read_options=options, convert_options=convert)
        yield from _counted(reader, source)
    except pa.ArrowInvalid as error:
        raise _bad_csv(source, error) from error


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


def _bad_csv(source: str, error: pa.ArrowInvalid) -> UserError:
    said = _first_line(error)
    # Arrow counts the header as row 1; we count rows of values, as everywhere.
    row = re.search(r"Row #(\d+): ", said)
    where = f"{source}: row {int(row[1]) - 1}" if row else source
    if row:
        said = said.replace(row[0], "")
    hint = _TYPES_HINT if "conversion error" in said else "A CSV file has a header line and as many cells in every row."
    return UserError(f"{where}: {said}", hint=hint)


def _first_line(error: Exception) -> str:
    return str(error).split("\n", 1)[0].rstrip(".")
