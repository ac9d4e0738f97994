"""One step with a tiered topic in a process of its own, which says how much memory it took: FOLDER STEP [MIB]."""

from __future__ import annotations

import random
import resource
import sys
from pathlib import Path

import pyarrow as pa

from reconciler.embedded.cluster import EmbeddedCluster
from reconciler.objectstore.directory import DirectoryStore
from reconciler.records.log import OffsetRange
from reconciler.records.schema import RECORD_SCHEMA
from tests.embedded.samples import NOW, ids

TOPIC = "orders"
ROWS, ROW_BYTES = 2048, 1024
CONFIGS = {
    "segment.bytes": str(16 * 1024 * 1024),
    "remote.write": "true",
    "remote.read": "true",
    "retention.ms": "-1",
    "retention.local.strict": "true",
    "retention.local.target.bytes": "1",
}


def main() -> None:
    """Do one step, and print the peak of this process in MiB."""
    folder, step = Path(sys.argv[1]), sys.argv[2]
    cluster = EmbeddedCluster.create(
        DirectoryStore(folder / "store"), now_ms=lambda: NOW, new_id=ids(), storage=DirectoryStore(folder / "storage")
    )
    match step:
        case "fill":
            cluster.alter_cluster({"cloud_storage_enabled": "true"})
            cluster.create_topic(TOPIC, configs=CONFIGS)
            sink = cluster.sink(TOPIC)
            for first in range(0, int(sys.argv[3]) * 1024 * 1024 // ROW_BYTES, ROWS):
                sink.publish([sink.stage(0, [_batch(first)], at=OffsetRange(first, first + ROWS))])
        case "upload":
            assert cluster.upkeep().upload().errors == []
            assert cluster.upkeep().retain().errors == []
        case "read":
            log = cluster.log(TOPIC)
            bounds = log.read_bounds()[0]
            assert bounds.local_start > bounds.end // 2
            read = sum(batch.num_rows for batch in log.read(0, OffsetRange(0, bounds.local_start)))
            assert read == bounds.local_start
        case _:
            raise SystemExit(step)
    sys.stdout.write(str(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024))


def _batch(first: int) -> pa.RecordBatch:
    noise = random.Random(first)  # noqa: S311 - only noise
    rows = [
        {
            "partition": 0,
            "offset": offset,
            "timestamp_ms": NOW,
            "timestamp_type": 0,
            "key": None,
            "value": noise.randbytes(ROW_BYTES),
            "headers": [],
        }
        for offset in range(first, first + ROWS)
    ]
    return pa.RecordBatch.from_pylist(rows, schema=RECORD_SCHEMA)


if __name__ == "__main__":
    main()
