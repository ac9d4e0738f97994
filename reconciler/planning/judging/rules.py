"""Conventions of a workspace: what resources that match must look like."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from reconciler.planning.finding import Finding
from reconciler.planning.selection import labels_of
from reconciler.resources.address import Address, full_name_of, matches, split_name
from reconciler.resources.cluster import Cluster
from reconciler.resources.mirrorlink import MirrorLink, MirrorTopic
from reconciler.resources.mounting import Mounting
from reconciler.resources.namespace import Namespace
from reconciler.resources.tieringpolicy import TieringPolicy
from reconciler.resources.topic import Topic

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from reconciler.planning.review import Review
    from reconciler.resources.guards import Between, Guards, Requirement
    from reconciler.resources.kinds import Resource


def violations(address: Address, resource: Resource, guards: Guards) -> tuple[str, ...]:
    """Return what a resource breaks, each with the message of its rule."""
    return tuple(
        f"{rule.message} ({broken})"
        for rule in guards.rules
        if matches(rule.match, address)
        for broken in _broken(address, resource, rule.require)
    )


def _broken(address: Address, resource: Resource, require: Requirement) -> Iterator[str]:
    name = split_name(full_name_of(address))[1]
    if require.name is not None and not re.fullmatch(require.name, name):
        yield f"name {name} does not match {require.name}"
    if isinstance(resource, Topic):
        yield from _between("partitions", resource.spec.partitions, require.partitions)
        yield from _between("replicationFactor", resource.spec.replication_factor, require.replication_factor)
    if not isinstance(resource, MirrorTopic):
        labels = labels_of(resource)
        yield from (f"label {label} is missing" for label in require.labels if label not in labels)
    configs = _configs(resource)
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
    if not situation.given.guards.rules or situation.given.is_destroy:
        return
    changed = {action.address for action in review.actions}
    for address in sorted(situation.wanted):
        if address in changed or not situation.is_decidable(address):
            continue
        wanted = situation.wanted[address]
        for broken in violations(address, wanted.resource, situation.given.guards):
            yield Finding(address, wanted.source, f"it breaks a rule: {broken}", "Nothing changes here now; mend it.")
