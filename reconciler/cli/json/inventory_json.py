"""JSON of `show`, `explain` and `graph`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from reconciler.cli.json.base import Form, document
from reconciler.cli.json.clusters_json import QUOTA, ActingAcl, acting
from reconciler.operations.show import Arrow, ExplainedResource, Picture, ResourceView
from reconciler.planning.actions import Change
from reconciler.planning.plan_rows import list_changes
from reconciler.resources.inventory import Observed, Recorded


@dataclass(frozen=True, slots=True)
class OwnerShown:
    """The workspace that owns a resource, according to its cluster."""

    workspace: str
    environment: str | None
    lineage: str
    """The lifelong id of its state."""
    state: str
    """URL of its state, without credentials."""
    ours: bool
    """Whether it is this workspace."""


@dataclass(frozen=True, slots=True)
class PlannedAction:
    """A planned action on the resource, and the reasons."""

    id: str
    risk: str
    reasons: tuple[str, ...]
    changes: tuple[dict[str, Any], ...]
    blocked: str | None


def _before(change: Change) -> Any:
    return change.before


def _after(change: Change) -> Any:
    return change.after


def _owner(shown: ResourceView) -> OwnerShown | None:
    """Null: no workspace owns it, or such resources are shared."""
    return OwnerShown(**shown.owner.to_json(), ours=shown.is_ours) if shown.owner else None


def _acls(explained: ExplainedResource) -> tuple[ActingAcl, ...]:
    """Access rules in the order of evaluation."""
    return acting(explained.acls)


def _actions(explained: ExplainedResource) -> tuple[PlannedAction, ...]:
    """Actions on the resource."""
    return tuple(
        PlannedAction(
            action.id,
            action.risk.value,
            tuple(reason.value for reason in action.reasons),
            tuple(MOVED.row(change) for change in list_changes(action)),
            action.blocked.message if action.blocked else None,
        )
        for action in explained.actions
    )


MOVED: Final = Form(Change, ("path", ("before", _before), ("after", _after)))
"""A value that differs; null if it is unset."""
RECORDED: Final = Form(Recorded, ("resource", "incarnation", "physical_name", "ownership", "protect", "run", "origins"))
SHOWN: Final = Form(
    ResourceView,
    (
        "address",
        "source",
        "desired",
        ("recorded", RECORDED),
        ("observed", Form(Observed, ("resource", "incarnation", "physical_name", "state"))),
        "hidden?",
        ("owner?", _owner),
        ("quotas?", QUOTA),
    ),
)
SHOW: Final = document(
    "reconciler.show/1",
    tuple[ResourceView, ...],
    ("resources=.", SHOWN),
    about="What is desired, recorded and observed.",
)
EXPLAIN: Final = document(
    "reconciler.explain/1",
    ExplainedResource,
    ("resource=shown", SHOWN),
    "origins",
    "effective",
    "effective_origins",
    "tiering?",
    "tiering_planned?",
    ("acls", _acls),
    ("actions", _actions),
    about="Where each value of a resource comes from, and what is planned for it.",
)
GRAPH: Final = document(
    "reconciler.graph/1",
    Picture,
    "of",
    "name",
    "initial",
    "nodes",
    ("arrows", Form(Arrow, ("start", "end", "label", "condition", "by_itself"))),
    "refusals",
    about="A picture: nodes, and arrows between them.",
)
