"""Settle an interrupted run by observing its actions in doubt.

Done actions are recorded, partial ones are completed, and absent ones are planned again. Recovery is idempotent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar, cast

from reconciler.applying.engine import LeaseTurn, build_entries, do_batch, do_job, is_archived, is_done_by_jobs
from reconciler.applying.events import RunRecovered
from reconciler.errors import (
    BrokenInvariantError,
    IncompleteError,
    LeaseError,
    ReconcilerError,
    RetryableError,
    UserError,
)
from reconciler.lifecycles import MIRROR
from reconciler.planning.actions import Action, ControlAction, Transition
from reconciler.planning.settle import Settlement, list_settled_addresses, settle
from reconciler.providers.protocol import Failed, Outcome, Scope
from reconciler.resources.address import Address, cluster_address, kind_of
from reconciler.runtime.text import end_sentence, list_first
from reconciler.state.journal import (
    ActionEnded,
    ActionRefused,
    Entry,
    Intent,
    Journal,
    RunClosed,
    UnfinishedRun,
    read_open_run,
    run_key,
    take_over,
)

if TYPE_CHECKING:
    from reconciler.applying.ports import Setting
    from reconciler.providers.protocol import Provider
    from reconciler.resources.inventory import ClusterIdentity, Inventory, Record
    from reconciler.state.lease import Lease


_GOES_ON_BY_PLAN: Final = "The next plan continues it."
_GOES_ON: Final = "Continue it: reconciler run --once --only mirror"


def reopen_failover(action: Action, settlement: Settlement) -> Settlement:
    """Return a done failover as partial, because its consumer groups may not be released yet (F-C-041)."""
    is_failover = isinstance(action, Transition) and (action.machine, action.verb) == (MIRROR.name, "failover")
    return replace(settlement, verdict="partial") if is_failover and settlement.verdict == "done" else settlement


@dataclass(frozen=True, slots=True)
class Completion:
    """Completes actions that an earlier run left partial, under a new lease."""

    lease: Lease
    setting: Setting
    drives: Callable[[Transition], bool]
    """Returns whether to run a transition over two clusters until it ends; others are left to `run`."""
    resumes: bool
    """Whether to raise an error if a transition does not end."""

    async def complete(self, halves: Sequence[Action], journal: Journal) -> list[Entry]:
        """Repeat partial actions; write the resulting entries and return them.

        Raises:
            IncompleteError: A cluster did not answer.
        """
        written: list[Entry] = []
        mine = [action for action in halves if not is_done_by_jobs(action)]
        for cluster in sorted({action.cluster or "" for action in mine}):
            written += await self._complete_batch(
                cluster, [action for action in mine if action.cluster == cluster], journal
            )
        for action in halves:
            if is_done_by_jobs(action):
                written += await self._drive(cast("Transition", action), journal)
        return written

    async def _complete_batch(self, cluster: str, batch: Sequence[Action], journal: Journal) -> list[Entry]:
        await journal.append([Intent(id=action.id) for action in batch])
        turn = LeaseTurn(self.lease, journal, self.setting.effects)
        call = partial(do_batch, self.setting.providers[cluster], cast("list[ControlAction]", batch), turn)
        outcomes = await self.setting.effects.call(call)
        lost: dict[str, Sequence[str]] = {outcome.id: () for outcome in outcomes if isinstance(outcome, Failed)}
        entries = [
            entry
            for action, outcome in zip(batch, outcomes, strict=True)
            for entry in build_entries(action, outcome, lost)
        ]
        entries += _refuse_bugs(outcomes)
        await journal.append(entries)
        _check_completed(cluster, outcomes)
        return entries

    async def _drive(self, action: Transition, journal: Journal) -> list[Entry]:
        """Run a transition over two clusters until it ends, or record that it is in progress.

        The mirror stores the step from which the transition continues, so a later plan sees it.
        """
        if not (self.drives(action) or self.resumes):
            problem = "it is in progress" if is_archived(action) else "it is in progress: its mirror shows its state"
            entries = [_refuse(action, problem, _GOES_ON_BY_PLAN if is_archived(action) else _GOES_ON)]
            await journal.append(entries)
            return entries
        await journal.append([Intent(id=action.id)])
        turn = LeaseTurn(self.lease, journal, self.setting.effects)
        jobs = self.setting.jobs
        with self.setting.stop.call_on_stop(jobs.stop):
            call = partial(do_job, action, jobs, turn, self.setting.report)
            outcome, _ = await self.setting.effects.call(call)
        if isinstance(outcome, Failed):
            if isinstance(outcome.error, LeaseError):
                raise outcome.error
            if self.resumes or self.setting.stop.is_requested:
                raise _not_ended_error(action, outcome.error)
        entries = list(build_entries(action, outcome, {action.id: ()}))
        await journal.append(entries)
        return entries


def _refuse(action: Action, error: str, hint: str) -> Entry:
    return ActionRefused(id=action.id, error=error, hint=hint)


def _not_ended_error(action: Transition, error: ReconcilerError) -> IncompleteError:
    return IncompleteError(
        f"{action.id} has been in progress since the last run, and does not end: {error.message}",
        hint=f"{end_sentence(error.hint)} Nothing else was done. Continue with: reconciler apply --resume",
    )


def _refuse_bugs(outcomes: Iterable[Outcome]) -> list[Entry]:
    # Actions that fail by a bug would never complete.
    return [
        _refuse_by_error(outcome.id, outcome.error)
        for outcome in outcomes
        if isinstance(outcome, Failed) and isinstance(outcome.error, BrokenInvariantError)
    ]


def _refuse_by_error(name: str, error: ReconcilerError) -> Entry:
    return ActionRefused(id=name, error=error.message, hint=error.hint)


def _check_completed(cluster: str, outcomes: Sequence[Outcome]) -> None:
    # Planning would take a partial resource for one of another owner.
    unknown = [
        outcome for outcome in outcomes if isinstance(outcome, Failed) and isinstance(outcome.error, RetryableError)
    ]
    if unknown:
        raise IncompleteError(
            f"only partly done; cluster {cluster} failed to finish it: "
            f"{list_first([outcome.id for outcome in unknown])}: {unknown[0].error.message}",
            hint=f"{end_sentence(unknown[0].error.hint)} Then run: reconciler apply",
        )


T = TypeVar("T")

COOL_DOWN_S: Final = 180.0
"""Wait after a takeover, before repeating actions that are not idempotent: a late call may still arrive."""
_SLICE_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class SettledJournal:
    """An open run whose actions are all settled and recorded."""

    run: UnfinishedRun
    verdicts: Mapping[str, str] = field(default_factory=dict)
    doubtful: frozenset[Address] = frozenset()
    begun: frozenset[Address] = frozenset()


class Recovery:
    """Settles actions in doubt, under a lease."""

    def __init__(
        self,
        lease: Lease,
        setting: Setting,
        *,
        gives_up: Callable[[Address], bool],
        drives: Callable[[Transition], bool] = lambda _action: False,
        resumes: bool = False,
    ) -> None:
        """Make no call.

        `gives_up`: whether an address is not observed, because the user excluded its cluster. `drives`: whether to run
        a transition over two clusters until it ends. `resumes`: whether to raise an error if one does not end.
        """
        self._lease = lease
        self._setting = setting
        self._gives_up = gives_up
        self._completion = Completion(lease, setting, drives=drives, resumes=resumes)
        self._began = setting.effects.now()

    async def settle_open_run(self, *, closes: bool) -> SettledJournal | None:
        """Settle the open run, if any, and record its results; `closes`: close it.

        Raises:
            IncompleteError: An action in doubt cannot be observed; the run stays open.
            UserError: The files of the run cannot be read.
        """
        lease, effects, spool = self._lease, self._setting.effects, self._setting.spool
        open_run = await effects.call(self._open_run)
        if open_run is None:
            return None
        open_run = open_run.after(await take_over(lease, effects, open_run.file.run))
        journal = Journal(lease, effects, open_run.file.run, next_seq=open_run.written.next_seq)
        spooled = await self._unspool(open_run, journal)
        before = open_run.fold(further=spooled)
        entries, verdicts = await self.settle(before.in_doubt, journal, before.record)
        if closes and not before.is_closed:
            await journal.append([*_refuse_absent(verdicts), RunClosed(status="superseded")])
        after = open_run.fold(further=(*spooled, *entries))
        record = after.record if after.record != (await lease.snapshot()).record else None
        if closes:
            await lease.end_run(record, settles=open_run.file.run)
        elif record is not None:
            await lease.commit(record, settles=open_run.file.run)
        if spooled:
            await effects.call(lambda: spool.forget(open_run.file.run))
        self._setting.report(
            RunRecovered(open_run.file.run, open_run.file.who or "", verdicts, open_run.parting, len(before.left))
        )
        done, doubtful = frozenset(before.done), _collect_scope(before.in_doubt)
        begun = [action for action in open_run.actions if action.id in done]
        return SettledJournal(open_run, verdicts, doubtful, doubtful | _collect_scope(begun))

    async def settle(
        self, in_doubt: Sequence[Action], journal: Journal, record: Record
    ) -> tuple[list[Entry], dict[str, str]]:
        """Observe actions in doubt and complete partial ones; return the written entries and the verdicts by action id.

        Absent actions get no entry, because only the caller knows whether they may still happen.

        Raises:
            IncompleteError: A cluster cannot be observed or does not answer.
            UserError: The cluster is not the recorded one.
        """
        entries: list[Entry] = []
        verdicts: dict[str, str] = {}
        declared = frozenset(self._setting.providers)
        known: list[Action] = []
        for action in in_doubt:
            if action.cluster in declared and not self._gives_up(action.address):
                known.append(action)
            else:
                verdicts[action.id] = "unknown"
                entries.append(_refuse_unread(action))
        for cluster in sorted({action.cluster or "" for action in known}):
            actions = [action for action in known if action.cluster == cluster]
            await self._check_identity(cluster, record, actions)
            for name, settlement in (await self._look_until_cool(cluster, actions)).items():
                if settlement.verdict == "moving" and self._completion.resumes:
                    settlement = replace(settlement, verdict="partial")  # noqa: PLW2901 - a repeated action waits for the replicas
                verdicts[name] = settlement.verdict
                entries += _build_settlement_entries(name, settlement)
        await journal.append(entries)
        halves = [action for action in known if verdicts[action.id] == "partial"]
        completed = await self._completion.complete(halves, journal)
        refused = {entry.id for entry in completed if isinstance(entry, ActionRefused)}
        verdicts |= {action.id: "under way" for action in halves if is_done_by_jobs(action) and action.id in refused}
        entries += completed
        return entries, verdicts

    async def _check_identity(self, cluster: str, record: Record, actions: Sequence[Action]) -> None:
        recorded = record.get(cluster_address(cluster))
        if recorded is None:
            return
        provider = self._setting.providers[cluster]
        identity = await self._setting.effects.call(
            lambda: _ask_cluster(cluster, lambda: _identify_cluster(provider), actions)
        )
        if recorded.incarnation not in {None, identity.cluster_id}:
            raise UserError(
                f"cluster {cluster} should be {recorded.incarnation}, but {identity.cluster_id} answers",
                hint="Nothing was written. Correct the connection; `reconciler plan` has details.",
            )

    async def _look_until_cool(self, cluster: str, actions: Sequence[Action]) -> dict[str, Settlement]:
        """Observe actions. If one that is not idempotent is absent, wait for late calls and observe again."""
        settlements = await self._look(cluster, actions)
        named_there = self._setting.providers[cluster].capabilities.server_ids
        waits = [action.id for action in actions if kind_of(action.address) in named_there]
        if not any(settlements[name].verdict == "absent" for name in waits):
            return settlements
        while (left := self._began + COOL_DOWN_S - self._setting.effects.now()) > 0:
            if self._setting.stop.is_requested:
                raise IncompleteError(
                    f"outcome unknown since the last run, and too early for a retry: {list_first(waits)}",
                    hint="Run it again: reconciler apply",
                )
            await self._setting.effects.sleep(min(left, _SLICE_S))
        return await self._look(cluster, actions)

    async def _look(self, cluster: str, actions: Sequence[Action]) -> dict[str, Settlement]:
        provider = self._setting.providers[cluster]
        addresses = sorted({address for action in actions for address in list_settled_addresses(action)})
        observed: Inventory = {}
        if addresses:
            look = partial(provider.observe, Scope(tuple(addresses)))
            observed = await self._setting.effects.call(lambda: _ask_cluster(cluster, look, actions))
        catalog = provider.capabilities.configs
        return {action.id: reopen_failover(action, settle(action, observed, catalog)) for action in actions}

    def _open_run(self) -> UnfinishedRun | None:
        store, lockfile, spool = self._lease.store, self._lease.lockfile, self._setting.spool
        open_run = read_open_run(store, lockfile)
        for run in spool.runs():
            is_open = open_run is not None and open_run.file.run == run
            if not is_open and store.get(run_key(run)) is not None:  # a run without files belongs to another state
                spool.forget(run)
        return open_run

    async def _unspool(self, open_run: UnfinishedRun, journal: Journal) -> list[Entry]:
        doubtful = {action.id for action in open_run.fold().in_doubt}
        spooled = await self._setting.effects.call(lambda: self._setting.spool.read(open_run.file.run))
        ends = [entry for entry in spooled if isinstance(entry, ActionEnded | ActionRefused) and entry.id in doubtful]
        await journal.append(ends)
        return list(ends)


def _collect_scope(actions: Iterable[Action]) -> frozenset[Address]:
    return frozenset(address for action in actions for address in list_settled_addresses(action))


def _build_settlement_entries(action: str, settlement: Settlement) -> list[Entry]:
    match settlement.verdict:
        case "done":
            return [
                ActionEnded(
                    id=action,
                    incarnation=settlement.incarnation,
                    physical_name=settlement.physical_name,
                    is_settled=True,
                )
            ]
        case "conflict":
            return [
                ActionRefused(
                    id=action,
                    error="the resource has neither its old nor its planned values",
                    hint="Another change was made to it; the plan starts from its present values.",
                )
            ]
        case "unknown":
            return [
                ActionRefused(
                    id=action,
                    error="it is hidden from the principal of reconciler, so its result is not known",
                    hint="The next plan names the missing right.",
                )
            ]
        case "moving":
            return [
                ActionRefused(
                    id=action,
                    error="it is in progress: the platform still moves replicas",
                    hint="It continues by itself; the next plan shows what is left.",
                )
            ]
        case "absent" | "partial":
            return []


def _refuse_absent(verdicts: Mapping[str, str]) -> list[Entry]:
    return [
        ActionRefused(id=name, error="it had not happened", hint="The next plan does it, if it is wanted.")
        for name, verdict in verdicts.items()
        if verdict == "absent"
    ]


def _identify_cluster(provider: Provider) -> ClusterIdentity:
    identity = provider.identify()
    if identity is None:
        raise RetryableError(
            "it is recorded in the state, but its location is empty",
            hint="Check that its root is mounted and that the location in its manifest is right.",
        )
    return identity


def _ask_cluster(cluster: str, ask: Callable[[], T], actions: Sequence[Action] = ()) -> T:
    try:
        return ask()
    except RetryableError as error:
        names = f": {list_first([action.id for action in actions])}" if actions else ""
        raise IncompleteError(
            f"actions are in doubt since the last run{names}; cluster {cluster} cannot be read: {error.message}",
            hint=f"{error.hint} Then run: reconciler apply. To continue without it: --exclude '*/{cluster}/*'",
        ) from error


def _refuse_unread(action: Action) -> Entry:
    return ActionRefused(
        id=action.id,
        error="its cluster was left out or is no longer declared, so it was not read",
        hint="The next plan shows what exists.",
    )
