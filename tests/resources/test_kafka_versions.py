"""Kafka's configs as one version has them, and the names that it keeps for itself."""

from __future__ import annotations

import pytest

from reconciler.resources.configs import canonicalize_value
from reconciler.resources.kafka_configs import KAFKA_CONFIGS, build_kafka_catalog, is_internal


@pytest.mark.parametrize(("version", "is_taken"), [("3.9.1", True), ("4.0.0", False), ("4.3.1", False)])
def test_small_segments_are_taken_before_version_4(version: str, is_taken: bool) -> None:  # noqa: FBT001 - a column of the table
    catalog = build_kafka_catalog(KAFKA_CONFIGS, version)
    if is_taken:
        assert canonicalize_value("segment.bytes", "1000", catalog) == "1000"
    else:
        with pytest.raises(ValueError, match="1"):
            canonicalize_value("segment.bytes", "1000", catalog)


def test_only_what_brokers_list_is_known_and_what_nobody_knows_is_text() -> None:
    catalog = build_kafka_catalog(["retention.ms", "confluent.tier.enable"], "4.3")
    assert list(catalog) == ["confluent.tier.enable", "retention.ms"]
    assert catalog["retention.ms"] is KAFKA_CONFIGS["retention.ms"]
    assert canonicalize_value("confluent.tier.enable", "False", catalog) == "False"


@pytest.mark.parametrize(
    ("name", "is_theirs"),
    [
        ("__consumer_offsets", True),
        ("__reconciler", True),
        ("mm2-offset-syncs.a.internal", False),
        ("west.checkpoints.internal", False),
        ("west.heartbeats", False),
        ("__mine", False),
        ("orders", False),
        ("consumer_offsets", False),
    ],
)
def test_only_names_of_kafka_and_of_the_ledger_are_internal(name: str, is_theirs: bool) -> None:  # noqa: FBT001 - a column of the table
    assert is_internal(name) is is_theirs


def test_a_cluster_that_keeps_no_names_keeps_none() -> None:
    assert not is_internal("__consumer_offsets", ())
