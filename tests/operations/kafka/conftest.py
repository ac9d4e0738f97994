from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.operations.kafka.hibernated import SITES, TOPIC, Site

if TYPE_CHECKING:
    from conftest import Bench

    from tests.servers.kafka import Kafka


@pytest.fixture
def site(bench: Bench, kafka_broker: Kafka, kafka_prefix: str) -> Site:
    """Both clusters, and a topic of records on Kafka."""
    return made(bench, kafka_broker, kafka_prefix)


@pytest.fixture
def site_39(bench: Bench, kafka_39: Kafka, kafka_prefix: str) -> Site:
    """The same on the oldest version."""
    return made(bench, kafka_39, kafka_prefix)


def made(bench: Bench, kafka_broker: Kafka, kafka_prefix: str) -> Site:
    """Declare the clusters and the topic, apply, and write records."""
    for name in ("west", "orders"):
        (bench.folder / f"manifests/{name}.yaml").unlink()
    site = Site(bench, kafka_broker, kafka_prefix)
    site.write("sites", SITES)
    site.write("topic", TOPIC)
    site.apply()
    site.produce()
    return site
