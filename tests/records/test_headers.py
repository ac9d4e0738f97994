"""Names of headers as text: every name has one, no two have the same."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from reconciler.records.hashes import digest_of
from reconciler.records.schema import RECORD_SCHEMA, decoded, name_of, text_of, texts_of

MARKS = [b"\xf4\x8f\x9e\x80", b"\xf4\x8f\x9f\xbf", b"\xf4", b"\x8f", b"\x9e", b"\xff", b"a", b"\0", "ø".encode()]
NAMES = st.one_of(st.binary(), st.lists(st.sampled_from(MARKS)).map(b"".join))


@given(NAMES)
@example(b"\xed\xa0\x80")
def test_every_name_comes_back_from_its_text(name: bytes) -> None:
    text = text_of(name)
    assert name_of(text) == name
    assert text.encode().decode() == text


@given(st.text())
def test_a_name_that_is_text_is_its_own(text: str) -> None:
    if not any(0x10F780 <= ord(one) <= 0x10F7FF for one in text):
        assert text_of(text.encode()) == text


@given(st.lists(NAMES))
def test_a_column_has_names_as_text_whether_they_came_decoded_or_not(names: list[bytes]) -> None:
    def taken(name: bytes) -> str | bytes:
        try:
            return name.decode()
        except UnicodeDecodeError:
            return name

    column = texts_of([taken(name) for name in names])
    assert [name_of(text) for text in column.to_pylist()] == names


def test_python_gets_a_name_as_it_does_those_of_files() -> None:
    assert decoded(text_of(b"a\xff\xc3\xb8")) == "a\udcffø"


@pytest.mark.parametrize("other", [b"\xfe", b"\\xff", "\U0010f7ff".encode(), "�".encode(), "ÿ".encode(), b""])
def test_records_with_different_names_have_different_digests(other: bytes) -> None:
    assert digest(b"\xff") != digest(other)


def digest(name: bytes) -> object:
    row = {"partition": 0, "offset": 0, "timestamp_ms": 0, "timestamp_type": 0, "key": None, "value": None}
    headers = [{"key": text_of(name), "value": b""}]
    return digest_of(pa.RecordBatch.from_pylist([row | {"headers": headers}], RECORD_SCHEMA), base=0)
