"""Tiering switched by a provider: done twice it is done once, refused where the world moved, measured in both tiers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from reconciler.embedded.catalog.model import AclEntry
from reconciler.errors import NotAuthorizedError, StalePlanError
from reconciler.planning.actions import Change, Transition, Update
from reconciler.planning.settle import settle_action
from reconciler.providers.protocol import CompletedAction, Edge, FailedAction, Provider, Scope
from reconciler.providers.registry import open_provider
from reconciler.resources.address import Address
from reconciler.resources.cluster import Cluster
from reconciler.resources.configs import EMBEDDED_CONFIGS
from reconciler.resources.namespace import Namespace
from reconciler.resources.topic import Topic
from tests.embedded.maintenance.tiny_segments import TOPIC, head_of
from tests.embedded.samples import NOW, ids
from tests.embedded.tiered.tiered_cluster import Tiered, tiered, upload_by_hand

ADDRESS = Address(f"topic/west/{TOPIC}")
OFF = (Change("configs.remote.read", "true", "false"), Change("configs.remote.write", "true", "false"))


@pytest.fixture
def it() -> Tiered:
    """A tiered topic of twelve records a partition: eight uploaded, of which four lie in object storage alone."""
    found = tiered(partitions=2)
    for partition in range(2):
        found.fill(6, partition=partition)
        upload_by_hand(found, 8, evicts=4, partition=partition)
    return found


@pytest.fixture
def edge(tmp_path: Path) -> Edge:
    return Edge(folder=tmp_path, environ={}, new_id=ids(), now_ms=lambda: NOW)


def provider_of(it: Tiered, edge: Edge) -> Provider:
    spec = {"embedded": {"root": it.store.url}, "objectStorage": it.storage.url}
    return open_provider(Cluster.model_validate({"metadata": {"name": "west"}, "spec": spec}), edge)


def switch(provider: Provider, *changes: Change, verb: str = "disable-tiering") -> Transition:
    seen = provider.observe(Scope())[ADDRESS]
    assert isinstance(seen.resource, Topic)
    states = ("ENABLED", "DISABLING") if verb == "disable-tiering" else ("DISABLED", "ENABLED")
    return Transition(
        address=ADDRESS,
        machine="tiering",
        verb=verb,
        from_state=states[0],
        to_state=states[1],
        after=seen.resource,
        changes=changes or OFF,
    )


def state_of(provider: Provider) -> str | None:
    return provider.observe(Scope())[ADDRESS].state


def test_a_switch_done_twice_is_done_once(it: Tiered, edge: Edge) -> None:
    provider = provider_of(it, edge)
    assert state_of(provider) == "ENABLED"
    action = switch(provider)
    for _ in range(2):
        (outcome,) = provider.apply([action])
        assert isinstance(outcome, CompletedAction)
        assert state_of(provider) == "DISABLED"
    epoch = it.tiering().epoch
    back = switch(provider, *(replace(each, before="false", after="true") for each in OFF), verb="enable-tiering")
    for _ in range(2):
        (outcome,) = provider.apply([back])
        assert isinstance(outcome, CompletedAction)
        assert state_of(provider) == "ENABLED"
    assert it.tiering().epoch == epoch + 1


@pytest.mark.fact("F-K-063")
def test_a_switch_that_could_not_be_finished_has_failed_and_done_again_finishes_it(it: Tiered, edge: Edge) -> None:
    provider, key = provider_of(it, edge), it.remote(1).key
    whole = it.storage.get(key)
    assert whole is not None
    it.storage.put(key, b"{}")
    action = switch(provider)
    (outcome,) = provider.apply([action])
    assert isinstance(outcome, FailedAction)
    assert state_of(provider) == "DISABLING"
    assert settle_action(action, provider.observe(Scope()), EMBEDDED_CONFIGS).verdict == "done"
    it.storage.put(key, whole.body)
    (outcome,) = provider.apply([action])
    assert isinstance(outcome, CompletedAction)
    assert state_of(provider) == "DISABLED"
    assert settle_action(action, provider.observe(Scope()), EMBEDDED_CONFIGS).verdict == "done"


def test_a_namespace_that_switches_off_twice_does_it_once(it: Tiered, edge: Edge) -> None:
    provider = provider_of(it, edge)
    it.cluster.create_namespace("shop", {"remote.write": "true", "remote.read": "true"})
    it.cluster.create_topic("shop:a")
    address = Address("namespace/west/shop")
    seen = provider.observe(Scope())[address].resource
    assert isinstance(seen, Namespace)
    for _ in range(2):
        (outcome,) = provider.apply([Update(address=address, before=seen, after=seen, changes=OFF)])
        assert isinstance(outcome, CompletedAction)
        assert provider.observe(Scope())[Address("topic/west/shop:a")].state == "DISABLED"


def test_a_switch_decided_on_what_is_no_more_changes_nothing(it: Tiered, edge: Edge) -> None:
    provider = provider_of(it, edge)
    action = switch(provider)
    it.cluster.alter_topic(TOPIC, {"remote.read": None})
    (outcome,) = provider.apply([action])
    assert isinstance(outcome, FailedAction)
    assert isinstance(outcome.error, StalePlanError)
    assert it.cluster.topic(TOPIC).configs["remote.write"] == "true"


def test_switching_needs_the_right_to_change_configs(it: Tiered, edge: Edge) -> None:
    action = switch(provider_of(it, edge))
    nobody = provider_of(it, replace(edge, principal="User:x"))
    it.cluster.set_topic_acls(TOPIC, [AclEntry("User:y", "allow", ("all",))])
    (outcome,) = nobody.apply([action])
    assert isinstance(outcome, FailedAction)
    assert isinstance(outcome.error, NotAuthorizedError)
    assert state_of(provider_of(it, edge)) == "ENABLED"


@pytest.mark.fact("F-K-065")
def test_what_is_measured_counts_each_record_once_and_says_what_is_remote_alone(it: Tiered, edge: Edge) -> None:
    found = provider_of(it, edge).measure_topics([ADDRESS])[ADDRESS]
    heads = [head_of(it.cluster, partition) for partition in range(2)]
    remote = [sum(entry.bytes for entry in it.segments(partition) if entry.last < 4) for partition in range(2)]
    assert found.records == 24
    assert found.bytes == sum(head.stored_bytes for head in heads) + sum(remote)
    assert sum(size for _, size in found.ages) == found.bytes
    assert found.local_only_bytes == sum(
        entry.bytes for head in heads for entry in head.entries if entry.base >= head.uploaded_to
    )
    assert [(each.number, each.start, each.local_start, each.uploaded_to) for each in found.tiered] == [
        (0, 0, 4, 8),
        (1, 0, 4, 8),
    ]
    assert [each.remote_bytes for each in found.tiered] == remote


def test_a_topic_that_was_never_tiered_says_nothing_of_tiers(it: Tiered, edge: Edge) -> None:
    it.cluster.create_topic("plain")
    with it.cluster.producer() as producer:
        producer.send("plain", "x")
    provider = provider_of(it, edge)
    found = provider.measure_topics([Address("topic/west/plain")])[Address("topic/west/plain")]
    assert found.tiered == ()
    assert found.local_only_bytes == found.bytes > 0
    assert provider.observe(Scope())[Address("topic/west/plain")].state is None
