"""A world of clusters as plain mappings, and what it becomes when a plan is applied: pure, and as simple as can be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, assert_never

from reconciler.planning.actions import (
    Action,
    Adopt,
    Change,
    Create,
    Delete,
    Forget,
    RunJob,
    Transition,
    Update,
)
from reconciler.planning.plan import Given, Plan
from reconciler.planning.planner import plan
from reconciler.planning.recording import after_action, learn
from reconciler.planning.situation import mounted_by
from reconciler.resources.aclpaths import ACLS, rule_at, rule_path
from reconciler.resources.acls import NamespaceAcl, TopicAcl
from reconciler.resources.address import Address, cluster_of, kind_of
from reconciler.resources.capabilities import ClusterIdentity
from reconciler.resources.cluster import Cluster
from reconciler.resources.inventory import Desired, Inventory, Observed, Record, RemoteLegacy
from reconciler.resources.kinds import RESOURCE, Resource
from reconciler.resources.mountable import MountSource
from reconciler.resources.mounting import Mounting
from reconciler.resources.recoverable import Recoverable
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
    given: Given

    def plan(self) -> Plan:
        return plan(self.desired, self.recorded, self.observed, given=self.given)

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
                is_mirror = kind_of(action.address) == "mirror"
                observed[action.address] = Observed(
                    action.after,
                    incarnation or None,
                    state="ACTIVE" if is_mirror else None,
                    first_copy_done=not is_mirror,
                )
            case Update():
                seen = observed[action.address]
                observed[action.address] = replace(seen, resource=_changed(seen.resource, action.changes))
                incarnation = seen.incarnation or ""
            case Delete():
                del observed[action.address]
            case Transition():
                incarnation = _transit(action, observed, given)
            case RunJob():
                observed[action.address] = replace(observed[action.address], first_copy_done=True)
            case Adopt() | Forget():
                pass
            case _:
                assert_never(action)
        done = Answered(incarnation or None) if not isinstance(action, Adopt | Forget | RunJob) else None
        record = dict(self.recorded)
        learn(record, after_action(action, done, self.recorded, "run-1"))
        return replace(self, observed=observed, recorded=record, given=given)


_REACHED = {"PENDING_STOPPED": "STOPPED", "PENDING_SETUP_FOR_RESTORE": "ACTIVE"}


def _transit(action: Transition, observed: dict[Address, Observed], given: Given) -> str:
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
    if action.machine == "mirror":
        state = _REACHED.get(action.to_state, action.to_state)
        observed[action.address] = replace(observed[action.address], state=state)
        return observed[action.address].incarnation or ""
    assert isinstance(action.after, Mounting)
    topic, location = mounted_by(action.after), str(action.parameters["source"])
    if action.verb == "unmount":
        del observed[topic]
        return ""
    source = given.mounts[action.address]
    assert isinstance(source, MountSource)
    assert source.location == location
    found = source.found or Recoverable(location, "", 1)
    namespace, _, name = action.after.topic_name.rpartition(":")
    metadata = {"name": name, "namespace": namespace, "cluster": cluster_of(action.address)}
    spec = {"partitions": found.partitions, "configs": dict(found.own)}
    mounted = RESOURCE.validate_python({"kind": "Topic", "metadata": metadata, "spec": spec})
    legacy = RemoteLegacy(location, is_deleted=False)
    observed[topic] = Observed(mounted, f"mounted by {action.id}", state="ENABLED", legacy=legacy)
    return f"mounted by {action.id}"


def _changed(resource: Resource, changes: tuple[Change, ...]) -> Resource:
    """Set dotted paths of a resource's JSON, or remove them."""
    row = resource.to_json()
    spec: dict[str, Any] = row.get("spec", row)
    for change in changes:
        if change.path.startswith(ACLS):
            kind = TopicAcl if isinstance(resource, Topic) else NamespaceAcl
            rules = [rule for rule in spec.get("acls", ()) if rule_path(kind.model_validate(rule)) != change.path]
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
    return RESOURCE.validate_python(row)


def _rule(kind: type[TopicAcl], path: str, operations: Any) -> dict[str, Any]:
    rule = rule_at(path, operations).to_json()
    return {key: value for key, value in rule.items() if key in kind.model_fields}
