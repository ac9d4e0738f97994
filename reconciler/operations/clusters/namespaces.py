"""`namespace list`, `create`, `alter`, `move` and `delete`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias, assert_never

import yaml
from pydantic import ValidationError

from reconciler.errors import InvalidNamespaceError, UsageError, UserError
from reconciler.operations.clusters.topics import parse_wanted_configs
from reconciler.operations.steps.observe import measure, read_overviews
from reconciler.operations.steps.orders import OrderResult, OrderRun
from reconciler.operations.steps.workspace import check_allowance
from reconciler.planning.actions import Delete
from reconciler.planning.orders import AlterNamespaceOrder, CreateNamespaceOrder, DeleteNamespaceOrder, MoveTopicsOrder
from reconciler.planning.plan import PlanFinding
from reconciler.resources.acls import NamespaceAcl
from reconciler.resources.address import Address, address_of, check_namespace, cluster_of, full_name_of, split_name
from reconciler.resources.base import UNLIMITED
from reconciler.resources.namespace import Namespace
from reconciler.runtime.dataclass import dataclass, replace
from reconciler.runtime.text import explain_invalid, list_first, pluralize

if TYPE_CHECKING:
    from reconciler.operations.steps.runner import EmergencyRun, SiteOptions
    from reconciler.planning.plan import Plan
    from reconciler.providers.protocol import Provider
    from reconciler.resources.inventory import DeclaredResource, Observed


NamespaceOrder: TypeAlias = CreateNamespaceOrder | AlterNamespaceOrder | DeleteNamespaceOrder | MoveTopicsOrder


def change_namespace(
    emergency: EmergencyRun,
    order: NamespaceOrder,
    *,
    confirm: Callable[[Plan], bool] | None = None,
    allow: Sequence[str] = (),
    is_dry_run: bool = False,
) -> OrderResult:
    """Apply one change to a namespace. If a part of it is rejected, nothing changes."""
    name = order.source if isinstance(order, MoveTopicsOrder) else order.name
    if isinstance(order, CreateNamespaceOrder):
        _check_name(name)
    site, namespace = emergency.open_site(), address_of("namespace", order.cluster, name)
    emergency.check_answers(site, order.cluster)
    provider = site.providers[order.cluster]
    match order:
        case CreateNamespaceOrder() | AlterNamespaceOrder():
            order = replace(order, configs=parse_wanted_configs(provider.capabilities, order.configs))
        case DeleteNamespaceOrder() | MoveTopicsOrder():
            pass
        case _:
            assert_never(order)
    if not isinstance(order, CreateNamespaceOrder):
        for full_name in (name, order.target) if isinstance(order, MoveTopicsOrder) else (name,):
            if full_name:
                provider.check_visible(address_of("namespace", order.cluster, full_name))
    result = OrderRun(
        emergency=emergency,
        site=site,
        noun="namespaces",
        orders={namespace: order},
        allow=tuple(map(check_allowance, allow)),
        confirm=None if confirm is None else lambda plan: confirm(_warn_of_groups(plan, provider)),
        is_dry_run=is_dry_run,
        names_parts=isinstance(order, CreateNamespaceOrder | MoveTopicsOrder),
    ).execute_orders()
    return replace(result, plan=_warn_of_groups(result.plan, provider)) if is_dry_run else result


def _check_name(name: str) -> None:
    try:
        check_namespace(name)
    except ValueError as error:
        raise UserError(f"{name!r} is {error}", hint="Example: shop:eu.") from error
    if not name:
        raise UserError("the default namespace '' always exists", hint="Name one, such as shop:eu.")


def parse_access_rule(option: str, text: str, defaults: Mapping[str, object] | None = None) -> NamespaceAcl:
    """Parse an option's access rule in YAML."""
    try:
        typed = yaml.safe_load(text)
        return NamespaceAcl.model_validate({**(defaults or {}), **typed} if isinstance(typed, dict) else typed)
    except (yaml.YAMLError, ValidationError) as error:
        why = explain_invalid(error) if isinstance(error, ValidationError) else str(error).partition("\n")[0]
        example = "'{principal: User:checkout, operations: [read]}'"
        raise UsageError(f"{option} {text}: {why}", hint=f"Write it as {option} {example}") from error


_SHOWN_GROUPS: Final = 50


def _warn_of_groups(plan: Plan, provider: Provider) -> Plan:
    gone = next((action.address for action in reversed(plan.actions) if isinstance(action, Delete)), None)
    if gone is None or provider.capabilities.namespaces_are_rules or provider.groups is None:
        return plan
    groups = [name for name in provider.groups.list_names() if name.startswith(f"{full_name_of(gone)}:")]
    if not groups:
        return plan
    message = f"{pluralize(len(groups), 'group')} named in it: {list_first(groups, _SHOWN_GROUPS, grouping='')}"
    hint = f"Groups stay until they are deleted: reconciler group delete {cluster_of(gone)} {groups[0]}"
    return replace(plan, warnings=(*plan.warnings, PlanFinding(gone, None, message, hint)))


class QuotaUsage(NamedTuple):
    """A quota of a namespace, and its use, including nested namespaces."""

    quota: str
    limit: int
    used: int | None
    """`null` if a topic was not measured."""


def compute_quota_usage(
    provider: Provider, namespace: Address, limits: Mapping[str, int | None], partitions: Mapping[str, int | None]
) -> tuple[QuotaUsage, ...]:
    """Return quotas and use of a namespace. `partitions` maps topics to partition counts."""
    limited = {word: limit for word, limit in limits.items() if limit is not None and limit != UNLIMITED}
    cluster, below = cluster_of(namespace) or "", f"{full_name_of(namespace)}:"
    inside = {name: count or 1 for name, count in partitions.items() if name.startswith(below)}
    used: dict[str, int | None] = {"topics": len(inside), "partitions": sum(inside.values())}
    if "bytes" in limited:
        topics = [address_of("topic", cluster, name) for name in inside]
        sizes = measure({cluster: provider}, dict.fromkeys(topics, ()), optional=(cluster,))
        used["bytes"] = sum(size.bytes for size in sizes.values()) if len(sizes) == len(topics) else None
    return tuple(QuotaUsage(word, limit, used[word]) for word, limit in limited.items())


def read_quota_limits(item: DeclaredResource | Observed | None) -> Mapping[str, int | None]:
    """Return a namespace's quotas; empty for other resources."""
    quotas = item.resource.spec.quotas if item is not None and isinstance(item.resource, Namespace) else None
    return quotas.to_json() if quotas is not None else {}


@dataclass(frozen=True, slots=True)
class NamespaceRow:
    """A namespace with topic count, inheritable configs and quotas."""

    address: Address
    topics: int
    """Number of topics directly in the namespace."""
    configs: Mapping[str, str]
    quotas: tuple[QuotaUsage, ...] = ()
    """Quotas with a limit."""


def list_namespaces(reach: SiteOptions, cluster: str | None, under: str | None = None) -> tuple[NamespaceRow, ...]:
    """Return namespaces of one or all clusters, or only those below `under`."""
    site = reach.open_site()
    names = site.clusters_to_read if cluster is None else [cluster]
    rows = []
    for name, overview in sorted(read_overviews(site, names, reach.read_recorded_ids(site)).items()):
        topics = Counter(split_name(full_name_of(topic.address))[0] for topic in overview.topics)
        partitions = {full_name_of(topic.address): topic.partitions for topic in overview.topics}
        for namespace, configs in overview.namespaces.items():
            if not under or namespace.startswith(f"{under}:"):
                address = address_of("namespace", name, namespace)
                limits = overview.quotas.get(namespace) or read_quota_limits(site.desired.get(address))
                used = compute_quota_usage(site.providers[name], address, limits, partitions)
                rows.append(NamespaceRow(address, topics[namespace], configs, used))
        if under and under not in overview.namespaces:
            site.providers[name].check_visible(address_of("namespace", name, under))
            raise InvalidNamespaceError(
                f"namespace {under!r} does not exist on cluster {name}",
                hint=f"List the existing ones with: reconciler namespace list {name}",
            )
    return tuple(rows)
