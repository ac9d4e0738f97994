from __future__ import annotations

import io
import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

from reconciler.embedded.cluster import EmbeddedCluster
from reconciler.errors import DamagedObjectError, MissingObjectError, RetryableError, UsageError, UserError
from reconciler.objectstore.directory import DirectoryStore
from reconciler.operations.clusters.consume import ConsumeOptions, ProduceOptions, ProduceResult, consume, produce
from reconciler.operations.clusters.namespaces import list_namespaces
from reconciler.operations.clusters.topics import describe_topic, list_topics
from reconciler.operations.drift import drift
from reconciler.operations.steps.invocation import Select
from reconciler.operations.steps.runner import SiteOptions
from reconciler.planning.actions import Change, Reason, Risk
from reconciler.planning.plan_rows import list_changes
from reconciler.records.log import Isolation, OffsetRange
from reconciler.resources.inventory import TopicShown
from tests.embedded.samples import NOW
from tests.embedded.tiered.tiered_cluster import TIERED, archive, evict
from tests.operations.stage import agree, alter_topic

if TYPE_CHECKING:
    from conftest import Bench

    from reconciler.planning.plan import Plan


ORDERS = "topic/west/shop:orders"
ROWS = [{"tail": f"N{number % 7}", "time": f"2013-01-01T00:00:{number:02}Z", "number": number} for number in range(60)]


def feed(bench: Bench, text: str | bytes, **options: object) -> ProduceResult:
    body = text.encode() if isinstance(text, str) else text
    told: list[tuple[int, int]] = []
    produced = produce(
        SiteOptions(invocation=bench.invocation, select=Select()),
        ORDERS,
        ProduceOptions(**{"input_format": "jsonl", **options}),  # type: ignore[arg-type]  # fields by name
        stdin=io.BytesIO(body),
        report=lambda records, size: told.append((records, size)),
    )
    assert not told or told[-1] == (produced.records, produced.bytes)
    return produced


def read(bench: Bench, address: str = ORDERS, **options: object) -> bytes:
    out = io.BytesIO()
    consume(
        SiteOptions(invocation=bench.invocation, select=Select()),
        address,
        ConsumeOptions(**options),
        stdout=out,
        stop=bench.stop,
    )  # type: ignore[arg-type]  # fields by name
    return out.getvalue()


def alter(
    bench: Bench,
    set_: Mapping[str, str],
    *,
    delete: Sequence[str] = (),
    no_state: bool = False,
    address: str = ORDERS,
    state_url: str | None = None,
) -> tuple[Change, ...]:
    emergency = bench.acting("topic alter", no_state=no_state, state_url=state_url)
    return tuple(
        change
        for action in alter_topic(emergency, address, set_, delete).plan.actions
        for change in list_changes(action)
    )


def lines(rows: Sequence[object]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def test_what_is_produced_is_consumed(applied: Bench) -> None:
    produced = feed(applied, lines(ROWS), key_field="tail", timestamp_field="time")
    assert produced.records == 60
    assert sum(offsets.length for offsets in produced.ranges.values()) == 60

    records = [json.loads(line) for line in read(applied).splitlines()]
    assert sorted(json.loads(record["value"])["number"] for record in records) == list(range(60))
    by_key: dict[str, set[int]] = {}
    for record in records:
        by_key.setdefault(record["key"], set()).add(record["partition"])
    assert all(len(partitions) == 1 for partitions in by_key.values())


def test_records_come_back_exactly(applied: Bench) -> None:
    text = lines(
        [
            {"partition": 2, "timestamp_ms": 1, "timestamp_type": "create", "key": None, "value": "", "headers": []},
            {"partition": 2, "timestamp_ms": 2, "key": "", "value": None, "headers": [["a", "b"], ["a", None]]},
            {"partition": 0, "timestamp_ms": 3, "key": {"base64": "/w=="}, "value": "\u2028é", "headers": []},
        ]
    )
    feed(applied, text, input_format="records")
    first = read(applied)
    applied.write("copy.records", first.decode())
    again = feed(applied, b"", input=Path("copy.records"), input_format=None)
    assert again.ranges == {0: OffsetRange(1, 2), 2: OffsetRange(2, 4)}
    assert [json.loads(line)["value"] for line in read(applied, partition=2).splitlines()] == ["", None, "", None]


def test_consuming_begins_where_it_is_told(applied: Bench) -> None:
    feed(applied, lines(ROWS), key_field="tail", timestamp_field="time", partition=1)
    assert len(read(applied, partition=1, start="58").splitlines()) == 2
    assert len(read(applied, partition=1, start="2013-01-01T00:00:50Z").splitlines()) == 10
    assert len(read(applied, start="2013-01-01T00:00:50Z").splitlines()) == 10
    assert read(applied, start="2014-01-01") == b""
    assert len(read(applied, max_records=7).splitlines()) == 7
    assert read(applied, max_records=0) == b""
    assert len(read(applied).splitlines()) == 60


def test_values_and_parquet(applied: Bench) -> None:
    feed(applied, lines(ROWS[:3]), partition=0)
    assert [json.loads(line)["number"] for line in read(applied, output_format="values").splitlines()] == [0, 1, 2]
    read(applied, output=Path("out.parquet"), output_format="parquet")
    assert pq.read_table(applied.folder / "out.parquet").column("offset").to_pylist() == [0, 1, 2]


def test_following_goes_on_until_somebody_stops_it(applied: Bench) -> None:
    feed(applied, lines(ROWS[:3]), partition=0)

    class Out(io.BytesIO):
        """Produces more while it is written to, then asks to stop."""

        def flush(self) -> None:
            got = len(self.getvalue().splitlines())
            if got == 3:
                feed(applied, lines(ROWS[3:5]), partition=0)
            elif got == 5:
                assert applied.stop.request()

    out = Out()
    options = ConsumeOptions(follow=True)
    done = consume(
        SiteOptions(invocation=applied.invocation, select=Select()), ORDERS, options, stdout=out, stop=applied.stop
    )
    assert done.records == 5


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"partition": 3}, "partition 3"),
        ({"start": "yesterday"}, "neither earliest, latest, an offset, nor a time"),
        ({"start": "1969-01-01"}, "'1969-01-01' is before 1970"),
        ({"start": "9223372036854775808"}, "9223372036854775808 is not an offset"),
        ({"start": "9" * 5000}, "is not an offset"),
        ({"output_format": "xml"}, "records, values, parquet"),
        ({"isolation": "serializable"}, "read_committed"),
        ({"output_format": "parquet", "follow": True}, "follow"),
        ({"output": Path("no/such/folder/out")}, "cannot write"),
    ],
)
def test_what_cannot_be_consumed_is_said(applied: Bench, options: dict[str, object], said: str) -> None:
    with pytest.raises((UserError, UsageError), match=said):
        read(applied, **options)


@pytest.mark.parametrize("start", ["yesterday", "9" * 20])
def test_where_nothing_can_begin_leaves_the_output_alone(applied: Bench, start: str) -> None:
    kept = applied.write("kept", "what was there")
    with pytest.raises(UsageError):
        read(applied, start=start, output=kept)
    assert kept.read_text() == "what was there"


@pytest.mark.parametrize("address", ["topic/west/shop:nothing", "topic/west/nowhere:orders", "topic/north/shop:orders"])
def test_a_topic_that_is_not_there_is_said(applied: Bench, address: str) -> None:
    for command in (
        lambda: read(applied, address),
        lambda: describe_topic(SiteOptions(invocation=applied.invocation, select=Select()), address),
        lambda: alter(applied, {"retention.ms": "1d"}, address=address),
    ):
        with pytest.raises(UserError):
            command()


@pytest.mark.parametrize("address", ["shop:orders", "topic/west", "link/west/x", "topic/west/", ""])
def test_what_is_no_address_of_a_topic_is_said(applied: Bench, address: str) -> None:
    with pytest.raises(UsageError, match=r"topic/west/shop:eu:orders"):
        read(applied, address)


def test_what_cannot_be_produced_is_said(applied: Bench) -> None:
    for options, said in (
        ({"input": Path("nothing.jsonl"), "input_format": None}, "nothing.jsonl"),
        ({"input_format": None}, "--input-format"),
        ({"input_format": "xml"}, "xml"),
        ({"key_field": "absent"}, "absent"),
    ):
        with pytest.raises((UserError, UsageError), match=said):
            feed(applied, lines(ROWS), **options)  # type: ignore[arg-type]  # fields by name
    with pytest.raises(UserError, match="line 1"):
        feed(applied, "{")
    assert read(applied) == b""


def test_topics_and_namespaces_are_listed_with_their_sizes(applied: Bench) -> None:
    feed(applied, lines(ROWS))
    (shape,) = list_topics(SiteOptions(invocation=applied.invocation, select=Select()), None)
    assert shape == TopicShown(ORDERS, 3, 1)
    (row,) = list_topics(SiteOptions(invocation=applied.invocation, select=Select()), None, sizes=True)
    assert (row.address, row.partitions, row.records) == (ORDERS, 3, 60)
    assert row.bytes
    assert list_topics(SiteOptions(invocation=applied.invocation, select=Select()), "topic/west/other:*") == []
    assert [
        found.address for found in list_topics(SiteOptions(invocation=applied.invocation, select=Select()), ORDERS)
    ] == [ORDERS]
    (namespace,) = list_namespaces(SiteOptions(invocation=applied.invocation, select=Select()), None)
    assert (namespace.address, namespace.topics) == ("namespace/west/shop", 1)
    assert list_namespaces(SiteOptions(invocation=applied.invocation, select=Select()), "west") == (namespace,)


def test_a_cluster_that_is_not_declared_is_said(applied: Bench) -> None:
    with pytest.raises(UserError, match="west"):
        list_namespaces(SiteOptions(invocation=applied.invocation, select=Select()), "north")


def test_a_recorded_cluster_that_is_gone_is_out_of_reach_not_empty(applied: Bench) -> None:
    shutil.move(applied.folder / ".clusters/west", applied.folder / "elsewhere")
    for look in (
        lambda: list_topics(SiteOptions(invocation=applied.invocation, select=Select()), None),
        lambda: list_namespaces(SiteOptions(invocation=applied.invocation, select=Select()), None),
        lambda: describe_topic(SiteOptions(invocation=applied.invocation, select=Select()), ORDERS),
    ):
        gone = "cannot read cluster west: it is recorded in the state, but its location is empty"
        with pytest.raises(RetryableError, match=gone) as caught:
            look()
        assert "--exclude" not in caught.value.hint
    assert list_topics(SiteOptions(invocation=applied.invocation, select=Select()), "topic/other/*x") == []


def test_another_cluster_in_its_place_is_not_listed_as_it(applied: Bench) -> None:
    root = applied.folder / ".clusters/west"
    shutil.rmtree(root)
    EmbeddedCluster.create(DirectoryStore(root), "another", now_ms=lambda: 0, new_id=lambda: "x")
    for look in (
        lambda: list_topics(SiteOptions(invocation=applied.invocation, select=Select()), None),
        lambda: describe_topic(SiteOptions(invocation=applied.invocation, select=Select()), ORDERS),
    ):
        with pytest.raises(UserError, match="but another answers"):
            look()


def test_clusters_are_listed_also_when_the_state_cannot_be_read(applied: Bench) -> None:
    applied.write(".reconciler/lockfile.json", "{")
    assert [row.address for row in list_topics(SiteOptions(invocation=applied.invocation, select=Select()), None)] == [
        ORDERS
    ]
    assert "the state cannot be read" in applied.warned[-1]


def test_before_anything_is_applied_there_is_nothing_to_list(bench: Bench) -> None:
    assert list_topics(SiteOptions(invocation=bench.invocation, select=Select()), None) == []
    assert list_namespaces(SiteOptions(invocation=bench.invocation, select=Select()), None) == ()


def test_a_topic_is_described_with_what_acts_on_it(applied: Bench) -> None:
    path = applied.folder / "manifests/west.yaml"
    path.write_text(path.read_text() + "spec: {configs: {max.message.bytes: 2MiB, retention.ms: 1d}}\n")
    applied.apply()
    feed(applied, lines(ROWS), partition=2)
    found = describe_topic(SiteOptions(invocation=applied.invocation, select=Select()), ORDERS)
    assert [(row.partition, row.start, row.stable, row.end) for row in found.partitions] == [
        (0, 0, 0, 0),
        (1, 0, 0, 0),
        (2, 0, 60, 60),
    ]
    assert found.records == 60
    rows = {row.key: (row.value, row.origin) for row in found.configs}
    assert rows["retention.ms"] == ("604800000", ORDERS)
    assert rows["max.message.bytes"] == ("2097152", "namespace/west/shop")
    assert rows["cleanup.policy"] == ("delete", "default")


def drifted(bench: Bench) -> dict[str, tuple[str, object, object]]:
    found = drift(bench.invocation, Select())
    assert (found.verdict is not None) == any(row.kind == "drift" for row in found.findings)
    return {row.path: (row.kind, row.recorded, row.observed) for row in found.findings}


def test_what_was_altered_and_altered_back_is_no_drift(applied: Bench) -> None:
    alter(applied, {"retention.ms": "2d", "max.message.bytes": "2000000"})
    alter(applied, {"retention.ms": "7d"}, delete=["max.message.bytes"])
    assert drifted(applied) == {}
    assert applied.plan().plan.is_empty


def test_what_was_altered_and_taken_away_by_hand_leaves_a_mark_that_the_next_apply_takes(applied: Bench) -> None:
    alter(applied, {"max.message.bytes": "2000000"})
    alter(applied, {}, delete=["max.message.bytes"], no_state=True)
    assert {kind for kind, *_ in drifted(applied).values()} <= {"pending"}
    applied.apply()
    assert applied.plan().plan.is_empty


def test_what_was_altered_is_pending_once_the_files_say_the_same(applied: Bench) -> None:
    alter(applied, {"retention.ms": "2d", "max.message.bytes": "2000000"})
    path = applied.folder / "manifests/orders.yaml"
    path.write_text(path.read_text().replace("retention.ms: 7d", "retention.ms: 2d, max.message.bytes: 2000000"))
    assert {kind for kind, *_ in drifted(applied).values()} == {"pending"}
    applied.apply()
    assert drifted(applied) == {}
    assert applied.plan().plan.is_empty


def test_altering_what_a_namespace_declares_is_drift_and_goes_back_to_it(applied: Bench) -> None:
    path = applied.folder / "manifests/west.yaml"
    path.write_text(path.read_text() + "spec: {configs: {max.message.bytes: 2000000}}\n")
    applied.apply()
    alter(applied, {"max.message.bytes": "3000000"})
    assert drifted(applied) == {"configs.max.message.bytes": ("drift", "2000000", "3000000")}
    applied.apply()
    assert drifted(applied) == {}
    assert applied.plan().plan.is_empty


@pytest.mark.parametrize(
    ("set_", "loss"),
    [
        ({"retention.ms": "1d"}, (True, False)),
        ({"retention.ms": "1d", "cleanup.policy": "compact,delete"}, (True, True)),
        ({"cleanup.policy": "compact"}, (False, True)),
        ({"cleanup.policy": "compact", "retention.ms": "1d"}, (False, True)),
        ({"retention.ms": "30d"}, None),
        ({"max.message.bytes": "2000000"}, None),
    ],
)
def test_altering_asks_where_records_go_by_it_and_nowhere_else(
    applied: Bench, set_: dict[str, str], loss: tuple[bool, bool] | None
) -> None:
    feed(applied, lines([{"key": "a", "value": "b", "timestamp_ms": NOW - 2 * 86_400_000}]), input_format="records")
    asked: list[Plan] = []

    def confirm(plan: Plan) -> bool:
        asked.append(plan)
        return plan.actions[0].risk is not Risk.DATA_LOSS

    if loss is not None:
        with pytest.raises(UserError, match="not confirmed: nothing was done"):
            alter_topic(applied.acting("topic alter"), ORDERS, set_, confirm=confirm)
        assert drifted(applied) == {}
    done = alter_topic(applied.acting("topic alter"), ORDERS, set_, confirm=agree if loss else confirm)
    found = drifted(applied)
    found.pop("", None)  # That setting it back is blocked, where records go by that.
    assert found.keys() == {change.path for change in list_changes(done.plan.actions[0])}
    (action,) = asked[0].actions
    assert (action.risk is Risk.DATA_LOSS) == (loss is not None)
    assert loss in {None, (action.estimate.bytes > 0, Reason.COMPACT_ADDED in action.reasons)}


def test_altering_without_the_state_is_found_as_drift(applied: Bench) -> None:
    (applied.folder / ".reconciler").rename(applied.folder / "away")
    assert alter(applied, {}, delete=["retention.ms"], no_state=True)[0].after is None
    (applied.folder / "away").rename(applied.folder / ".reconciler")
    assert [row.kind for row in drift(applied.invocation, Select()).findings] == ["drift"]


@pytest.mark.parametrize(
    ("key", "value", "said"), [("retention.mss", "1d", "Did you mean retention.ms"), ("retention.ms", "soon", "soon")]
)
def test_altering_to_what_cannot_be_is_said(applied: Bench, key: str, value: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        alter(applied, {key: value})


def test_nothing_is_written_to_another_cluster_that_lies_at_the_root(applied: Bench) -> None:
    mine, other = applied.folder / ".clusters/west", applied.folder / "other"
    mine.rename(applied.folder / "kept")
    stranger = EmbeddedCluster.create(
        DirectoryStore(other), now_ms=applied.invocation.now_ms, new_id=applied.invocation.new_id
    )
    stranger.create_namespace("shop")
    other.rename(mine)
    for write in (lambda: feed(applied, '{"id": 1}\n'), lambda: alter(applied, {"retention.ms": "1d"})):
        with pytest.raises(UserError, match=r"cluster west should be .*, but .* answers"):
            write()


# `topic consume` of a topic whose older records lie in object storage, some of them lost there.


WEST = """\
apiVersion: reconciler/v1
kind: Cluster
metadata: {name: west}
spec:
  embedded: {root: "file://.clusters/west"}
  objectStorage: {url: "file://.bucket"}
  properties: {cloud_storage_enabled: true}
---
apiVersion: reconciler/v1
kind: Namespace
metadata: {name: shop, cluster: west}
"""


@pytest.fixture
def tiered(bench: Bench) -> Bench:
    """A workspace whose topic has three records, the first two of them in object storage alone."""
    bench.write("manifests/west.yaml", WEST)
    bench.apply()
    folder = bench.folder
    cluster = EmbeddedCluster.open(
        DirectoryStore(folder / ".clusters/west"),
        now_ms=bench.invocation.now_ms,
        new_id=bench.invocation.new_id,
        storage=DirectoryStore(folder / ".bucket"),
    )
    cluster.alter_topic("shop:orders", TIERED)
    for value in ("first", "second", "third"):
        with cluster.producer() as producer:
            producer.send("shop:orders", value, partition=0)
    archive(cluster, "shop:orders")
    evict(cluster, "shop:orders", to=2)
    return bench


def read_remote(bench: Bench, *, skip_missing: bool = False) -> list[str]:
    out = io.BytesIO()
    options = ConsumeOptions(output_format="values", group="g", skip_missing=skip_missing)
    consume(
        SiteOptions(invocation=bench.invocation, select=Select()),
        "topic/west/shop:orders",
        options,
        stdout=out,
        stop=bench.stop,
    )
    return out.getvalue().decode().split()


def segment(bench: Bench, base: int) -> Path:
    (found,) = (bench.folder / ".bucket/topics").rglob(f"{base}-*.parquet")
    return found


@pytest.mark.fact("F-R-039")
def test_records_of_both_tiers_are_consumed_and_cached_where_the_user_keeps_caches(tiered: Bench) -> None:
    caches = tiered.folder / "caches"
    bench = tiered.with_(environ={"XDG_CACHE_HOME": str(caches)})
    assert read_remote(bench) == ["first", "second", "third"]
    assert len([path for path in caches.rglob("*_chunks/0") if path.is_file()]) == 2


def test_what_is_gone_is_an_error_that_says_how_to_go_on(tiered: Bench) -> None:
    segment(tiered, 0).unlink()
    with pytest.raises(
        MissingObjectError, match="shop:orders, partition 0: the records at offsets 0 to 0 cannot be"
    ) as raised:
        read_remote(tiered)
    assert "topic consume --skip-missing, or --from 1." in raised.value.hint


def test_what_is_gone_is_left_out_when_asked_and_said_and_never_waited_for_again(tiered: Bench) -> None:
    lost = segment(tiered, 0)
    lost.unlink()
    assert read_remote(tiered, skip_missing=True) == ["second", "third"]
    (warning,) = tiered.warned
    assert warning.startswith("shop:orders, partition 0: offsets 0 to 0 are gone: file://")
    assert warning.endswith(f"has no object {lost.relative_to(tiered.folder / '.bucket')}")
    assert read_remote(tiered) == []


def test_what_is_damaged_is_left_out_when_asked_and_said_why(tiered: Bench) -> None:
    cut = segment(tiered, 0)
    cut.chmod(0o600)
    cut.write_bytes(cut.read_bytes()[:40])
    with pytest.raises(DamagedObjectError) as raised:
        read_remote(tiered)
    assert "topic consume --skip-missing, or --from 1." in raised.value.hint
    assert read_remote(tiered, skip_missing=True) == ["second", "third"]
    (warning,) = tiered.warned
    assert warning.startswith("shop:orders, partition 0: offsets 0 to 0 cannot be read: file://")
    assert "is damaged: it ends at byte 40" in warning


# `topic consume --isolation`: what is not committed yet is left out, or shown; what is aborted is never shown.


def test_open_transactions_are_shown_to_those_who_ask_for_them(applied: Bench) -> None:
    invocation = applied.invocation
    cluster = EmbeddedCluster.open(
        DirectoryStore(applied.folder / ".clusters/west"), now_ms=invocation.now_ms, new_id=invocation.new_id
    )
    aborted, undecided = cluster.producer("shop:aborted"), cluster.producer("shop:undecided")
    for producer in (aborted, undecided):
        producer.init_transactions()
        producer.begin()
    with cluster.producer() as plain:
        plain.send("shop:orders", "before", partition=0)
    aborted.send("shop:orders", "aborted", partition=0)
    aborted.flush()
    undecided.send("shop:orders", "undecided", partition=0)
    undecided.flush()
    with cluster.producer() as plain:
        plain.send("shop:orders", "after", partition=0)
    aborted.abort()
    assert isolated(applied, "read_committed") == ["before"]
    assert isolated(applied, "read_uncommitted") == ["before", "undecided", "after"]
    undecided.commit()
    assert isolated(applied, "read_committed") == ["before", "undecided", "after"]
    assert isolated(applied, "read_uncommitted") == ["before", "undecided", "after"]


def isolated(bench: Bench, isolation: Isolation) -> list[str]:
    out = io.BytesIO()
    options = ConsumeOptions(output_format="values", isolation=isolation)
    consume(
        SiteOptions(invocation=bench.invocation, select=Select()),
        "topic/west/shop:orders",
        options,
        stdout=out,
        stop=bench.stop,
    )
    return out.getvalue().decode().split()
