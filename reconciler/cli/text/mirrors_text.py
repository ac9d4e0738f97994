"""Mirrors as text."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from reconciler.cli.text.action_words import role_notes
from reconciler.cli.text.lines import EMPTY, Line, Span, Tone, line, plain_table, table
from reconciler.cli.text.topics_text import time_text
from reconciler.lifecycles.mirror import MirrorStatus
from reconciler.operations.mirrors.mirror_views import legal_words
from reconciler.runtime.text import count_text, counted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from reconciler.operations.mirrors.mirror_commands import Answer, Answers, Ready
    from reconciler.operations.mirrors.mirror_views import (
        MirrorError,
        MirrorErrors,
        MirrorList,
        MirrorRow,
        PartitionLag,
    )


_LISTED: Final = (
    "Cluster",
    "Link Name",
    "Mirror Topic Name",
    "Source Topic Name",
    "Mirror Status",
    "Status Time (ms)",
    "Partitions",
    "Max Partition Mirror Lag",
)
_DESCRIBED: Final = (
    "Link Name",
    "Mirror Topic Name",
    "Source Topic Name",
    "Mirror Status",
    "Status Time (ms)",
    "Partition",
    "Partition Mirror Lag",
    "Last Source Fetch Offset",
)
_WIDEST: Final = 100
_UNKNOWN: Final = "?"
_NONE: Final = "-"
GOES_ON: Final = "`reconciler run --once --only mirror`"
_QUIET: Final = frozenset({MirrorStatus.ACTIVE, MirrorStatus.STOPPED})


def mirrors_text(found: MirrorList) -> list[Line]:
    """Return a row for each mirror, and how many are in which state."""
    if not found.rows:
        return [] if found.lost else [line(f"There are no mirrors on {_clusters(found.clusters)}.")]
    rows = [_listed(row) for row in found.rows]
    states = Counter(row.seen.status for row in found.rows)
    said = ", ".join(f"{count_text(states[state])} {state}" for state in MirrorStatus if states[state])
    unmeasured = any(row.seen.partitions and not row.partitions for row in found.rows)
    return [
        *plain_table(_LISTED, rows, numbers=(5, 6, 7), widest=_WIDEST),
        EMPTY,
        line(f"{counted(len(found.rows), 'mirror')}: {said}"),
        *(
            [line(Span("Not all lags were measured: describe a mirror to see its own.", Tone.QUIET))]
            if unmeasured
            else []
        ),
    ]


def _clusters(names: Sequence[str]) -> str:
    return f"cluster {names[0]}" if len(names) == 1 else "any cluster"


def _listed(row: MirrorRow) -> tuple[str, ...]:
    seen = row.seen
    return (
        seen.cluster,
        seen.link,
        seen.name,
        seen.source,
        _status(row),
        str(seen.since_ms),
        count_text(seen.partitions),
        _lag(row, row.max_lag),
    )


def _status(row: MirrorRow) -> str:
    return f"{row.seen.status} (auto-created)" if row.seen.is_automatic else row.seen.status


def _lag(row: MirrorRow, lag: int | None) -> str:
    if lag is not None:
        return count_text(lag)
    return _NONE if row.seen.status is MirrorStatus.STOPPED else _UNKNOWN


def described_text(rows: Sequence[MirrorRow]) -> list[Line]:
    """Return mirrors, each with its partitions, what is wrong with it and what may be asked for."""
    blocks = [list(_described(row)) for row in rows]
    return [each for place, block in enumerate(blocks) for each in ([EMPTY] if place else []) + block]


def _described(row: MirrorRow) -> Iterator[Line]:
    seen = row.seen
    tone = Tone.PLAIN if seen.status in _QUIET else Tone.CHANGE
    yield line(
        Span(row.address, Tone.STRONG),
        f" mirrors {seen.source_cluster}/{seen.source}: ",
        Span(_status(row), tone),
        f" since {time_text(seen.since_ms)}" if seen.since_ms else "",
    )
    for word, said in _facts(row):
        yield line("  ", Span(f"{word}: ", Tone.QUIET), said)
    yield EMPTY
    yield from table(_DESCRIBED, [_partition(row, each) for each in row.partitions], numbers=(4, 5, 6, 7))


def _facts(row: MirrorRow) -> Iterator[tuple[str, str]]:
    seen = row.seen
    if seen.stopped_by is not None:
        yield "stopped by", seen.stopped_by
    if seen.operation is not None:
        yield "under way", f"{seen.operation.verb}; {GOES_ON} continues it"
    if seen.trouble is not None:
        yield "error", f"{seen.trouble.code}: {seen.trouble.message}"
    yield "may be asked", legal_words(row.legal) or "nothing"


def _partition(row: MirrorRow, lag: PartitionLag) -> tuple[str, ...]:
    seen = row.seen
    return (
        seen.link,
        seen.name,
        seen.source,
        seen.status,
        str(seen.since_ms),
        str(lag.partition),
        _lag(row, lag.lag),
        str(lag.fetched),
    )


def errors_text(found: MirrorErrors) -> list[Line]:
    """Return what is wrong, a row each."""
    if not found.errors:
        return [] if found.lost else [line("Nothing is wrong.")]
    rows = [
        (
            each.cluster,
            each.link,
            _where(each),
            each.trouble.code,
            each.trouble.message,
            time_text(each.trouble.since_ms) or _NONE,
        )
        for each in found.errors
    ]
    return plain_table(("cluster", "link", "where", "error code", "error message", "since"), rows, widest=_WIDEST)


def _where(error: MirrorError) -> str:
    if error.task is not None:
        return f"task {error.task}"
    return f"mirror {error.mirror}" if error.mirror is not None else "the link"


# What is asked of mirrors, and what came of it, as text.


_MEANINGS: Final = {
    "pause": "it fetches nothing until it is resumed",
    "resume": "it goes on from where it stopped",
    "promote": "once nothing lags behind it accepts producers, and no longer follows its source",
    "failover": "it accepts producers at once, and no longer follows its source",
    "reverse-and-start": "its source becomes its mirror; until both are equal neither takes records",
    "reverse-and-pause": "its source becomes its mirror, paused; until both are equal neither takes records",
    "truncate-and-restore": "it becomes a mirror, and takes no records of its own any more",
}


def asking_text(ready: Sequence[Ready]) -> list[Line]:
    """Return what is about to happen to mirrors, and what is lost or waited for, by partition."""
    return [each for one in ready for each in _asked(one)]


def _asked(ready: Ready) -> Iterator[Line]:
    mirror = ready.mirror
    yield line(
        Span("» ", Tone.MOVE),
        Span(ready.address, Tone.STRONG),
        f"  {ready.verb}, {ready.status} now, source {mirror.source_cluster}/{mirror.source}",
    )
    yield line("    ", _MEANINGS[ready.verb])
    for said, tone in role_notes(ready.verb, mirror, ready.estimate):
        yield line("    ", Span(said, tone))


def answers_text(answers: Answers) -> list[Line]:
    """Return what came of each mirror."""
    return [each for answer in answers.each for each in _answered(answers, answer, is_one=len(answers.each) == 1)]


def _answered(answers: Answers, answer: Answer, *, is_one: bool) -> Iterable[Line]:
    address = answer.named.address
    if answer.error is not None:
        if is_one:
            return  # It is what the command ends with.
        message = answer.error.message.removeprefix(f"{address}: ")
        yield line(Span("✗ ", Tone.DANGER), Span(address, Tone.STRONG), f"  {answers.verb}: {message}")
        yield line("    ", Span("hint: ", Tone.QUIET), answer.error.hint)
        return
    moved = f"{answer.before} → {answer.after or '?'}" if answer.before else f"{answer.after or '?'}"
    yield line(Span("✓ ", Tone.ADD), Span(address, Tone.STRONG), f"  {answers.verb}: {moved}{_then(answer)}")
    for cut in answer.ready.cuts if answer.ready else ():
        if cut.lost:
            yield line("    ", f"partition {cut.partition} was cut at {cut.offset}: {counted(cut.lost, 'offset')} lost")


def _then(answer: Answer) -> str:
    if answer.ready is None or answer.after is not MirrorStatus.STOPPED:
        return ""
    mirror = answer.ready.mirror
    if mirror.state == "reversed":
        return f"; mirror/{mirror.source_cluster}/{mirror.source} mirrors it now"
    return "; it takes records"
