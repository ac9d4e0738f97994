"""`apply` and `destroy`: plan, confirm, do."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from reconciler.applying.engine import RunResult, is_archived
from reconciler.applying.events import ActionFailed, Approval, Event
from reconciler.applying.run import Basis, RunOptions, RunRequest, ToDo
from reconciler.errors import ReconcilerError, StalePlanError, UsageError
from reconciler.lifecycles import UNMOUNT
from reconciler.manifests.load import Loaded, explain_origin
from reconciler.operations.plan import (
    BlockedPlanError,
    Decided,
    Planned,
    decide,
    decide_unlocked,
    show_decided,
    verdict_of,
)
from reconciler.operations.state_views import open_rollback
from reconciler.operations.steps.approval import (
    ApprovalCheck,
    ApprovalUse,
    Approved,
    ApprovedDigest,
    RestOfRun,
    check_approvers,
    check_file_digest,
    limited_to,
    read_plan,
    rest_of,
    resumable,
    select_of,
    to_options,
)
from reconciler.operations.steps.invocation import Invocation, Select, errors_of, workspace_folder
from reconciler.operations.steps.jobs import SparkJobs
from reconciler.operations.steps.runner import Stop, require_confirmation, run_under_lease
from reconciler.operations.steps.transitions import halted_of
from reconciler.operations.steps.workspace import Work, check_allowance, open_state, open_work
from reconciler.planning.allowances import allowances
from reconciler.planning.checks.guards import lifted_by
from reconciler.planning.plan import PlanOptions, Selection
from reconciler.planning.record import clusters_to_tell
from reconciler.planning.same_or_less import SameOrLess
from reconciler.planning.saved_plan import read_saved
from reconciler.planning.settle import scope_of
from reconciler.resources.address import (
    Address,
    address_of,
    cluster_of,
    full_name_of,
    kind_of,
    matches,
    split_name,
    tiers_of,
)
from reconciler.resources.mirror_link import MirrorLink, MirrorTopic
from reconciler.resources.mount import Mounting
from reconciler.resources.workspace import Guards

if TYPE_CHECKING:
    from reconciler.forges.environment import Asked
    from reconciler.planning.actions import Action, Transition
    from reconciler.state.journal import StateAdvance
    from reconciler.state.snapshots import Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyOptions(RunOptions):
    """How a plan is made, approved and applied."""

    file: Path | None = None
    """A plan that was saved and approved."""
    yes: bool = False
    strict: bool = False
    """With `file`: refuse also where less than it holds is left to do, or the state or the git commit moved."""
    only_drift: bool = False
    """Without `file`: only set back what drifted."""
    approved_in: Asked | None = None
    """The pull request whose plan was approved."""
    approved_ms: int | None = None
    """When it was approved there."""
    approvers: int = 0
    """How many people its plan asked for."""


@dataclass(frozen=True, slots=True)
class Hooks:
    """What a run calls back.

    `confirm` is asked exactly once, about the very plan that is going to be done: with `yes` or `file` under the
    lease, else before it is taken. It is not asked where there is nothing to do.
    """

    confirm: Callable[[Planned], bool]
    report: Callable[[Event], None]
    stop: Stop


@dataclass(frozen=True, slots=True)
class Applied:
    """What came of it. `result` is `None` where there was nothing to do."""

    planned: Planned
    result: RunResult | None
    skipped: tuple[str, ...]
    """Approved, and no longer needed."""
    verdict: ReconcilerError | None
    advance: StateAdvance | None = None
    """The state went on since the plan was approved; what is left of the plan is as it was."""


def apply(invocation: Invocation, select: Select, options: ApplyOptions, hooks: Hooks) -> Applied:
    """Bring the clusters to what the files say, or to what a saved plan says of them.

    Raises:
        BlockedError: A guard refuses something; nothing was done.
        StalePlanError: The world no longer matches what was approved; nothing was done.
        UserError: The plan has errors, or was not confirmed; nothing was done.
        LeaseError: Someone else is applying.
    """
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
        return apply_wanted(invocation, select, options, hooks, PlanOptions(is_only_drift=options.only_drift))
    if options.only_drift:
        raise UsageError("--only-drift cannot be combined with a plan file", hint="Give either FILE or --only-drift.")
    if select != Select():
        raise UsageError("FILE has its own selection", hint="Give either FILE or options that select, not both.")
    saved = read_plan(invocation.cwd / options.file, str(options.file), read_saved)
    select = select_of(saved.options or {}, workspace_folder(invocation))
    return _apply_approved(invocation, select, Approved(saved.plan, is_strict=options.strict), options, hooks)


def apply_planned(
    invocation: Invocation, planned: Planned, allow: Sequence[str], options: ApplyOptions, hooks: Hooks
) -> Applied:
    """Do a plan of this process, as one that was saved: the same or less. `allow` lifts guards of what it names.

    Raises:
        BlockedError: A guard refuses something; nothing was done.
        StalePlanError: The world no longer matches the plan; nothing was done.
        UserError: The plan has errors; nothing was done.
        LeaseError: Another run holds the lease.
    """
    if planned.plan.errors:
        raise errors_of(planned.plan.errors)
    select = replace(planned.options, allow=(*planned.options.allow, *map(check_allowance, allow)))
    allowed = allowances(Guards(), Selection(allow=tuple(allow)))
    actions = tuple(
        replace(action, blocked=None) if action.blocked and lifted_by(action, action.blocked, allowed) else action
        for action in planned.plan.actions
    )
    return _apply_approved(invocation, select, Approved(replace(planned.plan, actions=actions)), options, hooks)


def _apply_approved(
    invocation: Invocation, select: Select, approved: Approved, options: ApplyOptions, hooks: Hooks
) -> Applied:
    plan = approved.plan
    work = _open_again(invocation, select, plan.back_to)
    approved.check_place(work)
    options = _with_approval(work, options)
    if options.approved_digest is not None:
        check_file_digest(plan, options.approved_digest, str(options.file))
    options = replace(options, approved_digest=plan.digest)
    since = plan.base.serial if plan.base else 0
    use = ApprovalUse(since_ms=options.approved_ms, since_serial=since)
    return _Applying(work, options, hooks, PlanOptions()).run(replace(approved, use=use))


def _open_again(invocation: Invocation, select: Select, back_to: int | None) -> Work:
    """Open what a plan was made from: the files, or the state it goes back to."""
    return open_work(invocation, select) if back_to is None else open_rollback(invocation, select, back_to)


def apply_wanted(
    invocation: Invocation, select: Select, options: ApplyOptions, hooks: Hooks, wanted: PlanOptions
) -> Applied:
    """Plan what is wanted and do it: at once with `yes`, else after it was confirmed."""
    work = open_work(invocation, select)
    work.warn_about_local_state()
    options = _with_approval(work, options)
    applying = _Applying(work, options, hooks, wanted)
    if options.approved_digest is not None:
        use = ApprovalUse(since_ms=options.approved_ms, pull_request=options.pull_request)
        return applying.run(ApprovedDigest(options.approved_digest, use))
    return applying.run(None) if options.yes else applying.ask_and_run()


def _with_approval(work: Work, options: ApplyOptions) -> ApplyOptions:
    """Return the options with what was approved in a pull request, where that is to be looked up.

    Raises:
        StalePlanError: The command line expects another plan than was approved there.
        UsageError: It names approvers as well.
    """
    if options.approved_in is None:
        return options
    if options.approved_by:
        message = "--approved-by cannot be combined with --approved-in: only who approved the pull request counts"
        raise UsageError(message, hint="Leave --approved-by out, and unset RECONCILER_APPROVED_BY.")
    from reconciler.operations.comment import approved_request  # noqa: PLC0415 - only who asks a forge pays

    found = approved_request(
        work.invocation, work.loaded.workspace.metadata.name, work.select.environment, options.approved_in
    )
    if options.approved_digest not in {None, found.digest}:
        message = f"{found.digest[:8]} was approved in {found.url}, and {str(options.approved_digest)[:8]} is expected"
        raise StalePlanError(message, hint="Nothing was done. Leave --expect-digest out, or have that plan approved.")
    return replace(
        options,
        approved_digest=found.digest,
        approved_ms=found.at_ms,
        approvers=found.approvers,
        approved_by=found.by,
        pull_request=found.url or options.pull_request,
    )


def _resume(invocation: Invocation, select: Select, options: ApplyOptions, hooks: Hooks) -> Applied:
    """Plan again as the open run did, and do what of its plan is left."""
    if options.file is not None or options.only_drift or select != Select(environment=select.environment):
        raise UsageError("the open run has its own plan and selection", hint="Give --resume alone, and -e.")
    kept = resumable(open_state(invocation, select))
    work = _open_again(invocation, select_of(kept, workspace_folder(invocation)), kept.get("back_to"))
    work.warn_about_local_state()
    return _Applying(work, options, hooks, PlanOptions(**kept["wanted"])).run(None)


class _Applying:
    """One `apply`, with what it has found so far."""

    def __init__(self, work: Work, options: ApplyOptions, hooks: Hooks, wanted: PlanOptions) -> None:
        self._work = work
        self._options = options
        self._hooks = hooks
        self._wanted = wanted
        self._places = RefusalPlaces(work.loaded)

    def ask_and_run(self) -> Applied:
        """Plan without a lock, ask once, and do the same or less under the lease."""
        started_ms = self._work.invocation.now_ms()
        decided = decide_unlocked(self._work, self._wanted)
        planned = show_decided(self._work, decided, started_ms)
        self._check_errors(planned)
        _check_blocked(planned)
        self._check_approvers(planned)
        if planned.plan.is_empty:
            # What an earlier run left is settled also where the plan is empty.
            is_settled = not decided.remembered.has_open_run
            is_settled = is_settled and not self._to_tell(decided)
            return Applied(planned, None, (), None) if is_settled else self.run(None)
        if not self._options.leaves_jobs:
            site = self._work
            SparkJobs(site.providers, site.spark, site.invocation).check(planned.plan.actions)
        require_confirmation(self._hooks.confirm(planned))
        return self.run(Approved(planned.plan), is_confirmed=True)

    def run(self, approved: Approved | ApprovedDigest | None, *, is_confirmed: bool = False) -> Applied:
        """Take the lease, plan under it, and do what was approved (`None`: whatever is planned)."""
        found: list[tuple[Planned, ApprovalCheck | None]] = []

        def decide_under_lease(basis: Basis) -> ToDo:
            decided, planned = self._plan(basis.snapshot)
            self._check_errors(planned)
            before = () if basis.settled is None else basis.settled.run.file.approved_by
            if basis.is_again:
                doubtful = basis.settled.doubtful if basis.settled is not None else frozenset()
                planned = _limited(planned, [each for each in planned.plan.actions if each.address in doubtful])
                if self._options.resumes and basis.settled is not None:
                    planned = _limited(planned, basis.settled.run.actions)
                elif approved is not None or not self._options.yes:
                    planned = _limited(planned, found[-1][0].plan.actions)
                _check_blocked(planned)
                self._check_approvers(planned, before)
                return self._to_do(planned, decided)
            held = approved.hold(planned.plan, basis, self._work.state) if approved is not None else None
            if self._options.resumes and basis.settled is not None:
                rest = rest_of(basis.settled, planned.plan, _found(decided))
                planned, held = replace(planned, plan=rest.plan), ApprovalCheck(SameOrLess((), rest.not_needed))
            found.append((planned, held))
            if held is not None:
                self._hooks.report(Approval(held.difference.not_needed, held.advance))
            _check_blocked(planned)
            self._check_approvers(planned, before)
            if not is_confirmed and not planned.plan.is_empty:
                require_confirmation(self._hooks.confirm(planned))
            return self._to_do(planned, decided)

        wish = RunRequest(
            command=self._command,
            options=self._options,
            drives=self._drives,
            gives_up=lambda address: cluster_of(address) not in self._work.to_read,
        )
        report = self._places.reporting(self._hooks.report)
        result = run_under_lease(self._work, wish, decide_under_lease, report=report, stop=self._hooks.stop).result
        planned, held = found[-1]
        verdict = verdict_of(result, self._places.placed)
        if result is not None and result.is_stopped and verdict is not None:
            told = halted_of(self._work.providers, planned.plan.actions, result.not_started)
            verdict.message = "; ".join([verdict.message, *(each.message for each in told)])
            verdict.hint = " · ".join(dict.fromkeys([verdict.hint, *(each.hint for each in told)]))
        if held is None:
            return Applied(planned, result, (), verdict)
        return Applied(planned, result, held.difference.not_needed, verdict, held.advance)

    def _drives(self, action: Transition) -> bool:
        """Tell whether to end what was begun: not what is excluded, is to be failed over, or no longer (un)mounted."""
        named = (*scope_of(action), self._entry_of(action))
        if self._options.leaves_jobs or any(matches(each, at) for each in self._work.select.excludes for at in named):
            return False
        if is_archived(action):
            wanted = self._work.loaded.desired.get(action.address)
            mounting = None if wanted is None else wanted.resource
            state = "unmounted" if action.machine == UNMOUNT.name else "mounted"
            return isinstance(mounting, Mounting) and mounting.spec.state == state
        return self._role_of(action) != "failed-over"

    @staticmethod
    def _entry_of(action: Transition) -> Address:
        return Address(str(action.parameters.get("entry", action.address)))

    def _role_of(self, action: Transition) -> str | None:
        entry, desired = self._entry_of(action), self._work.loaded.desired
        if entry in desired and isinstance(mirror := desired[entry].resource, MirrorTopic):
            return mirror.state  # a state to go back to: it has mirrors beside their links
        links = (found.resource for found in desired.values())
        mirrors = (mirror for link in links if isinstance(link, MirrorLink) for mirror in link.mirrors())
        return next((mirror.state for mirror in mirrors if mirror.address == entry), None)

    @property
    def _command(self) -> str:
        back_to = self._work.back_to
        doing = "destroy" if self._wanted.is_destroy else "apply"
        return doing if back_to is None else f"{doing}, back to #{back_to}"

    def _to_do(self, planned: Planned, decided: Decided) -> ToDo:
        work, plan = self._work, planned.plan
        kept = to_options(work.select, cwd=work.invocation.cwd, folder=work.folder)
        options = {**kept, "wanted": asdict(self._wanted), "back_to": work.back_to}
        # Files without an action are recorded as applied, unless they may be older than those that are.
        is_newest = bool(plan.actions) or plan.applied is None or plan.applied.is_newer is False
        is_kept = self._wanted.is_to_files and work.back_to is None and is_newest
        commit = plan.git_commit if is_kept else None
        return ToDo(plan.actions, plan.digest, plan, options, self._to_tell(decided), commit)

    def _to_tell(self, decided: Decided) -> frozenset[str]:
        """Return the clusters that are to be told what this workspace owns, though nothing else is done on them."""
        me = self._work.me(decided.snapshot.lineage if decided.snapshot else "")
        return clusters_to_tell(decided.recorded, decided.seen.inventory, me)

    def _plan(self, snapshot: Snapshot | None) -> tuple[Decided, Planned]:
        started_ms = self._work.invocation.now_ms()
        decided = decide(self._work, snapshot, self._wanted)
        return decided, show_decided(self._work, decided, started_ms)

    def _check_approvers(self, planned: Planned, before: Sequence[str] = ()) -> None:
        """Refuse what too few approved. Who approved the run that this one finishes, approved its rest."""
        names = (*self._options.approved_by, *(before if self._options.resumes else ()))
        request = None if self._options.approved_in is None else self._options.pull_request
        check_approvers(planned.plan, self._work.guards, names, request=request, at_least=self._options.approvers)

    def _check_errors(self, planned: Planned) -> None:
        if planned.plan.errors:
            is_selecting = self._options.file is None and not self._options.resumes
            raise errors_of(planned.plan.errors, can_exclude=is_selecting)


def _found(decided: Decided) -> RestOfRun:
    return RestOfRun(decided.seen.inventory, decided.seen.capabilities, decided.recorded)


def _limited(planned: Planned, agreed: Sequence[Action]) -> Planned:
    return replace(planned, plan=limited_to(planned.plan, agreed))


def _check_blocked(planned: Planned) -> None:
    if planned.plan.blocked or planned.plan.is_of_older_files:
        raise BlockedPlanError(planned)


# Refusals by platforms, with the line of the files that they are about.


_MOST_READ: Final = 50
"""Addresses whose files are read again: a person reads the first few refusals."""
_KEYED: Final = ("spec.configs.", "spec.properties.")


@dataclass
class RefusalPlaces:
    """Lines of the loaded files that set a config or property which a refusal names."""

    loaded: Loaded
    _keys: dict[Address, dict[str, str]] = field(default_factory=dict)

    def placed(self, address: Address, message: str) -> str:
        """Return a refusal with its line before it, or unchanged if it names no key of the files."""
        for layer in _layers(address):
            for key, place in self._keys_of(layer).items():
                if key in message:
                    return f"{place}: {message}"
        return message

    def reporting(self, report: Callable[[Event], None]) -> Callable[[Event], None]:
        """Return a `report` that adds the line to each failure."""

        def report_placed(event: Event) -> None:
            if isinstance(event, ActionFailed):
                event = replace(event, error=self.placed(event.address, event.error))
            report(event)

        return report_placed

    def _keys_of(self, layer: Address) -> dict[str, str]:
        """Return the keys in the files of an address with their lines, longest names first."""
        if layer not in self._keys:
            if layer not in self.loaded.places or len(self._keys) >= _MOST_READ:
                return {}
            keys = {
                path.removeprefix(group): place
                for path, place in explain_origin(self.loaded, layer).items()
                for group in _KEYED
                if path.startswith(group)
            }
            self._keys[layer] = dict(sorted(keys.items(), key=lambda item: (-len(item[0]), item[0])))
        return self._keys[layer]


def _layers(address: Address) -> Iterator[Address]:
    """Yield an address and what it inherits configs from, the nearest first."""
    yield address
    if kind_of(address) == "topic":
        namespace, _ = split_name(full_name_of(address))
        for tier in reversed(list(tiers_of(namespace))):
            yield address_of("namespace", cluster_of(address) or "", tier)


# `destroy`: plan and apply the removal of what we created; what was adopted is forgotten.


@dataclass(frozen=True, slots=True, kw_only=True)
class DestroyOptions(ApplyOptions):
    """How what we created is removed."""

    recursive: bool = False
    """Also what lies below a target."""
    include_adopted: bool = False
    """Delete also what was adopted."""


def destroy(invocation: Invocation, select: Select, options: DestroyOptions, hooks: Hooks) -> Applied:
    """Remove what this workspace created, or of that what is targeted.

    Raises:
        BlockedError: A delete is not allowed by name; nothing was done.
        UserError: Not confirmed; nothing was done.
        UsageError: It is asked for what changed files declare: what has left them would go as well.
        LeaseError: Someone else is applying.
    """
    if select.changed_since is not None:
        message = "--changed-since cannot be combined with destroy: no file says what it would remove"
        raise UsageError(
            message, hint="Name each of what is to go: reconciler destroy --target ADDR. Nothing was done."
        )
    if options.recursive:
        below = tuple(pattern for target in select.targets for pattern in _below(target))
        select = replace(select, targets=(*select.targets, *below))
    wanted = PlanOptions(is_destroy=True, include_adopted=options.include_adopted)
    return apply_wanted(invocation, select, options, hooks, wanted)


def _below(target: str) -> Iterator[str]:
    """Yield patterns for everything below a cluster or namespace."""
    address = Address(target)
    match kind_of(address):
        case "cluster":
            yield f"*/{cluster_of(address)}/*"
        case "namespace":
            yield f"*/{cluster_of(address)}/{full_name_of(address)}:*"
        case _:
            return
