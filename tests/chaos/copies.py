"""A topic that grows from round to round, and a mirror of it that Spark copies."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Final

from reconciler.operations.clusters.consume import ProduceOptions, produce
from reconciler.operations.plan import plan
from reconciler.operations.steps.invocation import Select
from reconciler.operations.steps.runner import SiteOptions, Stop
from reconciler.operations.verify import VerifyOptions, verify
from tests.soak.runs import invocation

RECORDS: Final = 40_000

WORKSPACE = """\
apiVersion: reconciler/v1
kind: Workspace
metadata: {{name: copies}}
spec: {{state: "{at}/state"}}
"""
CLUSTERS = """\
apiVersion: reconciler/v1
kind: Cluster
metadata: {{name: west}}
spec: {{embedded: {{root: "{at}/west"}}}}
---
apiVersion: reconciler/v1
kind: Cluster
metadata: {{name: east}}
spec: {{embedded: {{root: "{at}/east"}}}}
"""
TOPIC = """\
---
apiVersion: reconciler/v1
kind: Topic
metadata: {{name: {name}, cluster: west}}
spec: {{partitions: 4}}
"""
LINK = """\
---
apiVersion: reconciler/v1
kind: MirrorLink
metadata: {{name: from-west, cluster: east}}
spec: {{source: west, mirrorTopics: [{mirrors}]}}
"""


def write_topics(folder: Path, at: str, *, topics: int, mirrors: int) -> None:
    """Write the files: two clusters, so many topics, and a link that mirrors the first of them."""
    (folder / "manifests").mkdir(parents=True, exist_ok=True)
    (folder / "reconciler.yaml").write_text(WORKSPACE.format(at=at))
    parts = [CLUSTERS.format(at=at), *(TOPIC.format(name=name_of(number)) for number in range(topics))]
    if mirrors:
        listed = ", ".join(f"{{source: {name_of(number)}}}" for number in range(mirrors))
        parts.append(LINK.format(mirrors=listed))
    (folder / "manifests" / "all.yaml").write_text("".join(parts))


def name_of(number: int) -> str:
    return f"numbers-{number}"


def fill(folder: Path, number: int) -> None:
    rows = b"".join(b'{"round": %d, "n": %d}\n' % (number, each) for each in range(RECORDS))
    options = ProduceOptions(input_format="jsonl")
    address = f"topic/west/{name_of(number)}"
    produce(
        SiteOptions(invocation=invocation(folder), select=Select()),
        address,
        options,
        stdin=io.BytesIO(rows),
        report=lambda *_: None,
    )


def check_copy(folder: Path, number: int) -> None:
    """The round's copy is its source, range by range and once each, and there is nothing to do."""
    here = invocation(folder)
    name = name_of(number)
    how = VerifyOptions(deep=False, report=lambda _: None, stop=Stop())
    compared = verify(SiteOptions(invocation=here, select=Select()), f"topic/west/{name}", f"topic/east/{name}", how)
    if compared.verdict is not None:
        raise compared.verdict
    assert sum(part.left.records for part in compared.comparison.partitions) == RECORDS
    planned = plan(here, Select()).plan
    assert planned.is_empty, [action.id for action in planned.actions]
