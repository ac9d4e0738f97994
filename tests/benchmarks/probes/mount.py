"""Flush beside the floor, and mount in turns; print seconds and counts as JSON: FOLDER MIB ROUNDS PARTITIONS."""

from __future__ import annotations

import itertools
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

from floors.copy_to_bucket import copy
from probes.upload import MIB, SEGMENT_MIB, TIERED, append, cluster_in, in_turns, records
from reconciler.embedded.cluster import EmbeddedCluster
from reconciler.embedded.mounts.mounts import Mount
from reconciler.objectstore.directory import DirectoryStore
from reconciler.objectstore.open import open_store
from reconciler.objectstore.s3_client import open_arrow_filesystem
from tests.embedded.stores import GIB, Counted
from tests.servers.weed import S3Server


def main() -> None:
    folder, mib, rounds, partitions = Path(sys.argv[1]), *map(int, sys.argv[2:])
    said: dict[str, object] = {"requests": {"small": requests_of(MIB), "large": requests_of(10 * GIB)}}
    with S3Server.start() as server:
        said["flush"] = in_turns(flushes(folder / "flush", server, mib, rounds), rounds)
        said["mounts"] = in_turns_of_mounts(folder / "mount", server, {"one": 1, "many": partitions}, rounds)
    print(json.dumps(said))


def requests_of(stored_bytes: int) -> int:
    """Return how many requests it takes to mount one partition of so many bytes."""
    it = Counted()
    location = it.detached(1)
    it.grown(location, stored_bytes)
    return sum(it.asked(lambda: it.bucket.mounted(location)).values())


def flushes(folder: Path, server: S3Server, mib: int, rounds: int) -> dict[str, Callable[[], object]]:
    """Flush a topic a round, until it could be cut; the floor copies the first one's files."""
    cluster = cluster_in(DirectoryStore(folder), open_store(server.settings("flushed")))
    batch = records(SEGMENT_MIB * MIB)
    for number in range(rounds):
        cluster.create_topic(f"t{number}", configs={**TIERED, "segment.bytes": f"{SEGMENT_MIB}MiB"})
        for _ in range(mib // SEGMENT_MIB):
            append(cluster, f"t{number}", batch)
    cluster.upkeep().roll()
    turns, copies = itertools.count(), itertools.count()
    bucket, path = open_arrow_filesystem(server.settings("floor"))

    def flush() -> None:
        mounts = cluster.mounts
        migration = mounts.unmount(f"t{next(turns)}", is_automatic=False)
        mounts.ask(migration, "prepare")
        done = mounts.drive(migration)
        if done is None or done.state != "prepared":
            raise SystemExit(f"flushed: {done}")

    return {
        "floor": lambda: copy(folder / "topics" / "t0_0", bucket, f"{path}/{next(copies)}"),
        "ours": flush,
    }


def in_turns_of_mounts(folder: Path, server: S3Server, sizes: dict[str, int], rounds: int) -> dict[str, float]:
    """Return how long it takes to mount topics of so many partitions, each with a record; they go back in between."""
    cluster = cluster_in(DirectoryStore(folder), open_store(server.settings("mounted")))
    for name, partitions in sizes.items():
        cluster.create_topic(name, partitions=partitions, configs=TIERED)
        values = pa.array([b"x"] * partitions, pa.binary())
        numbers = pa.array(range(partitions), pa.int32())
        append(cluster, name, pa.RecordBatch.from_pydict({"value": values, "partition": numbers}))
    mounts, took = cluster.mounts, {name: [0.0] for name in sizes}
    locations = {name: f"{name}/{cluster.cluster_id}/{cluster.topic(name).revision}" for name in sizes}
    for _ in range(rounds):
        for name in sizes:
            unmounted(cluster, name)
            began = time.perf_counter()
            if mounts.drive(mounts.mount(Mount(locations[name], name))) is not None:
                raise SystemExit(f"{name} is not mounted")
            took[name].append(time.perf_counter() - began)
    return {name: sorted(each[1:])[len(each[1:]) // 2] for name, each in took.items()}


def unmounted(cluster: EmbeddedCluster, name: str) -> None:
    if cluster.mounts.drive(cluster.mounts.unmount(name)) is not None:
        raise SystemExit(f"{name} is not unmounted")
    cluster.finish_deletions()


if __name__ == "__main__":
    main()
