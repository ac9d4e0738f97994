"""The story of tiered storage, as its readers run it: it insists on every figure it tells."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.examples.conftest import Tell

DEMO = Path(__file__).resolve().parents[2] / "examples" / "tiering" / "demo.py"


@pytest.mark.thorough
@pytest.mark.fact("F-R-022", "F-R-035", "F-R-069", "F-K-057", "F-K-061", "F-K-064", "F-K-065")
def test_readings_move_to_object_storage_outlive_their_cluster_and_stay_readable_to_the_end(
    tell: Tell, capsys: pytest.CaptureFixture[str]
) -> None:
    code = tell(DEMO).main()
    told = capsys.readouterr()
    assert code == 0, told.out + told.err
    assert told.out.count("\n── ") == 9
    assert "data loss: about" in told.out
    assert 'reconciler_cloud_storage_segments{cluster="west",topic="readings"} 5' in told.out
    assert "All as the story says" in told.out


@pytest.mark.soak
def test_the_story_comes_out_the_same_when_its_commands_are_run(tmp_path: Path) -> None:
    told = subprocess.run(
        [sys.executable, DEMO, tmp_path / "workspace"], capture_output=True, text=True, encoding="utf-8", check=False
    )
    assert told.returncode == 0, told.stdout + told.stderr
    assert "All as the story says" in told.stdout


def test_a_figure_that_is_different_ends_the_story(tell: Tell, capsys: pytest.CaptureFixture[str]) -> None:
    demo = tell(DEMO)
    demo.CHAPTERS = (demo.begin, lambda: demo.storage(local=(0, 1), remote=None))
    assert demo.main() == 1
    assert "local offsets are not (0, 1)" in capsys.readouterr().err
