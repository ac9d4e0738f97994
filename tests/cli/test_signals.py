"""Signals: the first lets a run end by itself, the second leaves at once, and no two of them hang a process."""

from __future__ import annotations

import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.cli.conftest import COMMAND, Run, environment

if TYPE_CHECKING:
    from pathlib import Path

LEFT_AT_ONCE = 130

# A run that was asked to end and never does; it says when it is asked.
STUBBORN = """
import sys, time
from reconciler.cli import signals

class Stubborn:
    def request(self):
        print("asked", flush=True)
        return True

signals.install()
with signals.stopping(Stubborn()):
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
        assert b"left at once" in process.stderr.read()


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
