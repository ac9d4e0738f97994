"""`topic storage` as text: a row for each partition and tier, or for each topic."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconciler.cli.render.amounts import bytes_text, count_text, counted
from reconciler.cli.render.groups_text import time_text
from reconciler.cli.render.lines import EMPTY, Line, Span, Tone, line
from reconciler.cli.render.tables import plain_table, table
from reconciler.resources.storages import Held

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from reconciler.errors import ReconcilerError
    from reconciler.resources.storages import PartitionStorage, TieringShown, TopicStorage
    from reconciler.workflow.storage import Storages

_HEADINGS = ("partition", "tier", "start", "end", "segments", "size", "not uploaded", "last upload")
_RIGHT = (0, 2, 3, 4, 5, 6)


def storage_text(topic: TopicStorage) -> list[Line]:
    """Return one topic: its tiering, a row for each partition and tier, and the sums."""
    rows = [row for partition in topic.partitions for row in _rows(partition)]
    return [
        line(Span(topic.address, Tone.STRONG)),
        *tiering_lines(topic.tiering),
        EMPTY,
        *table(_HEADINGS, rows, numbers=_RIGHT),
        EMPTY,
        line(sums_text([topic])),
        *_problems((f"partition {each.partition}", each.problem) for each in topic.partitions),
    ]


def storages_text(found: Storages) -> list[Line]:
    """Return many topics, a row each, and the sums."""
    if not found.topics:
        return [line("There are no topics.")]
    rows = [
        (
            topic.address,
            "never tiered" if topic.tiering is None else _in_short(topic.tiering),
            bytes_text(topic.local.bytes),
            bytes_text(topic.remote.bytes) if _is_shown(topic) else "",
            bytes_text(topic.log_bytes),
            "" if topic.pending_bytes is None else bytes_text(topic.pending_bytes),
            time_text(topic.uploaded_ms),
        )
        for topic in found.topics
    ]
    headings = ("topic", "tiering", "local", "remote", "log", "not uploaded", "last upload")
    return [
        *plain_table(headings, rows, numbers=(2, 3, 4, 5)),
        EMPTY,
        line(f"{counted(len(found.topics), 'topic')}. {sums_text(found.topics)}"),
        *_problems((topic.address, topic.problem) for topic in found.topics),
    ]


def _problems(found: Iterable[tuple[str, ReconcilerError | None]]) -> Iterator[Line]:
    """Yield what is not among the sums, and why."""
    for where, problem in found:
        if problem is not None:
            yield line(Span(f"{where}  remote unknown: {problem.message}", Tone.DANGER))


def tiering_lines(tiering: TieringShown | None) -> Iterator[Line]:
    """Yield what holds for the tiering of a topic, for one that is, or was, tiered."""
    if tiering is None:
        return
    paused = ", uploads pause" if tiering.is_paused else ""
    yield line(Span("  tiering  ", Tone.QUIET), f"{tiering.mode}, {tiering.state}, epoch {tiering.epoch}{paused}")
    yield line(Span("  location ", Tone.QUIET), tiering.location)
    if tiering.hidden is None:
        yield line(Span("  remote   ", Tone.QUIET), tiering.url)
    else:
        yield line(Span("  remote   ", Tone.QUIET), f"not shown: {tiering.hidden}")


def _rows(partition: PartitionStorage) -> Iterator[tuple[str | Span, ...]]:
    local, remote = partition.local, partition.remote
    pending = "" if partition.pending_bytes is None else bytes_text(partition.pending_bytes)
    yield (
        str(partition.partition),
        "local",
        *_offsets(partition.local_start, partition.end),
        count_text(local.segments),
        bytes_text(local.bytes),
        pending,
        "",
    )
    if remote is not None:
        yield (
            "",
            "remote",
            *_offsets(remote.start, remote.end),
            count_text(remote.held.segments),
            bytes_text(remote.held.bytes),
            "",
            time_text(remote.uploaded_ms),
        )
        if remote.garbage.segments:
            counts = count_text(remote.garbage.segments), bytes_text(remote.garbage.bytes)
            yield tuple(Span(cell, Tone.QUIET) for cell in ("", "to be deleted", "", "", *counts, "", ""))


def _offsets(start: int, end: int) -> tuple[str, str]:
    return count_text(start), count_text(end)


def _in_short(tiering: TieringShown) -> str:
    paused = ", paused" if tiering.is_paused else ""
    return tiering.mode + paused if tiering.state == "ENABLED" else f"{tiering.mode}, {tiering.state}"


def _is_shown(topic: TopicStorage) -> bool:
    return topic.tiering is not None and topic.tiering.hidden is None


def sums_text(topics: Sequence[TopicStorage]) -> str:
    """Say the sums; what is remote counts once, and what lies in both tiers once in the log."""
    local = Held.sum(topic.local for topic in topics)
    said = [f"{bytes_text(local.bytes)} local"]
    if any(map(_is_shown, topics)):
        remote = Held.sum(topic.remote for topic in topics)
        said.append(f"{bytes_text(remote.bytes)} remote")
        said.append(f"{bytes_text(sum(topic.log_bytes for topic in topics))} in all, what lies in both counted once")
    pending = [topic.pending_bytes for topic in topics if topic.pending_bytes is not None]
    if pending:
        said.append(f"{bytes_text(sum(pending))} not uploaded")
    return " · ".join(said)
