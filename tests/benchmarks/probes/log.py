"""Append and read beside the floor, in turns, and print seconds as JSON: FOLDER BATCHES ROUNDS PARTS."""

from __future__ import annotations

import json
import statistics
import sys
import time
import uuid
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from floors.parquet_files import put_objects, read, write_synced
from reconciler.embedded.cluster import EmbeddedCluster
from reconciler.embedded.segments.head import Head, PageWriter, head_register
from reconciler.objectstore.base import ObjectStore
from reconciler.objectstore.directory import DirectoryStore
from reconciler.objectstore.open import open_store
from reconciler.records.log import OffsetRange
from tests.servers.weed import S3Server

MIB = 1 << 20
RECORD_BYTES = 1024
WRITERS = 16
SPILLED_AT = 50


def main() -> None:
    folder, batches, rounds, parts = Path(sys.argv[1]), *map(int, sys.argv[2:])
    said = {
        "directory": in_turns(on_a_directory(folder / "append", batches), rounds),
        "reading": in_turns(reading(folder / "read", batches), rounds),
        "writers": in_turns(many_writers(folder / "writers", max(2, batches // 4)), rounds),
        "parts": in_turns(long_and_empty(folder / "parts", parts), rounds * 20),
    }
    with S3Server.start() as server:
        store = open_store(server.settings("ours"))
        said["s3"] = in_turns(in_a_bucket(store, server, batches), rounds)
    print(json.dumps(said))


def in_turns(subjects: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    times: dict[str, list[float]] = {name: [] for name in subjects}
    for _ in range(rounds):
        for name, subject in subjects.items():
            began = time.perf_counter()
            subject()
            times[name].append(time.perf_counter() - began)
    return {name: statistics.median(each) for name, each in times.items()}


def on_a_directory(folder: Path, batches: int) -> dict[str, Callable[[], object]]:
    cluster, batch = cluster_in(DirectoryStore(folder / "ours")), one_batch()
    cluster.create_topic("t")
    table = as_stored(batch)
    return {
        "floor": lambda: write_synced(folder / "floor", table, batches),
        "ours": lambda: append(cluster, 0, batch, batches),
    }


def in_a_bucket(store: ObjectStore, server: S3Server, batches: int) -> dict[str, Callable[[], object]]:
    cluster, batch, client = cluster_in(store), one_batch(), server.client()
    cluster.create_topic("t")
    table, bucket = as_stored(batch), server.url().removeprefix("s3://").strip("/").partition("/")[0]

    def put(key: str, body: bytes) -> None:
        client.put_object(Bucket=bucket, Key=f"floor/{key}", Body=body)

    return {"floor": lambda: put_objects(put, table, batches), "ours": lambda: append(cluster, 0, batch, batches)}


def reading(folder: Path, batches: int) -> dict[str, Callable[[], object]]:
    cluster = cluster_in(DirectoryStore(folder))
    cluster.create_topic("t")
    append(cluster, 0, one_batch(), batches)
    log = cluster.log("t")
    end = log.read_bounds()[0].end
    return {
        "floor": lambda: read(folder / "topics"),
        "ours": lambda: sum(batch.num_rows for batch in log.read(0, OffsetRange(0, end))),
    }


def many_writers(folder: Path, batches: int) -> dict[str, Callable[[], object]]:
    cluster, batch = cluster_in(DirectoryStore(folder / "ours")), one_batch()
    cluster.create_topic("t", partitions=WRITERS)
    table = as_stored(batch)

    def at_once(work: Callable[[int], None]) -> None:
        with ThreadPoolExecutor(WRITERS) as threads:
            list(threads.map(work, range(WRITERS)))

    return {
        "floor": lambda: at_once(lambda writer: write_synced(folder / f"floor-{writer}", table, batches)),
        "ours": lambda: at_once(lambda writer: append(cluster, writer, batch, batches)),
    }


def long_and_empty(folder: Path, parts: int) -> dict[str, Callable[[], object]]:
    cluster, batch = cluster_in(DirectoryStore(folder)), one_batch()
    for name in ("empty", "long"):
        cluster.create_topic(name)
        append(cluster, 0, batch, 1, to=name)
    lengthen(cluster, "long", parts)
    return {
        "append to empty": lambda: append(cluster, 0, batch, 1, to="empty"),
        "append to long": lambda: append(cluster, 0, batch, 1, to="long"),
        "read empty": lambda: read_last(cluster, "empty"),
        "read long": lambda: read_last(cluster, "long"),
    }


def lengthen(cluster: EmbeddedCluster, name: str, parts: int) -> None:
    """Let a partition name its first part many times over, as if it had been appended so often."""
    topic_id = cluster.topic(name).id
    register, spill = head_register(cluster.store, topic_id, 0), PageWriter(cluster.store, topic_id, 0)
    held = register.read()
    if held is None:
        raise SystemExit("nothing was appended")
    head = Head.from_json(held.value)
    first, length = head.entries[0], head.end
    for number in range(1, parts):
        base = number * length
        head = head.with_appended([replace(first, base=base, last=base + length - 1)], end=base + length)
        if number % SPILLED_AT == 0:
            head = spill.spill_entries(head)
    register.swap(held, spill.spill_entries(head).to_json())


def append(cluster: EmbeddedCluster, partition: int, batch: pa.RecordBatch, times: int, *, to: str = "t") -> None:
    records = batch.append_column("partition", pa.repeat(pa.scalar(partition, pa.int32()), batch.num_rows))
    producer = cluster.producer()
    for _ in range(times):
        producer.append(to, records)
        producer.flush()


def read_last(cluster: EmbeddedCluster, name: str) -> int:
    log = cluster.log(name)
    end = log.read_bounds()[0].end
    return sum(batch.num_rows for batch in log.read(0, OffsetRange(end - 1, end)))


def one_batch() -> pa.RecordBatch:
    """Return 1 MiB of records that do not compress: what is measured is writing, not zstd."""
    random, count = np.random.default_rng(1), MIB // RECORD_BYTES
    content = pa.py_buffer(random.bytes(MIB))
    ends = pa.py_buffer(np.arange(0, MIB + 1, RECORD_BYTES, dtype=np.int32))
    values = pa.Array.from_buffers(pa.binary(), count, [None, ends, content])
    return pa.RecordBatch.from_pydict({"value": values})


def as_stored(batch: pa.RecordBatch) -> pa.Table:
    """Return the same records with the columns a part has."""
    rows = batch.num_rows
    return pa.table(
        {
            "offset_delta": np.arange(rows),
            "timestamp_ms": np.full(rows, 1_700_000_000_000),
            "timestamp_type": np.zeros(rows, np.int8),
            "key": pa.nulls(rows, pa.binary()),
            "value": batch.column("value"),
        }
    )


def cluster_in(store: ObjectStore) -> EmbeddedCluster:
    return EmbeddedCluster.create(store, now_ms=lambda: int(time.time() * 1000), new_id=lambda: str(uuid.uuid4()))


if __name__ == "__main__":
    main()
