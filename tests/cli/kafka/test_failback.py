"""The disaster on two Kafka clusters, and the way back: nothing is lost or doubled, whatever breaks off in between."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition

from tests.cli.conftest import Call, Said
from tests.cli.kafka.conftest import WORKSPACE
from tests.jobs.kafka.copies import BARE, Place, printed
from tests.servers.kafka import Kafka
from tests.servers.kafkatopics import forget_links

pytestmark = pytest.mark.thorough

CLUSTERS: Final = """\
apiVersion: reconciler/v1
kind: Cluster
metadata: {{name: west}}
spec: {{provider: kafka, kafka: {{bootstrapServers: ["{west}"]}}}}
---
apiVersion: reconciler/v1
kind: Cluster
metadata: {{name: east}}
spec: {{provider: kafka, kafka: {{bootstrapServers: ["{east}"]}}}}
---
apiVersion: reconciler/v1
kind: Namespace
metadata: {{name: {prefix}, cluster: west}}
---
apiVersion: reconciler/v1
kind: Namespace
metadata: {{name: {prefix}, cluster: east}}
"""
TOPIC: Final = """\
---
apiVersion: reconciler/v1
kind: Topic
metadata: {{name: {name}, namespace: {prefix}, cluster: west}}
spec: {{partitions: 2, replicationFactor: 1, configs: {configs}}}
"""
LINK: Final = """\
---
apiVersion: reconciler/v1
kind: MirrorLink
metadata: {{name: link-{prefix}, cluster: east}}
spec:
  source: west
  mode: {mode}
  consumerOffsetSync: {{enabled: true, interval: 1s, filters: [{{name: "{prefix}", patternType: prefixed}}]}}
  mirrorTopics: [{mirrors}]
"""
KEPT: Final = {"retention.ms": -1}


@dataclass
class Sides:
    """Two clusters, a workspace that mirrors topics of west to east, and what strangers do on both."""

    typed: Call
    west: Kafka
    east: Kafka
    prefix: str
    names: tuple[str, ...] = ("orders",)
    configs: str = json.dumps(KEPT)

    def declare(self, state: str = "mirroring", mode: str = "bidirectional") -> None:
        Path("reconciler.yaml").write_text(WORKSPACE)
        Path("manifests").mkdir(exist_ok=True)
        at = {"west": self.west.bootstrap(), "east": self.east.bootstrap(), "prefix": self.prefix}
        mirrors = ", ".join(f'{{source: "{self.prefix}:{name}", state: {state}}}' for name in self.names)
        topics = "".join(TOPIC.format(name=name, configs=self.configs, **at) for name in self.names)
        text = CLUSTERS.format(**at) + topics + LINK.format(mirrors=mirrors, mode=mode, **at)
        Path("manifests/all.yaml").write_text(text)

    def begin(self, records: int = 20, mode: str = "bidirectional") -> None:
        """Have topics on west with records, and mirrors on east that have them all."""
        self.declare(mode=mode)
        self.did("apply", "--yes")
        self.produce(self.west, "first", records)
        self.mirror()

    def did(self, *command: str) -> Said:
        said = self.typed(*command)
        assert said.code == 0, said.out + said.err
        return said

    def mirror(self) -> None:
        self.did("run", "--once", "--only", "mirror")

    def settled(self) -> None:
        again = self.typed("plan", "--detailed-exitcode")
        assert again.code == 0, again.out + again.err

    def address(self, cluster: str, name: str = "orders") -> str:
        return f"mirror/{cluster}/{self.prefix}:{name}"

    def status(self, cluster: str, name: str = "orders") -> str:
        said = self.did("mirror", "describe", self.address(cluster, name), "--format", "json")
        (mirror,) = json.loads(said.out)["mirrors"]
        return str(mirror["mirror_status"])

    def topic(self, name: str = "orders") -> str:
        return f"{self.prefix}.{name}"

    def produce(self, kafka: Kafka, word: str, records: int, *, partition: int | None = None) -> None:
        """Write so many records into every topic there, as a stranger does."""
        refused: list[str] = []

        def said(error: object, _message: object) -> None:
            refused.extend([] if error is None else [str(error)])

        producer = Producer({"bootstrap.servers": kafka.bootstrap()})
        for name in self.names:
            for number in range(records):
                at = number % 2 if partition is None else partition
                producer.produce(self.topic(name), f"{word}-{number}", key=f"k{number}", partition=at, callback=said)
        assert producer.flush(60) == 0
        assert not refused

    def read(self, kafka: Kafka, name: str = "orders") -> dict[int, list[str]]:
        """Return what a bare consumer reads of a topic there, record by record, without offsets."""
        found = Place(kafka, self.prefix).read(self.topic(name))
        return {number: [text for _, text in records] for number, records in sorted(found.items())}

    def read_at(self, kafka: Kafka, name: str = "orders") -> dict[int, list[tuple[int, str]]]:
        return dict(sorted(Place(kafka, self.prefix).read(self.topic(name)).items()))

    def commit(self, kafka: Kafka, group: str, offsets: dict[int, int]) -> None:
        consumer = Consumer({"bootstrap.servers": kafka.bootstrap(), "group.id": f"{self.prefix}.{group}"})
        places = [TopicPartition(self.topic(), number, offset) for number, offset in offsets.items()]
        consumer.commit(offsets=places, asynchronous=False)
        consumer.close()

    def committed(self, kafka: Kafka, group: str) -> dict[int, int]:
        consumer = Consumer({"bootstrap.servers": kafka.bootstrap(), "group.id": f"{self.prefix}.{group}"})
        found = consumer.committed([TopicPartition(self.topic(), number) for number in range(2)], 30)
        consumer.close()
        return {each.partition: each.offset for each in found}

    def wait_until(self, holds: Callable[[], bool]) -> None:
        """Mirror round after round until something holds: groups follow at an interval."""
        deadline = time.monotonic() + 60
        while not holds():
            assert time.monotonic() < deadline
            self.mirror()

    def assert_same(self, records: int) -> None:
        """Compare all topics of both clusters, record by record; each has so many."""
        ours, theirs = self.read_all(self.west), self.read_all(self.east)
        assert ours == theirs
        counts = dict.fromkeys(map(self.topic, self.names), 0)
        for (topic, _), found in ours.items():
            counts[topic] += len(found)
        assert set(counts.values()) == {records}

    def read_all(self, kafka: Kafka) -> dict[tuple[str, int], list[str]]:
        """Return what one bare consumer reads of all topics there, record by record, without offsets."""
        consumer = Consumer({"bootstrap.servers": kafka.bootstrap(), **BARE})
        unread = {(self.topic(name), number) for name in self.names for number in range(2)}
        consumer.assign([TopicPartition(*place, OFFSET_BEGINNING) for place in unread])
        found: dict[tuple[str, int], list[str]] = {}
        while unread:
            message = consumer.poll(60)
            assert message is not None, f"nothing comes of {unread}"
            place = (message.topic(), message.partition())
            if message.error() is None:
                found.setdefault(place, []).append(printed(message))
            else:
                assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                unread.discard(place)
        consumer.close()
        return found


@pytest.fixture
def sides(typed: Call, kafka_39: Kafka, kafka_broker: Kafka, kafka_prefix: str) -> Iterator[Sides]:
    yield Sides(typed, kafka_39, kafka_broker, kafka_prefix)
    for broker in (kafka_39, kafka_broker):
        forget_links(broker)


def test_a_hundred_mirrors_fail_over_and_back_and_nothing_is_lost_or_doubled(sides: Sides) -> None:
    sides.names = tuple(f"orders-{number}" for number in range(100))
    sides.begin(records=4)
    link = f"link/east/link-{sides.prefix}"
    assert sides.did("mirror", "failover", "--link", link, "--yes").out.endswith("failover: 100 done\n")
    sides.produce(sides.east, "second", 4)
    backs = f"link/west/link-{sides.prefix}"
    foreseen = sides.did("mirror", "restore", f"mirror/west/{sides.prefix}:*", "--dry-run")
    assert "Lost in total" not in foreseen.out
    assert sides.did("mirror", "restore", "--link", link, "--yes").out.endswith("mirror restore: 100 done\n")
    sides.mirror()
    sides.assert_same(8)
    sides.produce(sides.east, "third", 4)
    sides.mirror()
    sides.assert_same(12)
    assert sides.did("mirror", "failover", "--link", backs, "--yes").out.endswith("failover: 100 done\n")


def test_a_rehearsal_says_how_many_records_and_seconds_a_failover_loses(sides: Sides) -> None:
    sides.names = ("carts", "orders")
    sides.begin()
    mirrored = time.time()
    sides.produce(sides.west, "late", 3, partition=0)
    said = sides.did("mirror", "failover", f"mirror/east/{sides.prefix}:*", "--dry-run").out
    found = re.search(r"Lost in total: 6 offsets of 2 mirrors, at most ([\d,.]+) s", said)
    assert found is not None, said
    assert 0 < float(found[1].replace(",", "")) < time.time() - mirrored + 60
    sides.mirror()
    nothing = sides.did("mirror", "failover", f"mirror/east/{sides.prefix}:*", "--dry-run").out
    assert nothing.count("0 offsets lost as of now") == 2


@pytest.mark.fact("F-C-078")
def test_the_way_back_copies_only_what_is_new_and_brings_groups(sides: Sides) -> None:
    sides.begin()
    old = sides.read_at(sides.west)
    sides.commit(sides.west, "billing", {0: 3, 1: 10})
    sides.mirror()
    sides.did("mirror", "failover", sides.address("east"), "--yes")
    sides.produce(sides.east, "second", 10)
    new = sides.read_at(sides.east)
    sides.commit(sides.east, "billing", {0: new[0][12][0], 1: new[1][5][0]})
    said = sides.did("mirror", "restore", sides.address("west"), "--yes").out
    assert said.endswith("restored: REGULAR → ACTIVE\n"), said
    assert sides.status("west") == "ACTIVE"
    sides.mirror()
    sides.assert_same(30)
    back = sides.read_at(sides.west)
    assert {number: found[: len(old[number])] for number, found in back.items()} == old
    sides.wait_until(lambda: sides.committed(sides.west, "billing") == {0: back[0][12][0], 1: back[1][5][0]})
    sides.produce(sides.east, "third", 10)
    sides.mirror()
    sides.assert_same(40)
    sides.did("verify", sides.address("west"))


@pytest.mark.fact("F-C-079")
def test_what_never_reached_the_mirror_is_shown_and_kept_in_a_topic_of_its_own(sides: Sides) -> None:
    sides.begin()
    sides.produce(sides.west, "unmirrored", 3, partition=0)
    sides.did("mirror", "failover", sides.address("east"), "--yes")
    sides.produce(sides.east, "second", 10)
    shown = sides.did("mirror", "restore", sides.address("west"), "--dry-run").out
    assert "3 records since 20" in shown
    assert "(partition 0 from offset 10 on) never reached its mirror: lost permanently" in shown
    several = ("mirror", "restore", sides.address("west"), sides.address("west", "none"), "--dry-run")
    assert "3 records since 20" in sides.typed(*several).out
    kept_in = rf"3 records since .+ {sides.prefix}:orders\.diverged"
    assert re.search(kept_in, sides.typed(*several, "--keep-diverged").out)
    sides.did("mirror", "restore", sides.address("west"), "--keep-diverged", "--yes")
    sides.mirror()
    sides.assert_same(30)
    sides.did("verify", sides.address("west"))
    kept = sides.read(sides.west, "orders.diverged")
    assert [value for records in kept.values() for record in records for value in [record.split("\t")[-1]]] == [
        f"unmirrored-{number}" for number in range(3)
    ]


def test_a_plan_gives_up_what_never_reached_the_mirror_only_where_that_is_allowed(sides: Sides) -> None:
    sides.begin()
    sides.produce(sides.west, "unmirrored", 3, partition=0)
    sides.did("mirror", "failover", sides.address("east"), "--yes")
    sides.produce(sides.east, "second", 10)
    sides.declare("reversed")
    back = sides.address("west")
    blocked = sides.typed("apply", "--yes")
    assert blocked.code == 7, blocked.out + blocked.err
    assert f"truncate-and-restore:{back}" in blocked.out
    assert "3 records since 20" in blocked.out
    sides.did("apply", "--yes", "--allow", f"truncate-and-restore:{back}")
    sides.mirror()
    sides.settled()
    sides.assert_same(30)


def test_a_rehearsal_refuses_what_the_command_refuses_on_a_compacted_topic(sides: Sides) -> None:
    sides.configs = json.dumps({"cleanup.policy": "compact"})
    sides.begin()
    sides.produce(sides.west, "unmirrored", 3, partition=0)
    sides.did("mirror", "failover", sides.address("east"), "--yes")
    refusal = f"topic {sides.prefix}:orders of cluster west is compacted: brokers delete no records of it"
    for options in (["--dry-run"], ["--keep-diverged", "--dry-run"], ["--keep-diverged", "--yes"]):
        said = sides.typed("mirror", "restore", sides.address("west"), *options)
        assert (said.code, refusal in said.err) == (1, True), said.out + said.err
    sides.declare("reversed")
    allowed = ["--allow", f"truncate-and-restore:{sides.address('west')}"]
    for command in (["plan"], ["apply", "--yes"], ["apply", "--yes", *allowed]):
        said = sides.typed(*command)
        text = said.out + said.err
        assert (said.code, f"{sides.address('west')}: {refusal}" in text) == (1, True), text
    assert sides.typed("plan", "--exclude", sides.address("west")).code == 0


def test_where_nothing_diverged_a_plan_asks_for_no_leave_and_makes_the_other_half(sides: Sides) -> None:
    sides.begin(mode="destination")
    sides.did("mirror", "failover", sides.address("east"), "--yes")
    sides.produce(sides.east, "second", 10)
    sides.declare("reversed")
    planned = sides.did("plan").out
    assert "nothing diverged as of now: only what is new is copied back" in planned
    sides.did("apply", "--yes")
    sides.mirror()
    sides.settled()
    sides.assert_same(30)


@pytest.mark.fact("F-C-074")
def test_roles_are_swapped_and_swapped_back_over_two_links_in_one_plan(sides: Sides) -> None:
    sides.begin()
    sides.declare("reversed")
    sides.did("apply", "--yes")
    sides.settled()
    sides.produce(sides.east, "second", 10)
    sides.mirror()
    sides.assert_same(30)
    sides.declare("mirroring")
    sides.did("apply", "--yes")
    sides.settled()
    sides.produce(sides.west, "third", 10)
    sides.mirror()
    sides.assert_same(40)
