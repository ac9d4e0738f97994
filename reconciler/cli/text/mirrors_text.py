"""Mirrors and links as text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from reconciler.cli.text.lines import EMPTY, Line, Span, Tone, make_line, make_plain_table, make_table
from reconciler.cli.text.topics_text import format_time
from reconciler.lifecycles import LinkStatus, MirrorStatus
from reconciler.manifests.edit import format_flow_value
from reconciler.operations.mirrors.mirror_views import MirrorError, MirrorErrors, MirrorList, MirrorRow, PartitionLag
from reconciler.planning.diff.mirror_orders import describe_legal_verbs
from reconciler.runtime.text import format_count, pluralize

if TYPE_CHECKING:
    from reconciler.operations.mirrors.link_views import LinkList, LinkRow


_LIST_HEADINGS: Final = ("cluster", "link", "mirror", "source", "status", "since", "partitions", "lag")
_DETAIL_HEADINGS: Final = ("link", "mirror", "source", "status", "since", "partition", "lag", "last fetched offset")
_MAX_CELL_WIDTH: Final = 100
_UNKNOWN: Final = "?"
_NONE: Final = "-"
CONTINUE_COMMAND: Final = "`reconciler run --once --only mirror`"
_NORMAL_STATES: Final = frozenset({MirrorStatus.ACTIVE, MirrorStatus.STOPPED})


def format_mirrors(mirrors: MirrorList) -> list[Line]:
    """Format a table of mirrors, and counts by state."""
    if not mirrors.rows:
        return [] if mirrors.lost else [make_line(f"There are no mirrors on {_name_clusters(mirrors.clusters)}.")]
    rows = [_build_mirror_cells(row) for row in mirrors.rows]
    states = Counter(row.seen.status for row in mirrors.rows)
    texts = ", ".join(f"{format_count(states[state])} {state}" for state in MirrorStatus if states[state])
    unmeasured = any(row.seen.partitions and not row.partitions for row in mirrors.rows)
    return [
        *make_plain_table(_LIST_HEADINGS, rows, numbers=(6, 7), widest=_MAX_CELL_WIDTH),
        EMPTY,
        make_line(f"{pluralize(len(mirrors.rows), 'mirror')}: {texts}"),
        *(
            [make_line(Span("Not all lags were measured: describe a mirror to see its own.", Tone.QUIET))]
            if unmeasured
            else []
        ),
    ]


def _name_clusters(names: Sequence[str]) -> str:
    return f"cluster {names[0]}" if len(names) == 1 else "any cluster"


def _build_mirror_cells(row: MirrorRow) -> tuple[str, ...]:
    seen = row.seen
    return (
        seen.cluster,
        seen.link,
        seen.name,
        seen.source,
        _format_status(row),
        format_time(seen.since_ms or None) or _NONE,
        format_count(seen.partitions),
        _format_lag_cell(row, row.max_lag),
    )


def _format_status(row: MirrorRow) -> str:
    seen = row.seen
    code = seen.trouble.code if seen.status is MirrorStatus.SOURCE_UNAVAILABLE and seen.trouble is not None else None
    notes = ", ".join(note for note in (code, "auto-created" if seen.is_automatic else None) if note)
    return f"{seen.status} ({notes})" if notes else seen.status


def _format_lag_cell(row: MirrorRow, lag: int | None) -> str:
    if lag is not None:
        return format_count(lag)
    return _NONE if row.seen.status is MirrorStatus.STOPPED else _UNKNOWN


def format_mirror_details(rows: Sequence[MirrorRow]) -> list[Line]:
    """Format mirrors with partitions, errors and allowed commands."""
    blocks = [list(_format_mirror(row)) for row in rows]
    return [row_line for place, block in enumerate(blocks) for row_line in ([EMPTY] if place else []) + block]


def _format_mirror(row: MirrorRow) -> Iterator[Line]:
    seen = row.seen
    tone = Tone.PLAIN if seen.status in _NORMAL_STATES else Tone.CHANGE
    yield make_line(
        Span(row.address, Tone.STRONG),
        f" mirrors {seen.source_cluster}/{seen.source}: ",
        Span(_format_status(row), tone),
        f" since {format_time(seen.since_ms)}" if seen.since_ms else "",
    )
    for word, text in _list_facts(row):
        yield make_line("  ", Span(f"{word}: ", Tone.QUIET), text)
    yield EMPTY
    yield from make_table(
        _DETAIL_HEADINGS, [_build_partition_cells(row, lag) for lag in row.partitions], numbers=(5, 6, 7)
    )


def _list_facts(row: MirrorRow) -> Iterator[tuple[str, str]]:
    seen = row.seen
    if seen.stopped_by is not None:
        yield "stopped by", seen.stopped_by
    if seen.operation is not None:
        yield "in progress", f"{seen.operation.verb}; {CONTINUE_COMMAND} continues it"
    elif seen.status.startswith("PENDING_"):
        yield "in progress", "its cluster finishes it"
    if seen.trouble is not None:
        yield "error", f"{seen.trouble.code}: {seen.trouble.message}"
    yield "commands", describe_legal_verbs(row.seen.status, row.legal) or "nothing"


def _build_partition_cells(row: MirrorRow, lag: PartitionLag) -> tuple[str, ...]:
    seen = row.seen
    return (
        seen.link,
        seen.name,
        seen.source,
        seen.status,
        format_time(seen.since_ms or None) or _NONE,
        str(lag.partition),
        _format_lag_cell(row, lag.lag),
        str(lag.fetched),
    )


def format_mirror_errors(errors: MirrorErrors) -> list[Line]:
    """Format errors of links, tasks and mirrors with codes and start times."""
    if not errors.errors:
        return [] if errors.lost else [make_line("Nothing is wrong.")]
    rows = [
        (
            error.cluster,
            error.link,
            _name_subject(error),
            error.trouble.code,
            error.trouble.message,
            format_time(error.trouble.since_ms or None) or _NONE,
        )
        for error in errors.errors
    ]
    return make_plain_table(
        ("cluster", "link", "where", "error code", "error message", "since"), rows, widest=_MAX_CELL_WIDTH
    )


def _name_subject(error: MirrorError) -> str:
    if error.task is not None:
        return f"task {error.task}"
    return f"mirror {error.mirror}" if error.mirror is not None else "the link"


_LINK_HEADINGS: Final = ("cluster", "link", "source", "mode", "prefix", "state", "mirrors")


def format_links(links: LinkList) -> list[Line]:
    """Format links with source, mode, prefix, state and counts of mirrors."""
    if not links.rows:
        return (
            []
            if links.lost
            else [make_line("There are no links. Create one: reconciler link create, or a MirrorLink.")]
        )
    rows = [
        (
            row.cluster,
            row.seen.name,
            row.seen.declared.spec.source,
            row.seen.declared.spec.mode,
            row.seen.declared.spec.prefix or _NONE,
            row.seen.status,
            _count_mirror_states(row),
        )
        for row in links.rows
    ]
    return [
        *make_plain_table(_LINK_HEADINGS, rows, widest=_MAX_CELL_WIDTH),
        EMPTY,
        make_line(pluralize(len(links.rows), "link")),
    ]


def _count_mirror_states(row: LinkRow) -> str:
    states = ", ".join(
        f"{format_count(row.mirrors[state])} {state}" for state in MirrorStatus if row.mirrors.get(state)
    )
    return states or _NONE


def format_link_details(rows: Sequence[LinkRow]) -> list[Line]:
    """Format links with fields, tasks, mirrors, errors and allowed commands."""
    blocks = [list(_format_link(row)) for row in rows]
    return [row_line for place, block in enumerate(blocks) for row_line in ([EMPTY] if place else []) + block]


def _format_link(row: LinkRow) -> Iterator[Line]:
    seen = row.seen
    tone = Tone.PLAIN if seen.status is LinkStatus.ACTIVE else Tone.CHANGE
    name = seen.declared.spec.source
    known = "" if seen.source_cluster_id is None else f" ({seen.source_cluster_id})"
    yield make_line(Span(row.address, Tone.STRONG), f" from {name}{known}: ", Span(seen.status, tone))
    for key, value in seen.declared.spec.to_json().items():
        if key != "source":
            yield make_line("  ", Span(f"{key}: ", Tone.QUIET), format_flow_value(value))
    yield make_line("  ", Span("mirrors: ", Tone.QUIET), _count_mirror_states(row))
    if seen.trouble is not None:
        yield make_line("  ", Span("error: ", Tone.QUIET), f"{seen.trouble.code}: {seen.trouble.message}")
    for task, trouble in sorted(seen.tasks.items()):
        yield make_line("  ", Span(f"task {task}: ", Tone.QUIET), f"{trouble.code}: {trouble.message}")
    yield make_line("  ", Span("commands: ", Tone.QUIET), ", ".join(row.legal) or _NONE)
