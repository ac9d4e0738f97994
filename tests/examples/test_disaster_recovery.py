"""The story of a failover, rehearsed and needed, and of the way back, as its readers run it; copying needs Java."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.examples.conftest import Tell

DEMO = Path(__file__).resolve().parents[2] / "examples" / "disaster-recovery" / "demo.py"


@pytest.mark.thorough
@pytest.mark.spark
@pytest.mark.fact("F-C-041", "F-C-065", "F-C-074", "F-C-078", "F-C-079", "F-C-080")
def test_a_failover_is_rehearsed_needed_told_to_the_files_and_taken_back(
    tell: Tell, capsys: pytest.CaptureFixture[str]
) -> None:
    code = tell(DEMO).main()
    told = capsys.readouterr()
    assert code == 0, told.out + told.err
    assert told.out.count("\n── ") == 9
    assert "All as the story says" in told.out


@pytest.mark.soak
@pytest.mark.spark
def test_the_story_comes_out_the_same_when_its_commands_are_run(tmp_path: Path) -> None:
    told = subprocess.run(
        [sys.executable, DEMO, tmp_path / "workspace"], capture_output=True, text=True, encoding="utf-8", check=False
    )
    assert told.returncode == 0, told.stdout + told.stderr
    assert "All as the story says" in told.stdout


@pytest.mark.spark
@pytest.mark.thorough
def test_a_figure_that_is_different_ends_the_story(tell: Tell, capsys: pytest.CaptureFixture[str]) -> None:
    demo = tell(DEMO)
    demo.CHAPTERS = (demo.begin, demo.link, lambda: demo.state({}))
    assert demo.main() == 1
    assert "mirrors are {'mirror/east/shop:orders': 'ACTIVE'" in capsys.readouterr().err
