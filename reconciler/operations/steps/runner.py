"""Run plans under the lease, stop runs, and run emergency commands."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Final, assert_never

from reconciler.applying.engine import RunResult
from reconciler.applying.events import Event, RunHandedOver, Summary
from reconciler.applying.ports import RunContext
from reconciler.applying.run import Caller, Decide, DecisionBasis, Run, RunOptions, RunOutcome, RunRequest, RunWork
from reconciler.errors import (
    IncompleteError,
    InterruptedRunError,
    LeaseError,
    PartialError,
    ReconcilerError,
    RetryableError,
    StalePlanError,
    UnansweredError,
    UserError,
)
from reconciler.operations.steps.jobs import SparkJobs
from reconciler.operations.steps.observe import check_cluster_answers, read_recorded_clusters, reject_other_cluster
from reconciler.operations.steps.recorded import LocalSpool, read_state, require_state
from reconciler.operations.steps.workspace import Site, open_clusters_at, open_site, open_work
from reconciler.planning.actions import Action, Adopt, Create, Delete, Forget, RunJob, Transition, Update
from reconciler.planning.plan_rows import compute_digest
from reconciler.planning.record import list_owner_keys
from reconciler.planning.situation import IMPLIED
from reconciler.resources.address import Address, cluster_address, cluster_of, kind_of
from reconciler.resources.owners import OwnerChange, ResourceOwner, build_owner_key
from reconciler.runtime.dataclass import dataclass
from reconciler.runtime.thread_effects import ThreadEffects
from reconciler.state.lease import Claim
from reconciler.state.lockfile import LeaseTerms

if TYPE_CHECKING:
    from reconciler.objectstore.base import ObjectStore
    from reconciler.operations.steps.invocation import Invocation, Select
    from reconciler.resources.inventory import Record
    from reconciler.state.snapshots import Snapshot


def run_under_lease(
    site: Site,
    wish: RunRequest,
    decide: Decide,
    *,
    report: Callable[[Event], None],
    stop: Stop,
    keeps_state: bool = True,
) -> RunOutcome:
    """Run the actions that `decide` returns under the lease. If `decide` raises, release the lease.

    Without `keeps_state`, the run uses an empty state in memory and writes no owner marks.
    Raises the errors of `Run.run`.
    """
    effects = ThreadEffects(wish.options.parallelism)
    ownership = OwnershipMarker(site)
    try:
        with SparkJobs(site.providers, site.spark, site.invocation) as jobs, stop.call_on_stop(effects.hurry):
            setting = RunContext(
                state=site.state if keeps_state else _create_memory_state(),
                providers=site.providers,
                jobs=jobs,
                effects=effects,
                report=report,
                stop=stop,
                spool=LocalSpool(site.edge.folder, site.invocation.warn),
                mark_ownership=ownership.write_recorded_marks,
            )
            caller = _build_caller(site, LeaseTerms() if keeps_state else _LONG_LEASE)
            return _run_to_end(Run(setting, caller, wish).run(ownership.wrap_decide(decide)))
    finally:
        effects.close()


class OwnershipMarker:
    """Marks resources on clusters as owned by this workspace."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._basis: DecisionBasis | None = None
        self._is_planned = False
        self._written: dict[str, frozenset[str]] = {}
        self._warned: set[str] = set()

    def wrap_decide(self, decide: Decide) -> Decide:
        """Wrap `decide` to mark the resources of actions as owned.

        Raises:
            StalePlanError: Another workspace took a resource after the plan.
            RetryableError: A cluster does not answer. Earlier marks are removed.
        """

        def decide_and_take(basis: DecisionBasis) -> RunWork:
            todo = decide(basis)
            record = basis.snapshot.record
            self._basis, self._is_planned = basis, todo.plan is not None
            clusters = sorted({action.cluster for action in todo.actions if action.cluster is not None})
            new = {
                action.cluster
                for action in todo.actions
                if isinstance(action, Create) and action.cluster is not None and kind_of(action.address) == "cluster"
            }
            self._written = {name: frozenset() if name in new else _list_owned_keys(record, name) for name in clusters}
            if todo.plan is not None:
                taken = {**{name: {} for name in new}, **_find_keys_to_take(todo)}
                try:
                    # Marking a new cluster creates it, so it comes after the other clusters' marks.
                    for cluster, keys in sorted(taken.items(), key=lambda item: (item[0] in new, item[0])):
                        self._take_keys(cluster, keys, record, makes=cluster in new)
                except ReconcilerError:
                    self.write_recorded_marks(record)
                    raise
            return todo

        return decide_and_take

    def write_recorded_marks(self, record: Record) -> None:
        """Mark the recorded resources as owned, and remove other marks."""
        for cluster, written in self._written.items():
            keys = _list_owned_keys(record, cluster)
            if keys == written or cluster in self._warned:
                continue
            try:
                if self._is_planned or self._is_recorded(cluster):
                    self._write_marks(cluster, {}, keys)
            except ReconcilerError as error:
                self._warn(cluster, error)

    def _take_keys(
        self, cluster: str, keys: Mapping[str, ResourceOwner | None], record: Record, *, makes: bool
    ) -> None:
        keep = _list_owned_keys(record, cluster)
        self._written[cluster] = keep | keys.keys()
        try:
            refused = self._write_marks(cluster, keys, keep, makes=makes)
        except UnansweredError:
            raise
        except RetryableError:
            # No mark was written, so `write_recorded_marks` can skip the cluster.
            self._written[cluster] = keep
            raise
        except UserError as error:
            if makes:
                # The action that creates the cluster fails with the same error.
                self._written[cluster] = keep
            else:
                self._warn(cluster, error)
            return
        for key, owner in refused.items():
            kind, _, name = key.partition("/")
            raise StalePlanError(
                f"{kind}/{cluster}/{name} is owned by {owner} since this was planned",
                hint="Nothing was done. See what is left to do: reconciler plan",
            )

    def _write_marks(
        self, cluster: str, take: Mapping[str, ResourceOwner | None], keep: frozenset[str], *, makes: bool = False
    ) -> Mapping[str, ResourceOwner]:
        lineage = "" if self._basis is None else self._basis.snapshot.lineage
        return self._site.providers[cluster].record_owners(
            OwnerChange(self._site.make_owner(lineage), take, keep, makes)
        )

    def _is_recorded(self, cluster: str) -> bool:
        last = None if self._basis is None else self._basis.snapshot.record.get(cluster_address(cluster))
        identity = None if last is None else self._site.providers[cluster].identify()
        return identity is not None and last is not None and last.incarnation == identity.cluster_id

    def _warn(self, cluster: str, error: ReconcilerError) -> None:
        if cluster not in self._warned:
            self._warned.add(cluster)
            self._site.invocation.warn(
                f"cluster {cluster} does not have the list of what this workspace owns: {error.message}. "
                "Nothing else depends on it, but other workspaces do not see who owns it."
            )


def _list_owned_keys(record: Record, cluster: str) -> frozenset[str]:
    return frozenset(list_owner_keys(record, cluster))


def _find_keys_to_take(todo: RunWork) -> dict[str, dict[str, ResourceOwner | None]]:
    taken: dict[str, dict[str, ResourceOwner | None]] = {cluster: {} for cluster in todo.unowned}
    for action in todo.actions:
        match action:
            case Create() | Update() | Adopt() | Transition():
                key = None if IMPLIED in action.origins else build_owner_key(action.address, action.after)
                if key is not None and action.cluster is not None:
                    taken.setdefault(action.cluster, {})[key] = action.owner
            case Delete() | Forget() | RunJob():
                pass
            case _:
                assert_never(action)
    return taken


def _run_to_end(run: Coroutine[object, object, RunOutcome]) -> RunOutcome:
    """The task returns `None`, because asyncio would log a large result twice."""
    results: list[RunOutcome] = []

    async def drop_result() -> None:
        results.append(await run)

    asyncio.run(drop_result())
    return results[0]


def _create_memory_state() -> ObjectStore:
    from reconciler.objectstore.memory import MemoryStore  # noqa: PLC0415 - only a run without a state needs it

    return MemoryStore()


_LONG_LEASE: Final = LeaseTerms(lease_s=365 * 86_400)


def _build_caller(site: Site, terms: LeaseTerms) -> Caller:
    invocation = site.invocation
    return Caller(
        claim=Claim(
            owner=site.owner,
            run=invocation.new_run(),
            who=invocation.who,
            lineage=invocation.new_id(),
            ci_url=invocation.ci_url,
            terms=terms,
        ),
        tool=invocation.tool,
        git_commit=invocation.git_commit(site.edge.folder),
        tell=lambda waiting: invocation.warn(str(waiting)),
        new_run=invocation.new_run,
    )


_POLL_S: Final = 0.2


class Stop:
    """A stop request. Thread-safe and signal-safe.

    It uses a queue, because an event's lock could deadlock in a signal handler.
    """

    def __init__(self) -> None:
        self._is_requested = False
        self._bell: SimpleQueue[None] = SimpleQueue()
        self._enders: list[Callable[[], None]] = []

    @property
    def is_requested(self) -> bool:
        """Whether a stop was requested."""
        return self._is_requested

    def request(self) -> bool:
        """Request a stop; return whether a running job was told to end."""
        self._is_requested = True
        self._bell.put(None)
        for end in tuple(self._enders):
            end()
        return bool(self._enders)

    def wait(self, seconds: float) -> bool:
        """Wait at most `seconds`; return whether a stop was requested."""
        left = seconds
        while left > 0 and not self._is_requested:
            try:
                self._bell.get(timeout=min(left, _POLL_S))
            except Empty:
                left -= _POLL_S
            else:
                self._bell.put(None)
        return self._is_requested

    @contextmanager
    def call_on_stop(self, end: Callable[[], None]) -> Iterator[None]:
        """In the block, call `end` on a stop request; at once if it came earlier."""
        self._enders.append(end)
        try:
            if self.is_requested:
                end()
            yield
        finally:
            self._enders.remove(end)


@contextmanager
def stop_jobs_on_request(jobs: SparkJobs, stop: Stop) -> Iterator[None]:
    """In the block, stop read-only jobs on a stop request."""
    failed: Exception | None = None
    with stop.call_on_stop(jobs.stop):
        try:
            yield
        except Exception as error:  # noqa: BLE001 - errors of stopped jobs are ignored
            failed = error
    if jobs.is_stopped:
        # Stopped jobs may return incomplete results.
        raise InterruptedRunError("Interrupted", hint="Nothing was changed") from failed
    if failed is not None:
        raise failed


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteOptions:
    """Where a command finds clusters: files, a state, or `--cluster`."""

    invocation: Invocation
    select: Select
    state_url: str | None = None
    no_state: bool = False
    """Skip the state, and the check of recorded cluster ids."""
    at: Sequence[str] | None = None
    """Clusters of `--cluster`; `None` if the command has no such option."""

    def open_site(self, *, is_reader: bool = False) -> Site:
        """Open workspace, state or clusters. No cluster is contacted."""
        if self.at:
            return open_clusters_at(self.invocation, self.at)
        if self.state_url is not None:
            return open_site(self.invocation, self.state_url, is_reader=is_reader)
        try:
            return open_work(self.invocation, self.select, is_reader=is_reader)
        except UserError as error:
            ways = "--state URL, as `spec.state` has it"
            if self.at is not None:
                ways = f"{ways}, or --no-state --cluster NAME=URL"
            error.hint = f"{error.hint.removesuffix('.')}. To continue without the files: {ways}"
            raise

    def read_recorded_ids(self, site: Site) -> Mapping[Address, str | None]:
        """Return recorded cluster ids by address."""
        return {} if self.no_state else read_recorded_clusters(site)

    def check_answers(self, site: Site, cluster: str) -> None:
        """Reject a cluster that does not answer, or is not the recorded one."""
        check_cluster_answers(site, cluster, self.read_recorded_ids(site))

    def check_writable(self, site: Site, cluster: str) -> None:
        """Reject a cluster that must not be written to."""
        reject_other_cluster(site, cluster, None if self.no_state else self._read_state(site))

    @staticmethod
    def _read_state(site: Site) -> Snapshot | None:
        try:
            return read_state(site)
        except ReconcilerError as error:
            error.hint = f"{error.hint.removesuffix('.')}. To continue without the state: --no-state"
            raise


FAILOVER: Final = "mirror failover"


@dataclass(frozen=True, slots=True, kw_only=True)
class EmergencyRun(SiteOptions):
    """Runs the actions of an emergency command, which does not use the files."""

    command: str
    lock_timeout_s: float
    report: Callable[[Event], None]
    stop: Stop

    def read_snapshot(self, site: Site) -> Snapshot | None:
        """Read the state, if any."""
        if self.no_state:
            return None
        require_state(site)
        return read_state(site)

    def run_actions(
        self, site: Site, clusters: AbstractSet[str], decide: Callable[[Snapshot | None], Sequence[Action]]
    ) -> Mapping[str, ReconcilerError]:
        """Run what `decide` returns; return errors by action id."""

        def decide_now(basis: DecisionBasis) -> RunWork:
            actions = () if basis.is_second_round else tuple(decide(None if self.no_state else basis.snapshot))
            return RunWork(actions, compute_digest(actions))

        def report_event(event: Event) -> None:
            if not (self.no_state and isinstance(event, RunHandedOver | Summary)):
                self.report(event)

        wish = RunRequest(
            command=self.command,
            options=RunOptions(parallelism=1 if self.no_state else 2, lock_timeout_s=self.lock_timeout_s),
            skips_address=lambda address: cluster_of(address) not in clusters,
        )
        try:
            result = run_under_lease(
                site, wish, decide_now, report=report_event, stop=self.stop, keeps_state=not self.no_state
            ).result
        except LeaseError as error:
            if self.command == FAILOVER:
                # A failover must not wait for the lease.
                error.hint = f"In an emergency, --no-state does it now, without the lease. {error.hint}"
            raise
        return {} if result is None else _collect_errors(result)


def _collect_errors(result: RunResult) -> dict[str, ReconcilerError]:
    errors: dict[str, ReconcilerError] = {item.id: item.error for item in result.failed}
    errors |= {item.id: _skipped_error(item.because) for item in result.skipped}
    return errors | {name: _not_begun_error() for name in result.not_started}


def _not_begun_error() -> IncompleteError:
    return IncompleteError("stopped before it was begun", hint="Run the same command again.")


def _skipped_error(because: str) -> ReconcilerError:
    return UserError(f"not begun: {because} failed", hint="Fix that first.")


def require_confirmation(is_confirmed: bool) -> None:  # noqa: FBT001 - the answer is the only argument
    """Raise if the user did not confirm."""
    if not is_confirmed:
        raise UserError("not confirmed: nothing was done", hint="Only 'yes' confirms.")


def summarize_errors(
    verb: str, errors: Sequence[ReconcilerError | None], what: str, *, is_rehearsal: bool
) -> ReconcilerError | None:
    """Return one error for all failed orders, or `None`. `errors` has an entry per order, `None` for success."""
    failed = [error for error in errors if error is not None]
    if not failed or len(errors) == 1:
        return failed[0] if failed else None
    message = f"{verb}: {len(failed)} of {len(errors)} {what} were refused or failed"
    hint = "The reason is shown above for each of them."
    if len(failed) == len(errors):
        return UserError(message, hint=hint)
    return PartialError(
        message, hint=f"{hint} {'Nothing was done: it is a rehearsal.' if is_rehearsal else 'The others succeeded.'}"
    )
