"""A mirror on a Kafka cluster from files alone: every role it can have, each with a second plan that is empty."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import Call
from tests.cli.kafka.conftest import WORKSPACE
from tests.cli.kafka.mirrored import FILES
from tests.servers.kafka import Kafka
from tests.servers.kafkatopics import forget_links

pytestmark = pytest.mark.thorough


class Demo:
    """A workspace, and the commands typed there."""

    def __init__(self, typed: Call, broker: Kafka, prefix: str) -> None:
        self.typed, self.prefix = typed, prefix
        self.fields = {
            "west": '{embedded: {root: "file://west"}}',
            "east": f'{{provider: kafka, kafka: {{bootstrapServers: ["{broker.bootstrap()}"]}}}}',
            "prefix": prefix,
        }
        Path("reconciler.yaml").write_text(WORKSPACE)
        Path("manifests").mkdir()

    @property
    def mirror(self) -> str:
        return f"mirror/east/{self.prefix}:orders"

    def applied(self, state: str | None) -> None:
        """Apply with a mirror in that role, and see that this is all there is to do."""
        entry = "" if state is None else f'{{source: "{self.prefix}:orders", state: {state}}}'
        Path("manifests/all.yaml").write_text(FILES.format(**self.fields, mirrors=entry))
        allowed = ("--allow", f"failover:{self.mirror}") if state == "failed-over" else ()
        done = self.typed("apply", "--yes", *allowed)
        assert done.code == 0, done.err
        self.settled()

    def settled(self) -> None:
        again = self.typed("plan", "--detailed-exitcode")
        assert again.code == 0, again.out
        assert "nothing to do" in again.out

    def status(self) -> str:
        said = self.typed("mirror", "describe", self.mirror, "--format", "json")
        (mirror,) = json.loads(said.out)["mirrors"]
        return str(mirror["mirror_status"])

    def produce(self, *values: str) -> None:
        rows = "".join(f'"{value}"\n' for value in values).encode()
        form = ("--input", "-", "--input-format", "jsonl", "--partition", "0")
        done = self.typed("topic", "produce", f"topic/west/{self.prefix}:orders", *form, stdin=rows)
        assert done.code == 0, done.err


@pytest.fixture
def demo(typed: Call, kafka_broker: Kafka, kafka_prefix: str) -> Iterator[Demo]:
    yield Demo(typed, kafka_broker, kafka_prefix)
    forget_links(kafka_broker)


@pytest.mark.parametrize("last", ["promoted", pytest.param("failed-over", marks=pytest.mark.soak)])
def test_every_role_is_reached_and_then_nothing_is_left_to_do(demo: Demo, last: str) -> None:
    demo.applied("mirroring")
    for state, status in (("paused", "PAUSED"), ("mirroring", "ACTIVE"), (last, "STOPPED")):
        demo.applied(state)
        assert demo.status() == status


def test_what_is_produced_is_mirrored_by_run_and_the_plan_stays_empty(demo: Demo) -> None:
    demo.applied("mirroring")
    demo.produce("a", "b", "c")
    ran = demo.typed("run", "--once", "--only", "mirror")
    assert ran.code == 0, ran.err
    said = demo.typed("mirror", "describe", demo.mirror, "--format", "json")
    (mirror,) = json.loads(said.out)["mirrors"]
    assert [each["lag"] for each in mirror["mirror_lags"]] == [0, 0]
    assert [each["last_source_fetch_offset"] for each in mirror["mirror_lags"]] == [2, -1]
    demo.settled()
    listed = demo.typed("topic", "list")
    assert demo.mirror in listed.out


def test_what_its_brokers_refuse_is_among_the_errors_until_it_is_copied(demo: Demo) -> None:
    demo.applied("mirroring")
    form = ("--input", "-", "--input-format", "jsonl", "--timestamp-field", "at")
    done = demo.typed("topic", "produce", f"topic/west/{demo.prefix}:orders", *form, stdin=b'{"at": 1000}\n')
    assert done.code == 0, done.err
    limited = {"message.timestamp.before.max.ms": "1h"}
    for configs, code, told in ((limited, 8, "RECORDS_REFUSED"), ({}, 0, "Nothing is wrong")):
        entry = f'{{source: "{demo.prefix}:orders", configs: {json.dumps(configs)}}}'
        Path("manifests/all.yaml").write_text(FILES.format(**demo.fields, mirrors=entry))
        done = demo.typed("apply", "--yes")
        assert done.code == 0, done.err
        assert demo.typed("run", "--once", "--only", "mirror").code == code
        assert told in demo.typed("mirror", "errors").out
        assert demo.status() == "ACTIVE"


def test_a_reversal_is_refused_at_plan(demo: Demo) -> None:
    demo.applied("mirroring")
    entry = f'{{source: "{demo.prefix}:orders", state: reversed}}'
    Path("manifests/all.yaml").write_text(FILES.format(**demo.fields, mirrors=entry))
    assert demo.typed("plan").code != 0


def test_only_verbs_are_offered_that_its_cluster_has(demo: Demo) -> None:
    demo.applied("mirroring")
    said = demo.typed("mirror", "describe", demo.mirror, "--format", "json")
    (mirror,) = json.loads(said.out)["mirrors"]
    assert mirror["legal"] == ["pause", "promote", "failover", "delete"]
    assert "reverse" not in demo.typed("mirror", "describe", demo.mirror).out
    refused = demo.typed("mirror", "resume", demo.mirror)
    assert "Possible in this state: pause, promote, failover, delete (by the files)" in refused.err
    demo.applied("promoted")
    assert "restore" not in demo.typed("mirror", "describe", demo.mirror).out


@pytest.mark.soak
def test_a_group_that_was_reset_on_the_mirror_is_told(demo: Demo) -> None:
    demo.applied("mirroring")
    demo.produce("a", "b", "c")
    files = Path("manifests/all.yaml")
    syncing = 'consumerOffsetSync: {enabled: true, interval: 1s, filters: [{name: "*"}]}'
    files.write_text(files.read_text().replace("  mirrorTopics", f"  {syncing}\n  mirrorTopics"))
    assert demo.typed("apply", "--yes").code == 0
    assert demo.typed("run", "--once", "--only", "mirror").code == 0
    group, topic = f"{demo.prefix}:bill", f"{demo.prefix}:orders"
    for cluster, to in (("east", "earliest"), ("west", "latest")):
        done = demo.typed("group", "reset", cluster, group, "--to", to, "--topic", topic, "--yes")
        assert done.code == 0, done.err
    ran = demo.typed("run", "--once", "--only", "mirror")
    assert "with --topic" in ran.out + ran.err
    told = demo.typed("mirror", "errors")
    assert "CONSUMER_GROUP_IN_USE_ERROR" in told.out
    assert f"group {group}: it committed offsets of {topic} on the destination itself" in told.out


def test_a_link_is_paused_made_and_deleted_by_commands(demo: Demo) -> None:
    demo.applied("mirroring")
    link, extra = f"link/east/link-{demo.prefix}", f"link/east/extra-{demo.prefix}"

    def said(*typed: str, code: int = 0) -> str:
        done = demo.typed("link", *typed)
        assert done.code == code, done.out + done.err
        return done.out + done.err

    assert f"✓ {link}  pause: ACTIVE → PAUSED" in said("pause", link)
    assert demo.status() == "LINK_PAUSED"
    assert demo.typed("drift").code == 3
    said("resume", link)
    demo.settled()
    refused = said("create", extra, "--source", "west", "--mode", "bidirectional", code=1)
    assert "a cluster of platform kafka cannot have a link of mode bidirectional" in refused
    said("create", extra, "--source", "west", "--prefix", "w.")
    assert "already exists" in said("create", extra, "--source", "west", code=1)
    assert demo.typed("mirror", "create", f"mirror/east/{demo.prefix}:w.orders", "--link", extra[10:]).code == 0
    assert "has mirrors that are not stopped: 1 ACTIVE" in said("delete", extra, code=7)
    assert f"{extra}  delete: ACTIVE → ABSENT" in said("delete", extra, "--force", "--yes")
    done = demo.typed(
        "topic", "produce", f"topic/east/{demo.prefix}:w.orders", "-i", "-", "--input-format", "jsonl", stdin=b"1\n"
    )
    assert done.code == 0, done.err
    assert said("list", "east", "--format", "json").count('"link_id"') == 1
