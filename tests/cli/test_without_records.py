"""Without pyarrow and numpy, most of an installation: all that plans and applies works, the rest says why not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Finished, environment
from tests.servers.kafka import Kafka

HIDING = """
import sys
sys.modules["pyarrow"] = sys.modules["numpy"] = None
from reconciler.cli.main import main
for command in sys.argv[1:]:
    if code := main(command.split()):
        sys.exit(code)
"""
TOPIC = "topic/west/shop:orders"
LINK = """\
apiVersion: reconciler/v1
kind: Cluster
metadata: {name: east}
spec: {provider: embedded, embedded: {root: "file://.clusters/east"}}
---
apiVersion: reconciler/v1
kind: Namespace
metadata: {name: shop, cluster: east}
---
apiVersion: reconciler/v1
kind: MirrorLink
metadata: {name: west-to-east, cluster: east}
spec:
  source: west
  mirrorTopics: [{source: "shop:orders", state: mirroring}]
"""


def run(folder: Path, *commands: str) -> Finished:
    return subprocess.run(
        [sys.executable, "-c", HIDING, *commands],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_way_from_init_to_an_empty_plan_and_drift_needs_neither(tmp_path: Path) -> None:
    looks = (
        "drift",
        "show",
        "topic list --sizes",
        f"topic describe {TOPIC}",
        "group list west",
        "state history",
        "schema",
    )
    done = run(tmp_path, "init", "validate", "plan", "apply --yes", "plan", *looks)
    assert (done.returncode, done.stderr) == (0, "")
    assert "nothing to do" in done.stdout
    assert "No drift" in done.stdout


def test_a_topic_that_gets_another_name_needs_neither(tmp_path: Path) -> None:
    assert run(tmp_path, "init", "apply --yes").returncode == 0
    file = tmp_path / "manifests" / "example.yaml"
    moved = file.read_text().replace("name: orders,", "name: bills,")
    file.write_text(moved.replace("  partitions: 3", "  partitions: 3\n  movedFrom: shop:orders"))
    done = run(tmp_path, "apply --yes", "plan")
    assert (done.returncode, done.stderr) == (0, "")
    assert "Done: 1 moved" in done.stdout
    assert "nothing to do" in done.stdout


@pytest.mark.thorough
@pytest.mark.parametrize(
    "command",
    [f"topic consume {TOPIC}", f"verify {TOPIC} {TOPIC}", "run --once", "cluster check west"],
)
def test_what_reads_records_says_what_to_install(command: str, tmp_path: Path) -> None:
    done = run(tmp_path, "init", "apply --yes", command)
    assert done.returncode == 1
    assert " is not installed" in done.stderr
    assert "pip install 'stream-reconciler[records]'" in done.stderr
    assert "Traceback" not in done.stderr
    assert "bug" not in done.stderr


@pytest.mark.thorough
def test_a_plan_with_a_job_is_shown_and_an_apply_refuses_it_before_anything_is_done(tmp_path: Path) -> None:
    assert run(tmp_path, "init").returncode == 0
    (tmp_path / "manifests" / "link.yaml").write_text(LINK)
    done = run(tmp_path, "plan", "apply --yes")
    assert done.returncode == 1
    assert "1 job" in done.stdout
    assert "pip install 'stream-reconciler[records]'" in done.stderr
    shown = run(tmp_path, "state list", "topic list")
    assert (shown.returncode, "shop" in shown.stdout) == (0, False)


ON_KAFKA = """\
apiVersion: reconciler/v1
kind: Cluster
metadata: {{name: live}}
spec: {{provider: kafka, kafka: {{bootstrapServers: ["{broker}"]}}}}
---
apiVersion: reconciler/v1
kind: Topic
metadata: {{name: {topic}, cluster: live}}
spec: {{partitions: {partitions}, replicationFactor: 1, configs: {{retention.ms: 1h}}}}
"""


@pytest.mark.thorough
def test_topics_of_kafka_are_planned_applied_and_compared_without_either(
    kafka_broker: Kafka, kafka_prefix: str, tmp_path: Path
) -> None:
    assert run(tmp_path, "init").returncode == 0
    topic = f"{kafka_prefix}-orders"
    looks = ("drift", "show", "topic list --sizes", f"topic describe topic/live/{topic}", "group list live")
    for partitions in (1, 3):
        text = ON_KAFKA.format(broker=kafka_broker.bootstrap(), topic=topic, partitions=partitions)
        (tmp_path / "manifests" / "example.yaml").write_text(text)
        done = run(tmp_path, "plan", "apply --yes", "plan --detailed-exitcode", *looks)
        assert (done.returncode, done.stderr) == (0, "")
        assert "nothing to do" in done.stdout
