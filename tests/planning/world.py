"""A world of clusters as plain mappings, and what it becomes when a plan is applied: pure, and as simple as can be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, assert_never

from reconciler.planning.actions import (
    SEALED,
    Action,
    Adopt,
    Change,
    Create,
    Delete,
    Forget,
    Reason,
    RunJob,
    Transition,
    Update,
)
from reconciler.planning.fields import OBJECT_STORAGE
from reconciler.planning.plan import Plan, PlanInput
from reconciler.planning.planner import Draft, assess_draft, decide_actions
from reconciler.planning.record import apply_record_changes, record_action
from reconciler.planning.resolve.mirror_sources import derive_peer, link_of
from reconciler.planning.situation import as_topic, get_mounted_topic, get_source_topic
from reconciler.resources.acls import ACLS, NamespaceAcl, TopicAcl, build_rule_path, parse_rule
from reconciler.resources.address import Address, cluster_of, kind_of
from reconciler.resources.cluster import Cluster
from reconciler.resources.inventory import (
    ClusterIdentity,
    Desired,
    Inventory,
    LiveMirror,
    LiveTopic,
    Observed,
    ObservedStorage,
    Record,
    RemoteRemains,
    Resource,
    read_resource,
)
from reconciler.resources.measures import Measures
from reconciler.resources.mirror_link import MirrorLink, MirrorTopic
from reconciler.resources.mount import Mounting, MountSource, RecoverableTopic
from reconciler.resources.topic import Topic


@dataclass(frozen=True)
class Answered:
    """What a platform answers."""

    incarnation: str | None = None
    physical_name: str | None = None


@dataclass(frozen=True)
class World:
    """All that a plan is made from."""

    desired: Desired
    recorded: Record
    observed: Inventory
    given: PlanInput
    measures: Measures = field(default_factory=dict)

    def draft(self) -> Draft:
        return decide_actions(self.desired, self.recorded, self.observed, request=self.given)

    def plan(self) -> Plan:
        return assess_draft(self.draft(), self.measures)

    def applied(self, plan: Plan) -> World:
        """Do every action of a plan in order, but not the blocked ones, nor what changes a topic that did not move."""
        world = self
        unmoved = {action.id for action in plan.blocked if isinstance(action, Transition)}
        for action in plan.actions:
            if not action.blocked and unmoved.isdisjoint(action.depends_on):
                world = world._after(action)
        return world

    def _after(self, action: Action) -> World:
        observed = dict(self.observed)
        given = self.given
        incarnation = f"made by {action.id}"
        match action:
            case Create():
                if isinstance(action.after, Cluster):
                    name = action.after.metadata.name
                    incarnation = action.after.spec.cluster_id or f"{name}-id"
                    given = replace(
                        given, identities={**given.identities, name: ClusterIdentity("embedded", incarnation)}
                    )
                if kind_of(action.address) == "namespace":
                    incarnation = ""
                observed[action.address] = _made(action, incarnation or None)
                _follow_links(observed)
            case Update():
                seen = observed[action.address]
                observed[action.address] = replace(
                    seen,
                    resource=_changed(seen.resource, action.changes),
                    cluster=replace(seen.cluster, storage=_bound_storage_id(seen.cluster.storage, action.changes)),
                    topic=replace(
                        seen.topic,
                        is_sealed=seen.topic.is_sealed and all(change.path != SEALED for change in action.changes),
                        filled=None if Reason.DRIFTED in action.reasons else seen.topic.filled,
                    ),
                )
                incarnation = seen.incarnation or ""
                _follow_links(observed)
            case Delete():
                _delete(action, observed)
            case Transition():
                incarnation = _transit(action, observed, given)
            case RunJob():
                seen = observed[action.address]
                if seen.topic.filled is not None and action.job == "switch-groups":
                    whole = replace(seen.topic, filled=None)
                    seen = replace(seen, resource=self.recorded[action.address].resource, topic=whole)
                observed[action.address] = replace(seen, mirror=replace(seen.mirror, first_copy_done=True))
            case Adopt() | Forget():
                pass
            case _:
                assert_never(action)
        done = Answered(incarnation or None) if not isinstance(action, Adopt | Forget | RunJob) else None
        record = dict(self.recorded)
        apply_record_changes(record, record_action(action, done, self.recorded, "run-1"))
        return replace(self, observed=observed, recorded=record, given=given)


def _bound_storage_id(storage: ObservedStorage | None, changes: Sequence[Change]) -> ObservedStorage | None:
    if storage is None or all(change.path != OBJECT_STORAGE for change in changes):
        return storage
    return replace(storage, bound=storage.declared or "made", declared=storage.declared or "made")


def _follow_links(observed: dict[Address, Observed]) -> None:
    """Show mirrors as paused while their links are, and as ACTIVE after that."""
    for address, seen in list(observed.items()):
        if isinstance(seen.resource, MirrorTopic) and seen.state in {"ACTIVE", "LINK_PAUSED"}:
            link = observed.get(link_of(seen.resource))
            if link is not None and isinstance(link.resource, MirrorLink):
                state = "LINK_PAUSED" if link.resource.spec.paused else "ACTIVE"
                observed[address] = replace(seen, state=state)


def _made(action: Create, incarnation: str | None) -> Observed:
    mirror = action.after
    if not isinstance(mirror, MirrorTopic):
        return Observed(mirror, incarnation)
    synced = action.parameters.get("configs")
    configs = {**(synced if isinstance(synced, dict) else {}), **mirror.configs}
    about = LiveMirror(first_copy_done=False, topic_if_stopped=topic_from(mirror, configs))
    return Observed(mirror, incarnation, state="ACTIVE", mirror=about)


def topic_from(mirror: MirrorTopic, configs: Mapping[str, Any]) -> Resource:
    """Return the ordinary topic that a mirror is without its link."""
    namespace, _, name = mirror.name.rpartition(":")
    metadata = {"name": name, "namespace": namespace, "cluster": mirror.cluster}
    spec = {"partitions": mirror.partitions or 1, "configs": dict(configs)}
    return read_resource({"kind": "Topic", "metadata": metadata, "spec": spec})


def _delete(action: Delete, observed: dict[Address, Observed]) -> None:
    """A topic goes with its record of a mirror; a link drops those of its mirrors, not their topics (F-C-091)."""
    kind, _, name = action.address.partition("/")
    for each in {"topic", "mirror"} if kind in {"topic", "mirror"} else {kind}:
        observed.pop(Address(f"{each}/{name}"), None)
    link = action.before
    if not isinstance(link, MirrorLink):
        return
    for address, seen in list(observed.items()):
        mirror = seen.resource
        if isinstance(mirror, MirrorTopic) and (mirror.cluster, mirror.link) == (link.cluster, link.metadata.name):
            del observed[address]


def _change_role(action: Transition, mirror: MirrorTopic, observed: dict[Address, Observed]) -> str:
    """Do what a verb does to a mirror, and to the topic on its other side."""
    topic = as_topic(mirror)
    now_ms = 1 + max(seen.mirror.since_ms for seen in observed.values())
    if action.verb == "truncate-and-restore":
        _become_mirror(topic, mirror, "ACTIVE", now_ms, observed)
    else:
        seen = observed[action.address]
        observed[action.address] = replace(seen, state=action.to_state, mirror=replace(seen.mirror, since_ms=now_ms))
        if action.to_state == "STOPPED":
            there = seen.mirror.topic_if_stopped or topic_from(mirror, mirror.configs)
            observed[topic] = Observed(there, seen.incarnation)
            stopped = observed[action.address]
            observed[action.address] = replace(stopped, mirror=replace(stopped.mirror, topic_if_stopped=None))
    if action.verb.startswith("reverse"):
        state = "ACTIVE" if action.verb.endswith("start") else "PAUSED"
        _become_mirror(get_source_topic(mirror), derive_peer(mirror), state, now_ms, observed)
    return observed[action.address].incarnation or ""


def _become_mirror(
    topic: Address, mirror: MirrorTopic, state: str, now_ms: int, observed: dict[Address, Observed]
) -> None:
    was = observed.pop(topic)
    assert isinstance(was.resource, Topic)
    made = mirror.model_copy(update={"partitions": was.resource.spec.partitions, "state": "mirroring"})
    observed[made.address] = Observed(
        made, was.incarnation, state=state, mirror=LiveMirror(since_ms=now_ms, topic_if_stopped=was.resource)
    )


def _transit(action: Transition, observed: dict[Address, Observed], given: PlanInput) -> str:
    if action.machine == "topic":
        old = Address(str(action.parameters["from"]))
        seen = observed.pop(old)
        assert isinstance(seen.resource, Topic)
        assert isinstance(action.after, Topic)
        moved = action.after.model_copy(update={"spec": seen.resource.spec})
        observed[action.address] = replace(seen, resource=moved)
        return seen.incarnation or ""
    if action.machine == "tiering":
        seen = observed[action.address]
        reached = "DISABLED" if action.to_state == "DISABLING" else action.to_state
        observed[action.address] = replace(seen, resource=_changed(seen.resource, action.changes), state=reached)
        return seen.incarnation or ""
    if isinstance(action.after, MirrorTopic):
        return _change_role(action, action.after, observed)
    assert isinstance(action.after, Mounting)
    topic, location = get_mounted_topic(action.after), str(action.parameters["source"])
    is_gone_on = observed.pop(action.address, None) is not None
    if action.verb == "unmount":
        observed.pop(topic, None)
        return ""
    if is_gone_on and topic in observed:
        observed[topic] = replace(
            observed[topic], state=None, topic=LiveTopic(legacy=RemoteRemains(location, is_deleted=False))
        )
        return observed[topic].incarnation or ""
    source = given.stored.mounts[action.address]
    assert isinstance(source, MountSource)
    assert source.location == location
    found = source.recoverable or RecoverableTopic(location, "", 1)
    namespace, _, name = action.after.topic_name.rpartition(":")
    metadata = {"name": name, "namespace": namespace, "cluster": cluster_of(action.address)}
    declared = action.parameters.get("configs")
    configs = {**found.own, **(declared if isinstance(declared, Mapping) else {})}
    spec = {"partitions": found.partitions, "configs": configs}
    mounted = read_resource({"kind": "Topic", "metadata": metadata, "spec": spec})
    legacy = RemoteRemains(location, is_deleted=False)
    observed[topic] = Observed(mounted, f"mounted by {action.id}", state="ENABLED", topic=LiveTopic(legacy=legacy))
    return f"mounted by {action.id}"


def _changed(resource: Resource, changes: tuple[Change, ...]) -> Resource:
    """Set dotted paths of a resource's JSON, or remove them."""
    row = resource.to_json()
    spec: dict[str, Any] = row.get("spec", row)
    for change in changes:
        if change.path.startswith(ACLS) and isinstance(resource, MirrorTopic):
            who = parse_rule(change.path, ("write",)).principal
            kept = {each for each in spec.get("denied", ()) if each != who}
            spec["denied"] = sorted(kept if change.after is None else {*kept, who})
            continue
        if change.path.startswith(ACLS):
            kind = TopicAcl if isinstance(resource, Topic) else NamespaceAcl
            rules = [rule for rule in spec.get("acls", ()) if build_rule_path(kind.model_validate(rule)) != change.path]
            made = [] if change.after is None else [_rule(kind, change.path, change.after)]
            spec["acls"] = rules + made
            continue
        head, _, key = change.path.partition(".")
        place, last = (spec.setdefault(head, {}), key) if head in {"configs", "properties"} else (spec, change.path)
        while "." in last and head not in {"configs", "properties"}:
            head, _, last = last.partition(".")
            place = place.setdefault(head, {})
        if change.after is None:
            place.pop(last, None)
        else:
            place[last] = change.after if not isinstance(change.after, Mapping) else dict(change.after)
    return read_resource(row)


def _rule(kind: type[TopicAcl], path: str, operations: Any) -> dict[str, Any]:
    rule = parse_rule(path, operations).to_json()
    return {key: value for key, value in rule.items() if key in kind.model_fields}
