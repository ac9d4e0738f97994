"""Mounts and mountable topics as text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from reconciler.cli.text.lines import EMPTY, Line, Span, Tone, line, plain_table, text_of, width_of
from reconciler.cli.text.topics_text import time_text
from reconciler.lifecycles import MigrationState
from reconciler.resources.address import split_name
from reconciler.runtime.text import format_bytes, format_count, pluralize

if TYPE_CHECKING:
    from reconciler.operations.clusters.mounts import ClusterMigration, MountList, MountRow, Release


_HEADINGS: Final = ("location", "name", "namespace", "state", "owner", "partitions", "records", "size", "since")
_NUMBERS: Final = (5, 6, 7)
_WIDEST: Final = 100
_ORDER: Final = ("mountable", "mounting", "mounted", "unmounting")
_WORDS: Final = {"inbound": "mount", "outbound": "unmount"}
_SIZES: Final = "What is mounted is shown as large as it was when it was detached last."
GOES_ON: Final = "`reconciler run --once --only migrations`"


def mountables_text(mounts: MountList, *, width: int | None = None) -> list[Line]:
    """Return a row for each location and counts; two lines a location if wider than `width`."""
    return [*_mount_lines(mounts, width), *_damage_lines(mounts)]


def _mount_lines(mounts: MountList, width: int | None) -> list[Line]:
    if not mounts.rows:
        return [] if mounts.damaged or mounts.lost else [line(_no_topic_text(mounts))]
    table = plain_table(_HEADINGS, [_cells(row) for row in mounts.rows], numbers=_NUMBERS, widest=_WIDEST)
    if width is not None and any(width_of(text_of([table_line])) > width + 1 for table_line in table):
        table = [table_line for row in mounts.rows for table_line in _narrow_lines(row)]
    states = Counter[str](row.state for row in mounts.rows)
    texts = ", ".join(f"{format_count(states[state])} {state}" for state in _ORDER if states[state])
    return [
        *table,
        EMPTY,
        line(f"{pluralize(len(mounts.rows), 'topic')}: {texts}"),
        *([line(Span(_SIZES, Tone.QUIET))] if any(_is_older(row) for row in mounts.rows) else []),
    ]


def _is_older(row: MountRow) -> bool:
    return row.state in {"mounted", "unmounting"} and row.bytes is not None


def _no_topic_text(mounts: MountList) -> str:
    if mounts.states:
        return f"No topic is {' or '.join(mounts.states)}."
    if not mounts.storages:
        return "No cluster of this workspace has object storage: nothing can be mounted."
    return f"Nothing was ever detached in {', '.join(mounts.storages)}."


def _cells(row: MountRow) -> tuple[str, ...]:
    return (
        row.location,
        row.name,
        split_name(row.name)[0] or "-",
        _state_text(row),
        _owner_text(row),
        _count_or_dash(row.partitions),
        _count_or_dash(row.records),
        "-" if row.bytes is None else format_bytes(row.bytes),
        time_text(row.since_ms) or "-",
    )


def _narrow_lines(row: MountRow) -> Iterator[Line]:
    owner = "" if row.owner is None else f" · {_owner_text(row)}"
    yield line(Span(row.name, Tone.STRONG), f"  {_state_text(row)}{owner}")
    amounts = [] if row.partitions is None else [pluralize(row.partitions, "partition")]
    if row.records is not None and row.bytes is not None:
        amounts += [pluralize(row.records, "record"), format_bytes(row.bytes)]
    if row.since_ms is not None:
        amounts.append(f"since {time_text(row.since_ms)}")
    yield line("  ", row.location)
    yield line("  ", Span(" · ".join(amounts), Tone.QUIET))


def _state_text(row: MountRow) -> str:
    moving = ", ".join(
        f"{topic_migration.cluster} {topic_migration.migration.id}: {topic_migration.state}"
        for topic_migration in row.migrations
    )
    return f"{row.state} ({moving})" if moving else row.state


def _owner_text(row: MountRow) -> str:
    return row.owner_name or row.owner or "-"


def _damage_lines(mounts: MountList) -> Iterator[Line]:
    for damage in mounts.damaged:
        yield line(Span("✗ ", Tone.DANGER), damage.error.message)


def status_text(migrations: Sequence[ClusterMigration], *, is_whole: bool) -> list[Line]:
    """Return migrations with topics, what they wait for and permitted commands."""
    if not migrations:
        return [line("No migration is in progress.")] if is_whole else []
    blocks = [migration_text(migration) for migration in migrations]
    return [migration for place, block in enumerate(blocks) for migration in ([EMPTY] if place else []) + block]


def migration_text(underway: ClusterMigration) -> list[Line]:
    """Return a migration."""
    migration = underway.migration
    since = time_text(migration.completed_ms or migration.created_ms)
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
        line(
            Span(f"migration {migration.id}", Tone.STRONG),
            f" of {underway.cluster}: {_WORDS[migration.direction]}, ",
            Span(underway.state, Tone.MOVE),
            f" since {since}{left}" if migration.completed_ms else f", begun {since}{left}",
        ),
        *plain_table(("", "topic", "location", "mounting", ""), rows),
        *[line("  ", Span("waits: ", Tone.CHANGE), wait) for wait in migration.waits],
        line("  ", Span("next: ", Tone.QUIET), _next_commands(underway)),
    ]


def _next_commands(underway: ClusterMigration) -> str:
    commands = [
        f"`reconciler mount {verb} {underway.migration.id} --cluster {underway.cluster}`"
        for verb in underway.legal
        if verb in {"cancel", "delete"}
    ]
    texts = [f"{GOES_ON} continues it"] if underway.continues_in_run else []
    return ", ".join(texts + commands) or "nothing can be asked for"


def migration_question_text(underway: ClusterMigration, verb: str) -> list[Line]:
    """Return the migration about to be cancelled or deleted, and the effect."""
    return [*migration_text(underway)[:-1], line("  ", _effect_text(underway, verb))]


def _effect_text(underway: ClusterMigration, verb: str) -> str:
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


def cancellation_text(underway: ClusterMigration) -> list[Line]:
    """Render the result of a cancelled migration, and how to delete its record; a migration by jobs has none."""
    migration = underway.migration
    names = ", ".join(topic.full_name for topic in migration.topics)
    if migration.direction == "inbound":
        after = f"{names}: not on {underway.cluster}, mountable as before"
    else:
        after = f"{names}: on {underway.cluster}, taking and giving records as before"
    delete = f"reconciler mount delete {migration.id} --cluster {underway.cluster}"
    record_lines = [] if migration.by_jobs else [line("  ", Span("Its record stays until: ", Tone.QUIET), delete)]
    return [line(f"Cancelled migration {migration.id} of {underway.cluster}"), line("  ", after), *record_lines]


def deletion_text(underway: ClusterMigration) -> list[Line]:
    """Render the result of deleting a migration's record."""
    return [line(f"Deleted migration {underway.migration.id} of {underway.cluster}")]


def _count_or_dash(count: int | None) -> str:
    return "-" if count is None else format_count(count)


def release_text(release: Release) -> list[Line]:
    """Return what `mount release` takes from which cluster, and the loss."""
    topic = release.topic
    has = "is being mounted" if topic.state == "claimed" else "is mounted"
    lines = [
        line(Span("± ", Tone.DANGER), Span(topic.location, Tone.STRONG), f"  release  {_contents_text(release)}"),
        line(f"  {has} on cluster {release.owner} as {topic.name}"),
        line("  ", Span("data-loss: ", Tone.DANGER), "what that cluster has not uploaded is lost"),
    ]
    if release.owner_name is not None:
        warning = f"that cluster is {release.owner_name} of this workspace, and answers: it can unmount the topic"
        lines.append(line("  ", Span(warning, Tone.DANGER)))
    return lines


def topic_release_text(release: Release) -> list[Line]:
    """Render the result of releasing a topic from its owner, and where it can be mounted."""
    where = ", ".join(release.clusters)
    return [
        line(f"Released {release.topic.location} from cluster {release.owner}"),
        line(f"  mountable now: {_contents_text(release)}; on {where} by a Mounting whose source is that location"),
    ]


def _contents_text(release: Release) -> str:
    topic = release.topic
    amounts = (pluralize(topic.partitions, "partition"), pluralize(topic.records, "record"), format_bytes(topic.bytes))
    return ", ".join(amounts)
