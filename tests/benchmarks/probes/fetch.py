"""Read what is remote beside the floor, in turns, and print seconds and counts as JSON: FOLDER MIB ROUNDS SEGMENTS."""

from __future__ import annotations

import itertools
import json
import resource
import sys
from dataclasses import replace
from pathlib import Path

from floors.parquet_files import read_from
from probes.upload import MIB, append, cluster_in, in_turns, lengthen, records
from reconciler.embedded.cluster import EmbeddedCluster
from reconciler.embedded.segments.head import Head, head_register
from reconciler.objectstore.base import ObjectStore
from reconciler.objectstore.directory import DirectoryStore
from reconciler.objectstore.memory import MemoryStore
from reconciler.objectstore.open import open_store
from reconciler.objectstore.s3_client import open_arrow_filesystem
from reconciler.records.log import OffsetRange
from tests.embedded.stores import WatchedStore
from tests.servers.weed import S3Server

SEGMENT_MIB = 64
APPENDED_MIB = 8
TIERED = {"remote.write": "true", "remote.read": "true", "retention.ms": "-1", "retention.local.target.ms": "-1"}


def main() -> None:
    folder, mib, rounds, segments = Path(sys.argv[1]), *map(int, sys.argv[2:])
    said: dict[str, object] = {"point": requests_of_a_point_read(segments)}
    with S3Server.start() as server:
        settings = server.settings("ours")
        cluster = filled(folder, open_store(settings), mib)
        bucket, path = open_arrow_filesystem(settings)
        turns = itertools.count()

        def cold() -> int:
            cluster.cache_folder = str(folder / f"cache-{next(turns)}")
            return read(cluster, "remote")

        rows = read(cluster, "local")

        def pyarrow() -> None:
            check(rows, read_from(bucket, path))

        pyarrow()
        before = peak_mib()
        check(rows, cold())
        said["peak_mib"] = max(0, peak_mib() - before)
        said["cold"] = in_turns({"floor": pyarrow, "ours": lambda: check(rows, cold())}, rounds)
        said["warm"] = in_turns(
            {
                "floor": lambda: check(rows, read(cluster, "local")),
                "ours": lambda: check(rows, read(cluster, "remote")),
            },
            rounds,
        )
    print(json.dumps(said))


def filled(folder: Path, storage: ObjectStore, mib: int) -> EmbeddedCluster:
    """Return a cluster with the same records twice: in object storage alone, and in closed local segments."""
    cluster = cluster_in(DirectoryStore(folder / "west"), storage)
    cluster.alter_cluster({"cloud_storage_cache_size_percent": "0", "cloud_storage_cache_size": f"{4 * mib}MiB"})
    for name in ("local", "remote"):
        cluster.create_topic(name, configs={"segment.bytes": f"{SEGMENT_MIB}MiB"})
        for _ in range(mib // APPENDED_MIB + 1):
            append(cluster, name, records(APPENDED_MIB * MIB))
    cluster.upkeep().roll()
    cluster.alter_topic("remote", TIERED)
    done = cluster.upkeep(is_wanted=lambda name: name == "remote").upload()
    if done.failed or not done.bytes:
        raise SystemExit(f"uploaded {done}")
    evict(cluster, "remote")
    return cluster


def evict(cluster: EmbeddedCluster, name: str) -> None:
    """Let the head of a partition forget what is uploaded."""
    register = head_register(cluster.store, cluster.topic(name).id, 0)
    held = register.read()
    if held is None:
        raise SystemExit("nothing was appended")
    head = Head.from_json(held.value)
    start = head.uploaded_to
    left = tuple(entry for entry in head.entries if entry.base >= start)
    register.swap(held, replace(head, entries=left, local_start=start).to_json())


def read(cluster: EmbeddedCluster, name: str) -> int:
    """Read what is in closed segments; return how many records these are."""
    log = cluster.log(name)
    head = cluster.log("remote").read_head(0)
    stop = 0 if head is None else head.local_start
    return sum(batch.num_rows for batch in log.read(0, OffsetRange(0, stop)))


def check(expected: int, found: int) -> None:
    if found != expected:
        raise SystemExit(f"read {found} records, not {expected}")


def peak_mib() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def requests_of_a_point_read(segments: int) -> int:
    """Return what one offset in the middle of so many remote segments asks for, nothing being cached."""
    store, storage = WatchedStore(MemoryStore()), WatchedStore(MemoryStore())
    cluster = cluster_in(store, storage)
    cluster.create_topic("t", configs={**TIERED, "segment.bytes": "1000"})
    batch = records(100_000)
    for _ in range(2):
        append(cluster, "t", batch)
    cluster.upkeep().upload()
    lengthen(cluster, "t", segments)
    for listed in list(store.list("topics/")):  # That is what each of the segments names, in both tiers.
        storage.copy_from(listed.key, store, listed.key)
    evict(cluster, "t")
    log = cluster.log("t")
    middle = segments // 2 * batch.num_rows
    store.calls.clear()
    storage.calls.clear()
    check(1, sum(found.num_rows for found in log.read(0, OffsetRange(middle, middle + 1))))
    return len(store.calls) + len(storage.calls)


if __name__ == "__main__":
    main()
