"""The emulated Redpanda cluster for the tests of one worker: started when the first of them asks, ended with the last.

For `make conformance` a test cluster of the user takes its place. Tests that need the emulation are deselected then,
each with its reason.

`redpanda` is shared: tests use names of their own, and leave no fault behind. A test that needs another version, a
second cluster with the same bucket, or TLS starts its own: `start_redpanda(versions=["26.1.2"] * 3)`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final, cast

import pytest

from examples.kafkajars import KafkaMissingError
from tests.contracts.names import EXTERNAL

if TYPE_CHECKING:
    from tests.servers.redpanda.server import Redpanda
    from tests.servers.redpandaexternal import ExternalRedpanda

_IS_EXTERNAL: Final = bool(os.environ.get(EXTERNAL))
_DESELECTED: Final = pytest.StashKey[dict[str, str]]()
"""Reason by test."""


def _started(**options: Any) -> Redpanda:
    from tests.servers.redpanda.server import Redpanda  # noqa: PLC0415 - it loads the classes of the whole protocol

    try:
        return Redpanda.start(**options)
    except KafkaMissingError as error:
        return pytest.fail(str(error), pytrace=False)


def _read_external() -> ExternalRedpanda:
    from tests.servers.redpandaexternal import EXTERNAL as READ  # noqa: PLC0415 - for `make conformance` alone

    assert READ is not None
    return READ


def pytest_configure() -> None:
    """End a run whose `REDPANDA` names no cluster, before it collects tests."""
    if _IS_EXTERNAL:
        _read_external()


@pytest.fixture(scope="session")
def redpanda_server() -> Iterator[Redpanda]:
    if _IS_EXTERNAL:
        external = _read_external()
        yield cast("Redpanda", external)  # deselected tests alone need more than it has
        remaining = external.clear()
        if remaining:
            pytest.fail("These remain on the cluster:\n  " + "\n  ".join(remaining), pytrace=False)
        return
    with _started() as server:
        yield server


@pytest.fixture
def redpanda(redpanda_server: Redpanda) -> Iterator[Redpanda]:
    """Return the shared cluster; a test's faults, migrations and detached topics end with it."""
    yield redpanda_server
    if _IS_EXTERNAL:
        _read_external().clear()
    else:
        redpanda_server.faults.clear()
        redpanda_server.migrations.forget()
        redpanda_server.links.forget()
        redpanda_server.recoveries.forget()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """For the user's cluster, check it, and deselect what it cannot show."""
    if not _IS_EXTERNAL:
        return
    external = _read_external()
    external.check_or_exit()
    missing = {"tiering": external.explain_missing_tiering(), "shadow links": external.explain_missing_shadow_links()}
    deselect(config, items, {item: _explain_deselection(item, missing) for item in items})


def deselect(config: pytest.Config, items: list[pytest.Item], reasons: dict[pytest.Item, str | None]) -> None:
    """Deselect the tests that have a reason, empty if it is not to be listed."""
    config.stash[_DESELECTED] = {item.nodeid: why for item, why in reasons.items() if why}
    config.hook.pytest_deselected(items=[item for item, why in reasons.items() if why is not None])
    items[:] = [item for item, why in reasons.items() if why is None]


def _explain_deselection(item: pytest.Item, missing: dict[str, str | None]) -> str | None:
    """Return why a test does not run on the user's cluster, empty if it is not about Redpanda; `None` if it runs."""
    chosen = getattr(getattr(item, "callspec", None), "params", {}).values()
    if "redpanda" not in chosen and "/redpanda/" not in item.nodeid:
        return ""
    marker = item.get_closest_marker("emulated")
    if marker is not None:
        return str(marker.args[0])
    if "start_redpanda" in getattr(item, "fixturenames", ()):
        return "starts a cluster of its own"
    needed = "shadow links" if "pair" in getattr(item, "fixturenames", ()) else "tiering"
    why = missing[needed] if "/redpanda/" in item.nodeid else None
    return None if why is None else f"needs {needed}: {why}"


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """List the tests that were deselected, by reason."""
    deselected = config.stash.get(_DESELECTED, {})
    if deselected:
        terminalreporter.section(f"{len(deselected)} tests that need the emulation were deselected")
    for why in sorted(set(deselected.values())):
        terminalreporter.line(f"{why}:")
        for name in sorted(name for name, reason in deselected.items() if reason == why):
            terminalreporter.line(f"  {name}")


@pytest.fixture
def start_redpanda() -> Iterator[Callable[..., Redpanda]]:
    """Start clusters that end with the test; the options are those of `Redpanda.start`."""
    with ExitStack() as stack:
        yield lambda **options: stack.enter_context(_started(**options))
