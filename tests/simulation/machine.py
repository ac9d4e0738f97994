"""A machine that runs: its own clock, its own way to the stores, and what goes wrong on it at numbered steps.

A step is anything after which the world could look different: before and after every blocking call, every sleep, every
request to a store. The same seed takes the same steps, so a step that hurt once can be asked for again.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

from reconciler.errors import RetryableError, UnansweredError
from reconciler.operations.steps.runner import Stop
from tests.state.simulation import Simulation

if TYPE_CHECKING:
    from reconciler.runtime.effects import Effects

T = TypeVar("T")

Harm: TypeAlias = Literal["crash", "stop", "freeze", "lose", "late", "fail"]
"""`crash`: it is gone. `stop`: somebody asks for the end. `freeze`: nothing of it moves for `seconds`.
Of a request alone: `fail`: not done, and said so. `lose`: done, no answer. `late`: no answer, done `seconds` later."""

Step: TypeAlias = Literal["call", "called", "sleep", "read", "write", "written"]
AWAITS: frozenset[Step] = frozenset({"call", "called", "sleep"})
WRITES: frozenset[Step] = frozenset({"write", "written"})


@dataclass(frozen=True, slots=True)
class Fault:
    """What goes wrong at a step."""

    at: int
    harm: Harm
    seconds: float = 0.0

    def __str__(self) -> str:
        return f"{self.harm}@{self.at}" + (f"+{self.seconds:g}s" if self.seconds else "")


class KilledError(BaseException):
    """The machine is gone: no code of its own may run to an end."""


class Machine(Simulation):
    """`Effects` of one machine, which die, freeze and stop where they are told to."""

    def __init__(
        self, name: str, faults: tuple[Fault, ...] = (), *, seed: int = 0, call_s: float = 0.01, offset: float = 0.0
    ) -> None:
        super().__init__(seed, call_s=call_s, offset=offset)
        self.name = name
        self.stop = Stop()
        self.is_dead = False
        self.is_clock_standing = False
        self._stood_s = 0.0
        self.trace: list[tuple[Step, str]] = []
        self.landed_late: list[str] = []
        """What was done after its requester had been told that there is no answer."""
        self._faults = {fault.at: fault for fault in faults}
        self._may_freeze = any(fault.harm == "freeze" for fault in faults)
        self._loop = asyncio.get_running_loop()
        self._tasks: list[asyncio.Task[Any]] = []
        self._stepping: _Stepping | None = None
        self._is_frozen_within = False

    # -- what a run asks of it

    async def run_blocking(self, function: Callable[[], T]) -> T:
        name = getattr(function, "__qualname__", type(function).__name__)
        await self._awaited("call", name)
        await self._pause(self._random.uniform(0, self.call_s))
        result = await self._done(function)
        await self._pause(self._random.uniform(0, self.call_s))
        await self._awaited("called", name)
        return result

    async def sleep(self, seconds: float) -> None:
        await self._awaited("sleep", f"{seconds:g}")
        await self._pause(seconds)

    def read_clock(self) -> float:
        return self._loop.time() + self._offset - self._stood_s

    def freeze(self, seconds: float) -> None:
        super().freeze(seconds)
        if self.is_clock_standing:
            self._stood_s += seconds

    def start_task(self, work: Coroutine[object, object, T]) -> asyncio.Task[T]:
        task = self._loop.create_task(work)
        self._tasks.append(task)
        return task

    def run_on_thread(self, work: Callable[[Effects], Coroutine[object, object, None]]) -> Callable[[], None]:
        task = self.start_task(work(self))

        def end() -> None:
            task.cancel()

        return end

    # -- what happens to it

    def asks(self, what: str, *, writes: bool) -> Fault | None:
        """Take the step of a request to a store, and return what goes wrong with the request itself."""
        fault = self._step("write" if writes else "read", what)
        if fault is None or fault.harm in {"lose", "late", "fail"}:
            return fault
        self._suffer(fault)
        return None

    def wrote(self, what: str) -> None:
        fault = self._step("written", what)
        if fault is not None:
            self._suffer(fault)

    def die(self) -> None:
        self.is_dead = True
        for task in self._tasks:
            task.cancel()

    def later(self, seconds: float, what: str, happens: Callable[[], bool]) -> None:
        """Let something happen later, if it still can, whatever becomes of this machine: it is on its way."""

        def land() -> None:
            if happens():
                self.landed_late.append(what)

        self._loop.call_later(seconds, land)

    def _step(self, step: Step, what: str) -> Fault | None:
        if self.is_dead:
            raise KilledError
        self.trace.append((step, what))
        return self._faults.get(len(self.trace) - 1)

    def _suffer(self, fault: Fault) -> None:
        match fault.harm:
            case "crash":
                self.die()
                raise KilledError
            case "stop":
                self.stop.request()
            case "freeze" if self._stepping is not None:
                self._stepping.hold(fault.seconds)
            case _:
                pass

    async def _awaited(self, step: Step, what: str) -> None:
        try:
            fault = self._step(step, what)
            if fault is not None and fault.harm == "freeze":
                self.freeze(fault.seconds)
            elif fault is not None:
                self._suffer(fault)
        except KilledError:
            raise asyncio.CancelledError from None

    async def _done(self, function: Callable[[], T]) -> T:
        while self._is_frozen_within:  # noqa: ASYNC110 - virtual time
            await asyncio.sleep(0.001)
        try:
            return await self._stepped(function) if self._may_freeze else function()
        except KilledError:
            raise asyncio.CancelledError from None

    async def _stepped(self, function: Callable[[], T]) -> T:
        """Do it on a thread that can be held in its middle; nobody else of this machine moves meanwhile."""
        stepping = self._stepping = _Stepping(function)
        try:
            while (seconds := stepping.go_on()) is not None:
                self._is_frozen_within = True
                self.freeze(seconds)
                await self._pause(0)
                self._stepping = stepping
        finally:
            self._is_frozen_within = False
            self._stepping = None
            stepping.abandon()
        return stepping.result()  # type: ignore[return-value] # it is what the function returned


class _Stepping:
    """A blocking function on a thread of its own; it or its owner runs, never both."""

    def __init__(self, function: Callable[[], object]) -> None:
        self._function = function
        self._go, self._said = threading.Semaphore(0), threading.Semaphore(0)
        self._held_s: float | None = None
        self._is_abandoned = False
        self._is_over = False
        self._found: object = None
        self._error: BaseException | None = None
        threading.Thread(target=self._run, daemon=True).start()

    def go_on(self) -> float | None:
        """Let it run; return for how long it is held then, `None` where it has ended."""
        self._held_s = None
        self._go.release()
        self._said.acquire()
        return self._held_s

    def hold(self, seconds: float) -> None:
        """Wait, within the function, until it is let go on."""
        self._held_s = seconds
        self._said.release()
        self._go.acquire()
        if self._is_abandoned:
            raise KilledError

    def abandon(self) -> None:
        if not self._is_over:
            self._is_abandoned = True
            self.go_on()

    def result(self) -> object:
        """Return what it returned, or raise what it raised."""
        if self._error is not None:
            raise self._error
        return self._found

    def _run(self) -> None:
        self._go.acquire()
        try:
            if not self._is_abandoned:
                self._found = self._function()
        except BaseException as error:  # noqa: BLE001 - raised where it is waited for
            self._error = error
        self._is_over = True
        self._held_s = None
        self._said.release()


def unanswered(what: str) -> UnansweredError:
    """Return what a store says that did not answer a conditional write."""
    return UnansweredError(f"no answer to {what}", hint="Run it again.")


def unreachable_error(what: str) -> RetryableError:
    """Return what a store says that could not be asked."""
    return RetryableError(f"no way to {what}", hint="Run it again.")
