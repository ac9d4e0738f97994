"""`topic trim`: which records it deletes, what blocks it, and what it means for mirrors, groups and object storage."""

from __future__ import annotations

import json

import pytest

from tests.cli.sample_workspaces import ORDERS as MIRROR
from tests.cli.sample_workspaces import Shop, Twins

ORDERS, CLICKS, VIEWS = "topic/west/shop:orders", "topic/west/shop:clicks", "topic/west/shop:views"
ALLOWED = ("--allow", f"trim:{ORDERS}", "--yes")


def starts(workspace: Twins | Shop, address: str) -> list[int]:
    described = json.loads(workspace.said("topic", "describe", address, "--format", "json"))
    return [row["start"] for row in described["partitions"]]


def test_records_before_an_offset_are_deleted_and_later_ones_stay(twins: Twins) -> None:
    said = twins.said("topic", "trim", ORDERS, "--before", "1", "--partition", "0", *ALLOWED)
    assert "partition 0: first offset 0 → 1, 1 offset deleted" in said
    assert (starts(twins, ORDERS), twins.values(ORDERS)) == ([1, 0], ["b", "c"])
    assert "nothing to do" in twins.said("plan")


def test_a_trim_is_blocked_until_it_is_allowed(twins: Twins) -> None:
    blocked = twins.typed("topic", "trim", ORDERS, "--before", "2", "--yes")
    assert blocked.code == 7
    assert "3 offsets of 2 partitions would be deleted" in blocked.err
    assert f"--allow trim:{ORDERS}" in blocked.err
    assert starts(twins, ORDERS) == [0, 0]
    unanswered = twins.typed("topic", "trim", ORDERS, "--before", "2", "--allow", f"trim:{ORDERS}")
    assert (unanswered.code, starts(twins, ORDERS)) == (64, [0, 0])


def test_a_dry_run_shows_each_partition_as_json_and_deletes_nothing(twins: Twins) -> None:
    plan = twins.printed("plan", "topic", "trim", ORDERS, "--before", "1", "--dry-run", code=7)
    (action,) = plan["actions"]
    assert (action["id"], action["risk"], action["blocked"]["guard"]) == (f"trim:{ORDERS}", "data-loss", "data_loss")
    assert [(change["path"], change["before"], change["after"]) for change in action["changes"]] == [
        ("startOffsets.0", 0, 1),
        ("startOffsets.1", 0, 1),
    ]
    assert starts(twins, ORDERS) == [0, 0]


def test_no_trim_goes_past_the_end_and_an_offset_below_the_start_is_nothing_to_do(twins: Twins) -> None:
    done = twins.typed("topic", "trim", ORDERS, "--before", "99", *ALLOWED)
    assert "offset 99 is after the last record of partitions 0, 1: all existing records there are deleted" in done.out
    assert starts(twins, ORDERS) == [2, 1]
    again = twins.typed("topic", "trim", ORDERS, "--before", "1")
    assert (again.code, again.out) == (0, f"· {ORDERS}  unchanged\n")
    assert "partition 0 begins at offset 2: 2 of 2 partitions have no records to delete" in again.err
    twins.produce(ORDERS, "d")
    assert twins.values(ORDERS) == ["d"]


def test_a_time_after_the_last_record_empties_the_partitions_and_says_so(twins: Twins) -> None:
    said = twins.typed("topic", "trim", CLICKS, "--before", "2100-01-01T00:00:00Z", "--dry-run")
    assert (
        "2100-01-01T00:00:00Z is after the last record of partition 0: all existing records there are deleted"
        in said.err + said.out
    )
    assert "first offset 0 → 1" in said.out
    early = twins.typed("topic", "trim", CLICKS, "--before", "2001-01-01T00:00:00Z")
    assert (early.code, early.out) == (0, f"· {CLICKS}  unchanged\n")


def test_a_time_deletes_the_records_before_it(twins: Twins) -> None:
    rows = "".join(f'{{"at": "2020-01-0{day}T00:00:00Z", "day": {day}}}\n' for day in (1, 2, 3, 4)).encode()
    form = ("--input", "-", "--input-format", "jsonl", "--timestamp-field", "at")
    twins.said("topic", "produce", VIEWS, *form, stdin=rows)
    twins.said("topic", "trim", VIEWS, "--before", "2020-01-03T00:00:00Z", "--allow", f"trim:{VIEWS}", "--yes")
    assert starts(twins, VIEWS) == [2]


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ((ORDERS, "--before", "soon"), 64, "--before 'soon' is neither an offset nor a time"),
        ((ORDERS, "--before", "latest"), 64, "--before 'latest' is neither an offset nor a time"),
        ((ORDERS, "--before", "1", "--partition", "7"), 1, "topic/west/shop:orders has no partition 7"),
        (("topic/west/shop:nope", "--before", "1"), 1, "shop:nope does not exist"),
        (("topic/nowhere/orders", "--before", "1"), 1, "nowhere"),
        ((MIRROR, "--before", "1"), 1, "is a mirror: its records come from its source"),
    ],
)
def test_what_cannot_be_trimmed_is_refused(twins: Twins, arguments: tuple[str, ...], code: int, words: str) -> None:
    said = twins.typed("topic", "trim", *arguments)
    assert (said.code, words in said.err) == (code, True), said.err
    assert "Traceback" not in said.err


def test_a_topic_that_is_only_compacted_is_refused(twins: Twins) -> None:
    twins.said("topic", "alter", VIEWS, "--set", "cleanup.policy=compact", "--yes")
    said = twins.typed("topic", "trim", VIEWS, "--before", "1")
    assert (said.code, "cleanup.policy=compact: only a topic whose policy has delete" in said.err) == (1, True)


def test_mirrors_that_lack_the_records_are_named_in_the_block(twins: Twins) -> None:
    copied = twins.typed("topic", "trim", ORDERS, "--before", "1")
    assert "has not copied" not in copied.err
    twins.produce(ORDERS, "d", "e", "f")
    lacking = twins.typed("topic", "trim", ORDERS, "--before", "4")
    assert f"{MIRROR} has not copied 2 offsets of them" in lacking.err
    assert f"{MIRROR} copies from it, and never gets deleted records" in lacking.out
    twins.said("topic", "trim", ORDERS, "--before", "4", *ALLOWED)
    twins.copy()
    assert twins.values(ORDERS) == ["f"]
    assert "f" in twins.values(MIRROR)
    assert not {"d", "e"}.intersection(twins.values(MIRROR))


def test_a_stopped_mirror_is_trimmed_like_a_topic_and_stays_stopped(twins: Twins) -> None:
    twins.said("mirror", "failover", MIRROR, "--yes")
    topic = MIRROR.replace("mirror/", "topic/")
    blocked = twins.typed("topic", "trim", topic, "--before", "1")
    assert (blocked.code, f"--allow trim:{topic}" in blocked.err) == (7, True), blocked.err
    twins.said("topic", "trim", topic, "--before", "1", "--allow", f"trim:{topic}", "--yes")
    assert (starts(twins, topic), twins.values(topic), twins.status(MIRROR)) == ([1, 1], ["b"], "STOPPED")
    assert twins.values(ORDERS) == ["a", "b", "c"]


def test_a_mirror_that_cannot_be_read_is_named(twins: Twins) -> None:
    twins.lose("east")
    said = twins.typed("topic", "trim", ORDERS, "--before", "1")
    assert (said.code, f"how much of them {MIRROR} has copied is unknown" in said.err) == (7, True), said.err


def test_groups_that_have_not_read_the_records_are_named(twins: Twins) -> None:
    twins.said("topic", "consume", ORDERS, "--group", "slow", "--partition", "0", "--max", "1", "--output", "out.json")
    said = twins.typed("topic", "trim", ORDERS, "--before", "2", *ALLOWED)
    assert said.code == 0, said.err
    assert "slow have not read all of these records" in said.out
    fast = twins.typed("topic", "trim", ORDERS, "--before", "1", "--partition", "0")
    assert "have not read" not in fast.err + fast.out


def test_object_storage_below_the_new_start_is_deleted_as_well(shop: Shop) -> None:
    said = shop.typed("topic", "trim", ORDERS, "--before", "1", *ALLOWED)
    assert said.code == 0, said.err
    assert "segments in object storage below the new first offsets are deleted as well" in said.out
    assert max(starts(shop, ORDERS)) == 1


def remote_bytes(shop: Shop) -> int:
    described = json.loads(shop.said("topic", "storage", ORDERS, "--format", "json"))
    return sum(row["remote"]["bytes"] for row in described["partitions"] if row["remote"])


def test_segments_that_were_uploaded_are_deleted_with_the_records(shop: Shop) -> None:
    shop.said("topic", "alter", ORDERS, "--set", "segment.bytes=1024", "--yes")
    form = ("--input", "-", "--input-format", "jsonl", "--partition", "0")
    for _ in range(4):
        shop.said("topic", "produce", ORDERS, *form, stdin=b'"%s"\n' % (b"c" * 2000))
    shop.said("run", "--once")
    before = remote_bytes(shop)
    shop.said("topic", "trim", ORDERS, "--before", "4", "--partition", "0", *ALLOWED)
    assert starts(shop, ORDERS)[0] == 4
    assert 0 <= remote_bytes(shop) < before


def test_an_unmounted_topic_is_refused_and_says_where_its_records_are(shop: Shop) -> None:
    location = shop.unmounted()
    said = shop.typed("topic", "trim", ORDERS, "--before", "1")
    assert (said.code, location in said.err) == (1, True), said.err
