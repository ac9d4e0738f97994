"""A topic on a broker is profiled like any other."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from reconciler.jobs.profile import compute_profile
from reconciler.records.log import OffsetRange
from tests.jobs.kafka.copies import Place, produce

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.thorough]


def test_a_kafka_topic_is_profiled_up_to_its_last_stable_offset(place: Place, spark: SparkSession) -> None:
    topic = place.create("orders", 2)
    produce(place, topic, 200, partitions=2, each=30)
    log = place.open_log(topic)
    found = compute_profile(lambda: spark, log)
    batches = [
        batch
        for number, at in log.read_bounds().items()
        for batch in log.read(number, OffsetRange(at.start, at.stable))
    ]
    rows = [row for batch in batches for row in batch.to_pylist()]
    assert found.counts.records == len(rows) > 0
    assert found.keys == len({row["key"] for row in rows if row["key"] is not None})
    assert found.counts.tombstones == sum(row["value"] is None and row["key"] is not None for row in rows)
    assert [each.counts.records for each in found.partitions] == [
        sum(row["partition"] == number for row in rows) for number in range(2)
    ]
