"""Readings move to object storage, are read back, outlive their cluster, and come home again.

`demo.py [FOLDER]`: the folder is made anew and left for the reader to play with. Needs no Java: there is little to do.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))
from story import Story, chapter, require, say

STORY = Story.of(__file__)
WORKSPACE = STORY.workspace
run, read, edit = STORY.run, STORY.read, STORY.edit
TOPIC = "topic/west/readings"
A_DAY = 2_000
JANUARY_MS = 1_735_689_600_000
EVERY_MS = 43_200
BLOCKED = 7
POLICY = "policy.yaml"


def storage(*, local: tuple[int, int], remote: tuple[int, int] | None) -> None:
    """Show what lies where, and insist on the offsets: first, and next after the last."""
    run("topic", "storage", TOPIC)
    found = read("topic", "storage", TOPIC)["partitions"][0]
    far = found["remote"]
    lying = None if far is None or not far["segments"] else (far["start"], far["end"])
    require(that=(found["local_start"], found["end"]) == local, otherwise=f"local offsets are not {local}: {found}")
    require(that=lying == remote, otherwise=f"remote offsets are not {remote}: {found}")


def pour_in(days: range) -> None:
    """Produce a day of readings after the other."""
    for day in days:
        with (WORKSPACE / "day.jsonl").open("w", encoding="utf-8") as file:
            for number in range(A_DAY):
                seal = hashlib.sha256(f"{day}/{number}".encode()).hexdigest()
                at_ms = JANUARY_MS + day * A_DAY * EVERY_MS + number * EVERY_MS
                file.write(json.dumps({"at": at_ms, "day": day, "number": number, "seal": seal}) + "\n")
        run("topic", "produce", TOPIC, "--input", "day.jsonl", "--timestamp-field", "at")


def read_back(offset: int) -> None:
    """Read one record and insist that it is the one that was produced there, or the first that is left after it."""
    told = run("topic", "consume", TOPIC, "--from", str(offset), "--max", "1")
    record = json.loads(told)
    day, number = divmod(record["offset"], A_DAY)
    value = json.loads(record["value"])
    require(that=record["offset"] == offset, otherwise=f"offset {record['offset']} came in place of {offset}")
    require(that=(value["day"], value["number"]) == (day, number), otherwise=f"offset {offset} is not what it was")


def main() -> int:
    return STORY.tell(CHAPTERS)


def begin() -> None:
    chapter("1. A policy, a topic, and six days of readings: all of it lies with the cluster")
    STORY.begin("manifests")
    run("apply", "--yes")
    pour_in(range(6))
    storage(local=(0, 12_000), remote=None)


def move_away() -> None:
    chapter("2. `run` uploads the five days that are closed and lets four of them go: two days stay local")
    run("run", "--once", "--metrics", "metrics.prom")
    storage(local=(8_000, 12_000), remote=(0, 10_000))
    told = (WORKSPACE / "metrics.prom").read_text(encoding="utf-8")
    for line in told.splitlines():
        if line.startswith("reconciler_cloud_storage_"):
            say(f"     {line}")


def look_back() -> None:
    chapter("3. The second of January is in object storage alone, and reads as ever")
    read_back(3_456)


def keep_less() -> None:
    chapter("4. Less is kept in total: the plan says what expires, and does nothing until that is allowed")
    edit(POLICY, "bytes: 10MiB", "bytes: 280KiB")
    run("plan", "--detailed-exitcode", expect=BLOCKED, shows="data loss")
    run("apply", "--yes", "--allow", f"update:{TOPIC}")
    run("run", "--once")
    storage(local=(8_000, 12_000), remote=(4_000, 10_000))


def lose_it() -> None:
    chapter("5. The cluster's folder is gone; what object storage has is written down as manifests")
    say("   $ rm -r .clusters/west")
    shutil.rmtree(WORKSPACE / ".clusters" / "west")
    run("plan", expect=1)
    run("export", "west", "--from-object-storage", "--out", "recovered")


def come_home() -> None:
    chapter("6. A new cluster takes its place, and its topic is recovered: all but the day that was still open")
    found = re.search(r"recoverFrom: (\S+)", (WORKSPACE / "recovered" / "topics.yaml").read_text(encoding="utf-8"))
    require(that=found is not None, otherwise="the export names no location")
    location = found[1] if found else ""
    edit("topic.yaml", "tieringPolicy: archive", f"tieringPolicy: archive\n  recoverFrom: {location}")
    run("state", "rm", "cluster/west", TOPIC, "--yes")
    run("apply", "--yes")
    storage(local=(10_000, 10_000), remote=(4_000, 10_000))
    read_back(5_678)
    pour_in(range(5, 8))
    run("run", "--once")
    storage(local=(12_000, 16_000), remote=(8_000, 14_000))


def switch(before: str, after: str) -> None:
    """Switch remote writes and reads in the policy, both of them."""
    for what in ("remoteWrite", "remoteRead"):
        edit(POLICY, f"{what}: {before}", f"{what}: {after}")


def turn_off_and_retain() -> None:
    chapter("7. Tiering is switched off, and what is archived is retained: it is read and expires, nothing is uploaded")
    switch("true", "false")
    run("plan", shows="tiering off")
    run("apply", "--yes")
    run("run", "--once")
    storage(local=(12_000, 16_000), remote=(10_000, 14_000))
    read_back(10_789)


def turn_on_again() -> None:
    chapter("8. It is switched on again: uploads go on where they ended")
    switch("false", "true")
    run("apply", "--yes")
    pour_in(range(8, 9))
    run("run", "--once")
    storage(local=(14_000, 18_000), remote=(10_000, 16_000))


def turn_off_and_delete() -> None:
    chapter("9. It is switched off for good: the plan says what can be read no more, and waits until that is allowed")
    edit(POLICY, "onDisable: retain", "onDisable: delete")
    switch("true", "false")
    run("plan", "--detailed-exitcode", expect=BLOCKED, shows="4,000 offsets of 1 partition become unreadable")
    run("apply", "--yes", "--allow", f"disable-tiering:{TOPIC}")
    run("run", "--once")
    storage(local=(14_000, 18_000), remote=None)
    read_back(14_001)
    run("plan", "--detailed-exitcode")


CHAPTERS = (
    begin,
    move_away,
    look_back,
    keep_less,
    lose_it,
    come_home,
    turn_off_and_retain,
    turn_on_again,
    turn_off_and_delete,
)

if __name__ == "__main__":
    sys.exit(main())
