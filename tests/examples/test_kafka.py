"""From a cluster that people made by hand to pull requests, as readers of the example run it, on a real broker."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.examples.conftest import Tell
    from tests.servers.kafka import Kafka

DEMO = Path(__file__).resolve().parents[2] / "examples" / "kafka" / "demo.py"


@pytest.mark.thorough
@pytest.mark.fact("F-K-032", "F-K-080")
def test_a_cluster_made_by_hand_is_exported_adopted_and_changed_by_pull_requests(
    tell: Tell,
    start_kafka: Callable[..., Kafka],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("KAFKA_BOOTSTRAP", start_kafka().bootstrap())
    demo = tell(DEMO)
    code = demo.main()
    told = capsys.readouterr()
    assert code == 0, told.out + told.err
    assert told.out.count("\n── ") == 6
    assert "All as the story says" in told.out
    assert demo.main() == 1, "what is there is not made again"
    assert "has topics that this story would make: shop.eu.orders" in capsys.readouterr().err


@pytest.mark.soak
@pytest.mark.xdist_group("kafka")
def test_the_story_starts_a_broker_of_its_own(tell_alone: Callable[..., None]) -> None:
    tell_alone(DEMO, KAFKA_BOOTSTRAP="")
