"""Run the benchmarks and print what they say: `run.py [--quick] [--only NAME]…`.

What was measured is written into docs/benchmarks.md and the table of the README; a whole run writes both anew.
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
from pathlib import Path

from measuring import BenchmarkError, Row, Scale
from table import markdown, quoted, text

NAMES = (
    "startup",
    "loading",
    "steady",
    "planning",
    "creating",
    "recording",
    "listing",
    "logs",
    "producing",
    "uploading",
    "mounting",
    "fetching",
    "mirroring",
    "reading",
    "kafkareading",
    "kafkacontrol",
    "kafkamirroring",
)
ROOT = Path(__file__).resolve().parents[2]
TABLE, README = ROOT / "docs" / "benchmarks.md", ROOT / "README.md"


def main() -> int:
    options = _options()
    scratch = Path(tempfile.mkdtemp(prefix="reconciler-bench-"))
    try:
        measured, failed = _measure(options.only or NAMES, Scale(quick=options.quick), scratch)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    if not options.quick:
        is_whole = not options.only and not failed
        kept = "" if is_whole else TABLE.read_text(encoding="utf-8")
        TABLE.write_text(markdown(measured, _machine(), kept), encoding="utf-8")
        README.write_text(quoted(README.read_text(encoding="utf-8"), measured, is_whole=is_whole), encoding="utf-8")
        _say(f"written: {TABLE}, and the table of {README.name}")
    missed = [row for row in measured if not row.is_met]
    _say(f"{len(measured) - len(missed)} of {len(measured)} aims met")
    return 1 if failed else 0


def _measure(names: tuple[str, ...] | list[str], scale: Scale, scratch: Path) -> tuple[list[Row], list[str]]:
    """Return what was measured, and the names of what could not be: the others took too long to be thrown away."""
    measured: list[Row] = []
    failed: list[str] = []
    for name in names:
        began = time.perf_counter()
        try:
            for row in importlib.import_module(name).rows(scale, scratch):
                measured.append(row)
                _say(text(row))
        except BenchmarkError as error:
            failed.append(name)
            _say(f"{name} FAILED: {error}")
        _say(f"  ({name}: {time.perf_counter() - began:.0f} s)")
    return measured, failed


def _machine() -> str:
    cores = len(os.sched_getaffinity(0))
    return f"{cores} cores, {platform.system()} {platform.machine()}, Python {platform.python_version()}"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes, once each: only shows that all of it works")
    parser.add_argument("--only", action="append", choices=NAMES, help="only this one; may be repeated")
    return parser.parse_args()


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
