"""What is closed and stable is copied to object storage, each segment once."""

from __future__ import annotations

import pyarrow.parquet as pq
import pytest
from pyarrow import BufferReader

from reconciler.embedded.keys import index_key
from reconciler.embedded.upkeep.passes import Tended
from reconciler.records.log import OffsetRange
from tests.embedded.tiered import tiered
from tests.embedded.upkeeping import head_of


@pytest.mark.fact("F-R-030")
@pytest.mark.fact("F-K-040")
def test_closed_segments_are_uploaded_and_the_open_one_is_not() -> None:
    tier = tiered()
    tier.fill(5)
    done = tier.upload()
    assert (done.partitions, done.records, done.failed) == (1, 8, 0)
    manifest = tier.manifest()
    assert [(entry.base, entry.last) for entry in manifest.entries] == [(0, 3), (4, 7)]
    assert (manifest.start, manifest.end, head_of(tier.cluster).uploaded_to) == (0, 8, 8)
    for entry in manifest.entries:
        stored, index = tier.storage.get(entry.key), tier.storage.get(index_key(entry.key))
        assert stored is not None
        assert index is not None
        assert len(stored.body) == entry.bytes
        assert stored.body.endswith(index.body)
        assert pq.read_metadata(BufferReader(index.body)).num_rows == 4
    assert tier.upload() == Tended()
    assert OffsetRange(0, 8)
