"""Hypothesis strategies for records of every shape."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import strategies as st

from reconciler.records.schema import RECORD_SCHEMA, encode_name_as_text

contents = st.none() | st.binary(max_size=40) | st.text(max_size=20).map(str.encode)
names = st.binary(max_size=8).map(encode_name_as_text) | st.text(max_size=8).map(
    lambda text: encode_name_as_text(text.encode())
)
headers = st.lists(st.fixed_dictionaries({"key": names, "value": contents}), max_size=3)
timestamps = st.integers(0, 2**62)
records = st.fixed_dictionaries(
    {
        "timestamp_ms": timestamps,
        "timestamp_type": st.integers(0, 1),
        "key": contents,
        "value": contents,
        "headers": headers,
    }
)


def batch_of(rows: list[dict[str, object]], offsets: list[int] | None = None, partition: int = 0) -> pa.RecordBatch:
    """Return records as a batch, at the offsets given or from 0 on."""
    places = range(len(rows)) if offsets is None else offsets
    full = [{"partition": partition, "offset": offset, **row} for offset, row in zip(places, rows, strict=True)]
    return pa.RecordBatch.from_pylist(full, schema=RECORD_SCHEMA)


@st.composite
def batches(draw: st.DrawFn, min_size: int = 0, largest_step: int = 2**34) -> pa.RecordBatch:
    """Batches with ascending offsets and gaps between them."""
    rows = draw(st.lists(records, min_size=min_size, max_size=12))
    steps = draw(st.lists(st.integers(1, largest_step), min_size=len(rows), max_size=len(rows)))
    offsets, at = [], draw(st.integers(0, 2**40))
    for step in steps:
        offsets.append(at)
        at += step
    return batch_of(rows, offsets)
