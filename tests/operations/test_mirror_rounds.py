"""Rounds over all mirrors: what changed is copied, what did not costs nothing, what fails stays by itself."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import suppress
from multiprocessing import get_context
from pathlib import Path

import pytest

from reconciler.embedded.catalog.mirror_tables import MirrorShape, alter_link
from reconciler.embedded.cluster import EmbeddedCluster
from reconciler.errors import LostRaceError, RetryableError, UserError
from reconciler.jobs.copy import copy_log
from reconciler.jobs.verify import compare_logs
from reconciler.objectstore.directory import DirectoryStore
from reconciler.operations.mirrors.mirror_rounds import MirrorOutcome, PassResult
from reconciler.resources.address import address_of
from reconciler.resources.mirrors import LinkEntry
from tests.embedded.links.linked import LINK, ORDERS, Linked, mirrored
from tests.embedded.samples import ids, read
from tests.engines import here
from tests.operations.stage import Refusing, copier, counting, once, rounds

MIRROR = f"mirror/east/{ORDERS}"
CLICKS = "shop:clicks"
RETRY_MS = 300_000


@pytest.fixture
def linked() -> Linked:
    return mirrored(partitions=3)


def two() -> Linked:
    """Return clusters with two mirrors, both caught up."""
    linked = mirrored(partitions=2)
    linked.west.create_topic(CLICKS, partitions=2)
    linked.produce("west", "a", "b", full_name=CLICKS)
    linked.mirror("east", "west", CLICKS)
    once(linked)
    return linked


def same(linked: Linked, full_name: str = ORDERS, partitions: int = 3) -> bool:
    return all(
        linked.read("east", full_name, partition) == linked.read("west", full_name, partition)
        for partition in range(partitions)
    )


@pytest.mark.fact("F-C-001", "F-C-083")
def test_a_round_copies_what_is_new_and_says_of_each_partition_what_it_got(linked: Linked) -> None:
    linked.produce("west", "x", "y", partition=1)
    (found,) = once(linked).values()
    assert (found.address, found.records, found.error) == (MIRROR, 2, None)
    assert (found.partitions[1].records, found.partitions[1].end, found.partitions[1].lag) == (2, 12, 0)
    assert same(linked)


def test_only_partitions_that_changed_are_looked_at(linked: Linked) -> None:
    once(linked)
    once(linked)
    linked.produce("west", "x", partition=2)
    (found,) = once(linked).values()
    assert set(found.partitions) == {2}
    assert same(linked)


def test_a_round_with_nothing_new_reads_no_head_of_any_partition() -> None:
    linked = mirrored(partitions=40)
    once(linked)
    once(linked)
    asked = counting(linked.stores)
    fresh = rounds(linked)
    for each in asked.values():
        each.clear()
    (found,) = fresh.run_round(["east", "west"]).synced
    assert (found.records, found.partitions) == (0, {})
    everything = sum(asked.values(), start=type(asked["west"])())
    assert everything.pop("list") == 2
    assert set(everything) == {"get"}
    assert everything["get"] <= 10


def test_losing_what_was_remembered_costs_one_look_and_copies_nothing_twice(linked: Linked) -> None:
    once(linked)
    linked.stores["east"].delete(["runner/mirror.json.gz"])
    (found,) = once(linked).values()
    assert (found.records, set(found.partitions)) == (0, {0, 1, 2})
    linked.stores["east"].put("runner/mirror.json.gz", b"no such thing")
    (found,) = once(linked).values()
    assert (found.records, found.error) == (0, None)


def test_what_a_process_learned_its_next_round_uses(linked: Linked) -> None:
    again = rounds(linked)
    again.run_round(["east", "west"])
    linked.produce("west", "x")
    (found,) = again.run_round(["east", "west"]).synced
    assert (found.records, set(found.partitions)) == (1, {0})


def test_a_mirror_whose_own_head_changed_is_looked_at_again(linked: Linked) -> None:
    linked.produce("west", "x")
    for _ in range(2):
        once(linked)
    key = next(listed.key for listed in linked.stores["east"].list("heads/") if listed.key.endswith("00000.json"))
    linked.stores["east"].delete([key])
    (found,) = once(linked).values()
    assert found.partitions[0].records == 11
    assert same(linked)


@pytest.mark.fact("F-C-081", "F-C-094")
def test_a_source_that_was_made_anew_fails_its_mirror_and_is_never_mixed_with_it() -> None:
    linked = two()
    linked.west.delete_topic(CLICKS)
    linked.west.create_topic(CLICKS, partitions=2)
    linked.produce("west", "c", "d", "e", full_name=CLICKS)
    linked.produce("west", "x")
    assert once(linked)[MIRROR].records == 1
    seen = linked.seen("east", CLICKS)
    assert (seen.status, None if seen.trouble is None else seen.trouble.code) == ("FAILED", "SOURCE_TOPIC_ID_CHANGED")
    for _ in range(2):
        found = once(linked)
        assert (found[MIRROR].error, list(found)) == (None, [MIRROR, f"mirror/east/{CLICKS}"])
        error = found[f"mirror/east/{CLICKS}"].error
        assert isinstance(error, UserError)
        assert "topic id changed" in error.message
        assert error.hint.startswith("The mirror is FAILED, and nothing is copied to it. Fail over")
    assert linked.read("east", CLICKS) == [(0, "a"), (1, "b")]


@pytest.mark.fact("F-C-070")
def test_a_source_that_is_gone_fails_its_mirror_only_after_the_time_out() -> None:
    linked = two()
    linked.west.delete_topic(CLICKS)
    assert "no longer exists on cluster west" in str(once(linked)[f"mirror/east/{CLICKS}"].error)
    assert linked.status("east", CLICKS) == "SOURCE_UNAVAILABLE"
    linked.clock.now_ms += RETRY_MS
    once(linked)
    assert linked.status("east", CLICKS) == "SOURCE_UNAVAILABLE"
    linked.clock.now_ms += 1
    once(linked)
    assert linked.status("east", CLICKS) == "FAILED"
    assert linked.status("east") == "ACTIVE"


@pytest.mark.fact("F-C-069")
def test_a_source_that_cannot_be_reached_is_tried_again_until_it_answers(linked: Linked) -> None:
    away, linked.stores["west"] = linked.stores["west"], Refusing()
    found = once(linked, "east")
    assert found[MIRROR].error is not None
    assert linked.status("east") == "SOURCE_UNAVAILABLE"
    linked.clock.now_ms += 10 * RETRY_MS
    once(linked, "east")
    assert linked.status("east") == "SOURCE_UNAVAILABLE"
    linked.stores["west"] = away
    linked.produce("west", "x")
    assert once(linked)[MIRROR].records == 1
    assert linked.status("east") == "ACTIVE"


@pytest.mark.fact("F-C-061", "F-C-062")
@pytest.mark.parametrize("by", ["mirror", "link"])
def test_what_is_paused_fetches_nothing_and_goes_on_where_it_was(linked: Linked, by: str) -> None:
    def pause(*, is_paused: bool) -> None:
        if by == "link":
            declared = {**linked.east.catalog.read().links[LINK].declared, "paused": is_paused}
            linked.east.catalog.commit(lambda draft: alter_link(draft, LINK, declared))
        else:
            linked.provider("east").links.request_verb(ORDERS, "pause" if is_paused else "resume")

    pause(is_paused=True)
    linked.produce("west", "x")
    assert once(linked) == {}
    assert len(linked.read("east")) == 10
    pause(is_paused=False)
    assert once(linked)[MIRROR].records == 1
    assert same(linked)


def test_a_mirror_that_is_paused_while_it_is_copied_gets_nothing_more(linked: Linked) -> None:
    linked.produce("west", "x")
    seen = linked.seen("east")
    linked.provider("east").links.request_verb(ORDERS, "pause")
    copied = copier(linked).copy(seen)
    assert (copied.records, copied.is_whole) == (0, False)
    assert linked.positions("east")[0].end == 10


def test_a_copy_reaches_given_ends_and_not_beyond_them(linked: Linked) -> None:
    linked.produce("west", "x", "y", "z")
    linked.produce("west", "x", partition=1)
    copied = copier(linked).copy(linked.seen("east"), {0: 12, 1: 10, 2: 99})
    assert (copied.records, copied.lag) == (2, 2)
    assert {number: found.end for number, found in linked.positions("east").items()} == {0: 12, 1: 10, 2: 10}


@pytest.mark.fact("F-C-008", "F-C-056")
def test_partitions_and_configs_that_the_source_gets_later_arrive_with_the_next_round(linked: Linked) -> None:
    once(linked)
    linked.west.alter_topic(ORDERS, {"retention.ms": "1d"}, partitions=5)
    linked.produce("west", "x", partition=4)
    assert once(linked)[MIRROR].records == 1
    assert linked.east.topic(ORDERS).partitions == 5
    assert linked.east.topic(ORDERS).configs["retention.ms"] == "86400000"
    assert same(linked, partitions=5)


@pytest.mark.fact("F-C-096")
@pytest.mark.parametrize(
    ("start", "offsets"),
    [("earliest", [0, 1, 2, 3]), ("latest", [3]), ("2023-11-14T22:13:21Z", [2, 3]), ("2024-11-14T22:13:21Z", [3])],
)
def test_a_new_mirror_begins_where_its_link_says(start: str, offsets: list[int]) -> None:
    linked = Linked()
    linked.west.create_topic(ORDERS)
    for value in range(3):
        linked.clock.now_ms = 1_700_000_000_000 + 1000 * (value // 2)
        linked.produce("west", f"{value}")
    linked.link("east", "west", startOffset=start)
    linked.mirror("east", "west")
    once(linked)
    linked.produce("west", "later")
    once(linked)
    assert [offset for offset, _ in linked.read("east")] == offsets
    assert linked.positions("east")[0].end == 4


@pytest.mark.fact("F-C-095")
@pytest.mark.parametrize("third", ["north", "a"])
def test_one_round_brings_records_through_a_chain(linked: Linked, third: str) -> None:
    linked.link(third, "east", name="on", mode="destination")
    linked.mirror(third, "east", link="on")
    linked.produce("west", *map(str, range(50)))
    found = once(linked)
    assert (found[MIRROR].records, found[f"mirror/{third}/{ORDERS}"].records) == (50, 80)
    assert linked.read(third) == linked.read("east") == linked.read("west")
    asked = counting(linked.stores)
    once(linked)
    assert sum(each["list"] for each in asked.values()) == 3, "nothing was copied: no cluster is listed twice"


def test_topics_that_go_both_ways_between_two_clusters_and_on_to_a_third_come_in_one_round(linked: Linked) -> None:
    linked.east.create_topic(CLICKS, partitions=1)
    linked.mirror("west", "east", CLICKS)
    linked.link("north", "west", name="on", mode="destination")
    linked.mirror("north", "west", CLICKS, link="on")
    linked.produce("east", "x", "y", full_name=CLICKS)
    linked.produce("west", "z")
    found = once(linked)
    assert {address: each.error for address, each in found.items() if each.error} == {}
    assert linked.read("north", CLICKS) == linked.read("west", CLICKS) == linked.read("east", CLICKS)
    assert same(linked)


def test_only_mirrors_that_are_wanted_are_copied_and_others_are_not_forgotten() -> None:
    linked = two()
    once(linked)
    once(linked)
    linked.produce("west", "x")
    linked.produce("west", "x", full_name=CLICKS)
    assert list(once(linked, is_wanted=lambda address: address == MIRROR)) == [MIRROR]
    found = once(linked)
    assert (found[MIRROR].records, set(found[MIRROR].partitions)) == (0, set())
    assert (found[f"mirror/east/{CLICKS}"].records, set(found[f"mirror/east/{CLICKS}"].partitions)) == (1, {0})


def test_what_is_open_or_undecided_waits_and_is_counted_as_lag(linked: Linked) -> None:
    producer = linked.west.producer("checkout")
    producer.init_transactions()
    producer.begin()
    producer.send(ORDERS, "undecided", partition=0)
    producer.flush()
    assert once(linked)[MIRROR].lag == 1
    producer.commit()
    assert (once(linked)[MIRROR].records, linked.read("east")[-1]) == (1, (10, "undecided"))


def test_who_lost_races_alone_has_nothing_to_fix() -> None:
    address = address_of("mirror", "east", ORDERS)
    raced = MirrorOutcome(address, 0, 0, 0.0, LostRaceError("orders, partition 0", None, hint="Run again later."))
    refused = MirrorOutcome(address, 0, 0, 0.0, UserError("no", hint="Do it."))
    alone, both = PassResult((raced,), (), 1.0).verdict, PassResult((raced, refused), (), 1.0).verdict
    assert alone is not None
    assert both is not None
    assert (alone.exit_code, both.exit_code) == (8, 8)
    assert alone.hint == "Nothing is lost: other processes continue with these. Run it again later."
    assert both.hint == "Fix what is shown for each of them, then run it again."


# Several runners of one link at once, while its source is written to: no record twice, none missing.


PARTITIONS = 3
APPENDS = 30


def opened(folder: Path, name: str) -> EmbeddedCluster:
    return EmbeddedCluster.create(DirectoryStore(folder / name), now_ms=lambda: 1_700_000_000_000, new_id=ids())


def linked_in(folder: Path) -> None:
    west, east = opened(folder, "west"), opened(folder, "east")
    west.create_namespace("shop")
    east.create_namespace("shop")
    west.create_topic(ORDERS, partitions=PARTITIONS)
    east.create_link("dr", LinkEntry("link-1", "west", {"source": "west"}))
    east.create_mirror(ORDERS, MirrorShape(link="dr", source=ORDERS), west.source_topic(ORDERS))


def run(folder: Path) -> int:
    """Copy again and again, until the producer has said that it is done, and once more; return the records copied."""
    west, east = opened(folder, "west"), opened(folder, "east")
    copied, is_last = 0, False
    while not is_last:
        is_last = (folder / "done").exists()
        with suppress(RetryableError):  # The other was always faster: it has copied it.
            copied += copy_log(here(), west.log(ORDERS), east.sink(ORDERS)).records
    return copied


def produce(west: EmbeddedCluster, folder: Path) -> None:
    for number in range(APPENDS):
        with west.producer() as producer:
            for partition in range(PARTITIONS):
                for value in range(3):
                    producer.send(ORDERS, f"{number}-{value}", partition=partition)
    (folder / "done").touch()


def check(folder: Path, copied: list[int]) -> None:
    ours, theirs = opened(folder, "west").log(ORDERS), opened(folder, "east").log(ORDERS)
    for partition in range(PARTITIONS):
        assert [row["offset"] for row in read(theirs, partition)] == list(range(3 * APPENDS))
    assert compare_logs(here(), ours, theirs, deep=True).is_equal
    assert sum(copied) == 3 * APPENDS * PARTITIONS


@pytest.mark.thorough
def test_threads_copy_each_record_once(tmp_path: Path) -> None:
    linked_in(tmp_path)
    with ThreadPoolExecutor(3) as threads:
        runners = [threads.submit(run, tmp_path) for _ in range(2)]
        produce(opened(tmp_path, "west"), tmp_path)
        check(tmp_path, [runner.result() for runner in runners])


@pytest.mark.soak
def test_processes_copy_each_record_once(tmp_path: Path) -> None:
    linked_in(tmp_path)
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as processes:
        runners = [processes.submit(run, tmp_path) for _ in range(2)]
        produce(opened(tmp_path, "west"), tmp_path)
        check(tmp_path, [runner.result() for runner in runners])


def test_rounds_side_by_side_copy_each_record_once() -> None:
    linked = mirrored(partitions=4)
    for _ in range(5):
        for partition in range(4):
            linked.produce("west", "x", "y", partition=partition)
        with ThreadPoolExecutor(3) as threads:
            found = list(threads.map(lambda _: once(linked), range(3)))
        assert [one.error for each in found for one in each.values()] == [None] * 3
    for partition in range(4):
        assert linked.read("east", partition=partition) == linked.read("west", partition=partition)
