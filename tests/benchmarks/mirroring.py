"""Mirroring: a full copy in a Spark that is already warm, catching up, a quiet round, and a steady producer."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

from measuring import Row, Scale, compared, in_seconds
from sparkbench import probed, workspace

RATE, INTERVAL_S = 50_000, 5
OTHER_REQUESTS = 10
HEADS_A_LISTING = 1000
JOB = "Spark takes a part of a second to start a job, however little it copies."


def rows(scale: Scale, scratch: Path) -> Iterator[Row]:
    yield from _copying(scale, scratch)
    yield _quiet(scale.of(10_000, 1_000))
    yield from _following(scale, scratch)
    yield failing_over(scale.of(1_000, 20), scratch / "failover", "embedded")


def _copying(scale: Scale, scratch: Path) -> Iterator[Row]:
    records, repetitions = scale.of(10_000_000, 200_000), scale.of(3, 1)
    folder = workspace(scratch / "mirroring", copies=repetitions + 1)
    took = probed("probes/mirror.py", str(folder), str(records), str(repetitions))
    what = f"mirror {records:,} records of 100 bytes, Spark warm"
    copied = {"ours": took["ours"], "floor": took["floor"]}
    yield compared(what, "copying the same files", copied, aim=1.43, why=JOB)
    synced = {"ours": took["ours"], "floor": took["synced"]}
    durable = "copying them and making each durable, as ours are"
    yield compared(what, durable, synced, aim=1.43, why=JOB)
    ours, full = took["news"], took["ours"]
    what = "catching up 1 % new records"
    yield Row(what, "that full copy", in_seconds(ours), in_seconds(full), ours / full, 0.05)
    shutil.rmtree(folder)


def _quiet(partitions: int) -> Row:
    found = probed("probes/rounds.py", str(partitions))
    listings = -(-partitions // HEADS_A_LISTING)
    what = f"requests of a round with nothing new over {partitions:,} mirrored partitions, beside listings"
    ours = f"{found['others']} in {in_seconds(found['seconds'])}, {found['lists']} LIST a cluster"
    extra = max(0, found["lists"] - listings)
    return Row(what, f"{listings} LIST a cluster", ours, "—", found["others"] + extra, OTHER_REQUESTS, " requests")


def _following(scale: Scale, scratch: Path) -> Iterator[Row]:
    seconds, interval = scale.of(60, 6), scale.of(INTERVAL_S, 1)
    folder = scratch / "following"
    folder.mkdir()
    found = probed("probes/follow.py", str(folder), str(RATE), str(seconds), str(interval))
    lag_s = found["lag"] / RATE
    what = f"worst lag behind {RATE:,} records/s, rounds every {interval} s, for {seconds} s"
    yield Row(what, "the time they take to be made", f"{found['lag']:,} records", "—", lag_s, 2 * interval, " s")
    early, late = found["early"], found["late"]
    what = "memory at the end of that"
    yield Row(what, "after a third of it", f"{late:.0f} MiB", f"{early:.0f} MiB", late / early, 1.2)
    shutil.rmtree(folder)


def failing_over(mirrors: int, folder: Path, platform: str) -> Row:
    """Return the row of one command that fails over so many mirrors of a platform."""
    found = probed("probes/failover.py", str(folder), str(mirrors), platform)
    what = f"fail over a link with {mirrors:,} mirrors, each of which lags"
    ours = f"{in_seconds(found['done'])}, {in_seconds(found['rehearsed'])} its rehearsal"
    shutil.rmtree(folder)
    return Row(what, "a minute", ours, "—", found["done"], 60, " s")
