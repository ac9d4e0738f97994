"""Compare plans with approved ones, and resume open runs."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, assert_never

from reconciler.errors import NOTHING_DONE, BlockedError, StalePlanError, UsageError, UserError
from reconciler.operations.steps.invocation import Select
from reconciler.operations.steps.observe import pause_garbage_collection
from reconciler.planning.actions import Action, Adopt, Create, Delete, Forget, RunJob, Transition, Update
from reconciler.planning.checks.guards import count_required_approvals
from reconciler.planning.plan_rows import compute_digest
from reconciler.planning.record import record_action
from reconciler.planning.same_or_less import (
    Difference,
    PlanTarget,
    SameOrLess,
    Why,
    compare_actions,
    compare_plans,
    describe_difference,
    describe_missing,
    find_excess_reasons,
    refuse_foreign_plan,
    refuse_other_commit,
    refuse_other_state,
)
from reconciler.planning.saved_plan import PLAN_AGAIN_HINT, read_action
from reconciler.planning.settle import settle_action
from reconciler.runtime.dataclass import dataclass, replace
from reconciler.runtime.text import list_first, pluralize, shorten_run_id
from reconciler.state.journal import (
    RunFile,
    StateAdvance,
    find_state_advance,
    read_completed_actions,
    read_runs,
    require_run,
)
from reconciler.state.lockfile import read_lockfile

if TYPE_CHECKING:
    from reconciler.applying.recovery import SettledJournal
    from reconciler.applying.run import DecisionBasis
    from reconciler.objectstore.base import ObjectStore
    from reconciler.operations.steps.workspace import Site, Work
    from reconciler.planning.plan import Plan, SavedPlan
    from reconciler.resources.address import Address
    from reconciler.resources.inventory import Capabilities, Inventory, Record
    from reconciler.resources.workspace import Guards


_SHOWN: Final = 5
_UNDONE: Final = "Nothing was done. "
_SAVE_AGAIN: Final = f"{_UNDONE}Look at the plan again and save it: reconciler plan --out FILE"
_APPROVE_AGAIN: Final = "Nothing was done. Plan again, and have that approved: reconciler plan --format markdown"
_ASK_AGAIN: Final = f"{_UNDONE}Look at the plan again: reconciler apply"
_ONCE_MORE: Final = f"{_UNDONE}If it is wanted again, save the plan and apply the file: reconciler plan --out FILE"
_STOP_FIRST: Final = "Stop the producers first, as each record that they write is more to lose. "


@dataclass(frozen=True, slots=True)
class ApprovalCheck:
    """Comparison of the current plan with the approved one."""

    difference: SameOrLess
    advance: StateAdvance | None = None


class ChangedPlanError(StalePlanError):
    """The current plan exceeds the approved one."""

    def __init__(self, message: str, held: ApprovalCheck, *, hint: str) -> None:
        super().__init__(message, hint=hint)
        self.held = held


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalUse:
    """Decides which runs of an approved plan used this approval.

    Runs are compared by time and serial if known, otherwise by pull request.
    """

    since_ms: int | None = None
    since_serial: int | None = None
    pull_request: str | None = None

    def was_used_by(self, run: RunFile) -> bool:
        """Return whether a run of the plan used this approval."""
        if self.since_ms is None and self.since_serial is None:
            return run.pull_request == self.pull_request
        is_later = self.since_ms is not None and _parse_started(run.started) >= self.since_ms
        return is_later or (self.since_serial is not None and run.base_serial >= self.since_serial)

    def is_newer_than(self, run: RunFile) -> bool:
        """Return whether the approval is newer than a run."""
        known = []
        if self.since_ms is not None:
            known.append(_parse_started(run.started) < self.since_ms - _CLOCK_SKEW_MS)
        if self.since_serial is not None:
            known.append(run.base_serial < self.since_serial)
        return bool(known) and all(known)

    @property
    def hint(self) -> str:
        """Hint that says how to apply the plan again."""
        if self.since_ms is not None:
            return f"{_UNDONE}If it is wanted again, have it approved again."
        return _ONCE_MORE


@dataclass(frozen=True, slots=True)
class ApprovedPlan:
    """An approved plan. `is_strict` also rejects a part of it, another state, or another commit."""

    plan: Plan
    is_strict: bool = False
    use: ApprovalUse | None = None
    """`None` if the plan was just approved."""

    def check_target(self, work: Work) -> None:
        """Reject a plan of another workspace, environment, version or state; with `is_strict`, of another commit."""
        context = PlanTarget(
            workspace=work.loaded.workspace.metadata.name,
            environment=work.select.environment,
            tool=work.invocation.tool,
        )
        refuse_foreign_plan(self.plan, context)
        if self.is_strict:
            refuse_other_commit(self.plan, work.invocation.git_commit(work.folder))
        lockfile_row = read_lockfile(work.state, owner=work.owner)
        refuse_other_state(self.plan, lockfile_row.lockfile.lineage if lockfile_row else None)

    def compare(self, now: Plan, basis: DecisionBasis, store: ObjectStore) -> ApprovalCheck:
        """Compare the plan under the lease with the approved one.

        Raises:
            ChangedPlanError: The plan exceeds the approved one; with `is_strict`, plan or state differ.
        """
        refuse_other_state(self.plan, basis.snapshot.lineage)
        self.check_unused(now, basis, store)
        held = ApprovalCheck(
            compare_plans(self.plan, now), find_state_advance(_read_plan_base(self.plan), basis.snapshot, store)
        )
        comparison = held.difference
        hint = _SAVE_AGAIN if self.use else _ASK_AGAIN
        if not comparison.is_allowed:
            if any(Why.LOSS in change.whys for change in comparison.more):
                hint = hint.replace(_UNDONE, f"{_UNDONE}{_STOP_FIRST}")
            named = "; ".join(f"{change.id}: {change.message}" for change in comparison.more[:_SHOWN])
            count = pluralize(len(comparison.more), "action differs", "actions differ", grouping="")
            message = f"the current plan no longer matches the plan that was approved, {count}:\n{named}"
            raise ChangedPlanError(message, held, hint=hint)
        if not self.is_strict:
            return held
        if held.advance is not None:
            raise ChangedPlanError(f"{held.advance} (--strict)", held, hint=hint)
        if comparison.not_needed:
            named = ", ".join(comparison.not_needed[:_SHOWN])
            raise ChangedPlanError(f"less is left to do than was approved (--strict):\n{named}", held, hint=hint)
        return held

    def check_unused(self, now: Plan, basis: DecisionBasis, store: ObjectStore) -> None:
        """Raise `StalePlanError` if the plan was applied, and its resources changed since."""
        is_of_file = self.use is not None and self.use.since_ms is None
        if is_of_file and _read_plan_base(self.plan) == (basis.snapshot.serial, basis.snapshot.sha256):
            return
        if self.use is not None and not now.is_empty:
            _reject_repetition(self.use, _find_runs(store, self.plan.digest, self.use), now, basis, store)


@dataclass(frozen=True, slots=True)
class ApprovedDigest:
    """The digest of an approved plan."""

    digest: str
    use: ApprovalUse = ApprovalUse()

    def compare(self, now: Plan, basis: DecisionBasis, store: ObjectStore) -> ApprovalCheck:
        """Compare the plan under the lease with the digest, or with the rest of an approved run.

        Raises:
            StalePlanError: The plan is another, or was applied and its resources changed since.
            ChangedPlanError: The plan exceeds the rest of the run.
        """
        if now.is_empty:
            return ApprovalCheck(SameOrLess())
        runs = _find_runs(store, self.digest, self.use)
        if now.digest == self.digest:
            _reject_repetition(self.use, runs, now, basis, store)
            return ApprovalCheck(SameOrLess())
        if not runs:
            named = list_first([action.id for action in now.actions], _SHOWN)
            message = f"the plan is not the one that was approved: {self.digest[:8]} was, and this is {now.digest[:8]}"
            raise StalePlanError(f"{message}: {named}", hint=_APPROVE_AGAIN)
        held = ApprovalCheck(compare_actions([read_action(stored) for stored in runs[0].actions], now))
        if not held.difference.is_allowed:
            more = held.difference.more
            count = pluralize(len(more), "action is", "actions are", grouping="")
            message = f"{count} more than run {shorten_run_id(runs[0].run)} left of the approved plan {self.digest[:8]}"
            raise ChangedPlanError(message, held, hint=_APPROVE_AGAIN)
        _reject_repetition(self.use, runs, now, basis, store)
        return held


def _find_runs(store: ObjectStore, approved: str, use: ApprovalUse) -> tuple[RunFile, ...]:
    runs = read_runs(store, at_most=_MAX_RUNS, is_too_old=use.is_newer_than)
    return tuple(file for file in runs if approved in {file.plan_digest, file.approved_digest})


def _reject_repetition(
    use: ApprovalUse, runs: Sequence[RunFile], now: Plan, basis: DecisionBasis, store: ObjectStore
) -> None:
    """Reject a repeated CI job, because it would revert newer changes."""
    wanted = {action.id for action in now.actions}
    ours = {file.run for file in runs}
    for file in filter(use.was_used_by, runs):
        ids = wanted & read_completed_actions(store, file.run)
        done = (read_action(stored) for stored in file.actions if stored["id"] in ids)
        address = next(
            (changed for action in done if (changed := _find_later_change(action, basis.snapshot.record, ours))), None
        )
        if address is not None:
            last = basis.snapshot.record.get(address)
            by = (
                f"run {shorten_run_id(last.run)} changed {address} since"
                if last is not None
                else f"{address} is recorded no more"
            )
            message = (
                f"run {shorten_run_id(file.run)} already applied this plan ({', '.join(_describe_run(file))}), and {by}"
            )
            raise StalePlanError(message, hint=use.hint)


def _find_later_change(action: Action, record: Record, ours: AbstractSet[str]) -> Address | None:
    for address, left in record_action(action, None, record, "").items():
        last = record.get(address)
        if (last is None) is not (left is None) or (last is not None and last.run not in ours):
            return address
    return None


def _describe_run(file: RunFile) -> Iterator[str]:
    yield f"begun on state #{file.base_serial}"
    if file.started:
        yield file.started


def _parse_started(started: str) -> int:
    try:
        return round(datetime.fromisoformat(started).timestamp() * 1000)
    except ValueError:
        return 0


_CLOCK_SKEW_MS: Final = 3_600_000
_MAX_RUNS: Final = 200
_WHOLE: Final = re.compile(r"[0-9a-f]{64}")


def parse_digest(text: str) -> str:
    """Return a normalized digest."""
    cleaned = text.strip().lower()
    if not _WHOLE.fullmatch(cleaned):
        message = (
            "--expect-digest takes the whole digest of a plan, 64 hexadecimal digits, "
            f"and got {len(cleaned)} characters"
        )
        hint = "The first line of what `plan --format markdown` prints has it, and so has its JSON."
        raise UsageError(message, hint=hint)
    return cleaned


def check_file_digest(plan: Plan, expected: str, shown: str) -> None:
    """Raise `StalePlanError` if the digest of a saved plan is not the approved one."""
    if plan.digest != expected:
        message = f"{shown} holds the plan {plan.digest[:8]}, and {expected[:8]} was approved"
        raise StalePlanError(message, hint="Nothing was done. Give the file that was saved with the approved plan.")


def check_approvers(
    plan: Plan, guards: Guards, names: Sequence[str], *, request: str | None = None, at_least: int = 0
) -> None:
    """Raise `BlockedError` if there are too few distinct approvers.

    `request` is the approved pull request, whose plan required `at_least` approvals.
    """
    required, because = count_required_approvals(plan.actions, guards)
    if at_least > required and not plan.is_empty:
        required, because = at_least, ("this plan, from its comment",)
    approvers = sorted({name.strip().removeprefix("@").casefold() for name in names} - {""})
    if len(approvers) < required:
        who = f"{list_first(approvers)} did" if approvers else "no approver is named"
        people = pluralize(required, "person", "people")
        message = f"{people} must have approved {list_first(because, _SHOWN)}, and {who}"
        how = "Name each who did: --approved-by NAME" if request is None else f"Have more people approve {request}"
        hint = f"guards.approvals of the workspace requires it. {how}"
        raise BlockedError(message, hint=hint, subject=NOTHING_DONE)


def _read_plan_base(plan: Plan) -> tuple[int, str]:
    return (plan.base.serial, plan.base.sha256) if plan.base else (0, "")


@dataclass(frozen=True, slots=True)
class ResumeFacts:
    """Observations and record that show which actions of an interrupted run are unfinished."""

    inventory: Inventory
    capabilities: Mapping[str, Capabilities]
    record: Record


def list_unfinished_actions(settled: SettledJournal) -> list[Action]:
    """Return actions without a result, in plan order."""
    outcome = settled.run.compute_progress()
    absent = {name for name, verdict in settled.verdicts.items() if verdict == "absent"}
    left = {action.id for action in outcome.remaining} | absent
    return [action for action in settled.run.actions if action.id in left]


def has_result(action: Action, observed: ResumeFacts) -> bool:
    """Return whether the clusters have the result of an action."""
    match action:
        case Adopt():
            known = observed.record.get(action.address)
            return known is not None and known.resource == action.after
        case Forget():
            return action.address not in observed.record
        case RunJob():
            mirror = observed.inventory.get(action.address)
            return mirror is not None and mirror.mirror.first_copy_done
        case Create() | Update() | Delete() | Transition():
            read = observed.capabilities.get(action.cluster or "")
            return read is not None and settle_action(action, observed.inventory, read.configs).verdict == "done"
        case _:
            assert_never(action)


_HINT: Final = "Nothing was done, and the run stays open. "
_CHANGED: Final = f"{_HINT}`reconciler apply` plans the files as they are and closes the run."
_MISSING: Final = (
    f"{_HINT}In an older clone: git pull. Else `reconciler apply` plans the files as they are and closes it."
)


@dataclass(frozen=True, slots=True)
class RemainingPlan:
    """Remaining actions of an open run, and ids of unneeded ones."""

    plan: Plan
    not_needed: tuple[str, ...] = ()


def find_open_run(site: Site) -> RunFile | None:
    """Return the open run, or `None`."""
    lockfile_row = read_lockfile(site.state, owner=site.owner)
    opened = lockfile_row.lockfile.open_run if lockfile_row else None
    return require_run(site.state, opened.run) if opened else None


def read_resume_options(site: Site) -> Mapping[str, Any]:
    """Return the options of the open run's plan."""
    run = find_open_run(site)
    if run is None:
        raise UserError("there is nothing to resume: no run is open", hint="Plan and apply with: reconciler apply")
    if run.options is None:
        raise UserError(
            f"run {shorten_run_id(run.run)} was `{run.command}`, not apply: there is no plan to finish",
            hint="`reconciler apply` settles what it left in doubt. Then run that command again.",
        )
    return run.options


def find_rest_of_plan(settled: SettledJournal, now: Plan, observed: ResumeFacts) -> RemainingPlan:
    """Return the open run's actions still planned. Raises `ChangedPlanError` if one changed."""
    before = {action.id: action for action in settled.run.actions}
    rest = limit_plan(now, before.values())
    mine = rest.actions
    planned = {action.id for action in mine}
    left = [action for action in list_unfinished_actions(settled) if action.id not in planned]
    not_needed = tuple(action.id for action in left if has_result(action, observed))
    settled_ids = frozenset(not_needed)
    lost = [action for action in left if action.id not in settled_ids]
    more = (*_find_changed_actions(mine, before, settled), *_find_missing_actions(lost, now))
    if more:
        raise _changed_error(settled.run.file.run, more, not_needed)
    return RemainingPlan(rest, not_needed)


def limit_plan(now: Plan, agreed: Iterable[Action]) -> Plan:
    """Return a plan with only the agreed actions."""
    ids = {action.id for action in agreed}
    actions = tuple(action for action in now.actions if action.id in ids)
    return replace(now, actions=actions, digest=compute_digest(actions))


def _find_changed_actions(
    mine: Iterable[Action], before: Mapping[str, Action], settled: SettledJournal
) -> Iterator[Difference]:
    for action in mine:
        agreed = before[action.id]
        ignored = {Why.BLOCKED, *((Why.GROUND, Why.RISK, Why.LOSS) if action.address in settled.begun else ())}
        whys = tuple(why for why in find_excess_reasons(agreed, action) if why not in ignored)
        if whys:
            yield describe_difference(whys, agreed, action, instead_of=())


def _find_missing_actions(lost: Iterable[Action], now: Plan) -> Iterator[Difference]:
    at: dict[str, list[str]] = {}
    for action in now.actions:
        at.setdefault(action.address, []).append(action.id)
    for action in lost:
        yield describe_missing(action, planned=tuple(at.get(action.address, ())))


def _changed_error(run: str, more: Sequence[Difference], not_needed: tuple[str, ...]) -> ChangedPlanError:
    is_missing = any(Why.MISSING in change.whys for change in more)
    named = "\n".join(f"{change.id}: {change.message}" for change in more[:_SHOWN])
    further = f"\nand {len(more) - _SHOWN:,} more" if more[_SHOWN:] else ""
    count = pluralize(len(more), "action is", "actions are", grouping="")
    message = f"{count} not what the open run {shorten_run_id(run)} had planned:\n{named}{further}"
    return ChangedPlanError(
        message, ApprovalCheck(SameOrLess(tuple(more), not_needed)), hint=_MISSING if is_missing else _CHANGED
    )


_MAX_BYTES: Final = 1 << 30
"""Half a million topics fit."""
_HEAD_BYTES: Final = 4096


def read_plan(path: Path, shown: str, read: Callable[[bytes], SavedPlan]) -> SavedPlan:
    """Read a plan file. Errors begin with its name."""
    body = _read_plan_bytes(path)
    try:
        with pause_garbage_collection():
            return read(body)
    except UserError as error:
        error.message = f"{shown}: {error.message}"
        raise


def _read_plan_bytes(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_size > _MAX_BYTES:
                raise UserError(f"not a saved plan: {path} is larger than one can be", hint=PLAN_AGAIN_HINT)
            first = file.read(_HEAD_BYTES)
            return first + file.read(_MAX_BYTES) if first.lstrip()[:1] == b"{" else first
    except OSError as error:
        raise UserError(f"cannot read the plan {path}: {error.strerror or error}", hint=PLAN_AGAIN_HINT) from error


def serialize_select(select: Select, *, cwd: Path, folder: Path) -> dict[str, Any]:
    """Convert the selection to JSON, with paths relative to the workspace."""
    options = {
        "environment": select.environment,
        "var": list(select.variables),
        "var_file": [_make_relative(cwd / path, folder) for path in select.var_files],
        "target": list(select.targets),
        "exclude": list(select.excludes),
        "label": list(select.labels),
        "changed_since": select.changed_since,
        "allow": list(select.allow),
    }
    return {name: value for name, value in options.items() if value}


def parse_select(options: Mapping[str, Any], folder: Path) -> Select:
    """Convert a selection from JSON."""
    return Select(
        environment=options.get("environment"),
        variables=tuple(options.get("var", ())),
        var_files=tuple(folder / path for path in options.get("var_file", ())),
        targets=tuple(options.get("target", ())),
        excludes=tuple(options.get("exclude", ())),
        labels=tuple(options.get("label", ())),
        changed_since=options.get("changed_since"),
        allow=tuple(options.get("allow", ())),
    )


def _make_relative(path: Path, folder: Path) -> str:
    return Path(os.path.relpath(path, folder)).as_posix()
