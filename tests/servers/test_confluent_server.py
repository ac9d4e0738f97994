"""The emulated Confluent answers plain clients as the contract says: topics, rules, groups, links, mirrors, faults."""

from __future__ import annotations

import itertools
import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode

import pytest
import urllib3
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from examples import kafkajars
from tests.servers.confluent.api import CONTRACT
from tests.servers.confluent.copies import LINK
from tests.servers.confluent.mirrors import MIRROR
from tests.servers.confluent.server import Confluent
from tests.servers.confluentfixtures import Pair
from tests.servers.emulation.faults import ALWAYS
from tests.waiting import until

pytestmark = pytest.mark.thorough

SECONDS: Final = 30
_numbers = itertools.count()
_pool = urllib3.PoolManager(retries=False)
PAIR: Final = {"link.mode": "BIDIRECTIONAL"}
GROUPS: Final = {"groupFilters": [{"name": "g-", "patternType": "PREFIXED", "filterType": "INCLUDE"}]}


class Reply(NamedTuple):
    """What came back."""

    status: int
    document: Any
    headers: Any


def send(
    server: Confluent, method: str, path: str, body: Any = None, *, root: str | None = None, login: str | None = None
) -> Reply:
    root = f"/kafka/v3/clusters/{server.cluster_id}" if root is None else root
    headers = urllib3.make_headers(basic_auth=login or f"{server.key}:{server.secret}")
    headers = {"Authorization": login} if login and login.startswith("Bearer") else headers
    answer = _pool.request(method, server.rest + root + path, headers=headers, json=body, timeout=SECONDS)
    is_json = answer.data and answer.headers["Content-Type"] == "application/json"
    return Reply(answer.status, json.loads(answer.data) if is_json else answer.data, answer.headers)


def get(server: Confluent, path: str) -> Any:
    reply = send(server, "GET", path)
    assert reply.status == 200, reply
    return reply.document


def done(server: Confluent, method: str, path: str, body: Any = None) -> Any:
    reply = send(server, method, path, body)
    assert reply.status < 300, reply
    return reply.document


def error(server: Confluent, method: str, path: str, body: Any = None, **options: Any) -> tuple[int, int, str]:
    reply = send(server, method, path, body, **options)
    return reply.status, reply.document["error_code"], reply.document["message"]


def pairs(**values: Any) -> list[dict[str, Any]]:
    return [{"name": name.replace("_", "."), "value": value} for name, value in values.items()]


def new_topic(server: Confluent, partitions: int = 1, name: str | None = None, **configs: str) -> str:
    name = name or f"topic-{next(_numbers)}"
    body = {"topic_name": name, "partitions_count": partitions, "configs": pairs(**configs)}
    done(server, "POST", "/topics", body)
    return name


def new_link(server: Confluent, other: Confluent, name: str | None = None, **configs: str | None) -> str:
    """Create a link; by default one of mode DESTINATION."""
    name = name or f"link-{next(_numbers)}"
    settings = {"bootstrap.servers": other.kafka, **{key.replace("_", "."): value for key, value in configs.items()}}
    mode = settings.get("link.mode", "DESTINATION")
    field = {"DESTINATION": "source", "SOURCE": "destination", "BIDIRECTIONAL": "remote"}[str(mode)]
    rows = [{"name": key, "value": value} for key, value in settings.items() if value is not None]
    done(server, "POST", f"/links?link_name={name}", {f"{field}_cluster_id": other.cluster_id, "configs": rows})
    return name


def new_mirror(server: Confluent, link: str, topic: str) -> str:
    done(server, "POST", f"/links/{link}/mirrors", {"source_topic_name": topic})
    return f"/links/{link}/mirrors/{topic}"


def act(server: Confluent, link: str, verb: str, *topics: str) -> list[dict[str, Any]]:
    rows = done(server, "POST", f"/links/{link}/mirrors:{verb}", {"mirror_topic_names": topics})
    result: list[dict[str, Any]] = rows["data"]
    return result


def until_state(server: Confluent, mirror: str, state: str) -> Any:
    until(lambda: get(server, mirror)["mirror_status"] == state, lambda: get(server, mirror))
    return get(server, mirror)


def until_level(server: Confluent, mirror: str, count: int) -> None:
    """Wait until all of so many records are there."""
    level = {"partition": 0, "lag": 0, "last_source_fetch_offset": count - 1}
    until(lambda: get(server, mirror)["mirror_lags"][0] == level, lambda: get(server, mirror))


def write(server: Confluent, topic: str, *values: str, **settings: Any) -> list[str]:
    """Write records; return the errors."""
    producer = Producer({"bootstrap.servers": server.kafka, "log_level": 0, **settings})
    errors: list[str] = []
    if settings:
        producer.init_transactions()
        producer.begin_transaction()
    for value in values:
        producer.produce(topic, value, "k", 0, lambda failure, _: errors.append(failure.name()) if failure else None)
    if settings:
        producer.commit_transaction()
    assert producer.flush(SECONDS) == 0
    return errors


def read(server: Confluent, topic: str) -> list[tuple[int, int, bytes]]:
    """Return offset, timestamp and value of all records of partition 0."""
    settings = {"bootstrap.servers": server.kafka, "group.id": "reader", "log_level": 0, "enable.auto.commit": False}
    consumer = Consumer({**settings, "isolation.level": "read_committed", "enable.partition.eof": True})
    consumer.assign([TopicPartition(topic, 0, 0)])
    records = []
    while (record := consumer.poll(SECONDS)) and not record.error():
        records.append((record.offset(), record.timestamp()[1], record.value()))
    consumer.close()
    return records


def commit(server: Confluent, group: str, topic: str, offset: int) -> None:
    consumer = Consumer({"bootstrap.servers": server.kafka, "group.id": group, "log_level": 0})
    consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
    consumer.close()


# Topics


def test_topics_are_created_shown_grown_and_deleted(confluent: Pair) -> None:
    server, name = confluent.source, f"topic-{next(_numbers)}"
    assert send(server, "POST", "/topics", {"topic_name": name, "validate_only": True}).status == 200
    assert error(server, "GET", f"/topics/{name}") == (404, 40403, "This server does not host this topic-partition.")
    new_topic(server, 2, name, retention_ms="7200000")
    assert error(server, "POST", "/topics", {"topic_name": name}) == (400, 40002, f"Topic '{name}' already exists.")
    rows = get(server, "/topics")
    row = next(row for row in rows["data"] if row["topic_name"] == name)
    assert rows["metadata"] == {"self": f"{server.rest}/kafka/v3/clusters/{server.cluster_id}/topics", "next": None}
    assert (row["partitions_count"], row["replication_factor"], row["is_internal"]) == (2, 3, False)
    assert done(server, "PATCH", f"/topics/{name}", {"partitions_count": 3})["partitions_count"] == 3
    assert error(server, "PATCH", f"/topics/{name}", {"partitions_count": 3})[1:] == (
        40002,
        "Topic already has 3 partitions.",
    )
    assert len(get(server, f"/topics/{name}/partitions")["data"]) == 3
    replicas = get(server, f"/topics/{name}/partitions/2/replicas")["data"]
    assert [(each["broker_id"], each["is_leader"]) for each in replicas] == [(1, True), (2, False), (3, False)]
    assert send(server, "DELETE", f"/topics/{name}").status == 204
    assert send(server, "DELETE", f"/topics/{name}").status == 404


def test_configs_of_topics_change_one_by_one_in_batches_and_are_listed_at_once(confluent: Pair) -> None:
    server = confluent.source
    name = new_topic(server, max_message_bytes="2000000")
    alter = f"/topics/{name}/configs:alter"
    changes = [{"name": "min.insync.replicas", "value": "1"}, {"name": "max.message.bytes", "operation": "DELETE"}]
    assert send(server, "POST", alter, {"data": changes, "validate_only": True}).status == 204
    before = {row["name"]: row for row in get(server, "/topics/-/configs")["data"] if row["topic_name"] == name}
    done(server, "POST", alter, {"data": changes})
    done(server, "PUT", f"/topics/{name}/configs/retention.ms", {"value": "3600000"})
    after = {row["name"]: row for row in get(server, f"/topics/{name}/configs")["data"]}
    names = ("min.insync.replicas", "max.message.bytes", "retention.ms")
    assert [(before[key]["value"], after[key]["value"]) for key in names] == [
        ("2", "1"),
        ("2000000", "2097164"),
        ("604800000", "3600000"),
    ]
    assert (before["retention.ms"]["source"], after["retention.ms"]["source"]) == (
        "DEFAULT_CONFIG",
        "DYNAMIC_TOPIC_CONFIG",
    )
    done(server, "DELETE", f"/topics/{name}/configs/retention.ms")
    assert get(server, f"/topics/{name}/configs/retention.ms")["is_default"]
    assert send(server, "PUT", alter, {"data": changes}).status == 405
    assert error(server, "POST", alter, {"data": pairs(nothing="1")})[0] == 404


def test_cloud_refuses_what_it_keeps_to_itself(confluent: Pair) -> None:
    server = confluent.source
    name = new_topic(server)
    for body in ({"replication_factor": 1}, {"configs": pairs(compression_type="gzip")}):
        assert error(server, "POST", "/topics", {"topic_name": "other", **body})[:2] == (400, 40002)
    too_much = error(server, "PUT", f"/topics/{name}/configs/max.message.bytes", {"value": "20971521"})
    assert too_much[2] == "Config property 'max.message.bytes' with value '20971521' exceeded max limit of 20971520."
    admin = AdminClient({"bootstrap.servers": server.kafka, "log_level": 0})
    with pytest.raises(KafkaException, match="Topic replication factor must be 3"):
        admin.create_topics([NewTopic("other", 1, 1)])["other"].result(SECONDS)
    admin.create_topics([NewTopic(f"{name}-2", 1, 3)])[f"{name}-2"].result(SECONDS)
    assert get(server, f"/topics/{name}-2")["replication_factor"] == 3
    assert admin.list_topics(timeout=SECONDS).cluster_id == server.cluster_id


def test_unknown_fields_paths_methods_and_parameters_are_errors(confluent: Pair) -> None:
    server = confluent.source
    assert send(server, "POST", "/topics", {"topic_name": "other", "topicName": "x"}).status == 400
    assert send(server, "GET", "/nothing").status == 404
    assert send(server, "PUT", "/topics").status == 405
    assert send(server, "GET", "/topics?page_size=1").status == 400
    assert error(server, "GET", "/topics", root="/kafka/v3/clusters/lkc-none")[2] == "Cluster lkc-none cannot be found."
    assert get(server, "")["cluster_id"] == server.cluster_id
    clusters = send(server, "GET", "/clusters", root="/kafka/v3").document
    assert [row["cluster_id"] for row in clusters["data"]] == [server.cluster_id]


# Access


def test_wrong_foreign_and_expired_logins_are_refused(confluent: Pair) -> None:
    server = confluent.source
    server.foreign_keys, server.tokens = {"OTHER"}, {"token": math.inf, "expired": time.monotonic()}
    assert error(server, "GET", "", login=f"{server.key}:wrong") == (401, 40101, "Authentication failed")
    assert error(server, "GET", "", login="OTHER:any")[:2] == (403, 40301)
    assert send(server, "GET", "", login="Bearer token").status == 200
    assert send(server, "GET", "", login="Bearer expired").status == 401


def test_tokens_are_issued_and_expire(confluent: Pair) -> None:
    server = confluent.source
    server.token_seconds = 0.5
    form = {"grant_type": "client_credentials", "client_id": server.key, "client_secret": server.secret}
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    wrong = _pool.request("POST", server.token_url, body=urlencode({**form, "client_secret": "no"}), headers=headers)
    assert (wrong.status, wrong.json()) == (401, {"error": "invalid_client"})
    issued = _pool.request("POST", server.token_url, body=urlencode(form), headers=headers).json()
    login = f"Bearer {issued['access_token']}"
    assert send(server, "GET", "", login=login).status == 200
    until(lambda: send(server, "GET", "", login=login).status == 401)
    basic = {**headers, **urllib3.make_headers(basic_auth=f"{server.key}:{server.secret}")}
    again = _pool.request("POST", server.token_url, body="grant_type=client_credentials", headers=basic)
    assert (again.status, again.json()["token_type"]) == (200, "Bearer")


def test_one_topic_may_be_read_and_not_changed(confluent: Pair) -> None:
    source, server = confluent
    topics = [new_topic(source) for _ in range(100)]
    link = new_link(server, source)
    for topic in topics:
        new_mirror(server, link, topic)
    server.denied = source.denied = {topics[7]}
    refused = (403, 40301, "Request is not authorized")
    assert get(source, f"/topics/{topics[7]}/configs")["data"]
    assert error(source, "DELETE", f"/topics/{topics[7]}") == refused
    assert error(source, "PUT", f"/topics/{topics[7]}/configs/retention.ms", {"value": "1"}) == refused
    assert error(source, "POST", "/topics", {"topic_name": topics[7]}) == refused
    assert error(server, "POST", f"/links/{link}/mirrors", {"source_topic_name": topics[7]}) == refused
    results = act(server, link, "failover", *topics)
    assert [row["error_code"] for row in results] == [40301 if name == topics[7] else None for name in topics]
    states = {row["mirror_topic_name"]: row["mirror_status"] for row in get(server, f"/links/{link}/mirrors")["data"]}
    assert states == {**dict.fromkeys(topics, "STOPPED"), topics[7]: "ACTIVE"}


def test_rules_are_created_in_batches_searched_and_deleted(confluent: Pair) -> None:
    server, user = confluent.source, f"User:sa-{next(_numbers)}"
    rule = {"resource_type": "TOPIC", "resource_name": "a", "pattern_type": "LITERAL", "principal": user, "host": "*"}
    rules = [{**rule, "operation": operation, "permission": "ALLOW"} for operation in ("READ", "WRITE")]
    assert send(server, "POST", "/acls:batch", {"data": rules}).status == 201
    assert send(server, "POST", "/acls", {**rules[0], "resource_name": "b", "pattern_type": "PREFIXED"}).status == 201
    rows = get(server, f"/acls?principal={user}&resource_type=TOPIC&pattern_type=LITERAL")["data"]
    assert sorted(row["operation"] for row in rows) == ["READ", "WRITE"]
    refused = error(server, "DELETE", f"/acls?principal={user}")
    assert refused[2] == "resource_type cannot be unspecified or UNKNOWN"
    where = f"/acls?principal={user}&resource_type=ANY&pattern_type=ANY&permission=ANY&operation=READ"
    assert len(done(server, "DELETE", where)["data"]) == 2
    assert len(get(server, f"/acls?principal={user}")["data"]) == 1
    assert send(server, "POST", "/acls", {**rules[0], "operation": "ANY"}).status == 400


def test_groups_are_shown_with_their_lags(confluent: Pair) -> None:
    server, group = confluent.source, f"group-{next(_numbers)}"
    topic = new_topic(server)
    write(server, topic, *"abc")
    commit(server, group, topic, 1)
    row = next(row for row in get(server, "/consumer-groups")["data"] if row["consumer_group_id"] == group)
    assert (row["state"], row["type"]) == ("EMPTY", "CLASSIC")
    (lag,) = get(server, f"/consumer-groups/{group}/lags")["data"]
    assert (lag["current_offset"], lag["log_end_offset"], lag["lag"], lag["consumer_id"]) == (1, 3, 2, "")
    assert get(server, f"/consumer-groups/{group}/lag-summary")["total_lag"] == 2
    assert get(server, f"/consumer-groups/{group}/lags/{topic}/partitions/0")["lag"] == 2
    assert send(server, "GET", "/consumer-groups/nobody").status == 404


# Faults


def test_answers_are_slow_lost_empty_or_errors_on_demand(confluent: Pair) -> None:
    server, name = confluent.source, f"topic-{next(_numbers)}"
    server.faults.add("html", "GET", "/topics", status=429, headers={"Retry-After": "2"})
    limited = send(server, "GET", "/topics")
    assert (limited.status, limited.headers["Retry-After"], limited.headers["Content-Type"][:9]) == (
        429,
        "2",
        "text/html",
    )
    server.faults.add("status", "GET", "/topics", status=429, message="slow down", headers={"X-RateLimit-Reset": "3"})
    limited = send(server, "GET", "/topics")
    assert (limited.headers["X-RateLimit-Reset"], limited.document["error_code"]) == ("3", 429)
    server.faults.add("status", "GET", "/topics", status=503, message="retriable Kafka error")
    assert error(server, "GET", "/topics") == (503, 50003, "retriable Kafka error")
    server.faults.add("lost", "POST", "/topics")
    with pytest.raises(urllib3.exceptions.ProtocolError):
        send(server, "POST", "/topics", {"topic_name": name})
    assert get(server, f"/topics/{name}")["topic_name"] == name
    server.faults.add("slow", "GET", "/topics", seconds=0.3)
    started = time.monotonic()
    get(server, "/topics")
    assert time.monotonic() - started > 0.3
    for method, path, body, status in (
        ("PATCH", f"/topics/{name}", {"partitions_count": 7}, 201),
        ("POST", f"/topics/{name}/configs:alter", {"data": pairs(retention_ms="7200000")}, 204),
        ("DELETE", f"/topics/{name}", None, 202),
    ):
        server.faults.add("empty", method, "/topics", status=status)
        assert send(server, method, path, body)[:2] == (status, b"")


def test_unknown_fields_and_states_are_shown_on_demand(confluent: Pair) -> None:
    source, server = confluent
    topic = new_topic(source)
    link = new_link(server, source)
    mirror = new_mirror(server, link, topic)
    server.faults.add("link_state", "GET", f"/links/{link}", message="NEW_STATE")
    assert get(server, f"/links/{link}")["link_state"] == "NEW_STATE"
    server.faults.add("task_state", "GET", f"/links/{link}", message="NEW_STATE")
    assert {row["state"] for row in get(server, f"/links/{link}?include_tasks=true")["tasks"]} == {"NEW_STATE"}
    server.mirrors.set_state(link, topic, "NEW_STATE")
    server.extra = {"new_field": [1]}
    shown = get(server, mirror)
    assert (shown["mirror_status"], shown["new_field"], shown["metadata"]["new_field"]) == ("NEW_STATE", [1], [1])
    assert write(server, topic, "a") == ["INVALID_REQUEST"]
    refusal = server.faults.add("status", "PUT", "configs:alter", status=405, times=ALWAYS)
    alter, changes = f"/links/{link}/configs:alter", {"data": pairs(acl_sync_ms="6000")}
    assert [send(server, "PUT", alter, changes).status for _ in range(2)] == [405, 405]
    refusal.end()
    assert send(server, "PUT", alter, changes).status == 204


@pytest.mark.parametrize("is_json", [True, False])
@pytest.mark.parametrize("header", ["Retry-After", "X-RateLimit-Reset", ""])
def test_a_rate_is_kept(confluent: Pair, header: str, is_json: bool) -> None:  # noqa: FBT001 - a parameter
    server = confluent.source
    server.rate, server.rate_header, server.rate_is_json = 5, header, is_json
    replies = [send(server, "GET", "") for _ in range(30)]
    refused = next(reply for reply in replies if reply.status == 429)
    assert refused.headers.get(header or "Retry-After") == ("1" if header else None)
    assert isinstance(refused.document, dict) == is_json
    until(lambda: send(server, "GET", "").status == 200)


# Kinds and versions


def test_small_kinds_have_no_links_no_lags_and_their_limits(start_confluent: Callable[..., Pair]) -> None:
    source, server = start_confluent(kind="basic", limits={"partitions": 2, "rules": 0}, needs_kafka_login=True)
    assert error(server, "POST", "/topics", {"topic_name": "a", "partitions_count": 3})[2].startswith(
        "You may not create more"
    )
    body = {"source_cluster_id": source.cluster_id, "configs": pairs(bootstrap_servers=source.kafka)}
    assert error(server, "POST", "/links?link_name=a", body)[2] == "Cluster linking is disabled in this cluster"
    assert send(server, "GET", "/consumer-groups/any/lags").status == 403
    rule = {
        "resource_type": "TOPIC",
        "resource_name": "a",
        "pattern_type": "LITERAL",
        "principal": "User:a",
        "host": "*",
    }
    assert send(server, "POST", "/acls", {**rule, "operation": "READ", "permission": "ALLOW"}).status == 400
    settings = {"bootstrap.servers": server.kafka, "log_level": 0}
    with pytest.raises(KafkaException):
        AdminClient(settings).list_topics(timeout=2)
    login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": server.key}
    assert AdminClient({**settings, **login, "sasl.password": server.secret}).list_topics(timeout=SECONDS).brokers


def test_platform_has_other_paths_configs_and_verbs(start_confluent: Callable[..., Pair]) -> None:
    source, server = start_confluent(version="7.6.0", needs_login=False)
    proxy = {"root": f"/v3/clusters/{server.cluster_id}", "login": "no:one"}
    assert send(server, "GET", "/topics", **proxy).status == 200
    assert error(server, "POST", "/topics", {"topic_name": "a", "replication_factor": 4})[2].endswith(
        "available brokers: 3."
    )
    topic = new_topic(source, compression_type="gzip", confluent_tier_enable="true")
    assert get(source, f"/topics/{topic}/configs/confluent.tier.enable")["value"] == "true"
    link = new_link(server, source, **PAIR)
    new_link(source, server, link, **PAIR)
    mirror = new_mirror(server, link, topic)
    (refused,) = act(server, link, "reverse-and-start-mirror", topic)
    assert refused["error_code"] == 40035
    done(server, "PUT", f"/links/{link}/configs/cluster.link.paused", {"value": "true"})
    until_state(server, mirror, "LINK_PAUSED")
    (refused,) = act(server, link, "promote", topic)
    assert refused["error_message"] == f"Mirror topic '{topic}' is LINK_PAUSED: promote is not allowed"
    (failed_over,) = act(server, link, "failover", topic)
    assert failed_over["error_code"] is None


# Links


def test_a_source_connects_to_a_destination_that_waits(confluent: Pair) -> None:
    source, server = confluent
    topic, link = new_topic(source), f"link-{next(_numbers)}"
    half = {"destination_cluster_id": server.cluster_id}
    half["configs"] = pairs(link_mode="SOURCE", bootstrap_servers=server.kafka)
    too_early = error(source, "POST", f"/links?link_name={link}", half)
    assert too_early[2] == f"The destination cluster does not have a link named {link}"
    new_link(server, source, link, bootstrap_servers=None, connection_mode="INBOUND")
    until(lambda: get(server, f"/links/{link}")["link_state"] == "UNAVAILABLE")
    done(source, "POST", f"/links?link_name={link}", half)
    shown, other = get(server, f"/links/{link}"), get(source, f"/links/{link}")
    assert (shown["source_cluster_id"], other["destination_cluster_id"]) == (source.cluster_id, server.cluster_id)
    assert shown["cluster_link_id"] == other["cluster_link_id"]
    write(source, topic, "a")
    until_level(server, new_mirror(server, link, topic), 1)


@pytest.mark.parametrize(
    ("configs", "message"),
    [
        ({"cluster.link.prefix": "thirteen-long"}, "Invalid cluster.link.prefix"),
        ({"cluster.link.prefix": "p-", "acl.sync.enable": "true"}, "exclude each other"),
        ({"consumer.offset.sync.enable": "true"}, "consumer.offset.group.filters is required"),
        ({"auto.create.mirror.topics.enable": "true"}, "auto.create.mirror.topics.filters is required"),
        ({"consumer.offset.sync.ms": "999"}, "must be at least 1000"),
        ({"topic.config.sync.include": "retention.ms"}, "must include max.message.bytes"),
        ({"cluster.link.paused": "true"}, "cannot be set on this cluster"),
        ({"replica.fetch.min.bytes": "2"}, "cannot be set on this cluster"),
        ({"no.such.config": "1"}, "Unknown cluster link config"),
        ({"bootstrap.servers": "127.0.0.1:1"}, "Unable to validate cluster link"),
        ({"connection.mode": "INBOUND"}, "bootstrap.servers is required for OUTBOUND connections, and for no others"),
        ({"link.mode": "SOURCE"}, "needs destination_cluster_id"),
    ],
)
def test_links_with_wrong_configs_are_refused(confluent: Pair, configs: dict[str, str], message: str) -> None:
    source, server = confluent
    rows = pairs(**{"bootstrap.servers": source.kafka, **configs})
    body = {"source_cluster_id": source.cluster_id, "configs": rows}
    assert message in error(server, "POST", "/links?link_name=wrong&validate_only=true", body)[2]
    assert get(server, "/links")["data"] == []


def test_links_to_oneself_to_another_cluster_and_twice_are_refused(confluent: Pair) -> None:
    source, server = confluent
    link = new_link(server, source, cluster_link_prefix="p-")
    for remote, name, prefix, status in (
        (server.cluster_id, "b", "", 400),
        ("lkc-other", "b", "", 400),
        (source.cluster_id, link, "", 409),
        (source.cluster_id, "b", "p-", 400),
    ):
        configs = pairs(bootstrap_servers=source.kafka, cluster_link_prefix=prefix)
        body = {"source_cluster_id": remote, "configs": configs}
        assert send(server, "POST", f"/links?link_name={name}", body).status == status
    unreachable = {"source_cluster_id": "lkc-other", "configs": pairs(bootstrap_servers="127.0.0.1:1")}
    assert send(server, "POST", "/links?link_name=b&validate_link=false", unreachable).status == 201
    until(lambda: get(server, "/links/b")["link_error"] == "BOOTSTRAP_TCP_CONNECTION_FAILED_ERROR")


def test_configs_of_links_change_and_secrets_are_not_shown(confluent: Pair) -> None:
    source, server = confluent
    login = f'org.apache.kafka.common.security.plain.PlainLoginModule required username="{source.key}" password="%s";'
    sasl = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.jaas.config": login % source.secret}
    link = new_link(server, source, **sasl)
    place = f"/links/{link}/configs"
    rows = {row["name"]: row for row in get(server, place)["data"]}
    secret = rows["sasl.jaas.config"]
    assert (secret["value"], secret["is_sensitive"], secret["is_default"]) == (None, True, False)
    assert rows["metadata.max.age.ms"]["is_read_only"]
    changes = pairs(**{"consumer.offset.sync.enable": "true", "consumer.offset.group.filters": json.dumps(GROUPS)})
    assert send(server, "POST", f"{place}:alter", {"data": changes}).status == 405
    assert send(server, "PUT", f"{place}:alter", {"data": changes}).status == 204
    done(server, "PUT", f"{place}/consumer.offset.sync.enable", {"value": "false"})
    assert get(server, f"{place}/consumer.offset.group.filters")["value"] == ""
    assert "cannot be changed" in error(server, "PUT", f"{place}/link.mode", {"value": "BIDIRECTIONAL"})[2]
    done(server, "PUT", f"{place}/sasl.jaas.config", {"value": login % "wrong"})
    until(lambda: get(server, f"/links/{link}")["link_error"] == "AUTHENTICATION_ERROR")
    assert get(server, f"/links/{link}")["link_state"] == "FAILED"
    done(server, "PUT", f"{place}/sasl.jaas.config", {"value": login % source.secret})
    until(lambda: get(server, f"/links/{link}")["link_state"] == "ACTIVE")


def test_tasks_show_their_errors(confluent: Pair) -> None:
    source, server = confluent
    link = new_link(server, source, acl_sync_enable="true")

    def read_tasks() -> dict[str, Any]:
        return {row["task_name"]: row for row in get(server, f"/links/{link}?include_tasks=true")["tasks"]}

    (missing,) = read_tasks()["AclSync"]["errors"]
    assert missing["error_code"] == "MISCONFIGURATION_ERROR"
    assert missing["error_message"].startswith("ACL migration is enabled but acl.filters is not set.")
    assert read_tasks()["ConsumerOffsetSync"]["state"] == "NOT_CONFIGURED"
    server.faults.add("fails", LINK, f"{link}/TopicConfigsSync", code="AUTHORIZATION_ERROR", message="no", times=ALWAYS)
    until(lambda: read_tasks()["TopicConfigsSync"]["state"] == "IN_ERROR")


def test_new_links_and_mirrors_cannot_be_read_at_once_on_demand(confluent: Pair) -> None:
    source, server = confluent
    server.settle_seconds = 0.5
    link = new_link(server, source)
    assert error(server, "GET", f"/links/{link}") == (404, 404, "Unable to resolve cluster link information")
    until(lambda: send(server, "GET", f"/links/{link}").status == 200)
    half = new_link(server, source, bootstrap_servers=None, connection_mode="INBOUND")
    source.settle_seconds = 0.5
    body = {"destination_cluster_id": server.cluster_id}
    body["configs"] = pairs(link_mode="SOURCE", bootstrap_servers=server.kafka)
    too_early = error(source, "POST", f"/links?link_name={half}", body)
    assert too_early == (400, 400, f"The destination cluster does not have a link named {half}")
    until(lambda: send(source, "POST", f"/links?link_name={half}", body).status == 201)
    assert send(server, "DELETE", f"/links/{link}").status == 200
    assert send(server, "GET", f"/links/{link}").status == 200
    until(lambda: send(server, "GET", f"/links/{link}").status == 404)


# Mirrors


def test_a_mirror_has_the_records_offsets_and_configs_of_its_source(confluent: Pair) -> None:
    source, server = confluent
    topic = new_topic(source, retention_ms="7200000")
    write(source, topic, *"abc")
    write(source, topic, *"de", **{"transactional.id": topic})
    link = new_link(server, source)
    mirror = new_mirror(server, link, topic)
    again = error(server, "POST", f"/links/{link}/mirrors", {"source_topic_name": topic})
    assert again == (400, 40002, f"Topic '{topic}' already exists.")
    until_level(server, mirror, 6)
    records = read(server, topic)
    assert records == read(source, topic)
    assert [(offset, value) for offset, _, value in records] == [*enumerate([b"a", b"b", b"c", b"d", b"e"])]
    assert get(server, f"/topics/{topic}/configs/retention.ms")["value"] == "7200000"
    assert write(server, topic, "x") == ["INVALID_REQUEST"]
    alter = error(server, "PUT", f"/topics/{topic}/configs/retention.ms", {"value": "1"})
    assert alter[2] == f"Cannot set configuration retention.ms for mirror topic '{topic}'"
    server.faults.add("state", "GET", mirror, message="NEW_STATE")
    assert get(server, mirror)["mirror_status"] == "NEW_STATE"


def test_mirrors_that_cannot_be_created_are_refused(confluent: Pair) -> None:
    source, server = confluent
    topic = new_topic(source)
    plain, prefixed = new_link(server, source), new_link(server, source, cluster_link_prefix="p-")
    for link, body, code in (
        (plain, {"source_topic_name": "nothing"}, 40403),
        (plain, {"source_topic_name": topic, "mirror_topic_name": "other"}, 40035),
        (prefixed, {"source_topic_name": topic}, 40035),
        (plain, {"source_topic_name": topic, "configs": pairs(cleanup_policy="compact")}, 40002),
        (plain, {"source_topic_name": topic, "replication_factor": 1}, 40002),
        ("none", {"source_topic_name": topic}, 404),
    ):
        assert error(server, "POST", f"/links/{link}/mirrors", body)[1] == code
    body = {"source_topic_name": topic, "mirror_topic_name": f"p-{topic}"}
    done(server, "POST", f"/links/{prefixed}/mirrors", body)
    assert get(server, "/links/-/mirrors?mirror_status=ACTIVE")["data"][0]["mirror_topic_name"] == f"p-{topic}"


def test_topics_of_both_clusters_become_mirrors_at_once(confluent: Pair) -> None:
    source, server = confluent
    name = f"p-{new_topic(source, 2)}"
    new_topic(server, 2, name)
    link = new_link(server, source, cluster_link_prefix="p-")
    server.mirrors.adopt(link, [name])
    write(source, name.removeprefix("p-"), "a")
    until_level(server, f"/links/{link}/mirrors/{name}", 1)
    assert write(server, name, "b") == ["INVALID_REQUEST"]
    act(server, link, "promote", name)
    until_state(server, f"/links/{link}/mirrors/{name}", "STOPPED")


def test_promotion_waits_for_all_records_and_hangs_with_its_reason(confluent: Pair) -> None:
    source, server = confluent
    topics = [new_topic(source) for _ in range(3)]
    link = new_link(server, source)
    mirror, *_ = [new_mirror(server, link, topic) for topic in topics]
    until_level(server, mirror, 0)
    server.faults.add("held", LINK, f"{link}/fetch", times=ALWAYS)
    server.faults.add("refused", MIRROR, f"promote/{topics[1]}/", status=403, code="40301", message="not authorized")
    write(source, topics[0], "a")
    until(lambda: get(server, mirror)["mirror_lags"][0]["lag"] == 1)
    results = act(server, link, "promote", *topics[:2], "nothing")
    assert [row["error_code"] for row in results] == [None, 40301, 400]
    assert get(server, mirror)["mirror_status"] == "PENDING_STOPPED"
    assert get(server, f"/links/{link}/mirrors/{topics[1]}")["mirror_status"] == "ACTIVE"
    server.faults.clear()
    hangs = {"code": "AUTHENTICATION_ERROR", "message": "Failed to describe topic configs"}
    server.faults.add("hangs", MIRROR, f"{topics[0]}/PENDING_STOPPED/", **hangs, times=ALWAYS)
    query = f"{mirror}?include_state_transition_errors=true"
    reason = {"error_code": "AUTHENTICATION_ERROR", "error_message": "Failed to describe topic configs"}
    until(lambda: get(server, query)["mirror_state_transition_errors"] == [reason])
    server.faults.clear()
    until_state(server, mirror, "STOPPED")
    assert [value for _, _, value in read(server, topics[0])] == [b"a"]
    assert write(server, topics[0], "b") == []
    (again,) = act(server, link, "promote", topics[0])
    assert again["error_message"] == f"Topic '{topics[0]}' has already stopped its mirror from '{link}'"
    assert send(server, "DELETE", f"/links/{link}").status == 403
    body = {"mirror_topic_name_pattern": "topic-.*"}
    rows = done(server, "POST", f"/links/{link}/mirrors:failover", body)["data"]
    assert sum(row["error_code"] is None for row in rows) == 2
    assert send(server, "DELETE", f"/links/{link}").status == 200


def test_mirrors_pause_lose_their_source_fail_and_fail_over(confluent: Pair) -> None:
    source, server = confluent
    topics = [new_topic(source) for _ in range(2)]
    link = new_link(server, source)
    paused, lost = [new_mirror(server, link, topic) for topic in topics]
    until_level(server, paused, 0)
    act(server, link, "pause", topics[0])
    write(source, topics[0], "a")
    assert get(server, paused)["mirror_status"] == "PAUSED"
    (refused,) = act(server, link, "pause", topics[0])
    assert refused["error_code"] == 400
    act(server, link, "resume", topics[0])
    until_level(server, paused, 1)
    server.faults.add("lost", LINK, f"{link}/source", times=ALWAYS)
    until_state(server, lost, "SOURCE_UNAVAILABLE")
    act(server, link, "failover", topics[0])
    assert get(server, paused)["mirror_status"] == "STOPPED"
    server.faults.clear()
    until_state(server, lost, "ACTIVE")
    server.retry_seconds = 0.5
    done(source, "DELETE", f"/topics/{topics[1]}")
    assert until_state(server, lost, "FAILED")["mirror_topic_error"] == "SOURCE_TOPIC_MAY_BE_DELETED"
    done(server, "DELETE", f"/topics/{topics[1]}")
    assert send(server, "GET", lost).status == 404


@pytest.mark.parametrize("state", [state for state in CONTRACT["verbs"]["failover"] if state != "LINK_PAUSED"])
def test_every_state_but_stopped_fails_over(confluent: Pair, state: str) -> None:
    source, server = confluent
    topic = new_topic(source)
    link = new_link(server, source)
    mirror = new_mirror(server, link, topic)
    server.faults.add("hangs", MIRROR, f"{topic}/{state}/", code="INTERNAL_ERROR", message="hangs", times=ALWAYS)
    if state in {"SOURCE_UNAVAILABLE", "LINK_FAILED"}:
        code = "AUTHENTICATION_ERROR" if state == "LINK_FAILED" else ""
        server.faults.add("lost", LINK, f"{link}/source", code=code, times=ALWAYS)
        until_state(server, mirror, state)
    else:
        server.mirrors.set_state(link, topic, state)
    assert get(server, mirror)["mirror_status"] == state
    if state != "PAUSED":
        (refused,) = act(server, link, "resume", topic)
        assert refused["error_message"] == f"Mirror topic '{topic}' is {state}: resume is not allowed"
    (failed_over,) = act(server, link, "failover", topic)
    assert (failed_over["error_code"], get(server, mirror)["mirror_status"]) == (None, "STOPPED")
    assert write(server, topic, "a") == []


def test_roles_are_reversed_and_restored_without_loss(confluent: Pair) -> None:
    west, east = confluent
    topic = new_topic(west)
    link = new_link(east, west, **PAIR)
    new_link(west, east, link, **PAIR)
    mirror = new_mirror(east, link, topic)
    write(west, topic, "a")
    until_level(east, mirror, 1)
    east.step_seconds = 0.3
    act(east, link, "reverse-and-pause-mirror", topic)
    assert (get(east, mirror)["mirror_status"], get(west, mirror)["mirror_status"]) == (
        "PENDING_SYNCHRONIZE",
        "PENDING_MIRROR",
    )
    assert write(west, topic, "x") == write(east, topic, "x") == ["INVALID_REQUEST"]
    until_state(west, mirror, "PAUSED")
    assert get(east, mirror)["mirror_status"] == "STOPPED"
    act(west, link, "resume", topic)
    write(east, topic, "b")
    until_level(west, mirror, 2)
    act(west, link, "failover", topic)
    write(east, topic, "lost")
    write(west, topic, "c")
    commit(east, "restored", topic, 3)
    where = f"/links/{link}/mirrors:truncate-and-restore?include_partition_level_truncation_data=true"
    (restored,) = done(east, "POST", where, {"mirror_topic_names": [topic]})["data"]
    assert (restored["error_code"], restored["messages_truncated"]) == (None, 1)
    cut = {"partition_id": 0, "offset_truncated_to": 2, "messages_truncated": 1}
    assert restored["partition_level_truncation_data"] == [cut]
    until_state(east, mirror, "ACTIVE")
    until_level(east, mirror, 3)
    assert [value for _, _, value in read(east, topic)] == [b"a", b"b", b"c"]
    (lag,) = get(east, "/consumer-groups/restored/lags")["data"]
    assert lag["current_offset"] == 2
    (refused,) = act(west, link, "truncate-and-restore", topic)
    assert refused["error_message"].startswith("REMOTE_MIRROR_NOT_FOUND_ERROR")
    act(east, link, "reverse-and-start-mirror", topic)
    until_state(west, mirror, "ACTIVE")


def test_topics_groups_and_rules_follow_by_filters(confluent: Pair) -> None:
    source, server = confluent
    name = f"auto-{next(_numbers)}"
    topic, other = new_topic(source, name=name), new_topic(source, name=f"{name}-not")
    write(source, topic, *"ab")
    commit(source, "g-one", topic, 1)
    commit(source, "other", topic, 1)
    rule = {
        "resource_type": "TOPIC",
        "resource_name": topic,
        "pattern_type": "LITERAL",
        "principal": "User:a",
        "host": "*",
    }
    done(source, "POST", "/acls", {**rule, "operation": "READ", "permission": "ALLOW"})
    rows = [{"name": name, "patternType": "PREFIXED", "filterType": "INCLUDE"}]
    rows.append({"name": other, "patternType": "LITERAL", "filterType": "EXCLUDE"})
    place = {"resourceType": "topic", "patternType": "any", "name": topic}
    access = {"operation": "any", "permissionType": "any"}
    configs = {
        "auto.create.mirror.topics.enable": "true",
        "auto.create.mirror.topics.filters": json.dumps({"topicFilters": rows}),
        "consumer.offset.sync.enable": "true",
        "consumer.offset.group.filters": json.dumps(GROUPS),
        "acl.sync.enable": "true",
        "acl.filters": json.dumps({"aclFilters": [{"resourceFilter": place, "accessFilter": access}]}),
    }
    link = new_link(server, source, **configs)
    until(lambda: send(server, "GET", f"/consumer-groups/g-one/lags/{topic}/partitions/0").status == 200)
    assert get(server, "/consumer-groups/g-one/lags")["data"][0]["current_offset"] == 1
    assert send(server, "GET", "/consumer-groups/other").status == 404
    until(lambda: len(get(server, f"/acls?resource_type=TOPIC&resource_name={topic}")["data"]) == 1)
    assert [row["mirror_topic_name"] for row in get(server, f"/links/{link}/mirrors")["data"]] == [topic]
    assert "filters of auto-create" in error(server, "DELETE", f"/topics/{topic}")[2]


# The command


def test_the_command_serves_a_source_and_a_destination(tmp_path: Path) -> None:
    exchanges = tmp_path / "exchanges"
    command = [sys.executable, "-m", "tests.servers.confluent", "--exchanges", str(exchanges)]
    folder = Path(__file__).parents[2]
    environ = {**os.environ, "XDG_CACHE_HOME": str(kafkajars._CACHE.parents[1])}  # where the jars are already
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=folder, env=environ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        places = json.loads(process.stdout.readline())
        for place in places.values():
            headers = urllib3.make_headers(basic_auth=f"{place['key']}:{place['secret']}")
            url = f"{place['rest']}/kafka/v3/clusters/{place['cluster_id']}/links?link_name=a"
            secret = {"remote_cluster_id": "lkc-a", "configs": pairs(sasl_jaas_config="a-secret")}
            assert _pool.request("POST", url, headers=headers, json=secret).status == 400
            config = f"{place['rest']}/kafka/v3/clusters/{place['cluster_id']}/links/a/configs/local.sasl.jaas.config"
            assert _pool.request("PUT", config, headers=headers, json={"value": "a-secret"}).status == 404
            metadata = AdminClient({"bootstrap.servers": place["kafka"]}).list_topics(timeout=SECONDS)
            assert metadata.cluster_id == place["cluster_id"]
        process.stdin.close()
    lines = exchanges.read_text()
    rows = [json.loads(line) for line in lines.splitlines()]
    assert [(row["method"], row["status"]) for row in rows] == [("POST", 400), ("PUT", 404)] * 2
    assert (rows[0]["query"], rows[0]["request"]["configs"]) == ("link_name=a", pairs(sasl_jaas_config="hidden"))
    assert rows[1]["request"] == {"value": "hidden"}
    assert rows[1]["answer"]["message"] == "Cluster link 'a' does not exist."
    assert not [text for text in ("a-secret", *(place["secret"] for place in places.values())) if text in lines]
