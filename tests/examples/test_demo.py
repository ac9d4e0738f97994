"""The demo, as `make demo` runs it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq
import pytest

ROOT = Path(__file__).resolve().parents[2]
DEMO = ROOT / "examples" / "flights" / "demo.py"


def run_demo(workspace: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, DEMO, workspace],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )


@pytest.mark.thorough
@pytest.mark.spark
def test_every_flight_is_copied_by_spark_stages_and_the_last_plan_is_empty(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    (tmp_path / "spark-defaults.conf").write_text(
        f"spark.eventLog.enabled true\nspark.eventLog.compress false\nspark.eventLog.dir {logs.as_uri()}\n"
    )
    told = run_demo(tmp_path / "workspace", SPARK_CONF_DIR=str(tmp_path))
    assert told.returncode == 0, told.stdout + told.stderr
    assert "336,776 records on west, the same 336,776 on east, and the last plan is empty." in told.stdout
    assert re.search(
        r"mirror/east/flights:jfk:departures: .* records/s\), Spark local\[\*\], \d+ tasks?\n", told.stderr
    )
    flights = pq.read_table(tmp_path / "workspace" / "flights", columns=["origin", "dest"])
    busiest = flights.group_by(["origin", "dest"]).aggregate([([], "count_all")]).sort_by([("count_all", "descending")])
    route = busiest.slice(0, 1).to_pylist()[0]
    assert re.search(rf"\|\s*{route['origin']}\|\s*{route['dest']}\|\s*{route['count_all']}\|", told.stdout)
    completed = [stage for events in logs.rglob("events_*") for stage in stages_of(events)]
    copied = [stage for stage in completed if stage.description == "reconciler: mirror"]
    said = re.search(r"jobs done · Spark local\[\*\], (\d+) tasks", told.stdout)
    assert said is not None
    assert sum(stage.tasks for stage in copied) == int(said[1])
    assert not any(stage.failure for stage in completed)


@dataclass(frozen=True, slots=True)
class Stage:
    """A stage that Spark has ended, as its event log has it."""

    description: str
    tasks: int
    failure: str | None


def stages_of(events: Path) -> list[Stage]:
    """Return the stages of one of Spark's event logs."""
    found, described = [], {}
    for line in events.read_text().splitlines():
        event = json.loads(line)
        if event["Event"] == "SparkListenerStageSubmitted":
            described[event["Stage Info"]["Stage ID"]] = event["Properties"].get("spark.job.description", "")
        if event["Event"] == "SparkListenerStageCompleted":
            info = event["Stage Info"]
            found.append(Stage(described[info["Stage ID"]], info["Number of Tasks"], info.get("Failure Reason")))
    return found


def test_without_java_it_says_so_in_one_line(tmp_path: Path) -> None:
    told = run_demo(tmp_path / "workspace", PATH=str(tmp_path), JAVA_HOME=str(tmp_path))
    assert told.returncode == 1
    assert len(told.stderr.strip().splitlines()) == 1
    assert "Java" in told.stderr
    assert told.stdout == ""
