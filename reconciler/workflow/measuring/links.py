"""Metrics of links and mirrors, in Confluent's names (`io.confluent.kafka.server/cluster_link_…`) with our prefix."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from reconciler.lifecycles.mirror import LinkStatus
from reconciler.resources.address import full_name_of
from reconciler.resources.mirroring import (
    ACL_SYNC,
    AUTO_CREATE_MIRROR,
    CONSUMER_OFFSET_SYNC,
    TASKS,
    TOPIC_CONFIGS_SYNC,
)
from reconciler.workflow.linking.transitions.driving import UNDER_WAY
from reconciler.workflow.measuring.metric import Metric
from reconciler.workflow.measuring.totals import MIRROR_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from reconciler.resources.mirroring import LinkSeen, MirrorSeen
    from reconciler.resources.vitals import Vitals
    from reconciler.workflow.measuring.totals import Totals

_STATES_OF_LINK: Final = {
    LinkStatus.PAUSED: "LINK_PAUSED",
    LinkStatus.UNAVAILABLE: "LINK_UNAVAILABLE",
    LinkStatus.FAILED: "LINK_FAILED",
}


def task_states(link: LinkSeen) -> dict[str, str]:
    """Return the state of each task of a link: ACTIVE, IN_ERROR, NOT_CONFIGURED, or what its link imposes on it."""
    spec = link.declared.spec
    switches = (
        (AUTO_CREATE_MIRROR, spec.auto_create),
        (CONSUMER_OFFSET_SYNC, spec.consumer_offset_sync),
        (ACL_SYNC, spec.acl_sync),
    )
    configured = {TOPIC_CONFIGS_SYNC, *(task for task, switch in switches if switch is not None and switch.enabled)}
    return {task: _task_state(link, task, is_configured=task in configured) for task in TASKS}


def of_links(
    links: Mapping[str, Sequence[LinkSeen]],
    mirrors: Mapping[str, Sequence[MirrorSeen]],
    vitals: Mapping[str, Vitals],
    totals: Totals,
) -> Iterator[Metric]:
    """Yield what links and mirrors are doing after a pass; mirrors' own series are those of measured topics."""
    count = Metric("cluster_link_count", "Links by state.")
    tasks = Metric("cluster_link_task_count", "Tasks of links by state.")
    for cluster, found in links.items():
        for state, number in sorted(Counter(str(link.status) for link in found).items()):
            count.add(number, cluster=cluster, state=state)
        for link in found:
            for state, number in sorted(Counter(task_states(link).values()).items()):
                tasks.add(number, cluster=cluster, link=link.name, state=state)
    yield from (count, tasks, *_of_mirrors(mirrors), _lag(mirrors, vitals), _bytes(totals))


def _task_state(link: LinkSeen, task: str, *, is_configured: bool) -> str:
    if not is_configured:
        return "NOT_CONFIGURED"
    if task in link.tasks:
        return "IN_ERROR"
    return _STATES_OF_LINK.get(link.status, "ACTIVE")


def _of_mirrors(mirrors: Mapping[str, Sequence[MirrorSeen]]) -> Iterator[Metric]:
    count = Metric("cluster_link_mirror_topic_count", "Mirrors by link and state; stopped ones too.")
    stuck = Metric("cluster_link_mirror_transition_in_error", "Mirrors whose transition something keeps from ending.")
    for cluster, found in mirrors.items():
        for (link, state), number in sorted(Counter((each.link, each.status) for each in found).items()):
            count.add(number, cluster=cluster, link=link, state=state)
        in_error = Counter(each.link for each in found if each.status in UNDER_WAY and each.trouble is not None)
        for link in sorted({each.link for each in found}):
            stuck.add(in_error[link], cluster=cluster, link=link)
    yield from (count, stuck)


def _lag(mirrors: Mapping[str, Sequence[MirrorSeen]], vitals: Mapping[str, Vitals]) -> Metric:
    metric = Metric(
        "cluster_link_mirror_topic_offset_lag",
        "Offsets a mirror is behind its source, summed over partitions; of mirrors whose source was measured.",
    )
    links = {(cluster, each.name): each.link for cluster, found in mirrors.items() for each in found}
    ends = {topic.address: topic.end for found in vitals.values() for topic in found.measured}
    for cluster, one in vitals.items():
        for topic in one.measured:
            if topic.source is not None and topic.source in ends:
                name = full_name_of(topic.address)
                behind = max(0, ends[topic.source] - topic.end)
                metric.add(behind, cluster=cluster, link=links.get((cluster, name), ""), topic=name)
    return metric


def _bytes(totals: Totals) -> Metric:
    metric = Metric(MIRROR_BYTES, "Stored bytes that were copied into mirrors of the cluster.", kind="counter")
    for (counted, cluster), total in sorted(totals.items()):
        if counted == MIRROR_BYTES:
            metric.add(total, cluster=cluster)
    return metric
