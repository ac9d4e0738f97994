"""Hold an approved plan against the plan made under the lease; resume an open run."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, assert_never

from reconciler.errors import BlockedError, StalePlanError, UsageError, UserError
from reconciler.operations.steps.invocation import Select
from reconciler.operations.steps.observe import burst
from reconciler.planning.actions import Action, Adopt, Create, Delete, Forget, RunJob, Transition, Update
from reconciler.planning.checks.guards import approvers_asked
from reconciler.planning.plan_rows import digest
from reconciler.planning.record import after_action
from reconciler.planning.same_or_less import (
    Difference,
    Here,
    SameOrLess,
    Why,
    compare,
    compare_actions,
    difference,
    missing,
    refuse_foreign,
    refuse_other_commit,
    refuse_other_state,
    whys_of,
)
from reconciler.planning.saved_plan import AGAIN, read_action
from reconciler.planning.settle import settle
from reconciler.runtime.text import counted, first_few
from reconciler.state.journal import RunFile, StateAdvance, advance_since, done_of, read_runs, require_run
from reconciler.state.lockfile import read_lockfile

if TYPE_CHECKING:
    from reconciler.applying.recovery import Settled
    from reconciler.applying.run import Basis
    from reconciler.objectstore.base import ObjectStore
    from reconciler.operations.steps.workspace import Site, Work
    from reconciler.planning.plan import Plan, SavedPlan
    from reconciler.resources.address import Address
    from reconciler.resources.inventory import Capabilities, Inventory, Record
    from reconciler.resources.workspace import Guards


_NAMED: Final = 5
"""How many actions a message names."""
_UNDONE: Final = "Nothing was done. "
_SAVE_AGAIN: Final = f"{_UNDONE}Look at the plan again and save it: reconciler plan --out FILE"
_APPROVE_AGAIN: Final = "Nothing was done. Plan again, and have that approved: reconciler plan --format markdown"
_ASK_AGAIN: Final = f"{_UNDONE}Look at the plan again: reconciler apply"
_ONCE_MORE: Final = f"{_UNDONE}If it is wanted once more, save the plan, and apply the file: reconciler plan --out FILE"
_STOP_FIRST: Final = "Stop the producers first, as each record that they write is more to lose. "


@dataclass(frozen=True, slots=True)
class ApprovalCheck:
    """How what is planned now stands to what was approved."""

    difference: SameOrLess
    advance: StateAdvance | None = None


class ChangedPlanError(StalePlanError):
    """What would happen now is not what was approved, so nothing was done; `held` says in what."""

    def __init__(self, message: str, held: ApprovalCheck, *, hint: str) -> None:
        """Keep the difference for the process that shows it."""
        super().__init__(message, hint=hint)
        self.held = held


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalUse:
    """Which runs of an approved plan are a use of this approval, and not of an earlier one of the same plan.

    Each that is known counts. Where only a digest is, a run is a use of it that names the same pull request, or none.
    """

    since_ms: int | None = None
    """When it was approved, as the forge says."""
    since_serial: int | None = None
    """The state on which the plan was made that was saved."""
    pull_request: str | None = None

    def is_by(self, run: RunFile) -> bool:
        """Tell whether a run of the same plan was one."""
        if self.since_ms is None and self.since_serial is None:
            return run.pull_request == self.pull_request
        is_later = self.since_ms is not None and _ms_of(run.started) >= self.since_ms
        return is_later or (self.since_serial is not None and run.base_serial >= self.since_serial)

    def is_after(self, run: RunFile) -> bool:
        """Tell whether a run was begun so long before the approval that no earlier one can be a use of it."""
        known = []
        if self.since_ms is not None:
            known.append(_ms_of(run.started) < self.since_ms - _CLOCKS_MS)
        if self.since_serial is not None:
            known.append(run.base_serial < self.since_serial)
        return bool(known) and all(known)

    @property
    def hint(self) -> str:
        """Say how the plan is done once more."""
        if self.since_ms is not None:
            return f"{_UNDONE}If it is wanted once more, have it approved once more."
        return _ONCE_MORE


@dataclass(frozen=True, slots=True)
class Approved:
    """An approved plan. `is_strict`: not even less may be done, nor on another state or commit."""

    plan: Plan
    is_strict: bool = False
    use: ApprovalUse | None = None
    """`None`: it was approved a moment ago."""

    def check_place(self, work: Work) -> None:
        """Refuse before anything is locked what was made for somewhere else.

        Raises:
            UserError: It is of another workspace, environment, version or state, or with `is_strict` another commit.
        """
        here = Here(
            workspace=work.loaded.workspace.metadata.name,
            environment=work.select.environment,
            tool=work.invocation.tool,
        )
        refuse_foreign(self.plan, here)
        if self.is_strict:
            refuse_other_commit(self.plan, work.invocation.git_commit(work.folder))
        found = read_lockfile(work.state, owner=work.owner)
        refuse_other_state(self.plan, found.lockfile.lineage if found else None)

    def hold(self, now: Plan, basis: Basis, store: ObjectStore) -> ApprovalCheck:
        """Hold a plan made under the lease against what was approved.

        Raises:
            ChangedPlanError: It is more; with `is_strict` also where it is less, or the state went on.
            UserError: The state was replaced by another one.
        """
        refuse_other_state(self.plan, basis.snapshot.lineage)
        self.check_unused(now, basis, store)
        held = ApprovalCheck(compare(self.plan, now), advance_since(_base(self.plan), basis.snapshot, store))
        found = held.difference
        hint = _SAVE_AGAIN if self.use else _ASK_AGAIN
        if not found.is_allowed:
            if any(Why.LOSS in each.whys for each in found.more):
                hint = hint.replace(_UNDONE, f"{_UNDONE}{_STOP_FIRST}")
            named = "; ".join(f"{each.id}: {each.message}" for each in found.more[:_NAMED])
            count = counted(len(found.more), "action differs", "actions differ", grouping="")
            message = f"the world no longer matches the plan that was approved, {count}:\n{named}"
            raise ChangedPlanError(message, held, hint=hint)
        if not self.is_strict:
            return held
        if held.advance is not None:
            raise ChangedPlanError(f"{held.advance} (--strict)", held, hint=hint)
        if found.not_needed:
            named = ", ".join(found.not_needed[:_NAMED])
            raise ChangedPlanError(f"less is left to do than was approved (--strict):\n{named}", held, hint=hint)
        return held

    def check_unused(self, now: Plan, basis: Basis, store: ObjectStore) -> None:
        """Refuse what was done already and changed by later runs. Raises StalePlanError.

        Where the state is as it was when the plan was made, no run can have been one.
        """
        is_of_file = self.use is not None and self.use.since_ms is None
        if is_of_file and _base(self.plan) == (basis.snapshot.serial, basis.snapshot.sha256):
            return
        if self.use is not None and not now.is_empty:
            _check_unused(self.use, _runs_of(store, self.plan.digest, self.use), now, basis, store)


@dataclass(frozen=True, slots=True)
class ApprovedDigest:
    """An approved plan, of which only the digest is known here."""

    digest: str
    use: ApprovalUse = ApprovalUse()

    def hold(self, now: Plan, basis: Basis, store: ObjectStore) -> ApprovalCheck:
        """Hold a plan made under the lease against what was approved.

        What is less can be told where a run of the approved plan left something: the run says what it had planned.

        Raises:
            StalePlanError: It is another plan, or was done already, and changed by later runs.
            ChangedPlanError: It is more than what a run of the approved plan left.
        """
        if now.is_empty:
            return ApprovalCheck(SameOrLess())
        runs = _runs_of(store, self.digest, self.use)
        if now.digest == self.digest:
            _check_unused(self.use, runs, now, basis, store)
            return ApprovalCheck(SameOrLess())
        if not runs:
            named = first_few([action.id for action in now.actions], _NAMED)
            message = f"the plan is not the one that was approved: {self.digest[:8]} was, and this is {now.digest[:8]}"
            raise StalePlanError(f"{message}: {named}", hint=_APPROVE_AGAIN)
        held = ApprovalCheck(compare_actions([read_action(stored) for stored in runs[0].actions], now))
        if not held.difference.is_allowed:
            more = held.difference.more
            count = counted(len(more), "action is", "actions are", grouping="")
            message = f"{count} more than run {runs[0].run} left of the approved plan {self.digest[:8]}"
            raise ChangedPlanError(message, held, hint=_APPROVE_AGAIN)
        _check_unused(self.use, runs, now, basis, store)
        return held


def _runs_of(store: ObjectStore, approved: str, use: ApprovalUse) -> tuple[RunFile, ...]:
    """Return the runs that began what was approved with a digest, or a rest of it; the newest first."""
    runs = read_runs(store, at_most=_RUNS_BACK, is_too_old=use.is_after)
    return tuple(file for file in runs if approved in {file.plan_digest, file.approved_digest})


def _check_unused(use: ApprovalUse, runs: Sequence[RunFile], now: Plan, basis: Basis, store: ObjectStore) -> None:
    """Refuse an action that a run under this approval did already, where a later run changed what came of it.

    Raises:
        StalePlanError: An old job was run again, and would undo what was applied since.
    """
    wanted = {action.id for action in now.actions}
    ours = {file.run for file in runs}
    for file in filter(use.is_by, runs):
        ids = wanted & done_of(store, file.run)
        done = (read_action(each) for each in file.actions if each["id"] in ids)
        address = next((found for each in done if (found := _changed_since(each, basis.snapshot.record, ours))), None)
        if address is not None:
            last = basis.snapshot.record.get(address)
            by = f"run {last.run} changed {address} since" if last is not None else f"{address} is recorded no more"
            message = f"run {file.run} did this plan already ({', '.join(_whose(file))}), and {by}"
            raise StalePlanError(message, hint=use.hint)


def _changed_since(action: Action, record: Record, ours: AbstractSet[str]) -> Address | None:
    """Return an address at which the record is not as a run of ours left it with an action."""
    for address, left in after_action(action, None, record, "").items():
        last = record.get(address)
        if (last is None) is not (left is None) or (last is not None and last.run not in ours):
            return address
    return None


def _whose(file: RunFile) -> Iterator[str]:
    yield f"begun on state #{file.base_serial}"
    if file.started:
        yield file.started


def _ms_of(started: str) -> int:
    """Return the milliseconds since 1970 of the time in a run's file; 0 where there is none."""
    try:
        return round(datetime.fromisoformat(started).timestamp() * 1000)
    except ValueError:
        return 0


_CLOCKS_MS: Final = 3_600_000
"""By so much the clock of a runner may be behind that of the forge."""
_RUNS_BACK: Final = 200
"""So many runs are looked through for those of an approved plan."""
_WHOLE: Final = re.compile(r"[0-9a-f]{64}")


def checked_digest(text: str) -> str:
    """Return a digest as plans have it.

    Raises:
        UsageError: It is none, or only the beginning of one, which somebody else's plan may have as well.
    """
    found = text.strip().lower()
    if not _WHOLE.fullmatch(found):
        message = (
            f"--expect-digest takes the whole digest of a plan, 64 hexadecimal digits, and got {len(found)} characters"
        )
        hint = "The first line of what `plan --format markdown` prints has it, and so has its JSON."
        raise UsageError(message, hint=hint)
    return found


def check_file_digest(plan: Plan, expected: str, shown: str) -> None:
    """Refuse a saved plan that is not the one that was approved.

    Raises:
        StalePlanError: Its digest is another one.
    """
    if plan.digest != expected:
        message = f"{shown} holds the plan {plan.digest[:8]}, and {expected[:8]} was approved"
        raise StalePlanError(message, hint="Nothing was done. Give the file that was saved with the approved plan.")


def check_approvers(
    plan: Plan, guards: Guards, names: Sequence[str], *, request: str | None = None, at_least: int = 0
) -> None:
    """Refuse a plan that fewer people approved than the workspace asks for. Nobody counts twice, however he is written.

    `request`: the pull request whose approvals count, where no others do. `at_least`: what the plan in it asked for.

    Raises:
        BlockedError: There are too few.
    """
    asked, because = approvers_asked(plan.actions, guards)
    if at_least > asked and not plan.is_empty:
        asked, because = at_least, ("this plan, as its comment says",)
    given = sorted({name.strip().removeprefix("@").casefold() for name in names} - {""})
    if len(given) < asked:
        who = f"{first_few(given)} did" if given else "no approver is named"
        message = f"{counted(asked, 'person', 'people')} must have approved {first_few(because, _NAMED)}, and {who}"
        how = "Name each who did: --approved-by NAME" if request is None else f"Have more people approve {request}"
        raise BlockedError(f"nothing was done: {message}", hint=f"guards.approvals of the workspace asks for it. {how}")


def _base(plan: Plan) -> tuple[int, str]:
    """Return serial and sha256 of the state a plan was made on."""
    return (plan.base.serial, plan.base.sha256) if plan.base else (0, "")


# What an open run had left, and whether its result is there all the same: another process may have done it.


@dataclass(frozen=True, slots=True)
class RestOfRun:
    """What is there when the rest of a run is planned; of clusters that were not read nothing is known."""

    inventory: Inventory
    capabilities: Mapping[str, Capabilities]
    record: Record


def left_of(settled: Settled) -> list[Action]:
    """Return what never ended: not begun, or begun and found not to have happened. In plan order."""
    stands = settled.run.folded()
    absent = {name for name, verdict in settled.verdicts.items() if verdict == "absent"}
    left = {action.id for action in stands.left} | absent
    return [action for action in settled.run.actions if action.id in left]


def has_result(action: Action, found: RestOfRun) -> bool:
    """Tell whether what an action was to lead to is so already."""
    match action:
        case Adopt():
            known = found.record.get(action.address)
            return known is not None and known.resource == action.after
        case Forget():
            return action.address not in found.record
        case RunJob():
            there = found.inventory.get(action.address)
            return there is not None and there.mirror.first_copy_done
        case Create() | Update() | Delete() | Transition():
            read = found.capabilities.get(action.cluster or "")
            return read is not None and settle(action, found.inventory, read.configs).verdict == "done"
        case _:
            assert_never(action)


# `apply --resume`: what is left of the open run's own plan, and nothing else.


"""How many actions a message names."""
_HINT: Final = "Nothing was done, and the run stays open. "
_CHANGED: Final = f"{_HINT}`reconciler apply` plans the files as they are and closes the run."
_MISSING: Final = (
    f"{_HINT}In an older clone: git pull. Else `reconciler apply` plans the files as they are and closes it."
)


@dataclass(frozen=True, slots=True)
class Rest:
    """What is still to do of an open run's plan, and the ids of what was left and has its result already."""

    plan: Plan
    not_needed: tuple[str, ...] = ()


def find_open_run(site: Site) -> RunFile | None:
    """Return the run that has begun and not closed; `None` where there is none. Takes no lock.

    Raises:
        UserError: Its file cannot be read.
    """
    found = read_lockfile(site.state, owner=site.owner)
    opened = found.lockfile.open_run if found else None
    return require_run(site.state, opened.run) if opened else None


def resumable(site: Site) -> Mapping[str, Any]:
    """Return the options with which the open run made its plan.

    Raises:
        UserError: There is none, or it made no plan of files.
    """
    run = find_open_run(site)
    if run is None:
        raise UserError("there is nothing to resume: no run is open", hint="Plan and apply with: reconciler apply")
    if run.options is None:
        raise UserError(
            f"run {run.run} was `{run.command}`, not apply: there is no plan to finish",
            hint="`reconciler apply` settles what it left in doubt. Then run that command again.",
        )
    return run.options


def rest_of(settled: Settled, now: Plan, found: RestOfRun) -> Rest:
    """Return of a plan made now what the open run had planned too, and what would still do the same.

    Raises:
        ChangedPlanError: Something of it would do something else now, or is planned no more and has not happened.
    """
    before = {action.id: action for action in settled.run.actions}
    rest = limited_to(now, before.values())
    mine = rest.actions
    planned = {action.id for action in mine}
    left = [action for action in left_of(settled) if action.id not in planned]
    not_needed = tuple(action.id for action in left if has_result(action, found))
    settled_ids = frozenset(not_needed)
    lost = [action for action in left if action.id not in settled_ids]
    more = (*_changed(mine, before, settled), *_lost(lost, now))
    if more:
        raise _error(settled.run.file.run, more, not_needed)
    return Rest(rest, not_needed)


def limited_to(now: Plan, agreed: Iterable[Action]) -> Plan:
    """Return of a plan made now what was agreed before: a second look does no more than that."""
    ids = {action.id for action in agreed}
    actions = tuple(action for action in now.actions if action.id in ids)
    return replace(now, actions=actions, digest=digest(actions))


def _changed(mine: Iterable[Action], before: Mapping[str, Action], settled: Settled) -> Iterator[Difference]:
    """Yield what is not as it was. What a run has changed itself, its next action rests on; anything else must be so.

    What a guard refuses now is told as blocked.
    """
    for action in mine:
        agreed = before[action.id]
        ignored = {Why.BLOCKED, *((Why.GROUND, Why.RISK, Why.LOSS) if action.address in settled.begun else ())}
        whys = tuple(why for why in whys_of(agreed, action) if why not in ignored)
        if whys:
            yield difference(whys, agreed, action, instead_of=())


def _lost(lost: Iterable[Action], now: Plan) -> Iterator[Difference]:
    at: dict[str, list[str]] = {}
    for action in now.actions:
        at.setdefault(action.address, []).append(action.id)
    for action in lost:
        yield missing(action, planned=tuple(at.get(action.address, ())))


def _error(run: str, more: Sequence[Difference], not_needed: tuple[str, ...]) -> ChangedPlanError:
    is_missing = any(Why.MISSING in each.whys for each in more)
    named = "\n".join(f"{each.id}: {each.message}" for each in more[:_NAMED])
    further = f"\nand {len(more) - _NAMED:,} more" if more[_NAMED:] else ""
    count = counted(len(more), "action is", "actions are", grouping="")
    message = f"{count} not what the open run {run} had planned:\n{named}{further}"
    return ChangedPlanError(
        message, ApprovalCheck(SameOrLess(tuple(more), not_needed)), hint=_MISSING if is_missing else _CHANGED
    )


# What a saved plan keeps of how it was made, so that `apply FILE` can make it again.


_LARGEST_BYTES: Final = 1 << 30
"""A plan of half a million topics; what is larger is something else."""
_FIRST_BYTES: Final = 4096


def read_plan(path: Path, shown: str, read: Callable[[bytes], SavedPlan]) -> SavedPlan:
    """Return a plan as `read` has it from a file; what is wrong with it is said with the name it was given by.

    Raises:
        UserError: It cannot be read, is no plan, of another format, or was changed after it was written.
    """
    body = _plan_file(path)
    try:
        with burst():
            return read(body)
    except UserError as error:
        error.message = f"{shown}: {error.message}"
        raise


def _plan_file(path: Path) -> bytes:
    """Return the bytes of what may be a saved plan; of what begins otherwise no more than its first ones.

    Raises:
        UserError: It cannot be read, or is too large to be one.
    """
    try:
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_size > _LARGEST_BYTES:
                raise UserError(f"not a saved plan: {path} is larger than one can be", hint=AGAIN)
            first = file.read(_FIRST_BYTES)
            return first + file.read(_LARGEST_BYTES) if first.lstrip()[:1] == b"{" else first
    except OSError as error:
        raise UserError(f"cannot read the plan {path}: {error.strerror or error}", hint=AGAIN) from error


def to_options(select: Select, *, cwd: Path, folder: Path) -> dict[str, Any]:
    """Return what was typed, as JSON; files relative to the workspace, so that it means the same elsewhere."""
    kept = {
        "environment": select.environment,
        "var": list(select.variables),
        "var_file": [_relative(cwd / path, folder) for path in select.var_files],
        "target": list(select.targets),
        "exclude": list(select.excludes),
        "label": list(select.labels),
        "changed_since": select.changed_since,
        "allow": list(select.allow),
    }
    return {name: value for name, value in kept.items() if value}


def select_of(kept: Mapping[str, Any], folder: Path) -> Select:
    """Return what was typed, from what was kept of it."""
    return Select(
        environment=kept.get("environment"),
        variables=tuple(kept.get("var", ())),
        var_files=tuple(folder / path for path in kept.get("var_file", ())),
        targets=tuple(kept.get("target", ())),
        excludes=tuple(kept.get("exclude", ())),
        labels=tuple(kept.get("label", ())),
        changed_since=kept.get("changed_since"),
        allow=tuple(kept.get("allow", ())),
    )


def _relative(path: Path, folder: Path) -> str:
    return Path(os.path.relpath(path, folder)).as_posix()
