"""Turn an order to trim a topic into an action."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from reconciler.planning.actions import START_OFFSETS, Block, Change, Estimate, Reason, Risk, Update
from reconciler.planning.diff.converge import GOING, compute_precondition
from reconciler.planning.diff.retention_loss import RetentionRule
from reconciler.planning.diff.topic_orders import ENABLED, compute_topic_configs, explain_unknown_topic, find_followers
from reconciler.planning.orders import TrimTopicOrder
from reconciler.planning.situation import STOPPED, as_mirror, as_topic
from reconciler.resources.address import Address, cluster_of
from reconciler.resources.mirror_link import MirrorTopic
from reconciler.resources.mount import MIGRATING
from reconciler.resources.topic import Topic
from reconciler.runtime.text import list_first, pluralize

if TYPE_CHECKING:
    from reconciler.planning.actions import Action
    from reconciler.planning.diff.converge import Decision
    from reconciler.planning.situation import Situation
    from reconciler.resources.inventory import Observed


def trim_topic(order: TrimTopicOrder, situation: Situation, decision: Decision) -> None:
    """Add the deletion of a topic's first records. Its record stays."""
    topic, observed = order.topic, situation.observed
    address = next((at for at in (topic, as_mirror(topic)) if at in observed), topic)
    seen = observed.get(address)
    refusal = _refuse(address, seen, situation) if seen is not None else explain_unknown_topic(topic, situation)
    readers = order.readers
    if refusal is not None:
        decision.refuse(topic, None, *refusal)
    if refusal is not None or seen is None or readers is None:
        return
    starts = readers.starts
    offsets = {number: offset for number, offset in sorted(order.offsets.items()) if number in starts}
    notes = [] if order.note is None else [order.note]
    below = [number for number, offset in offsets.items() if offset <= starts[number][0]]
    if below:
        first = f"partition {below[0]} begins at offset {starts[below[0]][0]:,}"
        count = pluralize(len(offsets), "partition")
        notes.append(f"{first}: {len(below):,} of {count} have no records to delete")
    for note in notes:
        decision.warn(address, None, note, f"See the offsets: reconciler topic describe {topic}")
    changes = tuple(
        Change(f"{START_OFFSETS}{number}", starts[number][0], min(offset, starts[number][1]))
        for number, offset in offsets.items()
        if min(offset, starts[number][1]) > starts[number][0]
    )
    if not changes:
        return
    action = Update(
        address=address,
        before=seen.resource,
        after=seen.resource,
        changes=changes,
        risk=Risk.DATA_LOSS,
        reasons=(Reason.BY_COMMAND,),
        precondition=compute_precondition(address, seen),
    )
    behind = None if readers.groups is None else tuple(_find_groups_behind(action, readers.groups))
    decision.actions.append(replace(action, estimate=Estimate(records=_count_offsets(action, {}), groups=behind)))
    _warn_of_readers(action, seen, behind, decision)
    for mirror in find_followers(topic, situation):
        hint = f"See how far it has copied: reconciler mirror describe {mirror}"
        decision.warn(address, None, f"{mirror} copies from it, and never gets deleted records", hint)


def guard_trim(action: Action, situation: Situation) -> Block | None:
    """Block a trim, and name the mirrors that have not copied the records."""
    if not isinstance(action, Update) or not action.is_trim:
        return None
    offsets, partitions = pluralize(_count_offsets(action, {}), "offset"), pluralize(len(action.changes), "partition")
    message = f"{offsets} of {partitions} would be deleted, and nothing brings their records back"
    topic = as_topic(action.after) if isinstance(action.after, MirrorTopic) else action.address
    orders = (order for order in situation.request.orders if isinstance(order, TrimTopicOrder))
    copied = next((order.readers.mirrors for order in orders if order.topic == topic and order.readers), {})
    for mirror in find_followers(topic, situation):
        positions = copied.get(mirror)
        lacked = None if positions is None else _count_offsets(action, positions)
        if lacked is None:
            message += f"; how much of them {mirror} has copied is unknown"
        elif lacked:
            message += f"; {mirror} has not copied {pluralize(lacked, 'offset')} of them"
    return Block("data_loss", message, f"trim:{action.address}")


def _refuse(address: Address, seen: Observed, situation: Situation) -> tuple[str, str] | None:
    if isinstance(seen.resource, MirrorTopic) and seen.state != STOPPED:
        hint = "Trim its source. To keep the mirror's topic without its source: reconciler mirror failover."
        return f"{address} is a mirror: its records come from its source", hint
    if seen.is_internal:
        return f"{address} is internal: its cluster needs its records", "Name a topic of your own."
    if seen.state in {GOING, MIGRATING}:
        what = "being deleted" if seen.state == GOING else "being mounted or unmounted"
        return f"{address} is {what}", "See how far it is: reconciler mount status"
    if isinstance(seen.resource, Topic) and seen.resource.spec.read_replica_of is not None:
        return f"{address} is a read replica: its records belong to its source", "Trim its source."
    cluster = situation.find_capabilities(cluster_of(address) or "")
    configs = {key: value for key, (value, _) in compute_topic_configs(address, seen, situation).items()}
    retention = RetentionRule.read(configs.get, cluster.configs, cluster.defaults)
    if retention.compacts and not retention.deletes:
        message = f"{address} has cleanup.policy=compact: only a topic whose policy has delete can be trimmed"
        return message, "Write a record without a value for each key to delete, and let compaction remove them."
    return situation.explain_foreign_owner(address)


def _find_groups_behind(action: Update, groups: Mapping[str, Mapping[int, int]]) -> list[str]:
    after = action.start_offsets
    return [
        group
        for group, committed in sorted(groups.items())
        if any(number in after and offset < after[number] for number, offset in committed.items())
    ]


def _count_offsets(action: Update, copied: Mapping[int, int]) -> int:
    """Return the number of deleted offsets from the copied offsets on."""
    return sum(
        max(0, change.after - max(change.before, copied.get(number, 0)))
        for change in action.changes
        if isinstance(change.after, int) and isinstance(change.before, int)
        for number in [int(change.path.removeprefix(START_OFFSETS))]
    )


def _warn_of_readers(action: Update, seen: Observed, behind: tuple[str, ...] | None, decision: Decision) -> None:
    if behind is None or behind:
        names = (
            f"{list_first(behind, 5, grouping='')} have not read" if behind else "groups may exist that have not read"
        )
        hint = "They continue at the new first offset, or where their auto.offset.reset says."
        decision.warn(action.address, None, f"{names} all of these records", hint)
    if seen.state == ENABLED or seen.topic.legacy is not None:
        hint = "To keep them, copy the topic first, for example by a mirror on another cluster."
        message = (
            "its segments in object storage below the new first offsets are deleted as well, also for read replicas"
        )
        decision.warn(action.address, None, message, hint)
