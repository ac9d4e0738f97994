"""States and clusters that an older version wrote are read, continued and changed by this one.

`tests/stored/before-the-house` was written by the last commit before the modules were merged: a workspace with two
embedded clusters, a tiered topic, a compacted topic, its mirror and a consumer group.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.cli.conftest import Call

STORED = Path(__file__).parents[1] / "stored" / "before-the-house"


@pytest.fixture
def stored(typed: Call, tmp_path: Path) -> Call:
    shutil.copytree(STORED, tmp_path, dirs_exist_ok=True)
    return typed


def test_a_stored_workspace_has_nothing_to_do(stored: Call) -> None:
    assert stored("plan", "--detailed-exitcode").code == 0
    assert stored("drift").code == 0
    checked = stored("cluster", "check", "east")
    assert checked.code == 0, checked.out + checked.err


def test_stored_records_groups_and_mirrors_are_what_they_were(stored: Call) -> None:
    orders = [json.loads(line) for line in stored("topic", "consume", "topic/east/shop:orders").out.splitlines()]
    assert len(orders) == 300
    assert sorted(json.loads(row["value"])["n"] for row in orders) == list(range(1, 301))
    rest = stored("topic", "consume", "topic/east/shop:orders", "--group", "readers").out.splitlines()
    assert len(rest) == 200
    verified = stored("verify", "topic/east/shop:carts", "mirror/west/shop:carts")
    assert verified.code == 0, verified.out + verified.err


def test_a_stored_workspace_is_changed_and_its_history_goes_on(stored: Call, tmp_path: Path) -> None:
    manifests = tmp_path / "manifests" / "all.yaml"
    manifests.write_text(manifests.read_text().replace("partitions: 2", "partitions: 3"))
    applied = stored("apply", "--auto-approve")
    assert applied.code == 0, applied.out + applied.err
    rows = stored("state", "history", "--format", "json").out
    assert [each["serial"] for each in json.loads(rows)["snapshots"]] == [2, 1]
    assert stored("plan", "--detailed-exitcode").code == 0
