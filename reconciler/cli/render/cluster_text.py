"""Namespaces and topics as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconciler.cli.render.acls_text import acls_lines
from reconciler.cli.render.amounts import bytes_text, count_text, counted
from reconciler.cli.render.groups_text import readers_text
from reconciler.cli.render.lines import EMPTY, Line, Span, Tone, line
from reconciler.cli.render.readers import configs_text
from reconciler.cli.render.tables import table
from reconciler.resources.configs import DEFAULT, show_value

if TYPE_CHECKING:
    from collections.abc import Sequence

    from reconciler.workflow.actingconfigs import ConfigRow
    from reconciler.workflow.namespaces import NamespaceRow
    from reconciler.workflow.topics import TopicDescription, TopicRow


def namespaces_text(rows: Sequence[NamespaceRow]) -> list[Line]:
    """Return a table of namespaces."""
    if not rows:
        return [line("There are no namespaces.")]
    cells = [(row.address, count_text(row.topics), configs_text(row.configs)) for row in rows]
    return table(("address", "topics", "configs"), cells, numbers=(1,))


def topics_text(rows: Sequence[TopicRow], *, sizes: bool) -> list[Line]:
    """Return a table of topics; with `sizes` also what they hold, as far as it was measured."""
    if not rows:
        return [line("There are no topics.")]
    shapes = [(row.address, _known(row.partitions), _known(row.replication_factor)) for row in rows]
    if not sizes:
        return table(("address", "partitions", "replicas"), shapes, numbers=(1, 2))
    cells = [
        (*shape, _known(row.records), "?" if row.bytes is None else bytes_text(row.bytes))
        for shape, row in zip(shapes, rows, strict=True)
    ]
    return table(("address", "partitions", "replicas", "records", "size"), cells, numbers=(1, 2, 3, 4))


def topic_text(topic: TopicDescription) -> list[Line]:
    """Return one topic: partitions with their offsets, groups with their lag, configs with their origin."""
    size = "" if topic.bytes is None else f", {bytes_text(topic.bytes)}"
    records = "" if topic.records is None else f", {counted(topic.records, 'record')}"
    partitions = [(str(row.partition), *map(count_text, (row.start, row.stable, row.end))) for row in topic.partitions]
    # What somebody set comes first; what nobody did is there, but quiet.
    rows = sorted(topic.configs, key=lambda row: (row.origin == DEFAULT, row.key))
    configs = [_config(row) for row in rows]
    readers = readers_text(topic.groups)
    return [
        line(Span(topic.address, Tone.STRONG)),
        line(f"  {counted(len(topic.partitions), 'partition')}{records}{size}"),
        *([line(Span("  id ", Tone.QUIET), topic.incarnation)] if topic.incarnation else []),
        EMPTY,
        *table(("partition", "start", "stable", "end"), partitions, numbers=(0, 1, 2, 3)),
        *([EMPTY, *readers] if readers else []),
        *([EMPTY, *table(("config", "value", "comes from"), configs)] if configs else []),
        *acls_lines(topic.acls),
    ]


def _config(row: ConfigRow) -> tuple[Span, ...]:
    tone = Tone.QUIET if row.origin == DEFAULT else Tone.PLAIN
    return tuple(Span(text, tone) for text in (row.key, show_value(row.key, row.value), row.origin))


def _known(count: int | None) -> str:
    return "?" if count is None else count_text(count)
