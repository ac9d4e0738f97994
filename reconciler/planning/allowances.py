"""Allowances: `--allow` on the command line and reviewed allowances of the workspace."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from os.path import commonprefix
from typing import TYPE_CHECKING, Final

from reconciler.planning.plan import SHORT_COMMIT, AppliedCommit, PlanFinding
from reconciler.planning.plan_rows import find_kind_name
from reconciler.planning.selection import is_partial_selection
from reconciler.resources.address import Address, matches_pattern
from reconciler.runtime.dataclass import dataclass, replace

if TYPE_CHECKING:
    from reconciler.planning.actions import Action
    from reconciler.planning.plan import PlanInput, Selection
    from reconciler.planning.situation import Review
    from reconciler.resources.workspace import Guards


CONNECT: Final = "connect"
"""Allowance verb: send a secret to a new address."""


OLDER: Final = "older"
"""Allowance verb: apply files of an older commit."""


ADOPT: Final = "adopt"
"""Allowance verb: take a resource from another workspace."""


@dataclass(frozen=True, slots=True)
class Grant:
    """An allowance `VERB:ADDR`, where ADDR may be a pattern."""

    verb: str
    pattern: str
    origin: str
    is_reviewed: bool

    @property
    def shown(self) -> str:
        """The allowance and its origin for messages."""
        return f"{self.origin} ({self.verb}:{self.pattern})" if self.is_reviewed else self.origin

    def covers(self, action: Action) -> bool:
        """Return whether the allowance matches an action's address, and its verb or kind."""
        is_taken = self.verb == ADOPT and action.owner is not None
        is_verb_allowed = is_taken or self.verb in {action.verb, find_kind_name(action)}
        return is_verb_allowed and matches_pattern(self.pattern, action.address)

    def allows_commit(self, commit: str) -> bool:
        """Return whether files older than this commit may be applied."""
        is_short = len(self.pattern) >= SHORT_COMMIT and commit.startswith(self.pattern)
        return self.verb == OLDER and (is_short or matches_pattern(self.pattern, commit))

    def allows_takeover(self, address: Address) -> bool:
        """Return whether this workspace may take a resource from another one."""
        return self.verb == ADOPT and matches_pattern(self.pattern, address)


def collect_allowances(guards: Guards, selection: Selection) -> tuple[Grant, ...]:
    """Return the allowances of the command line, then those of `reconciler.yaml`."""
    typed = (Grant(*_split_allowance(text), f"--allow {text}", is_reviewed=False) for text in selection.allow)
    reviewed = (
        Grant(*_split_allowance(item.action), f"guards.allow {item.reason}", is_reviewed=True) for item in guards.allow
    )
    return (*typed, *reviewed)


def find_grant(action: Action, allowed: Sequence[Grant]) -> str | None:
    """Return the origin of the first allowance that covers an action, or `None`."""
    return next((allowance.origin for allowance in allowed if allowance.covers(action)), None)


def list_unused_warnings(review: Review) -> Iterator[PlanFinding]:
    """Warn about allowances that match no action; for a partial plan, only about those of `--allow`."""
    request, applied = review.situation.request, review.situation.request.source.applied
    is_selected = request.options.is_only_drift or is_partial_selection(request.selection)
    for allowance in collect_allowances(request.guards, request.selection):
        if (is_selected and allowance.is_reviewed) or allowance.verb == CONNECT:
            continue
        if applied and applied.is_newer and allowance.allows_commit(applied.files or ""):
            continue
        if not any(allowance.covers(action) for action in review.actions):
            yield PlanFinding(
                None,
                "reconciler.yaml" if allowance.is_reviewed else None,
                f"{allowance.shown} matches nothing in this plan",
                "Remove it if its change is done, or correct the address.",
            )


def find_applied_commit(request: PlanInput, actions: Sequence[Action]) -> AppliedCommit | None:
    """Return the last applied commit, if recorded, with the allowance that an apply of older files needs."""
    applied = request.source.applied
    if applied is None or not applied.is_newer or not applied.files or not actions:
        return applied
    is_allowed = any(
        allowance.allows_commit(applied.files) for allowance in collect_allowances(request.guards, request.selection)
    )
    return applied if is_allowed else replace(applied, allow=f"{OLDER}:{applied.files[:SHORT_COMMIT]}")


def list_commit_warnings(review: Review) -> Iterator[PlanFinding]:
    """Warn if the files are or may be older than the last applied files."""
    applied = find_applied_commit(review.situation.request, review.actions)
    if applied is not None and review.actions and (applied.is_newer is None or applied.allow is not None):
        yield PlanFinding(None, None, *applied.format_warning(), concerns_approval=applied.allow is not None)


def _split_allowance(text: str) -> tuple[str, str]:
    verb, _, pattern = text.partition(":")
    return verb, pattern


_MAX_SINGLE_ALLOWANCES: Final = 5


def group_allowances(names: list[str]) -> list[str]:
    """Return allowances for all `VERB:ADDR` names, with patterns for many similar names."""
    grants: list[str] = []
    for _, same in groupby(sorted(names, key=_read_group_key), key=_read_group_key):
        alike = list(same)
        grants += alike if len(alike) <= _MAX_SINGLE_ALLOWANCES else [_find_common_pattern(alike)]
    return grants if len(grants) < len(names) else names


def _read_group_key(name: str) -> str:
    return name[: name.rfind("/") + 1]


def _find_common_pattern(names: list[str]) -> str:
    shared = commonprefix(names)  # noqa: RUF071 - characters are meant: the last line drops an incomplete namespace level
    return shared[: max(shared.rfind(":"), shared.rfind("/")) + 1] + "*"
