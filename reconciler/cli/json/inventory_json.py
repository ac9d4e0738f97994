"""JSON of `show`, `explain` and `graph`."""

from __future__ import annotations

from typing import Any, Final

from reconciler.cli.json.base import JsonForm, define_document
from reconciler.cli.json.clusters_json import QUOTA, ActingAcl, list_effective_rules
from reconciler.operations.show import Arrow, ExplainedResource, Picture, ResourceView
from reconciler.planning.actions import Change
from reconciler.planning.plan_rows import list_changes
from reconciler.resources.inventory import Observed, Recorded
from reconciler.runtime.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class OwnerShown:
    """The workspace that owns a resource, according to its cluster."""

    workspace: str
    environment: str | None
    lineage: str
    """Permanent id of its state."""
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


def _read_before(change: Change) -> Any:
    return change.before


def _read_after(change: Change) -> Any:
    return change.after


def _build_owner(shown: ResourceView) -> OwnerShown | None:
    """The owner; null if no workspace owns the resource."""
    return OwnerShown(**shown.owner.to_json(), ours=shown.is_ours) if shown.owner else None


def _list_acls(explained: ExplainedResource) -> tuple[ActingAcl, ...]:
    """Access rules in the order of evaluation."""
    return list_effective_rules(explained.acls)


def _list_actions(explained: ExplainedResource) -> tuple[PlannedAction, ...]:
    """Planned actions that change the resource."""
    return tuple(
        PlannedAction(
            action.id,
            action.risk.value,
            tuple(reason.value for reason in action.reasons),
            tuple(VALUE_CHANGE.build_row(change) for change in list_changes(action)),
            action.blocked.message if action.blocked else None,
        )
        for action in explained.actions
    )


VALUE_CHANGE: Final = JsonForm(Change, ("path", ("before", _read_before), ("after", _read_after)))
"""A changed value; an unset side is null."""
RECORDED: Final = JsonForm(
    Recorded, ("resource", "incarnation", "physical_name", "ownership", "protect", "run", "origins")
)
SHOWN: Final = JsonForm(
    ResourceView,
    (
        "address",
        "source",
        "desired",
        ("recorded", RECORDED),
        ("observed", JsonForm(Observed, ("resource", "incarnation", "physical_name", "state"))),
        "hidden?",
        ("owner?", _build_owner),
        ("quotas?", QUOTA),
    ),
)
SHOW: Final = define_document(
    "reconciler.show/1",
    tuple[ResourceView, ...],
    ("resources=.", SHOWN),
    about="What is desired, recorded and observed.",
)
EXPLAIN: Final = define_document(
    "reconciler.explain/1",
    ExplainedResource,
    ("resource=shown", SHOWN),
    "origins",
    "effective",
    "effective_origins",
    "tiering?",
    "tiering_planned?",
    ("acls", _list_acls),
    ("actions", _list_actions),
    about="Where each value of a resource comes from, and what is planned for it.",
)
GRAPH: Final = define_document(
    "reconciler.graph/1",
    Picture,
    "of",
    "name",
    "initial",
    "nodes",
    ("arrows", JsonForm(Arrow, ("start", "end", "label", "condition", "by_itself"))),
    "refusals",
    about="A picture: nodes, and arrows between them.",
)
