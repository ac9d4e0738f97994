"""Records written out, in a stream."""

from __future__ import annotations

import io
import os
import threading
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from reconciler.records.files import Input, OutputFormat, read_input, write_output
from reconciler.records.schema import INPUT_SCHEMA, RECORD_SCHEMA
from tests.records.generated import batch_of

ROWS: list[dict[str, Any]] = [
    {
        "timestamp_ms": 5 + number,
        "timestamp_type": number % 2,
        "key": None if number % 3 else b"",
        "value": [None, b"", b"plain", b"\xff\n"][number % 4],
        "headers": [{"key": "h", "value": None}] * (number % 3),
    }
    for number in range(10)
]
BATCHES = [batch_of(ROWS[:4]), batch_of(ROWS[4:], offsets=list(range(4, 10)))]


def written(form: OutputFormat) -> bytes:
    stream = io.BytesIO()
    assert write_output(BATCHES, stream, form=form) == 10
    return stream.getvalue()


def test_records_are_taken_back_exactly() -> None:
    found = list(read_input(Input(io.BytesIO(written("records")), "-", "records")))
    expected = pa.Table.from_batches(BATCHES).drop_columns(["offset"]).to_pydict()
    assert pa.Table.from_batches(found).equals(pa.table(expected, schema=INPUT_SCHEMA))


def test_values_are_their_bytes_as_they_are_and_an_absent_one_is_an_empty_line() -> None:
    assert written("values") == b"\n\nplain\n\xff\n\n" * 2 + b"\n\n"


def test_parquet_is_the_table_of_records() -> None:
    table = pq.read_table(io.BytesIO(written("parquet")))
    assert table.schema.equals(RECORD_SCHEMA)
    assert table.equals(pa.Table.from_batches(BATCHES))


@pytest.mark.parametrize("form", ["records", "values", "parquet"])
def test_no_records_are_a_file_without_records(form: OutputFormat) -> None:
    stream = io.BytesIO()
    assert write_output([], stream, form=form) == 0
    if form == "parquet":
        assert pq.read_table(io.BytesIO(stream.getvalue())).num_rows == 0
    else:
        assert stream.getvalue() == b""


def test_parquet_goes_through_a_pipe() -> None:
    reading, writing = os.pipe()
    found: list[bytes] = []

    def drain() -> None:
        with os.fdopen(reading, "rb") as stream:
            found.append(stream.read())

    reader = threading.Thread(target=drain)
    reader.start()
    with os.fdopen(writing, "wb") as stream:
        assert write_output(BATCHES, stream, form="parquet") == 10
    reader.join()
    assert pq.read_table(io.BytesIO(found[0])).num_rows == 10


@pytest.mark.parametrize("form", ["records", "values"])
def test_who_reads_along_sees_each_batch_at_once(form: OutputFormat) -> None:
    stream = io.BufferedWriter(io.FileIO(os.open(os.devnull, os.O_WRONLY), "wb"), buffer_size=1 << 20)
    sizes: list[int] = []

    class Counted(io.RawIOBase):
        """What has passed the buffer."""

        def writable(self) -> bool:
            return True

        def write(self, content: Any) -> int:
            sizes.append(len(content))
            return len(content)

    def batches() -> Iterator[pa.RecordBatch]:
        for number, batch in enumerate(BATCHES):
            assert len(sizes) == number
            yield batch

    stream.close()
    write_output(batches(), io.BufferedWriter(Counted(), buffer_size=1 << 20), form=form)
    assert len(sizes) == 2


def test_row_groups_do_not_grow_with_the_file() -> None:
    wide = batch_of([{**ROWS[2], "value": os.urandom(1 << 20)} for _ in range(40)])
    stream = io.BytesIO()
    write_output([wide] * 5, stream, form="parquet")
    assert pq.ParquetFile(io.BytesIO(stream.getvalue())).num_row_groups == 3
