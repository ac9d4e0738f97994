"""What the forked runs of the crash tests do: apply, and look whether all is well."""

from __future__ import annotations

import asyncio
import os
import sys
import time
import traceback
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import uuid_utils

from reconciler.cli.main import main
from reconciler.operations.apply import ApplyOptions, Hooks, apply
from reconciler.operations.plan import plan
from reconciler.operations.steps.invocation import Invocation, Select
from reconciler.operations.steps.observe import observe
from reconciler.operations.steps.runner import Stop
from reconciler.operations.steps.workspace import Work, open_work
from reconciler.runtime.thread_effects import ThreadEffects
from reconciler.state.lockfile import read_lockfile
from reconciler.state.repair import UnlockRequest, unlock
from reconciler.state.snapshots import read_snapshot

WORK_IS_LEFT = 4
ANYTHING = Select(allow=tuple(f"{verb}:*" for verb in ("create", "update", "delete", "adopt", "forget")))


def invocation(folder: Path) -> Invocation:
    return Invocation(
        cwd=folder,
        environ={},
        now_ms=lambda: time.time_ns() // 1_000_000,
        new_id=lambda: str(uuid.uuid4()),
        new_run=lambda: str(uuid_utils.uuid7()),
        tool="soak",
        who="soak@here",
    )


def run_apply(folder: Path) -> None:
    """Free the lease a killed run left, as `state unlock RUN` does, then `apply --yes`."""
    here = invocation(folder)
    store = open_work(here, ANYTHING).state
    found = read_lockfile(store)
    if found is not None and found.lockfile.lease.status == "held":
        effects = ThreadEffects(1)
        asyncio.run(unlock(store, effects, UnlockRequest(run=found.lockfile.lease.run)))
        effects.close()
    done = apply(here, ANYTHING, ApplyOptions(yes=True), Hooks(lambda _: True, lambda _: None, Stop()))
    if done.verdict is not None:
        raise done.verdict


def command_line(folder: Path, said: Path, *options: str) -> None:
    """Run the very command a person types, its output in `said`."""
    sys.stdout = sys.stderr = said.open("w")
    allowed = [word for allow in ANYTHING.allow for word in ("--allow", allow)]
    code = main(["apply", "--yes", "--workspace", str(folder), *allowed, *options])
    sys.stdout.flush()
    os._exit(code)


def is_left_well(folder: Path, said: Path, code: int) -> None:
    """Whoever was asked to stop left a free lease, no traceback, and an open run exactly where work is left (4)."""
    assert "Traceback" not in said.read_text(), said.read_text()
    found = read_lockfile(open_work(invocation(folder), ANYTHING).state)
    if found is not None:
        assert found.lockfile.lease.status == "free"
        assert (found.lockfile.open_run is not None) == (code == WORK_IS_LEFT)


def check(folder: Path) -> None:
    """The plan is empty, the lease is free, and the state says of every resource what its cluster says."""
    here = invocation(folder)
    planned = plan(here, ANYTHING).plan
    problems = [action.id for action in planned.actions] + [finding.message for finding in planned.errors]
    problems += _differences(open_work(here, ANYTHING))
    if problems:
        raise AssertionError("\n".join(problems))


def _differences(work: Work) -> Iterator[str]:
    found, snapshot = read_lockfile(work.state), read_snapshot(work.state)
    assert found is not None
    assert snapshot is not None
    if found.lockfile.lease.status != "free" or found.lockfile.open_run is not None:
        yield f"the lease is {found.lockfile.lease}"
    seen = observe(work.providers, sorted(work.clusters), snapshot.record).inventory
    on_clusters = [address for address in work.loaded.desired if address.startswith(("namespace/", "topic/"))]
    for address in on_clusters:
        recorded, observed = snapshot.record.get(address), seen.get(address)
        if recorded is None or observed is None:
            yield f"{address}: recorded {recorded is not None}, on the cluster {observed is not None}"
        elif recorded.incarnation != observed.incarnation:
            yield f"{address}: recorded {recorded.incarnation}, on the cluster {observed.incarnation}"
    for address in snapshot.record:
        if address not in work.loaded.desired:
            yield f"{address} is recorded and not declared"


def fork(act: Callable[[], None], said: Path) -> int:
    """Run `act` in a child and return its id; what goes wrong in it is written to `said`."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        act()
        code = 0
    except BaseException:  # noqa: BLE001 - a child of fork must end here, whatever happened
        said.write_text(traceback.format_exc())
    finally:
        os._exit(code)


def ended(pid: int) -> int:
    """Wait for a child; return its exit code, negative where a signal ended it."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def succeed(act: Callable[[], None], said: Path, what: str) -> None:
    """Run `act` in a child that must end well, or end this program saying why not."""
    must_be_one_of((0,), ended(fork(act, said)), said, what)


def must_be_one_of(codes: tuple[int, ...], code: int, said: Path, what: str) -> None:
    """End this program, saying why, if a child ended otherwise than it may."""
    if code not in codes:
        sys.exit(f"{what} ended with {code}:\n{said.read_text() if said.exists() else ''}")
