"""Copiers and transitions at once: who comes late writes nothing, wherever somebody was killed in between."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from threading import Thread

import pytest
from confluent_kafka import KafkaException, Producer

from reconciler.errors import LostRaceError, UserError
from reconciler.lifecycles import MirrorStatus
from reconciler.operations.steps.mirror_copy import FETCHING
from reconciler.planning.actions import Create
from reconciler.providers.brokers.ledger import PROGRESS, Ledger, build_copier_id, build_writer_id
from reconciler.providers.brokers.links.link_changes import LinkChanges, MirrorCreation
from reconciler.providers.brokers.links.link_site import LinkSite
from reconciler.providers.brokers.records import copy_transaction as module
from reconciler.resources.mirrors import SourceTopic
from tests.providers.brokers.links.linked import Linked
from tests.servers.kafka import Kafka

pytestmark = pytest.mark.soak  # minutes: brokers are started, killed and asked by whole commands


_M = MirrorStatus


class KilledError(BaseException):
    """The process is gone."""


@pytest.fixture
def linked(kafka_broker: Kafka, kafka_prefix: str) -> Linked:
    made = Linked.of(kafka_broker, kafka_prefix, partitions=1)
    made.produce([b"a", b"b"])
    made.make_mirror()
    return made


@pytest.mark.fact("F-K-090")
def test_a_copier_that_looked_before_a_failover_and_comes_after_it_writes_nothing(linked: Linked) -> None:
    copier = linked.copier()
    linked.other().links.request_verb(linked.mirror, "failover")
    assert copier.copy() == 0
    assert linked.values(linked.mirror) == []


@pytest.mark.parametrize("verb", ["failover", "pause"])
def test_a_copier_in_the_middle_of_a_transaction_commits_nothing_after_a_transition(linked: Linked, verb: str) -> None:
    copier = linked.copier()
    asked: list[str] = []

    def batches(*given: object) -> Iterator[object]:
        for batch in read(*given):
            yield batch
            if not asked:  # Its records are sent, and not committed.
                asked.append(verb)
                linked.other().links.request_verb(linked.mirror, verb)

    read = module.read_row_batches
    module.read_row_batches = batches  # type: ignore[assignment]
    try:
        with pytest.raises(LostRaceError):
            copier.copy()
    finally:
        module.read_row_batches = read
    assert asked == [verb]
    assert linked.values(linked.mirror) == []
    assert not [key for key in linked.site.ledger.read(PROGRESS) if key[1] == linked.mirror]


def test_a_copier_of_a_partition_that_came_during_a_failover_commits_nothing_after_it(linked: Linked) -> None:
    copiers: list[Producer] = []

    def grow() -> None:
        """Add a partition once topics were looked at, and begin to copy to it before the failover is written."""
        if copiers:
            return
        linked.site.change_topic(linked.mirror, (1, {}), (2, {}), lambda: None)
        how = {"bootstrap.servers": linked.broker.bootstrap()}
        copiers.append(Producer({**how, "transactional.id": build_copier_id(linked.link_id, linked.mirror, 1)}))
        copiers[0].init_transactions(30)
        copiers[0].begin_transaction()
        copiers[0].produce(linked.mirror, b"late", partition=1)
        copiers[0].flush(30)

    LinkChanges(linked.other().site, grow).request_verb({linked.mirror: linked.link}, "failover")
    with pytest.raises(KafkaException):
        copiers[0].commit_transaction(30)
    assert linked.values(linked.mirror, partition=1) == []


def test_a_copier_is_shut_out_also_where_the_broker_that_is_asked_again_lags_behind(
    linked: Linked, monkeypatch: pytest.MonkeyPatch
) -> None:
    how = {"bootstrap.servers": linked.broker.bootstrap()}
    copier = Producer({**how, "transactional.id": build_copier_id(linked.link_id, linked.mirror, 0)})
    copier.init_transactions(30)
    copier.begin_transaction()
    copier.produce(linked.mirror, b"late", partition=0)
    copier.flush(30)
    asked = count()

    def lag() -> None:
        """Let the look that follows the new state be answered by a broker that does not know the topic yet."""
        if next(asked) == 1:
            monkeypatch.setattr(LinkSite, "read_topics", lambda *_: {})

    LinkChanges(linked.other().site, lag).request_verb({linked.mirror: linked.link}, "failover")
    monkeypatch.undo()
    with pytest.raises(KafkaException):
        copier.commit_transaction(30)
    assert linked.values(linked.mirror) == []


def test_whoever_looks_after_a_failover_finds_no_mirror_to_copy_to(linked: Linked) -> None:
    linked.links.request_verb(linked.mirror, "failover")
    assert linked.seen.status not in FETCHING


def test_a_failover_is_decided_and_not_shown_as_done_until_copiers_are_out(linked: Linked) -> None:
    """Killed between the decision and the fence: nobody begins to copy, and whoever asks again finishes it."""
    copier = linked.copier()
    _killed_at(linked, 2)
    other = linked.other()
    assert other.seen.status is _M.PENDING_STOPPED
    assert other.observe()[linked.address].state == _M.PENDING_STOPPED
    with pytest.raises(UserError, match="not a mirror that records are copied to"):
        other.copier()
    assert copier.copy() == 0  # It looks at the ledger under its own fence.
    other.done(other.transition("failover"))
    assert linked.seen.status is _M.STOPPED
    assert linked.values(linked.mirror) == []


@pytest.mark.parametrize("writes", [1, 2, 3, 4])
def test_a_failover_that_was_killed_anywhere_is_finished_by_asking_again(linked: Linked, writes: int) -> None:
    linked.copy()
    _killed_at(linked, writes)
    other = linked.other()
    other.done(other.transition("failover"))
    assert (other.seen.status, other.seen.stopped_by) == (_M.STOPPED, "failover")
    assert other.values(linked.mirror) == [b"a", b"b"]


def _killed_at(linked: Linked, write: int) -> None:
    """Fail over, and be killed before that write or fence; later ones than there are let it end."""
    left = [write]

    def may_go_on() -> None:
        left[0] -= 1
        if not left[0]:
            raise KilledError

    names = {linked.mirror: linked.link}
    try:
        LinkChanges(linked.other().site, may_go_on).request_verb(names, "failover")
    except KilledError:
        return
    assert write > 3


@pytest.mark.parametrize("killed_at", [1, 2, 3])
def test_a_promotion_that_was_killed_while_it_opened_is_finished_under_its_operation(
    linked: Linked, killed_at: int
) -> None:
    linked.links.request_verb(linked.mirror, "promote", operation="op-1")
    left = [killed_at]

    def may_go_on() -> None:
        left[0] -= 1
        if not left[0]:
            raise KilledError

    with pytest.raises(KilledError):
        linked.other().links.advance_state(linked.mirror, _M.STOPPED, operation="op-1", may_go_on=may_go_on)
    found = linked.other().seen
    assert (found.status, found.operation is not None) == (_M.PENDING_STOPPED, True)
    after = linked.other().links.advance_state(linked.mirror, _M.STOPPED, operation="op-1")
    assert (after.status, after.stopped_by, after.operation) == (_M.STOPPED, "promote", None)


def test_a_mirror_whose_maker_was_killed_after_its_topic_was_made_is_made_once(linked: Linked) -> None:
    topic = f"{linked.topic}-2"
    linked.make_topic(topic, 1)
    linked.topic = topic
    creation = linked.creation()
    real = MirrorCreation._record_ids
    MirrorCreation._record_ids = lambda *_given: (_ for _ in ()).throw(KilledError)  # type: ignore[method-assign,assignment]
    try:
        with pytest.raises(KilledError):
            list(linked.other().east.apply([creation]))
    finally:
        MirrorCreation._record_ids = real  # type: ignore[method-assign]
    assert linked.mirror in linked.site.read_topics()
    seen = linked.observe()
    assert linked.address not in seen
    assert linked.address.replace("mirror/", "topic/", 1) not in seen  # else a plan would find its name taken
    linked.other().done(creation)
    assert linked.seen.status is _M.ACTIVE


def test_a_mirror_whose_maker_was_killed_is_made_by_the_next_pass_and_its_topic_is_in_nobodys_way(
    kafka_broker: Kafka, kafka_prefix: str
) -> None:
    making = {"enabled": True, "filters": [{"name": kafka_prefix, "patternType": "prefixed"}]}
    linked = Linked.of(kafka_broker, kafka_prefix, partitions=1, autoCreate=making)
    wanted = {linked.topic: SourceTopic(partitions=1)}
    real = MirrorCreation._record_ids
    MirrorCreation._record_ids = lambda *_given: (_ for _ in ()).throw(KilledError)  # type: ignore[method-assign,assignment]
    try:
        with pytest.raises(KilledError):
            linked.other().links.syncs.create_mirrors(linked.link, wanted)
    finally:
        MirrorCreation._record_ids = real  # type: ignore[method-assign]
    assert linked.mirror in linked.site.read_topics()
    assert linked.other().links.syncs.create_mirrors(linked.link, wanted) == {linked.mirror: None}
    assert linked.seen.status is _M.ACTIVE


def test_two_that_write_as_one_at_once_both_have_their_say(linked: Linked) -> None:
    key = ("count", linked.link)

    def count(ledger: Ledger) -> None:
        for _ in range(5):
            ledger.change(
                build_writer_id(linked.link), lambda entries: {key: {"n": entries.get(key, {"n": 0})["n"] + 1}}, "count"
            )

    threads = [Thread(target=count, args=(linked.other().site.ledger,)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert linked.site.ledger.read("count")[key] == {"n": 10}


def test_what_was_just_written_is_never_missed(linked: Linked) -> None:
    """Its marker may not be there yet: the end is where it ends with what is not committed."""
    key, reader, writer = ("count", linked.topic), linked.other().site.ledger, build_writer_id(linked.link)
    for number in range(20):
        linked.site.ledger.change(writer, lambda _entries, number=number: {key: {"n": number}}, "count")
        assert reader.read("count")[key] == {"n": number}


def test_a_link_is_made_once_by_two_at_a_time(linked: Linked) -> None:
    action = Create(address=linked.resource.address, after=linked.resource)
    others = [linked.other() for _ in range(3)]
    threads = [Thread(target=other.done, args=(action,)) for other in others]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len([each for each in linked.links.list_links() if each.name == linked.link]) == 1
