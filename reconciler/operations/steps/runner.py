"""Run a plan under the lease, stop it from outside; emergency runs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Final, assert_never

from reconciler.applying.engine import RunResult
from reconciler.applying.events import ActionFailed, Detached, Event, Summary
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
from reconciler.manifests.load import Loaded, explain_origin
from reconciler.operations.steps.jobs import SparkJobs
from reconciler.operations.steps.observe import check_answers, recorded_clusters, refuse_another_cluster
from reconciler.operations.steps.recorded import check_state, read_state
from reconciler.operations.steps.workspace import Site, Work, open_at, open_site, open_work
from reconciler.planning.actions import Action, Adopt, Create, Delete, Forget, RunJob, Transition, Update
from reconciler.planning.plan_rows import digest
from reconciler.planning.record import owned_keys
from reconciler.planning.situation import IMPLIED
from reconciler.resources.address import (
    Address,
    address_of,
    cluster_address,
    cluster_of,
    full_name_of,
    kind_of,
    split_name,
    tiers_of,
)
from reconciler.resources.owners import OwnerChange, ResourceOwner, owned_as
from reconciler.runtime.threads import ThreadEffects
from reconciler.state.lease import Claim
from reconciler.state.lockfile import Terms
from reconciler.state.spool import LocalSpool

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
    owning = _Owning(site)
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
                settle=owning.settle,
            )
            caller = _caller(site, Terms() if keeps_state else _UNENDING)
            return _ended(Run(setting, caller, wish).run(owning.deciding(decide)))
    finally:
        effects.close()


class _Owning:
    """Tells clusters what a run owns: what it is about to change before it begins, and at its end what that came to."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._basis: Basis | None = None
        self._is_planned = False
        self._said: dict[str, frozenset[str]] = {}
        """The clusters that a run acts on, each with what it says of us as far as we know."""
        self._warned: set[str] = set()

    def deciding(self, decide: Decide) -> Decide:
        """Return what decides the same, and takes what is to be changed.

        Raises:
            StalePlanError: Another workspace owns some of it since it was planned.
            RetryableError: A cluster does not answer. Nothing was done, and nothing stays taken.
        """

        def decide_and_take(basis: Basis) -> ToDo:
            todo = decide(basis)
            self._basis, self._is_planned = basis, todo.plan is not None
            clusters = sorted({action.cluster for action in todo.actions if action.cluster is not None})
            made = {action.cluster for action in todo.actions if isinstance(action, Create) and _is_cluster(action)}
            self._said = {
                name: frozenset() if name in made else self._recorded(basis.snapshot.record, name) for name in clusters
            }
            if todo.plan is not None:
                taken = {**{name: {} for name in made if name is not None}, **_taken(todo)}
                try:  # Clusters are made last: what another took is known by then.
                    for cluster, keys in sorted(taken.items(), key=lambda each: (each[0] in made, each[0])):
                        self._take(cluster, keys, basis.snapshot.record, makes=cluster in made)
                except ReconcilerError:
                    self.settle(basis.snapshot.record)
                    raise
            return todo

        return decide_and_take

    def settle(self, record: Record) -> None:
        """Let clusters say that all that is recorded is ours, and that the rest of what was ours is free."""
        for cluster, said in self._said.items():
            keys = self._recorded(record, cluster)
            if keys == said or cluster in self._warned:
                continue
            try:
                if self._is_planned or self._is_known(cluster):
                    self._own(cluster, {}, keys)
            except ReconcilerError as error:
                self._warn(cluster, error)

    def _take(self, cluster: str, keys: Mapping[str, ResourceOwner | None], record: Record, *, makes: bool) -> None:
        keep = self._recorded(record, cluster)
        self._said[cluster] = keep | keys.keys()  # also where a write has no answer
        try:
            refused = self._own(cluster, keys, keep, makes=makes)
        except UnansweredError:
            raise
        except RetryableError:
            self._said[cluster] = keep  # Nothing was written: a cluster that is down is not waited for once more.
            raise
        except UserError as error:
            if makes:  # The action that makes the cluster fails by the same, and says so.
                self._said[cluster] = keep
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

    def _recorded(self, record: Record, cluster: str) -> frozenset[str]:
        return frozenset(owned_keys(record, cluster))

    def _is_known(self, cluster: str) -> bool:
        """Tell whether the cluster that answers is the one the state is about."""
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


def _is_cluster(action: Action) -> bool:
    return kind_of(action.address) == "cluster"


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


# Refusals of platforms with the line of the files that they are about.


_MOST: Final = 50
"""Addresses whose files are read again: a person reads the first few refusals."""
_KEYED: Final = ("spec.configs.", "spec.properties.")


@dataclass
class Placing:
    """Where in the files that were loaded a config or property is written that a platform names in its refusal."""

    loaded: Loaded
    _written: dict[Address, dict[str, str]] = field(default_factory=dict)

    def told(self, address: Address, message: str) -> str:
        """Return a refusal with its line before it, or as it is where it names nothing that is written."""
        for owner in _owners(address):
            for key, place in self._keys(owner).items():
                if key in message:
                    return f"{place}: {message}"
        return message

    def reporting(self, report: Callable[[Event], None]) -> Callable[[Event], None]:
        """Return what reports the same events, failures with their lines."""

        def say(event: Event) -> None:
            if isinstance(event, ActionFailed):
                event = replace(event, error=self.told(event.address, event.error))
            report(event)

        return say

    def _keys(self, owner: Address) -> dict[str, str]:
        """Return the keys that are written for an address with their places, those with the longest names first."""
        if owner not in self._written:
            if owner not in self.loaded.places or len(self._written) >= _MOST:
                return {}
            found = {
                path.removeprefix(group): place
                for path, place in explain_origin(self.loaded, owner).items()
                for group in _KEYED
                if path.startswith(group)
            }
            self._written[owner] = dict(sorted(found.items(), key=lambda each: (-len(each[0]), each[0])))
        return self._written[owner]


def _owners(address: Address) -> Iterator[Address]:
    """Yield what may say a config of an address, the nearest first."""
    yield address
    if kind_of(address) == "topic":
        namespace, _ = split_name(full_name_of(address))
        for tier in reversed(list(tiers_of(namespace))):
            yield address_of("namespace", cluster_of(address) or "", tier)


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

    def site(self, *, is_reader: bool = False) -> Site:
        """Open where it happens; touches no cluster.

        Raises:
            UserError: There is no workspace here, or no state there.
        """
        if self.state_url is None:
            return _open_work(self.invocation, self.select, is_reader=is_reader)
        return open_site(self.invocation, self.state_url, is_reader=is_reader)

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


def _open_work(invocation: Invocation, select: Select, *, is_reader: bool = False) -> Work:
    try:
        return open_work(invocation, select, is_reader=is_reader)
    except UserError as error:
        way = "--state URL, as `spec.state` has it"
        error.hint = f"{error.hint.removesuffix('.')}. To go on without the files: {way}"
        raise


# What is done now and told to the files later: an ordinary run under the lease, or done without asking any state.


FAILOVER: Final = "mirror failover"


@dataclass(frozen=True, slots=True, kw_only=True)
class Emergency:
    """How a command acts at once. `state_url` stands in for a workspace: connections come from what is recorded."""

    invocation: Invocation
    select: Select
    command: str
    no_state: bool
    state_url: str | None
    lock_timeout_s: float
    report: Callable[[Event], None]
    stop: Stop
    at: Mapping[str, str] = field(default_factory=dict)
    """Where clusters are, by name: it stands in for a workspace where there is neither one nor a state."""

    def open(self) -> Site:
        """Open where it happens; touches no cluster.

        Raises:
            UserError: There is no workspace here, or no state there.
        """
        if self.at:
            return open_at(self.invocation, self.at)
        if self.state_url is not None:
            return open_site(self.invocation, self.state_url)
        return _open_work(self.invocation, self.select)

    def site(self, cluster: str) -> Site:
        """Open where it happens, and look that the cluster it happens to is the recorded one.

        Raises:
            UserError: Another one answers in its place.
            RetryableError: It is recorded, and nothing is there.
        """
        site = self.open()
        self.check(site, cluster)
        return site

    def check(self, site: Site, cluster: str) -> None:
        """Return if the cluster it happens to is the recorded one, as far as that is asked.

        Raises:
            UserError: Another one answers in its place.
            RetryableError: It cannot be reached, or it is recorded and nothing is there.
        """
        if not self.no_state:
            check_answers(site, cluster)

    def clusters(self, site: Site) -> Mapping[Address, str | None]:
        """Return which clusters these should be, as far as that is asked."""
        return {} if self.no_state else recorded_clusters(site)

    def recorded(self, site: Site) -> Record | None:
        """Return what this workspace owns; `None`: it is done without a state.

        Raises:
            UserError: The state is gone, damaged, or another workspace's.
        """
        if self.no_state:
            return None
        check_state(site)
        snapshot = read_state(site)
        return None if snapshot is None else snapshot.record

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
