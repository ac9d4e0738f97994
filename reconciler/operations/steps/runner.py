"""Run a plan under the lease, stop it from outside; emergency runs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Final, assert_never

from reconciler.applying.engine import RunResult
from reconciler.applying.events import Detached, Event, Summary
from reconciler.applying.ports import Setting
from reconciler.applying.run import Basis, Caller, Decide, Ended, Run, RunOptions, RunRequest, ToDo
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
from reconciler.operations.steps.observe import check_answers, recorded_clusters, refuse_another_cluster
from reconciler.operations.steps.recorded import LocalSpool, check_state, read_state
from reconciler.operations.steps.workspace import Site, open_at, open_site, open_work
from reconciler.planning.actions import Action, Adopt, Create, Delete, Forget, RunJob, Transition, Update
from reconciler.planning.plan_rows import digest
from reconciler.planning.record import owned_keys
from reconciler.planning.situation import IMPLIED
from reconciler.resources.address import Address, cluster_address, cluster_of, kind_of
from reconciler.resources.owners import OwnerChange, ResourceOwner, owned_as
from reconciler.runtime.threads import ThreadEffects
from reconciler.state.lease import Claim
from reconciler.state.lockfile import Terms

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
) -> Ended:
    """Do what `decide` makes of the state under the lease; its `result` is `None` where that is nothing.

    `decide` may raise: then nothing was done and the lease is free again. Without `keeps_state` the run begins with an
    empty state in memory, so it waits for no store, recovers nothing and tells no cluster who owns what.

    Raises:
        LeaseError: Someone else holds it, or took over on the way.
        InterruptedRunError: Stopped before anything started.
        IncompleteError: What an earlier run left in doubt cannot be settled, or the state can no longer be written.
    """
    effects = ThreadEffects(wish.options.parallelism)
    ownership = Ownership(site)
    try:
        with SparkJobs(site.providers, site.spark, site.invocation) as jobs, stop.ends(effects.hurry):
            setting = Setting(
                state=site.state if keeps_state else _forgotten_state(),
                providers=site.providers,
                jobs=jobs,
                effects=effects,
                report=report,
                stop=stop,
                spool=LocalSpool(site.edge.folder, site.invocation.warn),
                settle=ownership.settle,
            )
            caller = _caller(site, Terms() if keeps_state else _UNENDING)
            return _ended(Run(setting, caller, wish).run(ownership.taking(decide)))
    finally:
        effects.close()


class Ownership:
    """Writes to clusters what a run owns."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._basis: Basis | None = None
        self._is_planned = False
        self._written: dict[str, frozenset[str]] = {}
        """The clusters that a run changes, each with the keys that it lists as ours."""
        self._warned: set[str] = set()

    def taking(self, decide: Decide) -> Decide:
        """Return a `decide` that also takes what the run of a plan changes.

        Raises:
            StalePlanError: Another workspace took some of it after it was planned.
            RetryableError: A cluster does not answer. Nothing was done, and what was taken is free again.
        """

        def decide_and_take(basis: Basis) -> ToDo:
            todo = decide(basis)
            record = basis.snapshot.record
            self._basis, self._is_planned = basis, todo.plan is not None
            clusters = sorted({action.cluster for action in todo.actions if action.cluster is not None})
            new = {
                action.cluster
                for action in todo.actions
                if isinstance(action, Create) and action.cluster is not None and kind_of(action.address) == "cluster"
            }
            self._written = {name: frozenset() if name in new else _recorded(record, name) for name in clusters}
            if todo.plan is not None:
                taken = {**{name: {} for name in new}, **_taken(todo)}
                try:  # New clusters come last: a refusal by another cluster comes before one is made.
                    for cluster, keys in sorted(taken.items(), key=lambda item: (item[0] in new, item[0])):
                        self._take(cluster, keys, record, makes=cluster in new)
                except ReconcilerError:
                    self.settle(record)
                    raise
            return todo

        return decide_and_take

    def settle(self, record: Record) -> None:
        """Let clusters list what is recorded as ours, and nothing else."""
        for cluster, written in self._written.items():
            keys = _recorded(record, cluster)
            if keys == written or cluster in self._warned:
                continue
            try:
                if self._is_planned or self._is_known(cluster):
                    self._own(cluster, {}, keys)
            except ReconcilerError as error:
                self._warn(cluster, error)

    def _take(self, cluster: str, keys: Mapping[str, ResourceOwner | None], record: Record, *, makes: bool) -> None:
        keep = _recorded(record, cluster)
        self._written[cluster] = keep | keys.keys()  # Also if the write gets no answer.
        try:
            refused = self._own(cluster, keys, keep, makes=makes)
        except UnansweredError:
            raise
        except RetryableError:
            self._written[cluster] = keep  # Nothing was written: `settle` does not wait for the cluster again.
            raise
        except UserError as error:
            if makes:  # The action that makes the cluster fails with the same error.
                self._written[cluster] = keep
            else:
                self._warn(cluster, error)
            return
        for key, owner in refused.items():
            kind, _, name = key.partition("/")
            raise StalePlanError(
                f"{kind}/{cluster}/{name} is owned by {owner} since this was planned",
                hint="Nothing was done. Look what is left to do with: reconciler plan",
            )

    def _own(
        self, cluster: str, take: Mapping[str, ResourceOwner | None], keep: frozenset[str], *, makes: bool = False
    ) -> Mapping[str, ResourceOwner]:
        lineage = "" if self._basis is None else self._basis.snapshot.lineage
        return self._site.providers[cluster].own(OwnerChange(self._site.me(lineage), take, keep, makes))

    def _is_known(self, cluster: str) -> bool:
        """Tell whether the cluster that answers is the recorded one."""
        last = None if self._basis is None else self._basis.snapshot.record.get(cluster_address(cluster))
        identity = None if last is None else self._site.providers[cluster].identify()
        return identity is not None and last is not None and last.incarnation == identity.cluster_id

    def _warn(self, cluster: str, error: ReconcilerError) -> None:
        if cluster not in self._warned:
            self._warned.add(cluster)
            self._site.invocation.warn(
                f"cluster {cluster} was not told what this workspace owns: {error.message}. "
                "Nothing else depends on it, but other workspaces do not see who owns it."
            )


def _recorded(record: Record, cluster: str) -> frozenset[str]:
    return frozenset(owned_keys(record, cluster))


def _taken(todo: ToDo) -> dict[str, dict[str, ResourceOwner | None]]:
    """Return what a plan changes, by cluster and key, each with the other owner from whom it may be taken."""
    taken: dict[str, dict[str, ResourceOwner | None]] = {cluster: {} for cluster in todo.unowned}
    for action in todo.actions:
        match action:
            case Create() | Update() | Adopt() | Transition():
                key = None if IMPLIED in action.origins else owned_as(action.address, action.after)
                if key is not None and action.cluster is not None:
                    taken.setdefault(action.cluster, {})[key] = action.owner
            case Delete() | Forget() | RunJob():
                pass
            case _:
                assert_never(action)
    return taken


def _ended(run: Coroutine[object, object, Ended]) -> Ended:
    """Drive a run to its end. Its task returns nothing: the standard library would write out all of it, twice."""
    found: list[Ended] = []

    async def drive() -> None:
        found.append(await run)

    asyncio.run(drive())
    return found[0]


def _forgotten_state() -> ObjectStore:
    from reconciler.objectstore.memory import MemoryStore  # noqa: PLC0415 - only a run without a state needs it

    return MemoryStore()


_UNENDING: Final = Terms(lease_s=365 * 86_400)
"""No process waits for the lease of a state in memory, so it outlives a process that is suspended."""


def _caller(site: Site, terms: Terms) -> Caller:
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


# Stopping a run from outside: a signal asks, the run ends by itself at the next safe point.


_LOOK_S: Final = 0.2
"""A signal that comes just before a wait begins does not end it: Python runs its handler when the wait is over."""


class Stop:
    """One request to stop, for one process; safe to call from a signal handler and from any thread.

    A flag and a queue, whose `put` may interrupt its own `get`; an event may not: its lock would be waited for forever.
    """

    def __init__(self) -> None:
        self._is_requested = False
        self._bell: SimpleQueue[None] = SimpleQueue()
        self._enders: list[Callable[[], None]] = []

    @property
    def is_requested(self) -> bool:
        """Tell whether somebody asked."""
        return self._is_requested

    def request(self) -> bool:
        """Ask; return whether a run is under way that now ends by itself."""
        self._is_requested = True
        self._bell.put(None)
        for end in tuple(self._enders):
            end()
        return bool(self._enders)

    def wait(self, seconds: float) -> bool:
        """Wait until somebody asks, at most this long; return whether somebody did."""
        left = seconds
        while left > 0 and not self._is_requested:
            try:
                self._bell.get(timeout=min(left, _LOOK_S))
            except Empty:
                left -= _LOOK_S
            else:
                self._bell.put(None)  # for the process that else waits
        return self._is_requested

    @contextmanager
    def ends(self, end: Callable[[], None]) -> Iterator[None]:
        """Call `end` when somebody asks while the block runs; at once where somebody already has."""
        self._enders.append(end)
        try:
            if self.is_requested:
                end()
            yield
        finally:
            self._enders.remove(end)


@contextmanager
def reading(jobs: SparkJobs, stop: Stop) -> Iterator[None]:
    """Let a signal end jobs that only read: Spark is told, where an exception in the middle of a call would be a page.

    Raises:
        InterruptedRunError: Somebody asked.
    """
    failed: Exception | None = None
    with stop.ends(jobs.stop):
        try:
            yield
        except Exception as error:  # noqa: BLE001 - what a stopped job raises is as good as nothing
            failed = error
    if jobs.is_stopped:  # Also where it came to an end: it may have left something out.
        raise InterruptedRunError("Interrupted", hint="Nothing was changed") from failed
    if failed is not None:
        raise failed


# How a command that plans nothing gets at clusters: its files may be broken or gone.


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteOptions:
    """How a command gets at clusters: by the files of a workspace or, where those are gone, by what a state recorded.

    Nothing that is done to a migration is in any state: a migration is the cluster's own, and whoever drives it may
    hold the lease while another process stops it.
    """

    invocation: Invocation
    select: Select
    state_url: str | None = None
    no_state: bool = False
    """Whether to go on without the state that says which cluster each should be."""
    at: Sequence[str] | None = None
    """Clusters by `--cluster`, in place of files and a state; `None`: the command has no such option."""

    def site(self, *, is_reader: bool = False) -> Site:
        """Open where it happens; touches no cluster.

        Raises:
            UserError: There is no workspace here, or no state there.
        """
        if self.at:
            return open_at(self.invocation, self.at)
        if self.state_url is not None:
            return open_site(self.invocation, self.state_url, is_reader=is_reader)
        try:
            return open_work(self.invocation, self.select, is_reader=is_reader)
        except UserError as error:
            ways = "--state URL, as `spec.state` has it"
            if self.at is not None:
                ways = f"{ways}, or --no-state --cluster NAME=URL"
            error.hint = f"{error.hint.removesuffix('.')}. To go on without the files: {ways}"
            raise

    def recorded(self, site: Site) -> Mapping[Address, str | None]:
        """Return which clusters these should be."""
        return {} if self.no_state else recorded_clusters(site)

    def check_answers(self, site: Site, cluster: str) -> None:
        """Return if the cluster of that name answers and, as far as that is asked, is the recorded one.

        Raises:
            UserError: Another one answers, or there is none of that name.
            RetryableError: It cannot be reached, or it is recorded and nothing is there.
        """
        check_answers(site, cluster, self.recorded(site))

    def check_writable(self, site: Site, cluster: str) -> None:
        """Return if the cluster of that name may be written to.

        Raises:
            UserError: Another one answers in its place, or the state that says which it is cannot be read.
            RetryableError: It is recorded, and nothing is there.
        """
        refuse_another_cluster(site, cluster, None if self.no_state else self._state(site))

    @staticmethod
    def _state(site: Site) -> Snapshot | None:
        try:
            return read_state(site)
        except ReconcilerError as error:
            error.hint = f"{error.hint.removesuffix('.')}. To go on without the state: --no-state"
            raise


# What a command does at once: an ordinary run, with the recorded state or with one in memory.


FAILOVER: Final = "mirror failover"


@dataclass(frozen=True, slots=True, kw_only=True)
class Emergency(SiteOptions):
    """How a command acts at once."""

    command: str
    lock_timeout_s: float
    report: Callable[[Event], None]
    stop: Stop

    def snapshot(self, site: Site) -> Snapshot | None:
        """Return the state, which says what this workspace owns; `None`: it is done without one.

        Raises:
            UserError: The state is gone, damaged, or another workspace's.
        """
        if self.no_state:
            return None
        check_state(site)
        return read_state(site)

    def carry_out_each(
        self, site: Site, clusters: AbstractSet[str], decide: Callable[[Snapshot | None], Sequence[Action]]
    ) -> Mapping[str, ReconcilerError]:
        """Do what `decide` makes of the state (`None`: without one); return why actions were not done, by their ids.

        Raises:
            LeaseError: Someone else is applying.
        """

        def decide_now(basis: Basis) -> ToDo:
            actions = () if basis.is_again else tuple(decide(None if self.no_state else basis.snapshot))
            return ToDo(actions, digest(actions))

        def report(event: Event) -> None:
            if not (self.no_state and isinstance(event, Detached | Summary)):  # Both name a state that is kept.
                self.report(event)

        wish = RunRequest(
            command=self.command,
            options=RunOptions(parallelism=1 if self.no_state else 2, lock_timeout_s=self.lock_timeout_s),
            # In an emergency another cluster may be the very one that does not answer.
            gives_up=lambda address: cluster_of(address) not in clusters,
        )
        try:
            result = run_under_lease(
                site, wish, decide_now, report=report, stop=self.stop, keeps_state=not self.no_state
            ).result
        except LeaseError as error:
            if self.command == FAILOVER:  # The one verb that is for the day on which nobody can wait.
                error.hint = f"In an emergency, --no-state does it now, without the lease. {error.hint}"
            raise
        return {} if result is None else _undone(result)


def _undone(result: RunResult) -> dict[str, ReconcilerError]:
    """Return why actions of a run are not done, or not known to be."""
    found: dict[str, ReconcilerError] = {item.id: item.error for item in result.failed}
    found |= {item.id: _skipped(item.because) for item in result.skipped}
    return found | {name: _not_begun() for name in result.not_started}


def _not_begun() -> IncompleteError:
    return IncompleteError("stopped before it was begun", hint="Give the same command again.")


def _skipped(because: str) -> ReconcilerError:
    return UserError(f"not begun: {because} failed", hint="Fix that first.")


def require_confirmation(is_confirmed: bool) -> None:  # noqa: FBT001 - the answer is all there is
    """Go on where it was confirmed.

    Raises:
        UserError: It was not.
    """
    if not is_confirmed:
        raise UserError("not confirmed: nothing was done", hint="Only 'yes' confirms.")


def verdict_on_each(
    verb: str, errors: Sequence[ReconcilerError | None], what: str, *, is_rehearsal: bool
) -> ReconcilerError | None:
    """Return the error to end with, where not all of several were done; `errors` has one for each of them, or `None`.

    `what` are they, as a plural.
    """
    failed = [error for error in errors if error is not None]
    if not failed or len(errors) == 1:
        return failed[0] if failed else None
    message = f"{verb}: {len(failed)} of {len(errors)} {what} were refused or failed"
    hint = "The reason is shown above for each of them."
    if len(failed) == len(errors):
        return UserError(message, hint=hint)
    return PartialError(
        message, hint=f"{hint} {'Nothing was done: it is a rehearsal.' if is_rehearsal else 'The others are done.'}"
    )
