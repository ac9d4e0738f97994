"""`topic create`, `alter` and `delete`, which do not use the files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from reconciler.errors import UsageError
from reconciler.operations.clusters.topics import parse_wanted_configs
from reconciler.operations.steps.orders import OrderResult, OrderRun
from reconciler.operations.steps.workspace import check_allowance, get_address_provider, parse_topic_address
from reconciler.planning.orders import AlterTopicOrder, CreateTopicOrder, DeleteTopicOrder

if TYPE_CHECKING:
    from reconciler.operations.steps.runner import EmergencyRun
    from reconciler.planning.plan import Plan


def change_topic(
    emergency: EmergencyRun,
    order: CreateTopicOrder | AlterTopicOrder,
    *,
    confirm: Callable[[Plan], bool] | None = None,
    is_dry_run: bool = False,
) -> OrderResult:
    """Create or alter a topic, without the state.

    The next plan reports a new topic as unmanaged, and changed configs as drift.
    """
    topic = parse_topic_address(order.topic)
    site = emergency.open_site()
    capabilities = get_address_provider(site, topic).capabilities
    is_new = isinstance(order, CreateTopicOrder)
    return OrderRun(
        emergency=emergency,
        site=site,
        noun="topics",
        orders={topic: replace(order, topic=topic, configs=parse_wanted_configs(capabilities, order.configs, topic))},
        confirm=confirm,
        is_dry_run=is_dry_run,
        names_parts=not is_new,
    ).execute_orders()


def delete_topics(
    emergency: EmergencyRun,
    addresses: Sequence[str],
    *,
    confirm: Callable[[Plan], bool],
    allow: Sequence[str] = (),
    is_dry_run: bool = False,
) -> OrderResult:
    """Delete topics with their records. A failed topic does not stop the others."""
    for address in addresses:
        if "*" in address:
            message = f"{address} may name more than one topic, and a delete takes no patterns"
            raise UsageError(message, hint="Name each topic. List them with: reconciler topic list")
    return OrderRun(
        emergency=emergency,
        site=emergency.open_site(),
        noun="topics",
        orders={topic: DeleteTopicOrder(topic) for topic in map(parse_topic_address, addresses)},
        allow=tuple(map(check_allowance, allow)),
        confirm=confirm,
        is_dry_run=is_dry_run,
    ).execute_orders()
