"""Metrics of clusters, links and maintenance."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias, assert_never

from reconciler.errors import ReconcilerError
from reconciler.lifecycles import LinkStatus
from reconciler.operations.drift import CLASSES, DriftClass, DriftResult
from reconciler.operations.mirrors.mirror_rounds import JobOutcome, MirrorOutcome, PassResult
from reconciler.operations.steps.observe import check_cluster_exists
from reconciler.operations.steps.transitions import UNDER_WAY
from reconciler.providers.protocol import require_links
from reconciler.resources.address import Address, cluster_of, full_name_of
from reconciler.resources.measures import COUNTER_HELP, LEVELS, Vitals
from reconciler.resources.mirrors import (
    ACL_SYNC,
    AUTO_CREATE_MIRROR,
    CONSUMER_OFFSET_SYNC,
    TASKS,
    TOPIC_CONFIGS_SYNC,
    ObservedLink,
    ObservedMirror,
)
from reconciler.runtime.dataclass import dataclass, field
from reconciler.runtime.threads import map_in_parallel

if TYPE_CHECKING:
    from reconciler.operations.steps.runner import SiteOptions


PREFIX: Final = "reconciler_"


class Sample(NamedTuple):
    """One value of a metric."""

    labels: tuple[tuple[str, str], ...]
    value: float


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric with samples. `name` has no prefix."""

    name: str
    help: str
    samples: list[Sample] = field(default_factory=list)
    kind: Literal["gauge", "counter"] = "gauge"

    def add(self, value: float, **labels: str) -> None:
        """Add a sample."""
        self.samples.append(Sample(tuple(labels.items()), value))


MIRROR_BYTES: Final = "cluster_link_mirror_topic_bytes"

Totals: TypeAlias = dict[tuple[str, str], float]


def add_totals(before: Totals, upkeep: PassResult) -> Totals:
    """Return earlier totals plus the counters of a pass."""
    totals = dict(before)
    for job in upkeep.jobs:
        for name, count in job.upkept.counts.items():
            place = name, job.cluster
            totals[place] = totals.get(place, 0) + count
    for outcome in upkeep.synced:
        place = MIRROR_BYTES, cluster_of(outcome.address) or ""
        totals[place] = totals.get(place, 0) + outcome.bytes
    return totals


# Link metrics have Confluent's names (`io.confluent.kafka.server/cluster_link_…`), object storage metrics Redpanda's.


_STATES_OF_LINK: Final = {
    LinkStatus.PAUSED: "LINK_PAUSED",
    LinkStatus.UNAVAILABLE: "LINK_UNAVAILABLE",
    LinkStatus.FAILED: "LINK_FAILED",
}


def find_task_states(link: ObservedLink) -> dict[str, str]:
    """Return a link's tasks with their states: ACTIVE, IN_ERROR, NOT_CONFIGURED, or that of the link."""
    spec = link.declared.spec
    switches = (
        (AUTO_CREATE_MIRROR, spec.auto_create),
        (CONSUMER_OFFSET_SYNC, spec.consumer_offset_sync),
        (ACL_SYNC, spec.acl_sync),
    )
    configured = {TOPIC_CONFIGS_SYNC, *(task for task, switch in switches if switch is not None and switch.enabled)}
    return {task: _find_task_state(link, task, is_configured=task in configured) for task in TASKS}


def build_link_metrics(
    links: Mapping[str, Sequence[ObservedLink]],
    mirrors: Mapping[str, Sequence[ObservedMirror]],
    vitals: Mapping[str, Vitals],
    totals: Totals,
) -> Iterator[Metric]:
    """Yield metrics of links and mirrors; offsets and lag only of measured topics."""
    count = Metric("cluster_link_count", "Links by state.")
    tasks = Metric("cluster_link_task_count", "Tasks of links by state.")
    for cluster, cluster_links in links.items():
        for state, number in sorted(Counter(str(link.status) for link in cluster_links).items()):
            count.add(number, cluster=cluster, state=state)
        for link in cluster_links:
            for state, number in sorted(Counter(find_task_states(link).values()).items()):
                tasks.add(number, cluster=cluster, link=link.name, state=state)
    yield from (
        count,
        tasks,
        *_build_mirror_metrics(mirrors),
        *_build_lag_metrics(mirrors, vitals),
        _build_link_bytes(totals),
    )


def _find_task_state(link: ObservedLink, task: str, *, is_configured: bool) -> str:
    if not is_configured:
        return "NOT_CONFIGURED"
    if task in link.tasks:
        return "IN_ERROR"
    return _STATES_OF_LINK.get(link.status, "ACTIVE")


def _build_mirror_metrics(mirrors: Mapping[str, Sequence[ObservedMirror]]) -> Iterator[Metric]:
    count = Metric("cluster_link_mirror_topic_count", "Mirrors by link and state; stopped ones too.")
    stuck = Metric("cluster_link_mirror_transition_in_error", "Mirrors whose transition something keeps from ending.")
    for cluster, cluster_mirrors in mirrors.items():
        for (link, state), number in sorted(
            Counter((mirror.link, mirror.status) for mirror in cluster_mirrors).items()
        ):
            count.add(number, cluster=cluster, link=link, state=state)
        in_error = Counter(
            mirror.link for mirror in cluster_mirrors if mirror.status in UNDER_WAY and mirror.trouble is not None
        )
        for link in sorted({mirror.link for mirror in cluster_mirrors}):
            stuck.add(in_error[link], cluster=cluster, link=link)
    yield from (count, stuck)


def _build_lag_metrics(
    mirrors: Mapping[str, Sequence[ObservedMirror]], vitals: Mapping[str, Vitals]
) -> Iterator[Metric]:
    records = Metric(
        "cluster_link_mirror_topic_offset_lag",
        "Offsets a mirror is behind its source, summed over partitions; of mirrors whose source was measured.",
    )
    seconds = Metric(
        "cluster_link_mirror_topic_lag_seconds",
        "How much older the newest record of a mirror is than that of its source, in its slowest partition; 0: it has "
        "all. Missing while that partition has no record.",
    )
    links = {
        (cluster, mirror.name): mirror.link
        for cluster, cluster_mirrors in mirrors.items()
        for mirror in cluster_mirrors
    }
    measured = (topic for cluster_vitals in vitals.values() for topic in cluster_vitals.measured)
    sources = {(cluster_of(topic.address), full_name_of(topic.address)): topic for topic in measured}
    for cluster, cluster_vitals in vitals.items():
        for topic in cluster_vitals.measured:
            follows = topic.source
            source = None if follows is None else sources.get((cluster_of(follows), full_name_of(follows)))
            if source is not None:
                name = full_name_of(topic.address)
                labels = {"cluster": cluster, "link": links.get((cluster, name), ""), "topic": name}
                records.add(topic.count_lag(source), **labels)
                if (behind_ms := topic.compute_lag_ms(source)) is not None:
                    seconds.add(behind_ms / 1000, **labels)
    yield from (records, seconds)


def _build_link_bytes(totals: Totals) -> Metric:
    metric = Metric(MIRROR_BYTES, "Stored bytes that were copied into mirrors of the cluster.", kind="counter")
    for (counter, cluster), total in sorted(totals.items()):
        if counter == MIRROR_BYTES:
            metric.add(total, cluster=cluster)
    return metric


REMOTE: Final = "cloud_storage_"
_TOPIC_FIELDS: Final = (
    ("bytes", "bytes", "Bytes of the topic in object storage."),
    ("segments", "segments", "Segments of the topic in object storage."),
    ("pending_deletion", "segments_pending_deletion", "Segments that are marked and not deleted yet."),
    ("log_bytes", "cloud_log_size", "Bytes of the whole log, records in both tiers counted once."),
    ("pending_bytes", "pending_bytes", "Bytes of the topic that are still to be uploaded."),
    ("lag", "read_replica_offset_lag", "Offsets uploaded by the source of a read replica that it does not show yet."),
)


def build_remote_metrics(vitals: Mapping[str, Vitals], jobs: Sequence[JobOutcome], totals: Totals) -> Iterator[Metric]:
    """Yield metrics of remote storage: counters of all passes, and current gauges."""
    for field_name, name, text in _TOPIC_FIELDS:
        metric = Metric(f"{REMOTE}{name}", text)
        for cluster, cluster_vitals in vitals.items():
            for topic in cluster_vitals.measured:
                value = None if topic.remote is None else getattr(topic.remote, field_name)
                if value is not None:
                    metric.add(value, cluster=cluster, topic=full_name_of(topic.address))
        yield metric
    for name, text in COUNTER_HELP.items():
        metric = Metric(f"{REMOTE}{name}", text, kind="counter")
        # Counters start at 0, because rate queries ignore a counter's first value.
        totals_by_cluster = {cluster: 0.0 for cluster, cluster_vitals in vitals.items() if cluster_vitals.levels}
        totals_by_cluster |= {cluster: total for (counter, cluster), total in totals.items() if counter == name}
        for cluster, total in sorted(totals_by_cluster.items()):
            metric.add(total, cluster=cluster)
        yield metric
    for name, text in LEVELS.items():
        metric = Metric(f"{REMOTE}{name}", text)
        levels_by_cluster = {
            cluster: cluster_vitals.levels[name]
            for cluster, cluster_vitals in vitals.items()
            if name in cluster_vitals.levels
        }
        levels_by_cluster |= {job.cluster: job.upkept.levels[name] for job in jobs if name in job.upkept.levels}
        for cluster, level in sorted(levels_by_cluster.items()):
            metric.add(level, cluster=cluster)
        yield metric


MIRROR: Final = "mirror"


class ClusterReading(NamedTuple):
    """Measurements of a cluster, or an error."""

    cluster: str
    vitals: Vitals | None
    error: ReconcilerError | None = None
    links: Sequence[ObservedLink] = ()
    mirrors: Sequence[ObservedMirror] = ()


class MetricsReader:
    """Reads metrics after each pass. Clusters are opened once."""

    def __init__(self, reach: SiteOptions) -> None:
        self._reach = reach
        self._site = reach.open_site()

    def read_clusters(self) -> list[ClusterReading]:
        """Read existing clusters in parallel."""
        recorded = self._reach.read_recorded_ids(self._site)
        measurements = map_in_parallel(
            lambda name: self._read_cluster(name, recorded), self._site.clusters_to_read, name="metrics"
        )
        return [measurement for measurement in measurements if measurement is not None]

    def _read_cluster(self, name: str, recorded: Mapping[Address, str | None]) -> ClusterReading | None:
        try:
            if not check_cluster_exists(self._site, name, recorded):
                return None
            provider = self._site.providers[name]
            links = () if provider.links is None else provider.links.list_links()
            return ClusterReading(
                name,
                provider.read_vitals(),
                links=links,
                mirrors=require_links(provider).list_mirrors() if links else (),
            )
        except ReconcilerError as error:
            return ClusterReading(name, None, error)


def build_metrics(
    measured: Sequence[ClusterReading], upkeep: PassResult, *, now_ms: int, totals: Totals | None = None
) -> list[Metric]:
    """Return all metrics of a pass that ended at `now_ms`. `totals` include this pass."""
    up = Metric("cluster_up", "Whether the cluster could be read after the pass.")
    for measurement in measured:
        up.add(float(measurement.vitals is not None), cluster=measurement.cluster)
    vitals = {measurement.cluster: measurement.vitals for measurement in measured if measurement.vitals is not None}
    return [
        up,
        *_build_cluster_metrics(vitals),
        *_build_topic_metrics(vitals),
        *build_remote_metrics(vitals, upkeep.jobs, totals or {}),
        _build_group_metric(vitals),
        *build_link_metrics(
            {measurement.cluster: measurement.links for measurement in measured},
            {measurement.cluster: measurement.mirrors for measurement in measured},
            vitals,
            totals or {},
        ),
        *_build_job_metrics(upkeep, now_ms),
        *_build_pass_metrics(upkeep, now_ms),
    ]


def _build_cluster_metrics(vitals: Mapping[str, Vitals]) -> Iterator[Metric]:
    counts = (
        ("topics", "Topics and mirrors on the cluster."),
        ("partitions", "Partitions of all topics and mirrors."),
        (
            "unmeasured",
            "Topics without series: beyond 1,000 topics or 10,000 partitions, or without a leader of some partition.",
        ),
        ("groups", "Consumer groups."),
        ("unmeasured_groups", "Groups without lag: that of at most 1,000 groups is measured."),
        ("open_transactions", "Open transactions: in the partitions of measured topics; on Kafka all."),
        ("pending_deletions", "Topics that are marked for deletion and still take space."),
        ("pending_rewrites", "Topics whose objects are still under a former key."),
    )
    names = {"unmeasured": "unmeasured_topics"}
    for field_name, text in counts:
        metric = Metric(f"cluster_{names.get(field_name, field_name)}", text)
        for cluster, cluster_vitals in vitals.items():
            if (value := getattr(cluster_vitals, field_name)) is not None:
                metric.add(value, cluster=cluster)
        yield metric


def _build_topic_metrics(vitals: Mapping[str, Vitals]) -> Iterator[Metric]:
    sums = (
        ("partitions", "topic_partitions", "Partitions of the topic."),
        ("start", "topic_log_start_offset", "First offset that can be read, summed over partitions."),
        ("end", "topic_log_end_offset", "Next offset to be written, summed over partitions."),
        ("records", "topic_records", "Records the topic holds; on Kafka at most: offsets below the last stable one."),
        (
            "bytes",
            "topic_bytes",
            "Stored bytes of the topic, without those in object storage; on Kafka of the largest replicas.",
        ),
    )
    for field_name, name, text in sums:
        metric = Metric(name, text)
        for cluster, cluster_vitals in vitals.items():
            for topic in cluster_vitals.measured:
                if (value := getattr(topic, field_name)) is not None:
                    metric.add(value, cluster=cluster, topic=full_name_of(topic.address))
        yield metric


def _build_group_metric(vitals: Mapping[str, Vitals]) -> Metric:
    metric = Metric("group_lag", "Offsets a group has still to read of a topic; at most 10,000 series a cluster.")
    for cluster, cluster_vitals in vitals.items():
        for group_lag in cluster_vitals.lags:
            metric.add(group_lag.lag, cluster=cluster, group=group_lag.group, topic=group_lag.topic)
    return metric


def _build_job_metrics(upkeep: PassResult, now_ms: int) -> Iterator[Metric]:
    when = Metric("job_last_run_timestamp_seconds", "When the pass that ran the job ended, since 1970.")
    took = Metric("job_last_run_duration_seconds", "How long the job took.")
    good = Metric("job_last_run_success", "Whether all of it was done.")
    done = Metric("job_last_run_done", "What the job did, in units: objects swept, partitions rolled, topics deleted.")
    size = Metric("job_last_run_bytes", "Stored bytes the job removed, rewrote or copied.")
    for (job, cluster), outcomes in sorted(_group_by_job(upkeep).items()):
        labels = {"job": job, "cluster": cluster}
        when.add(now_ms / 1000, **labels)
        took.add(sum(outcome.seconds for outcome in outcomes), **labels)
        good.add(float(not any(outcome.errors for outcome in outcomes)), **labels)
        done.add(sum(_count_units_done(outcome) for outcome in outcomes), **labels)
        size.add(sum(_count_bytes_done(outcome) for outcome in outcomes), **labels)
    yield from (when, took, good, done, size)


def _group_by_job(upkeep: PassResult) -> dict[tuple[str, str], list[MirrorOutcome | JobOutcome]]:
    outcomes: dict[tuple[str, str], list[MirrorOutcome | JobOutcome]] = {}
    for outcome in upkeep.synced:
        outcomes.setdefault((MIRROR, cluster_of(outcome.address) or ""), []).append(outcome)
    for job in upkeep.jobs:
        outcomes.setdefault((job.job, job.cluster), []).append(job)
    return outcomes


def _count_units_done(outcome: MirrorOutcome | JobOutcome) -> int:
    match outcome:
        case MirrorOutcome():
            return outcome.records
        case JobOutcome():
            return outcome.upkept.done
        case _:
            assert_never(outcome)


def _count_bytes_done(outcome: MirrorOutcome | JobOutcome) -> int:
    match outcome:
        case MirrorOutcome():
            return outcome.bytes
        case JobOutcome():
            return outcome.upkept.bytes
        case _:
            assert_never(outcome)


def _build_pass_metrics(upkeep: PassResult, now_ms: int) -> Iterator[Metric]:
    when = Metric("run_last_timestamp_seconds", "When the last pass ended, since 1970.")
    when.add(now_ms / 1000)
    took = Metric("run_last_duration_seconds", "How long the last pass took.")
    took.add(upkeep.seconds)
    good = Metric("run_last_success", "Whether everything of the last pass was done.")
    good.add(float(upkeep.verdict is None))
    yield from (when, took, good)


def build_drift_result_metrics(drifted: DriftResult, *, now_ms: int) -> list[Metric]:
    """Return drift items by class, including zeros, and whether the comparison was complete."""
    plan = drifted.planned.plan
    counts = Counter(item.kind for item in drifted.findings if item.ignored is None)
    failing, is_whole = len(drifted.failing), not drifted.obstacles
    return build_drift_metrics(
        plan.workspace, plan.environment or "", counts, failing, is_whole=is_whole, now_s=now_ms / 1000
    )


def build_drift_metrics(
    workspace: str, environment: str, counts: Mapping[DriftClass, int], failing: int, *, is_whole: bool, now_s: float
) -> list[Metric]:
    """Return the metrics of a drift comparison."""
    place = {"workspace": workspace, "environment": environment}
    findings = Metric("drift_findings", "Findings by class, without what a rule leaves as it is.")
    for kind in CLASSES:
        findings.add(counts.get(kind, 0), **place, **{"class": kind})
    single = (
        ("drift_failing", "Findings that make the exit code 3.", failing),
        ("drift_compared_all", "Whether everything could be compared.", float(is_whole)),
        ("drift_last_run_timestamp_seconds", "When it was compared last, since 1970.", now_s),
    )
    return [findings, *(Metric(name, text, [Sample(tuple(place.items()), value)]) for name, text, value in single)]
