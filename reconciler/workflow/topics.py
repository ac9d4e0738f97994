"""`topic list` and `topic describe`: what is on the clusters, whoever made it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from reconciler.errors import UserError
from reconciler.lifecycles.mounting import is_under_way
from reconciler.providers.base import Scope
from reconciler.resources.address import (
    Address,
    address_of,
    cluster_address,
    cluster_of,
    full_name_of,
    kind_of,
    matches,
    split_name,
    tiers_of,
)
from reconciler.resources.mirrortopic import MirrorTopic
from reconciler.resources.mountable import MIGRATING
from reconciler.resources.overviews import Following
from reconciler.workflow.beginning.opening import open_work
from reconciler.workflow.beginning.topicaddress import provider_of, topic_address
from reconciler.workflow.looking.actingacls import AclRow, acting_acls
from reconciler.workflow.looking.actingconfigs import ConfigRow, configs_on
from reconciler.workflow.looking.asleep import told_asleep
from reconciler.workflow.looking.observing import measure
from reconciler.workflow.looking.overviews import check_answers, look_over

if TYPE_CHECKING:
    from reconciler.providers.base import Provider
    from reconciler.resources.groups import ConsumerGroup
    from reconciler.resources.inventory import Inventory, Observed
    from reconciler.resources.measures import Measure
    from reconciler.resources.migration import Migration
    from reconciler.resources.overviews import TopicShown
    from reconciler.resources.storages import TopicStorage
    from reconciler.workflow.beginning.invocation import Invocation, Select


@dataclass(frozen=True, slots=True)
class PartitionRow:
    """One partition; `stable` is what `read_committed` may reach."""

    partition: int
    start: int
    stable: int
    end: int


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """One topic, whole."""

    address: Address
    incarnation: str | None
    groups: tuple[ConsumerGroup, ...] | None
    """Those that have offsets of it, each of it alone; `None`: we cannot tell."""
    partitions: tuple[PartitionRow, ...]
    records: int | None
    bytes: int | None
    configs: tuple[ConfigRow, ...]
    acls: tuple[AclRow, ...] = ()
    """The access rules that are asked, those of its tiers first; only what whoever asks may see of them."""
    storage: TopicStorage | None = None
    """What lies in which tier; `None`: it was never tiered, or its platform has no tiers."""
    migration: Migration | None = None
    """What mounts or unmounts it, with this topic alone; `None`: nothing does."""
    following: Following | None = None
    """What it mirrors; `None`: it is an ordinary topic."""


def list_topics(
    invocation: Invocation, select: Select, pattern: str | None, *, sizes: bool = False
) -> list[TopicShown]:
    """Return the topics and mirrors on all clusters, or those whose address matches.

    `sizes` measures at most a thousand partitions: a request for each that was ever written.
    """
    work = open_work(invocation, select)
    names = [name for name in work.to_read if pattern is None or _may_be_on(name, pattern)]
    shown = [topic for overview in look_over(work, names).values() for topic in overview.topics]
    shown = sorted(topic for topic in shown if pattern is None or matches(pattern, topic.address))
    shown.sort(key=lambda topic: kind_of(topic.address) != "topic")
    if not sizes:
        return shown
    measures = measure(work.providers, [topic.address for topic in shown])
    return [_measured(topic, measures.get(topic.address)) for topic in shown]


def describe_topic(invocation: Invocation, select: Select, address: str) -> TopicDescription:
    """Return partitions, offsets, size and acting configs of one topic.

    Raises:
        UserError: It is not there.
    """
    work = open_work(invocation, select)
    topic = topic_address(address)
    provider = provider_of(work, topic)
    check_answers(work, cluster_of(topic) or "")
    with told_asleep(work, topic):
        found, observed = find_topic(provider, topic)
    standing = provider.standing(topic)
    return TopicDescription(
        address=found,
        incarnation=observed[found].incarnation,
        groups=_groups(provider, full_name_of(topic)),
        partitions=tuple(
            PartitionRow(partition, at.start, at.stable, at.end) for partition, at in sorted(standing.bounds.items())
        ),
        records=standing.records,
        bytes=standing.bytes,
        configs=configs_on(provider, found, observed),
        acls=acting_acls(found, observed),
        storage=standing.storage if standing.storage is not None and standing.storage.tiering is not None else None,
        migration=_migration(provider, full_name_of(topic)) if observed[found].state == MIGRATING else None,
        following=_following(observed[found]),
    )


def _following(seen: Observed) -> Following | None:
    mirror = seen.resource
    if not isinstance(mirror, MirrorTopic):
        return None
    return Following(seen.state or "", mirror.link, f"{mirror.source_cluster}/{mirror.source}")


def _migration(provider: Provider, full_name: str) -> Migration | None:
    """Return what has a topic in its hands, with that topic alone; `None`: it has just let go of it."""
    for migration in provider.migrations.under_way(is_measured=False):
        ours = tuple(topic for topic in migration.topics if topic.full_name == full_name)
        if ours and is_under_way(migration.state):
            return replace(migration, topics=ours)
    return None


def _groups(provider: Provider, full_name: str) -> tuple[ConsumerGroup, ...] | None:
    """Return who reads a topic; `None` where there are too many groups, or one cannot be read."""
    try:
        found = provider.groups.of_topic(full_name)
    except UserError:
        return None
    return None if found is None else tuple(found)


def find_topic(provider: Provider, topic: Address) -> tuple[Address, Inventory]:
    """Return under which address a topic is observed, as itself or as a mirror, and all that acts on it.

    Raises:
        UserError: It is not there.
        NotAuthorizedError: It may not be described.
    """
    cluster, name = cluster_of(topic) or "", full_name_of(topic)
    mirror = address_of("mirror", cluster, name)
    tiers = tiers_of(split_name(name)[0])
    observed: Inventory = {}
    if provider.identify() is not None:
        namespaces = (address_of("namespace", cluster, tier) for tier in tiers)
        observed = provider.observe(Scope((cluster_address(cluster), topic, mirror, *namespaces)))
        if topic not in observed and mirror not in observed:
            provider.log(topic)  # refuses who may not know that it is not there
    for address in (topic, mirror):
        if address in observed:
            found = observed[address].hidden
            if found is not None:
                raise found
            return address, observed
    raise UserError(f"{topic} does not exist", hint="List what does with: reconciler topic list")


def _may_be_on(cluster: str, pattern: str) -> bool:
    """Tell whether a pattern can name something on a cluster: one that is not asked for is not asked."""
    before, has_rest, after = pattern.partition("/")
    named = after.partition("/")[0]
    return "*" in before or "*" in named or not has_rest or named == cluster


def _measured(topic: TopicShown, size: Measure | None) -> TopicShown:
    return topic if size is None else topic._replace(records=size.records, bytes=size.bytes)
