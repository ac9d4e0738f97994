"""A topic moved on a real broker: to another namespace, and to fewer partitions."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, Final

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from reconciler.applying.events import ActionDone
from reconciler.errors import RetryableError, UserError
from reconciler.operations.steps.invocation import Select
from reconciler.planning.actions import Update
from reconciler.providers.brokers.admin import configure_topic
from reconciler.providers.brokers.mounts import KafkaMoves
from reconciler.resources.address import address_of
from tests.operations.kafka.deaths import die_after
from tests.operations.kafka.hibernated import Site, read_all, unnumbered
from tests.servers.kafkatopics import make_topic

if TYPE_CHECKING:
    from collections.abc import Callable

    from reconciler.records.log import TopicLog

pytestmark = pytest.mark.soak  # minutes: brokers are started, killed and asked by whole commands


MOVED: Final = """\
apiVersion: reconciler/v1
kind: Topic
metadata: {name: moved, namespace: PREFIX, cluster: live}
spec: {partitions: COUNT, replicationFactor: 1, configs: {retention.ms: infinite}, movedFrom: "PREFIX:orders"}
"""


def moves(site: Site, partitions: int = 3) -> str:
    """Declare the move, and return the new name."""
    site.write("topic", MOVED.replace("COUNT", str(partitions)))
    return f"{site.prefix}:moved"


def apply(site: Site) -> None:
    applied = site.bench.apply(Select(allow=(f"delete:topic/live/{site.topic}",)))
    assert applied.verdict is None, applied.verdict


def log_of(site: Site, name: str) -> TopicLog:
    return site.live.open_log(address_of("topic", "live", name))


@pytest.mark.fact("F-K-090", "F-K-091")
def test_a_topic_moves_with_its_records_and_its_groups(site: Site) -> None:
    before = read_all(site.log)
    site.live.groups.commit("readers", {(site.topic, number): before[number][5]["offset"] for number in before})
    new = moves(site)
    apply(site)
    after = read_all(log_of(site, new))
    assert unnumbered(after) == unnumbered(before)
    offsets = site.live.groups.read_committed_offsets("readers", [new])
    assert offsets == {(new, number): after[number][5]["offset"] for number in before}
    assert site.physical not in site.kafka.names()
    assert "retention.ms=-1" in site.kafka.topics("--describe", "--topic", f"{site.prefix}.moved")
    assert site.planned() == []


@pytest.mark.fact("F-K-083")
def test_fewer_partitions_keep_the_order_of_each_key_and_skip_nothing(site: Site) -> None:
    by_key = {"bootstrap.servers": site.kafka.bootstrap(), "partitioner": "murmur2_random"}
    producer = Producer(by_key)
    for number in range(300):
        producer.produce(site.physical, key=f"key{number % 20}", value=f"{number:05}")
    assert producer.flush(30) == 0
    before = read_all(site.log)
    site.live.groups.commit("readers", {(site.topic, 0): before[0][30]["offset"], (site.topic, 1): 0})
    new = moves(site, 2)
    apply(site)
    after = read_all(log_of(site, new))
    assert len(after) == 2
    rows = [row for some in after.values() for row in some]
    assert sorted(map(str, unplaced(rows))) == sorted(
        map(str, unplaced(row for some in before.values() for row in some))
    )
    for number in range(20):
        mine = [row["value"] for row in rows if row["key"] == f"key{number}".encode()]
        assert len(mine) == 15
        assert mine == sorted(mine)
    offsets = site.live.groups.read_committed_offsets("readers", [new])
    unread = {str(one) for one in unplaced([*before[0][30:], *before[1], *before[2]])}
    read_on = {
        str(one)
        for number in after
        for one in unplaced(r for r in after[number] if r["offset"] >= offsets[new, number])
    }
    assert unread <= read_on


def unplaced(rows: object) -> list[dict[str, object]]:
    return [{key: value for key, value in row.items() if key not in {"offset", "partition"}} for row in rows]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("module", "name", "nth"),
    [
        ("reconciler.jobs.copy", "fill_topic", 1),
        ("reconciler.providers.brokers.mounts", "KafkaMoves.suspend_retention", 1),
        ("reconciler.providers.brokers.mounts", "KafkaMoves.refuse_all_producers", 1),
        ("reconciler.providers.brokers.mounts", "KafkaMoves.switch_groups", 1),
        ("reconciler.providers.brokers.mounts", "KafkaMoves.finish_move", 1),
    ],
)
def test_a_move_that_is_killed_is_completed_by_the_next_apply(site: Site, module: str, name: str, nth: int) -> None:
    before = read_all(site.log)
    new = moves(site)
    die_after(site, module, name, nth, allow=f"delete:topic/live/{site.topic}")
    apply(site)
    assert unnumbered(read_all(log_of(site, new))) == unnumbered(before)
    assert site.physical not in site.kafka.names()
    assert site.planned() == []


def test_a_group_that_read_on_under_the_new_name_is_not_set_back_by_a_move_that_goes_on(site: Site) -> None:
    before = read_all(site.log)
    site.live.groups.commit("readers", {(site.topic, number): before[number][5]["offset"] for number in before})
    new = moves(site)
    allow = f"delete:topic/live/{site.topic}"
    die_after(site, "reconciler.providers.brokers.mounts", "KafkaMoves.switch_groups", 1, allow=allow)
    switched = site.live.groups.read_committed_offsets("readers", [new])
    site.live.groups.commit("readers", {(new, 1): switched[new, 1] + 3})
    apply(site)
    assert site.live.groups.read_committed_offsets("readers", [new]) == {**switched, (new, 1): switched[new, 1] + 3}


@pytest.mark.parametrize("partitions", [3, 2])
def test_a_move_that_is_killed_before_its_delete_ends_while_the_new_topic_is_in_use(
    site: Site, partitions: int
) -> None:
    site.live.groups.commit("readers", {(site.topic, number): 1 for number in range(3)})
    new, name = moves(site, partitions), f"{site.prefix}.moved"
    allow = f"delete:topic/live/{site.topic}"
    die_after(site, "reconciler.providers.brokers.mounts", "KafkaMoves.finish_move", 1, allow=allow)
    producer = Producer({"bootstrap.servers": site.kafka.bootstrap()})
    producer.produce(name, key="k", value="written to the new name")
    assert producer.flush(30) == 0
    ends = {(new, number): bounds.end for number, bounds in log_of(site, new).read_bounds().items()}
    asked = {"bootstrap.servers": site.kafka.bootstrap(), "group.id": "readers", "enable.auto.commit": False}
    reader = Consumer(asked)
    try:
        reader.subscribe([name])
        deadline = monotonic() + 60
        while site.live.groups.read_committed_offsets("readers", [new]) != ends:
            assert monotonic() < deadline, ends
            if reader.poll(0.5) is None and reader.assignment():
                reader.commit(
                    offsets=[TopicPartition(name, number, end) for (_, number), end in ends.items()], asynchronous=False
                )
        apply(site)
        assert site.live.groups.read_committed_offsets("readers", [new]) == ends
    finally:
        reader.close()
    rows = [row for some in read_all(log_of(site, new)).values() for row in some]
    assert b"written to the new name" in [row["value"] for row in rows]
    assert site.physical not in site.kafka.names()
    assert site.planned() == []


def test_a_move_whose_new_topic_is_deleted_before_the_old_one_is_copied_anew(site: Site) -> None:
    before = read_all(site.log)
    new, allow = moves(site), f"delete:topic/live/{site.topic}"
    die_after(site, "reconciler.providers.brokers.mounts", "KafkaMoves.finish_move", 1, allow=allow)
    site.kafka.topics("--delete", "--topic", f"{site.prefix}.moved")
    deadline = monotonic() + 30
    while f"{site.prefix}.moved" in site.kafka.names():
        assert monotonic() < deadline
    apply(site)
    assert unnumbered(read_all(log_of(site, new))) == unnumbered(before)
    assert site.physical not in site.kafka.names()


def test_a_config_that_a_plan_takes_away_while_a_move_is_interrupted_stays_away(site: Site) -> None:
    new, name = f"{site.prefix}:moved", f"{site.prefix}.moved"
    make_topic(site.kafka, name, retention_ms="3600000", segment_bytes="1048576", max_message_bytes="123456")
    copies = site.live.migrations.job_steps
    move = copies.find_copy_move(site.topic, None, new, is_keyed=False)
    copies.suspend_retention(move)
    configure_topic(copies.client, name, {"retention.ms": None, "segment.bytes": None, "cleanup.policy": None})
    wait_for_configs(copies, name, lambda own: "segment.bytes" not in own)
    copies.suspend_retention(move)
    copies.finish_move(move, {})
    wait_for_configs(copies, name, lambda own: own == {"max.message.bytes": "123456"})


@pytest.mark.parametrize(
    ("said", "now", "after"),
    [
        ("{retention.ms: 10000d, cleanup.policy: compact}", None, "{retention.ms: 10000d, cleanup.policy: compact}"),
        ("{retention.ms: 7d}", "{retention.ms: infinite}", "{retention.ms: infinite}"),
        ("{retention.ms: 7d}", "{retention.ms: 10000d}", "{retention.ms: 10000d}"),
        ("{retention.ms: 7d}", "{}", "{}"),
    ],
)
def test_a_move_that_was_killed_ends_with_the_configs_that_its_manifest_has_by_then(
    site: Site, said: str, now: str | None, after: str
) -> None:
    site.write("topic", MOVED.replace("COUNT", "3").replace("{retention.ms: infinite}", said))
    die_after(site, "reconciler.providers.brokers.mounts", "KafkaMoves.suspend_retention", 1, allow="delete:*")
    if now is not None:
        site.write("topic", MOVED.replace("COUNT", "3").replace("{retention.ms: infinite}", now))
    updates = [each for each in site.planned() if each.startswith("update:")]
    assert bool(updates) is (now is not None)
    apply(site)
    own = site.live.migrations.job_steps._read_own_configs(f"{site.prefix}.moved")
    wanted = {"{}": {}, "{retention.ms: infinite}": {"retention.ms": "-1"}}
    many = {"retention.ms": str(10_000 * 86_400_000)}
    assert own == wanted.get(after, {**many, **({"cleanup.policy": "compact"} if "compact" in after else {})})
    assert site.planned() == []


def test_a_topic_that_a_killed_move_was_filling_has_its_own_configs_once_the_move_is_given_up(site: Site) -> None:
    declared = (site.bench.folder / "manifests/topic.yaml").read_text()
    said = MOVED.replace("COUNT", "3").replace("{retention.ms: infinite}", "{retention.ms: 10000d}")
    site.write("topic", said)
    die_after(site, "reconciler.providers.brokers.mounts", "KafkaMoves.suspend_retention", 1, allow="delete:*")
    stays = said.replace(', movedFrom: "PREFIX:orders"', "")
    site.write("topic", f"{stays}---\n{declared}")
    site.apply()
    own = site.live.migrations.job_steps._read_own_configs(f"{site.prefix}.moved")
    assert own == {"retention.ms": str(10_000 * 86_400_000)}


def test_configs_that_a_person_changes_while_a_topic_is_filled_stay_so(site: Site) -> None:
    new, name = f"{site.prefix}:moved", f"{site.prefix}.moved"
    make_topic(site.kafka, name, retention_ms="3600000", segment_bytes="1048576", max_message_bytes="123456")
    copies = site.live.migrations.job_steps
    move = copies.find_copy_move(site.topic, None, new, is_keyed=False)
    copies.suspend_retention(move)
    configure_topic(copies.client, name, {"retention.ms": "7200000", "segment.bytes": None})
    wait_for_configs(copies, name, lambda own: "segment.bytes" not in own)
    copies.finish_move(move, {})
    wait_for_configs(copies, name, lambda own: own == {"max.message.bytes": "123456", "retention.ms": "7200000"})


def wait_for_configs(copies: KafkaMoves, name: str, until: Callable[[dict[str, str]], bool]) -> None:
    deadline = monotonic() + 10
    while not until(own := copies._read_own_configs(name)):
        assert monotonic() < deadline, own


def test_a_move_that_is_killed_and_taken_back_lets_producers_in_again(site: Site) -> None:
    manifests = site.bench.folder / "manifests"
    before = {file: file.read_text() for file in manifests.iterdir()}
    moves(site)
    allow = f"delete:topic/live/{site.topic}"
    die_after(site, "reconciler.providers.brokers.mounts", "KafkaMoves.refuse_all_producers", 1, allow=allow)
    for file in manifests.iterdir():
        file.write_text(before[file]) if file in before else file.unlink()
    planned = site.plan().plan
    (unsealed,) = (each for each in planned.actions if isinstance(each, Update))
    assert unsealed.address == f"topic/live/{site.topic}"
    assert [change.path for change in unsealed.changes] == ["sealed"]
    site.bench.apply(Select(allow=("delete:*",)))
    site.produce(3, first=100)
    assert site.planned() == []
    assert not any("sealed" in each.message for each in site.plan().plan.warnings)


def test_why_a_move_failed_is_told_also_where_producers_cannot_be_let_in_again(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_given: object) -> None:
        raise UserError("group readers is reading", hint="Stop it.")

    def say_nothing(*_given: object) -> None:
        raise RetryableError("cluster live does not answer", hint="Try again.")

    moves(site)
    monkeypatch.setattr("reconciler.providers.brokers.mounts.KafkaMoves.switch_groups", refuse)
    monkeypatch.setattr("reconciler.providers.brokers.mounts.KafkaMoves.accept_producers", say_nothing)
    verdict = site.bench.apply(Select(allow=(f"delete:topic/live/{site.topic}",))).verdict
    assert "group readers is reading" in str(verdict)
    assert "Until then its producers are refused: cluster live does not answer." in str(verdict)


def test_why_an_old_topic_is_not_deleted_is_told_also_where_producers_cannot_be_let_in_again(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    def say_nothing(*_given: object) -> None:
        raise RetryableError("cluster live does not answer", hint="Try again.")

    def report(event: object) -> None:
        if isinstance(event, ActionDone) and event.id.startswith("switch-groups:"):
            client = site.live.migrations.job_steps.client
            configure_topic(client, site.physical, {"max.message.bytes": None, "compression.type": None})
            site.produce(3, first=100)
            monkeypatch.setattr("reconciler.providers.brokers.seal.Seals.remove_seal", say_nothing)

    moves(site)
    verdict = site.bench.apply(Select(allow=(f"delete:topic/live/{site.topic}",)), report=report).verdict
    assert "a producer wrote to it after all of it had been copied" in str(verdict)
    assert "Until then its producers are refused: cluster live does not answer." in str(verdict)


def test_what_is_written_to_the_old_name_keeps_it_from_being_deleted_and_sets_no_group_back(site: Site) -> None:
    new, written = moves(site), []

    def report(event: object) -> None:
        site.bench.events.append(event)  # type: ignore[arg-type]
        if isinstance(event, ActionDone) and event.id.startswith("switch-groups:") and not written:
            written.append(event)
            client = site.live.migrations.job_steps.client
            configure_topic(client, site.physical, {"max.message.bytes": None, "compression.type": None})
            site.produce(3, first=100)

    site.live.groups.commit("readers", {(site.topic, 0): 0})
    applied = site.bench.apply(Select(allow=(f"delete:topic/live/{site.topic}",)), report=report)
    assert "a producer wrote to it after all of it had been copied" in str(applied.verdict)
    assert site.physical in site.kafka.names()
    site.live.groups.commit("readers", {(new, 0): 7})
    apply(site)
    assert sum(map(len, read_all(log_of(site, new)).values())) == 61
    assert site.live.groups.read_committed_offsets("readers", [new]) == {(new, 0): 7}


def recreated(site: Site, name: str) -> None:
    """Delete a topic, and create another one of its name, with one record."""
    site.kafka.topics("--delete", "--topic", name)
    make_topic(site.kafka, name)
    producer = Producer({"bootstrap.servers": site.kafka.bootstrap()})
    producer.produce(name, b"stray")
    assert producer.flush(30) == 0


def test_a_move_refuses_a_new_topic_that_was_created_again_and_fills_one_that_is_new(site: Site) -> None:
    before = read_all(site.log)
    new, name = moves(site), f"{site.prefix}.moved"
    allow = f"delete:topic/live/{site.topic}"
    die_after(site, "reconciler.providers.brokers.mounts", "KafkaMoves.finish_move", 1, allow=allow)
    recreated(site, name)
    (refused,) = site.plan().plan.errors
    assert refused.message.startswith("it was deleted and created again outside reconciler while ")
    site.kafka.topics("--delete", "--topic", name)
    apply(site)
    assert unnumbered(read_all(log_of(site, new))) == unnumbered(before)


def test_a_topic_is_not_deleted_whose_copy_was_created_again_meanwhile(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = read_all(site.log)
    new, name = moves(site), f"{site.prefix}.moved"
    seal_copied_topic = KafkaMoves.seal_copied_topic

    def recreating(self: KafkaMoves, full_name: str, topic_id: str | None, may_go_on: Callable[[], None]) -> None:
        recreated(site, name)
        seal_copied_topic(self, full_name, topic_id, may_go_on)

    monkeypatch.setattr(KafkaMoves, "seal_copied_topic", recreating)
    applied = site.bench.apply(Select(allow=(f"delete:topic/live/{site.topic}",)))
    assert f"topic {name}, to which all of topic {site.physical} was copied, was deleted since" in str(applied.verdict)
    monkeypatch.undo()
    assert read_all(site.log) == before
    site.kafka.topics("--delete", "--topic", name)
    apply(site)
    assert unnumbered(read_all(log_of(site, new))) == unnumbered(before)


def test_a_topic_that_was_created_again_does_not_move_in_place_of_the_applied_one(site: Site) -> None:
    moves(site)
    recreated(site, site.physical)
    (refused,) = site.plan().plan.errors
    assert "which it is moved from, was deleted and created again outside reconciler" in refused.message
