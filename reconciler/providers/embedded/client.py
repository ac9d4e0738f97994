"""Apply a batch of actions as one commit of the catalog."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final, assert_never

from reconciler.embedded.acl import Kind, Operation, Permissions, merge_rules, set_namespace_acls, set_topic_acls
from reconciler.embedded.catalog.mirror_moves import find_mirror, start_mirror_operation
from reconciler.embedded.catalog.mirror_tables import MirrorShape, alter_link, create_link, create_mirror, delete_link
from reconciler.embedded.catalog.model import QuotaEntry, TopicEntry
from reconciler.embedded.catalog.tables import Catalog, Draft, get_link, get_topic
from reconciler.embedded.catalog.tiering_state import list_disabling_topics
from reconciler.embedded.catalog.topics import (
    alter_namespace,
    alter_topic,
    create_namespace,
    create_topic,
    delete_namespace,
    delete_topic,
    encrypt_namespace,
    limit_namespace,
    list_topics_under,
    move_topic,
)
from reconciler.embedded.tiered.replicas import create_replica_topic
from reconciler.errors import BlockedError, LeaseError, NotAuthorizedError, ReconcilerError, UserError
from reconciler.lifecycles import MIRROR, MOUNT, TIERING, UNMOUNT
from reconciler.planning.actions import Change, ControlAction, Create, Delete, Transition, Update
from reconciler.providers.embedded.recovery import (
    begin_recovery,
    complete_recoveries,
    list_recoveries,
    list_replica_sources,
)
from reconciler.providers.embedded.translate import read_fields, to_namespace_entry, to_topic_shape
from reconciler.providers.models import (
    already_exists_error,
    apply_declared_changes,
    check_unchanged,
    convert_changes,
    read_planned_source,
    to_link_entry,
)
from reconciler.providers.protocol import CompletedAction, FailedAction, Outcome
from reconciler.resources.address import Address, full_name_of, kind_of
from reconciler.resources.cluster import Cluster
from reconciler.resources.mirror_link import MirrorLink, MirrorTopic
from reconciler.resources.mirrors import FAILOVER, ONE_SIDED, TransitionRequest, check_same_link, is_verb_done
from reconciler.resources.mount import Mounting, RecoverableTopic, Recoveries
from reconciler.resources.namespace import Namespace
from reconciler.resources.tiering_policy import SWITCHES, TieringPolicy
from reconciler.resources.topic import Topic
from reconciler.runtime.effects import compute_elapsed_ms, log_debug, now
from reconciler.runtime.threads import run_in_parallel

if TYPE_CHECKING:
    from reconciler.embedded.cluster import EmbeddedCluster
    from reconciler.providers.embedded.mounts import MountBatch
    from reconciler.resources.inventory import Inventory, Observed, Resource


def request_verb_once(draft: Draft, full_name: str, verb: str, now_ms: int) -> str:
    """Request a lifecycle verb for a mirror unless it is done; return the topic's id.

    Raises:
        UserError: The topic is not a mirror, or its state does not allow the verb.
    """
    topic, mirror = find_mirror(draft, full_name)
    if not is_verb_done(mirror, verb):
        start_mirror_operation(draft, full_name, verb, TransitionRequest(now_ms))
    return topic.id


def finish_failovers(
    cluster: EmbeddedCluster,
    actions: Sequence[ControlAction],
    outcomes: Sequence[Outcome],
    may_go_on: Callable[[], None],
) -> list[Outcome]:
    """Limit group offsets to the ends of failed-over mirrors, and allow producers.

    An action fails if its topic cannot be opened to producers. It may be repeated.
    """
    names = {action.id: full_name_of(action.address) for action in actions if _is_failover(action)}
    mine = [outcome.id for outcome in outcomes if outcome.id in names and isinstance(outcome, CompletedAction)]
    if not mine:
        return list(outcomes)
    linking, errors = replace(cluster.linking, may_go_on=may_go_on), dict[str, ReconcilerError]()

    def open_heads(name: str) -> None:
        try:
            linking.open_heads(names[name])
        except LeaseError:
            raise
        except ReconcilerError as error:
            errors[name] = error

    run_in_parallel(open_heads, mine, name="failover")
    return [FailedAction(result.id, errors[result.id]) if result.id in errors else result for result in outcomes]


def _is_failover(action: ControlAction) -> bool:
    return isinstance(action, Transition) and (action.machine, action.verb) == (MIRROR.name, FAILOVER)


_KINDS: Final[Mapping[str, Kind]] = {
    "namespace": Kind.NAMESPACE,
    "topic": Kind.TOPIC,
    "mirror": Kind.TOPIC,
    "mounting": Kind.TOPIC,
}


def hide_resources(who: Permissions, catalog: Catalog, inventory: Inventory) -> dict[Address, Observed]:
    """Hide resources that the principal may not describe. Clusters and links are always visible."""

    def mark_hidden(address: Address, observed: Observed) -> Observed:
        try:
            check_shown(who, catalog, address)
            if isinstance(observed.resource, Mounting):
                # A mounting's topic may have another name, for which other rules apply.
                who.check_allowed(catalog, Operation.DESCRIBE, Kind.TOPIC, observed.resource.topic_name)
        except NotAuthorizedError as error:
            return replace(observed, hidden=error)
        return observed

    return {address: mark_hidden(address, observed) for address, observed in inventory.items()}


def check_shown(who: Permissions, catalog: Catalog, address: Address) -> None:
    """Reject a hidden address, whether or not it exists."""
    kind = _KINDS.get(kind_of(address))
    if kind is not None:
        who.check_allowed(catalog, Operation.DESCRIBE, kind, full_name_of(address))


def check_action(who: Permissions, draft: Draft, action: ControlAction) -> None:
    """Reject an action that the current rules forbid."""
    if who.is_super_user:
        return
    match action:
        case Create() | Update():
            resource = action.after
        case Delete():
            resource = action.before
        case Transition():
            _check_transition(who, draft, action)
            return
        case _:
            assert_never(action)
    kind = _find_acl_kind(resource)
    if kind is None:
        who.check_super_user(f"{action.verb} {action.address}")
        return
    for operation in _list_needed_operations(action):
        who.check_allowed(draft, operation, kind, full_name_of(action.address))


def _check_transition(who: Permissions, draft: Draft, action: Transition) -> None:
    if action.machine == TIERING.name:
        who.check_allowed(draft, Operation.ALTER_CONFIGS, Kind.TOPIC, full_name_of(action.address))
        return
    if isinstance(action.after, Mounting):
        _check_mounting(who, draft, action, action.after)
        return
    old = action.parameters.get("from")
    if action.verb != "move" or not isinstance(old, str):
        who.check_super_user(f"{action.verb} {action.address}")
        return
    who.check_allowed(draft, Operation.DELETE, Kind.TOPIC, full_name_of(Address(old)))
    who.check_allowed(draft, Operation.CREATE, Kind.TOPIC, full_name_of(action.address))


def _check_mounting(who: Permissions, draft: Draft, action: Transition, mounting: Mounting) -> None:
    """Allow mounts only to the super user, because object storage has no access rules."""
    if action.machine == UNMOUNT.name:
        who.check_allowed(draft, Operation.DELETE, Kind.TOPIC, mounting.topic_name)
        return
    who.check_allowed(draft, Operation.CREATE, Kind.TOPIC, mounting.topic_name)
    who.check_super_user(f"{action.verb} {action.address}")


def _find_acl_kind(resource: Resource) -> Kind | None:
    """Return the ACL resource type; `None` if only the super user may change the resource."""
    match resource:
        case Topic():
            return Kind.TOPIC
        case Namespace():
            return Kind.NAMESPACE
        case Cluster() | MirrorLink() | MirrorTopic() | Mounting() | TieringPolicy():
            return None
        case _:
            assert_never(resource)


def _list_needed_operations(action: Create | Update | Delete) -> Iterator[Operation]:
    match action:
        case Create():
            yield Operation.CREATE
            if isinstance(action.after, Topic | Namespace) and action.after.spec.acls:
                yield Operation.ALTER
        case Update():
            yield from sorted({_find_needed_operation(change) for change in action.changes})
        case Delete():
            yield Operation.DELETE
        case _:
            assert_never(action)


def _find_needed_operation(change: Change) -> Operation:
    return Operation.ALTER_CONFIGS if change.path.startswith(_CONFIGS) else Operation.ALTER


_PLATFORM: Final = "an embedded cluster"


class CatalogBatch:
    """Actions applied to a draft of the catalog, each completely or not at all."""

    def __init__(
        self,
        actions: Sequence[ControlAction],
        cluster: EmbeddedCluster,
        recoveries: Recoveries,
        mount_batch: MountBatch | None,
    ) -> None:
        self._actions = actions
        self._recoveries = recoveries
        self._mount_batch = mount_batch
        self._who = cluster.permissions
        self._cluster_id = cluster.cluster_id
        self._new_id = cluster.fresh_id
        self._now_ms = cluster.now_ms
        self.outcomes: list[Outcome] = []

    def apply_all(self, draft: Draft) -> None:
        """Apply all actions to the draft, again after a concurrent commit.

        Deletes and moves come first, because quotas are checked at every step.
        """
        ordered = sorted(self._actions, key=lambda action: not isinstance(action, Delete | Transition))
        outcomes = {action.id: self._try_action(draft, action) for action in ordered}
        self.outcomes = [outcomes[action.id] for action in self._actions]

    def _try_action(self, draft: Draft, action: ControlAction) -> Outcome:
        try:
            check_action(self._who, draft, action)
            return CompletedAction(action.id, self._apply(draft, action))
        except ReconcilerError as error:
            return FailedAction(action.id, error)

    def _apply(self, draft: Draft, action: ControlAction) -> str | None:
        match action:
            case Create():
                return self._create_resource(draft, action)
            case Update():
                return self._update_resource(draft, action)
            case Delete():
                self._delete(draft, action)
                return None
            case Transition():
                return self._change_role(draft, action)
            case _:
                assert_never(action)

    def _create_resource(self, draft: Draft, action: Create) -> str | None:
        match action.after:
            case Namespace() as namespace:
                create_namespace(draft, namespace.metadata.name, to_namespace_entry(namespace))
                return None
            case Topic() as topic:
                source = self._recoveries.get(action.address)
                if topic.spec.read_replica_of is not None:
                    return self._create_replica(draft, topic, source)
                if source is not None:
                    return begin_recovery(draft, action, topic, source, self._new_id())
                return self._create_topic(draft, topic)
            case MirrorLink() as link:
                create_link(draft, link.metadata.name, to_link_entry(link, self._new_id()))
                return draft.links[link.metadata.name].id
            case MirrorTopic() as mirror:
                return self._create_mirror(draft, mirror, action)
            case Cluster() | Mounting() | TieringPolicy():
                raise _unsupported_error(action)
            case _:
                assert_never(action.after)

    def _create_replica(self, draft: Draft, topic: Topic, source: RecoverableTopic | UserError | None) -> str:
        if source is None or isinstance(source, UserError):
            raise source or UserError(f"{topic.address}: its source was not read", hint="Plan again.")
        return create_replica_topic(draft, topic.full_name, source, topic_id=self._new_id(), acls=topic.spec.acls)

    def _create_topic(self, draft: Draft, topic: Topic) -> str:
        shape, existing = to_topic_shape(topic), draft.topics.get(topic.full_name)
        if existing is None:
            create_topic(draft, topic.full_name, shape, topic_id=self._new_id())
        elif (None, None, shape.partitions, shape.configs, shape.acls) != (
            existing.replica,
            existing.active_mirror,
            existing.partitions,
            existing.configs,
            existing.acls,
        ):
            raise already_exists_error(topic.full_name)
        return draft.topics[topic.full_name].id

    def _create_mirror(self, draft: Draft, mirror: MirrorTopic, action: Create) -> str:
        source = read_planned_source(mirror.address, action.parameters)
        existing = draft.topics.get(mirror.name)
        if existing is None:
            shape = MirrorShape(link=mirror.link, source=mirror.source, configs=mirror.configs)
            create_mirror(draft, mirror.name, shape, source, topic_id=self._new_id(), now_ms=self._now_ms())
        elif not _is_mirror_of(existing, mirror, get_link(draft, mirror.link).id):
            raise already_exists_error(mirror.name)
        return draft.topics[mirror.name].id

    def _update_resource(self, draft: Draft, action: Update) -> str | None:
        match action.after:
            case Namespace() as namespace:
                self._alter_namespace(draft, namespace.metadata.name, action)
                return None
            case Topic() | MirrorTopic() as topic:
                return self._alter_topic(draft, topic.full_name, action)
            case MirrorLink() as link:
                entry = get_link(draft, link.metadata.name)
                alter_link(draft, link.metadata.name, apply_declared_changes(entry.declared, action.changes))
                return entry.id
            case Cluster() | Mounting() | TieringPolicy():
                raise _unsupported_error(action)
            case _:
                assert_never(action.after)

    def _alter_namespace(self, draft: Draft, name: str, action: Update) -> None:
        wanted = convert_changes(action.address, action.changes, platform=_PLATFORM)
        entry = draft.namespaces.get(name)
        if entry is not None:
            check_unchanged(action.address, action.changes, read_fields(entry))
        alter_namespace(
            draft, name, wanted.configs if entry is None else _drop_unchanged_configs(wanted.configs, entry.configs)
        )
        if wanted.quotas:
            limit_namespace(draft, name, replace(draft.namespaces[name].quotas or QuotaEntry(), **wanted.quotas))
        for key in wanted.keys:
            encrypt_namespace(draft, name, key)
        if wanted.rules:
            set_namespace_acls(draft, name, merge_rules(draft.namespaces[name].acls, wanted.rules))

    def _alter_topic(self, draft: Draft, full_name: str, action: Update | Transition) -> str:
        wanted, entry = (
            convert_changes(action.address, action.changes, platform=_PLATFORM),
            get_topic(draft, full_name),
        )
        check_unchanged(action.address, action.changes, read_fields(entry))
        alter_topic(
            draft,
            full_name,
            _drop_unchanged_configs(wanted.configs, entry.configs),
            partitions=wanted.partitions,
            replication_factor=wanted.replication_factor,
        )
        if wanted.rules:
            set_topic_acls(draft, full_name, merge_rules(draft.topics[full_name].acls, wanted.rules))
        return draft.topics[full_name].id

    def _delete(self, draft: Draft, action: Delete) -> None:
        match action.before:
            case Namespace() as namespace:
                _delete_namespace(draft, namespace.metadata.name, self._cluster_id)
            case Topic() | MirrorTopic() as topic:
                delete_topic(draft, topic.full_name, cluster_id=self._cluster_id, topic_id=action.incarnation)
            case MirrorLink() as link:
                check_same_link(link.metadata.name, draft.links.get(link.metadata.name), action.incarnation)
                delete_link(draft, link.metadata.name)
            case Cluster() | Mounting() | TieringPolicy():
                raise _unsupported_error(action)
            case _:
                assert_never(action.before)

    def _change_role(self, draft: Draft, action: Transition) -> str | None:
        if action.machine == TIERING.name and isinstance(action.after, Topic):
            return self._alter_topic(draft, action.after.full_name, action)
        if action.machine == MIRROR.name and action.verb in ONE_SIDED:
            return request_verb_once(draft, full_name_of(action.address), action.verb, self._now_ms())
        if self._mount_batch is not None and action.id in self._mount_batch.attachments:
            return self._mount_batch.begin_migration(draft, action.id)
        before = action.parameters.get("from")
        if not (isinstance(action.after, Topic) and action.verb == "move" and isinstance(before, str)):
            raise _unsupported_error(action)
        name = action.after.full_name
        old = full_name_of(Address(before)) if "/" in before else before
        if old not in draft.topics and name in draft.topics:
            return draft.topics[name].id
        move_topic(draft, old, name, cluster_id=self._cluster_id)
        return draft.topics[name].id


def _drop_unchanged_configs(wanted: Mapping[str, str | None], current: Mapping[str, str]) -> dict[str, str | None]:
    """Drop unchanged configs, so a repeated action is not rejected by another operation in progress."""
    return {key: value for key, value in wanted.items() if current.get(key) != value}


def _is_mirror_of(existing: TopicEntry, mirror: MirrorTopic, link_id: str) -> bool:
    return existing.mirror is not None and (existing.mirror.link_id, existing.mirror.source) == (link_id, mirror.source)


def _delete_namespace(draft: Draft, name: str, cluster_id: str) -> None:
    topics = list_topics_under(draft, name)
    if topics:
        message = f"namespace {name} holds topics: {', '.join(topics[:5])}{' …' if topics[5:] else ''}"
        raise BlockedError(message, hint="They were created after the plan: plan again.")
    delete_namespace(draft, name, cluster_id=cluster_id, recursive=False)


def _unsupported_error(action: ControlAction) -> UserError:
    message = f"{action.address}: an embedded cluster of this version cannot {action.verb} it"
    return UserError(message, hint="Remove it from the manifest.")


_CONFIGS: Final = "configs."


def turn_off_tiering(
    cluster: EmbeddedCluster,
    actions: Sequence[ControlAction],
    outcomes: Sequence[Outcome],
    may_go_on: Callable[[], None],
) -> list[Outcome]:
    """Finish turning off tiered storage (KIP-950).

    An action with unfinished topics fails and may be repeated.
    """
    if not _find_switching_actions(actions, list_disabling_topics(cluster.catalog.get_cached())):
        return list(outcomes)
    try:
        cluster.finish_disablings(may_go_on=may_go_on)
    except LeaseError:
        raise
    except ReconcilerError as error:
        failed = _find_switching_actions(actions, list_disabling_topics(cluster.catalog.read()))
        return [
            FailedAction(outcome.id, error)
            if isinstance(outcome, CompletedAction) and outcome.id in failed
            else outcome
            for outcome in outcomes
        ]
    return list(outcomes)


def _find_switching_actions(actions: Sequence[ControlAction], topics: Iterable[str]) -> frozenset[str]:
    above = {prefix for name in topics for prefix in _list_prefixes(name)}
    return frozenset(
        action.id for action in actions if _may_switch_tiering(action) and full_name_of(action.address) in above
    )


def _may_switch_tiering(action: ControlAction) -> bool:
    match action:
        case Transition():
            return True
        case Update():
            return any(change.path.removeprefix(_CONFIGS) in SWITCHES for change in action.changes)
        case Create() | Delete():
            return False
        case _:
            assert_never(action)


def _list_prefixes(full_name: str) -> list[str]:
    tiers = full_name.split(":")
    return [":".join(tiers[:length]) for length in range(1, len(tiers) + 1)]


_LOGGER: Final = logging.getLogger("reconciler.providers")
_ATTACHES: Final = frozenset({MOUNT.name, UNMOUNT.name})


def run_batch(
    name: str,
    cluster: EmbeddedCluster,
    actions: Sequence[ControlAction],
    recoveries: Recoveries,
    may_go_on: Callable[[], None],
) -> Iterator[Outcome]:
    """Commit a batch, finish its slow parts, and yield one outcome per action.

    Raises:
        LeaseError: Raised by `may_go_on`; the next process finishes the rest.
    """
    mount_batch = _read_mount_batch(cluster, actions)
    batch = CatalogBatch(actions, cluster, recoveries, mount_batch)
    began = now()
    cluster.catalog.commit(batch.apply_all, may_go_on=may_go_on)
    failed = sum(isinstance(outcome, FailedAction) for outcome in batch.outcomes)
    log_debug(_LOGGER, "batch", cluster=name, actions=len(actions), failed=failed, ms=compute_elapsed_ms(began))
    recovered = {f"create:{address}": full_name_of(address) for address in list_recoveries(actions)}
    opened = update_new_replicas(cluster, actions, finish_failovers(cluster, actions, batch.outcomes, may_go_on))
    outcomes = complete_recoveries(cluster, turn_off_tiering(cluster, actions, opened, may_go_on), recovered, may_go_on)
    yield from outcomes if mount_batch is None else mount_batch.complete_migrations(outcomes, may_go_on)


def update_new_replicas(
    cluster: EmbeddedCluster, actions: Sequence[ControlAction], outcomes: Sequence[Outcome]
) -> list[Outcome]:
    """Sync new read replicas with their sources. Failed actions may be repeated."""
    names = {f"create:{address}": full_name_of(address) for address in list_replica_sources(actions)}
    made = {outcome.id for outcome in outcomes if outcome.id in names and isinstance(outcome, CompletedAction)}
    if not made:
        return list(outcomes)
    followed = cluster.follow_replicas({names[action_id] for action_id in made}.__contains__)
    errors = {topic_id: error for topic_id, error in followed.items() if isinstance(error, ReconcilerError)}
    return [
        FailedAction(outcome.id, errors[outcome.incarnation])
        if isinstance(outcome, CompletedAction) and outcome.id in made and outcome.incarnation in errors
        else outcome
        for outcome in outcomes
    ]


def _read_mount_batch(cluster: EmbeddedCluster, actions: Sequence[ControlAction]) -> MountBatch | None:
    if not any(isinstance(action, Transition) and action.machine in _ATTACHES for action in actions):
        return None
    from reconciler.providers.embedded.mounts import MountBatch, list_attachments  # noqa: PLC0415 - only mounts need it

    return MountBatch.read_batch(cluster, list_attachments(actions))
