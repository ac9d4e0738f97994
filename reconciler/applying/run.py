"""A run, from acquiring the lease to the result."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

from reconciler.applying.engine import Engine, RunLease, RunResult, may_still_happen
from reconciler.applying.events import PlanMade, ResultMissing, RunHandedOver, Summary, group_failures
from reconciler.applying.ports import RunContext, RunPorts
from reconciler.applying.recovery import Recovery, SettledJournal
from reconciler.errors import (
    NOTHING_DONE,
    IncompleteError,
    InterruptedRunError,
    LeaseError,
    ReconcilerError,
    StoppedError,
    UserError,
)
from reconciler.planning.record import apply_record_changes, record_action, record_refusal
from reconciler.planning.saved_plan import encode_action
from reconciler.runtime.dataclass import dataclass, field, replace
from reconciler.runtime.text import end_sentence, list_first, shorten_run_id
from reconciler.state.journal import (
    ActionEnded,
    ActionRefused,
    Entry,
    Journal,
    ResultFile,
    RunClosed,
    RunFile,
    build_detached_entries,
    write_result,
)
from reconciler.state.lease import Claim, Lease, LeasePatience, Notice, acquire, ignore_notice

if TYPE_CHECKING:
    from reconciler.planning.actions import Action, Transition
    from reconciler.planning.plan import Plan
    from reconciler.resources.address import Address
    from reconciler.resources.inventory import Record
    from reconciler.runtime.effects import Effects
    from reconciler.state.snapshots import Snapshot


@dataclass(frozen=True, slots=True)
class RunFinisher:
    """Settles actions in doubt, commits the record and releases the lease."""

    context: RunContext
    lease: Lease
    journal: Journal
    file: RunFile

    @property
    def run(self) -> str:
        """Id of the run."""
        return self.file.run

    async def conclude(self, result: RunResult, *, keeps_lease: bool, began: float) -> RunResult:
        """Commit the results, close a finished run, and report the end. `keeps_lease`: a second round follows.

        Raises:
            LeaseError: The lease was lost; nothing was committed.
            IncompleteError: The state cannot be written; the run stays open.
        """
        if result.ended_by is not None:
            self._abandon(result, result.ended_by, began)
        try:
            result = await self._settle_doubts(result)
        except LeaseError as error:
            self._abandon(result, error, began)
        except ReconcilerError as error:
            result = replace(result, unknown=_build_unknown_error(error))
        is_over = result.is_changed or not (result.not_started or result.unknown)
        if is_over and not self.context.stop.is_requested:
            # After a stop, the next apply marks ownership instead.
            with suppress(StoppedError):
                await self.context.effects.run_blocking(lambda: self.context.mark_ownership(result.record))
        try:
            serial = await self._commit(result, keeps_lease=keeps_lease)
        except ReconcilerError as error:
            self._abandon(result, error, began)
        await self._report_end(result, serial, began)
        if result.trouble is not None:
            raise result.trouble
        return result

    async def _settle_doubts(self, result: RunResult) -> RunResult:
        if not result.in_doubt:
            return result
        if self.context.stop.is_requested:
            names = list_first([action.id for action in result.in_doubt])
            raise IncompleteError(
                f"stopped, and the platform did not report whether these were done: {names}",
                hint="The next run finds out: reconciler apply",
            )
        recovery = Recovery(self.lease, self.context, skips_address=lambda _: False)
        entries, verdicts = await recovery.settle(result.in_doubt, self.journal, result.record)
        waiting = await self._refuse_absent(result, verdicts)
        by_id = {action.id: action for action in result.in_doubt}
        ended = [entry for entry in entries if isinstance(entry, ActionEnded)]
        record = dict(result.record)
        for entry in ended:
            apply_record_changes(record, record_action(by_id[entry.id], entry, record, self.run))
        half_made = [entry for entry in entries if isinstance(entry, ActionRefused) and entry.is_made]
        for refused in half_made:
            apply_record_changes(record, record_refusal(by_id[refused.id], refused, record, self.run))
        done_ids = {entry.id for entry in ended}
        return replace(
            result,
            record=record,
            done=(*result.done, *(entry.id for entry in ended)),
            failed=tuple(item for item in result.failed if item.id not in done_ids),
            in_doubt=waiting,
            unknown=_build_unanswered_error(waiting) if waiting else None,
            is_changed=result.is_changed or bool(ended or half_made),
        )

    async def _refuse_absent(self, result: RunResult, verdicts: Mapping[str, str]) -> tuple[Action, ...]:
        failed = {item.id: item for item in result.failed}
        absent = [action for action in result.in_doubt if verdicts[action.id] == "absent"]
        waiting = tuple(action for action in absent if may_still_happen(failed[action.id]))
        refused = [failed[action.id] for action in absent if not may_still_happen(failed[action.id])]
        await self.journal.append(
            [ActionRefused(id=item.id, error=item.error.message, hint=item.error.hint) for item in refused]
        )
        return waiting

    async def _commit(self, result: RunResult, *, keeps_lease: bool) -> int:
        record = result.record if result.is_changed else None
        keeps_run = result.unknown is not None
        if result.not_started:
            self.context.report(RunHandedOver(result.not_started))
            await self.journal.append(build_detached_entries(result.not_started))
            keeps_run = True
        elif not keeps_run:
            await self.journal.append([RunClosed(status="partial" if has_incomplete_actions(result) else "done")])
        if keeps_lease and not keeps_run:
            return await self.lease.end_run(record)
        return await self.lease.close(record, keeps_run=keeps_run)

    async def _report_end(self, result: RunResult, serial: int, began: float) -> None:
        effects = self.context.effects
        file = ResultFile(
            run=self.run,
            status=compute_status(result),
            serial=serial,
            done=result.done,
            failed=tuple(
                {"id": item.id, "error": item.error.message, "hint": item.error.hint} for item in result.failed
            ),
            skipped=tuple({"id": item.id, "because": item.because} for item in result.skipped),
            not_started=result.not_started,
            in_doubt=tuple(action.id for action in result.in_doubt),
            ended=format_utc_now(effects),
        )
        missing = await self._write_result(file)
        self._report_summary(result, serial, began)
        if missing is not None:
            self.context.report(missing)

    def _report_summary(self, result: RunResult, serial: int | None, began: float) -> None:
        self.context.report(
            Summary(
                self.run,
                done=len(result.done),
                failed=len(result.failed),
                skipped=len(result.skipped),
                not_started=len(result.not_started),
                seconds=self.context.effects.read_clock() - began,
                serial=serial,
                skipped_because={item.id: item.because for item in result.skipped},
                failures=group_failures(result.failed),
                in_doubt=tuple(action.id for action in result.in_doubt),
                ran=result.ran,
                approved_by=self.file.approved_by,
                pull_request=self.file.pull_request,
            )
        )

    async def _write_result(self, file: ResultFile) -> ResultMissing | None:
        try:
            await self.context.effects.run_blocking(lambda: write_result(self.lease.store, file))
        except StoppedError:
            return None  # The interrupted write may have succeeded.
        except ReconcilerError as error:
            return ResultMissing(self.run, error.message, file.serial)
        return None

    def _abandon(self, result: RunResult, error: ReconcilerError, began: float) -> NoReturn:
        self._report_summary(_add_unwritten(result), None, began)
        hint, spooled_at = end_sentence(error.hint), self._spool_entries(result.unwritten)
        if isinstance(error, LeaseError):
            raise LeaseError(error.message, hint=f"{hint}{spooled_at}") from error
        raise IncompleteError(
            f"the state cannot be written: {error.message}",
            hint=f"{hint} The next run finds out what was done: reconciler apply.{spooled_at}",
        ) from error

    def _spool_entries(self, unwritten: Sequence[Entry]) -> str:
        if not unwritten:
            return ""
        try:
            where = self.context.spool.store_entries(self.run, unwritten)
        except UserError as error:
            return f" What is known could not be kept on this machine either: {error}"
        return f" What is known and could not be written is kept in {where}."


def _add_unwritten(result: RunResult) -> RunResult:
    ended = tuple(entry.id for entry in result.unwritten if isinstance(entry, ActionEnded))
    known = frozenset(ended)
    left = tuple(name for name in result.not_started if name not in known)
    return replace(result, done=(*result.done, *ended), not_started=left)


def _merge_results(first: RunResult | None, second: RunResult | None) -> RunResult | None:
    """For actions in both rounds, the second result counts."""
    if first is None or second is None:
        return second or first
    again = {*second.done, *second.not_started}
    again |= {entry.id for entry in second.failed} | {entry.id for entry in second.skipped}
    return replace(
        second,
        done=(*first.done, *second.done),
        failed=(*(failure for failure in first.failed if failure.id not in again), *second.failed),
        skipped=(*(skip for skip in first.skipped if skip.id not in again), *second.skipped),
        is_changed=first.is_changed or second.is_changed,
        ran=first.ran + second.ran,
    )


def _build_unanswered_error(waiting: Sequence[Action]) -> IncompleteError:
    names = list_first([action.id for action in waiting])
    return IncompleteError(
        f"the platform did not answer, and these changes are not on the clusters: {names}. The platform may still do "
        "it, so the run stays open",
        hint="The next run reads the clusters again, and does what is missing: reconciler apply",
    )


def _build_unknown_error(error: ReconcilerError) -> IncompleteError:
    return error if isinstance(error, IncompleteError) else IncompleteError(error.message, hint=error.hint)


def compute_status(result: RunResult) -> str:
    """Return `done`, `partial`, `in doubt`, `stopped` or `detached`."""
    if result.not_started:
        return "stopped" if result.is_stopped else "detached"
    if result.unknown is not None:
        return "in doubt"
    return "partial" if has_incomplete_actions(result) else "done"


def has_incomplete_actions(result: RunResult) -> bool:
    """Return whether any action failed or was skipped."""
    return bool(result.failed or result.skipped)


def format_utc_now(effects: Effects) -> str:
    """Return the current UTC time as `2026-01-31T12:00:00Z`."""
    return effects.read_utc_time().strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass(frozen=True, slots=True)
class RunWork:
    """Actions to execute, and what the run records about them."""

    actions: Sequence[Action]
    digest: str
    plan: Plan | None = None
    options: Mapping[str, Any] | None = None
    unowned: frozenset[str] = frozenset()
    commit: str | None = None


@dataclass(frozen=True, slots=True)
class DecisionBasis:
    """State and settled earlier run, from which a run decides its actions."""

    snapshot: Snapshot
    settled: SettledJournal | None = None
    is_second_round: bool = False
    """Whether this round only checks actions that the settled run left in doubt."""


Decide: TypeAlias = Callable[[DecisionBasis], RunWork]


def run_no_transition(_action: Transition) -> bool:
    """Return `False`: transitions over two clusters are left to `run`."""
    return False


def skip_no_address(_address: Address) -> bool:
    """Return `False`: no address is skipped."""
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """Options of a run. Times are in seconds."""

    resumes: bool = False
    leaves_jobs: bool = False
    parallelism: int = 8
    """Limit of concurrent platform calls, not counting jobs."""
    lock_timeout_s: float = 600.0
    approved_digest: str | None = None
    approved_by: tuple[str, ...] = ()
    pull_request: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """The process that starts the run."""

    claim: Claim
    tool: str = ""
    git_commit: str | None = None
    tell: Callable[[Notice], None] = ignore_notice
    new_run: Callable[[], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """Command and options of a run, and its treatment of an open run."""

    command: str
    options: RunOptions = field(default_factory=RunOptions)
    runs_transition: Callable[[Transition], bool] = run_no_transition
    """Whether to first drive a transition of the open run to its end."""
    skips_address: Callable[[Address], bool] = skip_no_address
    """Whether an address is on an excluded cluster."""


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """Result of a run; `result` is `None` if there were no actions."""

    result: RunResult | None
    settled: SettledJournal | None = None


class Run:
    """One run: acquires the lease, settles an open run, and executes actions."""

    def __init__(self, context: RunContext, caller: Caller, request: RunRequest) -> None:
        self._context = context
        self._caller = caller
        self._request = request
        self._effects = context.effects
        self._began = context.effects.read_clock()

    async def run(self, decide: Decide) -> RunOutcome:
        """Execute the actions that `decide` returns; if it raises, release the lease without changes.

        Raises:
            LeaseError: Another process holds the lease or took it during the run.
            InterruptedRunError: The run was stopped before it changed anything.
            IncompleteError: An earlier run cannot be settled, or the state cannot be written.
        """
        request, resumes = self._request, self._request.options.resumes
        async with await self._acquire_lease() as lease:
            if self._context.stop.is_requested:
                raise _build_not_begun_error("Nothing was changed.")
            recovery = Recovery(
                lease,
                self._context,
                skips_address=request.skips_address,
                runs_transition=request.runs_transition,
                resumes=resumes,
            )
            settled = await recovery.settle_open_run(closes=not resumes)
            if settled is None and resumes:
                raise UserError(
                    "there is nothing to resume: no run is open", hint="Plan and apply with: reconciler apply"
                )
            result = await self._run_round(
                lease, decide, DecisionBasis(await lease.read_snapshot(), settled), self._caller.claim.run
            )
            if self._needs_second_check(result, settled):
                result = _merge_results(result, await self._run_second_round(lease, decide, settled))
        return RunOutcome(result, settled)

    async def _acquire_lease(self) -> Lease:
        claim = self._caller.claim
        patience = LeasePatience(
            lock_timeout_s=self._request.options.lock_timeout_s,
            tell=self._caller.tell,
            is_stopped=lambda: self._context.stop.is_requested,
        )
        try:
            return await acquire(self._context.state, self._effects, claim, patience)
        except StoppedError as error:
            raise InterruptedRunError(
                "stopped before anything started: the state store does not answer",
                hint=f"Nothing was changed. If it granted the lease to run {shorten_run_id(claim.run)} the lease, "
                f"the lease expires {claim.terms.lease_s:.0f} s from now.",
            ) from error

    async def _run_round(self, lease: Lease, decide: Decide, basis: DecisionBasis, run: str) -> RunResult | None:
        try:
            todo = await self._effects.run_blocking(lambda: decide(basis))
        except StoppedError as error:
            raise _build_stop_error(basis) from error
        except ReconcilerError as error:
            if basis.is_second_round:
                raise _build_check_error(error) from error
            raise
        if self._context.stop.is_requested:
            await self._restore_ownership(basis)
            raise _build_stop_error(basis)
        if todo.plan is not None and not basis.is_second_round:
            self._context.report(PlanMade(todo.plan))
        if not todo.actions:
            if lease.lockfile.open_run is not None:
                await lease.end_run(None)
            await lease.store_commit(todo.commit)
            if basis.is_second_round:
                await self._restore_ownership(basis)
            else:
                self._report_nothing_done(lease, run)
            return None
        file = self._build_run_file(run, todo, basis, lease)
        try:
            if not self._request.options.leaves_jobs:
                await self._effects.run_blocking(lambda: self._context.jobs.check(todo.actions))
            await lease.open_run(file, todo.commit)
        except LeaseError:
            raise
        except ReconcilerError:
            await self._restore_ownership(basis)
            raise
        journal = Journal(lease, self._effects, run)
        result = await self._execute(lease, journal, todo, basis.snapshot.record)
        keeps_lease = not basis.is_second_round and self._needs_second_check(result, basis.settled)
        ending = RunFinisher(self._context, lease, journal, file)
        return await ending.conclude(result, keeps_lease=keeps_lease, began=self._began)

    async def _restore_ownership(self, basis: DecisionBasis) -> None:
        with suppress(StoppedError):
            await self._effects.run_blocking(lambda: self._context.mark_ownership(basis.snapshot.record))

    async def _execute(self, lease: Lease, journal: Journal, todo: RunWork, record: Record) -> RunResult:
        context, options = self._context, self._request.options
        ports = RunPorts(
            providers=context.providers,
            jobs=context.jobs,
            lease=RunLease(lease, journal, self._effects),
            effects=self._effects,
            report=context.report,
            parallelism=options.parallelism,
        )
        engine = Engine(todo.actions, ports, record=record, run=journal.run, leaves_jobs=options.leaves_jobs)
        with context.stop.call_on_stop(engine.stop):
            return await engine.run()

    def _needs_second_check(self, result: RunResult | None, settled: SettledJournal | None) -> bool:
        """Return whether late calls of the settled run may have changed a cluster."""
        is_over = result is None or result.is_whole
        return is_over and settled is not None and bool(settled.doubtful)

    async def _run_second_round(self, lease: Lease, decide: Decide, settled: SettledJournal | None) -> RunResult | None:
        if self._context.stop.is_requested:
            raise _build_unchecked_error()
        doubtful = settled.doubtful if settled else frozenset()

        def decide_again(basis: DecisionBasis) -> RunWork:
            todo = decide(basis)
            return replace(todo, actions=[action for action in todo.actions if action.address in doubtful])

        return await self._run_round(
            lease,
            decide_again,
            DecisionBasis(await lease.read_snapshot(), settled, is_second_round=True),
            self._caller.new_run(),
        )

    def _build_run_file(self, run: str, todo: RunWork, basis: DecisionBasis, lease: Lease) -> RunFile:
        caller, claim, options = self._caller, self._caller.claim, self._request.options
        resumed = basis.settled.run.file if basis.settled and options.resumes else None
        return RunFile(
            run=run,
            command=self._request.command,
            plan_digest=todo.digest,
            actions=tuple(encode_action(action) for action in todo.actions),
            workspace=claim.owner.workspace,
            environment=claim.owner.environment,
            base_serial=basis.snapshot.serial,
            base_sha256=basis.snapshot.sha256,
            epoch=lease.lockfile.lease.epoch,
            options=todo.options,
            resumes=resumed.run if resumed else None,
            git_commit=caller.git_commit,
            tool=caller.tool,
            who=claim.who,
            ci_url=claim.ci_url,
            approved_digest=options.approved_digest or (resumed.approved_digest if resumed else None),
            approved_by=options.approved_by or (resumed.approved_by if resumed else ()),
            pull_request=options.pull_request or (resumed.pull_request if resumed else None),
            started=format_utc_now(self._effects),
        )

    def _report_nothing_done(self, lease: Lease, run: str) -> None:
        """Report an empty summary, because listeners wait for one."""
        options = self._request.options
        self._context.report(
            Summary(
                run,
                done=0,
                failed=0,
                skipped=0,
                not_started=0,
                seconds=self._effects.read_clock() - self._began,
                serial=lease.lockfile.serial,
                approved_by=options.approved_by,
                pull_request=options.pull_request,
            )
        )


def _build_stop_error(basis: DecisionBasis) -> ReconcilerError:
    if basis.is_second_round:
        return _build_unchecked_error()
    is_settled = basis.settled is not None
    return _build_not_begun_error(
        "The run before it is settled; nothing else was changed." if is_settled else "Nothing was changed."
    )


def _build_not_begun_error(hint: str) -> InterruptedRunError:
    return InterruptedRunError("stopped before anything started", hint=hint)


def _build_unchecked_error() -> IncompleteError:
    return IncompleteError(
        "stopped: the plan is done, but actions of an earlier run with an unknown outcome were not checked again",
        hint="Check with: reconciler plan",
    )


def _build_check_error(error: ReconcilerError) -> IncompleteError:
    return IncompleteError(
        "the plan is done, but unfinished actions of an earlier run were not continued: "
        f"{error.strip_subject(NOTHING_DONE)}",
        hint=f"{end_sentence(error.hint)} Check with: reconciler plan",
    )
