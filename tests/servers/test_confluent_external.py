"""`make conformance` refuses Confluent clusters that it must not use, and leaves a user's clusters as they were."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from reconciler.resources.kafka_configs import LEDGER
from tests.contracts.names import EXTERNAL_CONFLUENT
from tests.servers.confluentexternal import ExternalPair
from tests.servers.redpandaexternal import UnusableError

if TYPE_CHECKING:
    from tests.servers.confluentfixtures import Pair

ROOT = Path(__file__).resolve().parents[2]
PLACE = {"kafka": "b:9092", "rest": "http://b", "cluster_id": "lkc-1", "key": "k", "secret": "hunter2"}


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ("nowhere.json", "no file with JSON: .*nowhere.json"),
        ("{", "no JSON"),
        (json.dumps({"source": PLACE}), "destination is to have kafka, rest, cluster_id, key, secret"),
        (json.dumps({"source": {**PLACE, "user": "u"}, "destination": PLACE}), "source is to have"),
        (json.dumps({"source": PLACE, "destination": {**PLACE, "key": 1}}), "destination is to have"),
    ],
)
def test_what_names_no_clusters_is_refused_without_a_secret(given: str, why: str) -> None:
    with pytest.raises(UnusableError, match=why) as caught:
        ExternalPair.parse(given)
    assert "hunter2" not in str(caught.value)


@pytest.mark.thorough
def test_a_run_leaves_topics_of_others_and_nothing_of_its_own_and_refuses_clusters_in_use(
    start_confluent: Callable[..., Pair],
) -> None:
    pair = start_confluent(kind="dedicated")
    clusters = {name: {part: getattr(getattr(pair, name), part) for part in PLACE} for name in pair._fields}
    external = ExternalPair.parse(json.dumps(clusters))
    external.source.send("POST", "/topics", json={"topic_name": "orders"})
    ended = run(clusters, "made_changed or resumed or lost")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "sets or counts what only the emulation has:" in ended.stdout
    assert [row["topic_name"] for row in external.source.send("GET", "/topics")["data"]] == ["orders"]
    assert (external.source.list_remaining(), external.destination.list_remaining()) == ([], [])
    external.source.send("POST", "/topics", json={"topic_name": LEDGER})
    ended = run(clusters, "made_changed")
    assert ended.returncode == 1
    assert f"topic {LEDGER} exists" in ended.stdout + ended.stderr


def run(clusters: dict[str, Any], chosen: str) -> subprocess.CompletedProcess[str]:
    """Run a part of `make conformance`."""
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-k", chosen, "tests/operations/confluent/test_confluent.py"],
        cwd=ROOT,
        env={**os.environ, EXTERNAL_CONFLUENT: json.dumps(clusters)},
        capture_output=True,
        text=True,
        check=False,
    )
