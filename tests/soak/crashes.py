"""Kill `apply` again and again, and see that the next one finishes what it left.

Run as a program: one warm process, without threads of its own, forks every run, so that a round costs a fraction of a
second. Prints one JSON line a round, and ends with 1 naming seed and round at the first that is not as it should be.

    python -m tests.soak.crashes FOLDER ROUNDS SEED            killed by SIGKILL at random moments
    python -m tests.soak.crashes FOLDER points SEED            killed before and after every single durable write
    python -m tests.soak.crashes FOLDER signals SEED           asked to stop by SIGINT or SIGTERM at a durable write
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

from reconciler.cli import signals
from reconciler.objectstore import directory
from tests.soak.manifests import write_manifests
from tests.soak.runs import check, command_line, ended, fork, is_left_well, must_be_one_of, run_apply, succeed

KILLED = -signal.SIGKILL
STOPPED = (4, 130)
"""Work is left; nothing had begun."""
SIGNALS = 12


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
    _at_write(point, signal.SIGKILL)
    run_apply(folder)


def _at_write(point: int, number: signal.Signals) -> None:
    """Send this process a signal before (even points) or after (odd ones) its durable write number `point // 2`."""
    writes = count()

    def signalling(name: str) -> None:
        inner = getattr(directory, name)

        def write(*arguments: object) -> None:
            this = next(writes)
            if point == 2 * this:
                os.kill(os.getpid(), number)
            inner(*arguments)
            if point == 2 * this + 1:
                os.kill(os.getpid(), number)

        setattr(directory, name, write)

    signalling("rename_into_place")
    signalling("link_into_place")


def asked_to_stop(folder: Path, seed: str) -> None:
    """Signal the command at a durable write: it must end by itself, its lease free, and the next one must finish."""
    said = folder / "said"
    for number in range(SIGNALS):
        choose = random.Random(f"{seed}-{number}")  # noqa: S311 - repeatable, no secret
        name = f"seed {seed} round {number}"
        write_manifests(folder, choose)
        asking = choose.choice((signal.SIGINT, signal.SIGTERM))
        code = ended(fork(partial(_stop, folder, said, choose.randrange(16), asking), said))
        must_be_one_of((0, *STOPPED), code, said, f"{name}: apply")
        succeed(partial(is_left_well, folder, said, code), said, f"{name}: after the signal")
        succeed(partial(run_apply, folder), said, f"{name}: the next apply")
        succeed(partial(check, folder), said, f"{name}: the check")
        _say(name, code)


def _stop(folder: Path, said: Path, point: int, asking: signal.Signals) -> None:
    signals.install_handlers()
    _at_write(point, asking)
    command_line(folder, said)


def _say(name: str, found: int) -> None:
    """`found`: how often it was killed, or the code it ended with."""
    sys.stdout.write(json.dumps({"name": name, "found": found}) + "\n")
    sys.stdout.flush()


def main() -> None:
    folder, rounds, seed = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    folder.mkdir(parents=True, exist_ok=True)
    match rounds:
        case "points":
            every_point(folder, seed)
        case "signals":
            asked_to_stop(folder, seed)
        case _:
            random_moments(folder, int(rounds), seed)


if __name__ == "__main__":
    main()
