"""Play one history again and tell all of it.

python -m tests.simulation.replay SEED              that of a random seed
python -m tests.simulation.replay SEED VISIT …      these visits: b,after=a,resumes,crash@37
"""

from __future__ import annotations

import sys

from tests.simulation.scenarios import Scenario, faults_of, play
from tests.simulation.seeds import scenario
from tests.simulation.typed import read
from tests.simulation.world import World


def _tell(world: World) -> None:
    for ended in world.ended.values():
        print(f"== {ended.visit.machine}: {ended.outcome} {ended.error or ''}")  # noqa: T201 - its purpose
        harmed = {fault.at for fault in ended.visit.faults}
        for number, (step, what) in enumerate(ended.trace):
            print(f"{'!!' if number in harmed else '  '} {number:4} {step:8} {what}")  # noqa: T201 - its purpose
    for written in world.history.pages:
        page = written.page
        entries = ", ".join(f"{entry.type} {getattr(entry, 'id', '')}".strip() for entry in page.entries)
        at = f"{written.when.at:8.3f} {written.when.machine}"
        print(f"{at}: {page.run}/{page.seq} epoch {page.epoch}: {entries}")  # noqa: T201 - its purpose


def main() -> None:
    """Play it; end with 1 where something is wrong."""
    seed, words = int(sys.argv[1]), sys.argv[2:]
    chosen = Scenario(tuple(map(read, words)), seed) if words else scenario(seed)
    world = play(chosen)
    found = faults_of(world)
    _tell(world)
    print(chosen, *(found or ["nothing is wrong"]), sep="\n")  # noqa: T201 - its purpose
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
