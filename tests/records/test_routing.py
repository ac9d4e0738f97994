"""Records on their way to partitions."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.errors import UserError
from reconciler.records.hashes import RoundRobinPosition, assign_partitions, split_by_partition
from reconciler.records.schema import INPUT_SCHEMA, RECORD_SCHEMA
from tests.records.generated import contents, headers

rows = st.lists(
    st.fixed_dictionaries(
        {
            "partition": st.none() | st.integers(0, 4),
            "timestamp_ms": st.none() | st.integers(0, 2**50),
            "timestamp_type": st.integers(0, 1),
            "key": contents,
            "value": contents,
            "headers": headers,
        }
    ),
    max_size=30,
)


def split(given_rows: list[dict[str, Any]], partitions: int = 5) -> dict[int, list[dict[str, Any]]]:
    batch = pa.RecordBatch.from_pylist(given_rows, schema=INPUT_SCHEMA)
    found: dict[int, list[dict[str, Any]]] = {}
    for partition, records in split_by_partition(batch, partitions=partitions, now_ms=77, spread=RoundRobinPosition()):
        assert records.schema.equals(RECORD_SCHEMA)
        assert partition not in found
        found[partition] = records.to_pylist()
    return found


@given(rows)
def test_every_record_goes_where_it_says_or_where_its_key_says_in_order(given_rows: list[dict[str, Any]]) -> None:
    free = [row for row in given_rows if row["partition"] is None]
    chosen = iter(
        assign_partitions(
            pa.array([row["key"] for row in free], pa.binary()), 5, state=RoundRobinPosition()
        ).to_pylist()
    )
    expected: dict[int, list[dict[str, Any]]] = {}
    for row in given_rows:
        partition = next(chosen) if row["partition"] is None else row["partition"]
        waiting = expected.setdefault(partition, [])
        time = 77 if row["timestamp_ms"] is None else row["timestamp_ms"]
        waiting.append({**row, "partition": partition, "offset": len(waiting), "timestamp_ms": time})
    assert split(given_rows) == expected


@given(rows)
def test_partitions_come_lowest_first(given_rows: list[dict[str, Any]]) -> None:
    assert list(split(given_rows)) == sorted(split(given_rows))


def test_a_partition_the_topic_does_not_have_is_refused() -> None:
    row = {"partition": 5, "timestamp_ms": 1, "timestamp_type": 0, "key": None, "value": None, "headers": []}
    with pytest.raises(UserError, match="partition 5: the topic does not have it") as refused:
        split([row])
    assert "0 to 4" in refused.value.hint
