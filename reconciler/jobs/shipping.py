"""How this package reaches executors that run elsewhere: zipped, as `--py-files` would bring it."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import reconciler

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def ship(session: SparkSession, folder: Path) -> None:
    """Send the package as it runs here; what it depends on (pyarrow, numpy, xxhash …) must be installed there.

    The file in `folder` must stay as long as the session: executors fetch it when they start.
    """
    session.addArtifacts(str(packed(folder)), pyfile=True)


def packed(folder: Path) -> Path:
    """Write the package's sources into a zip file that Python can import from, and return where it is."""
    (source,) = map(Path, reconciler.__path__)
    target = folder / "reconciler.zip"
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(source.rglob("*.py")):
            archive.write(path, Path(source.name, path.relative_to(source)))
    return target
