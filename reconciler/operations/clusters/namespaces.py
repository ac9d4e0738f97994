"""`namespace list`, `create`, `move` and `delete`."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from reconciler.errors import BlockedError, InvalidNamespaceError, StalePlanError, UserError
from reconciler.lifecycles import TieringState
from reconciler.operations.clusters.topics import wanted_configs
from reconciler.operations.steps.observe import look_over, measure
from reconciler.operations.steps.orders import plan_orders, require_executable
from reconciler.operations.steps.runner import Emergency, SiteOptions, require_confirmation
from reconciler.operations.steps.workspace import check_allowance
from reconciler.planning.actions import Change, Create, Delete, Reason, Risk, Transition
from reconciler.planning.allowances import allowances
from reconciler.planning.diff.converge import going, rules_left
from reconciler.planning.diff.namespace_orders import name_in
from reconciler.planning.orders import CreateNamespaceOrder, DeleteNamespaceOrder, MoveTopicsOrder
from reconciler.planning.plan import Selection
from reconciler.providers.protocol import Provider, Scope
from reconciler.resources.address import (
    Address,
    address_of,
    check_namespace,
    cluster_of,
    full_name_of,
    kind_of,
    matches,
    rank,
    split_name,
    tiers_of,
)
from reconciler.resources.base import UNLIMITED
from reconciler.resources.namespace import Namespace
from reconciler.resources.topic import Topic
from reconciler.resources.workspace import Guards
from reconciler.runtime.text import bytes_text, counted

if TYPE_CHECKING:
    from reconciler.resources.inventory import Declared, Inventory, Observed, Record, Resource
    from reconciler.resources.measures import Measure


# What lies on a cluster below a namespace, and the errors for names that lead nowhere.


def observe_on(provider: Provider, cluster: str, *patterns: str) -> Inventory:
    """Return what matches patterns.

    Raises:
        UserError: The cluster was never made.
        NotAuthorizedError: Something there may not be seen by the process that acts: it would be overlooked.
    """
    if provider.identify() is None:
        raise UserError(f"cluster {cluster} is not there yet", hint="Create it with: reconciler apply")
    found = provider.observe(Scope(patterns))
    hidden = [item.hidden for _, item in sorted(found.items()) if item.hidden is not None]
    if hidden:
        raise hidden[0]
    return found


def observe_below(provider: Provider, cluster: str, name: str) -> Inventory:
    """Return a namespace, those below it, and all topics in them.

    Raises:
        InvalidNamespaceError: It does not exist.
    """
    below = f"{cluster}/{name}:*"
    patterns = (f"namespace/{cluster}/{name}", f"namespace/{below}", f"topic/{below}", f"mirror/{below}")
    found = observe_on(provider, cluster, *patterns)
    if not name or address_of("namespace", cluster, name) not in found:
        provider.check_shown(address_of("namespace", cluster, name))
        raise unknown_namespace(name, cluster)
    return found


def unknown_namespace(name: str, cluster: str) -> InvalidNamespaceError:
    """Return the error for a namespace that is not there, or for the default one, which always is."""
    message = f"namespace {name!r} does not exist on cluster {cluster}" if name else "the default namespace '' stays"
    return InvalidNamespaceError(message, hint=f"List what does with: reconciler namespace list {cluster}")


def check_name(check: Callable[[str], str], name: str, example: str) -> None:
    """Refuse a name that cannot be.

    Raises:
        UserError: Says what is legal.
    """
    try:
        check(name)
    except ValueError as error:
        raise UserError(f"{name!r} is {error}", hint=f"Example: {example}.") from error
    if not name:
        raise UserError("the default namespace '' always exists", hint=f"Name one, such as {example}.")


@dataclass(frozen=True, slots=True)
class Made:
    """The namespaces that were made, upper tiers first; none where they were there."""

    cluster: str
    namespace: str
    created: tuple[Address, ...]


def create_namespace(emergency: Emergency, cluster: str, name: str, configs: Mapping[str, str]) -> Made:
    """Make a namespace and the tiers above it that are missing; no record says that they are ours.

    Raises:
        UserError: The name or a config cannot be, or a namespace of this cluster is a prefix of names alone.
    """
    check_name(check_namespace, name, "shop:eu")
    site = emergency.site(cluster)
    capabilities = site.providers[cluster].capabilities
    if capabilities.namespaces_are_rules:
        raise UserError(
            f"on cluster {cluster} of platform {capabilities.platform} a namespace is a prefix of names. "
            "There is nothing to create, and nothing that keeps configs",
            hint="Declare the Namespace in a manifest, then apply: its configs are written to each topic in it, and "
            "its acls become rules on the prefix.",
        )
    wanted = wanted_configs(capabilities, configs, ())
    levels = [address_of("namespace", cluster, level) for level in tiers_of(name)]
    order = CreateNamespaceOrder(
        cluster, name, {key: value for key, value in sorted(wanted.items()) if value is not None}
    )

    def decide(provider: Provider, record: Record | None) -> list[Create]:
        observed = observe_on(provider, cluster, *levels)
        plan = require_executable(plan_orders(site, [order], record, observed))
        return [action for action in plan.actions if isinstance(action, Create)]

    actions = emergency.carry_out(site, cluster, decide)
    return Made(cluster, name, tuple(action.address for action in actions))


# `namespace delete`: what goes is shown first, then marked in one commit; `run` finishes it.


@dataclass(frozen=True, slots=True)
class Leaving:
    """A topic that goes with its namespace; `measure` is `None` where it was not measured."""

    address: Address
    measure: Measure | None


@dataclass(frozen=True, slots=True)
class NamespaceDeletion:
    """What goes: a namespace, those below it, and their topics."""

    cluster: str
    namespace: str
    topics: tuple[Leaving, ...]
    nested: tuple[Address, ...]
    detachable: tuple[Address, ...] = ()
    """The topics that could be unmounted instead, which keeps their records in object storage."""
    kept: tuple[str, ...] = ()
    """The access rules of others on these names: they stay."""
    groups: tuple[str, ...] = ()
    """Consumer groups whose names lie in what goes: they stay, with the offsets of other topics."""
    is_marked: bool = True
    """Whether `run` frees the space; else brokers do it by themselves."""

    @property
    def addresses(self) -> frozenset[Address]:
        """All that goes."""
        namespace = address_of("namespace", self.cluster, self.namespace)
        return frozenset({namespace, *self.nested, *(topic.address for topic in self.topics)})


def delete_namespace(
    emergency: Emergency,
    cluster: str,
    name: str,
    *,
    recursive: bool,
    confirm: Callable[[NamespaceDeletion], bool],
    allow: Sequence[str] = (),
) -> NamespaceDeletion:
    """Delete a namespace with its topics, marked in one commit; `confirm` is asked with all that goes.

    `allow`: what may go although the cluster has deletionProtection, as `delete:ADDR`.

    Raises:
        InvalidNamespaceError: It does not exist.
        BlockedError: It holds namespaces and `recursive` is not set, or something in it or all of the cluster is
            protected.
        StalePlanError: More would go than what was confirmed; nothing was done.
    """
    site = emergency.site(cluster)
    provider = site.providers[cluster]
    observed = observe_below(provider, cluster, name)
    recorded = emergency.recorded(site) or {}
    deletion = _deletion(observed, cluster, name, provider, recorded)
    if deletion.nested and not recursive:
        nested = ", ".join(full_name_of(address) for address in deletion.nested[:5])
        message = f"namespace {name} holds namespaces: {nested}{' …' if deletion.nested[5:] else ''}"
        raise BlockedError(f"{message}; nothing was deleted", hint="Delete those first, or all of it: --recursive")
    for address in sorted(observed, key=rank):
        _refuse_protected(address, recorded)
    if site.clusters[cluster].spec.deletion_protection:
        _check_allowed(deletion, allow, is_recursive=recursive)
    require_confirmation(confirm(deletion))

    order = DeleteNamespaceOrder(cluster, name)

    def decide(again: Provider, record: Record | None) -> list[Delete]:
        found = observe_below(again, cluster, name)
        more = sorted(found.keys() - deletion.addresses)
        if more:
            message = f"{more[0]} was made in namespace {name} since it was looked at"
            raise StalePlanError(message, hint="Nothing was deleted. Look again.")
        plan = require_executable(plan_orders(site, [order], record, found, allow, is_measured=False))
        return [action for action in plan.actions if isinstance(action, Delete)]

    emergency.carry_out(site, cluster, decide)
    return deletion


def _check_allowed(deletion: NamespaceDeletion, allow: Sequence[str], *, is_recursive: bool) -> None:
    """Refuse to delete topics of a cluster with deletionProtection that are not allowed by address.

    Raises:
        BlockedError: Some are not.
    """
    allowed = allowances(Guards(), Selection(allow=tuple(map(check_allowance, allow))))
    topics = [topic.address for topic in deletion.topics]
    left = [each for each in topics if not any(one.verb == "delete" and matches(one.pattern, each) for one in allowed)]
    if not left:
        return
    cluster, name = deletion.cluster, deletion.namespace
    more = f" and {counted(len(left) - 1, 'more topic')}" if left[1:] else ""
    command = f"reconciler namespace delete {cluster} {name}{' --recursive' if is_recursive else ''}"
    kinds = sorted({kind_of(each) for each in topics})
    options = " ".join(f"--allow 'delete:{kind}/{cluster}/{name}:*'" for kind in kinds)
    raise BlockedError(
        f"cluster {cluster} has deletionProtection, and namespace {name} holds {left[0]}{more}; nothing was deleted",
        hint=f"Allow it once with: {command} {options}",
    )


def _deletion(observed: Inventory, cluster: str, name: str, provider: Provider, record: Record) -> NamespaceDeletion:
    topics = [address for address in sorted(observed, key=rank) if kind_of(address) != "namespace"]
    measures = measure({cluster: provider}, dict.fromkeys(topics, ()), with_groups=True)
    itself = address_of("namespace", cluster, name)
    nested = [address for address in sorted(observed) if kind_of(address) == "namespace" and address != itself]
    leaving = tuple(Leaving(address, measures.get(address)) for address in topics)
    can_unmount = provider.capabilities.mountings
    detachable = tuple(address for address in topics if can_unmount and _is_tiered(observed[address]))
    are_rules = provider.capabilities.namespaces_are_rules
    gone = {each: _going(each, observed, record, are_rules=are_rules) for each in observed}
    kept = tuple(f"{each}: {rule}" for each in sorted(gone) for rule in rules_left(observed[each], gone[each]))
    groups = () if are_rules else tuple(each for each in provider.groups.names() if each.startswith(f"{name}:"))
    return NamespaceDeletion(cluster, name, leaving, tuple(nested), detachable, kept, groups, is_marked=not are_rules)


def _is_tiered(seen: Observed) -> bool:
    return isinstance(seen.resource, Topic) and seen.legacy is not None and seen.state == TieringState.ENABLED


def _refuse_protected(address: Address, record: Record) -> None:
    last = record.get(address)
    if last is not None and last.protect:
        raise BlockedError(f"{address} is protected", hint="Apply once with protect: false; nothing was deleted.")


def _going(address: Address, observed: Inventory, record: Record, *, are_rules: bool) -> Resource:
    last = record.get(address)
    return going(last.resource if last is not None else None, observed[address].resource, are_rules=are_rules)


# `namespace list`: the hierarchy as it is on the clusters.


class QuotaUsage(NamedTuple):
    """A limit of a namespace, and how much of it is used with the namespaces below; `None`: not measured."""

    quota: str
    limit: int
    used: int | None


def quota_usage(
    provider: Provider, namespace: Address, limits: Mapping[str, int | None], partitions: Mapping[str, int | None]
) -> tuple[QuotaUsage, ...]:
    """Return the limits of a namespace with their usage. `partitions`: of all topics of its cluster, by full name."""
    limited = {word: limit for word, limit in limits.items() if limit is not None and limit != UNLIMITED}
    cluster, below = cluster_of(namespace) or "", f"{full_name_of(namespace)}:"
    inside = {name: count or 1 for name, count in partitions.items() if name.startswith(below)}
    used: dict[str, int | None] = {"topics": len(inside), "partitions": sum(inside.values())}
    if "bytes" in limited:
        topics = [address_of("topic", cluster, name) for name in inside]
        sizes = measure({cluster: provider}, dict.fromkeys(topics, ()), may_lack=(cluster,))
        used["bytes"] = sum(size.bytes for size in sizes.values()) if len(sizes) == len(topics) else None
    return tuple(QuotaUsage(word, limit, used[word]) for word, limit in limited.items())


def limits_of(item: Declared | Observed | None) -> Mapping[str, int | None]:
    """Return the quotas of a namespace by name; none of anything else."""
    quotas = item.resource.spec.quotas if item is not None and isinstance(item.resource, Namespace) else None
    return quotas.to_json() if quotas is not None else {}


@dataclass(frozen=True, slots=True)
class NamespaceRow:
    """One namespace, how many topics lie in it itself, and what they inherit from it; and its quotas."""

    address: Address
    topics: int
    configs: Mapping[str, str]
    quotas: tuple[QuotaUsage, ...] = ()


def list_namespaces(reach: SiteOptions, cluster: str | None, under: str | None = None) -> tuple[NamespaceRow, ...]:
    """Return the namespaces of one cluster, or of all; `under`: only those below that one.

    Raises:
        InvalidNamespaceError: There is no such namespace on that cluster.
    """
    site = reach.site()
    names = site.to_read if cluster is None else [cluster]
    rows = []
    for name, overview in sorted(look_over(site, names, reach.recorded(site)).items()):
        topics = Counter(split_name(full_name_of(topic.address))[0] for topic in overview.topics)
        partitions = {full_name_of(topic.address): topic.partitions for topic in overview.topics}
        for namespace, configs in overview.namespaces.items():
            if not under or namespace.startswith(f"{under}:"):
                address = address_of("namespace", name, namespace)
                limits = overview.quotas.get(namespace) or limits_of(site.desired.get(address))
                used = quota_usage(site.providers[name], address, limits, partitions)
                rows.append(NamespaceRow(address, topics[namespace], configs, used))
        if under and under not in overview.namespaces:
            site.providers[name].check_shown(address_of("namespace", name, under))
            raise InvalidNamespaceError(
                f"namespace {under!r} does not exist on cluster {name}",
                hint=f"List what does with: reconciler namespace list {name}",
            )
    return tuple(rows)


# `namespace move`: topics go into another namespace; the next plan shows what the files still say otherwise.


@dataclass(frozen=True, slots=True)
class Moved:
    """Topics that were moved: (from, to)."""

    cluster: str
    moves: tuple[tuple[Address, Address], ...]
    inherited: Mapping[Address, tuple[Change, ...]] = field(default_factory=dict)
    """What each inherits otherwise, by the address that it has now."""


def move_topics(emergency: Emergency, cluster: str, source: str, target: str, topics: Sequence[str]) -> Moved:
    """Move topics of one namespace to another that is there: those that are named, or all in it and below it.

    Raises:
        InvalidNamespaceError: A namespace they would be in does not exist; none is made implicitly.
        UserError: A topic is not there, cannot be moved, or is not owned; or nothing would say whether it is tiered.
        BlockedError: Records would be lost by what the topics inherit there; nothing was moved.
    """
    site = emergency.site(cluster)
    capabilities = site.providers[cluster].capabilities
    if not capabilities.topic_move:
        name = topics[0] if topics else "TOPIC"
        raise UserError(
            f"on cluster {cluster} of platform {capabilities.platform} a namespace is a prefix of names, and topics "
            "cannot be renamed; nothing was moved",
            hint=f"Move it by the files: in the manifest of {name} {_written(target, name_in(source, name))}, "
            "then plan. Its records are copied and compared, its groups are switched, and the old topic is deleted "
            "last.",
        )
    _check_namespaces(site.providers[cluster], cluster, source, target)
    order = MoveTopicsOrder(cluster, source, target, tuple(topics))

    def decide(provider: Provider, record: Record | None) -> list[Transition]:
        plan = require_executable(plan_orders(site, [order], record, provider.observe(Scope())))
        moves = [action for action in plan.actions if isinstance(action, Transition)]
        _refuse_loss(moves)
        return moves

    done = [each for each in emergency.carry_out(site, cluster, decide) if isinstance(each, Transition)]
    moves = tuple((Address(str(action.parameters["from"])), action.address) for action in done)
    return Moved(cluster, moves, {action.address: action.changes for action in done})


def _refuse_loss(moves: Sequence[Transition]) -> None:
    """Reject all moves if one loses records: only a plan of files can allow that.

    Raises:
        BlockedError: Records would be lost, or that cannot be told.
    """
    lost = [move for move in moves if move.risk is Risk.DATA_LOSS]
    if not lost:
        return
    first, more = lost[0], f" (and {counted(len(lost) - 1, 'more topic')} likewise)" if lost[1:] else ""
    target, name = split_name(full_name_of(first.address))
    place = f"namespace {target}" if target else "the default namespace"
    message = f"{first.parameters['from']}: in {place} {_loss_words(first)}{more}; nothing was moved"
    raise BlockedError(
        message,
        hint=f"Move it by the files: in the manifest of {name} {_written(target, first.from_state)}, then plan. The "
        "plan shows what is lost, and is blocked until it is allowed: "
        f"reconciler apply --allow {first.verb}:{first.address}",
    )


def _written(target: str, old: str) -> str:
    """Return what the manifest of a topic says that moves."""
    moved = f"movedFrom: {json.dumps(old)}"
    return f"write namespace: {json.dumps(target)} and {moved}" if target else f"leave out namespace and write {moved}"


def _loss_words(move: Transition) -> str:
    offsets = sum(each.stop - each.start for each in move.estimate.unreadable)
    if offsets:
        return f"its tiered storage is turned off, which deletes {counted(offsets, 'offset')} in object storage"
    if Reason.BECOMES_UNREADABLE in move.reasons:
        return "its tiered storage is turned off, which deletes what lies in object storage"
    if Reason.COMPACT_ADDED in move.reasons:
        return "it is compacted, which deletes records that later ones of their keys supersede"
    if move.estimate.bytes:
        return f"less is kept, which deletes about {bytes_text(move.estimate.bytes)} of its records"
    return "less is kept, which may delete records (cannot tell how many)"


def _check_namespaces(provider: Provider, cluster: str, *names: str) -> None:
    there = observe_on(provider, cluster, *(f"namespace/{cluster}/{name}" for name in names))
    for name in names:
        if name and address_of("namespace", cluster, name) not in there:
            provider.check_shown(address_of("namespace", cluster, name))
            raise unknown_namespace(name, cluster)
