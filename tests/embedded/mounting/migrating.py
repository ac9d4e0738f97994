"""Clusters on one bucket as a value: copied, then driven by a process that dies, loses answers or meets a rival."""

from __future__ import annotations

import itertools
from concurrent.futures import Executor, Future
from typing import TYPE_CHECKING, Any, Final, Literal

from reconciler.embedded.catalog import commits
from reconciler.embedded.check import sweep
from reconciler.embedded.cluster import EmbeddedCluster
from reconciler.embedded.maintenance import chores
from reconciler.embedded.segments import head
from reconciler.embedded.tiered import recoverable, topic_deletion, upload
from reconciler.embedded.tiered import remote_sweep as remote_deletion
from reconciler.embedded.tiered import remote_sweep as remote_sweeping
from reconciler.errors import ReconcilerError, RetryableError, UnansweredError
from reconciler.objectstore import register
from reconciler.runtime import threads
from tests.embedded.mortal import Fault, Fuse, MortalStore
from tests.embedded.mounting.bucket import Bucket
from tests.embedded.upkeeping import Clock, copied
from tests.embedded.watched import DiedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pytest

    Do = Callable[[EmbeddedCluster], object]

HOWS: Final[tuple[Literal["dies before", "no answer"], ...]] = ("dies before", "no answer")
"""One write comes after the other: who dies after one has died before the next."""


class Inline(Executor):
    """Does what it is given at once: the n-th write is the same one every time, and no thread is waited for."""

    def __init__(self, *_asked: object, **_named: object) -> None:
        """Take whatever a pool takes."""

    def submit(self, call: Callable[..., Any], /, *given: Any, **named: Any) -> Future[Any]:
        """Return what is done already."""
        done: Future[Any] = Future()
        try:
            done.set_result(call(*given, **named))
        except Exception as error:  # noqa: BLE001 - whoever asks for the result gets it
            done.set_exception(error)
        return done


def without_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let what is done side by side be done one after the other; nothing is damaged here, so none is sought."""
    for module in (threads, chores, head, upload, recoverable, sweep, remote_sweeping, topic_deletion, remote_deletion):
        monkeypatch.setattr(module, "ThreadPoolExecutor", Inline)
    for module in (register, commits):
        monkeypatch.setattr(module, "check_shape", lambda _found, _shape: None)


class Silent(Fuse):
    """Where an answer is lost, says so as a store does: whoever swaps a register looks what became of it."""

    def after(self, what: str, key: str) -> None:
        """Burn after a write."""
        try:
            super().after(what, key)
        except RetryableError as error:
            raise UnansweredError(error.message, hint=error.hint) from error


def again(bucket: Bucket) -> Bucket:
    """Return the same clusters over copies of their stores."""
    stores = {name: copied(store) for name, store in bucket.stores.items()}
    return Bucket(copied(bucket.storage), Clock(bucket.clock.now_ms), dict(stores), bucket.new_id)


def process(
    bucket: Bucket,
    name: str,
    *,
    fault: Fault | None = None,
    before: Callable[[str, str], None] = lambda _what, _key: None,
    after: Callable[[str, str], None] = lambda _what, _key: None,
    ahead_ms: int = 0,
) -> EmbeddedCluster:
    """Open a cluster as one process does whose writes, to both stores, are counted and may be its last."""
    fuse, stores = Silent(), []

    def write(what: str, key: str) -> None:
        before(what, key)
        fuse.before(what, key)

    def written(what: str, key: str) -> None:
        fuse.after(what, key)
        after(what, key)

    for inner in (bucket.stores[name], bucket.storage):
        store = MortalStore(inner)
        store.fuse, store.before, store.after, store.ahead_ms = fuse, write, written, ahead_ms
        stores.append(store)
    cluster = EmbeddedCluster.open(stores[0], now_ms=bucket.clock, new_id=bucket.new_id, storage=stores[1])
    fuse.arm(fault)
    return cluster


def deaths(bucket: Bucket, name: str, do: Do, *, hows: tuple[str, ...] = HOWS) -> Iterator[Bucket]:
    """Yield what is left behind for every write at which a process of that cluster can die or lose its answer."""
    for how in hows:
        for at in itertools.count():
            left, reached = again(bucket), False

            def seen(_what: str, _key: str, at: int = at) -> None:
                nonlocal writes, reached
                writes, reached = writes + 1, reached or writes == at

            writes = 0
            try:
                do(process(left, name, fault=Fault(at, how), before=seen))  # type: ignore[arg-type]  # one of HOWS
            except (DiedError, RetryableError):
                assert reached
            if not reached:
                assert at > 0
                break
            yield left


def rivals(bucket: Bucket, name: str, do: Do, rival: Callable[[Bucket], object]) -> Iterator[tuple[Bucket, object]]:
    """Yield what is left for every write that a rival comes right before, and what the process said, if it failed."""
    for at in itertools.count():
        left, writes, met = again(bucket), itertools.count(), False

        def meet(_what: str, _key: str, at: int = at, left: Bucket = left, writes: Iterator[int] = writes) -> None:
            nonlocal met
            if not met and next(writes) == at:
                met = True
                rival(left)

        said: object = None
        try:
            do(process(left, name, before=meet))
        except Exception as error:  # noqa: BLE001 - whoever asked judges it
            said = error
        if not met:
            assert at > 0
            break
        yield left, said


def tail(cluster: EmbeddedCluster) -> None:
    """Do what `run` does until nothing is left to be finished."""
    assert set(cluster.mounts.finish().values()) <= {None}
    cluster.finish_transactions()
    cluster.finish_deletions()


def drive(cluster: EmbeddedCluster) -> None:
    """Drive what is under way, and let it fail."""
    for number in cluster.mounts.under_way():
        cluster.mounts.drive(number)


def refusal(do: Callable[[], object]) -> ReconcilerError | None:
    """Return what doing something was refused with; `None`: it was done."""
    try:
        do()
    except ReconcilerError as error:
        return error
    return None


def give_up(bucket: Bucket, name: str) -> None:
    """Cancel what is under way, and delete what is left of it."""
    cluster = bucket.cluster(name)
    for number, migration in cluster.mounts.under_way().items():
        if migration.state not in {"planned", "finished", "cancelled"}:
            cluster.mounts.cancel(number)
        cluster.mounts.ask(number, "delete")
    tail(cluster)
    assert not cluster.mounts.under_way()
