"""States, differences and repairs as text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final, assert_never

from reconciler.cli.text.amounts import (
    format_changes,
    format_field_change,
    format_field_name,
    format_field_value,
    is_nested,
    list_leaf_changes,
)
from reconciler.cli.text.inventory_text import list_resource_fields
from reconciler.cli.text.lines import EMPTY, Line, Span, Tone, align_rows, make_line, make_plain_table, make_table
from reconciler.cli.text.runs_text import format_approval
from reconciler.planning.same_or_less import (
    Difference,
    FieldDifference,
    Move,
    SameOrLess,
    Why,
    describe_loss,
    describe_missing_action,
)
from reconciler.runtime.text import format_bytes, format_count, pluralize, shorten_run_id

if TYPE_CHECKING:
    from reconciler.operations.state_edit import StateRepair
    from reconciler.operations.state_views import History, StateDiff, StateDifference, StateEntry, StateListing
    from reconciler.operations.steps.approval import ApprovalCheck
    from reconciler.planning.actions import Change
    from reconciler.planning.orders import ReaddressOrder
    from reconciler.resources.address import Address
    from reconciler.resources.inventory import Recorded
    from reconciler.state.repair import ForgottenRun, Repair, UnlockResult, UnsettledWork


_MAX_ORDINARY_ROWS: Final = 200
_LEFT_ALONE: Final = "left alone"
_ABSENT: Final = "absent"


def format_differences(held: ApprovalCheck) -> list[Line]:
    """Format actions that exceed the approved plan or are no longer needed."""
    comparison = held.difference
    danger = [difference for difference in comparison.more if difference.is_dangerous]
    ordinary = [difference for difference in comparison.more if not difference.is_dangerous]
    lines = [make_line(Span(f"DANGER  {format_count(len(danger))}", Tone.DANGER))] if danger else []
    lines += [part for difference in danger for part in _format_difference(difference)]
    lines += [make_line(Span(f"CHANGES {format_count(len(ordinary))}", Tone.STRONG))] if ordinary else []
    lines += [part for difference in ordinary[:_MAX_ORDINARY_ROWS] for part in _format_difference(difference)]
    lines += _format_omitted(len(ordinary))
    lines += _format_not_needed(comparison)
    # If no action exceeds the approved plan, the error itself names the cause.
    return [*lines, make_line(Span(f"- {held.advance}", Tone.QUIET))] if held.advance and comparison.more else lines


def _format_difference(difference: Difference) -> list[Line]:
    tone = Tone.DANGER if difference.is_dangerous else Tone.CHANGE
    head = make_line("  ", Span(f"{difference.action} {difference.address}", tone), f"  {_format_reasons(difference)}")
    cells = _list_unapproved_cells if Why.NOT_APPROVED in difference.whys else _list_comparison_cells
    rows = [row for field in difference.fields for row in cells(field)]
    return [head, *align_rows(rows, indent="      ", limits=(48, 72))]


def _format_reasons(difference: Difference) -> str:
    return "; ".join(_format_reason(why, difference) for why in difference.whys)


def _format_reason(why: Why, difference: Difference) -> str:
    match why:
        case Why.NOT_APPROVED:
            verbs = ", ".join(action_id.partition(":")[0] for action_id in difference.instead_of)
            return f"approved was: {verbs}" if verbs else "not in the approved plan"
        case Why.RESULT:
            return "leads to something else than was approved"
        case Why.GROUND if difference.fields:
            return "changed on the cluster since"
        case Why.GROUND:
            return "deleted and created again on the cluster since"
        case Why.RISK:
            before = (difference.approved_risk or "").replace("-", " ")
            return f"risk approved: {before}; now: {difference.risk.replace('-', ' ')}"
        case Why.LOSS:
            return describe_loss(difference)
        case Why.BLOCKED:
            return _format_block(difference)
        case Why.UNBLOCKED:
            return "was blocked when it was approved, and is not now"
        case Why.MISSING:
            return describe_missing_action(difference)
        case _:
            assert_never(why)


def _format_block(difference: Difference) -> str:
    if difference.blocked is None:
        return "blocked now"
    lifts = f", --allow {difference.blocked.allow} lifts it" if difference.blocked.allow else ""
    return f"blocked now: {difference.blocked.message}{lifts}"


def _list_unapproved_cells(field: FieldDifference) -> Iterator[Sequence[Span]]:
    for place, _, now in _compare_values(field):
        yield Span(place), Span(now)


def _list_comparison_cells(field: FieldDifference) -> Iterator[Sequence[Span]]:
    for place, approved, now in _compare_values(field):
        yield Span(place), Span(f"approved: {approved};"), Span(f"now: {now}")


def _compare_values(field: FieldDifference) -> Iterator[tuple[str, str, str]]:
    name, approved, now = format_field_name(field.path), field.approved, field.now
    rows: list[tuple[str, str, str]] = []
    if approved and now and not (approved.has_before or now.has_before):
        if is_nested(approved.after, now.after):
            changed = list_leaf_changes(name, approved.after, now.after)
            rows = [(leaf.place, leaf.before or _ABSENT, leaf.after or _ABSENT) for leaf in changed]
    elif all(move is None or (move.has_before and is_nested(move.before, move.after)) for move in (approved, now)):
        before, after = _index_leaves(name, approved), _index_leaves(name, now)
        places = [leaf for leaf in dict.fromkeys([*after, *before]) if before.get(leaf) != after.get(leaf)]
        rows = [(leaf, before.get(leaf, _LEFT_ALONE), after.get(leaf, _LEFT_ALONE)) for leaf in places]
    yield from rows or [(name, _format_side(field.path, approved), _format_side(field.path, now))]


def _index_leaves(name: str, move: Move | None) -> dict[str, str]:
    moves: dict[str, str] = {}
    for leaf in list_leaf_changes(name, move.before, move.after) if move else ():
        moves[leaf.place] = f"{moves[leaf.place]} {leaf.sides_text}" if leaf.place in moves else leaf.sides_text
    return moves


def _format_side(path: str, move: Move | None) -> str:
    if move is None:
        return _LEFT_ALONE
    return (
        format_field_change(path, move.before, move.after) if move.has_before else format_field_value(path, move.after)
    )


def _format_omitted(count: int) -> list[Line]:
    missing = count - _MAX_ORDINARY_ROWS
    return [make_line(Span(f"  … and {format_count(missing)} more", Tone.QUIET))] if missing > 0 else []


def _format_not_needed(comparison: SameOrLess) -> list[Line]:
    replaced = {action_id for difference in comparison.more for action_id in difference.instead_of}
    names = [action_id for action_id in comparison.not_needed if action_id not in replaced]
    if not names:
        return []
    head = make_line(Span(f"NO LONGER NEEDED {format_count(len(names))}", Tone.STRONG))
    shown = [make_line("  ", Span(action_id, Tone.QUIET)) for action_id in names[:_MAX_ORDINARY_ROWS]]
    return [head, *shown, *_format_omitted(len(names))]


def format_listing(listing: StateListing) -> list[Line]:
    """Format recorded resources, and the state's location."""
    count = pluralize(len(listing.resources), "resource")
    head = make_line(Span(f"State #{listing.serial}", Tone.STRONG), f" · {listing.url} · {count}")
    if not listing.resources:
        return [head]
    cells = [
        (address, recorded.ownership, "protected" if recorded.protect else "", shorten_run_id(recorded.run))
        for address, recorded in listing.resources.items()
    ]
    return [head, EMPTY, *make_plain_table(("address", "ownership", "", "run"), cells)]


def format_recorded_resource(entry: StateEntry) -> list[Line]:
    """Format a resource as last applied, with origins of values."""
    recorded = entry.recorded
    facts = {
        "ownership": recorded.ownership,
        "run": recorded.run,
        "id": recorded.incarnation or "",
        "name there": recorded.physical_name or "",
        "protected": "yes" if recorded.protect else "",
    }
    fields = list_resource_fields(recorded.resource)
    cells = [(path, format_field_value(path, fields[path]), recorded.origins.get(path, "")) for path in sorted(fields)]
    return [
        make_line(Span(entry.address, Tone.STRONG)),
        *(make_line(Span(f"  {word:<12}", Tone.QUIET), text) for word, text in facts.items() if text),
        *([EMPTY, *make_table(("field", "value", "comes from"), cells)] if cells else []),
    ]


def format_history(history: History) -> list[Line]:
    """Format snapshots, newest first, and the command for older ones."""
    if not history.rows:
        return [make_line("There is no state yet.")]
    is_approved = any(row.approved_by or row.pull_request for row in history.rows)
    cells = [
        (
            f"#{row.serial}",
            "now" if row.is_current else "",
            row.started or "",
            row.command or "",
            row.who or "",
            (row.git_commit or "")[:7],
            *([format_approval(row)] if is_approved else []),
            format_bytes(row.bytes),
            shorten_run_id(row.run),
        )
        for row in history.rows
    ]
    approved = ("approved",) if is_approved else ()
    more = f"… and {pluralize(history.older, 'older state')}: --limit 0 shows all"
    return [
        *make_table(
            ("serial", "", "began", "command", "who", "commit", *approved, "size", "run"),
            cells,
            numbers=(0, 6 + len(approved)),
        ),
        *([make_line(Span(more, Tone.QUIET))] if history.older else []),
    ]


_MAX_ACTIONS: Final = 20
_SIGNS: Final = {"created": ("+", Tone.ADD), "deleted": ("-", Tone.REMOVE), "changed": ("~", Tone.CHANGE)}


def format_state_diff(diff: StateDiff) -> list[Line]:
    """Format the differences of two states by address."""
    counts = Counter[str](difference.change for difference in diff.differences)
    texts = ", ".join(f"{format_count(counts[change])} {change}" for change in _SIGNS if counts[change])
    head = make_line(
        Span(f"State #{diff.before.serial} → #{diff.after.serial}", Tone.STRONG), f" · {texts or 'no difference'}"
    )
    return [
        head,
        *([EMPTY] if diff.differences else []),
        *(row for changed in diff.differences for row in _format_changed_resource(changed)),
    ]


def _format_changed_resource(difference: StateDifference) -> Iterator[Line]:
    sign, tone = _SIGNS[difference.change]
    facts = {change.path: change for change in difference.facts}
    if difference.change == "created":
        yield make_line(Span(f"{sign} {difference.address}", tone), f"  {facts['ownership'].after}")
        return
    if difference.change == "deleted":
        yield make_line(Span(f"{sign} {difference.address}", tone), f"  was {facts['ownership'].before}")
        return
    yield make_line(Span(f"{sign} {difference.address}", tone))
    moved = (*difference.fields, *difference.facts)
    yield from (make_line("    ", text) for change in moved for text in format_changes(change))
    yield from (make_line(Span(f"    {_format_origin(change)}", Tone.QUIET)) for change in difference.origins)


def _format_origin(change: Change) -> str:
    before, after = change.before or "itself", change.after or "itself"
    return f"{format_field_name(change.path) or 'it'} comes from {before} → {after}"


def format_moves(moves: Sequence[ReaddressOrder]) -> list[Line]:
    """Format old and new addresses."""
    return [make_line(Span("» ", Tone.MOVE), move.before, " → ", move.after) for move in moves]


def format_forget_question(rows: Sequence[tuple[Address, Recorded]]) -> list[Line]:
    """Format resources to remove from the state."""
    return [
        make_line(Span("- ", Tone.REMOVE), address, Span("  protected" if recorded.protect else "", Tone.CHANGE))
        for address, recorded in rows
    ]


def format_forget_result(forgotten: Sequence[Address]) -> list[Line]:
    """Format the number of resources removed from the state."""
    text = f"Forgot {pluralize(len(forgotten), 'resource')}; what is on the clusters stays, "
    return [
        make_line(text, "and this workspace does not own it. What the files still declare, the next apply adopts again")
    ]


def format_unlock(unlocked: UnlockResult) -> list[Line]:
    """Format the result of taking a lease, and actions in doubt."""
    taken = f"Taken from run {shorten_run_id(unlocked.run)}; the lease is free, its epoch is {unlocked.epoch}"
    first = "The lease is free: there is nothing to unlock" if unlocked.was_free else taken
    return [make_line(first), *(_format_doubt(unlocked.doubt) if unlocked.doubt is not None else ())]


def _format_doubt(doubt: UnsettledWork) -> Iterator[Line]:
    if doubt.unreadable is not None:
        yield make_line(
            Span("In doubt: ", Tone.CHANGE), f"what run {shorten_run_id(doubt.run)} did. {doubt.unreadable.message}"
        )
        yield make_line("  ", Span("hint: ", Tone.QUIET), "reconciler state repair")
        return
    unbegun = f"{pluralize(len(doubt.left), 'action')} not begun" if doubt.left else ""
    if not doubt.in_doubt:
        yield make_line(f"Run {doubt.run} is open; {unbegun or 'nothing of it is left'}")
        return
    left = f", {unbegun}" if unbegun else ""
    yield make_line(
        Span(f"In doubt: {format_count(len(doubt.in_doubt))}", Tone.CHANGE),
        f" of run {shorten_run_id(doubt.run)}{left}",
    )
    yield from (make_line(f"  {name}") for name in doubt.in_doubt[:_MAX_ACTIONS])
    if len(doubt.in_doubt) > _MAX_ACTIONS:
        yield make_line(f"  … and {pluralize(len(doubt.in_doubt) - _MAX_ACTIONS, 'more action')}")
    yield make_line("The next apply checks them and continues:  reconciler apply")


def format_repair(repair: Repair) -> list[Line]:
    """Format a state's problems, and the repair's steps."""
    return [
        *(make_line(Span("✗ ", Tone.DANGER), problem) for problem in repair.problems),
        *(make_line(Span("→ ", Tone.CHANGE), step) for step in _list_repair_steps(repair)),
        *(part for run in repair.forgotten for part in _format_forgotten_run(run)),
    ]


def format_repair_result(repaired: StateRepair) -> list[Line]:
    """Format a repair's result, and the next command."""
    repair = repaired.repair
    if repair is None:
        return [make_line("There is nothing to repair")]
    backup = f"; what was there is kept as {repaired.kept}" if repaired.kept else ""
    next_step = "reconciler apply" if repair.lockfile.open_run is not None else "reconciler plan"
    return [
        make_line(f"Repaired: state #{repair.lockfile.serial}, epoch {repair.lockfile.lease.epoch}{backup}"),
        make_line(f"Look at it next:  {next_step}"),
    ]


def _list_repair_steps(repair: Repair) -> Iterator[str]:
    lockfile, base = repair.lockfile, repair.base
    owned = pluralize(len(base.record), "resource")
    by = f" of run {shorten_run_id(base.run)}" if base.run else ""
    again = f", written again as #{lockfile.serial}" if repair.body is not None and repair.rebuilt_from is None else ""
    yield f"continue from state #{base.serial}{by}, {owned}{again}"
    if repair.rebuilt_from is not None:
        yield f"add what the journal of run {shorten_run_id(repair.rebuilt_from)} says, as state #{lockfile.serial}"
    if repair.former_lineage is not None:
        yield f"take lineage {lockfile.lineage}, which every snapshot says, instead of {repair.former_lineage}"
    if lockfile.open_run is not None:
        yield f"leave run {shorten_run_id(lockfile.open_run.run)} open: the next apply settles what it left in doubt"
    yield f"write the lockfile again, under epoch {lockfile.lease.epoch}"


def _format_forgotten_run(forgotten: ForgottenRun) -> Iterator[Line]:
    texts = ", ".join(part for part in (forgotten.command, forgotten.who, forgotten.started) if part)
    run = f"run {shorten_run_id(forgotten.run)} ({texts})" if texts else f"run {shorten_run_id(forgotten.run)}"
    yield make_line(Span("! ", Tone.DANGER), f"forget what {run} did; it stays on the clusters:")
    names = forgotten.actions
    yield from (make_line(f"    {name}") for name in names[:_MAX_ACTIONS])
    if len(names) > _MAX_ACTIONS:
        yield make_line(f"    … and {pluralize(len(names) - _MAX_ACTIONS, 'more action')}")
