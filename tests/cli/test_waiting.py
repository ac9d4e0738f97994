"""What people are told while somebody else holds the lease, when they give up, and when they take over."""

from __future__ import annotations

import json
import re
from pathlib import Path

import orjson
import pytest

from tests.cli.conftest import Call

LOCKFILE = Path(".reconciler/lockfile.json")


@pytest.fixture
def call(typed: Call) -> Call:
    """Run commands in one workspace that was applied, and whose lease is free."""
    assert typed("init").code == 0
    assert typed("apply", "--yes").code == 0
    return typed


def hold(lease_s: float) -> None:
    """Let a run that is dead hold the lease."""
    body = orjson.loads(LOCKFILE.read_bytes())
    lease = {"status": "held", "lease_s": lease_s, "run": "r-7", "holder": "h", "who": "anna@build-7"}
    body["lease"] |= lease | {"ci_url": "https://ci/7", "since": "2026-01-01T00:00:00Z"}
    LOCKFILE.write_bytes(orjson.dumps(body))


def test_whoever_waits_reads_who_holds_it_since_when_and_for_what_and_exits_5(call: Call) -> None:
    hold(lease_s=90)
    said = call("apply", "--yes", "--lock-timeout", "1s")
    assert said.code == 5
    assert said.err.count("the lease is held by anna@build-7") == 2
    lines = said.err.splitlines()
    assert lines[0].startswith("Warning: the lease is held by anna@build-7 (https://ci/7) since 2026-01-01T00:00:00Z")
    assert "planning; run r-7; waiting up to 1 s, 0 s so far" in " ".join(lines)
    assert "reconciler state unlock r-7" in " ".join(lines)


def test_a_takeover_is_one_line_on_standard_error(call: Call) -> None:
    hold(lease_s=0.5)
    said = call("apply", "--yes")
    assert said.code == 0
    told = [line for line in said.err.splitlines() if "took over" in line]
    assert len(told) == 1
    assert re.fullmatch(r"Warning: took over the lease of run r-7 of anna@build-7, silent for \d+ s", told[0])
    assert "took over" not in said.out
    assert "took over" not in call("apply", "--yes").err


def test_a_takeover_stands_in_the_log(call: Call) -> None:
    hold(lease_s=0.5)
    said = call("apply", "--yes", "--verbose")
    noted = [json.loads(line) for line in said.err.splitlines()]
    (facts,) = [entry["facts"] for entry in noted if entry["message"] == "took over"]
    assert (facts["run"], facts["who"]) == ("r-7", "anna@build-7")
    assert facts["silent_s"] >= 0.5
