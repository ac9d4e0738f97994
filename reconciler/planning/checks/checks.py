"""Checks whose errors `--allow` cannot lift, in one tuple per phase of planning."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import TYPE_CHECKING, Final, TypeAlias, assert_never

from reconciler.planning.allowances import list_commit_warnings, list_unused_warnings
from reconciler.planning.checks.cluster_checks import check_properties, check_storage, warnings_of_overrides
from reconciler.planning.checks.guards import (
    warnings_of_approvals,
    warnings_of_deletes,
    warnings_of_owners,
    warnings_of_return,
)
from reconciler.planning.checks.limit_checks import (
    check_quotas,
    warnings_of_insync,
    warnings_of_moves,
    warnings_of_quotas,
)
from reconciler.planning.checks.mirror_checks import (
    check_link,
    check_links,
    check_role_swaps,
    warnings_of_links,
    warnings_of_restores,
)
from reconciler.planning.checks.mount_checks import (
    check_competing_mountings,
    check_mounting,
    warnings_of_sealed,
    warnings_of_strangers,
)
from reconciler.planning.checks.offline import warnings_of_rules
from reconciler.planning.checks.tiering_checks import (
    check_tiered_topics,
    check_tiering,
    warnings_of_copying_off,
    warnings_of_switching,
    warnings_of_tiered_topics,
    warnings_of_tiering,
)
from reconciler.planning.diff.drift import warnings_of_unmatched_rules
from reconciler.planning.diff.mount_changes import check_recovery, check_replica, is_replaced
from reconciler.planning.diff.removals import check_hidden
from reconciler.planning.fields import PROPERTIES
from reconciler.planning.plan import PlanFinding
from reconciler.planning.resolve.cluster_values import warnings_of_lost
from reconciler.planning.resolve.limits import (
    check_beside_replica,
    check_namespace,
    check_topic,
    describe_unsupported,
    warnings_of_denials,
)
from reconciler.planning.resolve.mirror_sources import check_mirror
from reconciler.planning.resolve.physical_names import check_flat_names, check_shared_names
from reconciler.planning.selection import check_excluded_dependencies, check_targets, list_selection_warnings
from reconciler.planning.situation import Review, Situation, WantedResource
from reconciler.resources.address import Address, split_name
from reconciler.resources.cluster import Cluster
from reconciler.resources.mirror_link import MirrorLink, MirrorTopic
from reconciler.resources.mount import Mounting
from reconciler.resources.namespace import Namespace
from reconciler.resources.tiering_policy import TieringPolicy
from reconciler.resources.topic import Topic
from reconciler.runtime.text import find_similar, format_suggestion

if TYPE_CHECKING:
    from reconciler.resources.inventory import Observed, Recorded


def check_resources(situation: Situation) -> Iterator[PlanFinding]:
    """Yield references to missing resources and unsupported features."""
    valid: set[Hashable] = set()
    for address in sorted(situation.wanted):
        if situation.can_plan(address):
            wanted = situation.wanted[address]
            likeness = _make_likeness_key(wanted, situation.observed.get(address))
            if likeness in valid:
                continue
            problems = list(_check_resource(address, wanted, situation))
            if likeness is not None and not problems:
                valid.add(likeness)
            for message, hint in problems:
                yield PlanFinding(address, wanted.source, message, hint, wanted.marks)


def _make_likeness_key(wanted: WantedResource, seen: Observed | None) -> Hashable:
    """Return a key of all that the checks of an existing topic read; `None` if they also read its name or origins."""
    topic = wanted.resource
    if seen is None or not isinstance(topic, Topic) or not isinstance(seen.resource, Topic) or wanted.origins:
        return None
    if topic.spec.read_replica_of is not None:
        return None
    # Equal specs of files are one object, and so are those of a cluster.
    specs = id(topic.spec), id(seen.resource.spec)
    return topic.cluster, topic.metadata.namespace, *specs, *seen.topic.initial.items()


SituationCheck: TypeAlias = Callable[[Situation], Iterable[PlanFinding]]
"""A check of the three inventories before actions are decided."""

PlanCheck: TypeAlias = Callable[["Review"], Iterable[PlanFinding]]
"""A check of the whole plan with sorted actions."""

REFUSALS: Final[tuple[SituationCheck, ...]] = (
    check_targets,
    check_excluded_dependencies,
    check_hidden,
    check_resources,
    check_links,
    check_properties,
    check_tiering,
    check_tiered_topics,
    check_shared_names,
    check_flat_names,
    check_competing_mountings,
)
"""Checks that exclude an address from the plan."""

ERRORS: Final[tuple[PlanCheck, ...]] = (check_quotas, check_role_swaps)
"""Checks that prevent an apply."""

WARNINGS: Final[tuple[PlanCheck, ...]] = (
    warnings_of_deletes,
    list_selection_warnings,
    warnings_of_rules,
    list_unused_warnings,
    list_commit_warnings,
    warnings_of_unmatched_rules,
    warnings_of_quotas,
    warnings_of_return,
    warnings_of_owners,
    warnings_of_approvals,
    warnings_of_switching,
    warnings_of_tiering,
    warnings_of_tiered_topics,
    warnings_of_copying_off,
    warnings_of_lost,
    warnings_of_links,
    warnings_of_restores,
    warnings_of_denials,
    warnings_of_insync,
    warnings_of_moves,
    warnings_of_overrides,
    warnings_of_sealed,
    warnings_of_strangers,
)

MEASURED: Final[tuple[PlanCheck, ...]] = (check_quotas, warnings_of_switching, warnings_of_strangers)
"""Checks that also run before measuring, to collect the topics to measure."""


def _check_resource(address: Address, wanted: WantedResource, situation: Situation) -> Iterator[tuple[str, str]]:
    resource = wanted.resource
    match resource:
        case Topic():
            capabilities = situation.find_capabilities(resource.cluster)
            yield from _check_namespace_exists(resource.cluster, resource.metadata.namespace, situation)
            seen = situation.observed.get(address)
            is_new = seen is None
            propagated_configs = _find_passed_on_configs(resource, wanted, situation)
            yield from check_topic(resource, capabilities, seen, reported=propagated_configs)
            yield from check_replica(
                resource, situation, is_new=is_new or is_replaced(resource, situation.observed[address])
            )
            yield from (propagated_configs for _, propagated_configs in check_beside_replica(resource, wanted.origins))
            if is_new:
                yield from check_recovery(resource, situation)
        case Namespace():
            yield from check_namespace(
                resource, situation.find_capabilities(resource.cluster), wanted.propagated_configs
            )
        case MirrorTopic():
            yield from _check_namespace_exists(resource.cluster, split_name(resource.name)[0], situation)
            yield from check_mirror(resource, situation)
        case MirrorLink():
            reported = _find_problems_of_first_half(wanted, situation)
            yield from (problem for problem in check_link(resource, situation) if problem not in reported)
        case Mounting():
            if resource.spec.state == "mounted":  # Only a mounted topic needs a namespace.
                yield from _check_namespace_exists(resource.cluster, resource.metadata.namespace, situation)
            yield from check_mounting(resource, situation)
        case Cluster():
            yield from _check_cluster(resource, situation.recorded.get(address), situation)
            yield from check_storage(resource, situation.observed.get(address), situation.recorded.get(address))
        case TieringPolicy():
            pass
        case _:
            assert_never(resource)


def _find_passed_on_configs(topic: Topic, wanted: WantedResource, situation: Situation) -> frozenset[str]:
    if not wanted.origins or situation.find_capabilities(topic.cluster).inherits_configs:
        return frozenset()
    tiers = [
        situation.wanted.get(tier)
        for tier in situation.list_nearest_namespaces(topic.cluster, topic.metadata.namespace)
    ]
    propagated_configs = {item for tier in tiers if tier is not None for item in tier.propagated_configs.items()}
    return frozenset(key for key, value in topic.spec.configs.items() if (key, value) in propagated_configs)


def _check_namespace_exists(cluster: str, namespace: str, situation: Situation) -> Iterator[tuple[str, str]]:
    # Without a state, namespaces that are only name prefixes are unknown.
    is_unknown = not situation.request.has_state and situation.find_capabilities(cluster).namespaces_are_rules
    if is_unknown or situation.has_namespace(cluster, namespace):
        return
    prefix = f"namespace/{cluster}/"
    known = [str(item).removeprefix(prefix) for item in situation.wanted if item.startswith(prefix)]
    meant = format_suggestion([repr(name) for name in find_similar(namespace, known)])
    yield (
        f"namespace {namespace!r} is neither declared nor on cluster {cluster}",
        f"Declare the Namespace: namespaces are never created implicitly (InvalidNamespaceError). {meant}".rstrip(),
    )


def _check_cluster(cluster: Cluster, last: Recorded | None, situation: Situation) -> Iterator[tuple[str, str]]:
    capabilities = situation.find_capabilities(cluster.metadata.name)
    if capabilities.cluster_properties:
        return
    before = last.resource.spec.properties if last is not None and isinstance(last.resource, Cluster) else {}
    changed = sorted(key for key, value in cluster.spec.properties.items() if before.get(key) != value)
    if changed:
        named = ", ".join(PROPERTIES + key for key in changed)
        yield describe_unsupported(capabilities, f"set cluster properties ({named})", "cluster_properties")
    if cluster.spec.tiering is not None:
        yield describe_unsupported(capabilities, "set the cluster-wide configuration of tiering (spec.tiering)")


def _find_problems_of_first_half(wanted: WantedResource, situation: Situation) -> frozenset[tuple[str, str]]:
    first = situation.wanted.get(wanted.marks[0][0]) if wanted.marks else None
    if first is None or not isinstance(first.resource, MirrorLink) or first.resource.cluster not in situation.trusted:
        return frozenset()
    return frozenset(check_link(first.resource, situation))
