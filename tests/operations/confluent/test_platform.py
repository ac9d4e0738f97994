"""Clusters of Confluent Platform: what they have and Cloud has not."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from tests.operations.confluent.test_confluent import Desk, document, topic

if TYPE_CHECKING:
    from conftest import Bench

    from tests.servers.confluentfixtures import Pair

pytestmark = [pytest.mark.thorough, pytest.mark.xdist_group("confluent")]


@pytest.fixture
def desk(bench: Bench, start_confluent: Callable[..., Pair]) -> Desk:
    return Desk(bench, start_confluent(), "orders", type="platform")


def test_a_policy_tiers_a_topic_with_the_words_of_platform(desk: Desk) -> None:
    policy = document("TieringPolicy", "short", {"remoteWrite": True, "localRetention": {"time": "1h"}})
    desk.apply(policy, topic("orders", tieringPolicy="short"))
    kept = desk.servers["west"].topics.kept["orders"]
    assert kept == {"confluent.tier.enable": "true", "confluent.tier.local.hotset.ms": "3600000"}


def test_the_words_of_platform_are_hints_to_those_of_files(desk: Desk) -> None:
    (error,) = desk.errors(topic("orders", configs={"confluent.tier.enable": "true"}))
    assert "Did you mean remote.storage.enable?" in error


def test_tiered_storage_is_not_switched_off_without_a_document_that_says_what_is_lost(desk: Desk) -> None:
    desk.apply(topic("orders", configs={"remote.storage.enable": "true"}))
    errors = desk.errors(topic("orders", configs={"remote.storage.enable": "false"}))
    assert any("Confluent does not document what becomes of its records" in error for error in errors), errors


@pytest.mark.fact("F-C-206")
def test_a_link_is_paused_and_resumed(desk: Desk) -> None:
    desk.apply(topic("orders"), desk.mirror({"orders": "mirroring"}))
    desk.apply(topic("orders"), desk.mirror({"orders": "mirroring"}, paused=True))
    assert desk.states() == {"orders": "LINK_PAUSED"}
    desk.apply(topic("orders"), desk.mirror({"orders": "mirroring"}))
    assert desk.states() == {"orders": "ACTIVE"}
