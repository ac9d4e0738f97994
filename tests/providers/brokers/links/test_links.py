"""Links and mirrors on a Kafka cluster: made, observed, asked, deleted; a second plan has nothing to say."""

from __future__ import annotations

from typing import Any

import pytest
from kafka.admin import ConfigResource, ConfigResourceType

from reconciler.errors import BlockedError, RetryableError, UserError
from reconciler.lifecycles import LinkStatus, MirrorStatus
from reconciler.planning.actions import Change, Create, Delete, Update
from reconciler.planning.diff.converge import UNSEAL
from reconciler.providers.brokers import seal
from reconciler.providers.brokers.client import KafkaClient
from reconciler.providers.brokers.links import link_changes
from reconciler.providers.brokers.links.link_changes import LinkChanges, MirrorCreation
from reconciler.providers.brokers.links.link_site import LinkSite
from reconciler.providers.brokers.seal import Seals
from reconciler.providers.protocol import CompletedAction, FailedAction
from reconciler.resources.address import Address, address_of
from reconciler.resources.mirrors import Trouble
from tests.planning.short import resource
from tests.providers.brokers.links.linked import BROKERS, EAST, NOW_MS, PREFIX, WEST, Linked, provider_of
from tests.servers.kafka import Kafka

pytestmark = pytest.mark.thorough

_M = MirrorStatus


also_on_redpanda = pytest.mark.parametrize("linked", BROKERS, indirect=True)


@pytest.fixture
def linked(request: pytest.FixtureRequest, kafka_prefix: str) -> Linked:
    return Linked.of(request.getfixturevalue(getattr(request, "param", "kafka_broker")), kafka_prefix)


def test_a_link_is_observed_as_it_was_declared(linked: Linked) -> None:
    seen = linked.observe()[linked.resource.address]
    assert seen.resource == linked.resource
    (link,) = [each for each in linked.links.list_links() if each.name == linked.link]
    assert (link.status, link.id) == (LinkStatus.ACTIVE, seen.incarnation)


def test_a_link_made_twice_is_one(linked: Linked) -> None:
    before = linked.observe()[linked.resource.address].incarnation
    other = linked.other()
    other.done(Create(address=linked.resource.address, after=linked.resource))
    assert other.observe()[linked.resource.address].incarnation == before


def test_the_ledger_is_internal_and_no_mirror_is_a_topic(linked: Linked) -> None:
    linked.make_mirror()
    inventory = linked.observe()
    assert inventory[address_of("topic", EAST, "__reconciler")].is_internal
    assert address_of("topic", EAST, linked.mirror) not in inventory
    seen = inventory[linked.address]
    assert (seen.state, seen.physical_name, seen.mirror.first_copy_done) == (_M.ACTIVE, linked.mirror, False)
    assert seen.mirror.topic_if_stopped is not None
    assert seen.mirror.topic_if_stopped.kind == "Topic"


def test_links_and_mirrors_are_observed_while_another_topic_is_sealed(linked: Linked) -> None:
    linked.make_mirror()
    before = linked.observe()
    moving, seals = linked.site.read_topics()[linked.topic], Seals(linked.site.client, linked.site.ledger)
    seals.seal_topic(moving.name, moving.id, lambda: None)
    observed = linked.observe()
    seals.remove_seal(moving.id)
    assert {linked.resource.address, linked.address} <= before.keys()
    assert observed.keys() == before.keys()


def test_a_mirror_alone_is_observed_by_its_name(linked: Linked) -> None:
    linked.make_mirror()
    assert set(linked.observe(linked.address)) == {linked.address}


@pytest.mark.fact("F-K-090")
def test_a_mirror_has_the_partitions_and_retention_of_its_source_before_the_first_record(
    kafka_broker: Kafka, kafka_prefix: str
) -> None:
    linked = Linked.of(kafka_broker, kafka_prefix, partitions=3)
    name = f"{kafka_prefix}-old"
    linked.make_topic(
        name, 3, {"retention.ms": "-1", "cleanup.policy": "delete", "message.timestamp.type": "LogAppendTime"}
    )
    linked.topic = name
    assert linked.make_mirror().partitions == 3
    ((_, configs),) = linked.site.client.read_configs([linked.mirror])
    assert not isinstance(configs, int)
    assert configs["retention.ms"].value == "-1"
    assert configs["message.timestamp.type"].value == "CreateTime"


def test_a_mirror_made_twice_is_one(linked: Linked) -> None:
    first = linked.make_mirror().topic_id
    other = linked.other()
    assert other.make_mirror().topic_id == first


@pytest.mark.fact("F-C-004")
def test_a_name_that_is_taken_is_refused(linked: Linked) -> None:
    linked.make_topic(linked.mirror)
    (outcome,) = linked.apply(linked.creation())
    assert isinstance(outcome, FailedAction)
    assert "exists and differs" in outcome.error.message


def test_a_topic_that_was_deleted_and_made_anew_is_no_mirror(linked: Linked) -> None:
    linked.make_mirror()
    linked.east._client.admin.delete_topics([linked.mirror])
    linked.wait(lambda: linked.mirror not in linked.site.read_topics())
    linked.make_topic(linked.mirror)
    with pytest.raises(UserError, match="is not mirrored"):
        linked.seen  # noqa: B018 - looking is what fails
    assert linked.address not in linked.observe()
    assert address_of("topic", EAST, linked.mirror) in linked.observe()


@pytest.mark.parametrize(
    ("verbs", "state"),
    [
        (("pause",), _M.PAUSED),
        (("pause", "resume"), _M.ACTIVE),
        (("failover",), _M.STOPPED),
        (("pause", "failover"), _M.STOPPED),
    ],
)
@also_on_redpanda
def test_verbs_lead_where_the_table_says(linked: Linked, verbs: tuple[str, ...], state: MirrorStatus) -> None:
    linked.make_mirror()
    for verb in verbs:
        linked.links.request_verb(linked.mirror, verb)
    assert linked.other().seen.status is state


def test_transitions_of_a_plan_are_done_once_however_often(linked: Linked) -> None:
    linked.make_mirror()
    for verb, state in (("pause", _M.PAUSED), ("resume", _M.ACTIVE), ("failover", _M.STOPPED)):
        linked.done(linked.transition(verb))
        linked.other().done(linked.transition(verb))
        assert linked.seen.status is state


def test_a_mirror_takes_no_records_from_our_own_producer_until_it_is_stopped(linked: Linked) -> None:
    linked.make_mirror()
    topic = Address(linked.address.replace("mirror/", "topic/", 1))
    with pytest.raises(UserError, match="only its link writes to it"):
        linked.east.open_producer(topic)
    linked.links.request_verb(linked.mirror, "failover")
    assert linked.east.open_producer(topic).flush() == {}


def test_a_stopped_mirror_is_an_ordinary_topic_that_has_a_record(linked: Linked) -> None:
    linked.make_mirror()
    linked.done(linked.transition("failover"))
    inventory = linked.observe()
    assert inventory[linked.address].mirror.stopped_by == "failover"
    assert inventory[address_of("topic", EAST, linked.mirror)].state is None


@pytest.mark.fact("F-C-067")
def test_what_is_not_legal_says_what_is(linked: Linked) -> None:
    linked.make_mirror()
    with pytest.raises(UserError, match="is ACTIVE"):
        linked.links.request_verb(linked.mirror, "resume")
    linked.links.request_verb(linked.mirror, "failover")
    with pytest.raises(UserError, match="already stopped"):
        linked.links.request_verb(linked.mirror, "failover")


@pytest.mark.parametrize("verb", ["reverse-and-start", "reverse-and-pause"])
def test_a_reversal_is_refused_with_what_to_do_instead(linked: Linked, verb: str) -> None:
    linked.make_mirror()
    with pytest.raises(UserError, match="cannot be reversed") as raised:
        linked.links.request_verb(linked.mirror, verb)
    assert "link the other way" in raised.value.hint


def test_a_promotion_goes_through_its_states_and_the_first_ends_count(linked: Linked) -> None:
    linked.make_mirror()
    linked.links.request_verb(linked.mirror, "promote", operation="op-1")
    assert linked.seen.status is _M.PENDING_STOPPED
    linked.links.record_end_offsets(linked.mirror, operation="op-1", ends={0: 5, 1: 0})
    linked.links.record_end_offsets(linked.mirror, operation="op-1", ends={0: 9, 1: 9})
    operation = linked.seen.operation
    assert operation is not None
    assert operation.ends == {0: 5, 1: 0}
    after = linked.links.advance_state(linked.mirror, _M.STOPPED, operation="op-1")
    assert (after.status, after.stopped_by, after.operation) == (_M.STOPPED, "promote", None)
    with pytest.raises(UserError, match="that operation is over"):
        linked.links.record_end_offsets(linked.mirror, operation="op-1", ends={0: 1})


@pytest.mark.fact("F-C-062")
def test_a_paused_link_pauses_its_mirrors(linked: Linked) -> None:
    linked.make_mirror()
    change = (Change("paused", before=False, after=True),)
    linked.done(Update(address=linked.resource.address, before=linked.resource, after=linked.resource, changes=change))
    assert linked.seen.status is _M.LINK_PAUSED


def test_troubles_are_noted_and_over(linked: Linked) -> None:
    linked.make_mirror()
    linked.links.record_link_trouble(linked.link, LinkStatus.UNAVAILABLE, Trouble("TIMEOUT_ERROR", "no answer", NOW_MS))
    assert linked.seen.status is _M.SOURCE_UNAVAILABLE
    linked.links.record_link_trouble(linked.link, LinkStatus.ACTIVE, None)
    linked.links.record_task_trouble(linked.link, "AclSync", Trouble("MISCONFIGURATION_ERROR", "no filters", NOW_MS))
    (link,) = [each for each in linked.links.list_links() if each.name == linked.link]
    assert link.tasks["AclSync"].code == "MISCONFIGURATION_ERROR"
    linked.links.record_trouble(linked.mirror, Trouble("SOURCE_TOPIC_ID_CHANGED", "made anew", NOW_MS), fails=True)
    assert linked.seen.status is _M.FAILED


@pytest.mark.fact("F-C-068", "F-C-090")
def test_a_link_with_mirrors_is_not_deleted_and_one_whose_mirrors_stopped_is(linked: Linked) -> None:
    linked.make_mirror()
    deletion = Delete(address=linked.resource.address, before=linked.resource)
    (outcome,) = linked.apply(deletion)
    assert isinstance(outcome, FailedAction)
    assert isinstance(outcome.error, BlockedError)
    linked.done(linked.transition("failover"), deletion)
    inventory = linked.observe()
    assert linked.resource.address not in inventory
    assert linked.address not in inventory
    assert address_of("topic", EAST, linked.mirror) in inventory


@also_on_redpanda
def test_a_deleted_mirror_is_gone_with_all_that_was_kept_of_it(linked: Linked) -> None:
    linked.produce([b"a"])
    linked.make_mirror()
    linked.copy()
    linked.done(linked.deletion())
    kept = linked.site.ledger.read("mirror", "progress", "map")
    assert not [key for key in kept if key[1] == linked.mirror]
    linked.done(linked.deletion())
    linked.make_mirror()
    assert linked.links.read_positions(linked.mirror)[0].end == 0


@pytest.mark.fact("F-C-027")
def test_a_mirror_that_its_link_would_make_again_is_not_deleted(kafka_broker: Kafka, kafka_prefix: str) -> None:
    auto = {"enabled": True, "filters": [{"name": kafka_prefix, "patternType": "prefixed"}]}
    linked = Linked.of(kafka_broker, kafka_prefix, autoCreate=auto)
    linked.make_mirror()
    (outcome,) = linked.apply(linked.deletion())
    assert isinstance(outcome, FailedAction)
    assert "autoCreate" in outcome.error.message


def test_a_new_mirror_begins_where_it_was_told_first(linked: Linked) -> None:
    linked.make_mirror()
    linked.links.record_start_offsets(linked.mirror, {0: 7, 1: 3})
    linked.links.record_start_offsets(linked.mirror, {0: 9, 1: 9})
    assert {number: at.end for number, at in linked.links.read_positions(linked.mirror).items()} == {0: 7, 1: 3}
    assert linked.seen.begins == {0: 7, 1: 3}


@also_on_redpanda
@pytest.mark.fact("F-C-008", "F-C-056")
def test_a_mirror_grows_with_its_source_and_takes_its_configs(linked: Linked) -> None:
    linked.make_mirror()
    admin = linked.west._client.admin
    admin.create_partitions({linked.topic: 4})
    admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, linked.topic, configs={"retention.ms": "12345"})])
    address = address_of("topic", WEST, linked.topic)
    linked.wait(lambda: linked.west.read_source_topic(address).partitions == 4)
    linked.wait(lambda: linked.west.read_source_topic(address).configs.get("retention.ms") == "12345")
    source = linked.west.read_source_topic(address)
    for _ in range(2):
        assert linked.links.syncs.update_mirrors({linked.mirror: source}) == {}
    linked.wait(lambda: _config(linked, "retention.ms") == "12345")
    assert linked.seen.partitions == 4


@also_on_redpanda
def test_a_mirror_that_has_the_values_of_its_source_is_not_changed(
    linked: Linked, monkeypatch: pytest.MonkeyPatch
) -> None:
    linked.make_mirror()
    source = linked.west.read_source_topic(address_of("topic", WEST, linked.topic))
    changes: list[object] = []
    monkeypatch.setattr(LinkSite, "_apply", lambda _site, changed, _may_go_on: changes.append(changed))
    assert linked.links.syncs.update_mirrors({linked.mirror: source}) == {}
    assert changes == []


def _config(linked: Linked, name: str) -> str | None:
    ((_, configs),) = linked.site.client.read_configs([linked.mirror])
    assert not isinstance(configs, int)
    return configs[name].value


@also_on_redpanda
def test_positions_are_those_of_the_source(linked: Linked) -> None:
    linked.produce([b"a", b"b"])
    linked.produce([b"c"])
    linked.make_mirror()
    linked.copy()
    source = linked.west.links.read_positions(linked.topic)
    copy = linked.links.read_positions(linked.mirror)
    assert {number: at.end for number, at in copy.items()} == {number: at.end for number, at in source.items()}
    assert linked.values(linked.mirror) == [b"a", b"b", b"c"]


def test_marks_change_with_records(linked: Linked) -> None:
    before = linked.west.links.list_topic_marks()[linked.topic]
    linked.produce([b"a"])
    after = linked.west.links.list_topic_marks()[linked.topic]
    assert (before.partitions, before.topic) == ({}, after.topic)
    assert list(after.partitions) == [0]


def test_flat_names_are_read_by_what_others_call_their_topics(linked: Linked) -> None:
    namespace, name = f"{linked.topic}.eu", f"{linked.topic}:eu:clicks"
    linked.make_topic(f"{namespace}.clicks", 1)
    stranger = provider_of(linked.broker, WEST)
    assert name not in stranger.links.list_topic_marks()
    stranger.learn_names([address_of("topic", WEST, name)])
    assert f"{namespace}.clicks" not in stranger.links.list_topic_marks()
    assert stranger.links.list_topic_marks()[name].topic == stranger.read_source_topic(address_of("topic", WEST, name))
    assert name in stranger.links.syncs.list_offered_topics("User:link", [name])


@pytest.mark.parametrize("name", ["{}.heartbeats", "{}.checkpoints.internal", "mm2-{}"])
def test_a_topic_that_is_called_like_one_of_mirrormakers_is_a_source_as_any_other(linked: Linked, name: str) -> None:
    topic = name.format(linked.topic)
    linked.make_topic(topic, 2)
    assert linked.west.links.list_topic_marks()[topic].topic.partitions == 2
    assert topic in linked.west.links.syncs.list_offered_topics("User:link", [topic])
    assert not linked.observe()[address_of("topic", EAST, topic)].is_internal


@pytest.mark.fact("F-C-007")
def test_the_name_of_a_mirror_is_its_sources_with_the_prefix(linked: Linked) -> None:
    assert linked.make_mirror().name == f"{PREFIX}{linked.topic}"


def test_of_a_mirror_that_is_compacted_alone_no_broker_deletes_records_and_the_rest_goes_on(linked: Linked) -> None:
    linked.make_mirror()
    linked.produce([b"a", b"b"])
    linked.copy()
    for topic in (linked.topic, linked.mirror):
        resource = ConfigResource(ConfigResourceType.TOPIC, topic, configs={"cleanup.policy": "compact"})
        linked.west._client.admin.alter_configs([resource])
    linked.links.delete_below_starts(linked.mirror, {0: 1, 1: 5, 9: 1})
    assert linked.values(linked.mirror) == [b"a", b"b"]


@also_on_redpanda
@pytest.mark.parametrize("is_ours", [True, False])
def test_a_mirror_whose_maker_was_killed_is_made_though_its_source_has_changed_since(
    linked: Linked,
    monkeypatch: pytest.MonkeyPatch,
    is_ours: bool,  # noqa: FBT001 - the case
) -> None:
    with monkeypatch.context() as dying:
        owner, step = (MirrorCreation, "_record_ids") if is_ours else (LinkSite, "create_topics")
        dying.setattr(owner, step, lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            linked.apply(linked.creation())
    if not is_ours:
        linked.make_topic(linked.mirror)
    admin = linked.site.client.admin
    admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, linked.topic, {"retention.ms": "123456"})])
    admin.create_partitions({linked.topic: 3})
    linked.wait(lambda: linked.creation().parameters["partitions"] == 3)
    other = linked.other()
    (outcome,) = other.apply(linked.creation())
    if is_ours:
        assert isinstance(outcome, CompletedAction), outcome
        assert other.seen.partitions == 3
        assert (
            other.west.read_source_topic(address_of("topic", WEST, linked.mirror)).configs["retention.ms"] == "123456"
        )
    else:
        assert isinstance(outcome, FailedAction)
        assert "differs from what was to be created" in outcome.error.message


def test_a_seal_that_brokers_do_not_lift_in_time_fails_alone(linked: Linked, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = linked.site.cluster
    sealed = resource({"topic": linked.topic, "where": cluster, "partitions": 2})
    fresh = resource({"topic": f"{linked.topic}-new", "where": cluster})
    topic_id = linked.site.read_topics()[linked.topic].id
    Seals(linked.site.client, linked.site.ledger).seal_topic(linked.topic, topic_id, lambda: None)
    unseal = Update(address=sealed.address, before=sealed, after=sealed, changes=(UNSEAL,))
    with monkeypatch.context() as lagging:
        lagging.setattr(seal, "_PROPAGATION_S", 0.0)
        lagging.setattr(Seals, "_broker_shows", lambda *_: False)
        opened, made = linked.apply(unseal, Create(address=fresh.address, after=fresh))
    assert isinstance(opened, FailedAction)
    assert isinstance(opened.error, RetryableError)
    assert isinstance(made, CompletedAction)
    linked.done(unseal)


def test_why_a_verb_is_refused_is_told_also_where_copiers_of_another_mirror_cannot_be_shut_out(
    linked: Linked, monkeypatch: pytest.MonkeyPatch
) -> None:
    linked.make_mirror()
    silent = RetryableError("the coordinator does not answer", hint="Try again.")
    monkeypatch.setattr(link_changes, "fence_producers", lambda *_: (_ for _ in ()).throw(silent))
    found = LinkChanges(linked.site).request_verb({linked.mirror: linked.link, "nothing": linked.link}, "pause")
    assert found[linked.mirror] is silent
    assert "topic nothing is not mirrored" in str(found["nothing"])


def test_a_topic_that_is_deleted_while_all_are_looked_at_stops_no_round(
    linked: Linked, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = f"{linked.topic}-gone"
    linked.make_topic(gone, 1)
    before, real = linked.site.read_topics(), LinkSite.read_topics
    linked.site.client.admin.delete_topics([gone])
    linked.wait(lambda: gone not in linked.site.read_topics())
    looks = iter([before])
    monkeypatch.setattr(LinkSite, "read_topics", lambda site, *given: next(looks, None) or real(site, *given))
    marked = linked.east.links.list_topic_marks()
    assert linked.topic in marked
    assert gone not in marked


def test_a_link_is_not_deleted_where_the_broker_that_lists_topics_does_not_show_its_mirror_yet(
    linked: Linked, monkeypatch: pytest.MonkeyPatch
) -> None:
    linked.make_mirror()
    monkeypatch.setattr(LinkSite, "read_topics", lambda *_: {})
    (outcome,) = linked.apply(Delete(address=linked.resource.address, before=linked.resource))
    assert isinstance(outcome, FailedAction)
    assert isinstance(outcome.error, BlockedError)


@pytest.mark.parametrize("kind", ["creation", "deletion"])
def test_nothing_is_forgotten_of_a_mirror_that_the_broker_that_answers_does_not_show_yet(
    linked: Linked, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    linked.make_mirror()
    linked.produce([b"a", b"b"])
    linked.copy()
    action, real = getattr(linked, kind)(), KafkaClient.read_topics

    def lagging(client: KafkaClient, *given: Any) -> dict[str, Any]:
        return {name: seen for name, seen in real(client, *given).items() if name != linked.mirror}

    with monkeypatch.context() as patch:
        patch.setattr(KafkaClient, "read_topics", lagging)
        (outcome,) = linked.other().apply(action)
    assert isinstance(outcome, FailedAction)
    assert isinstance(outcome.error, RetryableError)
    linked.copy()
    assert linked.values(linked.mirror) == [b"a", b"b"]
    linked.other().done(action)
    assert (linked.mirror in linked.site.read_topics()) is (kind == "creation")
