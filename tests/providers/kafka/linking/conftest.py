"""What tests of links opened is closed after each."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.providers.kafka.linking import linked


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    yield
    while linked.OPENED:
        linked.OPENED.pop()._client.close()
