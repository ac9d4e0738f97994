"""`topic profile` as it is typed: as text, and as JSON with its schema."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from reconciler.cli.json.base import format_document
from reconciler.cli.json.clusters_json import TOPIC_PROFILE, decode_key
from reconciler.cli.text.lines import to_plain_text
from reconciler.cli.text.topics_text import format_profile
from reconciler.resources.topic_profile import KEY_PREFIX, KeyProfile
from tests.cli import sample_results
from tests.cli.conftest import COMMAND, Call, environment

SCHEMAS = Path(__file__).resolve().parents[2] / "schemas"
TOPIC = "topic/west/shop:orders"


def validated(body: bytes | str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(body)
    jsonschema.Draft202012Validator(json.loads((SCHEMAS / "topic-profile.json").read_bytes())).validate(found)
    return found


@pytest.fixture
def applied(call: Call) -> Call:
    """A workspace with one topic of three partitions."""
    assert call("apply", "--yes").code == 0
    return call


def in_a_process(*arguments: str) -> str:
    """Run a command that starts Spark: tests of this process may have a session of their own."""
    said = subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, env=environment(), check=False)
    assert said.returncode == 0, said.stderr
    return said.stdout


@pytest.mark.spark
@pytest.mark.thorough
def test_a_topic_is_profiled_as_text_and_as_json(applied: Call) -> None:
    rows = [{"key": "\x1b]0;x\x07" if number % 2 else None, "value": "v" * number} for number in range(10)]
    body = "".join(json.dumps({"timestamp_ms": 1_700_000_000_000, **row}) + "\n" for row in rows).encode()
    fed = applied("topic", "produce", TOPIC, "--input", "-", "--input-format", "records", stdin=body)
    assert fed.code == 0, fed.err
    text = in_a_process("topic", "profile", TOPIC, "--retention", "7d")
    assert "10 in 3 partitions, 75 B uncompressed" in text
    assert "\\x1b]0;x\\x07" in text
    assert "\x1b" not in text
    assert "A retention of 7d would free at most 10 records, 75 B" in text
    found = validated(in_a_process("topic", "profile", TOPIC, "--format", "json"))
    assert (found["content"]["records"], found["compaction"]["records"], found["retention"]) == (10, 4, None)


def test_an_empty_topic_is_profiled_without_starting_spark(applied: Call) -> None:
    said = applied("topic", "profile", TOPIC)
    assert said.code == 0, said.err
    assert "0 in 3 partitions" in said.out
    assert "Spark" not in said.out
    found = validated(applied("topic", "profile", TOPIC, "--format", "json").out)
    assert (found["engine"], found["skew"], len(found["partitions"])) == (None, None, 3)


def test_a_missing_topic_is_an_error_in_a_sentence(applied: Call) -> None:
    said = applied("topic", "profile", "topic/west/shop:nothing")
    assert said.code == 1
    assert said.err.startswith("Error: topic shop:nothing does not exist")


def test_without_java_a_profile_says_that_it_needs_spark(applied: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    said = applied("topic", "profile", TOPIC)
    assert said.code == 1
    assert said.err.startswith("Error: topic profile runs on Spark, however small the topic is. Data jobs run on Spark")


@pytest.mark.parametrize("retention", ["soon", "infinite", "-1"])
def test_a_retention_that_is_no_duration_is_refused(applied: Call, retention: str) -> None:
    said = applied("topic", "profile", TOPIC, "--retention", retention)
    assert (said.code, said.out) == (64, "")
    assert f"--retention {retention}" in said.err


def test_a_profile_with_hostile_keys_shows_and_follows_its_schema() -> None:
    profiled = sample_results.profiled()
    assert "\x1b" not in to_plain_text(format_profile(profiled))
    body = format_document(TOPIC_PROFILE.build_row(profiled))
    found = validated(body)
    assert b"\x1b" not in body
    assert [each["key"] for each in found["top_keys"]] == ["\x1b[31mN14228", {"base64": "/wA="}, ""]
    long = "€".encode() * 100
    cut = KeyProfile(long[:KEY_PREFIX], len(long), 1, 300, 1)
    assert decode_key(cut) == "€" * 85
    assert found["retention"] == {"records": 7_000, "bytes": 800_000, "retention_ms": 604_800_000}
