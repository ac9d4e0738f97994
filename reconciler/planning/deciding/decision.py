"""What has been decided so far, and the few forms every step uses to say it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from reconciler.planning.canonical import fingerprint, plain
from reconciler.planning.fields import fields_of
from reconciler.planning.finding import Finding
from reconciler.planning.plan import DriftFinding, Waiting

if TYPE_CHECKING:
    from collections.abc import Iterable

    from reconciler.planning.actions import Action
    from reconciler.planning.finding import Mark
    from reconciler.planning.situation import Situation, Wanted
    from reconciler.resources.address import Address
    from reconciler.resources.inventory import Observed, Recorded


@dataclass(slots=True)
class Decision:
    """Actions and findings, in the order they were found."""

    actions: list[Action] = field(default_factory=list)
    drift: list[DriftFinding] = field(default_factory=list)
    waiting: list[Waiting] = field(default_factory=list)
    errors: list[Finding] = field(default_factory=list)
    warnings: list[Finding] = field(default_factory=list)
    settled: set[Address] = field(default_factory=set)
    """Recorded addresses that have left the files, and about which everything is said already."""

    def refuse(
        self, address: Address, source: str | None, message: str, hint: str, *, marks: tuple[Mark, ...] = ()
    ) -> None:
        """Add an error of the plan; `marks` are the fields it is about."""
        self.errors.append(Finding(address, source, message, hint, marks))

    def warn(
        self, address: Address | None, source: str | None, message: str, hint: str, *, marks: tuple[Mark, ...] = ()
    ) -> None:
        """Add a warning."""
        self.warnings.append(Finding(address, source, message, hint, marks))


@dataclass(frozen=True, slots=True)
class Sides:
    """One address in all three inventories."""

    address: Address
    wanted: Wanted
    last: Recorded | None
    before: Observed | None

    @classmethod
    def at(cls, address: Address, situation: Situation) -> Sides:
        """Look one wanted address up."""
        return cls(address, situation.wanted[address], situation.recorded.get(address), situation.observed.get(address))


def precondition(address: Address, before: Observed | None, paths: Iterable[str] = ()) -> str:
    """Return the fingerprint of the live fields a decision rests on; empty where it rests on absence.

    Never offsets, sizes or times: what moves by itself must not make a plan stale.
    """
    if before is None:
        return ""
    wanted = sorted(paths)
    seen = fields_of(before.resource) if wanted else {}
    rests_on = {path: plain(seen.get(path)) for path in wanted}
    return fingerprint({"address": address, "incarnation": before.incarnation, "observed": rests_on})


def state_precondition(address: Address, before: Observed) -> str:
    """Return the fingerprint a transition rests on: which one it is, and its state."""
    return fingerprint({"address": address, "incarnation": before.incarnation, "state": before.state})
