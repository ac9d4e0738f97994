"""Mounts and mountable topics as text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from reconciler.cli.text.lines import EMPTY, Line, Span, Tone, make_line, make_plain_table, measure_width, to_plain_text
from reconciler.cli.text.topics_text import format_time
from reconciler.lifecycles import MigrationState, is_in_progress
from reconciler.resources.address import split_name
from reconciler.runtime.text import format_bytes, format_count, pluralize

if TYPE_CHECKING:
    from reconciler.operations.clusters.mounts import ClusterMigration, MountList, MountRow, Release


_HEADINGS: Final = ("location", "name", "namespace", "state", "owner", "partitions", "records", "size", "since")
_NUMBER_COLUMNS: Final = (5, 6, 7)
_MAX_CELL_WIDTH: Final = 100
_STATE_ORDER: Final = ("mountable", "mounting", "mounted", "unmounting")
_VERBS: Final = {"inbound": "mount", "outbound": "unmount"}
_SIZES_NOTE: Final = "What is mounted is shown as large as it was when it was detached last."
CONTINUE_COMMAND: Final = "`reconciler run --once --only migrations`"


def format_mountable_topics(mounts: MountList, *, width: int | None = None) -> list[Line]:
    """Format a table of locations, or lines if it is wider than `width`."""
    return [*_format_mount_table(mounts, width), *_format_damage(mounts)]


def _format_mount_table(mounts: MountList, width: int | None) -> list[Line]:
    if not mounts.rows:
        return [] if mounts.damaged or mounts.lost else [make_line(_explain_no_topic(mounts))]
    table = make_plain_table(
        _HEADINGS, [_build_cells(row) for row in mounts.rows], numbers=_NUMBER_COLUMNS, widest=_MAX_CELL_WIDTH
    )
    if width is not None and any(measure_width(to_plain_text([table_line])) > width + 1 for table_line in table):
        table = [table_line for row in mounts.rows for table_line in _format_narrow_row(row)]
    states = Counter[str](row.state for row in mounts.rows)
    texts = ", ".join(f"{format_count(states[state])} {state}" for state in _STATE_ORDER if states[state])
    return [
        *table,
        EMPTY,
        make_line(f"{pluralize(len(mounts.rows), 'topic')}: {texts}"),
        *([make_line(Span(_SIZES_NOTE, Tone.QUIET))] if any(_is_older(row) for row in mounts.rows) else []),
    ]


def _is_older(row: MountRow) -> bool:
    return row.state in {"mounted", "unmounting"} and row.bytes is not None


def _explain_no_topic(mounts: MountList) -> str:
    if mounts.states:
        return f"No topic is {' or '.join(mounts.states)}."
    if not mounts.storages:
        return "No cluster of this workspace has object storage: nothing can be mounted."
    return f"No unmounted topic is in {', '.join(mounts.storages)}."


def _build_cells(row: MountRow) -> tuple[str, ...]:
    return (
        row.location,
        row.name,
        split_name(row.name)[0] or "-",
        _format_state(row),
        _format_owner(row),
        _format_count_or_dash(row.partitions),
        _format_count_or_dash(row.records),
        "-" if row.bytes is None else format_bytes(row.bytes),
        format_time(row.since_ms) or "-",
    )


def _format_narrow_row(row: MountRow) -> Iterator[Line]:
    owner = "" if row.owner is None else f" · {_format_owner(row)}"
    yield make_line(Span(row.name, Tone.STRONG), f"  {_format_state(row)}{owner}")
    amounts = [] if row.partitions is None else [pluralize(row.partitions, "partition")]
    if row.records is not None and row.bytes is not None:
        amounts += [pluralize(row.records, "record"), format_bytes(row.bytes)]
    if row.since_ms is not None:
        amounts.append(f"since {format_time(row.since_ms)}")
    yield make_line("  ", row.location)
    yield make_line("  ", Span(" · ".join(amounts), Tone.QUIET))


def _format_state(row: MountRow) -> str:
    moving = ", ".join(
        f"{topic_migration.cluster} {topic_migration.migration.id}: {topic_migration.state}"
        for topic_migration in row.migrations
    )
    return f"{row.state} ({moving})" if moving else row.state


def _format_owner(row: MountRow) -> str:
    return row.owner_name or row.owner or "-"


def _format_damage(mounts: MountList) -> Iterator[Line]:
    for damage in mounts.damaged:
        yield make_line(Span("✗ ", Tone.DANGER), damage.error.message)


def format_migrations(migrations: Sequence[ClusterMigration], *, is_whole: bool) -> list[Line]:
    """Format migrations with topics, waits and allowed commands."""
    if not migrations:
        return [make_line("No migration is in progress.")] if is_whole else []
    blocks = [format_migration(migration) for migration in migrations]
    return [migration for place, block in enumerate(blocks) for migration in ([EMPTY] if place else []) + block]


def format_migration(underway: ClusterMigration) -> list[Line]:
    """Format a migration with its topics."""
    migration = underway.migration
    since = format_time(migration.completed_ms or migration.created_ms)
    left = "" if migration.bytes_left is None else f", {format_bytes(migration.bytes_left)} left to upload"
    rows = [
        (
            "",
            topic.full_name,
            topic.location,
            topic.mounting or "by hand",
            "" if topic.partitions is None else pluralize(topic.partitions, "partition"),
        )
        for topic in migration.topics
    ]
    return [
        make_line(
            Span(f"migration {migration.id}", Tone.STRONG),
            f" of {underway.cluster}: {_VERBS[migration.direction]}, ",
            Span(underway.state, Tone.MOVE),
            f" since {since}{left}" if migration.completed_ms else f", begun {since}{left}",
        ),
        *make_plain_table(("", "topic", "location", "mounting", ""), rows),
        *[make_line("  ", Span("waits: ", Tone.CHANGE), wait) for wait in migration.waits],
        make_line("  ", Span("next: ", Tone.QUIET), _list_next_commands(underway)),
    ]


def _list_next_commands(underway: ClusterMigration) -> str:
    commands = [
        f"`reconciler mount {verb} {underway.migration.id} --cluster {underway.cluster}`"
        for verb in underway.legal
        if verb in {"cancel", "delete"}
    ]
    texts = [f"{CONTINUE_COMMAND} continues it"] if underway.continues_in_run else []
    if underway.migration.by_cluster and is_in_progress(underway.state):
        texts = ["its cluster continues it by itself"]
    return ", ".join(texts + commands) or "nothing can be asked for"


def format_migration_question(underway: ClusterMigration, verb: str) -> list[Line]:
    """Format the confirmation question: a migration, and the effect of the verb (cancel or delete)."""
    return [*format_migration(underway)[:-1], make_line("  ", _describe_effect(underway, verb))]


def _describe_effect(underway: ClusterMigration, verb: str) -> str:
    several = len(underway.migration.topics) > 1
    if verb == "delete":
        what = "the topics" if several else "the topic"
        is_begun = underway.state is not MigrationState.PLANNED
        return f"Once deleted: {'the record alone goes' if is_begun else 'nothing was done yet'}; {what} as now"
    if underway.migration.direction == "inbound":
        leaves = "the topics leave" if several else "the topic leaves"
        return f"Once cancelled: {leaves} the cluster, mountable as before, here and elsewhere"
    stays = "the topics stay, taking and giving" if several else "the topic stays, taking and giving"
    return f"Once cancelled: {stays} records as before"


def format_cancellation(underway: ClusterMigration) -> list[Line]:
    """Format the result of cancelling a migration."""
    migration = underway.migration
    names = ", ".join(topic.full_name for topic in migration.topics)
    if migration.direction == "inbound":
        after = f"{names}: not on {underway.cluster}, mountable as before"
    else:
        after = f"{names}: on {underway.cluster}, taking and giving records as before"
    delete = f"reconciler mount delete {migration.id} --cluster {underway.cluster}"
    record_lines = [] if migration.by_jobs else [make_line("  ", Span("Its record stays until: ", Tone.QUIET), delete)]
    return [
        make_line(f"Cancelled migration {migration.id} of {underway.cluster}"),
        make_line("  ", after),
        *record_lines,
    ]


def format_record_deletion(underway: ClusterMigration) -> list[Line]:
    """Format the result of deleting a migration's record."""
    return [make_line(f"Deleted migration {underway.migration.id} of {underway.cluster}")]


def _format_count_or_dash(count: int | None) -> str:
    return "-" if count is None else format_count(count)


def format_release(release: Release) -> list[Line]:
    """Format the topic that `mount release` detaches, and the data loss."""
    topic = release.topic
    has = "is being mounted" if topic.state == "claimed" else "is mounted"
    lines = [
        make_line(
            Span("± ", Tone.DANGER), Span(topic.location, Tone.STRONG), f"  release  {_format_contents(release)}"
        ),
        make_line(f"  {has} on cluster {release.owner} as {topic.name}"),
        make_line("  ", Span("data-loss: ", Tone.DANGER), "what that cluster has not uploaded is lost"),
    ]
    if release.owner_name is not None:
        warning = f"that cluster is {release.owner_name} of this workspace, and answers: it can unmount the topic"
        lines.append(make_line("  ", Span(warning, Tone.DANGER)))
    return lines


def format_release_result(release: Release) -> list[Line]:
    """Format the result of `mount release`."""
    where = ", ".join(release.clusters)
    return [
        make_line(f"Released {release.topic.location} from cluster {release.owner}"),
        make_line(
            f"  mountable now: {_format_contents(release)}; on {where} by a Mounting whose source is that location"
        ),
    ]


def _format_contents(release: Release) -> str:
    topic = release.topic
    amounts = (
        pluralize(topic.partitions or 0, "partition"),
        pluralize(topic.records or 0, "record"),
        format_bytes(topic.bytes or 0),
    )
    return ", ".join(amounts)
