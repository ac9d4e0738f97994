"""How much of the connections uploads get: by the backlog, within limits, and never all where readers wait."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from reconciler.embedded.maintenance import passes
from reconciler.embedded.maintenance.survey import Survey
from reconciler.embedded.tiered.remote_tier import Connections, bounded, connections_to
from reconciler.embedded.tiered.upload import Controller, connections_of, error_of, free_bytes
from reconciler.objectstore.directory import DirectoryStore
from reconciler.objectstore.memory import MemoryStore
from tests.embedded.tiered import Tiered, tiered
from tests.embedded.watched import WatchedStore

if TYPE_CHECKING:
    from collections.abc import Mapping

FREE = 1000


@pytest.mark.fact("F-R-034")
@pytest.mark.parametrize(
    ("backlog", "before", "properties", "shares"),
    [
        (0, 0, {}, 100),
        (1, 0, {}, 100),
        (50, 0, {}, 100),
        (51, 0, {}, 102),
        (250, 0, {}, 500),
        (499, 0, {}, 998),
        (500, 0, {}, 1000),
        (5000, 0, {}, 1000),
        (100, 0, {"p_coeff": "-1"}, 100),
        (100, 0, {"p_coeff": "-5"}, 500),
        (100, 0, {"p_coeff": "5"}, 100),
        (100, 100, {"d_coeff": "1"}, 200),
        (100, 50, {"d_coeff": "1"}, 300),
        (100, 150, {"d_coeff": "1"}, 100),
        (400, 0, {"max_shares": "600"}, 600),
        (0, 0, {"min_shares": "300"}, 300),
    ],
)
def test_shares_follow_the_backlog(backlog: int, before: int, properties: Mapping[str, str], shares: int) -> None:
    controller = Controller.of({f"cloud_storage_upload_ctrl_{name}": value for name, value in properties.items()})
    assert controller.shares(error_of(backlog, FREE), error_of(before, FREE)) == shares


@pytest.mark.fact("F-R-034")
def test_a_share_is_at_least_one_connection_and_at_most_all() -> None:
    assert [connections_of(shares, 20) for shares in (0, 49, 100, 500, 1000, 2000)] == [1, 1, 2, 10, 20, 20]


def test_space_is_that_of_the_disk_or_of_a_large_one(tmp_path: Path) -> None:
    assert 0 < free_bytes(DirectoryStore(tmp_path)) < 1 << 60
    assert free_bytes(MemoryStore()) == 1 << 40


@pytest.mark.fact("F-R-034")
def test_the_share_is_set_anew_once_an_interval_and_told() -> None:
    tier = tiered()
    tier.switch_on(upload_ctrl_p_coeff="-100000000")
    tier.fill(9)
    levels = tier.upload().levels
    assert levels["upload_backlog_controller_backlog_size"] > 0
    assert levels["upload_backlog_controller_error"] < 0
    assert 100 < levels["upload_backlog_controller_shares"] < 1000
    noted = Survey.begun(tier.store, tier.cluster.cluster_id, "upload").notes["controller"]
    tier.fill(40)
    tier.clock.now_ms += 59_999
    assert tier.upload().levels == levels
    tier.clock.now_ms += 1
    tier.fill(40)
    later = tier.upload().levels
    assert later["upload_backlog_controller_shares"] > levels["upload_backlog_controller_shares"]
    tier.clock.now_ms += 60_000
    assert tier.upload().levels["upload_backlog_controller_shares"] == 100
    assert Survey.begun(tier.store, tier.cluster.cluster_id, "upload").notes["controller"] != noted


def test_the_partition_with_most_to_upload_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passes, "is_little", lambda _chores: False)
    tier = tiered(partitions=3)
    for partition, parts in ((0, 3), (1, 9), (2, 5)):
        tier.fill(parts, partition=partition)
    tier.cluster.upkeep().roll()
    first: list[str] = []

    def seen(_what: str, key: str) -> None:
        if key.endswith(".parquet"):
            first.append(key.split("/")[3])

    tier.opened(storage=WatchedStore(tier.storage, before=seen)).upkeep().upload(
        lambda chores, task: (list(task([chore])) for chore in chores)
    )
    assert list(dict.fromkeys(first)) == ["00001", "00002", "00000"]


@pytest.mark.fact("F-R-056")
def test_uploads_and_downloads_of_a_process_never_use_more_connections_than_there_are() -> None:
    inner = MemoryStore()
    busy: list[int] = []
    most = [0]
    lock = threading.Lock()

    def begin(_what: str, _key: str) -> None:
        with lock:
            busy.append(1)
            most[0] = max(most[0], len(busy))

    def end(_what: str, _key: str) -> None:
        with lock:
            busy.pop()

    watched = WatchedStore(inner, before=begin, after=end)
    stores = [bounded(watched, 3), bounded(bounded(watched, 3), 3)]

    def use(number: int) -> None:
        stores[number % 2].put(f"key{number}", b"x")
        assert stores[number % 2].get(f"key{number}") is not None

    with ThreadPoolExecutor(16) as threads:
        list(threads.map(use, range(400)))
    assert 1 <= most[0] <= 3
    assert connections_to(inner.url, 3) is stores[0].connections is stores[1].connections


@pytest.mark.fact("F-R-056")
def test_where_downloads_wait_uploads_keep_to_their_share_and_else_take_all() -> None:
    connections = Connections(3)
    connections.share = 1
    with connections.upload(), connections.upload(), connections.upload():
        pass
    began, release, read = threading.Event(), threading.Event(), threading.Event()

    def download() -> None:
        began.set()
        with connections.download():
            read.set()
            release.wait(10)

    with connections.upload(), connections.upload():
        with connections.upload():
            reader = threading.Thread(target=download)
            reader.start()
            assert began.wait(10)
            assert not read.is_set()
        assert read.wait(10)
        release.set()
        reader.join(10)


def test_a_tier_is_the_same_whoever_opens_it() -> None:
    tier = Tiered()
    tier.switch_on(max_connections="7")
    tier.cluster.catalog.read()
    remote, other = tier.cluster.remote, tier.opened()
    other.catalog.read()
    assert remote is not None
    assert other.remote is not None
    assert remote.connections is other.remote.connections
    assert remote.connections.limit == 7
