"""The parts of one flush: written beside each other, all of them durable before the first head names one."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from reconciler.embedded.cluster import EmbeddedCluster
from reconciler.errors import RetryableError
from reconciler.objectstore.directory import DirectoryStore
from reconciler.objectstore.memory import MemoryStore
from reconciler.records.hashes import compute_digest
from reconciler.records.log import OffsetRange
from tests.embedded.samples import cluster_in, contents, values
from tests.embedded.stores import WatchedStore

if TYPE_CHECKING:
    from reconciler.embedded.clients.producer import Producer

PARTITIONS = 4
WITHIN_S = 30.0


def producing(cluster: EmbeddedCluster, *, size: int = 1) -> Producer:
    """Return a producer with one record for each partition."""
    cluster.create_topic("orders", partitions=PARTITIONS)
    producer = cluster.producer()
    for partition in range(PARTITIONS):
        producer.append("orders", values(b"%d" % partition * size, partition=[partition]))
    return producer


def test_the_parts_of_several_partitions_are_written_beside_each_other() -> None:
    together = threading.Barrier(PARTITIONS)

    def before(what: str, key: str) -> None:
        if what == "put" and key.startswith("topics/"):
            together.wait(WITHIN_S)

    producer = producing(cluster_in(WatchedStore(MemoryStore(), before=before)))
    assert producer.flush()["orders"] == {partition: OffsetRange(0, 1) for partition in range(PARTITIONS)}


@pytest.mark.parametrize("size", [1, 1 << 18], ids=["small", "large"])
def test_no_head_is_swapped_before_every_part_is_durable(size: int) -> None:
    done: list[str] = []
    last = threading.Event()

    def before(what: str, key: str) -> None:
        if what == "put" and key.startswith("topics/orders_3"):
            assert last.wait(WITHIN_S)
        if what == "swap" and key.startswith("heads/"):
            done.append("swap")

    def after(what: str, _key: str) -> None:
        if what == "put":
            done.append("put")
            if len(done) == PARTITIONS - 1:
                last.set()

    producing(cluster_in(WatchedStore(MemoryStore(), before=before, after=after)), size=size).flush()
    assert done == ["put"] * PARTITIONS + ["swap"] * 2 * PARTITIONS, "each first append settles its head"


@pytest.mark.parametrize("fails", range(PARTITIONS))
def test_where_one_part_cannot_be_written_nothing_of_the_flush_is_published(fails: int) -> None:
    def before(what: str, key: str) -> None:
        if what == "put" and key.startswith(f"topics/orders_{fails}/"):
            raise RetryableError("the disk is full", hint="Try it again.")

    cluster = cluster_in(watched := WatchedStore(MemoryStore(), before=before))
    producer = producing(cluster)
    with pytest.raises(RetryableError, match="the disk is full"):
        producer.flush()
    assert watched.count("swap", "heads/") == 0
    watched.before = lambda _what, _key: None
    producer.append("orders", values("after", partition=[fails]))
    assert producer.flush()["orders"] == {fails: OffsetRange(0, 1)}
    assert contents(cluster.log("orders"), fails) == [(0, b"after")]


@pytest.mark.parametrize("rows", [1, 3, 5_000])
def test_what_is_hashed_while_it_is_written_has_the_digest_of_its_records(rows: int) -> None:
    cluster = cluster_in(MemoryStore())
    cluster.create_topic("orders", configs={"segment.bytes": "1048576"})
    with cluster.producer() as producer:
        producer.append("orders", values(*[os.urandom(500) for _ in range(rows)]))
    log = cluster.log("orders")
    read = [compute_digest(batch, base=0) for batch in log.read(0, OffsetRange(0, rows))]
    found = list(log.read_digests(0, OffsetRange(0, rows)))
    assert len(found) >= 1
    assert sum(found[1:], found[0]) == sum(read[1:], read[0])


class Disk:
    """What of a folder has been made durable, in the order in which it was."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.synced: set[str] = set()
        self.folders: dict[str, set[str]] = {}
        self.lost: list[str] = []
        self.heads = 0

    def watch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        fsync, rename, link = os.fsync, os.rename, os.link

        def synced(descriptor: int) -> None:
            path = Path(f"/proc/self/fd/{descriptor}").readlink()
            fsync(descriptor)
            names = {each.name for each in path.iterdir()} if path.is_dir() else set()
            self.folders.setdefault(str(path), set()).update(names)
            self.synced.add(str(os.fstat(descriptor).st_ino))

        def moved(act: Callable[[str, str], None]) -> Callable[[str, str], None]:
            def place(source: str, target: str) -> None:
                self._check(source, target)
                act(source, target)

            return place

        monkeypatch.setattr(os, "fsync", synced)
        monkeypatch.setattr(os, "rename", moved(rename))
        monkeypatch.setattr(os, "link", moved(link))

    def _check(self, source: str, target: str) -> None:
        """See, before a head gets its place, that all it names is durable: the files and their names."""
        if not target.startswith(f"{self.root}/heads/"):
            return
        self.heads += 1
        named = [
            part for part in self.root.glob("topics/**/*") if part.is_file() and part.name in Path(source).read_text()
        ]
        assert named
        for part in named:
            if str(part.stat().st_ino) not in self.synced or part.name not in self.folders.get(str(part.parent), set()):
                self.lost.append(part.name)
        assert str(Path(source).stat().st_ino) in self.synced


def test_a_head_in_a_folder_names_only_what_is_durable_with_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(tmp_path)
    producer = producing(cluster_in(DirectoryStore(tmp_path)), size=1 << 18)
    disk.watch(monkeypatch)
    producer.flush()
    producer.append("orders", values("small", partition=[0]))
    producer.flush()
    assert disk.heads > PARTITIONS
    assert disk.lost == []
