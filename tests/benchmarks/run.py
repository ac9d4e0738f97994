"""Run the benchmarks and print what they say: `run.py [--quick] [--only NAME]…`.

A whole run writes docs/benchmarks.md, so that all figures there are of one run.
"""

from __future__ import annotations

import argparse
import importlib
import os
import platform
import shutil
import sys
import tempfile
import time
from collections.abc import Collection
from importlib.metadata import version
from pathlib import Path

from measuring import BenchmarkError, LeftOut, Row, Scale
from table import markdown, rows_of, text

AREAS = {
    "startup": "Starting",
    "loading": "Loading files",
    "steady": "A plan with nothing to do",
    "fleet": "A plan of many clusters",
    "planning": "Planning",
    "creating": "Creating topics",
    "recording": "The state",
    "listing": "Listing topics",
    "logs": "The log of embedded clusters",
    "producing": "Producing",
    "uploading": "Tiered storage: uploading",
    "mounting": "Mounting topics",
    "fetching": "Tiered storage: reading back",
    "mirroring": "Mirroring between embedded clusters",
    "yarn": "Mirroring on YARN",
    "reading": "Reading into Spark, and writing streams",
    "jobs": "Re-keying and compaction in Spark",
    "kafkareading": "Reading from Kafka",
    "kafkacontrol": "Topics on a Kafka cluster",
    "kafkamirroring": "Mirroring between Kafka clusters",
    "redpandacontrol": "Topics and mounts on an emulated Redpanda cluster",
    "confluentcontrol": "Links on emulated Confluent clusters",
}
"""Heading of the page by module."""
ROOT = Path(__file__).resolve().parents[2]
TABLE = ROOT / "docs" / "benchmarks.md"


def main() -> int:
    options = _options()
    scratch = Path(tempfile.mkdtemp(prefix="reconciler-bench-"))
    try:
        areas, failed = _measure(options.only or AREAS, Scale(quick=options.quick), scratch)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    rows = rows_of(areas)
    if not (options.quick or options.only):
        TABLE.write_text(markdown(areas, _machine(), version("stream-reconciler")), encoding="utf-8")
        _say(f"written: {TABLE}")
    _say(f"{sum(row.is_met for row in rows)} of {len(rows)} aims met")
    return 1 if failed else 0


def _measure(names: Collection[str], scale: Scale, scratch: Path) -> tuple[dict[str, list[Row | LeftOut]], list[str]]:
    """Return by heading what was measured, and the names of what failed: it costs none of the others."""
    areas: dict[str, list[Row | LeftOut]] = {}
    failed: list[str] = []
    for name in names:
        began = time.perf_counter()
        found = areas.setdefault(AREAS.get(name, name), [])
        try:
            for each in importlib.import_module(name).rows(scale, scratch):
                found.append(each)
                _say(text(each))
        except BenchmarkError as error:
            failed.append(name)
            found.append(LeftOut(name, "its benchmark failed in this run"))
            _say(f"{name} FAILED: {error}")
        _say(f"  ({name}: {time.perf_counter() - began:.0f} s)")
    return areas, failed


def _machine() -> str:
    cores = len(os.sched_getaffinity(0))
    return f"{cores} cores, {platform.system()} {platform.machine()}, Python {platform.python_version()}"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes, once each: only shows that all of it works")
    parser.add_argument("--only", action="append", choices=AREAS, help="only this one; may be repeated; writes no page")
    return parser.parse_args()


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
