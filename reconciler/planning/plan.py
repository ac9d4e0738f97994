"""Plans and the inputs of planning."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from reconciler.errors import NotAuthorizedError
from reconciler.planning.actions import Value
from reconciler.resources.address import Address, kind_of
from reconciler.resources.mount import StoredTopics
from reconciler.resources.workspace import Guards, SparkSpec
from reconciler.runtime.dataclass import dataclass, field

if TYPE_CHECKING:
    from reconciler.planning.actions import Action
    from reconciler.planning.orders import Order
    from reconciler.resources.inventory import Capabilities, ClusterIdentity
    from reconciler.resources.mirror_link import MirrorTopic
    from reconciler.resources.owners import ResourceOwner


SHORT_COMMIT: Final = 7

FieldMark: TypeAlias = tuple[Address, tuple[str | int, ...]]
"""Address and path in the manifest of a declared field."""


@dataclass(frozen=True, slots=True)
class PlanFinding:
    """A warning, or an error that `--allow` cannot lift. `source` is the file and line."""

    address: Address | None
    source: str | None
    message: str
    hint: str
    marks: tuple[FieldMark, ...] = ()
    concerns_approval: bool = False
    exclude_pattern: str | None = None
    """`--exclude` pattern that removes the finding, by default `address`; empty if none."""
    concerns_drift: bool = False
    """Whether the finding is a change that apply does not revert."""


@dataclass(frozen=True, slots=True)
class Base:
    """The version of the state that a plan starts from."""

    lineage: str
    serial: int
    sha256: str


@dataclass(frozen=True, slots=True)
class DriftFinding:
    """A field that changed on the cluster since the last apply.

    `path` is empty for a missing resource. `ignored` is the rule that prevents the revert.
    """

    address: Address
    path: str
    recorded: Value
    observed: Value
    fingerprint: str
    ignored: str | None = None
    origin: str | None = None
    """Namespace or cluster that declares the recorded value, if not the resource itself."""
    stays: bool = False
    """Whether no plan can revert the change, such as added partitions."""


@dataclass(frozen=True, slots=True)
class HeldChange:
    """A role or location that a command set. Plans keep it until the declared value changes."""

    address: Address
    source: str | None
    message: str
    hint: str
    current: str
    marks: tuple[FieldMark, ...] = ()
    mirror: MirrorTopic | None = None

    @property
    def warning(self) -> PlanFinding:
        """Warning that the resource keeps the value that a command set."""
        return PlanFinding(self.address, self.source, f"{self.message}: it is left as it is", self.hint, self.marks)


@dataclass(frozen=True, slots=True)
class UnfinishedTransition:
    """A resource in an unfinished lifecycle transition."""

    address: Address
    state: str
    after: Address | None = None
    """The Mounting on another cluster that must first unmount the topic."""
    is_by_cluster: bool = False
    """Whether the cluster finishes it, without `reconciler run`. Not part of the JSON."""

    @property
    def rejects_writes(self) -> bool:
        """Whether a role change makes the mirror reject writes."""
        return kind_of(self.address) == "mirror" and self.state.startswith("PENDING_")


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The part of the workspace to plan, as patterns of addresses, and allowances."""

    targets: tuple[str, ...] = ()
    excludes: tuple[str, ...] = ()
    labels: tuple[tuple[str, str], ...] = ()
    changed_files: tuple[str, ...] | None = None
    """Files changed since a git revision; `None` for all files."""
    left_out: frozenset[str] = frozenset()
    """Clusters that `excludes` covers because they did not answer."""
    allow: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AppliedCommit:
    """The git commit of the last applied files, compared with the current files' commit."""

    commit: str
    files: str | None
    is_newer: bool | None
    """Whether `commit` is newer than `files`; `None` if unknown."""
    allow: str | None = None
    """The allowance that an apply of older files needs, if any."""

    def format_warning(self) -> tuple[str, str]:
        """Return message and hint if the files are or may be older."""
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
    """Options of planning besides the selection."""

    is_destroy: bool = False
    include_adopted: bool = False
    is_only_drift: bool = False
    """Revert drift only, without changes of the files."""
    is_comparison: bool = False
    """Compare clusters with files, without an apply, as `drift` does."""

    @property
    def leads_to_files(self) -> bool:
        """Whether an apply of the plan makes the clusters equal to the files."""
        return not (self.is_destroy or self.is_only_drift or self.is_comparison)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanSource:
    """The files and the program from which a plan is made."""

    environment: str | None = None
    git_commit: str | None = None
    applied: AppliedCommit | None = None
    tool: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanInput:
    """Inputs of planning besides the three inventories."""

    workspace: str
    capabilities: Mapping[str, Capabilities]
    identities: Mapping[str, ClusterIdentity | None]
    """Identity of each cluster that answered; `None` if missing."""
    today: date
    now_ms: int
    guards: Guards = field(default_factory=Guards)
    spark: SparkSpec = field(default_factory=SparkSpec)
    selection: Selection = field(default_factory=Selection)
    stored: StoredTopics = field(default_factory=StoredTopics)
    hidden: Mapping[Address, NotAuthorizedError] = field(default_factory=dict)
    """Existing resources that reconciler may not read."""
    lost: Mapping[str, str] = field(default_factory=dict)
    """Reason by unreadable cluster."""
    groups: Mapping[str, Sequence[str]] = field(default_factory=dict)
    me: ResourceOwner | None = None
    """This workspace as an owner, if known."""
    base: Base | None = None
    source: PlanSource = PlanSource()
    options: PlanOptions = PlanOptions()
    orders: tuple[Order, ...] = ()
    has_state: bool = True
    back_to: int | None = None
    """Serial of the earlier state that the plan restores, if any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Actions in a deterministic order, and findings."""

    workspace: str
    environment: str | None
    base: Base | None
    tool: str
    git_commit: str | None
    actions: tuple[Action, ...]
    drift: tuple[DriftFinding, ...] = ()
    held: tuple[HeldChange, ...] = ()
    waiting: tuple[UnfinishedTransition, ...] = ()
    unmanaged: tuple[Address, ...] = ()
    owners: Mapping[Address, ResourceOwner] = field(default_factory=dict)
    errors: tuple[PlanFinding, ...] = ()
    warnings: tuple[PlanFinding, ...] = ()
    back_to: int | None = None
    """Serial of the earlier state that the plan restores, if it does not apply the files."""
    digest: str = ""
    approvers: int = 0
    applied: AppliedCommit | None = None

    @property
    def blocked(self) -> tuple[Action, ...]:
        """The actions that a guard blocks."""
        return tuple(action for action in self.actions if action.blocked)

    @property
    def has_older_files(self) -> bool:
        """Whether apply rejects the plan because a newer commit was applied."""
        return self.applied is not None and self.applied.allow is not None

    @property
    def is_empty(self) -> bool:
        """Whether the plan has no actions."""
        return not self.actions


@dataclass(frozen=True, slots=True)
class SavedPlan:
    """A plan read from a file, with the file's content."""

    plan: Plan
    body: bytes
    options: Mapping[str, Any] | None
