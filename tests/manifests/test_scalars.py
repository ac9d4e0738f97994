from __future__ import annotations

import math
import re
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from reconciler.manifests.positions import is_text, parse_plain_scalar
from reconciler.manifests.yaml_documents import parse_yaml


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        *[(text, None) for text in ("", "~", "null", "Null", "NULL")],
        *[(text, True) for text in ("true", "True", "TRUE")],
        *[(text, False) for text in ("false", "False", "FALSE")],
        *[(text, text) for text in ("yes", "no", "on", "off", "y", "n", "Yes", "ON", "tRUE", "nULL")],
        *[("12", 12), ("-12", -12), ("+12", 12), ("012", 12), ("0", 0), ("-0", 0), ("0x1F", 31), ("0o17", 15)],
        *[
            (text, text)
            for text in ("0b11", "1_000", "1:30", "12:30:45", "0x", "0o8", "0X1F", "-0x1F", "1 2", "+", "-", ".")
        ],
        *[("1.5", 1.5), (".5", 0.5), ("1.", 1.0), ("1e3", 1000.0), ("-1.5E-3", -0.0015), (".inf", math.inf)],
        *[
            (text, text)
            for text in ("2026-01-31", "2026-01-31T00:00:00Z", "1.2.3", "e3", ".e3", "inf", "nan", "=", "<<")
        ],
        ("9" * 41, "9" * 41),
    ],
)
def test_a_plain_scalar_means_what_yaml_1_2_says(text: str, meant: Any) -> None:
    assert parse_plain_scalar(text) == meant
    assert type(parse_plain_scalar(text)) is type(meant)


def test_not_a_number_is_a_number() -> None:
    assert math.isnan(parse_plain_scalar(".nan"))  # type: ignore[arg-type] # a float


@given(st.text(alphabet="0123456789+-.eExXoOabfF_:", max_size=12))
def test_numbers_are_those_of_the_core_schema_and_no_others(text: str) -> None:
    is_number = re.fullmatch(
        r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+|[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", text
    )
    assert isinstance(parse_plain_scalar(text), int | float) == (is_number is not None)


LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20)
TREES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=20,
)


@given(TREES)
def test_what_json_writes_is_read_as_what_it_was(tree: Any) -> None:
    text = yaml.dump(tree, Dumper=yaml.CSafeDumper, default_style='"', allow_unicode=False)
    documents = parse_yaml(text.encode(), "f").documents
    expected = yaml.load(text, Loader=yaml.CSafeLoader)
    assert [document.content for document in documents] == ([expected] if expected is not None else [])


@given(st.text(max_size=12))
def test_what_is_text_without_quotes_is_read_as_that_text(text: str) -> None:
    if is_text(text) and re.fullmatch(r"[A-Za-z0-9_.+-]+", text) and text not in {"-", "---"}:
        (document,) = parse_yaml(f"key: {text}".encode(), "f").documents
        assert document.content == {"key": text}


_VALUES = (
    *("a", "1", "012", "0x1F", "true", "null", "~", "a b", "a:b", "a: b", "a # b", "a#b", "1:30", "http://x/y", "-1"),
    *('"a: b"', '"a # b"', '"\\n"', "'a'", "&x a", "*x", "!!str 1", "|", ">-", "- a", "${var.x}", "[a, b]", "[a, [b]]"),
    *("{a: b}", "{ a: 1, b: 'c' }", "{a: b, a: c}", '{a: "b, c: d"}', "{a: file://b}", "{a}", "[a: b]", "[1, true]"),
)
_LINES = st.one_of(
    st.sampled_from(["---", "...", "", "  ", "# c", "  # c", "%YAML 1.2", "\t", "- a", "  a", "? a"]),
    st.builds(
        "{}{}:{}{}".format,
        st.sampled_from(["", "", "  ", "    ", " "]),
        st.sampled_from(["a", "b", "c.d", "e-f", "true", "<<", '"g"', "1"]),
        st.one_of(st.just(""), st.sampled_from(_VALUES).map(" {}".format)),
        st.sampled_from(["", "", " ", " # c"]),
    ),
)


@given(st.lists(_LINES, max_size=8).map("\n".join))
def test_a_file_of_simple_lines_means_what_the_whole_parser_reads(text: str) -> None:
    parsed = parse_yaml(text.encode(), "f")
    # Only ASCII is read line by line.
    whole = parse_yaml(f"{text}\n# é\n".encode(), "f")
    if not parsed.problems:
        assert repr(parsed) == repr(whole)
