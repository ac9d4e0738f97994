"""Making mirrors: what they are called, which configs they have, and what is refused."""

from __future__ import annotations

import pytest

from reconciler.embedded.catalog.mirror_tables import MirrorShape
from reconciler.embedded.catalog.topics import alter_topic
from reconciler.errors import UserError
from reconciler.resources.mirror_link import ALWAYS_SYNCED, NEVER_SYNCED
from reconciler.resources.mirrors import SourceTopic
from tests.embedded.linking.linked import LINK, ORDERS, Linked, mirrored
from tests.embedded.upkeeping import TWO_PARTS

LEAN = {"topicConfigSync": {"include": list(ALWAYS_SYNCED)}}
COMPACTED = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0", "segment.bytes": TWO_PARTS}
FAN = {"mode": "destination"}
ALWAYS = {
    "cleanup.policy": "compact",
    "max.message.bytes": "12345",
    "message.timestamp.difference.max.ms": "9000",
    "message.timestamp.type": "CreateTime",
}


def configs(linked: Linked, cluster: str, name: str = ORDERS) -> dict[str, str]:
    """Return what holds for a topic, defaults left out."""
    return dict(linked.cluster(cluster).source_topic(name).configs)


@pytest.mark.fact("F-C-005")
def test_no_mirror_is_made_without_a_link_or_a_source_topic() -> None:
    linked = Linked()
    linked.west.create_topic(ORDERS, partitions=1)
    with pytest.raises(UserError, match=f"link {LINK} does not exist"):
        linked.mirror("east", "west")
    linked.link("east", "west")
    with pytest.raises(UserError, match="topic shop:nowhere does not exist"):
        linked.mirror("east", "west", "shop:nowhere")
    assert dict(linked.east.topics()) == {}


@pytest.mark.fact("F-C-006")
def test_without_a_prefix_a_mirror_is_called_as_its_source() -> None:
    linked = mirrored()
    linked.west.create_topic("shop:clicks", partitions=1)
    with pytest.raises(UserError, match="a mirror of shop:clicks over link dr is called shop:clicks, and not shop:c"):
        linked.mirror("east", "west", "shop:clicks", name="shop:c")
    assert list(linked.east.topics()) == [ORDERS]


@pytest.mark.fact("F-C-007")
@pytest.mark.parametrize("name", ["shop:orders", "west.shop:orders", "shop:orderswest.", "west.orders"])
def test_with_a_prefix_it_goes_before_the_topic_s_own_name_and_nothing_else_is_taken(name: str) -> None:
    linked = Linked()
    linked.west.create_topic(ORDERS, partitions=1)
    linked.link("east", "west", prefix="west.", **FAN)
    with pytest.raises(UserError, match=r"is called shop:west\.orders, and not"):
        linked.mirror("east", "west", name=name)
    linked.mirror("east", "west", name="shop:west.orders")
    assert list(linked.east.topics()) == ["shop:west.orders"]


@pytest.mark.fact("F-C-034")
def test_links_with_prefixes_mirror_topics_of_one_name_side_by_side() -> None:
    linked = Linked()
    for source in ("us", "eu"):
        linked.cluster(source).create_topic("shop:clicks", partitions=1)
        linked.produce(source, f"of {source}", full_name="shop:clicks")
        linked.link("east", source, name=f"from-{source}", prefix=f"{source}_", **FAN)
        linked.mirror("east", source, "shop:clicks", f"from-{source}", name=f"shop:{source}_clicks")
        linked.catch_up("east", f"shop:{source}_clicks")
    found = {name: linked.read("east", name) for name in sorted(linked.east.topics())}
    assert found == {"shop:eu_clicks": [(0, "of eu")], "shop:us_clicks": [(0, "of us")]}


@pytest.mark.fact("F-C-011")
def test_a_mirror_is_not_taken_over_by_another_link() -> None:
    linked = mirrored()
    linked.link("east", "west", name="other")
    with pytest.raises(UserError, match="exists"):
        linked.mirror("east", "west", link="other")
    assert linked.seen("east").link == LINK


@pytest.mark.fact("F-C-010")
def test_a_compacted_topic_is_mirrored_as_compacted_with_its_gaps() -> None:
    linked = Linked()
    linked.west.create_topic(ORDERS, partitions=1, configs=COMPACTED)
    for number in range(9):
        with linked.west.producer() as producer:
            producer.send(ORDERS, f"v{number}", key=f"k{number % 2}", partition=0)
    linked.west.upkeep().compact()
    left = linked.read("west")
    assert len(left) < 9
    linked.link("east", "west")
    linked.mirror("east", "west")
    linked.catch_up("east")
    assert linked.read("east") == left
    assert configs(linked, "east")["cleanup.policy"] == "compact"


@pytest.mark.fact("F-C-050")
def test_what_is_always_synced_is_the_source_s_and_not_set_here() -> None:
    linked = mirrored(**LEAN)
    linked.west.alter_topic(ORDERS, ALWAYS)
    linked.catch_up("east")
    assert configs(linked, "east") == configs(linked, "west") == ALWAYS
    for key, value in ALWAYS.items():
        with pytest.raises(UserError, match=f"follows its source in {key}"):
            linked.east.alter_topic(ORDERS, {key: value})
    assert set(ALWAYS) == set(ALWAYS_SYNCED)


@pytest.mark.fact("F-C-051", "F-C-056")
@pytest.mark.parametrize(("spec", "follows"), [({}, True), (LEAN, False)], ids=["default", "left-out"])
def test_what_is_synced_by_default_follows_unless_the_list_leaves_it_out(
    spec: dict[str, object], *, follows: bool
) -> None:
    linked = mirrored(**spec)
    linked.west.alter_topic(ORDERS, {"retention.ms": "1d", "segment.ms": "2h"})
    linked.catch_up("east")
    assert configs(linked, "east") == ({"retention.ms": "86400000"} if follows else {})
    linked.west.alter_topic(ORDERS, {"retention.ms": None})
    linked.catch_up("east")
    assert configs(linked, "east") == {}


@pytest.mark.fact("F-C-052")
@pytest.mark.parametrize("left_out", ALWAYS_SYNCED)
def test_a_list_without_what_is_always_synced_is_refused(left_out: str) -> None:
    include = [key for key in (*ALWAYS_SYNCED, "retention.ms") if key != left_out]
    with pytest.raises(ValueError, match=left_out.replace(".", r"\.")):
        mirrored(topicConfigSync={"include": include})


@pytest.mark.fact("F-C-053")
def test_what_is_never_synced_is_refused_in_the_list_and_stays_the_destination_s() -> None:
    for key in NEVER_SYNCED:
        with pytest.raises(ValueError, match="never synced"):
            mirrored(topicConfigSync={"include": [*ALWAYS_SYNCED, key]})
    linked = Linked()
    linked.west.create_topic(ORDERS, partitions=1, configs={"min.insync.replicas": "2"})
    linked.west.catalog.commit(lambda draft: alter_topic(draft, ORDERS, {}, replication_factor=3))
    linked.link("east", "west")
    linked.mirror("east", "west")
    linked.catch_up("east")
    assert linked.west.topic(ORDERS).replication_factor == 3
    assert linked.east.topic(ORDERS).replication_factor == 1
    assert configs(linked, "east") == {}


@pytest.mark.fact("F-C-026")
def test_a_mirror_made_by_hand_has_configs_of_its_own() -> None:
    linked = Linked()
    linked.west.create_topic(ORDERS, partitions=1, configs={"segment.ms": "2h"})
    linked.link("east", "west", autoCreate={"enabled": True, "filters": [{"name": "*"}]})
    shape = MirrorShape(link=LINK, source=ORDERS, configs={"segment.ms": "1h"})
    linked.east.create_mirror(ORDERS, shape, linked.west.source_topic(ORDERS))
    linked.catch_up("east")
    assert configs(linked, "east")["segment.ms"] == "3600000"


@pytest.mark.fact("F-C-008")
def test_partitions_are_those_of_the_source_and_grow_with_it() -> None:
    linked = mirrored(partitions=2)
    linked.west.alter_topic(ORDERS, partitions=5)
    linked.produce("west", "new", partition=4)
    linked.catch_up("east")
    assert linked.east.topic(ORDERS).partitions == 5
    assert linked.read("east", partition=4) == [(0, "new")]
    with pytest.raises(UserError, match="follows its source in partitions"):
        linked.east.alter_topic(ORDERS, partitions=9)


@pytest.mark.fact("F-C-012")
def test_a_bidirectional_link_has_two_halves_and_a_topic_goes_one_way() -> None:
    linked = mirrored()
    halves = [linked.provider(name).links.links()[0] for name in ("west", "east")]
    assert [(half.name, half.declared.spec.source) for half in halves] == [(LINK, "east"), (LINK, "west")]
    assert halves[0].id != halves[1].id
    with pytest.raises(UserError, match="exists"):
        linked.mirror("west", "east")
    linked.east.create_topic("shop:refunds", partitions=1)
    linked.mirror("west", "east", "shop:refunds")
    linked.produce("east", "back", full_name="shop:refunds")
    linked.catch_up("west", "shop:refunds")
    assert linked.read("west", "shop:refunds") == [(0, "back")]


@pytest.mark.fact("F-C-011")
def test_a_topic_has_one_mirror_record_whatever_its_source_is_called() -> None:
    linked = mirrored()
    with pytest.raises(UserError, match="exists"):
        linked.east.create_mirror(ORDERS, MirrorShape(link=LINK, source=ORDERS), SourceTopic(partitions=9))
    assert linked.east.topic(ORDERS).partitions == 1


@pytest.mark.fact("F-C-095")
def test_failing_one_over_leaves_the_links_of_chains_and_fans_as_they_are() -> None:
    linked = mirrored(mode="destination")
    linked.link("south", "west", name="fan", **FAN)
    linked.link("north", "east", name="chain", **FAN)
    for cluster, source, link in (("south", "west", "fan"), ("north", "east", "chain")):
        linked.mirror(cluster, source, link=link)
        linked.catch_up(cluster)
        assert linked.read(cluster) == linked.read("west")
    before = {name: linked.provider(name).links.links() for name in ("south", "north")}

    linked.provider("east").links.ask(ORDERS, "failover")
    linked.produce("west", "of west")
    linked.produce("east", "of east")
    for cluster in ("south", "north"):
        linked.catch_up(cluster)
        assert linked.status(cluster) == "ACTIVE"
    assert linked.read("south") == linked.read("west")
    assert linked.read("north") == linked.read("east")
    assert {name: linked.provider(name).links.links() for name in before} == before
