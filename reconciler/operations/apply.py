"""`apply` and `destroy`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Final

from reconciler.applying.engine import RunResult, is_mount_by_jobs
from reconciler.applying.events import ActionFailed, Approval, Event
from reconciler.applying.run import DecisionBasis, RunOptions, RunRequest, RunWork
from reconciler.errors import PartialError, ReconcilerError, StalePlanError, UsageError
from reconciler.lifecycles import UNMOUNT
from reconciler.manifests.load import LoadedWorkspace, find_field_origins
from reconciler.operations.plan import (
    BlockedPlanError,
    PlanDecision,
    PlanResult,
    build_plan_result,
    choose_verdict,
    plan_against_snapshot,
    plan_unlocked,
)
from reconciler.operations.state_views import open_rollback
from reconciler.operations.steps.approval import (
    ApprovalCheck,
    ApprovalUse,
    ApprovedDigest,
    ApprovedPlan,
    ResumeFacts,
    check_approvers,
    check_file_digest,
    find_rest_of_plan,
    limit_plan,
    parse_select,
    read_plan,
    read_resume_options,
    serialize_select,
)
from reconciler.operations.steps.invocation import Invocation, Select, combine_errors, find_workspace_folder
from reconciler.operations.steps.jobs import SparkJobs
from reconciler.operations.steps.observe import unreachable_clusters_error
from reconciler.operations.steps.runner import Stop, require_confirmation, run_under_lease
from reconciler.operations.steps.transitions import explain_all_interrupted
from reconciler.operations.steps.workspace import Work, check_allowance, open_state, open_work
from reconciler.planning.actions import RunJob
from reconciler.planning.allowances import collect_allowances
from reconciler.planning.checks.guards import find_lifting_allowance
from reconciler.planning.plan import PlanOptions, Selection
from reconciler.planning.record import find_outdated_owner_clusters
from reconciler.planning.same_or_less import SameOrLess
from reconciler.planning.saved_plan import read_plan_to_apply
from reconciler.planning.settle import list_settled_addresses
from reconciler.resources.address import (
    Address,
    address_of,
    cluster_of,
    full_name_of,
    kind_of,
    list_levels,
    matches_pattern,
    split_name,
)
from reconciler.resources.mirror_link import MirrorLink, MirrorTopic
from reconciler.resources.mount import Mounting
from reconciler.resources.workspace import Guards
from reconciler.runtime.dataclass import dataclass, field, replace

if TYPE_CHECKING:
    from reconciler.forges.environment import ForgeRequest
    from reconciler.planning.actions import Action, Transition
    from reconciler.state.journal import StateAdvance
    from reconciler.state.snapshots import Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyOptions(RunOptions):
    """Options of `apply`."""

    file: Path | None = None
    yes: bool = False
    strict: bool = False
    """With `file`, also reject a smaller plan, a changed state and another git commit."""
    only_drift: bool = False
    """Reset drifted fields only. Not for `file`."""
    approved_in: ForgeRequest | None = None
    approved_at_ms: int | None = None
    approvers: int = 0


@dataclass(frozen=True, slots=True)
class Hooks:
    """Callbacks of a run. `confirm` receives a final plan with actions, once."""

    confirm: Callable[[PlanResult], bool]
    report: Callable[[Event], None]
    stop: Stop


@dataclass(frozen=True, slots=True)
class ApplyOutcome:
    """Result of an apply; `result` is `None` without actions."""

    planned: PlanResult
    result: RunResult | None
    skipped: tuple[str, ...]
    verdict: ReconcilerError | None
    advance: StateAdvance | None = None
    """Commits since the approval, which do not affect the approved actions."""


def apply(invocation: Invocation, select: Select, options: ApplyOptions, hooks: Hooks) -> ApplyOutcome:
    """Apply the files or a saved plan. Raises `BlockedError` or `StalePlanError` before any action."""
    if options.strict and options.file is None:
        raise UsageError(
            "--strict is only for a saved plan",
            hint="Give the FILE that `reconciler plan --out FILE` saved, or leave --strict out.",
        )
    if options.resumes and (options.approved_digest is not None or options.approved_in is not None):
        other = "--expect-digest" if options.approved_in is None else "--approved-in"
        hint = f"Give --resume alone: it finishes the plan that was approved; or {other} alone: it plans again."
        raise UsageError(f"--resume cannot be combined with {other}", hint=hint)
    if options.resumes:
        return _resume(invocation, select, options, hooks)
    if options.file is None:
        return apply_files(invocation, select, options, hooks, PlanOptions(is_only_drift=options.only_drift))
    if options.only_drift:
        raise UsageError("--only-drift cannot be combined with a plan file", hint="Give either FILE or --only-drift.")
    if select != Select():
        raise UsageError(
            "FILE already contains its selection", hint="Give either FILE or options that select, not both."
        )
    saved = read_plan(invocation.cwd / options.file, str(options.file), read_plan_to_apply)
    select = parse_select(saved.options or {}, find_workspace_folder(invocation))
    return _apply_approved(invocation, select, ApprovedPlan(saved.plan, is_strict=options.strict), options, hooks)


def apply_planned(
    invocation: Invocation, planned: PlanResult, allow: Sequence[str], options: ApplyOptions, hooks: Hooks
) -> ApplyOutcome:
    """Apply a plan made by this process, as `apply` does. `allow` overrides guards."""
    if planned.plan.errors:
        raise combine_errors(planned.plan.errors)
    select = replace(planned.options, allow=(*planned.options.allow, *map(check_allowance, allow)))
    allowed = collect_allowances(Guards(), Selection(allow=tuple(allow)))
    actions = tuple(
        replace(action, blocked=None)
        if action.blocked and find_lifting_allowance(action, action.blocked, allowed)
        else action
        for action in planned.plan.actions
    )
    return _apply_approved(invocation, select, ApprovedPlan(replace(planned.plan, actions=actions)), options, hooks)


def _apply_approved(
    invocation: Invocation, select: Select, approved: ApprovedPlan, options: ApplyOptions, hooks: Hooks
) -> ApplyOutcome:
    plan = approved.plan
    work = _reopen_work(invocation, select, plan.back_to)
    approved.check_target(work)
    options = _add_approval(work, options)
    if options.approved_digest is not None:
        check_file_digest(plan, options.approved_digest, str(options.file))
    options = replace(options, approved_digest=plan.digest)
    since = plan.base.serial if plan.base else 0
    use = ApprovalUse(since_ms=options.approved_at_ms, since_serial=since)
    return _ApplyRun(work, options, hooks, PlanOptions()).run(replace(approved, use=use))


def _reopen_work(invocation: Invocation, select: Select, back_to: int | None) -> Work:
    return open_work(invocation, select) if back_to is None else open_rollback(invocation, select, back_to)


def apply_files(
    invocation: Invocation, select: Select, options: ApplyOptions, hooks: Hooks, wanted: PlanOptions
) -> ApplyOutcome:
    """Plan and apply the files; without `yes`, after confirmation."""
    work = open_work(invocation, select)
    work.warn_about_local_state()
    options = _add_approval(work, options)
    applying = _ApplyRun(work, options, hooks, wanted)
    if options.approved_digest is not None:
        use = ApprovalUse(since_ms=options.approved_at_ms, pull_request=options.pull_request)
        return applying.run(ApprovedDigest(options.approved_digest, use))
    return applying.run(None) if options.yes else applying.confirm_and_run()


def _add_approval(work: Work, options: ApplyOptions) -> ApplyOptions:
    if options.approved_in is None:
        return options
    if options.approved_by:
        message = "--approved-by cannot be combined with --approved-in: only who approved the pull request counts"
        raise UsageError(message, hint="Leave --approved-by out, and unset RECONCILER_APPROVED_BY.")
    from reconciler.operations.comment import read_approved_request  # noqa: PLC0415 - only needed to query a forge

    request = read_approved_request(
        work.invocation, work.loaded.workspace.metadata.name, work.select.environment, options.approved_in
    )
    if options.approved_digest not in {None, request.digest}:
        message = (
            f"{request.digest[:8]} was approved in {request.url}, and {str(options.approved_digest)[:8]} is expected"
        )
        raise StalePlanError(message, hint="Nothing was done. Leave --expect-digest out, or have that plan approved.")
    return replace(
        options,
        approved_digest=request.digest,
        approved_at_ms=request.at_ms,
        approvers=request.approvers,
        approved_by=request.by,
        pull_request=request.url or options.pull_request,
    )


def _resume(invocation: Invocation, select: Select, options: ApplyOptions, hooks: Hooks) -> ApplyOutcome:
    if options.file is not None or options.only_drift or select != Select(environment=select.environment):
        raise UsageError("the open run has its own plan and selection", hint="Give --resume alone, and -e.")
    saved_options = read_resume_options(open_state(invocation, select))
    work = _reopen_work(
        invocation, parse_select(saved_options, find_workspace_folder(invocation)), saved_options.get("back_to")
    )
    work.warn_about_local_state()
    return _ApplyRun(work, options, hooks, PlanOptions(**saved_options["wanted"])).run(None)


class _ApplyRun:
    def __init__(self, work: Work, options: ApplyOptions, hooks: Hooks, wanted: PlanOptions) -> None:
        self._work = work
        self._options = options
        self._hooks = hooks
        self._wanted = wanted
        self._places = RefusalPlaces(work.loaded)

    def confirm_and_run(self) -> ApplyOutcome:
        started_ms = self._work.invocation.now_ms()
        decided = plan_unlocked(self._work, self._wanted)
        planned = build_plan_result(self._work, decided, started_ms)
        self._check_errors(planned)
        _check_blocked(planned)
        self._check_approvers(planned)
        if planned.plan.is_empty:
            # Even an empty plan must run to settle an interrupted run.
            is_settled = not decided.remembered.has_open_run
            is_settled = is_settled and not self._find_clusters_to_update(decided)
            return ApplyOutcome(planned, None, (), _unread_error(self._work.unread)) if is_settled else self.run(None)
        if not self._options.leaves_jobs:
            site = self._work
            SparkJobs(site.providers, site.spark, site.invocation).check(planned.plan.actions)
        require_confirmation(self._hooks.confirm(planned))
        return self.run(ApprovedPlan(planned.plan), is_confirmed=True)

    def run(self, approved: ApprovedPlan | ApprovedDigest | None, *, is_confirmed: bool = False) -> ApplyOutcome:
        checked_plans: list[tuple[PlanResult, ApprovalCheck | None]] = []

        def decide_under_lease(basis: DecisionBasis) -> RunWork:
            decided, planned = self._plan(basis.snapshot, approved)
            self._check_errors(planned)
            before = () if basis.settled is None else basis.settled.run.file.approved_by
            if basis.is_second_round:
                doubtful = basis.settled.doubtful if basis.settled is not None else frozenset()
                planned = _limit_plan(
                    planned, [action for action in planned.plan.actions if action.address in doubtful]
                )
                if self._options.resumes and basis.settled is not None:
                    planned = _limit_plan(planned, basis.settled.run.actions)
                elif approved is not None or not self._options.yes:
                    planned = _limit_plan(planned, checked_plans[-1][0].plan.actions)
                _check_blocked(planned)
                self._check_approvers(planned, before)
                return self._build_work(planned, decided)
            check = approved.compare(planned.plan, basis, self._work.state) if approved is not None else None
            if self._options.resumes and basis.settled is not None:
                rest = find_rest_of_plan(basis.settled, planned.plan, _build_resume_facts(decided))
                planned, check = replace(planned, plan=rest.plan), ApprovalCheck(SameOrLess((), rest.not_needed))
            checked_plans.append((planned, check))
            if check is not None:
                self._hooks.report(Approval(check.difference.not_needed, check.advance))
            _check_blocked(planned)
            self._check_approvers(planned, before)
            if not is_confirmed and not planned.plan.is_empty:
                require_confirmation(self._hooks.confirm(planned))
            return self._build_work(planned, decided)

        wish = RunRequest(
            command=self._command_text,
            options=self._options,
            runs_transition=self._may_drive_transition,
            skips_address=lambda address: cluster_of(address) not in self._work.clusters_to_read,
        )
        report = self._places.wrap_report(self._hooks.report)
        result = run_under_lease(self._work, wish, decide_under_lease, report=report, stop=self._hooks.stop).result
        planned, check = checked_plans[-1]
        verdict = choose_verdict(result, self._places.add_place) or _unread_error(self._work.unread)
        if result is not None and result.is_stopped and verdict is not None:
            halted_errors = explain_all_interrupted(self._work.providers, planned.plan.actions, result.not_started)
            verdict.message = "; ".join([verdict.message, *(error.message for error in halted_errors)])
            verdict.hint = " · ".join(dict.fromkeys([verdict.hint, *(error.hint for error in halted_errors)]))
        if check is None:
            return ApplyOutcome(planned, result, (), verdict)
        return ApplyOutcome(planned, result, check.difference.not_needed, verdict, check.advance)

    def _may_drive_transition(self, action: Transition) -> bool:
        named = (*list_settled_addresses(action), self._find_entry_address(action))
        if self._options.leaves_jobs or any(
            matches_pattern(pattern, at) for pattern in self._work.completed_select.excludes for at in named
        ):
            return False
        if is_mount_by_jobs(action):
            wanted = self._work.loaded.desired.get(action.address)
            mounting = None if wanted is None else wanted.resource
            state = "unmounted" if action.machine == UNMOUNT.name else "mounted"
            return isinstance(mounting, Mounting) and mounting.spec.state == state
        return self._find_declared_role(action) != "failed-over"

    @staticmethod
    def _find_entry_address(action: Transition) -> Address:
        return Address(str(action.parameters.get("entry", action.address)))

    def _find_declared_role(self, action: Transition) -> str | None:
        entry, desired = self._find_entry_address(action), self._work.loaded.desired
        if entry in desired and isinstance(mirror := desired[entry].resource, MirrorTopic):
            return mirror.state
        links = (declared.resource for declared in desired.values())
        mirrors = (mirror for link in links if isinstance(link, MirrorLink) for mirror in link.mirrors())
        return next((mirror.state for mirror in mirrors if mirror.address == entry), None)

    @property
    def _command_text(self) -> str:
        back_to = self._work.back_to
        doing = "destroy" if self._wanted.is_destroy else "apply"
        return doing if back_to is None else f"{doing}, back to #{back_to}"

    def _build_work(self, planned: PlanResult, decided: PlanDecision) -> RunWork:
        work, plan = self._work, planned.plan
        select_options = serialize_select(work.completed_select, cwd=work.invocation.cwd, folder=work.folder)
        options = {**select_options, "wanted": asdict(self._wanted), "back_to": work.back_to}
        # The commit is recorded even without actions, unless the applied one may be newer.
        is_newest = bool(plan.actions) or plan.applied is None or plan.applied.is_newer is False
        is_kept = self._wanted.leads_to_files and work.back_to is None and is_newest
        commit = plan.git_commit if is_kept else None
        return RunWork(plan.actions, plan.digest, plan, options, self._find_clusters_to_update(decided), commit)

    def _find_clusters_to_update(self, decided: PlanDecision) -> frozenset[str]:
        me = self._work.make_owner(decided.snapshot.lineage if decided.snapshot else "")
        return find_outdated_owner_clusters(decided.recorded, decided.seen.inventory, me)

    def _plan(
        self, snapshot: Snapshot | None, approved: ApprovedPlan | ApprovedDigest | None
    ) -> tuple[PlanDecision, PlanResult]:
        started_ms = self._work.invocation.now_ms()

        def can_leave_out(cluster: str) -> bool:
            # Without its cluster, an approved action would seem to be done already.
            if self._options.resumes or isinstance(approved, ApprovedDigest):
                return False
            return approved is None or all(cluster not in _list_clusters(action) for action in approved.plan.actions)

        decided = plan_against_snapshot(self._work, snapshot, self._wanted, can_leave_out)
        return decided, build_plan_result(self._work, decided, started_ms)

    def _check_approvers(self, planned: PlanResult, before: Sequence[str] = ()) -> None:
        names = (*self._options.approved_by, *(before if self._options.resumes else ()))
        request = None if self._options.approved_in is None else self._options.pull_request
        check_approvers(planned.plan, self._work.guards, names, request=request, at_least=self._options.approvers)

    def _check_errors(self, planned: PlanResult) -> None:
        if planned.plan.errors:
            is_selecting = self._options.file is None and not self._options.resumes
            raise combine_errors(planned.plan.errors, can_exclude=is_selecting)


def _list_clusters(action: Action) -> set[str | None]:
    addresses = [action.address, *list_settled_addresses(action)]
    if isinstance(action, RunJob):
        addresses += [action.source, action.sink]
    resource = getattr(action, "after", None) or getattr(action, "before", None)
    source = resource.source_cluster if isinstance(resource, MirrorTopic) else None
    return {source, *map(cluster_of, addresses)}


def _unread_error(unread: Mapping[str, ReconcilerError]) -> PartialError | None:
    if not unread:
        return None
    error = unreachable_clusters_error(unread)
    return PartialError(f"{error.message}; nothing on {'it' if len(unread) == 1 else 'them'} was done", hint=error.hint)


def _build_resume_facts(decided: PlanDecision) -> ResumeFacts:
    return ResumeFacts(decided.seen.inventory, decided.seen.capabilities, decided.recorded)


def _limit_plan(planned: PlanResult, agreed: Sequence[Action]) -> PlanResult:
    return replace(planned, plan=limit_plan(planned.plan, agreed))


def _check_blocked(planned: PlanResult) -> None:
    if planned.plan.blocked or planned.plan.has_older_files:
        raise BlockedPlanError(planned)


_MAX_READ: Final = 50
_KEY_GROUPS: Final = ("spec.configs.", "spec.properties.")


@dataclass
class RefusalPlaces:
    """Finds the lines of configs and properties that a platform rejected."""

    loaded: LoadedWorkspace
    _keys: dict[Address, dict[str, str]] = field(default_factory=dict)

    def add_place(self, address: Address, message: str) -> str:
        """Prefix a rejection with file and line of its config or property."""
        for layer in _list_config_layers(address):
            for key, place in self._read_layer_places(layer).items():
                if key in message:
                    return f"{place}: {message}"
        return message

    def wrap_report(self, report: Callable[[Event], None]) -> Callable[[Event], None]:
        """Return a callback that reports failures with file and line."""

        def report_placed(event: Event) -> None:
            if isinstance(event, ActionFailed):
                event = replace(event, error=self.add_place(event.address, event.error))
            report(event)

        return report_placed

    def _read_layer_places(self, layer: Address) -> dict[str, str]:
        if layer not in self._keys:
            if layer not in self.loaded.places or len(self._keys) >= _MAX_READ:
                return {}
            keys = {
                path.removeprefix(group): place
                for path, place in find_field_origins(self.loaded, layer).items()
                for group in _KEY_GROUPS
                if path.startswith(group)
            }
            self._keys[layer] = dict(sorted(keys.items(), key=lambda item: (-len(item[0]), item[0])))
        return self._keys[layer]


def _list_config_layers(address: Address) -> Iterator[Address]:
    yield address
    if kind_of(address) == "topic":
        namespace, _ = split_name(full_name_of(address))
        for tier in reversed(list(list_levels(namespace))):
            yield address_of("namespace", cluster_of(address) or "", tier)


@dataclass(frozen=True, slots=True, kw_only=True)
class DestroyOptions(ApplyOptions):
    """Options of `destroy`."""

    recursive: bool = False
    include_adopted: bool = False


def destroy(invocation: Invocation, select: Select, options: DestroyOptions, hooks: Hooks) -> ApplyOutcome:
    """Delete the workspace's resources, or the selected ones. Adopted ones are only removed from the state."""
    if select.changed_since is not None:
        message = "--changed-since cannot be combined with destroy: removed resources have no changed file"
        raise UsageError(
            message, hint="Name each resource to remove: reconciler destroy --target ADDR. Nothing was done."
        )
    if options.recursive:
        below = tuple(pattern for target in select.targets for pattern in _list_patterns_below(target))
        select = replace(select, targets=(*select.targets, *below))
    wanted = PlanOptions(is_destroy=True, include_adopted=options.include_adopted)
    return apply_files(invocation, select, options, hooks, wanted)


def _list_patterns_below(target: str) -> Iterator[str]:
    address = Address(target)
    match kind_of(address):
        case "cluster":
            yield f"*/{cluster_of(address)}/*"
        case "namespace":
            yield f"*/{cluster_of(address)}/{full_name_of(address)}:*"
        case _:
            return
