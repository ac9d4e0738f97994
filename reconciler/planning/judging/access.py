"""Changes of access rules after which other people may, or may not, than before: a second look is due."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconciler.planning.actions import Reason
from reconciler.planning.fields import fields_of
from reconciler.resources.aclpaths import ACLS, ALLOWS
from reconciler.resources.address import cluster_of, full_name_of, split_name

if TYPE_CHECKING:
    from reconciler.planning.actions import Update
    from reconciler.planning.situation import Situation


def access_reason(action: Update, situation: Situation) -> Reason | None:
    """Return how an update opens or closes what it changes to everyone; `None` where it does neither."""
    changes = {change.path: change.after for change in action.changes if change.path.startswith(ACLS)}
    if not changes:
        return None
    before = {path for path in fields_of(action.before) if path.startswith(ACLS)}
    after = {path for path in before if changes.get(path, path) is not None}
    after |= {path for path, value in changes.items() if value is not None}
    above = _above(action, situation)
    if situation.capabilities(cluster_of(action.address) or "").open_without_acls:
        if not (before or above):
            return Reason.FIRST_RULE
        if not (after or above):
            return Reason.LAST_RULE
    had, has = (any(path.startswith(ALLOWS) for path in (*side, *above)) for side in (before, after))
    return Reason.LAST_ALLOWANCE if had and not has else None


def _above(action: Update, situation: Situation) -> set[str]:
    """Return the rules of the tiers above, as they are."""
    namespace, _ = split_name(full_name_of(action.address))
    tiers = situation.nearest(cluster_of(action.address) or "", namespace)
    seen = (situation.observed[tier].resource for tier in tiers if tier in situation.observed)
    return {path for resource in seen for path in fields_of(resource) if path.startswith(ACLS)}
