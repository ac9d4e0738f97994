"""A pass with nothing to do costs one listing of the heads and a handful of requests, however many partitions."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pytest

from reconciler.objectstore.memory import MemoryStore
from reconciler.providers.embedded.maintenance import jobs_of
from reconciler.providers.protocol import MaintenancePorts
from tests.embedded.tiered import BOTH, Tiered
from tests.embedded.upkeeping import TOPIC, TWO_PARTS, append_parts, head_of, with_topic
from tests.embedded.watched import WatchedStore


def written(partitions: int) -> tuple[Tiered, WatchedStore, WatchedStore]:
    """Return a tiered topic of so many partitions, a record in each, and what is asked of both tiers."""
    store, storage = WatchedStore(MemoryStore()), WatchedStore(MemoryStore())
    tier = Tiered(store, storage)
    tier.switch_on()
    configs = {key.replace(".", "_"): value for key, value in BOTH.items()}
    with_topic(tier.cluster, partitions=partitions, segment_bytes=TWO_PARTS, cleanup_policy="compact,delete", **configs)
    with tier.cluster.producer() as producer:
        keys = pa.array([b"k"] * partitions, pa.binary())
        numbers = pa.array(range(partitions), pa.int32())
        producer.append(TOPIC, pa.RecordBatch.from_pydict({"key": keys, "value": keys, "partition": numbers}))
    return tier, store, storage


def all_jobs(tier: Tiered) -> None:
    """Do a whole pass, as `run` does."""
    means = MaintenancePorts(lambda work, do: iter([do(work)]), lambda _address: True, lambda: False, is_asked=False)
    for do in jobs_of("west", tier.opened(), means).values():
        assert do().failed == 0


def asked(*stores: WatchedStore) -> Counter[str]:
    return Counter(what for store in stores for what, _ in store.calls)


@pytest.mark.parametrize("partitions", [3, 150, pytest.param(10_000, marks=pytest.mark.soak)])
def test_from_the_second_round_on_nothing_to_do_is_one_listing_and_a_few_requests(partitions: int) -> None:
    tier, store, storage = written(partitions)
    all_jobs(tier)
    store.calls.clear()
    storage.calls.clear()
    all_jobs(tier)
    assert Counter(key for what, key in store.calls if what == "list" and key.startswith("heads/")) == {"heads/": 1}
    found = asked(store, storage)
    assert found["put"] + found["swap"] + found["delete"] + found["copy_in"] == 0
    assert found["get"] < 50
    assert found["list"] <= 3
    assert sum(found.values()) < 55


def test_what_a_job_of_the_pass_has_changed_is_due_for_those_that_follow() -> None:
    tier, store, _ = written(2)
    append_parts(tier.cluster, 8, partition=1)
    store.calls.clear()
    upkeep = tier.opened().upkeep()
    assert upkeep.roll().partitions == 1
    assert upkeep.upload().partitions == 1
    assert upkeep.compact().partitions == 1
    assert store.count("list", "heads/") == 1
    assert tier.manifest(1).end == head_of(tier.cluster, 1).compacted_to > 10
    again = tier.opened().upkeep()
    assert again.upload().partitions == 1
    assert store.count("list", "heads/") == 2


def test_a_job_that_is_done_once_more_lists_anew() -> None:
    tier, store, _ = written(1)
    upkeep = tier.opened().upkeep()
    store.calls.clear()
    assert upkeep.upload().partitions == 0
    append_parts(tier.cluster, 8)
    assert upkeep.upload().partitions == 1
    assert store.count("list", "heads/") == 2
