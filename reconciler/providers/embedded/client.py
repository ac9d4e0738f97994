"""The wire: a batch of actions as one commit of the catalog, and sizes read from heads."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, assert_never

from reconciler.embedded.access.rules import changed_rules, set_namespace_acls, set_topic_acls
from reconciler.embedded.catalog.entries import QuotaEntry
from reconciler.embedded.catalog.links import MirrorShape, alter_link, create_link, create_mirror, delete_link
from reconciler.embedded.catalog.lookups import link_named, topic_named
from reconciler.embedded.catalog.namespaces import (
    alter_namespace,
    create_namespace,
    delete_namespace,
    encrypt_namespace,
    limit_namespace,
    topics_under,
)
from reconciler.embedded.catalog.topics import alter_topic, create_topic, delete_topic, move_topic
from reconciler.errors import BlockedError, ReconcilerError, StalePlanError, UserError
from reconciler.lifecycles.mirror import MIRROR
from reconciler.lifecycles.tiering import TIERING
from reconciler.planning.actions import Create, Delete, Transition, Update
from reconciler.providers.base import Done, Failed
from reconciler.providers.changes import check_unmoved, moved
from reconciler.providers.embedded.mirrors import ask_once
from reconciler.providers.embedded.permitting import check_action
from reconciler.providers.embedded.recovering import begin
from reconciler.providers.embedded.translate import fields_of, namespace_entry, shape_of
from reconciler.providers.linkmodels import declared_after, link_entry, source_taken
from reconciler.resources.address import Address, full_name_of
from reconciler.resources.cluster import Cluster
from reconciler.resources.mirrorlink import MirrorLink, MirrorTopic
from reconciler.resources.mirrorstates import ONE_SIDED
from reconciler.resources.mounting import Mounting
from reconciler.resources.namespace import Namespace
from reconciler.resources.tieringpolicy import TieringPolicy
from reconciler.resources.topic import Topic

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from reconciler.embedded.catalog.entries import TopicEntry
    from reconciler.embedded.catalog.tables import Draft
    from reconciler.embedded.cluster import EmbeddedCluster
    from reconciler.planning.actions import ControlAction
    from reconciler.providers.base import Outcome
    from reconciler.providers.embedded.mounting.attaching import Attaching
    from reconciler.resources.recoverable import Recoveries

_PLATFORM: Final = "an embedded cluster"


class Batch:
    """Actions carried out on a draft of the catalog: each one whole or, where it is refused, not at all."""

    def __init__(
        self,
        actions: Sequence[ControlAction],
        cluster: EmbeddedCluster,
        recoveries: Recoveries,
        attaching: Attaching | None,
    ) -> None:
        """Take what was looked up for the actions; whoever the cluster is opened for does them."""
        self._actions = actions
        self._recoveries = recoveries
        self._attaching = attaching
        self._who = cluster.permissions
        self._cluster_id = cluster.cluster_id
        self._new_id = cluster.fresh_id
        self._now_ms = cluster.now_ms
        self.outcomes: list[Outcome] = []

    def decide(self, draft: Draft) -> None:
        """Do all of them; may run again on a newer catalog, and forgets what it found before.

        What makes room comes first: quotas are held to at every step, and a plan counts what is there when it is done.
        """
        ordered = sorted(self._actions, key=lambda action: not isinstance(action, Delete | Transition))
        found = {action.id: self._outcome(draft, action) for action in ordered}
        self.outcomes = [found[action.id] for action in self._actions]

    def _outcome(self, draft: Draft, action: ControlAction) -> Outcome:
        try:
            check_action(self._who, draft, action)
            return Done(action.id, self._done(draft, action))
        except ReconcilerError as error:
            return Failed(action.id, error)

    def _done(self, draft: Draft, action: ControlAction) -> str | None:
        """Carry out one action and return the incarnation of what it leaves."""
        match action:
            case Create():
                return self._create(draft, action)
            case Update():
                return self._update(draft, action)
            case Delete():
                self._delete(draft, action)
                return None
            case Transition():
                return self._transition(draft, action)
            case _:
                assert_never(action)

    def _create(self, draft: Draft, action: Create) -> str | None:
        match action.after:
            case Namespace() as namespace:
                create_namespace(draft, namespace.metadata.name, namespace_entry(namespace))
                return None
            case Topic() as topic:
                found = self._recoveries.get(action.address)
                if found is not None:
                    return begin(draft, action, topic, found, self._new_id())
                return self._create_topic(draft, topic)
            case MirrorLink() as link:
                create_link(draft, link.metadata.name, link_entry(link, self._new_id()))
                return draft.links[link.metadata.name].id
            case MirrorTopic() as mirror:
                return self._create_mirror(draft, mirror, action)
            case Cluster() | Mounting() | TieringPolicy():
                raise _cannot(action)
            case _:
                assert_never(action.after)

    def _create_topic(self, draft: Draft, topic: Topic) -> str:
        shape, existing = shape_of(topic), draft.topics.get(topic.full_name)
        if existing is None:
            create_topic(draft, topic.full_name, shape, topic_id=self._new_id())
        elif (None, shape.partitions, shape.configs, shape.acls) != (
            existing.follows,
            existing.partitions,
            existing.configs,
            existing.acls,
        ):
            raise _differs(topic.full_name)
        return draft.topics[topic.full_name].id

    def _create_mirror(self, draft: Draft, mirror: MirrorTopic, action: Create) -> str:
        source = source_taken(mirror.address, action.parameters)
        existing = draft.topics.get(mirror.name)
        if existing is None:
            shape = MirrorShape(link=mirror.link, source=mirror.source, configs=mirror.configs)
            create_mirror(draft, mirror.name, shape, source, topic_id=self._new_id(), now_ms=self._now_ms())
        elif not _is_mirror_of(existing, mirror, link_named(draft, mirror.link).id):
            raise _differs(mirror.name)
        return draft.topics[mirror.name].id

    def _update(self, draft: Draft, action: Update) -> str | None:
        match action.after:
            case Namespace() as namespace:
                self._alter_namespace(draft, namespace.metadata.name, action)
                return None
            case Topic() | MirrorTopic() as topic:
                return self._alter_topic(draft, topic.full_name, action)
            case MirrorLink() as link:
                entry = link_named(draft, link.metadata.name)
                alter_link(draft, link.metadata.name, declared_after(entry.declared, action.changes))
                return entry.id
            case Cluster() | Mounting() | TieringPolicy():
                raise _cannot(action)
            case _:
                assert_never(action.after)

    def _alter_namespace(self, draft: Draft, name: str, action: Update) -> None:
        wanted = moved(action.address, action.changes, platform=_PLATFORM)
        entry = draft.namespaces.get(name)
        if entry is not None:
            check_unmoved(action.address, action.changes, fields_of(entry))
        alter_namespace(draft, name, wanted.configs if entry is None else _news(wanted.configs, entry.configs))
        if wanted.quotas:
            limit_namespace(draft, name, replace(draft.namespaces[name].quotas or QuotaEntry(), **wanted.quotas))
        for key in wanted.keys:
            encrypt_namespace(draft, name, key)
        if wanted.rules:
            set_namespace_acls(draft, name, changed_rules(draft.namespaces[name].acls, wanted.rules))

    def _alter_topic(self, draft: Draft, full_name: str, action: Update | Transition) -> str:
        wanted, entry = moved(action.address, action.changes, platform=_PLATFORM), topic_named(draft, full_name)
        check_unmoved(action.address, action.changes, fields_of(entry))
        alter_topic(
            draft,
            full_name,
            _news(wanted.configs, entry.configs),
            partitions=wanted.partitions,
            replication_factor=wanted.replication_factor,
        )
        if wanted.rules:
            set_topic_acls(draft, full_name, changed_rules(draft.topics[full_name].acls, wanted.rules))
        return draft.topics[full_name].id

    def _delete(self, draft: Draft, action: Delete) -> None:
        match action.before:
            case Namespace() as namespace:
                _delete_namespace(draft, namespace.metadata.name, self._cluster_id)
            case Topic() | MirrorTopic() as topic:
                delete_topic(draft, topic.full_name, cluster_id=self._cluster_id, topic_id=action.incarnation)
            case MirrorLink() as link:
                _delete_link(draft, link.metadata.name, action.incarnation)
            case Cluster() | Mounting() | TieringPolicy():
                raise _cannot(action)
            case _:
                assert_never(action.before)

    def _transition(self, draft: Draft, action: Transition) -> str | None:
        if action.machine == TIERING.name and isinstance(action.after, Topic):
            return self._alter_topic(draft, action.after.full_name, action)
        if action.machine == MIRROR.name and action.verb in ONE_SIDED:
            return ask_once(draft, full_name_of(action.address), action.verb, self._now_ms())
        if self._attaching is not None and action.id in self._attaching.asked:
            return self._attaching.begin(draft, action.id)
        before = action.parameters.get("from")
        if not (isinstance(action.after, Topic) and action.verb == "move" and isinstance(before, str)):
            raise _cannot(action)
        name = action.after.full_name
        old = full_name_of(Address(before)) if "/" in before else before
        if old not in draft.topics and name in draft.topics:
            return draft.topics[name].id
        move_topic(draft, old, name, cluster_id=self._cluster_id)
        return draft.topics[name].id


def _news(wanted: Mapping[str, str | None], there: Mapping[str, str]) -> dict[str, str | None]:
    """Return the configs that change: done twice, an action asks nothing of what has begun meanwhile."""
    return {key: value for key, value in wanted.items() if there.get(key) != value}


def _is_mirror_of(existing: TopicEntry, mirror: MirrorTopic, link_id: str) -> bool:
    return existing.mirror is not None and (existing.mirror.link_id, existing.mirror.source) == (link_id, mirror.source)


def _delete_namespace(draft: Draft, name: str, cluster_id: str) -> None:
    """Remove a namespace that is empty: a plan shows each delete by itself, so none hides in another."""
    topics = topics_under(draft, name)
    if topics:
        message = f"namespace {name} holds topics: {', '.join(topics[:5])}{' …' if topics[5:] else ''}"
        raise BlockedError(message, hint="They were made since the plan: plan again.")
    delete_namespace(draft, name, cluster_id=cluster_id, recursive=False)


def _delete_link(draft: Draft, name: str, link_id: str | None) -> None:
    existing = draft.links.get(name)
    if existing is not None and link_id not in {None, existing.id}:
        raise StalePlanError(f"link {name} was deleted and made anew since it was looked at", hint="Plan again.")
    delete_link(draft, name)


def _differs(name: str) -> UserError:
    message = f"topic {name} exists and differs from what was to be created"
    return UserError(message, hint="Somebody made it since the plan: plan again.")


def _cannot(action: ControlAction) -> UserError:
    message = f"{action.address}: an embedded cluster of this version cannot {action.verb} it"
    return UserError(message, hint="Remove it from the manifest.")
