"""The plan and all inputs of planning."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from reconciler.errors import NotAuthorizedError
from reconciler.planning.actions import Value
from reconciler.resources.address import Address, kind_of
from reconciler.resources.mount import StoredTopics
from reconciler.resources.workspace import Guards, SparkSpec

if TYPE_CHECKING:
    from reconciler.planning.actions import Action
    from reconciler.planning.orders import Order
    from reconciler.resources.inventory import Capabilities, ClusterIdentity
    from reconciler.resources.mirror_link import MirrorTopic
    from reconciler.resources.owners import ResourceOwner


SHORT_COMMIT: Final = 7
"""Digits of a commit that are shown and accepted."""

Mark: TypeAlias = tuple[Address, tuple[str | int, ...]]
"""A field of a declared resource: its address and the path in the manifest."""


@dataclass(frozen=True, slots=True)
class PlanFinding:
    """An error that no `--allow` lifts, or a warning; `source` is the declaration."""

    address: Address | None
    source: str | None
    message: str
    hint: str
    marks: tuple[Mark, ...] = ()
    """The fields concerned, until a caller with the files resolves their lines."""
    is_of_approval: bool = False
    """Whether it is about who must approve the plan; comments show those first."""
    excluded_by: str | None = None
    """Pattern to `--exclude` so that the finding is left out, if not its own address; empty if none does."""
    is_of_drift: bool = False
    """Whether it warns of an out-of-band change that apply does not revert; `drift` shows it, too."""


@dataclass(frozen=True, slots=True)
class Base:
    """The state that a plan was made on."""

    lineage: str
    serial: int
    sha256: str


@dataclass(frozen=True, slots=True)
class DriftFinding:
    """A field that changed on the cluster since the last apply.

    `path` is empty if the whole resource is missing; `ignored` names the rule that leaves the field as it is.
    """

    address: Address
    path: str
    recorded: Value
    observed: Value
    fingerprint: str
    ignored: str | None = None
    origin: str | None = None
    """Where the recorded value is declared, if not by the topic: a namespace or the cluster's properties."""
    stays: bool = False
    """Whether no plan can revert it: added partitions."""


@dataclass(frozen=True, slots=True)
class Held:
    """A role or location that a command changed, while the files still declare the one recorded by the last apply.

    Plans leave it until the files declare a third value.
    """

    address: Address
    source: str | None
    message: str
    hint: str
    now: str
    """Its current role or location."""
    marks: tuple[Mark, ...] = ()
    mirror: MirrorTopic | None = None
    """The mirror with its current role, if no file declares it."""

    @property
    def warning(self) -> PlanFinding:
        """The warning that reports the held resource."""
        return PlanFinding(self.address, self.source, f"{self.message}: it is left as it is", self.hint, self.marks)


@dataclass(frozen=True, slots=True)
class UnfinishedTransition:
    """A resource in an unfinished lifecycle transition; `run` or a later apply finishes it."""

    address: Address
    state: str
    after: Address | None = None
    """The mounting on another cluster that must detach the topic first; this mount is planned after it."""

    @property
    def is_shut(self) -> bool:
        """Whether the mirror is in a role change that rejects writes which it accepted before."""
        return kind_of(self.address) == "mirror" and self.state.startswith("PENDING_")


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The selected part of the workspace; patterns match addresses."""

    targets: tuple[str, ...] = ()
    excludes: tuple[str, ...] = ()
    labels: tuple[tuple[str, str], ...] = ()
    changed_files: tuple[str, ...] | None = None
    """Files changed since a git revision; `None` if not requested."""
    allow: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AppliedCommit:
    """The git commit of the last applied files, compared with that of the current files."""

    commit: str
    files: str | None
    is_newer: bool | None
    """Whether the current files are of one of its ancestors; `None` if git cannot compare them."""
    allow: str | None = None
    """The allowance that lets an apply go back to older files; `None` if no apply refuses them."""

    def message_and_hint(self) -> tuple[str, str]:
        """Return the warning's message and hint."""
        applied = self.commit[:SHORT_COMMIT]
        if self.files is None or self.allow is None:
            message = f"whether the files are older than commit {applied}, which was applied last, is not known"
            return message, "Let git compare the two: fetch the whole history (fetch-depth: 0)."
        message = (
            f"the files are of commit {self.files[:SHORT_COMMIT]}, and {applied}, which is newer, was applied last"
        )
        return message, f"Apply {applied} or a later commit. To go back: reconciler apply --allow {self.allow}"


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """Options of planning, besides the selection."""

    is_destroy: bool = False
    include_adopted: bool = False
    """With `is_destroy`: also delete adopted resources."""
    is_only_drift: bool = False
    """Only revert drift; plan no changes of the files."""
    is_comparison: bool = False
    """Nothing will be applied: a resource whose namespace is excluded may be reported as missing."""

    @property
    def is_to_files(self) -> bool:
        """Whether the plan makes clusters equal the files, so that it may be applied."""
        return not (self.is_destroy or self.is_only_drift or self.is_comparison)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanSource:
    """The files and the program that a plan is made from."""

    environment: str | None = None
    git_commit: str | None = None
    applied: AppliedCommit | None = None
    """`None` if unknown, or if the plan does not lead to the files."""
    tool: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanInput:
    """Everything that planning reads besides the three inventories."""

    workspace: str
    capabilities: Mapping[str, Capabilities]
    identities: Mapping[str, ClusterIdentity | None]
    """Identity of each cluster that answered; `None` if the cluster does not exist yet."""
    today: date
    now_ms: int
    guards: Guards = field(default_factory=Guards)
    spark: SparkSpec = field(default_factory=SparkSpec)
    selection: Selection = field(default_factory=Selection)
    stored: StoredTopics = field(default_factory=StoredTopics)
    hidden: Mapping[Address, NotAuthorizedError] = field(default_factory=dict)
    """Existing resources that the process may not read; they are missing in the observed inventory."""
    lost: Mapping[str, str] = field(default_factory=dict)
    """Unreadable clusters that the plan does not need → why they cannot be read."""
    groups: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Consumer groups by cluster, if a link filters groups."""
    me: ResourceOwner | None = None
    """This workspace as an owner; `None`: every owned resource belongs to another."""
    base: Base | None = None
    source: PlanSource = PlanSource()
    options: PlanOptions = PlanOptions()
    orders: tuple[Order, ...] = ()
    has_state: bool = True
    """Whether ownership is known. Without state, orders are planned without a record."""
    back_to: int | None = None
    """Serial of the state to go back to instead of the files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Actions in a total, repeatable order, and findings."""

    workspace: str
    environment: str | None
    base: Base | None
    tool: str
    git_commit: str | None
    actions: tuple[Action, ...]
    drift: tuple[DriftFinding, ...] = ()
    held: tuple[Held, ...] = ()
    waiting: tuple[UnfinishedTransition, ...] = ()
    unmanaged: tuple[Address, ...] = ()
    owners: Mapping[Address, ResourceOwner] = field(default_factory=dict)
    errors: tuple[PlanFinding, ...] = ()
    """Problems that no allowance lifts: wrong cluster, unsupported features, illegal transitions. They exit with 1."""
    warnings: tuple[PlanFinding, ...] = ()
    back_to: int | None = None
    """Serial of the state that this goes back to; `None` if it leads to the files."""
    digest: str = ""
    """Hexadecimal sha256 of the canonical actions."""
    approvers: int = 0
    """Required approvals, including those that the base of a pull request requires."""
    applied: AppliedCommit | None = None

    @property
    def blocked(self) -> tuple[Action, ...]:
        """The actions a guard refuses."""
        return tuple(action for action in self.actions if action.blocked)

    @property
    def is_of_older_files(self) -> bool:
        """Whether an apply refuses the whole plan because a newer commit was applied last."""
        return self.applied is not None and self.applied.allow is not None

    @property
    def is_empty(self) -> bool:
        """Return whether there is nothing to do."""
        return not self.actions


@dataclass(frozen=True, slots=True)
class SavedPlan:
    """A plan that was read from a file."""

    plan: Plan
    body: bytes
    options: Mapping[str, Any] | None
    """The options to plan it again; `None` if the file is not sealed."""
