"""Records written to a file or to standard output, in a stream.

`records` is JSON lines that `produce` takes back exactly. `values` is the bytes of each value as they are, whatever
they are, and a newline; an absent value is an empty line. `parquet` is a table of `RECORD_SCHEMA`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, BinaryIO, Final, Literal, assert_never, get_args

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from reconciler.records.lines import to_lines
from reconciler.records.schema import RECORD_SCHEMA

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

OutputFormat = Literal["records", "values", "parquet"]
OUTPUT_FORMATS: Final[tuple[str, ...]] = get_args(OutputFormat)
_GROUP_BYTES: Final = 1 << 26


def write_output(batches: Iterable[pa.RecordBatch], stream: BinaryIO, *, form: OutputFormat) -> int:
    """Write batches of `RECORD_SCHEMA` as they come, and return how many records that were. Leaves the stream open."""
    match form:
        case "records":
            return _write_text(batches, stream, _lines)
        case "values":
            return _write_text(batches, stream, _values)
        case "parquet":
            return _write_parquet(batches, stream)
        case _:
            assert_never(form)


def _write_text(batches: Iterable[pa.RecordBatch], stream: BinaryIO, render: Callable[[pa.RecordBatch], bytes]) -> int:
    written = 0
    for batch in batches:
        stream.write(render(batch))
        stream.flush()  # who follows a topic reads along
        written += batch.num_rows
    return written


def _lines(batch: pa.RecordBatch) -> bytes:
    return b"".join(to_lines(batch))


def _values(batch: pa.RecordBatch) -> bytes:
    values = pc.fill_null(batch.column("value"), b"")
    return b"".join(value + b"\n" for value in values.to_numpy(zero_copy_only=False).tolist())


def _write_parquet(batches: Iterable[pa.RecordBatch], stream: BinaryIO) -> int:
    written = 0
    with pq.ParquetWriter(stream, RECORD_SCHEMA, compression="zstd") as writer:
        for group in _groups(batches):
            writer.write_table(group)
            written += group.num_rows
    return written


def _groups(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Gather batches into row groups of a useful size, without holding more than one."""
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
