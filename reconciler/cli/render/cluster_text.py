"""One topic as text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from reconciler.cli.render.acls_text import acls_lines
from reconciler.cli.render.amounts import bytes_text, count_text, counted
from reconciler.cli.render.groups_text import readers_text
from reconciler.cli.render.lines import EMPTY, Line, Span, Tone, line
from reconciler.cli.render.storage_text import sums_text, tiering_lines
from reconciler.cli.render.tables import table
from reconciler.resources.address import cluster_of
from reconciler.resources.configs import BROKERS, DEFAULT, show_value

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reconciler.workflow.looking.actingconfigs import ConfigRow
    from reconciler.workflow.topics import TopicDescription

_UNSAID: Final = frozenset({BROKERS, DEFAULT})


def topic_text(topic: TopicDescription) -> list[Line]:
    """Return one topic: partitions with their offsets, groups with their lag, configs with their origin."""
    size = "" if topic.bytes is None else f", {bytes_text(topic.bytes)}"
    records = "" if topic.records is None else f", {counted(topic.records, 'record')}"
    partitions = [(str(row.partition), *map(count_text, (row.start, row.stable, row.end))) for row in topic.partitions]
    # What somebody set comes first; what nobody did is there, but quiet.
    rows = sorted(topic.configs, key=lambda row: (row.origin in _UNSAID, row.key))
    configs = [_config(row) for row in rows]
    readers = readers_text(topic.groups)
    return [
        line(Span(topic.address, Tone.STRONG)),
        line(f"  {counted(len(topic.partitions), 'partition')}{records}{size}"),
        *([line(Span("  id ", Tone.QUIET), topic.incarnation)] if topic.incarnation else []),
        *([] if topic.storage is None else [line(f"  {sums_text([topic.storage])}")]),
        *_migration(topic),
        *_following(topic),
        *tiering_lines(topic.storage.tiering if topic.storage else None),
        EMPTY,
        *table(("partition", "start", "stable", "end"), partitions, numbers=(0, 1, 2, 3)),
        *([EMPTY, *readers] if readers else []),
        *([EMPTY, *table(("config", "value", "comes from"), configs)] if configs else []),
        *acls_lines(topic.acls),
    ]


def _migration(topic: TopicDescription) -> Iterator[Line]:
    """Yield what has the topic in its hands, and what that means for who reads and writes it."""
    found = topic.migration
    if found is None:
        return
    what = "mounted" if found.direction == "inbound" else "unmounted"
    meaning = "takes and gives no records" if any(each.is_closed for each in found.topics) else "cannot be changed"
    see = f"reconciler mount status {found.id} --cluster {cluster_of(topic.address)}"
    yield line("  ", Span(f"being {what}: {found.state}", Tone.MOVE), f", {meaning} until then; see: {see}")


def _following(topic: TopicDescription) -> Iterator[Line]:
    """Yield what a mirror follows: only its link writes to it."""
    found = topic.following
    if found is not None:
        see = f"reconciler mirror describe {topic.address}"
        yield line(f"  mirrors {found.source} over {found.link}: ", Span(found.state, Tone.MOVE), f"; see: {see}")


def _config(row: ConfigRow) -> tuple[Span, ...]:
    tone = Tone.QUIET if row.origin in _UNSAID else Tone.PLAIN
    return tuple(Span(text, tone) for text in (row.key, show_value(row.key, row.value), row.origin))
