"""JSON of `graph`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from reconciler.cli.documents.base import Document, Part
from reconciler.workflow.drawing.picture import Shape, Subject

if TYPE_CHECKING:
    from reconciler.workflow.drawing.picture import Arrow, Node, Picture, Refusal


class NodePart(Part):
    """One thing in the picture."""

    name: str
    shape: Shape

    @classmethod
    def of(cls, node: Node) -> NodePart:
        """Say which."""
        return cls(name=node.name, shape=node.shape)


class ArrowPart(Part):
    """From one node to another."""

    start: str
    end: str
    label: str = Field(description="The verb of a move, or what a link is; empty where there is nothing to say.")
    condition: str = Field(description="When a verb leads this way, where it leads several ways.")
    by_itself: bool = Field(description="Nobody asks for it.")

    @classmethod
    def of(cls, arrow: Arrow) -> ArrowPart:
        """Say all of it."""
        return cls(
            start=arrow.start,
            end=arrow.end,
            label=arrow.label,
            condition=arrow.condition,
            by_itself=arrow.by_itself,
        )


class RefusalPart(Part):
    """What people often ask for and do not get, and why."""

    state: str
    verb: str
    reason: str

    @classmethod
    def of(cls, refusal: Refusal) -> RefusalPart:
        """Say it."""
        return cls(state=refusal.state, verb=refusal.verb, reason=refusal.reason)


class GraphDocument(Document):
    """A picture: nodes, and arrows between them."""

    format: Literal["reconciler.graph/1"] = "reconciler.graph/1"
    of: Subject = Field(description="What is drawn.")
    name: str
    initial: str | None = Field(description="The state a lifecycle begins in. Null: it is none.")
    nodes: tuple[NodePart, ...]
    arrows: tuple[ArrowPart, ...]
    refusals: tuple[RefusalPart, ...]

    @classmethod
    def made(cls, picture: Picture) -> GraphDocument:
        """Say everything."""
        return cls(
            of=picture.of,
            name=picture.name,
            initial=picture.initial,
            nodes=tuple(map(NodePart.of, picture.nodes)),
            arrows=tuple(map(ArrowPart.of, picture.arrows)),
            refusals=tuple(map(RefusalPart.of, picture.refusals)),
        )
