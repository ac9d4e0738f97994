"""A failback that dies right after any of its writes is gone on with by the next process, and loses nothing."""

from __future__ import annotations

import gc
import secrets
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from confluent_kafka import Producer

from reconciler.errors import RetryableError, StalePlanError, UserError
from reconciler.lifecycles import MIRROR, LinkStatus, MirrorStatus
from reconciler.operations.steps.link_pass import FinalSync
from reconciler.operations.steps.mirror_copy import Copier
from reconciler.operations.steps.transitions import TransitionDriver
from reconciler.planning.actions import Create, Delete
from reconciler.providers.brokers import seal
from reconciler.providers.brokers.admin import configure_topic
from reconciler.providers.brokers.client import create_bindings, delete_bindings, read_bindings
from reconciler.providers.brokers.ledger import LedgerWriter
from reconciler.providers.brokers.links import failback
from reconciler.providers.brokers.links.links import KafkaLinks
from reconciler.providers.brokers.records.copy_transaction import ClientTransactions
from reconciler.providers.brokers.seal import Seals
from reconciler.providers.brokers.translate import select_own_configs
from reconciler.providers.kafka import KafkaProvider
from reconciler.providers.protocol import CompletedAction, FailedAction
from reconciler.resources.acls import AccessBinding, build_denial
from reconciler.resources.address import address_of
from reconciler.resources.mirror_link import MirrorLink, MirrorTopic
from reconciler.resources.mirrors import OffsetStretch, Operation
from reconciler.runtime.retry import skip_check
from tests.engines import here
from tests.jobs.kafka.copies import Place
from tests.providers.brokers.links.linked import provider_of
from tests.servers.kafka import Kafka
from tests.servers.kafkatopics import forget_links

pytestmark = pytest.mark.thorough

_M = MirrorStatus


class DiedError(BaseException):
    """The process is gone."""


@dataclass
class Pair:
    """Two clusters with a link of both ways, and one topic after the other that is mirrored from west to east."""

    west: Kafka
    east: Kafka
    prefix: str
    name: str = ""
    declared: dict[str, Any] = field(default_factory=dict)
    """What both halves of the link say beside."""

    def __post_init__(self) -> None:
        self.reopen()
        for cluster, other in (("east", "west"), ("west", "east")):
            resource = self.link(cluster, other)
            self.done(cluster, Create(address=resource.address, after=resource))

    def reopen(self) -> None:
        """Begin as another process does: the clients of the one before are closed."""
        self.at = {}
        gc.collect()
        self.at = {"west": provider_of(self.west, "west"), "east": provider_of(self.east, "east")}

    def link(self, cluster: str, source: str, *mirrors: str) -> MirrorLink:
        spec = {"source": source, "mode": "bidirectional", "mirrorTopics": [{"source": name} for name in mirrors]}
        spec |= self.declared
        metadata = {"name": f"link-{self.prefix}", "cluster": cluster}
        return MirrorLink.model_validate({"kind": "MirrorLink", "metadata": metadata, "spec": spec})

    def done(self, cluster: str, action: Any) -> None:
        (outcome,) = self.at[cluster].apply([action])
        assert isinstance(outcome, CompletedAction), outcome

    @property
    def driver(self) -> TransitionDriver:
        return TransitionDriver(self.at, Copier(self.at, here()).copy, FinalSync(self.at), lambda: secrets.token_hex(8))

    def mirrored(self, name: str = "") -> MirrorTopic:
        """Have a topic, and its mirror, which is empty."""
        self.name = name or f"{self.prefix}-{secrets.token_hex(3)}"
        Place(self.west, self.prefix)._made(self.name, 1, {"retention.ms": "-1"})
        source = self.at["west"].read_source_topic(address_of("topic", "west", self.name))
        (mirror,) = self.link("east", "west", self.name).mirrors()
        taken = {"partitions": 1, "configs": dict(source.configs), "incarnation": source.incarnation}
        self.done("east", Create(address=mirror.address, after=mirror, parameters=taken))
        return mirror

    def copied(self, name: str = "") -> None:
        """Have a topic of west with six records, and its mirror on east, which has them."""
        self.mirrored(name)
        self.produce(self.west, "first", 6)
        self.copy("east")

    def failed_over(self, *, diverged: int, name: str = "") -> None:
        """Have a topic whose mirror has failed over: new records on east, and some on west that east never got."""
        self.copied(name)
        self.at["east"].links.request_verb(self.name, "failover")
        self.produce(self.west, "unmirrored", diverged)
        self.produce(self.east, "second", 4)

    def produce(self, kafka: Kafka, word: str, count: int) -> None:
        producer = Producer({"bootstrap.servers": kafka.bootstrap()})
        for number in range(count):
            producer.produce(self.name, f"{word}-{number}", partition=0)
        assert producer.flush(60) == 0

    def copy(self, cluster: str) -> None:
        Copier(self.at, here()).copy(self.at[cluster].links.read_mirror(self.name))

    def read(self, kafka: Kafka, name: str = "") -> list[str]:
        return [text for _, text in Place(kafka, self.prefix).read(name or self.name).get(0, [])]

    def assert_back(self, *, kept: int) -> None:
        """See that both have the same records, once, and what diverged is kept once."""
        assert self.at["west"].links.read_mirror(self.name).status is _M.ACTIVE
        self.copy("west")
        ours, theirs = self.read(self.west), self.read(self.east)
        assert ours == theirs
        assert len(ours) == 10
        if kept:
            values = [text.split("\t")[-1] for text in self.read(self.west, f"{self.name}.diverged")]
            assert values == [f"unmirrored-{number}" for number in range(kept)]


@pytest.fixture
def pair(kafka_39: Kafka, kafka_broker: Kafka, kafka_prefix: str) -> Iterator[Pair]:
    yield Pair(kafka_39, kafka_broker, kafka_prefix)
    for broker in (kafka_39, kafka_broker):
        forget_links(broker)


@contextmanager
def dying(patch: pytest.MonkeyPatch, nth: int, do: Callable[[], None] | None = None) -> Iterator[list[str]]:
    """Die right after the nth write of any kind, or do something else there, and say which were made."""
    made: list[str] = []

    def after(owner: Any, name: str) -> None:
        real: Callable[..., Any] = getattr(owner, name)

        def done(*given: Any, **named: Any) -> Any:
            found = real(*given, **named)
            made.append(name)
            if len(made) == nth and do is not None:
                do()
            elif len(made) == nth:
                raise DiedError
            return found

        inner.setattr(owner, name, done)

    with patch.context() as inner:
        after(LedgerWriter, "write")
        after(ClientTransactions, "commit")
        after(failback, "delete_records_below")
        after(Seals, "seal_topic")
        after(Seals, "remove_seal")
        yield made


ASKED = ("pause", "resume", "promote", "failover", "reverse-and-start", "reverse-and-pause")
IMPOSED = {
    _M.LINK_PAUSED: LinkStatus.PAUSED,
    _M.SOURCE_UNAVAILABLE: LinkStatus.UNAVAILABLE,
    _M.LINK_FAILED: LinkStatus.FAILED,
}
"""States that a mirror has by its link."""


def place(pair: Pair, state: MirrorStatus) -> None:
    """Let the mirror of east be in a state, whatever it was."""
    links, link = pair.at["east"].links, f"link-{pair.prefix}"
    changing, status = links._make_changes(skip_check), IMPOSED.get(state, LinkStatus.ACTIVE)
    is_paused, kept_status = status is LinkStatus.PAUSED, LinkStatus.ACTIVE if status is LinkStatus.PAUSED else status
    changing.change_link(
        link, lambda kept: replace(kept, status=kept_status.value, declared={**kept.declared, "paused": is_paused})
    )
    kept_state = _M.ACTIVE if state in IMPOSED else state
    changing.change_mirror(
        pair.name, link, lambda kept: replace(kept, state=kept_state.value, operation=None, stopped_by=None)
    )
    assert links.read_mirror(pair.name).status is state


@pytest.mark.fact("F-C-060", "F-C-065", "F-C-066", "F-C-071", "F-C-076")
def test_a_cluster_does_what_the_table_says_in_every_state_and_refuses_the_rest(pair: Pair) -> None:
    links = pair.at["east"].links
    for state in (state for state in _M if state not in {_M.ABSENT, _M.REGULAR}):
        mirror = pair.mirrored()
        legal = MIRROR.list_legal_verbs(state)
        for number, verb in enumerate(ASKED):
            place(pair, state)
            if verb in legal:
                seen = links.request_verb(pair.name, verb, operation=f"{state}-{number}")
                assert seen.status is MIRROR.apply_verb(state, verb), (state, verb)
                continue
            with pytest.raises(UserError, match=state.value) as refused:
                links.request_verb(pair.name, verb, operation=f"{state}-{number}")
            assert all(each in refused.value.hint for each in legal), (state, verb)
            assert links.read_mirror(pair.name).status is state
        place(pair, state)
        (outcome,) = pair.at["east"].apply([Delete(address=mirror.address, before=mirror)])
        assert isinstance(outcome, CompletedAction if "delete" in legal else FailedAction), (state, outcome)


@pytest.mark.parametrize("diverged", [0, 3], ids=["nothing diverged", "what diverged is kept"])
def test_a_restore_that_dies_after_any_write_is_gone_on_with(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, diverged: int
) -> None:
    nth, has_died = 0, True
    while has_died:
        nth += 1
        pair.failed_over(diverged=diverged)
        with dying(monkeypatch, nth) as made:
            try:
                pair.driver.restore("west", pair.name, "keep")
            except DiedError:
                pass
            else:
                has_died = False
        pair.reopen()
        if pair.at["west"].links.list_mirrors() == [] or _status(pair.at["west"], pair.name) is not _M.ACTIVE:
            pair.driver.restore("west", pair.name, "keep")
        pair.assert_back(kept=diverged)
    assert nth > len({"convert_to_mirror", "record_end_offsets", "advance_state", "record_agreement"})
    assert ("delete_records_below" in made) is bool(diverged)


def _status(provider: KafkaProvider, name: str) -> MirrorStatus | None:
    return next((seen.status for seen in provider.links.list_mirrors() if seen.name == name), None)


def test_what_diverged_is_refused_before_anything_is_begun(pair: Pair) -> None:
    pair.failed_over(diverged=3)
    with pytest.raises(UserError, match="has 3 records that its mirror never got: 3 of partition 0 from offset 6 on"):
        pair.driver.restore("west", pair.name)
    assert _status(pair.at["west"], pair.name) is None
    assert len(pair.read(pair.west)) == 9


def test_what_diverged_is_kept_however_large_it_is_and_whatever_brokers_keep_by_themselves(pair: Pair) -> None:
    pair.failed_over(diverged=3)
    client = pair.at["west"]._client
    configure_topic(client, pair.name, {"max.message.bytes": "3000000"})
    producer = Producer({"bootstrap.servers": pair.west.bootstrap(), "message.max.bytes": 3_000_000})
    producer.produce(pair.name, secrets.token_hex(1_000_000), partition=0)
    assert producer.flush(60) == 0
    pair.driver.restore("west", pair.name, "keep")
    side = f"{pair.name}.diverged"
    assert len(pair.read(pair.west, side)) == 4
    ((_, configs),) = client.read_configs([side])
    assert isinstance(configs, dict)
    assert select_own_configs(configs).items() >= {"retention.bytes": "-1", "cleanup.policy": "delete"}.items()


def test_a_topic_that_an_earlier_version_made_for_what_diverged_takes_every_record_as_well(pair: Pair) -> None:
    pair.failed_over(diverged=0)
    client, side = pair.at["west"]._client, f"{pair.name}.diverged"
    configure_topic(client, pair.name, {"max.message.bytes": "3000000"})
    producer = Producer({"bootstrap.servers": pair.west.bootstrap(), "message.max.bytes": 3_000_000})
    producer.produce(pair.name, secrets.token_hex(1_000_000), partition=0)
    assert producer.flush(60) == 0
    Place(pair.west, pair.prefix)._made(side, 1, {"retention.ms": "-1", "retention.bytes": "123456789"})
    pair.driver.restore("west", pair.name, "keep")
    assert len(pair.read(pair.west, side)) == 1
    ((_, configs),) = client.read_configs([side])
    assert isinstance(configs, dict)
    assert select_own_configs(configs)["retention.bytes"] == "123456789", "what a person has set stays"


def test_what_diverged_of_a_topic_that_was_created_again_is_kept_beside_that_of_the_one_before(pair: Pair) -> None:
    pair.failed_over(diverged=3)
    pair.driver.restore("west", pair.name, "keep")
    for kafka in (pair.west, pair.east):
        Place(kafka, pair.prefix).delete(pair.name)
    pair.failed_over(diverged=2, name=pair.name)
    pair.driver.restore("west", pair.name, "keep")
    values = [text.split("\t")[-1] for text in pair.read(pair.west, f"{pair.name}.diverged")]
    assert values == [f"unmirrored-{number}" for number in (0, 1, 2, 0, 1)]


def test_records_written_to_the_old_side_once_a_restore_has_begun_are_not_lost_silently(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair.failed_over(diverged=0)
    with dying(monkeypatch, 1), pytest.raises(DiedError):
        pair.driver.restore("west", pair.name)
    pair.produce(pair.west, "late", 2)
    pair.reopen()
    with pytest.raises(UserError, match="has 2 records that its mirror never got"):
        pair.driver.drive("west", pair.name)
    assert _status(pair.at["west"], pair.name) is None
    pair.driver.restore("west", pair.name, "drop")
    pair.assert_back(kept=0)


def test_more_records_than_were_given_up_are_not_dropped(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    pair.failed_over(diverged=3)
    approved = (OffsetStretch(0, 6, 9),)
    with dying(monkeypatch, 1), pytest.raises(DiedError):
        pair.driver.restore("west", pair.name, "drop", approved=approved)
    pair.produce(pair.west, "late", 2)
    pair.reopen()
    with pytest.raises(
        StalePlanError, match="has more to cut off than was approved: 5 offsets of partition 0 from 6 on"
    ):
        pair.driver.drive("west", pair.name)
    assert _status(pair.at["west"], pair.name) is None
    assert len(pair.read(pair.west)) == 11
    pair.driver.restore("west", pair.name, "drop", approved=(OffsetStretch(0, 6, 11),))
    pair.assert_back(kept=0)


def test_a_restore_that_was_given_up_by_a_failover_can_be_asked_for_again(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair.failed_over(diverged=0)
    with dying(monkeypatch, 2), pytest.raises(DiedError):
        pair.driver.restore("west", pair.name)
    pair.reopen()
    pair.at["west"].links.request_verb(pair.name, "failover")
    pair.driver.restore("west", pair.name)
    pair.assert_back(kept=0)


def test_a_transaction_that_is_open_on_the_old_side_is_waited_for(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seal, "_TRANSACTION_S", 0.5)
    pair.failed_over(diverged=0)
    producer = Producer({"bootstrap.servers": pair.west.bootstrap(), "transactional.id": pair.name})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(pair.name, "undecided", partition=0)
    producer.flush(30)
    with pytest.raises(RetryableError, match="transactions are still open on partitions 0"):
        pair.driver.restore("west", pair.name)
    producer.commit_transaction(30)
    with pytest.raises(UserError, match="has 1 record that its mirror never got"):
        pair.driver.drive("west", pair.name)
    pair.driver.restore("west", pair.name, "drop")
    pair.assert_back(kept=0)


def test_an_end_that_was_rewritten_is_found_by_the_records_themselves(pair: Pair) -> None:
    pair.failed_over(diverged=3)
    links = pair.at["east"].links
    entries = links.site.ledger.read("progress", "map")
    (key,) = [key for key in entries if key[:2] == ("progress", pair.name)]
    chunk = ("map", pair.name, 0, 0)
    longer = {"pieces": [0, 0, 8]}
    links.site.ledger.change(
        f"reconciler.link.link-{pair.prefix}", lambda _: {key: {**entries[key], "through": 8}, chunk: longer}
    )
    peer = pair.driver.find_restorable("west", pair.name)
    assert pair.driver.find_truncation_offsets("west", pair.name, peer) == {0: 6}


def test_records_that_others_wrote_to_the_mirror_among_the_copied_reach_the_old_side(pair: Pair) -> None:
    """The map leaves them out: turned round, it would go on behind them, and the old side would never get them."""
    pair.failed_over(diverged=0)
    pair.driver.restore("west", pair.name)
    pair.copy("west")
    pair.produce(pair.west, "foreign", 2)
    pair.produce(pair.east, "third", 3)
    pair.copy("west")
    pair.at["west"].links.request_verb(pair.name, "failover")
    with pytest.raises(UserError, match="has 3 records that its mirror never got: 3 of partition 0"):
        pair.driver.restore("east", pair.name)
    pair.driver.restore("east", pair.name, "keep")
    pair.copy("east")
    assert pair.read(pair.east) == pair.read(pair.west)
    assert len(pair.read(pair.west)) == 15


def test_a_mirror_with_records_of_others_is_not_reversed_and_says_which(pair: Pair) -> None:
    pair.failed_over(diverged=0)
    pair.driver.restore("west", pair.name)
    pair.copy("west")
    pair.produce(pair.west, "foreign", 2)
    with pytest.raises(UserError, match=r"another producer wrote records to it \(partition 0, offsets .*: 2 records\)"):
        pair.driver.reverse("west", pair.name)
    assert _status(pair.at["west"], pair.name) is _M.ACTIVE
    pair.produce(pair.east, "third", 1)  # producers of the source are let in as before


@pytest.mark.fact("F-C-080")
def test_a_reversal_that_dies_after_any_write_is_gone_on_with(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    nth, has_died = 0, True
    while has_died:
        nth += 1
        pair.failed_over(diverged=0)
        pair.driver.restore("west", pair.name)
        with dying(monkeypatch, nth) as made:
            try:
                pair.driver.reverse("west", pair.name)
            except DiedError:
                pass
            else:
                has_died = False
        pair.reopen()
        if _status(pair.at["west"], pair.name) is not _M.STOPPED:
            pair.driver.reverse("west", pair.name)
        pair.driver.drive("west", pair.name)
        assert _status(pair.at["east"], pair.name) is _M.ACTIVE
        pair.produce(pair.west, "third", 2)
        pair.copy("east")
        ours, theirs = pair.read(pair.west), pair.read(pair.east)
        assert ours == theirs
        assert len(ours) == 12
    assert {"seal_topic", "remove_seal"} <= set(made)


KINDS: dict[str, dict[str, Any]] = {
    "plain": {"acks": "1"},
    "idempotent": {"enable.idempotence": True},
    "transactional": {"enable.idempotence": True},
}


def write(kafka: Kafka, topic: str, word: str, count: int, kind: str = "plain") -> list[str]:
    """Write as a client of a kind does, and return what was acknowledged: brokers may refuse it."""
    acknowledged: list[str] = []

    def told(error: object, message: Any) -> None:
        acknowledged.extend([] if error is not None else [message.value().decode()])

    settings = {"bootstrap.servers": kafka.bootstrap(), **KINDS[kind]}
    if kind != "transactional":
        producer = Producer(settings)
        for number in range(count):
            producer.produce(topic, f"{word}-{number}", partition=0, on_delivery=told)
        assert producer.flush(60) == 0
        return acknowledged
    producer = Producer({**settings, "transactional.id": secrets.token_hex(8)})
    producer.init_transactions(30)
    producer.begin_transaction()
    for number in range(count):
        producer.produce(topic, f"{word}-{number}", partition=0, on_delivery=told)
    assert producer.flush(60) == 0
    if len(acknowledged) < count:
        producer.abort_transaction(30)
        return []
    producer.commit_transaction(30)
    return acknowledged


@dataclass
class Strangers:
    """Clients of every kind that write to both sides of a transition right after one of its writes."""

    pair: Pair
    nth: int
    on_west: list[str] = field(default_factory=list)
    on_east: list[str] = field(default_factory=list)
    made: list[str] = field(default_factory=list)
    """The writes of the transition, that one the last."""

    def write(self) -> None:
        kind = list(KINDS)[self.nth % len(KINDS)]
        self.on_east += write(self.pair.east, self.pair.name, "stranger", 20, kind)
        self.on_west += write(self.pair.west, self.pair.name, "late", 3, kind)

    def see(self, patch: pytest.MonkeyPatch, do: Callable[[], object], *, dies: bool) -> tuple[bool, UserError | None]:
        """Do it with them; tell whether it got as far as that write, and why it was refused."""
        try:
            with dying(patch, self.nth, None if dies else self.write) as made:
                self.made = made
                do()
        except DiedError:
            self.write()
            self.pair.reopen()
            return True, None
        except UserError as error:
            return len(made) >= self.nth, error
        return len(made) >= self.nth, None

    def end(self, do: Callable[[], object]) -> UserError | None:
        try:
            do()
        except UserError as error:
            return error
        return None


def values(records: Iterable[str]) -> list[str]:
    return [text.split("\t")[-1] for text in records]


def foreign(pair: Pair, cluster: str) -> int:
    found = pair.at[cluster].links.find_foreign_records([pair.name]).get(pair.name, ())
    return sum(each.records for each in found)


def assert_open(pair: Pair, cluster: str) -> None:
    """See that a side takes records of every kind of client."""
    kafka = getattr(pair, cluster)
    for kind in KINDS:
        assert write(kafka, pair.name, f"{cluster}-{kind}", 1, kind) == [f"{cluster}-{kind}-0"]


def assert_nothing_hidden(pair: Pair, source: str) -> None:
    """Copy the rest; the mirror has all that its source has, and all else that it has is known to be of others."""
    mirror = {"west": "east", "east": "west"}[source]
    assert_open(pair, source)
    pair.copy(mirror)
    theirs, ours = (values(pair.read(getattr(pair, name))) for name in (source, mirror))
    assert [text for text in theirs if text not in ours] == []
    assert foreign(pair, mirror) == len(ours) - len(theirs)


@pytest.mark.fact("F-C-074")
@pytest.mark.parametrize("dies", [True, False], ids=["killed", "goes on"])
def test_what_others_write_at_any_step_of_a_reversal_reaches_both_sides_or_is_named(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, *, dies: bool
) -> None:
    nth, was_reached, ways = 0, True, set()
    while was_reached:
        nth += 1
        pair.copied()
        strangers = Strangers(pair, nth)
        was_reached, why = strangers.see(monkeypatch, lambda: pair.driver.reverse("east", pair.name), dies=dies)
        why = why or strangers.end(lambda: pair.driver.drive("east", pair.name))
        status = _status(pair.at["east"], pair.name)
        if why is not None:
            assert "another producer wrote records to it (partition 0, offsets 7 to 26: 20 records)" in why.message
            assert why.message.endswith("; it mirrors its source as before")
            assert status is _M.ACTIVE
        assert_nothing_hidden(pair, "west" if status is _M.ACTIVE else "east")
        assert set(strangers.on_west) <= set(values(pair.read(pair.west)))
        assert set(strangers.on_east) <= set(values(pair.read(pair.east)))
        ways.add((str(status), len(strangers.on_east), len(strangers.on_west)))
    assert ways >= {("ACTIVE", 20, 3), ("ACTIVE", 20, 0), ("STOPPED", 0, 0), ("STOPPED", 20, 0)}


@pytest.mark.fact("F-C-078", "F-C-079")
def test_what_others_write_at_any_step_of_a_restore_reaches_both_sides_or_is_named(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    nth, was_reached, ways = 0, True, set()
    while was_reached:
        nth += 1
        pair.failed_over(diverged=0)
        strangers = Strangers(pair, nth)
        was_reached, why = strangers.see(monkeypatch, lambda: pair.driver.restore("west", pair.name), dies=False)
        if why is None and _status(pair.at["west"], pair.name) is not _M.ACTIVE:
            why = strangers.end(lambda: pair.driver.restore("west", pair.name))
        if why is not None:
            assert "has 3 records that its mirror never got: 3 of partition 0 from offset 6 on" in why.message
            assert _status(pair.at["west"], pair.name) is None
            assert_open(pair, "west")
            assert set(strangers.on_west) <= set(values(pair.read(pair.west)))
        else:
            assert_nothing_hidden(pair, "east")
            assert foreign(pair, "west") == len(strangers.on_west)
            is_open = nth >= strangers.made.index("remove_seal")
            assert is_open or not strangers.on_west, "west is shut until it is a mirror"
            assert "seal_topic" in strangers.made
        assert len(strangers.on_east) in {0, 20}
        ways.add((why is None, len(strangers.on_west)))
    assert ways == {(True, 0), (False, 3), (True, 3)}


def test_what_others_write_at_any_step_of_a_promotion_that_dies_is_in_the_topic_that_it_makes(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    nth, was_reached = 0, True
    while was_reached:
        nth += 1
        pair.copied()
        strangers = Strangers(pair, nth)
        was_reached, why = strangers.see(monkeypatch, lambda: pair.driver.promote("east", pair.name), dies=True)
        is_decided = pair.at["east"].links.read_mirror(pair.name).stopped_by is not None
        assert why is None
        assert strangers.end(lambda: pair.driver.drive("east", pair.name)) is None
        if _status(pair.at["east"], pair.name) is not _M.STOPPED:
            pair.driver.promote("east", pair.name)
        assert len(strangers.on_east) == (20 if was_reached else 0)
        assert set(strangers.on_east) <= set(values(pair.read(pair.east)))
        if not is_decided:
            assert set(strangers.on_west) <= set(values(pair.read(pair.east)))
        assert_open(pair, "west")
        assert_open(pair, "east")


@pytest.mark.fact("F-C-077")
def test_a_reversal_that_is_given_up_at_any_step_leaves_no_side_shut(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    nth, was_reached, ways = 0, True, set()
    while was_reached:
        nth += 1
        pair.copied()
        with dying(monkeypatch, nth):
            try:
                pair.driver.reverse("east", pair.name)
            except DiedError:
                pass
            else:
                was_reached = False
        pair.reopen()
        if _status(pair.at["west"], pair.name) is _M.PENDING_MIRROR:
            pair.at["west"].links.request_verb(pair.name, "failover")
            Strangers(pair, nth).end(lambda: pair.driver.drive("east", pair.name))
            if _status(pair.at["east"], pair.name) is _M.PENDING_STOPPED:  # It would have been the source soon.
                pair.at["east"].links.request_verb(pair.name, "failover")
            ways.add(_status(pair.at["east"], pair.name))
            for cluster in ("west", "east"):
                assert_open(pair, cluster)
    assert ways == {_M.ACTIVE, _M.STOPPED}


def test_a_transaction_that_is_open_on_the_mirror_is_waited_for_and_looked_at(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(seal, "_TRANSACTION_S", 0.5)
    pair.copied()
    producer = Producer({"bootstrap.servers": pair.east.bootstrap(), "transactional.id": pair.name})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(pair.name, "undecided", partition=0)
    producer.flush(30)
    write(pair.west, pair.name, "late", 2)
    with pytest.raises(RetryableError, match="transactions are still open on partitions 0"):
        pair.driver.reverse("east", pair.name)
    producer.commit_transaction(30)
    with pytest.raises(UserError, match=r"another producer wrote records to it \(partition 0, offset 7: 1 record\)"):
        pair.driver.drive("east", pair.name)
    assert_nothing_hidden(pair, "west")


def test_a_seal_that_comes_after_its_operation_was_given_up_is_taken_off(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair.copied()
    peer = pair.at["east"].links.read_mirror(pair.name)
    west, whole = pair.at["west"].links, Seals.seal_topic

    def late(seals: Seals, name: str, topic_id: str, may_go_on: Callable[[], None]) -> dict[int, int]:
        provider_of(pair.west, "west").links.request_verb(pair.name, "failover")
        return whole(seals, name, topic_id, may_go_on)

    monkeypatch.setattr(Seals, "seal_topic", late)
    with pytest.raises(UserError, match="that operation is over"):
        west.convert_to_mirror(pair.name, peer, Operation("one", "reverse-and-start"))
    assert_open(pair, "west")


def test_a_mirror_that_somebody_opened_again_is_looked_at_before_roles_are_swapped(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair.copied()
    with monkeypatch.context() as patch:
        patch.setattr(KafkaLinks, "advance_state", _dies)
        with pytest.raises(DiedError):
            pair.driver.reverse("east", pair.name)
    pair.reopen()
    links = pair.at["east"].links
    here = links.read_mirror(pair.name)
    assert here.operation is not None
    links.advance_state(pair.name, _M.PENDING_STOPPED, operation=here.operation.id)
    assert write(pair.east, pair.name, "stranger", 1) == []
    configure_topic(pair.at["east"]._client, pair.name, {"max.message.bytes": "1000000"})
    while not write(pair.east, pair.name, "stranger", 1):
        pass
    with pytest.raises(UserError, match="another producer wrote records to it"):
        pair.driver.drive("east", pair.name)
    for cluster in ("east", "west"):
        pair.at[cluster].links.request_verb(pair.name, "failover")
        assert_open(pair, cluster)


def _dies(*_given: object, **_named: object) -> None:
    raise DiedError


@pytest.mark.fact("F-C-077")
def test_a_reversal_that_dies_while_it_is_taken_back_is_taken_back_by_the_next(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    nth, has_died = 0, True
    while has_died:
        nth += 1
        pair.copied()
        with dying(monkeypatch, 1), pytest.raises(DiedError):
            pair.driver.reverse("east", pair.name)
        Strangers(pair, nth).write()
        try:
            with dying(monkeypatch, nth):
                pair.driver.drive("east", pair.name)
        except DiedError:
            pass
        except UserError:
            has_died = False
        pair.reopen()
        if _status(pair.at["east"], pair.name) is not _M.ACTIVE:
            with pytest.raises(UserError, match="mirrors its source as before"):
                pair.driver.drive("east", pair.name)
        assert (_status(pair.at["west"], pair.name), foreign(pair, "east")) == (_M.STOPPED, 20)
        assert_nothing_hidden(pair, "west")


def test_a_topic_that_becomes_a_protected_mirror_is_denied_to_writers_before_it_is_unsealed(
    kafka_39: Kafka, kafka_broker: Kafka, kafka_prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = Pair(kafka_39, kafka_broker, kafka_prefix, declared={"protect": "acl"})
    pair.copied()
    pair.driver.reverse("east", pair.name)
    client, app = pair.at["east"]._client, f"User:app-{kafka_prefix}"
    create_bindings(client, [AccessBinding("topics", pair.name, False, app, "*", "write", "allow")])  # noqa: FBT003 - it has a name there
    denied: list[bool] = []
    whole = Seals.remove_seal

    def look(seals: Seals, topic_id: str) -> None:
        denied.append(build_denial(pair.name, app) in read_bindings(client)[0])
        whole(seals, topic_id)

    monkeypatch.setattr(Seals, "remove_seal", look)
    pair.driver.reverse("west", pair.name)
    assert _status(pair.at["east"], pair.name) is _M.ACTIVE
    assert denied == [False, True], "west is opened first, and is no mirror any more"
    delete_bindings(client, [each for each in read_bindings(client)[0] if each.name == pair.name])
    for broker in (kafka_39, kafka_broker):
        forget_links(broker)


@pytest.mark.fact("F-C-076")
def test_what_others_write_to_the_mirror_while_its_reversal_is_suspended_is_named(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair.copied()
    with dying(monkeypatch, 1), pytest.raises(DiedError):
        pair.driver.reverse("east", pair.name)
    links = pair.at["east"].links
    links.request_verb(pair.name, "pause")
    strangers = Strangers(pair, 0)
    strangers.write()
    assert (len(strangers.on_east), len(strangers.on_west)) == (20, 3)
    links.request_verb(pair.name, "resume")
    with pytest.raises(UserError, match=r"another producer wrote records to it \(partition 0, .*: 20 records\)"):
        pair.driver.drive("east", pair.name)
    assert_nothing_hidden(pair, "west")
