"""Checks that need no cluster, for `validate`: conventions, and reviews that expired."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from reconciler.planning.checks.cluster_checks import check_plaintext, check_undeclared, judged_properties
from reconciler.planning.plan import Finding
from reconciler.planning.resolve.cluster_values import compiled_cluster
from reconciler.planning.resolve.limits import check_beside_replica
from reconciler.planning.selection import labels_of
from reconciler.resources.address import Address, address_of, full_name_of, kind_of, matches, split_name
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
    from reconciler.resources.inventory import Declared, Desired, Resource
    from reconciler.resources.workspace import Between, Guards, Requirement


# Conventions of a workspace: what resources that match must look like.


def violations(address: Address, resource: Resource, guards: Guards) -> tuple[str, ...]:
    """Return what a resource breaks, each with the message of its rule."""
    return tuple(
        f"{rule.message} ({broken})"
        for rule in guards.rules
        if matches(rule.match, address)
        for broken in _broken(address, resource, rule.require)
    )


def judged_by_rules(wanted: WantedResource) -> Resource:
    """Return a wanted resource as rules judge it: a namespace with the configs that are written on its topics."""
    resource = wanted.resource
    if not isinstance(resource, Namespace) or not wanted.passed_on:
        return resource
    return resource.model_copy(update={"spec": resource.spec.model_copy(update={"configs": wanted.passed_on})})


def _broken(address: Address, resource: Resource, require: Requirement) -> Iterator[str]:
    name = split_name(full_name_of(address))[1]
    if require.name is not None and not re.fullmatch(require.name, name):
        yield f"name {name} does not match {require.name}"
    is_replica = isinstance(resource, Topic) and resource.spec.read_replica_of is not None
    if isinstance(resource, Topic) and not is_replica:
        yield from _between("partitions", resource.spec.partitions, require.partitions)
        yield from _between("replicationFactor", resource.spec.replication_factor, require.replication_factor)
    if not isinstance(resource, MirrorTopic):
        labels = labels_of(resource)
        yield from (f"label {label} is missing" for label in require.labels if label not in labels)
    configs = None if is_replica else _configs(resource)
    for key in sorted(require.configs) if configs is not None else ():
        value = configs.get(key) if configs else None
        allowed = require.configs[key]
        if value not in allowed:
            yield f"{key} is {value or 'not set'}, allowed: {', '.join(allowed)}"


def _between(field: str, value: int | None, bounds: Between | None) -> Iterator[str]:
    if bounds is None:
        return
    if value is None:
        yield f"{field} is not set"
    elif (bounds.min is not None and value < bounds.min) or (bounds.max is not None and value > bounds.max):
        yield f"{field} is {value}, allowed: {bounds.min or 1} to {bounds.max or 'any'}"


def _configs(resource: Resource) -> Mapping[str, str] | None:
    match resource:
        case Topic() | Namespace():
            return resource.spec.configs
        case MirrorTopic():
            return resource.configs
        case Cluster() | MirrorLink() | Mounting() | TieringPolicy():
            return None


def warnings_of_rules(review: Review) -> Iterator[Finding]:
    """Yield a warning for what breaks a rule and is not changed by this plan; what is changed is blocked instead."""
    situation = review.situation
    if not situation.request.guards.rules or situation.request.options.is_destroy:
        return
    changed = {action.address for action in review.actions}
    for address in sorted(situation.wanted):
        if address in changed or not situation.is_decidable(address):
            continue
        wanted = situation.wanted[address]
        for broken in violations(address, judged_by_rules(wanted), situation.request.guards):
            yield Finding(
                address, wanted.source, f"it breaks a rule: {broken}", "This plan does not change it. Correct it."
            )


# What was reviewed until a day that has passed. Apart from the rest of the allowances: `validate` needs only this.


def check_expired(guards: Guards, today: date) -> Iterator[Finding]:
    """Yield an error for each allowance and ignored drift whose day has passed."""
    for item in guards.allow:
        if item.until < today:
            yield _expired(f"guards.allow {item.action}", item.until, item.reason)
    for rule in guards.ignore_drift:
        if rule.until < today:
            yield _expired(f"guards.ignoreDrift {rule.match} {rule.field}", rule.until, rule.reason)


def _expired(what: str, until: date, reason: str) -> Finding:
    message = f"{what} expired on {until.isoformat()} ({reason})"
    return Finding(None, "reconciler.yaml", message, "Remove it, or review it again with a later day.")


def check_offline(desired: Desired, guards: Guards, *, today: date | None = None) -> tuple[Finding, ...]:
    """Return what is wrong with the files whatever the clusters say; without `today` nothing can have expired."""
    expired = check_expired(guards, today) if today is not None else ()
    found = [*expired, *check_undeclared(desired), *check_plaintext(desired)]
    for address in sorted(desired):
        found += _check(address, desired[address], desired, guards)
    return tuple(found)


def _is_exempt(address: Address, guards: Guards) -> bool:
    """Tell whether a reviewed allowance lifts the rules of an address, whatever a plan would do to it."""
    allowed = (each.action.partition(":") for each in guards.allow)
    return any(verb not in {"delete", "forget"} and matches(pattern, address) for verb, _, pattern in allowed)


def _check(address: Address, declared: Declared, desired: Desired, guards: Guards) -> Iterator[Finding]:
    resource = declared.resource
    for broken in () if _is_exempt(address, guards) else violations(address, resource, guards):
        hint = "Follow the rule, or change it in guards.rules. An exception with an end stands in guards.allow."
        yield Finding(address, declared.source, broken, hint)
    is_inside = not guards.only or any(matches(pattern, address) for pattern in guards.only)
    if not is_inside and kind_of(address) not in {"cluster", "policy"}:
        message = f"it is outside what this workspace is for ({', '.join(guards.only)})"
        yield Finding(address, declared.source, message, "Move it to the workspace it belongs to.")
    for field, told in check_beside_replica(resource, {}) if isinstance(resource, Topic) else ():
        yield Finding(address, declared.source, *told, ((address, ("spec", field)),))
    if isinstance(resource, Topic | Namespace):
        policy = resource.spec.tiering_policy
        if policy is not None and Address(f"policy/{policy}") not in desired:
            message = f"tieringPolicy {policy} is not declared"
            yield Finding(address, declared.source, message, f"Declare a TieringPolicy named {policy}.")
    if isinstance(resource, Cluster) and resource.spec.root is not None:
        wanted, found = compiled_cluster(resource, declared.source, EMBEDDED_PROPERTIES)
        yield from found
        if isinstance(wanted.resource, Cluster):
            yield from judged_properties(wanted, wanted.resource, EMBEDDED_PROPERTIES)
    if isinstance(resource, MirrorLink):
        for mirror in resource.mirrors():
            topic = address_of("topic", mirror.cluster, mirror.name)
            if topic in desired and mirror.state in {"mirroring", "paused"}:
                message = f"{topic} is also declared as a topic, at {desired[topic].source}"
                yield Finding(address, declared.source, message, "Remove the Topic, or the mirrorTopics entry.")
