"""From a Redpanda cluster that people made by hand to an unmount and a mount, as readers of the example run it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.examples.conftest import Tell
    from tests.servers.redpanda.server import Redpanda

DEMO = Path(__file__).resolve().parents[2] / "examples" / "redpanda" / "demo.py"


@pytest.mark.thorough
def test_a_redpanda_cluster_made_by_hand_is_exported_tiered_and_one_topic_mounted_under_another_name(
    tell: Tell,
    start_redpanda: Callable[..., Redpanda],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    server = start_redpanda()
    place = {name: getattr(server, name) for name in ("kafka", "admin", "user", "password")}
    monkeypatch.setenv("REDPANDA", json.dumps(place))
    monkeypatch.setenv("RECONCILER_PASSWORD", "")
    demo = tell(DEMO)
    code = demo.main()
    told = capsys.readouterr()
    assert code == 0, told.out + told.err
    assert told.out.count("\n── ") == 6
    assert "All as the story says" in told.out
    for line in shown_in_readme(DEMO):
        assert line in told.out
    assert demo.main() == 1, "what exists is not created again"
    assert "has topics that this story would create: shop.eu.orders-2025" in capsys.readouterr().err


def shown_in_readme(demo: Path) -> list[str]:
    """Return the lines that the README of an example shows, without what differs between runs."""
    blocks = re.findall(r"```console\n(.*?)```", demo.with_name("README.md").read_text(encoding="utf-8"), re.DOTALL)
    lines = [line.strip() for block in blocks for line in block.splitlines() if line.strip()]
    assert lines, "the README shows what commands print"
    return lines


@pytest.mark.soak
@pytest.mark.xdist_group("redpanda")
def test_the_story_starts_an_emulation_of_its_own(tell_alone: Callable[..., None]) -> None:
    tell_alone(DEMO, REDPANDA="")
