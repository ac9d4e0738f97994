"""What holds for every test: a busy machine is no reason to fail, and a real S3 server is at hand."""

from __future__ import annotations

import multiprocessing.util
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

pytest_plugins = [
    "tests.servers.fixtures",
    "tests.servers.kafkafixtures",
    "tests.servers.redpandafixtures",
    "tests.servers.confluentfixtures",
]

settings.register_profile("steady", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("steady")

# On a runner commands fold their logs and draw nothing: here they print what they print on a desk.
for _name in ("GITHUB_ACTIONS", "GITLAB_CI", "FORCE_COLOR", "CLICOLOR_FORCE"):
    os.environ.pop(_name, None)


# Everything that counts is written durably, which takes half of a test's time on a disk and none in memory.
_IN_MEMORY = Path("/dev/shm")  # noqa: S108 - pytest makes a folder of its own in it
if os.access(_IN_MEMORY, os.W_OK) and shutil.disk_usage(_IN_MEMORY).free > 8 << 30:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(_IN_MEMORY))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep the tests of a file on one worker, and all that share a Spark session or a Kafka broker: they start slowly.

    These groups take longest, so they begin early: one that begins last keeps the other workers waiting. Examples go
    before them, since their commands start a Spark of their own, and a process has only one.
    A test that gets its broker in a way that cannot be seen here is marked `xdist_group("kafka")`.
    """
    for item in items:
        if item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(_shared(item) or item.nodeid.partition("::")[0]))
    items.sort(key=_rank)


_LONGEST = ("kafka-links", "kafka-records", "kafka", "redpanda", "confluent", "spark")


def _rank(item: pytest.Item) -> int:
    if item.nodeid.startswith("tests/examples/"):
        return -1
    marker = item.get_closest_marker("xdist_group")
    group = marker.args[0] if marker is not None and marker.args else None
    return _LONGEST.index(group) if group in _LONGEST else len(_LONGEST)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Refuse to run where groups are taken no notice of: every worker would start servers of its own."""
    is_grouped = getattr(session.config.option, "loadgroup", False)  # only workers have it
    if is_grouped and any("@" not in item.nodeid for item in session.items):
        message = "pytest-xdist does not group by xdist_group with this version of pytest: run `make setup`"
        raise pytest.UsageError(message)


def _shared(item: pytest.Item) -> str | None:
    """Return what takes long to start and a test shares with those of other files."""
    fixtures = getattr(item, "fixturenames", ())
    chosen = getattr(getattr(item, "callspec", None), "params", {}).values()
    if any(str(name).startswith(("kafka", "start_kafka")) for name in (*fixtures, *chosen)):
        # Three workers with brokers of their own: records and links take as long as all the rest.
        if item.nodeid.startswith("tests/providers/brokers/links"):
            return "kafka-links"
        return "kafka-records" if item.nodeid.startswith(("tests/jobs", "tests/operations")) else "kafka"
    if any(str(name).startswith(("redpanda", "start_redpanda")) for name in (*fixtures, *chosen)):
        return "redpanda"
    if any(str(name).startswith(("confluent", "start_confluent")) for name in (*fixtures, *chosen)):
        return "confluent"
    return "spark" if "running" in fixtures or "read in Spark" in chosen else None


@pytest.fixture(scope="session", autouse=True)
def _caches_of_these_tests() -> Iterator[None]:
    """Keep what is cached of object storage out of the caches of whoever runs the tests.

    Whoever acts as another user goes through the folder to what was made for them in it.
    """
    multiprocessing.util.get_temp_dir()  # Processes are ended after this folder has gone: theirs lies elsewhere.
    with tempfile.TemporaryDirectory(prefix="caches-") as folder, pytest.MonkeyPatch.context() as patch:
        Path(folder).chmod(0o711)
        patch.setenv("XDG_CACHE_HOME", folder)
        patch.setattr(tempfile, "tempdir", folder)
        yield
