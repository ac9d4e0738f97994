"""JSON of `show`, `explain` and `graph`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final, Literal

from pydantic import Field

from reconciler.cli.json.base import Document, Form, Part
from reconciler.cli.json.clusters_json import AclPart, QuotaPart
from reconciler.operations.show import Explained, Shape, Shown, Subject
from reconciler.planning.actions import Change
from reconciler.planning.plan_rows import changes_of
from reconciler.resources.inventory import Recorded
from reconciler.runtime.text import plain

if TYPE_CHECKING:
    from reconciler.planning.actions import Action
    from reconciler.resources.inventory import Observed


ResourceJson = dict[str, Any]


def _before(change: Change) -> Any:
    return change.before


def _after(change: Change) -> Any:
    return change.after


MOVED: Final = Form(Change, ("path", ("before", _before), ("after", _after)))
"""One value that differs; null where there is none."""
RECORDED: Final = Form(Recorded, ("resource", "incarnation", "physical_name", "ownership", "protect", "run", "origins"))


class RecordedPart(Part):
    """A resource as it was last applied."""

    resource: ResourceJson
    incarnation: str | None
    physical_name: str | None
    ownership: Literal["created", "adopted"]
    protect: bool
    run: str
    origins: dict[str, str] = Field(description="Field path to the address or file its value came from.")

    @classmethod
    def of(cls, recorded: Recorded) -> RecordedPart:
        """Say what is remembered."""
        return cls.from_record(recorded, resource=recorded.resource.to_json())


class ObservedPart(Part):
    """A resource as the platform says it is."""

    resource: ResourceJson
    incarnation: str | None
    physical_name: str | None
    state: str | None

    @classmethod
    def of(cls, observed: Observed) -> ObservedPart:
        """Say what is there."""
        return cls.from_record(observed, resource=observed.resource.to_json())


class OwnerPart(Part):
    """The workspace that owns a resource, as its cluster says."""

    workspace: str
    environment: str | None
    lineage: str = Field(description="The lifelong id of its state.")
    state: str = Field(description="Where its state lies, without credentials.")
    ours: bool = Field(description="Whether it is this workspace.")


class ShownPart(Part):
    """One address, three times."""

    address: str
    source: str | None = Field(description="Where it is declared: `manifests/topics.yaml:88`.")
    desired: ResourceJson | None
    recorded: RecordedPart | None
    observed: ObservedPart | None
    hidden: str | None = Field(
        default=None, description="Why the principal may not see the resource; `observed` is null then, too."
    )
    owner: OwnerPart | None = Field(default=None, description="Null: it is free, or such resources are shared.")
    quotas: tuple[QuotaPart, ...] = Field(
        default=(), description="Of a namespace that was asked for: its limits, and how much of each is used."
    )

    @classmethod
    def of(cls, shown: Shown) -> ShownPart:
        """Say one address."""
        return cls.from_record(
            shown,
            desired=shown.desired.to_json() if shown.desired else None,
            recorded=RecordedPart.of(shown.recorded) if shown.recorded else None,
            observed=ObservedPart.of(shown.observed) if shown.observed else None,
            hidden=shown.hidden.message if shown.hidden else None,
            owner=OwnerPart(**shown.owner.to_json(), ours=shown.is_ours) if shown.owner else None,
        )


class ShowDocument(Document):
    """What is desired, recorded and observed."""

    format: Literal["reconciler.show/1"] = "reconciler.show/1"
    resources: tuple[ShownPart, ...]

    @classmethod
    def of(cls, rows: Iterable[Shown]) -> ShowDocument:
        """Say every address asked for."""
        return cls(resources=tuple(ShownPart.of(row) for row in rows))


class PlannedPart(Part):
    """An action that is planned for the resource, and why."""

    id: str
    risk: str
    reasons: tuple[str, ...]
    changes: tuple[dict[str, Any], ...]
    blocked: str | None

    @classmethod
    def of(cls, action: Action) -> PlannedPart:
        """Say one action."""
        return cls.from_record(
            action,
            risk=action.risk.value,
            reasons=tuple(reason.value for reason in action.reasons),
            changes=tuple(
                {"path": change.path, "before": plain(change.before), "after": plain(change.after)}
                for change in changes_of(action)
            ),
            blocked=action.blocked.message if action.blocked else None,
        )


class TieringPart(Part):
    """A switch or a limit of tiering, and the rule by which it came about."""

    key: str
    value: str = Field(description="As the platform stores it; -1: no limit.")
    rule: str


class ExplainDocument(Document):
    """Where each value of a resource comes from, and what is planned for it."""

    format: Literal["reconciler.explain/1"] = "reconciler.explain/1"
    resource: ShownPart
    origins: dict[str, str] = Field(description="Field path to `file:line`, an address, or `default`.")
    effective: dict[str, str] = Field(description="Configs as they act, inherited ones included.")
    effective_origins: dict[str, str] = Field(
        description="Origin of each acting config: an address with `file:line` in brackets, `brokers` or `default`."
    )
    tiering: tuple[TieringPart, ...] = Field(
        default=(), description="Of a topic: its tiering now; empty where no file and no policy mentions tiering."
    )
    tiering_planned: tuple[TieringPart, ...] = Field(
        default=(), description="What of that is another once the plan is applied."
    )
    acls: tuple[AclPart, ...] = Field(description="Access rules as they are asked, in that order.")
    actions: tuple[PlannedPart, ...]

    @classmethod
    def of(cls, explained: Explained) -> ExplainDocument:
        """Say what is known of it."""
        return cls.from_record(
            explained,
            resource=ShownPart.of(explained.shown),
            acls=tuple(AclPart.of(row) for row in explained.acls),
            actions=tuple(PlannedPart.of(action) for action in explained.actions),
        )


# JSON of `graph`.


class NodePart(Part):
    """One thing in the picture."""

    name: str
    shape: Shape


class ArrowPart(Part):
    """From one node to another."""

    start: str
    end: str
    label: str = Field(description="The verb of a move, or what a link is; empty where there is nothing to say.")
    condition: str = Field(description="When a verb leads this way, where it leads several ways.")
    by_itself: bool = Field(description="It happens without a command.")


class RefusalPart(Part):
    """What people often ask for and do not get, and why."""

    state: str
    verb: str
    reason: str


class GraphDocument(Document):
    """A picture: nodes, and arrows between them."""

    format: Literal["reconciler.graph/1"] = "reconciler.graph/1"
    of: Subject = Field(description="What is drawn.")
    name: str
    initial: str | None = Field(description="The state a lifecycle begins in. Null: it is none.")
    nodes: tuple[NodePart, ...]
    arrows: tuple[ArrowPart, ...]
    refusals: tuple[RefusalPart, ...]
