"""Two processes that drive a cluster, how one of them dies, and how what is uncertain then is settled."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition

from reconciler.embedded.cluster import EmbeddedCluster
from tests.embedded.model import Model
from tests.embedded.mortal import Ended, Fault, Process
from tests.embedded.observing import observe
from tests.embedded.samples import NOW

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from reconciler.embedded.clients.transactional_producer import TransactionalProducer
    from reconciler.objectstore.base import ObjectStore
    from tests.embedded.model import Seen

NAMESPACES = ("lab", "shop", "shop:eu")
NAMES = ("clicks", "orders")
OWNERS = ("billing", "checkout")

process = st.integers(0, 1)
which = st.integers(0, 11)
fault = st.none() | st.builds(
    Fault,
    st.integers(0, 2) | st.integers(0, 8),
    st.sampled_from(["dies before", "dies after", "refused", "no answer"]),
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
        """Do what happens whole or not at all."""
        after = self.model.copy()
        change(after)
        self._attempt(process, do, fault, [self.model, after])

    def _attempt(
        self, process: int, do: Callable[[Process], Any], fault: Fault | None, possible: Sequence[Model]
    ) -> Ended:
        """Do something after which the last of these models holds; after a fault any of them may."""
        ended = self._ended(process, do, fault)
        if ended is Ended.DONE:
            self.model = possible[-1]
        else:
            self._settle(possible)
        return ended

    def _ended(self, process: int, do: Callable[[Process], object], fault: Fault | None) -> Ended:
        """Do something in a process; who died is replaced, and its open transactions are nobody's."""
        ended = self.processes[process].ends(do, fault)
        if ended is Ended.DIED:
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
