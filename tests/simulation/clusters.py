"""The real embedded clusters, made to act as most platforms do: one request after the other, some of several parts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from reconciler.planning.actions import Change, ControlAction, Create, Update
from reconciler.providers.embedded.provider import EmbeddedProvider
from reconciler.providers.protocol import CompletedAction, Edge, FailedAction, Outcome, Scope
from reconciler.resources.topic import Topic
from reconciler.runtime.retry import skip_check

if TYPE_CHECKING:
    from reconciler.objectstore.base import ObjectStore
    from reconciler.resources.cluster import Cluster
    from reconciler.resources.inventory import Capabilities


class PieceByPiece(EmbeddedProvider):
    """An embedded cluster that takes one action after the other, and some of them in pieces.

    A topic is made bare and then given its configs; an update is made field by field. So half of a call can have
    happened, which one commit of the real one never leaves.
    """

    def __init__(self, declared: Cluster, store: ObjectStore, new_id: Callable[[], str], batch: int) -> None:
        super().__init__(declared, store, Edge(Path("/"), {}, new_id, lambda: 1_780_000_000_000))
        self._batch = batch

    @cached_property
    def capabilities(self) -> Capabilities:
        return replace(super().capabilities, batch=self._batch)

    def apply(
        self, actions: Sequence[ControlAction], *, may_go_on: Callable[[], None] = skip_check
    ) -> Iterator[Outcome]:
        for action in actions:
            outcome: Outcome | None = None
            for piece in self._pieces(action):
                (outcome,) = super().apply([piece], may_go_on=may_go_on)
                if isinstance(outcome, FailedAction):
                    break
            yield replace(outcome, id=action.id) if outcome else CompletedAction(action.id)

    def _pieces(self, action: ControlAction) -> Iterator[ControlAction]:
        match action:
            case Update() if len(action.changes) > 1:
                yield from (replace(action, changes=(change,)) for change in action.changes)
            case Create(after=Topic() as topic) if topic.spec.configs:
                bare = topic.model_copy(update={"spec": topic.spec.model_copy(update={"configs": {}})})
                if action.address not in self.observe(Scope((action.address,))):
                    yield replace(action, after=bare)
                changes = tuple(Change(f"configs.{key}", None, value) for key, value in topic.spec.configs.items())
                yield Update(address=action.address, before=bare, after=topic, changes=changes)
            case _:
                yield action
