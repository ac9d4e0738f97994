"""`topic create`, `alter`, `delete` and `trim`, which do not use the files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from reconciler.errors import UsageError, UserError
from reconciler.operations.clusters.mounts import explain_unmounted
from reconciler.operations.clusters.topics import find_topic, parse_wanted_configs
from reconciler.operations.steps.orders import OrderResult, OrderRun
from reconciler.operations.steps.workspace import Site, check_allowance, get_address_provider, parse_topic_address
from reconciler.planning.orders import AlterTopicOrder, CreateTopicOrder, DeleteTopicOrder, TrimTopicOrder
from reconciler.records.log import MAX_OFFSET
from reconciler.resources.address import cluster_of
from reconciler.resources.groups import ToOffset, ToTime
from reconciler.runtime.dataclass import dataclass, replace
from reconciler.runtime.text import list_first, pluralize
from reconciler.runtime.threads import map_in_parallel

if TYPE_CHECKING:
    from reconciler.operations.steps.runner import EmergencyRun
    from reconciler.planning.plan import Plan
    from reconciler.resources.address import Address


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


@dataclass(frozen=True, slots=True)
class TrimOptions:
    """Records to delete: those before an offset or a time, in one partition or in all."""

    address: str
    before: str
    partition: int | None = None


def trim_topic(
    emergency: EmergencyRun,
    options: TrimOptions,
    *,
    confirm: Callable[[Plan], bool],
    allow: Sequence[str] = (),
    is_dry_run: bool = False,
) -> OrderResult:
    """Delete a topic's first records.

    A time becomes offsets once, before the plan is shown: no later record is deleted.
    """
    topic = parse_topic_address(options.address)
    site = emergency.open_site()
    emergency.check_answers(site, cluster_of(topic) or "")
    with explain_unmounted(site, topic):
        order = _find_offsets(site, topic, options)
    return OrderRun(
        emergency=emergency,
        site=site,
        noun="topics",
        orders={topic: order},
        allow=tuple(map(check_allowance, allow)),
        confirm=confirm,
        is_dry_run=is_dry_run,
        names_parts=True,
    ).execute_orders()


_LIMIT_HINT: Final = "Write an offset as 1200, or a time as 2013-01-01T05:00:00Z."


def parse_limit(text: str) -> ToOffset | ToTime:
    """Parse the value of `--before`: an offset or a time."""
    from reconciler.operations.clusters.groups import parse_reset  # noqa: PLC0415 - only this command needs it

    try:
        limit = parse_reset(text)
    except UserError as error:
        raise UsageError(f"--before {text!r} is neither an offset nor a time since 1970", hint=_LIMIT_HINT) from error
    if not isinstance(limit, ToOffset | ToTime):
        raise UsageError(f"--before {text!r} is neither an offset nor a time", hint=_LIMIT_HINT)
    return limit


def _find_offsets(site: Site, topic: Address, options: TrimOptions) -> TrimTopicOrder:
    limit, partition = parse_limit(options.before), options.partition
    provider = get_address_provider(site, topic)
    find_topic(provider, topic)
    log = provider.open_log(topic, isolation="read_uncommitted")
    bounds = log.read_bounds()
    if partition is not None and partition not in bounds:
        hint = f"It has {pluralize(len(bounds), 'partition')}; they count from 0."
        raise UserError(f"{topic} has no partition {partition}", hint=hint)
    numbers = sorted(bounds) if partition is None else [partition]
    if isinstance(limit, ToOffset):
        wanted = dict.fromkeys(numbers, limit.offset)
    else:
        at = map_in_parallel(lambda number: log.find_offset_at(number, limit.at_ms), numbers, name="offsets")
        wanted = {number: MAX_OFFSET if offset is None else offset for number, offset in zip(numbers, at, strict=True)}
    beyond = [str(number) for number in numbers if bounds[number].start < bounds[number].end < wanted[number]]
    what = f"offset {limit.offset:,}" if isinstance(limit, ToOffset) else options.before
    note = (
        f"{what} is after the last record of {'partitions' if beyond[1:] else 'partition'} "
        f"{list_first(beyond, 5, grouping='')}: all existing records there are deleted, and later ones stay"
        if beyond
        else None
    )
    return TrimTopicOrder(topic, {number: min(wanted[number], bounds[number].stable) for number in numbers}, note)
