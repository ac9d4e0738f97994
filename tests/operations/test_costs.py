"""What commands ask of the store of the state, counted: each request is paid for, and each one takes its time."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from reconciler.objectstore.wrappers import LOGGER
from reconciler.operations.apply import ApplyOptions
from tests.benchmarks.workspaces import write_workspace
from tests.servers.proxy import Proxy

if TYPE_CHECKING:
    from conftest import Bench

    from tests.servers.weed import S3Server

TOPICS = 2_000
WRITES = {"put", "swap", "copy_from", "delete"}
PROBE_WRITES = 4
"""What asking a store whether it honours conditions costs, once in the life of a state."""
RENEW_S = 15


@dataclass
class Requests:
    """What was asked of a state. Other stores keep other names, and are not counted."""

    asked: list[tuple[str, str]] = field(default_factory=list)
    began: float = field(default_factory=time.monotonic)

    def take(self, method: str, key: str) -> None:
        if method == "probe":
            self.asked += [("swap", ".probe")] * (PROBE_WRITES if not self.writes() else 0)
        elif key.startswith(("lockfile.json", "state/", "runs/")):
            self.asked.append((method, key))

    def writes(self) -> Counter[str]:
        """Return how often what was written; beats that time alone asked for are left out."""
        found = Counter(_kind(key) for method, key in self.asked if method in WRITES)
        beats = int((time.monotonic() - self.began) / RENEW_S)
        if found["lockfile"] > 3:  # taken, opened, closed: the rest are beats
            assert found["lockfile"] - 3 <= beats
            found["lockfile"] = 3
        return found

    def reads(self) -> list[str]:
        return [f"{method} {_kind(key)}" for method, key in self.asked if method not in WRITES]


def _kind(key: str) -> str:
    folder, *rest = key.split("/")
    return (rest[1] if folder == "runs" and rest[1:] else folder).removesuffix(".json")


class _Counting(logging.Handler):
    def __init__(self, requests: Requests) -> None:
        super().__init__(logging.DEBUG)
        self._requests = requests

    def emit(self, record: logging.LogRecord) -> None:
        facts = record.__dict__.get("facts", {})
        if record.getMessage() == "request":
            self._requests.take(facts["method"], facts["key"])


@contextmanager
def counted() -> Iterator[Requests]:
    requests = Requests()
    handler, level = _Counting(requests), LOGGER.level
    LOGGER.addHandler(handler)
    LOGGER.setLevel(logging.DEBUG)
    try:
        yield requests
    finally:
        LOGGER.removeHandler(handler)
        LOGGER.setLevel(level)


@pytest.fixture
def large(bench: Bench) -> Bench:
    """The bench with two thousand topics in two hundred namespaces to make."""
    folder = write_workspace(bench.folder / "large", topics=TOPICS)
    bench.folder = folder
    return bench.with_(cwd=folder)


# A cluster, two levels of namespaces and the topics: four waves, each an intent and an end; and then it is closed.
FIRST_APPLY = {"lockfile": 3, "run": 1, "journal": 9, "state": 1, "result": 1}


@pytest.mark.thorough
def test_the_first_apply_of_two_thousand_topics_takes_nineteen_writes(large: Bench) -> None:
    with counted() as requests:
        assert large.apply().verdict is None
    assert requests.writes() == {**FIRST_APPLY, ".probe": PROBE_WRITES}
    assert requests.writes().total() == 19
    assert requests.reads() == ["get lockfile", "list state", "list runs"]


@pytest.mark.thorough
def test_two_thousand_topics_more_take_nine_writes(large: Bench) -> None:
    made = [large.folder / f"manifests/team-{number:03}.yaml" for number in range(100)]
    kept = {path: path.read_text() for path in made}
    for path, text in kept.items():
        path.write_text(text.partition("---")[0])
    large.apply()
    for path, text in kept.items():
        path.write_text(text)
    with counted() as requests:
        assert len(large.apply().planned.plan.actions) == TOPICS
    assert requests.writes() == {"lockfile": 3, "run": 1, "journal": 3, "state": 1, "result": 1}
    assert requests.reads() == ["get lockfile", "list state", "get state"]


def test_an_empty_plan_takes_two_reads_and_no_write(applied_here: Bench) -> None:
    with counted() as requests:
        assert applied_here.plan().plan.is_empty
    assert requests.asked == [("get", "lockfile.json"), ("get", requests.asked[1][1])]
    assert requests.reads() == ["get lockfile", "get state"]


def test_an_apply_with_nothing_to_do_takes_three_reads_and_two_writes(applied_here: Bench) -> None:
    with counted() as requests:
        assert applied_here.apply().result is None
    assert requests.reads() == ["get lockfile", "list state", "get state"]
    assert requests.writes() == {"lockfile": 2}


def test_an_apply_that_asks_first_takes_no_lease_where_there_is_nothing_to_do(applied: Bench) -> None:
    with counted() as requests:
        assert applied.apply(options=ApplyOptions()).result is None
    assert requests.writes() == {}
    assert set(requests.reads()) == {"get lockfile", "get state"}


@pytest.mark.soak
def test_in_a_bucket_two_thousand_topics_take_as_many_writes(
    large: Bench, s3_server: S3Server, s3_environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert s3_environ
    url = s3_server.url("costs")
    workspace = large.folder / "reconciler.yaml"
    workspace.write_text(workspace.read_text().replace("file://.reconciler", f"{url}/state"))
    with Proxy(s3_server.endpoint) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", proxy.endpoint)
        began = time.monotonic()
        assert large.apply().verdict is None
        assert large.plan().plan.is_empty
        beats = int((time.monotonic() - began) / RENEW_S)
        # The cluster is a folder: every request is the state's.
        assert 19 <= proxy.count("PUT") <= 19 + beats
        # What the first apply asked of the bucket it takes away again.
        assert (proxy.count("POST"), proxy.count("DELETE")) == (0, 1)
        before = len(proxy.asked)
        large.plan()
        assert [asked.method for asked in proxy.asked[before:]] == ["GET", "GET"]
