"""The benchmarks still run. What they measure is judged by people, never by a test."""

from __future__ import annotations

import dataclasses
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

RUN = Path(__file__).with_name("run.py")


def test_a_run_of_some_writes_their_rows_and_leaves_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(RUN.parent)
    measuring, table = importlib.import_module("measuring"), importlib.import_module("table")
    slow, fast, new = (measuring.Row(what, "a floor", "2 s", "1 s", 2.0, 3.0) for what in ("slow", "fast", "new"))
    whole = table.markdown([slow, fast], "two cores")
    some = table.markdown([dataclasses.replace(slow, measured=4.0), new], "two cores", whole)
    rows = [line.split(" | ")[0::4] for line in some.splitlines() if line.startswith("| ")][2:]
    assert rows == [["| slow", "**4.00×, missed**"], ["| fast", "2.00×"], ["| new", "2.00×"]]
    readme = f"# Ours\n{table.BEGIN}\nold\n{table.END}\nend\n"
    page = table.quoted(table.quoted(readme, [slow, fast], is_whole=True), [new], is_whole=False)
    assert [line.split(" | ")[0] for line in page.splitlines()[4:7]] == ["| slow", "| fast", "| new"]
    assert page.endswith(f"{table.END}\nend\n")


def test_a_benchmark_that_fails_costs_none_of_the_others(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.syspath_prepend(RUN.parent)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "dead.py").write_text("import measuring\ndef rows(*_):\n raise measuring.BenchmarkError('no broker')\n")
    (tmp_path / "slow.py").write_text(
        "import measuring\ndef rows(*_):\n yield measuring.Row('slow', 'a floor', '2 s', '1 s', 2.0, 3.0)\n"
    )
    measured, failed = importlib.import_module("run")._measure(["dead", "slow"], None, tmp_path)
    assert ([row.what for row in measured], failed) == (["slow"], ["dead"])
    assert "dead FAILED: no broker" in capsys.readouterr().out


@pytest.mark.soak
def test_every_benchmark_runs_on_a_small_scale() -> None:
    ran = subprocess.run([sys.executable, RUN, "--quick"], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert "aims met" in ran.stdout
