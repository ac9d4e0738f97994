"""`topic create` and `topic delete`: for emergencies, without the files."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from reconciler.errors import UsageError
from reconciler.operations.clusters.topics import wanted_configs
from reconciler.operations.steps.orders import OrderResult, OrderRun
from reconciler.operations.steps.workspace import check_allowance, provider_of, topic_address
from reconciler.planning.orders import CreateTopicOrder, DeleteTopicOrder

if TYPE_CHECKING:
    from reconciler.operations.steps.runner import Emergency
    from reconciler.planning.plan import Plan


def create_topic(
    emergency: Emergency,
    address: str,
    configs: Mapping[str, str],
    *,
    partitions: int,
    replication_factor: int | None = None,
    is_dry_run: bool = False,
) -> OrderResult:
    """Create a topic; no record says that it is ours, so the next plan lists it as unmanaged.

    Raises:
        UserError: A config is not one of the platform, or another cluster answers.
        LeaseError: Someone else is applying.
    """
    topic = topic_address(address)
    site = emergency.open()
    wanted = wanted_configs(provider_of(site, topic).capabilities, configs, (), topic)
    order = CreateTopicOrder(
        topic=topic,
        partitions=partitions,
        replication_factor=replication_factor,
        configs={key: value for key, value in wanted.items() if value is not None},
    )
    return OrderRun(
        emergency=emergency,
        site=site,
        command="topic create",
        noun="topics",
        orders={topic: order},
        is_dry_run=is_dry_run,
    ).carry_out()


def delete_topics(
    emergency: Emergency,
    addresses: Sequence[str],
    *,
    confirm: Callable[[Plan], bool],
    allow: Sequence[str] = (),
    is_dry_run: bool = False,
) -> OrderResult:
    """Delete topics with their records, and continue with the rest if one fails.

    The state still lists deleted topics, so the next plan shows them as missing. `allow`: `delete:ADDR` overrides
    deletionProtection.

    Raises:
        UsageError: An address is a pattern.
        UserError: It was not confirmed, or another cluster answers.
        LeaseError: Someone else is applying.
    """
    for address in addresses:
        if "*" in address:
            message = f"{address} may name more than one topic, and a delete takes no patterns"
            raise UsageError(message, hint="Name each topic. List them with: reconciler topic list")
    return OrderRun(
        emergency=emergency,
        site=emergency.open(),
        command="topic delete",
        noun="topics",
        orders={topic: DeleteTopicOrder(topic) for topic in map(topic_address, addresses)},
        allow=tuple(map(check_allowance, allow)),
        confirm=confirm,
        is_dry_run=is_dry_run,
    ).carry_out()
