"""The ground floor of embedded clusters: appending, reading, many writers, long partitions, a bucket."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from measuring import Row, Scale, as_strings, compared, script

SEVEN_TENTHS, EIGHT_TENTHS = 1 / 0.7, 1 / 0.8
"""Aims: 0.7 and 0.8 times the speed of the floor."""
AS_FAST = 1.2
TWO_WRITES = "Each append writes twice, one after the other: the records, then the head that makes them count."
WRITERS = f"{TWO_WRITES} What happens between the writes happens one thread at a time."


def rows(scale: Scale, scratch: Path) -> Iterator[Row]:
    parts = scale.of(100_000, 2_000)
    numbers = as_strings((scratch / "logs", scale.of(40, 4), scale.of(5, 1), parts))
    found = json.loads(script("probes/log.py", *numbers).output)
    what = "append batches of 1 MiB to one partition"
    for where, name, against in (
        ("folder", "directory", "writing and fsyncing such Parquet files"),
        ("bucket", "s3", "putting such Parquet files"),
    ):
        whole = f"{what}, in a {where}"
        yield compared(whole, against, found[name], aim=SEVEN_TENTHS, why=TWO_WRITES)
    yield compared("read them", "pyarrow on the same files", found["reading"], aim=EIGHT_TENTHS)
    against = "16 threads that write and fsync such Parquet files"
    what = "16 writers on 16 partitions"
    yield compared(what, against, found["writers"], aim=SEVEN_TENTHS, why=WRITERS)
    for verb in ("append to", "read"):
        medians = {"ours": found["parts"][f"{verb} long"], "floor": found["parts"][f"{verb} empty"]}
        what = f"{verb} a partition of {parts:,} parts"
        yield compared(what, "the same with a partition of one", medians, aim=AS_FAST)
