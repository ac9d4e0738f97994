"""Configs of topics on real brokers, by the commands: what is applied is there, and then nothing is left to do."""

from __future__ import annotations

import json
import re
import time
from typing import Any, Final

import pytest
from kafka.protocol.admin import IncrementalAlterConfigsRequest

from reconciler.resources.configs import canonicalize_value
from reconciler.resources.kafka_configs import build_kafka_catalog
from tests.cli.kafka.conftest import TOPIC_CONFIGS, Desk

pytestmark = pytest.mark.thorough

WRITTEN: Final[dict[str, Any]] = {
    "cleanup.policy": ["delete", "compact"],
    "retention.ms": "7d",
    "retention.bytes": "1GiB",
    "delete.retention.ms": "2h",
    "segment.bytes": "2MiB",
    "segment.ms": "1h",
    "segment.jitter.ms": 1000,
    "segment.index.bytes": "1MiB",
    "max.message.bytes": "2MiB",
    "min.insync.replicas": 1,
    "min.compaction.lag.ms": "1m",
    "max.compaction.lag.ms": "infinite",
    "min.cleanable.dirty.ratio": 0.30,
    "compression.type": "ZSTD",
    "compression.gzip.level": 5,
    "compression.lz4.level": 7,
    "compression.zstd.level": -7,
    "message.timestamp.type": "LogAppendTime",
    "message.timestamp.before.max.ms": "30d",
    "message.timestamp.after.max.ms": "1d",
    "flush.messages": 100000,
    "flush.ms": "1m",
    "file.delete.delay.ms": "10s",
    "index.interval.bytes": "8KiB",
    "unclean.leader.election.enable": False,
    "preallocate": True,
}
"""A value of every config that both versions know, as a person writes it."""
OTHERWISE: Final[dict[str, Any]] = {
    "cleanup.policy": "compact",
    "retention.ms": -1,
    "retention.bytes": -1,
    "min.cleanable.dirty.ratio": "0.7",
    "compression.type": "producer",
    "preallocate": "False",
    "max.compaction.lag.ms": 5000000,
}
STORED: Final = {
    "cleanup.policy": {"compact,delete"},
    "retention.ms": {"604800000"},
    "min.cleanable.dirty.ratio": {"0.3"},
    "compression.type": {"zstd"},
    "max.compaction.lag.ms": {"9223372036854775807"},
    "preallocate": {"true"},
}


@pytest.mark.fact("F-K-080")
def test_a_second_plan_is_empty_whatever_configs_a_topic_has(either: Desk) -> None:
    name = either.topic("every", configs=WRITTEN)
    bare = either.topic("bare")
    either.apply()
    either.settled()
    own = either.own(name)
    assert set(own) == set(WRITTEN)
    assert {key: own[key] in values for key, values in STORED.items()} == dict.fromkeys(STORED, True)
    assert either.own(bare) == {}
    either.topic("every", configs=OTHERWISE)
    either.apply()
    either.settled()
    assert set(either.own(name)) == set(OTHERWISE)


@pytest.mark.fact("F-K-080")
def test_each_config_alone_is_set_changed_and_taken_back(either: Desk) -> None:
    names = {key: f"c{number}" for number, key in enumerate(WRITTEN)}
    for key, name in names.items():
        either.topic(name, configs={key: WRITTEN[key]})
    either.apply()
    either.settled()
    for name in names.values():
        either.topic(name)
    either.apply()
    either.settled()
    assert [either.own(f"{either.prefix}.{name}") for name in ("c0", "c1")] == [{}, {}]


def test_a_small_fraction_is_changed_without_a_wait_though_brokers_write_it_in_another_way(desk: Desk) -> None:
    for ratio in (0.0001, 0.0002):
        desk.topic("orders", configs={"min.cleanable.dirty.ratio": ratio})
        began = time.monotonic()
        assert "✗" not in desk.apply().out
        assert time.monotonic() - began < 20
        desk.settled()


@pytest.mark.fact("F-K-081")
def test_what_nobody_declared_never_drifts(desk: Desk) -> None:
    """What brokers inject, what tools left, what only shows (ELR: min.insync.replicas of every topic, facts 9)."""
    name = desk.topic("orders", configs={"retention.ms": "1d"})
    desk.apply()
    desk.by_hand(name, {"leader.replication.throttled.replicas": "0:1", "flush.ms": "5000"})
    desk.settled()
    assert desk.sources(name)["min.insync.replicas"] == 3
    desk.by_hand(name, {"retention.ms": "3600000"})
    assert desk.typed("drift").code == 3
    desk.apply()
    assert desk.own(name) == {
        "retention.ms": "86400000",
        "leader.replication.throttled.replicas": "0:1",
        "flush.ms": "5000",
    }


def test_what_a_topic_has_by_the_brokers_defaults_is_told_as_theirs(desk: Desk) -> None:
    desk.by_hand(None, {"log.retention.ms": "7200000"})
    try:
        desk.topic("orders", configs={"segment.ms": "1h"})
        desk.apply()
        explained = json.loads(desk.typed("explain", desk.address("orders"), "--format", "json").out)
        assert explained["effective"]["retention.ms"] == "7200000"
        origins = {key: explained["effective_origins"][key] for key in ("retention.ms", "flush.ms", "segment.ms")}
        assert origins["segment.ms"].startswith(desk.address("orders"))
        assert (origins["retention.ms"], origins["flush.ms"]) == ("cluster/live", "brokers")
        described = json.loads(desk.typed("topic", "describe", desk.address("orders"), "--format", "json").out)
        rows = {row["key"]: (row["value"], row["origin"]) for row in described["configs"]}
        assert [(each["leader"], each["replicas"], each["in_sync"]) for each in described["partitions"]] == [
            (1, [1], [1]) for _ in described["partitions"]
        ]
        text = desk.typed("topic", "describe", desk.address("orders")).out
        columns = r"^partition +start +stable +end +leader +replicas +in sync\n"
        assert re.search(rf"{columns} +0 +0 +0 +0 +1 +1 +1$", text, re.MULTILINE)
        assert rows["retention.ms"] == ("7200000", "cluster/live")
        assert rows["min.insync.replicas"][1] == "cluster/live"  # ELR sets it for all (facts, 9).
        assert rows["segment.ms"] == ("3600000", desk.address("orders"))
    finally:
        desk.by_hand(None, {"log.retention.ms": None})


def test_every_limit_of_the_catalog_is_the_brokers_own(either: Desk) -> None:
    either.topic("orders")
    either.apply()
    name = f"{either.prefix}.orders"
    listed = either.sources(name)
    catalog = build_kafka_catalog(listed, either.kafka.version)
    assert listed.keys() - catalog.keys() == set()
    wrong = []
    for key in catalog.values():
        edges = [edge for edge in (key.minimum, key.maximum) if edge is not None and key.type != "double"]
        for value in sorted({int(edge) + step for edge in edges for step in (-1, 0, 1)} | {0, -1} if edges else ()):
            try:
                canonicalize_value(key.name, value, catalog)
                is_ours = True
            except ValueError:
                is_ours = False
            request = IncrementalAlterConfigsRequest(
                resources=[(TOPIC_CONFIGS, name, [(key.name, 0, str(value))])], validate_only=True
            )
            (answer,) = either.send(request).responses
            if is_ours and answer.error_code:
                wrong.append((key.name, value, answer.error_message))
    assert wrong == []
