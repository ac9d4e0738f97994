"""Mirrors as text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from reconciler.cli.text.action_words import lag_text, role_notes
from reconciler.cli.text.lines import EMPTY, Line, Span, Tone, line, plain_table, table
from reconciler.cli.text.topics_text import time_text
from reconciler.lifecycles import LinkStatus, MirrorStatus
from reconciler.manifests.edit import yaml_text
from reconciler.operations.mirrors.mirror_preview import LOSING, Ready
from reconciler.operations.mirrors.mirror_views import (
    MirrorError,
    MirrorErrors,
    MirrorList,
    MirrorRow,
    PartitionLag,
    legal_words,
)
from reconciler.resources.mirrors import RESTORE
from reconciler.runtime.text import count_text, counted, first_few

if TYPE_CHECKING:
    from reconciler.operations.mirrors.link_views import LinkList, LinkRow
    from reconciler.operations.mirrors.mirror_commands import Answer, Answers
    from reconciler.planning.actions import RoleCost


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
        str(seen.since_ms or _NONE),
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
        str(seen.since_ms or _NONE),
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


_COLUMNS: Final = ("Mirror", "State")
_COSTS: Final = {"failover": "Lost", "truncate-and-restore": "Lost", "pause": "", "resume": ""}
"""What is shown of each of several mirrors besides its state; of what has to be copied first: how much is behind."""


def asking_text(foreseen: Answers) -> list[Line]:
    """Return what is about to happen, and what is lost or waited for: of several mirrors as a table."""
    if len(foreseen.each) == 1:
        return [each for one in foreseen.each if one.ready is not None for each in _asked(one.ready)]
    return [*_foreseen(foreseen), EMPTY]


def _foreseen(foreseen: Answers) -> list[Line]:
    verb = foreseen.verb
    heading = _COSTS.get(verb, "Behind")
    rows = [(answer.named.address, str(answer.before or "-"), _cost_text(answer)) for answer in foreseen.each]
    return [
        line(Span("» ", Tone.MOVE), Span(f"{verb} of {_mirrors(foreseen)}: ", Tone.STRONG), _MEANINGS[verb]),
        *plain_table((*_COLUMNS, heading), rows, widest=_WIDEST),
        *_loss(foreseen),
    ]


def _mirrors(answers: Answers) -> str:
    ready = len(answers.each) - answers.failed - answers.left
    return (
        counted(ready, "mirror")
        if ready == len(answers.each)
        else f"{count_text(ready)} of {len(answers.each)} mirrors"
    )


def _cost_text(answer: Answer) -> str:
    ready, error = answer.ready, answer.error
    if answer.is_left:
        return "is so already: left as it is"
    if error is not None:
        return f"refused: {error.message.removeprefix(f'{answer.named.address}: ')}"
    cost = None if ready is None else ready.estimate.role
    if ready is None or cost is None:
        return ""
    if cost.unknown is not None:
        return f"cannot tell: {cost.unknown}"
    if cost.records:
        return _diverged_text(cost, cost.records)
    if ready.lost_records is not None:
        return _lost_text(ready.lost_records, ready.lost_ms)
    return lag_text(ready.estimate)


def _lost_text(records: int, lost_ms: int | None) -> str:
    """Return what is lost: offsets, which are records or markers between them, and seconds where that is known."""
    if not records:
        return "nothing as of now"
    return counted(records, "record") + ("" if lost_ms is None else f", {_seconds(lost_ms)}")


def _diverged_text(cost: RoleCost, records: int) -> str:
    """Return how many records never reached a mirror, since when, and what becomes of them."""
    found = counted(records, "record") + ("" if cost.since_ms is None else f" since {time_text(cost.since_ms)}")
    return found if cost.kept_in is None else f"nothing: {found} kept in {cost.kept_in}"


def _seconds(ms: int) -> str:
    return f"{ms / 1000:,.1f} s"


def _loss(foreseen: Answers) -> Iterator[Line]:
    """Yield what is lost together."""
    ready = [answer.ready for answer in foreseen.each if answer.ready is not None]
    if foreseen.verb not in LOSING or not ready:
        return
    lost = [each for each in ready if each.lost_records]
    unknown = sum(each.lost_records is None for each in ready)
    times = [each.lost_ms for each in lost if each.lost_ms is not None]
    most = f", at most {_seconds(max(times))} each" if times else ""
    said = f"{counted(sum(each.lost_records or 0 for each in lost), 'record')} of {counted(len(lost), 'mirror')}{most}"
    yield line(Span("Lost as of now: ", Tone.STRONG), Span(said, Tone.DANGER if lost else Tone.QUIET))
    for each in ready:
        yield from _followed(each)
    if unknown:
        yield line("    ", Span(f"of {counted(unknown, 'mirror')} it cannot be told how much is lost", Tone.DANGER))


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
    yield from _followed(ready)


def _followed(ready: Ready) -> Iterator[Line]:
    """Yield the mirrors that have records which a restore cuts off their source."""
    if ready.followers and ready.lost_records:
        names = first_few(ready.followers, 20)
        yield line("    ", Span(f"{ready.address} is the source of {names}: where it is cut they fail", Tone.DANGER))


def answers_text(answers: Answers) -> list[Line]:
    """Return what came of each mirror, and of several together; of a rehearsal what would come of them."""
    if answers.is_rehearsal and len(answers.each) > 1:
        return _foreseen(answers)
    if answers.is_rehearsal and answers.left == 0:
        return asking_text(answers)
    lines = [each for answer in answers.each for each in _answered(answers, answer, is_one=len(answers.each) == 1)]
    return lines if len(answers.each) == 1 else [*lines, line(Span(f"{answers.verb}: ", Tone.STRONG), _counts(answers))]


def _counts(answers: Answers) -> str:
    counts = {
        "done": len(answers.each) - answers.failed - answers.left,
        "left as they were": answers.left,
        "refused or failed": answers.failed,
    }
    return ", ".join(f"{count_text(count)} {what}" for what, count in counts.items() if count)


def _answered(answers: Answers, answer: Answer, *, is_one: bool) -> Iterable[Line]:
    address = answer.named.address
    if answer.error is not None:
        if is_one:
            return  # It is what the command ends with.
        message = answer.error.message.removeprefix(f"{address}: ")
        yield line(Span("✗ ", Tone.DANGER), Span(address, Tone.STRONG), f"  {answers.verb}: {message}")
        yield line("    ", Span("hint: ", Tone.QUIET), answer.error.hint)
        return
    if answer.is_left:
        said = f"  {answers.verb}: {answer.after} already, left as it is"
        yield line(Span("· ", Tone.QUIET), Span(address, Tone.STRONG), said)
        return
    moved = f"{answer.before} → {answer.after or '?'}" if answer.before else f"{answer.after or '?'}"
    yield line(Span("✓ ", Tone.ADD), Span(address, Tone.STRONG), f"  {answers.verb}: {moved}{_then(answer)}")
    for cut in answer.ready.cuts if answer.ready else ():
        if cut.lost:
            yield line("    ", f"partition {cut.partition} was cut at {cut.offset}: {counted(cut.lost, 'offset')} lost")


def _then(answer: Answer) -> str:
    if answer.ready is None:
        return ""
    if answer.ready.verb == RESTORE and answer.after is MirrorStatus.ACTIVE:
        return "; `reconciler run` copies what is new"
    if answer.after is not MirrorStatus.STOPPED:
        return ""
    mirror = answer.ready.mirror
    if mirror.state == "reversed":
        return f"; mirror/{mirror.source_cluster}/{mirror.source} mirrors it now"
    return "; it takes records"


# Links as text.


_LINKED: Final = ("Cluster", "Link Name", "Source Cluster", "Mode", "Prefix", "Link State", "Mirrors")


def links_text(found: LinkList) -> list[Line]:
    """Return a row for each link."""
    if not found.rows:
        return [] if found.lost else [line("There are no links. Make one: reconciler link create, or a MirrorLink.")]
    rows = [
        (
            row.cluster,
            row.seen.name,
            row.seen.declared.spec.source,
            row.seen.declared.spec.mode,
            row.seen.declared.spec.prefix or _NONE,
            row.seen.status,
            _mirror_states(row),
        )
        for row in found.rows
    ]
    return [*plain_table(_LINKED, rows, widest=_WIDEST), EMPTY, line(counted(len(found.rows), "link"))]


def _mirror_states(row: LinkRow) -> str:
    states = ", ".join(f"{count_text(row.mirrors[state])} {state}" for state in MirrorStatus if row.mirrors.get(state))
    return states or _NONE


def described_links_text(rows: Sequence[LinkRow]) -> list[Line]:
    """Return links, each with its fields, tasks, mirrors, what is wrong and what may be asked for."""
    blocks = [list(_described_link(row)) for row in rows]
    return [each for place, block in enumerate(blocks) for each in ([EMPTY] if place else []) + block]


def _described_link(row: LinkRow) -> Iterator[Line]:
    seen = row.seen
    tone = Tone.PLAIN if seen.status is LinkStatus.ACTIVE else Tone.CHANGE
    name = seen.declared.spec.source
    known = "" if seen.source_cluster_id is None else f" ({seen.source_cluster_id})"
    yield line(Span(row.address, Tone.STRONG), f" from {name}{known}: ", Span(seen.status, tone))
    for key, value in seen.declared.spec.to_json().items():
        if key != "source":
            yield line("  ", Span(f"{key}: ", Tone.QUIET), yaml_text(value))
    yield line("  ", Span("mirrors: ", Tone.QUIET), _mirror_states(row))
    if seen.trouble is not None:
        yield line("  ", Span("error: ", Tone.QUIET), f"{seen.trouble.code}: {seen.trouble.message}")
    for task, trouble in sorted(seen.tasks.items()):
        yield line("  ", Span(f"task {task}: ", Tone.QUIET), f"{trouble.code}: {trouble.message}")
    yield line("  ", Span("may be asked: ", Tone.QUIET), ", ".join(row.legal))
