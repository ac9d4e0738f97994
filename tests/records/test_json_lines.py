from __future__ import annotations

import io
import json
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from reconciler.errors import UserError
from reconciler.records import files
from reconciler.records.files import Input, InputFormat, OutputFormat, detect_format, read_input, write_output
from reconciler.records.hashes import compute_digest
from reconciler.records.json_lines import Fields, dump_records, parse_records
from reconciler.records.schema import (
    INPUT_SCHEMA,
    RECORD_SCHEMA,
    BadTimeError,
    decode_name,
    decode_text_as_name,
    encode_name_as_text,
    to_milliseconds,
    to_name_column,
)
from tests.records.generated import batch_of, batches

PLAIN = {"timestamp_ms": 5, "timestamp_type": 0, "key": b"k", "value": b"v", "headers": []}
AWKWARD = "a\nb\rc\u2028d\u2029e\x85f\x0bg\x0ch\x1ci\x1dj\x1ek\x00"


def lines_of(*rows: dict) -> list[bytes]:
    return list(dump_records(batch_of(list(rows))))


@given(batches())
@example(batch_of([{**PLAIN, "value": bytes(range(256)), "key": AWKWARD.encode()}]))
def test_what_is_written_is_read_back_exactly(batch: pa.RecordBatch) -> None:
    read = list(parse_records(dump_records(batch), source="-"))
    found = pa.Table.from_batches(read, INPUT_SCHEMA)
    expected = pa.table(batch.drop_columns(["offset"]).to_pydict(), schema=INPUT_SCHEMA)
    assert found.equals(expected)


@given(batches())
def test_every_reader_of_lines_sees_one_line_a_record(batch: pa.RecordBatch) -> None:
    text = b"".join(dump_records(batch)).decode()
    assert len(text.splitlines()) == batch.num_rows
    assert [json.loads(line)["offset"] for line in text.splitlines()] == batch.column("offset").to_pylist()


def test_a_line_looks_as_documented() -> None:
    row = {
        "timestamp_ms": 1357016400000,
        "timestamp_type": 0,
        "key": b"N14228",
        "value": b"\xff\x00",
        "headers": [{"key": "source", "value": b"gate"}, {"key": "none", "value": None}],
    }
    (line,) = lines_of(row)
    assert line == (
        b'{"partition":0,"offset":0,"timestamp_ms":1357016400000,"timestamp_type":"create","key":"N14228",'
        b'"value":{"base64":"/wA="},"headers":[["source","gate"],["none",null]]}\n'
    )


def test_absent_and_empty_are_written_differently() -> None:
    absent, empty = (json.loads(line) for line in lines_of({**PLAIN, "value": None}, {**PLAIN, "value": b""}))
    assert absent["value"] is None
    assert empty["value"] == ""


def test_what_a_line_leaves_out_is_left_to_the_producer() -> None:
    (batch,) = parse_records([b'\xef\xbb\xbf{"value": "v"}\r\n', b"\n"], source="-")
    assert batch.to_pylist() == [
        {"partition": None, "timestamp_ms": None, "timestamp_type": 0, "key": None, "value": b"v", "headers": []}
    ]


REFUSED = [
    ('{"value": ', "line 2: not JSON: unexpected end of data at column 11", "Every line is one JSON object"),
    ("[1]", "line 2: not a JSON object", "A record looks like"),
    ('{"vlaue": 1}', "line 2: vlaue: not a field of a record", "Did you mean value?"),
    ('{"tailnum": 1}', "line 2: tailnum: not a field of a record", "jsonl"),
    ('{"key": "k"}', "line 2: value: missing", '"value": null'),
    ('{"value": {"a": 1}}', 'line 2: value: {"a":1} is neither text nor bytes', "base64"),
    ('{"value": 17}', "line 2: value: 17 is neither text nor bytes", "base64"),
    ('{"value": {"base64": "QQ"}}', "line 2: value: not base64", "padding"),
    ('{"value": {"base64": "Q-=="}}', "line 2: value: not base64", "standard alphabet"),
    ('{"value": {"base64": "QQ==", "more": 1}}', "line 2: value: ", "base64"),
    ('{"value": null, "partition": -1}', "line 2: partition: -1 is not a whole number from 0", "leave it out"),
    ('{"value": null, "partition": 2147483648}', "line 2: partition: 2147483648", "leave it out"),
    ('{"value": null, "partition": true}', "line 2: partition: true", "leave it out"),
    ('{"value": null, "timestamp_ms": "2013"}', 'line 2: timestamp_ms: "2013"', "leave it out"),
    ('{"value": null, "timestamp_ms": 1e30}', "line 2: timestamp_ms: 1e", "leave it out"),
    ('{"value": null, "timestamp_type": "log"}', 'line 2: timestamp_type: "log"', "create or append"),
    ('{"value": null, "headers": {"a": "b"}}', 'line 2: headers: {"a":"b"} is not a list', '[["name", "value"], …]'),
    ('{"value": null, "headers": [["a"]]}', 'line 2: headers[0]: ["a"]', '[["name", "value"], …]'),
    ('{"value": null, "headers": [["a", 1]]}', "line 2: headers[0]: 1 is neither", "base64"),
    ('{"value": "\\ud800"}', "line 2: not JSON", "Every line"),
]


def test_a_name_of_a_header_that_is_no_text_is_base64_as_a_value_is() -> None:
    line = b'{"value": "v", "headers": [[{"base64": "//4="}, "a"], ["", null], ["\xc3\xb8", "b"]]}\n'
    (batch,) = parse_records([line], source="here")
    names = [decode_text_as_name(one["key"]) for one in batch.column("headers")[0].as_py()]
    assert names == [b"\xff\xfe", b"", "ø".encode()]
    placed = {"partition": 0, "offset": 0, "timestamp_ms": 1, **batch.to_pylist()[0]}
    (written,) = dump_records(pa.RecordBatch.from_pylist([placed | {"partition": 0, "timestamp_ms": 1}], RECORD_SCHEMA))
    assert b'"headers":[[{"base64":"//4="},"a"],["",null],["\xc3\xb8","b"]]' in written


@pytest.mark.parametrize(("line", "problem", "hint"), REFUSED)
def test_a_bad_line_is_named_with_its_number_its_field_and_the_fix(line: str, problem: str, hint: str) -> None:
    with pytest.raises(UserError) as refused:
        list(parse_records([b'{"value": "fine"}\n', f"{line}\n".encode()], source="flights.records"))
    assert refused.value.message.startswith("flights.records: line 2: ")
    assert problem in refused.value.message
    assert hint in refused.value.hint


def test_what_is_shown_of_a_long_bad_value_is_cut() -> None:
    with pytest.raises(UserError) as refused:
        list(parse_records([b'{"value": [' + b"1," * 1000 + b"1]}"], source="-"))
    assert len(refused.value.message) < 100


# Files of rows and records, read in a stream.


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
    assert detect_format(name) == form


@pytest.mark.parametrize("name", ["-", "flights", "flights.txt", ".csv", "flights.json"])
def test_a_name_that_does_not_tell_is_refused_with_the_option_that_does(name: str) -> None:
    with pytest.raises(UserError) as refused:
        detect_format(name)
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
    column = pa.array([b"fine", b"\xff", None])
    return pa.Array.from_buffers(pa.string(), 3, column.buffers())


@pytest.mark.parametrize(
    ("column", "keys"),
    [
        (pa.array(["N1", "", None]), [b"N1", b"", None]),
        (pa.array([1, -2, None], pa.int16()), [b"1", b"-2", None]),
        (pa.array([True, None, False]), [b"true", None, b"false"]),
        (pa.array([1.5, None, 2.0]), [b"1.5", None, b"2.0"]),
        (pa.array([1.5, float("nan"), float("inf")], pa.float32()), [b"1.5", None, None]),
        (pa.array([b"\xff", None, b""]), [b"\xff", None, b""]),
        (pa.array([1357016400, None, 0], pa.timestamp("s")), [b"2013-01-01T05:00:00Z", None, b"1970-01-01T00:00:00Z"]),
        (pa.array(["1.20", None, "3"]).cast(pa.decimal128(6, 2)), [b"1.20", None, b"3.00"]),
        (pa.array(["a", None, "a"]).dictionary_encode(), [b"a", None, b"a"]),
        (pa.array([b"a", None, b"\xff"]).dictionary_encode(), [b"a", None, b"\xff"]),
        (pa.array([b"a", None, b"\xff"], pa.binary_view()), [b"a", None, b"\xff"]),
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


@pytest.mark.parametrize("zone", [None, "Europe/Berlin"])
def test_a_nested_time_of_nanoseconds_is_written_as_any_other(zone: str | None) -> None:
    column = pa.array([[1357016400000000001]], pa.list_(pa.timestamp("ns", zone)))
    assert values(read(parquet(a=column), "parquet")) == [{"a": ["2013-01-01T05:00:00.000000001Z"]}]


def test_a_byte_order_mark_is_no_part_of_the_first_row() -> None:
    assert values(read(b'\xef\xbb\xbf{"a": 1}\r\n{"a": 2}\n', "jsonl")) == [{"a": 1}, {"a": 2}]


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


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (["00123", "7"], ["00123", "7"]),
        (["-07", "0"], ["-07", "0"]),
        (["89441000304019472051", "1"], ["89441000304019472051", "1"]),
        (["+4917012345678", "1"], ["+4917012345678", "1"]),
        (["1700000000123456789", "0"], [1700000000123456789, 0]),
        (["6.02e23", "0.30000000000000004"], [6.02e23, 0.30000000000000004]),
        (["+1.5", "-0.5"], [1.5, -0.5]),
        (["", "7"], [None, 7]),
    ],
)
def test_a_csv_column_that_would_lose_digits_as_numbers_is_text(cells: list[str], expected: list[Any]) -> None:
    rows = read("\n".join(["n,o", *(f"{cell},x" for cell in cells)]).encode(), "csv")
    assert [row["n"] for row in values(rows)] == expected


def test_the_types_of_a_long_csv_file_are_those_of_its_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_BLOCK", 1000)
    content = b"a,b,c\n" + b"".join(b"%d,,%05d\n" % (number, number) for number in range(2_000))
    rows = [
        orjson.loads(value)
        for batch in read_input(Input(io.BytesIO(content), "in.csv", "csv"))
        for value in batch.column("value").to_pylist()
    ]
    assert rows == [{"a": number, "b": None, "c": f"{number:05}"} for number in range(2_000)]


def test_csv_is_read_from_a_pipe_too() -> None:
    reading, writing = os.pipe()
    with os.fdopen(writing, "wb") as sink:
        sink.write(b"a,b\n1,\n2,x\n")
    with os.fdopen(reading, "rb") as stream:
        assert values(read(stream, "csv")) == [{"a": 1, "b": None}, {"a": 2, "b": "x"}]


def test_a_csv_column_that_is_empty_at_first_may_hold_anything_later_from_a_pipe_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(files, "_BLOCK", 100)
    reading, writing = os.pipe()
    with os.fdopen(writing, "wb") as sink:
        sink.write(b"a,b\n" + b"1,\n" * 100 + b"2,x\n")
    with os.fdopen(reading, "rb") as stream:
        assert values(read(stream, "csv"))[-1] == {"a": 2, "b": "x"}


# -- bad input

REFUSED_INPUTS: list[tuple[str, Callable[[], Rows], str, str]] = [
    ("bad json", lambda: read(b'{"a": 1}\n{"a": }\n', "jsonl"), "in: line 2: not JSON: ", "--input-format"),
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
        "a key with more digits than are kept",
        lambda: read(b'{"id": 1}\n{"id": 89441000304019472051}\n', "jsonl", key="id"),
        "in: line 2: id: a number with too many digits for a key",
        "Write it as text",
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
        "a number that is larger than any time",
        lambda: read(parquet(t=pa.array([5, 1 << 63], pa.uint64())), "parquet", timestamp="t"),
        "in: row 2: t: 9223372036854775808 is not a time since 1970",
        "ISO 8601",
    ),
    (
        "time before 1970",
        lambda: read(parquet(t=pa.array([5, -1])), "parquet", timestamp="t"),
        "in: row 2: t: -1 is not a time since 1970",
        "ISO 8601",
    ),
    (
        "the lowest time of all, which stands for none in some files",
        lambda: read(parquet(t=pa.array([5, -(1 << 63)], pa.timestamp("ns"))), "parquet", timestamp="t"),
        "in: row 2: t: -9223372036854 is not a time since 1970",
        "ISO 8601",
    ),
    (
        "time just before 1970",
        lambda: read(parquet(t=pa.array([5, None, -1], pa.timestamp("us"))), "parquet", timestamp="t"),
        "in: row 3: t: -1 is not a time since 1970",
        "ISO 8601",
    ),
    (
        "time that is not text",
        lambda: read(parquet(t=not_utf8()[1:]), "parquet", timestamp="t"),
        "in: row 1: t: string is not a time since 1970",
        "ISO 8601",
    ),
    (
        "times in a list",
        lambda: read(parquet(t=pa.array([[1 << 60]], pa.list_(pa.timestamp("us")))), "parquet", timestamp="t"),
        "in: row 1: t: list<element: timestamp[us]> is not a time since 1970",
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
    ("not Parquet", lambda: read(b"a,b\n1,2\n", "parquet"), "in: not a readable Parquet file: ", "--input-format"),
    (
        "cut Parquet",
        lambda: read(parquet(a=list(range(1000)))[:-20], "parquet"),
        "in: not a readable Parquet file: ",
        "write the file again",
    ),
    (
        "damaged Parquet",
        lambda: read(damaged(parquet(a=[str(n) for n in range(1000)])), "parquet"),
        "in: not a readable Parquet file: ",
        "write the file again",
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
    (
        "a map whose keys are bytes",
        lambda: read(parquet(a=pa.array([[(b"k", 1)]], pa.map_(pa.binary(), pa.int64()))), "parquet"),
        "in: rows 1 to 1 cannot be written as JSON: ",
        "keys of maps text or numbers",
    ),
    (
        "a nested time beyond the calendar",
        lambda: read(parquet(a=pa.array([[1 << 60]], pa.list_(pa.timestamp("us")))), "parquet", key="a"),
        "in: rows 1 to 1 cannot be written as JSON: ",
        "times of the years 1 to 9999",
    ),
    (
        "a time that no text says",
        lambda: read(parquet(a=pa.array([0, 10**15], pa.timestamp("ms"))), "parquet"),
        "in: rows 1 to 2 cannot be written as JSON: a time is after the year 32767",
        "others up to 32767",
    ),
    (
        "a date without an end",
        lambda: read(parquet(a=pa.array([(1 << 31) - 1], pa.date32())), "parquet", key="a"),
        "in: rows 1 to 1 cannot be written as JSON: a time is after the year 32767",
        "others up to 32767",
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
    ("reading", "problem", "hint"), [case[1:] for case in REFUSED_INPUTS], ids=[case[0] for case in REFUSED_INPUTS]
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


@pytest.mark.thorough
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


# Records written out, in a stream.


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


# Names of headers as text: every name has one, no two have the same.


MARKS = [b"\xf4\x8f\x9e\x80", b"\xf4\x8f\x9f\xbf", b"\xf4", b"\x8f", b"\x9e", b"\xff", b"a", b"\0", "ø".encode()]
NAMES = st.one_of(st.binary(), st.lists(st.sampled_from(MARKS)).map(b"".join))


@given(NAMES)
@example(b"\xed\xa0\x80")
def test_every_name_comes_back_from_its_text(name: bytes) -> None:
    text = encode_name_as_text(name)
    assert decode_text_as_name(text) == name
    assert text.encode().decode() == text


@given(st.text())
def test_a_name_that_is_text_is_its_own(text: str) -> None:
    if not any(0x10F780 <= ord(one) <= 0x10F7FF for one in text):
        assert encode_name_as_text(text.encode()) == text


@given(st.lists(NAMES))
def test_a_column_has_names_as_text_whether_they_came_decoded_or_not(names: list[bytes]) -> None:
    def taken(name: bytes) -> str | bytes:
        try:
            return name.decode()
        except UnicodeDecodeError:
            return name

    column = to_name_column([taken(name) for name in names])
    assert [decode_text_as_name(text) for text in column.to_pylist()] == names


def test_python_gets_a_name_as_it_does_those_of_files() -> None:
    assert decode_name(encode_name_as_text(b"a\xff\xc3\xb8")) == "a\udcffø"


@pytest.mark.parametrize("other", [b"\xfe", b"\\xff", "\U0010f7ff".encode(), "�".encode(), "ÿ".encode(), b""])
def test_records_with_different_names_have_different_digests(other: bytes) -> None:
    assert digest(b"\xff") != digest(other)


def digest(name: bytes) -> object:
    row = {"partition": 0, "offset": 0, "timestamp_ms": 0, "timestamp_type": 0, "key": None, "value": None}
    headers = [{"key": encode_name_as_text(name), "value": b""}]
    return compute_digest(pa.RecordBatch.from_pylist([row | {"headers": headers}], RECORD_SCHEMA), base=0)


@pytest.mark.parametrize(
    "cells", [[-(1 << 63)], [-float(1 << 63)], pa.array([-(1 << 63)]), pa.array([-float(1 << 63)])]
)
def test_the_lowest_time_of_all_is_one_before_1970(cells: Any) -> None:
    with pytest.raises(BadTimeError, match="is before 1970"):
        to_milliseconds(cells)
