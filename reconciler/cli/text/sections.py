"""A plan sorted for reading."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Final

from reconciler.cli.text.action_words import headlines, mark, note, title
from reconciler.cli.text.amounts import change_texts, field_name, is_nested, moved_text, value_text
from reconciler.cli.text.lines import Tone
from reconciler.lifecycles import MigrationState
from reconciler.planning.actions import (
    Action,
    Change,
    Create,
    Reason,
    RunJob,
    Transition,
    Update,
    is_dangerous,
)
from reconciler.planning.plan import DriftFinding, Finding, Plan, Waiting
from reconciler.resources.address import Address
from reconciler.resources.mount import MIGRATING
from reconciler.runtime.text import count_text, first_few

_AFTER_AT_MOST: Final = 2
_DETAILS_AT_MOST: Final = 40
"""Lines below one new resource; no topic has as many configs. The JSON of the plan and its page have all."""

_SAYS_MORE: Final = frozenset({"rule", "max_deletes", "empty", "owner"})
"""Guards whose name alone does not say what they found."""


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a plan, in cells. `action` is what it stands for, where it stands for one.

    `more`: what else it says, each in a line of its own below `what`.
    """

    sign: str
    tone: Tone
    name: str
    what: str
    note: str = ""
    blocked: str = ""
    after: str = ""
    action: Action | None = None
    more: tuple[str, ...] = ()

    @property
    def whole(self) -> str:
        """Everything it says, in one text."""
        return ", ".join([self.what, *self.more])


@dataclass(frozen=True, slots=True)
class Sections:
    """Rows by what a reader has to decide about them."""

    errors: tuple[Row, ...]
    danger: tuple[Row, ...]
    changes: tuple[Row, ...]
    jobs: tuple[Row, ...]
    drift: tuple[Row, ...]
    waiting: tuple[Row, ...]


def sections(plan: Plan) -> Sections:
    """Return a plan's rows. An action has exactly one; one that only sets drift back has its drift's."""
    danger: list[Row] = []
    changes: list[Row] = []
    jobs: list[Row] = []
    found = {(finding.address, finding.path) for finding in plan.drift if finding.ignored is None}
    shown: tuple[dict[tuple[str, ...], str], ...] = ({}, {})
    for action in plan.actions:
        if is_dangerous(action):
            danger.append(_row(action, shown[0]))
        elif isinstance(action, RunJob):
            jobs.append(_row(action, shown[1]))
        elif not (isinstance(action, Update) and all((action.address, each.path) in found for each in action.changes)):
            changes.append(_row(action, shown[1]))
    by_field, made = _changes_by_field(plan), {action.address for action in plan.actions if isinstance(action, Create)}
    return Sections(
        errors=tuple(_error(finding) for finding in plan.errors),
        danger=tuple(danger),
        changes=tuple(changes),
        jobs=tuple(jobs),
        drift=tuple(_drift(finding, by_field, made) for finding in plan.drift),
        waiting=tuple(_waiting(each) for each in plan.waiting),
    )


def drift_text(finding: DriftFinding) -> str:
    """Return what moved on the cluster: `retention.ms 1d → 2d on the cluster`."""
    if not finding.path:
        return "is missing on the cluster"
    moved = moved_text(finding.path, finding.recorded, finding.observed)
    origin = f" (from {finding.origin})" if finding.origin else ""
    return f"{field_name(finding.path)}{origin} {moved} on the cluster"


def waiting_text(each: Waiting) -> str:
    """Return how far something is, and what finishes it."""
    if each.after is not None:
        return f"waits for {each.after}: `run` finishes that one, then `apply` this one"
    # Of a role that changes hands both sides are shut: whoever reads this at night must not have to know that.
    shut = "takes no records until then, " if each.is_shut else ""
    if each.state in {MIGRATING, MigrationState.PREPARED, MigrationState.EXECUTED}:  # There it may wait for a command.
        return f"{each.state.lower()}: how far it is, and what finishes it: reconciler mount status"
    return f"{each.state.lower()}: {shut}`run` finishes it"


def _row(action: Action, shown: dict[tuple[str, ...], str]) -> Row:
    """Return the row of an action. `shown` has the details of the rows above: equal ones are not repeated."""
    sign, tone = mark(action)
    what, *more = headlines(action)
    if more and isinstance(action, Create):
        first = shown.setdefault(tuple(more), title(action))
        if first != title(action):
            what, more = f"{what}, the same as {first}", []
        elif len(more) > _DETAILS_AT_MOST:
            more[_DETAILS_AT_MOST:] = [f"and {count_text(len(more) - _DETAILS_AT_MOST)} more, see --format json"]
    return Row(
        sign,
        tone,
        title(action),
        what,
        note(action),
        _blocked(action),
        _after(action),
        action=action,
        more=tuple(more),
    )


def _blocked(action: Action) -> str:
    if action.blocked is None:
        return f"allowed by {action.granted_by}" if action.granted_by else ""
    if action.blocked.guard == "data_bearing" and Reason.HOLDS_DATA not in action.reasons:
        return f"blocked: {action.blocked.message}"
    guard = action.blocked.guard.replace("_", " ").replace("-", " ")
    # The risk has said it already where the guard has its name.
    word = "blocked" if guard == action.risk.value.replace("-", " ") else f"blocked: {guard}"
    # What `--allow` lifts is said by the last line; of anything else the row has to say what to do.
    is_enough = action.blocked.allow is not None and action.blocked.guard not in _SAYS_MORE
    return word if is_enough else f"{word}, {action.blocked.message}"


def _after(action: Action) -> str:
    """Return what a move or a job waits for; what a topic waits for, its namespace, goes without saying."""
    if not isinstance(action, RunJob | Transition) or not action.depends_on:
        return ""
    names = list(dict.fromkeys(each.partition(":")[2] or each for each in action.depends_on))
    return f"after: {first_few(names, _AFTER_AT_MOST, grouping='')}"


def _error(finding: Finding) -> Row:
    where = finding.source or finding.address or "workspace"
    what = f"{finding.address}: {finding.message}" if finding.address and finding.source else finding.message
    what = what.removeprefix(where).lstrip(": ")
    return Row("✗", Tone.DANGER, where, f"{what}. {finding.hint}")


def _changes_by_field(plan: Plan) -> Mapping[tuple[str, str], tuple[Update | Transition, Change]]:
    return {
        (action.address, change.path): (action, change)
        for action in plan.actions
        if isinstance(action, Update | Transition)
        for change in action.changes
    }


def _drift(
    finding: DriftFinding,
    by_field: Mapping[tuple[str, str], tuple[Update | Transition, Change]],
    made: AbstractSet[Address],
) -> Row:
    what, *more = _drift_texts(finding)
    return Row("!", Tone.CHANGE, finding.address, f"{what} ({_end_of(finding, by_field, made)})", more=tuple(more))


def _drift_texts(finding: DriftFinding) -> list[str]:
    if not finding.path or not is_nested(finding.recorded, finding.observed):
        return [drift_text(finding)]
    origin = f" (from {finding.origin})" if finding.origin else ""
    moved = change_texts(Change(finding.path, finding.recorded, finding.observed))
    return [f"{text} on the cluster{origin}" for text in moved]


def _end_of(
    finding: DriftFinding,
    by_field: Mapping[tuple[str, str], tuple[Update | Transition, Change]],
    made: AbstractSet[Address],
) -> str:
    if finding.ignored is not None:
        return f"left as it is: {finding.ignored}"
    if not finding.path:
        return "will be made again" if finding.address in made else "is not made again, empty"
    found = by_field.get((finding.address, finding.path))
    if found is None:
        return "left as it is"
    action, change = found
    if action.blocked is not None:
        return "blocked"
    if change.after is None and finding.origin is not None:
        return "will be inherited again"
    if change.after != finding.recorded and is_nested(finding.observed, change.after):
        return f"the files say {', '.join(change_texts(Change(change.path, finding.observed, change.after)))}"
    if change.after != finding.recorded:
        return f"the files say {value_text(change.path, change.after)}"
    return "will be set back"


def _waiting(each: Waiting) -> Row:
    return Row("…", Tone.QUIET, each.address, waiting_text(each))
