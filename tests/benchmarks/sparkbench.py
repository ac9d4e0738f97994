"""What the two benchmarks with Spark share: a workspace with big topics, and a probe that reports in JSON."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from measuring import RECONCILER, process, script

_CLUSTERS = """\
apiVersion: reconciler/v1
kind: Workspace
metadata: {name: bench}
---
apiVersion: reconciler/v1
kind: Cluster
metadata: {name: west}
spec:
  provider: embedded
  embedded: {root: file://.clusters/west}
---
apiVersion: reconciler/v1
kind: Cluster
metadata: {name: east}
spec:
  provider: embedded
  embedded: {root: file://.clusters/east}
"""

_TOPIC = """\
---
apiVersion: reconciler/v1
kind: Topic
metadata: {name: %s, cluster: %s}
spec: {partitions: 8, configs: {retention.ms: infinite, compression.type: uncompressed}}
"""


def workspace(folder: Path, copies: int) -> Path:
    """Make `events` and `few` on west, and on east as many empty topics to copy them to."""
    (folder / "manifests").mkdir(parents=True)
    first, _, rest = _CLUSTERS.partition("---\n")
    (folder / "reconciler.yaml").write_text(first, encoding="utf-8")
    topics = [_TOPIC % (name, "west") for name in ("events", "few")]
    topics += [_TOPIC % (f"copy-{number}", "east") for number in range(copies)]
    (folder / "manifests" / "all.yaml").write_text(rest + "".join(topics), encoding="utf-8")
    process(RECONCILER, "apply", "--yes", folder=folder)
    return folder


def probed(name: str, *arguments: str) -> Any:
    """Run a probe and return what its last line says."""
    os.sync()  # what others left to be written is not ours to pay for
    return json.loads(script(name, *arguments).output.splitlines()[-1])
