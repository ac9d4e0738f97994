"""What can be said of the files without asking any cluster: for `validate`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconciler.planning.finding import Finding
from reconciler.planning.judging.clusters import check_undeclared
from reconciler.planning.judging.expiry import check_expired
from reconciler.planning.judging.properties import judged_properties
from reconciler.planning.judging.rules import violations
from reconciler.planning.judging.secrecy import check_plaintext
from reconciler.planning.wanted.clusters import compiled_cluster
from reconciler.resources.address import Address, address_of, kind_of, matches
from reconciler.resources.cluster import Cluster
from reconciler.resources.clusterproperties import EMBEDDED_PROPERTIES
from reconciler.resources.mirrorlink import MirrorLink
from reconciler.resources.namespace import Namespace
from reconciler.resources.topic import Topic

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import date

    from reconciler.resources.guards import Guards
    from reconciler.resources.inventory import Declared, Desired


def check_offline(desired: Desired, guards: Guards, *, today: date | None = None) -> tuple[Finding, ...]:
    """Return what is wrong with the files whatever the clusters say; without `today` nothing can have expired."""
    expired = check_expired(guards, today) if today is not None else ()
    found = [*expired, *check_undeclared(desired), *check_plaintext(desired)]
    for address in sorted(desired):
        found += _check(address, desired[address], desired, guards)
    return tuple(found)


def _check(address: Address, declared: Declared, desired: Desired, guards: Guards) -> Iterator[Finding]:
    resource = declared.resource
    for broken in violations(address, resource, guards):
        yield Finding(address, declared.source, broken, "Follow the rule, or change it in guards.rules.")
    is_inside = not guards.only or any(matches(pattern, address) for pattern in guards.only)
    if not is_inside and kind_of(address) not in {"cluster", "policy"}:
        message = f"it is outside what this workspace is for ({', '.join(guards.only)})"
        yield Finding(address, declared.source, message, "Move it to the workspace it belongs to.")
    if isinstance(resource, Topic | Namespace):
        policy = resource.spec.tiering_policy
        if policy is not None and Address(f"policy/{policy}") not in desired:
            message = f"tieringPolicy {policy} is not declared"
            yield Finding(address, declared.source, message, f"Declare a TieringPolicy named {policy}.")
    if isinstance(resource, Cluster) and resource.spec.provider == "embedded":
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
