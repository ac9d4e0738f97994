"""The ground floor of embedded clusters: appending, reading, many writers, long partitions, a bucket."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from measuring import Row, Scale, as_strings, compared, script

SEVEN_TENTHS, EIGHT_TENTHS = 1 / 0.7, 1 / 0.8
"""Aims: 0.7 and 0.8 times the speed of the floor."""
AS_FAST = 1.2


def rows(scale: Scale, scratch: Path) -> Iterator[Row]:
    parts = scale.of(100_000, 2_000)
    numbers = as_strings((scratch / "logs", scale.of(40, 4), scale.of(5, 1), parts))
    found = json.loads(script("probes/log.py", *numbers).output)
    what = "append batches of 1 MiB to one partition"
    yield compared(
        f"{what}, in a folder", "writing and fsyncing such Parquet files", found["directory"], aim=SEVEN_TENTHS
    )
    yield compared(f"{what}, in a bucket", "putting such Parquet files", found["s3"], aim=SEVEN_TENTHS)
    yield compared("read them", "pyarrow on the same files", found["reading"], aim=EIGHT_TENTHS)
    against = "16 threads that write and fsync such Parquet files"
    yield compared("16 writers on 16 partitions", against, found["writers"], aim=SEVEN_TENTHS)
    for verb in ("append to", "read"):
        medians = {"ours": found["parts"][f"{verb} long"], "floor": found["parts"][f"{verb} empty"]}
        what = f"{verb} a partition of {parts:,} parts"
        yield compared(what, "the same with a partition of one", medians, aim=AS_FAST)
