"""`topic list`, `describe`, `storage` and `profile`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from reconciler.errors import MissingSparkError, NotFoundError, UserError
from reconciler.lifecycles import is_under_way
from reconciler.operations.clusters.mounts import told_unmounted
from reconciler.operations.steps.effective import AclRow, ConfigRow, acting_acls, configs_on
from reconciler.operations.steps.observe import look_over, measure
from reconciler.operations.steps.runner import SiteOptions, Stop, reading
from reconciler.operations.steps.workspace import Site, provider_of, topic_address
from reconciler.providers.protocol import Provider, Scope, groups_of, migrations_of
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
from reconciler.resources.configs import canonical_value
from reconciler.resources.inventory import Capabilities, Following, Inventory, Observed, TopicShown
from reconciler.resources.mirror_link import MirrorTopic
from reconciler.resources.mount import MIGRATING, Migration
from reconciler.runtime.text import did_you_mean, nearest
from reconciler.runtime.threads import side_by_side

if TYPE_CHECKING:
    from reconciler.resources.groups import ConsumerGroup
    from reconciler.resources.measures import Measure, TopicStorage
    from reconciler.resources.topic_profile import Profile


@dataclass(frozen=True, slots=True)
class PartitionRow:
    """One partition; `stable` is what `read_committed` may reach."""

    partition: int
    start: int
    stable: int
    """What read_committed may reach."""
    end: int


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """One topic, whole."""

    address: Address
    incarnation: str | None
    groups: tuple[ConsumerGroup, ...] | None
    """Consumer groups that have offsets of it, each of it alone. Null: we cannot tell."""
    partitions: tuple[PartitionRow, ...]
    records: int | None
    """Null: not measured."""
    bytes: int | None
    """Null: not measured."""
    configs: tuple[ConfigRow, ...]
    acls: tuple[AclRow, ...] = ()
    """The access rules that are asked, those of its tiers first; only what whoever asks may see of them."""
    storage: TopicStorage | None = None
    """What lies in which tier; `None`: it was never tiered, or its platform has no tiers."""
    migration: Migration | None = None
    """What mounts or unmounts it, with this topic alone; `None`: nothing does."""
    following: Following | None = None
    """What it mirrors; `None`: it is an ordinary topic."""


def list_topics(reach: SiteOptions, pattern: str | None, *, sizes: bool = False) -> list[TopicShown]:
    """Return the topics and mirrors on all clusters, or those whose address matches.

    `sizes` measures at most a thousand partitions: a request for each that was ever written.
    """
    site = reach.site()
    names = [name for name in site.to_read if pattern is None or _may_be_on(name, pattern)]
    shown = [topic for overview in look_over(site, names, reach.recorded(site)).values() for topic in overview.topics]
    shown = sorted(topic for topic in shown if pattern is None or matches(pattern, topic.address))
    shown.sort(key=lambda topic: kind_of(topic.address) != "topic")
    if not sizes:
        return shown
    measures = measure(site.providers, {topic.address: () for topic in shown})
    return [_measured(topic, measures.get(topic.address)) for topic in shown]


def describe_topic(reach: SiteOptions, address: str) -> TopicDescription:
    """Return partitions, offsets, size and acting configs of one topic.

    Raises:
        UserError: It is not there.
    """
    site = reach.site()
    topic = topic_address(address)
    provider = provider_of(site, topic)
    reach.check_answers(site, cluster_of(topic) or "")
    with told_unmounted(site, topic):
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
    for migration in migrations_of(provider).under_way(is_measured=False):
        ours = tuple(topic for topic in migration.topics if topic.full_name == full_name)
        if ours and is_under_way(migration.state):
            return replace(migration, topics=ours)
    return None


def _groups(provider: Provider, full_name: str) -> tuple[ConsumerGroup, ...] | None:
    """Return who reads a topic; `None` where there are too many groups, or one cannot be read."""
    try:
        found = groups_of(provider).of_topic(full_name)
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
    raise NotFoundError(f"{topic} does not exist", hint="List what does with: reconciler topic list")


def _may_be_on(cluster: str, pattern: str) -> bool:
    """Tell whether a pattern can name something on a cluster: one that is not asked for is not asked."""
    before, has_rest, after = pattern.partition("/")
    named = after.partition("/")[0]
    return "*" in before or "*" in named or not has_rest or named == cluster


def _measured(topic: TopicShown, size: Measure | None) -> TopicShown:
    return topic if size is None else topic._replace(records=size.records, bytes=size.bytes)


# Configs that a command gives.


def wanted_configs(capabilities: Capabilities, typed: Mapping[str, str | None], topic: str = "TOPIC") -> dict[str, Any]:
    """Return configs with values as the platform stores them; `None` resets one.

    Raises:
        UserError: The platform has no such config, or a value is not legal.
    """
    wanted = dict(sorted(typed.items()))
    for key, value in typed.items():
        if key not in capabilities.configs:
            near = nearest(key, capabilities.configs)
            hint = did_you_mean(near, otherwise=f"List them with: reconciler topic describe {topic}")
            raise UserError(f"there is no config {key!r}", hint=hint)
        if value is not None:
            try:
                wanted[key] = canonical_value(key, value, capabilities.configs)
            except ValueError as error:
                default = capabilities.configs[key].default
                raise UserError(f"{key}={value}: {error}", hint=f"Its default is {default!r}.") from error
    return wanted


# `topic storage`: what topics take, tier by tier.


PARTITIONS: Final = 10_000
"""What is looked at of one cluster where topics are not named one by one."""


@dataclass(frozen=True, slots=True)
class Storages:
    """Many topics, sorted by address; `unmeasured` are those beyond the bound."""

    topics: tuple[TopicStorage, ...]
    unmeasured: int = 0
    """Topics beyond the bound of 10,000 partitions a cluster."""


def topic_storage(reach: SiteOptions, address: str) -> TopicStorage:
    """Return what one topic takes.

    Raises:
        UserError: It is not there.
    """
    return next(iter(_named(reach, reach.site(), [address])))


def topic_storages(reach: SiteOptions, patterns: Sequence[str]) -> Storages:
    """Return what the topics take whose addresses match, all of them where nothing is asked for.

    Raises:
        UserError: One that is named, without `*`, is not there.
    """
    site = reach.site()
    found = {each.address: each for each in _named(reach, site, [each for each in patterns if "*" not in each])}
    wild = [each for each in patterns if "*" in each]
    unmeasured = 0
    if wild or not patterns:
        shown = [topic for topic in _matching(reach, site, wild) if topic.address not in found]
        chosen = _within_bounds(shown)
        unmeasured = len(shown) - len(chosen)
        found |= {each.address: each for each in _of(site, chosen)}
    return Storages(tuple(found[address] for address in sorted(found)), unmeasured)


def _named(reach: SiteOptions, site: Site, addresses: Iterable[str]) -> list[TopicStorage]:
    found: list[TopicStorage] = []
    answering: set[str] = set()  # To know that a cluster is the recorded one, the state is read.
    for address in dict.fromkeys(map(topic_address, addresses)):
        provider, cluster = provider_of(site, address), cluster_of(address) or ""
        if cluster not in answering:
            reach.check_answers(site, cluster)
            answering.add(cluster)
        there, _ = find_topic(provider, address)
        found += provider.storages([there])
    return found


def _matching(reach: SiteOptions, site: Site, patterns: Sequence[str]) -> list[TopicShown]:
    shown = [
        topic for overview in look_over(site, site.to_read, reach.recorded(site)).values() for topic in overview.topics
    ]
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


def _of(site: Site, addresses: Iterable[Address]) -> list[TopicStorage]:
    by_cluster: dict[str, list[Address]] = {}
    for address in addresses:
        by_cluster.setdefault(cluster_of(address) or "", []).append(address)
    items = sorted(by_cluster.items())
    answers = side_by_side(lambda item: list(site.providers[item[0]].storages(item[1])), items, name="storage")
    return [each for answer in answers for each in answer]


# `topic profile`: what a topic holds, as Spark reads it.


@dataclass(frozen=True, slots=True)
class ProfiledTopic:
    """One topic, what was asked of it, and where its records were read."""

    address: Address
    profile: Profile
    retention_ms: int | None
    """The profile counts apart what is older than that; `None`: nothing was asked."""
    engine: str | None
    """Where its records were read. Null: there are none."""


def profile_topic(reach: SiteOptions, address: str, retention_ms: int | None, *, stop: Stop) -> ProfiledTopic:
    """Read all records of a topic, up to its last stable offsets, and return what they are.

    Raises:
        UserError: It is not there.
        MissingSparkError: Java or Spark are not there; a profile always runs on Spark.
        RetryableError: Spark gave up.
        InterruptedRunError: Somebody asked to stop.
    """
    from reconciler.operations.steps.jobs import SparkJobs  # noqa: PLC0415 - no other command here has jobs

    site = reach.site()
    topic = topic_address(address)
    provider = provider_of(site, topic)
    reach.check_answers(site, cluster_of(topic) or "")
    with told_unmounted(site, topic):
        found, _ = find_topic(provider, topic)
    log = provider.log(found)
    _check_spark(site, reach.invocation.environ)
    from reconciler.jobs.profile import profile  # noqa: PLC0415 - it imports pyspark, which is there now

    old_before_ms = 0 if retention_ms is None else reach.invocation.now_ms() - retention_ms
    with SparkJobs(site.providers, site.spark, reach.invocation) as jobs, reading(jobs, stop):
        profiled = profile(lambda: jobs.session().session, log, old_before_ms=old_before_ms)
    engine = site.spark.name if profiled.counts.records else None
    return ProfiledTopic(found, profiled, retention_ms, engine)


def _check_spark(site: Site, environ: Mapping[str, str]) -> None:
    """Return if Spark could be started here.

    Raises:
        MissingSparkError: Java or Spark are not there.
    """
    from reconciler.jobs.session import check_ready  # noqa: PLC0415 - as above

    try:
        check_ready(site.spark, environ=environ)
    except MissingSparkError as error:
        message = f"topic profile runs on Spark, however small the topic is. {error.message}"
        raise MissingSparkError(message, hint=error.hint) from error
