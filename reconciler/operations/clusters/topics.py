"""`topic list`, `describe`, `storage` and `profile`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from reconciler.errors import MissingSparkError, NotFoundError, UserError
from reconciler.lifecycles import is_in_progress
from reconciler.operations.clusters.mounts import explain_unmounted
from reconciler.operations.steps.effective import AclRow, ConfigRow, list_effective_acls, read_effective_configs
from reconciler.operations.steps.observe import measure, read_overviews
from reconciler.operations.steps.runner import SiteOptions, Stop, stop_jobs_on_request
from reconciler.operations.steps.workspace import Site, get_address_provider, parse_topic_address
from reconciler.providers.protocol import Provider, Scope, require_groups, require_migrations
from reconciler.resources.address import (
    Address,
    address_of,
    cluster_address,
    cluster_of,
    full_name_of,
    kind_of,
    list_levels,
    matches_pattern,
    split_name,
)
from reconciler.resources.configs import canonicalize_value
from reconciler.resources.inventory import Capabilities, FollowedSource, Inventory, Observed, TopicShown
from reconciler.resources.mirror_link import MirrorTopic
from reconciler.resources.mount import MIGRATING, Migration
from reconciler.runtime.dataclass import dataclass, replace
from reconciler.runtime.text import find_similar, format_suggestion
from reconciler.runtime.threads import map_in_parallel

if TYPE_CHECKING:
    from reconciler.resources.groups import ConsumerGroup
    from reconciler.resources.measures import Measure, TopicStorage
    from reconciler.resources.topic_profile import Profile

_SEPARATOR: Final = re.compile("[._-]")


@dataclass(frozen=True, slots=True)
class PartitionRow:
    """One partition. `stable` is the last stable offset. Fields of brokers are `null` on clusters without them."""

    partition: int
    start: int
    stable: int
    end: int
    leader: int | None = None
    """Broker id; -1 without a leader."""
    replicas: tuple[int, ...] | None = None
    in_sync: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic with partitions, offsets, configs and ACLs."""

    address: Address
    incarnation: str | None
    groups: tuple[ConsumerGroup, ...] | None
    """Consumer groups with committed offsets in the topic; `null` if unknown."""
    partitions: tuple[PartitionRow, ...]
    records: int | None
    """`null` if not measured."""
    bytes: int | None
    """`null` if not measured."""
    configs: tuple[ConfigRow, ...]
    acls: tuple[AclRow, ...] = ()
    """Applicable rules that the caller may see, those of namespaces first."""
    storage: TopicStorage | None = None
    """Bytes in local and remote storage; `null` if never tiered."""
    migration: Migration | None = None
    """Mount or unmount in progress."""
    following: FollowedSource | None = None
    """Source of a mirror; `null` for other topics."""


def list_topics(reach: SiteOptions, pattern: str | None, *, sizes: bool = False) -> list[TopicShown]:
    """Return matching topics and mirrors of all clusters.

    `sizes` measures up to a thousand partitions, with one request each.
    """
    site = reach.open_site()
    names = [name for name in site.clusters_to_read if pattern is None or _may_match_cluster(name, pattern)]
    shown = [
        topic
        for overview in read_overviews(site, names, reach.read_recorded_ids(site)).values()
        for topic in overview.topics
    ]
    shown = sorted(topic for topic in shown if pattern is None or matches_pattern(pattern, topic.address))
    shown.sort(key=lambda topic: kind_of(topic.address) != "topic")
    if not sizes:
        return shown
    measures = measure(site.providers, {topic.address: () for topic in shown})
    return [_add_size(topic, measures.get(topic.address)) for topic in shown]


def describe_topic(reach: SiteOptions, address: str) -> TopicDescription:
    """Return partitions, offsets, size, configs and ACLs of a topic."""
    site = reach.open_site()
    topic = parse_topic_address(address)
    provider = get_address_provider(site, topic)
    reach.check_answers(site, cluster_of(topic) or "")
    with explain_unmounted(site, topic):
        found_address, observed = find_topic(provider, topic)
    standing = provider.describe_topic(topic)
    return TopicDescription(
        address=found_address,
        incarnation=observed[found_address].incarnation,
        groups=_read_groups(provider, full_name_of(topic)),
        partitions=tuple(
            PartitionRow(partition, at.start, at.stable, at.end, *standing.placements.get(partition, ()))
            for partition, at in sorted(standing.bounds.items())
        ),
        records=standing.records,
        bytes=standing.bytes,
        configs=read_effective_configs(provider, found_address, observed),
        acls=list_effective_acls(found_address, observed),
        storage=standing.storage if standing.storage is not None and standing.storage.tiering is not None else None,
        migration=_find_migration(provider, full_name_of(topic))
        if observed[found_address].state == MIGRATING
        else None,
        following=_find_source(observed[found_address]),
    )


def _find_source(seen: Observed) -> FollowedSource | None:
    mirror = seen.resource
    if not isinstance(mirror, MirrorTopic):
        return None
    return FollowedSource(seen.state or "", mirror.link, f"{mirror.source_cluster}/{mirror.source}")


def _find_migration(provider: Provider, full_name: str) -> Migration | None:
    for migration in require_migrations(provider).list_unfinished(is_measured=False):
        ours = tuple(topic for topic in migration.topics if topic.full_name == full_name)
        if ours and is_in_progress(migration.state):
            return replace(migration, topics=ours)
    return None


def _read_groups(provider: Provider, full_name: str) -> tuple[ConsumerGroup, ...] | None:
    try:
        groups = require_groups(provider).list_for_topic(full_name)
    except UserError:
        return None
    return None if groups is None else tuple(groups)


def find_topic(provider: Provider, topic: Address) -> tuple[Address, Inventory]:
    """Return the address, as topic or mirror, and an inventory with the resource."""
    cluster, name = cluster_of(topic) or "", full_name_of(topic)
    mirror = address_of("mirror", cluster, name)
    tiers = list_levels(split_name(name)[0])
    observed: Inventory = {}
    if provider.identify() is not None:
        namespaces = (address_of("namespace", cluster, tier) for tier in tiers)
        observed = provider.observe(Scope((cluster_address(cluster), topic, mirror, *namespaces)))
        if topic not in observed and mirror not in observed:
            provider.open_log(topic)  # `open_log` raises an error if the caller may not know that the topic exists.
    for address in (topic, mirror):
        if address in observed:
            hidden = observed[address].hidden
            if hidden is not None:
                raise hidden
            return address, observed
    near = _find_similar(topic, [shown.address for shown in provider.read_overview().topics])
    hint = format_suggestion(near, otherwise="List the existing ones with: reconciler topic list")
    raise NotFoundError(f"{topic} does not exist", hint=hint)


def _find_similar(topic: Address, known: Sequence[Address]) -> Sequence[str]:
    folded = _SEPARATOR.sub(":", topic)
    return [address for address in known if _SEPARATOR.sub(":", address) == folded][:1] or find_similar(topic, known)


def _may_match_cluster(cluster: str, pattern: str) -> bool:
    before, has_rest, after = pattern.partition("/")
    named = after.partition("/")[0]
    return "*" in before or "*" in named or not has_rest or named == cluster


def _add_size(topic: TopicShown, size: Measure | None) -> TopicShown:
    return topic if size is None else topic._replace(records=size.records, bytes=size.bytes)


def parse_wanted_configs(
    capabilities: Capabilities, typed: Mapping[str, str | None], topic: str = "TOPIC"
) -> dict[str, Any]:
    """Normalize configs of the command line. `None` resets a config."""
    wanted = dict(sorted(typed.items()))
    for key, value in typed.items():
        if key not in capabilities.configs:
            near = find_similar(key, capabilities.configs)
            hint = format_suggestion(near, otherwise=f"List them with: reconciler topic describe {topic}")
            raise UserError(f"there is no config {key!r}", hint=hint)
        if value is not None:
            try:
                wanted[key] = canonicalize_value(key, value, capabilities.configs)
            except ValueError as error:
                default = capabilities.configs[key].default
                raise UserError(f"{key}={value}: {error}", hint=f"Its default is {default!r}.") from error
    return wanted


MAX_PARTITIONS: Final = 10_000


@dataclass(frozen=True, slots=True)
class Storages:
    """Storage of topics, sorted by address."""

    topics: tuple[TopicStorage, ...]
    unmeasured: int = 0
    """Number of topics not measured, because of the limit of partitions."""


def read_topic_storage(reach: SiteOptions, address: str) -> TopicStorage:
    """Read one topic's storage."""
    return next(iter(_read_named_storages(reach, reach.open_site(), [address])))


def read_topic_storages(reach: SiteOptions, patterns: Sequence[str]) -> Storages:
    """Read the storage of matching topics; without patterns, of all."""
    site = reach.open_site()
    storages = {
        storage.address: storage
        for storage in _read_named_storages(reach, site, [text for text in patterns if "*" not in text])
    }
    wild = [text for text in patterns if "*" in text]
    unmeasured = 0
    if wild or not patterns:
        shown = [topic for topic in _find_matching_topics(reach, site, wild) if topic.address not in storages]
        chosen = _select_within_limit(shown)
        unmeasured = len(shown) - len(chosen)
        storages |= {storage.address: storage for storage in _read_storages(site, chosen)}
    return Storages(tuple(storages[address] for address in sorted(storages)), unmeasured)


def _read_named_storages(reach: SiteOptions, site: Site, addresses: Iterable[str]) -> list[TopicStorage]:
    storages: list[TopicStorage] = []
    answering: set[str] = set()
    for address in dict.fromkeys(map(parse_topic_address, addresses)):
        provider, cluster = get_address_provider(site, address), cluster_of(address) or ""
        if cluster not in answering:
            reach.check_answers(site, cluster)
            answering.add(cluster)
        found_address, _ = find_topic(provider, address)
        storages += provider.list_topic_storages([found_address])
    return storages


def _find_matching_topics(reach: SiteOptions, site: Site, patterns: Sequence[str]) -> list[TopicShown]:
    shown = [
        topic
        for overview in read_overviews(site, site.clusters_to_read, reach.read_recorded_ids(site)).values()
        for topic in overview.topics
    ]
    return sorted(
        topic for topic in shown if not patterns or any(matches_pattern(pattern, topic.address) for pattern in patterns)
    )


def _select_within_limit(shown: Iterable[TopicShown]) -> list[Address]:
    left: dict[str, int] = {}
    chosen: list[Address] = []
    for topic in shown:
        cluster = cluster_of(topic.address) or ""
        remaining = left.setdefault(cluster, MAX_PARTITIONS)
        if topic.partitions <= remaining:
            left[cluster] = remaining - topic.partitions
            chosen.append(topic.address)
    return chosen


def _read_storages(site: Site, addresses: Iterable[Address]) -> list[TopicStorage]:
    by_cluster: dict[str, list[Address]] = {}
    for address in addresses:
        by_cluster.setdefault(cluster_of(address) or "", []).append(address)
    items = sorted(by_cluster.items())
    answers = map_in_parallel(
        lambda item: list(site.providers[item[0]].list_topic_storages(item[1])), items, name="storage"
    )
    return [storage for answer in answers for storage in answer]


@dataclass(frozen=True, slots=True)
class ProfiledTopic:
    """Profile of a topic's records."""

    address: Address
    profile: Profile
    retention_ms: int | None
    """Age beyond which records are counted separately; `null` if not requested."""
    engine: str | None
    """Where Spark ran; `null` if the topic is empty."""


def profile_topic(reach: SiteOptions, address: str, retention_ms: int | None, *, stop: Stop) -> ProfiledTopic:
    """Profile a topic up to its last stable offsets. Raises `MissingSparkError` without Spark."""
    from reconciler.operations.steps.jobs import SparkJobs  # noqa: PLC0415 - no other command here runs jobs

    site = reach.open_site()
    topic = parse_topic_address(address)
    provider = get_address_provider(site, topic)
    reach.check_answers(site, cluster_of(topic) or "")
    with explain_unmounted(site, topic):
        found_address, _ = find_topic(provider, topic)
    log = provider.open_log(found_address)
    _check_spark(site, reach.invocation.environ)
    from reconciler.jobs.profile import compute_profile  # noqa: PLC0415 - imports pyspark

    old_before_ms = 0 if retention_ms is None else reach.invocation.now_ms() - retention_ms
    with SparkJobs(site.providers, site.spark, reach.invocation) as jobs, stop_jobs_on_request(jobs, stop):
        profiled = compute_profile(lambda: jobs.get_session().session, log, old_before_ms=old_before_ms)
    engine = site.spark.name if profiled.counts.records else None
    return ProfiledTopic(found_address, profiled, retention_ms, engine)


def _check_spark(site: Site, environ: Mapping[str, str]) -> None:
    from reconciler.jobs.session import check_ready  # noqa: PLC0415 - as above

    try:
        check_ready(site.spark, environ=environ)
    except MissingSparkError as error:
        message = f"topic profile runs on Spark, however small the topic is. {error.message}"
        raise MissingSparkError(message, hint=error.hint) from error
