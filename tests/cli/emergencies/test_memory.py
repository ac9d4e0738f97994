"""What commands leave behind: plan, apply, drift and `drift --accept` say the same of it, with and without a state."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
import pytest
import yaml

from tests.cli.sample_workspaces import Shop, Twins

if TYPE_CHECKING:
    from collections.abc import Sequence

    Row = dict[str, Any]
    Bench = Shop | Twins

ROWS: list[Row] = yaml.safe_load((Path(__file__).parent / "memory.yaml").read_text())
WAYS = ("with its state", "without a state", "its state lost")
PLATFORM_ONLY = ("adopt:", "forget:")
CASES = [
    pytest.param(row, way, id=f"{row['does']}, {way}")
    for row in ROWS
    for way in WAYS
    if (way != WAYS[2] or row.get("lost")) and row.get("only", way) == way
]
each_case = pytest.mark.parametrize(("row", "way"), CASES)


@pytest.fixture
def bench(request: pytest.FixtureRequest, row: Row, way: str) -> Bench:
    """A workspace in which the commands of a row were typed."""
    bench: Bench = request.getfixturevalue(row.get("stage", "twins"))
    manifests = bench.folder / "manifests/all.yaml"
    for old, new in row.get("applied", {}).items():
        assert old in manifests.read_text()
        manifests.write_text(manifests.read_text().replace(old, new, 1))
        bench.said("apply", "--yes")
    for typed in row["typed"]:
        bench.said(*shlex.split(typed), *(("--no-state",) if way == WAYS[1] else ()))
    if way == WAYS[2]:
        (bench.folder / ".state").rename(bench.folder / "lost")
        bench.said("apply", "--yes", "--allow", "adopt:*")
    return bench


def planned(bench: Bench) -> tuple[list[str], list[str]]:
    """Return what a plan does to clusters, and its warnings."""
    done = bench.typed("plan", "--format", "json")
    plan = orjson.loads(done.out)
    assert (plan["errors"], done.code) == ([], 0), done.err
    ids = [action["id"] for action in plan["actions"] if not action["id"].startswith(PLATFORM_ONLY)]
    return ids, sorted(f"{each['address']}: {each['message']}" for each in plan["warnings"] if each["address"])


def drifted(bench: Bench, code: int) -> list[str]:
    """Return the findings of `drift`, without what only the record has to learn."""
    done = bench.typed("drift", "--format", "json")
    assert done.code == code, done.err
    findings = [each for each in orjson.loads(done.out)["findings"] if each["message"] != "adopt is planned"]
    return sorted(" ".join(filter(None, (each["kind"], each["address"], each["path"]))) for each in findings)


def begins(lines: Sequence[str], starts: Sequence[str]) -> bool:
    return len(lines) == len(starts) and all(map(str.startswith, lines, sorted(starts)))


@each_case
def test_what_a_command_did_is_drift_or_is_held_and_no_plan_says_otherwise(bench: Bench, row: Row) -> None:
    findings = row.get("drift", [])
    code = 3 if any(each.startswith(("drift", "missing")) for each in findings) else 0
    ids, warnings = planned(bench)
    assert ids == row.get("plan", [])
    assert begins(warnings, row.get("says", [])), warnings
    assert drifted(bench, code) == sorted(findings)
    for kind, address, *_ in map(str.split, findings):
        word = {"pending": "held", "missing": "drift"}.get(kind, kind)
        assert kind == "unmanaged" or f"\n  {word}  " in bench.said("explain", address)
    done = bench.typed("apply", "--only-drift", "--yes", "--format", "json")
    events = [orjson.loads(line) for line in done.out.splitlines()]
    assert done.code == 0, done.err
    assert [each["id"] for each in events if each["event"] == "action_done"] == row.get("back", [])
    if code == 0:
        bench.said("apply", "--yes")
        assert drifted(bench, code) == sorted(findings)


@each_case
def test_what_is_accepted_leaves_nothing_to_do(bench: Bench, row: Row) -> None:
    if not row.get("drift"):
        return
    accepted = bench.typed("drift", "--accept", "*")
    added = [line for line in accepted.out.splitlines() if line.startswith("+")]
    missing = [line for line in row.get("accepted", []) if not any(line in each for each in added)]
    assert not missing, added
    if "accepted" in row:
        subprocess.run(["git", "apply", "-"], input=accepted.out.encode(), cwd=bench.folder, check=True)
        assert planned(bench)[0] == row.get("then", [])
