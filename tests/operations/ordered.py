"""Orders about topics, namespaces and mirrors with usual options; what is refused is raised."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from reconciler.operations.clusters.namespaces import change_namespace
from reconciler.operations.clusters.topic_orders import change_topic
from reconciler.operations.mirrors.mirror_orders import RoleOptions, order_roles
from reconciler.operations.mirrors.mirror_selection import MirrorChoice
from reconciler.planning.orders import AlterTopicOrder, CreateNamespaceOrder, DeleteNamespaceOrder, MoveTopicsOrder
from reconciler.resources.address import Address

if TYPE_CHECKING:
    from reconciler.operations.steps.orders import OrderResult
    from reconciler.operations.steps.runner import Emergency
    from reconciler.planning.orders import RoleVerb
    from reconciler.planning.plan import Plan


def agree(_plan: Plan) -> bool:
    return True


def done(result: OrderResult) -> OrderResult:
    if result.verdict is not None:
        raise result.verdict
    return result


def create_namespace(acting: Emergency, cluster: str, name: str, configs: Mapping[str, str]) -> OrderResult:
    return done(change_namespace(acting, CreateNamespaceOrder(cluster, name, configs)))


def delete_namespace(
    acting: Emergency,
    cluster: str,
    name: str,
    *,
    recursive: bool = False,
    confirm: Callable[[Plan], bool] = agree,
    allow: Sequence[str] = (),
) -> OrderResult:
    order = DeleteNamespaceOrder(cluster, name, recursive)
    return done(change_namespace(acting, order, confirm=confirm, allow=allow))


def move_topics(
    acting: Emergency, cluster: str, source: str, target: str, topics: Sequence[str], *, allow: Sequence[str] = ()
) -> OrderResult:
    order = MoveTopicsOrder(cluster, source, target, tuple(topics))
    return done(change_namespace(acting, order, allow=allow))


def alter_topic(
    acting: Emergency,
    address: str,
    set_: Mapping[str, str],
    delete: Sequence[str] = (),
    *,
    confirm: Callable[[Plan], bool] = agree,
) -> OrderResult:
    order = AlterTopicOrder(Address(address), {**dict.fromkeys(delete), **set_})
    return done(change_topic(acting, order, confirm=confirm))


def give_roles(
    acting: Emergency,
    verb: RoleVerb,
    *mirrors: str,
    links: Sequence[str] = (),
    confirm: Callable[[Plan], bool] = agree,
    is_dry_run: bool = False,
) -> OrderResult:
    """Apply a verb to mirrors; what is refused stays in the result."""
    choice = MirrorChoice(mirrors, links)
    return order_roles(acting, verb, choice, confirm=confirm, options=RoleOptions(is_dry_run=is_dry_run))
