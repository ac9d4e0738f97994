"""A mirror on a Kafka cluster from files alone: every role it can have, each with a second plan that is empty."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast
from uuid import uuid4

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from kafka import KafkaAdminClient
from kafka.admin import ACL, ACLFilter, ACLOperation, ACLPermissionType, ResourcePattern, ResourceType

from reconciler.embedded.cluster import EmbeddedCluster
from reconciler.errors import RetryableError
from reconciler.objectstore.directory import DirectoryStore
from reconciler.providers.brokers.links.links import KafkaLinks
from reconciler.providers.brokers.records.record_batches import LENGTH_END, PREFIX
from tests.cli.conftest import Call, Said
from tests.cli.kafka.conftest import CLUSTER, WORKSPACE
from tests.cli.kafka.mirrored import FILES, Pair
from tests.cli.kafka.test_half_made import clerk
from tests.jobs.kafka.copies import Place
from tests.servers.kafka import Kafka
from tests.servers.kafkasecured import Secured
from tests.servers.kafkatopics import forget_links, make_topic

if TYPE_CHECKING:
    from tests.cli.kafka.conftest import Desk

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
        self.edits: dict[str, str] = {}
        Path("reconciler.yaml").write_text(WORKSPACE)
        Path("manifests").mkdir()

    @property
    def mirror(self) -> str:
        return f"mirror/east/{self.prefix}:orders"

    def write(self, state: str | None) -> None:
        """Declare a mirror in that role, with what a test has edited in the files."""
        entry = "" if state is None else f'{{source: "{self.prefix}:orders", state: {state}}}'
        text = FILES.format(**self.fields, mirrors=entry)
        for before, after in self.edits.items():
            assert before in text
            text = text.replace(before, after)
        Path("manifests/all.yaml").write_text(text)

    def applied(self, state: str | None) -> None:
        """Apply with a mirror in that role, and see that this is all there is to do."""
        self.write(state)
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

    def lags(self) -> list[int]:
        said = self.typed("mirror", "describe", self.mirror, "--format", "json")
        (mirror,) = json.loads(said.out)["mirrors"]
        return [each["lag"] for each in mirror["mirror_lags"]]

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


@pytest.mark.fact("F-C-083")
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


@pytest.mark.fact("F-C-004")
def test_what_its_link_made_is_paused_without_a_record_and_a_name_that_is_taken_is_told(demo: Demo) -> None:
    making = f'autoCreate: {{enabled: true, filters: [{{name: "{demo.prefix}:", patternType: prefixed}}]}}'
    taken = "\n---\n".join(
        "apiVersion: reconciler/v1\nkind: Topic\n"
        f"metadata: {{name: bills, namespace: {demo.prefix}, cluster: {cluster}}}\n"
        "spec: {partitions: 1, replicationFactor: 1}"
        for cluster in ("west", "east")
    )
    demo.edits = {"  mirrorTopics: []\n": f"  {making}\n---\n{taken}\n"}
    demo.applied(None)
    ran = demo.typed("run", "--once", "--only", "mirror")
    bills = f"{demo.prefix}:bills"
    message = f"topic {bills} of cluster east is in use already, so autoCreate cannot make a mirror of {bills}"
    assert (ran.code, message in ran.out + ran.err) == (8, True), ran.out + ran.err
    assert message in demo.typed("mirror", "errors").out
    link = f"link/east/link-{demo.prefix}"
    for verb, status in (("pause", "PAUSED"), ("resume", "ACTIVE")):
        done = demo.typed("mirror", verb, "--link", link)
        assert done.code == 0, done.err
        assert demo.status() == status
        demo.settled()


@pytest.mark.fact("F-C-027")
def test_what_its_link_made_is_deleted_by_one_plan_that_excludes_it(demo: Demo) -> None:
    taking = f'autoCreate: {{enabled: true, filters: [{{name: "{demo.prefix}:", patternType: prefixed}}EXCLUDED]}}'
    demo.edits = {"  mirrorTopics: []\n": f"  {taking.replace('EXCLUDED', '')}\n"}
    demo.applied(None)
    assert demo.typed("run", "--once", "--only", "mirror").code == 0
    allowed = ("--allow", f"delete:{demo.mirror}")
    refused = demo.typed("plan", *allowed)
    assert (refused.code, "so that it would be made again" in refused.out + refused.err) == (1, True)
    excluding = taking.replace("EXCLUDED", f', {{name: "{demo.prefix}:orders", filterType: exclude}}')
    demo.edits = {"  mirrorTopics: []\n": f"  {excluding}\n"}
    demo.write(None)
    done = demo.typed("apply", "--yes", *allowed)
    assert done.code == 0, done.out + done.err
    assert demo.typed("run", "--once", "--only", "mirror").code == 0
    assert demo.mirror not in demo.typed("topic", "list").out
    demo.settled()


def test_roles_are_not_swapped_between_platforms(demo: Demo) -> None:
    demo.applied("mirroring")
    entry = f'{{source: "{demo.prefix}:orders", state: reversed}}'
    files = FILES.format(**demo.fields, mirrors=entry).replace(
        "  source: west\n", "  source: west\n  mode: bidirectional\n"
    )
    Path("manifests/all.yaml").write_text(files)
    planned = demo.typed("plan")
    assert planned.code == 1
    assert "roles are swapped between clusters of one platform" in planned.out + planned.err


def test_only_verbs_are_offered_that_its_cluster_has(demo: Demo) -> None:
    demo.applied("mirroring")
    said = demo.typed("mirror", "describe", demo.mirror, "--format", "json")
    (mirror,) = json.loads(said.out)["mirrors"]
    assert mirror["legal"] == ["pause", "promote", "failover", "delete"]  # Its link goes one way.
    refused = demo.typed("mirror", "resume", demo.mirror)
    assert "Possible in this state: pause, promote, failover, " in refused.err


@pytest.mark.soak
def test_a_group_that_was_reset_on_the_mirror_is_told(demo: Demo) -> None:
    demo.applied("mirroring")
    demo.produce("a", "b", "c")
    files = Path("manifests/all.yaml")
    syncing = 'consumerOffsetSync: {enabled: true, interval: 1s, filters: [{name: "*"}]}'
    files.write_text(files.read_text().replace("  mirrorTopics", f"  {syncing}\n  mirrorTopics"))
    assert demo.typed("apply", "--yes").code == 0
    assert demo.typed("run", "--once", "--only", "mirror").code == 0
    group, topic = f"{demo.prefix}-bill", f"{demo.prefix}:orders"
    for cluster, to in (("east", "earliest"), ("west", "latest")):
        done = demo.typed("group", "reset", cluster, group, "--to", to, "--topic", topic, "--yes")
        assert done.code == 0, done.err
    ran = demo.typed("run", "--once", "--only", "mirror")
    assert "with --topic" in ran.out + ran.err
    told = demo.typed("mirror", "errors")
    assert "CONSUMER_GROUP_IN_USE_ERROR" in told.out
    assert f"group {group}: it committed offsets of {topic} on the destination itself" in told.out


PROTECTED = {"  source: west": "  source: west\n  protect: acl"}
RULE = '{principal: "User:app-%s", operations: [write]}'


def test_whom_a_link_keeps_out_is_planned_and_given_back_at_the_end(demo: Demo) -> None:
    east = f"metadata: {{name: {demo.prefix}, cluster: east}}"
    rules = f"{east}\nspec: {{acls: [{RULE % demo.prefix}]}}"
    demo.edits = {**PROTECTED, east: rules}
    denied = f"acl deny User:app-{demo.prefix}"
    demo.write("mirroring")
    planned = demo.typed("plan")
    assert denied in planned.out, planned.out
    assert "other producers can write" not in planned.out
    demo.applied("mirroring")
    demo.edits = {**PROTECTED, east: rules.replace("acls: [", f"acls: [{RULE % ('late-' + demo.prefix)}, ")}
    demo.write("mirroring")
    planned = demo.typed("plan")
    assert f"acl deny User:app-late-{demo.prefix}" in planned.out, planned.out
    demo.applied("mirroring")
    drift = demo.typed("drift")
    assert drift.code == 0, drift.out
    exported = demo.typed("export", "east")
    assert "deny" not in exported.out, exported.out
    demo.edits = {east: rules}
    demo.write("mirroring")
    assert denied in demo.typed("plan").out
    demo.applied("mirroring")
    demo.edits = {**PROTECTED, east: rules}
    demo.applied("mirroring")
    demo.applied("failed-over")
    assert "deny" not in demo.typed("export", "east").out


def test_rules_that_others_make_are_covered_by_run_and_then_no_plan_has_a_word_to_say(
    demo: Demo, kafka_broker: Kafka
) -> None:
    demo.edits = PROTECTED
    demo.applied("mirroring")
    where = ResourcePattern(ResourceType.TOPIC, f"{demo.prefix}.orders")
    who = f"User:other-{demo.prefix}"
    admin = KafkaAdminClient(bootstrap_servers=kafka_broker.bootstrap().split(","))
    admin.create_acls([ACL(who, "*", ACLOperation.WRITE, ACLPermissionType.ALLOW, where)])
    assert f"acl deny {who}" in demo.typed("plan").out
    ran = demo.typed("run", "--once", "--only", "mirror")
    assert ran.code == 0, ran.out + ran.err
    demo.settled()
    found, _ = admin.describe_acls(ACLFilter(who, "*", ACLOperation.ANY, ACLPermissionType.DENY, where))
    assert [each.operation for each in found] == [ACLOperation.WRITE], found
    admin.close()


@pytest.mark.soak
def test_without_an_authorizer_that_is_said_before_anything_is_done(
    typed: Call, start_kafka: Callable[..., Kafka], kafka_prefix: str
) -> None:
    demo = Demo(typed, start_kafka(extra={"authorizer.class.name": ""}), kafka_prefix)
    demo.edits = PROTECTED
    demo.write("mirroring")
    said = demo.typed("apply", "--yes")
    assert said.code == 1
    assert "cannot keep writers out of mirrors (protect: acl): no authorizer is configured" in said.out + said.err
    assert demo.typed("topic", "list").out.count("orders") == 0


def test_what_others_wrote_to_a_mirror_is_named_by_drift_and_verify(demo: Demo, kafka_broker: Kafka) -> None:
    demo.applied("mirroring")
    demo.produce("a", "b")
    demo.typed("run", "--once", "--only", "mirror")
    assert demo.typed("drift").code == 0
    assert demo.typed("verify", demo.mirror).code == 0
    producer = Producer({"bootstrap.servers": kafka_broker.bootstrap()})
    for value in ("x", "y"):
        producer.produce(f"{demo.prefix}.orders", value, partition=0)
    assert producer.flush(30) == 0
    drift = demo.typed("drift")
    assert drift.code == 3
    told = "partition 0, offsets 3 to 4: 2 records"
    assert f"another producer wrote 2 records: {told}" in drift.out, drift.out
    assert "--only-drift" not in drift.out + drift.err
    found = json.loads(demo.typed("drift", "--format", "json").out)["findings"]
    (item,) = [each for each in found if each["kind"] == "drift"]
    assert (item["address"], item["path"]) == (demo.mirror, "records")
    accepted = demo.typed("drift", "--accept", demo.mirror)
    assert "there is nothing to accept" in accepted.err
    Path("others/manifests").mkdir(parents=True)
    Path("others/reconciler.yaml").write_text(WORKSPACE.replace("desk", "others"))
    Path("others/manifests/east.yaml").write_text(CLUSTER.format(broker=kafka_broker.bootstrap()))
    others = demo.typed("drift", "--workspace", "others")
    assert (others.code, "another producer" in others.out) == (0, False)
    verified = demo.typed("verify", demo.mirror)
    assert verified.code == 1
    assert f"has 2 records ({told})" in verified.out + verified.err
    found = json.loads(demo.typed("verify", demo.mirror, "--format", "json").out)
    assert (found["equal"], found["foreign"]) == (False, [{"partition": 0, "start": 3, "end": 5, "records": 2}])
    whole = demo.typed("verify", f"link/east/link-{demo.prefix}")
    assert (whole.code, "has records from other producers" in whole.out) == (1, True)
    demo.settled()


def cut(broker: Kafka, topic: str, offset: int) -> None:
    """Delete the records of partition 0 below an offset."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap()})
    place = TopicPartition(topic, 0, offset)
    admin.delete_records([place])[place].result(30)


def verified(demo: Demo) -> dict[str, Any]:
    """Compare the one mirror of the link, and return what JSON says of the link."""
    done = demo.typed("verify", f"link/east/link-{demo.prefix}", "--format", "json")
    found: dict[str, Any] = json.loads(done.out)
    assert (done.code == 0) is found["equal"]
    return found


@pytest.mark.parametrize(("retention", "differences"), [("-1", ["records", "digest", "start"]), ("7d", [])])
def test_a_mirror_that_lost_its_beginning_differs_unless_its_retention_may_have_taken_it(
    demo: Demo, kafka_broker: Kafka, retention: str, differences: list[str]
) -> None:
    demo.edits = {"retention.ms: -1": f"retention.ms: {retention}"}
    demo.applied("mirroring")
    demo.produce("a", "b", "c")
    assert demo.typed("run", "--once", "--only", "mirror").code == 0
    assert verified(demo)["equal"]
    cut(kafka_broker, f"{demo.prefix}.orders", 2)
    (mirror,) = verified(demo)["mirrors"]
    first = mirror["partitions"][0]
    assert (mirror["equal"], first["differences"]) == (not differences, differences)
    if differences:
        assert (first["left"]["start"], first["right"]["start"], first["right"]["end"]) == (2, 0, 3)
        said = demo.typed("verify", demo.mirror)
        assert "More copying does not repair the difference" in said.err


def test_a_source_that_was_created_again_is_no_source_of_the_mirror(demo: Demo) -> None:
    demo.applied("mirroring")
    demo.produce("a", "b", "c")
    assert demo.typed("run", "--once", "--only", "mirror").code == 0
    west = EmbeddedCluster.open(DirectoryStore(Path("west")), now_ms=lambda: 0, new_id=lambda: str(uuid4()))
    west.delete_topic(f"{demo.prefix}:orders")
    west.create_topic(f"{demo.prefix}:orders", partitions=2)
    found = verified(demo)
    assert (found["mirrors"], [each["mirror"] for each in found["failed"]]) == ([], [demo.mirror])
    assert "was created again: it has id" in found["failed"][0]["error"]
    for _ in range(3):  # each pass says so, until it is acted on
        ran = demo.typed("run", "--once", "--only", "mirror")
        assert (ran.code, "The mirror is FAILED, and nothing is copied to it" in ran.out + ran.err) == (8, True)
    assert demo.typed("mirror", "failover", demo.mirror, "--yes").code == 0
    assert demo.typed("run", "--once", "--only", "mirror").code == 0


def test_a_mirror_whose_topic_is_gone_is_not_left_out_of_its_link(demo: Demo, kafka_broker: Kafka) -> None:
    demo.applied("mirroring")
    topic = f"{demo.prefix}.orders"
    admin = AdminClient({"bootstrap.servers": kafka_broker.bootstrap()})
    admin.delete_topics([topic])[topic].result(30)
    found = verified(demo)
    assert (found["equal"], found["mirrors"]) == (False, [])
    assert [(each["mirror"], "was deleted from cluster east" in each["error"]) for each in found["failed"]] == [
        (demo.mirror, True)
    ]


@pytest.mark.fact("F-C-008", "F-C-056")
def test_partitions_and_configs_that_a_mirror_does_not_have_yet_come_with_a_run(demo: Demo) -> None:
    entry = f'{{source: "{demo.prefix}:orders", partitions: 2}}'
    Path("manifests/all.yaml").write_text(FILES.format(**demo.fields, mirrors=entry))
    refused = demo.typed("plan")
    assert (refused.code, "partitions" in refused.err) == (1, True)
    demo.applied("mirroring")
    west = EmbeddedCluster.open(DirectoryStore(Path("west")), now_ms=lambda: 0, new_id=lambda: str(uuid4()))
    west.alter_topic(f"{demo.prefix}:orders", {"max.message.bytes": "123456"}, partitions=3)
    said = demo.typed("verify", demo.mirror)
    assert (said.code, "differs in partition" in said.out, "reconciler run --once" in said.err) == (1, True, True)
    assert demo.typed("run", "--once", "--only", "mirror").code == 0
    assert demo.typed("verify", demo.mirror).code == 0
    (shown,) = json.loads(demo.typed("show", demo.mirror, "--format", "json").out)["resources"]
    assert shown["observed"]["resource"]["partitions"] == 3
    assert '"123456"' in demo.typed("topic", "describe", demo.mirror, "--format", "json").out


def test_a_link_that_has_nothing_to_compare_is_not_called_equal(demo: Demo) -> None:
    demo.applied("mirroring")
    assert demo.typed("mirror", "failover", demo.mirror, "--yes").code == 0
    said = demo.typed("verify", f"link/east/link-{demo.prefix}")
    assert (said.code, f"left out  {demo.mirror}: it was failed over" in said.out) == (1, True)
    assert "nothing was compared, because no mirror follows its source" in said.err


CHAIN = """\
---
apiVersion: reconciler/v1
kind: Cluster
metadata: {name: north}
spec: {embedded: {root: "file://north"}}
---
apiVersion: reconciler/v1
kind: Namespace
metadata: {name: OURS, cluster: north}
---
apiVersion: reconciler/v1
kind: MirrorLink
metadata: {name: onwards-OURS, cluster: north}
spec:
  source: east
  mirrorTopics: [{source: "OURS:orders"}]
  consumerOffsetSync: {enabled: true, interval: 1s, filters: [{name: "OURS", patternType: prefixed}]}
"""
SYNC = """
  consumerOffsetSync:
    enabled: true
    interval: 1s
    filters:
      - {name: "OURS", patternType: PREFIXED, filterType: INCLUDE}
      - {name: "OURS:private", patternType: PREFIXED, filterType: EXCLUDE}"""


@pytest.mark.fact("F-C-095")
@pytest.mark.fact("F-C-040")
def test_one_pass_brings_records_and_the_groups_that_filters_take_through_a_chain(demo: Demo) -> None:
    source = "  source: west"
    demo.edits = {source: source + SYNC.replace("OURS", demo.prefix)}
    demo.write("mirroring")
    Path("manifests/chain.yaml").write_text(CHAIN.replace("OURS", demo.prefix))
    done = demo.typed("apply", "--yes")
    assert done.code == 0, done.out + done.err
    demo.produce("a", "b", "c")
    groups = (f"{demo.prefix}:bill", f"{demo.prefix}:private-bill")
    for group in groups:
        topic = ("--topic", f"{demo.prefix}:orders")
        reset = demo.typed("group", "reset", "west", group, *topic, "--to", "latest", "--yes")
        assert reset.code == 0, reset.out + reset.err
    ran = demo.typed("run", "--once", "--only", "mirror")
    assert ran.code == 0, ran.out + ran.err
    for cluster in ("east", "north"):
        said = demo.typed("mirror", "describe", f"mirror/{cluster}/{demo.prefix}:orders", "--format", "json")
        (mirror,) = json.loads(said.out)["mirrors"]
        assert [each["lag"] for each in mirror["mirror_lags"]] == [0, 0]
        listed = demo.typed("group", "list", cluster).out
        assert ["private" in line for line in listed.splitlines() if demo.prefix in line] == [False], listed
    read = demo.typed("topic", "consume", f"topic/north/{demo.prefix}:orders", "--from", "earliest")
    assert all(value in read.out for value in ("a", "b", "c")), read.out + read.err


@pytest.mark.fact("F-C-068", "F-C-090", "F-C-091")
def test_a_stopped_mirror_takes_records_and_is_listed_until_its_link_is_deleted(demo: Demo) -> None:
    demo.applied("mirroring")
    demo.produce("a", "b")
    assert demo.typed("run", "--once", "--only", "mirror").code == 0
    link = f"link/east/link-{demo.prefix}"
    held = demo.typed("link", "delete", link, "--yes")
    assert (held.code, "has mirrors that are not stopped: 1 ACTIVE" in held.out + held.err) == (7, True)
    assert demo.typed("mirror", "failover", demo.mirror, "--yes").code == 0
    form = ("--input", "-", "--input-format", "jsonl", "--partition", "0")
    topic = f"topic/east/{demo.prefix}:orders"
    assert demo.typed("topic", "produce", topic, *form, stdin=b'"c"\n').code == 0
    (mirror,) = json.loads(demo.typed("mirror", "describe", demo.mirror, "--format", "json").out)["mirrors"]
    assert mirror["mirror_status"] == "STOPPED"
    assert [each["last_source_fetch_offset"] for each in mirror["mirror_lags"]] == [1, -1]
    assert mirror["status_time_ms"] > 0
    assert demo.typed("link", "delete", link, "--yes").code == 0
    assert json.loads(demo.typed("mirror", "list", "--format", "json").out)["mirrors"] == []
    assert topic in demo.typed("topic", "list").out


@pytest.mark.fact("F-C-034", "F-C-062", "F-C-090")
def test_a_link_is_paused_made_and_deleted_by_commands(demo: Demo) -> None:
    demo.applied("mirroring")
    link, extra = f"link/east/link-{demo.prefix}", f"link/east/extra-{demo.prefix}"

    def said(*typed: str, code: int = 0) -> str:
        done = demo.typed("link", *typed)
        assert done.code == code, done.out + done.err
        return done.out + done.err

    assert f"✓ {link}  paused false → true" in said("pause", link)
    assert demo.status() == "LINK_PAUSED"
    assert demo.typed("drift").code == 3
    demo.produce("a")
    assert demo.typed("run", "--once", "--only", "mirror").code == 0
    assert demo.lags() == [1, 0]
    said("resume", link)
    assert demo.typed("run", "--once", "--only", "mirror").code == 0
    assert demo.lags() == [0, 0]
    demo.settled()
    said("create", extra, "--source", "west", "--prefix", "w.")
    assert "exists already" in said("create", extra, "--source", "west", code=1)
    assert demo.typed("mirror", "create", f"mirror/east/{demo.prefix}:w.orders", "--link", extra[10:]).code == 0
    assert "has mirrors that are not stopped: 1 ACTIVE" in said("delete", extra, code=7)
    said("alter", extra, "--set", "retryTimeout=10m")
    assert '"retryTimeout": 600000' in said("describe", extra, "--format", "json")
    assert f"✓ {extra}  deleted" in said("delete", extra, "--force", "--yes")
    done = demo.typed(
        "topic", "produce", f"topic/east/{demo.prefix}:w.orders", "-i", "-", "--input-format", "jsonl", stdin=b"1\n"
    )
    assert done.code == 0, done.err
    assert said("list", "east", "--format", "json").count('"link_id"') == 1


@pytest.mark.fact("F-C-071")
def test_a_mirror_whose_brokers_lost_its_end_fails_and_is_mirrored_afresh(
    typed: Call, start_kafka: Callable[..., Kafka], kafka_prefix: str
) -> None:
    kafka = start_kafka()
    demo = Demo(typed, kafka, kafka_prefix)
    demo.applied("mirroring")
    for values in (["a", "b"], ["c", "d"]):
        demo.produce(*values)
        assert typed("run", "--once", "--only", "mirror").code == 0
    kafka.kill()
    lose_last_batches(kafka, f"{kafka_prefix}.orders", 2)
    kafka.restart()
    demo.produce("e")
    for _ in range(2):
        ran = typed("run", "--once", "--only", "mirror")
        assert demo.status() == "FAILED", ran.out + ran.err
    (wrong,) = json.loads(typed("mirror", "errors", "--format", "json").out)["errors"]
    assert wrong["error_code"] == "MIRROR_TRUNCATED"
    assert "partition 0 of cluster east ends at 3, and was written up to 5: its brokers lost records" in str(wrong)
    place = Place(kafka, kafka_prefix)
    assert len(place.read(f"{kafka_prefix}.orders")[0]) == 2
    done = typed("apply", "--yes", "--allow", f"delete:{demo.mirror}")
    assert done.code == 0, done.err
    demo.settled()
    values = [text.rpartition("\t")[2] for _, text in place.read(f"{kafka_prefix}.orders")[0]]
    assert values == ['"a"', '"b"', '"c"', '"d"', '"e"']


def lose_last_batches(kafka: Kafka, topic: str, count: int) -> None:
    """Cut the log of partition 0, while its broker is down, as a power failure does."""
    (log,) = kafka.brokers[0].folder.rglob(f"{topic}-0/*.log")
    kept, starts, at = log.read_bytes(), [], 0
    while at + PREFIX.size <= len(kept) and (length := PREFIX.unpack_from(kept, at)[1]) > 0:
        starts.append(at)
        at += LENGTH_END + length
    log.write_bytes(kept[: starts[-count]])


@pytest.fixture
def pair(typed: Call, kafka_39: Kafka, kafka_broker: Kafka, kafka_prefix: str) -> Iterator[Pair]:
    yield Pair(typed, kafka_39, kafka_broker, kafka_prefix)
    forget_links(kafka_broker)


def mirror_elsewhere(pair: Pair) -> Said:
    """Let a workspace do it that declares the clusters alone."""
    clusters = "---".join(Path("manifests/all.yaml").read_text().split("---")[:2])
    with pytest.MonkeyPatch.context() as elsewhere:
        Path("other/manifests").mkdir(parents=True, exist_ok=True)
        Path("other/reconciler.yaml").write_text(WORKSPACE)
        Path("other/manifests/clusters.yaml").write_text(clusters)
        elsewhere.chdir("other")
        return pair.mirror()


def test_a_workspace_without_the_namespaces_mirrors_for_the_one_that_has_them(pair: Pair) -> None:
    pair.begin()
    done = mirror_elsewhere(pair)
    assert done.code == 0, done.out + done.err
    assert "gone" not in done.out + done.err
    pair.assert_mirrored()


def test_mirrors_are_made_by_themselves_only_where_the_link_is_declared(pair: Pair) -> None:
    filters = [
        {"name": f"{pair.prefix}:", "patternType": "prefixed"},
        {"name": f"{pair.prefix}:secret", "filterType": "exclude"},
    ]
    pair.declare()
    manifest = Path("manifests/all.yaml")
    asked = f"autoCreate: {json.dumps({'enabled': True, 'filters': filters})}"
    manifest.write_text(manifest.read_text().replace("  source: west\n", f"  source: west\n  {asked}\n"))
    assert pair.typed("apply", "--yes").code == 0
    for name in ("late", "secret"):
        make_topic(pair.west, f"{pair.prefix}.{name}", partitions=1)
    done = mirror_elsewhere(pair)
    assert done.code == 0, done.out + done.err
    assert f"link/east/link-{pair.prefix} to 'desk' (autoCreate)" in done.out
    mirrors: list[list[str]] = []
    for mirror in (pair.mirror, lambda: mirror_elsewhere(pair)):
        listed = json.loads(pair.typed("mirror", "list", "--format", "json").out)["mirrors"]
        mirrors.append([each["mirror_topic_name"] for each in listed])
        assert mirror().code == 0
    assert mirrors == [[f"{pair.prefix}:orders"], [f"{pair.prefix}:late", f"{pair.prefix}:orders"]]


def test_a_source_is_known_by_the_name_that_its_mirror_declares(pair: Pair) -> None:
    pair.begin()
    manifest = Path("manifests/all.yaml")
    documents = manifest.read_text().split("---\n")
    manifest.write_text("---\n".join([*documents[:2], documents[3], documents[5]]))
    removed = pair.typed("state", "rm", f"namespace/west/{pair.prefix}", f"topic/west/{pair.prefix}:orders", "--yes")
    assert removed.code == 0, removed.err
    pair.assert_mirrored()


@pytest.fixture
def limited(
    typed: Call, kafka_secured: Secured, kafka_prefix: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Demo, Callable[[ACLOperation], None]]]:
    """A mirror that others wrote to, then the turn of a user with few rights; and what takes another from them."""
    monkeypatch.setenv("PASSWORD", "wonder")
    kafka = kafka_secured.kafka
    demo = Demo(typed, kafka, kafka_prefix)
    demo.applied("mirroring")
    demo.produce("a", "b")
    assert demo.typed("run", "--once", "--only", "mirror").code == 0
    producer = Producer({"bootstrap.servers": kafka.bootstrap()})
    producer.produce(f"{demo.prefix}.orders", "x", partition=0)
    assert producer.flush(30) == 0
    with closing(KafkaAdminClient(bootstrap_servers=[kafka.bootstrap()])) as admin:
        user = clerk(cast("Desk", SimpleNamespace(prefix=demo.prefix, admin=admin)))

        def rule(name: str, operation: ACLOperation, permission: ACLPermissionType) -> None:
            made = ACL(f"User:{user}", "*", operation, permission, ResourcePattern(ResourceType.TOPIC, name))
            assert not admin.create_acls([made])["failed"]

        rule("__reconciler", ACLOperation.READ, ACLPermissionType.ALLOW)
        login = "protocol: SASL_PLAINTEXT, allowPlaintextPasswords: true, mechanism: SCRAM-SHA-256"
        security = f'{{{login}, username: {user}, password: "${{env:PASSWORD}}"}}'
        servers = f'bootstrapServers: ["{kafka.bootstrap("LOGIN")}"]'
        demo.fields["east"] = f"{{provider: kafka, kafka: {{{servers}, security: {security}}}}}"
        demo.write("mirroring")
        said = demo.typed("apply", "--yes", "--allow", "connect:cluster/east")
        assert said.code == 0, said.out + said.err
        yield demo, lambda operation: rule(f"{demo.prefix}.orders", operation, ACLPermissionType.DENY)
    forget_links(kafka)


def test_drift_says_that_others_records_are_not_known_to_who_may_not_read_a_mirror(
    limited: tuple[Demo, Callable[[ACLOperation], None]],
) -> None:
    demo, deny = limited
    assert "another producer wrote 1 record" in demo.typed("drift").out
    deny(ACLOperation.READ)
    drift = demo.typed("drift")
    assert drift.code == 0, drift.out + drift.err
    assert "it cannot be checked whether others wrote to its mirrors" in drift.out + drift.err


def test_drift_says_that_others_records_are_not_known_where_a_mirror_has_no_leader(
    demo: Demo, monkeypatch: pytest.MonkeyPatch
) -> None:
    demo.applied("mirroring")
    error = RetryableError("orders has a partition without a leader", hint="See whether its brokers are alive.")
    monkeypatch.setattr(KafkaLinks, "find_foreign_records", lambda *_, **__: (_ for _ in ()).throw(error))
    drift = demo.typed("drift")
    assert drift.code == 0, drift.out + drift.err
    assert "it cannot be checked whether others wrote to its mirrors: orders has a partition" in drift.out + drift.err


def test_drift_tells_others_records_in_mirrors_also_where_one_has_no_leader(
    limited: tuple[Demo, Callable[[ACLOperation], None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    demo, _ = limited
    foreign = KafkaLinks.find_foreign_records

    def without_leader(links: KafkaLinks, names: list[str], **how: Any) -> Any:
        how["on_unknown"]("lonely", RetryableError("lonely has a partition without a leader", hint="See."))
        return foreign(links, names, **how)

    monkeypatch.setattr(KafkaLinks, "find_foreign_records", without_leader)
    drift = demo.typed("drift")
    assert "another producer wrote 1 record" in drift.out
    assert "it cannot be checked whether others wrote to its mirrors: lonely has a partition" in drift.out + drift.err


def test_a_plan_says_of_a_mirror_that_may_not_be_described_that_it_is_hidden(
    limited: tuple[Demo, Callable[[ACLOperation], None]],
) -> None:
    demo, deny = limited
    deny(ACLOperation.DESCRIBE)
    for state in ("mirroring", None):
        demo.write(state)
        said = demo.typed("plan")
        assert said.code == 1
        assert demo.mirror in said.out
        assert "it is hidden" in said.out
        assert "Plan: nothing to do" in said.out
