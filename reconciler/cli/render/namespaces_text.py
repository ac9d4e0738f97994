"""What `namespace create`, `move` and `delete` do, as text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from reconciler.cli.render.amounts import bytes_text, count_text, counted
from reconciler.cli.render.lines import Line, Span, Tone, line
from reconciler.cli.render.tables import table
from reconciler.planning.judging.instead import mounting_yaml

if TYPE_CHECKING:
    from collections.abc import Sequence

    from reconciler.resources.address import Address
    from reconciler.workflow.namespaces.creating import Made
    from reconciler.workflow.namespaces.deleting import Leaving, NamespaceDeletion
    from reconciler.workflow.namespaces.moving import Moved

_SHOWN: Final = 50


def created_text(made: Made) -> list[Line]:
    """Return what was made, a tier a line."""
    if not made.created:
        return [line(f"namespace/{made.cluster}/{made.namespace} is there already")]
    return [line(Span("+ ", Tone.ADD), address) for address in made.created]


def moved_text(moved: Moved) -> list[Line]:
    """Return what was moved, a topic a line."""
    if not moved.moves:
        return [line("There are no topics to move")]
    return [line(Span("» ", Tone.MOVE), before, " → ", after) for before, after in moved.moves]


def deletion_text(deletion: NamespaceDeletion) -> list[Line]:
    """Return all that goes: totals first, then the topics, the largest first."""
    topics = deletion.topics
    known = [topic.measure for topic in topics if topic.measure is not None]
    size = f"{counted(sum(one.records for one in known), 'record')}, {bytes_text(sum(one.bytes for one in known))}"
    unknown = f", {counted(len(topics) - len(known), 'topic')} not measured" if len(known) < len(topics) else ""
    ordered = sorted(topics, key=lambda topic: -(topic.measure.bytes if topic.measure else 0))
    more = len(topics) - _SHOWN
    return [
        line(Span("- ", Tone.DANGER), Span(f"namespace/{deletion.cluster}/{deletion.namespace}", Tone.STRONG)),
        *[line(Span("- ", Tone.DANGER), address) for address in deletion.nested[:_SHOWN]],
        line(
            f"  {counted(1 + len(deletion.nested), 'namespace')}, {counted(len(topics), 'topic')}: {size}{unknown}",
        ),
        *(
            table(
                ("topic", "records", "size", "read by"), [_cells(topic) for topic in ordered[:_SHOWN]], numbers=(1, 2)
            )
            if topics
            else []
        ),
        *([line(f"… and {counted(more, 'more topic')}")] if more > 0 else []),
        *_instead(deletion.detachable),
    ]


def _instead(topics: Sequence[Address]) -> list[Line]:
    """Return what keeps the records of topics that lie in object storage as well."""
    if not topics:
        return []
    others = f" (and {counted(len(topics) - 1, 'more topic')} likewise)" if topics[1:] else ""
    text = f"to keep the records of {topics[0]}{others} in object storage, declare and apply first:  "
    return [line(Span("Safer: ", Tone.STRONG), text, mounting_yaml(topics[0]))]


def deleted_text(deletion: NamespaceDeletion) -> list[Line]:
    """Return that it was done."""
    gone = f"{counted(1 + len(deletion.nested), 'namespace')}, {counted(len(deletion.topics), 'topic')}"
    return [line(f"Deleted {gone}" + ("; `reconciler run` frees the space" if deletion.topics else ""))]


def _cells(topic: Leaving) -> tuple[str, str, str, str]:
    found = topic.measure
    if found is None:
        return topic.address, "?", "?", "?"
    groups = "?" if found.groups is None else ", ".join(found.groups)
    return topic.address, count_text(found.records), bytes_text(found.bytes), groups
