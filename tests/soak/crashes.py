"""Kill `apply` again and again, and see that the next one finishes what it left.

Run as a program: one warm process, without threads of its own, forks every run, so that a round costs a fraction of a
second. Prints one JSON line a round, and ends with 1 naming seed and round at the first that is not as it should be.

    python -m tests.soak.crashes FOLDER ROUNDS SEED            killed by SIGKILL at random moments
    python -m tests.soak.crashes FOLDER points SEED            killed before and after every single durable write
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sys
import time
from functools import partial
from itertools import count
from pathlib import Path

from reconciler.objectstore import directory
from tests.soak.manifests import write_manifests
from tests.soak.runs import check, ended, fork, must_be_one_of, run_apply, succeed

KILLED = -signal.SIGKILL


def random_moments(folder: Path, rounds: int, seed: str) -> None:
    """Kill one to three runs of a round wherever they are; the next one must finish."""
    said = folder / "said"
    longest_s = 0.3
    for number in range(rounds):
        choose = random.Random(f"{seed}-{number}")  # noqa: S311 - repeatable, no secret
        name = f"seed {seed} round {number}"
        write_manifests(folder, choose)
        kills = 0
        for _ in range(choose.choice((1, 1, 1, 2, 3))):
            pid = fork(partial(run_apply, folder), said)
            time.sleep(choose.uniform(0, longest_s))
            os.kill(pid, signal.SIGKILL)
            code = ended(pid)
            must_be_one_of((0, KILLED), code, said, f"{name}: apply")
            kills += code == KILLED
        began = time.monotonic()
        succeed(partial(run_apply, folder), said, f"{name}: the next apply")
        # Follows how long a whole run takes here, so that kills fall everywhere in it.
        longest_s = 0.7 * longest_s + 0.4 * (time.monotonic() - began)
        succeed(partial(check, folder), said, f"{name}: the check")
        _say(name, kills)


def every_point(folder: Path, seed: str) -> None:
    """Kill a run before and after each of its durable writes: once from nothing, once on what the first step made."""
    said = folder / "said"
    base = folder / "base"
    for step in range(2):
        write_manifests(base, random.Random(f"{seed}-{step}"))  # noqa: S311 - repeatable, no secret
        for point in count():
            there = folder / f"at-{step}-{point}"
            shutil.copytree(base, there)
            name = f"seed {seed} step {step} point {point}"
            code = ended(fork(partial(_crash, there, point), said))
            must_be_one_of((0, KILLED), code, said, f"{name}: apply")
            succeed(partial(run_apply, there), said, f"{name}: the next apply")
            succeed(partial(check, there), said, f"{name}: the check")
            shutil.rmtree(there)
            _say(name, int(code == KILLED))
            if code == 0:
                break
        succeed(partial(run_apply, base), said, f"seed {seed} step {step}")


def _crash(folder: Path, point: int) -> None:
    """Apply, and die before (even points) or after (odd ones) write number `point // 2`."""
    numbers = count()

    def dying(name: str) -> None:
        inner = getattr(directory, name)

        def write(*arguments: object) -> None:
            number = next(numbers)
            if point == 2 * number:
                os.kill(os.getpid(), signal.SIGKILL)
            inner(*arguments)
            if point == 2 * number + 1:
                os.kill(os.getpid(), signal.SIGKILL)

        setattr(directory, name, write)

    dying("put_in_place")
    dying("create_in_place")
    run_apply(folder)


def _say(name: str, kills: int) -> None:
    sys.stdout.write(json.dumps({"name": name, "kills": kills}) + "\n")
    sys.stdout.flush()


def main() -> None:
    """Do what the arguments say."""
    folder, rounds, seed = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    folder.mkdir(parents=True, exist_ok=True)
    if rounds == "points":
        every_point(folder, seed)
    else:
        random_moments(folder, int(rounds), seed)


if __name__ == "__main__":
    main()
