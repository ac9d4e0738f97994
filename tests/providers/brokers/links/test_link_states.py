"""What drives transitions and passes over links on any platform, with a Kafka destination; sources of both kinds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import count
from pathlib import Path

import pytest
from confluent_kafka import Producer

from reconciler.embedded.cluster import EmbeddedCluster
from reconciler.errors import UserError
from reconciler.lifecycles import LinkStatus, MirrorStatus
from reconciler.objectstore.memory import MemoryStore
from reconciler.operations.steps.link_pass import FinalSync, LinkPass, sync_link_groups, sync_links
from reconciler.operations.steps.link_sides import LinkMemory, LinkOutcome
from reconciler.operations.steps.mirror_copy import Copier
from reconciler.operations.steps.transitions import TransitionDriver
from reconciler.planning.actions import Create
from reconciler.providers.brokers.client import create_bindings
from reconciler.providers.embedded.provider import EmbeddedProvider
from reconciler.providers.protocol import Edge, Provider
from reconciler.resources.acls import AccessBinding
from reconciler.resources.address import address_of
from reconciler.resources.cluster import Cluster
from reconciler.resources.mirrors import AccessRules, ObservedMirror, Operation
from tests.embedded.samples import ids
from tests.engines import here
from tests.providers.brokers.links.linked import EAST, NOW_MS, PREFIX, WEST, Linked
from tests.servers.kafka import Kafka

pytestmark = pytest.mark.soak  # minutes: brokers are started, killed and asked by whole commands


_M = MirrorStatus


@dataclass
class Driven:
    """A link from `west` to a Kafka cluster `east`, and who drives it."""

    linked: Linked
    providers: Mapping[str, Provider]

    @property
    def copier(self) -> Copier:
        return Copier(self.providers, here())

    def driver(self) -> TransitionDriver:
        def copy(mirror: ObservedMirror, ends: Mapping[int, int] | None) -> object:
            return self.copier.copy(mirror, ends)

        return TransitionDriver(self.providers, copy, FinalSync(self.providers), ids())

    @property
    def over(self) -> LinkPass:
        clock = count(NOW_MS)
        return LinkPass(EAST, self.providers, LinkMemory(), lambda: next(clock))

    def run(self) -> LinkOutcome:
        found = {each.link: each for each in sync_links(self.over, self.driver()) if each.link == self.linked.link}
        return found[self.linked.link]

    def bring(self) -> LinkOutcome:
        (found,) = sync_link_groups(self.over, [self.linked.link])
        return found


@pytest.fixture
def driven(kafka_broker: Kafka, kafka_prefix: str) -> Driven:
    linked = Linked.of(kafka_broker, kafka_prefix)
    return Driven(linked, {EAST: linked.east, WEST: linked.west})


@pytest.fixture
def from_embedded(kafka_broker: Kafka, kafka_prefix: str) -> Iterator[Driven]:
    store, new_id, ticks = MemoryStore(), ids(), count(NOW_MS)
    cluster = EmbeddedCluster.create(store, now_ms=lambda: next(ticks), new_id=new_id)
    linked = Linked.of(kafka_broker, kafka_prefix, make=False)
    cluster.create_topic(linked.topic, partitions=2)
    spec = {"embedded": {"root": "memory://west"}}
    declared = Cluster.model_validate({"metadata": {"name": WEST}, "spec": spec})
    west = EmbeddedProvider(declared, store, Edge(Path(), {}, new_id, lambda: next(ticks)))
    linked.source = west
    return Driven(linked, {EAST: linked.east, WEST: west})  # type: ignore[return-value]


@pytest.fixture(params=["driven", "from_embedded"])
def either(request: pytest.FixtureRequest) -> Driven:
    found: Driven = request.getfixturevalue(request.param)
    return found


@pytest.mark.fact("F-C-063")
def test_a_promotion_copies_all_there_is_and_then_the_mirror_is_a_topic(either: Driven) -> None:
    linked = either.linked
    linked.make_mirror()
    _write(either, [b"a", b"b", b"c"])
    assert either.driver().promote(EAST, linked.mirror).status is _M.STOPPED
    assert linked.seen.stopped_by == "promote"
    assert linked.values(linked.mirror) == [b"a", b"b", b"c"]
    assert either.driver().drive(EAST, linked.mirror).status is _M.STOPPED


def test_nothing_is_copied_after_a_failover(either: Driven) -> None:
    linked = either.linked
    linked.make_mirror()
    _write(either, [b"a"])
    seen = linked.seen
    either.copier.copy(seen)
    linked.links.request_verb(linked.mirror, "failover")
    _write(either, [b"b"])
    assert not either.copier.copy(seen).is_whole
    assert linked.values(linked.mirror) == [b"a"]


def test_a_first_copy_is_noted_once(driven: Driven) -> None:
    driven.linked.make_mirror()
    _write(driven, [b"a"])
    driven.copier.copy(driven.linked.seen)
    assert driven.linked.seen.first_copy_done
    assert driven.linked.observe()[driven.linked.address].mirror.first_copy_done


HOUR_MS = 3_600_000


@pytest.mark.fact("F-C-096")
@pytest.mark.parametrize(
    ("start", "values"),
    [("earliest", [b"old", b"young", b"after"]), ("latest", [b"after"]), ("an hour ago", [b"young", b"after"])],
)
def test_a_new_mirror_begins_where_its_link_says(
    kafka_broker: Kafka, kafka_prefix: str, start: str, values: list[bytes]
) -> None:
    if start == "an hour ago":
        start = datetime.fromtimestamp((NOW_MS - HOUR_MS) // 1000, UTC).isoformat()
    linked = Linked.of(kafka_broker, kafka_prefix, startOffset=start)
    driven = Driven(linked, {EAST: linked.east, WEST: linked.west})
    producer = Producer({"bootstrap.servers": kafka_broker.bootstrap()})
    for value, age in ((b"old", 2 * HOUR_MS), (b"young", 0)):
        producer.produce(linked.topic, value=value, partition=0, timestamp=NOW_MS - age)
    assert producer.flush(30) == 0
    linked.make_mirror()
    driven.copier.copy(linked.seen)
    _write(driven, [b"after"])
    driven.copier.copy(linked.seen)
    assert linked.values(linked.mirror) == values


def test_a_restore_is_refused_over_a_link_of_one_direction(driven: Driven) -> None:
    linked = driven.linked
    linked.make_mirror()
    linked.links.request_verb(linked.mirror, "failover")
    with pytest.raises(UserError, match="its link is not bidirectional") as raised:
        linked.links.convert_to_mirror(linked.topic, linked.seen, Operation("op", "truncate-and-restore"))
    assert "link the other way" in raised.value.hint


@pytest.mark.fact("F-C-004")
def test_a_pass_makes_the_mirrors_that_filters_take_and_brings_their_groups(
    kafka_broker: Kafka, kafka_prefix: str
) -> None:
    filters = [{"name": kafka_prefix, "patternType": "prefixed"}]
    linked = Linked.of(
        kafka_broker,
        kafka_prefix,
        autoCreate={"enabled": True, "filters": filters},
        consumerOffsetSync={"enabled": True, "filters": filters},
    )
    driven = Driven(linked, {EAST: linked.east, WEST: linked.west})
    done = driven.run()
    assert (done.status, done.errors) == (LinkStatus.ACTIVE, {})
    assert linked.seen.is_automatic
    _write(driven, [b"a", b"b"])
    driven.copier.copy(linked.seen)
    group = f"{kafka_prefix}-group"
    linked.west.groups.commit(group, {(linked.topic, 0): 1})
    assert driven.bring().done == {"ConsumerOffsetSync": 1}
    there = linked.east.groups.read_committed_offsets(group, [linked.mirror])[linked.mirror, 0]
    assert linked.values(linked.mirror, 0, there) == [b"b"]
    assert driven.run().errors == {}
    assert driven.bring().done == {"ConsumerOffsetSync": 0}


def test_a_mirror_whose_source_was_made_anew_fails(driven: Driven) -> None:
    linked = driven.linked
    linked.make_mirror()
    linked.west._client.admin.delete_topics([linked.topic])
    linked.wait(lambda: linked.topic not in linked.site.read_topics())
    linked.make_topic(linked.topic)
    assert driven.run().failed == (linked.mirror,)
    assert linked.seen.status is _M.FAILED


def test_the_source_of_a_link_is_the_cluster_it_was_made_to(driven: Driven) -> None:
    driven.linked.make_mirror()
    driven.run()
    (link,) = [each for each in driven.linked.links.list_links() if each.name == driven.linked.link]
    identity = driven.linked.west.identify()
    assert link.source_cluster_id == identity.cluster_id


@pytest.mark.parametrize("prefix", [PREFIX])
def test_versions_stay_while_only_records_come(driven: Driven, prefix: str) -> None:
    driven.linked.make_mirror()
    syncs = driven.linked.links.syncs
    before = syncs.read_metadata_version()
    _write(driven, [b"a"])
    assert syncs.read_metadata_version() == before
    driven.linked.links.request_verb(prefix + driven.linked.topic, "pause")
    assert syncs.read_metadata_version() != before


def test_access_rules_come_and_go_with_those_of_the_source(kafka_broker: Kafka, kafka_prefix: str) -> None:
    linked = Linked.of(kafka_broker, kafka_prefix)
    linked.make_mirror()
    syncs = linked.links.syncs
    path = "acls.allow User:reader"
    own = "acls.allow User:stays"
    _bind(linked, "User:stays")
    wanted = AccessRules({linked.topic: {path: ("describe", "read")}})
    assert syncs.sync_rules(linked.link, wanted) == 1
    linked.wait(lambda: path in syncs.list_access_rules().topics.get(linked.mirror, {}))
    assert syncs.list_access_rules().topics[linked.mirror] == {path: ("describe", "read"), own: ("read",)}
    assert syncs.sync_rules(linked.link, wanted) == 0
    assert syncs.sync_rules(linked.link, AccessRules({linked.topic: {own: ("read",)}})) == 1
    linked.wait(lambda: path not in syncs.list_access_rules().topics[linked.mirror])
    assert syncs.sync_rules(linked.link, AccessRules()) == 0
    assert syncs.list_access_rules().topics[linked.mirror] == {own: ("read",)}


def _bind(linked: Linked, principal: str) -> None:
    binding = AccessBinding("topics", linked.mirror, False, principal, "*", "read", "allow")  # noqa: FBT003 - it has a name
    create_bindings(linked.site.client, [binding])
    linked.wait(lambda: linked.mirror in linked.links.syncs.list_access_rules().topics)


def _write(driven: Driven, values: list[bytes]) -> None:
    source = driven.providers[WEST]
    if isinstance(source, EmbeddedProvider):
        producer = source._open_cluster().producer()
        for value in values:
            producer.send(driven.linked.topic, value, partition=0)
        producer.flush()
    else:
        driven.linked.produce(values)


def test_a_link_of_the_plan_is_made_by_a_process_that_only_knows_its_name(driven: Driven) -> None:
    other = driven.linked.other()
    assert address_of("link", EAST, other.link) in other.observe()
    other.done(Create(address=other.resource.address, after=other.resource))
