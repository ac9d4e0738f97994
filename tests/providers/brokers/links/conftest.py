"""What tests of links opened is closed after each, and what they made is forgotten."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.providers.brokers.links import linked
from tests.servers.kafkatopics import forget_links


@pytest.fixture(autouse=True)
def _closed(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    while linked.OPENED:
        linked.OPENED.pop()._client.close()
    for shared in {"kafka_broker", "kafka_39", "redpanda_server"} & set(request.fixturenames):
        forget_links(request.getfixturevalue(shared))
