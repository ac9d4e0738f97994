"""`topic storage`: what topics take, tier by tier."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from reconciler.resources.address import cluster_of, matches
from reconciler.workflow.beginning.opening import open_work
from reconciler.workflow.beginning.topicaddress import provider_of, topic_address
from reconciler.workflow.looking.observing import AT_ONCE
from reconciler.workflow.looking.overviews import check_answers, look_over
from reconciler.workflow.topics import find_topic

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from reconciler.resources.address import Address
    from reconciler.resources.overviews import TopicShown
    from reconciler.resources.storages import TopicStorage
    from reconciler.workflow.beginning.invocation import Invocation, Select
    from reconciler.workflow.beginning.opening import Work

PARTITIONS: Final = 10_000
"""What is looked at of one cluster where topics are not named one by one."""


@dataclass(frozen=True, slots=True)
class Storages:
    """Many topics, sorted by address; `unmeasured` are those beyond the bound."""

    topics: tuple[TopicStorage, ...]
    unmeasured: int = 0


def topic_storage(invocation: Invocation, select: Select, address: str) -> TopicStorage:
    """Return what one topic takes.

    Raises:
        UserError: It is not there.
    """
    return next(iter(_named(open_work(invocation, select), [address])))


def topic_storages(invocation: Invocation, select: Select, patterns: Sequence[str]) -> Storages:
    """Return what the topics take whose addresses match, all of them where nothing is asked for.

    Raises:
        UserError: One that is named, without `*`, is not there.
    """
    work = open_work(invocation, select)
    found = {each.address: each for each in _named(work, [each for each in patterns if "*" not in each])}
    wild = [each for each in patterns if "*" in each]
    unmeasured = 0
    if wild or not patterns:
        shown = [topic for topic in _matching(work, wild) if topic.address not in found]
        chosen = _within_bounds(shown)
        unmeasured = len(shown) - len(chosen)
        found |= {each.address: each for each in _of(work, chosen)}
    return Storages(tuple(found[address] for address in sorted(found)), unmeasured)


def _named(work: Work, addresses: Iterable[str]) -> list[TopicStorage]:
    found: list[TopicStorage] = []
    for address in dict.fromkeys(map(topic_address, addresses)):
        provider = provider_of(work, address)
        check_answers(work, cluster_of(address) or "")
        there, _ = find_topic(provider, address)
        found += provider.storages([there])
    return found


def _matching(work: Work, patterns: Sequence[str]) -> list[TopicShown]:
    shown = [topic for overview in look_over(work, work.to_read).values() for topic in overview.topics]
    return sorted(
        topic for topic in shown if not patterns or any(matches(pattern, topic.address) for pattern in patterns)
    )


def _within_bounds(shown: Iterable[TopicShown]) -> list[Address]:
    left: dict[str, int] = {}
    chosen: list[Address] = []
    for topic in shown:
        cluster = cluster_of(topic.address) or ""
        remaining = left.setdefault(cluster, PARTITIONS)
        if topic.partitions <= remaining:
            left[cluster] = remaining - topic.partitions
            chosen.append(topic.address)
    return chosen


def _of(work: Work, addresses: Iterable[Address]) -> list[TopicStorage]:
    by_cluster: dict[str, list[Address]] = {}
    for address in addresses:
        by_cluster.setdefault(cluster_of(address) or "", []).append(address)
    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="storage") as threads:
        answers = threads.map(lambda item: list(work.providers[item[0]].storages(item[1])), _items(by_cluster))
        return [each for answer in answers for each in answer]


def _items(by_cluster: Mapping[str, list[Address]]) -> list[tuple[str, list[Address]]]:
    return sorted(by_cluster.items())
