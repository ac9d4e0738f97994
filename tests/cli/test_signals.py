"""Signals: the first lets a run end by itself, the second leaves at once, and no two of them hang a process."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from reconciler.objectstore.directory import DirectoryStore
from reconciler.objectstore.open import open_store
from reconciler.operations.steps import jobs
from reconciler.runtime import thread_effects
from reconciler.runtime.thread_effects import ThreadEffects
from reconciler.state.lease import acquire
from reconciler.state.lockfile import Lockfile, Owner, read_lockfile
from tests.cli.conftest import COMMAND, Run, environment
from tests.servers.proxy import Cut, Mute, Proxy, Slow
from tests.soak.runs import check, run_apply
from tests.state.samples import claim

if TYPE_CHECKING:
    from tests.servers.weed import S3Server

pytestmark = pytest.mark.thorough


LEFT_AT_ONCE = 130

# A run that was asked to end and never does; it says when it is asked.
STUBBORN = """
import sys, time
from reconciler.cli import signals

class Stubborn:
    def request(self):
        print("asked", flush=True)
        return True

signals.install_handlers()
with signals.forward_signals(Stubborn()):
    print("under way", flush=True)
    while True:
        sys.stdin.read(1)
"""

# Asked again and again from a handler, while the same thread goes in and out of what it waits with.
REENTERED = """
import signal
from reconciler.operations.steps.runner import Stop

stops = [Stop()]
signal.signal(signal.SIGALRM, lambda *_: stops[-1].request())
signal.setitimer(signal.ITIMER_REAL, 1e-4, 1e-4)
for _ in range(3000):
    stops.append(Stop())
    stops[-1].wait(2e-4)
    stops[-1].request()
    assert stops[-1].wait(60)
signal.setitimer(signal.ITIMER_REAL, 0)
"""


@pytest.mark.parametrize("second", [signal.SIGINT, signal.SIGTERM])
def test_the_second_signal_leaves_at_once(second: signal.Signals) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", STUBBORN], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == b"under way\n"
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == b"asked\n"
        process.send_signal(second)
        assert process.wait(timeout=60) == LEFT_AT_ONCE
        assert b"ended at once" in process.stderr.read()


def test_asking_may_interrupt_whoever_waits_or_asks() -> None:
    assert subprocess.run([sys.executable, "-c", REENTERED], timeout=60, check=False).returncode == 0


@pytest.mark.parametrize("pairs", [3, pytest.param(30, marks=pytest.mark.soak)])
def test_pairs_of_signals_never_hang_a_run_at_an_interval(run: Run, tmp_path: Path, pairs: int) -> None:
    assert run("init").returncode == 0
    assert run("apply", "--yes").returncode == 0
    codes = [_signalled_twice(tmp_path) for _ in range(pairs)]
    # One that comes when the run has ended already finds nothing to end.
    assert set(codes) <= {0, LEFT_AT_ONCE}, codes
    assert LEFT_AT_ONCE in codes


def _signalled_twice(folder: Path) -> int:
    with subprocess.Popen(
        [*COMMAND, "run", "--interval", "1h", "--only", "sweep"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd=folder,
        env=environment(),
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith(b"pass 1: ")
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGTERM)
        try:
            return process.wait(timeout=60)
        finally:
            process.kill()


# `apply` asked to stop at named moments, by real signals: it ends by itself in time, and the next run goes on.


INCOMPLETE, INTERRUPTED = 4, 130
DEADLINE_S = 60.0
WITHIN_S = 5.0
"""It is done in three; a pipeline kills after seven, and the machine of a test may be busy."""
NEVER_S = 3600.0

WORKSPACE = """\
apiVersion: reconciler/v1
kind: Workspace
metadata: {{name: shop}}
spec: {{state: "{state}"}}
"""
TOPICS = """\
apiVersion: reconciler/v1
kind: Cluster
metadata: {{name: west}}
spec: {{embedded: {{root: "{root}"}}}}
---
apiVersion: reconciler/v1
kind: Topic
metadata: {{name: orders, cluster: west}}
spec: {{partitions: 2}}
"""


def test_what_a_run_is_given_to_end_adds_up_to_less_than_three_seconds() -> None:
    assert thread_effects._RUNNING_CALL_S < thread_effects._ENDING_CALL_S
    assert thread_effects._ENDING_CALL_S + jobs._STOP_WAIT_S < 3


@dataclass
class Place:
    """A workspace whose state and cluster lie behind a proxy; what hangs is told by part of its key."""

    folder: Path
    url: str
    server: S3Server
    proxy: Proxy

    @property
    def environ(self) -> dict[str, str]:
        return environment(**self.server.environ(endpoint=self.proxy.endpoint))

    def hang(self, method: str, key: str, *, after: int = 0, is_done: bool = False) -> threading.Event:
        """Never answer the next request of such a key but `after` many; return what is set when it has come."""
        reached = threading.Event()
        if after:
            self.proxy.let_pass(method, after, key=key)
        hung = Slow(NEVER_S, then=reached.set) if is_done else Mute(then=reached.set)
        self.proxy.on(method, hung, key=key, times=1_000)
        return reached

    def stopped_at(self, reached: threading.Event, *arguments: str, by: signal.Signals) -> tuple[int, str]:
        """Start the command, signal it at a moment, and return its exit code and what it said; it ended in time."""
        with subprocess.Popen(
            [*COMMAND, *arguments],
            cwd=self.folder,
            env=self.environ,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            assert reached.wait(DEADLINE_S)
            code, said = ended_in_time(process, by)
        self.proxy.heal()
        return code, said

    def lockfile(self) -> Lockfile:
        found = read_lockfile(open_store(self.server.settings(url=f"{self.url}/state")))
        assert found is not None
        return found.lockfile

    def apply(self) -> None:
        """Apply without a process and a proxy; where somebody left the lease held, it is freed first."""
        run_apply(self.folder)

    def is_finished_by_the_next(self) -> None:
        """Whatever was left, one more run brings everything to what the files ask for."""
        self.apply()
        check(self.folder)


def ended_in_time(process: subprocess.Popen[str], by: signal.Signals) -> tuple[int, str]:
    began = time.monotonic()
    process.send_signal(by)
    try:
        _, said = process.communicate(timeout=DEADLINE_S)
    finally:
        process.kill()
    assert time.monotonic() - began < WITHIN_S, said
    assert "Traceback" not in said, said
    return process.returncode, said


@pytest.fixture
def place(tmp_path: Path, s3_server: S3Server, s3_environ: dict[str, str]) -> Iterator[Place]:
    assert s3_environ
    url = s3_server.url("stopping")
    write_workspace(tmp_path, state=f"{url}/state", root=f"{url}/west")
    with Proxy(s3_server.endpoint) as proxy:
        yield Place(tmp_path, url, s3_server, proxy)


def write_workspace(folder: Path, *, state: str, root: str) -> None:
    (folder / "manifests").mkdir()
    (folder / "reconciler.yaml").write_text(WORKSPACE.format(state=state))
    (folder / "manifests" / "all.yaml").write_text(TOPICS.format(root=root))


@pytest.mark.parametrize("by", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.soak)])
def test_while_it_waits_for_the_lease_nothing_has_begun(tmp_path: Path, by: signal.Signals) -> None:
    write_workspace(tmp_path, state="file://state", root="file://west")
    effects = ThreadEffects(1)
    holder = claim("holder", owner=Owner("shop"))
    asyncio.run(acquire(DirectoryStore(tmp_path / "state"), effects, holder))
    before = (tmp_path / "state" / "lockfile.json").read_bytes()
    with subprocess.Popen(
        [*COMMAND, "apply", "--yes"],
        cwd=tmp_path,
        env=environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        assert "the lease is held by holder@host" in process.stderr.readline()
        code, said = ended_in_time(process, by)
    assert (code, "stopped while waiting for the lease" in said) == (INTERRUPTED, True)
    assert json.loads((tmp_path / "state" / "lockfile.json").read_bytes())["lease"] == json.loads(before)["lease"]
    effects.close()


@pytest.mark.soak
def test_while_the_state_does_not_answer_nothing_has_begun(place: Place) -> None:
    reached = place.hang("GET", "lockfile.json")
    code, said = place.stopped_at(reached, "apply", "--yes", by=signal.SIGTERM)
    assert (code, "before anything started" in said) == (INTERRUPTED, True)


@pytest.mark.parametrize("is_done", [pytest.param(False, marks=pytest.mark.soak), True])
def test_while_the_lease_is_being_taken_nothing_has_begun(place: Place, *, is_done: bool) -> None:
    reached = place.hang("PUT", "lockfile.json", is_done=is_done)
    code, said = place.stopped_at(reached, "apply", "--yes", by=signal.SIGTERM)
    assert (code, "before anything started" in said) == (INTERRUPTED, True)
    place.is_finished_by_the_next()


def test_while_a_cluster_is_looked_at_nothing_has_begun_and_the_lease_is_free(place: Place) -> None:
    place.apply()
    reached = place.hang("GET", "west/cluster.json")
    code, said = place.stopped_at(reached, "apply", "--yes", by=signal.SIGINT)
    assert (code, "before anything started" in said) == (INTERRUPTED, True)
    assert place.lockfile().lease.status == "free"


@pytest.mark.soak
def test_planning_leaves_a_cluster_that_does_not_answer(place: Place) -> None:
    place.apply()
    reached = place.hang("GET", "west/")
    assert place.stopped_at(reached, "plan", by=signal.SIGINT)[0] == INTERRUPTED


@pytest.mark.parametrize("is_done", [pytest.param(False, marks=pytest.mark.soak), True])
def test_a_call_to_a_platform_that_hangs_stays_in_doubt_and_the_lease_is_free(place: Place, *, is_done: bool) -> None:
    reached = place.hang("PUT", "west/catalog/", after=1, is_done=is_done)
    code, said = place.stopped_at(reached, "apply", "--yes", by=signal.SIGINT)
    assert (code, "apply --resume" in said) == (INCOMPLETE, True)
    assert "whether these happened is not known: create:topic/west/orders" in said
    found = place.lockfile()
    assert (found.lease.status, found.open_run is None) == ("free", False)
    place.is_finished_by_the_next()


def test_a_journal_that_hangs_keeps_nothing_from_ending(place: Place) -> None:
    reached = place.hang("PUT", "/journal/")
    code, said = place.stopped_at(reached, "apply", "--yes", by=signal.SIGTERM)
    assert (code, "the state cannot be written" in said) == (INCOMPLETE, True)
    assert place.lockfile().lease.status == "free"
    place.is_finished_by_the_next()


def test_a_lockfile_that_hangs_at_the_end_leaves_the_lease_and_says_how_to_free_it(place: Place) -> None:
    reached = place.hang("PUT", "lockfile.json", after=2)  # the lease is taken and the run is open
    code, said = place.stopped_at(reached, "apply", "--yes", by=signal.SIGTERM)
    assert code == INCOMPLETE
    run = place.lockfile().lease.run
    assert f"state unlock {run[-8:]}" in said
    place.is_finished_by_the_next()


def test_the_second_signal_leaves_at_once_and_the_next_run_goes_on(place: Place) -> None:
    reached = place.hang("PUT", "west/catalog/")
    with subprocess.Popen(
        [*COMMAND, "apply", "--yes"], cwd=place.folder, env=place.environ, stderr=subprocess.PIPE, text=True
    ) as process:
        assert reached.wait(DEADLINE_S)
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=DEADLINE_S)
    assert (process.returncode, "ended at once" in said) == (INTERRUPTED, True)
    place.proxy.heal()
    place.is_finished_by_the_next()


KILLED = [
    *((key, Cut(body=0)) for key in ("lockfile.json", "/journal/", "west/catalog/head.json")),
    *(
        pytest.param(key, cut, marks=pytest.mark.soak)
        for key in ("lockfile.json", "run.json", "/journal/", "state/state/", "west/cluster.json", "catalog/head.json")
        for cut in (Cut(head=0), Cut(head=300), Cut(body=0), Cut(body=1), Cut(body=60))
    ),
]


@pytest.mark.parametrize(("key", "cut"), KILLED)
def test_whoever_is_killed_in_the_middle_of_a_write_leaves_nothing_that_stops_the_next(
    place: Place, key: str, cut: Cut
) -> None:
    store = open_store(place.server.settings(url=place.url))
    cut_short = threading.Event()
    place.proxy.on("PUT", dataclasses.replace(cut, then=cut_short.set), key=key)
    place.proxy.on("PUT", Mute(), key=key, times=1_000)  # the client asks again: nothing of that arrives
    with subprocess.Popen(
        [*COMMAND, "apply", "--yes"], cwd=place.folder, env=place.environ, stderr=subprocess.DEVNULL
    ) as process:
        assert cut_short.wait(DEADLINE_S)
        process.kill()
    place.proxy.heal()
    assert [listed.key for listed in store.list("") if not listed.size] == []
    place.is_finished_by_the_next()
