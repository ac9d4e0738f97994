"""The shape of a plan's document, `reconciler.plan/1`: what is in it, and nothing else."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, FailFast, Field

FORMAT: Final = "reconciler.plan/1"


class _Part(BaseModel):
    """A piece of the document; unknown keys are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


class BaseDocument(_Part):
    """The state a plan was made on."""

    lineage: str
    serial: int
    sha256: str


class GitDocument(_Part):
    """The revision of the files."""

    commit: str


class SummaryDocument(_Part):
    """How many of each kind; blocked actions count under their own kind too."""

    create: int
    update: int
    delete: int
    transition: int
    job: int
    adopt: int
    forget: int
    drift: int
    blocked: int


class ChangeDocument(_Part):
    """One field that moves; `origin` is where its new value comes from, if not from the resource itself."""

    path: str
    before: Any
    after: Any
    drift: bool
    origin: str | None = None


class UnreadableDocument(_Part):
    """Offsets of one partition, `start` to before `stop`, that nobody could read any more, and their stored bytes."""

    topic: str
    partition: int
    start: int
    stop: int
    bytes: int


class StretchDocument(_Part):
    """Offsets of one partition, `start` to before `stop`."""

    partition: int
    start: int
    stop: int


class RoleCostDocument(_Part):
    """What another role of a mirror costs, as both of its sides were when they were looked at."""

    lost: tuple[StretchDocument, ...] = Field(
        (), description="What its source alone has, by a failover; what is cut off, by a restore."
    )
    behind: tuple[StretchDocument, ...] = Field((), description="What a promotion or a reversal copies first.")
    unknown: str | None = Field(None, description="Why neither can be told.")
    fetched: tuple[tuple[int, int], ...] = Field(
        (), description="Partition and last source fetch offset, where nothing else is known; -1: none ever was."
    )
    groups_set_back: tuple[str, ...] | None = Field(
        (), description="Consumer groups that have read beyond where a restore cuts. Null: we cannot tell."
    )
    timeout_ms: int | None = Field(
        None, description="A promotion is given up where what is behind does not shrink for so long."
    )


class EstimateDocument(_Part):
    """What an action is expected to move or remove."""

    bytes: int
    records: int
    seconds: int
    groups: tuple[str, ...] | None = Field((), description="Consumer groups reading it. Null: we cannot tell.")
    uploads: int = Field(0, description="Stored bytes that `run` would copy to object storage.")
    unreadable: tuple[UnreadableDocument, ...] = Field(
        (), description="What lies in object storage alone, and would be deleted there."
    )
    location: str | None = Field(
        None,
        description="Where the remote objects of a topic lie that is deleted, mounted, unmounted or forgotten; "
        "`reasons` say what becomes of them.",
    )
    partitions: int = Field(0, description="Of a topic that is mounted or unmounted, or whose replicas move.")
    no_writes_seconds: int = Field(
        0, description="For about so long nobody can write to a topic that is unmounted; a rough guess."
    )
    role: RoleCostDocument | None = Field(None, description="Of a mirror that gets another role.")
    replicated: int = Field(
        0, description="Stored bytes that brokers copy to each other for another replication factor."
    )


class BlockDocument(_Part):
    """Why an action is refused, and the `VERB:ADDR` that allows it."""

    guard: str
    allow: str | None
    message: str
    instead: str | None = Field(
        None, description="The document to declare in place of it, as one line of YAML, where that loses nothing."
    )


class ActionDocument(_Part):
    """One action. The digest covers `id, after, verb, parameters, risk, precondition, grant`."""

    id: str
    address: str
    cluster: str | None
    action: Literal["create", "update", "delete", "adopt", "forget", "transition", "job"]
    verb: str
    risk: Literal["none", "disruptive", "irreversible", "data-loss"]
    reasons: tuple[str, ...]
    changes: tuple[ChangeDocument, ...]
    after: dict[str, Any] | None = Field(description="The resource it leads to; null where it leads to none.")
    parameters: dict[str, Any]
    source: str | None = Field(description="Where it is declared, as file:line.")
    depends_on: tuple[str, ...]
    wave: int
    precondition: str
    estimate: EstimateDocument
    blocked: BlockDocument | None
    grant: str | None = Field(description="What lifted a block.")


class DriftDocument(_Part):
    """A field on which a cluster moved away from what was last applied; `path` is empty where all of it is missing."""

    address: str
    path: str
    recorded: Any
    observed: Any
    fingerprint: str
    ignored: str | None = None
    origin: str | None = Field(
        None, description="The namespace that says what was recorded, where a topic has it written out."
    )


class WaitingDocument(_Part):
    """A resource half-way through a lifecycle."""

    address: str
    state: str
    after: str | None = Field(
        None, description="Of a mount: the mounting of another cluster that is finished first; then plan again."
    )


class FindingDocument(_Part):
    """An error that nothing lifts, or a warning."""

    address: str | None
    source: str | None
    message: str
    hint: str


class PlanDocument(_Part):
    """A whole plan. `options` and `seal` are only in a plan that was saved."""

    format: Literal["reconciler.plan/1"]
    workspace: str
    environment: str | None
    tool: str
    git: GitDocument | None
    base: BaseDocument | None
    back_to: int | None = Field(None, description="Serial of the state it goes back to; null: it leads to the files.")
    digest: str
    summary: SummaryDocument
    actions: Annotated[tuple[ActionDocument, ...], FailFast()]
    drift: tuple[DriftDocument, ...]
    waiting: tuple[WaitingDocument, ...]
    unmanaged: tuple[str, ...]
    errors: tuple[FindingDocument, ...]
    warnings: tuple[FindingDocument, ...]
    options: dict[str, Any] | None = None
    seal: str | None = None
