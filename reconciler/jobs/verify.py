"""Comparing two logs: per partition how many records, the first and last offset, and a digest.

By default digests that the logs keep are added up, which reads no whole parts; `deep` reads every record, in Spark
where there is a session.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from reconciler.jobs.comparison import Comparison, Tally, pairs
from reconciler.jobs.differing import first_difference
from reconciler.jobs.progress import unseen
from reconciler.jobs.reading import DeepReading, Watch, kept_readings
from reconciler.jobs.superseding import explained

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql import SparkSession

    from reconciler.jobs.comparison import Pair, PartitionComparison
    from reconciler.jobs.progress import Report
    from reconciler.jobs.reading import Reading
    from reconciler.records.log import OffsetRange, TopicLog

_LOCATED: Final = 10
"""Of how many partitions it is looked up where they begin to differ."""


def verify(
    session: SparkSession | None,
    left: TopicLog,
    right: TopicLog,
    *,
    deep: bool = False,
    since: Mapping[int, int] | None = None,
    progress: Report = unseen,
) -> Comparison:
    """Compare two logs up to their last stable offsets as they are now.

    `session` is used only when `deep`; without one the records are read here. Where a partition was compacted, kept
    digests tell less, and records are read to see that what only one log has is superseded in the other; `since` says
    from which offset on that is of interest.

    Raises:
        UserError: A log is gone, or an executor does not see it.
        RetryableError: Spark gave up.
    """
    both = tuple(
        pair.since((since or {}).get(pair.partition, 0)) if pair.is_compacted else pair
        for pair in pairs(left.bounds(), right.bounds())
    )
    if deep:
        readings = list(DeepReading(left, right, both, Watch(progress, time.monotonic)).readings(session))
    else:
        readings = list(kept_readings(left, right, both))
    tallies = _tallied(both, readings)
    at = _first_differing(both, readings)
    results = [_compared(left, right, pair, *tallies[pair.partition]) for pair in both]
    return Comparison(tuple(_located(left, right, results, at, is_deep=deep)), deep)


def _compared(left: TopicLog, right: TopicLog, pair: Pair, ours: Tally, theirs: Tally) -> PartitionComparison:
    """Return what differs of one partition; what compaction explains does not."""
    found = pair.compared(ours, theirs)
    if not pair.is_compacted or ours.common == theirs.common:
        return found
    why = explained(left, right, pair)
    if why.first_difference is not None:
        return replace(found, first_difference=why.first_difference)
    rest = tuple(difference for difference in found.differences if difference not in {"records", "digest"})
    return replace(found, differences=rest, superseded=why.superseded)


def _tallied(both: Sequence[Pair], readings: Sequence[Reading]) -> dict[int, tuple[Tally, Tally]]:
    common = {pair.partition: pair.common for pair in both}
    tallies = {pair.partition: (Tally(), Tally()) for pair in both}
    for reading in readings:
        is_common = common[reading.partition].holds(reading.offsets)
        for tally, digest in zip(tallies[reading.partition], (reading.left, reading.right), strict=True):
            tally.add(digest, is_common=is_common)
    return tallies


def _first_differing(both: Sequence[Pair], readings: Sequence[Reading]) -> dict[int, OffsetRange]:
    """Return the first range of each partition, among what both logs have, that is not the same."""
    common = {pair.partition: pair.common for pair in both}
    first: dict[int, OffsetRange] = {}
    for reading in readings:
        if reading.left != reading.right and common[reading.partition].holds(reading.offsets):
            first[reading.partition] = min(reading.offsets, first.get(reading.partition, reading.offsets))
    return first


def _located(
    left: TopicLog,
    right: TopicLog,
    results: Sequence[PartitionComparison],
    at: Mapping[int, OffsetRange],
    *,
    is_deep: bool,
) -> Iterator[PartitionComparison]:
    """Add to the first partitions whose records differ where they begin to."""
    looked_for = sorted(at)[:_LOCATED]
    for result in results:
        is_open = {"records", "digest"} & set(result.differences) and result.first_difference is None
        if is_open and result.partition in looked_for:
            found = first_difference(left, right, result.partition, at[result.partition], is_deep=is_deep)
            yield replace(result, first_difference=found)
        else:
            yield result
