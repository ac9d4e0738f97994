"""`run --metrics`: the exposition format to the letter, every number where it belongs, and files that cannot be."""

from __future__ import annotations

import json
import os
import pickle
import re
import tempfile
from pathlib import Path
from typing import Literal, NamedTuple

import jsonschema
import pytest

from reconciler.cli.metrics_file import format_metrics, format_prometheus, read_totals, write_metrics_file
from reconciler.embedded.catalog.mirror_tables import MirrorShape
from reconciler.embedded.catalog.model import DeletionEntry, RewriteEntry
from reconciler.embedded.segments.groups import commit_offsets
from reconciler.embedded.tiered.cache import ChunkCache, measure_cache_levels, pop_cache_counts
from reconciler.embedded.tiered.usage import CountingStore
from reconciler.errors import IncompleteError, LostRaceError, MissingObjectError, RetryableError, UserError
from reconciler.lifecycles import LinkStatus, MirrorStatus
from reconciler.objectstore.memory import MemoryStore
from reconciler.operations.metrics import ClusterReading, Metric, add_totals, build_metrics
from reconciler.operations.mirrors.mirror_rounds import JobOutcome, MirrorOutcome, PassResult
from reconciler.providers.embedded.measures import build_storage_report, measure_cluster
from reconciler.providers.protocol import MaintenanceJobResult
from reconciler.resources.address import Address
from reconciler.resources.base import OnCluster
from reconciler.resources.measures import (
    COUNTER_HELP,
    LEVELS,
    GroupLag,
    PartitionVitals,
    RemoteVitals,
    TopicVitals,
    Vitals,
)
from reconciler.resources.mirror_link import AclFilter, AclSyncSpec, MirrorLink, MirrorLinkSpec
from reconciler.resources.mirrors import ACL_SYNC, LinkEntry, ObservedLink, ObservedMirror, SourceTopic, Trouble
from tests.cli.conftest import Call, Run
from tests.cli.test_topic_storage import workspace
from tests.embedded.maintenance.tiny_segments import head_of
from tests.embedded.samples import NOW, cluster_in, values
from tests.embedded.tiered.tiered_cluster import tiered

_NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
_LABEL = r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\\\|\\"|\\n)*)"'
_SAMPLE = re.compile(rf"({_NAME})(?:\{{({_LABEL}(?:,{_LABEL})*)\}})? (-?[0-9]+(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?)")


class Scraped(NamedTuple):
    """A file as a strict reader of the format takes it."""

    kinds: dict[str, str]
    values: dict[tuple[str, tuple[tuple[str, str], ...]], float]

    def of(self, name: str, **labels: str) -> float:
        return self.values[f"reconciler_{name}", tuple(sorted(labels.items()))]

    def names(self) -> set[str]:
        return {name.removeprefix("reconciler_") for name, _ in self.values}


def scraped(text: str) -> Scraped:
    """Read a file as the format is written down: HELP, TYPE, samples; one group a metric; no series twice."""
    assert text == "" or text.endswith("\n")
    kinds: dict[str, str] = {}
    helped: list[str] = []
    found: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}
    current = ""
    for line in text.splitlines():
        if line.startswith("# HELP "):
            current, _, words = line.removeprefix("# HELP ").partition(" ")
            assert current not in helped
            assert words
            helped.append(current)
        elif line.startswith("# TYPE "):
            name, _, kind = line.removeprefix("# TYPE ").partition(" ")
            assert name == current
            assert kind in {"gauge", "counter"}
            kinds[name] = kind
        else:
            match = _SAMPLE.fullmatch(line)
            assert match, line
            assert match[1] == current
            assert current in kinds
            labels = tuple(sorted((label, unescaped(value)) for label, value in re.findall(_LABEL, match[2] or "")))
            assert len({label for label, _ in labels}) == len(labels)
            assert (current, labels) not in found
            found[current, labels] = float(match[match.lastindex or 0])
    assert set(helped) == set(kinds)
    return Scraped(kinds, found)


def unescaped(value: str) -> str:
    return re.sub(r"\\(.)", lambda match: {"n": "\n"}.get(match[1], match[1]), value)


# -- the format


def test_labels_come_back_as_they_were_whatever_is_in_them() -> None:
    metric = Metric("odd", 'help with a \\ and\na second line, and "quotes"')
    odd = ['quo"te', "back\\slash", "new\nline", "é{}=,# ", "\\n", ""]
    for value in odd:
        metric.add(1.5, topic=value)
    text = format_prometheus([metric])
    assert text.startswith('# HELP reconciler_odd help with a \\\\ and\\na second line, and "quotes"\n')
    read = scraped(text)
    assert {labels[0][1] for _, labels in read.values} == set(odd)
    assert set(read.values.values()) == {1.5}
    broken = Metric("broken", "Half a character.")
    broken.add(1, topic="\udc80")
    assert scraped(format_prometheus([broken])).of("broken", topic="?") == 1


@pytest.mark.parametrize("number", [0, 1, -3, 2**53 + 1, 0.1, 1795273008.17, 1e22, 1.5e-7])
def test_numbers_are_exact(number: float) -> None:
    metric = Metric("number", "A number.")
    metric.add(number)
    assert scraped(format_prometheus([metric])).of("number") == float(number)


def _metric(name: str, kind: Literal["gauge", "counter"], *samples: tuple[float, dict[str, str]]) -> Metric:
    metric = Metric(name, "Some help.", kind=kind)
    for value, labels in samples:
        metric.add(value, **labels)
    return metric


@pytest.mark.parametrize(
    ("metric", "lines"),
    [
        (
            _metric("cluster_topics", "gauge", (2, {"cluster": "west"}), (0, {"cluster": "east"})),
            ['cluster_topics{cluster="west"} 2.0', 'cluster_topics{cluster="east"} 0.0'],
        ),
        (_metric("errors_total", "counter", (3, {"cluster": "a"})), ['errors_total{cluster="a"} 3.0']),
        (
            _metric("uploaded_bytes", "counter", (1 << 40, {"cluster": "a"})),
            ['uploaded_bytes{cluster="a"} 1.099511627776e+12'],
        ),
        (_metric("job_done", "gauge", (1.5, {"job": "b", "cluster": "a"})), ['job_done{cluster="a",job="b"} 1.5']),
        (_metric("run_last_success", "gauge", (1, {})), ["run_last_success 1.0"]),
    ],
    ids=["gauge", "total", "no-suffix", "labels", "no-labels"],
)
def test_a_metric_is_written_as_the_library_of_prometheus_does_under_the_name_we_gave_it(
    metric: Metric, lines: list[str]
) -> None:
    name = f"reconciler_{metric.name}"
    head = [f"# HELP {name} Some help.", f"# TYPE {name} {metric.kind}"]
    assert format_prometheus([metric]).splitlines() == [*head, *(f"reconciler_{each}" for each in lines)]


@pytest.mark.parametrize("number", ["7", "7.0", "1099511627776", "1.099511627776e+12", "1e+07"])
def test_counters_go_on_from_a_file_of_any_version(number: str, tmp_path: Path) -> None:
    path = tmp_path / "m.prom"
    path.write_text(f'reconciler_cloud_storage_uploaded_bytes{{cluster="west"}} {number}\n')
    assert read_totals(path) == {("uploaded_bytes", "west"): float(number)}


def test_a_metric_without_numbers_is_left_out() -> None:
    assert format_prometheus([Metric("none", "Nothing.")]) == ""


# -- what is told


def at(end: int, newest_ms: int | None = None) -> PartitionVitals:
    return PartitionVitals(end, newest_ms)


SOURCE = TopicVitals(Address("topic/west/a"), 2, 0, 30, 30, 1, partition_vitals={0: at(20, 9_000), 1: at(10, 5_000)})


@pytest.mark.parametrize(
    ("copied", "records", "ms"),
    [
        ({0: at(20, 9_000), 1: at(10, 5_000)}, 0, 0),
        ({0: at(15, 8_000), 1: at(10, 5_000)}, 5, 1_000),
        ({0: at(15, 8_000), 1: at(1, 1_000)}, 14, 4_000),
        ({0: at(15, 9_500), 1: at(10, 5_000)}, 5, 0),
        ({0: at(15, 8_000)}, 15, 1_000),
        ({1: at(10, 5_000)}, 20, None),
        ({}, 30, None),
        ({0: at(25, 9_000), 1: at(10, 5_000)}, 0, 0),
    ],
    ids=["whole", "behind", "slowest", "older-came-later", "one-empty", "empty", "nothing", "source-was-cut"],
)
def test_a_mirror_is_as_late_as_its_slowest_partition(
    copied: dict[int, PartitionVitals], records: int, ms: int | None
) -> None:
    mirror = TopicVitals(Address("mirror/east/a"), 2, 0, 0, 0, 1, SOURCE.address, partition_vitals=copied)
    assert (mirror.count_lag(SOURCE), mirror.compute_lag_ms(SOURCE)) == (records, ms)


def test_everything_of_a_pass_is_told() -> None:
    source, mirror = Address("topic/west/shop:orders"), Address("mirror/east/orders")
    west = Vitals(
        topics=2,
        partitions=5,
        measured=[TopicVitals(source, 3, 10, 50, 40, 4000, partition_vitals={0: at(30, 9_500), 1: at(20, 4_000)})],
        unmeasured=1,
        groups=2,
        lags=[GroupLag("billing", "shop:orders", 7)],
        unmeasured_groups=1,
        open_transactions=1,
        pending_deletions=3,
        pending_rewrites=4,
    )
    # In offsets of its source: what it takes itself may be more, or less.
    copy = TopicVitals(mirror, 3, 10, 99, 35, 3500, source, partition_vitals={0: at(25, 7_250), 1: at(20, 4_000)})
    east = Vitals(topics=1, partitions=3, measured=[copy])
    broken = RetryableError("no answer", hint="Wait.")
    upkeep = PassResult(
        (MirrorOutcome(mirror, 5, 500, 1.5), MirrorOutcome(Address("mirror/east/b"), 0, 0, 0.5, broken)),
        (
            JobOutcome("sweep", "west", 2.0, MaintenanceJobResult("object", 12, bytes=1200)),
            JobOutcome("roll", "west", 1.0, MaintenanceJobResult("partition", 3, failed=1, errors=(broken,))),
            JobOutcome("observe", "north", 0.1, error=broken),
        ),
        6.25,
    )
    seen = ObservedMirror("east", "orders", "id", "twin", "west", "shop:orders", MirrorStatus.ACTIVE, 3)
    measured = [
        ClusterReading("east", east, mirrors=[seen]),
        ClusterReading("north", None, broken),
        ClusterReading("west", west),
    ]
    read = scraped(format_prometheus(build_metrics(measured, upkeep, now_ms=1_700_000_000_500)))

    assert [read.of("cluster_up", cluster=name) for name in ("east", "north", "west")] == [1, 0, 1]
    counts = {"topics": 2, "partitions": 5, "unmeasured_topics": 1, "groups": 2, "unmeasured_groups": 1}
    counts |= {"open_transactions": 1, "pending_deletions": 3, "pending_rewrites": 4}
    assert {name: read.of(f"cluster_{name}", cluster="west") for name in counts} == counts
    of_topic = {"partitions": 3, "log_start_offset": 10, "log_end_offset": 50, "records": 40, "bytes": 4000}
    assert {name: read.of(f"topic_{name}", cluster="west", topic="shop:orders") for name in of_topic} == of_topic
    assert read.of("group_lag", cluster="west", group="billing", topic="shop:orders") == 7
    assert read.of("cluster_link_mirror_topic_offset_lag", cluster="east", link="twin", topic="orders") == 5
    assert read.of("cluster_link_mirror_topic_lag_seconds", cluster="east", link="twin", topic="orders") == 2.25
    jobs = {("sweep", "west"): (1, 12, 1200, 2), ("roll", "west"): (0, 3, 0, 1), ("mirror", "east"): (0, 5, 500, 2)}
    for (job, cluster), (success, done, size, seconds) in jobs.items():
        labels = {"job": job, "cluster": cluster}
        assert read.of("job_last_run_success", **labels) == success
        assert read.of("job_last_run_done", **labels) == done
        assert read.of("job_last_run_bytes", **labels) == size
        assert read.of("job_last_run_duration_seconds", **labels) == seconds
        assert read.of("job_last_run_timestamp_seconds", **labels) == 1_700_000_000.5
    assert read.of("job_last_run_success", job="observe", cluster="north") == 0
    assert (read.of("run_last_success"), read.of("run_last_duration_seconds")) == (0, 6.25)
    assert set(read.kinds.values()) == {"gauge"}, "nothing was counted"


@pytest.mark.fact("F-C-210")
def test_links_their_tasks_and_mirrors_are_counted_by_state() -> None:
    spec = MirrorLinkSpec(source="west", acl_sync=AclSyncSpec(enabled=True, filters=(AclFilter(),)))
    declared = MirrorLink(metadata=OnCluster(name="twin", cluster="east"), spec=spec)
    other = declared.model_copy(update={"metadata": OnCluster(name="old", cluster="east")})
    trouble = Trouble("AUTHORIZATION_ERROR", "User:link-twin may not describe ACLs", 1)
    links = [
        ObservedLink(declared, "id", LinkStatus.ACTIVE, tasks={ACL_SYNC: trouble}),
        ObservedLink(other, "id-2", LinkStatus.UNAVAILABLE),
    ]

    def seen(name: str, status: MirrorStatus, wrong: Trouble | None = None) -> ObservedMirror:
        return ObservedMirror("east", name, f"id-{name}", "twin", "west", name, status, 1, trouble=wrong)

    mirrors = [
        seen("a", MirrorStatus.ACTIVE),
        seen("b", MirrorStatus.ACTIVE),
        seen("c", MirrorStatus.PENDING_STOPPED, trouble),
        seen("d", MirrorStatus.FAILED, trouble),
    ]
    measured = [ClusterReading("east", Vitals(topics=4, partitions=4), links=links, mirrors=mirrors)]
    upkeep = PassResult((MirrorOutcome(Address("mirror/east/a"), 5, 500, 1.5),), (), 1.0)
    totals = add_totals(add_totals({}, upkeep), upkeep)
    metrics = build_metrics(measured, upkeep, now_ms=0, totals=totals)
    read = scraped(format_prometheus(metrics))
    assert read.of("cluster_link_count", cluster="east", state="ACTIVE") == 1
    assert read.of("cluster_link_count", cluster="east", state="UNAVAILABLE") == 1
    tasks = {state: read.of("cluster_link_task_count", cluster="east", link="twin", state=state) for state in _STATES}
    assert tasks == {"ACTIVE": 1, "IN_ERROR": 1, "NOT_CONFIGURED": 2}
    assert read.of("cluster_link_task_count", cluster="east", link="old", state="LINK_UNAVAILABLE") == 2
    count = {
        state: read.of("cluster_link_mirror_topic_count", cluster="east", link="twin", state=state)
        for state in ("ACTIVE", "PENDING_STOPPED", "FAILED")
    }
    assert count == {"ACTIVE": 2, "PENDING_STOPPED": 1, "FAILED": 1}
    assert read.of("cluster_link_mirror_transition_in_error", cluster="east", link="twin") == 1
    assert read.of("cluster_link_mirror_topic_bytes", cluster="east") == 1000
    assert read.kinds["reconciler_cluster_link_mirror_topic_bytes"] == "counter"
    for name in ("metrics.prom", "metrics.json"):
        assert totals_of(name, metrics) == totals


_STATES = ("ACTIVE", "IN_ERROR", "NOT_CONFIGURED")


def totals_of(name: str, metrics: list[Metric]) -> dict[tuple[str, str], float]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(format_metrics(path, metrics))
        return read_totals(path)


# -- what is measured


def test_instruments_read_sizes_lags_and_what_is_pending() -> None:
    cluster = cluster_in(MemoryStore())
    cluster.create_topic("orders", partitions=3)
    cluster.create_topic("empty")
    cluster.create_link("from-east", LinkEntry("link-id", "east"))
    cluster.create_mirror("copy", MirrorShape(link="from-east", source="copy"), SourceTopic(partitions=1))
    with cluster.producer() as producer:
        producer.append("orders", values("a", "b", "c", partition=[0, 0, 2]))
    writer = cluster.producer("checkout")
    writer.init_transactions()
    writer.begin()
    writer.send("orders", "open", partition=1)
    writer.flush()
    place = cluster.topic("orders").id, 0
    commit_offsets(cluster.store, cluster.catalog, "billing", {place: 1}, mark="m", now_ms=NOW)
    commit_offsets(cluster.store, cluster.catalog, "ahead", {place: 99}, mark="m", now_ms=NOW)
    cluster.catalog.commit(lambda draft: draft.put_deletion("gone", DeletionEntry("gone")))
    cluster.catalog.commit(lambda draft: draft.put_rewrite("x", RewriteEntry("empty")))

    found = measure_cluster(build_storage_report(cluster), "west")
    assert (found.topics, found.partitions, found.unmeasured) == (3, 5, 0)
    assert (found.pending_deletions, found.pending_rewrites, found.open_transactions) == (1, 1, 1)
    copy, empty, orders = found.measured
    assert copy[:5] == (Address("mirror/west/copy"), 1, 0, 0, 0)
    assert copy.source == Address("topic/east/copy")
    assert empty == (Address("topic/west/empty"), 1, 0, 0, 0, 0, None, None, {})
    assert orders[:5] == (Address("topic/west/orders"), 3, 0, 4, 4)
    assert orders.bytes > 1000
    assert found.lags == [GroupLag("ahead", "orders", 0), GroupLag("billing", "orders", 1)]


# -- the file


def test_the_file_is_replaced_at_once_and_may_be_read_by_others(tmp_path: Path) -> None:
    path = tmp_path / "m.prom"
    path.write_text("before")
    with path.open() as before:
        write_metrics_file(path, b"after\n")
        assert before.read() == "before"
    assert path.read_text() == "after\n"
    assert [each.name for each in tmp_path.iterdir()] == ["m.prom"]
    mask = os.umask(0)
    os.umask(mask)
    assert path.stat().st_mode & 0o777 == 0o666 & ~mask


def test_a_file_that_cannot_be_leaves_what_was_there(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "folder", tmp_path / "missing" / "m.prom", tmp_path / "file" / "m.prom"):
        with pytest.raises(UserError, match="cannot write the metrics to"):
            write_metrics_file(path, b"x")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["file", "folder"]


@pytest.mark.thorough
def test_a_run_writes_them_and_one_that_cannot_says_so_and_does_its_work(run: Run, tmp_path: Path) -> None:
    assert run("init").returncode == 0
    assert run("apply", "--yes").returncode == 0
    said = run("run", "--once", "--only", "sweep", "--metrics", "m.prom")
    assert (said.returncode, said.stderr) == (0, "")
    read = scraped((tmp_path / "m.prom").read_text())
    assert read.of("cluster_topics", cluster="west") == 1
    assert read.of("job_last_run_success", job="sweep", cluster="west") == 1
    assert read.of("run_last_success") == 1
    refused = run("run", "--once", "--only", "sweep", "--metrics", "nowhere/m.prom")
    assert refused.returncode == 8
    assert "Nothing to do" in refused.stdout
    assert refused.stderr.startswith(f"Error: cannot write the metrics to {tmp_path}/nowhere/m.prom: ")


@pytest.mark.thorough
def test_a_full_disk_and_a_folder_that_is_read_only_exit_8_as_other_partial_failures(run: Run) -> None:
    assert run("init").returncode == 0
    assert run("apply", "--yes").returncode == 0
    # Not even root makes files in /proc; a link to /dev/full takes the place of the unfinished file's disk.
    for path in ("/proc/m.prom", "/dev/full/m.prom"):
        refused = run("run", "--once", "--only", "sweep", "--metrics", path)
        assert refused.returncode == 8, refused.stderr
        assert refused.stderr.startswith(f"Error: cannot write the metrics to {path}: ")
        assert "Traceback" not in refused.stderr


def test_a_stopped_pass_is_no_success() -> None:
    upkeep = PassResult((), (), 1.0, is_stopped=True)
    assert isinstance(upkeep.verdict, IncompleteError)
    assert scraped(format_prometheus(build_metrics([], upkeep, now_ms=0))).of("run_last_success") == 0


# -- object storage


def job_of(name: str, cluster: str, *, counts: dict[str, int], levels: dict[str, float] | None = None) -> JobOutcome:
    return JobOutcome(name, cluster, 1.0, MaintenanceJobResult("partition", 1, counts=counts, levels=levels or {}))


def test_what_lies_in_object_storage_is_told_of_each_tiered_topic_and_of_no_other() -> None:
    tiered, plain = Address("topic/west/shop:orders"), Address("topic/west/plain")
    west = Vitals(
        topics=2,
        partitions=2,
        measured=[
            TopicVitals(tiered, 1, 0, 9, 9, 100, remote=RemoteVitals(900, 7, 2, 950, 50)),
            TopicVitals(plain, 1, 0, 1, 1, 10),
        ],
    )
    archive = TopicVitals(Address("topic/east/old"), 1, 0, 9, 9, 0, remote=RemoteVitals(90, 1, 0, 90, None))
    measured = [
        ClusterReading("west", west),
        ClusterReading("east", Vitals(topics=1, partitions=1, measured=[archive])),
    ]
    read = scraped(format_prometheus(build_metrics(measured, PassResult((), (), 1.0), now_ms=0)))
    expected = {"bytes": 900, "segments": 7, "segments_pending_deletion": 2, "cloud_log_size": 950, "pending_bytes": 50}
    labels = {"cluster": "west", "topic": "shop:orders"}
    assert {name: read.of(f"cloud_storage_{name}", **labels) for name in expected} == expected
    series = {labels for name, labels in read.values if name == "reconciler_cloud_storage_pending_bytes"}
    assert series == {(("cluster", "west"), ("topic", "shop:orders"))}
    assert ("reconciler_cloud_storage_bytes", (("cluster", "west"), ("topic", "plain"))) not in read.values


def test_what_jobs_count_adds_up_and_what_holds_after_them_is_the_last_word() -> None:
    first = PassResult(
        (),
        (
            job_of("upload", "west", counts={"segment_uploads_total": 3, "errors_total": 1}),
            job_of("retention", "west", counts={"deleted_segments": 2, "errors_total": 1}),
            job_of("upload", "east", counts={"segment_uploads_total": 1}),
            JobOutcome("compact", "west", 1.0, error=RetryableError("no answer", hint="Wait.")),
        ),
        1.0,
    )
    shares = "upload_backlog_controller_shares"
    second = PassResult(
        (),
        (
            job_of("upload", "west", counts={"segment_uploads_total": 4}, levels={shares: 100}),
            job_of("merge", "west", counts={}, levels={shares: 250}),
        ),
        1.0,
    )
    totals = add_totals(add_totals({}, first), second)
    read = scraped(format_prometheus(build_metrics([], second, now_ms=0, totals=totals)))
    assert read.of("cloud_storage_segment_uploads_total", cluster="west") == 7
    assert read.of("cloud_storage_segment_uploads_total", cluster="east") == 1
    assert read.of("cloud_storage_deleted_segments", cluster="west") == 2
    assert read.of("cloud_storage_errors_total", cluster="west") == 2
    assert read.of(f"cloud_storage_{shares}", cluster="west") == 250
    assert read.kinds["reconciler_cloud_storage_errors_total"] == "counter"
    assert read.kinds[f"reconciler_cloud_storage_{shares}"] == "gauge"


@pytest.mark.parametrize("name", ["m.prom", "m.json"])
def test_counters_go_on_from_what_the_file_says(name: str, tmp_path: Path) -> None:
    upkeep = PassResult((), (job_of("upload", "west", counts={"uploaded_bytes": 1 << 40, "cache_op_hit": 2}),), 1.0)
    totals = add_totals({}, upkeep)
    metrics = build_metrics([], upkeep, now_ms=0, totals=totals)
    path = tmp_path / name
    path.write_bytes(format_metrics(path, metrics))
    assert read_totals(path) == totals == {("uploaded_bytes", "west"): 1 << 40, ("cache_op_hit", "west"): 2}


@pytest.mark.parametrize(
    "body",
    [b"", b"\xff\xfe", b"{", b"[]", b'{"metrics": 1}', b'{"metrics": [{"name": "reconciler_x"}]}', b"a{} 1\n# x"],
)
def test_counters_begin_at_nothing_where_the_file_is_something_else(body: bytes, tmp_path: Path) -> None:
    for name in ("m.prom", "m.json"):
        (tmp_path / name).write_bytes(body)
        assert read_totals(tmp_path / name) == {}
    assert read_totals(tmp_path / "none" / "m.prom") == {}
    assert read_totals(tmp_path) == {}


def test_the_same_numbers_are_written_as_json_where_the_name_says_so(typed: Call, tmp_path: Path) -> None:
    assert typed("init").code == 0
    assert typed("apply", "--yes").code == 0
    for name in ("m.prom", "m.json"):
        assert typed("run", "--once", "--only", "sweep", "--metrics", name).code == 0
    found = json.loads((tmp_path / "m.json").read_bytes())
    schema = json.loads((Path(__file__).resolve().parents[2] / "schemas" / "metrics.json").read_bytes())
    jsonschema.Draft202012Validator(schema).validate(found)
    read = scraped((tmp_path / "m.prom").read_text())
    kinds = {metric["name"]: metric["kind"] for metric in found["metrics"]}
    assert kinds == read.kinds
    samples = {
        (metric["name"], tuple(sorted(sample["labels"].items())))
        for metric in found["metrics"]
        for sample in metric["samples"]
    }
    assert samples == set(read.values)


def test_what_the_driver_does_with_object_storage_is_counted() -> None:
    inner = MemoryStore()
    storage = CountingStore(inner)
    storage.swap("topics/c/1/00000/manifest.json", b"{}", expected=None)
    storage.swap("topics/c/1/topic.json", b"{}", expected=None)
    storage.put("topics/c/1/00000/pages/n.json", b"{}")
    storage.get("topics/c/1/00000/pages/n.json")
    storage.put("topics/c/1/00000/0-9-2-0-v1-n.parquet", b"{}")
    storage.delete(["topics/c/1/00000/0-9-2-0-v1-n.parquet", "topics/c/1/00000/0-9-2-0-v1-n.index"])
    with pytest.raises(LostRaceError):
        storage.swap("topics/c/1/topic.json", b"[]", expected=None)
    with pytest.raises(MissingObjectError):
        storage.get_range("gone", 0, 1)
    with pytest.raises(UserError):
        storage.put("x", b"", kms_key_id="key")
    assert storage.pop_counts() == {
        "partition_manifest_uploads_total": 1,
        "topic_manifest_uploads_total": 1,
        "spillover_manifest_uploads_total": 1,
        "spillover_manifest_reads_total": 1,
        "deleted_segments": 1,
        "errors_total": 1,
    }
    assert storage.pop_counts() == {}, "each is told once"
    assert pickle.loads(pickle.dumps(storage)).url == inner.url  # noqa: S301 - our own
    assert set(storage.pop_counts()) <= set(COUNTER_HELP)


@pytest.mark.fact("F-R-035")
def test_instruments_tell_what_is_uploaded_and_what_waits() -> None:
    tier = tiered(partitions=2)
    tier.fill(5)
    tier.upload()
    tier.cluster.create_topic("plain")
    orders, plain = measure_cluster(build_storage_report(tier.cluster), "west").measured
    assert plain.remote is None
    manifest, head = tier.manifest(), head_of(tier.cluster)
    assert orders.remote == RemoteVitals(manifest.stored_bytes, 2, 0, head.stored_bytes, head.entries[-1].bytes)


def test_what_was_uploaded_and_asked_of_the_cache_is_counted(typed: Call, tmp_path: Path) -> None:
    workspace(typed, tmp_path)
    assert typed("run", "--once", "--metrics", "m.prom").code == 0
    read = scraped((tmp_path / "m.prom").read_text())
    uploaded = read.of("cloud_storage_bytes", cluster="west", topic="tiered")
    assert read.of("cloud_storage_segments", cluster="west", topic="tiered") == 1
    assert read.of("cloud_storage_cache_space_files", cluster="west") >= 0
    records = tmp_path / "records.jsonl"
    assert typed("topic", "produce", "topic/west/tiered", "--input", str(records), "--partition", "0").code == 0
    for _ in range(2):
        assert typed("run", "--once", "--metrics", "m.prom").code == 0
    read = scraped((tmp_path / "m.prom").read_text())
    assert read.of("cloud_storage_segment_uploads_total", cluster="west") == 1, "and none by the pass after it"
    assert read.of("cloud_storage_uploaded_bytes", cluster="west") > 0
    assert read.of("cloud_storage_partition_manifest_uploads_total", cluster="west") >= 1
    assert read.of("cloud_storage_bytes", cluster="west", topic="tiered") > uploaded
    assert read.of("cloud_storage_upload_backlog_controller_shares", cluster="west") == 100


def test_a_cache_counts_what_it_has_and_what_it_fetches(tmp_path: Path) -> None:
    cache = ChunkCache({"cloud_storage_cache_directory": str(tmp_path)}, None)
    pop_cache_counts()
    for _ in range(3):
        assert cache.get_whole_object("topics/c/1/00000/0-9-2-0-v1-n.index", lambda: b"footer") == b"footer"
    assert pop_cache_counts() == {"cache_op_miss": 1, "cache_op_hit": 2}
    assert pop_cache_counts() == {}
    levels = measure_cache_levels({"cloud_storage_cache_directory": str(tmp_path)}, None)
    assert (levels["active_segments"], levels["cache_space_files"]) == (1, 1)
    assert levels["cache_space_size_bytes"] >= len(b"footer")
    assert set(levels) <= set(LEVELS)
