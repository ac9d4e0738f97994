"""What every provider must do, over every implementation: the same tests on our clusters and on real brokers.

Names it uses are legal on all platforms.
"""

from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from reconciler.errors import StalePlanError, UserError
from reconciler.planning.actions import START_OFFSETS, Change, Update
from reconciler.planning.fields import list_fields
from reconciler.providers.brokers import vitals as kafka_vitals
from reconciler.providers.confluent.provider import ConfluentProvider
from reconciler.providers.embedded import measures as embedded_vitals
from reconciler.providers.protocol import CompletedAction, Edge, FailedAction, Provider, Scope
from reconciler.providers.registry import open_provider
from reconciler.records.log import OffsetRange
from reconciler.resources import measures
from reconciler.resources.address import Address
from reconciler.resources.cluster import Cluster
from reconciler.resources.groups import OffsetMove, ToEarliest
from reconciler.resources.inventory import read_resource
from reconciler.resources.measures import GroupLag
from reconciler.resources.owners import OwnerChange, ResourceOwner
from tests.contracts import confluent, redpanda
from tests.contracts.names import is_own, own
from tests.contracts.native import declared_as_native, native_platform
from tests.contracts.providers import apply, create, delete, done, inputs, look, namespace, refused, topic, update
from tests.embedded.samples import NOW, ids, rows_of
from tests.servers.brokers import emptied

NAMES = itertools.count()
ORDERS, CLICKS, CHECKOUT = own("orders"), own("clicks"), own("checkout")
AT = topic("orders").address
BROKERS = ("kafka_broker", "kafka_39")
ON_BROKERS = ("kafka_broker", pytest.param("kafka_39", marks=pytest.mark.thorough))


ON_VENDORS = [
    pytest.param(name, marks=[pytest.mark.thorough, pytest.mark.xdist_group(name.partition("_")[0])])
    for name in ("redpanda", "confluent", "confluent_platform")
]
SECRETS = {**redpanda.SECRETS, **confluent.SECRETS}


@pytest.fixture(params=["memory", "file", "s3", "native", *ON_BROKERS, *ON_VENDORS])
def declared(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    match request.param:
        case "memory":
            root = f"memory://provider-{next(NAMES)}"
        case "file":
            root = f"file://{tmp_path}/west"
        case "native":
            native_platform(monkeypatch)
            spec = declared_as_native(f"provider-{next(NAMES)}")
            return Cluster.model_validate({"metadata": {"name": "west"}, "spec": spec})
        case "s3":
            request.getfixturevalue("s3_environ")
            root = request.getfixturevalue("s3_server").url("provider")
        case "redpanda":
            server = request.getfixturevalue("redpanda")
            redpanda.empty(server)
            return redpanda.declared_on_redpanda("west", server)
        case "confluent" | "confluent_platform":
            server = request.getfixturevalue(request.param)[0]
            emptied(server.kafka)
            return confluent.declared_on_confluent("west", server)
        case _:
            servers = [emptied(request.getfixturevalue(request.param).bootstrap())]
            return Cluster.model_validate(
                {"metadata": {"name": "west"}, "spec": {"provider": "kafka", "kafka": {"bootstrapServers": servers}}}
            )
    return Cluster.model_validate({"metadata": {"name": "west"}, "spec": {"embedded": {"root": root}}})


@pytest.fixture
def provider(declared: Cluster, tmp_path: Path) -> Provider:
    edge = Edge(folder=tmp_path, environ=SECRETS, new_id=ids(), now_ms=lambda: NOW)
    provider = open_provider(declared, edge)
    if provider.capabilities.creates_cluster:
        done(provider, create(declared))
    return provider


@pytest.fixture
def replicas(provider: Provider) -> int:
    """Return the replication factor that the cluster gives to topics."""
    return 3 if isinstance(provider, ConfluentProvider) else 1


def test_a_cluster_answers_with_its_id(provider: Provider, declared: Cluster) -> None:
    identity = provider.identify()
    assert identity is not None
    assert identity.provider == declared.spec.provider
    assert provider.identify() == identity
    seen = provider.observe(Scope())[declared.address]
    assert seen.incarnation == identity.cluster_id
    assert isinstance(seen.resource, Cluster)
    assert seen.resource.spec.cluster_id == identity.cluster_id


# -- observing


def test_observing_gives_back_what_was_created(provider: Provider, replicas: int) -> None:
    made = [
        namespace("shop"),
        namespace("shop:eu"),
        topic(
            "orders", "shop:eu", replicationFactor=replicas, configs={"retention.ms": "1d", "segment.bytes": "64MiB"}
        ),
        topic("plain", replicationFactor=replicas),
    ]
    for resource in made:
        done(provider, create(resource))
    seen = look(provider, *made)
    for resource in made:
        assert seen[resource.address].resource == resource
    assert len(seen) == len(made) + 1


def test_observing_changes_nothing_and_is_repeatable(provider: Provider) -> None:
    done(provider, create(topic("orders")))
    assert look(provider) == look(provider)


def test_a_scope_limits_what_is_observed(provider: Provider) -> None:
    done(provider, create(topic("orders")), create(topic("clicks")))
    seen = provider.observe(Scope((f"topic/*/{own('ord')}*",)))
    assert list(seen) == [AT]


# -- creating, updating, deleting


def test_doing_an_action_twice_does_it_once(provider: Provider) -> None:
    wanted = create(topic("orders"))
    assert done(provider, wanted) == done(provider, wanted)
    assert len(look(provider)) == 2


def test_what_exists_and_differs_is_not_created_over(provider: Provider, replicas: int) -> None:
    done(provider, create(topic("orders")))
    for other in (topic("orders", partitions=4), topic("orders", configs={"retention.ms": "1d"})):
        assert "exists and differs" in str(refused(provider, create(other)))
    assert look(provider)[AT].resource == topic("orders", replicationFactor=replicas)


def test_a_batch_has_one_outcome_for_each_action_and_failures_stand_for_themselves(provider: Provider) -> None:
    missing = update(topic("b"), Change("partitions", 3, 5))
    outcomes = apply(provider, create(topic("a")), missing, create(topic("c")))
    assert [type(outcome) for outcome in outcomes.values()] == [CompletedAction, FailedAction, CompletedAction]
    assert {topic("a").address, topic("c").address} < set(look(provider))


def test_updates_change_only_what_they_name(provider: Provider, replicas: int) -> None:
    before = topic("orders", configs={"retention.ms": "1d", "segment.bytes": "64MiB"}, replicationFactor=replicas)
    done(provider, create(before))
    done(
        provider,
        update(
            before,
            Change("configs.retention.ms", "86400000", "172800000"),
            Change("configs.segment.bytes", "67108864", None),
            Change("configs.cleanup.policy", None, "compact"),
            Change("partitions", 3, 5),
        ),
    )
    configs = {"retention.ms": "2d", "cleanup.policy": "compact"}
    wanted = topic("orders", partitions=5, replicationFactor=replicas, configs=configs)
    assert look(provider)[AT].resource == wanted


def test_a_change_decided_on_what_has_changed_since_is_refused(provider: Provider) -> None:
    orders = topic("orders", configs={"retention.ms": "1d"})
    done(provider, create(orders))
    to_2d, to_3d = (Change("configs.retention.ms", "86400000", value) for value in ("172800000", "259200000"))
    for _ in range(2):
        done(provider, update(orders, to_2d))
    error = refused(provider, update(orders, to_3d))
    assert isinstance(error, StalePlanError)
    assert "configs.retention.ms is '172800000' now, not '86400000'" in str(error)
    done(provider, update(orders, Change("partitions", 3, 5)))
    assert isinstance(refused(provider, update(orders, Change("partitions", 3, 6))), StalePlanError)


def test_partitions_never_shrink(provider: Provider) -> None:
    before = topic("orders")
    done(provider, create(before))
    assert "fewer" in str(refused(provider, update(before, Change("partitions", 3, 2))))


def test_a_value_that_cannot_be_is_refused_and_nothing_of_its_action_is_done(provider: Provider, replicas: int) -> None:
    before = topic("orders")
    done(provider, create(before))
    changes = (Change("partitions", 3, 5), Change("configs.retention.ms", None, "soon"))
    assert "retention.ms" in str(refused(provider, update(before, *changes)))
    assert look(provider)[AT].resource == topic("orders", replicationFactor=replicas)


def test_access_rules_are_made_with_what_they_lie_on_and_changed_one_by_one(provider: Provider, replicas: int) -> None:
    rule = {"principal": "User:a", "operations": ["write", "read"]}
    orders = topic("orders", replicationFactor=replicas, acls=[rule, rule])
    shop = read_resource(
        {
            "kind": "Namespace",
            "metadata": {"name": own("shop"), "cluster": "west"},
            "spec": {
                "acls": [
                    {
                        **rule,
                        "operations": ["read", "describe"],
                        "permission": "deny",
                        "resources": ["groups"],
                        "names": ["pay-*"],
                        "host": "10.0.0.7",
                    }
                ]
            },
        }
    )
    for _ in range(2):
        done(provider, create(orders), create(shop))
    seen = look(provider, shop)
    assert list_fields(seen[orders.address].resource) == list_fields(orders)
    assert seen[shop.address].resource == shop
    changes = (
        Change("acls.allow User:a", ("read", "write"), ("read",)),
        Change("acls.deny User:b from 10.0.0.7", None, ("all",)),
    )
    for _ in range(2):
        done(provider, update(orders, *changes))
    done(
        provider,
        update(shop, Change("acls.deny User:a from 10.0.0.7 on groups named pay-*", ("describe", "read"), None)),
    )
    seen = look(provider, shop)
    rules = {path: value for path, value in list_fields(seen[orders.address].resource).items() if "acls" in path}
    assert rules == {"acls.allow User:a": ("read",), "acls.deny User:b from 10.0.0.7": ("all",)}
    assert seen[shop.address].resource == namespace("shop")


def test_a_rule_that_was_changed_since_is_not_changed_again(provider: Provider) -> None:
    orders = topic("orders", acls=[{"principal": "User:a", "operations": ["read"]}])
    done(provider, create(orders))
    done(provider, update(orders, Change("acls.allow User:a", ("read",), ("all",))))
    error = refused(provider, update(orders, Change("acls.allow User:a", ("read",), None)))
    assert isinstance(error, StalePlanError)


def test_deleting_is_repeatable(provider: Provider) -> None:
    shop, orders = namespace("shop"), topic("orders", "shop")
    done(provider, create(shop))
    done(provider, create(orders))
    for _ in range(2):
        done(provider, delete(orders))
        done(provider, delete(shop))
    assert set(look(provider)) == {"cluster/west"}


def test_a_delete_is_bound_to_what_was_looked_at(provider: Provider) -> None:
    orders = topic("orders")
    (first,) = done(provider, create(orders))
    assert isinstance(first, CompletedAction)
    done(provider, delete(orders, first.incarnation))
    (second,) = done(provider, create(orders))
    assert isinstance(second, CompletedAction)
    assert second.incarnation not in {None, first.incarnation}
    assert isinstance(refused(provider, delete(orders, first.incarnation)), StalePlanError)
    assert look(provider)[orders.address].incarnation == second.incarnation


def test_a_namespace_that_holds_anything_is_not_deleted_unless_it_is_nothing_but_rules(provider: Provider) -> None:
    done(provider, create(namespace("shop")), create(namespace("shop:eu")))
    done(provider, create(topic("orders", "shop:eu")))
    if provider.capabilities.namespaces_are_rules:
        done(provider, delete(namespace("shop:eu")))
        assert topic("orders", "shop:eu").address in look(provider)
    else:
        assert "holds topics: shop:eu:orders" in str(refused(provider, delete(namespace("shop:eu"))))
    done(provider, delete(topic("orders", "shop:eu")))
    done(provider, delete(namespace("shop:eu")), delete(namespace("shop")))


# -- groups


OWNED = ("topic/orders", "namespace/shop", "topic/shop:orders", "link/east")
"""Keys of all kinds."""
ANNA = ResourceOwner.create("anna", None, "lineage-a", "s3://key:secret@bucket/anna")
BOB = ResourceOwner.create("bob", "prod", "lineage-b", "file:///srv/bob")


def owned(provider: Provider) -> dict[str, str]:
    """Return which workspace owns what, as a new look at the cluster has it."""
    address = Address("cluster/west")
    found = provider.observe(Scope(recorded=frozenset({Address("namespace/west/shop")})))[address].cluster.owners
    return {} if found is None else {key: str(found.find_owner(key)) for key in sorted(found.lineages_by_key)}


def test_who_owns_what_is_observed_with_the_cluster_until_it_is_free_again(provider: Provider) -> None:
    assert owned(provider) == {}
    assert provider.record_owners(OwnerChange(ANNA, dict.fromkeys(OWNED))) == {}
    assert owned(provider) == dict.fromkeys(sorted(OWNED), "workspace 'anna' (state s3://bucket/anna)")
    assert provider.record_owners(OwnerChange(ANNA, keep=OWNED[:1])) == {}
    assert list(owned(provider)) == ["topic/orders"]
    assert provider.record_owners(OwnerChange(ANNA)) == {}
    assert owned(provider) == {}


def test_what_another_owns_is_taken_from_it_by_name_alone_and_else_nothing_is(provider: Provider) -> None:
    provider.record_owners(OwnerChange(ANNA, {"topic/orders": None}))
    assert provider.record_owners(OwnerChange(BOB, dict.fromkeys(OWNED))) == {"topic/orders": ANNA}
    assert list(owned(provider)) == ["topic/orders"], "nothing was taken"
    assert provider.record_owners(OwnerChange(BOB, {"topic/other": None}, keep=OWNED[:2])) == {}
    assert owned(provider)["topic/orders"] == str(ANNA), "keeping takes nothing from another"
    assert provider.record_owners(OwnerChange(BOB, {"topic/orders": ANNA}, keep=OWNED)) == {}
    assert owned(provider)["topic/orders"] == "workspace 'bob' in environment 'prod' (state file:///srv/bob)"
    assert provider.record_owners(OwnerChange(ANNA, {"topic/orders": ANNA})) == {"topic/orders": BOB}


@pytest.mark.thorough
def test_of_many_that_take_one_topic_at_once_one_wins_and_all_others_are_told(
    provider: Provider, declared: Cluster, tmp_path: Path
) -> None:
    edge = Edge(folder=tmp_path, environ=SECRETS, new_id=ids(), now_ms=lambda: NOW)
    racers = [ResourceOwner.create(f"team-{number}", None, f"lineage-{number}", "memory://x") for number in range(4)]

    def race(racer: ResourceOwner) -> bool:
        own = open_provider(declared, edge)
        return not own.record_owners(OwnerChange(racer, {"topic/orders": None, f"topic/{racer.workspace}": None}))

    with ThreadPoolExecutor(len(racers)) as threads:
        won = list(threads.map(race, racers))
    (winner,) = [racer for racer, has_won in zip(racers, won, strict=True) if has_won]
    assert owned(provider) == dict.fromkeys(["topic/orders", f"topic/{winner.workspace}"], str(winner))


def test_what_is_owned_already_is_not_written_again(provider: Provider) -> None:
    provider.record_owners(OwnerChange(ANNA, dict.fromkeys(OWNED)))
    there = look(provider)
    assert provider.record_owners(OwnerChange(ANNA, dict.fromkeys(OWNED), keep=OWNED)) == {}
    assert look(provider) == there


@pytest.fixture
def grouped(provider: Provider) -> Provider:
    """A topic with four records in its first partition, of which a group has read three."""
    done(provider, create(topic("orders")), create(topic("clicks")))
    producer = provider.open_producer(AT)
    producer.append(inputs("a", "b", "c", "d", partition=0))
    producer.flush()
    provider.groups.commit(CHECKOUT, {(ORDERS, 0): 3, (CLICKS, 1): 0})
    return provider


def test_groups_are_listed_described_and_read_on(grouped: Provider) -> None:
    groups = grouped.groups
    assert [name for name in groups.list_names() if is_own(name)] == [CHECKOUT]
    found = groups.describe(CHECKOUT)
    assert [(row.topic, row.partition, row.lag) for row in found.offsets if row.committed is not None] == [
        (CLICKS, 1, 0),
        (ORDERS, 0, 1),
    ]
    assert groups.read_committed_offsets(CHECKOUT, [ORDERS]) == {(ORDERS, 0): 3}
    assert groups.read_committed_offsets(own("nobody"), [ORDERS]) == {}
    with pytest.raises(UserError, match=f"group {own('nobody')} does not exist"):
        groups.describe(own("nobody"))


def test_a_topic_tells_who_reads_it(grouped: Provider) -> None:
    (found,) = grouped.groups.list_for_topic(ORDERS) or ()
    assert (found.name, found.lag, {row.topic for row in found.offsets}) == (CHECKOUT, 1, {ORDERS})
    reading = grouped.groups.find_topic_readers()
    assert reading is not None
    assert {name: tuple(groups) for name, groups in reading.items() if is_own(name)} == {
        ORDERS: (CHECKOUT,),
        CLICKS: (CHECKOUT,),
    }


def test_offsets_of_what_is_not_there_are_refused(grouped: Provider) -> None:
    for place in ((ORDERS, 3), (own("none"), 0)):
        with pytest.raises(UserError):
            grouped.groups.commit(CHECKOUT, {place: 0})


# -- records


def test_groups_are_set_back_and_forgotten(grouped: Provider) -> None:
    groups = grouped.groups
    moves = groups.plan_reset(CHECKOUT, ToEarliest(), topic=ORDERS, partition=0)
    assert list(moves) == [OffsetMove(ORDERS, 0, 3, 0)]
    groups.reset_offsets(CHECKOUT, moves, force=True)
    assert groups.read_committed_offsets(CHECKOUT, [ORDERS]) == {(ORDERS, 0): 0}
    assert groups.delete(CHECKOUT, CLICKS, force=True)
    assert groups.read_committed_offsets(CHECKOUT, [ORDERS, CLICKS]) == {(ORDERS, 0): 0}
    assert groups.delete(CHECKOUT, force=True)
    assert not groups.delete(CHECKOUT)


def trim(**offsets: tuple[int, int]) -> Update:
    """Return a trim of the topic: first offsets before and after by partition."""
    changes = (Change(f"{START_OFFSETS}{number[1:]}", *sides) for number, sides in offsets.items())
    return update(topic("orders"), *changes)


def test_a_trim_deletes_the_first_records_of_partitions_and_may_be_repeated(grouped: Provider) -> None:
    writer = grouped.open_producer(AT)
    writer.append(inputs("e", "f", partition=2))
    writer.flush()
    for _ in range(2):
        done(grouped, trim(p0=(0, 3), p2=(0, 2)))
        log = grouped.open_log(AT)
        assert {number: (at.start, at.end) for number, at in log.read_bounds().items()} == {
            0: (3, 4),
            1: (0, 0),
            2: (2, 2),
        }
        assert [row["value"] for row in rows_of(log.read(0, OffsetRange(3, 4)))] == [b"d"]
    assert grouped.groups.read_committed_offsets(CHECKOUT, [ORDERS]) == {(ORDERS, 0): 3}
    done(grouped, trim(p0=(3, 1)))
    assert grouped.open_log(AT).read_bounds()[0].start == 3


def test_a_trim_of_a_topic_that_is_gone_fails_and_names_it(provider: Provider) -> None:
    done(provider, create(topic("orders")))
    done(provider, delete(topic("orders")))
    assert own("orders") in refused(provider, trim(p0=(0, 1))).message


def test_a_topic_that_was_written_is_measured(provider: Provider) -> None:
    orders = topic("orders")
    done(provider, create(orders))
    producer = provider.open_producer(orders.address)
    producer.append(inputs("a", "b", "c", "d", partition=1))
    producer.flush()
    measure = provider.measure_topics([orders.address])[orders.address]
    assert measure.records == 4
    assert measure.bytes > 0
    assert {number: (at.start, at.end) for number, at in measure.positions.items()} == {1: (0, 4)}
    standing = provider.describe_topic(orders.address)
    assert {number: each.end for number, each in standing.bounds.items()} == {0: 0, 1: 4, 2: 0}


@pytest.mark.emulated("counts all topics and groups of a cluster")
def test_instruments_say_what_topics_hold_and_what_groups_have_still_to_read(grouped: Provider) -> None:
    writer = grouped.open_producer(AT)
    writer.append(inputs("e", partition=2))
    writer.flush()
    vitals = grouped.read_vitals()
    assert (vitals.topics, vitals.partitions, vitals.unmeasured) == (2, 6, 0)
    clicks, orders = vitals.measured
    assert clicks[:6] == (topic("clicks").address, 3, 0, 0, 0, 0)
    assert orders[:5] == (AT, 3, 0, 5, 5)
    assert (orders.bytes or 0) > 0
    assert {number: at.end for number, at in orders.partition_vitals.items()} == {0: 4, 2: 1}
    newest = [at.newest_ms for at in orders.partition_vitals.values()]
    if grouped.capabilities.platform == "redpanda":  # whose brokers cannot tell it (redpanda.md, R3)
        assert newest == [None, None]
    else:
        assert all(at is not None and at > NOW - 1000 for at in newest)
    assert clicks.partition_vitals == {}
    assert list(vitals.lags) == [GroupLag(CHECKOUT, CLICKS, 0), GroupLag(CHECKOUT, ORDERS, 1)]
    assert (vitals.groups, vitals.unmeasured_groups, vitals.open_transactions) == (1, 0, 0)


@pytest.mark.emulated("counts all topics and groups of a cluster")
def test_what_is_measured_is_bounded(grouped: Provider, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, bound in (("TOPICS", 2), ("PARTITIONS", 4)):
        monkeypatch.setattr(measures, f"_MAX_{name}", bound)
    for module, name in itertools.product((kafka_vitals, embedded_vitals), ("GROUPS", "LAGS")):
        monkeypatch.setattr(module, f"{name}_MEASURED", 1)
    done(grouped, create(topic("a", partitions=1)), create(topic("z", partitions=1)))
    grouped.groups.commit(own("other"), {(own("a"), 0): 0})
    found = grouped.read_vitals()
    assert [each.address for each in found.measured] == [topic("a").address, topic("clicks").address]
    assert (found.topics, found.partitions, found.unmeasured) == (4, 8, 2)
    assert (found.groups, found.unmeasured_groups, list(found.lags)) == (2, 1, [GroupLag(CHECKOUT, CLICKS, 0)])


def test_what_is_not_there_is_not_measured_and_has_no_log(provider: Provider) -> None:
    nowhere = Address(f"topic/west/{own('nowhere')}")
    assert provider.measure_topics([nowhere]) == {}
    for ask in (provider.open_log, provider.read_source_topic, provider.describe_topic):
        with pytest.raises(UserError, match=r"nowhere does not exist"):
            ask(nowhere)


def test_new_records_go_in_through_a_producer_of_the_topic(provider: Provider) -> None:
    done(provider, create(topic("orders")))
    producer = provider.open_producer(AT)
    producer.append(inputs("a", "b", partition=1))
    assert producer.flush() == {1: OffsetRange(0, 2)}
    assert producer.flush() == {}
    assert [row["value"] for row in rows_of(provider.open_log(AT).read(1, OffsetRange(0, 2)))] == [b"a", b"b"]


@pytest.mark.emulated("creates 1,600 partitions")
@pytest.mark.thorough
def test_measuring_is_not_bounded_by_what_was_never_written_to(provider: Provider) -> None:
    wide = [topic(f"wide-{number}", partitions=400) for number in range(4)]
    done(provider, *map(create, wide))
    found = provider.measure_topics([one.address for one in wide])
    assert [found[one.address].bytes for one in wide] == [0, 0, 0, 0]
