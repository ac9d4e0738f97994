"""Two emulated Confluent clusters for the tests of one worker: started when one of them asks, ended with the last.

For `make conformance` two test clusters of the user take their place, and tests that need the emulation are deselected.

`confluent` is shared: tests use names of their own. A test that needs another kind or version starts its own. The file
that `CONFLUENT_EXCHANGES` names gets a line of JSON for each request to the REST API.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import pytest

from examples.kafkajars import KafkaMissingError
from tests.contracts.names import EXTERNAL_CONFLUENT
from tests.servers.redpandafixtures import deselect

if TYPE_CHECKING:
    from tests.servers.confluent.server import Confluent
    from tests.servers.confluentexternal import ExternalPair


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


def _read_external() -> ExternalPair | None:
    """Return the clusters that the environment names; a variable that names none ends the run."""
    given = os.environ.get(EXTERNAL_CONFLUENT)
    if not given:
        return None
    from tests.servers.confluentexternal import ExternalPair  # noqa: PLC0415 - for `make conformance` alone
    from tests.servers.redpandaexternal import UnusableError  # noqa: PLC0415

    try:
        return ExternalPair.parse(given)
    except UnusableError as error:
        return pytest.exit(str(error), returncode=1)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """For the user's clusters, check them, and deselect what they cannot show."""
    external = _read_external()
    if external is None:
        return
    from tests.servers.redpandaexternal import UnusableError  # noqa: PLC0415 - for `make conformance` alone

    try:
        external.check()
    except UnusableError as error:
        pytest.exit(str(error), returncode=1)
    markers = {item: item.get_closest_marker("emulated") for item in items}
    deselect(config, items, {item: str(marker.args[0]) if marker else None for item, marker in markers.items()})


@pytest.fixture(scope="session")
def confluent_servers() -> Iterator[Pair]:
    external = _read_external()
    if external is not None:
        yield Pair(cast("Confluent", external.source), cast("Confluent", external.destination))
        if remaining := external.clear():
            pytest.fail("These remain on the clusters:\n  " + "\n  ".join(remaining), pytrace=False)
        return
    with ExitStack() as stack:
        yield _start(stack, kind="dedicated")


@pytest.fixture
def confluent(confluent_servers: Pair) -> Iterator[Pair]:
    """Return the shared clusters; faults and links end with the test."""
    yield confluent_servers
    for server in () if os.environ.get(EXTERNAL_CONFLUENT) else confluent_servers:
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
