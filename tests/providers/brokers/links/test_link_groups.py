"""Groups that follow their topics: exactly to the record, on logs that are numbered anew."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import pytest
from confluent_kafka import Consumer
from kafka.admin import (
    ACL,
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    KafkaAdminClient,
    ResourcePattern,
    ResourcePatternFilter,
    ResourceType,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from reconciler.errors import NotAuthorizedError, ReconcilerError
from reconciler.providers.brokers.links import link_groups
from reconciler.providers.kafka import KafkaProvider
from reconciler.resources.address import address_of
from reconciler.resources.mirrors import AccessRules, GroupOffsets, GroupOffsetsResult
from reconciler.runtime.retry import Backoff, Tries
from tests.providers.brokers.links.linked import BROKERS, EAST, OPENED, Linked, commit
from tests.servers.kafkasecured import Secured
from tests.servers.kafkatopics import make_topic

pytestmark = pytest.mark.thorough


@pytest.fixture
def linked(request: pytest.FixtureRequest, kafka_prefix: str) -> Linked:
    """Return a mirror whose source has a transaction marker after every two records: offsets 0 1 - 3 4 - 6 7 -."""
    broker = request.getfixturevalue(getattr(request, "param", "kafka_broker"))
    made = Linked.of(broker, kafka_prefix, partitions=1)
    for number in range(3):
        made.produce([f"{number}-{each}".encode() for each in range(2)])
    made.make_mirror()
    made.copy()
    return made


def _commit(linked: Linked, group: str, topic: str, offset: int, metadata: str = "") -> None:
    commit(linked.broker, group, topic, offset, metadata)


def _bring(linked: Linked, group: str) -> GroupOffsetsResult:
    offsets = linked.west.links.syncs.read_group_offsets([group])[group]
    named: GroupOffsets = {
        (linked.mirror, number): at for (name, number), at in offsets.items() if name == linked.topic
    }
    found = linked.links.syncs.sync_group_offsets({group: named})[group]
    assert not isinstance(found, ReconcilerError)
    return found


def _there(linked: Linked, group: str) -> int | None:
    return linked.east.groups.read_committed_offsets(group, [linked.mirror]).get((linked.mirror, 0))


def _next(linked: Linked, topic: str, offset: int) -> list[bytes]:
    return linked.values(topic, 0, offset)[:1]


@pytest.mark.fact("F-K-091")
def test_every_offset_of_a_source_leads_to_the_same_next_record(linked: Linked) -> None:
    group = f"{linked.topic}-group"
    for offset in range(10):
        _commit(linked, group, linked.topic, offset, f"at {offset}")
        assert _bring(linked, group).is_changed or offset
        there = _there(linked, group)
        assert there is not None
        assert _next(linked, linked.mirror, there) == _next(linked, linked.topic, offset), offset


@pytest.mark.fact("F-K-091", "F-C-041")
def test_a_group_beyond_what_was_copied_is_held_to_the_mirrors_end_and_brought_again(linked: Linked) -> None:
    group = f"{linked.topic}-group"
    linked.produce([b"later"])
    _commit(linked, group, linked.topic, 11)
    found = _bring(linked, group)
    assert (found.is_changed, found.is_clamped) == (True, True)
    held = _there(linked, group)
    assert held is not None
    linked.copy()
    assert _next(linked, linked.mirror, held) == [b"later"]
    assert not _bring(linked, group).is_clamped
    there = _there(linked, group)
    assert there is not None
    assert _next(linked, linked.mirror, there) == []


def test_rules_of_an_embedded_source_are_brought_once_as_brokers_keep_them(linked: Linked) -> None:
    namespace = f"{linked.topic}-ns"
    linked.east.learn_names([address_of("namespace", EAST, namespace)])
    syncs = linked.links.syncs
    wanted = AccessRules(
        {linked.topic: {"acls.allow User:b": ("idempotent-write", "read")}},
        {namespace: {"acls.allow User:a on groups,topics named billing*,pay-*": ("alter-configs", "read")}},
    )
    assert syncs.sync_rules(linked.link, wanted) == 2
    linked.wait(lambda: namespace in syncs.list_access_rules().namespaces)
    assert syncs.list_access_rules().namespaces[namespace] == {
        "acls.allow User:a named billing*": ("alter-configs", "read"),
        "acls.allow User:a named pay-*": ("alter-configs", "read"),
        "acls.allow User:a on groups named billing*": ("read",),
        "acls.allow User:a on groups named pay-*": ("read",),
    }
    assert syncs.list_access_rules().topics[linked.mirror] == {"acls.allow User:b": ("read",)}
    assert syncs.sync_rules(linked.link, wanted) == 0
    assert syncs.sync_rules(linked.link, AccessRules()) == 2
    linked.wait(lambda: namespace not in syncs.list_access_rules().namespaces)


@pytest.fixture
def clerk(kafka_secured: Secured, kafka_prefix: str) -> KafkaProvider:
    """Return a cluster for someone who may read four of five groups that have committed offsets of a topic."""
    user, groups = f"{kafka_prefix}-clerk", groups_of(kafka_prefix)
    allowed = [
        (ResourcePattern(ResourceType.CLUSTER, "kafka-cluster"), ACLOperation.DESCRIBE),
        (ResourcePattern(ResourceType.TOPIC, kafka_prefix), ACLOperation.DESCRIBE),
        *((ResourcePattern(ResourceType.GROUP, group), ACLOperation.DESCRIBE) for group in groups if group[-1] != "3"),
    ]
    anything = ResourcePatternFilter(ResourceType.ANY, None, ACLResourcePatternType.ANY)
    asked = ACLFilter(f"User:{user}", "*", ACLOperation.ANY, ACLPermissionType.ANY, anything)
    with closing(KafkaAdminClient(bootstrap_servers=kafka_secured.kafka.bootstrap().split(","))) as admin:
        login = UserScramCredentialUpsertion(user, ScramMechanism.SCRAM_SHA_256, "right-one")
        admin.alter_user_scram_credentials([login])
        admin.create_acls([ACL(f"User:{user}", "*", may, ACLPermissionType.ALLOW, what) for what, may in allowed])
        looks = Tries(Backoff(first_s=0.05, longest_s=0.5), within_s=30)
        while len(admin.describe_acls(asked)[0]) < len(allowed):
            assert not looks.has_ended, "the rules do not show"
            looks.wait()
    make_topic(kafka_secured.kafka, kafka_prefix)
    for group in groups:
        commit(kafka_secured.kafka, group, kafka_prefix, 0)
    how: dict[str, Any] = {"protocol": "SASL_PLAINTEXT", "mechanism": "SCRAM-SHA-256", "allowPlaintextPasswords": True}
    said = kafka_secured.declared("LOGIN", **how, username=user, password="${env:PASSWORD}")  # noqa: S106 - where it is
    OPENED.append(KafkaProvider(said, kafka_secured.edge()))
    return OPENED[-1]


def groups_of(prefix: str) -> list[str]:
    return [f"{prefix}-{number}" for number in range(5)]


def test_a_group_that_may_not_be_read_is_told_and_keeps_no_other_back(clerk: KafkaProvider, kafka_prefix: str) -> None:
    groups, syncs = groups_of(kafka_prefix), clerk.links.syncs
    found = syncs.list_group_versions(groups.__contains__)
    assert sorted(found) == groups
    assert [group for group, version in found.items() if isinstance(version, ReconcilerError)] == [groups[3]]
    assert list(syncs.list_group_versions(groups[:1].__contains__)) == groups[:1]
    with pytest.raises(NotAuthorizedError, match=f"may not describe group {groups[3]}. Allow DESCRIBE on"):
        clerk.groups.read_committed_offsets(groups[3], [kafka_prefix])


@pytest.mark.parametrize("linked", BROKERS, indirect=True)
def test_bringing_twice_changes_nothing(linked: Linked) -> None:
    group = f"{linked.topic}-group"
    _commit(linked, group, linked.topic, 3)
    assert _bring(linked, group).is_changed
    assert not _bring(linked, group).is_changed


def test_what_a_group_committed_itself_wins(linked: Linked) -> None:
    group = f"{linked.topic}-group"
    _commit(linked, group, linked.topic, 3)
    _bring(linked, group)
    _commit(linked, group, linked.mirror, 1)
    _commit(linked, group, linked.topic, 6)
    assert _bring(linked, group) == GroupOffsetsResult(own=(linked.mirror,))
    assert _there(linked, group) == 1


def test_a_group_whose_own_offsets_are_forgotten_is_brought_again(linked: Linked) -> None:
    group = f"{linked.topic}-group"
    _commit(linked, group, linked.mirror, 1)
    _commit(linked, group, linked.topic, 6)
    assert _bring(linked, group).own == (linked.mirror,)
    assert linked.east.groups.delete(group, linked.mirror)
    assert _bring(linked, group) == GroupOffsetsResult(is_changed=True)


def test_a_group_that_went_on_by_itself_to_where_its_link_would_bring_it_is_not_told(linked: Linked) -> None:
    group = f"{linked.topic}-group"
    _commit(linked, group, linked.mirror, 0)
    _commit(linked, group, linked.topic, 0)
    assert _bring(linked, group) == GroupOffsetsResult()


def test_a_group_that_was_there_first_is_left_alone(linked: Linked) -> None:
    group = f"{linked.topic}-group"
    _commit(linked, group, linked.mirror, 0)
    _commit(linked, group, linked.topic, 6)
    assert not _bring(linked, group).is_changed
    assert _there(linked, group) == 0


def test_what_was_noted_and_not_committed_is_brought_by_whoever_comes_next(linked: Linked) -> None:
    """Killed between the ledger and the commit: what stands there is not taken for the group's own."""
    group = f"{linked.topic}-group"
    _commit(linked, group, linked.topic, 3)
    _bring(linked, group)
    _commit(linked, group, linked.topic, 6)
    real = link_groups._OffsetSync._commit
    link_groups._OffsetSync._commit = lambda *_given: True  # type: ignore[method-assign,assignment]
    try:
        _bring(linked, group)
    finally:
        link_groups._OffsetSync._commit = real  # type: ignore[method-assign]
    assert _bring(linked.other(), group).is_changed
    there = _there(linked, group)
    assert there is not None
    assert _next(linked, linked.mirror, there) == [b"2-0"]


def test_a_group_that_reads_the_mirror_is_told_and_left_alone(linked: Linked) -> None:
    group = f"{linked.topic}-group"
    _commit(linked, group, linked.topic, 3)
    consumer = Consumer(
        {"bootstrap.servers": linked.broker.bootstrap(), "group.id": group, "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([linked.mirror])
    assert consumer.poll(30) is not None
    assert _bring(linked, group).reading == (linked.mirror,)
    consumer.close()


def test_a_stopped_mirror_takes_no_offsets(linked: Linked) -> None:
    group = f"{linked.topic}-group"
    _commit(linked, group, linked.topic, 3)
    linked.links.request_verb(linked.mirror, "failover")
    assert not _bring(linked, group).is_changed
    assert _there(linked, group) is None


def test_versions_of_groups_change_with_what_they_commit(linked: Linked) -> None:
    group = f"{linked.topic}-group"
    _commit(linked, group, linked.topic, 1)
    before = linked.west.links.syncs.list_group_versions(group.__eq__)[group]
    assert linked.west.links.syncs.list_group_versions(group.__eq__)[group] == before
    _commit(linked, group, linked.topic, 2)
    assert linked.west.links.syncs.list_group_versions(group.__eq__)[group] != before
