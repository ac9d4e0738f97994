"""How long brokers are waited for until they show what was done: as long as they show more of it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast
from uuid import UUID

import pytest
from kafka.protocol.metadata import MetadataResponse

from reconciler.errors import RetryableError, StalePlanError
from reconciler.planning.actions import Change
from reconciler.providers.brokers import admin
from reconciler.providers.brokers.admin_requests import PendingChange
from reconciler.providers.brokers.client import _parse_topic
from reconciler.providers.brokers.links.link_states import (
    RecordedMirror,
    build_link_changes,
    build_mirror_changes,
    overlay_links,
)
from reconciler.providers.brokers.provider import ClusterObserver
from reconciler.providers.brokers.translate import OWN, ClusterNaming, ConfigState, TopicMetadata
from reconciler.providers.models import check_unchanged
from reconciler.providers.protocol import Scope
from reconciler.resources.address import Address
from reconciler.resources.kafka_configs import KAFKA_CONFIGS
from reconciler.resources.mirrors import LinkEntry, MirrorEntry

if TYPE_CHECKING:
    from reconciler.providers.brokers.client import KafkaClient
    from reconciler.providers.brokers.ledger import Entries

PATIENCE_S = 0.2
Topic: Any = MetadataResponse.MetadataResponseTopic
MANY = [f"topic-{number:05d}" for number in range(12)]


@pytest.fixture(autouse=True)
def _little_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admin, "_PATIENCE_S", PATIENCE_S)


def test_brokers_that_go_on_showing_more_are_waited_for_however_long_it_takes() -> None:
    def one_less(left: Sequence[str]) -> list[str]:
        return list(left[1:])

    began = time.monotonic()
    admin._wait_until_empty(one_less, MANY, "brokers do not list", "new topic")
    assert time.monotonic() - began > PATIENCE_S


def test_brokers_that_show_nothing_more_are_given_up() -> None:
    def never_the_last_two(left: Sequence[str]) -> list[str]:
        return list(left[:-1]) if len(left) > 2 else list(left)

    with pytest.raises(RetryableError, match="brokers do not list 2 new topics after") as raised:
        admin._wait_until_empty(never_the_last_two, MANY, "brokers do not list", "new topic")
    assert "plan again" in raised.value.hint


SEEN = TopicMetadata("orders", "id", is_internal=False, replicas=((1, 2), (2, 3)))
CONFIGS = {
    "retention.ms": ConfigState("60000", OWN, is_read_only=False, is_sensitive=False),
    "min.cleanable.dirty.ratio": ConfigState("2.0E-4", OWN, is_read_only=False, is_sensitive=False),
    "segment.ms": ConfigState("3600000", OWN + 4, is_read_only=False, is_sensitive=False),
}


@pytest.mark.parametrize(
    ("asked", "shows"),
    [
        ({"configs": {"retention.ms": "60000"}}, True),
        ({"configs": {"retention.ms": "90000"}}, False),
        ({"configs": {"min.cleanable.dirty.ratio": "0.0002"}}, True),
        ({"configs": {"min.cleanable.dirty.ratio": "0.0003"}}, False),
        ({"configs": {"min.cleanable.dirty.ratio": None}}, False),
        ({"configs": {"segment.ms": None}}, True),
        ({"configs": {"segment.ms": "3600000"}}, False),
        ({"partitions": 2}, True),
        ({"partitions": 3}, False),
        ({"replicas": 2}, True),
        ({"replicas": 3}, False),
    ],
)
def test_brokers_show_a_change_once_every_part_of_it_is_there(asked: dict[str, Any], *, shows: bool) -> None:
    change = PendingChange("", Address("topic/west/ours"), "ours", **asked)
    assert admin._shows_change(change, SEEN, CONFIGS, tells_own=True) is shows


def test_a_topic_is_as_it_was_asked_for_where_its_values_mean_the_same() -> None:
    own = {"min.cleanable.dirty.ratio": "2.0E-4", "cleanup.policy": "delete,compact"}
    assert admin._are_equal_configs(own, {"min.cleanable.dirty.ratio": "0.0002", "cleanup.policy": "compact,delete"})
    assert not admin._are_equal_configs(own, {**own, "min.cleanable.dirty.ratio": "0.0003"})
    assert not admin._are_equal_configs(own, {**own, "segment.ms": "1"})


def test_a_value_that_stands_as_wanted_already_is_no_change_made_by_others() -> None:
    ratio = "configs.min.cleanable.dirty.ratio"
    address = Address("topic/west/orders")
    check_unchanged(address, [Change(ratio, "1.0E-4", "0.0002")], {ratio: "2.0E-4"}, KAFKA_CONFIGS)
    with pytest.raises(StalePlanError):
        check_unchanged(address, [Change(ratio, "1.0E-4", "0.0003")], {ratio: "2.0E-4"}, KAFKA_CONFIGS)


def test_a_topic_that_may_not_be_described_is_not_taken_for_another_one() -> None:
    refused = Topic(error_code=29, name="orders", topic_id=UUID(int=0), is_internal=False, partitions=[])
    look = ClusterObserver(cast("KafkaClient", None), "west", ClusterNaming(".", {}), Scope(), frozenset(), None)
    seen = dict(look.list_observed({"orders": _parse_topic(refused)}, {}, []))[Address("topic/west/orders")]
    assert seen.hidden is not None
    assert seen.incarnation is None


def test_a_mirror_has_the_mark_of_its_topic_that_may_not_be_described() -> None:
    link = LinkEntry("id", "west", {"source": "west"})
    mirror = RecordedMirror("orders", "dr", "1", MirrorEntry("id", "orders"))
    entries = build_link_changes("dr", link) | build_mirror_changes("orders", mirror)
    topics = {"orders": TopicMetadata("orders", "1", is_internal=False, replicas=((1,),), error=29)}
    look = ClusterObserver(cast("KafkaClient", None), "east", ClusterNaming(".", {}), Scope(), frozenset(), None)
    before = dict(look.list_observed(topics, {}, []))
    found = overlay_links(before, (cast("Entries", entries), topics, {}), "east", None)
    assert str(found[Address("mirror/east/orders")].hidden) == str(before[Address("topic/east/orders")].hidden)
