"""`cluster check` on the command line: what it prints and the code it leaves with."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema

from tests.cli.conftest import Run

SCHEMA = Path(__file__).resolve().parents[2] / "schemas" / "check.json"
TOPIC = "topic/west/shop:orders"


def test_a_cluster_is_checked_and_what_is_lost_is_named(run: Run, tmp_path: Path) -> None:
    assert run("init").returncode == 0
    assert run("apply", "--yes").returncode == 0
    produced = run("topic", "produce", TOPIC, "--input", "-", "--input-format", "jsonl", "--partition", "1", stdin="{}")
    assert produced.returncode == 0, produced.stderr
    well = run("cluster", "check", "west")
    assert (well.returncode, well.stderr) == (0, "")
    assert "1 namespace, 1 topic, 1 partition written, 1 part, 1 record" in well.stdout
    assert well.stdout.endswith("\nConsistent\n")

    (part,) = (tmp_path / ".clusters/west/topics").rglob("*.parquet")
    part.unlink()
    said = run("cluster", "check", "west", "--repair")
    assert said.returncode == 1
    assert f"ERROR part-missing  1\n  ✗ shop:orders, partition 1, offsets 0 to 0: topics/shop/orders_1/{part.name}" in (
        said.stdout
    )
    assert "why: The records at these offsets are gone" in said.stdout
    assert said.stdout.endswith("\nNot consistent: 1 error\n")
    assert said.stderr.startswith("Error: cluster west is not consistent: 1 error\n")

    printed = json.loads(run("cluster", "check", "west", "--format", "json").stdout)
    jsonschema.validate(printed, json.loads(SCHEMA.read_bytes()))
    assert not printed["consistent"]
    assert printed["findings"][0]["gone"] == [{"start": 0, "stop": 1}]
    assert (printed["findings"][0]["topic"], printed["findings"][0]["partition"]) == ("shop:orders", 1)
