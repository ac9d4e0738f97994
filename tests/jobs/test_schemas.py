"""Schemas of a user's own: which of them a read and a write take."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from reconciler.errors import UserError
from reconciler.jobs.scan import COLUMNS, build_ddl, check_schema
from reconciler.jobs.source import check_rows
from tests.jobs.doubles import fill
from tests.jobs.test_topic_stream import source

if TYPE_CHECKING:
    from reconciler.embedded.cluster import EmbeddedCluster


def headers(*, name: bool, value: bool, elements: bool = True) -> ArrayType:
    """Return the type of headers; what may be null is said of each part of it."""
    header = StructType([StructField("key", StringType(), name), StructField("value", BinaryType(), value)])
    return ArrayType(header, elements)


@pytest.mark.parametrize(
    "column",
    [
        StructField("value", BinaryType(), nullable=False),
        StructField("key", BinaryType(), nullable=False),
        StructField("headers", headers(name=True, value=True), nullable=False),
        StructField("headers", headers(name=True, value=False)),
    ],
    ids=["value", "key", "headers", "value of a header"],
)
@pytest.mark.parametrize("how", ["reader", "streamReader"])
def test_not_null_is_refused_of_what_may_be_null(west: EmbeddedCluster, how: str, column: StructField) -> None:
    fill(west, count=1)
    name, schema = column.name, StructType([StructField("offset", LongType(), nullable=False), column])
    message = f"column {name} of topic-log may hold nulls, and the schema declares it not null"
    with pytest.raises(UserError, match=message) as caught:
        getattr(source(west), how)(schema).initialOffset()
    assert f"Write {name} {COLUMNS[name].type} in .schema(…)" in caught.value.hint
    check_schema(schema.toNullable())


def test_not_null_is_taken_of_what_is_never_null() -> None:
    check_schema(
        StructType(
            [
                StructField("topic", StringType(), nullable=False),
                StructField("timestamp", TimestampType(), nullable=False),
                StructField("headers", headers(name=False, value=True, elements=False)),
            ]
        )
    )


def test_times_are_points_in_time_whatever_a_session_calls_a_timestamp() -> None:
    assert build_ddl({"columns": "timestamp, offset"}) == "timestamp timestamp_ltz not null, offset bigint not null"
    local = StructType([StructField("timestamp", TimestampNTZType()), StructField("value", BinaryType())])
    problem = "column timestamp of topic-log is of type timestamp, not timestamp_ntz"
    with pytest.raises(UserError, match=re.escape(f"{problem}. Write timestamp timestamp_ltz in .schema(…)")):
        check_schema(local)
    problem = "topic-log writes column timestamp of type timestamp, not timestamp_ntz"
    with pytest.raises(UserError, match=re.escape(f"{problem}. Cast it first, cast(timestamp as timestamp_ltz).")):
        check_rows(local)


def test_a_column_that_is_asked_for_twice_is_refused() -> None:
    twice = StructType([StructField("key", BinaryType()), StructField("key", BinaryType())])
    for asked in (lambda: build_ddl({"columns": "offset, key, key"}), lambda: check_schema(twice)):
        with pytest.raises(UserError, match="column key is requested twice"):
            asked()


def test_headers_may_be_left_out_as_sparks_kafka_source_leaves_them_out() -> None:
    everything, short = build_ddl({}), build_ddl({"includeheaders": "false"})
    assert build_ddl({"includeheaders": "true"}) == everything
    assert everything == f"{short}, headers {COLUMNS['headers'].type}"
    assert build_ddl({"includeheaders": "false", "columns": "headers"}) == f"headers {COLUMNS['headers'].type}"
    with pytest.raises(UserError, match="option includeHeaders of topic-log is true or false, not 'yes'"):
        build_ddl({"includeheaders": "yes"})
