"""What `mount release` takes from whom, as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconciler.cli.render.amounts import bytes_text, counted
from reconciler.cli.render.lines import Line, Span, Tone, line

if TYPE_CHECKING:
    from reconciler.workflow.mounting.releasing import Release


def release_text(release: Release) -> list[Line]:
    """Return what would be taken, and what is lost by that."""
    topic = release.topic
    has = "is being mounted" if topic.state == "claimed" else "is mounted"
    lines = [
        line(Span("± ", Tone.DANGER), Span(topic.location, Tone.STRONG), f"  release  {_kept(release)}"),
        line(f"  {has} on cluster {release.owner} as {topic.name}"),
        line("  ", Span("data-loss: ", Tone.DANGER), "what that cluster has not uploaded is lost"),
    ]
    if release.owner_name is not None:
        warning = f"that cluster is {release.owner_name} of this workspace, and answers: it can unmount the topic"
        lines.append(line("  ", Span(warning, Tone.DANGER)))
    return lines


def released_text(release: Release) -> list[Line]:
    """Return that it was done, and what can be mounted now."""
    where = ", ".join(release.clusters)
    return [
        line(f"Released {release.topic.location} from cluster {release.owner}"),
        line(f"  mountable now: {_kept(release)}; on {where} by a Mounting whose source is that location"),
    ]


def _kept(release: Release) -> str:
    topic = release.topic
    amounts = counted(topic.partitions, "partition"), counted(topic.records, "record"), bytes_text(topic.bytes)
    return ", ".join(amounts)
