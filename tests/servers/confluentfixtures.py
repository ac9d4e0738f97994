"""Two emulated Confluent clusters for the tests of one worker: started when one of them asks, ended with the last.

`confluent` is shared: tests use names of their own. A test that needs another kind or version starts its own. The file
that `CONFLUENT_EXCHANGES` names gets a line of JSON for each request to the REST API.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from examples.kafkajars import KafkaMissingError

if TYPE_CHECKING:
    from tests.servers.confluent.server import Confluent


class Pair(NamedTuple):
    """Two clusters that know one another."""

    source: Confluent
    destination: Confluent


def _start(stack: ExitStack, **options: Any) -> Pair:
    from tests.servers.confluent.server import Confluent, Network  # noqa: PLC0415 - it loads the whole protocol

    network, path = Network(), os.environ.get("CONFLUENT_EXCHANGES")
    try:
        source, destination = (
            stack.enter_context(Confluent.start(network, exchanges=path and Path(path), **options)) for _ in range(2)
        )
    except KafkaMissingError as error:
        return pytest.fail(str(error), pytrace=False)
    return Pair(source, destination)


@pytest.fixture(scope="session")
def confluent_servers() -> Iterator[Pair]:
    with ExitStack() as stack:
        yield _start(stack, kind="dedicated")


@pytest.fixture
def confluent(confluent_servers: Pair) -> Iterator[Pair]:
    """Return the shared clusters; faults and links end with the test."""
    yield confluent_servers
    for server in confluent_servers:
        server.reset()


@pytest.fixture(scope="session")
def confluent_platform_servers() -> Iterator[Pair]:
    with ExitStack() as stack:
        yield _start(stack)


@pytest.fixture
def confluent_platform(confluent_platform_servers: Pair) -> Iterator[Pair]:
    """Return shared clusters of Platform; faults and links end with the test."""
    yield confluent_platform_servers
    for server in confluent_platform_servers:
        server.reset()


@pytest.fixture
def start_confluent() -> Iterator[Callable[..., Pair]]:
    """Start pairs of clusters that end with the test; the options are those of `Confluent.start`."""
    with ExitStack() as stack:
        yield lambda **options: _start(stack, **options)
