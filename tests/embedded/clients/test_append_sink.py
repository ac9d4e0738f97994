"""Appends that many tasks stage and one publication makes readable: all of it or nothing, and a batch once."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from pyspark import cloudpickle

from reconciler.embedded.catalog.commits import CatalogRegister
from reconciler.embedded.catalog.mirror_tables import MirrorShape
from reconciler.embedded.check.check import check_cluster
from reconciler.embedded.check.damage import Kind
from reconciler.embedded.clients.sequences import MAX_PASSING_PRODUCERS
from reconciler.embedded.clients.transactions import finish_transactions, read_transaction, transaction_register
from reconciler.embedded.segments.head import read_head
from reconciler.errors import ProducerFencedError, UserError
from reconciler.objectstore.memory import MemoryStore
from reconciler.objectstore.register import RegisterSnapshot
from reconciler.records.log import NumberedBatch
from reconciler.resources.mirrors import LinkEntry
from tests.embedded.deaths import crashes, opened
from tests.embedded.maintenance.tiny_segments import DAY, LateStore
from tests.embedded.samples import NOW, cluster_in, contents, numbered, values
from tests.embedded.stores import WatchedStore

if TYPE_CHECKING:
    from reconciler.embedded.cluster import EmbeddedCluster

TOPIC = "orders"
QUERY = "5b0c1ae4-6c1f-4b0e-8c3c-0b7f4d0d2f11"


def made(cluster: EmbeddedCluster) -> None:
    cluster.create_topic(TOPIC, partitions=2)


@pytest.fixture
def cluster() -> EmbeddedCluster:
    found = cluster_in(MemoryStore())
    made(found)
    return found


def write(
    cluster: EmbeddedCluster, number: int | None = None, tasks: Sequence[Sequence[str]] = (("a", "b"), ("c",))
) -> bool:
    """Stage what tasks have in both partitions and publish it."""
    sink = cluster.appends(TOPIC)
    staged = [
        sink.stage([values(*task, *task, partition=[0] * len(task) + [1] * len(task))], task=task_number)
        for task_number, task in enumerate(tasks)
    ]
    return sink.publish(staged, None if number is None else NumberedBatch(QUERY, number))


def readable(cluster: EmbeddedCluster) -> list[list[bytes | None]]:
    return [[value for _, value in contents(cluster.log(TOPIC), partition)] for partition in range(2)]


ABC = [[b"a", b"b", b"c"]] * 2


def test_what_an_executor_wrote_into_a_copy_of_the_folder_is_not_published(cluster: EmbeddedCluster) -> None:
    """It wrote where this process does not look: named here, its records would be gone."""
    appends, sink = cluster.appends(TOPIC), cluster.sink(TOPIC)
    staged = appends.stage([values("a", "b", partition=[0, 1])], task=0)
    copied = sink.stage(0, [numbered(0, 3)], at=None)
    there = [replace(each, by="worker-7:4711") for each in (*staged.parts, copied)]
    assert appends.publish([replace(staged, parts=tuple(there[:2]))])  # what is there may come from anywhere
    cluster.store.delete([listed.key for listed in cluster.store.list("topics/")])
    for publish in (
        lambda: appends.publish([replace(staged, parts=tuple(there[:2]))]),
        lambda: sink.publish([there[2]]),
    ):
        with pytest.raises(UserError, match="is not visible to the executor on worker-7: it wrote topics/orders_"):
            publish()
    assert [bounds.end for bounds in cluster.log(TOPIC).read_bounds().values()] == [1, 1]


def test_what_tasks_staged_is_readable_in_their_order_once_it_is_published(cluster: EmbeddedCluster) -> None:
    sink = cluster.appends(TOPIC)
    staged = [
        sink.stage([values("a", "x", partition=[0, 1]), values("b", partition=[0])], task=0),
        sink.stage([], task=1),
        sink.stage([values("c", partition=[0])], task=2),
    ]
    assert readable(cluster) == [[], []]
    assert sink.publish(staged)
    assert readable(cluster) == [[b"a", b"b", b"c"], [b"x"]]
    assert check_cluster(cluster.store, deep=True).findings == []


def test_nothing_stays_of_a_write_that_is_no_batch_of_a_stream_but_its_records(cluster: EmbeddedCluster) -> None:
    assert write(cluster)
    assert list(cluster.store.list("transactions/")) == []


@pytest.mark.thorough
def test_writes_that_come_one_by_one_do_not_let_heads_grow(cluster: EmbeddedCluster) -> None:
    for _ in range(MAX_PASSING_PRODUCERS + 3):
        assert write(cluster, tasks=[["a"]])
    head = read_head(cluster.store, cluster.topic(TOPIC).id, 0)
    assert head is not None
    assert len(head.producers) <= MAX_PASSING_PRODUCERS


def test_registers_of_appends_go_once_nobody_can_come_back_to_them(cluster: EmbeddedCluster) -> None:
    cluster.create_topic("payments")
    other = cluster.appends("payments")
    other.publish([other.stage([values("a")], task=0)], NumberedBatch(QUERY, 1))
    write(cluster, 7)
    sink = cluster.appends(TOPIC)
    staged = [sink.stage([values("a", partition=[0])], task=0)]
    cluster.delete_topic(TOPIC)
    with pytest.raises(UserError, match="topic orders was deleted or unmounted"):
        sink.publish(staged)
    assert len(list(cluster.store.list("transactions/"))) == 3
    finish_transactions(cluster.store, cluster.catalog, NOW)
    assert len(list(cluster.store.list("transactions/"))) == 3  # Somebody may be about to use them.
    finish_transactions(LateStore(cluster.store, 2 * DAY), cluster.catalog, NOW)
    (kept,) = cluster.store.list("transactions/")
    assert kept.key == f"transactions/topic-log-{cluster.topic('payments').id}-{QUERY}.json"


def test_a_batch_is_written_once_however_often_it_is_published(cluster: EmbeddedCluster) -> None:
    assert write(cluster, 7)
    assert not write(cluster, 7)
    assert readable(cluster) == ABC
    assert write(cluster, 8, [["d"]])
    assert readable(cluster) == [[b"a", b"b", b"c", b"d"]] * 2


def test_a_batch_that_comes_after_a_later_one_may_have_other_rows_and_is_refused(cluster: EmbeddedCluster) -> None:
    assert write(cluster, 7)
    assert write(cluster, 8, [["d"]])
    with pytest.raises(
        UserError, match=f"batch 7 of stream {QUERY} comes after its batch 8, which is written"
    ) as raised:
        write(cluster, 7, [["a", "b", "c", "d"]])
    assert "checkpoint was set back" in raised.value.hint
    assert readable(cluster) == [[b"a", b"b", b"c", b"d"]] * 2


@pytest.mark.parametrize("rows", [["d", "e"], ["e"], []], ids=["more", "others", "none"])
def test_a_batch_with_other_rows_than_what_is_written_under_its_number_is_refused(
    cluster: EmbeddedCluster, rows: list[str]
) -> None:
    assert write(cluster, 7)
    assert write(cluster, 8, [["d"]])
    assert write(cluster, 9, [])  # a batch without rows
    with pytest.raises(UserError, match=f"batch 8 of stream {QUERY} is written, and its rows were different") as raised:
        write(cluster, 8, [rows])
    assert "checkpoint was set back" in raised.value.hint
    assert readable(cluster) == [[b"a", b"b", b"c", b"d"]] * 2


def test_a_batch_is_known_again_whatever_tasks_and_order_and_times_its_rows_get(cluster: EmbeddedCluster) -> None:
    row = {"key": [b"k"], "headers": [[{"key": "h", "value": b"1"}]]}
    for now_ms, others in ((NOW, ["b", "c"]), (NOW + 5, ["c", "b"])):
        sink = cluster_in(cluster.store, now_ms=now_ms).appends(TOPIC)
        tasks = [[values("a", **row)], [values(each) for each in others]]
        staged = [sink.stage(rows, task=number) for number, rows in enumerate(tasks if now_ms == NOW else tasks[::-1])]
        assert sink.publish(staged, NumberedBatch(QUERY, 7)) == (now_ms == NOW)


def test_a_batch_that_was_written_before_its_rows_were_kept_is_known_by_its_number(cluster: EmbeddedCluster) -> None:
    assert write(cluster, 7)
    register = transaction_register(cluster.store, f"topic-log-{cluster.topic(TOPIC).id}-{QUERY}")

    def forget(held: RegisterSnapshot | None) -> dict[str, Any]:
        assert held is not None
        return {name: kept for name, kept in held.value.items() if name != "batch_rows"}

    register.update(forget, mark="older")
    assert not write(cluster, 7, [["x"]])


@pytest.mark.parametrize("number", [6, 7])
def test_who_only_repeats_what_is_written_shuts_out_nobody(cluster: EmbeddedCluster, number: int) -> None:
    assert write(cluster, 6, [["a"]])
    assert write(cluster, 7, [["b"]])
    came = False

    def repeat(_what: str, key: str) -> None:
        nonlocal came
        if key.startswith("heads/") and not came:
            came = True
            with suppress(UserError):
                assert not write(cluster, number, [["b"]])

    assert write(opened(WatchedStore(cluster.store, before=repeat)), 8, [["c"]])
    assert came
    assert readable(cluster) == ABC


def test_a_batch_is_known_for_ever(cluster: EmbeddedCluster) -> None:
    """Heads forget producers after a day; a stream may be started again after a year."""
    assert write(cluster, 7)
    later = cluster_in(cluster.store, now_ms=NOW + 400 * 86_400_000)
    write(later)
    assert not write(later, 7)


def test_streams_do_not_know_each_others_batches(cluster: EmbeddedCluster) -> None:
    sink = cluster.appends(TOPIC)
    for stream in ("one", "other"):
        assert sink.publish([sink.stage([values(stream, partition=[0])], task=0)], NumberedBatch(stream, 0))
    assert readable(cluster)[0] == [b"one", b"other"]


@pytest.mark.thorough
def test_who_dies_while_publishing_leaves_all_or_nothing() -> None:
    seen = []
    for store in crashes(made, write):
        after = opened(store)
        finish(after)
        seen.append(readable(after))
        assert write(after, tasks=[["d"]])
        assert readable(after) == [[*before, b"d"] for before in seen[-1]]
        assert {finding.kind for finding in check_cluster(store, deep=True).findings} <= {Kind.UNNAMED}
    assert [found for found in seen if found not in ([[], []], ABC)] == []
    assert ABC in seen


@pytest.mark.thorough
def test_a_batch_whose_writer_died_is_there_once_when_it_is_written_again() -> None:
    answers = set()
    for store in crashes(made, lambda cluster: write(cluster, 7)):
        after = opened(store)
        answers.add(write(after, 7))
        assert readable(after) == ABC
    assert answers == {True, False}


def finish(cluster: EmbeddedCluster) -> None:
    """Let so much time go by that what is open is aborted."""
    finish_transactions(cluster.store, cluster.catalog, NOW + 3_600_000)


def test_of_two_writers_of_one_stream_the_older_is_shut_out_and_leaves_nothing(cluster: EmbeddedCluster) -> None:
    came = False

    def intrude(_what: str, key: str) -> None:
        nonlocal came
        if key.startswith("heads/") and not came:
            came = True
            assert write(cluster, 7, [["other"]])

    late = opened(WatchedStore(cluster.store, before=intrude))
    with pytest.raises(ProducerFencedError):
        write(late, 7)
    assert readable(cluster) == [[b"other"]] * 2
    assert not write(late, 7, [["other"]])


def test_records_without_key_and_partition_begin_elsewhere_in_each_task(cluster: EmbeddedCluster) -> None:
    sink = cluster.appends(TOPIC)
    sink.publish([sink.stage([values(f"{task}")], task=task) for task in range(4)])
    assert readable(cluster) == [[b"0", b"2"], [b"1", b"3"]]


def test_it_travels_to_tasks_and_back(cluster: EmbeddedCluster) -> None:
    sink = cluster.appends(TOPIC)
    staged = pickle.loads(cloudpickle.dumps(sink)).stage([values("a", partition=[1])], task=0)  # noqa: S301 - our own
    # A store in memory travels as a copy of it, so only what is said of the parts is looked at.
    assert [(one.partition, one.records) for one in pickle.loads(pickle.dumps(staged)).parts] == [(1, 1)]  # noqa: S301


def test_a_machine_that_does_not_see_the_cluster_says_so(cluster: EmbeddedCluster) -> None:
    elsewhere = MemoryStore()
    sink = replace(cluster.appends(TOPIC), store=elsewhere, catalog=CatalogRegister(elsewhere))
    with pytest.raises(UserError, match=r"is not visible to the executor on .*: it does not find topic orders there"):
        sink.check_shared()
    cluster.appends(TOPIC).check_shared()


def test_a_topic_that_is_gone_is_not_taken_for_a_cluster_that_is_not_shared(cluster: EmbeddedCluster) -> None:
    opened_before = [cluster.appends(TOPIC), cluster.log(TOPIC), cluster.sink(TOPIC)]
    cluster.delete_topic(TOPIC)
    made(cluster)
    for each in opened_before:
        with pytest.raises(UserError, match=r"topic orders is not in the cluster at .* any more: it was deleted"):
            each.check_shared()


def test_a_topic_that_is_not_there_or_is_a_mirror_is_refused(cluster: EmbeddedCluster) -> None:
    with pytest.raises(UserError, match="topic order does not exist"):
        cluster.appends("order")
    east = cluster_in(MemoryStore())
    east.create_link("dr", LinkEntry("link", "west", {"source": "west"}))
    east.create_mirror(TOPIC, MirrorShape(link="dr", source=TOPIC), cluster.source_topic(TOPIC))
    with pytest.raises(UserError, match="orders is a mirror of orders: only its link writes to it"):
        east.appends(TOPIC)


def test_a_topic_that_was_created_again_meanwhile_gets_nothing(cluster: EmbeddedCluster) -> None:
    sink = cluster.appends(TOPIC)
    staged = [sink.stage([values("a", partition=[0])], task=0)]
    cluster.delete_topic(TOPIC)
    made(cluster)
    with pytest.raises(UserError, match="topic orders was deleted or unmounted"):
        sink.publish(staged, NumberedBatch(QUERY, 0))
    assert readable(cluster) == [[], []]


def test_a_refused_record_is_refused_when_it_is_staged(cluster: EmbeddedCluster) -> None:
    cluster.alter_topic(TOPIC, {"max.message.bytes": "10"})
    with pytest.raises(UserError, match="MESSAGE_TOO_LARGE"):
        cluster.appends(TOPIC).stage([values("a" * 100)], task=0)


def test_the_register_of_a_stream_says_its_last_batch(cluster: EmbeddedCluster) -> None:
    write(cluster, 41)
    (listed,) = cluster.store.list("transactions/")
    name = f"topic-log-{cluster.topic(TOPIC).id}-{QUERY}"
    assert listed.key == f"transactions/{name}.json"
    found = read_transaction(cluster.store, name)
    assert found is not None
    assert found[0].batch is not None
    assert found[0].batch.number == 41
