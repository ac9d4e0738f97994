"""The end of a run: what is in doubt is looked at, what is done is committed, the lease is let go in the same swap."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NoReturn

from reconciler.applying.alike import alike, first_few
from reconciler.applying.events import Detached, ResultMissing, Summary
from reconciler.applying.outcomes import may_yet_happen
from reconciler.applying.recovery import Recovery
from reconciler.errors import IncompleteError, LeaseError, ReconcilerError, StoppedError, UserError
from reconciler.planning.recording import after_action, after_refusal, learn
from reconciler.state.entries import ActionEnded, ActionRefused, Closed, detached
from reconciler.state.runs import ResultFile, write_result
from reconciler.wording import ended_sentence

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from reconciler.applying.engine import RunResult
    from reconciler.applying.ports import Setting
    from reconciler.effects import Effects
    from reconciler.planning.actions import Action
    from reconciler.state.entries import Entry
    from reconciler.state.journal import Journal
    from reconciler.state.lease import Lease


@dataclass(frozen=True, slots=True)
class Ending:
    """How one run ends."""

    setting: Setting
    lease: Lease
    journal: Journal
    run: str

    async def conclude(self, result: RunResult, *, keeps_lease: bool, began: float) -> RunResult:
        """Record what came of the run, close it unless something is left, and say so.

        Raises:
            LeaseError: It was lost: nothing of this was written.
            IncompleteError: The state cannot be written; the run stays open, and the next one takes it up.
        """
        if result.ended_by is not None:
            self._give_up(result, result.ended_by, began)
        try:
            result = await self._settle(result)
        except LeaseError as error:
            self._give_up(result, error, began)
        except ReconcilerError as error:
            result = replace(result, unknown=_unknown(error))
        try:
            serial = await self._commit(result, keeps_lease=keeps_lease)
        except ReconcilerError as error:
            self._give_up(result, error, began)
        await self._tell(result, serial, began)
        if result.trouble is not None:
            raise result.trouble
        return result

    async def _settle(self, result: RunResult) -> RunResult:
        """Look at the actions of which a platform did not say what became of them."""
        if not result.in_doubt:
            return result
        if self.setting.stop.is_requested:
            names = first_few([action.id for action in result.in_doubt])
            raise IncompleteError(
                f"stopped, and the platform did not say whether these happened: {names}",
                hint="The next run finds out: reconciler apply",
            )
        recovery = Recovery(self.lease, self.setting, gives_up=lambda _: False)
        entries, verdicts = await recovery.settle(result.in_doubt, self.journal, result.record)
        waiting = await self._refuse_absent(result, verdicts)
        by_id = {action.id: action for action in result.in_doubt}
        ended = [entry for entry in entries if isinstance(entry, ActionEnded)]
        record = dict(result.record)
        for entry in ended:
            learn(record, after_action(by_id[entry.id], entry, record, self.run))
        half_made = [entry for entry in entries if isinstance(entry, ActionRefused) and entry.is_made]
        for refused in half_made:
            learn(record, after_refusal(by_id[refused.id], refused, record, self.run))
        found = {entry.id for entry in ended}
        return replace(
            result,
            record=record,
            done=(*result.done, *(entry.id for entry in ended)),
            failed=tuple(item for item in result.failed if item.id not in found),
            in_doubt=waiting,
            unknown=_yet_to_come(waiting) if waiting else None,
            is_changed=result.is_changed or bool(ended or half_made),
        )

    async def _refuse_absent(self, result: RunResult, verdicts: Mapping[str, str]) -> tuple[Action, ...]:
        """Write why what is not there has failed; return what is not there, and may be on its way still."""
        failed = {item.id: item for item in result.failed}
        absent = [action for action in result.in_doubt if verdicts[action.id] == "absent"]
        waiting = tuple(action for action in absent if may_yet_happen(failed[action.id]))
        refused = [failed[action.id] for action in absent if action not in waiting]
        await self.journal.append(
            [ActionRefused(id=item.id, error=item.error.message, hint=item.error.hint) for item in refused]
        )
        return waiting

    async def _commit(self, result: RunResult, *, keeps_lease: bool) -> int:
        record = result.record if result.is_changed else None
        keeps_run = result.unknown is not None
        if result.not_started:
            self.setting.report(Detached(result.not_started))
            await self.journal.append(detached(result.not_started))
            keeps_run = True
        elif not keeps_run:
            await self.journal.append([Closed(status="partial" if is_partial(result) else "done")])
        if keeps_lease and not keeps_run:
            return await self.lease.end_run(record)
        return await self.lease.close(record, keeps_run=keeps_run)

    async def _tell(self, result: RunResult, serial: int, began: float) -> None:
        effects = self.setting.effects
        file = ResultFile(
            run=self.run,
            status=status_of(result),
            serial=serial,
            done=result.done,
            failed=tuple(
                {"id": item.id, "error": item.error.message, "hint": item.error.hint} for item in result.failed
            ),
            skipped=tuple({"id": item.id, "because": item.because} for item in result.skipped),
            not_started=result.not_started,
            in_doubt=tuple(action.id for action in result.in_doubt),
            ended=stamp(effects),
        )
        missing = await self._write_result(file)
        self._summarize(result, serial, began)
        if missing is not None:
            self.setting.report(missing)

    def _summarize(self, result: RunResult, serial: int | None, began: float) -> None:
        self.setting.report(
            Summary(
                self.run,
                done=len(result.done),
                failed=len(result.failed),
                skipped=len(result.skipped),
                not_started=len(result.not_started),
                seconds=self.setting.effects.now() - began,
                serial=serial,
                skipped_because={item.id: item.because for item in result.skipped},
                failures=alike(result.failed),
                in_doubt=tuple(action.id for action in result.in_doubt),
            )
        )

    async def _write_result(self, file: ResultFile) -> ResultMissing | None:
        """Write the file; where it cannot be, return why: everything that counts is in the state."""
        try:
            await self.setting.effects.call(lambda: write_result(self.lease.store, file))
        except StoppedError:
            return None  # whether it is there is not known
        except ReconcilerError as error:
            return ResultMissing(self.run, error.message, file.serial)
        return None

    def _give_up(self, result: RunResult, error: ReconcilerError, began: float) -> NoReturn:
        """Say what is known, keep on this machine what of it is written nowhere, and say where; the run stays open."""
        self._summarize(_with_unwritten(result), None, began)
        hint, kept = ended_sentence(error.hint), self._keep(result.unwritten)
        if isinstance(error, LeaseError):
            raise LeaseError(error.message, hint=f"{hint}{kept}") from error
        raise IncompleteError(
            f"the state cannot be written: {error.message}",
            hint=f"{hint} What was done is found by the next run: reconciler apply.{kept}",
        ) from error

    def _keep(self, unwritten: Sequence[Entry]) -> str:
        """Return the sentence that says what became of what could not be written."""
        if not unwritten:
            return ""
        try:
            where = self.setting.spool.keep(self.run, unwritten)
        except UserError as error:
            return f" What is known could not be kept on this machine either: {error}"
        return f" What is known and could not be written is kept in {where}."


def _with_unwritten(result: RunResult) -> RunResult:
    """Return what became of every action, be it written or not; what failed is known to the run either way."""
    ended = tuple(entry.id for entry in result.unwritten if isinstance(entry, ActionEnded))
    known = frozenset(ended)
    left = tuple(name for name in result.not_started if name not in known)
    return replace(result, done=(*result.done, *ended), not_started=left)


def _yet_to_come(waiting: Sequence[Action]) -> IncompleteError:
    names = first_few([action.id for action in waiting])
    return IncompleteError(
        f"not answered, and not there: {names}. It may yet happen, so the run stays open",
        hint="The next one looks again, and does what is missing: reconciler apply",
    )


def _unknown(error: ReconcilerError) -> IncompleteError:
    """Return why nobody could look, whatever it was: what is done is committed all the same."""
    return error if isinstance(error, IncompleteError) else IncompleteError(error.message, hint=error.hint)


def status_of(result: RunResult) -> str:
    """Return how a run ended, in one word."""
    if result.not_started:
        return "stopped" if result.is_stopped else "detached"
    if result.unknown is not None:
        return "in doubt"
    return "partial" if is_partial(result) else "done"


def is_partial(result: RunResult) -> bool:
    """Tell whether something was not done; skipped may stand alone, where what failed turned out to be done."""
    return bool(result.failed or result.skipped)


def stamp(effects: Effects) -> str:
    """Return the time for people, in UTC."""
    return effects.utc().strftime("%Y-%m-%dT%H:%M:%SZ")
