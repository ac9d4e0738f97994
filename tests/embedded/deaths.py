"""Every point at which an operation can die, and the cluster as the next one opens it."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition

from reconciler.embedded.cluster import EmbeddedCluster
from reconciler.errors import RetryableError
from reconciler.objectstore.memory import MemoryStore
from tests.embedded.model import Model, Seen, observe
from tests.embedded.samples import NOW, cluster_in, ids
from tests.embedded.stores import DiedError, WatchedStore, dying

if TYPE_CHECKING:
    from reconciler.embedded.clients.producer import Producer
    from reconciler.embedded.clients.transactional_producer import TransactionalProducer
    from reconciler.objectstore.base import ListedObject, ObjectStore, StoredObject


def opened(store: ObjectStore) -> EmbeddedCluster:
    new_id = ids()
    return EmbeddedCluster.open(store, now_ms=lambda: NOW, new_id=lambda: "again-" + new_id())


def crashes(
    prepare: Callable[[EmbeddedCluster], object], operation: Callable[[EmbeddedCluster], object]
) -> Iterator[ObjectStore]:
    """Yield a store for every point at which the operation can die, as it is left behind."""
    for done in (False, True):
        for at in itertools.count():
            inner = MemoryStore()
            prepare(cluster_in(inner))
            try:
                operation(opened(dying(inner, at, done=done)))
            except DiedError:
                yield inner
            else:
                assert at > 0
                break


# A process that can be killed at any of its writes, and takes everything it knew with it.


DAY_MS = 86_400_000


class Fault(NamedTuple):
    """What goes wrong at the write so many writes from now."""

    at: int
    how: Literal["dies before", "dies after", "refused", "no answer"]


class RunOutcome(Enum):
    """How something ended that one process did."""

    DONE = "done"
    DIED = "the process is gone"
    UNSURE = "the store failed, and nobody knows what was written"


class Fuse:
    """Burns down with every write; who has died stays dead, in all its threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._fault: Fault | None = None
        self._writes = -1
        self.is_dead = False

    def arm(self, fault: Fault | None) -> None:
        self._fault, self._writes = fault, -1

    def before(self, _what: str, key: str) -> None:
        with self._lock:
            self._writes += 1
        self._burn("dies before", "refused", key)

    def after(self, _what: str, key: str) -> None:
        self._burn("dies after", "no answer", key)

    def check(self) -> None:
        if self.is_dead:
            raise DiedError

    def _burn(self, dies: str, fails: str, key: str) -> None:
        with self._lock:
            now = None if self._fault is None or self._fault.at != self._writes else self._fault.how
            self.is_dead |= now == dies
            self.check()
        if now == fails:
            raise RetryableError(f"{key}: {now}", hint="Try it again.")


class MortalStore(WatchedStore):
    """The store as one process reaches it. `ahead_ms` is how far its clock seems to be ahead."""

    def __init__(self, inner: ObjectStore) -> None:
        self.fuse = Fuse()
        self.ahead_ms = 0
        super().__init__(inner, before=self.fuse.before, after=self.fuse.after)

    def read_clock_ms(self) -> int:
        return super().read_clock_ms() + self.ahead_ms

    def get(self, key: str) -> StoredObject | None:
        self.calls.clear()
        self.fuse.check()
        return super().get(key)

    def get_range(self, key: str, start: int, length: int) -> bytes:
        self.calls.clear()
        self.fuse.check()
        return super().get_range(key, start, length)

    def list(self, prefix: str) -> Iterator[ListedObject]:
        self.calls.clear()
        self.fuse.check()
        return super().list(prefix)


class Process:
    """One process that works with the cluster for a while: its caches grow old, as those of others do."""

    def __init__(self, inner: ObjectStore, now_ms: Callable[[], int], new_id: Callable[[], str]) -> None:
        self.store = MortalStore(inner)
        self.cluster = EmbeddedCluster.open(self.store, now_ms=now_ms, new_id=new_id)
        self.transactional: dict[str, TransactionalProducer] = {}
        self._producer: Producer | None = None

    @property
    def producer(self) -> Producer:
        if self._producer is None:
            self._producer = self.cluster.producer()
        return self._producer

    def ends(self, do: Callable[[Process], object], fault: Fault | None) -> RunOutcome:
        """Do something during which a fault may happen."""
        self.store.fuse.arm(fault)
        try:
            do(self)
        except DiedError:
            return RunOutcome.DIED
        except RetryableError:
            assert fault is not None
            return RunOutcome.UNSURE
        finally:
            self.store.fuse.arm(None)
        return RunOutcome.DONE


# Two processes that drive a cluster, how one of them dies, and how what is uncertain then is settled.


NAMESPACES = ("lab", "shop", "shop:eu")
NAMES = ("clicks", "orders")
OWNERS = ("billing", "checkout")

process = st.integers(0, 1)
which = st.integers(0, 11)
fault = st.none() | st.builds(
    Fault, st.integers(0, 2) | st.integers(0, 8), st.sampled_from(["dies before", "dies after", "refused", "no answer"])
)
has_topics = precondition(lambda machine: bool(machine.model.topics))
has_open = precondition(lambda machine: bool(machine.owner))


class Driven(RuleBasedStateMachine):
    """What every rule of the machine rests on. `store` makes an empty one for each run."""

    def __init__(self, store: Callable[[], ObjectStore]) -> None:
        super().__init__()
        self.inner = store()
        self.now_ms = NOW
        self.model = Model()
        self._ids = itertools.count(1)
        EmbeddedCluster.create(self.inner, now_ms=self._clock, new_id=self._new_id)
        self.processes = [self._process(), self._process()]
        self.owner: dict[str, int] = {}
        """By transactional id: the process in which its transaction is open."""
        self.zombies: list[TransactionalProducer] = []

    def _do(
        self, process: int, do: Callable[[Process], Any], fault: Fault | None, change: Callable[[Model], object]
    ) -> None:
        after = self.model.copy()
        change(after)
        self._attempt(process, do, fault, [self.model, after])

    def _attempt(
        self, process: int, do: Callable[[Process], Any], fault: Fault | None, possible: Sequence[Model]
    ) -> RunOutcome:
        """Do something after which the last of these models holds; after a fault any of them may."""
        ended = self._ended(process, do, fault)
        if ended is RunOutcome.DONE:
            self.model = possible[-1]
        else:
            self._settle(possible)
        return ended

    def _ended(self, process: int, do: Callable[[Process], object], fault: Fault | None) -> RunOutcome:
        """Do something in a process; who died is replaced, and its open transactions are nobody's."""
        ended = self.processes[process].ends(do, fault)
        if ended is RunOutcome.DIED:
            self.processes[process] = self._process()
            self.owner = {owner: where for owner, where in self.owner.items() if where != process}
            self.zombies = []
        return ended

    def _settle(self, possible: Sequence[Model]) -> None:
        seen = self._observed()
        matching = [model for model in possible if model.seen == seen]
        assert matching, f"{seen}\nis neither of\n" + "\n".join(str(model.seen) for model in possible)
        self.model = matching[-1]

    def _resolve(self, owner: str, possible: Sequence[Model]) -> None:
        """Let somebody else take over a transactional id: what was open is decided then."""
        self._fence(owner)
        self._process().cluster.producer(owner).init_transactions()
        self._settle(possible)

    def _fence(self, owner: str) -> None:
        """Nobody who has a producer of a transactional id can write any more."""
        self.owner.pop(owner, None)
        for it in self.processes:
            if (zombie := it.transactional.pop(owner, None)) is not None:
                self.zombies.append(zombie)

    def _has_home(self, group: str) -> bool:
        namespace = group.rpartition(":")[0]
        return not namespace or namespace in self.model.namespaces

    def _topic(self, which: int) -> str:
        names = sorted(self.model.topics)
        return names[which % len(names)]

    def _observed(self) -> Seen:
        return observe(self._process().cluster)

    def _process(self) -> Process:
        return Process(self.inner, self._clock, self._new_id)

    def _clock(self) -> int:
        return self.now_ms

    def _new_id(self) -> str:
        return f"00000000-0000-4000-8000-{next(self._ids):012}"
