"""The tools that people plan Kafka topics with today, where they are installed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

PROVIDER = "Mongey/kafka"
CONFIGS = {"cleanup.policy": "delete", "max.message.bytes": "4194304", "retention.ms": "604800000"}
PARALLEL = "-parallelism=100"
_PATIENCE_S = 900


@dataclass(frozen=True)
class Peer:
    """A tool, in a folder with files of its own that say the same topics as ours."""

    name: str
    folder: Path
    missing: str = ""
    """Why it cannot be measured here."""
    environ: Mapping[str, str] = field(default_factory=dict)

    def run(self, *arguments: str) -> float:
        """Run it and return the seconds from its start to its exit."""
        began = time.perf_counter()
        ran = subprocess.run(
            [self.name, *arguments],
            cwd=self.folder,
            env={**os.environ, **self.environ},
            capture_output=True,
            text=True,
            timeout=_PATIENCE_S,
            check=False,
        )
        took = time.perf_counter() - began
        if ran.returncode:
            message = f"{self.name} {' '.join(arguments)} exited with {ran.returncode}:\n{ran.stdout}{ran.stderr}"
            raise RuntimeError(message)
        return took


def terraform(name: str, folder: Path, brokers: str, topics: list[str]) -> Peer:
    """Return Terraform, or OpenTofu by its name, with its state in the folder."""
    if shutil.which(name) is None:
        return Peer(name, folder, "not on the PATH")
    folder.mkdir()
    resource = {f"t{at}": _resource(topic) for at, topic in enumerate(topics)}
    declared = {
        "terraform": {"required_providers": {"kafka": {"source": PROVIDER}}},
        "provider": {"kafka": {"bootstrap_servers": brokers.split(","), "tls_enabled": False}},
        "resource": {"kafka_topic": resource},
    }
    (folder / "main.tf.json").write_text(json.dumps(declared), encoding="utf-8")
    own = shutil.which("terraform-provider-kafka")
    if own is not None:
        overrides = (
            f'provider_installation {{\n dev_overrides {{ "{PROVIDER}" = "{Path(own).parent}" }}\n direct {{}}\n}}\n'
        )
        (folder / "cli.rc").write_text(overrides, encoding="utf-8")
        return Peer(name, folder, environ={"TF_CLI_CONFIG_FILE": str(folder / "cli.rc")})
    peer = Peer(name, folder)
    try:
        peer.run("init", "-no-color", "-input=false")
    except (RuntimeError, subprocess.TimeoutExpired):
        return Peer(name, folder, f"its provider {PROVIDER} is neither on the PATH nor can its registry be reached")
    return peer


def topicctl(folder: Path, brokers: str, topics: list[str]) -> Peer:
    name = "topicctl"
    if shutil.which(name) is None:
        return Peer(name, folder, "not on the PATH")
    (folder / "topics").mkdir(parents=True)
    cluster = {
        "meta": {"name": "west", "environment": "bench", "region": "here"},
        "spec": {"bootstrapAddrs": brokers.split(",")},
    }
    (folder / "cluster.yaml").write_text(json.dumps(cluster), encoding="utf-8")
    for topic in topics:
        (folder / "topics" / f"{topic}.yaml").write_text(json.dumps(_topicctl_topic(topic)), encoding="utf-8")
    return Peer(name, folder)


def _resource(topic: str) -> dict[str, object]:
    return {"name": topic, "partitions": 1, "replication_factor": 1, "config": CONFIGS}


def _topicctl_topic(topic: str) -> dict[str, object]:
    settings = {key: int(value) if value.isdigit() else value for key, value in CONFIGS.items()}
    # Without it every topic is told to differ: brokers that have eligible leader replicas show it everywhere.
    settings["min.insync.replicas"] = 1
    return {
        "meta": {"name": topic, "cluster": "west", "environment": "bench", "region": "here"},
        "spec": {
            "partitions": 1,
            "replicationFactor": 1,
            "placement": {"strategy": "any"},
            "settings": settings,
        },
    }
