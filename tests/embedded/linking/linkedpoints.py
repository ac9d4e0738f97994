"""Linked clusters as a value: copied, then driven by a process that dies, loses answers or meets a rival."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from reconciler.embedded.catalog.tables import topic_named
from reconciler.embedded.check.check import check_cluster
from reconciler.embedded.check.damage import Severity
from reconciler.embedded.clients import topic_sink
from reconciler.embedded.segments.gate import writer_of
from reconciler.embedded.segments.groups import list_groups, read_group
from reconciler.errors import ReconcilerError, RetryableError
from reconciler.operations.steps.transitions import UNDER_WAY
from reconciler.records.log import Digest, OffsetRange
from tests.embedded.linking.linked import ORDERS, Linked
from tests.embedded.mortal import Fault, MortalStore
from tests.embedded.mounting.migrating import HOWS, Inline, Silent, refusal, without_threads
from tests.embedded.upkeeping import Clock, copied
from tests.embedded.watched import DiedError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    import pytest

    from reconciler.objectstore.base import Listed, ObjectStore, Stored, Version
    from reconciler.resources.mirrors import MirrorSeen

    Do = Callable[[Linked], object]

READ_ONLY = "Cannot append records to read-only mirror topic"
EVERYTHING = OffsetRange(0, 1 << 40)


def one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the n-th write be the same one every time."""
    without_threads(monkeypatch)
    monkeypatch.setattr(topic_sink, "ThreadPoolExecutor", Inline)


def again(linked: Linked) -> Linked:
    """Return the same clusters over copies of their stores."""
    return Linked(Clock(linked.clock.now_ms), dict(_copies(linked)), linked.new_id)


def _copies(linked: Linked) -> Iterator[tuple[str, ObjectStore]]:
    for name, store in linked.stores.items():
        yield name, copied(store)


class AwayStore(MortalStore):
    """A store that does not answer."""

    def get(self, key: str) -> Stored | None:
        raise RetryableError(f"{key}: no answer", hint="Try again.")

    def list(self, prefix: str) -> Iterator[Listed]:
        raise RetryableError(f"{prefix}: no answer", hint="Try again.")

    def get_range(self, key: str, _start: int, _length: int) -> bytes:
        raise RetryableError(f"{key}: no answer", hint="Try again.")

    def put(self, key: str, _body: bytes | memoryview, *, kms_key_id: str | None = None) -> None:
        raise RetryableError(f"{key}: no answer, {kms_key_id}", hint="Try again.")

    def swap(self, key: str, _body: bytes, *, expected: Version | None) -> Version:
        raise RetryableError(f"{key}: no answer, {expected}", hint="Try again.")


def process(
    linked: Linked,
    *,
    fault: Fault | None = None,
    before: Callable[[str, str], None] = lambda _what, _key: None,
    away: Collection[str] = (),
) -> Linked:
    """Return the clusters as one process reaches them, whose writes are counted and may be its last.

    Those that are `away` do not answer.
    """
    fuse = Silent()
    stores: dict[str, ObjectStore] = {}

    def write(what: str, key: str) -> None:
        before(what, key)
        fuse.before(what, key)

    for name, inner in linked.stores.items():
        store = AwayStore(inner) if name in away else MortalStore(inner)
        store.fuse, store.before, store.after = fuse, write, fuse.after
        stores[name] = store
    fuse.arm(fault)
    return Linked(linked.clock, stores, linked.new_id)


def deaths(linked: Linked, do: Do, *, hows: tuple[str, ...] = HOWS) -> Iterator[Linked]:
    """Yield what is left behind for every write, on whichever cluster, at which a process can die or hear nothing."""
    for how in hows:
        for at in itertools.count():
            left, reached = again(linked), False

            def seen(_what: str, _key: str, at: int = at) -> None:
                nonlocal writes, reached
                writes, reached = writes + 1, reached or writes == at

            writes = 0
            try:
                do(process(left, fault=Fault(at, how), before=seen))  # type: ignore[arg-type]  # one of HOWS
            except (DiedError, RetryableError):
                assert reached
            if not reached:
                assert at > 0
                break
            yield left


def rivals(
    linked: Linked, do: Do, rival: Do, *, prepare: Do = lambda _left: None
) -> Iterator[tuple[Linked, ReconcilerError | None]]:
    """Yield what is left for every write that a rival comes right before, and what the process was refused with."""
    for at in itertools.count():
        left, writes, met = again(linked), itertools.count(), False
        prepare(left)

        def meet(_what: str, _key: str, at: int = at, left: Linked = left, writes: Iterator[int] = writes) -> None:
            nonlocal met
            if not met and next(writes) == at:
                met = True
                rival(left)

        said = refusal(lambda left=left, meet=meet: do(process(left, before=meet)))  # type: ignore[misc]
        if not met:
            assert at > 0
            break
        yield left, said


def mirrors_of(linked: Linked) -> Iterator[MirrorSeen]:
    """Yield all mirrors of all clusters, stopped ones too."""
    for name in linked.stores:
        yield from linked.provider(name).links.mirrors()


def finish(linked: Linked) -> None:
    """Let another process drive what is under way to its end, and copy what mirrors."""
    driver = linked.driver()
    for seen in list(mirrors_of(linked)):
        driver.drive(seen.cluster, seen.name)
    assert not [seen for seen in mirrors_of(linked) if seen.status in UNDER_WAY]
    for seen in mirrors_of(linked):
        if seen.status == "ACTIVE":
            linked.copy(seen)


def takes_records(linked: Linked, name: str, full_name: str = ORDERS, partition: int = 0) -> bool:
    """Tell whether somebody new could append to a topic; nothing is appended here."""
    elsewhere = again(linked)
    said = refusal(lambda: elsewhere.produce(name, "probe", full_name=full_name, partition=partition))
    assert said is None or READ_ONLY in str(said), said
    return said is None


def digests(linked: Linked, name: str, full_name: str = ORDERS) -> dict[int, tuple[int, Digest]]:
    """Return the end and the digest of each partition."""
    log = linked.cluster(name).log(full_name)
    return {
        number: (bounds.end, sum(log.digests(number, EVERYTHING), Digest())) for number, bounds in log.bounds().items()
    }


def values(linked: Linked, name: str, full_name: str = ORDERS) -> list[str]:
    """Return the values that are readable, of all partitions, sorted."""
    return sorted((one.value or b"").decode() for one in linked.cluster(name).consume(full_name))


def check_whole(linked: Linked) -> None:
    """See that heads have the writer that the catalog says, groups stay within ends, and a check finds nothing."""
    for name in linked.stores:
        cluster = linked.cluster(name)
        catalog = cluster.catalog.read()
        for full_name in catalog.topics:
            topic = topic_named(catalog, full_name)
            for number, head in cluster.linking.heads(full_name).items():
                assert head.writer == writer_of(topic), (name, full_name, number, head.writer, topic.mirror)
            ends = cluster.linking.ends(full_name)
            for (group, number), offset in committed(linked, name, full_name).items():
                assert offset <= ends[number], (name, group, number)
        found = check_cluster(linked.stores[name])
        assert not [each for each in found.findings if each.severity is Severity.ERROR], name


def committed(linked: Linked, name: str, full_name: str = ORDERS) -> dict[tuple[str, int], int]:
    """Return what groups hold of a topic, as it is kept, by group and partition."""
    cluster = linked.cluster(name)
    topic_id = cluster.topic(full_name).id
    found: dict[tuple[str, int], int] = {}
    for group in list_groups(cluster.store):
        held = read_group(cluster.store, group)
        for (of, number), each in ({} if held is None else held.offsets).items():
            if of == topic_id:
                found[group, number] = each.offset
    return found


def equal(linked: Linked, *names: str, full_name: str = ORDERS) -> bool:
    """Tell whether clusters have the same topic, byte for byte."""
    first, *others = [digests(linked, name, full_name) for name in names]
    return all(other == first for other in others)
