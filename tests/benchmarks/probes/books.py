"""Plan FOLDER, then do it as an apply does but for the platform, which says at once that all is done.

What is left are the books: lease, intents, ends, snapshot, result. Prints the bytes of each object and the seconds.
"""

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from reconciler.applying.ports import RunContext
from reconciler.applying.run import Caller, Run, RunRequest, RunWork
from reconciler.objectstore.directory import DirectoryStore
from reconciler.operations.plan import plan
from reconciler.operations.steps.invocation import Invocation, Select
from reconciler.operations.steps.recorded import LocalSpool
from reconciler.operations.steps.runner import Stop, _run_to_end
from reconciler.planning.actions import ControlAction
from reconciler.providers.protocol import CompletedAction
from reconciler.resources.inventory import Capabilities
from reconciler.runtime.thread_effects import ThreadEffects
from reconciler.state.lease import Claim
from reconciler.state.lockfile import Owner
from tests.applying.platform import Works
from tests.embedded.stores import WatchedStore


@dataclass
class Instant:
    """A platform that has nothing to do."""

    capabilities: Capabilities = field(default_factory=lambda: Capabilities(platform="test", batch=10_000))

    def apply(self, actions: Sequence[ControlAction], **_: object) -> list[CompletedAction]:
        return [CompletedAction(action.id, incarnation="0f2a6c1e", physical_name=action.address) for action in actions]


folder = Path(sys.argv[1])
invocation = Invocation(
    cwd=folder, environ={}, now_ms=lambda: 0, new_id=str, new_run=lambda: "run-1", tool="bench", who="bench"
)
planned = plan(invocation, Select()).plan
store = WatchedStore(DirectoryStore(folder / ".books"))
effects, stop = ThreadEffects(), Stop()
setting = RunContext(
    state=store,
    providers={"west": Instant()},
    jobs=Works(),
    effects=effects,
    report=lambda _event: None,
    stop=stop,
    spool=LocalSpool(folder, print),
)
caller = Caller(claim=Claim(owner=Owner("bench"), run="run-1", who="bench", lineage="bench"), new_run=lambda: "run-2")
began = time.perf_counter()
ended = _run_to_end(
    Run(setting, caller, RunRequest(command="apply")).run(lambda _basis: RunWork(planned.actions, planned.digest))
)
took = time.perf_counter() - began
effects.close()
if ended.result is None or len(ended.result.done) != len(planned.actions):
    sys.exit(f"{len(planned.actions)} actions, and {ended.result}")
sizes = {listed.key: listed.size for listed in store.inner.list("")}
print(*(sizes.get(key, 0) for what, key in store.calls if what in {"put", "swap"}), took)
