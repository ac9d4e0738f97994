"""The story of a topic that sleeps, wakes elsewhere and outlives those who die on the way, as its readers run it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.examples.conftest import Tell

pytestmark = pytest.mark.thorough

DEMO = Path(__file__).resolve().parents[2] / "examples" / "hibernate" / "demo.py"


@pytest.mark.fact("F-R-102", "F-R-103", "F-R-111", "F-R-116", "F-R-123", "F-R-124")
def test_a_topic_sleeps_wakes_elsewhere_is_raced_for_and_outlives_those_who_die_on_the_way(
    tell: Tell, capsys: pytest.CaptureFixture[str]
) -> None:
    code = tell(DEMO).main()
    told = capsys.readouterr()
    assert code == 0, told.out + told.err
    assert told.out.count("\n── ") == 8
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
    demo.FLIGHTS = {**demo.FLIGHTS, 1: 6_098}
    demo.CHAPTERS = (demo.begin, demo.hibernate)
    assert demo.main() == 1
    assert "6,099 records lie there" in capsys.readouterr().err
