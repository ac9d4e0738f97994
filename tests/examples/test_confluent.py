"""Topics, a cluster link and a failover on Confluent clusters, as readers of the example run it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.examples.test_redpanda import shown_in_readme

if TYPE_CHECKING:
    from tests.examples.conftest import Tell
    from tests.servers.confluentfixtures import Pair

DEMO = Path(__file__).resolve().parents[2] / "examples" / "confluent" / "demo.py"


@pytest.mark.thorough
def test_topics_are_mirrored_by_a_cluster_link_failed_over_and_brought_back(
    tell: Tell,
    start_confluent: Callable[..., Pair],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    pair = start_confluent(kind="dedicated")
    fields = ("kafka", "rest", "cluster_id", "key", "secret")
    places = {name: {field: getattr(getattr(pair, name), field) for field in fields} for name in pair._fields}
    monkeypatch.setenv("CONFLUENT", json.dumps(places))
    for name in ("west", "east"):
        for part in ("key", "secret"):
            monkeypatch.setenv(f"{name}_{part}", "")
    code = tell(DEMO).main()
    told = capsys.readouterr()
    assert code == 0, told.out + told.err
    assert told.out.count("\n── ") == 5
    assert "All as the story says" in told.out
    for line in shown_in_readme(DEMO):
        assert line in told.out


@pytest.mark.soak
@pytest.mark.xdist_group("confluent")
def test_the_story_starts_an_emulation_of_its_own(tell_alone: Callable[..., None]) -> None:
    tell_alone(DEMO, CONFLUENT="")
