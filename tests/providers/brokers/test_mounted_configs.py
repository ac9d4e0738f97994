"""Configs that a topic has again once it is mounted on Kafka."""

from __future__ import annotations

import pytest

from reconciler.archives.location import TopicLocation
from reconciler.archives.topic_manifest import TopicManifest
from reconciler.providers.brokers.mounts import compute_final_configs
from reconciler.resources.kafka_configs import KAFKA_CONFIGS, build_kafka_catalog

KNOWN = build_kafka_catalog([*KAFKA_CONFIGS, "message.downconversion.enable"], "3.9")


@pytest.mark.parametrize(
    ("own", "again"),
    [
        ({"message.downconversion.enable": "false"}, {"message.downconversion.enable": "false"}),
        ({"retention.bytes": "-2"}, {"retention.bytes": "-2"}),
        ({"confluent.tier.enable": "true", "remote.storage.enable": "true"}, {}),
    ],
    ids=["brokers list it and the catalog lacks it", "no file may declare its value", "brokers have no such config"],
)
def test_a_topic_has_its_own_configs_again_as_far_as_brokers_list_them(
    own: dict[str, str], again: dict[str, str]
) -> None:
    place = TopicLocation("orders", "67f5505a-32f3-4677-bcad-3c75a1a702a6", 1)
    found = TopicManifest(place, "west", 1, "orders", 1, configs=own, effective={"retention.bytes": "-2"} | own)
    changes = compute_final_configs(found, KNOWN, {})
    assert {key: value for key, value in changes.items() if key in own} == again
