"""What it costs to write down what is done: requests to the store of the state, and time."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from measuring import RECONCILER, Row, Scale, in_seconds, in_turns, printed_seconds, process, script
from workspaces import write_workspace

WRITES = {"put", "swap", "copy_from", "delete"}
PROBE_WRITES = 4


def rows(scale: Scale, scratch: Path) -> Iterator[Row]:
    topics = scale.of(2_000, 200)
    folder = write_workspace(scratch / "recording", topics=topics)
    planned = write_workspace(scratch / "recording-planned", topics=topics)
    yield from _books(scale, planned, folder, topics)
    shutil.rmtree(folder / ".reconciler")
    shutil.rmtree(folder / ".clusters")
    writes, _ = _requests(folder, "apply", "--yes")
    yield _count(f"state writes of an apply of {topics:,} new topics", writes, 20)
    writes, reads = _requests(folder, "plan")
    yield _count("state requests of an empty plan", writes + reads, 2)
    writes, reads = _requests(folder, "apply", "--yes")
    yield _count("state requests of an apply with nothing to do", writes + reads, 5)
    idle = printed_seconds("probes/idle.py")
    yield Row("state writes of an idle lease, in 15 s", "—", f"{idle:.2f}", "—", idle, 1, "")


def _books(scale: Scale, planned: Path, folder: Path, topics: int) -> Iterator[Row]:
    """Compare the books alone with writing the same bytes, and with the command they are a part of."""
    sizes: list[str] = []

    def books() -> float:
        shutil.rmtree(planned / ".books", ignore_errors=True)
        *sizes[:], seconds = script("probes/books.py", str(planned)).output.split()
        return float(seconds)

    def floor() -> float:
        shutil.rmtree(planned / ".floor", ignore_errors=True)
        return printed_seconds("floors/put_files.py", str(planned / ".floor"), *sizes)

    def apply() -> float:
        for made in (".reconciler", ".clusters"):
            shutil.rmtree(folder / made, ignore_errors=True)
        return process(RECONCILER, "apply", "--yes", folder=folder).seconds

    took = in_turns({"books": books, "floor": floor, "apply": apply}, scale.of(5, 1))
    ours, least, whole = took["books"], took["floor"], took["apply"]
    what = f"the books of an apply of {topics:,} new topics: lease, journal, snapshot"
    ratio, why = ours / least, "Each object is JSON that is made first, and most writes wait for the one before."
    against = "the same bytes in as many files"
    yield Row(what, against, in_seconds(ours), in_seconds(least), ratio, 5.0, why=why)
    share = 100 * ours / whole
    yield Row("share of that in the apply, start to exit", "—", f"{share:.0f} %", "—", share, 30, " %")


def _count(what: str, requests: int, aim: int) -> Row:
    return Row(what, "—", str(requests), "—", requests, aim, "")


def _requests(folder: Path, *arguments: str) -> tuple[int, int]:
    """Return how many writes and reads of the state a command asks for."""
    ran = subprocess.run([RECONCILER, *arguments, "--verbose"], cwd=folder, capture_output=True, text=True, check=True)
    writes = reads = 0
    for line in ran.stderr.splitlines():
        said = json.loads(line) if line.startswith("{") else {}
        if said.get("message") != "request":
            continue
        method, key = said["facts"]["method"], said["facts"]["key"]
        if method == "probe" and not writes:  # the state's comes first; the cluster has one of its own
            writes += PROBE_WRITES
        elif key.startswith(("lockfile.json", "state/", "runs/")):
            writes, reads = (writes + 1, reads) if method in WRITES else (writes, reads + 1)
    return writes, reads
