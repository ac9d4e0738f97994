"""Drift that was reviewed and may stay: which rule leaves which field as it is, and which rule is about nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconciler.planning.fields import fields_of
from reconciler.planning.finding import Finding
from reconciler.resources.address import matches

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import date

    from reconciler.planning.review import Review
    from reconciler.planning.situation import Situation
    from reconciler.resources.address import Address
    from reconciler.resources.guards import Guards, IgnoredDrift


def ignoring(guards: Guards, today: date) -> Callable[[Address, str], str | None]:
    """Return the test of a field: the reason why it is left as it is observed, or `None`.

    A rule that has expired is an error of the plan and excuses nothing any more.
    """
    rules = [rule for rule in guards.ignore_drift if rule.until >= today]
    if not rules:
        return lambda _address, _path: None

    def ignored(address: Address, path: str) -> str | None:
        for rule in rules:
            if matches(rule.match, address) and matches(rule.field, path):
                return f"{rule.reason}, until {rule.until.isoformat()}"
        return None

    return ignored


def warnings_of_unmatched_rules(review: Review) -> Iterator[Finding]:
    """Yield a warning for each rule that no resource, or no field of those it matches, can ever need: a slip.

    A rule whose fields have not drifted yet is none: it may be there for what is to come.
    """
    situation = review.situation
    given = situation.given
    if given.is_destroy:
        return
    for rule in given.guards.ignore_drift:
        if rule.until < given.today:
            continue  # it has expired, and that is an error
        addresses = [address for address in _known(situation) if matches(rule.match, address)]
        if any(_has_field(situation, address, rule) for address in addresses):
            continue
        name = f"guards.ignoreDrift {rule.match} {rule.field}"
        if addresses:
            yield Finding(
                None,
                "reconciler.yaml",
                f"{name} matches no field of {_named(addresses)}",
                "Correct the field, such as configs.retention.ms or partitions, or remove the rule.",
            )
        else:
            hint = "Correct the pattern, or remove the rule."
            yield Finding(None, "reconciler.yaml", f"{name} matches nothing that is declared or recorded", hint)


def _known(situation: Situation) -> Iterator[Address]:
    yield from sorted({*situation.wanted, *situation.recorded})


def _has_field(situation: Situation, address: Address, rule: IgnoredDrift) -> bool:
    sides = (situation.wanted.get(address), situation.recorded.get(address), situation.observed.get(address))
    return any(
        matches(rule.field, path) for side in sides if side is not None for path in fields_of(side.resource)
    ) or any(matches(rule.field, path) for path in _unset(situation, address))


def _unset(situation: Situation, address: Address) -> Iterator[str]:
    wanted = situation.wanted.get(address)
    yield from wanted.origins if wanted is not None else ()


def _named(addresses: list[Address]) -> str:
    return addresses[0] if len(addresses) == 1 else f"the {len(addresses)} resources it matches"
