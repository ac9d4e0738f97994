from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.workflow.kafka.hibernated import SITES, TOPIC, Site

if TYPE_CHECKING:
    from conftest import Bench

    from tests.servers.kafka import Kafka


@pytest.fixture
def site(bench: Bench, kafka_broker: Kafka, kafka_prefix: str) -> Site:
    """Both clusters, and a topic of records on Kafka."""
    for name in ("west", "orders"):
        (bench.folder / f"manifests/{name}.yaml").unlink()
    site = Site(bench, kafka_broker, kafka_prefix)
    site.write("sites", SITES)
    site.write("topic", TOPIC)
    site.apply()
    site.produce()
    return site
