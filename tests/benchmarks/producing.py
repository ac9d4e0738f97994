"""Producing from Parquet, from the start of the command to its exit."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from measuring import RECONCILER, Row, Scale, compared, in_turns, process, script
from workspaces import write_workspace

_TOPIC = """\
apiVersion: reconciler/v1
kind: Topic
metadata: {name: orders, cluster: west}
spec: {partitions: 6, configs: {retention.ms: infinite}}
"""


def rows(scale: Scale, scratch: Path) -> Iterator[Row]:
    count = scale.of(1_000_000, 20_000)
    folder = workspace_with_topic(scratch / "producing")
    source = str(scratch / "orders.parquet")
    script("probes/write_orders.py", source, str(count))
    produce = ("topic", "produce", "topic/west/orders", "--input", source, "--key-field", "customer")
    subjects = {
        "floor": lambda: script("floors/produce_loop.py", source, str(scratch / "loop.parquet")).seconds,
        "ours": lambda: process(RECONCILER, *produce, "--timestamp-field", "at", folder=folder).seconds,
    }
    what = f"produce {count:,} rows from Parquet"
    against = "a bare loop: pyarrow read, orjson per row, pyarrow write"
    yield compared(what, against, in_turns(subjects, scale.of(3, 1)), aim=1.5)


def workspace_with_topic(folder: Path) -> Path:
    write_workspace(folder, topics=0, files=1)
    (folder / "manifests" / "orders.yaml").write_text(_TOPIC, encoding="utf-8")
    process(RECONCILER, "apply", "--yes", folder=folder)
    return folder
