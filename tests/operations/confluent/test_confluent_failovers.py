"""Failovers of many mirrors on emulated Confluent clusters: killed in the middle, and with mirrors that are refused."""

from __future__ import annotations

import json
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final
from uuid import uuid4

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from reconciler.errors import NotAuthorizedError
from tests.operations.confluent.test_confluent import ALLOWED, Desk, topic
from tests.operations.redpanda.test_redpanda import ids
from tests.processes import ran
from tests.servers.brokers import emptied
from tests.servers.confluent.mirrors import MIRROR

if TYPE_CHECKING:
    from conftest import Bench

    from tests.servers.confluentfixtures import Pair

pytestmark = [pytest.mark.thorough, pytest.mark.xdist_group("confluent")]
KILLED: Final = """
import os, signal, sys
from reconciler.cli.main import main
from reconciler.providers.confluent.client import RestClient

sent, moment = [], sys.argv[1]
request_verb = RestClient.request_verb

def die_at(place):
    if (len(sent), place) == (3, moment):
        os.kill(os.getpid(), signal.SIGKILL)

def mortal(*given):
    sent.append(given)
    die_at("before")
    answer = request_verb(*given)
    die_at("after")
    return answer

RestClient.request_verb = mortal
sys.exit(main(sys.argv[2:]))
"""
"""Ends before the third batch is sent, or after its answer."""
UNLOCKED: Final = "import sys; from reconciler.cli.main import main; sys.exit(main(['state', 'unlock', '--yes']))"


@pytest.fixture
def desk(bench: Bench, confluent: Pair) -> Iterator[Desk]:
    """Yield a workspace whose topics go with the test: the shared brokers would slow down."""
    desk = Desk(bench, confluent, f"many-{uuid4().hex[:8]}")
    yield desk
    for server in confluent:
        emptied(server.kafka, desk.link)


def mirror_many(desk: Desk, count: int) -> list[str]:
    """Return the names of mirrors that exist and are recorded."""
    names = [f"{desk.link}-{number:03d}" for number in range(count)]
    desk.apply(desk.mirror({}))
    for server in desk.servers.values():
        admin = AdminClient({"bootstrap.servers": server.kafka})
        for future in admin.create_topics([NewTopic(name, 1) for name in names]).values():
            future.result()
    desk.servers["east"].mirrors.adopt(desk.link, names)
    desk.apply(desk.mirror(dict.fromkeys(names, "mirroring")))
    return names


@pytest.mark.fact("F-C-203")
@pytest.mark.parametrize("moment", ["before", pytest.param("after", marks=pytest.mark.soak)])
def test_a_failover_of_500_mirrors_that_was_killed_goes_on_and_sends_no_verb_twice(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    names, exchanges = mirror_many(desk, 500), tmp_path / "exchanges.jsonl"
    monkeypatch.setattr(desk.servers["east"], "exchanges", exchanges)
    for variable, value in desk.bench.invocation.environ.items():
        monkeypatch.setenv(variable, value)
    desk.declare(desk.mirror(dict.fromkeys(names, "failed-over")))
    dead = ran(KILLED, moment, "apply", "--yes", "--allow", "failover:*", cwd=desk.bench.folder)
    assert dead.returncode == -signal.SIGKILL, dead.stderr
    assert Counter(desk.states().values())["STOPPED"] == {"before": 200, "after": 300}[moment]
    assert ran(UNLOCKED, cwd=desk.bench.folder).returncode == 0
    assert desk.bench.apply(ALLOWED).verdict is None
    assert desk.states() == dict.fromkeys(names, "STOPPED")
    assert ids(desk.bench.plan()) == []
    rows = [json.loads(line) for line in exchanges.read_text().splitlines()]
    sent = [row["request"]["mirror_topic_names"] for row in rows if row["path"].endswith("mirrors:failover")]
    assert Counter(name for batch in sent for name in batch) == dict.fromkeys(names, 1)


@pytest.mark.fact("F-C-202")
@pytest.mark.parametrize("why", ["refused", "forbidden"])
def test_of_a_hundred_mirrors_the_one_that_is_refused_fails_alone(desk: Desk, why: str) -> None:
    names, server = mirror_many(desk, 100), desk.servers["east"]
    if why == "refused":
        server.faults.add("refused", MIRROR, f"failover/{names[3]}/", status=400, message="not now")
    else:
        server.denied = {names[3]}
    desk.declare(desk.mirror(dict.fromkeys(names, "failed-over")))
    result = desk.bench.apply(ALLOWED).result
    assert result is not None
    (failed,) = result.failed
    assert failed.id == f"failover:mirror/east/{names[3]}"
    assert isinstance(failed.error, NotAuthorizedError) == (why == "forbidden")
    assert [name for name, state in desk.states().items() if state != "STOPPED"] == [names[3]]
    server.denied = set()
    desk.apply(desk.mirror(dict.fromkeys(names, "failed-over")))


def test_a_topic_without_rights_fails_alone(desk: Desk) -> None:
    names, server = [f"{desk.link}-{number}" for number in range(4)], desk.servers["west"]
    server.denied = {names[1]}
    for configs in ({}, {"retention.ms": "1d"}):
        desk.declare(*(topic(name, configs=configs) for name in names))
        (message,) = desk.fail()
        assert names[1] in message
        assert "not authorized" in message
        server.denied = set()
        desk.apply(*(topic(name, configs=configs) for name in names))
        server.denied = {names[1]}
