"""The seal of a topic on a real broker: who is refused, who is not, where it shows, and what takes it off.

That gzip makes no batch below 81 bytes, and that markers of transactions have 78, was found on 3.9.2 and 4.3.1.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import replace
from time import monotonic
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from reconciler.errors import RetryableError, UserError
from reconciler.operations.drift import drift
from reconciler.operations.show import explain, show
from reconciler.operations.steps.invocation import Select
from reconciler.providers.brokers.mounts import KafkaMoves
from reconciler.providers.brokers.seal import Seals
from reconciler.resources.address import address_of
from tests.operations.kafka.deaths import die_after
from tests.operations.kafka.hibernated import TOPIC, Site, read_all

if TYPE_CHECKING:
    from reconciler.planning.plan import PlanFinding

pytestmark = pytest.mark.thorough

SAID = {"max.message.bytes": "123456", "compression.type": "lz4", "retention.ms": "-1"}


def own_configs(site: Site) -> dict[str, str]:
    """Return what the topic says itself, as its brokers have it."""
    admin = AdminClient({"bootstrap.servers": site.kafka.bootstrap()})
    (found,) = admin.describe_configs([resource(site)]).values()
    return {key: each.value for key, each in found.result(30).items() if each.source == 1}


def resource(site: Site, *configs: tuple[str, str]) -> ConfigResource:
    entries = [ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET) for key, value in configs]
    return ConfigResource(ResourceType.TOPIC, site.physical, incremental_configs=entries)


def say(site: Site) -> None:
    """Set the topic's configs, and look until its broker shows them: it lags behind its controller."""
    admin = AdminClient({"bootstrap.servers": site.kafka.bootstrap()})
    for done in admin.incremental_alter_configs([resource(site, *SAID.items())]).values():
        done.result(30)
    deadline = monotonic() + 30
    while own_configs(site) != SAID:
        assert monotonic() < deadline


def sealed(warnings: Iterable[PlanFinding]) -> set[str]:
    """Return what is warned of as sealed; other tests leave topics on the same brokers."""
    return {str(each.address) for each in warnings if "it is sealed" in each.message}


def seals(site: Site) -> Seals:
    moves = site.live.migrations.job_steps
    return Seals(moves.client, moves.ledger)


def topic_id(site: Site) -> str:
    topic = site.live.migrations.job_steps.read_topic(site.topic)
    assert topic is not None
    return topic.id


def refused(site: Site, **settings: Any) -> set[str]:
    """Return the errors with which brokers refuse records of all sizes; the smallest there is among them."""
    errors: list[str] = []
    producer = Producer({"bootstrap.servers": site.kafka.bootstrap(), "linger.ms": 0, **settings})
    for value in (None, b"", b"x", b"x" * 100_000):
        for _ in range(3):
            producer.produce(site.physical, value, partition=0, on_delivery=lambda error, _: errors.append(str(error)))
            producer.flush(30)
    assert len(errors) == 12
    return {error.split('"')[1] if '"' in error else error for error in errors}


@pytest.mark.parametrize("compression", ["none", "gzip", "zstd"])
def test_a_sealed_topic_takes_no_record_however_small_and_is_read_as_before(site: Site, compression: str) -> None:
    before, known = read_all(site.log), topic_id(site)
    ends = seals(site).seal_topic(site.physical, known, lambda: None)
    assert refused(site, **{"compression.type": compression}) == {"Broker: Message size too large"}
    assert seals(site).is_refusing_records(site.physical, known)
    assert ends == {number: bounds.end for number, bounds in site.log.read_bounds().items()}
    assert read_all(site.log) == before
    seals(site).remove_seal(known)
    assert refused(site, **{"compression.type": compression}) == {"None"}
    assert not seals(site).is_refusing_records(site.physical, known)


@pytest.mark.parametrize(
    ("key", "value"), [("compression.type", "zstd"), ("max.message.bytes", "654321")], ids=["compression", "size"]
)
def test_a_seal_of_which_somebody_changed_one_half_gives_back_the_other_half(site: Site, key: str, value: str) -> None:
    say(site)
    known = topic_id(site)
    seals(site).seal_topic(site.physical, known, lambda: None)
    set_by_hand(site, {key: value})
    seals(site).seal_topic(site.physical, known, lambda: None)
    seals(site).remove_seal(known)
    assert own_configs(site) == {**SAID, key: value}


@pytest.mark.parametrize(
    "changed",
    [{"max.message.bytes": "654321"}, {"max.message.bytes": "654321", "compression.type": "zstd"}],
    ids=["one half", "both"],
)
def test_what_somebody_set_in_place_of_a_seal_stays_when_it_is_taken_off(site: Site, changed: dict[str, str]) -> None:
    say(site)
    known = topic_id(site)
    seals(site).seal_topic(site.physical, known, lambda: None)
    set_by_hand(site, changed)
    seals(site).remove_seal(known)
    assert own_configs(site) == {**SAID, **changed}


def set_by_hand(site: Site, configs: dict[str, str]) -> None:
    admin = AdminClient({"bootstrap.servers": site.kafka.bootstrap()})
    expected = {**own_configs(site), **configs}
    for done in admin.incremental_alter_configs([resource(site, *configs.items())]).values():
        done.result(30)
    deadline = monotonic() + 30
    while own_configs(site) != expected:
        assert monotonic() < deadline


def test_a_transaction_that_is_open_when_a_topic_is_sealed_still_ends_and_is_waited_for(site: Site) -> None:
    paying = Producer({"bootstrap.servers": site.kafka.bootstrap(), "transactional.id": f"{site.prefix}.late"})
    paying.init_transactions(30)
    paying.begin_transaction()
    paying.produce(site.physical, b"in time", partition=1)
    assert paying.flush(30) == 0
    known, sealing, found = topic_id(site), seals(site), dict[int, int]()
    waiting = threading.Thread(target=lambda: found.update(sealing.seal_topic(site.physical, known, lambda: None)))
    waiting.start()
    while not seals(site).is_refusing_records(site.physical, known):
        pass
    assert not found
    paying.commit_transaction(30)
    waiting.join(60)
    assert [row["value"] for row in read_all(site.log)[1]][-1] == b"in time"
    paying.begin_transaction()
    paying.produce(site.physical, b"too late", partition=1)
    with pytest.raises(KafkaException):
        paying.commit_transaction(30)
    paying.abort_transaction(30)
    assert found[1] < site.log.read_bounds()[1].end  # The markers.


@pytest.mark.soak
def test_a_seal_that_a_killed_apply_left_is_named_keeps_producers_out_and_goes_with_a_cancel(site: Site) -> None:
    say(site)
    site.write(
        "topic",
        (site.bench.folder / "manifests/topic.yaml")
        .read_text()
        .replace("retention.ms: infinite", "retention.ms: infinite, max.message.bytes: 123456, compression.type: lz4"),
    )
    site.apply()
    site.declare("live", "unmounted")
    die_after(site, "reconciler.providers.brokers.seal", "Seals.seal_topic", 1)
    assert own_configs(site) == {**SAID, "max.message.bytes": "80", "compression.type": "gzip"}
    (move,) = site.live.migrations.list_unfinished()
    assert any("is sealed" in each for each in move.waits)
    assert f"topic/live/{site.topic}" in sealed(drift(site.bench.invocation, Select()).warnings)
    for look in (show, explain):
        told: list[str] = []
        look(replace(site.bench.invocation, warn=told.append), Select(), f"topic/live/{site.topic}")
        assert f"topic/live/{site.topic}: it is sealed" in "".join(told)
    planned = site.plan().plan
    assert [action.id for action in planned.actions] == [f"unmount:mounting/live/{site.topic}"]
    assert f"topic/live/{site.topic}" in sealed(planned.warnings)
    assert planned.drift == ()
    with pytest.raises(UserError, match="is sealed"):
        site.live.open_producer(address_of("topic", "live", site.topic))
    site.live.migrations.request_verb(move.id, "cancel")
    assert own_configs(site) == SAID
    assert refused(site, **{"compression.type": "gzip"}) == {"None"}


def test_an_unmount_that_is_killed_and_taken_back_keeps_the_topic_and_lets_producers_in_again(site: Site) -> None:
    manifests = site.bench.folder / "manifests"
    before = {file: file.read_text() for file in manifests.iterdir()}
    site.declare("live", "unmounted")
    die_after(site, "reconciler.providers.brokers.seal", "Seals.seal_topic", 1)
    for file in manifests.iterdir():
        file.write_text(before[file]) if file in before else file.unlink()
    assert [action.id for action in site.plan().plan.actions] == [f"update:topic/live/{site.topic}"]
    site.apply()
    assert site.physical in site.kafka.names()
    assert own_configs(site).keys().isdisjoint({"max.message.bytes", "compression.type"})
    site.produce(3, first=100)
    assert site.planned() == []


def test_a_seal_that_a_person_took_off_is_not_named_and_is_put_on_anew(site: Site) -> None:
    site.declare("live", "unmounted")
    die_after(site, "reconciler.providers.brokers.seal", "Seals.seal_topic", 1)
    say(site)
    planned = site.plan().plan
    assert f"topic/live/{site.topic}" not in sealed(planned.warnings)
    site.apply()
    assert site.physical not in site.kafka.names()


@pytest.mark.parametrize(
    "error",
    [RetryableError("the cluster is away", hint="Wait."), MemoryError("the cluster is away")],
    ids=["it was foreseen", "it was not"],
)
def test_what_fails_once_a_topic_is_sealed_lets_producers_in_again(
    site: Site, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    before = own_configs(site)

    def broken(*_: object) -> bool:
        raise error

    monkeypatch.setattr(KafkaMoves, "is_refusing_producers", broken)
    site.declare("live", "unmounted")
    assert "the cluster is away" in str(site.bench.apply().verdict)
    monkeypatch.undo()
    assert own_configs(site) == before
    site.produce(3, first=100)
    site.apply()
    assert site.physical not in site.kafka.names()
    site.declare("cold", "mounted")
    site.apply()
    assert sum(map(len, read_all(site.cold.log(site.topic)).values())) == 61


def test_a_move_that_fails_otherwise_than_was_foreseen_lets_producers_in_again(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = own_configs(site)

    def broken(*_: object) -> int:
        raise MemoryError("there are too many groups")

    monkeypatch.setattr(KafkaMoves, "switch_groups", broken)
    site.write(
        "topic", TOPIC.replace("name: orders", "name: moved").replace("spec: {", 'spec: {movedFrom: "PREFIX:orders", ')
    )
    applied = site.bench.apply(Select(allow=(f"delete:topic/live/{site.topic}",)))
    assert "too many groups" in str(applied.verdict)
    assert own_configs(site) == before
