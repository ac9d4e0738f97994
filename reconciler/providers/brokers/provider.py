"""Base of the providers whose brokers speak the Kafka protocol."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import cached_property, partial
from typing import TYPE_CHECKING, Final

from reconciler.errors import NotAuthorizedError, NotFoundError, ReconcilerError, StalePlanError, UserError
from reconciler.lifecycles import MirrorStatus
from reconciler.planning.actions import SEALED, ControlAction, Update
from reconciler.planning.fields import PROPERTIES
from reconciler.providers.brokers.admin_requests import apply_reassignments, read_reassignments
from reconciler.providers.brokers.client import ABSENT, UNAUTHORIZED, KafkaClient, read_bindings
from reconciler.providers.brokers.cluster_facts import ClusterFacts
from reconciler.providers.brokers.faults import hidden_topic_error
from reconciler.providers.brokers.links.links import KafkaLinks, is_about_links
from reconciler.providers.brokers.translate import (
    ClusterNaming,
    ConfigState,
    PlacedRules,
    ResourceModels,
    TopicMetadata,
    assign_bindings,
    build_naming,
    is_internal,
    select_own_configs,
)
from reconciler.providers.models import check_unchanged
from reconciler.providers.protocol import (
    CompletedAction,
    Edge,
    FailedAction,
    MaintenanceJobResult,
    MaintenancePorts,
    Outcome,
    Scope,
    TopicAddress,
    TopicSizes,
    build_scope_filter,
)
from reconciler.resources.address import Address, address_of, cluster_of, full_name_of, kind_of, list_levels
from reconciler.resources.cluster import FLAT_SEPARATOR, Cluster
from reconciler.resources.inventory import (
    Capabilities,
    ClusterIdentity,
    Inventory,
    LiveCluster,
    LiveTopic,
    Observed,
    Overview,
    TopicShown,
)
from reconciler.resources.kafka_configs import LEDGER
from reconciler.resources.measures import NO_CUTS, Cuts, Measures, TopicStorage, Vitals
from reconciler.resources.owners import OwnerChange, Owners, ResourceOwner
from reconciler.resources.topic import Topic
from reconciler.runtime.dataclass import dataclass, field, replace
from reconciler.runtime.retry import skip_check
from reconciler.runtime.threads import Workers

if TYPE_CHECKING:
    from reconciler.providers.brokers.groups import KafkaGroups
    from reconciler.providers.brokers.ledger import Entries, Ledger
    from reconciler.providers.brokers.links.link_site import LinkSite
    from reconciler.providers.brokers.migrations import KafkaMigrations, KafkaMountings
    from reconciler.providers.brokers.mount_ledger import Seal
    from reconciler.providers.protocol import Archives
    from reconciler.providers.protocol_links import Links
    from reconciler.providers.protocol_moves import Migrations
    from reconciler.records.log import Isolation, LostOffsets, TopicLog, TopicProducer, TransactionalSink
    from reconciler.resources.acls import AccessBinding
    from reconciler.resources.mirror_link import MirrorTopic
    from reconciler.resources.mirrors import SourceTopic

# ruff: noqa: PLC0415


_IN_LEDGER: Final = frozenset({"link", "mirror", "mounting"})
"""Kinds stored in the ledger."""


@dataclass(frozen=True, slots=True)
class ClusterObserver:
    """One observation of a cluster."""

    client: KafkaClient
    cluster: str
    naming: ClusterNaming
    scope: Scope
    known: frozenset[Address]
    """Addresses declared or recorded anywhere."""
    is_wanted: Callable[[str], bool] | None
    initial: dict[str, Mapping[str, str]] = field(default_factory=dict)
    """Values that brokers copied into a topic at its creation as defaults, by flat name."""

    def read_topics(self) -> dict[str, TopicMetadata]:
        """Return visible topics by flat name. Other known topics are requested by name, which reveals hidden ones."""
        topics = apply_reassignments(
            self.client.read_topics(self._list_wanted_names()), read_reassignments(self.client)
        )
        known = {address for address in self.known if cluster_of(address) == self.cluster}
        names = {
            self.naming.to_physical(full_name_of(address))
            for address in known
            if kind_of(address) in {"topic", "mirror"}
        }
        if needs_ledger(known):
            names.add(LEDGER)
        silent = sorted(names - topics.keys())
        return topics | {
            name: seen for name, seen in self.client.read_topics(silent).items() if seen.error == UNAUTHORIZED
        }

    def read_configs(self, topics: dict[str, TopicMetadata]) -> dict[str, Mapping[str, str]]:
        """Return the own configs of `topics`, and mark those that are unreadable."""
        shown = [name for name, seen in sorted(topics.items()) if not seen.error]
        configs: dict[str, Mapping[str, str]] = {}
        for name, values in self.client.read_configs(shown):
            if isinstance(values, int):
                topics[name] = _mark_unreadable(topics[name], values)
            else:
                configs[name] = select_own_configs(values)
                if fixed := self.client.dialect.fixed_at_creation:
                    self.initial[name] = {
                        key: state.value
                        for key, state in values.items()
                        if key in fixed and key not in configs[name] and state.value is not None
                    }
        return configs

    def list_observed(
        self,
        topics: Mapping[str, TopicMetadata],
        configs: Mapping[str, Mapping[str, str]],
        bindings: Sequence[AccessBinding],
        hidden: Mapping[str, MirrorTopic] | None = None,
    ) -> Iterator[tuple[Address, Observed]]:
        """Yield namespaces and topics with their rules."""
        rules, models = assign_bindings(bindings, self.naming, topics.keys()), ResourceModels(self.cluster)
        for name in self._list_namespaces(topics, rules):
            namespace = models.build_namespace(name, rules.namespaces.get(name, ()))
            others = rules.undeclarable.get(("namespace", name), ())
            yield namespace.address, Observed(namespace, physical_name=self.naming.to_prefix(name), undeclarable=others)
        for name in sorted(topics):
            seen = topics[name]
            if seen.error and seen.error != UNAUTHORIZED:
                continue  # A topic with another error is deleted, or is being deleted.
            full_name = self.naming.to_full_name(name)
            mirror = hidden.get(name) if hidden else None
            address = address_of("topic", self.cluster, full_name) if mirror is None else mirror.address
            if self.is_wanted is not None and not self.is_wanted(address):
                continue
            resource = mirror or models.build_topic(
                full_name, seen, configs.get(name, {}), rules.topics.get(full_name, ())
            )
            yield (
                address,
                Observed(
                    resource,
                    seen.id if seen.replicas else None,  # Brokers report zeros as the id of a hidden topic.
                    name,
                    is_internal=is_internal(seen),
                    topic=LiveTopic(self.initial.get(name, {}), is_moving=seen.is_moving),
                    hidden=hidden_topic_error(self.cluster, name) if seen.error else None,
                    undeclarable=rules.undeclarable.get(("topic", full_name), ()),
                ),
            )

    def _list_wanted_names(self) -> list[str] | None:
        # Links are read from the ledger, not by name.
        patterns = [name for name in self.scope.patterns if not name.startswith("link/")]
        if not self.scope.patterns or any("*" in pattern for pattern in patterns):
            return None
        named = [Address(pattern) for pattern in patterns if pattern.startswith(("topic/", "mirror/"))]
        return [*(self.naming.to_physical(full_name_of(address)) for address in named), LEDGER]

    def _list_namespaces(self, topics: Mapping[str, TopicMetadata], rules: PlacedRules) -> Iterator[str]:
        existing = {
            tier
            for namespace in {self.naming.split_namespace(name)[0] for name, seen in topics.items() if not seen.error}
            for tier in list_levels(namespace)
        }
        existing.update(tier for name in rules.namespaces for tier in list_levels(name))
        existing.update(
            full_name_of(address)
            for address in self.scope.recorded
            if kind_of(address) == "namespace" and cluster_of(address) == self.cluster
        )
        for name in sorted(existing):
            if self.is_wanted is None or self.is_wanted(address_of("namespace", self.cluster, name)):
                yield name


def needs_ledger(known: Iterable[Address]) -> bool:
    """Return whether an address has a kind that the ledger stores."""
    return any(kind_of(address) in _IN_LEDGER for address in known)


def _mark_unreadable(seen: TopicMetadata, code: int) -> TopicMetadata:
    return TopicMetadata(seen.name, seen.id, seen.is_internal, seen.replicas, code)


_DYNAMIC_DEFAULT: Final = 3
"""Source of a dynamic config of all brokers."""


def observe_cluster(look: ClusterFacts, declared: Cluster) -> Observed:
    """Return the cluster; it is marked hidden if declared properties may not be read."""
    cluster_id, hidden, properties = look.cluster.id, None, {}
    if isinstance(look.configs, NotAuthorizedError):
        hidden = look.configs if declared.spec.properties else None
    else:
        properties = _select_properties(look.configs[1])
    spec = declared.spec.model_copy(update={"cluster_id": cluster_id, "properties": properties})
    about = LiveCluster(overrides=tuple(look.find_overrides(declared.spec.properties.keys())))
    return Observed(declared.model_copy(update={"spec": spec}), cluster_id, hidden=hidden, cluster=about)


def read_properties(client: KafkaClient) -> dict[str, str]:
    """Return the brokers' cluster-wide dynamic properties."""
    return _select_properties(client.read_dynamic_configs())


def _select_properties(configs: Mapping[str, ConfigState]) -> dict[str, str]:
    return {
        key: config.value
        for key, config in sorted(configs.items())
        if config.source == _DYNAMIC_DEFAULT and config.value is not None
    }


def change_cluster(client: KafkaClient, action: Update, may_go_on: Callable[[], None]) -> Outcome:
    """Set and reset properties in one request, all or none."""
    from reconciler.providers.brokers.admin_requests import alter_broker_configs

    try:
        changes = [change for change in action.changes if change.path.startswith(PROPERTIES)]
        check_unchanged(
            action.address, changes, {PROPERTIES + key: value for key, value in read_properties(client).items()}
        )
        wanted = {
            change.path.removeprefix(PROPERTIES): None if change.after is None else str(change.after)
            for change in changes
        }
        if wanted:
            may_go_on()
            alter_broker_configs(client, wanted)
    except ReconcilerError as error:
        return FailedAction(action.id, _add_hint(client, error, action))
    return CompletedAction(action.id, client.describe_cluster().id)


_NEVER_RESET: Final = "min.insync.replicas"
"""Property that brokers with eligible leader replicas (KIP-966) refuse to reset."""


def _add_hint(client: KafkaClient, error: ReconcilerError, action: Update) -> ReconcilerError:
    from reconciler.providers.brokers.admin_requests import is_reset_refused

    is_reset = any(change.path == PROPERTIES + _NEVER_RESET and change.after is None for change in action.changes)
    if is_reset and isinstance(error, UserError) and is_reset_refused(client, _NEVER_RESET):
        error.hint = (
            f"Instead of removing it, write {_NEVER_RESET}: 1 among the properties of the Cluster. No property was "
            "changed; the next apply changes all of them."
        )
    return error


@dataclass(frozen=True, slots=True)
class _LedgerContents:
    links: Entries = field(default_factory=dict)
    sealed: Mapping[str, Seal] = field(default_factory=dict)
    filled: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Configs after filling, by topic being filled."""
    owners: Owners | None = None


class BrokersProvider(ABC):
    """Provider of one cluster."""

    def __init__(self, declared: Cluster, edge: Edge, client: KafkaClient) -> None:
        self._declared, self._edge, self._client = declared, edge, client
        self._look = ClusterFacts(self._client)
        self._known: frozenset[Address] = frozenset()
        self._naming: ClusterNaming = build_naming(self._separator, ())
        self._learning = threading.Lock()  # Syncs of mirrors add names in parallel.
        self.learn_names(edge.declared)
        self._capabilities: Capabilities | None = None
        self._filled: frozenset[str] = frozenset()
        """Topics being filled at the last observation, by the brokers' names."""

    @property
    def capabilities(self) -> Capabilities:
        """Capabilities, read once."""
        if self._capabilities is None:
            self._capabilities = self._read_capabilities()
        return self._capabilities

    @abstractmethod
    def _read_capabilities(self) -> Capabilities:
        """Read them from the cluster."""

    def _list_declared_topics(self) -> list[str]:
        addresses = (address for address in sorted(self._known) if cluster_of(address) == self._client.name)
        return [self._naming.to_physical(full_name_of(address)) for address in addresses if kind_of(address) == "topic"]

    def identify(self) -> ClusterIdentity:
        """Return the cluster's identity."""
        self._look = ClusterFacts(self._client)
        return ClusterIdentity(self._client.dialect.platform, self._look.cluster.id)

    def observe(self, scope: Scope) -> Inventory:
        """Return the cluster's resources. Reuses the facts that `identify` has read.

        The requests that take long are sent first, and the others while they are answered.
        """
        self.learn_names((*scope.recorded, *map(Address, scope.patterns)))
        cluster, wanted = self._declared.metadata.name, build_scope_filter(scope)
        looking = ClusterObserver(self._client, cluster, self._naming, scope, self._known, wanted)
        with closing(Workers(1, name="topics")) as workers:
            reading = workers.submit(looking.read_topics)
            _ = self.capabilities
            look, self._look = self._look, ClusterFacts(self._client)
            every, _ = look.bindings
            topics = reading.result()
            describing = workers.submit(partial(looking.read_configs, topics))
            entries = self._read_observed_ledger(topics)
            native = self._read_native_links(topics)
            configs = describing.result()
        ledger = self._parse_ledger(entries, topics, configs)
        links, sealed, filled = {**ledger.links, **native}, ledger.sealed, ledger.filled
        self._filled = frozenset(filled)
        for topic, seal in sealed.items():
            if topic in configs:
                configs[topic] = seal.restore_configs(configs[topic])
        bindings = self._drop_denials(every, links)
        inventory: dict[Address, Observed] = {}
        if wanted is None or wanted(self._declared.address):
            seen_cluster = self._observe_cluster(look)
            inventory[self._declared.address] = replace(
                seen_cluster, cluster=replace(seen_cluster.cluster, owners=ledger.owners)
            )
        silent = [topic for topic, seen in topics.items() if seen.error == UNAUTHORIZED and not seen.replicas]
        inventory.update(looking.list_observed(topics, configs, bindings, self._find_hidden_mirrors(links, silent)))
        if links:
            from reconciler.providers.brokers.links.link_states import overlay_links

            # Without own configs, all those of a mirror follow its source.
            sets = configs if "mirror-configs" in self.capabilities.mirrors.features else {}
            inventory = overlay_links(inventory, (links, topics, sets), cluster, wanted, frozenset(every))
        for address, observed in [*inventory.items()] if sealed or filled else ():
            name = observed.physical_name or ""
            if name in sealed or name in filled:
                log = replace(observed.topic, is_sealed=name in sealed, filled=filled.get(name))
                inventory[address] = replace(observed, topic=log)
        return self._add_mountings(inventory, wanted)

    def _observe_cluster(self, look: ClusterFacts) -> Observed:
        return observe_cluster(look, self._declared)

    def _change_cluster(self, action: Update, may_go_on: Callable[[], None]) -> Outcome:
        return change_cluster(self._client, action, may_go_on)

    def _read_native_links(self, topics: Mapping[str, TopicMetadata]) -> Entries:  # noqa: ARG002 - Kafka has none
        """Return links that the platform itself copies; `topics` are those of the brokers."""
        return {}

    def _apply_links(self, actions: Sequence[ControlAction], may_go_on: Callable[[], None]) -> Iterator[Outcome]:
        from reconciler.providers.brokers.links.links import apply_link_actions

        return apply_link_actions(self._open_site(), actions, may_go_on)

    def _add_mountings(
        self, inventory: dict[Address, Observed], is_wanted: Callable[[str], bool] | None
    ) -> Mapping[Address, Observed]:
        if self._declared.spec.object_storage is not None:
            try:
                return self._mountings.add_moves(inventory, is_wanted)
            except NotAuthorizedError:
                if needs_ledger(self._known):
                    raise
        return inventory

    def list_unplaced_rules(self) -> Sequence[AccessBinding]:
        """Return access rules of no topic or known namespace."""
        bindings, _ = read_bindings(self._client)
        topics = self._client.read_topics().keys()
        entries = self._read_visible_ledger() if LEDGER in topics else None
        return assign_bindings(self._drop_denials(bindings, entries or {}), self._naming, topics).rest

    def check_visible(self, address: Address) -> None:
        """Reject a principal who may not know whether a topic exists."""
        self.observe(Scope((address,)))

    def read_overview(self) -> Overview:
        """Return names, partitions and replicas of visible topics."""
        every = self._client.read_topics()
        entries = self._read_visible_ledger() if LEDGER in every else None
        return build_topic_overview(self._client.name, self._naming, every, entries)

    def apply(
        self, actions: Sequence[ControlAction], *, may_go_on: Callable[[], None] = skip_check
    ) -> Iterator[Outcome]:
        """Apply a batch."""
        try:
            yield from self._apply_all(actions, may_go_on)
        finally:
            self._look = ClusterFacts(self._client)

    def _apply_all(self, actions: Sequence[ControlAction], may_go_on: Callable[[], None]) -> Iterator[Outcome]:
        from reconciler.providers.brokers.admin import TopicBatch, to_pending_changes
        from reconciler.providers.brokers.mounts import apply_protecting_copies

        rest: list[ControlAction] = []
        for action in actions:
            match action:
                case Update(after=Cluster()):
                    yield self._change_cluster(action, may_go_on)
                case Update(is_trim=True):
                    yield self._trim_topic(action, may_go_on)
                case _:
                    rest.append(action)
        self.learn_names(action.address for action in rest)
        linked = [action for action in rest if is_about_links(action)]
        if linked:
            yield from self._apply_links(linked, may_go_on)
            rest = [action for action in rest if not is_about_links(action)]
        failed = self._unseal_topics(rest)
        yield from failed.values()
        kept_back = [self._defer_changes(action, may_go_on) for action in rest if action.id not in failed]
        yield from (outcome for outcome in kept_back if isinstance(outcome, FailedAction))
        rest = [outcome for outcome in kept_back if not isinstance(outcome, FailedAction)]
        if rest:
            yield from apply_protecting_copies(
                rest,
                lambda: self._job_migrations.job_steps,
                lambda actions: TopicBatch(
                    self._client, self._naming, to_pending_changes(actions, self._naming), may_go_on, self._edge.warn
                ).apply_changes(),
                may_go_on,
            )

    def _trim_topic(self, action: Update, may_go_on: Callable[[], None]) -> Outcome:
        from reconciler.providers.brokers.offsets import trim_topic

        name = self._naming.to_physical(full_name_of(action.address))
        try:
            may_go_on()
            trim_topic(self._client, name, action.start_offsets)
        except UserError as error:
            return FailedAction(action.id, error)
        return CompletedAction(action.id)

    def _unseal_topics(self, actions: Sequence[ControlAction]) -> dict[str, FailedAction]:
        failed: dict[str, FailedAction] = {}
        for action in actions:
            if isinstance(action, Update) and any(change.path == SEALED for change in action.changes):
                from reconciler.providers.brokers.seal import Seals

                try:
                    seen = self._client.read_topic(self._naming.to_physical(full_name_of(action.address)))
                    if seen is not None:
                        Seals(self._client, self._ledger).remove_seal(seen.id)
                except ReconcilerError as error:
                    failed[action.id] = FailedAction(action.id, error)
        return failed

    def _defer_changes(self, action: ControlAction, may_go_on: Callable[[], None]) -> ControlAction | FailedAction:
        """Return the part of an action to apply now. The move that fills the topic applies the rest."""
        if not (isinstance(action, Update) and isinstance(action.after, Topic)):
            return action
        if self._naming.to_physical(action.after.full_name) not in self._filled:
            return action
        may_go_on()
        try:
            return self._job_migrations.job_steps.defer_changes(action)
        except (StalePlanError, UserError) as error:
            return FailedAction(action.id, error)

    def measure_topics(self, addresses: Sequence[Address], cuts: Cuts = NO_CUTS) -> Measures:
        """Measure at most 1,000 partitions by log directories and offsets."""
        from reconciler.providers.brokers.offsets import measure_topics

        names = {address: self._naming.to_physical(full_name_of(address)) for address in addresses}
        measures = measure_topics(self._client, names, cuts)
        if (
            not measures
            or self._client.read_topics([LEDGER])[LEDGER].error in ABSENT
            or (entries := self._read_visible_ledger()) is None
        ):
            return measures
        from reconciler.providers.brokers.ledger import mirror_key

        mirrors = {address: full_name_of(address) for address in measures if mirror_key(names[address]) in entries}
        if not mirrors:
            return measures
        links = self._job_links
        following = {mirror.name for mirror in links.list_mirrors() if mirror.status is not MirrorStatus.STOPPED}
        copied = links.read_positions_of_topics(mirrors.values())
        newest = links.read_newest_timestamps(following.intersection(mirrors.values()))
        return {**measures} | {
            address: replace(
                measures[address],
                positions=copied[name],
                newest_ms=max(newest.get(name, {}).values(), default=measures[address].newest_ms),
            )
            for address, name in mirrors.items()
            if name in copied
        }

    @property
    def groups(self) -> KafkaGroups:
        """Consumer groups."""
        from reconciler.providers.brokers.groups import KafkaGroups

        return KafkaGroups(self._client, self._naming)

    @property
    def archives(self) -> Archives:
        """Detached topics in the object storage."""
        return self._mountings

    @property
    def migrations(self) -> Migrations:
        """Mounts and unmounts by jobs."""
        return self._job_migrations

    @property
    def _job_migrations(self) -> KafkaMigrations:
        return self._mountings.migrations(self._naming, self.groups, lambda: self.capabilities, self.open_log)

    @property
    def links(self) -> Links:
        """Links into this cluster and their mirrors."""
        return self._job_links

    @property
    def _job_links(self) -> KafkaLinks:
        from reconciler.providers.brokers.links.links import KafkaLinks

        name = self._client.name
        return KafkaLinks(self._open_site(), lambda full_name: self.open_log(address_of("topic", name, full_name)))

    def describe_topic(self, topic: TopicAddress) -> TopicSizes:
        """Return a topic's offsets, sizes and placements."""
        from reconciler.providers.brokers.offsets import read_topic_sizes

        return read_topic_sizes(self._client, self._read_topic(topic), topic)

    def list_topic_storages(self, topics: Sequence[TopicAddress]) -> Iterator[TopicStorage]:
        """Yield the disk usage of topics."""
        from reconciler.providers.brokers.offsets import read_disk_storages

        return read_disk_storages(self._client, self._read_topics(topics))

    def read_vitals(self) -> Vitals:
        """Measure at most 1,000 topics and groups."""
        from reconciler.providers.brokers.vitals import measure_cluster

        return measure_cluster(
            self._client,
            self._naming,
            self.groups,
            lambda: None if self._read_visible_ledger() is None else self._job_links,
        )

    def learn_names(self, addresses: Iterable[Address]) -> None:
        """Add addresses, whose namespaces split flat names."""
        name = self._declared.metadata.name
        own_addresses = {address for address in addresses if cluster_of(address) == name and "*" not in address}
        with self._learning:
            fresh = own_addresses - self._known
            self._known |= fresh
            self._naming = self._naming.add(build_naming(self._separator, fresh))

    def read_source_topic(self, topic: TopicAddress) -> SourceTopic:
        """Return a topic's partitions and configs."""
        from reconciler.providers.brokers.links.link_site import read_source_topics

        seen = self._read_topic(topic)
        source = read_source_topics(self._client, {seen.name: seen}, self._ledger).get(seen.name)
        if source is None:
            self._read_topic(topic)  # Raises if the topic was deleted after it was read.
            raise hidden_topic_error(self._client.name, seen.name)
        return source

    def open_log(
        self,
        topic: TopicAddress,
        *,
        isolation: Isolation = "read_committed",
        on_missing: Callable[[LostOffsets], None] | None = None,  # noqa: ARG002 - brokers do not report lost records
    ) -> TopicLog:
        """Return a topic's log. Reading fails if brokers have lost records."""
        from reconciler.providers.brokers.records.record_log import KafkaLog
        from reconciler.providers.brokers.security import build_admin_settings, build_record_settings

        seen = self._read_topic(topic)
        settings = build_record_settings(self._declared, self._edge), build_admin_settings(self._declared, self._edge)
        return KafkaLog(seen.name, *settings, self._client.name, isolation, seen.id)

    def open_producer(self, topic: TopicAddress) -> TopicProducer:
        """Return a producer for a topic. Reject internal topics, mirrors, and topics being mounted."""
        from reconciler.providers.brokers.records.record_producer import KafkaProducer
        from reconciler.providers.brokers.security import build_record_settings

        seen = self._read_topic(topic)
        if is_internal(seen):
            message = f"{topic} is internal: brokers or reconciler alone write to it"
            raise UserError(message, hint="Name one of your topics: reconciler topic list")
        self._open_site().check_no_mirror(full_name_of(topic), seen)
        self._mountings.check_open(full_name_of(topic), seen.id)
        return KafkaProducer(seen.name, build_record_settings(self._declared, self._edge), self._client.name)

    def open_append_sink(self, topic: TopicAddress) -> None:  # noqa: B027 - no platform with brokers has them
        """Return `None`, because a Kafka transaction has one producer, not many tasks."""

    def open_sink(self, topic: TopicAddress) -> TransactionalSink:
        """Return a sink for a topic or mirror."""
        from reconciler.providers.brokers.links.links import open_sink
        from reconciler.providers.brokers.security import build_record_settings

        return open_sink(self._open_site(), build_record_settings(self._declared, self._edge), full_name_of(topic))

    def maintenance(self, means: MaintenancePorts) -> Mapping[str, Callable[[], MaintenanceJobResult]]:  # noqa: ARG002 - needs no executors
        """Return the job that removes throttles left by killed processes."""
        from reconciler.providers.brokers.admin_requests import sweep_throttles
        from reconciler.providers.protocol import MaintenanceJobResult

        return {"sweep": lambda: MaintenanceJobResult("topics", sweep_throttles(self._client))}

    @cached_property
    def _mountings(self) -> KafkaMountings:
        from reconciler.providers.brokers.migrations import KafkaMountings

        return KafkaMountings(self._declared, self._edge, self._client, self._ledger)

    @cached_property
    def _ledger(self) -> Ledger:
        from reconciler.providers.brokers.ledger import Ledger
        from reconciler.providers.brokers.links.link_site import create_ledger_topic
        from reconciler.providers.brokers.security import build_record_settings

        settings = build_record_settings(self._declared, self._edge) if self._client.has_brokers else {}
        return Ledger(
            settings, self._client.name, lambda: create_ledger_topic(self._client), lambda: needs_ledger(self._known)
        )

    def _open_site(self) -> LinkSite:
        from reconciler.providers.brokers.links.link_site import LinkSite

        edge = self._edge
        return LinkSite(self._client, self._naming, self._ledger, edge.now_ms, edge.new_id, lambda: self.capabilities)

    @property
    def _separator(self) -> str:
        return self._declared.spec.connection.find_separator() or FLAT_SEPARATOR

    def _read_visible_ledger(self) -> Entries | None:
        """Return the ledger's entries; `None` if they cannot be read and no link is known."""
        if not self._client.has_brokers:
            return None
        try:
            return self._ledger.read()
        except NotAuthorizedError:
            if needs_ledger(self._known):
                raise
            return None

    def _read_observed_ledger(self, topics: Mapping[str, TopicMetadata]) -> Entries | Owners | None:
        """Return the entries of links, mounts and owners, or why owners are unknown; `None` without a ledger."""
        if not self._client.has_brokers:
            return Owners(unsupported_reason="they need bootstrapServers of the Cluster")
        if LEDGER not in topics:
            return None
        from reconciler.providers.brokers.ledger import OWNER, STATES, WORKSPACE
        from reconciler.providers.brokers.mount_ledger import FILLED, SEALED

        try:
            return self._ledger.read(*STATES, SEALED, FILLED, OWNER, WORKSPACE)
        except NotAuthorizedError as error:
            if needs_ledger(self._known):
                raise
            return Owners(unsupported_reason=error.message)

    def _parse_ledger(
        self,
        entries: Entries | Owners | None,
        topics: Mapping[str, TopicMetadata],
        configs: Mapping[str, Mapping[str, str]],
    ) -> _LedgerContents:
        if entries is None or isinstance(entries, Owners):
            return _LedgerContents(owners=entries)
        from reconciler.providers.brokers.ledger import STATES
        from reconciler.providers.brokers.mount_ledger import (
            FILLED,
            SEALED,
            find_effective_seals,
            list_configs_after_filling,
        )

        kinds = {key[0] for key in entries}
        return _LedgerContents(
            links={key: value for key, value in entries.items() if key[0] in STATES},
            sealed=find_effective_seals(entries, topics, configs) if SEALED in kinds else {},
            filled=list_configs_after_filling(entries, topics, configs) if FILLED in kinds else {},
            owners=self._find_owners(entries),
        )

    def _find_hidden_mirrors(self, entries: Entries, names: Sequence[str]) -> Mapping[str, MirrorTopic]:
        if not entries or not names:
            return {}
        from reconciler.providers.brokers.links.link_states import find_recorded_mirrors

        return find_recorded_mirrors(entries, self._client.name, names)

    def _find_owners(self, entries: Entries) -> Owners:
        from reconciler.providers.brokers.ledger import parse_owners

        owners, naming = parse_owners(entries), self._naming
        what: dict[str, str] = {}
        for key, lineage in owners.lineages_by_key.items():
            kind, _, name = key.partition("/")
            match kind:
                case "topic":
                    what[f"topic/{naming.to_full_name(name)}"] = lineage
                case "namespace" if name in naming.prefixes:
                    what[f"namespace/{naming.prefixes[name]}"] = lineage
                case "link":
                    what[key] = lineage
                case _:
                    continue  # This workspace does not know the namespace.
        return replace(owners, lineages_by_key=what)

    def record_owners(self, change: OwnerChange) -> Mapping[str, ResourceOwner]:
        """Record owners in the ledger."""
        from reconciler.providers.brokers.ledger import record_owners

        ours = {self._to_broker_key(key): key for key in (*change.take, *change.keep)}
        take = {self._to_broker_key(key): other for key, other in change.take.items()}
        translated = replace(change, take=take, keep=[self._to_broker_key(key) for key in change.keep])
        return {ours[key]: other for key, other in record_owners(self._ledger, translated).items()}

    def _to_broker_key(self, key: str) -> str:
        kind, _, name = key.partition("/")
        match kind:
            case "topic":
                return f"topic/{self._naming.to_physical(name)}"
            case "namespace":
                return f"namespace/{self._naming.to_prefix(name)}"
            case _:
                return key

    def _drop_denials(self, bindings: Sequence[AccessBinding], entries: Entries) -> Sequence[AccessBinding]:
        if not entries:
            return bindings
        from reconciler.providers.brokers.links.link_states import list_denials

        ours = list_denials(entries)
        return [binding for binding in bindings if binding not in ours] if ours else bindings

    def _read_topic(self, topic: Address) -> TopicMetadata:
        return self._read_topics([topic])[topic]

    def _read_topics(self, topics: Sequence[Address]) -> dict[Address, TopicMetadata]:
        names = {topic: self._naming.to_physical(full_name_of(topic)) for topic in topics}
        seen = self._client.read_topics(sorted(set(names.values())))
        for topic, name in names.items():
            if name in seen and seen[name].error == UNAUTHORIZED:
                raise self._client.build_hidden_error(name)
            if name not in seen or seen[name].error:
                message = f"{topic}: topic {full_name_of(topic)} does not exist"
                raise NotFoundError(message, hint="List the topics with: reconciler topic list")
        return {topic: seen[name] for topic, name in names.items()}


def build_topic_overview(
    cluster: str, naming: ClusterNaming, every: Mapping[str, TopicMetadata], entries: Entries | None
) -> Overview:
    """Return the overview of topics, except internal ones."""
    topics = {name: seen for name, seen in every.items() if not is_internal(seen)}
    mirrors: Mapping[str, TopicShown] = {}
    if entries is not None:
        from reconciler.providers.brokers.links.link_states import list_shown_mirrors

        mirrors = list_shown_mirrors(entries, topics, cluster)
    namespaces = {tier for name in topics for tier in list_levels(naming.split_namespace(name)[0])}
    shown = [
        mirrors.get(name)
        or TopicShown(
            address_of("topic", cluster, naming.to_full_name(name)), len(seen.replicas), len(seen.replicas[0])
        )
        for name, seen in sorted(topics.items())
        if seen.replicas
    ]
    return Overview(shown, {name: {} for name in sorted(namespaces)})
