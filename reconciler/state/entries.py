"""The entries of a journal: a closed union. What a run is about to do, what became of it, who took it over."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field

if TYPE_CHECKING:
    from collections.abc import Sequence

_LEFT_AT_MOST: Final = 500
"""Names in one entry: so many of the longest are far from a mebibyte."""


class _Entry(BaseModel):
    """Frozen, closed, and read as strictly as it was written. `id` is that of an action of the run."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, defer_build=True)


class TakenOver(_Entry):
    """Another run writes from here on: whoever wrote before finds this slot taken, and stops."""

    type: Literal["takeover"] = "takeover"
    run: str
    who: str


class Intent(_Entry):
    """The action is about to be done: from here until its end it is in doubt."""

    type: Literal["intent"] = "intent"
    id: str


class ActionEnded(_Entry):
    """The action is complete and durable; what the platform said of it. It is the `Finished` of planning.recording."""

    type: Literal["done"] = "done"
    id: str
    incarnation: str | None = None
    physical_name: str | None = None
    is_settled: bool = False
    """Found done by whoever came after, not told by the platform."""


class ActionRefused(_Entry):
    """The action was refused; nothing of it is recorded, but for what `is_made`: all except its access rules."""

    type: Literal["failed"] = "failed"
    id: str
    error: str
    hint: str
    is_made: bool = False
    incarnation: str | None = None
    physical_name: str | None = None


class ActionSkipped(_Entry):
    """The action was not tried: what it leans on failed."""

    type: Literal["skipped"] = "skipped"
    id: str
    because: str


class Detached(_Entry):
    """The run was stopped, or told to leave these actions to another."""

    type: Literal["detached"] = "detached"
    left: tuple[str, ...]


class Closed(_Entry):
    """Nothing follows. `status` is `done`, `partial`, or `superseded` by the run that settled it."""

    type: Literal["closed"] = "closed"
    status: Literal["done", "partial", "superseded"]


Entry: TypeAlias = TakenOver | Intent | ActionEnded | ActionRefused | ActionSkipped | Detached | Closed

AnyEntry: TypeAlias = Annotated[Entry, Field(discriminator="type")]


def detached(left: Sequence[str]) -> list[Detached]:
    """Return the entries that say what is left; each of them fits into one object of a journal."""
    return [Detached(left=tuple(left[at : at + _LEFT_AT_MOST])) for at in range(0, len(left), _LEFT_AT_MOST)]
