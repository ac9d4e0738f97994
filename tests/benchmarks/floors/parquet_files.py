"""The floor of appending and reading: Parquet files of the same records. No offsets, digests or heads."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow.fs import FileSelector, FileSystem

LAYOUT = {"compression": "zstd", "compression_level": 1, "use_dictionary": False}


def write_synced(folder: Path, records: pa.Table, files: int) -> None:
    """Write so many files, each durable before the next begins."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(files):
        with (folder / f"{number:06}.parquet").open("wb") as stream:
            pq.write_table(records, stream, **LAYOUT)
            stream.flush()
            os.fsync(stream.fileno())


def put_objects(put: Callable[[str, bytes], object], records: pa.Table, objects: int) -> None:
    """Put so many objects, one after the other."""
    for number in range(objects):
        body = io.BytesIO()
        pq.write_table(records, body, **LAYOUT)
        put(f"{number:06}.parquet", body.getvalue())


def read(folder: Path) -> int:
    """Read every file below a folder, whole; return how many rows there were."""
    return sum(pq.ParquetFile(path).read(use_threads=False).num_rows for path in sorted(folder.rglob("*.parquet")))


def read_from(bucket: FileSystem, path: str) -> int:
    """Read every file below a path of a file system, row group by row group; return how many rows there were."""
    selected = bucket.get_file_info(FileSelector(path, recursive=True))
    rows = 0
    for info in sorted(selected, key=lambda info: info.path):
        if info.path.endswith(".parquet"):
            with bucket.open_input_file(info.path) as stream:
                batches = pq.ParquetFile(stream, pre_buffer=True).iter_batches(use_threads=False)
                rows += sum(batch.num_rows for batch in batches)
    return rows
