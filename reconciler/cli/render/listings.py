"""Lists of namespaces and of topics as text: light, for there may be tens of thousands."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconciler.cli.render.amounts import bytes_text, count_text
from reconciler.cli.render.lines import Line, line
from reconciler.cli.render.tables import plain_table
from reconciler.cli.render.values import configs_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from reconciler.resources.overviews import TopicShown
    from reconciler.workflow.namespaces.listing import NamespaceRow


def namespaces_text(rows: Sequence[NamespaceRow]) -> list[Line]:
    """Return a table of namespaces."""
    if not rows:
        return [line("There are no namespaces.")]
    cells = [(row.address, count_text(row.topics), configs_text(row.configs)) for row in rows]
    return plain_table(("address", "topics", "configs"), cells, numbers=(1,))


def topics_text(rows: Sequence[TopicShown], *, sizes: bool) -> list[Line]:
    """Return a table of topics; with `sizes` also what they hold, as far as it was measured."""
    if not rows:
        return [line("There are no topics.")]
    headings = ["address", "partitions", "replicas"]
    cells: list[list[str]] = [[row.address, _known(row.partitions), _known(row.replication_factor)] for row in rows]
    if sizes:
        headings += ["records", "size"]
        for cell, row in zip(cells, rows, strict=True):
            cell += [_known(row.records), "?" if row.bytes is None else bytes_text(row.bytes)]
    numbers = range(1, len(headings))
    if any(row.following is not None for row in rows):
        headings.append("mirrors")
        for cell, row in zip(cells, rows, strict=True):
            cell.append(_following(row))
    return plain_table(headings, cells, numbers=numbers)


def _following(row: TopicShown) -> str:
    found = row.following
    return "" if found is None else f"{found.source} over {found.link}: {found.state}"


def _known(count: int | None) -> str:
    return "?" if count is None else count_text(count)
