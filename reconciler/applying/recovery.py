"""Settle an interrupted run: observe clusters to determine unknown results. Idempotent."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar, cast

from reconciler.applying.engine import (
    RunLease,
    apply_batch,
    build_result_entries,
    is_done_by_jobs,
    is_mount_by_jobs,
    run_job,
)
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
from reconciler.planning.settle import Settlement, list_settled_addresses, settle_action
from reconciler.providers.protocol import FailedAction, Outcome, Scope
from reconciler.resources.address import Address, cluster_address, kind_of
from reconciler.runtime.dataclass import dataclass, field, replace
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
    take_over_journal,
)

if TYPE_CHECKING:
    from reconciler.applying.ports import RunContext
    from reconciler.providers.protocol import Provider
    from reconciler.resources.inventory import ClusterIdentity, Inventory, Record
    from reconciler.state.lease import Lease


_GOES_ON_BY_PLAN: Final = "The next plan continues it."
_GOES_ON: Final = "Continue it: reconciler run --once --only mirror"


def reopen_failover(action: Action, settlement: Settlement) -> Settlement:
    """Turn a completed failover into a partial one, because its groups may still wait for release (F-C-041)."""
    is_failover = isinstance(action, Transition) and (action.machine, action.verb) == (MIRROR.name, "failover")
    return replace(settlement, verdict="partial") if is_failover and settlement.verdict == "done" else settlement


@dataclass(frozen=True, slots=True)
class Completion:
    """Completes partial actions of an earlier run under a new lease."""

    lease: Lease
    context: RunContext
    runs_transition: Callable[[Transition], bool]
    """Whether to drive a transition over two clusters to its end now."""
    resumes: bool

    async def complete_actions(self, partial_actions: Sequence[Action], journal: Journal) -> list[Entry]:
        """Repeat partial actions; return the written journal entries.

        Raises:
            IncompleteError: A cluster did not answer.
        """
        written: list[Entry] = []
        mine = [action for action in partial_actions if not is_done_by_jobs(action)]
        for cluster in sorted({action.cluster or "" for action in mine}):
            written += await self._complete_batch(
                cluster, [action for action in mine if action.cluster == cluster], journal
            )
        for action in partial_actions:
            if is_done_by_jobs(action):
                written += await self._drive_transition(cast("Transition", action), journal)
        return written

    async def _complete_batch(self, cluster: str, batch: Sequence[Action], journal: Journal) -> list[Entry]:
        await journal.append([Intent(id=action.id) for action in batch])
        run_lease = RunLease(self.lease, journal, self.context.effects)
        call = partial(apply_batch, self.context.providers[cluster], cast("list[ControlAction]", batch), run_lease)
        outcomes = await self.context.effects.run_blocking(call)
        lost: dict[str, Sequence[str]] = {outcome.id: () for outcome in outcomes if isinstance(outcome, FailedAction)}
        entries = [
            entry
            for action, outcome in zip(batch, outcomes, strict=True)
            for entry in build_result_entries(action, outcome, lost)
        ]
        entries += _build_bug_refusals(outcomes)
        await journal.append(entries)
        _check_completed(cluster, outcomes)
        return entries

    async def _drive_transition(self, action: Transition, journal: Journal) -> list[Entry]:
        if not (self.runs_transition(action) or self.resumes):
            problem = (
                "it is in progress" if is_mount_by_jobs(action) else "it is in progress: its mirror shows its state"
            )
            entries = [_build_refusal(action, problem, _GOES_ON_BY_PLAN if is_mount_by_jobs(action) else _GOES_ON)]
            await journal.append(entries)
            return entries
        await journal.append([Intent(id=action.id)])
        run_lease = RunLease(self.lease, journal, self.context.effects)
        jobs = self.context.jobs
        with self.context.stop.call_on_stop(jobs.stop):
            call = partial(run_job, action, jobs, run_lease, self.context.report)
            outcome, _ = await self.context.effects.run_blocking(call)
        if isinstance(outcome, FailedAction):
            if isinstance(outcome.error, LeaseError):
                raise outcome.error
            if self.resumes or self.context.stop.is_requested:
                raise _build_not_ended_error(action, outcome.error)
        entries = list(build_result_entries(action, outcome, {action.id: ()}))
        await journal.append(entries)
        return entries


def _build_refusal(action: Action, error: str, hint: str) -> Entry:
    return ActionRefused(id=action.id, error=error, hint=hint)


def _build_not_ended_error(action: Transition, error: ReconcilerError) -> IncompleteError:
    return IncompleteError(
        f"{action.id} has been in progress since the last run, and does not end: {error.message}",
        hint=f"{end_sentence(error.hint)} Nothing else was done. Continue with: reconciler apply --resume",
    )


def _build_bug_refusals(outcomes: Iterable[Outcome]) -> list[Entry]:
    return [
        _build_error_refusal(outcome.id, outcome.error)
        for outcome in outcomes
        if isinstance(outcome, FailedAction) and isinstance(outcome.error, BrokenInvariantError)
    ]


def _build_error_refusal(name: str, error: ReconcilerError) -> Entry:
    return ActionRefused(id=name, error=error.message, hint=error.hint)


def _check_completed(cluster: str, outcomes: Sequence[Outcome]) -> None:
    unknown = [
        outcome
        for outcome in outcomes
        if isinstance(outcome, FailedAction) and isinstance(outcome.error, RetryableError)
    ]
    if unknown:
        raise IncompleteError(
            f"only partly done; cluster {cluster} failed to finish it: "
            f"{list_first([outcome.id for outcome in unknown])}: {unknown[0].error.message}",
            hint=f"{end_sentence(unknown[0].error.hint)} Then run: reconciler apply",
        )


T = TypeVar("T")

COOL_DOWN_S: Final = 180.0
"""Seconds to wait before non-idempotent actions are repeated, because a late call may still arrive."""
_SLICE_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class SettledJournal:
    """An open run after its actions were settled and recorded."""

    run: UnfinishedRun
    verdicts: Mapping[str, str] = field(default_factory=dict)
    doubtful: frozenset[Address] = frozenset()
    begun: frozenset[Address] = frozenset()


class Recovery:
    """Settles actions whose result is unknown, under a lease."""

    def __init__(
        self,
        lease: Lease,
        context: RunContext,
        *,
        skips_address: Callable[[Address], bool],
        runs_transition: Callable[[Transition], bool] = lambda _action: False,
        resumes: bool = False,
    ) -> None:
        self._lease = lease
        self._context = context
        self._skips_address = skips_address
        self._completion = Completion(lease, context, runs_transition=runs_transition, resumes=resumes)
        self._began = context.effects.read_clock()

    async def settle_open_run(self, *, closes: bool) -> SettledJournal | None:
        """Settle and record the open run; `None` if no run is open. `closes` also closes it.

        Raises:
            IncompleteError: An action in doubt cannot be observed; the run stays open.
            UserError: The files of the run cannot be read.
        """
        lease, effects, spool = self._lease, self._context.effects, self._context.spool
        open_run = await effects.run_blocking(self._read_open_run)
        if open_run is None:
            return None
        open_run = open_run.with_journal(await take_over_journal(lease, effects, open_run.file.run))
        journal = Journal(lease, effects, open_run.file.run, next_seq=open_run.written.next_seq)
        spooled = await self._journal_spooled_entries(open_run, journal)
        before = open_run.compute_progress(further=spooled)
        entries, verdicts = await self.settle(before.in_doubt, journal, before.record)
        if closes and not before.is_closed:
            await journal.append([*_build_absent_refusals(verdicts), RunClosed(status="superseded")])
        after = open_run.compute_progress(further=(*spooled, *entries))
        record = after.record if after.record != (await lease.read_snapshot()).record else None
        if closes:
            await lease.end_run(record, settles=open_run.file.run)
        elif record is not None:
            await lease.commit(record, settles=open_run.file.run)
        if spooled:
            await effects.run_blocking(lambda: spool.delete_entries(open_run.file.run))
        self._context.report(
            RunRecovered(open_run.file.run, open_run.file.who or "", verdicts, open_run.parting, len(before.remaining))
        )
        done, doubtful = frozenset(before.done), _collect_scope(before.in_doubt)
        begun = [action for action in open_run.actions if action.id in done]
        return SettledJournal(open_run, verdicts, doubtful, doubtful | _collect_scope(begun))

    async def settle(
        self, in_doubt: Sequence[Action], journal: Journal, record: Record
    ) -> tuple[list[Entry], dict[str, str]]:
        """Observe actions in doubt and complete partial ones. Return written entries, and results by id.

        Absent actions get no entry: only the caller knows whether they may still happen.

        Raises:
            IncompleteError: A cluster cannot be observed or does not answer.
            UserError: The cluster is not the recorded one.
        """
        entries: list[Entry] = []
        verdicts: dict[str, str] = {}
        declared = frozenset(self._context.providers)
        known: list[Action] = []
        for action in in_doubt:
            if action.cluster in declared and not self._skips_address(action.address):
                known.append(action)
            else:
                verdicts[action.id] = "unknown"
                entries.append(_build_unread_refusal(action))
        for cluster in sorted({action.cluster or "" for action in known}):
            actions = [action for action in known if action.cluster == cluster]
            await self._check_identity(cluster, record, actions)
            for name, settlement in (await self._observe_until_safe(cluster, actions)).items():
                if settlement.verdict == "moving" and self._completion.resumes:
                    settlement = replace(settlement, verdict="partial")  # noqa: PLW2901 - a repeated action waits for the replicas
                verdicts[name] = settlement.verdict
                entries += _build_settlement_entries(name, settlement)
        await journal.append(entries)
        partial_actions = [action for action in known if verdicts[action.id] == "partial"]
        completed = await self._completion.complete_actions(partial_actions, journal)
        refused = {entry.id for entry in completed if isinstance(entry, ActionRefused)}
        verdicts |= {
            action.id: "under way" for action in partial_actions if is_done_by_jobs(action) and action.id in refused
        }
        entries += completed
        return entries, verdicts

    async def _check_identity(self, cluster: str, record: Record, actions: Sequence[Action]) -> None:
        recorded = record.get(cluster_address(cluster))
        if recorded is None:
            return
        provider = self._context.providers[cluster]
        identity = await self._context.effects.run_blocking(
            lambda: _call_cluster(cluster, lambda: _identify_cluster(provider), actions)
        )
        if recorded.incarnation not in {None, identity.cluster_id}:
            raise UserError(
                f"cluster {cluster} should be {recorded.incarnation}, but {identity.cluster_id} answers",
                hint="Nothing was written. Correct the connection; `reconciler plan` has details.",
            )

    async def _observe_until_safe(self, cluster: str, actions: Sequence[Action]) -> dict[str, Settlement]:
        """Observe actions; if a non-idempotent one is absent, wait for late calls and observe again."""
        settlements = await self._settle_observed(cluster, actions)
        named_there = self._context.providers[cluster].capabilities.server_ids
        waits = [action.id for action in actions if kind_of(action.address) in named_there]
        if not any(settlements[name].verdict == "absent" for name in waits):
            return settlements
        while (left := self._began + COOL_DOWN_S - self._context.effects.read_clock()) > 0:
            if self._context.stop.is_requested:
                raise IncompleteError(
                    f"outcome unknown since the last run, and too early for a retry: {list_first(waits)}",
                    hint="Run it again: reconciler apply",
                )
            await self._context.effects.sleep(min(left, _SLICE_S))
        return await self._settle_observed(cluster, actions)

    async def _settle_observed(self, cluster: str, actions: Sequence[Action]) -> dict[str, Settlement]:
        provider = self._context.providers[cluster]
        addresses = sorted({address for action in actions for address in list_settled_addresses(action)})
        observed: Inventory = {}
        if addresses:
            observe = partial(provider.observe, Scope(tuple(addresses)))
            observed = await self._context.effects.run_blocking(lambda: _call_cluster(cluster, observe, actions))
        catalog = provider.capabilities.configs
        return {action.id: reopen_failover(action, settle_action(action, observed, catalog)) for action in actions}

    def _read_open_run(self) -> UnfinishedRun | None:
        store, lockfile, spool = self._lease.store, self._lease.lockfile, self._context.spool
        open_run = read_open_run(store, lockfile)
        for run in spool.list_runs():
            is_open = open_run is not None and open_run.file.run == run
            # A run without files here belongs to another state, so its entries stay.
            if not is_open and store.get(run_key(run)) is not None:
                spool.delete_entries(run)
        return open_run

    async def _journal_spooled_entries(self, open_run: UnfinishedRun, journal: Journal) -> list[Entry]:
        doubtful = {action.id for action in open_run.compute_progress().in_doubt}
        spooled = await self._context.effects.run_blocking(lambda: self._context.spool.read_entries(open_run.file.run))
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


def _build_absent_refusals(verdicts: Mapping[str, str]) -> list[Entry]:
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


def _call_cluster(cluster: str, ask: Callable[[], T], actions: Sequence[Action] = ()) -> T:
    try:
        return ask()
    except RetryableError as error:
        names = f": {list_first([action.id for action in actions])}" if actions else ""
        raise IncompleteError(
            f"actions are in doubt since the last run{names}; cluster {cluster} cannot be read: {error.message}",
            hint=f"{error.hint} Then run: reconciler apply. To continue without it: --exclude '*/{cluster}/*'",
        ) from error


def _build_unread_refusal(action: Action) -> Entry:
    return ActionRefused(
        id=action.id,
        error="its cluster was left out or is no longer declared, so it was not read",
        hint="The next plan shows what exists.",
    )
