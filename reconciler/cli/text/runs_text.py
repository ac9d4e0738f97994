"""Events and results of runs as text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, assert_never

from reconciler.applying.events import (
    ActionDone,
    ActionFailed,
    Alike,
    JobExecution,
    LeaseLost,
    Progress,
    ResultMissing,
    RunHandedOver,
    RunRecovered,
    Summary,
    group_failures,
    group_skipped_actions,
    mask_names,
)
from reconciler.cli.text.action_words import format_mounts
from reconciler.cli.text.lines import EMPTY, Line, Span, Tone, make_line, make_table
from reconciler.planning.actions import RunJob
from reconciler.planning.plan_rows import format_done_counts
from reconciler.runtime.text import (
    format_bytes,
    format_count,
    format_elapsed,
    format_estimate,
    format_rough_count,
    list_first,
    pluralize,
    shorten_run_id,
)

if TYPE_CHECKING:
    from reconciler.applying.engine import RunResult
    from reconciler.jobs.comparison import PartitionComparison, PartitionSide
    from reconciler.operations.apply import ApplyOutcome
    from reconciler.operations.mirrors.mirror_rounds import JobOutcome, PassResult
    from reconciler.operations.plan import PlanResult
    from reconciler.operations.state_views import HistoryRow
    from reconciler.operations.verify import LinkComparison, TopicComparison
    from reconciler.resources.mirrors import ForeignRecords


_MAX_SETTLED: Final = 10
_VERDICTS: Final[Mapping[str, str]] = {
    "absent": "had not happened",
    "done": "had happened, and is recorded now",
    "partial": "had happened in part, and was completed",
    "under way": "is in progress; its mirror shows its state",
    "moving": "is in progress: the brokers still move replicas",
    "conflict": "the resource has neither its old nor its planned values; the plan starts from what exists",
    "unknown": "it could not be read; the next plan shows what exists",
}


def format_run_event(event: LeaseLost | RunRecovered | RunHandedOver | ResultMissing) -> list[Line]:
    """Format an event, except progress and results of actions."""
    match event:
        case LeaseLost():
            return [format_lease_lost(event)]
        case RunRecovered():
            return format_recovery(event)
        case RunHandedOver():
            return [format_detached_actions(event)]
        case ResultMissing():
            return [format_missing_result(event)]
        case _:
            assert_never(event)


def format_failure(event: ActionFailed) -> Line:
    """Format a failed action in one line: its id, error and hint."""
    return make_line(Span("✗ ", Tone.DANGER), f"{event.id}: {event.error}. {event.hint}")


def format_lease_lost(event: LeaseLost) -> Line:
    """Format a report that another process took the lease."""
    return make_line(Span("Lease lost: ", Tone.DANGER), f"{event.message}. Nothing more is started.")


def format_recovery(event: RunRecovered) -> list[Line]:
    """Format a recovered run, and the outcomes of its actions in doubt."""
    who = f" of {event.who}" if event.who else ""
    head = make_line(f"Run {event.run}{who} {_describe_parting(event)}")
    if len(event.settled) <= _MAX_SETTLED:
        return [head, *(make_line(f"  {name}: {_VERDICTS[verdict]}") for name, verdict in event.settled.items())]
    fates: dict[str, list[str]] = {}
    for name, verdict in event.settled.items():
        fates.setdefault(verdict, []).append(name)
    return [head, *(make_line(f"  {list_first(names)}: {_VERDICTS[verdict]}") for verdict, names in fates.items())]


def _describe_parting(event: RunRecovered) -> str:
    doubt = f"{pluralize(len(event.settled), 'action')} in doubt" if event.settled else ""
    left = f"{pluralize(event.left, 'action')} not begun" if event.left else ""
    match event.parting:
        case "stopped":
            return f"was stopped: {doubt or left or 'nothing of it is left'}"
        case "detached":
            return f"left {pluralize(event.left, 'action')} to others{doubt and f', and {doubt}'}"
        case None:
            return f"had not closed: {doubt or left or 'all of it is done'}"
        case _:
            assert_never(event.parting)


def format_detached_actions(event: RunHandedOver) -> Line:
    """Format the number of actions left to `apply --resume`."""
    return make_line(
        Span("Left: ", Tone.CHANGE), f"{pluralize(len(event.left), 'action')}. Continue with: reconciler apply --resume"
    )


def format_missing_result(event: ResultMissing) -> Line:
    """Format a report that a run's summary could not be written."""
    return make_line(
        Span("! ", Tone.CHANGE),
        f"What was done is recorded as state #{event.serial}. Only the summary of run {shorten_run_id(event.run)} is "
        f"missing: {event.error}. Nothing has to be run again for it.",
    )


_NOTABLE_START_S: Final = 0.1


def format_action_done(event: ActionDone) -> Line:
    """Format a job's result."""
    moved = f"{pluralize(event.records, 'record')}, {format_bytes(event.bytes)}"
    ran = f", {format_execution(event.ran)}" if event.ran.engine else ""
    start = (
        f", {format_elapsed(event.ran.starting_s)} of it to start Spark"
        if event.ran.starting_s >= _NOTABLE_START_S
        else ""
    )
    rate = (
        f" ({format_rough_count(_compute_rate(event.records, event.seconds, event.ran))} records/s)"
        if event.records
        else ""
    )
    return make_line(Span("✓ ", Tone.ADD), f"{event.id}: {moved} in {format_elapsed(event.seconds)}{start}{rate}{ran}")


def _compute_rate(amount: int, seconds: float, ran: JobExecution) -> int:
    return round(amount / max(0.001, seconds - ran.starting_s))


def format_execution(ran: JobExecution) -> str:
    """Format where tasks ran: `Spark local[*], 12 tasks`."""
    return f"{ran.engine}, {pluralize(ran.spark_tasks, 'task')}" if ran.spark_tasks else ran.engine


def format_progress(event: Progress) -> str:
    """Format a job's progress, rate and remaining time, or its phase before copying."""
    if event.phase:
        return f"{event.id}: {event.phase}"
    total = f" of {format_rough_count(event.records_total)}" if event.records_total else ""
    where = f", {event.ran.engine}" if event.ran.engine else ""
    left = "" if not event.seconds_left else f", {format_estimate(event.seconds_left)} left"
    parts = f", {format_partitions_done(event)} partitions" if event.partitions else ""
    pace = f"{format_rough_count(_compute_rate(event.records, event.seconds, event.ran))} records/s"
    size = f", {format_bytes_rate(event)}" if event.bytes else ""
    return f"{event.id}: {format_rough_count(event.records)}{total} records{parts}, {pace}{size}{left}{where}"


def format_partitions_done(event: Progress) -> str:
    """Format the number of completed partitions: `3 of 12`."""
    return f"{format_count(event.partitions_done)} of {format_count(event.partitions)}"


def format_bytes_rate(event: Progress) -> str:
    """Format the byte rate: `35.2 MiB/s`."""
    return f"{format_bytes(_compute_rate(event.bytes, event.seconds, event.ran))}/s"


FEW: Final = 5


class FailureFormatter:
    """Counts failures by kind; formats the first few of each."""

    def __init__(self) -> None:
        self._seen: Counter[str] = Counter()

    def format_next_failure(self, event: ActionFailed) -> list[Line]:
        """Count a failure; return lines for the first few of its kind."""
        kind = mask_names(event.error, event.id)
        self._seen[kind] += 1
        if self._seen[kind] < FEW:
            return [format_failure(event)]
        if self._seen[kind] == FEW:
            return [format_failure(event), make_line(Span("  more like it are counted at the end", Tone.QUIET))]
        return []


_MAX_REASONS: Final = 20


def format_run_result(applied: ApplyOutcome, summary: Summary | None, *, with_failures: bool = True) -> list[Line]:
    """Format completed, failed and remaining actions; `summary` adds state and time.

    `with_failures` repeats failures printed before.
    """
    lines = list(_format_not_needed(applied.skipped))
    if applied.advance is not None:
        lines.append(make_line(Span("- ", Tone.QUIET), f"{applied.advance}; what is left of the plan is as it was"))
    result = applied.result
    if result is None:
        waiting = len(applied.planned.plan.waiting)
        nothing = f"Nothing was done: {format_count(waiting)} waiting." if waiting else "Nothing to do."
        return [*lines, make_line(nothing), *_format_approval(summary)]
    lines.append(make_line(Span("Done: ", Tone.STRONG), " · ".join(_list_counts(applied, result, summary))))
    done = set(result.done)
    lines += format_mounts((action for action in applied.planned.plan.actions if action.id in done), _MAX_REASONS)
    groups = group_failures(result.failed)
    lines += _format_failures(groups if with_failures else [group for group in groups if len(group.ids) > FEW])
    lines += _format_skipped(result)
    lines += _format_in_doubt(result)
    lines += _format_approval(summary)
    return lines


def format_approval(run: HistoryRow | Summary) -> str:
    """Format a run's approvers and pull request: `anna, bob in https://…`."""
    where = f" in {run.pull_request}" if run.pull_request else ""
    return f"{', '.join(run.approved_by)}{where}".strip()


def _format_approval(summary: Summary | None) -> Iterator[Line]:
    if summary is not None and (text := format_approval(summary)):
        yield make_line(Span("Approved: ", Tone.STRONG), f"by {text}" if summary.approved_by else text)


def _format_not_needed(skipped: Sequence[str]) -> Iterator[Line]:
    if skipped:
        yield make_line(Span("- ", Tone.QUIET), f"{list_first(skipped)}: no longer needed")


def _list_counts(applied: ApplyOutcome, result: RunResult, summary: Summary | None) -> Iterator[str]:
    done = set(result.done)
    yield format_done_counts(action for action in applied.planned.plan.actions if action.id in done) or "nothing"
    named = {
        "failed": len(result.failed) - len(result.in_doubt),
        "in doubt": len(result.in_doubt) + len(result.unanswered),
        "skipped": len(result.skipped),
    }
    yield from (f"{format_count(count)} {name}" for name, count in named.items() if count)
    yield from _list_unstarted(applied.planned, result)
    if result.ran.engine:
        yield format_execution(result.ran)
    if summary is not None:
        if summary.serial is not None:
            yield f"state #{summary.serial}"
        yield f"in {format_elapsed(summary.seconds)}"


def _list_unstarted(planned: PlanResult, result: RunResult) -> Iterator[str]:
    left = set(result.not_started).difference(result.unanswered)
    if not left:
        return
    if result.is_stopped:
        yield f"{format_count(len(left))} not started"
        return
    jobs = sum(isinstance(action, RunJob) for action in planned.plan.actions if action.id in left)
    after = f" and {pluralize(len(left) - jobs, 'action')} after it" if len(left) > jobs else ""
    yield f"{pluralize(jobs, 'job')}{after} left to `apply --resume`"


def _format_failures(groups: Sequence[Alike]) -> Iterator[Line]:
    for group in groups[:_MAX_REASONS]:
        if len(group.ids) == 1:
            yield make_line(Span("✗ ", Tone.DANGER), f"{group.ids[0]}: {group.error}. {group.hint}")
        else:
            yield make_line(Span("✗ ", Tone.DANGER), f"{format_count(len(group.ids))} × {group.error}. {group.hint}")
            yield make_line(Span(f"    {list_first(group.ids)}", Tone.QUIET))
    yield from _format_omitted(groups[_MAX_REASONS:], "failed")


def _format_skipped(result: RunResult) -> Iterator[Line]:
    causes = list(group_skipped_actions(result.skipped).items())
    for cause, ids in causes[:_MAX_REASONS]:
        if len(ids) == 1:
            yield make_line(Span("- ", Tone.QUIET), f"{ids[0]}: skipped, it needs {cause}")
        else:
            yield make_line(Span("- ", Tone.QUIET), f"{format_count(len(ids))} skipped, they need {cause}")
            yield make_line(Span(f"    {list_first(ids)}", Tone.QUIET))
    yield from _format_omitted(causes[_MAX_REASONS:], "skipped")


def _format_in_doubt(result: RunResult) -> Iterator[Line]:
    if ids := [*(action.id for action in result.in_doubt), *result.unanswered]:
        yield make_line(Span("? ", Tone.CHANGE), f"in doubt until the next apply has looked: {list_first(ids)}")


def _format_omitted(reasons: Sequence[object], what: str) -> Iterator[Line]:
    if reasons:
        more = pluralize(len(reasons), "more reason", "more reasons")
        yield make_line(Span(f"  {what} for {more}: see result.json of the run", Tone.QUIET))


def format_upkeep(upkeep: PassResult, *, with_failures: bool = True) -> list[Line]:
    """Format a pass: mirrors, jobs, and failures unless printed before."""
    failures = list(_format_upkeep_failures(upkeep)) if with_failures else []
    ran = [make_line(Span("Ran: ", Tone.STRONG), format_execution(upkeep.ran))] if upkeep.ran.engine else []
    notes = [make_line(f"{outcome.name}: {note}") for outcome in upkeep.jobs for note in outcome.upkept.notes]
    blocks = [
        block for block in (_format_mirror_table(upkeep), _format_job_table(upkeep), notes, failures, ran) if block
    ]
    others = _format_left_to_others(upkeep)
    if not blocks and not any(outcome.errors for outcome in upkeep.outcomes):
        jobs, mirrors = pluralize(len(upkeep.jobs), "job"), pluralize(len(upkeep.synced), "mirror")
        did = f"Nothing to do: {jobs}, {mirrors}."
        return [make_line(f"{did} {_format_not_copied(upkeep)}".rstrip()), *others]
    blocks += [others] if others else []
    return [part for block in blocks for part in (*block, EMPTY)][:-1]


def _format_not_copied(upkeep: PassResult) -> str:
    states = ", ".join(f"{format_count(count)} {state}" for state, count in upkeep.left.items())
    return f"Not copied: {pluralize(sum(upkeep.left.values()), 'mirror')} ({states})." if states else ""


def _format_left_to_others(upkeep: PassResult) -> list[Line]:
    if not upkeep.others:
        return []
    links = [f"{address} to {owner.workspace!r} ({what})" for address, (owner, what) in upkeep.others.items()]
    return [make_line(Span(f"Left to the workspaces that own them: {list_first(links)}", Tone.QUIET))]


def format_pass(upkeep: PassResult, number: int) -> Line:
    """Format a pass as one line."""
    did = (
        [f"{pluralize(sum(outcome.records for outcome in upkeep.synced), 'record')} mirrored"] if upkeep.synced else []
    )
    did += [f"{outcome.job} {_format_amount(outcome)}" for outcome in upkeep.jobs if outcome.upkept.done]
    failed = [outcome.name for outcome in upkeep.outcomes if outcome.errors]
    ran = f", {format_execution(upkeep.ran)}" if upkeep.ran.engine else ""
    text = f"pass {number}: {', '.join(did) or 'nothing to do'} in {format_elapsed(upkeep.seconds)}{ran}"
    return make_line(text, *([Span(f"; failed: {', '.join(failed)}", Tone.DANGER)] if failed else []))


def _format_mirror_table(upkeep: PassResult) -> list[Line]:
    cells = [
        (outcome.address, format_count(outcome.records), format_bytes(outcome.bytes), format_elapsed(outcome.seconds))
        for outcome in upkeep.synced
        if outcome.error is None
    ]
    return make_table(("mirror", "records", "size", "took"), cells, numbers=(1, 2, 3)) if cells else []


def _format_job_table(upkeep: PassResult) -> list[Line]:
    cells = [
        (
            outcome.job,
            outcome.cluster,
            pluralize(outcome.upkept.done, outcome.upkept.unit),
            format_count(outcome.upkept.records) if outcome.upkept.records or not outcome.upkept.bytes else "-",
            format_bytes(outcome.upkept.bytes) if outcome.upkept.bytes else "-",
            format_elapsed(outcome.seconds),
        )
        for outcome in upkeep.jobs
        if outcome.upkept.done
    ]
    return make_table(("job", "cluster", "done", "records", "size", "took"), cells, numbers=(3, 4, 5)) if cells else []


def _format_upkeep_failures(upkeep: PassResult) -> Iterator[Line]:
    for outcome in upkeep.outcomes:
        for error in outcome.errors:
            yield make_line(Span("✗ ", Tone.DANGER), f"{outcome.name}: {error.message}. {error.hint}")


def _format_amount(outcome: JobOutcome) -> str:
    upkept = outcome.upkept
    size = f" ({format_bytes(upkept.bytes)})" if upkept.bytes else ""
    notes = f": {list_first(upkept.notes)}" if upkept.notes else ""
    return f"{pluralize(upkept.done, upkept.unit)}{size}{notes}"


def format_verification(verified: TopicComparison) -> list[Line]:
    """Format a table of partitions, and whether the logs are equal."""
    partitions = verified.comparison.partitions
    rows = [
        (str(partition.partition), *_build_side_cells(partition), _build_verdict_cell(partition))
        for partition in partitions
    ]
    records = [sum(side.records for side in sides if side) for sides in zip(*map(_list_sides, partitions), strict=True)]
    how = "every record read" if verified.comparison.is_deep else "by kept digests"
    word, tone = ("Equal", Tone.ADD) if verified.is_equal else ("Different", Tone.DANGER)
    counts = " and ".join(pluralize(count, "record") for count in dict.fromkeys(records)) or "no records"
    return [
        make_line(Span("left   ", Tone.QUIET), verified.left),
        make_line(Span("right  ", Tone.QUIET), verified.right),
        EMPTY,
        *make_table(_HEADINGS, rows, numbers=_NUMBER_COLUMNS),
        *_format_foreign(verified.foreign),
        EMPTY,
        make_line(Span(f"{word}: ", tone), f"{pluralize(len(partitions), 'partition')}, {counts}, {how}"),
    ]


def _format_foreign(foreign: Sequence[ForeignRecords]) -> Iterator[Line]:
    for records in foreign[:_MAX_SETTLED]:
        yield make_line(Span("foreign  ", Tone.DANGER), str(records))
    if (more := len(foreign) - _MAX_SETTLED) > 0:
        yield make_line(f"and {format_count(more)} more (--format json has all)")


def format_link_comparison(verified: LinkComparison) -> list[Line]:
    """Format a table of mirrors, and whether all equal their sources."""
    rows: list[tuple[str, str, str, Span]] = []
    total = 0
    for mirror in verified.mirrors:
        partitions = mirror.comparison.partitions
        records = sum(side.records for one in partitions if (side := one.left) is not None)
        differing = [one for one in partitions if not one.is_equal]
        verdict = Span("equal", Tone.ADD)
        if differing:
            verdict = Span(f"differs in {pluralize(len(differing), 'partition')}", Tone.DANGER)
        elif mirror.foreign:
            verdict = Span("has records from other producers", Tone.DANGER)
        rows.append((mirror.left, mirror.right, format_count(records), verdict))
        total += records
    reasons: dict[str, list[str]] = {}
    for failed in verified.failed:
        reasons.setdefault(str(failed.error), []).append(failed.mirror)
    return [
        make_line(Span("link   ", Tone.QUIET), verified.link),
        EMPTY,
        *(make_table(("mirror", "source", "records", ""), rows, numbers=(2,)) if rows else ()),
        *(make_line(Span("✗ ", Tone.DANGER), f"{list_first(names)}: {why}") for why, names in reasons.items()),
        *(
            make_line(
                Span("left out  ", Tone.QUIET),
                f"{mirror.mirror}: {_STOP_REASONS.get(mirror.by or '', 'its role was turned round')}",
            )
            for mirror in verified.stopped
        ),
        EMPTY,
        _format_link_verdict(verified, total),
    ]


_STOP_REASONS: Final = {"promote": "it was promoted", "failover": "it was failed over"}


def _format_link_verdict(verified: LinkComparison, records: int) -> Line:
    is_equal = all(mirror.is_equal for mirror in verified.mirrors)
    missing = f"not compared: {pluralize(len(verified.failed), 'mirror')}" if verified.failed else ""
    if not verified.mirrors:
        return make_line(
            Span(missing.capitalize(), Tone.DANGER) if missing else "Nothing to compare: no mirror follows it"
        )
    how = "every record read" if any(mirror.comparison.is_deep for mirror in verified.mirrors) else "by kept digests"
    counts = f"{pluralize(len(verified.mirrors), 'mirror')}, {pluralize(records, 'record')}, {how}"
    word = Span("Equal: ", Tone.ADD) if is_equal else Span("Different: ", Tone.DANGER)
    return make_line(word, counts, "; " if missing else "", Span(missing, Tone.DANGER))


_HEADINGS: Final = ("partition", "offsets left", "offsets right", "records left", "records right", "")
_NUMBER_COLUMNS: Final = (0, 1, 2, 3, 4)


def _list_sides(partition: PartitionComparison) -> tuple[PartitionSide | None, PartitionSide | None]:
    return partition.left, partition.right


def _build_side_cells(partition: PartitionComparison) -> tuple[str, str, str, str]:
    offsets = [f"{side.start:,}-{side.end:,}" if side else "none" for side in _list_sides(partition)]
    records = [format_count(side.records) if side else "none" for side in _list_sides(partition)]
    return offsets[0], offsets[1], records[0], records[1]


def _build_verdict_cell(partition: PartitionComparison) -> Span:
    if partition.is_equal:
        return Span(
            f"equal, {format_count(partition.superseded)} superseded" if partition.superseded else "equal", Tone.ADD
        )
    where = "" if partition.first_difference is None else f" from offset {format_count(partition.first_difference)}"
    return Span(f"differs in {', '.join(partition.differences)}{where}", Tone.DANGER)
