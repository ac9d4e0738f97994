"""What an approved plan said and what would happen now, resource by resource: only what differs, danger first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, assert_never

from reconciler.cli.render.amounts import count_text
from reconciler.cli.render.leaves import is_nested, leaves
from reconciler.cli.render.lines import Line, Span, Tone, aligned, line
from reconciler.cli.render.values import field_name, value_text
from reconciler.planning.document.differences import Why, loss_words, missing_words

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from reconciler.planning.document.comparing import SameOrLess
    from reconciler.planning.document.differences import Difference, FieldDifference, Move
    from reconciler.workflow.deciding.approved import Held

_ORDINARY_AT_MOST: Final = 200
"""Rows that are not dangerous, and names of what is no longer needed; JSON has all of them."""
_ALONE: Final = "left alone"
_ABSENT: Final = "absent"


def difference_lines(held: Held) -> list[Line]:
    """Return what would happen now and was not approved, field by field, then what is no longer needed."""
    found = held.difference
    danger = [each for each in found.more if each.is_dangerous]
    ordinary = [each for each in found.more if not each.is_dangerous]
    lines = [line(Span(f"DANGER  {count_text(len(danger))}", Tone.DANGER))] if danger else []
    lines += [part for each in danger for part in _whole(each)]
    lines += [line(Span(f"CHANGES {count_text(len(ordinary))}", Tone.STRONG))] if ordinary else []
    lines += [part for each in ordinary[:_ORDINARY_AT_MOST] for part in _whole(each)]
    lines += _more(len(ordinary))
    lines += _not_needed(found)
    # Where nothing is more, what moved the state is what the error says.
    return [*lines, line(Span(f"- {held.advance}", Tone.QUIET))] if held.advance and found.more else lines


def _whole(found: Difference) -> list[Line]:
    tone = Tone.DANGER if found.is_dangerous else Tone.CHANGE
    head = line("  ", Span(f"{found.action} {found.address}", tone), f"  {_why(found)}")
    cells = _moved if Why.NOT_APPROVED in found.whys else _cells
    rows = [row for each in found.fields for row in cells(each)]
    return [head, *aligned(rows, indent="      ", limits=(48, 72))]


def _why(found: Difference) -> str:
    return "; ".join(_words(why, found) for why in found.whys)


def _words(why: Why, found: Difference) -> str:
    match why:
        case Why.NOT_APPROVED:
            verbs = ", ".join(each.partition(":")[0] for each in found.instead_of)
            return f"approved was: {verbs}" if verbs else "not in the approved plan"
        case Why.RESULT:
            return "leads to something else than was approved"
        case Why.GROUND if found.fields:
            return "changed on the cluster since"
        case Why.GROUND:
            return "deleted and made again on the cluster since"
        case Why.RISK:
            before = (found.approved_risk or "").replace("-", " ")
            return f"risk approved: {before}; now: {found.risk.replace('-', ' ')}"
        case Why.LOSS:
            return loss_words(found)
        case Why.BLOCKED:
            return _blocked(found)
        case Why.UNBLOCKED:
            return "was blocked when it was approved, and is not now"
        case Why.MISSING:
            return missing_words(found)
        case _:
            assert_never(why)


def _blocked(found: Difference) -> str:
    if found.blocked is None:
        return "blocked now"
    lifts = f", --allow {found.blocked.allow} lifts it" if found.blocked.allow else ""
    return f"blocked now: {found.blocked.message}{lifts}"


def _moved(field: FieldDifference) -> Iterator[Sequence[Span]]:
    """Say what would happen to a field of an action that nobody approved."""
    for place, _, now in _places(field):
        yield Span(place), Span(now)


def _cells(field: FieldDifference) -> Iterator[Sequence[Span]]:
    for place, approved, now in _places(field):
        yield Span(place), Span(f"approved: {approved};"), Span(f"now: {now}")


def _places(field: FieldDifference) -> Iterator[tuple[str, str, str]]:
    """Yield a field, or each value inside it on which the sides differ: its place, and what each side says."""
    name, approved, now = field_name(field.path), field.approved, field.now
    rows: list[tuple[str, str, str]] = []
    if approved and now and not (approved.has_before or now.has_before):
        if is_nested(approved.after, now.after):
            found = leaves(name, approved.after, now.after)
            rows = [(each.place, each.before or _ABSENT, each.after or _ABSENT) for each in found]
    elif all(move is None or (move.has_before and is_nested(move.before, move.after)) for move in (approved, now)):
        before, after = _leaves_of(name, approved), _leaves_of(name, now)
        places = [each for each in dict.fromkeys([*after, *before]) if before.get(each) != after.get(each)]
        rows = [(each, before.get(each, _ALONE), after.get(each, _ALONE)) for each in places]
    yield from rows or [(name, _side(field.path, approved), _side(field.path, now))]


def _leaves_of(name: str, move: Move | None) -> dict[str, str]:
    """Return what happens to each value inside a field, by its place."""
    found: dict[str, str] = {}
    for each in leaves(name, move.before, move.after) if move else ():
        found[each.place] = f"{found[each.place]} {each.move}" if each.place in found else each.move
    return found


def _side(path: str, move: Move | None) -> str:
    if move is None:
        return _ALONE
    after = value_text(path, move.after)
    return f"{value_text(path, move.before)} → {after}" if move.has_before else after


def _more(count: int) -> list[Line]:
    missing = count - _ORDINARY_AT_MOST
    return [line(Span(f"  … and {count_text(missing)} more", Tone.QUIET))] if missing > 0 else []


def _not_needed(found: SameOrLess) -> list[Line]:
    replaced = {each for difference in found.more for each in difference.instead_of}
    names = [each for each in found.not_needed if each not in replaced]
    if not names:
        return []
    head = line(Span(f"NO LONGER NEEDED {count_text(len(names))}", Tone.STRONG))
    shown = [line("  ", Span(each, Tone.QUIET)) for each in names[:_ORDINARY_AT_MOST]]
    return [head, *shown, *_more(len(names))]
