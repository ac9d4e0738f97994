"""The benchmarks still run. What they measure is judged by people, never by a test."""

from __future__ import annotations

import dataclasses
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

RUN = Path(__file__).with_name("run.py")


def test_the_page_has_a_table_for_each_area_says_why_aims_are_missed_and_what_is_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(RUN.parent)
    measuring, table = importlib.import_module("measuring"), importlib.import_module("table")
    fast = measuring.Row("fast", "a floor", "2 s", "1 s", 2.0, 3.0)
    slow = measuring.Row("slow", "a floor", "4 s", "1 s", 4.0, 3.0, why="It waits.")
    odd = dataclasses.replace(slow, what="odd", why="")
    areas = {"Planning": [fast, slow], "Reading": [odd], "Peers": [measuring.LeftOut("`tofu`", "not on the PATH")]}
    page = table.markdown(areas, "two cores", "1.2.3")
    assert [line for line in page.splitlines() if line.startswith(("## ", "- ", "| fast", "| slow", "| odd"))] == [
        "## Planning",
        "| fast | a floor | 2 s | 1 s | 2.00× | ≤ 3.00× |",
        "| slow | a floor | 4 s | 1 s | **4.00×, missed** | ≤ 3.00× |",
        "- Missed: slow, against a floor. It waits.",
        "## Reading",
        "| odd | a floor | 4 s | 1 s | **4.00×, missed** | ≤ 3.00× |",
        "- Missed: odd, against a floor. We do not know why yet.",
        "## Left out",
        "- `tofu`: not on the PATH",
    ]
    assert "reconciler 1.2.3" in page
    assert "1 of 3 aims are met" in page


def test_a_benchmark_that_fails_costs_none_of_the_others(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.syspath_prepend(RUN.parent)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "dead.py").write_text("import measuring\ndef rows(*_):\n raise measuring.BenchmarkError('no broker')\n")
    (tmp_path / "slow.py").write_text(
        "import measuring\ndef rows(*_):\n yield measuring.Row('slow', 'a floor', '2 s', '1 s', 2.0, 3.0)\n"
    )
    areas, failed = importlib.import_module("run")._measure(["dead", "slow"], None, tmp_path)
    assert ([row.what for row in areas["slow"]], failed) == (["slow"], ["dead"])
    assert areas["dead"][0].why == "its benchmark failed in this run"
    assert "dead FAILED: no broker" in capsys.readouterr().out


@pytest.mark.soak
def test_every_benchmark_runs_on_a_small_scale() -> None:
    ran = subprocess.run([sys.executable, RUN, "--quick"], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert "aims met" in ran.stdout
