"""`topic storage` as it is typed: one topic by partition, many by their sums, as text and as JSON with its schema."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from reconciler.cli.json.base import format_document
from reconciler.cli.json.clusters_json import STORAGE, STORAGES
from reconciler.operations.clusters import topics
from reconciler.operations.clusters.topics import Storages
from tests.cli import sample_results as sample_storages
from tests.cli.conftest import Call

SCHEMAS = Path(__file__).resolve().parents[2] / "schemas"
CLUSTER = """\
apiVersion: reconciler/v1
kind: Cluster
metadata: {name: west}
spec:
  provider: embedded
  embedded: {root: file://.clusters/west}
  objectStorage: {url: file://.object-storage}
---
"""
TOPICS = """\
apiVersion: reconciler/v1
kind: TieringPolicy
metadata: {name: archive}
spec: {remoteWrite: true, remoteRead: true, segmentBytes: 10KiB}
---
apiVersion: reconciler/v1
kind: Topic
metadata: {name: tiered, cluster: west}
spec: {partitions: 2, tieringPolicy: archive}
---
apiVersion: reconciler/v1
kind: Topic
metadata: {name: plain, cluster: west}
spec: {partitions: 1}
"""


def validated(body: bytes | str, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(body)
    jsonschema.Draft202012Validator(json.loads((SCHEMAS / f"{name}.json").read_bytes())).validate(found)
    return found


def workspace(typed: Call, folder: Path) -> None:
    """Make a tiered and a plain topic with some records, and upload what is closed."""
    applied(typed, folder)
    records = folder / "records.jsonl"
    records.write_text("".join(json.dumps({"n": number}) + "\n" for number in range(300)))
    for _ in range(2):
        for topic in ("tiered", "plain"):
            done = typed("topic", "produce", f"topic/west/{topic}", "--input", "records.jsonl", "--partition", "0")
            assert done.code == 0, done.err
    assert typed("run", "--once").code == 0


def applied(typed: Call, folder: Path) -> None:
    assert typed("init").code == 0
    for path in (folder / "manifests").iterdir():
        path.unlink()
    (folder / "manifests" / "all.yaml").write_text(CLUSTER + TOPICS)
    assert typed("apply", "--yes").code == 0


@pytest.mark.fact("F-R-069", "F-R-070")
def test_it_is_typed_for_one_topic_for_several_and_for_all(typed: Call, tmp_path: Path) -> None:
    workspace(typed, tmp_path)
    one = typed("topic", "storage", "topic/west/tiered")
    assert one.code == 0, one.err
    assert "  tiering  full, ENABLED, epoch 1\n" in one.out
    assert f"  remote   remote://{tmp_path}/.object-storage\n" in one.out
    found = validated(typed("topic", "storage", "topic/west/tiered", "--format", "json").out, "storage")
    first, second = found["partitions"]
    assert (first["start"], first["local_start"], first["end"]) == (0, 0, 600)
    assert (first["remote"]["start"], first["remote"]["end"], first["remote"]["segments"]) == (0, 300, 1)
    assert first["remote"]["url"] == f"remote://{tmp_path}/.object-storage"
    assert second["local"] == {"bytes": 0, "segments": 0}
    assert found["total"]["log_bytes"] == first["local"]["bytes"], "what lies in both is counted once"
    assert found["total"]["local"]["bytes"] + found["total"]["remote"]["bytes"] > found["total"]["log_bytes"]

    every = validated(typed("topic", "storage", "--format", "json").out, "storages")
    assert [topic["address"] for topic in every["topics"]] == ["topic/west/plain", "topic/west/tiered"]
    assert every["total"]["remote"] == found["total"]["remote"]
    assert every["unmeasured"] == 0
    named = typed("topic", "storage", "topic/west/plain", "topic/west/*", "--format", "json")
    assert validated(named.out, "storages") == every, "a topic named twice is there once"
    assert "2 topics. " in typed("topic", "storage").out


def test_described_and_listed_a_tiered_topic_has_each_record_once(typed: Call, tmp_path: Path) -> None:
    workspace(typed, tmp_path)
    described = validated(typed("topic", "describe", "topic/west/tiered", "--format", "json").out, "topic-description")
    assert described["records"] == 600
    assert described["storage"]["remote"]["segments"] == 1
    assert described["storage"]["log_bytes"] == described["bytes"]
    assert "  tiering  full, ENABLED, epoch 1\n" in typed("topic", "describe", "topic/west/tiered").out
    plain = validated(typed("topic", "describe", "topic/west/plain", "--format", "json").out, "topic-description")
    assert plain["storage"] is None
    assert "tiering" not in typed("topic", "describe", "topic/west/plain").out.split("config ")[0]
    listed = validated(typed("topic", "list", "--sizes", "--format", "json").out, "topics")
    sizes = {row["address"]: (row["records"], row["bytes"]) for row in listed["topics"]}
    assert sizes["topic/west/tiered"] == (600, described["bytes"])


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("topic/west/tierd",), 1, "topic tierd does not exist"),
        (("topic/west/plain", "topic/west/tierd"), 1, "topic tierd does not exist"),
        (("west",), 64, "'west' is not the address of a topic"),
        (("topic/east/plain",), 1, "there is no cluster 'east' in this workspace"),
    ],
)
def test_what_is_not_there_is_named(
    arguments: tuple[str, ...], code: int, message: str, typed: Call, tmp_path: Path
) -> None:
    applied(typed, tmp_path)
    said = typed("topic", "storage", *arguments)
    assert (said.code, said.out) == (code, "")
    assert message in said.err


def test_a_pattern_that_nothing_matches_is_no_error(typed: Call, tmp_path: Path) -> None:
    applied(typed, tmp_path)
    said = typed("topic", "storage", "topic/west/x*")
    assert (said.code, said.out) == (0, "There are no topics.\n")


def test_beyond_the_bound_topics_are_only_counted(typed: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    applied(typed, tmp_path)
    monkeypatch.setattr(topics, "MAX_PARTITIONS", 2)
    said = typed("topic", "storage")
    assert "1 topic. " in said.out
    assert "Not measured: 1 of 2 topics" in said.err
    assert "topic/west/tiered" in typed("topic", "storage", "topic/west/tiered").out, "named, it is measured"


@pytest.mark.parametrize("damage", ["gone", "truncated", "behind"])
def test_a_partition_whose_manifest_is_broken_is_told_beside_the_others(
    damage: str, typed: Call, tmp_path: Path
) -> None:
    workspace(typed, tmp_path)
    (manifest,) = (tmp_path / ".object-storage").glob("topics/*/*/00000/manifest.json")
    whole = manifest.read_text()
    if damage == "gone":
        manifest.unlink()
    elif damage == "truncated":
        manifest.write_text(whole[:40])
    else:
        manifest.write_text(json.dumps({**json.loads(whole), "end": 100, "entries": []}))
    said = typed("topic", "storage", "topic/west/tiered", "--format", "json")
    found = validated(said.out, "storage")
    first, second = found["partitions"]
    assert (first["remote"], second["problem"]) == (None, None)
    assert "manifest.json" in first["problem"]
    assert said.code == 1
    assert first["problem"] in said.err.replace("\n", " ")
    text = typed("topic", "storage", "topic/west/tiered")
    assert (text.code, "partition 0  remote unknown: " in text.out) == (1, True)
    every = typed("topic", "storage", "--format", "json")
    plain, tiered = validated(every.out, "storages")["topics"]
    assert (every.code, plain["problem"], tiered["problem"]) == (1, None, first["problem"])
    assert "topic/west/tiered  remote unknown: " in typed("topic", "storage").out


def test_object_storage_that_is_gone_or_another_is_told(typed: Call, tmp_path: Path) -> None:
    workspace(typed, tmp_path)
    file = tmp_path / ".object-storage" / "storage.json"
    content = file.read_text()
    file.write_text(content.replace('"id":"', '"id":"x'))
    said = typed("topic", "storage", "topic/west/tiered", "--format", "json")
    assert said.code == 1
    assert "is object storage x" in validated(said.out, "storage")["tiering"]["hidden"]
    file.unlink()
    said = typed("topic", "storage", "topic/west/tiered")
    assert (said.code, "  remote   not shown: " in said.out) == (1, True)
    assert "has no storage.json, though remote objects" in said.out
    (tmp_path / ".object-storage").rename(tmp_path / "away")
    said = typed("topic", "storage")
    assert said.code == 1
    assert "topic/west/tiered  remote unknown: " in said.out
    assert "holds nothing of it" in said.err
    assert typed("topic", "storage", "topic/west/plain").code == 0


@pytest.mark.parametrize("topic", ["orders", "local", "hidden", "paused", "broken"])
def test_every_sort_of_topic_is_what_its_schema_says(topic: str) -> None:
    found = getattr(sample_storages, topic)()
    validated(format_document(STORAGE.build_row(found)), "storage")
    validated(format_document(STORAGES.build_row(Storages((found,)))), "storages")
