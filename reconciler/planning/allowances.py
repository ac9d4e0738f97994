"""Allowances: `--allow` and reviewed allowances of the workspace."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from os.path import commonprefix
from typing import TYPE_CHECKING, Final

from reconciler.planning.plan import SHORT_COMMIT, AppliedCommit, Finding
from reconciler.planning.plan_rows import name_of
from reconciler.planning.selection import is_partial
from reconciler.resources.address import Address, matches

if TYPE_CHECKING:
    from reconciler.planning.actions import Action
    from reconciler.planning.plan import PlanInput, Selection
    from reconciler.planning.situation import Review
    from reconciler.resources.workspace import Guards


CONNECT: Final = "connect"
"""What lets a secret go to a new address; it is no action, and needed before there is a plan."""


OLDER: Final = "older"
"""What lets files be applied that are older than what was applied last: its pattern is about their commit."""


ADOPT: Final = "adopt"
"""What lets a workspace own what another owns, whatever it does with it."""


@dataclass(frozen=True, slots=True)
class Allowed:
    """One allowance: `VERB:ADDR`, where ADDR may be a pattern, and where it was given."""

    verb: str
    pattern: str
    origin: str
    is_reviewed: bool

    @property
    def shown(self) -> str:
        """Where it was given, and what it allows: the option has that in it."""
        return f"{self.origin} ({self.verb}:{self.pattern})" if self.is_reviewed else self.origin

    def covers(self, action: Action) -> bool:
        """Tell whether it names an action, by its verb or by what kind of action it is."""
        is_taken = self.verb == ADOPT and action.owner is not None
        return (is_taken or self.verb in {action.verb, name_of(action)}) and matches(self.pattern, action.address)

    def goes_back_to(self, commit: str) -> bool:
        """Tell whether the files of a commit may be applied after those of a newer one."""
        is_short = len(self.pattern) >= SHORT_COMMIT and commit.startswith(self.pattern)
        return self.verb == OLDER and (is_short or matches(self.pattern, commit))

    def takes(self, address: Address) -> bool:
        """Tell whether an address may be owned although another workspace owns it."""
        return self.verb == ADOPT and matches(self.pattern, address)


def allowances(guards: Guards, selection: Selection) -> tuple[Allowed, ...]:
    """Return everything that is allowed, the command line's first."""
    typed = (Allowed(*_split(text), f"--allow {text}", is_reviewed=False) for text in selection.allow)
    reviewed = (Allowed(*_split(item.action), f"guards.allow {item.reason}", is_reviewed=True) for item in guards.allow)
    return (*typed, *reviewed)


def granted_by(action: Action, allowed: Sequence[Allowed]) -> str | None:
    """Return what allows an action, if anything does."""
    return next((allowance.origin for allowance in allowed if allowance.covers(action)), None)


def warnings_of_unused(review: Review) -> Iterator[Finding]:
    """Yield a warning for each allowance that no action needed; reviewed ones may be about what was not selected."""
    request, applied = review.situation.request, review.situation.request.source.applied
    is_selected = request.options.is_only_drift or is_partial(request.selection)
    for allowance in allowances(request.guards, request.selection):
        if (is_selected and allowance.is_reviewed) or allowance.verb == CONNECT:
            continue
        if applied and applied.is_newer and allowance.goes_back_to(applied.files or ""):
            continue
        if not any(allowance.covers(action) for action in review.actions):
            yield Finding(
                None,
                "reconciler.yaml" if allowance.is_reviewed else None,
                f"{allowance.shown} matches nothing in this plan",
                "Remove it once what it allowed is done, or correct the address.",
            )


def commit_applied(request: PlanInput, actions: Sequence[Action]) -> AppliedCommit | None:
    """Return the commit that was applied last, with the allowance that older files need unless the plan is empty."""
    applied = request.source.applied
    if applied is None or not applied.is_newer or not applied.files or not actions:
        return applied
    is_allowed = any(each.goes_back_to(applied.files) for each in allowances(request.guards, request.selection))
    return applied if is_allowed else replace(applied, allow=f"{OLDER}:{applied.files[:SHORT_COMMIT]}")


def warnings_of_commit(review: Review) -> Iterator[Finding]:
    """Yield that the files are older than what was applied last, or that git cannot tell; nothing for an empty plan."""
    applied = commit_applied(review.situation.request, review.actions)
    if applied is not None and review.actions and (applied.is_newer is None or applied.allow is not None):
        yield Finding(None, None, *applied.told(), is_of_approval=applied.allow is not None)


def _split(text: str) -> tuple[str, str]:
    verb, _, pattern = text.partition(":")
    return verb, pattern


# Many blocks lifted at once: what a person can paste, and no wider than the names that are blocked have in common.


_FEW: Final = 5
"""So many of a kind are allowed one by one: an address says what it lifts, a pattern may lift more tomorrow."""


def at_once(names: list[str]) -> list[str]:
    """Return what allows all of `VERB:ADDR` names; more than a few of a verb, a kind and a cluster as one pattern."""
    found: list[str] = []
    for _, same in groupby(sorted(names, key=_kind), key=_kind):
        alike = list(same)
        found += alike if len(alike) <= _FEW else [_pattern(alike)]
    return found if len(found) < len(names) else names


def _kind(name: str) -> str:
    """Return verb, kind and cluster: `delete:topic/west/`."""
    return name[: name.rfind("/") + 1]


def _pattern(names: list[str]) -> str:
    """Return what names begin with alike, up to the end of a tier of their namespaces."""
    shared = commonprefix(names)  # noqa: RUF071 - characters are meant: half a tier is cut off below
    return shared[: max(shared.rfind(":"), shared.rfind("/")) + 1] + "*"
