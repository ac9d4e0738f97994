"""Checks of `validate` that need no cluster: rules and expired reviews."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from reconciler.planning.checks.cluster_checks import check_plaintext, check_undeclared, find_property_problems
from reconciler.planning.plan import PlanFinding
from reconciler.planning.resolve.cluster_values import compile_cluster
from reconciler.planning.resolve.limits import check_beside_replica
from reconciler.planning.selection import read_labels
from reconciler.resources.address import Address, address_of, full_name_of, kind_of, matches_pattern, split_name
from reconciler.resources.cluster import Cluster
from reconciler.resources.cluster_properties import EMBEDDED_PROPERTIES
from reconciler.resources.mirror_link import MirrorLink, MirrorTopic
from reconciler.resources.mount import Mounting
from reconciler.resources.namespace import Namespace
from reconciler.resources.tiering_policy import TieringPolicy
from reconciler.resources.topic import Topic

if TYPE_CHECKING:
    from datetime import date

    from reconciler.planning.situation import Review, WantedResource
    from reconciler.resources.inventory import DeclaredResource, Desired, Resource
    from reconciler.resources.workspace import Between, Guards, Requirement


def find_violations(address: Address, resource: Resource, guards: Guards) -> tuple[str, ...]:
    """Return a message for each rule that a resource breaks."""
    return tuple(
        f"{rule.message} ({broken})"
        for rule in guards.rules
        if matches_pattern(rule.match, address)
        for broken in _find_broken_requirements(address, resource, rule.require)
    )


def build_resource_for_rules(wanted: WantedResource) -> Resource:
    """Return the resource as rules check it: a namespace with the configs of its topics."""
    resource = wanted.resource
    if not isinstance(resource, Namespace) or not wanted.propagated_configs:
        return resource
    return resource.model_copy(update={"spec": resource.spec.model_copy(update={"configs": wanted.propagated_configs})})


def _find_broken_requirements(address: Address, resource: Resource, require: Requirement) -> Iterator[str]:
    name = split_name(full_name_of(address))[1]
    if require.name is not None and not re.fullmatch(require.name, name):
        yield f"name {name} does not match {require.name}"
    is_replica = isinstance(resource, Topic) and resource.spec.read_replica_of is not None
    if isinstance(resource, Topic) and not is_replica:
        yield from _check_bounds("partitions", resource.spec.partitions, require.partitions)
        yield from _check_bounds("replicationFactor", resource.spec.replication_factor, require.replication_factor)
    if not isinstance(resource, MirrorTopic):
        labels = read_labels(resource)
        yield from (f"label {label} is missing" for label in require.labels if label not in labels)
    configs = None if is_replica else _read_configs_for_rules(resource)
    for key in sorted(require.configs) if configs is not None else ():
        value = configs.get(key) if configs else None
        allowed = require.configs[key]
        if value not in allowed:
            yield f"{key} is {value or 'not set'}, allowed: {', '.join(allowed)}"


def _check_bounds(field: str, value: int | None, bounds: Between | None) -> Iterator[str]:
    if bounds is None:
        return
    if value is None:
        yield f"{field} is not set"
    elif (bounds.min is not None and value < bounds.min) or (bounds.max is not None and value > bounds.max):
        yield f"{field} is {value}, allowed: {bounds.min or 1} to {bounds.max or 'any'}"


def _read_configs_for_rules(resource: Resource) -> Mapping[str, str] | None:
    match resource:
        case Topic() | Namespace():
            return resource.spec.configs
        case MirrorTopic():
            return resource.configs
        case Cluster() | MirrorLink() | Mounting() | TieringPolicy():
            return None


def warnings_of_rules(review: Review) -> Iterator[PlanFinding]:
    """Warn about rules that unchanged resources break. Guards block changed resources instead."""
    situation = review.situation
    if not situation.request.guards.rules or situation.request.options.is_destroy:
        return
    changed = {action.address for action in review.actions}
    for address in sorted(situation.wanted):
        if address in changed or not situation.can_plan(address):
            continue
        wanted = situation.wanted[address]
        for broken in find_violations(address, build_resource_for_rules(wanted), situation.request.guards):
            yield PlanFinding(
                address,
                wanted.source,
                f"it violates a rule of guards.rules: {broken}",
                "This plan does not change it. Correct it.",
            )


def check_expired(guards: Guards, today: date) -> Iterator[PlanFinding]:
    """Yield an error for each expired allowance and ignored drift."""
    for item in guards.allow:
        if item.until < today:
            yield _report_expired(f"guards.allow {item.action}", item.until, item.reason)
    for rule in guards.ignore_drift:
        if rule.until < today:
            yield _report_expired(f"guards.ignoreDrift {rule.match} {rule.field}", rule.until, rule.reason)


def _report_expired(what: str, until: date, reason: str) -> PlanFinding:
    message = f"{what} expired on {until.isoformat()} ({reason})"
    return PlanFinding(None, "reconciler.yaml", message, "Remove it, or review it again with a later day.")


def check_offline(desired: Desired, guards: Guards, *, today: date | None = None) -> tuple[PlanFinding, ...]:
    """Return problems of the files alone. Without `today`, no review expires."""
    expired = check_expired(guards, today) if today is not None else ()
    findings = [*expired, *check_undeclared(desired), *check_plaintext(desired)]
    for address in sorted(desired):
        findings += _check_resource(address, desired[address], desired, guards)
    return tuple(findings)


def _is_exempt(address: Address, guards: Guards) -> bool:
    allowed = (allowance.action.partition(":") for allowance in guards.allow)
    return any(verb not in {"delete", "forget"} and matches_pattern(pattern, address) for verb, _, pattern in allowed)


def _check_resource(
    address: Address, declared: DeclaredResource, desired: Desired, guards: Guards
) -> Iterator[PlanFinding]:
    resource = declared.resource
    for broken in () if _is_exempt(address, guards) else find_violations(address, resource, guards):
        hint = "Follow the rule, or change it in guards.rules. A temporary exception belongs in guards.allow."
        yield PlanFinding(address, declared.source, broken, hint)
    is_inside = not guards.only or any(matches_pattern(pattern, address) for pattern in guards.only)
    if not is_inside and kind_of(address) not in {"cluster", "policy"}:
        message = f"it is outside the addresses that this workspace may manage ({', '.join(guards.only)})"
        yield PlanFinding(address, declared.source, message, "Move it to the workspace it belongs to.")
    for field, problem in check_beside_replica(resource, {}) if isinstance(resource, Topic) else ():
        yield PlanFinding(address, declared.source, *problem, ((address, ("spec", field)),))
    if isinstance(resource, Topic | Namespace):
        policy = resource.spec.tiering_policy
        if policy is not None and Address(f"policy/{policy}") not in desired:
            message = f"tieringPolicy {policy} is not declared"
            yield PlanFinding(address, declared.source, message, f"Declare a TieringPolicy named {policy}.")
    if isinstance(resource, Cluster) and resource.spec.root is not None:
        wanted, findings = compile_cluster(resource, declared.source, EMBEDDED_PROPERTIES)
        yield from findings
        if isinstance(wanted.resource, Cluster):
            yield from find_property_problems(wanted, wanted.resource, EMBEDDED_PROPERTIES)
    if isinstance(resource, MirrorLink):
        for mirror in resource.mirrors():
            topic = address_of("topic", mirror.cluster, mirror.name)
            if topic in desired and mirror.state in {"mirroring", "paused"}:
                message = f"{topic} is also declared as a topic, at {desired[topic].source}"
                yield PlanFinding(address, declared.source, message, "Remove the Topic, or the mirrorTopics entry.")
