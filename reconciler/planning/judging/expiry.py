"""What was reviewed until a day that has passed. Apart from the rest of the allowances: `validate` needs only this."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconciler.planning.finding import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import date

    from reconciler.resources.guards import Guards


def check_expired(guards: Guards, today: date) -> Iterator[Finding]:
    """Yield an error for each allowance and ignored drift whose day has passed."""
    for item in guards.allow:
        if item.until < today:
            yield _expired(f"guards.allow {item.action}", item.until, item.reason)
    for rule in guards.ignore_drift:
        if rule.until < today:
            yield _expired(f"guards.ignoreDrift {rule.match} {rule.field}", rule.until, rule.reason)


def _expired(what: str, until: date, reason: str) -> Finding:
    message = f"{what} expired on {until.isoformat()} ({reason})"
    return Finding(None, "reconciler.yaml", message, "Remove it, or review it again with a later day.")
