"""The emulated Redpanda shadows a Kafka cluster as the contract says: real copies, failovers, refusals, faults."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewPartitions,
    ResourcePatternType,
    ResourceType,
)

from tests.servers.brokers import list_rules
from tests.servers.emulation.faults import LINK
from tests.servers.kafka import Kafka
from tests.servers.redpanda.server import Redpanda
from tests.servers.test_redpanda_server import (
    NEWEST,
    SECONDS,
    alter,
    call,
    code_of,
    configs_of,
    connect,
    create,
    failure_of_a_write,
    read,
    write,
)
from tests.waiting import until

pytestmark = pytest.mark.thorough

SERVICE = "/redpanda.core.admin.v2.ShadowLinkService/"
ENABLED = {"enable_shadow_linking": True}
ALWAYS = 1_000_000
TOPICS, OFFSETS = "topicMetadataSyncOptions", "consumerOffsetSyncOptions"
FILTERS = f"configurations.{TOPICS}.autoCreateShadowTopicFilters"


@pytest.fixture
def shadow(redpanda: Redpanda) -> Iterator[Redpanda]:
    assert not redpanda.cluster.write(ENABLED, [])
    yield redpanda
    redpanda.cluster.write({}, [*ENABLED])


@pytest.fixture
def source(kafka_broker: Kafka) -> Redpanda:
    """Return the source as the helpers of the other tests take clusters: by its address."""
    return cast("Redpanda", SimpleNamespace(kafka=kafka_broker.bootstrap()))


def ask(server: Redpanda, method: str, **body: Any) -> Any:
    status, document = call(server, "POST", SERVICE + method, body)
    assert status == 200, document
    return document


def refused(server: Redpanda, method: str, **body: Any) -> tuple[int, str]:
    status, document = call(server, "POST", SERVICE + method, body)
    assert list(document) == ["code", "message"], document
    return status, document["code"]


def name_filter(name: str, *, excludes: bool = False, prefix: bool = False) -> dict[str, str]:
    kinds = f"PATTERN_TYPE_{'PREFIX' if prefix else 'LITERAL'}", f"FILTER_TYPE_{'EXCLUDE' if excludes else 'INCLUDE'}"
    return {"patternType": kinds[0], "filterType": kinds[1], "name": name}


def options(source: Redpanda, prefix: str, **groups: Any) -> dict[str, Any]:
    topics = {"autoCreateShadowTopicFilters": [name_filter(prefix, prefix=True)], **groups.pop(TOPICS, {})}
    client = {"bootstrapServers": source.kafka.split(","), **groups.pop("clientOptions", {})}
    return {"name": "link", "configurations": {"clientOptions": client, TOPICS: topics, **groups}}


def link(server: Redpanda, source: Redpanda, prefix: str, **groups: Any) -> Any:
    return ask(server, "CreateShadowLink", shadowLink=options(source, prefix, **groups))["shadowLink"]


def wait(check: Callable[[], bool], server: Redpanda) -> None:
    until(check, lambda: (server.log, ask(server, "ListShadowLinks")))


def topic_of(server: Redpanda, name: str) -> Any:
    return ask(server, "GetShadowTopic", shadowLinkName="link", name=name)["shadowTopic"]


def state_of(server: Redpanda, name: str) -> str:
    status, document = call(server, "POST", f"{SERVICE}GetShadowTopic", {"shadowLinkName": "link", "name": name})
    state = document["shadowTopic"]["status"]["state"] if status == 200 else ""
    return str(state).removeprefix("SHADOW_TOPIC_STATE_")


def tasks_of(server: Redpanda) -> dict[str, tuple[str, str]]:
    rows = ask(server, "GetShadowLink", name="link")["shadowLink"]["status"]["taskStatuses"]
    return {row["name"]: (row["state"].removeprefix("TASK_STATE_"), row["reason"]) for row in rows}


def test_records_are_copied_at_their_offsets_until_the_topic_fails_over(
    shadow: Redpanda, source: Redpanda, kafka_prefix: str
) -> None:
    admin, values = connect(source), [f"value {number}" for number in range(300)]
    create(admin, kafka_prefix, 2, max_message_bytes="200000")
    write(source, kafka_prefix, values)
    admin.delete_records([TopicPartition(kafka_prefix, 0, 100)])[TopicPartition(kafka_prefix, 0, 100)].result(SECONDS)
    for number in range(3):
        write(source, kafka_prefix, [f"{number}a", f"{number}b"], 1, **{"transactional.id": kafka_prefix})
    assert link(shadow, source, kafka_prefix)["status"]["state"] == "SHADOW_LINK_STATE_ACTIVE"
    wait(lambda: len(information(shadow, kafka_prefix)) == 2, shadow)
    expected = list(enumerate(values))[100:]
    assert read(shadow, kafka_prefix, 200) == expected
    assert [offset for offset, _ in read(shadow, kafka_prefix, 6, 1)] == [0, 1, 3, 4, 6, 7]
    assert configs_of(connect(shadow), kafka_prefix)["max.message.bytes"].value == "200000"
    write(source, kafka_prefix, ["late"])
    assert read(shadow, kafka_prefix, 201)[-1] == (300, "late")
    wait(lambda: information(shadow, kafka_prefix)[0] == ("301", "301", "301"), shadow)
    assert failure_of_a_write(shadow, kafka_prefix) == "POLICY_VIOLATION"
    assert code_of(alter(connect(shadow), kafka_prefix, retention_ms="1")) == "POLICY_VIOLATION"
    ask(shadow, "FailOver", name="link", shadowTopicName=kafka_prefix)
    wait(lambda: state_of(shadow, kafka_prefix) == "FAILED_OVER", shadow)
    write(shadow, kafka_prefix, ["own"])
    write(source, kafka_prefix, ["not copied"])
    assert read(shadow, kafka_prefix, 202)[-1] == (301, "own")


def information(server: Redpanda, name: str) -> list[tuple[str, str, str]]:
    """Return what a link tells of the partitions of a topic, in their order."""
    rows = topic_of(server, name)["status"]["partitionInformation"] if state_of(server, name) else []
    names = ("sourceLastStableOffset", "sourceHighWatermark", "highWatermark")
    return [(row[names[0]], row[names[1]], row[names[2]]) for row in rows]


def test_aborted_records_and_open_transactions_are_not_copied(
    shadow: Redpanda, source: Redpanda, kafka_prefix: str
) -> None:
    create(connect(source), kafka_prefix)
    producer = Producer({"bootstrap.servers": source.kafka, "transactional.id": kafka_prefix, "log_level": 0})
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce(kafka_prefix, "aborted")
    producer.flush(SECONDS)
    producer.abort_transaction()
    write(source, kafka_prefix, ["plain"])
    producer.begin_transaction()
    producer.produce(kafka_prefix, "open")
    producer.flush(SECONDS)
    link(shadow, source, kafka_prefix)
    assert read(shadow, kafka_prefix, 1) == [(2, "plain")]
    wait(lambda: information(shadow, kafka_prefix) == [("3", "4", "3")], shadow)
    producer.commit_transaction()
    assert read(shadow, kafka_prefix, 2) == [(2, "plain"), (3, "open")]


def test_filters_choose_topics_and_an_update_changes_what_its_mask_names(
    shadow: Redpanda, source: Redpanda, kafka_prefix: str
) -> None:
    admin = connect(source)
    for name in ("a", "b", "c"):
        create(admin, f"{kafka_prefix}.{name}")
    exclusion = name_filter(f"{kafka_prefix}.b", excludes=True)
    chosen = [name_filter("*"), exclusion, name_filter(f"{kafka_prefix}.c", excludes=True, prefix=True)]
    others = [
        name_filter(name, excludes=True)
        for name in admin.list_topics(timeout=SECONDS).topics
        if not name.startswith((kafka_prefix, "__consumer_offsets"))
    ]
    link(shadow, source, kafka_prefix, **{TOPICS: {"autoCreateShadowTopicFilters": [*chosen, *others]}})
    wait(lambda: state_of(shadow, f"{kafka_prefix}.a") == "ACTIVE", shadow)
    names = [row["name"] for row in ask(shadow, "ListShadowTopics", shadowLinkName="link")["shadowTopics"]]
    assert names == [f"{kafka_prefix}.a"]
    new = {TOPICS: {"auto_create_shadow_topic_filters": [name_filter("more")], "interval": "1.5s", "paused": True}}
    asked = {"name": "link", "configurations": new}
    assert refused(shadow, "UpdateShadowLink", shadowLink=asked, updateMask="configurations.nonsense")[0] == 400
    ask(shadow, "UpdateShadowLink", shadowLink=asked, updateMask="")
    ask(shadow, "UpdateShadowLink", shadowLink=asked, updateMask=FILTERS)
    found = ask(shadow, "GetShadowLink", name="link")["shadowLink"]["configurations"][TOPICS]
    assert found["autoCreateShadowTopicFilters"] == [*chosen, *others, name_filter("more")]  # lists are appended to
    assert (found["paused"], found["interval"], found["effectiveInterval"]) == (False, "0s", "30s")
    mask = "configurations.topic_metadata_sync_options"
    found = ask(shadow, "UpdateShadowLink", shadowLink=asked, updateMask=mask)["shadowLink"]["configurations"][TOPICS]
    assert found["autoCreateShadowTopicFilters"] == [name_filter("more")]
    assert (found["paused"], found["interval"], found["effectiveInterval"]) == (True, "1.500s", "1.500s")


def test_a_paused_task_stops_alone_and_records_go_on(shadow: Redpanda, source: Redpanda, kafka_prefix: str) -> None:
    admin = connect(source)
    create(admin, kafka_prefix)
    link(shadow, source, kafka_prefix)
    wait(lambda: len(information(shadow, kafka_prefix)) == 1, shadow)
    paused = {"name": "link", "configurations": {TOPICS: {"paused": True}}}
    ask(shadow, "UpdateShadowLink", shadowLink=paused, updateMask=f"configurations.{TOPICS}.paused")
    wait(lambda: tasks_of(shadow)["Source Topic Sync"][0] == "PAUSED", shadow)
    create(admin, f"{kafka_prefix}.other")
    admin.create_partitions([NewPartitions(kafka_prefix, 2)])[kafka_prefix].result(SECONDS)
    write(source, kafka_prefix, ["a"])
    assert read(shadow, kafka_prefix, 1) == [(0, "a")]
    assert tasks_of(shadow)["Consumer Group Shadowing"][0] == "ACTIVE"
    assert state_of(shadow, f"{kafka_prefix}.other") == ""
    paused["configurations"] = {TOPICS: {"paused": False}}
    ask(shadow, "UpdateShadowLink", shadowLink=paused, updateMask=f"configurations.{TOPICS}.paused")
    wait(lambda: len(information(shadow, kafka_prefix)) == 2, shadow)
    wait(lambda: state_of(shadow, f"{kafka_prefix}.other") == "ACTIVE", shadow)


def test_offsets_of_groups_and_access_rules_are_copied(shadow: Redpanda, source: Redpanda, kafka_prefix: str) -> None:
    admin = connect(source)
    create(admin, kafka_prefix)
    write(source, kafka_prefix, ["a", "b", "c"])
    for group in (kafka_prefix, f"other.{kafka_prefix}"):
        consumer = Consumer({"bootstrap.servers": source.kafka, "group.id": group})
        consumer.commit(offsets=[TopicPartition(kafka_prefix, 0, 2)], asynchronous=False)
        consumer.close()
    kind = (ResourceType.TOPIC, kafka_prefix, ResourcePatternType.LITERAL, "User:me", "*")
    rule = AclBinding(*kind, AclOperation.READ, AclPermissionType.ALLOW)
    admin.create_acls([rule])[rule].result(SECONDS)
    acl = {
        "resourceFilter": {
            "resourceType": "ACL_RESOURCE_TOPIC",
            "patternType": "ACL_PATTERN_ANY",
            "name": kafka_prefix,
        },
        "accessFilter": {"operation": "ACL_OPERATION_ANY", "permissionType": "ACL_PERMISSION_TYPE_ANY"},
    }
    groups = {OFFSETS: {"groupFilters": [name_filter(kafka_prefix)]}, "securitySyncOptions": {"aclFilters": [acl]}}
    link(shadow, source, kafka_prefix, **groups)
    own = connect(shadow)
    wait(lambda: commits_of(own, kafka_prefix) == [(kafka_prefix, 2)], shadow)
    assert commits_of(own, f"other.{kafka_prefix}") == []
    wait(lambda: list_rules(own, kafka_prefix) == [rule], shadow)


def commits_of(admin: AdminClient, group: str) -> list[tuple[str, int]]:
    wanted = ConsumerGroupTopicPartitions(group)
    partitions = admin.list_consumer_group_offsets([wanted])[group].result(SECONDS).topic_partitions
    return [(each.topic, each.offset) for each in partitions]


def test_a_link_is_refused_with_the_code_of_its_fault(
    shadow: Redpanda, source: Redpanda, start_redpanda: Callable[..., Redpanda], kafka_prefix: str
) -> None:
    good = options(source, kafka_prefix)
    for name in ("__consumer_offsets", "_schemas", "a*", ""):
        bad = options(source, kafka_prefix, **{TOPICS: {"autoCreateShadowTopicFilters": [name_filter(name)]}})
        assert refused(shadow, "CreateShadowLink", shadowLink=bad) == (400, "invalid_argument")
    internal = [name_filter("_redpanda", prefix=True)]
    for group in (
        {TOPICS: {"autoCreateShadowTopicFilters": internal}},
        {TOPICS: {"autoCreateShadowTopicFilters": [{"name": "a"}]}},
        {TOPICS: {"syncedShadowTopicProperties": ["redpanda.storage.mode"]}},
        {"clientOptions": {"bootstrapServers": []}},
        {"clientOptions": {"authenticationConfiguration": {"scramConfiguration": {"username": "a", "password": "b"}}}},
        {TOPICS: {"startAtTimestamp": "yesterday"}},
        {OFFSETS: {"interval": 30}},
    ):
        bad = options(source, kafka_prefix, **group)
        assert refused(shadow, "CreateShadowLink", shadowLink=bad) == (400, "invalid_argument")
    for client in ({"bootstrapServers": ["127.0.0.1:1"]}, {"sourceClusterId": "other"}):
        bad = options(source, kafka_prefix, clientOptions=client)
        assert refused(shadow, "CreateShadowLink", shadowLink=bad) == (400, "failed_precondition")
    assert refused(shadow, "GetShadowLink", name="link") == (404, "not_found")
    assert ask(shadow, "CreateShadowLink", shadowLink=good, validateOnly=True) == {}
    assert ask(shadow, "ListShadowLinks") == {"shadowLinks": []}
    ask(shadow, "CreateShadowLink", shadowLink=good)
    assert refused(shadow, "CreateShadowLink", shadowLink=good) == (409, "already_exists")
    assert refused(shadow, "CreateShadowLink", shadowLink={**good, "name": "two"}) == (429, "resource_exhausted")
    assert refused(shadow, "GetShadowTopic", shadowLinkName="link", name="none") == (404, "not_found")
    status, document = call(shadow, "POST", f"{SERVICE}ListShadowLinks", {}, password="wrong")  # noqa: S106
    assert (status, document["code"]) == (401, "unauthenticated")
    other = start_redpanda(versions=NEWEST, license_status="expired")
    assert refused(other, "ListShadowLinks") == (400, "failed_precondition")
    other.cluster.write(ENABLED, [])
    assert refused(other, "CreateShadowLink", shadowLink=good) == (400, "failed_precondition")
    old = start_redpanda(versions=["25.2.1"] * 3, properties=ENABLED)
    assert call(old, "POST", f"{SERVICE}ListShadowLinks", {})[0] == 404


def test_a_link_fails_over_in_batches_and_is_deleted_then(
    shadow: Redpanda, source: Redpanda, kafka_prefix: str
) -> None:
    names = [f"{kafka_prefix}.{number}" for number in range(4)]
    admin = connect(source)
    for name in names:
        create(admin, name)
    link(shadow, source, kafka_prefix)
    wait(lambda: [state_of(shadow, name) for name in names] == ["ACTIVE"] * 4, shadow)
    assert refused(shadow, "DeleteShadowLink", name="link") == (400, "failed_precondition")
    shadow.faults.add("fails", LINK, f"failover/{names[0]}/")
    shadow.faults.add("slow", LINK, f"failover/{names[1]}/", seconds=60)
    topics = ask(shadow, "FailOver", name="link")["shadowLink"]["status"]["shadowTopics"]
    assert {topic["status"]["state"] for topic in topics} == {"SHADOW_TOPIC_STATE_FAILING_OVER"}
    ended = ["FAULTED", "FAILING_OVER", "FAILED_OVER", "FAILED_OVER"]
    wait(lambda: [state_of(shadow, name) for name in names] == ended, shadow)
    again = refused(shadow, "FailOver", name="link", shadowTopicName=names[2])
    assert again == (400, "invalid_argument")
    assert failure_of_a_write(shadow, names[1]) == "POLICY_VIOLATION"
    assert refused(shadow, "DeleteShadowLink", name="link") == (400, "failed_precondition")
    ask(shadow, "DeleteShadowLink", name="link", force=True)
    write(shadow, names[1], ["own"])
    assert ask(shadow, "ListShadowLinks") == {"shadowLinks": []}


def test_a_password_is_never_read_back_and_stays_when_an_update_leaves_it_out(
    shadow: Redpanda, kafka_secured: Any, kafka_prefix: str
) -> None:
    source = cast("Redpanda", SimpleNamespace(kafka=kafka_secured.kafka.bootstrap("LOGIN")))
    scram = {"username": "admin", "password": "right-one", "scramMechanism": "SCRAM_MECHANISM_SCRAM_SHA_256"}
    wrong = {"authenticationConfiguration": {"scramConfiguration": {**scram, "password": "wrong-one"}}}
    bad = options(source, kafka_prefix, clientOptions=wrong)
    assert refused(shadow, "CreateShadowLink", shadowLink=bad) == (400, "failed_precondition")
    right = {"authenticationConfiguration": {"scramConfiguration": dict(scram)}}
    first = link(shadow, source, kafka_prefix, clientOptions=right)["configurations"]["clientOptions"]
    shown = first["authenticationConfiguration"]["scramConfiguration"]
    assert (shown["password"], shown["passwordSet"]) == ("", True)
    assert first["effectiveConnectionTimeoutMs"] == 1000
    del scram["password"]
    client = {"bootstrapServers": source.kafka.split(","), "authenticationConfiguration": {"scramConfiguration": scram}}
    changed = {"name": "link", "configurations": {"clientOptions": client}}
    ask(shadow, "UpdateShadowLink", shadowLink=changed, updateMask="configurations.clientOptions")
    again = ask(shadow, "GetShadowLink", name="link")["shadowLink"]["configurations"]["clientOptions"]
    assert again["authenticationConfiguration"]["scramConfiguration"] == shown
    wait(lambda: tasks_of(shadow)["Source Topic Sync"][0] == "ACTIVE", shadow)


def test_tasks_fail_and_the_source_is_unavailable_when_a_test_says_so(
    shadow: Redpanda, source: Redpanda, kafka_prefix: str
) -> None:
    link(shadow, source, kafka_prefix)
    wait(lambda: {state for state, _ in tasks_of(shadow).values()} == {"ACTIVE"}, shadow)
    shadow.faults.add("fails", LINK, "Security Migrator Task", message="not allowed", times=ALWAYS)
    wait(lambda: tasks_of(shadow)["Security Migrator Task"] == ("FAULTED", "not allowed"), shadow)
    shadow.faults.add("lost", LINK, "source", times=ALWAYS)
    wait(lambda: {state for state, _ in tasks_of(shadow).values()} == {"LINK_UNAVAILABLE"}, shadow)
    shadow.faults.clear()
    wait(lambda: {state for state, _ in tasks_of(shadow).values()} == {"ACTIVE"}, shadow)
    shadow.faults.add("state", "POST", "GetShadowLink", message="TASK_STATE_DANCING")
    assert {state for state, _ in tasks_of(shadow).values()} == {"DANCING"}
    shadow.faults.add("task", "POST", "GetShadowLink", message="Dance")
    assert list(tasks_of(shadow)) == ["Dance"]
    shadow.faults.add("status", "POST", "GetShadowLink", code="unavailable", message="later")
    assert refused(shadow, "GetShadowLink", name="link") == (503, "unavailable")
    shadow.faults.add("lost", "POST", "DeleteShadowLink")
    with pytest.raises(OSError, match="closed connection"):
        call(shadow, "POST", f"{SERVICE}DeleteShadowLink", {"name": "link"})
    assert ask(shadow, "ListShadowLinks") == {"shadowLinks": []}


def test_another_redpanda_is_shadowed_from_its_latest_records(
    shadow: Redpanda, start_redpanda: Callable[..., Redpanda], kafka_prefix: str
) -> None:
    source = start_redpanda(versions=["24.3.1"] * 3)
    create(connect(source), kafka_prefix, replicas=3)
    write(source, kafka_prefix, ["old"])
    link(shadow, source, kafka_prefix, **{TOPICS: {"startAtLatest": {}}})
    wait(lambda: len(information(shadow, kafka_prefix)) == 1, shadow)
    write(source, kafka_prefix, ["new"])
    assert read(shadow, kafka_prefix, 1) == [(1, "new")]
    (partition,) = connect(shadow).list_topics(kafka_prefix, SECONDS).topics[kafka_prefix].partitions.values()
    assert len(partition.replicas) == 3
    assert configs_of(connect(shadow), kafka_prefix)["retention.ms"].value == "-1"
