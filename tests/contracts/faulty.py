"""Every kind of store, behind every kind of bad network: what the rules of compare-and-swap are shown over."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from reconciler.objectstore.directory import DirectoryStore
from reconciler.objectstore.memory import MemoryStore
from reconciler.objectstore.open import open_store
from tests.contracts.wire import REFUSALS, Fault, Wire
from tests.servers.proxy import FailedChore, Late, Lost, Proxy, Repeated, Slow

if TYPE_CHECKING:
    import pytest

    from reconciler.objectstore.base import ObjectStore
    from tests.servers.clouds import CloudServer
    from tests.servers.weed import S3Server

CLIENT_GIVES_UP_S = 2.0
"""What the client's time-out is set to: short, for it is waited for, and longer than any answer takes that comes."""


class Faulty(Protocol):
    """A store as its client sees it, and as it is."""

    client: ObjectStore
    truth: ObjectStore

    def on(self, fault: Fault, *, times: int = 1, then: Callable[[], None] = ...) -> None:
        """Do this to the client's next swaps; `then` is where somebody else gets in."""
        ...

    def deliver(self) -> None:
        """Let what is late arrive, and return when it has."""
        ...

    def heal(self) -> None: ...


@dataclass
class Wired:
    """A store of this process behind a wire."""

    truth: ObjectStore
    client: Wire = field(init=False)

    def __post_init__(self) -> None:
        self.client = Wire(self.truth)
        self.on, self.deliver, self.heal = self.client.on, self.client.deliver, self.client.heal


@dataclass
class Proxied:
    """A server behind a proxy."""

    client: ObjectStore
    truth: ObjectStore
    proxy: Proxy
    late: list[Late] = field(default_factory=list)

    def on(self, fault: Fault, *, times: int = 1, then: Callable[[], None] = lambda: None) -> None:
        for _ in range(times):
            self.proxy.on("PUT", self._made(fault, then))

    def _made(self, fault: Fault, then: Callable[[], None]) -> Lost | Late | Slow | Repeated | FailedChore:
        match fault:
            case Fault.LOST:
                return Lost(then)
            case Fault.SLOW:
                return Slow(1.5 * CLIENT_GIVES_UP_S, then)
            case Fault.LATE:
                return self._late(then)
            case Fault.REPEATED:
                return Repeated(then)
            case _:
                status, code = REFUSALS[fault]
                return FailedChore(status, code, then=then)

    def _late(self, then: Callable[[], None]) -> Late:
        def sent() -> None:
            self.late.append(late)
            then()

        late = Late(threading.Event(), then=sent)
        return late

    def deliver(self) -> None:
        arriving, self.late = self.late, []
        for late in arriving:
            late.arrive.set()
            assert late.arrived.wait(30)

    def heal(self) -> None:
        self.proxy.heal()


def faulty_store(request: pytest.FixtureRequest, folder: Path) -> Iterator[Faulty]:
    """Yield an empty store of the kind `request.param`, and how to make its network bad."""
    match request.param:
        case "memory":
            yield Wired(MemoryStore())
        case "directory":
            yield Wired(DirectoryStore(folder))
        case "s3" | "gs" | "az":
            server: S3Server | CloudServer = request.getfixturevalue(f"{request.param}_server")
            url = server.url(folder.name)
            with Proxy(server.endpoint) as proxy:
                client = open_store(server.settings(url=url, endpoint=proxy.endpoint))
                yield Proxied(client, open_store(server.settings(url=url)), proxy)
        case other:
            message = f"no store of kind {other!r}"
            raise AssertionError(message)
