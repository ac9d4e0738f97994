"""`plan`: show changes without a lock or a write."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, get_args

from reconciler.errors import (
    NOTHING_DONE,
    BlockedError,
    IncompleteError,
    PartialError,
    PendingError,
    ReconcilerError,
    RetryableError,
    UsageError,
    UserError,
)
from reconciler.objectstore.directory import write_atomically
from reconciler.operations.steps.approval import serialize_select
from reconciler.operations.steps.invocation import Invocation, Select, add_locations, combine_errors
from reconciler.operations.steps.observe import (
    ObservedClusters,
    find_mountable_topics,
    find_recoveries,
    mark_lost_topics,
    measure,
    observe,
    pause_garbage_collection,
    read_followed_groups,
    unreachable_clusters_error,
)
from reconciler.operations.steps.recorded import (
    RecordedState,
    find_copied_states,
    read_recorded_state,
    warn_of_outdated,
)
from reconciler.operations.steps.workspace import Work, open_work
from reconciler.planning import planner
from reconciler.planning.actions import is_dangerous
from reconciler.planning.checks.guards import count_required_approvals
from reconciler.planning.checks.mirror_checks import find_role_swap, find_truncated_topics
from reconciler.planning.plan import AppliedCommit, Base, Plan, PlanInput, PlanOptions, PlanSource
from reconciler.planning.plan_rows import encode_plan
from reconciler.planning.resolve.cluster_values import find_abandoned_sources
from reconciler.planning.saved_plan import encode_saved_plan
from reconciler.resources.address import Address
from reconciler.runtime.dataclass import dataclass, field, replace
from reconciler.runtime.text import list_first, pluralize

if TYPE_CHECKING:
    from reconciler.applying.engine import RunResult
    from reconciler.resources.inventory import Inventory, Record
    from reconciler.resources.measures import Measures
    from reconciler.resources.mount import RemountedTopic
    from reconciler.state.snapshots import Snapshot


_ClusterCheck: TypeAlias = Callable[[str], bool]


def _accept_any(_cluster: str) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class PlanDecision:
    """A plan, and the observations and records that it uses."""

    plan: Plan
    snapshot: Snapshot | None
    recorded: Record
    seen: ObservedClusters
    remembered: RecordedState
    mounted_elsewhere: Mapping[Address, RemountedTopic] = field(default_factory=dict)


def plan_against_snapshot(
    work: Work, snapshot: Snapshot | None, wanted: PlanOptions | None = None, can_leave_out: _ClusterCheck = _accept_any
) -> PlanDecision:
    """Observe clusters and plan against `snapshot`, read under the lease. `can_leave_out` accepts silent clusters."""
    with pause_garbage_collection():
        return _observe_and_plan(work, RecordedState(snapshot), wanted or PlanOptions(), can_leave_out)


def plan_unlocked(work: Work, wanted: PlanOptions | None = None) -> PlanDecision:
    """Plan without a lock, as if an interrupted run were settled.

    Warn if the plan has differences and the state is a restored old copy.
    """
    work.invocation.tell("reading the state")
    remembered = read_recorded_state(work)
    with pause_garbage_collection():
        decided = _observe_and_plan(work, remembered, wanted or PlanOptions())
        if decided.plan.actions or decided.plan.drift:
            warn_of_outdated(work, decided.snapshot.lockfile if decided.snapshot else None)
    return decided


def _observe_and_plan(
    work: Work, remembered: RecordedState, wanted: PlanOptions, can_leave_out: _ClusterCheck = _accept_any
) -> PlanDecision:
    snapshot, limits = remembered.snapshot, work.loaded.workspace.spec.clusters

    def find_optional_clusters(inventory: Inventory) -> frozenset[str]:
        return (
            frozenset()
            if wanted.is_destroy
            else find_abandoned_sources(work.loaded.desired, remembered.record, inventory)
        )

    seen = observe(
        work.providers,
        work.clusters_to_read,
        remembered.record,
        find_optional=find_optional_clusters,
        can_leave_out=lambda name: not wanted.is_destroy and work.back_to is None and can_leave_out(name),
        limits=limits,
        tell=work.invocation.tell,
    )
    work.unread.update(seen.left_out)
    record = remembered.settle(seen)
    request, inventory = _build_plan_input(work, snapshot, seen, wanted), seen.inventory
    if not wanted.is_destroy:
        work.invocation.tell("looking into object storage")
        stored, lost = find_mountable_topics(work.providers, work.loaded.desired, record, seen)
        recoveries = find_recoveries(work.providers, work.loaded.desired, seen)
        request = replace(request, stored=replace(stored, recoveries=recoveries))
        inventory = mark_lost_topics(inventory, lost) if lost else inventory
    work.invocation.tell("comparing files, state and clusters")
    draft = planner.decide_actions(work.loaded.desired, record, inventory, request=request)
    to_measure = planner.list_topics_to_measure(draft)
    measures: Measures = {}
    if to_measure:
        cut, optional_clusters = find_truncated_topics(draft.actions), find_optional_clusters(seen.inventory)
        measures = measure(
            work.providers,
            to_measure,
            with_groups=True,
            committed=cut,
            optional=optional_clusters,
            at_once=limits.parallel,
            tell=work.invocation.tell,
        )
        if any(map(find_role_swap, draft.actions)):
            from reconciler.operations.steps.transitions import add_swap_costs  # noqa: PLC0415 - rarely needed

            measures = add_swap_costs(work.providers, draft.actions, measures)
    judged = planner.assess_draft(draft, measures)
    copies = find_copied_states(work, snapshot.lockfile if snapshot else None, inventory)
    placed = replace(
        judged,
        errors=add_locations(judged.errors, work.loaded),
        warnings=(*work.list_lowered_guards(), *copies, *add_locations(judged.warnings, work.loaded)),
        approvers=count_required_approvals(judged.actions, work.guards)[0],
    )
    return PlanDecision(placed, snapshot, record, seen, remembered, request.stored.mounted_elsewhere)


def _build_plan_input(work: Work, snapshot: Snapshot | None, seen: ObservedClusters, wanted: PlanOptions) -> PlanInput:
    workspace, invocation = work.loaded.workspace, work.invocation
    commit = invocation.git_commit(work.folder)
    return PlanInput(
        workspace=workspace.metadata.name,
        capabilities=seen.capabilities,
        identities=seen.identities,
        hidden=seen.hidden,
        lost={name: error.message for name, error in {**work.unread, **seen.lost}.items()},
        groups={} if wanted.is_destroy else read_followed_groups(work.providers, work.loaded.desired, seen),
        today=invocation.today(),
        now_ms=invocation.now_ms(),
        guards=work.guards,
        spark=workspace.spec.spark,
        selection=work.build_selection(),
        me=work.make_owner(snapshot.lineage if snapshot else ""),
        base=Base(snapshot.lineage, snapshot.serial, snapshot.sha256) if snapshot else None,
        source=PlanSource(
            environment=work.select.environment,
            git_commit=commit,
            applied=_find_last_applied_commit(work, snapshot, commit, wanted),
            tool=invocation.tool,
        ),
        options=wanted,
        back_to=work.back_to,
    )


def _find_last_applied_commit(
    work: Work, snapshot: Snapshot | None, commit: str | None, wanted: PlanOptions
) -> AppliedCommit | None:
    applied = snapshot.lockfile.commit if snapshot and snapshot.lockfile else None
    if applied is None or not wanted.leads_to_files or work.back_to is not None:
        return None
    if commit is None:
        return AppliedCommit(applied, None, None)
    is_newer = commit != applied and work.invocation.is_ancestor(work.folder, commit, applied)
    return AppliedCommit(applied, commit, is_newer)


@dataclass(frozen=True, slots=True)
class PlanHeader:
    """Data for the first line of a printed plan."""

    topics: int
    clusters: int
    seconds: float
    serial: int | None
    commit: str | None
    unread: tuple[str, ...] = ()


@dataclass(frozen=True)
class PlanResult:
    """A plan with data for its display."""

    plan: Plan
    header: PlanHeader
    options: Select
    folder: Path
    warnings: tuple[str, ...] = ()
    unread: Mapping[str, RetryableError] = field(default_factory=dict)
    """Errors of the clusters that the plan leaves out."""

    def to_json(self) -> bytes:
        """Return the plan as JSON with invisible characters escaped."""
        return encode_plan(self.plan)

    def verdict(self, fails: frozenset[Fails] = frozenset()) -> ReconcilerError | None:
        """Return the gravest error for the exit code; `None` if nothing in `fails` occurred."""
        if self.plan.errors:
            return combine_errors(self.plan.errors)
        if "blocked" in fails and self.plan.blocked:
            return BlockedPlanError(self)
        if self.unread:
            return unreachable_clusters_error(self.unread)
        if "changes" in fails and not self.plan.is_empty:
            return PendingError(f"{len(self.plan.actions)} changes are pending", hint="Run: reconciler apply")
        if "danger" in fails and (dangerous := sum(map(is_dangerous, self.plan.actions))):
            return PendingError(f"{dangerous} dangerous changes are pending", hint="Run: reconciler apply")
        return None


Fails: TypeAlias = Literal["errors", "blocked", "danger", "changes"]
FAILS: Final[tuple[Fails, ...]] = get_args(Fails)
"""Values of `--fail-on`. Errors always fail."""
_DEFAULT_FAILS: Final[frozenset[Fails]] = frozenset({"errors", "blocked"})


def parse_fail_on(words: Sequence[str]) -> frozenset[Fails]:
    """Parse comma-separated values of `--fail-on`; empty means the default."""
    named = [word.strip() for text in words for word in text.split(",")]
    for word in named:
        if word not in FAILS:
            raise UsageError(f"--fail-on {word}: no plan fails on that", hint=f"Write some of: {', '.join(FAILS)}.")
    return frozenset(kind for kind in FAILS if kind in named) if named else _DEFAULT_FAILS


class BlockedPlanError(BlockedError):
    """A guard blocks the plan, or a part. `planned` is for display."""

    def __init__(self, planned: PlanResult) -> None:
        self.planned = planned
        actions, applied = planned.plan.blocked, planned.plan.applied
        if applied is not None and not actions:
            message, hint = applied.format_warning()
            super().__init__(message, hint=hint, subject=NOTHING_DONE)
            return
        allows = [action.blocked.allow for action in actions if action.blocked and action.blocked.allow]
        options = " ".join(f"--allow {allow}" for allow in dict.fromkeys(allows))
        hint = f"Allow once with {options}" if options else "Change the files."
        what = "; ".join(f"{action.id}: {action.blocked.message}" for action in actions if action.blocked)
        super().__init__(f"{len(actions)} blocked ({what})", hint=hint, subject=NOTHING_DONE)


def plan(invocation: Invocation, select: Select, *, out: Path | None = None) -> PlanResult:
    """Plan the files. `out` saves the plan for `apply FILE`."""
    started_ms = invocation.now_ms()
    work = open_work(invocation, select, is_reader=True)
    work.warn_about_local_state()
    planned = build_plan_result(work, plan_unlocked(work), started_ms)
    if out is not None:
        options = serialize_select(work.completed_select, cwd=invocation.cwd, folder=work.folder)
        write_plan(invocation.cwd / out, planned.plan, options)
    return planned


def build_plan_result(work: Work, decided: PlanDecision, started_ms: int) -> PlanResult:
    """Add data for display to a plan."""
    snapshot = decided.snapshot
    header = PlanHeader(
        topics=decided.seen.topics,
        clusters=len(decided.seen.identities),
        seconds=max(0, work.invocation.now_ms() - started_ms) / 1000,
        serial=snapshot.serial if snapshot else None,
        commit=decided.plan.git_commit,
        unread=tuple(sorted({*work.unread, *decided.seen.lost})),
    )
    inventory = decided.seen.inventory
    warnings = tuple(str(problem) for problem in work.loaded.warnings if problem.unseen not in inventory)
    return PlanResult(decided.plan, header, work.select, work.folder, warnings, dict(work.unread))


def write_plan(path: Path, plan: Plan, options: Mapping[str, Any]) -> None:
    """Save a plan with its options."""
    try:
        with pause_garbage_collection():
            write_atomically(path, encode_saved_plan(plan, options))
    except OSError as error:
        raise UserError(
            f"cannot write the plan to {path}: {error.strerror or error}", hint="Name a file that can be written."
        ) from error


def _return_message(_address: Address, message: str) -> str:
    return message


def choose_verdict(
    result: RunResult | None, add_place: Callable[[Address, str], str] = _return_message
) -> ReconcilerError | None:
    """Return the error for a run's exit code, or `None`. Actions left to other processes do not count.

    `add_place` adds file and line to a rejection.
    """
    if result is None:
        return None
    if result.unknown is not None:
        doubt = pluralize(len(result.in_doubt), "action is", "actions are", grouping="")
        return IncompleteError(f"{doubt} in doubt: {result.unknown.message}", hint=result.unknown.hint)
    if result.not_started and result.is_stopped:
        return IncompleteError(
            f"stopped: {_describe_rest(result)}",
            hint="Find out and continue with: reconciler apply --resume"
            if result.unanswered
            else "Continue with: reconciler apply --resume",
        )
    if result.failed:
        first = result.failed[0]
        why = add_place(Address(first.id.partition(":")[2]), first.error.message)
        failed = pluralize(len(result.failed), "action", "actions", grouping="")
        skipped = f", {len(result.skipped)} more were not tried because of that" if result.skipped else ""
        return PartialError(
            f"{failed} failed{skipped}; the first is {first.id}: {why}",
            hint=f"{first.error.hint}{_hint_separator(first.error.hint)}Then run: reconciler apply",
        )
    if result.skipped:
        left, cause = (
            pluralize(len(result.skipped), "action was", "actions were", grouping=""),
            result.skipped[0].because,
        )
        return PartialError(
            f"{left} not run: a dependency timed out and was later found to have succeeded; the first needs {cause}",
            hint="Continue with: reconciler apply",
        )
    return None


def _describe_rest(result: RunResult) -> str:
    unanswered, rest = result.unanswered, len(result.not_started) - len(result.unanswered)
    if not unanswered:
        return f"{pluralize(rest, 'action is', 'actions are', grouping='')} left"
    left = f", {rest} {'is' if rest == 1 else 'are'} not started" if rest else ""
    doubt = f"{pluralize(len(unanswered), 'action is', 'actions are', grouping='')} in doubt{left}"
    return f"{doubt}; whether these happened is not known: {list_first(unanswered)}"


def _hint_separator(hint: str) -> str:
    return " " if hint.endswith((".", "!", "?")) else " · "
