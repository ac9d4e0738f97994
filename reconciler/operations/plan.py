"""`plan`: what would change, without a lock and without changing anything."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, get_args

from reconciler.errors import (
    BlockedError,
    IncompleteError,
    PartialError,
    PendingError,
    ReconcilerError,
    UsageError,
    UserError,
)
from reconciler.objectstore.directory import write_whole
from reconciler.operations.steps.approval import to_options
from reconciler.operations.steps.invocation import Invocation, Select, errors_of, located
from reconciler.operations.steps.observe import (
    ObservedClusters,
    as_lost,
    burst,
    followed_groups,
    measure,
    mountables,
    observe,
    recoverables,
)
from reconciler.operations.steps.recorded import Remembered, copies_of, remember, warn_of_outdated
from reconciler.operations.steps.workspace import Work, open_work, selection
from reconciler.planning import planner
from reconciler.planning.actions import is_dangerous
from reconciler.planning.checks.guards import approvers_asked
from reconciler.planning.checks.mirror_checks import topics_cut
from reconciler.planning.plan import AppliedCommit, Base, Plan, PlanInput, PlanOptions, PlanSource
from reconciler.planning.plan_rows import plan_bytes
from reconciler.planning.resolve.cluster_values import given_up
from reconciler.planning.saved_plan import saved_bytes
from reconciler.resources.address import Address
from reconciler.runtime.text import counted, first_few

if TYPE_CHECKING:
    from reconciler.applying.engine import RunResult
    from reconciler.resources.inventory import Inventory, Record
    from reconciler.resources.measures import Measures
    from reconciler.resources.mount import MountedElsewhere
    from reconciler.state.snapshots import Snapshot


# From a loaded workspace to a plan: read the state, observe, decide, measure what that asks for, judge.


@dataclass(frozen=True, slots=True)
class Decided:
    """A plan and the three inventories it was made from."""

    plan: Plan
    snapshot: Snapshot | None
    recorded: Record
    """What we last applied and own."""
    seen: ObservedClusters
    remembered: Remembered
    mounted_elsewhere: Mapping[Address, MountedElsewhere] = field(default_factory=dict)
    """Where recorded topics are that commands mounted under another name."""


def decide(work: Work, snapshot: Snapshot | None, wanted: PlanOptions | None = None) -> Decided:
    """Observe the clusters and plan on `snapshot`, the state under our lease.

    Sizes are asked for only where the plan depends on them.

    Raises:
        RetryableError: A cluster cannot be read.
    """
    with burst():
        return _decide(work, Remembered(snapshot), wanted or PlanOptions())


def decide_unlocked(work: Work, wanted: PlanOptions | None = None) -> Decided:
    """Read the state without a lock, and decide as the next apply will: after it has settled what is open.

    Where something differs, the state is looked at once more: it may be an old one that was put back.

    Raises:
        RetryableError: A cluster cannot be read.
        UserError: The state is another workspace's, lost or damaged.
    """
    work.invocation.tell("reading the state")
    remembered = remember(work)
    with burst():
        decided = _decide(work, remembered, wanted or PlanOptions())
        if decided.plan.actions or decided.plan.drift:
            warn_of_outdated(work, decided.snapshot.lockfile if decided.snapshot else None)
    return decided


def _decide(work: Work, remembered: Remembered, wanted: PlanOptions) -> Decided:
    snapshot = remembered.snapshot

    def may_lack(inventory: Inventory) -> frozenset[str]:
        return frozenset() if wanted.is_destroy else given_up(work.loaded.desired, remembered.record, inventory)

    seen = observe(work.providers, work.to_read, remembered.record, may_lack=may_lack, tell=work.invocation.tell)
    record = remembered.settled(seen)
    given, inventory = _given(work, snapshot, seen, wanted), seen.inventory
    if not wanted.is_destroy:
        work.invocation.tell("looking into object storage")
        stored, lost = mountables(work.providers, work.loaded.desired, record, seen)
        recoveries = recoverables(work.providers, work.loaded.desired, seen)
        given = replace(given, stored=replace(stored, recoveries=recoveries))
        inventory = as_lost(inventory, lost) if lost else inventory
    work.invocation.tell("comparing files, state and clusters")
    draft = planner.decide(work.loaded.desired, record, inventory, request=given)
    asked = planner.to_measure(draft)
    measures: Measures = {}
    if asked:
        cut, lacking = topics_cut(draft.actions), may_lack(seen.inventory)
        measures = measure(
            work.providers, asked, with_groups=True, committed=cut, may_lack=lacking, tell=work.invocation.tell
        )
        if cut:
            from reconciler.operations.steps.transitions import with_diverged  # noqa: PLC0415 - few plans need it

            measures = with_diverged(work.providers, draft.actions, measures)
    found = planner.judge(draft, measures)
    copies = copies_of(work, snapshot.lockfile if snapshot else None, inventory)
    placed = replace(
        found,
        errors=located(found.errors, work.loaded),
        warnings=(*work.lowered_guards(), *copies, *located(found.warnings, work.loaded)),
        approvers=approvers_asked(found.actions, work.guards)[0],
    )
    return Decided(placed, snapshot, record, seen, remembered, given.stored.mounted_elsewhere)


def _given(work: Work, snapshot: Snapshot | None, seen: ObservedClusters, wanted: PlanOptions) -> PlanInput:
    workspace, invocation = work.loaded.workspace, work.invocation
    commit = invocation.git_commit(work.folder)
    return PlanInput(
        workspace=workspace.metadata.name,
        capabilities=seen.capabilities,
        identities=seen.identities,
        hidden=seen.hidden,
        lost={name: error.message for name, error in seen.lost.items()},
        groups={} if wanted.is_destroy else followed_groups(work.providers, work.loaded.desired, seen),
        today=invocation.today(),
        now_ms=invocation.now_ms(),
        guards=work.guards,
        spark=workspace.spec.spark,
        selection=selection(invocation, work.select, work.loaded),
        me=work.me(snapshot.lineage if snapshot else ""),
        base=Base(snapshot.lineage, snapshot.serial, snapshot.sha256) if snapshot else None,
        source=PlanSource(
            environment=work.select.environment,
            git_commit=commit,
            applied=_applied(work, snapshot, commit, wanted),
            tool=invocation.tool,
        ),
        options=wanted,
        back_to=work.back_to,
    )


def _applied(work: Work, snapshot: Snapshot | None, commit: str | None, wanted: PlanOptions) -> AppliedCommit | None:
    """Return the commit that was applied last; `None`: not known, or the plan does not lead to the files."""
    applied = snapshot.lockfile.commit if snapshot and snapshot.lockfile else None
    if applied is None or not wanted.is_to_files or work.back_to is not None:
        return None
    if commit is None:
        return AppliedCommit(applied, None, None)
    is_newer = commit != applied and work.invocation.is_ancestor(work.folder, commit, applied)
    return AppliedCommit(applied, commit, is_newer)


@dataclass(frozen=True, slots=True)
class Header:
    """What the first line of a plan says."""

    topics: int
    clusters: int
    seconds: float
    serial: int | None
    commit: str | None
    unread: tuple[str, ...] = ()
    """The clusters that could not be read, and that the plan does without."""


@dataclass(frozen=True)
class Planned:
    """A finished plan, ready to be shown."""

    plan: Plan
    header: Header
    options: Select
    folder: Path
    warnings: tuple[str, ...] = ()

    def to_json(self) -> bytes:
        """Return the plan as JSON that is printed: what cannot be seen is an escape."""
        return plan_bytes(self.plan)

    def verdict(self, fails: frozenset[Fails] = frozenset()) -> ReconcilerError | None:
        """Return what the exit code says, the gravest first."""
        if self.plan.errors:
            return errors_of(self.plan.errors)
        if "blocked" in fails and self.plan.blocked:
            return BlockedPlanError(self)
        if "changes" in fails and not self.plan.is_empty:
            return PendingError(f"{len(self.plan.actions)} changes are pending", hint="Run: reconciler apply")
        if "danger" in fails and (dangerous := sum(map(is_dangerous, self.plan.actions))):
            return PendingError(f"{dangerous} dangerous changes are pending", hint="Run: reconciler apply")
        return None


Fails: TypeAlias = Literal["errors", "blocked", "danger", "changes"]
FAILS: Final[tuple[Fails, ...]] = get_args(Fails)
"""On what a plan may fail. Errors fail always: what was planned is not the whole."""
_BY_DEFAULT: Final[frozenset[Fails]] = frozenset({"errors", "blocked"})
"""What no apply would do."""


def failing(given: Sequence[str]) -> frozenset[Fails]:
    """Return what a plan fails on, of words with commas between; by default on what no apply would do.

    Raises:
        UsageError: One of them is none of these.
    """
    named = [word.strip() for words in given for word in words.split(",")]
    for word in named:
        if word not in FAILS:
            raise UsageError(f"--fail-on {word}: no plan fails on that", hint=f"Write some of: {', '.join(FAILS)}.")
    return frozenset(each for each in FAILS if each in named) if named else _BY_DEFAULT


class BlockedPlanError(BlockedError):
    """A guard refused a plan or a part of it, so nothing of it was done; `planned` is for showing."""

    def __init__(self, planned: Planned) -> None:
        """Name what is blocked, and the words that would allow it."""
        self.planned = planned
        actions, applied = planned.plan.blocked, planned.plan.applied
        if applied is not None and not actions:
            message, hint = applied.message_and_hint()
            super().__init__(f"nothing was done: {message}", hint=hint)
            return
        allows = [action.blocked.allow for action in actions if action.blocked and action.blocked.allow]
        options = " ".join(f"--allow {allow}" for allow in dict.fromkeys(allows))
        hint = f"Allow once with {options}" if options else "Change the files."
        what = "; ".join(f"{action.id}: {action.blocked.message}" for action in actions if action.blocked)
        super().__init__(f"nothing was done: {len(actions)} blocked ({what})", hint=hint)


def plan(invocation: Invocation, select: Select, *, out: Path | None = None) -> Planned:
    """Plan the workspace as its files are; with `out` also write the plan there, for `apply FILE`."""
    started_ms = invocation.now_ms()
    work = open_work(invocation, select, is_reader=True)
    work.warn_about_local_state()
    planned = show_decided(work, decide_unlocked(work), started_ms)
    if out is not None:
        options = to_options(work.select, cwd=invocation.cwd, folder=work.folder)
        write_plan(invocation.cwd / out, planned.plan, options)
    return planned


def show_decided(work: Work, decided: Decided, started_ms: int) -> Planned:
    """Wrap what was decided with what a reader wants to know about how."""
    snapshot = decided.snapshot
    header = Header(
        topics=decided.seen.topics,
        clusters=len(decided.seen.identities),
        seconds=max(0, work.invocation.now_ms() - started_ms) / 1000,
        serial=snapshot.serial if snapshot else None,
        commit=decided.plan.git_commit,
        unread=tuple(sorted(decided.seen.lost)),
    )
    there = decided.seen.inventory
    warnings = tuple(str(problem) for problem in work.loaded.warnings if problem.unseen not in there)
    return Planned(decided.plan, header, work.select, work.folder, warnings)


def write_plan(path: Path, plan: Plan, options: Mapping[str, Any]) -> None:
    """Write a plan to a file, with the options that it was made with."""
    try:
        with burst():
            write_whole(path, saved_bytes(plan, options))
    except OSError as error:
        raise UserError(
            f"cannot write the plan to {path}: {error.strerror or error}", hint="Name a file that can be written."
        ) from error


# What exit codes say of runs.


def as_it_is(_address: Address, message: str) -> str:
    """Return a refusal as it is: nobody knows the files."""
    return message


def verdict_of(result: RunResult | None, told: Callable[[Address, str], str] = as_it_is) -> ReconcilerError | None:
    """Return what the exit code says of a run. What was left to another on purpose is no failure.

    `told` says of a refusal where in the files its reason is written.
    """
    if result is None:
        return None
    if result.unknown is not None:
        doubt = counted(len(result.in_doubt), "action is", "actions are", grouping="")
        return IncompleteError(f"{doubt} in doubt: {result.unknown.message}", hint=result.unknown.hint)
    if result.not_started and result.is_stopped:
        return IncompleteError(
            f"stopped: {_left(result)}",
            hint="Find out and go on with: reconciler apply --resume"
            if result.unanswered
            else "Go on with: reconciler apply --resume",
        )
    if result.failed:
        first = result.failed[0]
        why = told(Address(first.id.partition(":")[2]), first.error.message)
        failed = counted(len(result.failed), "action", "actions", grouping="")
        skipped = f", {len(result.skipped)} more were not tried because of that" if result.skipped else ""
        return PartialError(
            f"{failed} failed{skipped}; the first is {first.id}: {why}",
            hint=f"{first.error.hint}{_between(first.error.hint)}Then run: reconciler apply",
        )
    if result.skipped:
        left, cause = counted(len(result.skipped), "action was", "actions were", grouping=""), result.skipped[0].because
        return PartialError(
            f"{left} not run: a dependency timed out and was later found to have succeeded; the first needs {cause}",
            hint="Go on with: reconciler apply",
        )
    return None


def _left(result: RunResult) -> str:
    """Return how much a stopped run left; what was begun, and got no answer, is counted apart."""
    unanswered, rest = result.unanswered, len(result.not_started) - len(result.unanswered)
    if not unanswered:
        return f"{counted(rest, 'action is', 'actions are', grouping='')} left"
    left = f", {rest} {'is' if rest == 1 else 'are'} not started" if rest else ""
    doubt = f"{counted(len(unanswered), 'action is', 'actions are', grouping='')} in doubt{left}"
    return f"{doubt}; whether these happened is not known: {first_few(unanswered)}"


def _between(hint: str) -> str:
    """Return what goes before another sentence: a hint may end in what is to be typed, and takes no full stop then."""
    return " " if hint.endswith((".", "!", "?")) else " · "
