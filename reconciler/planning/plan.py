"""The plan: ordered actions and everything a reviewer needs."""

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
"""So many digits of a commit are shown, and are enough to name it."""

Mark: TypeAlias = tuple[Address, tuple[str | int, ...]]
"""A field of a declared resource: its address, and the way to the field as people write it."""


@dataclass(frozen=True, slots=True)
class Finding:
    """An error no `--allow` lifts, or a warning; `source` is where it was declared."""

    address: Address | None
    source: str | None
    message: str
    hint: str
    marks: tuple[Mark, ...] = ()
    """The fields it is about, until somebody who has the files says where they are written."""
    is_of_approval: bool = False
    """Whether it says who has to approve the plan: a comment shows that at its head."""
    excluded_by: str | None = None
    """What `--exclude` leaves it out by, where that is not its address; empty: nothing does."""
    is_of_drift: bool = False
    """Whether it warns of an out-of-band change that no apply sets back: `drift` shows it, too."""


@dataclass(frozen=True, slots=True)
class Base:
    """The state a plan was made on."""

    lineage: str
    serial: int
    sha256: str


@dataclass(frozen=True, slots=True)
class DriftFinding:
    """A field on which the cluster moved away from what we last applied.

    `path` is empty where the resource as a whole is missing; `ignored` names the rule that leaves it as it is.
    """

    address: Address
    path: str
    recorded: Value
    observed: Value
    fingerprint: str
    ignored: str | None = None
    origin: str | None = None
    """What says the recorded value, where that is not the topic: a namespace, or a cluster by its properties."""
    stays: bool = False
    """Whether no plan can set it back: partitions that were added."""


@dataclass(frozen=True, slots=True)
class Held:
    """A role or place that a command gave to a resource, while the files name the one that is recorded.

    No plan changes it until the files name another role or place than the recorded one.
    """

    address: Address
    source: str | None
    message: str
    hint: str
    now: str
    """The role that it has, or where it is."""
    marks: tuple[Mark, ...] = ()
    mirror: MirrorTopic | None = None
    """The mirror with its role, if no file names it."""

    @property
    def warning(self) -> Finding:
        """The warning of a plan about it."""
        return Finding(self.address, self.source, f"{self.message}: it is left as it is", self.hint, self.marks)


@dataclass(frozen=True, slots=True)
class Waiting:
    """A resource found half-way through a lifecycle; `run` or a later apply finishes it."""

    address: Address
    state: str
    after: Address | None = None
    """A mount waits for the mounting that detaches its topic elsewhere: that one is finished, and this one planned."""

    @property
    def is_shut(self) -> bool:
        """Tell whether it takes no records meanwhile that it took before: a mirror whose role changes hands."""
        return kind_of(self.address) == "mirror" and self.state.startswith("PENDING_")


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """SELECT of the command line: what of the workspace a plan is about. All patterns are over addresses."""

    targets: tuple[str, ...] = ()
    excludes: tuple[str, ...] = ()
    labels: tuple[tuple[str, str], ...] = ()
    changed_files: tuple[str, ...] | None = None
    """Files changed since a git revision; `None` where that was not asked."""
    allow: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AppliedCommit:
    """The git commit of the files that were applied last, next to that of the files at hand."""

    commit: str
    files: str | None
    is_newer: bool | None
    """Whether the files at hand are of one of its ancestors; `None`: git cannot compare the two."""
    allow: str | None = None
    """What lets an apply go back to the older files; `None`: no apply refuses the plan because of them."""

    def told(self) -> tuple[str, str]:
        """Return what to know of it, and the hint."""
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
    """What of planning a command sets next to its selection."""

    is_destroy: bool = False
    include_adopted: bool = False
    """With `is_destroy`: delete also what was adopted."""
    is_only_drift: bool = False
    """Only set back what the clusters moved away from; leave undone what the files changed."""
    is_comparison: bool = False
    """Nothing will be applied: a resource whose namespace is left out may be reported as missing."""

    @property
    def is_to_files(self) -> bool:
        """Tell whether the plan is to be applied and makes the clusters what the files say."""
        return not (self.is_destroy or self.is_only_drift or self.is_comparison)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanSource:
    """The files and the program that a plan is made from."""

    environment: str | None = None
    git_commit: str | None = None
    applied: AppliedCommit | None = None
    """`None`: not known, or the plan does not lead to the files."""
    tool: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanInput:
    """All that planning is told beside the three inventories. It reads nothing else."""

    workspace: str
    capabilities: Mapping[str, Capabilities]
    identities: Mapping[str, ClusterIdentity | None]
    """Who answered, by cluster; `None`: there is no such cluster yet."""
    today: date
    now_ms: int
    guards: Guards = field(default_factory=Guards)
    spark: SparkSpec = field(default_factory=SparkSpec)
    """Where jobs run."""
    selection: Selection = field(default_factory=Selection)
    stored: StoredTopics = field(default_factory=StoredTopics)
    hidden: Mapping[Address, NotAuthorizedError] = field(default_factory=dict)
    """What is there and may not be seen by the process that plans: it is not among the observed."""
    lost: Mapping[str, str] = field(default_factory=dict)
    """The clusters that could not be read and are done without, and why each."""
    groups: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """The consumer groups there are, by cluster, where the filters of a link are about them."""
    me: ResourceOwner | None = None
    """Who plans, as clusters say who owns what; `None`: all that is owned is another's."""
    base: Base | None = None
    source: PlanSource = PlanSource()
    options: PlanOptions = PlanOptions()
    orders: tuple[Order, ...] = ()
    """What a command wants in place of the files; the files say nothing then."""
    has_state: bool = True
    """Whether what is owned is known; an order that is given without a state asks no record."""
    back_to: int | None = None
    """The serial of the state that is wanted in place of the files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Actions in a total, repeatable order, and what was found on the way."""

    workspace: str
    environment: str | None
    base: Base | None
    tool: str
    git_commit: str | None
    actions: tuple[Action, ...]
    drift: tuple[DriftFinding, ...] = ()
    held: tuple[Held, ...] = ()
    waiting: tuple[Waiting, ...] = ()
    unmanaged: tuple[Address, ...] = ()
    owners: Mapping[Address, ResourceOwner] = field(default_factory=dict)
    """The other workspaces that own what is unmanaged, as far as somebody does."""
    errors: tuple[Finding, ...] = ()
    """Errors of the plan: wrong cluster, what a platform cannot do, what the tables refuse. Exit 1, never lifted."""
    warnings: tuple[Finding, ...] = ()
    back_to: int | None = None
    """The serial of the state this goes back to; `None`: it leads to what the files say."""
    digest: str = ""
    """sha256 over the canonical actions, hexadecimal."""
    approvers: int = 0
    """How many people must have approved it: what the base of a pull request asks for counts, too."""
    applied: AppliedCommit | None = None

    @property
    def blocked(self) -> tuple[Action, ...]:
        """The actions a guard refuses."""
        return tuple(action for action in self.actions if action.blocked)

    @property
    def is_of_older_files(self) -> bool:
        """Tell whether an apply refuses all of it: a newer commit was applied last."""
        return self.applied is not None and self.applied.allow is not None

    @property
    def is_empty(self) -> bool:
        """Tell whether there is nothing to do."""
        return not self.actions


@dataclass(frozen=True, slots=True)
class SavedPlan:
    """A plan that was read from a file."""

    plan: Plan
    body: bytes
    """The file as it was read."""
    options: Mapping[str, Any] | None
    """What selects it, to plan it again; `None`: the file is not sealed."""
