"""What `run --metrics` tells a monitoring system after a pass: clusters' instruments, and how each job went."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final, NamedTuple, assert_never

from reconciler.errors import ReconcilerError
from reconciler.resources.address import cluster_of, full_name_of
from reconciler.workflow.beginning.opening import open_work
from reconciler.workflow.looking.overviews import recorded_clusters, stands
from reconciler.workflow.measuring.links import of_links
from reconciler.workflow.measuring.metric import Metric
from reconciler.workflow.measuring.remote import of_remote
from reconciler.workflow.upkeep.outcomes import JobOutcome, Synced

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from reconciler.resources.address import Address
    from reconciler.resources.mirroring import LinkSeen, MirrorSeen
    from reconciler.resources.vitals import Vitals
    from reconciler.workflow.beginning.invocation import Invocation, Select
    from reconciler.workflow.measuring.totals import Totals
    from reconciler.workflow.upkeep.outcomes import Upkeep

_AT_ONCE: Final = 16
MIRROR: Final = "mirror"


class Measured(NamedTuple):
    """One cluster: its instruments, or why they could not be read."""

    cluster: str
    vitals: Vitals | None
    error: ReconcilerError | None = None
    links: Sequence[LinkSeen] = ()
    mirrors: Sequence[MirrorSeen] = ()


class Instruments:
    """The clusters of one workspace, opened once and read after every pass."""

    def __init__(self, invocation: Invocation, select: Select) -> None:
        self._work = open_work(invocation, select)

    def read(self) -> list[Measured]:
        """Read every cluster, side by side. One that was never made is left out."""
        recorded = recorded_clusters(self._work)
        with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="metrics") as threads:
            found = list(threads.map(lambda name: self._measured(name, recorded), self._work.to_read))
        return [each for each in found if each is not None]

    def _measured(self, name: str, recorded: Mapping[Address, str | None]) -> Measured | None:
        try:
            if not stands(self._work, name, recorded):
                return None
            provider = self._work.providers[name]
            links = provider.links.links()
            return Measured(name, provider.vitals(), links=links, mirrors=provider.links.mirrors() if links else ())
        except ReconcilerError as error:
            return Measured(name, None, error)


def metrics_of(
    measured: Sequence[Measured], upkeep: Upkeep, *, now_ms: int, totals: Totals | None = None
) -> list[Metric]:
    """Return every metric after a pass that ended at `now_ms`; `totals` are what was counted up to it. Pure."""
    up = Metric("cluster_up", "Whether the cluster could be read after the pass.")
    for each in measured:
        up.add(float(each.vitals is not None), cluster=each.cluster)
    vitals = {each.cluster: each.vitals for each in measured if each.vitals is not None}
    return [
        up,
        *_of_clusters(vitals),
        *_of_topics(vitals),
        *of_remote(vitals, upkeep.jobs, totals or {}),
        _of_groups(vitals),
        *of_links(
            {each.cluster: each.links for each in measured},
            {each.cluster: each.mirrors for each in measured},
            vitals,
            totals or {},
        ),
        *_of_jobs(upkeep, now_ms),
        *_of_pass(upkeep, now_ms),
    ]


def _of_clusters(vitals: Mapping[str, Vitals]) -> Iterator[Metric]:
    counts = (
        ("topics", "Topics and mirrors on the cluster."),
        ("partitions", "Partitions of all topics and mirrors."),
        ("unmeasured", "Topics without series of their own: at most 1,000 topics and 10,000 partitions have them."),
        ("groups", "Consumer groups."),
        ("unmeasured_groups", "Groups without lag: that of at most 1,000 groups is measured."),
        ("open_transactions", "Transactions open in the partitions of measured topics."),
        ("pending_deletions", "Topics that are marked for deletion and still take space."),
        ("pending_rewrites", "Topics whose objects are still under a former key."),
    )
    names = {"unmeasured": "unmeasured_topics"}
    for field_name, text in counts:
        metric = Metric(f"cluster_{names.get(field_name, field_name)}", text)
        for cluster, found in vitals.items():
            metric.add(getattr(found, field_name), cluster=cluster)
        yield metric


def _of_topics(vitals: Mapping[str, Vitals]) -> Iterator[Metric]:
    sums = (
        ("partitions", "topic_partitions", "Partitions of the topic."),
        ("start", "topic_log_start_offset", "First offset that can be read, summed over partitions."),
        ("end", "topic_log_end_offset", "Next offset to be written, summed over partitions."),
        ("records", "topic_records", "Records the topic holds."),
        ("bytes", "topic_bytes", "Stored bytes of the topic, without those in object storage."),
    )
    for field_name, name, text in sums:
        metric = Metric(name, text)
        for cluster, found in vitals.items():
            for topic in found.measured:
                metric.add(getattr(topic, field_name), cluster=cluster, topic=full_name_of(topic.address))
        yield metric


def _of_groups(vitals: Mapping[str, Vitals]) -> Metric:
    metric = Metric("group_lag", "Offsets a group has still to read of a topic; at most 10,000 series a cluster.")
    for cluster, found in vitals.items():
        for each in found.lags:
            metric.add(each.lag, cluster=cluster, group=each.group, topic=each.topic)
    return metric


def _of_jobs(upkeep: Upkeep, now_ms: int) -> Iterator[Metric]:
    when = Metric("job_last_run_timestamp_seconds", "When the pass that ran the job ended, since 1970.")
    took = Metric("job_last_run_duration_seconds", "How long the job took.")
    good = Metric("job_last_run_success", "Whether all of it was done.")
    done = Metric("job_last_run_done", "What the job did, in units: objects swept, partitions rolled, topics deleted.")
    size = Metric("job_last_run_bytes", "Stored bytes the job removed, wrote anew or copied.")
    for (job, cluster), outcomes in sorted(_by_job(upkeep).items()):
        labels = {"job": job, "cluster": cluster}
        when.add(now_ms / 1000, **labels)
        took.add(sum(one.seconds for one in outcomes), **labels)
        good.add(float(not any(one.errors for one in outcomes)), **labels)
        done.add(sum(_done(one) for one in outcomes), **labels)
        size.add(sum(_bytes(one) for one in outcomes), **labels)
    yield from (when, took, good, done, size)


def _by_job(upkeep: Upkeep) -> dict[tuple[str, str], list[Synced | JobOutcome]]:
    found: dict[tuple[str, str], list[Synced | JobOutcome]] = {}
    for one in upkeep.synced:
        found.setdefault((MIRROR, cluster_of(one.address) or ""), []).append(one)
    for job in upkeep.jobs:
        found.setdefault((job.job, job.cluster), []).append(job)
    return found


def _done(one: Synced | JobOutcome) -> int:
    match one:
        case Synced():
            return one.records
        case JobOutcome():
            return 0 if one.upkept is None else one.upkept.done
        case _:
            assert_never(one)


def _bytes(one: Synced | JobOutcome) -> int:
    match one:
        case Synced():
            return one.bytes
        case JobOutcome():
            return 0 if one.upkept is None else one.upkept.bytes
        case _:
            assert_never(one)


def _of_pass(upkeep: Upkeep, now_ms: int) -> Iterator[Metric]:
    when = Metric("run_last_timestamp_seconds", "When the last pass ended, since 1970.")
    when.add(now_ms / 1000)
    took = Metric("run_last_duration_seconds", "How long the last pass took.")
    took.add(upkeep.seconds)
    good = Metric("run_last_success", "Whether everything of the last pass was done.")
    good.add(float(upkeep.verdict is None))
    yield from (when, took, good)
