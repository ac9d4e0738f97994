"""Reading as a group from the command line: nothing is lost, and what is set back is shown first."""

from __future__ import annotations

import fcntl
import io
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from reconciler.embedded.cluster import EmbeddedCluster
from reconciler.errors import BlockedError, InvalidNamespaceError, UsageError, UserError
from reconciler.objectstore.directory import DirectoryStore
from reconciler.operations.clusters.consume import ConsumeOptions, ProduceOptions, consume, produce
from reconciler.operations.clusters.groups import (
    GroupChange,
    delete_group,
    describe_group,
    list_groups,
    parse_reset,
    reset_group,
)
from reconciler.operations.clusters.topics import describe_topic
from reconciler.operations.steps.invocation import Select
from reconciler.operations.steps.runner import SiteOptions, Stop
from reconciler.resources.groups import READING_MS, ByShift, OffsetMove, ToEarliest, ToLatest, ToOffset, ToTime

if TYPE_CHECKING:
    from conftest import Bench

ORDERS = "topic/west/shop:orders"
GROUP = "shop:checkout"


def feed(bench: Bench, *contents: str, address: str = ORDERS, partition: int = 0) -> None:
    body = "".join(json.dumps(each) + "\n" for each in contents).encode()
    options = ProduceOptions(input_format="jsonl", partition=partition)
    produce(
        SiteOptions(invocation=bench.invocation, select=Select()),
        address,
        options,
        stdin=io.BytesIO(body),
        report=lambda _records, _size: None,
    )


def read(bench: Bench, address: str = ORDERS, *, stream: io.BytesIO | None = None, **options: object) -> list[str]:
    out = stream or io.BytesIO()
    given = ConsumeOptions(**{"group": GROUP, **options})  # type: ignore[arg-type]  # fields by name
    consume(SiteOptions(invocation=bench.invocation, select=Select()), address, given, stdout=out, stop=bench.stop)
    return [json.loads(json.loads(line)["value"]) for line in out.getvalue().splitlines()]


def cluster_of(bench: Bench) -> EmbeddedCluster:
    store = DirectoryStore(bench.folder / ".clusters/west")
    return EmbeddedCluster.open(store, now_ms=bench.invocation.now_ms, new_id=bench.invocation.new_id)


def committed(bench: Bench, group: str = GROUP) -> dict[tuple[str, int], int]:
    return cluster_of(bench).groups.read_committed_offsets(group, ["shop:orders", "shop:other"])


def later(bench: Bench) -> Bench:
    now_ms = bench.invocation.now_ms
    return replace(bench, invocation=replace(bench.invocation, now_ms=lambda: now_ms() + READING_MS))


def test_a_group_reads_everything_once(applied: Bench) -> None:
    feed(applied, "a", "b", "c")
    assert read(applied) == ["a", "b", "c"]
    assert read(applied) == []
    feed(applied, "d")
    feed(applied, "e", partition=2)
    assert read(applied) == ["d", "e"]
    assert committed(applied) == {("shop:orders", 0): 4, ("shop:orders", 1): 0, ("shop:orders", 2): 1}


def test_what_was_not_asked_for_is_not_committed(applied: Bench) -> None:
    feed(applied, "a", "b", "c")
    feed(applied, "x", partition=1)
    assert read(applied, max_records=2) == ["a", "b"]
    assert committed(applied) == {("shop:orders", 0): 2}
    assert read(applied, partition=1) == ["x"]
    assert read(applied) == ["c"]


@pytest.mark.parametrize(("start", "found"), [("earliest", ["a", "b"]), ("latest", []), ("1", ["b"])])
def test_where_a_group_never_read_it_begins_where_it_is_told_and_then_where_it_left_off(
    applied: Bench, start: str, found: list[str]
) -> None:
    feed(applied, "a", "b")
    assert read(applied, start=start) == found
    feed(applied, "c")
    assert read(applied, start="earliest") == ["c"]


class _Breaking(io.BytesIO):
    """An output that breaks at its second write."""

    def write(self, content: object) -> int:
        if self.tell():
            raise BrokenPipeError
        return super().write(content)  # type: ignore[arg-type]  # bytes


def test_output_that_breaks_repeats_records_and_loses_none(applied: Bench) -> None:
    feed(applied, "a", "b")
    feed(applied, "x", partition=1)
    broken = _Breaking()
    with pytest.raises(BrokenPipeError):
        read(applied, stream=broken)
    assert len(broken.getvalue().splitlines()) == 2
    assert read(applied) == ["a", "b", "x"]


def test_a_long_read_commits_on_the_way_what_is_written_and_nothing_more(applied: Bench) -> None:
    feed(applied, "a", "b")
    feed(applied, "x", partition=1)
    times = iter(range(0, 10**9, 3000))
    begin = applied.invocation.now_ms()
    slow = replace(applied, invocation=replace(applied.invocation, now_ms=lambda: begin + next(times)))
    broken = _Breaking()
    with pytest.raises(BrokenPipeError):
        read(slow, stream=broken)
    assert committed(applied)["shop:orders", 0] == 2
    assert ("shop:orders", 1) not in committed(applied)
    assert read(applied) == ["x"]


def test_a_file_grows_and_what_a_run_that_died_left_unfinished_is_written_again(applied: Bench) -> None:
    feed(applied, "a")
    read(applied, output=Path("out.jsonl"))
    whole = (applied.folder / "out.jsonl").read_bytes()
    (applied.folder / "out.jsonl").write_bytes(whole + b'{"partition": 0, "off')
    feed(applied, "b")
    read(applied, output=Path("out.jsonl"))
    lines = (applied.folder / "out.jsonl").read_bytes().splitlines()
    assert [json.loads(line)["offset"] for line in lines] == [0, 1]


@pytest.mark.parametrize("form", ["records", "parquet"])
@pytest.mark.parametrize("group", [GROUP, None])
def test_two_readers_do_not_write_one_file(applied: Bench, group: str | None, form: str) -> None:
    feed(applied, "a")
    feed(applied, "x", partition=1)
    file, refused = applied.folder / "out", list[str]()
    given = {"output": Path("out"), "output_format": form, "group": group}

    def another_comes() -> int:
        if file.exists() and not refused:
            refused.append("")
            with pytest.raises(UserError, match="out is being written by another reader") as refusal:
                read(replace(applied, stop=Stop()), partition=1, **given)
            refused[0] = refusal.value.message
        return applied.invocation.now_ms()

    watched = replace(applied, invocation=replace(applied.invocation, now_ms=another_comes))
    read(watched, partition=0, **given)
    assert refused[0]
    found = pq.read_table(file).num_rows if form == "parquet" else len(file.read_bytes().splitlines())
    assert found == 1
    assert committed(applied) == ({} if group is None else {("shop:orders", 0): 1})


def test_readers_one_after_the_other_share_a_file(applied: Bench) -> None:
    feed(applied, "a")
    feed(applied, "x", partition=1)
    for partition in (0, 1):
        read(applied, output=Path("out.jsonl"), partition=partition)
    lines = (applied.folder / "out.jsonl").read_bytes().splitlines()
    assert [json.loads(line)["partition"] for line in lines] == [0, 1]
    read(applied, output=Path("out.jsonl"), partition=1, group=None)
    assert len((applied.folder / "out.jsonl").read_bytes().splitlines()) == 1


@pytest.mark.parametrize("group", [GROUP, None])
def test_what_is_no_file_takes_as_many_readers_as_come(applied: Bench, group: str | None) -> None:
    feed(applied, "a")
    with Path("/dev/null").open("wb") as held:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        assert read(applied, output=Path("/dev/null"), group=group) == []


def test_a_group_that_read_beyond_an_open_transaction_is_not_set_back_by_who_does_not(applied: Bench) -> None:
    producer = cluster_of(applied).producer("shop:undecided")
    producer.init_transactions()
    producer.begin()
    producer.send("shop:orders", json.dumps("undecided"), partition=0)
    producer.flush()
    feed(applied, "after")
    assert read(applied, isolation="read_uncommitted") == ["undecided", "after"]
    assert read(applied) == []
    assert committed(applied)[("shop:orders", 0)] == 2
    producer.commit()
    assert read(applied) == []


def test_a_parquet_file_is_committed_when_it_is_whole_and_never_overwritten(applied: Bench) -> None:
    feed(applied, "a", "b")
    read(applied, output=Path("out.parquet"), output_format="parquet")
    assert pq.read_table(applied.folder / "out.parquet").num_rows == 2
    feed(applied, "c")
    with pytest.raises(UserError, match=r"out\.parquet is there already"):
        read(applied, output=Path("out.parquet"), output_format="parquet")
    assert read(applied) == ["c"]


def test_a_group_that_cannot_be_is_told_before_anything_is_written(applied: Bench) -> None:
    feed(applied, "a")
    out = io.BytesIO()
    with pytest.raises(InvalidNamespaceError):
        read(applied, stream=out, group="bank:audit")
    assert out.getvalue() == b""


# -- many topics


def test_a_pattern_reads_all_topics_that_match_and_each_record_names_its_own(applied: Bench) -> None:
    cluster_of(applied).create_topic("shop:other")
    cluster_of(applied).create_topic("elsewhere")
    feed(applied, "a")
    feed(applied, "o", address="topic/west/shop:other")
    feed(applied, "e", address="topic/west/elsewhere")
    out = io.BytesIO()
    assert read(applied, "west", stream=out, regex="shop:.*") == ["a", "o"]
    assert [json.loads(line)["topic"] for line in out.getvalue().splitlines()] == ["shop:orders", "shop:other"]
    assert read(applied, "cluster/west", regex=".*") == ["e"]
    assert read(applied, "west", regex="order", group=None) == []


class Between(Stop):
    """Ends a reader that follows, after something was done between each two of its looks."""

    def __init__(self, *steps: Callable[[], object]) -> None:
        super().__init__()
        self._steps = iter(steps)

    def wait(self, seconds: float) -> bool:  # noqa: ARG002 - nothing is waited for
        step = next(self._steps, None)
        if step is not None:
            step()
        return step is None


def test_who_follows_by_pattern_goes_on_without_a_topic_that_is_deleted(applied: Bench) -> None:
    cluster_of(applied).create_topic("shop:other")
    feed(applied, "a")
    feed(applied, "o", address="topic/west/shop:other")

    def delete() -> None:
        cluster_of(applied).delete_topic("shop:other")
        feed(applied, "b")

    followed = read(replace(applied, stop=Between(delete)), "west", regex="shop:.*", follow=True)
    assert followed == ["a", "o", "b"]
    assert committed(applied)[("shop:orders", 0)] == 2


@pytest.mark.parametrize(("address", "regex"), [(ORDERS, None), ("west", "shop:.*")])
def test_who_follows_reads_a_topic_that_is_created_again_from_its_beginning(
    applied: Bench, address: str, regex: str | None
) -> None:
    feed(applied, "a", "b")

    def create_again() -> None:
        cluster_of(applied).delete_topic("shop:orders")
        cluster_of(applied).create_topic("shop:orders", partitions=3)
        feed(applied, "c")

    assert read(replace(applied, stop=Between(create_again)), address, regex=regex, follow=True) == ["a", "b", "c"]
    assert committed(applied)[("shop:orders", 0)] == 1


def test_what_is_read_by_pattern_is_produced_again_where_it_is_told(applied: Bench) -> None:
    feed(applied, "a")
    out = io.BytesIO()
    read(applied, "west", stream=out, regex="shop:.*", group=None)
    options = ProduceOptions(input_format="records")
    produce(
        SiteOptions(invocation=applied.invocation, select=Select()),
        ORDERS,
        options,
        stdin=io.BytesIO(out.getvalue()),
        report=lambda _records, _size: None,
    )
    assert read(applied) == ["a", "a"]


@pytest.mark.parametrize(
    ("address", "options", "why"),
    [
        ("west", {"regex": "("}, "not a regular expression"),
        ("topic/west/shop:orders", {"regex": ".*"}, "not the name of a cluster"),
        ("east", {"regex": ".*"}, "there is no cluster 'east'"),
        ("west", {"regex": ".*", "output_format": "parquet"}, "--regex reads several"),
        ("west", {}, "is not the address of a topic"),
    ],
)
def test_a_pattern_that_cannot_be_read_is_refused(
    applied: Bench, address: str, options: dict[str, Any], why: str
) -> None:
    with pytest.raises((UserError, UsageError), match=why):
        read(applied, address, **options)


# -- looking, resetting, deleting


def test_a_topic_is_described_with_its_groups(applied: Bench) -> None:
    feed(applied, "a", "b")
    read(applied, max_records=1)
    groups = describe_topic(SiteOptions(invocation=applied.invocation, select=Select()), ORDERS).groups
    assert groups is not None
    assert [(group.name, group.is_reading, group.lag) for group in groups] == [(GROUP, True, 1)]


def test_a_topic_is_described_although_a_group_cannot_be_read(applied: Bench) -> None:
    cluster_of(applied).store.put("groups/broken.json", b"{")
    assert describe_topic(SiteOptions(invocation=applied.invocation, select=Select()), ORDERS).groups is None


def test_groups_are_listed_and_described_by_cluster(applied: Bench) -> None:
    feed(applied, "a")
    read(applied)
    assert list_groups(SiteOptions(invocation=applied.invocation, select=Select()), "cluster/west").groups == (GROUP,)
    assert describe_group(SiteOptions(invocation=applied.invocation, select=Select()), "west", GROUP).group.lag == 0
    with pytest.raises(UserError, match="there is no cluster 'east'"):
        list_groups(SiteOptions(invocation=applied.invocation, select=Select()), "east")


@pytest.mark.parametrize(
    ("text", "reset"),
    [
        ("earliest", ToEarliest()),
        ("latest", ToLatest()),
        ("12", ToOffset(12)),
        ("+12", ByShift(12)),
        ("-12", ByShift(-12)),
        ("2013-01-01T05:00:00Z", ToTime(1357016400000)),
        ("2013-01-01", ToTime(1356998400000)),
    ],
)
def test_where_a_reset_goes_is_read_as_it_is_written(text: str, reset: object) -> None:
    assert parse_reset(text) == reset


@pytest.mark.parametrize("text", ["", "first", "--3", "1.5", "9" * 20, "1969-01-01"])
def test_where_no_reset_can_go_is_refused(text: str) -> None:
    with pytest.raises(UserError, match="--to"):
        parse_reset(text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("1969-01-01", "--to '1969-01-01' is before 1970"),
        ("9223372036854775808", "--to 9223372036854775808 is not an offset"),
        ("9" * 20, "is not an offset"),
    ],
)
def test_where_a_reset_cannot_go_says_why(text: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        parse_reset(text)
    assert parse_reset("9223372036854775807") == ToOffset((1 << 63) - 1)


def test_a_reset_asks_with_what_moves_and_does_that(applied: Bench) -> None:
    feed(applied, "a", "b", "c")
    read(applied)
    idle, asked = later(applied), list[object]()
    change = GroupChange(cluster="west", group=GROUP, topic=ORDERS)
    with pytest.raises(UserError, match="not confirmed"):
        reset_group(SiteOptions(invocation=idle.invocation, select=Select()), change, "1", confirm=lambda _reset: False)
    assert committed(applied)["shop:orders", 0] == 3
    done = reset_group(SiteOptions(invocation=idle.invocation, select=Select()), change, "1", confirm=_yes(asked))
    assert asked == [done]
    assert done.moves == (OffsetMove("shop:orders", 0, 3, 1),)
    assert read(applied) == ["b", "c"]


def test_a_reset_without_moves_asks_nobody(applied: Bench) -> None:
    feed(applied, "a")
    read(applied)
    change = GroupChange(cluster="west", group=GROUP)
    done = reset_group(
        SiteOptions(invocation=applied.invocation, select=Select()), change, "latest", confirm=lambda _reset: False
    )
    assert done.moves == ()


def test_a_group_that_is_reading_is_refused_before_anybody_is_asked(applied: Bench) -> None:
    feed(applied, "a")
    read(applied)
    asked: list[object] = []
    change = GroupChange(cluster="west", group=GROUP)
    for act in (
        lambda given: reset_group(
            SiteOptions(invocation=applied.invocation, select=Select()), given, "earliest", confirm=_yes(asked)
        ),
        lambda given: delete_group(
            SiteOptions(invocation=applied.invocation, select=Select()), given, confirm=_yes(asked)
        ),
    ):
        with pytest.raises(BlockedError, match="is reading shop:orders"):
            act(change)
        assert asked == []
        act(replace(change, force=True))
        assert len(asked) == 1
        asked.clear()
    assert list_groups(SiteOptions(invocation=applied.invocation, select=Select()), "west").groups == ()


def _yes(asked: list[object]) -> Callable[[object], bool]:
    def confirm(change: object) -> bool:
        asked.append(change)
        return True

    return confirm


def test_offsets_of_one_topic_are_forgotten(applied: Bench) -> None:
    cluster_of(applied).create_topic("shop:other")
    read(applied, "west", regex="shop:.*")
    change = GroupChange(cluster="west", group=GROUP, topic="shop:other")
    delete_group(
        SiteOptions(invocation=later(applied).invocation, select=Select()), change, confirm=lambda _deletion: True
    )
    assert {topic for topic, _ in committed(applied)} == {"shop:orders"}
    for wrong in ("topic/east/shop:orders", "namespace/west/shop"):
        with pytest.raises(UserError, match="is not a topic of cluster west"):
            delete_group(
                SiteOptions(invocation=applied.invocation, select=Select()),
                replace(change, topic=wrong),
                confirm=lambda _deletion: True,
            )


def test_a_plan_names_the_groups_that_read_what_it_deletes(applied: Bench) -> None:
    feed(applied, "a")
    read(applied)
    read(applied, group="audit")
    applied.write("manifests/orders.yaml", "")
    [delete] = [action for action in applied.plan().plan.actions if action.address == ORDERS]
    assert delete.estimate.groups == ("audit", GROUP)
    cluster_of(applied).store.put("groups/broken.json", b"{")
    [delete] = [action for action in applied.plan().plan.actions if action.address == ORDERS]
    assert delete.estimate.groups is None
