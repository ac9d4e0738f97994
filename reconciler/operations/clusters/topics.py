"""`topic list`, `describe`, `alter`, `storage` and `profile`."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from reconciler.errors import BlockedError, MissingSparkError, ReconcilerError, UsageError, UserError
from reconciler.lifecycles.mirror import MirrorStatus
from reconciler.lifecycles.mount import is_under_way
from reconciler.lifecycles.tiered import TieringState
from reconciler.operations.clusters.mounts import storage_of, told_asleep
from reconciler.operations.steps.effective import AclRow, ConfigRow, acting_acls, acting_configs, configs_of, configs_on
from reconciler.operations.steps.observe import AT_ONCE, check_answers, look_over, measure, refuse_another_cluster
from reconciler.operations.steps.recorded import check_state, read_state
from reconciler.operations.steps.runner import require_confirmation, verdict_on_each
from reconciler.operations.steps.workspace import Work, open_work, provider_of, topic_address
from reconciler.planning.actions import Change, Reason, Risk, RunJob, Update
from reconciler.planning.diff.converge import precondition
from reconciler.planning.resolve.limits import beyond
from reconciler.planning.situation import ALTERED
from reconciler.providers.protocol import Scope
from reconciler.resources.address import (
    Address,
    address_of,
    check_full_name,
    cluster_address,
    cluster_of,
    full_name_of,
    kind_of,
    matches,
    split_name,
    tiers_of,
)
from reconciler.resources.configs import DEFAULT, canonical_value
from reconciler.resources.inventory import Following
from reconciler.resources.mirror_link import MirrorTopic
from reconciler.resources.mount import MIGRATING
from reconciler.resources.tiering_policy import RETAIN, disable_policy_in, switches_in
from reconciler.resources.topic import Topic
from reconciler.runtime.text import did_you_mean, nearest
from reconciler.runtime.threads import side_by_side

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from reconciler.jobs.profile import Profile
    from reconciler.operations.steps.invocation import Invocation, Select
    from reconciler.operations.steps.runner import Emergency
    from reconciler.operations.steps.workspace import Site
    from reconciler.planning.actions import Action
    from reconciler.providers.protocol import Provider
    from reconciler.resources.groups import ConsumerGroup
    from reconciler.resources.inventory import Capabilities, Inventory, Observed, Record, Resource, TopicShown
    from reconciler.resources.measures import Measure, TopicStorage
    from reconciler.resources.mount import Direction, Migration, Phase
    from reconciler.state.snapshots import Snapshot


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


# `topic alter`: change configs of one topic now. An ordinary run of one action, or done without a state.


@dataclass(frozen=True, slots=True)
class Altered:
    """What was changed; no changes where it was like that already."""

    address: Address
    changes: tuple[Change, ...]
    inherited: Mapping[str, ConfigRow]
    """What acts where the topic has no value of its own, by key, and where that is from."""


def alter_topic(emergency: Emergency, address: str, set_: Mapping[str, str], delete: Sequence[str]) -> Altered:
    """Set and reset configs of one topic.

    Raises:
        UserError: The topic or a config is not there, or this workspace does not own the topic.
        LeaseError: Someone else is applying.
    """
    topic = topic_address(address)
    name = cluster_of(topic) or ""
    site = emergency.site(name)
    wanted = wanted_configs(provider_of(site, topic).capabilities, set_, delete)
    found: list[Altered] = []

    def decide(provider: Provider, record: Record | None) -> list[Update]:
        action, inherited = _action(provider, topic, wanted)
        if record is not None:
            action = _owned(action, record, wanted)
        found.append(Altered(action.address, action.changes, inherited))
        return [action] if action.changes else []

    emergency.carry_out(site, name, decide)
    return found[-1]


def wanted_configs(capabilities: Capabilities, set_: Mapping[str, str], delete: Sequence[str]) -> dict[str, str | None]:
    """Return each config and the value it is to have, `None` where it is to be inherited again.

    Raises:
        UserError: A config or its value cannot be.
    """
    wanted: dict[str, str | None] = dict.fromkeys(delete)
    wanted.update(set_)
    for key, value in wanted.items():
        if key not in capabilities.configs:
            near = nearest(key, capabilities.configs)
            hint = did_you_mean(near, otherwise="List them with: reconciler topic describe")
            raise UserError(f"there is no config {key!r}", hint=hint)
        if value is not None:
            try:
                wanted[key] = canonical_value(key, value, capabilities.configs)
            except ValueError as error:
                default = capabilities.configs[key].default
                raise UserError(f"{key}={value}: {error}", hint=f"Its default is {default!r}.") from error
    return wanted


def _action(
    provider: Provider, topic: Address, wanted: Mapping[str, str | None]
) -> tuple[Update, Mapping[str, ConfigRow]]:
    """Return the change of a topic as it is now, and what it inherits; no changes where it is like that already."""
    address, observed = find_topic(provider, topic)
    before = observed[address]
    own = configs_of(before.resource)
    changes = tuple(
        Change(f"configs.{key}", own.get(key), value) for key, value in sorted(wanted.items()) if own.get(key) != value
    )
    action = Update(
        address=address,
        before=before.resource,
        after=_with_configs(before.resource, wanted),
        changes=changes,
        reasons=(Reason.CHANGED,),
        precondition=precondition(address, before, [change.path for change in changes]),
    )
    _check_switching(provider, action, observed)
    above = {layer: found for layer, found in observed.items() if layer != address}
    return action, {row.key: row for row in acting_configs(address, above, provider.capabilities)}


def _check_switching(provider: Provider, action: Update, observed: Inventory) -> None:
    """Refuse what would delete remote records unseen: only a plan says which offsets become unreadable, and blocks.

    Raises:
        UserError: The change turns tiered storage off, and remote data would be deleted by that (KIP-950).
    """
    before = observed[action.address]
    after = {**observed, action.address: replace(before, resource=action.after)}
    rows = acting_configs(action.address, after, provider.capabilities)
    acting = {row.key: (row.value, row.origin) for row in rows if row.origin != DEFAULT}
    is_on = before.state == TieringState.ENABLED
    if is_on and switches_in(acting).is_off and disable_policy_in(acting) != RETAIN:
        message = f"{action.address}: this turns its tiered storage off, and deletes what lies in object storage"
        raise UserError(
            message,
            hint="Declare it, and plan: the plan says which offsets become unreadable, and is blocked until allowed.",
        )


def _owned(action: Update, record: Record, wanted: Mapping[str, str | None]) -> Update:
    """Return the action as it changes the record: that goes on saying what was applied, so that the change is drift.

    A config that nothing recorded is marked as set by a command; without the mark nothing would tell of it.
    """
    recorded = record.get(action.address)
    if recorded is None:
        raise UserError(
            f"{action.address} is not owned by this workspace",
            hint="Declare it, or change it without remembering that: --no-state",
        )
    origins, applied = dict(recorded.origins), configs_of(recorded.resource)
    for key, value in wanted.items():
        path = f"configs.{key}"
        if value is None and origins.get(path) == ALTERED:
            del origins[path]
        elif value is not None and key not in applied:
            origins.setdefault(path, ALTERED)
    return replace(action, after=recorded.resource, origins=origins)


def _with_configs(resource: Resource, wanted: Mapping[str, str | None]) -> Resource:
    merged: dict[str, str | None] = {**configs_of(resource), **wanted}
    configs = {key: value for key, value in sorted(merged.items()) if value is not None}
    if isinstance(resource, Topic):
        return resource.model_copy(update={"spec": resource.spec.model_copy(update={"configs": configs})})
    return resource.model_copy(update={"configs": configs})


# `topic storage`: what topics take, tier by tier.


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


# `topic profile`: what a topic holds, as Spark reads it.


@dataclass(frozen=True, slots=True)
class ProfiledTopic:
    """One topic, what was asked of it, and where its records were read."""

    address: Address
    profile: Profile
    retention_ms: int | None
    """The profile counts apart what is older than that; `None`: nothing was asked."""
    engine: str | None
    """`None`: there was nothing to read."""


def profile_topic(invocation: Invocation, select: Select, address: str, retention_ms: int | None) -> ProfiledTopic:
    """Read all records of a topic, up to its last stable offsets, and return what they are.

    Raises:
        UserError: It is not there.
        MissingSparkError: Java or Spark are not there; a profile always runs on Spark.
        RetryableError: Spark gave up.
    """
    from reconciler.operations.steps.jobs import SparkJobs  # noqa: PLC0415 - no other command here has jobs

    work = open_work(invocation, select)
    topic = topic_address(address)
    provider = provider_of(work, topic)
    check_answers(work, cluster_of(topic) or "")
    with told_asleep(work, topic):
        found, _ = find_topic(provider, topic)
    log = provider.log(found)
    _check_spark(work, invocation.environ)
    from reconciler.jobs.profile import profile  # noqa: PLC0415 - it imports pyspark, which is there now

    old_before_ms = 0 if retention_ms is None else invocation.now_ms() - retention_ms
    with SparkJobs(work.providers, work.spark, invocation.environ) as jobs:
        profiled = profile(lambda: jobs.session().session, log, old_before_ms=old_before_ms)
    engine = work.spark.name if profiled.counts.records else None
    return ProfiledTopic(found, profiled, retention_ms, engine)


def _check_spark(work: Work, environ: Mapping[str, str]) -> None:
    """Return if Spark could be started here.

    Raises:
        MissingSparkError: Java or Spark are not there.
    """
    from reconciler.jobs.session import check_ready  # noqa: PLC0415 - as above

    try:
        check_ready(work.spark, environ=environ)
    except MissingSparkError as error:
        message = f"topic profile runs on Spark, however small the topic is. {error.message}"
        raise MissingSparkError(message, hint=error.hint) from error


# `topic mount` and `unmount`: migrations that a command asks for. Of the record nothing changes: where a topic is that
# files declare is drift, as if it had been mounted or unmounted in any other way.


MountVerb: TypeAlias = Literal["mount", "unmount"]

_ANY: Final = "*"
_UNMOUNTED_SAID: Final = "no topic matches {}: nothing was done"


@dataclass(frozen=True, slots=True, kw_only=True)
class MountRequest:
    """What is asked: of which topics, under which other name, and how far."""

    verb: MountVerb
    texts: Sequence[str]
    to: str | None = None
    phase: Phase = "whole"

    @property
    def direction(self) -> Direction:
        """Which way they go."""
        return "inbound" if self.verb == "mount" else "outbound"


@dataclass(frozen=True, slots=True, kw_only=True)
class Moving:
    """A topic that is to be mounted or unmounted."""

    address: Address
    """What it is called here, now or then."""
    location: str
    partitions: int | None = None
    records: int | None = None
    bytes: int | None = None
    groups: tuple[str, ...] = ()
    """Those that are reading it."""
    notes: tuple[str, ...] = ()

    @property
    def cluster(self) -> str:
        """Where."""
        return cluster_of(self.address) or ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MountAnswer:
    """What came of one topic; without an error it is done."""

    address: Address
    moving: Moving | None = None
    error: ReconcilerError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MountAnswers:
    """What came of asking for a mount or unmount, by topic."""

    verb: MountVerb
    phase: Phase
    each: tuple[MountAnswer, ...]
    migrations: tuple[tuple[str, int], ...] = ()
    """Those that are prepared: cluster and id."""
    is_rehearsal: bool = False
    """Nothing was done: it says what would be."""

    @property
    def verdict(self) -> ReconcilerError | None:
        """The error to end with, where not all of it was done."""
        errors = [answer.error for answer in self.each]
        return verdict_on_each(self.verb, errors, "topics", is_rehearsal=self.is_rehearsal)


@dataclass
class _Mounting:
    """One request, and what is found of it."""

    emergency: Emergency
    site: Site
    asked: MountRequest
    record: Record
    ready: dict[Address, Moving] = field(default_factory=dict)
    refused: dict[Address, ReconcilerError] = field(default_factory=dict)

    def look(self) -> None:
        """See which topics are meant, and which of them may go.

        Raises:
            UserError: A cluster is not there or cannot do that, or a pattern matches nothing.
            RetryableError: A cluster cannot be reached.
        """
        matched: set[str] = set()
        for cluster in self._clusters():
            self._check_cluster(cluster)
            found = self._candidates(cluster)
            for text in self.asked.texts:
                there: Sequence[Moving] = [each for each in found if matches(text, each.address) or _is_at(text, each)]
                if _ANY in text:
                    there = self._of_pattern(there)
                    matched |= {text} if there else set()
                elif cluster_of(Address(text)) == cluster:
                    there = self._named(text, there)
                for each in there:
                    self.ready[each.address] = each
        for text in self.asked.texts:
            if _ANY in text and text not in matched:
                hint = f"See what there is: reconciler {'mount list' if self.asked.verb == 'mount' else 'topic list'}"
                raise UserError(_UNMOUNTED_SAID.format(text), hint=hint)
        self._call_otherwise()
        self._check_each()

    def decide(self, snapshot: Snapshot | None) -> list[Action]:
        """Return the migrations: of all topics of a cluster together where it can, else one after the other."""
        actions: list[Action] = []
        for cluster in sorted({each.cluster for each in self.ready.values()}):
            mine = {address: each for address, each in self.ready.items() if each.cluster == cluster}
            try:
                refuse_another_cluster(self.site, cluster, snapshot)
            except ReconcilerError as error:
                for address in mine:
                    self.refused[address] = error
                    del self.ready[address]
                continue
            is_by_jobs = self.site.providers[cluster].migrations.by_jobs is not None
            together = [[each] for each in mine.values()] if is_by_jobs else [list(mine.values())]
            actions += [self._job(each) for each in together]
        return actions

    def answers(self, undone: Mapping[str, ReconcilerError]) -> MountAnswers:
        """Return what came of each."""
        wrong: dict[Address, ReconcilerError] = dict(self.refused)
        by_cluster = {name.split(":", 1)[1]: error for name, error in undone.items()}
        for address, each in self.ready.items():
            first = address
            if self.site.providers[each.cluster].migrations.by_jobs is None:
                first = next(other for other, one in self.ready.items() if one.cluster == each.cluster)
            if first in by_cluster:
                wrong[address] = by_cluster[first]
        prepared = tuple(self._prepared(wrong))
        return MountAnswers(verb=self.asked.verb, phase=self.asked.phase, each=self._each(wrong), migrations=prepared)

    def rehearsed(self) -> MountAnswers:
        """Return what would come of each."""
        return MountAnswers(
            verb=self.asked.verb, phase=self.asked.phase, each=self._each(self.refused), is_rehearsal=True
        )

    def _each(self, wrong: Mapping[Address, ReconcilerError]) -> tuple[MountAnswer, ...]:
        names = sorted({*self.ready, *self.refused})
        return tuple(
            MountAnswer(address=address, moving=self.ready.get(address), error=wrong.get(address)) for address in names
        )

    def _prepared(self, wrong: Mapping[Address, ReconcilerError]) -> Iterator[tuple[str, int]]:
        if self.asked.phase != "prepare":
            return
        for cluster in sorted({each.cluster for address, each in self.ready.items() if address not in wrong}):
            for migration in self.site.providers[cluster].migrations.under_way(is_measured=False):
                names = {address_of("topic", cluster, topic.full_name) for topic in migration.topics}
                if migration.direction == self.asked.direction and names & self.ready.keys():
                    yield cluster, migration.id

    def _job(self, topics: Sequence[Moving]) -> RunJob:
        first = topics[0].address
        return RunJob(
            address=first,
            job=self.asked.verb,
            source=first,
            sink=first,
            parameters={
                "topics": {full_name_of(each.address): each.location for each in topics},
                "phase": self.asked.phase,
            },
            risk=Risk.DISRUPTIVE if self.asked.verb == "unmount" else Risk.NONE,
            reasons=(Reason.BY_COMMAND,),
        )

    def _clusters(self) -> tuple[str, ...]:
        asked: set[str] = set()
        for text in self.asked.texts:
            cluster = cluster_of(Address(text)) or _ANY
            asked |= set(self.site.clusters) if _ANY in cluster else {cluster}
        for name in sorted(asked):
            self.site.providers[name]  # says which there are
        named = {cluster_of(Address(text)) for text in self.asked.texts}
        return tuple(
            name for name in sorted(asked) if name in named or self.site.clusters[name].spec.object_storage is not None
        )

    def _check_cluster(self, cluster: str) -> None:
        """Refuse what a cluster cannot do, before anything is done."""
        self.emergency.check(self.site, cluster)
        provider = self.site.providers[cluster]
        if provider.identify() is None:
            raise UserError(f"cluster {cluster} is not there yet", hint="Create it with: reconciler apply")
        if not provider.capabilities.mountings:
            message, hint = beyond(provider.capabilities, "mount or unmount topics")
            raise UserError(f"{cluster_address(cluster)}: {message}", hint=hint)
        storage_of(self.site, cluster)

    def _candidates(self, cluster: str) -> list[Moving]:
        if self.asked.phase == "finish":
            return list(self._under_way(cluster))
        if self.asked.verb == "mount":
            return [
                Moving(
                    address=address_of("topic", cluster, each.full_name),
                    location=each.location,
                    partitions=each.partitions,
                    records=each.records,
                    bytes=each.bytes,
                    notes=() if each.state == "detached" else (_HELD[each.state].format(each.owner, each.name),),
                )
                for each in self.site.providers[cluster].mountable()
            ]
        return list(self._attached(cluster))

    def _under_way(self, cluster: str) -> Iterator[Moving]:
        for migration in self.site.providers[cluster].migrations.under_way(is_measured=False):
            if migration.direction != self.asked.direction or not is_under_way(migration.state):
                continue
            for topic in migration.topics:
                if topic.mounting is None:
                    address = address_of("topic", cluster, topic.full_name)
                    yield Moving(address=address, location=topic.location, partitions=topic.partitions)

    def _attached(self, cluster: str) -> Iterator[Moving]:
        provider = self.site.providers[cluster]
        patterns = [text for text in self.asked.texts if _ANY in text or cluster_of(Address(text)) == cluster]
        observed = provider.observe(Scope(tuple(patterns)))
        by_jobs = provider.migrations.by_jobs
        found = {
            address: seen
            for address, seen in sorted(observed.items())
            if isinstance(seen.resource, Topic) and kind_of(address) == "topic" and not seen.is_internal
        }
        sizes = provider.measure(list(found))
        reading = provider.groups.reading() or {}
        for address, seen in found.items():
            if seen.hidden is not None:
                self.refused[address] = seen.hidden
                continue
            name, size = full_name_of(address), sizes.get(address)
            place = by_jobs.place(name) if by_jobs is not None else ""
            yield Moving(
                address=address,
                location=seen.legacy.location if seen.legacy is not None else place,
                partitions=seen.resource.spec.partitions if isinstance(seen.resource, Topic) else None,
                records=None if size is None else size.records,
                bytes=None if size is None else size.bytes,
                groups=tuple(reading.get(name, ())),
            )

    def _of_pattern(self, there: Sequence[Moving]) -> list[Moving]:
        """Return what a pattern names and is free; of several of one name none is meant, and that is told."""
        named: dict[Address, list[Moving]] = {}
        for each in there:
            if not each.notes:
                named.setdefault(each.address, []).append(each)
        for address, several in named.items():
            if len(several) > 1:
                self.refused[address] = self._not_one(address, several)
        return [several[0] for several in named.values() if len(several) == 1]

    def _named(self, text: str, there: Sequence[Moving]) -> Sequence[Moving]:
        """Return the one topic that an address names; why there is none is told with the others."""
        free = [each for each in there if not each.notes]
        if len(free) == 1:
            return free
        address = Address(text)
        self.refused[address] = self._not_one(address, free or there)
        return ()

    def _not_one(self, address: Address, found: Sequence[Moving]) -> ReconcilerError:
        """Return why an address names no topic, or more than one (F-R-115)."""
        cluster, name = cluster_of(address) or "", full_name_of(address)
        if self.asked.phase == "finish":
            message = f"{address}: no {self.asked.verb} of it that a command began is under way"
            return UserError(message, hint="See what is under way: reconciler mount status")
        if self.asked.verb == "unmount":
            mirror = address_of("mirror", cluster, name)
            if self.site.providers[cluster].observe(Scope((mirror,))):
                hint = "Promote or delete the mirror first; its source can be unmounted where it is."
                return UserError(f"{mirror} is a mirror: what it holds belongs to its source", hint=hint)
            return UserError(f"{address} does not exist (Topic does not exists)", hint="See: reconciler topic list")
        if not found:
            message = f"{address}: nothing of that name or place can be mounted"
            return UserError(message, hint="See what can: reconciler mount list")
        if len(found) == 1:
            return UserError(f"{address}: {found[0].notes[0]}", hint="Unmount it there: a topic is mounted once.")
        places = ", ".join(each.location for each in found)
        hint = f"Name the place of the one that is meant: {address_of('topic', cluster, found[0].location)}"
        return UserError(f"{address}: several topics of that name can be mounted: {places}", hint=hint)

    def _call_otherwise(self) -> None:
        """Give the one topic that is mounted the name that it is to have."""
        if self.asked.to is None or len(self.ready) != 1:
            return
        (each,) = self.ready.values()
        name = address_of("topic", each.cluster, self.asked.to)
        self.ready = {name: replace(each, address=name)}

    def _check_each(self) -> None:
        mirrors = self._mirrored() if self.asked.verb == "unmount" and self.asked.phase != "finish" else {}
        for cluster in sorted({each.cluster for each in self.ready.values()}):
            mine = {full_name_of(each.address): each for each in self.ready.values() if each.cluster == cluster}
            unfit: Mapping[str, ReconcilerError] = {}
            if self.asked.phase != "finish":
                topics = {name: each.location for name, each in mine.items()}
                unfit = self.site.providers[cluster].migrations.unfit(self.asked.direction, topics)
            for name, each in mine.items():
                error = unfit.get(name) or self._guarded(each, mirrors.get(each.address, ()))
                if error is not None:
                    self.refused[each.address] = error
                    del self.ready[each.address]
                else:
                    self.ready[each.address] = replace(each, notes=tuple(self._notes(each)))

    def _guarded(self, moving: Moving, mirrors: Sequence[Address]) -> ReconcilerError | None:
        if self.asked.verb == "mount" or self.asked.phase == "finish":
            return None
        last, declared = self.record.get(moving.address), self._declared(moving.address)
        says = declared.spec.protect if isinstance(declared, Topic) else None
        if says if says is not None else last is not None and last.protect:
            message = f"{moving.address} is protected, and unmounting takes it off the cluster"
            return BlockedError(message, hint="Apply once with protect: false; nothing was unmounted.")
        if mirrors:
            message = f"{moving.address}: {mirrors[0]} mirrors it, and would have no source"
            return UserError(message, hint=f"Promote or fail over {mirrors[0]} first.")
        return None

    def _mirrored(self) -> Mapping[Address, Sequence[Address]]:
        """Return the live mirrors of topics, as far as clusters answer: an emergency does without the others."""

        def look(name: str) -> list[tuple[Address, Address]]:
            try:
                provider = self.site.providers[name]
                seen = provider.links.mirrors() if provider.identify() is not None else ()
            except ReconcilerError:
                return []
            return [
                (address_of("topic", each.source_cluster, each.source), address_of("mirror", name, each.name))
                for each in seen
                if each.status is not MirrorStatus.STOPPED
            ]

        found: dict[Address, list[Address]] = {}
        for each in side_by_side(look, sorted(self.site.clusters), name="mirrors"):
            for topic, mirror in each:
                found.setdefault(topic, []).append(mirror)
        return found

    def _declared(self, address: Address) -> Resource | None:
        if not isinstance(self.site, Work) or address not in self.site.loaded.desired:
            return None
        return self.site.loaded.desired[address].resource

    def _notes(self, moving: Moving) -> Iterator[str]:
        mounting = Address("mounting/" + moving.address.partition("/")[2])
        for address in (moving.address, mounting):
            if self._declared(address) is None and address not in self.record:
                continue
            if self.asked.verb == "unmount":
                yield f"{address} is of this workspace: the next plan says so, and makes nothing anew"
            elif address == mounting:
                yield f"{address} is of this workspace: apply sets back what its files say otherwise"


_HELD: Final = {
    "claimed": "it is being mounted on cluster {} as {}",
    "mounted": "it is mounted on cluster {} as {}",
}


def _is_at(text: str, moving: Moving) -> bool:
    """Tell whether an address or pattern names the place of a topic in object storage."""
    return matches(text, address_of("topic", moving.cluster, moving.location))


def migrate_topics(
    emergency: Emergency,
    asked: MountRequest,
    *,
    confirm: Callable[[MountAnswers], bool] | None = None,
    is_rehearsal: bool = False,
) -> MountAnswers:
    """Mount or unmount topics now, and return what came of each; one that cannot go stops no other.

    `confirm` is asked once, and given what would come of each. A rehearsal returns just that, and changes nothing.

    Raises:
        UsageError: What was typed is no topic, or another name is given for several.
        UserError: A cluster cannot do it, a pattern matches nothing, or it was not confirmed.
        LeaseError: Someone else is applying.
    """
    _check_typed(asked)
    site = emergency.open()
    record: Record = {}
    if not emergency.no_state:
        check_state(site)
        snapshot = read_state(site)
        record = {} if snapshot is None else snapshot.record
    mounting = _Mounting(emergency, site, asked, record)
    mounting.look()
    if asked.to is not None and len(mounting.ready) + len(mounting.refused) > 1:
        raise UsageError("--to is of one topic", hint="Mount them one after the other, or each under its own name.")
    foreseen = mounting.rehearsed()
    if is_rehearsal:
        return foreseen
    if mounting.ready and confirm is not None:
        require_confirmation(confirm(foreseen))
    clusters = {each.cluster for each in mounting.ready.values()}
    undone = emergency.carry_out_each(site, clusters, mounting.decide) if mounting.ready else {}
    return mounting.answers(undone)


def _check_typed(asked: MountRequest) -> None:
    if not asked.texts:
        raise UsageError("no topics were named", hint="For example topic/west/shop:eu:orders, or 'topic/west/shop:*'.")
    for text in asked.texts:
        address = Address(text)
        if kind_of(address) != "topic" or (_ANY not in text and not (text.count("/") > 1 and full_name_of(address))):
            raise UsageError(f"{text!r} is not the address of a topic", hint="Write it as topic/west/shop:eu:orders.")
    if asked.to is None:
        return
    if len(asked.texts) > 1 or _ANY in asked.texts[0]:
        raise UsageError("--to is of one topic", hint="Mount them one after the other, or each under its own name.")
    try:
        check_full_name(asked.to)
    except ValueError as error:
        raise UsageError(f"--to {asked.to!r} is {error}", hint="Example: shop:eu:orders.") from error
