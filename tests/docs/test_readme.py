"""The plan that the README shows is the one its readers would get."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RECONCILER = Path(sys.executable).with_name("reconciler")
_SHOWN = re.compile(r"\$ reconciler plan\n(.*?)\n\$ reconciler apply", re.DOTALL)

_REFUNDS = """\
---
apiVersion: reconciler/v1
kind: Topic
metadata: {name: refunds, namespace: "shop:eu", cluster: local, labels: {team: checkout}}
spec:
  partitions: 6
"""


def edit(topics: Path) -> None:
    """Grow one topic, remove one, add one, and change what all of them inherit."""
    namespace, orders, _customers = topics.read_text(encoding="utf-8").split("---\n")
    namespace = namespace.replace("retention.ms: 30d", "retention.ms: 60d")
    orders = orders.replace("partitions: 6", "partitions: 12")
    topics.write_text(f"{namespace}---\n{orders}{_REFUNDS}", encoding="utf-8")


def run(folder: Path, *arguments: str) -> str:
    finished = subprocess.run([RECONCILER, *arguments], cwd=folder, capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stderr
    return finished.stdout


def edited_plan(scratch: Path) -> str:
    """Return what `plan` says after the edits that the README tells of."""
    made = shutil.ignore_patterns(".*")
    folder = Path(shutil.copytree(ROOT / "examples" / "quickstart", scratch / "quickstart", ignore=made))
    run(folder, "apply", "--yes")
    edit(folder / "manifests" / "topics.yaml")
    return run(folder, "plan").strip()


def repeatable(plan: str) -> list[str]:
    """Return a plan's lines without times, and without the digest: it covers the ids a cluster was born with."""
    without_times = re.sub(r"in [0-9.]+ m?s", "in … s", plan)
    return [line.rstrip() for line in re.sub(r"digest [0-9a-f]{8}", "digest …", without_times).splitlines()]


def test_the_plan_of_the_readme_is_what_the_tool_says(tmp_path: Path) -> None:
    shown = _SHOWN.search((ROOT / "README.md").read_text(encoding="utf-8"))
    assert shown
    assert repeatable(shown[1]) == repeatable(edited_plan(tmp_path))


def test_the_first_screen_says_what_this_is_shows_a_plan_and_the_two_commands() -> None:
    screen = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()[:32]
    assert any("Plan and apply" in line for line in screen)
    assert "$ reconciler plan" in screen
    assert "$ reconciler apply" in screen
