"""Two runners race for one workspace in a bucket while they are killed, frozen beyond their lease, and asked to stop.

Run as a program: one warm process, without threads of its own, forks every run. Whatever a round did, the next runner
must bring everything to what the files ask for. Prints one JSON line a round, and ends with 1 naming seed and round at
the first that is not as it should be. Leases are short here, so that a frozen runner outlives its own.

    python -m tests.chaos.storm FOLDER URL topics ROUNDS SEED     topics come, go and change on two clusters
    python -m tests.chaos.storm FOLDER URL copies ROUNDS SEED     a mirror is copied by Spark while its source grows
"""

from __future__ import annotations

import heapq
import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from typing import Final

from reconciler.objectstore.s3_store import S3Store
from reconciler.operations.steps import runner
from reconciler.operations.steps.workspace import open_work
from reconciler.state.journal import read_journal
from reconciler.state.lease import Claim
from reconciler.state.lockfile import RUNS_PREFIX, LeaseTerms
from tests.chaos.copies import check_copy, fill, write_topics
from tests.soak.manifests import write_manifests
from tests.soak.runs import ANYTHING, check, command_line, ended, fork, invocation, succeed

LEASE_S: Final = 4.0
WRITES: Final = 16
"""Writes to the bucket among which a blow falls: a run makes about as many."""
RUNNERS: Final = 2
PATIENCE_S: Final = 180.0
KILLED: Final = -signal.SIGKILL
ALLOWED: Final = frozenset({0, 4, 5, 6, 8, 130, KILLED})
"""Done, work is left, the lease is another's or lost, the plan is another by now, refused, nothing begun, killed."""
SEEN: Final = ("took over the lease", "had not closed", "in doubt", "lease was taken over", "could not be renewed")
"""What runners say where a round came to something."""
LAST_TRIES: Final = 4
"""The last runner may find out that the one before it acted late: it says so, and is run again."""


@dataclass(frozen=True)
class Weather:
    """What the rounds of one kind do: what is written before them, how long a run takes, what must hold at the end."""

    prepare: Callable[[int, random.Random], None]
    longest_s: float
    is_well: Callable[[int], None]


def act(folder: Path, said: Path, blow: Blow | None = None) -> None:
    """Be a runner: the very command, with a short lease."""
    runner.Claim = partial(Claim, terms=LeaseTerms(LEASE_S))  # type: ignore[misc]  # the one place runs are claimed
    if blow is not None:
        blow.await_write()
    command_line(folder, said, "--lock-timeout", f"{5 * LEASE_S:.0f}s")


@dataclass(frozen=True)
class Blow:
    """A signal that a runner gets: at a moment, or before or after it writes to the bucket for the so-manieth time."""

    what: signal.Signals
    at_s: float | None
    write: int = 0
    is_after: bool = False

    @classmethod
    def drawn(cls, choose: random.Random, longest_s: float) -> Blow | None:
        """Return what befalls a runner; some are spared."""
        whats = (signal.SIGKILL, signal.SIGSTOP, choose.choice((signal.SIGINT, signal.SIGTERM)), None)
        what = choose.choices(whats, (35, 35, 15, 15))[0]
        if what is None:
            return None
        if choose.random() < 0.3:
            return cls(what, choose.uniform(0, longest_s))
        return cls(what, None, choose.randrange(WRITES), choose.random() < 0.5)

    def await_write(self) -> None:
        """Send this process its signal at the write, if it is one that comes at a write."""
        if self.at_s is not None:
            return
        writes = count()
        for name in ("put", "swap"):
            setattr(S3Store, name, self._struck(getattr(S3Store, name), writes))

    def _struck(self, inner: Callable[..., object], writes: Iterator[int]) -> Callable[..., object]:
        def write(*given: object, **named: object) -> object:
            is_mine = next(writes) == self.write
            if is_mine and not self.is_after:
                os.kill(os.getpid(), self.what)
            answer = inner(*given, **named)
            if is_mine and self.is_after:
                os.kill(os.getpid(), self.what)
            return answer

        return write


@dataclass
class Race:
    """Runners side by side, and what befalls them."""

    folder: Path
    choose: random.Random
    longest_s: float
    _due: list[tuple[float, int, signal.Signals]] = field(default_factory=list)

    def run(self) -> list[int]:
        """Let them run and return what each ended with; who was frozen thaws after half a lease to two and a half."""
        began = time.monotonic()
        pids = [self._started(number, began) for number in range(RUNNERS)]
        ends: dict[int, int] = {}
        while len(ends) < RUNNERS:
            self._send_due()
            for pid in pids:
                if pid not in ends:
                    found, status = os.waitpid(pid, os.WNOHANG | os.WUNTRACED)
                    if found and os.WIFSTOPPED(status):
                        thaws = time.monotonic() + LEASE_S * self.choose.uniform(0.5, 2.5)
                        heapq.heappush(self._due, (thaws, pid, signal.SIGCONT))
                    elif found:
                        ends[pid] = os.waitstatus_to_exitcode(status)
            if time.monotonic() > began + PATIENCE_S:
                sys.exit(f"runners do not end: {ends}\n{self.words()}")
            time.sleep(0.01)
        return [ends[pid] for pid in pids]

    def words(self) -> str:
        there = [self._said(number) for number in range(RUNNERS)]
        return "\n".join(f"-- {path.name}\n{path.read_text()}" for path in there if path.exists())

    def _started(self, number: int, began: float) -> int:
        blow = Blow.drawn(self.choose, self.longest_s)
        said = self._said(number)
        said.unlink(missing_ok=True)
        pid = fork(partial(act, self.folder, said, blow), said)
        if blow is not None and blow.at_s is not None:
            heapq.heappush(self._due, (began + blow.at_s, pid, blow.what))
        return pid

    def _send_due(self) -> None:
        while self._due and self._due[0][0] <= time.monotonic():
            _, pid, what = heapq.heappop(self._due)
            with suppress(ProcessLookupError):
                os.kill(pid, what)

    def _said(self, number: int) -> Path:
        return self.folder / f"said-{number}"


def ended_before(pid: int, deadline: float) -> int:
    """Wait for a child, though not for ever; return its exit code, negative where a signal ended it."""
    while time.monotonic() < deadline:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(pid, signal.SIGABRT)
    return ended(pid)


def rage(folder: Path, weather: Weather, rounds: int, seed: str) -> None:
    """Let it storm for so many rounds; after each, all must be well."""
    said = folder / "said"
    longest_s = weather.longest_s
    for number in range(rounds):
        choose = random.Random(f"{seed}-{number}")  # noqa: S311 - repeatable, no secret
        name = f"seed {seed} round {number}"
        weather.prepare(number, choose)
        race = Race(folder, choose, longest_s)
        codes = race.run()
        if not ALLOWED.issuperset(codes):
            sys.exit(f"{name}: runners ended with {codes}:\n{race.words()}")
        began = time.monotonic()
        last = finish(folder, said, name)
        took_s = time.monotonic() - began
        # Follows how long a whole run takes here, so that fates fall everywhere in it.
        longest_s = 0.7 * longest_s + 0.3 * min(4 * weather.longest_s, took_s)
        succeed(partial(weather.is_well, number), said, f"{name}: the check")
        seen = [word for word in SEEN if word in race.words() + said.read_text()]
        sys.stdout.write(json.dumps({"name": name, "codes": codes, "last": last, "seen": seen}) + "\n")
        sys.stdout.flush()
    succeed(partial(journals_are_whole, folder), said, f"seed {seed}: the journals")


def finish(folder: Path, said: Path, name: str) -> list[int]:
    """Run until a runner says that all is done; return what each ended with."""
    codes: list[int] = []
    while not codes or codes[-1] != 0:
        code = ended_before(fork(partial(act, folder, said), said), time.monotonic() + PATIENCE_S)
        codes.append(code)
        if code not in {0, 4, 5, 8} or len(codes) > LAST_TRIES:
            sys.exit(f"{name}: the last runners ended with {codes}:\n{said.read_text()}")
    return codes


def journals_are_whole(folder: Path) -> None:
    """No journal of any run has a hole or a page that cannot be read."""
    state = open_work(invocation(folder), ANYTHING).state
    runs = sorted({listed.key.split("/")[1] for listed in state.list(RUNS_PREFIX)})
    assert runs
    for run in runs:
        read_journal(state, run)


def topics(folder: Path, url: str) -> Weather:

    def prepare(_number: int, choose: random.Random) -> None:
        write_manifests(folder, choose, at=url)

    return Weather(prepare, 2.0, lambda _number: check(folder))


def copies(folder: Path, url: str) -> Weather:
    """Every round has a topic full of records, and a mirror of it that was never applied."""
    said = folder / "said"

    def prepare(number: int, _choose: random.Random) -> None:
        write_topics(folder, url, topics=number + 1, mirrors=number)
        finish(folder, said, f"round {number}: the topic")
        succeed(partial(fill, folder, number), said, f"round {number}: the records")
        write_topics(folder, url, topics=number + 1, mirrors=number + 1)

    return Weather(prepare, 15.0, partial(check_copy, folder))


WEATHERS: Final = {"topics": topics, "copies": copies}


def main() -> None:
    folder, url, kind, rounds, seed = Path(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4]), sys.argv[5]
    folder.mkdir(parents=True, exist_ok=True)
    rage(folder, WEATHERS[kind](folder, url), rounds, seed)


if __name__ == "__main__":
    main()
