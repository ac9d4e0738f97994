import json

import pyarrow as pa
import pytest
from hypothesis import example, given

from reconciler.errors import UserError
from reconciler.records.json_lines import from_lines, to_lines
from reconciler.records.schema import INPUT_SCHEMA, RECORD_SCHEMA, name_of
from tests.records.generated import batch_of, batches

PLAIN = {"timestamp_ms": 5, "timestamp_type": 0, "key": b"k", "value": b"v", "headers": []}
AWKWARD = "a\nb\rc\u2028d\u2029e\x85f\x0bg\x0ch\x1ci\x1dj\x1ek\x00"


def lines_of(*rows: dict) -> list[bytes]:
    return list(to_lines(batch_of(list(rows))))


@given(batches())
@example(batch_of([{**PLAIN, "value": bytes(range(256)), "key": AWKWARD.encode()}]))
def test_what_is_written_is_read_back_exactly(batch: pa.RecordBatch) -> None:
    read = list(from_lines(to_lines(batch), source="-"))
    found = pa.Table.from_batches(read, INPUT_SCHEMA)
    expected = pa.table(batch.drop_columns(["offset"]).to_pydict(), schema=INPUT_SCHEMA)
    assert found.equals(expected)


@given(batches())
def test_every_reader_of_lines_sees_one_line_a_record(batch: pa.RecordBatch) -> None:
    text = b"".join(to_lines(batch)).decode()
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
    (batch,) = from_lines([b'\xef\xbb\xbf{"value": "v"}\r\n', b"\n"], source="-")
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
    ('{"value": null, "timestamp_ms": 1e30}', "line 2: timestamp_ms: 1e+30", "leave it out"),
    ('{"value": null, "timestamp_type": "log"}', 'line 2: timestamp_type: "log"', "create or append"),
    ('{"value": null, "headers": {"a": "b"}}', 'line 2: headers: {"a":"b"} is not a list', '[["name", "value"], …]'),
    ('{"value": null, "headers": [["a"]]}', 'line 2: headers[0]: ["a"]', '[["name", "value"], …]'),
    ('{"value": null, "headers": [["a", 1]]}', "line 2: headers[0]: 1 is neither", "base64"),
    ('{"value": "\\ud800"}', "line 2: not JSON", "Every line"),
]


def test_a_name_of_a_header_that_is_no_text_is_base64_as_a_value_is() -> None:
    line = b'{"value": "v", "headers": [[{"base64": "//4="}, "a"], ["", null], ["\xc3\xb8", "b"]]}\n'
    (batch,) = from_lines([line], source="here")
    names = [name_of(one["key"]) for one in batch.column("headers")[0].as_py()]
    assert names == [b"\xff\xfe", b"", "ø".encode()]
    placed = {"partition": 0, "offset": 0, "timestamp_ms": 1, **batch.to_pylist()[0]}
    (written,) = to_lines(pa.RecordBatch.from_pylist([placed | {"partition": 0, "timestamp_ms": 1}], RECORD_SCHEMA))
    assert b'"headers":[[{"base64":"//4="},"a"],["",null],["\xc3\xb8","b"]]' in written


@pytest.mark.parametrize(("line", "problem", "hint"), REFUSED)
def test_a_bad_line_is_named_with_its_number_its_field_and_the_fix(line: str, problem: str, hint: str) -> None:
    with pytest.raises(UserError) as refused:
        list(from_lines([b'{"value": "fine"}\n', f"{line}\n".encode()], source="flights.records"))
    assert refused.value.message.startswith("flights.records: line 2: ")
    assert problem in refused.value.message
    assert hint in refused.value.hint


def test_what_is_shown_of_a_long_bad_value_is_cut() -> None:
    with pytest.raises(UserError) as refused:
        list(from_lines([b'{"value": [' + b"1," * 1000 + b"1]}"], source="-"))
    assert len(refused.value.message) < 100
