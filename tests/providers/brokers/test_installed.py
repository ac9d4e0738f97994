"""Without the clients of Kafka: files are valid all the same, and a plan says in one line what to install."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[3]
HIDING: Final = """
import sys
sys.modules["kafka"] = sys.modules["confluent_kafka"] = None
from reconciler.cli.main import main
sys.exit(main())
"""
WORKSPACE: Final = """\
apiVersion: reconciler/v1
kind: Workspace
metadata: {name: shop}
"""
CLUSTER: Final = """\
apiVersion: reconciler/v1
kind: Cluster
metadata: {name: west}
spec: {provider: kafka, kafka: {bootstrapServers: ["127.0.0.1:1"]}}
"""


def run(folder: Path, command: str) -> subprocess.CompletedProcess[str]:
    (folder / "reconciler.yaml").write_text(WORKSPACE)
    (folder / "manifests").mkdir()
    (folder / "manifests" / "west.yaml").write_text(CLUSTER)
    return subprocess.run(
        [sys.executable, "-c", HIDING, command],
        cwd=folder,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "HOME": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_files_about_kafka_are_valid_without_its_clients(tmp_path: Path) -> None:
    done = run(tmp_path, "validate")
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_plan_says_what_to_install(tmp_path: Path) -> None:
    done = run(tmp_path, "plan")
    said = " ".join((done.stdout + done.stderr).split())
    assert "Apache Kafka needs kafka-python and confluent-kafka, not installed here" in said
    assert "pip install 'stream-reconciler[kafka]'" in said
    assert "Traceback" not in said
