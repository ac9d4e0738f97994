"""Mirrors with which the principal of reconciler may not do all: what is hidden is not gone, and the rest is done."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

import pytest

from reconciler.errors import NotAuthorizedError
from reconciler.operations.mirrors.mirror_rounds import MirrorRounds
from reconciler.operations.steps.link_pass import LinkPass, sync_links
from reconciler.operations.steps.link_sides import LinkMemory
from reconciler.operations.steps.mirror_copy import Copier
from reconciler.planning.actions import Create, Delete
from reconciler.providers.brokers.client import create_bindings, delete_bindings, read_bindings
from reconciler.providers.brokers.ledger import MAP, MIRROR_ENTRY, PROGRESS, Entries
from reconciler.providers.brokers.mount_ledger import is_sealed
from reconciler.providers.brokers.seal import Seals
from reconciler.providers.brokers.translate import select_own_configs
from reconciler.providers.kafka import KafkaProvider
from reconciler.providers.protocol import CompletedAction, Edge, FailedAction, Scope
from reconciler.resources.acls import AccessBinding
from reconciler.resources.address import Address, address_of, full_name_of
from reconciler.resources.base import InNamespace
from reconciler.resources.cluster import Cluster
from reconciler.resources.kafka_configs import LEDGER
from reconciler.resources.mirrors import GroupOffsetsResult, GroupPosition
from reconciler.resources.topic import Topic, TopicSpec
from tests.engines import here
from tests.providers.brokers.links.linked import EAST, NOW_MS, OPENED, WEST, Linked, commit
from tests.servers.kafka import Kafka

pytestmark = pytest.mark.thorough

ALICE: Final = "User:alice"
LOGIN: Final = {
    "sasl.enabled.mechanisms": "SCRAM-SHA-256",
    "listener.name.login.scram-sha-256.sasl.jaas.config": (
        "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    ),
}
EVERYTHING: Final = (("topics", "*"), ("groups", "*"), ("transactional-ids", "*"), ("cluster", "kafka-cluster"))


@pytest.fixture(scope="module")
def kafka_with_alice() -> Iterator[Kafka]:
    with Kafka.start(listeners={"LOGIN": "SASL_PLAINTEXT"}, extra=LOGIN, scram={"alice": "wonder"}) as kafka:
        yield kafka


@pytest.fixture
def linked(kafka_with_alice: Kafka) -> Linked:
    """Return a mirror that was copied, on a cluster where alice may everything."""
    made = Linked.of(kafka_with_alice, f"t{secrets.token_hex(4)}", partitions=1)
    made.produce([b"a", b"b"])
    made.make_mirror()
    made.copy()
    bind(made, *(rule(kind, name, "all", "allow") for kind, name in EVERYTHING))
    return made


@pytest.fixture
def hidden(linked: Linked) -> Linked:
    """Return the same where alice may not describe the mirror."""
    bind(linked, rule("topics", linked.mirror, "describe", "deny"))
    return linked


def rule(kind: str, name: str, operation: str, permission: str, *, is_prefix: bool = False) -> AccessBinding:
    return AccessBinding(kind, name, is_prefix, ALICE, "*", operation, permission)


def bind(linked: Linked, *rules: AccessBinding) -> None:
    assert not any(code for code, _ in create_bindings(linked.site.client, rules))
    linked.wait(lambda: set(rules) <= set(read_bindings(linked.site.client)[0]))


def hers(linked: Linked, **more: object) -> Linked:
    """Return the same as a process of alice's sees it."""
    east, west = (provider_of_alice(linked, name, more) for name in (EAST, WEST))
    return Linked(linked.broker, linked.topic, linked.link, east, west, linked.declared)


def provider_of_alice(linked: Linked, name: str, more: Mapping[str, object]) -> KafkaProvider:
    security = {
        "protocol": "SASL_PLAINTEXT",
        "allowPlaintextPasswords": True,
        "mechanism": "SCRAM-SHA-256",
        "username": "alice",
        "password": "${env:PASSWORD}",
    }
    spec = {
        "provider": "kafka",
        "kafka": {"bootstrapServers": [linked.broker.bootstrap("LOGIN")], "security": security},
        **more,
    }
    declared = Cluster.model_validate({"kind": "Cluster", "metadata": {"name": name}, "spec": spec})
    edge = Edge(Path.cwd(), {"PASSWORD": "wonder"}, lambda: secrets.token_hex(16), lambda: NOW_MS)
    OPENED.append(KafkaProvider(declared, edge))
    return OPENED[-1]


def kept(linked: Linked) -> Entries:
    """Return what the ledger has of the mirror."""
    entries = linked.other().site.ledger.read(MIRROR_ENTRY, PROGRESS, MAP)
    found = {key: value for key, value in entries.items() if key[1] == linked.mirror}
    assert len(found) == 3
    return found


@pytest.fixture(params=["describe", "read"])
def without_ledger(request: pytest.FixtureRequest, linked: Linked) -> Iterator[Linked]:
    """Return a mirror on a cluster where alice may not describe the ledger, or not read it."""
    yield from without(linked, rule("topics", LEDGER, request.param, "deny"))


@pytest.fixture
def unshown(linked: Linked) -> Iterator[Linked]:
    """Return a mirror on a cluster of which alice is shown only some groups."""
    yield from without(linked, rule("cluster", "kafka-cluster", "describe", "deny"))


def without(linked: Linked, denial: AccessBinding) -> Iterator[Linked]:
    bind(linked, denial)
    yield linked
    delete_bindings(linked.site.client, [denial])
    linked.wait(lambda: denial not in read_bindings(linked.site.client)[0])


@pytest.mark.parametrize(
    "look",
    [
        pytest.param(lambda east: east.read_overview(), id="listing"),
        pytest.param(lambda east: east.list_unplaced_rules(), id="export"),
        pytest.param(lambda east: east.read_vitals(), id="metrics"),
    ],
)
def test_who_has_no_links_looks_at_a_cluster_without_reading_the_ledger(
    without_ledger: Linked, look: Callable[[KafkaProvider], object]
) -> None:
    assert look(hers(without_ledger).east)


def test_a_group_that_may_not_be_described_is_left_out_of_metrics_and_of_what_links_bring(linked: Linked) -> None:
    names = [f"{linked.topic}-{each}" for each in ("mine", "other")]
    for name in names:
        commit(linked.broker, name, linked.topic, 1)
    bind(linked, rule("groups", names[1], "describe", "deny"))
    alice = hers(linked)
    vitals = alice.east.read_vitals()
    assert (names[0], linked.topic) in {(lag.group, lag.topic) for lag in vitals.lags}
    assert vitals.unmeasured_groups == sum(lag_is_hidden(linked, group) for group in alice.east.groups.list_names())
    syncs = alice.links.syncs
    versions = syncs.list_group_versions(names.__contains__)
    assert isinstance(versions[names[0]], str)
    assert isinstance(versions[names[1]], NotAuthorizedError)
    assert names[0] in syncs.read_group_offsets(names[:1])
    with pytest.raises(NotAuthorizedError, match=names[1]):
        syncs.read_group_offsets(names)
    at = {(linked.mirror, 0): GroupPosition(1)}
    brought = syncs.sync_group_offsets(dict.fromkeys(names, at))
    assert isinstance(brought[names[0]], GroupOffsetsResult)
    assert isinstance(brought[names[1]], NotAuthorizedError)


def lag_is_hidden(linked: Linked, group: str) -> bool:
    denials = {each.name for each in read_bindings(linked.site.client)[0] if each.permission == "deny"}
    return group in denials


def test_a_topic_is_not_moved_while_there_may_be_groups_that_are_not_shown(unshown: Linked) -> None:
    name = f"{unshown.topic}-group"
    commit(unshown.broker, name, unshown.topic, 1)
    bind(unshown, rule("groups", name, "describe", "deny"))
    east = hers(unshown).east
    unshown.make_topic(f"{unshown.topic}-new", 1)
    copies = east.migrations.job_steps
    move = copies.find_copy_move(unshown.topic, None, f"{unshown.topic}-new", is_keyed=False)
    with pytest.raises(NotAuthorizedError, match="not shown every consumer group"):
        copies.suspend_retention(move)
    with pytest.raises(NotAuthorizedError, match="not shown every consumer group"):
        east.groups.find_topic_readers()


def test_a_topic_is_not_unmounted_while_there_may_be_groups_that_are_not_shown(unshown: Linked) -> None:
    moves = hers(unshown).east.migrations.job_steps
    topic_id = unshown.site.read_topics([unshown.topic])[unshown.topic].id
    with pytest.raises(NotAuthorizedError, match="not shown every consumer group"):
        moves.refuse_all_producers(unshown.topic, topic_id, lambda: None)
    ((_, configs),) = unshown.site.client.read_configs([unshown.topic])
    assert isinstance(configs, dict)
    assert not is_sealed(select_own_configs(configs))


def test_a_mirror_that_may_not_be_described_is_not_begun_anew(hidden: Linked) -> None:
    before = kept(hidden)
    (outcome,) = hers(hidden).apply(hidden.creation())
    assert isinstance(outcome, FailedAction)
    assert isinstance(outcome.error, NotAuthorizedError)
    assert kept(hidden) == before


def test_a_mirror_that_may_not_be_described_is_not_called_deleted(hidden: Linked) -> None:
    before = kept(hidden)
    (outcome,) = hers(hidden).apply(hidden.deletion())
    assert isinstance(outcome, FailedAction)
    assert isinstance(outcome.error, NotAuthorizedError)
    assert kept(hidden) == before


def test_a_link_is_not_deleted_while_a_mirror_of_it_may_not_be_described(hidden: Linked) -> None:
    before = kept(hidden)
    (outcome,) = hers(hidden).apply(Delete(address=hidden.resource.address, before=hidden.resource))
    assert isinstance(outcome, FailedAction)
    assert kept(hidden) == before


def test_a_mirror_that_may_not_be_described_is_an_error_of_each_round(hidden: Linked) -> None:
    alice = hers(hidden)
    rounds = MirrorRounds(Copier({EAST: alice.east, WEST: alice.west}, here()), lambda: NOW_MS)
    (synced,) = rounds.run_round([EAST], lambda address: address == hidden.address).synced
    assert isinstance(synced.error, NotAuthorizedError)
    assert hidden.mirror not in alice.links.list_lost_mirrors(hidden.link)


@pytest.mark.parametrize("operation", ["describe", "describe-configs"])
def test_a_source_that_may_not_be_described_is_not_called_deleted(linked: Linked, operation: str) -> None:
    bind(linked, rule("topics", linked.topic, operation, "deny"))
    alice = hers(linked)
    over = LinkPass(EAST, {EAST: alice.east, WEST: alice.west}, LinkMemory(), lambda: NOW_MS)
    assert linked.link in {synced.link for synced in sync_links(over)}
    trouble = linked.other().seen.trouble
    assert trouble is not None
    assert trouble.code == "AUTHORIZATION_ERROR"


def test_a_source_whose_configs_may_not_be_described_is_not_mirrored_without_them(linked: Linked) -> None:
    bind(linked, rule("topics", linked.topic, "describe-configs", "deny"))
    west = hers(linked).west
    assert linked.topic in west.links.list_topic_marks()
    with pytest.raises(NotAuthorizedError, match=linked.topic):
        west.read_source_topic(address_of("topic", WEST, linked.topic))


def test_a_seal_is_not_forgotten_of_a_topic_that_may_not_be_described(hidden: Linked) -> None:
    seals, topic_id = Seals(hidden.site.client, hidden.site.ledger), hidden.seen.topic_id
    seals.seal_topic(hidden.mirror, topic_id, lambda: None)
    site = hers(hidden).site
    with pytest.raises(NotAuthorizedError, match=hidden.mirror):
        Seals(site.client, site.ledger).remove_seal(topic_id)
    seals.remove_seal(topic_id)
    ((_, configs),) = hidden.site.client.read_configs([hidden.mirror])
    assert isinstance(configs, dict)
    assert not is_sealed(select_own_configs(configs))


def topic_like(linked: Linked) -> Topic:
    """Return a new topic next to the mirrored one."""
    return Topic(metadata=InNamespace(name=f"{linked.topic}-new", cluster=EAST), spec=TopicSpec(partitions=1))


def test_a_link_whose_copiers_may_not_be_shut_out_fails_alone(linked: Linked) -> None:
    bind(linked, rule("transactional-ids", f"reconciler.{linked.link_id}", "all", "deny", is_prefix=True))
    topic = topic_like(linked)
    paused, made = hers(linked).apply(linked.transition("pause"), Create(address=topic.address, after=topic))
    assert isinstance(paused, FailedAction)
    assert isinstance(paused.error, NotAuthorizedError)
    assert isinstance(made, CompletedAction)


@pytest.mark.parametrize("known", ["recorded", "named"])
def test_a_mirror_that_may_not_be_described_is_hidden_and_not_missing(hidden: Linked, known: str) -> None:
    scope = Scope(recorded=frozenset({hidden.address})) if known == "recorded" else Scope((hidden.address,))
    found = hers(hidden).east.observe(scope).get(hidden.address)
    assert found is not None
    assert found.hidden is not None


def test_a_mirror_whose_configs_may_not_be_described_is_not_told_to_have_none(linked: Linked) -> None:
    bind(linked, rule("topics", linked.mirror, "describe-configs", "deny"))
    found = hers(linked).east.observe(Scope(recorded=frozenset({linked.address})))[linked.address]
    assert isinstance(found.hidden, NotAuthorizedError)


def test_links_are_not_missing_where_the_ledger_may_not_be_seen(without_ledger: Linked) -> None:
    with pytest.raises(NotAuthorizedError, match=LEDGER):
        hers(without_ledger).east.observe(Scope(recorded=frozenset({without_ledger.resource.address})))


def test_a_workspace_without_links_and_mountings_plans_without_the_ledger(without_ledger: Linked) -> None:
    seen = hers(without_ledger, objectStorage={"url": "memory://archive"}).east.observe(Scope())
    assert address_of("topic", EAST, without_ledger.topic) in seen


def test_mirrors_that_cannot_be_paused_for_want_of_the_ledger_fail_alone(without_ledger: Linked) -> None:
    topic = topic_like(without_ledger)
    pause, create = without_ledger.transition("pause"), Create(address=topic.address, after=topic)
    paused, made = hers(without_ledger).apply(pause, create)
    assert isinstance(paused, FailedAction)
    assert isinstance(made, CompletedAction)


@pytest.mark.parametrize(
    "ask",
    [
        lambda east, topic: east.open_log(topic),
        lambda east, topic: east.describe_topic(topic),
        lambda east, topic: list(east.list_topic_storages([topic])),
        lambda east, topic: east.groups.commit("readers", {(full_name_of(topic), 0): 1}),
        lambda east, topic: east.links.read_positions(full_name_of(topic)),
    ],
    ids=["records", "offsets", "sizes", "groups", "positions"],
)
def test_who_asks_for_a_topic_that_may_not_be_described_is_not_told_that_it_does_not_exist(
    hidden: Linked, ask: Callable[[KafkaProvider, Address], object]
) -> None:
    with pytest.raises(NotAuthorizedError, match="may not describe"):
        ask(hers(hidden).east, address_of("topic", EAST, hidden.mirror))
