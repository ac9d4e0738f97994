"""Upload beside the floor, in turns, and print seconds and counts as JSON: FOLDER MIB ROUNDS PARTITIONS SEGMENTS."""

from __future__ import annotations

import itertools
import json
import statistics
import sys
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from floors.copy_to_bucket import copy
from reconciler.archives.entries import Entry
from reconciler.archives.manifest import Manifest, ManifestSwap, remote_partition
from reconciler.embedded.catalog.tiering_state import find_tiering
from reconciler.embedded.cluster import EmbeddedCluster
from reconciler.embedded.segments.head import Head, PageWriter, head_register
from reconciler.objectstore.base import ObjectStore
from reconciler.objectstore.directory import DirectoryStore
from reconciler.objectstore.memory import MemoryStore
from reconciler.objectstore.open import open_store
from reconciler.objectstore.s3_client import open_arrow_filesystem
from reconciler.providers.embedded.maintenance import list_maintenance_jobs
from reconciler.providers.protocol import MaintenancePorts
from tests.embedded.stores import WatchedStore
from tests.servers.weed import S3Server

MIB = 1 << 20
SEGMENT_MIB = 8
SPILLED_AT = 50
TIERED = {"remote.write": "true", "remote.read": "true", "local.retention.ms": "-1", "retention.ms": "-1"}


def main() -> None:
    folder, mib, rounds, partitions, segments = Path(sys.argv[1]), *map(int, sys.argv[2:])
    said = {
        "idle": requests_of_idle_passes(partitions),
        "segments": in_turns(one_more({"few": max(10, segments // 100), "many": segments}), rounds * 5),
    }
    with S3Server.start() as server:
        said["upload"] = in_turns(to_a_bucket(folder, server, mib, rounds), rounds)
    print(json.dumps(said))


def in_turns(subjects: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    times: dict[str, list[float]] = {name: [] for name in subjects}
    for _ in range(rounds):
        for name, subject in subjects.items():
            began = time.perf_counter()
            subject()
            times[name].append(time.perf_counter() - began)
    return {name: statistics.median(each) for name, each in times.items()}


def to_a_bucket(folder: Path, server: S3Server, mib: int, rounds: int) -> dict[str, Callable[[], object]]:
    """Upload a topic a round; the floor copies the first one's files."""
    storage = open_store(server.settings("ours"))
    cluster = cluster_in(DirectoryStore(folder / "west"), storage)
    batch = records(SEGMENT_MIB * MIB)
    for number in range(rounds):
        cluster.create_topic(f"t{number}", configs={"segment.bytes": f"{SEGMENT_MIB}MiB"})
        for _ in range(mib // SEGMENT_MIB + 1):
            append(cluster, f"t{number}", batch)
    cluster.upkeep().roll()
    turns, copies = itertools.count(), itertools.count()
    bucket, path = open_arrow_filesystem(server.settings("floor"))

    def upload() -> None:
        name = f"t{next(turns)}"
        cluster.alter_topic(name, TIERED)
        done = cluster.upkeep(is_wanted=lambda full_name: full_name == name).upload()
        if done.failed or done.bytes < mib * MIB * 0.8:
            raise SystemExit(f"uploaded {done}")

    return {
        "floor": lambda: copy(folder / "west" / "topics" / "t0_0", bucket, f"{path}/{next(copies)}"),
        "ours": upload,
    }


def requests_of_idle_passes(partitions: int) -> int:
    """Return what a whole pass asks for once every job has looked, where nothing was written since."""
    store, storage = WatchedStore(MemoryStore()), WatchedStore(MemoryStore())
    cluster = cluster_in(store, storage)
    cluster.create_topic("t", partitions=partitions, configs=TIERED)
    numbers = pa.array(range(partitions), pa.int32())
    with cluster.producer() as producer:
        values = pa.array([b"x"] * partitions, pa.binary())
        producer.append("t", pa.RecordBatch.from_pydict({"value": values, "partition": numbers}))
    means = MaintenancePorts(
        lambda work, do: iter([do(work)]), lambda _address: True, lambda: False, is_requested=False
    )
    for _ in range(3):  # Merging leaves out the first: it waits until object storage is idle.
        store.calls.clear()
        storage.calls.clear()
        for do in list_maintenance_jobs("west", cluster, means).values():
            do()
    return len(store.calls) + len(storage.calls)


def one_more(sizes: Mapping[str, int]) -> dict[str, Callable[[], object]]:
    """Append and upload one more segment, where there are so many in both tiers."""
    cluster = cluster_in(MemoryStore(), MemoryStore())
    batch = records(100_000)
    for name, segments in sizes.items():
        cluster.create_topic(name, configs={**TIERED, "segment.bytes": "1000"})
        append(cluster, name, batch)
        lengthen(cluster, name, segments)
        append(cluster, name, batch)  # Each that follows closes the one before.

    def more(name: str) -> None:
        append(cluster, name, batch)
        done = cluster.upkeep(is_wanted=lambda full_name: full_name == name).upload()
        if done.partitions != 1:
            raise SystemExit(f"uploaded {done}")

    return {name: lambda name=name: more(name) for name in sizes}


def lengthen(cluster: EmbeddedCluster, name: str, segments: int) -> None:
    """Let both tiers of a partition name the first part many times over, as if it had been uploaded so often."""
    topic_id = cluster.topic(name).id
    register, spill = head_register(cluster.store, topic_id, 0), PageWriter(cluster.store, topic_id, 0)
    held = register.read()
    tiering = find_tiering(cluster.catalog.read(), name, cluster.cluster_id)
    if held is None or cluster.storage is None or tiering is None:
        raise SystemExit("nothing was appended")
    head = Head.from_json(held.value)
    first, length = replace(head.entries[0], is_segment=True), head.end
    entries: list[Entry] = []
    for number in range(1, segments):
        entries.append(replace(first, base=number * length, last=(number + 1) * length - 1))
        head = head.with_appended(entries[-1:], end=(number + 1) * length)
        if number % SPILLED_AT == 0:
            head = spill.spill_entries(head)
    swap = ManifestSwap(cluster.storage, cluster.cluster_id, tiering)
    for at in range(0, len(entries), 1000):
        some = entries[at : at + 1000]

        def extended(manifest: Manifest, some: list[Entry] = some) -> Manifest:
            return replace(manifest, entries=(*manifest.entries, *some), end=some[-1].last + 1)

        swap(remote_partition(tiering.location, 0), extended)
    register.swap(held, replace(spill.spill_entries(head), uploaded_to=head.end).to_json())


def cluster_in(store: ObjectStore, storage: ObjectStore) -> EmbeddedCluster:
    cluster = EmbeddedCluster.create(
        store, now_ms=lambda: time.time_ns() // 1_000_000, new_id=lambda: str(uuid.uuid4()), storage=storage
    )
    cluster.alter_cluster({"cloud_storage_enabled": "true"})
    return cluster


def append(cluster: EmbeddedCluster, name: str, batch: pa.RecordBatch) -> None:
    with cluster.producer() as producer:
        producer.append(name, batch)


def records(size: int) -> pa.RecordBatch:
    """Return records that do not compress, of about so many bytes."""
    count = max(1, size // 1000)
    random = np.random.default_rng(7)
    values = pa.array([random.bytes(1000) for _ in range(count)], pa.binary())
    return pa.RecordBatch.from_pydict({"value": values, "partition": pa.repeat(pa.scalar(0, pa.int32()), count)})


if __name__ == "__main__":
    main()
