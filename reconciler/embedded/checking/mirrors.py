"""Mirrors in a check: what the catalog says of them, against their links and against what their partitions hold.

A transition that nobody has ended yet is no fault: whoever reaches both clusters goes on with it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from reconciler.embedded.checking.findings import Finding, Kind, Place
from reconciler.embedded.keys import CATALOG, partition_of_head
from reconciler.embedded.partition.gate import writer_of
from reconciler.embedded.partition.handing import hand_over

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from reconciler.embedded.catalog.entries import TopicEntry
    from reconciler.embedded.catalog.tables import Catalog, Draft
    from reconciler.embedded.cluster import EmbeddedCluster
    from reconciler.embedded.partition.head import Head


def judge_mirrors(catalog: Catalog) -> Iterator[Finding]:
    """Yield what the catalog says of mirrors that cannot be, or is under way. Pure."""
    links = {entry.id for entry in catalog.links.values()}
    for name, entry in catalog.topics.items():
        mirror, place = entry.mirror, Place(CATALOG, name)
        if mirror is None:
            continue
        if mirror.link_id not in links:
            kind = Kind.MIRROR_LEFT_OVER if mirror.is_stopped else Kind.LINK_MISSING
            yield Finding(kind, f"{name} is a mirror of a link that is not there", place)
        if mirror.operation is not None:
            what = f"mirror {name} is {mirror.state}: {mirror.operation.verb} is under way"
            yield Finding(Kind.TRANSITION_UNDER_WAY, what, place)


def judge_source(topic: TopicEntry, head: Head, place: Place) -> Iterator[Finding]:
    """Yield where a partition holds a copy of something else than its mirror follows. Pure.

    While a transition is under way, and once mirroring is over, a head tells of what was copied before.
    """
    source, mirror = head.source, topic.follows
    if source is None:
        return
    fetched, copied = source.get("fetched"), source.get("topic_id")
    if type(fetched) is int and fetched > head.end:
        what = f"it says that its source was copied to offset {fetched}, and ends at {head.end}"
        yield Finding(Kind.HEAD_CONTRADICTION, what, place)
    if mirror is None or mirror.operation is not None or mirror.source_topic_id is None or copied is None:
        return
    if copied != mirror.source_topic_id:
        what = (
            f"it holds a copy of topic id {copied}, and its mirror follows {mirror.source} ({mirror.source_topic_id})"
        )
        yield Finding(Kind.MIRROR_SOURCE, what, place)


def hand_heads_over(cluster: EmbeddedCluster, found: Sequence[Finding]) -> int:
    """Give partitions to whom the catalog says, as the next append would; return how many."""
    topics = {entry.id: entry for entry in cluster.catalog.read().topics.values()}
    done = 0
    for finding in found:
        topic_id, number = partition_of_head(finding.place.key)
        topic = topics.get(topic_id)
        if topic is not None:
            done += hand_over(cluster.store, (topic_id, number), writer_of(topic), makes=False) is not None
    return done


def forget_mirrors(cluster: EmbeddedCluster) -> list[str]:
    """Let stopped mirrors whose link is gone be ordinary topics; return their names."""
    gone: list[str] = []

    def decide(draft: Draft) -> None:
        links = {entry.id for entry in draft.links.values()}
        gone[:] = sorted(
            name
            for name, entry in draft.topics.items()
            if entry.mirror is not None and entry.mirror.is_stopped and entry.mirror.link_id not in links
        )
        for name in gone:
            draft.put_topic(name, replace(draft.topics[name], mirror=None))

    cluster.catalog.commit(decide)
    return gone
