"""Access rules that follow their topics: what a link's filters take of them, and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconciler.errors import UserError
from reconciler.resources.aclfilters import taken_rules
from reconciler.workflow.linking.following.reaching import MISCONFIGURATION
from reconciler.workflow.linking.following.telling import TaskDone

if TYPE_CHECKING:
    from reconciler.workflow.linking.following.sides import Sides


def rule(sides: Sides) -> TaskDone:
    """Bring the access rules of a source to the mirrors and namespaces of a destination."""
    asked, name = sides.spec.acl_sync, sides.link.name
    if asked is None or sides.spec.prefix:
        return TaskDone()  # With a prefix they would be about other topics.
    if not asked.filters:
        error = UserError(f"link {name}: acl.filters is not set", hint="Say in aclSync.filters which rules it brings.")
        return TaskDone(0, error, MISCONFIGURATION)
    rules = taken_rules(asked.filters, sides.source.links.syncs.rules())
    return TaskDone(sides.destination.links.syncs.bring_rules(name, rules))
