"""`make conformance` refuses clusters that it must not use, and leaves a user's cluster as it was."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from reconciler.resources.kafka_configs import LEDGER
from tests.contracts.names import EXTERNAL
from tests.servers.redpandaexternal import ExternalRedpanda, UnusableError

if TYPE_CHECKING:
    from tests.servers.redpanda.server import Redpanda

ROOT = Path(__file__).resolve().parents[2]
PLACE: dict[str, Any] = {"kafka": "b:9092", "admin": ["http://b:9644"], "user": "u", "password": "hunter2"}


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ("nowhere.json", "no file with JSON: .*nowhere.json"),
        ("{", "no JSON"),
        (json.dumps({**PLACE, "admin": "http://b:9644"}), "admin missing, unknown or of another type"),
        (json.dumps({**PLACE, "topics": []}), "topics missing, unknown"),
        (json.dumps({name: value for name, value in PLACE.items() if name != "kafka"}), "kafka missing"),
    ],
)
def test_what_names_no_cluster_is_refused_without_a_password(given: str, why: str) -> None:
    with pytest.raises(UnusableError, match=why) as caught:
        ExternalRedpanda.parse(given)
    assert "hunter2" not in str(caught.value)


def test_a_cluster_is_read_from_json_or_a_file_and_hides_its_password(tmp_path: Path) -> None:
    file = tmp_path / "cluster.json"
    file.write_text(json.dumps(PLACE))
    assert ExternalRedpanda.parse(str(file)) == ExternalRedpanda.parse(json.dumps(PLACE))
    assert "hunter2" not in repr(ExternalRedpanda.parse(str(file)))
    file.write_text("[]")
    with pytest.raises(UnusableError, match="by name"):
        ExternalRedpanda.parse(str(file))


def test_a_login_of_the_brokers_is_that_of_the_admin_api() -> None:
    security = {"protocol": "SASL_PLAINTEXT", "mechanism": "SCRAM-SHA-256"}
    settings = ExternalRedpanda.parse(json.dumps({**PLACE, "security": security})).settings
    assert (settings["sasl.username"], settings["sasl.password"]) == ("u", "hunter2")


def given(server: Redpanda) -> str:
    return json.dumps({name: getattr(server, name) for name in PLACE})


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"versions": ["25.3.1", "24.3.2"]}, r"runs Redpanda v24\.3\.2, and reconciler needs 25\.3 or later"),
        ({"properties": {"default_topic_replications": 3}}, "default_topic_replications is 3"),
    ],
    ids=["older", "replicated"],
)
def test_a_cluster_that_the_tests_cannot_use_is_refused(
    start_redpanda: Callable[..., Redpanda], options: dict[str, Any], why: str
) -> None:
    with pytest.raises(UnusableError, match=why):
        ExternalRedpanda.parse(given(start_redpanda(**options))).check()


@pytest.mark.thorough
def test_a_run_leaves_topics_of_others_and_nothing_of_its_own_and_refuses_a_cluster_in_use(
    start_redpanda: Callable[..., Redpanda],
) -> None:
    server = start_redpanda()
    brokers = AdminClient({"bootstrap.servers": server.kafka})
    create(brokers, "orders")
    ended = run(server, "observing_gives_back or access_rules or unmounted_topic or location_decides or lost_answer")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "injects a fault:" in ended.stdout
    assert "emulation were deselected" in ended.stdout
    topics = brokers.list_topics(timeout=30).topics
    assert {name for name in topics if not name.startswith("__") or name == LEDGER} == {"orders"}
    assert ExternalRedpanda.parse(given(server)).list_remaining() == []
    server.faults.add("status", "POST", "/v1/topics/mount", status=400, message="broken")
    ended = run(server, "unmounted_topic")
    assert ended.returncode == 1
    assert "broken" in ended.stdout
    assert ExternalRedpanda.parse(given(server)).list_remaining() == [], "also after a test that failed"
    create(brokers, LEDGER)
    ended = run(server, "observing_gives_back")
    assert ended.returncode == 1
    assert f"topic {LEDGER} exists" in ended.stdout + ended.stderr


def create(brokers: AdminClient, name: str) -> None:
    brokers.create_topics([NewTopic(name, 1, 1)])[name].result()


def run(server: Redpanda, chosen: str) -> subprocess.CompletedProcess[str]:
    """Run a part of `make conformance`."""
    return subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-k",
            chosen,
            "tests/contracts/test_provider.py",
            "tests/operations/redpanda",
        ],
        cwd=ROOT,
        env={**os.environ, EXTERNAL: given(server)},
        capture_output=True,
        text=True,
        check=False,
    )
