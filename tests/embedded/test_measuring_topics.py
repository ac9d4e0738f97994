"""A plan measures many topics: it looks at partitions that were written to, and asks nothing of those that were not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconciler.embedded.cluster import EmbeddedCluster
from reconciler.objectstore.memory import MemoryStore
from reconciler.providers.embedded import measures
from reconciler.providers.embedded.measures import measured
from reconciler.resources.address import Address
from tests.embedded.samples import NOW, cluster_in, ids
from tests.embedded.watched import WatchedStore

if TYPE_CHECKING:
    import pytest

TOPICS = [f"t{number:02}" for number in range(12)]


def written(*topics: str) -> WatchedStore:
    """Return a store where twelve topics are of two partitions each, some of them with one record in both."""
    store = MemoryStore()
    cluster = cluster_in(store)
    for topic in TOPICS:
        cluster.create_topic(topic, partitions=2)
    with cluster.producer() as producer:
        for topic in topics:
            for partition in range(2):
                producer.send(topic, "x", partition=partition)
    return WatchedStore(store)


def records_in(store: WatchedStore, topics: list[str]) -> dict[str, int]:
    cluster = EmbeddedCluster.open(store, now_ms=lambda: NOW, new_id=ids())
    found = measured(cluster, [Address(f"topic/west/{topic}") for topic in topics])
    return {address.rpartition("/")[2]: measure.records for address, measure in found.items()}


def test_partitions_never_written_to_count_as_empty_however_many_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measures, "MEASURED_PARTITIONS", 4)
    store = written("t09", "t11")
    assert records_in(store, TOPICS) == {topic: 2 if topic in {"t09", "t11"} else 0 for topic in TOPICS}
    heads = [(call, key) for call, key in store.calls if key.startswith("heads/")]
    assert [key for call, key in heads if call == "list" and key == "heads/"] == ["heads/"]
    assert len(heads) == 1 + 2 * (1 + 2), "one listing of all, and of each topic with records its own and two heads"


def test_beyond_what_is_looked_at_only_topics_with_records_stay_unmeasured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measures, "MEASURED_PARTITIONS", 3)
    assert records_in(written("t00", "t11"), TOPICS) == {"t00": 2, **dict.fromkeys(TOPICS[1:-1], 0)}


def test_of_one_topic_only_its_own_heads_are_listed() -> None:
    store = written("t05")
    assert records_in(store, ["t05"]) == {"t05": 2}
    assert all(key != "heads/" for _, key in store.calls)
    assert records_in(store, ["missing"]) == {}
