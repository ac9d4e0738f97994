"""Hold a lease for ten minutes and do nothing; print how many writes that takes each fifteen seconds."""

from reconciler.objectstore.memory import MemoryStore
from reconciler.state.lease import acquire
from tests.embedded.stores import WatchedStore
from tests.state.samples import claim
from tests.state.simulation import Simulation, simulate

PERIODS = 40
store = WatchedStore(MemoryStore())


async def idle() -> None:
    effects = Simulation(call_s=0)
    async with await acquire(store, effects, claim("idle")):
        store.calls.clear()
        await effects.sleep(15 * PERIODS + 1)
        print(len(store.calls) / PERIODS)


simulate(idle())
