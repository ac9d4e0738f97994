"""`run --metrics`: the exposition format to the letter, every number where it belongs, and files that cannot be."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import NamedTuple

import pytest

from reconciler.cli.metricsfile import put_metrics
from reconciler.cli.render.prometheus import prometheus_text
from reconciler.embedded import vitals
from reconciler.embedded.catalog.entries import DeletionEntry, LinkEntry, RewriteEntry
from reconciler.embedded.catalog.links import MirrorShape
from reconciler.embedded.consuming.groups import commit_offsets
from reconciler.embedded.vitals import vitals_of
from reconciler.errors import IncompleteError, RetryableError, UserError
from reconciler.objectstore.memory import MemoryStore
from reconciler.providers.base import Upkept
from reconciler.providers.embedded.storing import report_of
from reconciler.resources.address import Address
from reconciler.resources.sourcetopic import SourceTopic
from reconciler.resources.vitals import GroupLag, TopicVitals, Vitals
from reconciler.workflow.measuring.metric import Metric
from reconciler.workflow.metrics import Measured, metrics_of
from reconciler.workflow.upkeep.outcomes import JobOutcome, Synced, Upkeep
from tests.cli.conftest import Run
from tests.embedded.samples import NOW, cluster_in, values

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
    text = prometheus_text([metric])
    assert text.startswith('# HELP reconciler_odd help with a \\\\ and\\na second line, and "quotes"\n')
    read = scraped(text)
    assert {labels[0][1] for _, labels in read.values} == set(odd)
    assert set(read.values.values()) == {1.5}
    broken = Metric("broken", "Half a character.")
    broken.add(1, topic="\udc80")
    assert scraped(prometheus_text([broken])).of("broken", topic="?") == 1


@pytest.mark.parametrize("number", [0, 1, -3, 2**53 + 1, 0.1, 1795273008.17, 1e22, 1.5e-7])
def test_numbers_are_exact(number: float) -> None:
    metric = Metric("number", "A number.")
    metric.add(number)
    assert scraped(prometheus_text([metric])).of("number") == float(number)


def test_a_metric_without_numbers_is_left_out() -> None:
    assert prometheus_text([Metric("none", "Nothing.")]) == ""


# -- what is told


def test_everything_of_a_pass_is_told() -> None:
    source, mirror = Address("topic/west/shop:orders"), Address("mirror/east/orders")
    west = Vitals(
        topics=2,
        partitions=5,
        measured=[TopicVitals(source, 3, 10, 50, 40, 4000)],
        unmeasured=1,
        groups=2,
        lags=[GroupLag("billing", "shop:orders", 7)],
        unmeasured_groups=1,
        open_transactions=1,
        pending_deletions=3,
        pending_rewrites=4,
    )
    east = Vitals(topics=1, partitions=3, measured=[TopicVitals(mirror, 3, 10, 45, 35, 3500, source)])
    broken = RetryableError("no answer", hint="Wait.")
    upkeep = Upkeep(
        (Synced(mirror, 5, 500, 1.5), Synced(Address("mirror/east/b"), 0, 0, 0.5, broken)),
        (
            JobOutcome("sweep", "west", 2.0, Upkept("object", 12, bytes=1200)),
            JobOutcome("roll", "west", 1.0, Upkept("partition", 3, failed=1, errors=(broken,))),
            JobOutcome("observe", "north", 0.1, None, broken),
        ),
        6.25,
    )
    measured = [Measured("east", east), Measured("north", None, broken), Measured("west", west)]
    read = scraped(prometheus_text(metrics_of(measured, upkeep, now_ms=1_700_000_000_500)))

    assert [read.of("cluster_up", cluster=name) for name in ("east", "north", "west")] == [1, 0, 1]
    counts = {"topics": 2, "partitions": 5, "unmeasured_topics": 1, "groups": 2, "unmeasured_groups": 1}
    counts |= {"open_transactions": 1, "pending_deletions": 3, "pending_rewrites": 4}
    assert {name: read.of(f"cluster_{name}", cluster="west") for name in counts} == counts
    of_topic = {"partitions": 3, "log_start_offset": 10, "log_end_offset": 50, "records": 40, "bytes": 4000}
    assert {name: read.of(f"topic_{name}", cluster="west", topic="shop:orders") for name in of_topic} == of_topic
    assert read.of("group_lag", cluster="west", group="billing", topic="shop:orders") == 7
    assert read.of("mirror_lag", cluster="east", topic="orders") == 5
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


# -- what is measured


def test_instruments_read_sizes_lags_and_what_is_pending() -> None:
    cluster = cluster_in(MemoryStore())
    cluster.create_topic("orders", partitions=3)
    cluster.create_topic("empty")
    cluster.create_link("from-east", LinkEntry("link-id", "east"))
    cluster.create_mirror("copy", MirrorShape(link="from-east", source="a"), SourceTopic(partitions=1))
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

    found = vitals_of(report_of(cluster), "west")
    assert (found.topics, found.partitions, found.unmeasured) == (3, 5, 0)
    assert (found.pending_deletions, found.pending_rewrites, found.open_transactions) == (1, 1, 1)
    copy, empty, orders = found.measured
    assert copy[:5] == (Address("mirror/west/copy"), 1, 0, 0, 0)
    assert copy.source == Address("topic/east/a")
    assert empty == (Address("topic/west/empty"), 1, 0, 0, 0, 0, None, None)
    assert orders[:5] == (Address("topic/west/orders"), 3, 0, 4, 4)
    assert orders.bytes > 1000
    assert found.lags == [GroupLag("ahead", "orders", 0), GroupLag("billing", "orders", 1)]


def test_what_is_measured_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, bound in (("TOPICS", 2), ("PARTITIONS", 3), ("GROUPS", 1), ("LAGS", 1)):
        monkeypatch.setattr(vitals, name, bound)
    cluster = cluster_in(MemoryStore())
    for name, partitions in (("a", 1), ("b", 3), ("c", 2), ("d", 1)):
        cluster.create_topic(name, partitions=partitions)
    for group in ("one", "two"):
        places = {(cluster.topic(name).id, 0): 0 for name in ("a", "c")}
        commit_offsets(cluster.store, cluster.catalog, group, places, mark="m", now_ms=NOW)
    found = vitals_of(report_of(cluster), "west")
    assert [topic.address for topic in found.measured] == ["topic/west/a", "topic/west/c"]
    assert (found.topics, found.partitions, found.unmeasured) == (4, 7, 2)
    assert (found.groups, found.unmeasured_groups, len(found.lags)) == (2, 1, 1)


# -- the file


def test_the_file_is_replaced_at_once_and_may_be_read_by_others(tmp_path: Path) -> None:
    path = tmp_path / "m.prom"
    path.write_text("before")
    with path.open() as before:
        put_metrics(path, b"after\n")
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
            put_metrics(path, b"x")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["file", "folder"]


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
    upkeep = Upkeep((), (), 1.0, is_stopped=True)
    assert isinstance(upkeep.verdict, IncompleteError)
    assert scraped(prometheus_text(metrics_of([], upkeep, now_ms=0))).of("run_last_success") == 0
