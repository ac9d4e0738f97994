"""The emulated Redpanda cluster for the tests of one worker: started when the first of them asks, ended with the last.

`redpanda` is shared: tests use names of their own, and leave no fault behind. A test that needs another version, a
second cluster with the same bucket, or TLS starts its own: `start_redpanda(versions=["26.1.2"] * 3)`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

from examples.kafkajars import KafkaMissingError

if TYPE_CHECKING:
    from tests.servers.redpanda.server import Redpanda


def _started(**options: Any) -> Redpanda:
    from tests.servers.redpanda.server import Redpanda  # noqa: PLC0415 - it loads the classes of the whole protocol

    try:
        return Redpanda.start(**options)
    except KafkaMissingError as error:
        return pytest.fail(str(error), pytrace=False)


@pytest.fixture(scope="session")
def redpanda_server() -> Iterator[Redpanda]:
    with _started() as server:
        yield server


@pytest.fixture
def redpanda(redpanda_server: Redpanda) -> Iterator[Redpanda]:
    """Return the shared cluster; faults that a test asked for end with it, and its migrations."""
    yield redpanda_server
    redpanda_server.faults.clear()
    redpanda_server.migrations.forget()


@pytest.fixture
def start_redpanda() -> Iterator[Callable[..., Redpanda]]:
    """Start clusters that end with the test; the options are those of `Redpanda.start`."""
    with ExitStack() as stack:
        yield lambda **options: stack.enter_context(_started(**options))
