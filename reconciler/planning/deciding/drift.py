"""Drift that was reviewed and may stay: which rule leaves which field as it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconciler.resources.address import matches

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import date

    from reconciler.resources.address import Address
    from reconciler.resources.guards import Guards


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
