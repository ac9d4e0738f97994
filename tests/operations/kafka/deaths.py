"""An apply in a process of its own that is killed right after one of its steps, its lease held."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from reconciler.operations.state_edit import state_unlock
from reconciler.operations.steps.invocation import Select
from tests.processes import ran

if TYPE_CHECKING:
    from tests.operations.kafka.hibernated import Site

_DYING: Final = """
import importlib, os, signal, sys, time, uuid
from pathlib import Path
from reconciler.operations.apply import ApplyOptions, Hooks, apply
from reconciler.operations.steps.invocation import Invocation, Select
from reconciler.operations.steps.runner import Stop

module, name, nth = sys.argv[2], sys.argv[3], int(sys.argv[4])
owner = importlib.import_module(module)
for part in name.split(".")[:-1]:
    owner = getattr(owner, part)
step, calls = getattr(owner, name.split(".")[-1]), []

def stepping(*given, **named):
    done = step(*given, **named)
    calls.append(name)
    if len(calls) == nth:
        os.kill(os.getpid(), signal.SIGKILL)
    return done

setattr(owner, name.split(".")[-1], stepping)
here = Invocation(cwd=Path(sys.argv[1]), environ={}, now_ms=lambda: time.time_ns() // 10**6,
    new_id=lambda: str(uuid.uuid4()), new_run=lambda: "the-dead-run", tool="0.1.0", who="bob@laptop")
select = Select(allow=tuple(sys.argv[5:]))
apply(here, select, ApplyOptions(yes=True), Hooks(lambda _: True, lambda _: None, Stop()))
"""


def die_after(site: Site, module: str, name: str, nth: int, *, allow: str = "") -> None:
    """Apply, be killed right after the nth call of a function of the package, and free the lease."""
    done = ran(_DYING, str(site.bench.folder), module, name, str(nth), *filter(None, [allow]))
    assert done.returncode == -9, done.stderr
    bench = site.bench
    state_unlock(bench.invocation, Select(), "the-dead-run", confirm=lambda _line: True, stop=bench.stop)
