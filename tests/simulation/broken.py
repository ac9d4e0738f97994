"""Deliberately broken variants of the core: each leaves out one rule, and the simulation must notice."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import orjson

from reconciler.applying import recovery
from reconciler.applying.engine import RunLease
from reconciler.errors import LeaseError, LostRaceError
from reconciler.objectstore import memory
from reconciler.state.journal import ActionEnded, Entry, Intent, JournalContents, read_journal
from reconciler.state.lease import Lease, LeaseWatch
from reconciler.state.lockfile import KEY, Lockfile, StoredLockfile, read_lockfile
from tests.simulation.works import ROUND, LedgerJobs, ranges_of

if TYPE_CHECKING:
    from reconciler.objectstore.base import ObjectStore, StoredObject, Version
    from reconciler.planning.actions import RunJob
    from reconciler.runtime.effects import Effects
    from tests.simulation.machine import Harm


@dataclass(frozen=True, slots=True)
class Broken:
    """A variant: what is put in place of what, what shows it, and what must notice."""

    where: Any
    name: str
    by: Any
    noticed_as: frozenset[str]
    harm: Harm
    seconds: float = 0.0
    resumes: bool = False
    is_clock_standing: bool = False

    @contextmanager
    def applied(self) -> Iterator[None]:
        with patch.object(self.where, self.name, self.by):
            yield


async def _no_fence(lease: Lease, effects: Effects, run: str) -> JournalContents:
    return await effects.run_blocking(lambda: read_journal(lease.store, run))


def _any_body(key: str, _body: bytes, found: StoredObject | None) -> Version:
    if found is None:
        raise LostRaceError(key, None, hint="Read it again.")
    return found.version


def _blindly_again(self: Lease, store: ObjectStore, _after: Lockfile) -> StoredLockfile:
    found = read_lockfile(store)
    assert found is not None
    return StoredLockfile(self._current.lockfile, found.version)


async def _no_second_intent(self: RunLease, entries: Sequence[Entry]) -> None:
    store: ObjectStore = self._lease.store._inner  # type: ignore[attr-defined] # seen by nobody
    runs = {listed.key.split("/")[1] for listed in store.list("runs/")} - {self._journal.run}
    had = {each.id for run in runs for each in read_journal(store, run).entries if isinstance(each, Intent)}
    await self._journal.append([each for each in entries if not (isinstance(each, Intent) and each.id in had)])


async def _done_too_early(self: RunLease, entries: Sequence[Entry]) -> None:
    async def later() -> None:
        await self._effects.sleep(0.05)
        with suppress(LeaseError):
            await self._journal.append(entries)

    if all(isinstance(entry, ActionEnded) for entry in entries):
        self._effects.start_task(later())
    else:
        await self._journal.append(entries)


async def _deleting(self: Lease, record: Any, **_: bool) -> int:
    if record is not None:
        await self.commit(record)
    await self._effects.run_blocking(lambda: self._store.delete([KEY]))
    self._stop_renewing()
    return self.lockfile.serial


def _by_their_clock(_: LeaseWatch, lockfile: Lockfile, **times: float) -> float:
    since = datetime.strptime(f"{lockfile.lease.since}+0000", "%Y-%m-%dT%H:%M:%SZ%z")
    return times["answered"] - (since - datetime.fromisoformat("2026-01-01T00:00:00+00:00")).total_seconds()


async def _looks_nowhere(
    _: recovery.Recovery, in_doubt: Sequence[Any], *_more: Any
) -> tuple[list[Entry], Mapping[str, str]]:
    return [], {action.id: "absent" for action in in_doubt}


def _publishing_blindly(self: LedgerJobs, job: RunJob, start: int) -> int:
    ranges = [*ranges_of(self._ledger.get(job.sink)), [start, start + ROUND]]
    self._ledger.put(job.sink, orjson.dumps(ranges))
    return ROUND


FENCED = frozenset({"journals_are_fenced", "journals_are_in_order"})
GROWING = frozenset({"epochs_grow", "serials_grow"})

VARIANTS: Mapping[str, Broken] = {
    "no fence": Broken(recovery, "take_over_journal", _no_fence, FENCED, "freeze", 27.0, resumes=True),
    "no nonce": Broken(memory, "verify_own_write", _any_body, GROWING | FENCED, "freeze", 27.0),
    "blind retry of swaps": Broken(
        Lease, "_find_own_write", _blindly_again, GROWING, "freeze", 27.0, is_clock_standing=True
    ),
    "redo without intent": Broken(
        RunLease, "write", _no_second_intent, frozenset({"every_act_has_an_intent"}), "crash"
    ),
    "done before it is durable": Broken(RunLease, "write", _done_too_early, frozenset({"dependents_wait"}), "crash"),
    "release by deleting": Broken(Lease, "close", _deleting, GROWING, "crash"),
    "expiry by their clock": Broken(
        LeaseWatch, "measure_idle_s", _by_their_clock, frozenset({"only_the_holder_writes"}), "freeze", 0.5
    ),
    "doubt taken for nothing": Broken(
        recovery.Recovery, "settle", _looks_nowhere, frozenset({"nothing_is_forgotten"}), "crash"
    ),
    "publishing without looking": Broken(
        LedgerJobs, "_round", _publishing_blindly, frozenset({"ranges_are_published_once"}), "freeze", 27.0
    ),
}
