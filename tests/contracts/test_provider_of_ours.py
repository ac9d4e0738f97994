"""What the provider of our own clusters does beyond what every one must do, over every store."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from reconciler.errors import BlockedError, StalePlanError, UserError
from reconciler.planning.actions import Change, Transition
from reconciler.providers.protocol import CompletedAction, Edge, FailedAction, Provider, Scope, require_job_links
from reconciler.providers.registry import open_provider
from reconciler.records.log import OffsetRange
from reconciler.resources.address import Address
from reconciler.resources.cluster import Cluster
from reconciler.resources.groups import OffsetMove, ToEarliest
from reconciler.resources.inventory import Resource, read_resource
from reconciler.resources.mirror_link import ALWAYS_SYNCED
from tests.contracts.providers import apply, create, delete, done, look, namespace, refused, topic, update
from tests.embedded.samples import NOW, ids, numbered, rows_of, values

NAMES = itertools.count()


@pytest.fixture(params=["memory", "file", "s3"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    match request.param:
        case "memory":
            return f"memory://provider-{next(NAMES)}"
        case "file":
            return f"file://{tmp_path}/west"
        case _:
            request.getfixturevalue("s3_environ")
            url: str = request.getfixturevalue("s3_server").url("provider")
            return url


@pytest.fixture
def edge(tmp_path: Path) -> Edge:
    return Edge(folder=tmp_path, environ={}, new_id=ids(), now_ms=lambda: NOW)


@pytest.fixture
def declared(root: str) -> Cluster:
    return Cluster.model_validate({"metadata": {"name": "west"}, "spec": {"embedded": {"root": root}}})


@pytest.fixture
def provider(declared: Cluster, edge: Edge) -> Provider:
    provider = open_provider(declared, edge)
    done(provider, create(declared))
    return provider


def link(**spec: Any) -> Resource:
    metadata = {"name": "from-north", "cluster": "west"}
    return read_resource({"kind": "MirrorLink", "metadata": metadata, "spec": {"source": "north", **spec}})


def mirror(source: str, **fields: Any) -> Resource:
    return read_resource(
        {
            "kind": "MirrorTopic",
            "cluster": "west",
            "link": "from-north",
            "source_cluster": "north",
            "source": source,
            "name": source,
            **fields,
        }
    )


# -- the cluster itself


def test_a_cluster_that_is_not_there_has_no_identity_and_nothing_in_it(declared: Cluster, edge: Edge) -> None:
    provider = open_provider(declared, edge)
    assert provider.identify() is None
    assert provider.observe(Scope()) == {}
    assert provider.identify() is None


def test_a_created_cluster_answers_with_its_id(provider: Provider, declared: Cluster, edge: Edge) -> None:
    identity = provider.identify()
    assert identity is not None
    assert identity.provider == declared.spec.provider
    assert open_provider(declared, edge).identify() == identity
    seen = provider.observe(Scope())[declared.address]
    assert seen.incarnation == identity.cluster_id
    assert isinstance(seen.resource, Cluster)
    assert seen.resource.spec.cluster_id == identity.cluster_id


def test_creating_a_cluster_twice_keeps_the_first(provider: Provider, declared: Cluster, edge: Edge) -> None:
    before = provider.identify()
    (outcome,) = done(open_provider(declared, edge), create(declared))
    assert before is not None
    assert outcome == CompletedAction(f"create:{declared.address}", before.cluster_id)
    assert provider.identify() == before


def test_another_cluster_than_the_declared_one_is_refused(provider: Provider, declared: Cluster, edge: Edge) -> None:
    wanted = declared.spec.model_copy(update={"cluster_id": "67f5505a-32f3-4677-bcad-3c75a1a702a6"})
    other = declared.model_copy(update={"spec": wanted})
    assert "not 67f5505a" in str(refused(open_provider(other, edge), create(other)))
    assert provider.identify() is not None


def test_a_namespace_changes_for_all_below_it(provider: Provider) -> None:
    shop = namespace("shop", retention_ms="7d")
    done(provider, create(shop))
    done(provider, create(topic("orders", "shop")))
    done(provider, update(shop, Change("configs.retention.ms", "604800000", "86400000")))
    assert provider.observe(Scope())["namespace/west/shop"].resource == namespace("shop", retention_ms="1d")
    assert provider.read_source_topic(Address("topic/west/shop:orders")).configs == {"retention.ms": "86400000"}


def test_groups_are_set_back_and_forgotten_only_by_force_while_they_read(provider: Provider) -> None:
    """A group reads as long as it committed within a day: nobody is asked who its members are."""
    done(provider, create(topic("orders")), create(topic("clicks")))
    producer = provider.open_producer(Address("topic/west/orders"))
    producer.append(values("a", "b", "c", "d", partition=[0] * 4))
    producer.flush()
    provider.groups.commit("checkout", {("orders", 0): 3, ("clicks", 1): 0})
    groups = provider.groups
    assert groups.describe("checkout").is_reading
    moves = groups.plan_reset("checkout", ToEarliest(), topic="orders", partition=0)
    assert list(moves) == [OffsetMove("orders", 0, 3, 0)]
    with pytest.raises(BlockedError):
        groups.reset_offsets("checkout", moves)
    groups.reset_offsets("checkout", moves, force=True)
    assert groups.read_committed_offsets("checkout", ["orders"]) == {("orders", 0): 0}
    with pytest.raises(BlockedError):
        groups.delete("checkout")
    assert groups.delete("checkout", "clicks", force=True)
    assert groups.read_committed_offsets("checkout", ["orders", "clicks"]) == {("orders", 0): 0}
    assert groups.delete("checkout", force=True)
    assert not groups.delete("checkout")


def test_a_topic_can_be_written_read_and_measured(provider: Provider) -> None:
    orders = topic("orders")
    done(provider, create(orders))
    address = Address(orders.address)
    sink, log = provider.open_sink(address), provider.open_log(address)
    sink.publish([sink.stage(1, [numbered(0, 4, partition=1)], at=OffsetRange(0, 4))])
    assert rows_of(log.read(1, OffsetRange(0, 10))) == numbered(0, 4, partition=1).to_pylist()
    measure = provider.measure_topics([address])[address]
    assert (measure.records, measure.groups) == (4, None)  # readers are asked for apart
    assert measure.bytes > 0
    assert measure.ages == ((NOW + 3, measure.bytes),)
    assert measure.positions == {1: provider.links.read_positions("orders")[1]}
    assert provider.links.read_positions_of_topics(["none", "orders"]) == {
        "orders": provider.links.read_positions("orders")
    }


def test_what_is_inherited_is_kept_where_it_is_said(provider: Provider) -> None:
    made = [
        namespace("shop", retention_ms="7d"),
        namespace("shop:eu", cleanup_policy="compact"),
        topic("orders", "shop:eu", replicationFactor=1, configs={"retention.ms": "1d"}),
    ]
    for resource in made:
        done(provider, create(resource))
    seen = provider.observe(Scope())
    assert [seen[resource.address].resource for resource in made] == made
    assert "exists with other configs" in str(refused(provider, create(namespace("shop", retention_ms="8d"))))


def test_a_namespace_that_changed_since_is_not_changed_again(provider: Provider) -> None:
    shop = namespace("shop", retention_ms="1d")
    done(provider, create(shop))
    to_2d, to_3d = (Change("configs.retention.ms", "86400000", value) for value in ("172800000", "259200000"))
    for _ in range(2):
        done(provider, update(shop, to_2d))
    assert isinstance(refused(provider, update(shop, to_3d)), StalePlanError)


def test_a_topic_in_a_namespace_that_is_not_there_is_refused(provider: Provider) -> None:
    outcomes = apply(provider, create(topic("a")), create(topic("b", "nowhere")), create(topic("c")))
    assert [type(outcome) for outcome in outcomes.values()] == [CompletedAction, FailedAction, CompletedAction]


def test_a_namespace_that_holds_namespaces_is_not_deleted(provider: Provider) -> None:
    done(provider, create(namespace("shop")), create(namespace("shop:eu")))
    assert "holds namespaces: shop:eu" in str(refused(provider, delete(namespace("shop"))))


def test_replicas_are_a_number(provider: Provider) -> None:
    before = topic("orders", replicationFactor=1)
    done(provider, create(before))
    done(provider, update(before, Change("replicationFactor", 1, 2)))
    assert look(provider)[before.address].resource == topic("orders", replicationFactor=2)


def test_what_exists_with_other_rules_is_not_created(provider: Provider) -> None:
    done(provider, create(topic("orders")))
    rules = [{"principal": "User:a", "operations": ["read"]}]
    assert "exists and differs" in str(refused(provider, create(topic("orders", acls=rules))))


# -- links and mirrors


@pytest.fixture
def linked(provider: Provider) -> Provider:
    assert "mirroring" in provider.capabilities.mirrors.roles
    done(provider, create(link()))
    return provider


def test_a_mirror_takes_from_its_source_what_the_plan_says(linked: Provider) -> None:
    wanted = create(mirror("orders"), partitions=4, configs={"retention.ms": "-1"}, incarnation="north-1")
    (outcome,) = done(linked, wanted)
    assert done(linked, wanted) == [outcome]
    seen = linked.observe(Scope())
    assert seen["link/west/from-north"].resource == link()
    found = seen["mirror/west/orders"]
    assert found.resource == mirror("orders", partitions=4)
    assert (found.state, found.mirror.first_copy_done) == ("ACTIVE", False)
    assert isinstance(outcome, CompletedAction)
    assert found.incarnation == outcome.incarnation
    assert "topic/west/orders" not in seen


def test_a_completed_first_copy_is_remembered(linked: Provider) -> None:
    done(linked, create(mirror("orders"), partitions=1))
    sink = linked.open_sink(Address("topic/west/orders"))
    for _ in range(2):
        sink.mark_complete()
    assert linked.observe(Scope())["mirror/west/orders"].mirror.first_copy_done


def test_a_mirror_needs_to_know_the_partitions_of_its_source(linked: Provider) -> None:
    assert "how many partitions" in str(refused(linked, create(mirror("orders"))))


def test_a_mirror_follows_its_source(linked: Provider, tmp_path: Path, edge: Edge) -> None:
    north = Cluster.model_validate(
        {"metadata": {"name": "north"}, "spec": {"embedded": {"root": f"file://{tmp_path}/north"}}}
    )
    source = open_provider(north, edge)
    done(source, create(north))
    orders = read_resource(
        {"kind": "Topic", "metadata": {"name": "orders", "cluster": "north"}, "spec": {"partitions": 2}}
    )
    done(source, create(orders))
    done(linked, create(mirror("orders"), partitions=2))
    done(source, update(orders, Change("partitions", 2, 6), Change("configs.retention.ms", None, "1d")))

    there = Address("topic/north/orders")
    syncs = require_job_links(linked).syncs
    for _ in range(2):
        assert syncs.update_mirrors({"orders": source.read_source_topic(there)}) == {}
    assert linked.observe(Scope())["mirror/west/orders"].resource == mirror("orders", partitions=6)
    assert linked.read_source_topic(Address("topic/west/orders")).configs == {"retention.ms": "86400000"}

    done(source, delete(orders))
    done(source, create(orders))
    assert "deleted and created again" in str(
        syncs.update_mirrors({"orders": source.read_source_topic(there)})["orders"]
    )


def test_a_mirror_is_bound_to_its_source_and_takes_configs_that_are_not_synced(linked: Provider) -> None:
    mine = mirror("orders", configs={"segment.ms": "1h"})
    done(linked, create(mine, partitions=1, configs={"retention.ms": "-1"}))
    other = mirror("clicks", name="orders")
    assert "exists and differs" in str(refused(linked, create(other, partitions=1)))
    done(linked, update(mine, Change("configs.segment.ms", "3600000", "7200000")))
    synced = update(mine, Change("configs.retention.ms", "-1", "1"))
    assert "follows its source in retention.ms" in str(refused(linked, synced))
    seen = linked.observe(Scope())["mirror/west/orders"].resource
    assert seen == mirror("orders", configs={"segment.ms": "2h"}, partitions=1)


def test_a_mirror_may_be_the_source_of_another(linked: Provider) -> None:
    done(linked, create(mirror("orders"), partitions=2, configs={"retention.ms": "-1"}))
    found = linked.read_source_topic(Address("topic/west/orders"))
    assert (found.partitions, found.configs) == (2, {"retention.ms": "-1"})
    assert found.incarnation == linked.observe(Scope())["mirror/west/orders"].incarnation


def test_the_list_of_synced_configs_can_be_changed(linked: Provider) -> None:
    assert "topic-config-sync" in linked.capabilities.mirrors.features
    listed = [*ALWAYS_SYNCED, "retention.ms"]
    grown = update(link(), Change("topicConfigSync.include", None, tuple(listed)))
    for _ in range(2):
        done(linked, grown)
    assert linked.observe(Scope())["link/west/from-north"].resource == link(topicConfigSync={"include": listed})
    short = update(link(), Change("topicConfigSync.include", tuple(listed), ("retention.ms",)))
    assert "topicConfigSync.include lacks" in str(refused(linked, short))
    done(linked, update(link(), Change("topicConfigSync", {"include": listed}, None)))
    assert linked.observe(Scope())["link/west/from-north"].resource == link()


def test_a_link_that_exists_and_differs_is_not_created_over(linked: Provider) -> None:
    done(linked, create(link()))
    assert "exists and differs" in str(refused(linked, create(link(retryTimeout="1m"))))
    assert isinstance(refused(linked, delete(link(), "another-link")), StalePlanError)


def test_what_it_cannot_do_is_refused_not_ignored(provider: Provider) -> None:
    metadata = {"name": "clicks", "cluster": "west"}
    mounting = read_resource({"kind": "Mounting", "metadata": metadata, "spec": {"state": "mounted"}})
    for action in (create(mounting), update(mounting), delete(mounting)):
        assert f"cannot {action.verb} it" in str(refused(provider, action))
    orders = topic("orders")
    done(provider, create(orders))
    assert "cannot change acls" in str(refused(provider, update(orders, Change("acls", (), ({"a": 1},)))))


def test_a_link_with_mirrors_is_not_deleted(linked: Provider) -> None:
    done(linked, create(mirror("orders"), partitions=1))
    assert "mirrors that are not stopped: orders" in str(refused(linked, delete(link())))
    done(linked, delete(mirror("orders")))
    done(linked, delete(link()))
    assert len(linked.observe(Scope())) == 1


# -- moving


def test_a_move_keeps_the_topic_and_doing_it_twice_does_it_once(provider: Provider) -> None:
    done(provider, create(namespace("us")), create(namespace("eu")))
    before, after = topic("orders", "us"), topic("orders", "eu", replicationFactor=1)
    (made,) = done(provider, create(before))
    move = Transition(
        address=after.address,
        machine="topic",
        verb="move",
        from_state="us:orders",
        to_state="eu:orders",
        after=after,
        parameters={"from": before.address},
    )
    assert isinstance(made, CompletedAction)
    assert provider.capabilities.topic_move
    for _ in range(2):
        assert done(provider, move) == [CompletedAction(move.id, made.incarnation)]
    seen = provider.observe(Scope())
    assert before.address not in seen
    assert seen[after.address].resource == after


def test_a_move_it_does_not_know_is_refused(provider: Provider) -> None:
    wanted = topic("orders")
    done(provider, create(wanted))
    promote = Transition(
        address=wanted.address, machine="mirror", verb="promote", from_state="ACTIVE", to_state="STOPPED", after=wanted
    )
    assert "cannot promote it" in str(refused(provider, promote))


def test_migrations_that_are_not_there_cannot_be_asked_for_and_nothing_lies_where_there_is_no_storage(
    provider: Provider,
) -> None:
    assert provider.migrations.list_unfinished() == []
    with pytest.raises(UserError, match="Data migration does not exist"):
        provider.migrations.request_verb(7, "cancel")
    for ask in (
        lambda: list(provider.migrations.list_detached_topics()),
        lambda: provider.migrations.read_releasable_topic("a/b/1", "b"),
    ):
        with pytest.raises(UserError, match="has no object storage"):
            ask()


# -- mounting


@pytest.mark.fact("F-R-102", "F-R-103")
def test_a_topic_is_unmounted_and_mounted_again_and_doing_it_twice_does_it_once(root: str, edge: Edge) -> None:
    spec = {"embedded": {"root": f"{root}/root"}, "objectStorage": f"{root}/bucket"}
    properties = {"cloud_storage_enabled": "true"}
    declared = Cluster.model_validate({"metadata": {"name": "west"}, "spec": {**spec, "properties": properties}})
    provider = open_provider(declared, edge)
    tiered = topic("orders", configs={"remote.write": "true", "remote.read": "true"})
    done(provider, create(declared))
    done(provider, create(tiered))
    sink = provider.open_sink(tiered.address)
    sink.publish([sink.stage(0, [numbered(0, 10)], at=OffsetRange(0, 10))])
    before = provider.observe(Scope())[tiered.address]
    assert before.topic.legacy is not None
    location = before.topic.legacy.location
    unmount = transition("unmount", "orders", location)
    assert done(provider, unmount) == done(open_provider(declared, edge), unmount)
    assert tiered.address not in provider.observe(Scope())
    assert [(each.location, each.state) for each in provider.archives.list_mountable_topics()] == [
        (location, "detached")
    ]
    mount = transition("mount", "orders", location, alias="orders-2025")
    assert done(provider, mount) == done(open_provider(declared, edge), mount)
    seen = provider.observe(Scope())
    assert [address for address in seen if address.startswith(("topic/", "mounting/"))] == ["topic/west/orders-2025"]
    found = rows_of(provider.open_log(Address("topic/west/orders-2025")).read(0, OffsetRange(0, 10)))
    assert [row["offset"] for row in found] == list(range(10))


def transition(verb: str, name: str, location: str, *, alias: str | None = None) -> Transition:
    aliased = {} if alias is None else {"as": alias}
    state = f"{verb}ed"
    after = read_resource(
        {
            "kind": "Mounting",
            "metadata": {"name": name, "cluster": "west"},
            "spec": {"state": state, "source": location, **aliased},
        }
    )
    return Transition(
        address=after.address,
        machine=verb,
        verb=verb,
        from_state="mounted" if verb == "unmount" else "unmounted",
        to_state=state,
        after=after,
        parameters={"source": location, **aliased},
    )
