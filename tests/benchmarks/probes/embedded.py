"""What the probes with Spark share: clusters, filled through their own sinks."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from reconciler.embedded.cluster import EmbeddedCluster
from reconciler.manifests.load import load_manifests
from reconciler.manifests.overlays import Variables
from reconciler.objectstore.directory import DirectoryStore
from reconciler.providers.protocol import Edge, Provider
from reconciler.providers.registry import open_provider
from reconciler.records.log import StagedSink
from reconciler.records.schema import HEADERS, RECORD_SCHEMA
from reconciler.resources.address import Address

KEY_BYTES, VALUE_BYTES = 16, 84
BATCH = 50_000
EDGE: dict[str, Any] = {"now_ms": lambda: int(time.time() * 1000), "new_id": lambda: str(uuid.uuid4())}


def providers(folder: Path) -> dict[str, Provider]:
    edge = Edge(folder, os.environ, EDGE["new_id"], EDGE["now_ms"])
    desired = load_manifests(folder, environment=None, variables=Variables()).desired
    clusters = {address: item.resource for address, item in desired.items() if item.resource.kind == "Cluster"}
    return {cluster.metadata.name: open_provider(cluster, edge) for cluster in clusters.values()}


def cluster_in(folder: Path) -> EmbeddedCluster:
    return EmbeddedCluster.create(DirectoryStore(folder), **EDGE)


def fill(sink: StagedSink, records: int) -> None:
    """Write so many records of 100 random bytes, as many to each partition."""
    partitions = sorted(sink.read_ends())
    each = records // len(partitions)
    for partition in partitions:
        sink.publish([sink.stage(partition, batches(partition, each), at=None)])


def topic(cluster: str, name: str) -> Address:
    return Address(f"topic/{cluster}/{name}")


def batches(partition: int, records: int) -> Iterator[pa.RecordBatch]:
    """Yield records of 100 random bytes, always the same of one partition."""
    random = np.random.default_rng(partition)
    for first in range(0, records, BATCH):
        yield _batch(random, partition, first, min(BATCH, records - first))


def _batch(random: np.random.Generator, partition: int, first: int, rows: int) -> pa.RecordBatch:
    columns = [
        pa.array(np.full(rows, partition, np.int32)),
        pa.array(np.arange(first, first + rows)),
        pa.array(1_700_000_000_000 + np.arange(first, first + rows)),
        pa.array(np.zeros(rows, np.int8)),
        _bytes(random, rows, KEY_BYTES),
        _bytes(random, rows, VALUE_BYTES),
        pa.array([[]] * rows, HEADERS),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=RECORD_SCHEMA)


def _bytes(random: np.random.Generator, rows: int, width: int) -> pa.Array:
    content = pa.py_buffer(random.bytes(rows * width))
    ends = pa.py_buffer(np.arange(0, rows * width + 1, width, dtype=np.int32))
    return pa.Array.from_buffers(pa.binary(), rows, [None, ends, content])
