"""The story of tiered storage, as its readers run it: it insists on every figure it tells."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

DEMO = Path(__file__).resolve().parents[2] / "examples" / "tiering" / "demo.py"


@pytest.mark.fact("F-R-035", "F-R-069")
def test_readings_move_to_object_storage_outlive_their_cluster_and_stay_when_tiering_is_off(tmp_path: Path) -> None:
    told = subprocess.run(
        [sys.executable, DEMO, tmp_path / "workspace"], capture_output=True, text=True, encoding="utf-8", check=False
    )
    assert told.returncode == 0, told.stdout + told.stderr
    assert "All as the story says" in told.stdout
    assert told.stdout.count("\n── ") == 7
    assert "data loss: about" in told.stdout
    assert 'reconciler_cloud_storage_segments{cluster="west",topic="readings"} 5' in told.stdout
