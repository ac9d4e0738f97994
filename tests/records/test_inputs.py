"""Files of rows and records, read in a stream."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from reconciler.errors import UserError
from reconciler.records.files import Input, InputFormat, format_of, read_input
from reconciler.records.json_lines import Fields
from reconciler.records.schema import INPUT_SCHEMA

Rows = list[dict[str, Any]]


def read(content: bytes | BinaryIO, form: InputFormat, *, name: str = "in", **options: Any) -> Rows:
    stream = io.BytesIO(content) if isinstance(content, bytes) else content
    fields = Fields(options.pop("key", None), options.pop("timestamp", None))
    rows: Rows = []
    for batch in read_input(Input(stream, name, form, fields, **options)):
        assert batch.schema.equals(INPUT_SCHEMA)
        rows += batch.to_pylist()
    return rows


def parquet(**columns: Any) -> bytes:
    stream = io.BytesIO()
    pq.write_table(pa.table(columns), stream)
    return stream.getvalue()


def values(rows: Rows) -> list[Any]:
    return [orjson.loads(row["value"]) for row in rows]


FLIGHTS = b'{"tail": "N1", "at": "2013-01-01T05:00:00Z", "delay": 2}\n{"tail": null, "at": 5, "delay": 1.0}\n'


# -- formats


@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("a.jsonl", "jsonl"),
        ("a.ndjson", "jsonl"),
        ("dir.csv/a.CSV", "csv"),
        ("a.parquet", "parquet"),
        ("a.b.records", "records"),
    ],
)
def test_the_ending_of_a_name_tells_the_format(name: str, form: str) -> None:
    assert format_of(name) == form


@pytest.mark.parametrize("name", ["-", "flights", "flights.txt", ".csv", "flights.json"])
def test_a_name_that_does_not_tell_is_refused_with_the_option_that_does(name: str) -> None:
    with pytest.raises(UserError) as refused:
        format_of(name)
    assert refused.value.hint == "Name it with --input-format: jsonl, csv, parquet, records."


# -- JSON lines


def test_a_line_of_json_is_the_value_as_it_stands() -> None:
    content = b' {"b": 1.10, "a": 12345678901234567890123}\r\n\n[1]\n"x"\nnull\n7'
    rows = read(content, "jsonl")
    assert [row["value"] for row in rows] == [
        b'{"b": 1.10, "a": 12345678901234567890123}',
        b"[1]",
        b'"x"',
        b"null",
        b"7",
    ]
    assert {(row["key"], row["timestamp_ms"], row["partition"]) for row in rows} == {(None, None, None)}


def test_fields_of_a_line_give_key_and_time() -> None:
    rows = read(FLIGHTS, "jsonl", key="tail", timestamp="at")
    assert [(row["key"], row["timestamp_ms"]) for row in rows] == [(b"N1", 1357016400000), (None, 5)]


@pytest.mark.parametrize(
    ("cell", "key"),
    [('"text"', b"text"), ("17", b"17"), ("true", b"true"), ("1.5", b"1.5"), ('{"a": [1]}', b'{"a":[1]}'), ('""', b"")],
)
def test_a_key_that_is_no_text_is_its_json(cell: str, key: bytes) -> None:
    assert read(b'{"k": %s}' % cell.encode(), "jsonl", key="k")[0]["key"] == key


def test_everything_may_go_to_one_partition() -> None:
    assert [row["partition"] for row in read(FLIGHTS, "jsonl", partition=3)] == [3, 3]
    assert read(b'{"value": "v", "partition": 1}', "records", partition=3)[0]["partition"] == 3


def test_an_empty_file_has_no_records() -> None:
    assert read(b"", "jsonl") == []
    assert read(b"\n\n", "records") == []


# -- Parquet and CSV


def test_a_row_becomes_a_json_object_in_the_order_of_its_columns() -> None:
    content = parquet(b=[1, None], a=["é", None], c=[True, None], d=[1.5, float("nan")])
    assert [row["value"] for row in read(content, "parquet")] == [
        '{"b":1,"a":"é","c":true,"d":1.5}'.encode(),
        b'{"b":null,"a":null,"c":null,"d":null}',
    ]


def test_types_that_json_lacks_are_written_as_documented() -> None:
    content = parquet(
        seconds=pa.array([1357016400], pa.timestamp("s")),
        millis=pa.array([1357016400123], pa.timestamp("ms", "Europe/Berlin")),
        nanos=pa.array([1357016400000000001], pa.timestamp("ns")),
        day=pa.array([15706], pa.date32()),
        clock=pa.array([3_600_000_000], pa.time64("us")),
        took=pa.array([1500], pa.duration("ms")),
        price=pa.array(["1.230"]).cast(pa.decimal128(10, 3)),
        raw=pa.array([b"\xff\x00"]),
        text=pa.array([b"plain"]),
        nested=pa.array([{"at": [1, None], "raw": b"\xff"}]),
        table=pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64())),
        word=pa.array(["x"]).dictionary_encode(),
        big=pa.array([2**64 - 1], pa.uint64()),
    )
    assert values(read(content, "parquet")) == [
        {
            "seconds": "2013-01-01T05:00:00Z",
            "millis": "2013-01-01T05:00:00.123Z",
            "nanos": "2013-01-01T05:00:00.000000001Z",
            "day": "2013-01-01",
            "clock": "01:00:00.000000",
            "took": 1500,
            "price": "1.230",
            "raw": {"base64": "/wA="},
            "text": "plain",
            "nested": {"at": [1, None], "raw": {"base64": "/w=="}},
            "table": {"a": 1},
            "word": "x",
            "big": 2**64 - 1,
        }
    ]


def test_text_of_a_parquet_file_that_is_not_utf8_is_written_as_bytes() -> None:
    content = parquet(a=not_utf8())
    assert values(read(content, "parquet")) == [{"a": "fine"}, {"a": {"base64": "/w=="}}, {"a": None}]
    assert [row["key"] for row in read(content, "parquet", key="a")] == [b"fine", b"\xff", None]


def not_utf8() -> pa.Array:
    """What other programs write as text."""
    column = pa.array([b"fine", b"\xff", None])
    return pa.Array.from_buffers(pa.string(), 3, column.buffers())


@pytest.mark.parametrize(
    ("column", "keys"),
    [
        (pa.array(["N1", "", None]), [b"N1", b"", None]),
        (pa.array([1, -2, None], pa.int16()), [b"1", b"-2", None]),
        (pa.array([True, None, False]), [b"true", None, b"false"]),
        (pa.array([1.5, None, 2.0]), [b"1.5", None, b"2.0"]),
        (pa.array([b"\xff", None, b""]), [b"\xff", None, b""]),
        (pa.array([1357016400, None, 0], pa.timestamp("s")), [b"2013-01-01T05:00:00Z", None, b"1970-01-01T00:00:00Z"]),
        (pa.array(["1.20", None, "3"]).cast(pa.decimal128(6, 2)), [b"1.20", None, b"3.00"]),
        (pa.array(["a", None, "a"]).dictionary_encode(), [b"a", None, b"a"]),
    ],
    ids=lambda value: str(value.type) if isinstance(value, pa.Array) else "",
)
def test_columns_of_every_type_make_keys(column: pa.Array, keys: list[bytes | None]) -> None:
    assert [row["key"] for row in read(parquet(k=column), "parquet", key="k")] == keys


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (pa.array([1357016400, None], pa.timestamp("s")), [1357016400000, None]),
        (pa.array([1357016400123456, None], pa.timestamp("us", "America/New_York")), [1357016400123, None]),
        (pa.array([1357016400123999999], pa.timestamp("ns")), [1357016400123]),
        (pa.array([15706, None], pa.date32()), [1356998400000, None]),
        (pa.array([1357016400000, None], pa.int64()), [1357016400000, None]),
        (pa.array([5.0, None]), [5, None]),
        (pa.array(["2013-01-01T05:00:00", "2013-01-01 06:00+01:00", "20130101T05Z"]), [1357016400000] * 3),
        (pa.array(["2013-01-01", "2013-01-01T05:00:00.5Z", None]), [1356998400000, 1357016400500, None]),
    ],
    ids=lambda value: str(value.type) if isinstance(value, pa.Array) else "",
)
def test_times_of_every_kind_become_milliseconds(column: pa.Array, expected: list[int | None]) -> None:
    assert [row["timestamp_ms"] for row in read(parquet(t=column), "parquet", timestamp="t")] == expected


def test_csv_has_the_types_that_arrow_finds() -> None:
    content = b"n,text,at,empty,f\n1,N1,2013-01-01T05:00:00Z,,1.5\n2,,2013-01-02T05:00:00Z,,2\n"
    rows = read(content, "csv", key="text", timestamp="at")
    assert values(rows) == [
        {"n": 1, "text": "N1", "at": "2013-01-01T05:00:00Z", "empty": None, "f": 1.5},
        {"n": 2, "text": None, "at": "2013-01-02T05:00:00Z", "empty": None, "f": 2.0},
    ]
    assert [row["key"] for row in rows] == [b"N1", None]
    assert rows[0]["timestamp_ms"] == 1357016400000


def test_a_csv_cell_that_is_missing_is_null_and_one_that_is_quoted_is_text() -> None:
    content = b'text,n\nNA,NA\n"NA",1\n,\n"",2\nN/A,NULL\n'
    assert [(row["text"], row["n"]) for row in values(read(content, "csv"))] == [
        (None, None),
        ("NA", 1),
        (None, None),
        ("", 2),
        (None, None),
    ]


def test_a_csv_column_that_is_empty_for_long_may_hold_anything_later(tmp_path: Path) -> None:
    path = tmp_path / "in.csv"
    padding = "x" * 1000
    with path.open("w") as file:
        file.write("n,note,pad\n")
        file.writelines(f"{number},,{padding}\n" for number in range(20_000))
        file.write(f"20000,at last,{padding}\n")
    with path.open("rb") as stream:
        rows = read(stream, "csv", name="in.csv")
    assert len(rows) == 20_001
    assert orjson.loads(rows[-1]["value"])["note"] == "at last"


def test_csv_is_read_from_a_pipe_too() -> None:
    reading, writing = os.pipe()
    with os.fdopen(writing, "wb") as sink:
        sink.write(b"a,b\n1,\n2,x\n")
    with os.fdopen(reading, "rb") as stream:
        assert values(read(stream, "csv")) == [{"a": 1, "b": None}, {"a": 2, "b": "x"}]


# -- bad input

REFUSED: list[tuple[str, Callable[[], Rows], str, str]] = [
    (
        "bad json",
        lambda: read(b'{"a": 1}\n{"a": }\n', "jsonl"),
        "in: line 2: not JSON: ",
        "--input-format",
    ),
    (
        "unknown field of a line",
        lambda: read(FLIGHTS, "jsonl", key="tial"),
        "in: line 1: tial: no such field (--key-field)",
        "Did you mean --key-field tail?",
    ),
    (
        "a field that one line lacks",
        lambda: read(b'{"a": 1}\n{"b": 1}\n', "jsonl", key="a"),
        "in: line 2: a: no such field (--key-field)",
        "Fields there: b.",
    ),
    (
        "a line that has no fields",
        lambda: read(b"[1]\n", "jsonl", key="a"),
        "in: line 1: not a JSON object, so it has no field a",
        "Leave out --key-field.",
    ),
    (
        "bad time of a line",
        lambda: read(b'\n{"t": 1}\n{"t": "soon"}\n', "jsonl", timestamp="t"),
        "in: line 3: t: soon is not a time since 1970",
        "ISO 8601",
    ),
    (
        "time that is a truth",
        lambda: read(b'{"t": true}\n', "jsonl", timestamp="t"),
        "in: line 1: t: True is not a time since 1970",
        "ISO 8601",
    ),
    (
        "time that no clock will show",
        lambda: read(b'{"t": 99999999999999999999}\n', "jsonl", timestamp="t"),
        "in: line 1: t: ",
        "ISO 8601",
    ),
    (
        "time before 1970",
        lambda: read(parquet(t=pa.array([5, -1])), "parquet", timestamp="t"),
        "in: row 2: t: -1 is not a time since 1970",
        "ISO 8601",
    ),
    (
        "bad time of a row",
        lambda: read(parquet(t=["2013-01-01", "2013-13-01"]), "parquet", timestamp="t"),
        "in: row 2: t: 2013-13-01 is not a time since 1970",
        "ISO 8601",
    ),
    (
        "unknown column",
        lambda: read(parquet(tailnum=["a"], origin=["b"]), "parquet", key="tail_num"),
        "in: tail_num: no such field (--key-field)",
        "Did you mean --key-field tailnum?",
    ),
    (
        "unknown column like no other",
        lambda: read(b"a,b\n1,2\n", "csv", timestamp="zzz"),
        "in: zzz: no such field (--timestamp-field)",
        "Fields there: a, b.",
    ),
    (
        "not Parquet",
        lambda: read(b"a,b\n1,2\n", "parquet"),
        "in: not a readable Parquet file: ",
        "--input-format",
    ),
    (
        "cut Parquet",
        lambda: read(parquet(a=list(range(1000)))[:-20], "parquet"),
        "in: not a readable Parquet file: ",
        "write the file anew",
    ),
    (
        "damaged Parquet",
        lambda: read(damaged(parquet(a=[str(n) for n in range(1000)])), "parquet"),
        "in: not a readable Parquet file: ",
        "write the file anew",
    ),
    (
        "ragged CSV",
        lambda: read(b"a,b\n1,2\n3\n", "csv"),
        "in: line 3: CSV parse error: Expected 2 columns, got 1: 3",
        "as many cells in every row",
    ),
    (
        "nested text that is not UTF-8",
        lambda: read(parquet(a=pa.StructArray.from_arrays([not_utf8()], ["b"])), "parquet"),
        "in: rows 1 to 3 cannot be written as JSON: ",
        "Nested texts must be UTF-8",
    ),
    (
        "a map with a key twice",
        lambda: read(parquet(a=pa.array([[("k", 1), ("k", 2)]], pa.map_(pa.string(), pa.int64()))), "parquet"),
        "in: rows 1 to 1 cannot be written as JSON: ",
        "a map may have each key once",
    ),
    ("empty CSV", lambda: read(b"", "csv"), "in: Empty CSV file", "header line"),
    ("columns of one name", lambda: read(b"a,a\n1,2\n", "csv"), "in: two columns are named a", "rename one"),
    (
        "records with fields",
        lambda: read(b'{"value": "v"}', "records", key="k"),
        "in: records bring their own keys and times",
        "Leave out --key-field",
    ),
]


def damaged(content: bytes) -> bytes:
    return content[:60] + bytes(400) + content[460:]


@pytest.mark.parametrize(
    ("reading", "problem", "hint"), [case[1:] for case in REFUSED], ids=[case[0] for case in REFUSED]
)
def test_bad_input_is_named_with_its_place_and_the_fix(reading: Callable[[], Rows], problem: str, hint: str) -> None:
    with pytest.raises(UserError) as refused:
        reading()
    assert problem in refused.value.message
    assert hint in refused.value.hint
    assert "\n" not in str(refused.value)


def test_a_csv_value_that_does_not_fit_the_type_found_at_first_is_named(tmp_path: Path) -> None:
    path = tmp_path / "in.csv"
    padding = "x" * 1000
    with path.open("w") as file:
        file.write("n,pad\n")
        file.writelines(f"{number},{padding}\n" for number in range(20_000))
        file.write(f"late,{padding}\n")
    with path.open("rb") as stream, pytest.raises(UserError) as refused:
        read(stream, "csv", name="in.csv")
    assert refused.value.message.startswith(
        "in.csv: line 20002: n: CSV conversion error to int64: invalid value 'late'"
    )
    assert "first 16 MiB" in refused.value.hint


def test_parquet_from_a_pipe_is_refused() -> None:
    reading, writing = os.pipe()
    os.close(writing)
    with os.fdopen(reading, "rb") as stream, pytest.raises(UserError, match="cannot be read from a pipe"):
        read(stream, "parquet", name="-")


def test_a_file_without_line_ends_is_refused_before_it_is_loaded() -> None:
    class OneLine(io.RawIOBase):
        """One line that never ends."""

        def readline(self, size: int | None = -1) -> bytes:
            return b"x" * (size or 0)

    with pytest.raises(UserError, match="line 1 is longer than 256 MiB"):
        read(OneLine(), "jsonl")  # type: ignore[arg-type]  # all that is asked of it is readline


class Endless(io.RawIOBase):
    """A file that never ends: a header, then the same line again and again."""

    def __init__(self, header: bytes, line: bytes) -> None:
        super().__init__()
        self._left = header
        self._line = line

    def readable(self) -> bool:
        return True

    def read(self, size: int | None = -1) -> bytes:
        assert size is not None
        assert size >= 0
        while len(self._left) < size:
            self._left += self._line * 10_000
        found, self._left = self._left[:size], self._left[size:]
        return found

    def readline(self, size: int | None = -1) -> bytes:
        line = self.read(len(self._line))
        assert size is None or size > len(line)
        return line


@pytest.mark.parametrize(
    ("form", "header", "line"),
    [
        ("jsonl", b"", b'{"a": 1, "b": "xxxxxxxxxxxxxxxxxxxx"}\n'),
        ("csv", b"a,b\n", b"1,xxxxxxxxxxxxxxxxxxxxxxxxxxx\n"),
        ("records", b"", b'{"value": "xxxxxxxxxxxxxxxxxxxxx"}\n'),
    ],
)
def test_records_come_out_of_a_file_that_never_ends(form: InputFormat, header: bytes, line: bytes) -> None:
    batches = read_input(Input(Endless(header, line), "-", form))  # type: ignore[arg-type]  # all that is asked of it
    rows = 0
    while rows < 50_000:
        rows += next(batches).num_rows


def test_a_parquet_file_is_read_a_row_group_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "in.parquet"
    table = pa.table({"pad": pa.array(["x" * 500] * 100_000)})
    pq.write_table(table, path, row_group_size=5_000, use_dictionary=False, compression="none")
    size = table.nbytes
    del table
    before = pa.total_allocated_bytes()
    with path.open("rb") as stream:
        peak = max(pa.total_allocated_bytes() - before for _ in read_input(Input(stream, "in", "parquet")))
    assert peak < size / 2
