"""`--verbose`: what each layer notes, as lines of JSON that hold numbers, keys and names, and never a secret."""

from __future__ import annotations

import copy
import json
import logging
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from reconciler.cli.environment import JsonLines
from reconciler.embedded.cluster import EmbeddedCluster
from reconciler.errors import MissingObjectError
from reconciler.objectstore.directory import DirectoryStore
from reconciler.objectstore.memory import MemoryStore
from reconciler.objectstore.open import open_store
from reconciler.objectstore.register import Register
from reconciler.objectstore.settings import StoreSettings
from reconciler.objectstore.wrappers import LoggingStore, log_attempt, log_requests
from tests.cli.conftest import Run
from tests.embedded.stores import WatchedStore

SECRET = "hunter2-never-to-be-seen"  # noqa: S105 - what is looked for
WORKSPACE = """\
apiVersion: reconciler/v1
kind: Workspace
metadata: {name: shop}
"""
MANIFESTS = """\
apiVersion: reconciler/v1
kind: Cluster
metadata: {name: west}
spec: {embedded: {root: "file://.clusters/west"}}
---
apiVersion: reconciler/v1
kind: Cluster
metadata: {name: far}
spec:
  provider: kafka
  kafka:
    bootstrapServers: ["localhost:1"]
    security: {protocol: SASL_SSL, mechanism: PLAIN, username: me, password: "${env:FAR_PASSWORD}"}
---
apiVersion: reconciler/v1
kind: Namespace
metadata: {name: shop, cluster: west}
---
apiVersion: reconciler/v1
kind: Topic
metadata: {name: orders, namespace: shop, cluster: west}
spec: {partitions: 3}
"""


def lines_of(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def notes_of(lines: list[dict[str, Any]], logger: str) -> list[tuple[str, dict[str, Any]]]:
    return [(line["message"], line["facts"]) for line in lines if line["logger"] == f"reconciler.{logger}"]


@pytest.mark.thorough
def test_a_run_is_told_layer_by_layer_and_shows_no_secret(run: Run, tmp_path: Path) -> None:
    (tmp_path / "reconciler.yaml").write_text(WORKSPACE)
    (tmp_path / "manifests").mkdir()
    (tmp_path / "manifests" / "all.yaml").write_text(MANIFESTS)
    environ = {"FAR_PASSWORD": SECRET}
    without = ("--exclude", "*/far/*", "--exclude", "cluster/far")
    record = json.dumps({"value": f"content-{SECRET}"})
    produce = ("topic", "produce", "topic/west/shop:orders", "--input", "-", "--input-format", "jsonl")

    seen = ""
    for arguments, stdin in (
        (("plan", *without), ""),
        (("apply", "--yes", *without), ""),
        (produce, record),
        (("topic", "consume", "topic/west/shop:orders", "--output", "out.jsonl"), ""),
    ):
        said = run(*arguments, "--verbose", stdin=stdin, environ=environ)
        assert said.returncode == 0, said.stderr
        seen += said.stderr
        lines = lines_of(said.stderr)
        assert lines[0]["message"] == "began"
        assert lines[-1] == {**lines[-1], "message": "ended", "facts": {"exit_code": 0}}
    assert SECRET not in seen
    assert SECRET in (tmp_path / "out.jsonl").read_text()

    lines = lines_of(seen)
    assert all(line.keys() == {"at", "level", "logger", "message", "facts"} for line in lines)
    requests = [facts for message, facts in notes_of(lines, "objectstore") if message == "request"]
    assert {facts["method"] for facts in requests} >= {"get", "put", "swap", "list"}
    assert all(facts["ms"] >= 0 and facts["ended"] == "done" for facts in requests)
    assert ("acquired", {"epoch": 1}) in [(m, {"epoch": f.get("epoch")}) for m, f in notes_of(lines, "lease")]
    assert [facts["status"] for message, facts in notes_of(lines, "lease") if message == "written"][-1] == "free"
    commits = [facts["changes"] for message, facts in notes_of(lines, "catalog") if message == "committed"]
    assert {"topics": 1} in commits
    assert all(facts["failed"] == 0 for _, facts in notes_of(lines, "providers"))
    swapped = [facts["register"] for message, facts in notes_of(lines, "register") if message == "swapped"]
    assert any(register.startswith("heads/") for register in swapped)


@pytest.mark.thorough
def test_without_it_nothing_is_said(run: Run) -> None:
    assert run("init").stderr == ""
    said = run("apply", "--yes")
    assert not [line for line in said.stderr.splitlines() if line.startswith("{")]


# -- where nobody listens


def test_a_store_is_as_it_is_where_nobody_listens(tmp_path: Path) -> None:
    store = MemoryStore()
    assert log_requests(store) is store
    assert isinstance(open_store(StoreSettings(f"file://{tmp_path}")), DirectoryStore)


# -- where somebody does


@pytest.fixture
def heard() -> Iterator[list[logging.LogRecord]]:
    """Listen to all of ours, in this process."""
    records: list[logging.LogRecord] = []

    class Ear(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            JsonLines().format(record)
            records.append(record)

    logger, ear = logging.getLogger("reconciler"), Ear()
    logger.addHandler(ear)
    logger.setLevel(logging.DEBUG)
    yield records
    logger.removeHandler(ear)
    logger.setLevel(logging.NOTSET)


def facts_of(records: list[logging.LogRecord]) -> list[dict[str, Any]]:
    return [record.__dict__["facts"] for record in records]


def test_every_call_is_noted_with_how_it_ended(heard: list[logging.LogRecord]) -> None:
    store = log_requests(MemoryStore())
    assert isinstance(store, LoggingStore)
    store.put("a", b"four")
    version = store.swap("b", b"12", expected=None)
    store.swap("b", b"123", expected=version)
    assert (store.get("a") or pytest.fail("it is there")).body == b"four"
    assert store.get("c") is None
    assert store.get_range("a", 1, 2) == b"ou"
    store.copy_from("d", store, "a")
    assert [listed.key for listed in store.list("")] == ["a", "b", "d"]
    store.delete(key for key in ("a", "b"))
    assert store.find_violated_conditions() == []
    assert store.read_clock_ms() > 0
    assert not store.can_encrypt
    with pytest.raises(MissingObjectError):
        store.get_range("gone", 0, 1)
    told = [{name: fact for name, fact in facts.items() if name != "ms"} for facts in facts_of(heard)]
    assert told == [
        {"method": "put", "key": "a", "bytes": 4, "ended": "done"},
        {"method": "swap", "key": "b", "bytes": 2, "ended": "done"},
        {"method": "swap", "key": "b", "bytes": 3, "ended": "done"},
        {"method": "get", "key": "a", "bytes": 4, "ended": "done"},
        {"method": "get", "key": "c", "bytes": 0, "ended": "done"},
        {"method": "get_range", "key": "a", "bytes": 2, "ended": "done"},
        {"method": "copy_from", "key": "d", "bytes": 0, "ended": "done"},
        {"method": "list", "key": "", "objects": 3, "ended": "done"},
        {"method": "delete", "key": "a", "objects": 2, "ended": "done"},
        {"method": "probe", "key": "", "bytes": 0, "ended": "done"},
        {"method": "clock", "key": "", "bytes": 0, "ended": "done"},
        {"method": "get_range", "key": "gone", "bytes": 0, "ended": "MissingObjectError"},
    ]


def test_a_noted_store_travels_as_the_store_it_is_of(heard: list[logging.LogRecord], tmp_path: Path) -> None:
    assert heard == []
    for store in (log_requests(DirectoryStore(tmp_path)), log_requests(MemoryStore("travelling"))):
        arrived = pickle.loads(pickle.dumps(store))  # noqa: S301 - what we have just written
        assert isinstance(arrived, DirectoryStore | MemoryStore)
        assert arrived.url == store.url
        # Within one program somebody listens to the copy, too: a lease is renewed by one.
        assert isinstance(copy.copy(store), LoggingStore)


def test_a_lost_race_is_noted(heard: list[logging.LogRecord]) -> None:
    store = MemoryStore()
    Register(store, "r", format="test/1").update(lambda _held: {"n": 0}, mark="first")
    others = iter((1, 2))

    def intrude(what: str, _key: str) -> None:
        number = next(others, None) if what == "swap" else None
        if number is not None:
            Register(store, "r", format="test/1").update(lambda _held: {"n": number}, mark=f"other-{number}")

    Register(WatchedStore(store, before=intrude), "r", format="test/1").update(lambda _held: {"n": 9}, mark="mine")
    told = [(record.message, record.__dict__["facts"]) for record in heard]
    assert [facts for message, facts in told if message == "race lost"] == [
        {"register": "r", "attempt": 1},
        {"register": "r", "attempt": 2},
    ]
    assert told[-1] == ("swapped", {"register": "r", "epoch": 0, "attempts": 3})


def test_tries_of_a_request_are_noted_without_its_headers(heard: list[logging.LogRecord]) -> None:
    class Answer:
        status_code = 503

    class Operation:
        name = "PutObject"

    log_attempt(
        attempts=2,
        response=(Answer(), {"Error": {"Code": "SlowDown"}}),
        operation=Operation(),
        request_dict={"headers": {"Authorization": SECRET}},
    )
    log_attempt(attempts=1, caught_exception=TimeoutError(SECRET), operation=Operation())
    assert facts_of(heard) == [
        {"operation": "PutObject", "attempt": 2, "status": 503, "trouble": None},
        {"operation": "PutObject", "attempt": 1, "status": None, "trouble": "TimeoutError"},
    ]


def test_contents_of_records_are_not_noted(heard: list[logging.LogRecord]) -> None:
    cluster = EmbeddedCluster.create(log_requests(MemoryStore()), now_ms=lambda: 1_700_000_000_000, new_id=lambda: "id")
    cluster.create_topic("orders")
    with cluster.producer() as producer:
        producer.send("orders", SECRET, key=SECRET, headers={"h": SECRET})
    assert [record.value for record in cluster.consume("orders")] == [SECRET.encode()]
    assert not any(SECRET in JsonLines().format(record) for record in heard)
