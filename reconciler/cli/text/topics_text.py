"""Topics, namespaces, groups, storage and checks as text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import groupby
from typing import TYPE_CHECKING, Final

from reconciler.cli.text.amounts import format_configs, format_field_value, format_quota_usage
from reconciler.cli.text.lines import EMPTY, Line, Span, Tone, make_line, make_plain_table, make_table
from reconciler.resources.acls import ACLS
from reconciler.resources.address import cluster_of
from reconciler.resources.base import format_duration
from reconciler.resources.configs import BROKERS, DEFAULT, format_value
from reconciler.resources.measures import PartitionStorage, TieringShown, TierUsage, TopicStorage
from reconciler.runtime.text import format_bytes, format_count, format_elapsed, pluralize

if TYPE_CHECKING:
    from reconciler.embedded.check.damage import CheckFinding, CheckResult
    from reconciler.errors import ReconcilerError
    from reconciler.operations.clusters.cluster_check import CheckedCluster
    from reconciler.operations.clusters.groups import DescribedGroup, GroupDeletion, GroupNames, GroupReset
    from reconciler.operations.clusters.namespaces import NamespaceRow
    from reconciler.operations.clusters.topics import PartitionRow, ProfiledTopic, Storages, TopicDescription
    from reconciler.operations.steps.effective import AclRow, ConfigRow
    from reconciler.resources.groups import ConsumerGroup, GroupOffset, OffsetMove
    from reconciler.resources.inventory import TopicShown
    from reconciler.resources.topic_profile import Counts, Gap, KeyProfile, PartitionProfile, Profile, Timeline


def format_group_names(groups: GroupNames) -> list[Line]:
    """Format a group name per line."""
    if not groups.groups:
        return [make_line(f"No group has committed offsets on cluster {groups.cluster}.")]
    return [make_line(name) for name in groups.groups]


def format_group(described: DescribedGroup) -> list[Line]:
    """Format a group's state, and the lag by partition."""
    group = described.group
    rows = [
        (
            *(
                row.topic,
                str(row.partition),
                _format_count_or_dash(row.committed),
                _format_count_or_dash(row.lag),
                *_build_end_cells(row),
            ),
            *(format_time(row.at_ms), _explain_outside_log(row)),
        )
        for row in group.offsets
    ]
    headings = ("topic", "partition", "committed", "lag", "start", "stable", "end", "last commit", "")
    return [
        make_line(Span(group.name, Tone.STRONG), f" on {described.cluster}"),
        make_line(f"  {format_group_state(group)}, lag {format_count(group.lag)}"),
        *([EMPTY, *make_table(headings, rows, numbers=(1, 2, 3, 4, 5, 6))] if rows else []),
    ]


def format_readers(groups: Sequence[ConsumerGroup] | None) -> list[Line]:
    """Format a topic's consumer groups with lags by partition."""
    if groups is None:
        return [
            make_line(
                Span("The groups that read it are unknown: there are too many, or one cannot be read.", Tone.QUIET)
            )
        ]
    if not groups:
        return []
    rows = [
        (group.name, format_group_state(group), format_count(group.lag), _format_partition_lags(group))
        for group in groups
    ]
    return make_table(("group", "", "lag", "by partition"), rows, numbers=(2,))


def format_reset(reset: GroupReset) -> list[Line]:
    """Format old and new offsets, or why no offset moves."""
    if not reset.moves and reset.shift:
        border = "first offset" if reset.shift < 0 else "end"
        where = f"is at the {border} of its log already, or it has committed nothing there"
        return [
            make_line(f"Nothing moves: a shift moves what was committed; what group {reset.group} committed {where}")
        ]
    if not reset.moves:
        return [make_line(f"Group {reset.group} is there already: nothing moves")]
    rows = [
        (move.topic, str(move.partition), _format_count_or_dash(move.before), "→", *_build_move_cells(move))
        for move in reset.moves
    ]
    return [
        make_line(Span("~ ", Tone.CHANGE), Span(reset.group, Tone.STRONG), f" on {reset.cluster}"),
        *make_table(("topic", "partition", "from", "", "to", ""), rows, numbers=(1, 2, 4)),
    ]


def format_group_deletion(deletion: GroupDeletion) -> list[Line]:
    """Format the committed offsets that a deletion removes."""
    group, topic = deletion.group, deletion.topic
    rows = [row for row in group.offsets if row.committed is not None and topic in {None, row.topic}]
    what = "all offsets" if topic is None else f"offsets of {topic}"
    cells = [
        (row.topic, str(row.partition), _format_count_or_dash(row.committed), _format_count_or_dash(row.lag))
        for row in rows
    ]
    return [
        make_line(Span("- ", Tone.DANGER), Span(group.name, Tone.STRONG), f" on {deletion.cluster}: {what}"),
        *(make_table(("topic", "partition", "committed", "lag"), cells, numbers=(1, 2, 3)) if cells else []),
    ]


def format_reset_result(reset: GroupReset) -> list[Line]:
    """Format the number of reset partitions; empty if no offset moved."""
    return (
        [make_line(f"Reset {pluralize(len(reset.moves), 'partition')} of group {reset.group}")] if reset.moves else []
    )


def format_deletion_result(deletion: GroupDeletion) -> list[Line]:
    """Format the deleted group, or topic of deleted offsets."""
    what = f"group {deletion.group.name}"
    return [
        make_line(
            f"Deleted {what}" if deletion.topic is None else f"Deleted the offsets of {what} for {deletion.topic}"
        )
    ]


def format_group_state(group: ConsumerGroup) -> str:
    """Format whether a group is active, or since when it is idle."""
    kind = "" if group.type in {None, "classic", "consumer"} else f"{group.type} group, "
    if group.is_reading:
        return f"{kind}reading"
    return f"{kind}idle" if group.last_commit_ms is None else f"{kind}idle since {format_time(group.last_commit_ms)}"


def format_time(at_ms: int | None) -> str:
    """Format a time in UTC, without fractions of seconds; empty for `None`."""
    if at_ms is None:
        return ""
    try:
        return f"{datetime.fromtimestamp(at_ms // 1000, tz=UTC):%Y-%m-%dT%H:%M:%SZ}"
    except (ValueError, OverflowError, OSError):
        return str(at_ms)


def _format_partition_lags(group: ConsumerGroup) -> str:
    shown = [f"{row.partition}: {_format_count_or_dash(row.lag)}" for row in group.offsets if row.lag != 0]
    more = f", … {pluralize(len(shown) - _MAX_LAGS, 'more partition')}" if len(shown) > _MAX_LAGS else ""
    return ", ".join(shown[:_MAX_LAGS]) + more


_MAX_LAGS = 10


def _build_end_cells(row: GroupOffset) -> tuple[str, str, str]:
    return format_count(row.start), format_count(row.stable), format_count(row.end)


def _explain_outside_log(row: GroupOffset) -> str:
    if row.committed is None or row.start <= row.committed <= row.end:
        return ""
    return "behind the log's start" if row.committed < row.start else "beyond the log's end"


def _build_move_cells(move: OffsetMove) -> tuple[str, str]:
    if move.before is None:
        return format_count(move.after), ""
    by = move.after - move.before
    return format_count(
        move.after
    ), f"{pluralize(-by, 'offset')} again" if by < 0 else f"{pluralize(by, 'offset')} passed over"


def _format_count_or_dash(count: int | None) -> str:
    return "-" if count is None else format_count(count)


_HEADINGS = ("partition", "tier", "start", "end", "segments", "size", "not uploaded", "last upload")
_NUMBER_COLUMNS = (0, 2, 3, 4, 5, 6)


def format_storage(topic: TopicStorage) -> list[Line]:
    """Format a topic's tiering, storage by partition and tier, and sums."""
    rows = [row for partition in topic.partitions for row in _build_tier_rows(partition)]
    return [
        make_line(Span(topic.address, Tone.STRONG)),
        *format_tiering(topic),
        EMPTY,
        *make_table(_HEADINGS, rows, numbers=_NUMBER_COLUMNS),
        EMPTY,
        make_line(format_storage_sums([topic])),
        *_format_problems(
            (f"partition {partition_storage.partition}", partition_storage.problem)
            for partition_storage in topic.partitions
        ),
    ]


def format_storages(storages: Storages) -> list[Line]:
    """Format a table of topics' storage, and sums."""
    if not storages.topics:
        return [make_line("There are no topics.")]
    rows = [
        (
            topic.address,
            "never tiered" if topic.tiering is None else _format_short_tiering(topic.tiering),
            format_bytes(topic.local.bytes),
            format_bytes(topic.remote.bytes) if _is_remote_shown(topic) else "",
            format_bytes(topic.log_bytes),
            "" if topic.pending_bytes is None else format_bytes(topic.pending_bytes),
            format_time(topic.uploaded_ms),
        )
        for topic in storages.topics
    ]
    headings = ("topic", "tiering", "local", "remote", "log", "not uploaded", "last upload")
    return [
        *make_plain_table(headings, rows, numbers=(2, 3, 4, 5)),
        EMPTY,
        make_line(f"{pluralize(len(storages.topics), 'topic')}. {format_storage_sums(storages.topics)}"),
        *_format_problems((topic.address, topic.problem) for topic in storages.topics),
    ]


def _format_problems(problems: Iterable[tuple[str, ReconcilerError | None]]) -> Iterator[Line]:
    for where, problem in problems:
        if problem is not None:
            yield make_line(Span(f"{where}  remote unknown: {problem.message}", Tone.DANGER))


def format_tiering(topic: TopicStorage | None) -> Iterator[Line]:
    """Format a topic's tiering; empty if it was never tiered."""
    if topic is None or topic.tiering is None:
        return
    tiering = topic.tiering
    paused = ", uploads pause" if tiering.is_paused else ""
    epoch = f", epoch {tiering.epoch}" if tiering.epoch else ""
    yield make_line(Span("  tiering  ", Tone.QUIET), f"{tiering.mode}, {tiering.state}{epoch}{paused}")
    if topic.lag is not None:
        behind = pluralize(topic.lag, "offset")
        yield make_line(
            Span("  lag      ", Tone.QUIET), f"{behind} that its source has uploaded and it does not show yet"
        )
    if tiering.location is not None:
        yield make_line(Span("  location ", Tone.QUIET), tiering.location)
    if tiering.hidden is None:
        yield make_line(Span("  remote   ", Tone.QUIET), tiering.url)
    else:
        yield make_line(Span("  remote   ", Tone.QUIET), f"not shown: {tiering.hidden}")


def _build_tier_rows(partition: PartitionStorage) -> Iterator[tuple[str | Span, ...]]:
    local, remote = partition.local, partition.remote
    pending = "" if partition.pending_bytes is None else format_bytes(partition.pending_bytes)
    yield (
        str(partition.partition),
        "local",
        *_build_range_cells(partition.local_start, partition.end),
        "unknown" if local.bytes and not local.segments else format_count(local.segments),
        format_bytes(local.bytes),
        pending,
        "",
    )
    if remote is not None:
        yield (
            "",
            "remote",
            *_build_range_cells(remote.start, remote.end),
            format_count(remote.held.segments),
            format_bytes(remote.held.bytes),
            "",
            format_time(remote.uploaded_ms),
        )
        if remote.garbage is not None and remote.garbage.segments:
            counts = format_count(remote.garbage.segments), format_bytes(remote.garbage.bytes)
            yield tuple(Span(cell, Tone.QUIET) for cell in ("", "to be deleted", "", "", *counts, "", ""))


def _build_range_cells(start: int | None, end: int) -> tuple[str, str]:
    return "unknown" if start is None else format_count(start), format_count(end)


def _format_short_tiering(tiering: TieringShown) -> str:
    paused = ", paused" if tiering.is_paused else ""
    return tiering.mode + paused if tiering.state == "ENABLED" else f"{tiering.mode}, {tiering.state}"


def _is_remote_shown(topic: TopicStorage) -> bool:
    return topic.tiering is not None and topic.tiering.hidden is None


def format_storage_sums(topics: Sequence[TopicStorage]) -> str:
    """Format total sizes; records in both tiers count once."""
    local = TierUsage.sum(topic.local for topic in topics)
    texts = [f"{format_bytes(local.bytes)} local"]
    if any(map(_is_remote_shown, topics)):
        remote = TierUsage.sum(topic.remote for topic in topics)
        texts.append(f"{format_bytes(remote.bytes)} remote")
        texts.append(f"{format_bytes(sum(topic.log_bytes for topic in topics))} in all, records in both counted once")
    pending = [topic.pending_bytes for topic in topics if topic.pending_bytes is not None]
    if pending:
        texts.append(f"{format_bytes(sum(pending))} not uploaded")
    return " · ".join(texts)


_BAR_CELLS: Final = 20
_LEVELS: Final = "▁▂▃▄▅▆▇█"
_MAX_KEY_CELLS: Final = 40


def format_profile(profiled: ProfiledTopic) -> list[Line]:
    """Format a profile: content, partitions, keys, timeline and compaction."""
    profile = profiled.profile
    return [
        make_line(Span(profiled.address, Tone.STRONG)),
        *_format_content(profile),
        EMPTY,
        *_format_partition_bars(profile.partitions),
        *_format_top_keys(profile),
        *([] if profile.timeline is None else _format_timeline(profile.timeline)),
        *_format_compaction(profiled),
        *([EMPTY, make_line(Span(f"Read in {profiled.engine}", Tone.QUIET))] if profiled.engine else []),
    ]


def _format_content(profile: Profile) -> Iterator[Line]:
    counts, sizes = profile.counts, profile.counts.sizes
    where = pluralize(len(profile.partitions), "partition")
    yield _format_fact(
        "records", f"{format_count(counts.records)} in {where}, {format_bytes(counts.bytes)} uncompressed"
    )
    if sizes is None:
        return
    if counts.first_ms is not None:
        yield _format_fact("time", f"{format_time(counts.first_ms)} to {format_time(counts.last_ms)}")
    shown = zip(("min", "median", "p99", "max"), (sizes.min, sizes.median, sizes.p99, sizes.max), strict=True)
    yield _format_fact("sizes", ", ".join(f"{name} {format_bytes(size)}" for name, size in shown))
    scattered = (
        f", {format_count(profile.scattered_keys)} of them in several partitions" if profile.scattered_keys else ""
    )
    yield _format_fact("keys", format_count(profile.keys) + scattered)
    tombstones = f", {pluralize(counts.tombstones, 'tombstone')} among them" if counts.tombstones else ""
    values = f"{format_count(counts.null_values)} without a value{tombstones}"
    yield _format_fact("nulls", f"{format_count(counts.null_keys)} without a key, {values}")
    if profile.skew is not None:
        yield _format_fact("skew", f"the largest partition has {profile.skew:.1f} times the average")


def _format_fact(name: str, text: str) -> Line:
    return make_line(Span(f"  {name:<7}  ", Tone.QUIET), text)


def _format_partition_bars(partitions: Sequence[PartitionProfile]) -> list[Line]:
    most = max((partition.counts.bytes for partition in partitions), default=0)
    rows = [
        (
            str(partition.partition),
            *_build_offset_cells(partition.counts),
            format_count(partition.counts.records),
            format_bytes(partition.counts.bytes),
            "█" * -(-_BAR_CELLS * partition.counts.bytes // most) if most else "",
            format_count(partition.keys.keys),
            format_count(partition.keys.superseded_records),
            _format_gap(partition.gap),
        )
        for partition in partitions
    ]
    headings = ("partition", "first", "last", "records", "size", "", "keys", "superseded", "longest gap")
    return make_table(headings, rows, numbers=(0, 1, 2, 3, 4, 6, 7))


def _build_offset_cells(counts: Counts) -> tuple[str, str]:
    first, last = ("" if at is None else format_count(at) for at in (counts.first_offset, counts.last_offset))
    return first, last


def _format_gap(gap: Gap | None) -> str:
    return "" if gap is None else f"{format_elapsed(gap.length_ms / 1000)} from {format_time(gap.start_ms)}"


def _format_top_keys(profile: Profile) -> list[Line]:
    if not profile.top_keys:
        return []
    rows = [
        (
            _format_key(key),
            format_count(key.records),
            f"{100 * key.records / profile.counts.records:.1f} %",
            format_bytes(key.bytes),
            format_count(key.partitions),
        )
        for key in profile.top_keys
    ]
    return [EMPTY, *make_table(("top keys", "records", "share", "size", "partitions"), rows, numbers=(1, 2, 3, 4))]


def _format_key(profile: KeyProfile) -> str:
    text = profile.prefix.decode(errors="backslashreplace")
    is_whole = len(text) <= _MAX_KEY_CELLS and profile.key_bytes <= len(profile.prefix)
    shown = text if is_whole else f"{text[:_MAX_KEY_CELLS]}… ({format_bytes(profile.key_bytes)})"
    return shown or "(empty)"


def _format_timeline(timeline: Timeline) -> list[Line]:
    most = max(timeline.records)
    levels = len(_LEVELS)
    chart = "".join(_LEVELS[-(-levels * count // most) - 1] if count else " " for count in timeline.records)
    start = format_time(timeline.start_ms)
    scale = f"one column is {format_elapsed(timeline.width_ms / 1000)}, the highest has {pluralize(most, 'record')}"
    return [
        EMPTY,
        make_line(Span(f"records from {start}", Tone.QUIET)),
        make_line(f"  {chart}"),
        make_line(f"  {scale}"),
    ]


def _format_compaction(profiled: ProfiledTopic) -> Iterator[Line]:
    profile, counts = profiled.profile, profiled.profile.counts
    size = f"{pluralize(profile.superseded_records, 'record')}, {format_bytes(profile.superseded_bytes)}"
    yield EMPTY
    yield make_line(Span("Compaction", Tone.STRONG), f" would free at most {size}: newer records have the same keys")
    if profiled.retention_ms is not None:
        size = f"{pluralize(counts.old_records, 'record')}, {format_bytes(counts.old_bytes)}"
        what = f"A retention of {format_duration(profiled.retention_ms)}"
        yield make_line(Span(what, Tone.STRONG), f" would free at most {size}: whole segments are removed")


def format_acl_table(rows: Sequence[AclRow]) -> list[Line]:
    """Format access rules and their origins."""
    cells = [
        (row.path.removeprefix(ACLS), format_field_value(row.path, tuple(row.rule.operations)), row.origin)
        for row in rows
    ]
    return [EMPTY, *make_table(("access rule", "operations", "comes from"), cells)] if cells else []


DEFAULT_ORIGINS: Final = frozenset({BROKERS, DEFAULT})


def format_topic(topic: TopicDescription, *, is_whole: bool = False) -> list[Line]:
    """Format partitions with offsets and brokers, groups with lag, configs with origins.

    `is_whole` includes configs at their defaults.
    """
    size = "" if topic.bytes is None else f", {format_bytes(topic.bytes)}"
    records = "" if topic.records is None else f", {pluralize(topic.records, 'record')}"
    has_brokers = any(row.leader is not None for row in topic.partitions)
    headings = ("partition", "start", "stable", "end", "leader", "replicas", "in sync")[: 7 if has_brokers else 4]
    partitions = [_build_partition_cells(row)[: len(headings)] for row in topic.partitions]
    rows = sorted(topic.configs, key=lambda row: (row.origin in DEFAULT_ORIGINS, row.key))
    configs = [_build_config_cells(row) for row in rows if is_whole or row.origin not in DEFAULT_ORIGINS]
    readers = format_readers(topic.groups)
    return [
        make_line(Span(topic.address, Tone.STRONG)),
        make_line(f"  {pluralize(len(topic.partitions), 'partition')}{records}{size}"),
        *([make_line(Span("  id ", Tone.QUIET), topic.incarnation)] if topic.incarnation else []),
        *([] if topic.storage is None else [make_line(f"  {format_storage_sums([topic.storage])}")]),
        *_format_migration(topic),
        *_format_mirror(topic),
        *format_tiering(topic.storage),
        EMPTY,
        *make_table(headings, partitions, numbers=(0, 1, 2, 3)),
        *([EMPTY, *readers] if readers else []),
        *([EMPTY, *make_table(("config", "value", "comes from"), configs)] if configs else []),
        *format_hidden_defaults(len(rows) - len(configs)),
        *format_acl_table(topic.acls),
    ]


def _format_migration(topic: TopicDescription) -> Iterator[Line]:
    migration = topic.migration
    if migration is None:
        return
    what = "mounted" if migration.direction == "inbound" else "unmounted"
    meaning = (
        "cannot be written or read" if any(migrant.is_closed for migrant in migration.topics) else "cannot be changed"
    )
    see = f"reconciler mount status {migration.id} --cluster {cluster_of(topic.address)}"
    yield make_line("  ", Span(f"being {what}: {migration.state}", Tone.MOVE), f", {meaning} until then; see: {see}")


def _format_mirror(topic: TopicDescription) -> Iterator[Line]:
    mirror = topic.following
    if mirror is not None:
        see = f"reconciler mirror describe {topic.address}"
        yield make_line(
            f"  mirrors {mirror.source} over {mirror.link}: ", Span(mirror.state, Tone.MOVE), f"; see: {see}"
        )


def _build_partition_cells(row: PartitionRow) -> tuple[str | Span, ...]:
    replicas, in_sync = row.replicas or (), row.in_sync or ()
    tone = Tone.PLAIN if set(replicas) == set(in_sync) else Tone.CHANGE
    leader = Span("none", Tone.DANGER) if row.leader == -1 else Span(str(row.leader))
    brokers = (leader, ", ".join(map(str, replicas)), Span(", ".join(map(str, in_sync)), tone))
    return (str(row.partition), *map(format_count, (row.start, row.stable, row.end)), *brokers)


def format_hidden_defaults(hidden: int) -> list[Line]:
    """Format the number of hidden defaults; empty if 0."""
    return (
        [make_line(Span(f"{pluralize(hidden, 'default')} not shown: see them with --all", Tone.QUIET))]
        if hidden
        else []
    )


def _build_config_cells(row: ConfigRow) -> tuple[Span, ...]:
    tone = Tone.QUIET if row.origin in DEFAULT_ORIGINS else Tone.PLAIN
    return tuple(Span(text, tone) for text in (row.key, format_value(row.key, row.value), row.origin))


def format_namespaces(rows: Sequence[NamespaceRow]) -> list[Line]:
    """Format a table of namespaces."""
    if not rows:
        return [make_line("There are no namespaces.")]
    cells = [
        (row.address, format_count(row.topics), format_configs(row.configs), format_quota_usage(row.quotas))
        for row in rows
    ]
    width = 4 if any(row.quotas for row in rows) else 3
    return make_plain_table(
        ("address", "topics", "configs", "quotas")[:width], [row[:width] for row in cells], numbers=(1,)
    )


def _explain_no_match(pattern: str) -> str:
    kind, _, rest = pattern.partition("/")
    if kind in {"topic", "mirror"} or "*" in kind:
        return f"No topic matches {pattern!r}."
    name = rest if kind == "cluster" else pattern
    return f"No topic matches {pattern!r}; did you mean 'topic/{name}{'' if '/' in name else '/*'}'?"


def format_topics(rows: Sequence[TopicShown], pattern: str | None = None, *, sizes: bool) -> list[Line]:
    """Format a table of topics; `sizes` adds records and bytes."""
    if not rows:
        return [make_line("There are no topics." if pattern is None else _explain_no_match(pattern))]
    headings = ["address", "partitions", "replicas"]
    cells: list[list[str]] = [
        [row.address, _format_count_or_unknown(row.partitions), _format_count_or_unknown(row.replication_factor)]
        for row in rows
    ]
    if sizes:
        headings += ["records", "size"]
        for cell, row in zip(cells, rows, strict=True):
            cell += [_format_count_or_unknown(row.records), "?" if row.bytes is None else format_bytes(row.bytes)]
    numbers = range(1, len(headings))
    if any(row.following is not None for row in rows):
        headings.append("mirrors")
        for cell, row in zip(cells, rows, strict=True):
            cell.append(_format_mirror_cell(row))
    return make_plain_table(headings, cells, numbers=numbers)


def _format_mirror_cell(row: TopicShown) -> str:
    mirror = row.following
    return "" if mirror is None else f"{mirror.source} over {mirror.link}: {mirror.state}"


def _format_count_or_unknown(count: int | None) -> str:
    return "?" if count is None else format_count(count)


_MAX_FINDINGS: Final = 50
_TONES: Final = {"error": Tone.DANGER, "warning": Tone.CHANGE, "note": Tone.QUIET}
_MARKS: Final = {"error": "✗", "warning": "!", "note": "·"}


def format_check_result(cluster: CheckedCluster) -> list[Line]:
    """Format counts of checks and repairs, then findings, worst first."""
    checked = cluster.checked
    lines = [
        make_line(Span(cluster.address, Tone.STRONG), f"  {cluster.url}"),
        make_line(f"  {_format_checked_counts(checked)}"),
    ]
    if cluster.mended:
        lines += [EMPTY, make_line(Span("MENDED", Tone.ADD))]
        lines += [make_line("  ", Span("✓ ", Tone.ADD), repair.what) for repair in cluster.mended]
    for _, group in groupby(checked.findings, key=lambda finding: finding.kind):
        lines += [EMPTY, *_format_findings(list(group))]
    if checked.left_out:
        lines += [EMPTY, make_line(f"and {pluralize(checked.left_out, 'finding')} more")]
    return [*lines, EMPTY, _format_verdict(checked)]


def _format_checked_counts(checked: CheckResult) -> str:
    parts = [
        pluralize(checked.namespaces, "namespace"),
        pluralize(checked.topics, "topic"),
        f"{pluralize(checked.partitions, 'partition')} written",
        pluralize(checked.parts, "part"),
        pluralize(checked.records, "record"),
        *_list_remote_counts(checked),
        pluralize(checked.groups, "group"),
        pluralize(checked.transactions, "transaction"),
        f"{pluralize(checked.objects, 'object')} of {format_bytes(checked.stored_bytes)}",
    ]
    return ", ".join(parts)


def _list_remote_counts(checked: CheckResult) -> Iterator[str]:
    if checked.segments:
        segments = pluralize(checked.segments, "segment")
        yield f"{segments} with {pluralize(checked.remote_records, 'record')} in object storage"


def _format_findings(findings: Sequence[CheckFinding]) -> Iterator[Line]:
    rule, severity = findings[0].rule, findings[0].severity
    tone = _TONES[severity]
    yield make_line(Span(f"{severity.upper()} {findings[0].kind}", tone), f"  {format_count(len(findings))}")
    for finding in findings[:_MAX_FINDINGS]:
        yield make_line("  ", Span(f"{_MARKS[severity]} ", tone), _format_location(finding), finding.what)
    if len(findings) > _MAX_FINDINGS:
        yield make_line(f"    and {format_count(len(findings) - _MAX_FINDINGS)} more; --format json has all")
    yield make_line("    ", Span("why: ", Tone.QUIET), rule.matters)
    yield make_line("    ", Span("do: ", Tone.QUIET), rule.advice)


def _format_location(finding: CheckFinding) -> str:
    place = finding.place
    if place.partition is None:
        return f"{place.key}: " if place.topic is None else f"{place.topic}: "
    offsets = "".join(f", offsets {stretch.start:,} to {stretch.stop - 1:,}" for stretch in finding.gone)
    return f"{place.topic or 'a deleted topic'}, partition {place.partition}{offsets}: {place.key}: "


def _format_verdict(checked: CheckResult) -> Line:
    counts = [
        pluralize(number, severity)
        for severity in _TONES
        if (number := sum(finding.severity == severity for finding in checked.findings))
    ]
    if checked.errors:
        return make_line(Span("Not consistent: ", Tone.DANGER), ", ".join(counts))
    return make_line(Span("Consistent", Tone.ADD), f": {', '.join(counts)}" if counts else "")
