"""Processes that die, or are asked to stop, at a step of a cluster."""

from __future__ import annotations

import signal
from subprocess import CompletedProcess
from typing import TYPE_CHECKING

from reconciler.operations.state_edit import state_unlock
from reconciler.operations.steps.invocation import Select
from reconciler.operations.steps.workspace import open_state
from reconciler.state.lockfile import read_lockfile
from tests.processes import ran

if TYPE_CHECKING:
    from conftest import Bench

DYING = """
import os, signal, sys, time, uuid
from pathlib import Path
from reconciler.embedded.link_side import Linking
from reconciler.operations.apply import ApplyOptions, Hooks, apply
from reconciler.operations.steps.invocation import Invocation, Select
from reconciler.operations.steps.runner import Stop

folder, step, when, *allow = sys.argv[1:]
whole = getattr(Linking, step)

def dying(*given, **named):
    if when == "after":
        whole(*given, **named)
    os.kill(os.getpid(), signal.SIGKILL)

setattr(Linking, step, dying)
here = Invocation(cwd=Path(folder), environ=dict(os.environ), now_ms=lambda: time.time_ns() // 10**6,
    new_id=lambda: str(uuid.uuid4()), new_run=lambda: "the-dead-run", tool="0.1.0", who="bob@laptop")
select = Select(allow=tuple(allow))
apply(here, select, ApplyOptions(yes=True), Hooks(lambda _: True, lambda _: None, Stop()))
"""


def die(shop: Bench, step: str, when: str, *allow: str) -> None:
    """Apply in a process of its own that is killed before or after a step of a cluster, and free its lease."""
    done = ran(DYING, str(shop.folder), step, when, *allow)
    assert done.returncode == -9, done.stderr
    state_unlock(shop.invocation, Select(), "the-dead-run", confirm=lambda _line: True, stop=shop.stop)


ASKING = """
import os, signal, sys
from queue import SimpleQueue
from reconciler.cli.main import main
from reconciler.embedded.link_side import Linking
from reconciler.operations.steps.runner import Stop

step, when, number, *typed = sys.argv[1:]
whole, request = getattr(Linking, step), Stop.request
heard = SimpleQueue()

def requested(stop):
    done = request(stop)
    heard.put(None)
    return done

Stop.request = requested

def dying(*given, **named):
    setattr(Linking, step, whole)
    done = whole(*given, **named) if when == "after" else None
    os.kill(os.getpid(), int(number))
    heard.get(timeout=30)  # handlers run in another thread: nothing goes on before they have
    return done if when == "after" else whole(*given, **named)

setattr(Linking, step, dying)
sys.exit(main(typed))
"""
COMMANDS = {"reverse-and-start": "reverse", "truncate-and-restore": "restore", "promote": "promote"}


def asked(shop: Bench, by: signal.Signals, step: str, when: str, *typed: str) -> CompletedProcess[str]:
    """Type a command that is sent a signal before or after a step of a cluster."""
    return ran(ASKING, step, when, str(by.value), *typed, cwd=shop.folder)


def die_asking(shop: Bench, step: str, when: str, verb: str, address: str) -> None:
    """Ask a verb by its command, which is killed, and free its lease."""
    done = asked(shop, signal.SIGKILL, step, when, "mirror", COMMANDS[verb], address, "--yes")
    assert done.returncode == -9, done.stderr
    site = open_state(shop.invocation, Select())
    held = read_lockfile(site.state, owner=site.owner)
    assert held is not None
    state_unlock(shop.invocation, Select(), held.lockfile.lease.run, confirm=lambda _line: True, stop=shop.stop)
