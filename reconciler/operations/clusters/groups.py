"""`group list`, `describe`, `reset` and `delete`."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from reconciler.errors import BlockedError, UserError
from reconciler.operations.steps.runner import SiteOptions, require_confirmation
from reconciler.providers.protocol import require_groups
from reconciler.records.log import MAX_OFFSET
from reconciler.resources.address import Address, full_name_of, kind_of
from reconciler.resources.groups import (
    ByShift,
    ConsumerGroup,
    OffsetMove,
    Reset,
    ToEarliest,
    ToLatest,
    ToOffset,
    ToTime,
)
from reconciler.runtime.dataclass import dataclass, replace

if TYPE_CHECKING:
    from reconciler.providers.protocol import Groups


_SHIFT: Final = re.compile(r"[+-][0-9]{1,19}")
_OFFSET: Final = re.compile(r"[0-9]{1,4000}")


@dataclass(frozen=True, slots=True)
class GroupNames:
    """Group names of one cluster."""

    cluster: str
    groups: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DescribedGroup:
    """One group of one cluster."""

    cluster: str
    group: ConsumerGroup


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupChange:
    """A change of a group's offsets. `None` for `topic` or `partition` means all."""

    cluster: str
    group: str
    topic: str | None = None
    partition: int | None = None
    force: bool = False


@dataclass(frozen=True, slots=True)
class GroupReset:
    """Reset of committed offsets."""

    cluster: str
    group: str
    moves: tuple[OffsetMove, ...]
    shift: int = 0
    """Offsets to shift by; 0 if `--to` names a position."""


@dataclass(frozen=True, slots=True)
class GroupDeletion:
    """Deletion of a group, or of its offsets in one topic."""

    cluster: str
    group: ConsumerGroup
    topic: str | None
    """`null` to delete the whole group."""


def list_groups(reach: SiteOptions, cluster: str) -> GroupNames:
    """Return the group names of a cluster."""
    name = parse_cluster_name(cluster)
    return GroupNames(name, tuple(_open_groups(reach, name).list_names()))


def describe_group(reach: SiteOptions, cluster: str, group: str) -> DescribedGroup:
    """Return the committed offsets and lag of a group."""
    name = parse_cluster_name(cluster)
    return DescribedGroup(name, _open_groups(reach, name).describe(group))


def reset_group(
    reach: SiteOptions, change: GroupChange, to: str, *, confirm: Callable[[GroupReset], bool]
) -> GroupReset:
    """Set a group's committed offsets. Raises `BlockedError` while it reads the topics.

    `confirm` is called only if an offset changes.
    """
    reset, name, topic = parse_reset(to), parse_cluster_name(change.cluster), _parse_topic(change)
    groups = _open_groups(reach, name, is_writing=True)
    change = replace(change, group=groups.find_platform_name(change.group))
    moves = tuple(groups.plan_reset(change.group, reset, topic=topic, partition=change.partition))
    done = GroupReset(name, change.group, moves, reset.offsets if isinstance(reset, ByShift) else 0)
    if moves:
        if not change.force and any(move.before is not None for move in moves):
            consumer_group = groups.describe(change.group)
            _reject_group_reading(
                consumer_group,
                consumer_group.list_recently_read(reach.invocation.now_ms()) & {move.topic for move in moves},
            )
        require_confirmation(confirm(done))
        groups.reset_offsets(change.group, moves, force=change.force)
    return done


def delete_group(reach: SiteOptions, change: GroupChange, *, confirm: Callable[[GroupDeletion], bool]) -> GroupDeletion:
    """Delete a group, or its offsets in one topic. Raises `BlockedError` while it reads the topics."""
    name, topic = parse_cluster_name(change.cluster), _parse_topic(change)
    groups = _open_groups(reach, name, is_writing=True)
    consumer_group = groups.describe(change.group)
    deletion = GroupDeletion(name, consumer_group, topic)
    if consumer_group.is_reading and consumer_group.last_commit_ms is None:
        _reject_active_group(consumer_group)
    if not change.force and (topic is None and consumer_group.is_reading):
        _reject_group_reading(consumer_group, {offset.topic for offset in consumer_group.offsets})
    if not change.force and topic is not None:
        _reject_group_reading(consumer_group, consumer_group.list_recently_read(reach.invocation.now_ms()) & {topic})
    require_confirmation(confirm(deletion))
    groups.delete(change.group, topic, force=change.force)
    return deletion


def parse_reset(text: str) -> Reset:
    """Parse `earliest`, `latest`, an offset, a signed shift, or a time."""
    if text == "earliest":
        return ToEarliest()
    if text == "latest":
        return ToLatest()
    if _OFFSET.fullmatch(text):
        if int(text) > MAX_OFFSET:
            raise UserError(f"--to {text} is not an offset", hint=f"Offsets go from 0 to {MAX_OFFSET}.")
        return ToOffset(int(text))
    if _SHIFT.fullmatch(text):
        return ByShift(int(text))
    from reconciler.records.schema import BadTimeError, to_milliseconds  # noqa: PLC0415 - imports Arrow

    try:
        return ToTime(int(to_milliseconds([text])[0].as_py()))
    except BadTimeError as error:
        if error.is_early:
            raise UserError(f"--to {text!r} is before 1970", hint="Times of records begin with 1970.") from error
        raise UserError(
            f"--to {text!r} is neither earliest, latest, an offset, a shift (+10, -10), nor a time",
            hint="Write a time as 2013-01-01T05:00:00Z.",
        ) from error


def parse_cluster_name(text: str) -> str:
    """Return a cluster's name, given its name or address."""
    return text.removeprefix("cluster/")


def _open_groups(reach: SiteOptions, cluster: str, *, is_writing: bool = False) -> Groups:
    site = reach.open_site()
    if is_writing:
        reach.check_writable(site, cluster)
    else:
        reach.check_answers(site, cluster)
    return require_groups(site.providers[cluster])


def _parse_topic(change: GroupChange) -> str | None:
    if change.topic is None or "/" not in change.topic:
        return change.topic
    address = Address(change.topic)
    if kind_of(address) not in {"topic", "mirror"} or not change.topic.startswith(
        f"{kind_of(address)}/{parse_cluster_name(change.cluster)}/"
    ):
        message = f"{change.topic!r} is not a topic of cluster {parse_cluster_name(change.cluster)}"
        raise UserError(message, hint="Write it as shop:eu:orders.")
    return full_name_of(address)


def _reject_active_group(group: ConsumerGroup) -> None:
    raise BlockedError(f"group {group.name} is reading: it has members", hint="Stop its consumers first.")


def _reject_group_reading(group: ConsumerGroup, topics: frozenset[str] | set[str]) -> None:
    if topics:
        raise BlockedError(
            f"group {group.name} is reading {', '.join(sorted(topics)[:5])}: it committed within the last 24 hours",
            hint="Stop its consumers, then force it (--force): reconciler cannot see whether they stopped.",
        )
