"""The floor of uploading: pyarrow copies the same files to the same bucket."""

from __future__ import annotations

from pathlib import Path

from pyarrow.fs import FileSystem, LocalFileSystem, copy_files


def copy(files: Path, bucket: FileSystem, path: str) -> None:
    copy_files(str(files), path, source_filesystem=LocalFileSystem(), destination_filesystem=bucket)
